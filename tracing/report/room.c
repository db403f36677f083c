/* SPDX-License-Identifier: MIT */
#include "room.h"

struct look {
	struct clv_room *room;
	const struct clv_plane *p;
	const struct clv_culprits *c;
	const struct clv_room_for *want;
	uint32_t without;
	size_t pin;    /* the first that does not begin before the piece that is looked at */
	uint64_t hole; /* bytes up to here */
	bool usable;   /* by the request: so is the run that the hole lies in */
	bool grows;    /* this run can, being expandable */
	/* of expandable segments: one has grown for the request; else the last run can, behind the hole of `tail` bytes at its end */
	bool grown, growing;
	uint64_t tail, end;
};

static void end_hole(struct look *l)
{
	struct clv_room *r = l->room;
	if (!l->hole)
		return;
	if (l->usable) {
		r->usable += l->hole;
		r->largest = clv_max_u64(r->largest, l->hole);
		r->fits |= l->hole >= l->want->asked && l->hole < l->want->hole_max;
	} else {
		r->foreign += l->hole;
	}
	l->hole = 0;
}

/* The run that ended last can grow by `gap`: the first one, by address, that has room for the request is the one that does. */
static void grow_into(struct look *l, uint64_t gap)
{
	uint64_t asked = l->want->asked;
	if (l->growing && (l->tail >= asked || gap >= asked - l->tail)) {
		l->room->grow = asked - clv_min_u64(asked, l->tail);
		l->grown = true;
	}
	l->growing = false;
}

static void end_run(struct look *l)
{
	l->growing = l->usable && l->grows && !l->grown;
	l->tail = l->hole;
	end_hole(l);
}

static bool is_taken_away(struct look *l, uint32_t at)
{
	const struct clv_culprits *c = l->c;
	while (l->pin < c->pin_count && c->pins[l->pin].begin < at)
		l->pin++;
	return l->pin < c->pin_count && c->pins[l->pin].begin == at && l->without != CLV_ROOM_ALL &&
	       c->order[c->pins[l->pin].group] == l->without;
}

static void look_at_frame(struct look *l, const struct clv_plane_frame *f)
{
	const struct clv_plane *p = l->p;
	uint32_t from = f->begin;
	uint64_t used = 0;
	for (uint32_t at = clv_plane_first(p, f->begin); at < f->end; at = clv_rankset_next(&p->starts, at + 1)) {
		if (is_taken_away(l, at))
			continue;
		uint32_t begin = at > from ? at : from, end = p->pieces[at].end < f->end ? p->pieces[at].end : f->end;
		l->hole += p->keys[begin] - p->keys[from];
		end_hole(l);
		used += p->keys[end] - p->keys[begin];
		from = end;
	}
	l->hole += p->keys[f->end] - p->keys[from];
	if (!used)
		l->room->returnable += p->keys[f->end] - p->keys[f->begin];
}

void clv_room_look(struct clv_room *room, const struct clv_state *s, const struct clv_culprits *culprits,
		   uint32_t without, const struct clv_room_for *want)
{
	const struct clv_plane *p = &s->plane;
	struct look l = {.room = room, .p = p, .c = culprits, .want = want, .without = without};
	*room = (struct clv_room){.grow = want->asked};
	for (uint32_t i = clv_plane_frame_next(p, CLV_RANK_NONE); i != CLV_RANK_NONE; i = clv_plane_frame_next(p, i)) {
		const struct clv_report_frame *record = &p->records[i];
		if (clv_rankset_has(&p->run_begins, p->frames[i].begin)) {
			end_run(&l);
			l.grows = record->expandable;
			l.usable = !want->apart || (record->stream == want->stream && record->pool == want->pool &&
						    record->small == want->small);
			grow_into(&l, l.usable && l.grows ? p->keys[p->frames[i].begin] - l.end : UINT64_MAX);
		}
		look_at_frame(&l, &p->frames[i]);
		l.end = p->keys[p->frames[i].end];
	}
	end_run(&l);
	grow_into(&l, UINT64_MAX);
	room->returnable += p->unmapped;
}
