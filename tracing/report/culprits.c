/* SPDX-License-Identifier: MIT */
#include "culprits.h"

#include "../memory.h"

#include <string.h>

struct search {
	struct clv_culprits *c;
	const struct clv_state *s;
	uint64_t begin_us, now_us;
	struct clv_map keys;  /* what blocks of a group share, to the group's number */
	struct clv_map sizes; /* numbers of requested sizes, for the keys */
	uint32_t *seen;       /* by group: the frame, plus 1, that it was last found in */
	size_t seen_cap;
	uint64_t *sample_pins; /* by group: stranded bytes that its sample pins */
	size_t sample_cap;
	uint32_t *offsets, *lists; /* by group, the frames that it pins */
};

/* ---- groups ---- */

/* Blocks without a stack are told by size and stream: an exact key of both, which no stack has. */
static bool key_of(struct search *f, const struct clv_report_block *b, uint64_t *key)
{
	if (b->stack != CLV_NO_STACK) {
		*key = b->stack;
		return true;
	}
	struct clv_map_slot *slot = clv_map_slot(&f->sizes, b->size);
	if (!slot)
		return false;
	if (slot->value == CLV_MAP_NONE)
		slot->value = (uint32_t)(f->sizes.used - 1);
	*key = (uint64_t)1 << 63 | (uint64_t)slot->value << 31 | (b->stream & 0x7fffffffu);
	return true;
}

/* The group of a block; a new one is empty. CLV_MAP_NONE: out of host memory. */
static uint32_t group_of(struct search *f, const struct clv_report_block *b)
{
	struct clv_culprits *c = f->c;
	uint64_t key;
	if (!key_of(f, b, &key))
		return CLV_MAP_NONE;
	struct clv_map_slot *slot = clv_map_slot(&f->keys, key);
	if (!slot)
		return CLV_MAP_NONE;
	if (slot->value != CLV_MAP_NONE)
		return slot->value;
	size_t need = c->group_count + 1;
	if (!clv_mem_reserve(&c->groups, &c->group_cap, need, sizeof(*c->groups)) ||
	    !clv_mem_reserve(&f->seen, &f->seen_cap, need, sizeof(*f->seen)) ||
	    !clv_mem_reserve(&f->sample_pins, &f->sample_cap, need, sizeof(*f->sample_pins))) {
		slot->value = 0;
		return CLV_MAP_NONE;
	}
	slot->value = (uint32_t)c->group_count++;
	c->groups[slot->value] = (struct clv_report_group){.stack = b->stack,
							   .size = b->size,
							   .stream = b->stream,
							   .age_min_s = -1,
							   .left_min_s = -1,
							   .sample = CLV_NO_BLOCK,
							   .would_serve = -1};
	f->seen[slot->value] = 0;
	f->sample_pins[slot->value] = 0;
	return slot->value;
}

static uint64_t event_time(const struct clv_history *h, uint32_t event, uint64_t otherwise)
{
	return event < h->event_count ? h->events[event].time_us : otherwise;
}

static double apart(uint64_t from_us, uint64_t to_us)
{
	return to_us > from_us ? (double)(to_us - from_us) / 1e6 : 0;
}

static void count_block(struct search *f, struct clv_report_group *g, const struct clv_report_block *b)
{
	double age = apart(event_time(f->s->h, b->born, f->begin_us), f->now_us);
	g->blocks++;
	g->bytes += b->given;
	if (g->size != b->size)
		g->size = 0;
	if (g->stream != b->stream)
		g->stream = CLV_NO_STREAM;
	if (g->age_min_s < 0 || age < g->age_min_s)
		g->age_min_s = age;
	if (age > g->age_max_s)
		g->age_max_s = age;
	if (b->freed == CLV_REPORT_NEVER) {
		g->never_freed++;
		return;
	}
	double left = apart(f->now_us, event_time(f->s->h, b->freed, f->now_us));
	if (g->left_min_s < 0 || left < g->left_min_s)
		g->left_min_s = left;
	if (left > g->left_max_s)
		g->left_max_s = left;
}

static uint64_t hard_bytes(const struct clv_plane *p, const struct clv_plane_frame *f)
{
	return f->occupied ? p->keys[f->end] - p->keys[f->begin] - f->used : 0;
}

/* ---- who pins what ---- */

/* The frames and pieces of the moment, both by address. */
static bool gather_pins(struct search *f)
{
	const struct clv_plane *p = &f->s->plane;
	struct clv_culprits *c = f->c;
	uint32_t last =
		CLV_NO_BLOCK; /* a block in several pieces, which only recordings that contradict themselves have */
	for (uint32_t at = clv_rankset_next(&p->starts, 0); at != CLV_RANK_NONE;
	     at = clv_rankset_next(&p->starts, at + 1)) {
		const struct clv_plane_piece *piece = &p->pieces[at];
		if (piece->kind != CLV_PLANE_LIVE || piece->owner == CLV_NO_BLOCK)
			continue;
		const struct clv_report_block *b = &f->s->blocks[piece->owner];
		uint32_t group = group_of(f, b);
		if (group == CLV_MAP_NONE ||
		    !clv_mem_reserve(&c->pins, &c->pin_cap, c->pin_count + 1, sizeof(*c->pins)))
			return false;
		c->pins[c->pin_count++] = (struct clv_pin){at, group};
		if (piece->owner != last)
			count_block(f, &c->groups[group], b);
		last = piece->owner;
	}
	return true;
}

static bool add_member(struct search *f, struct clv_pinned_frame *frame, uint32_t group)
{
	struct clv_culprits *c = f->c;
	uint32_t stamp = (uint32_t)c->frame_count; /* of this frame, which is the last one: its index plus 1 */
	if (f->seen[group] == stamp)
		return true;
	if (c->member_count >= UINT32_MAX ||
	    !clv_mem_reserve(&c->members, &c->member_cap, c->member_count + 1, sizeof(*c->members)))
		return false;
	f->seen[group] = stamp;
	c->members[c->member_count++] = group;
	frame->count++;
	frame->left++;
	frame->mix ^= group;
	return true;
}

static bool gather_frames(struct search *f)
{
	const struct clv_plane *p = &f->s->plane;
	struct clv_culprits *c = f->c;
	size_t pin = 0; /* the first that ends behind the frame's begin */
	for (uint32_t i = clv_plane_frame_next(p, CLV_RANK_NONE); i != CLV_RANK_NONE; i = clv_plane_frame_next(p, i)) {
		const struct clv_plane_frame *plain = &p->frames[i];
		if (!clv_mem_reserve(&c->frames, &c->frame_cap, c->frame_count + 1, sizeof(*c->frames)))
			return false;
		struct clv_pinned_frame *frame = &c->frames[c->frame_count++];
		*frame = (struct clv_pinned_frame){.frame = i, .first = (uint32_t)c->member_count};
		uint64_t pinned = 0;
		while (pin < c->pin_count && p->pieces[c->pins[pin].begin].end <= plain->begin)
			pin++;
		for (size_t k = pin; k < c->pin_count && c->pins[k].begin < plain->end; k++) {
			const struct clv_plane_piece *piece = &p->pieces[c->pins[k].begin];
			uint32_t from = c->pins[k].begin > plain->begin ? c->pins[k].begin : plain->begin;
			uint32_t to = piece->end < plain->end ? piece->end : plain->end;
			pinned += p->keys[to] - p->keys[from];
			if (!add_member(f, frame, c->pins[k].group))
				return false;
		}
		/* what else occupies it nobody can free: reservations */
		frame->reserved = plain->occupied > pinned;
		frame->left += frame->reserved;
	}
	return true;
}

/* The block of each group that lies beside the most stranded bytes. */
static void find_samples(struct search *f)
{
	const struct clv_plane *p = &f->s->plane;
	struct clv_culprits *c = f->c;
	for (size_t k = 0; k < c->pin_count; k++) {
		const struct clv_plane_piece *piece = &p->pieces[c->pins[k].begin];
		struct clv_report_group *g = &c->groups[c->pins[k].group];
		uint64_t pins = 0;
		uint32_t at = clv_plane_frame_of(p, c->pins[k].begin);
		for (; at != CLV_RANK_NONE && p->frames[at].begin < piece->end; at = clv_plane_frame_next(p, at))
			pins += hard_bytes(p, &p->frames[at]);
		if (g->sample == CLV_NO_BLOCK || pins > f->sample_pins[c->pins[k].group]) {
			g->sample = piece->owner;
			f->sample_pins[c->pins[k].group] = pins;
		}
	}
}

static void weigh_groups(struct search *f)
{
	const struct clv_plane *p = &f->s->plane;
	struct clv_culprits *c = f->c;
	for (size_t i = 0; i < c->frame_count; i++) {
		const struct clv_pinned_frame *frame = &c->frames[i];
		const struct clv_plane_frame *plain = &p->frames[frame->frame];
		uint64_t hard = hard_bytes(p, plain);
		bool alone = frame->left == 1 && !frame->reserved;
		for (uint32_t m = 0; m < frame->count; m++) {
			struct clv_report_group *g = &c->groups[c->members[frame->first + m]];
			g->frames++;
			g->frames_alone += alone;
			g->stranded_bytes += alone ? hard : 0;
			g->frame_bytes += alone ? p->keys[plain->end] - p->keys[plain->begin] : 0;
			g->shared_bytes += alone ? 0 : hard;
			g->marginal_bytes += alone ? hard : 0;
		}
	}
}

/* ---- the order ---- */

/* For each group the frames that it pins: offsets[g] .. offsets[g + 1] of lists. */
static bool list_frames(struct search *f)
{
	struct clv_culprits *c = f->c;
	f->offsets = clv_mem_zalloc(c->group_count + 2, sizeof(*f->offsets));
	f->lists = clv_mem_realloc(NULL, c->member_count + 1, sizeof(*f->lists));
	if (!f->offsets || !f->lists)
		return false;
	for (size_t m = 0; m < c->member_count; m++)
		f->offsets[c->members[m] + 2]++;
	for (size_t g = 2; g < c->group_count + 2; g++)
		f->offsets[g] += f->offsets[g - 1];
	for (size_t i = 0; i < c->frame_count; i++)
		for (uint32_t m = 0; m < c->frames[i].count; m++)
			f->lists[f->offsets[c->members[c->frames[i].first + m] + 1]++] = (uint32_t)i;
	return true;
}

static uint32_t birth(const struct search *f, const struct clv_report_group *g)
{
	uint32_t born = g->sample == CLV_NO_BLOCK ? CLV_REPORT_BEFORE : f->s->blocks[g->sample].born;
	return born == CLV_REPORT_BEFORE ? 0 : born + 1;
}

static bool ranks_before(const struct search *f, const struct clv_report_group *a, const struct clv_report_group *b)
{
	if (a->marginal_bytes != b->marginal_bytes)
		return a->marginal_bytes > b->marginal_bytes;
	if (a->shared_bytes != b->shared_bytes)
		return a->shared_bytes > b->shared_bytes;
	if (a->bytes != b->bytes)
		return a->bytes > b->bytes;
	return birth(f, a) < birth(f, b);
}

/* Takes a group away: frames that only one other pins from now on are that one's. */
static void take_away(struct search *f, uint32_t group)
{
	const struct clv_plane *p = &f->s->plane;
	struct clv_culprits *c = f->c;
	for (uint32_t i = f->offsets[group]; i < f->offsets[group + 1]; i++) {
		struct clv_pinned_frame *frame = &c->frames[f->lists[i]];
		frame->mix ^= group;
		if (--frame->left == 1 && !frame->reserved)
			c->groups[frame->mix].marginal_bytes += hard_bytes(p, &p->frames[frame->frame]);
	}
}

static bool rank(struct search *f, uint32_t top)
{
	struct clv_culprits *c = f->c;
	size_t kept = c->group_count < top ? c->group_count : top;
	struct clv_report_group *ranked = clv_mem_realloc(NULL, kept + 1, sizeof(*ranked));
	uint8_t *taken = clv_mem_zalloc(c->group_count + 1, 1);
	c->order = clv_mem_realloc(NULL, c->group_count + 1, sizeof(*c->order));
	bool ok = ranked && taken && c->order;
	for (size_t r = 0; ok && r < kept; r++) {
		uint32_t best = CLV_MAP_NONE;
		for (uint32_t g = 0; g < c->group_count; g++)
			if (!taken[g] && (best == CLV_MAP_NONE || ranks_before(f, &c->groups[g], &c->groups[best])))
				best = g;
		taken[best] = 1;
		ranked[r] = c->groups[best];
		c->order[best] = (uint32_t)r;
		take_away(f, best);
	}
	for (size_t g = 0; ok && g < c->group_count; g++)
		if (!taken[g])
			c->order[g] = UINT32_MAX; /* not kept */
	if (ok && kept)
		memcpy(c->groups, ranked, kept * sizeof(*ranked));
	clv_mem_free(ranked);
	clv_mem_free(taken);
	return ok;
}

bool clv_culprits_find(struct clv_culprits *c, const struct clv_state *s, uint32_t top, uint64_t begin_us,
		       uint64_t now_us)
{
	*c = (struct clv_culprits){NULL};
	struct search f = {.c = c, .s = s, .begin_us = begin_us, .now_us = now_us};
	bool ok = gather_pins(&f) && gather_frames(&f) && list_frames(&f);
	if (ok) {
		find_samples(&f);
		weigh_groups(&f);
		ok = rank(&f, top);
	}
	clv_map_free(&f.keys);
	clv_map_free(&f.sizes);
	clv_mem_free(f.seen);
	clv_mem_free(f.sample_pins);
	clv_mem_free(f.offsets);
	clv_mem_free(f.lists);
	return ok;
}

void clv_culprits_free(struct clv_culprits *c)
{
	clv_mem_free(c->pins);
	clv_mem_free(c->frames);
	clv_mem_free(c->members);
	clv_mem_free(c->groups);
	clv_mem_free(c->order);
	*c = (struct clv_culprits){NULL};
}
