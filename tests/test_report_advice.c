/* SPDX-License-Identifier: MIT
 *
 * Why a request failed and what would help, as people are told, in histories that are made so.
 */
#include "check_main.h"
#include "report_rig.h"

#define M CLV_MIB
#define BASE RIG_BASE

/* 100 MiB may be held, 60 + 20 + 20 are, and 40 are asked for: 30 are free beside 30 live ones. */
static void failing(struct rig *r, uint32_t a, uint32_t b)
{
	rig_settings(r, "");
	r->trace->torch.has_probe = true;
	r->trace->torch.cap_mib = 100;
	r->trace->torch.total_bytes = 1000 * M;
	rig_segment(r, BASE, 60 * M);
	rig_alloc(r, BASE, 30 * M, a);
	rig_segment(r, BASE + 100 * M, 20 * M);
	rig_alloc(r, BASE + 100 * M, 4 * M, b);
	rig_segment(r, BASE + 200 * M, 20 * M);
	rig_alloc(r, BASE + 200 * M, 5 * M, b);
	rig_event(r, CLV_ACTION_OOM, 900 * M, 40 * M, 0, 0);
	rig_free(r, BASE, 30 * M);
	rig_event(r, CLV_ACTION_OOM, 900 * M, 90 * M, 0, a);
	rig_event(r, CLV_ACTION_OOM, 900 * M, 90 * M, 0, a);
}

START_TEST(why_a_request_failed)
{
	struct rig r = rig_open();
	uint32_t a = rig_stack(&r, 0, "/app/a.py", 10, "make_a"), b = rig_stack(&r, 0, "/app/b.py", 20, "make_b");
	failing(&r, a, b);
	struct clv_report *report = rig_report(&r, &(struct clv_report_options){.trial_events = 1000});
	const struct clv_report_device *d = &report->devices[0];
	const struct clv_report_moment *m = rig_moment(report, CLV_MOMENT_FAILURE);
	const struct clv_report_failure *f = &m->failure;
	ck_assert_uint_eq(d->failures, 3);
	ck_assert_uint_eq(d->failures_untold, 1);
	ck_assert_uint_eq(d->limit, 100 * M);
	ck_assert_uint_eq(d->worst, (uint32_t)(m - d->moments));
	ck_assert_uint_eq(f->asked, 40 * M);
	ck_assert_uint_eq(f->needed, 40 * M);
	ck_assert_uint_eq(f->device_free, 900 * M);
	ck_assert_uint_eq(f->limit, 100 * M);
	ck_assert_uint_eq(f->usable_free, (30 + 16 + 15) * M);
	ck_assert_uint_eq(f->largest_usable, 30 * M);
	ck_assert_uint_eq(f->foreign_free, 0);
	/* without A its segment serves it; without B two segments of 20 MiB go back, and 40 are allowed then */
	ck_assert_int_eq(rig_group_of(m, a)->would_serve, 1);
	ck_assert_int_eq(rig_group_of(m, b)->would_serve, 1);
	ck_assert_ptr_nonnull(strstr(f->text, "A request of 40.0 MiB failed"));
	ck_assert_ptr_nonnull(strstr(f->text, "61.0 MiB free. All that is free is stranded"));
	ck_assert_ptr_nonnull(strstr(f->text, "the limit of 100.0 MiB left 0 B"));
	ck_assert_ptr_nonnull(strstr(f->text, "So 40.0 MiB more were needed from the driver"));
	/* whose blocks, and not what code, would have to go */
	ck_assert_ptr_nonnull(strstr(f->text, "pinned by b.py:20 make_b (2 blocks, 9.0 MiB in all, never freed"));
	ck_assert_ptr_nonnull(strstr(f->text, "with the block of a.py:10 make_a freed as well, 61.0 MiB."));
	ck_assert_ptr_nonnull(strstr(f->text, "Had the blocks of b.py:20 make_b been freed before, the request"));

	/* 90 MiB and what is live do not fit in 100: nothing helps, and that is what is said */
	m = &d->moments[d->moment_count - 1];
	ck_assert_int_eq(m->kind, CLV_MOMENT_FAILURE);
	ck_assert_uint_eq(m->failure.repeats, 1);
	ck_assert_ptr_nonnull(strstr(m->failure.text, "a.py:10 make_a"));
	ck_assert_ptr_nonnull(strstr(m->failure.text, "1 more like it"));
	rig_close(&r, report);
}
END_TEST

START_TEST(what_no_allocator_could_serve)
{
	struct rig r = rig_open();
	rig_settings(&r, "expandable_segments:True");
	r.trace->torch.has_probe = true;
	r.trace->torch.cap_mib = 100;
	r.trace->torch.total_bytes = 1000 * M;
	rig_event(&r, CLV_ACTION_SEGMENT_MAP, BASE, 80 * M, 0, 0);
	rig_alloc(&r, BASE, 80 * M, 0);
	rig_event(&r, CLV_ACTION_OOM, 900 * M, 40 * M, 0, 0);
	struct clv_report *report = rig_report(&r, &(struct clv_report_options){.trial_events = 1000});
	const struct clv_report_device *d = &report->devices[0];
	const struct clv_report_moment *m = rig_moment(report, CLV_MOMENT_FAILURE);
	ck_assert_ptr_nonnull(strstr(m->failure.text, "exceed what there is by 20.0 MiB"));
	ck_assert_uint_gt(d->trial_count, 1);
	for (uint32_t i = 1; i < d->trial_count; i++) {
		ck_assert(!d->trials[i].confirmed && !d->trials[i].completed);
		ck_assert_str_ne(d->trials[i].policy, "torch:expandable_segments:True"); /* it is on */
	}
	ck_assert_ptr_null(strstr(m->failure.text, "What helps"));
	ck_assert_ptr_null(strstr(m->failure.text, "tried")); /* it goes without saying */
	rig_close(&r, report);
}
END_TEST

/* An expandable segment grows behind a hole, at the first place that has room; the limit of PyTorch knows nothing of that. */
START_TEST(what_the_driver_was_to_give)
{
	static const struct {
		uint64_t cap_mib, before,
			needed; /* before: another range of 80 MiB, wholly live, that ends so much earlier */
	} cases[] = {
		{0, 0, 40 * M},      /* 64 of 80 MiB are live: 16 of the 50 are there, and 34 are two pages */
		{100, 0, 50 * M},    /* as if nothing were there */
		{0, 20 * M, 40 * M}, /* the gap of 20 MiB is too small */
		{0, 60 * M, 60 * M}, /* that of 60 MiB comes first */
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		struct rig r = rig_open();
		rig_settings(&r, "expandable_segments:True");
		r.trace->torch.has_probe = cases[i].cap_mib != 0;
		r.trace->torch.cap_mib = cases[i].cap_mib;
		r.trace->torch.total_bytes = 1000 * M;
		rig_event(&r, CLV_ACTION_SEGMENT_MAP, BASE, 80 * M, 0, 0);
		rig_alloc(&r, BASE, 64 * M, 0);
		if (cases[i].before) {
			uint64_t addr = BASE - cases[i].before - 80 * M;
			rig_event(&r, CLV_ACTION_SEGMENT_MAP, addr, 80 * M, 0, 0);
			rig_alloc(&r, addr, 80 * M, 0);
		}
		rig_event(&r, CLV_ACTION_OOM, 10 * M, 50 * M, 0, 0);
		struct clv_report *report = rig_report(&r, NULL);
		const struct clv_report_failure *f = &rig_moment(report, CLV_MOMENT_FAILURE)->failure;
		ck_assert_uint_eq(f->largest_usable, 16 * M);
		ck_assert_uint_eq(f->needed, cases[i].needed);
		rig_close(&r, report);
	}
}
END_TEST

/* A driver keeps something for itself, so that what it tells of is not all there. */
START_TEST(what_the_driver_keeps)
{
	static const struct {
		uint64_t device_free;
		const char *text;
	} cases[] = {{40 * M, ", and it did not give them, though it told of 40.0 MiB free."},
		     {39 * M, ", but the device had 39.0 MiB."}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		struct rig r = rig_open();
		rig_settings(&r, "");
		rig_segment(&r, BASE, 2 * M);
		rig_event(&r, CLV_ACTION_OOM, cases[i].device_free, 40 * M, 0, 0);
		struct clv_report *report = rig_report(&r, NULL);
		const char *text = rig_moment(report, CLV_MOMENT_FAILURE)->failure.text;
		ck_assert_msg(strstr(text, cases[i].text), "%s", text);
		rig_close(&r, report);
	}
}
END_TEST

/* Two that pin a segment together. */
START_TEST(nobody_alone)
{
	struct rig r = rig_open();
	rig_settings(&r, "");
	uint32_t a = rig_stack(&r, 0, "/app/a.py", 10, "make_a"), b = rig_stack(&r, 0, "/app/b.py", 20, "make_b");
	rig_segment(&r, BASE, 40 * M);
	rig_alloc(&r, BASE, 4 * M, a);
	rig_alloc(&r, BASE + 4 * M, 6 * M, b);
	rig_alloc(&r, BASE + 10 * M, 4 * M, a);
	rig_free(&r, BASE, 4 * M);
	rig_alloc(&r, BASE, 4 * M, a);
	rig_free(&r, BASE + 10 * M, 4 * M);
	rig_segment(&r, BASE + 100 * M, 20 * M);
	rig_alloc(&r, BASE + 100 * M, 20 * M, b);
	rig_event(&r, CLV_ACTION_OOM, 10 * M, 90 * M, 0, a);
	struct clv_report *report = rig_report(&r, NULL);
	const char *text = rig_moment(report, CLV_MOMENT_FAILURE)->failure.text;
	ck_assert_msg(strstr(text,
			     "No blocks of one origin pin what is stranded alone; the largest part of it lies beside "
			     "b.py:20 make_b (2 blocks, 26.0 MiB in all, never freed in this trace): had they and the "
			     "block of a.py:10 make_a been freed, 30.0 MiB would not be stranded."),
		      "%s", text);
	rig_close(&r, report);
}
END_TEST

/* Of what does not matter little is said. */
START_TEST(nothing_and_little)
{
	struct rig r = rig_open();
	rig_settings(&r, "");
	rig_event(&r, CLV_ACTION_OOM, 10 * M, 40 * M, 0, 0);
	rig_segment(&r, BASE, 2 * M);
	struct clv_report *report = rig_report(&r, NULL);
	const char *text = rig_moment(report, CLV_MOMENT_FAILURE)->failure.text;
	ck_assert_ptr_nonnull(strstr(text,
				     " Nothing was held then. So 40.0 MiB more were needed from the driver, but the "
				     "device had 10.0 MiB."));
	ck_assert_str_eq(report->devices[0].summary,
			 "1 request failed, the first at 0.000000 s. At the peak 2.0 MiB were "
			 "held: 0 B live (in use), 2.0 MiB in whole segments that nobody used.");
	rig_close(&r, report);

	r = rig_open();
	rig_settings(&r, "");
	rig_segment(&r, BASE, 2 * M);
	rig_alloc(&r, BASE, M, 0); /* leaves 1 */
	rig_segment(&r, BASE + 100 * M, 400 * M);
	rig_alloc(&r, BASE + 100 * M, 400 * M, 0);
	report = rig_report(&r, NULL);
	text = report->devices[0].summary;
	ck_assert_ptr_nonnull(strstr(text, "Little was ever stranded: 1.0 MiB at most."));
	ck_assert_ptr_null(strstr(text, "pinned"));
	rig_close(&r, report);
}
END_TEST

static bool was_tried(const struct clv_report_device *d, const char *policy)
{
	for (uint32_t i = 1; i < d->trial_count; i++)
		if (!strcmp(d->trials[i].policy, policy))
			return true;
	return false;
}

/* What is tried changes one thing, and nothing that is on already. A program can set max_split_size without the variable. */
START_TEST(what_is_tried)
{
	static const struct {
		const char *conf;
		int64_t max_split;
		const char *tried[4], *untried[2];
	} cases[] = {
		{"", -1, {"torch:expandable_segments:True", "torch:max_split_size_mb:33", "cleave"}, {"torch:"}},
		{"max_split_size_mb:30",
		 30 * M,
		 {"torch:", "torch:max_split_size_mb:30,expandable_segments:True", "torch:expandable_segments:True",
		  "cleave"},
		 {"torch:max_split_size_mb:33"}},
		{"garbage_collection_threshold:0.5, expandable_segments:False",
		 40 * M,
		 {"torch:garbage_collection_threshold:0.5,max_split_size_mb:40,expandable_segments:True"},
		 {"torch:garbage_collection_threshold:0.5, expandable_segments:False,max_split_size_mb:40"}},
		{"expandable_segments:True,roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
		 -1,
		 {"cleave"},
		 {"torch:expandable_segments:True", "torch:max_split_size_mb:33"}},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		struct rig r = rig_open();
		rig_settings(&r, cases[i].conf);
		r.trace->torch.max_split_size = cases[i].max_split;
		rig_pinned_pattern(&r, 0, 0);
		struct clv_report *report = rig_report(&r, &(struct clv_report_options){.trial_events = 1000});
		const struct clv_report_device *d = &report->devices[0];
		for (size_t k = 0; k < CLV_ARRAY_LEN(cases[i].tried) && cases[i].tried[k]; k++)
			ck_assert_msg(was_tried(d, cases[i].tried[k]), "%s: %s", cases[i].conf, cases[i].tried[k]);
		for (size_t k = 0; k < CLV_ARRAY_LEN(cases[i].untried) && cases[i].untried[k]; k++)
			ck_assert_msg(!was_tried(d, cases[i].untried[k]), "%s: %s", cases[i].conf, cases[i].untried[k]);
		ck_assert_str_eq(d->trials[0].policy, "recorded");
		rig_close(&r, report);
	}
}
END_TEST

/* What was held beside live blocks is a guess: it is neither told as a fact nor taken for memory that the device has. */
START_TEST(a_failure_in_a_log)
{
	struct rig r = rig_open();
	r.trace->format = CLV_FORMAT_CLV;
	rig_alloc(&r, BASE, 100 * M, 0);
	rig_free(&r, BASE, 100 * M);
	rig_event(&r, CLV_ACTION_OOM, 256 * M, 300 * M, 0, 0);
	struct clv_report *report = rig_report(&r, &(struct clv_report_options){.trial_events = 1000});
	const struct clv_report_device *d = &report->devices[0];
	const char *text = rig_moment(report, CLV_MOMENT_FAILURE)->failure.text;
	ck_assert_int_eq(d->basis, CLV_BASIS_EXTENTS);
	ck_assert_ptr_nonnull(
		strstr(text, " 0 B were live (in use); what was held besides is not in the file. So 300.0 MiB"));
	ck_assert_ptr_nonnull(strstr(text, "exceed what there is by 44.0 MiB"));
	ck_assert_ptr_null(strstr(text, "What helps"));
	for (uint32_t i = 0; i < d->trial_count; i++)
		ck_assert_uint_eq(d->trials[i].capacity, 256 * M);
	rig_close(&r, report);
}
END_TEST

/* A recording of Cleave replayed as it was is no advice, whatever it holds; what is advised is better than that. */
START_TEST(the_same_again_is_no_advice)
{
	struct rig r = rig_open();
	r.trace->format = CLV_FORMAT_CLV;
	for (uint64_t i = 0; i < 20; i++) /* far more than is ever asked for */
		rig_note(&r, CLV_EVENT_FRAME_CREATE, BASE + i * 2 * M, 2 * M, i + 1, 0);
	rig_alloc(&r, BASE, 2 * M, 0);
	struct clv_report *report = rig_report(&r, &(struct clv_report_options){.trial_events = 1000});
	const struct clv_report_device *d = &report->devices[0];
	ck_assert_int_eq(d->basis, CLV_BASIS_FRAMES);
	ck_assert(d->given_known);
	ck_assert(was_tried(d, "cleave") && was_tried(d, "cleave:growth:tight"));
	uint64_t again = 0, tight = 0;
	for (uint32_t i = 1; i < d->trial_count; i++) {
		const struct clv_report_trial *t = &d->trials[i];
		if (!strcmp(t->policy, "cleave")) {
			again = t->peak_held;
			ck_assert(t->saved_bytes > 0 && !t->confirmed);
		} else if (!strcmp(t->policy, "cleave:growth:tight")) {
			tight = t->peak_held;
			ck_assert(t->confirmed);
		}
	}
	ck_assert(tight && tight < again); /* else it would be no advice either */
	ck_assert_ptr_null(strstr(d->summary, "the same settings"));
	rig_close(&r, report);
}
END_TEST

/* Slots of their own are tried for many blocks that strand much: for one they help by chance. */
START_TEST(slots_for_blocks_that_are_many)
{
	static const struct {
		uint32_t segments;
		bool tried;
	} cases[] = {{1, false}, {4, true}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		struct rig r = rig_open();
		rig_settings(&r, "");
		for (uint64_t k = 0; k < cases[i].segments; k++) {
			rig_segment(&r, BASE + k * 100 * M, 20 * M);
			rig_alloc(&r, BASE + k * 100 * M, 2 * M, CLV_NO_STACK);
		}
		struct clv_report *report = rig_report(&r, &(struct clv_report_options){.trial_events = 1000});
		const struct clv_report_device *d = &report->devices[0];
		ck_assert(was_tried(d, "cleave"));
		ck_assert(was_tried(d, "cleave:reserve:2097152*4") == cases[i].tried);
		ck_assert_ptr_null(strstr(d->summary, "reserve:2097152*1"));
		rig_close(&r, report);
	}
}
END_TEST

/* A trace that is too long is not replayed, and that is said. */
START_TEST(trials_cost_no_more_than_allowed)
{
	struct rig r = rig_open();
	rig_settings(&r, "");
	rig_pinned_pattern(&r, 0, 0);
	struct clv_report *report =
		rig_report(&r, &(struct clv_report_options){.trial_events = 3 * 7}); /* to look, and two */
	const struct clv_report_device *d = &report->devices[0];
	ck_assert_uint_eq(d->trial_count, 1 + 2);
	ck_assert_uint_gt(d->untried, 0);
	ck_assert_ptr_nonnull(strstr(d->summary, "not tried, since the trace is long"));
	clv_report_free(report);
	report = rig_report(&r, &(struct clv_report_options){.trial_events = 7}); /* what needs no look */
	ck_assert_uint_eq(report->devices[0].trial_count, 1 + 1);
	ck_assert_str_eq(report->devices[0].trials[1].policy, "cleave");
	rig_close(&r, report);
}
END_TEST

/* PyTorch keeps streams apart. */
/* Whatever allocation fails, the answer is a report or an error, and nothing leaks. */
START_TEST(without_host_memory)
{
	struct rig r = rig_open();
	uint32_t a = rig_stack(&r, 0, "/app/a.py", 10, "make_a");
	failing(&r, a, 0);
	rig_link(&r);
	const struct clv_trace *trace = r.trace;
	bool done = false;
	for (uint64_t n = 1; !done; n++) {
		struct clv_error err = {{0}};
		ck_assert_uint_lt(n, 10000);
		clv_mem_fail_after(n);
		struct clv_report *report = clv_report_make(&trace, 1, &(struct clv_report_options){0}, &err);
		clv_mem_fail_after(0);
		ck_assert_msg(report || strstr(err.text, "out of host memory"), "%s", err.text);
		done = report != NULL;
		clv_report_free(report);
	}
	clv_trace_free(r.trace);
}
END_TEST

CHECK_MAIN("report_advice", why_a_request_failed, what_no_allocator_could_serve, what_the_driver_was_to_give,
	   what_the_driver_keeps, nobody_alone, nothing_and_little, what_is_tried, a_failure_in_a_log,
	   the_same_again_is_no_advice, slots_for_blocks_that_are_many, trials_cost_no_more_than_allowed,
	   without_host_memory)
