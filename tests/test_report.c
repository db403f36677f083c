/* SPDX-License-Identifier: MIT
 *
 * The analysis of histories whose causes and culprits are known because they were made so.
 */
#include "check_main.h"
#include "report_rig.h"

#include "../tracing/report/report_json.h"

#include <math.h>
#include <stdlib.h>

#define M CLV_MIB
#define BASE RIG_BASE

START_TEST(who_pins_what)
{
	struct rig r = rig_open();
	rig_settings(&r, "");
	uint32_t a = rig_stack(&r, 0, "/app/a.py", 10, "make_a"), b = rig_stack(&r, 0, "/app/b.py", 20, "make_b");
	rig_pinned_pattern(&r, a, b);
	struct clv_report *report = rig_report(&r, NULL);
	const struct clv_report_device *d = &report->devices[0];
	ck_assert_int_eq(d->basis, CLV_BASIS_SEGMENTS);
	ck_assert_uint_eq(d->history->event_count, 7);

	/* most stranded when the third segment is mapped and not used yet: after 5 events 36 + 30; after 6, 36 + 24; then 68 */
	const struct clv_report_moment *m = rig_moment(report, CLV_MOMENT_PEAK_LIVE);
	RIG_ASSERT_SUM(&m->sum, 52 * M, 0, 0, 0, 68 * M, 0);
	ck_assert_uint_eq(m->event, 7);
	ck_assert_uint_eq(m->live_blocks, 4);
	ck_assert_uint_eq(m->frames, 3);
	ck_assert_uint_eq(m->frames_occupied, 3);
	ck_assert_uint_eq(m->hole_count, 3);
	ck_assert_uint_eq(m->largest_hole, 36 * M);
	ck_assert_uint_eq(m->group_count, 2);

	const struct clv_report_group *first = &m->groups[0], *second = &m->groups[1];
	ck_assert_uint_eq(first->stack, a);
	ck_assert_uint_eq(first->stranded_bytes, 36 * M);
	ck_assert_uint_eq(first->marginal_bytes, 36 * M);
	ck_assert_uint_eq(first->shared_bytes, 24 * M);
	ck_assert_uint_eq(first->frame_bytes, 40 * M);
	ck_assert_uint_eq(first->frames, 2);
	ck_assert_uint_eq(first->frames_alone, 1);
	ck_assert_uint_eq(first->blocks, 2);
	ck_assert_uint_eq(first->bytes, 14 * M);
	ck_assert_uint_eq(first->size, 0); /* they differ */
	ck_assert_uint_eq(first->never_freed, 2);
	ck_assert(first->left_min_s < 0);
	ck_assert(fabs(first->age_max_s - 3) < 1e-6); /* allocated by event 3, seen at event 6 */
	ck_assert(fabs(first->age_min_s - 2) < 1e-6);
	ck_assert_uint_eq(d->blocks[first->sample].addr, BASE);
	ck_assert_uint_eq(second->stack, b);
	ck_assert_uint_eq(second->stranded_bytes, 8 * M);
	ck_assert_uint_eq(second->marginal_bytes, (8 + 24) * M); /* with A gone the middle one is B's alone */
	ck_assert_uint_eq(second->shared_bytes, 24 * M);
	ck_assert_uint_eq(m->pinned_by_others, 0);

	/* the holes: each was left by the block before it */
	ck_assert_uint_eq(m->holes[0].size, 36 * M);
	ck_assert_uint_eq(d->blocks[m->holes[0].cutter].addr, BASE);
	ck_assert_uint_eq(d->blocks[m->holes[0].cutter].cut_from, 40 * M);
	ck_assert_uint_eq(m->holes[1].size, 24 * M);
	ck_assert_uint_eq(d->blocks[m->holes[1].cutter].addr, BASE + 110 * M);
	ck_assert_uint_eq(d->blocks[m->holes[1].cutter].cut_from, 30 * M);
	ck_assert_uint_eq(m->holes[1].stranded, 24 * M);
	ck_assert_uint_eq(m->holes[1].right, CLV_NO_BLOCK);

	char name[128];
	ck_assert_str_eq(clv_report_group_name(d, first, name, sizeof(name)), "a.py:10 make_a");
	rig_close(&r, report);
}
END_TEST

/* Two places that allocate through the same function are told apart by who calls it. */
START_TEST(two_callers_of_one)
{
	struct rig r = rig_open();
	char name[128];
	rig_settings(&r, "");
	uint32_t a = rig_stack(&r, 0, "/app/pool.py", 10, "take");
	rig_stack(&r, a, "/app/pool.py", 20, "take_zeroed");
	rig_stack(&r, a, "/app/load.py", 30, "load");
	uint32_t b = rig_stack(&r, 0, "/app/pool.py", 10, "take");
	rig_stack(&r, b, "/app/pool.py", 20, "take_zeroed");
	rig_stack(&r, b, "/app/serve.py", 40, "serve");
	rig_pinned_pattern(&r, a, b);
	struct clv_report *report = rig_report(&r, NULL);
	const struct clv_report_device *d = &report->devices[0];
	const struct clv_report_moment *m = rig_moment(report, CLV_MOMENT_PEAK_LIVE);
	ck_assert_str_eq(clv_report_group_name(d, rig_group_of(m, a), name, sizeof(name)),
			 "pool.py:10 take (from load.py:30 load)");
	ck_assert_str_eq(clv_report_group_name(d, rig_group_of(m, b), name, sizeof(name)),
			 "pool.py:10 take (from serve.py:40 serve)");
	ck_assert_str_eq(clv_report_group_name(d, rig_group_of(m, a), name, 8), "pool.py"); /* cut off */
	/* a block by itself has nobody to be told apart from */
	const struct clv_report_group alone = {.stack = a};
	ck_assert_str_eq(clv_report_group_name(d, &alone, name, sizeof(name)), "pool.py:10 take");
	rig_close(&r, report);
}
END_TEST

START_TEST(only_the_top_is_kept)
{
	struct rig r = rig_open();
	rig_settings(&r, "");
	rig_pinned_pattern(&r, 0, 0); /* without stacks blocks are told by size: 4, 10, 6 and 32 MiB */
	struct clv_report *report = rig_report(&r, &(struct clv_report_options){.top = 1});
	const struct clv_report_moment *m = rig_moment(report, CLV_MOMENT_PEAK_LIVE);
	ck_assert_uint_eq(m->group_count, 4);
	ck_assert_uint_eq(m->groups_kept, 1);
	ck_assert_uint_eq(m->holes_kept, 1);
	ck_assert_uint_eq(m->groups[0].size, 4 * M);
	ck_assert_uint_eq(m->pinned_by_others, 32 * M);
	rig_close(&r, report);
}
END_TEST

START_TEST(a_free_waits_for_its_streams)
{
	struct rig r = rig_open();
	rig_settings(&r, "");
	rig_segment(&r, BASE, 40 * M);
	rig_alloc(&r, BASE, 30 * M, 0);
	rig_alloc(&r, BASE + 30 * M, 8 * M, 0);
	rig_event(&r, CLV_ACTION_FREE_REQUESTED, BASE, 30 * M, 0, 0);
	rig_event(&r, CLV_ACTION_SNAPSHOT, 0, 0, 0, 0);
	rig_event(&r, CLV_ACTION_FREE_COMPLETED, BASE, 30 * M, 0, 0);
	rig_event(&r, CLV_ACTION_FREE_REQUESTED, BASE + 30 * M, 8 * M, 0, 0);
	rig_event(&r, CLV_ACTION_FREE_COMPLETED, BASE + 30 * M, 8 * M, 0, 0);
	struct clv_report *report = rig_report(&r, NULL);
	const struct clv_report_device *d = &report->devices[0];
	ck_assert_uint_eq(d->bucket_count, 8);
	RIG_ASSERT_SUM(&d->buckets[0].end, 0, 0, 0, 0, 0, 40 * M);
	RIG_ASSERT_SUM(&d->buckets[2].end, 38 * M, 0, 0, 0, 2 * M, 0);
	RIG_ASSERT_SUM(&d->buckets[3].end, 8 * M, 0, 0, 30 * M, 2 * M, 0);
	RIG_ASSERT_SUM(&d->buckets[4].end, 8 * M, 0, 0, 30 * M, 2 * M, 0);
	RIG_ASSERT_SUM(&d->buckets[5].end, 8 * M, 0, 0, 0, 32 * M, 0);
	RIG_ASSERT_SUM(&d->buckets[6].end, 0, 0, 0, 0, 0, 40 * M); /* what is completed next never pends */
	RIG_ASSERT_SUM(&d->buckets[7].end, 0, 0, 0, 0, 0, 40 * M);
	ck_assert_uint_eq(d->blocks[0].freed, 3);
	ck_assert_uint_eq(d->blocks[0].gone, 5);
	ck_assert_uint_eq(d->blocks[1].freed, 6);
	ck_assert_uint_eq(d->blocks[1].gone, 6);
	rig_close(&r, report);
}
END_TEST

START_TEST(what_is_not_split_off_is_internal)
{
	struct rig r = rig_open();
	rig_settings(&r, "");
	rig_segment(&r, BASE, 20 * M);
	rig_alloc(&r, BASE, 19 * M + 300, 0); /* less than 1 MiB is left, which stays with it */
	rig_segment(&r, BASE + 100 * M, 2 * M);
	rig_alloc(&r, BASE + 100 * M, M, 0); /* in the small pool all but less than 512 B is split off */
	struct clv_report *report = rig_report(&r, NULL);
	const struct clv_report_device *d = &report->devices[0];
	ck_assert_uint_eq(d->blocks[0].given, 20 * M);
	ck_assert_uint_eq(d->blocks[1].given, M);
	RIG_ASSERT_SUM(&d->buckets[3].end, 20 * M + 512, M - 512, 0, 0, M, 0);
	ck_assert(d->given_known);
	rig_close(&r, report);
}
END_TEST

START_TEST(pages_of_expandable_segments_go_back_alone)
{
	struct rig r = rig_open();
	rig_settings(&r, "expandable_segments:True");
	rig_event(&r, CLV_ACTION_SEGMENT_MAP, BASE, 60 * M, 0, 0);
	rig_alloc(&r, BASE, 25 * M, 0);
	rig_alloc(&r, BASE + 25 * M, 30 * M, 0);
	rig_free(&r, BASE, 25 * M);
	rig_event(&r, CLV_ACTION_SEGMENT_UNMAP, BASE, 20 * M, 0, 0);
	struct clv_report *report = rig_report(&r, NULL);
	const struct clv_report_device *d = &report->devices[0];
	RIG_ASSERT_SUM(&d->buckets[2].end, 55 * M, 0, 0, 0, 5 * M, 0);
	RIG_ASSERT_SUM(&d->buckets[3].end, 30 * M, 0, 0, 0, 10 * M, 20 * M); /* the first of three pages is free */
	RIG_ASSERT_SUM(&d->buckets[4].end, 30 * M, 0, 0, 0, 10 * M, 0);
	ck_assert_uint_eq(d->frame_count, 3);
	ck_assert_uint_eq(d->frames[0].born, 0);
	ck_assert_uint_eq(d->frames[0].gone, 4);
	ck_assert_uint_eq(d->frames[1].gone, CLV_REPORT_NEVER);
	rig_close(&r, report);
}
END_TEST

/* What Cleave's heap tells. */
START_TEST(frames_of_the_heap)
{
	struct rig r = rig_open();
	r.trace->format = CLV_FORMAT_CLV;
	rig_note(&r, CLV_EVENT_FRAME_CREATE, BASE, 2 * M, 1, 0);
	rig_note(&r, CLV_EVENT_FRAME_CREATE, BASE + 2 * M, 2 * M, 2, 0);
	rig_note(&r, CLV_EVENT_FRAME_CREATE, 0, 2 * M, 3, 0);
	rig_note(&r, CLV_EVENT_RESERVE_HOLD, BASE + 3 * M, M, M, 0);
	rig_note(&r, CLV_EVENT_CUT, BASE, M, BASE, 3 * M);
	rig_alloc(&r, BASE, M, 0);

	rig_note(&r, CLV_EVENT_RESERVE_SERVE, BASE + 3 * M, M, M, 0);
	rig_alloc(&r, BASE + 3 * M, M, 0);
	rig_free(&r, BASE, M);
	rig_note(&r, CLV_EVENT_READY, BASE, 3 * M, 0, 0);
	rig_note(&r, CLV_EVENT_FRAME_MAP, BASE + 10 * M, 2 * M, 1, BASE);
	rig_note(&r, CLV_EVENT_FRAME_UNMAP, BASE, 2 * M, 1, 0); /* of the mapping that it had before */
	rig_note(&r, CLV_EVENT_FRAME_UNMAP, BASE + 10 * M, 2 * M, 1, 0);
	rig_note(&r, CLV_EVENT_FRAME_RELEASE, 0, 2 * M, 3, 0);
	struct clv_report *report = rig_report(&r, NULL);
	const struct clv_report_device *d = &report->devices[0];
	const struct clv_report_bucket *b = d->buckets;
	ck_assert_int_eq(d->basis, CLV_BASIS_FRAMES);
	ck_assert_uint_eq(d->bucket_count, 14);
	RIG_ASSERT_SUM(&b[2].end, 0, 0, 0, 0, 0, 6 * M);
	RIG_ASSERT_SUM(&b[3].end, 0, 0, M, 0, M, 4 * M);
	RIG_ASSERT_SUM(&b[5].end, M, 0, M, 0, 2 * M, 2 * M);
	RIG_ASSERT_SUM(&b[6].end, M, 0, M, 0, 2 * M, 2 * M); /* on its way to a request */
	RIG_ASSERT_SUM(&b[7].end, 2 * M, 0, 0, 0, 2 * M, 2 * M);
	RIG_ASSERT_SUM(&b[8].end, M, 0, 0, M, M, 2 * M + M);     /* freed, and not complete for all */
	RIG_ASSERT_SUM(&b[9].end, M, 0, 0, 0, M, 2 * M + 2 * M); /* complete */
	RIG_ASSERT_SUM(&b[10].end, M, 0, 0, 0, M, 4 * M);        /* an alias is no memory more */
	RIG_ASSERT_SUM(&b[11].end, M, 0, 0, 0, M, 4 * M);
	RIG_ASSERT_SUM(&b[12].end, M, 0, 0, 0, M, 4 * M); /* mapped nowhere */
	RIG_ASSERT_SUM(&b[13].end, M, 0, 0, 0, M, 2 * M);
	ck_assert_uint_eq(d->blocks[0].cut_from, 3 * M);
	rig_close(&r, report);
}
END_TEST

START_TEST(what_became_of_reservations)
{
	struct rig r = rig_open();
	uint32_t name = rig_string(&r, "w13");
	rig_note(&r, CLV_EVENT_FRAME_CREATE, BASE, 20 * M, 1, 0);
	rig_note_full(&r, (struct clv_note){.kind = CLV_EVENT_RESERVE, .size = 4 * M, .a = 3, .b = 1, .text = name});
	for (uint64_t i = 0; i < 3; i++)
		rig_note_full(&r, (struct clv_note){.kind = CLV_EVENT_RESERVE_HOLD,
						    .addr = BASE + i * 4 * M,
						    .size = 4 * M,
						    .a = 4 * M,
						    .text = name});
	rig_note_full(&r,
		      (struct clv_note){
			      .kind = CLV_EVENT_RESERVE_SERVE, .addr = BASE, .size = 4 * M, .a = 4 * M, .text = name});
	rig_alloc(&r, BASE, 4 * M, 0);
	rig_note_full(&r, (struct clv_note){.kind = CLV_EVENT_RESERVE_YIELD,
					    .addr = BASE + 4 * M,
					    .size = 4 * M,
					    .a = 4 * M,
					    .b = 1,
					    .text = name});
	rig_note_full(&r,
		      (struct clv_note){.kind = CLV_EVENT_RESERVE_END, .size = 4 * M, .a = 1, .b = 2, .text = name});
	struct clv_report *report = rig_report(&r, NULL);
	const struct clv_report_device *d = &report->devices[0];
	ck_assert_uint_eq(d->reservation_count, 1);
	const struct clv_report_reservation *v = &d->reservations[0];
	ck_assert_str_eq(r.trace->strings[v->name], "w13");
	ck_assert(v->hard && v->ended && v->slot_bytes == 4 * M && v->slots == 3);
	ck_assert(v->held == 3 && v->served == 1 && v->yielded == 1 && v->missed == 2 && v->held_bytes_peak == 12 * M);
	rig_close(&r, report);
}
END_TEST

/* A recording that begins while the program runs: nothing made the frames that go. */
START_TEST(frames_from_before)
{
	struct rig r = rig_open();
	rig_free(&r, BASE, M);
	rig_note(&r, CLV_EVENT_FRAME_UNMAP, BASE, 2 * M, 7, 0);
	rig_note(&r, CLV_EVENT_FRAME_RELEASE, 0, 2 * M, 7, 0);
	struct clv_report *report = rig_report(&r, NULL);
	const struct clv_report_device *d = &report->devices[0];
	ck_assert_uint_eq(d->peak.of[CLV_CAUSE_LIVE], M);
	RIG_ASSERT_SUM(&d->buckets[0].end, 0, 0, 0, 0, 0, 2 * M);
	RIG_ASSERT_SUM(&d->buckets[2].end, 0, 0, 0, 0, 0, 0);
	ck_assert_uint_eq(d->frames[0].born, CLV_REPORT_BEFORE);
	rig_close(&r, report);
}
END_TEST

START_TEST(a_log_has_extents)
{
	struct rig r = rig_open();
	r.trace->format = CLV_FORMAT_RMM;
	rig_alloc(&r, BASE + M, 2 * M, 0); /* in two stretches */
	rig_alloc(&r, BASE + 3 * M, 256, 0);
	rig_free(&r, BASE + M, 2 * M);
	struct clv_report *report = rig_report(&r, NULL);
	const struct clv_report_device *d = &report->devices[0];
	ck_assert_int_eq(d->basis, CLV_BASIS_EXTENTS);
	ck_assert(!d->given_known);
	RIG_ASSERT_SUM(&d->buckets[0].end, 2 * M, 0, 0, 0, 2 * M, 0);
	RIG_ASSERT_SUM(&d->buckets[2].end, 512, 0, 0, 0, 2 * M - 512, 2 * M);
	ck_assert_ptr_nonnull(strstr(d->summary, "What the allocator held is not in the file"));
	rig_close(&r, report);
}
END_TEST

START_TEST(the_driver_alone)
{
	struct rig r = rig_open();
	rig_note(&r, CLV_EVENT_DRIVER_ALLOC, BASE, 2 * M, 0, 0);
	rig_note(&r, CLV_EVENT_DRIVER_ALLOC, BASE + 8 * M, 3 * M, 0, 0);
	rig_note(&r, CLV_EVENT_DRIVER_FREE, BASE, 0, 0, 0);
	rig_note(&r, CLV_EVENT_DRIVER_FREE, BASE + 100 * M, 0, 0, 0); /* from before the recording */
	rig_note(&r, CLV_EVENT_DRIVER_FAIL, 0, 7 * M, 1, 0);          /* not for want of memory */
	rig_note(&r, CLV_EVENT_DRIVER_FAIL, 6 * M, 7 * M, 2, 0);
	struct clv_report *report = rig_report(&r, NULL);
	const struct clv_report_device *d = &report->devices[0];
	ck_assert_int_eq(d->basis, CLV_BASIS_DRIVER);
	ck_assert(d->has_history);
	RIG_ASSERT_SUM(&d->buckets[1].end, 5 * M, 0, 0, 0, 0, 0);
	RIG_ASSERT_SUM(&d->buckets[3].end, 3 * M, 0, 0, 0, 0, 0);
	ck_assert_uint_eq(d->failures, 1);
	ck_assert_uint_eq(rig_moment(report, CLV_MOMENT_FAILURE)->failure.asked, 7 * M);
	ck_assert_uint_eq(rig_moment(report, CLV_MOMENT_FAILURE)->failure.device_free, 6 * M);
	rig_close(&r, report);
}
END_TEST

START_TEST(memory_of_another_stream)
{
	struct rig r = rig_open();
	rig_settings(&r, "");
	uint32_t other = clv_trace_stream(r.trace, 0xbeef);
	rig_event(&r, CLV_ACTION_SEGMENT_ALLOC, BASE, 60 * M, other, 0);
	rig_event(&r, CLV_ACTION_ALLOC, BASE, 10 * M, other, 0);
	rig_event(&r, CLV_ACTION_OOM, 0, 40 * M, 0, 0);
	struct clv_report *report = rig_report(&r, NULL);
	const struct clv_report_moment *m = rig_moment(report, CLV_MOMENT_FAILURE);
	ck_assert_uint_eq(m->failure.foreign_free, 50 * M);
	ck_assert_uint_eq(m->failure.usable_free, 0);
	ck_assert_int_eq(m->groups[0].would_serve, 1); /* the segment goes back, and 60 MiB are free on the device */
	ck_assert_ptr_nonnull(strstr(m->failure.text, "50.0 MiB of what is free belongs to other streams"));
	rig_close(&r, report);
}
END_TEST

START_TEST(marks_and_a_chosen_moment)
{
	struct rig r = rig_open();
	rig_segment(&r, BASE, 20 * M);
	rig_mark(&r, "loaded");
	rig_alloc(&r, BASE, 4 * M, 0);
	rig_mark(&r, "converted");
	rig_free(&r, BASE, 4 * M);
	struct clv_report *report =
		rig_report(&r, &(struct clv_report_options){.marks = 1, .at_time_set = true, .at_s = 2.5});
	const struct clv_report_device *d = &report->devices[0];
	const struct clv_report_moment *mark = rig_moment(report, CLV_MOMENT_MARK),
				       *m = rig_moment(report, CLV_MOMENT_CHOSEN);
	ck_assert_str_eq(r.trace->strings[mark->label], "loaded");
	ck_assert(fabs(mark->time_s - 1) < 1e-6);
	ck_assert_uint_eq(d->marks_untold, 1);
	ck_assert_uint_eq(m->event, 2); /* the steps at 0, 1 and 2 s have happened */
	ck_assert_uint_eq(m->sum.of[CLV_CAUSE_LIVE], 4 * M);
	clv_report_free(report);

	report = rig_report(&r, &(struct clv_report_options){.at_event_set = true, .at_event = 3});
	ck_assert_uint_eq(rig_moment(report, CLV_MOMENT_CHOSEN)->event, 3);
	clv_report_free(report);

	struct clv_error err = {{0}};
	const struct clv_trace *trace = r.trace;
	ck_assert_ptr_null(
		clv_report_make(&trace, 1, &(struct clv_report_options){.at_event_set = true, .at_event = 4}, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "3 events"));
	clv_trace_free(r.trace);
}
END_TEST

START_TEST(a_state_without_a_history)
{
	struct rig r = rig_open();
	rig_settings(&r, "");
	uint32_t a = rig_stack(&r, 0, "/app/a.py", 10, "make_a");
	r.h->has_state = true;
	r.h->segments = clv_mem_zalloc(2, sizeof(*r.h->segments));
	r.h->blocks = clv_mem_zalloc(4, sizeof(*r.h->blocks));
	r.h->segments[0] = (struct clv_segment_record){.addr = BASE, .size = 20 * M, .blocks = 3};
	r.h->segments[1] =
		(struct clv_segment_record){.addr = BASE + 100 * M, .size = 20 * M, .first_block = 3, .blocks = 1};
	r.h->segment_count = 2;
	r.h->blocks[0] = (struct clv_block_record){BASE, 4 * M, 4 * M - 100, a, CLV_BLOCK_ACTIVE};
	r.h->blocks[1] = (struct clv_block_record){BASE + 4 * M, 6 * M, 6 * M, 0, CLV_BLOCK_PENDING_FREE};
	r.h->blocks[2] = (struct clv_block_record){BASE + 10 * M, 10 * M, 0, 0, CLV_BLOCK_INACTIVE};
	r.h->blocks[3] = (struct clv_block_record){BASE + 100 * M, 20 * M, 0, 0, CLV_BLOCK_INACTIVE};
	r.h->block_record_count = 4;
	struct clv_report *report = rig_report(&r, NULL);
	const struct clv_report_device *d = &report->devices[0];
	const struct clv_report_moment *m = rig_moment(report, CLV_MOMENT_END);
	ck_assert(!d->has_history);
	ck_assert_uint_eq(d->moment_count, 1);
	RIG_ASSERT_SUM(&m->sum, 4 * M, 0, 0, 6 * M, 10 * M, 20 * M);
	ck_assert_uint_eq(m->groups[0].stack, a);
	ck_assert_uint_eq(m->groups[0].stranded_bytes, 10 * M);
	ck_assert_uint_eq(m->live_blocks, 1);
	ck_assert_ptr_nonnull(strstr(d->summary, "no history"));
	/* of lifetimes it says nothing, and so do we */
	ck_assert_ptr_nonnull(
		strstr(d->summary, "40.0 MiB are held: 4.0 MiB live (in use), 6.0 MiB freed but waiting"));
	ck_assert_ptr_nonnull(strstr(d->summary, "pinned by a.py:10 make_a (1 block, 4.0 MiB): had it been freed, "));
	ck_assert_ptr_null(strstr(d->summary, "never"));
	char *json = NULL;
	size_t length;
	struct clv_error err = {{0}};
	FILE *out = open_memstream(&json, &length);
	ck_assert(out && clv_report_json_write(report, false, out, &err) && fclose(out) == 0);
	ck_assert_ptr_nonnull(strstr(json, "\"age_s\": null"));
	ck_assert_ptr_nonnull(strstr(json, "\"never_freed\": null"));
	free(json);
	rig_close(&r, report);
}
END_TEST

/* Marks are in the first history, and are marks of every device. */
START_TEST(devices_and_ranks_the_worst_first)
{
	struct rig r = rig_open();
	rig_segment(&r, BASE, 20 * M);
	rig_alloc(&r, BASE, 4 * M, 0);
	rig_mark(&r, "here");
	rig_link(&r);
	struct rig second = {.trace = r.trace, .h = &r.trace->histories[1], .now_us = 1000 * (uint64_t)RIG_STEP_US};
	r.trace->history_count = 2;
	second.h->device = 1;
	rig_segment(&second, BASE, 40 * M);
	rig_alloc(&second, BASE, 4 * M, 0);
	rig_event(&second, CLV_ACTION_SNAPSHOT, 0, 0, 0, 0);
	rig_free(&second, BASE, 4 * M);
	rig_link(&second);
	struct rig third = rig_open();
	rig_event(&third, CLV_ACTION_OOM, 0, 4 * M, 0, 0);
	rig_link(&third);
	const struct clv_trace *traces[] = {r.trace, third.trace};
	struct clv_error err = {{0}};
	struct clv_report *report = clv_report_make(traces, 2, &(struct clv_report_options){0}, &err);
	ck_assert_msg(report != NULL, "%s", err.text);
	ck_assert_uint_eq(report->device_count, 3);
	ck_assert_ptr_eq(report->devices[0].trace, third.trace); /* it failed */
	ck_assert_int_eq(report->devices[1].history->device, 1);
	ck_assert_uint_eq(report->devices[1].peak_stranded, 36 * M);
	ck_assert_uint_eq(report->devices[2].peak_stranded, 16 * M);
	const struct clv_report_device *d = &report->devices[1];
	bool marked = false;
	for (uint32_t i = 0; i < d->moment_count; i++)
		if (d->moments[i].kind == CLV_MOMENT_MARK) {
			marked = true;
			ck_assert_str_eq(r.trace->strings[d->moments[i].label], "here");
			ck_assert_uint_eq(d->moments[i].event, 3); /* what was at the same time has happened */
		}
	ck_assert(marked);
	clv_report_free(report);
	clv_trace_free(r.trace);
	clv_trace_free(third.trace);
}
END_TEST

START_TEST(nothing_at_all)
{
	struct rig r = rig_open();
	rig_link(&r);
	const struct clv_trace *trace = r.trace;
	struct clv_error err = {{0}};
	ck_assert_ptr_null(clv_report_make(&trace, 1, &(struct clv_report_options){0}, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "neither a history nor a state"));
	clv_trace_free(r.trace);
}
END_TEST

START_TEST(the_frame_that_tells_most)
{
	struct rig r = rig_open();
	uint32_t s = rig_stack(&r, 0, "??", 0, "at::native::empty_cuda(long)");
	rig_stack(&r, s, "/usr/lib/python3/site-packages/torch/nn/modules/module.py", 1500, "_call_impl");
	rig_stack(&r, s, "/app/model.py", 42, "forward");
	rig_stack(&r, s, "/app/main.py", 7, "<module>");
	ck_assert_uint_eq(clv_report_frame_of(r.trace, s)->line, 42);
	s = rig_stack(&r, 0, "CUDACachingAllocator.cpp", 0, "c10::cuda::malloc()");
	rig_stack(&r, s, "kernel.cc", 12, "engine::step()");
	rig_stack(&r, s, "", 0, "_start");
	ck_assert_uint_eq(clv_report_frame_of(r.trace, s)->line, 12);
	s = rig_stack(&r, 0, "??", 0, "");
	ck_assert_ptr_null(clv_report_frame_of(r.trace, s));
	ck_assert_ptr_null(clv_report_frame_of(r.trace, CLV_NO_STACK));
	ck_assert_ptr_null(clv_report_frame_of(r.trace, 1000));
	clv_trace_free(r.trace);
}
END_TEST

CHECK_MAIN("report", who_pins_what, two_callers_of_one, only_the_top_is_kept, a_free_waits_for_its_streams,
	   what_is_not_split_off_is_internal, pages_of_expandable_segments_go_back_alone, frames_of_the_heap,
	   what_became_of_reservations, frames_from_before, a_log_has_extents, the_driver_alone,
	   memory_of_another_stream, marks_and_a_chosen_moment, a_state_without_a_history,
	   devices_and_ranks_the_worst_first, nothing_at_all, the_frame_that_tells_most)
