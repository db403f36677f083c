/* SPDX-License-Identifier: MIT
 *
 * The analysis of the bundled recordings: identities that hold at every event, and figures that other parts of the project
 * compute in other ways.
 */
#include "../tracing/import/import.h"
#include "../tracing/policies/torch_verify.h"
#include "../tracing/report/state.h"
#include "../tracing/synth.h"
#include "check_main.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
	"fuzz_capped",        "fuzz_expandcap", "fuzz_gc60", "fuzz_mempool", "fuzz_pendcap", "fuzz_streams",
	"k3_reorder_split20", "moe_prealloc",   "moe_stack", "pools",        "serve",        "train"};

static struct clv_trace *bundled(const char *name)
{
	const char *folder = getenv("CLEAVE_TEST_DATA");
	char path[4096];
	struct clv_error err = {{0}};
	ck_assert(folder != NULL);
	snprintf(path, sizeof(path), "%s/%s.clv", folder, name);
	struct clv_trace *t = clv_trace_import(path, &err);
	ck_assert_msg(t != NULL, "%s", err.text);
	return t;
}

static uint64_t all_of(const struct clv_report_sum *s)
{
	uint64_t all = 0;
	for (int c = 0; c < CLV_CAUSE_COUNT; c++)
		all += s->of[c];
	return all;
}

/* Books counted anew would take minutes at each event; the identity alone is looked at each time. */
START_TEST(the_sum_is_what_is_held)
{
	struct clv_trace *t = bundled(names[_i]);
	const struct clv_history *h = &t->histories[0];
	struct clv_error err = {{0}};
	struct clv_state s;
	uint64_t live = 0, peak_live = 0, every = clv_max_u64(h->event_count / 200, 1);
	ck_assert_msg(clv_state_open(&s, t, h, &err), "%s", err.text);
	do {
		char why[256] = "";
		live = s.plane.sum.of[CLV_CAUSE_LIVE] + s.plane.sum.of[CLV_CAUSE_STREAM];
		peak_live = clv_max_u64(peak_live, live);
		ck_assert_uint_eq(all_of(&s.plane.sum), s.plane.sum.held);
		if (s.event % every == 0)
			ck_assert_msg(clv_plane_check(&s.plane, why, sizeof(why)), "%s, event %u: %s", names[_i],
				      s.event, why);
	} while (clv_state_step(&s));
	ck_assert_uint_eq(s.event, h->event_count);

	/* the final state is in the file */
	ck_assert(h->has_state);
	uint64_t held = 0, inactive = 0;
	for (uint32_t i = 0; i < h->segment_count; i++)
		held += h->segments[i].size;
	for (uint32_t i = 0; i < h->block_record_count; i++) {
		const struct clv_block_record *b = &h->blocks[i];
		if (b->state == CLV_BLOCK_INACTIVE) {
			inactive += b->size;
			continue;
		}
		uint32_t rank = clv_plane_rank(&s.plane, b->addr);
		ck_assert(rank != CLV_RANK_NONE && clv_rankset_has(&s.plane.starts, rank));
		const struct clv_plane_piece *p = &s.plane.pieces[rank];
		ck_assert_msg(s.plane.keys[p->end] == b->addr + b->size,
			      "%s: the block at 0x%llx is given %llu, not %llu", names[_i], (unsigned long long)b->addr,
			      (unsigned long long)(s.plane.keys[p->end] - b->addr), (unsigned long long)b->size);
		ck_assert_int_eq(p->kind, b->state == CLV_BLOCK_ACTIVE ? CLV_PLANE_LIVE : CLV_PLANE_PENDING);
	}
	ck_assert_uint_eq(s.plane.sum.held, held);
	ck_assert_uint_eq(s.plane.sum.of[CLV_CAUSE_HARD] + s.plane.sum.of[CLV_CAUSE_SOFT], inactive);
	clv_state_close(&s);
	clv_trace_free(t);
}
END_TEST

/* The model of PyTorch's allocator, in step with the file, counts what is stranded in its own way. To it a block whose free is
 * pending is in use. */
START_TEST(peaks_as_in_the_model)
{
	struct clv_trace *t = bundled(names[_i]);
	const struct clv_trace *const traces[] = {t};
	struct clv_error err = {{0}};
	struct clv_verify_result v;
	ck_assert_msg(clv_torch_verify(t, &t->histories[0], &v, &err), "%s", err.text);
	struct clv_report *report = clv_report_make(traces, 1, &(struct clv_report_options){0}, &err);
	ck_assert_msg(report != NULL, "%s", err.text);
	const struct clv_report_device *d = &report->devices[0];
	ck_assert_uint_eq(d->peak.held, v.peak_reserved_bytes);
	ck_assert_uint_eq(d->failures, t->histories[0].oom_count);
	if (d->peak.of[CLV_CAUSE_STREAM]) {
		ck_assert_uint_le(d->peak_stranded, v.stranded_peak_bytes);
	} else {
		ck_assert_uint_eq(d->peak_stranded, v.stranded_peak_bytes);
		ck_assert_uint_eq(d->peak.of[CLV_CAUSE_LIVE], t->histories[0].peak_live_bytes);
	}
	ck_assert(d->given_known && d->has_history && d->basis == CLV_BASIS_SEGMENTS);
	clv_verify_free(&v);
	clv_report_free(report);
	clv_trace_free(t);
}
END_TEST

/* Peaks lie in buckets, buckets follow each other, and marginals add up, in any history. */
START_TEST(buckets_and_moments_agree)
{
	struct clv_trace *t = bundled(names[_i]);
	const struct clv_trace *const traces[] = {t};
	struct clv_error err = {{0}};
	struct clv_report *report = clv_report_make(traces, 1, &(struct clv_report_options){.top = 1000}, &err);
	ck_assert_msg(report != NULL, "%s", err.text);
	const struct clv_report_device *d = &report->devices[0];
	ck_assert_uint_le(d->bucket_count, CLV_REPORT_BUCKETS);
	uint32_t next = 0;
	uint64_t most = 0;
	for (uint32_t i = 0; i < d->bucket_count; i++) {
		const struct clv_report_bucket *b = &d->buckets[i];
		ck_assert_uint_eq(b->first_event, next);
		next = b->last_event;
		most = clv_max_u64(most, b->max.of[CLV_CAUSE_HARD]);
		ck_assert(b->end_s >= b->begin_s && b->min.held <= b->end.held && b->end.held <= b->max.held);
	}
	ck_assert_uint_eq(next, t->histories[0].event_count);
	ck_assert_uint_eq(most, d->peak_stranded);
	for (uint32_t i = 0; i < d->moment_count; i++) {
		const struct clv_report_moment *m = &d->moments[i];
		uint64_t sum = m->pinned_by_others, blocks = 0;
		for (uint32_t g = 0; g < m->groups_kept; g++) {
			sum += m->groups[g].marginal_bytes;
			blocks += m->groups[g].blocks;
			ck_assert_uint_le(m->groups[g].stranded_bytes, m->groups[g].marginal_bytes);
		}
		ck_assert_uint_eq(sum, m->sum.of[CLV_CAUSE_HARD]);
		ck_assert_uint_eq(m->pinned_by_others, 0); /* all groups are kept */
		ck_assert_uint_eq(blocks, m->live_blocks);
		ck_assert_uint_eq(all_of(&m->sum), m->sum.held);
	}
	clv_report_free(report);
	clv_trace_free(t);
}
END_TEST

/* What is told as advice was replayed, and is better. */
START_TEST(advice_is_confirmed)
{
	struct clv_trace *t = bundled(names[_i]);
	const struct clv_trace *const traces[] = {t};
	struct clv_error err = {{0}};
	struct clv_report *report =
		clv_report_make(traces, 1, &(struct clv_report_options){.trial_events = 4000000}, &err);
	ck_assert_msg(report != NULL, "%s", err.text);
	const struct clv_report_device *d = &report->devices[0];
	bool on = t->torch.expandable, confirmed = false;
	ck_assert_uint_gt(d->trial_count, 2); /* the recorded one and more than one other */
	ck_assert_uint_eq(d->untried, 0);
	ck_assert_uint_eq(d->trials[0].peak_held, d->peak.held);
	for (uint32_t i = 1; i < d->trial_count; i++) {
		const struct clv_report_trial *trial = &d->trials[i];
		if (trial->confirmed) {
			ck_assert(trial->completed);
			ck_assert(d->failures || trial->saved_bytes > 0);
			ck_assert(i == 1 || d->trials[i - 1].confirmed);
		}
		confirmed |= trial->confirmed;
		ck_assert(!on || strcmp(trial->policy, "torch:expandable_segments:True") != 0);
	}
	ck_assert(confirmed == (strstr(d->summary, "What helps") ||
				(d->failures && strstr(d->moments[d->worst].failure.text, "What helps"))));
	clv_report_free(report);
	clv_trace_free(t);
}
END_TEST

/* A long history costs time and memory in proportion, and its figures are right. */
START_TEST(a_long_history)
{
	const struct clv_synth synth = {.events = 400000, .live = 3000, .streams = 3, .addresses = 20000, .seed = 5};
	struct clv_error err = {{0}};
	struct clv_trace *t = clv_synth_trace(&synth, &err);
	ck_assert_msg(t != NULL, "%s", err.text);
	const struct clv_trace *const traces[] = {t};
	struct clv_report *report = clv_report_make(traces, 1, &(struct clv_report_options){0}, &err);
	ck_assert_msg(report != NULL, "%s", err.text);
	const struct clv_report_device *d = &report->devices[0];
	ck_assert_uint_eq(d->bucket_count, CLV_REPORT_BUCKETS);
	ck_assert_int_eq(d->basis, CLV_BASIS_EXTENTS);
	ck_assert_uint_ge(d->peak.held, d->peak.of[CLV_CAUSE_LIVE]);
	clv_report_free(report);
	clv_trace_free(t);
}
END_TEST

int main(void)
{
	TCase *tcase = check_main_case("report_traces");
	tcase_add_loop_test(tcase, the_sum_is_what_is_held, 0, CLV_ARRAY_LEN(names));
	tcase_add_loop_test(tcase, peaks_as_in_the_model, 0, CLV_ARRAY_LEN(names));
	tcase_add_loop_test(tcase, buckets_and_moments_agree, 0, CLV_ARRAY_LEN(names));
	tcase_add_loop_test(tcase, advice_is_confirmed, 0, CLV_ARRAY_LEN(names));
	tcase_add_test(tcase, a_long_history);
	return check_main_end("report_traces", tcase);
}
