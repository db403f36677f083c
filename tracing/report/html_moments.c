/* SPDX-License-Identifier: MIT */
#include "html_internal.h"

static json_t *stream_json(const struct clv_html_device *p, uint32_t stream)
{
	return stream < p->d->trace->stream_count ? json_integer(stream) : json_null();
}

static uint32_t stack_of(const struct clv_html_device *p, uint32_t stack)
{
	return clv_html_stack(p->texts, p->d->trace, p->trace_index, stack, true);
}

static json_t *event_json(uint32_t event)
{
	return event == UINT32_MAX ? json_null() : json_integer(event);
}

/* A block that is named: the neighbour of a hole, the sample of a group. */
static json_t *block_json(const struct clv_html_device *p, uint32_t block)
{
	if (block >= p->d->history->block_count)
		return json_null();
	const struct clv_report_block *b = &p->d->blocks[block];
	return json_pack("{s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o}", "addr", clv_json_hex(b->addr), "size",
			 clv_json_number(b->size), "given", clv_json_number(b->given), "cut_from",
			 clv_json_number(b->cut_from), "stack", (json_int_t)stack_of(p, b->stack), "stream",
			 stream_json(p, b->stream), "born", event_json(b->born), "freed", event_json(b->freed));
}

static json_t *hole_json(const struct clv_html_device *p, const struct clv_report_hole *h)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "addr", clv_json_hex(h->addr), "size",
			 clv_json_number(h->size), "stranded", clv_json_number(h->stranded), "left",
			 block_json(p, h->left), "right", block_json(p, h->right), "cutter", block_json(p, h->cutter),
			 "stream", stream_json(p, h->stream));
}

static json_t *group_json(const struct clv_html_device *p, const struct clv_report_group *g)
{
	char name[512];
	json_t *j = json_pack("{s:o, s:I, s:o, s:o, s:o, s:o}", "name",
			      clv_html_text(clv_report_group_name(p->d, g, name, sizeof(name))), "stack",
			      (json_int_t)stack_of(p, g->stack), "size", clv_json_number(g->size), "stream",
			      stream_json(p, g->stream), "blocks", clv_json_number(g->blocks), "bytes",
			      clv_json_number(g->bytes));
	json_t *pinned =
		json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "stranded", clv_json_number(g->stranded_bytes), "marginal",
			  clv_json_number(g->marginal_bytes), "shared", clv_json_number(g->shared_bytes), "frame_bytes",
			  clv_json_number(g->frame_bytes), "frames", clv_json_number(g->frames), "frames_alone",
			  clv_json_number(g->frames_alone));
	json_t *life = json_pack("{s:[o, o], s:[o, o], s:o, s:o, s:i}", "age", clv_html_seconds(g->age_min_s),
				 clv_html_seconds(g->age_max_s), "left", clv_html_seconds(g->left_min_s),
				 clv_html_seconds(g->left_max_s), "never_freed", clv_json_number(g->never_freed),
				 "sample", block_json(p, g->sample), "would_serve", g->would_serve);
	if (!j || !pinned || !life || json_object_update(j, pinned) || json_object_update(j, life)) {
		json_decref(j);
		j = NULL;
	}
	json_decref(pinned);
	json_decref(life);
	return j;
}

/* What is not known is null. */
static json_t *known_json(uint64_t n)
{
	return n == UINT64_MAX ? json_null() : clv_json_number(n);
}

static json_t *failure_json(const struct clv_html_device *p, const struct clv_report_failure *f)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o}", "asked", clv_json_number(f->asked),
			 "needed", clv_json_number(f->needed), "device_free", known_json(f->device_free), "limit",
			 known_json(f->limit), "stream", stream_json(p, f->stream), "stack",
			 (json_int_t)stack_of(p, f->stack), "usable_free", clv_json_number(f->usable_free),
			 "largest_usable", clv_json_number(f->largest_usable), "foreign_free",
			 clv_json_number(f->foreign_free), "repeats", clv_json_number(f->repeats), "text",
			 clv_json_text(f->text ? f->text : ""));
}

static json_t *moment_json(const struct clv_html_device *p, const struct clv_report_moment *m)
{
	json_t *holes = json_array(), *groups = json_array();
	bool ok = holes && groups;
	for (uint32_t i = 0; ok && i < m->holes_kept; i++)
		ok = json_array_append_new(holes, hole_json(p, &m->holes[i])) == 0;
	for (uint32_t i = 0; ok && i < m->groups_kept; i++)
		ok = json_array_append_new(groups, group_json(p, &m->groups[i])) == 0;
	if (!ok) {
		json_decref(holes);
		json_decref(groups);
		return NULL;
	}
	json_t *j = json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "kind",
			      clv_moment_name(m->kind), "title", clv_moment_title(m->kind), "event",
			      (json_int_t)m->event, "time_s", clv_html_seconds(m->time_s), "sum", clv_html_sum(&m->sum),
			      "live_blocks", clv_json_number(m->live_blocks), "frames", clv_json_number(m->frames),
			      "frames_occupied", clv_json_number(m->frames_occupied), "holes", holes, "groups", groups,
			      "pinned_by_others", clv_json_number(m->pinned_by_others));
	bool more = j && json_object_set_new(j, "hole_count", clv_json_number(m->hole_count)) == 0 &&
		    json_object_set_new(j, "largest_hole", clv_json_number(m->largest_hole)) == 0 &&
		    json_object_set_new(j, "group_count", clv_json_number(m->group_count)) == 0;
	if (more && m->label < p->d->trace->string_count)
		more = json_object_set_new(j, "label", clv_html_text(p->d->trace->strings[m->label])) == 0;
	if (more && m->kind == CLV_MOMENT_FAILURE)
		more = json_object_set_new(j, "failure", failure_json(p, &m->failure)) == 0;
	if (more)
		return j;
	json_decref(j);
	return NULL;
}

json_t *clv_html_moments(const struct clv_html_device *p)
{
	json_t *list = json_array();
	for (uint32_t i = 0; list && i < p->d->moment_count; i++)
		if (json_array_append_new(list, moment_json(p, &p->d->moments[i]))) {
			json_decref(list);
			return NULL;
		}
	return list;
}

json_t *clv_html_trials(const struct clv_html_device *p)
{
	json_t *list = json_array();
	for (uint32_t i = 0; list && i < p->d->trial_count; i++) {
		const struct clv_report_trial *t = &p->d->trials[i];
		json_t *j = json_pack(
			"{s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:b, s:I}", "policy",
			clv_json_text(t->policy ? t->policy : ""), "what", clv_json_text(t->what ? t->what : ""),
			"capacity", clv_json_number(t->capacity), "completed", t->completed, "peak_held",
			clv_json_number(t->peak_held), "peak_stranded", clv_json_number(t->peak_stranded), "failures",
			clv_json_number(t->failures), "confirmed", t->confirmed, "saved", (json_int_t)t->saved_bytes);
		if (json_array_append_new(list, j)) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}
