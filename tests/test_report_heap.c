/* SPDX-License-Identifier: MIT
 *
 * What a heap tells its observer, made into a history, beside the heap's own breakdown after every step of random work.
 */
#include "../src/heap/breakdown.h"
#include "../tracing/report/state.h"
#include "check_main.h"
#include "heap_history.h"
#include "heap_rig.h"

#include <string.h>

/* The history, and where in it the heap was asked. */
static struct heap_history t;
static struct asked {
	uint32_t event, note;
	struct clv_breakdown heap;
	bool quiet; /* all work is done, and the heap had reason to look */
} asked[HEAP_HISTORY_STEPS];
static unsigned count;

static struct rig r;

static void ask(bool quiet)
{
	struct clv_heap_state s;
	ck_assert(clv_heap_state(r.heap, 0, &s, NULL, 0));
	asked[count++] = (struct asked){t.h->event_count, t.h->note_count, s.sorted, quiet};
}

static void compare(void)
{
	struct clv_error err = {{0}};
	struct clv_state s;
	unsigned quiet = 0;
	heap_history_link(&t);
	ck_assert_msg(clv_state_open(&s, t.trace, t.h, &err), "%s", err.text);
	ck_assert_int_eq(s.basis, CLV_BASIS_FRAMES);
	for (unsigned i = 0; i < count; i++) {
		const struct asked *a = &asked[i];
		const uint64_t *of = s.plane.sum.of;
		char why[256] = "";
		while (s.event < a->event || s.note < a->note)
			ck_assert(clv_state_step(&s));
		if (i % 16 == 0)
			ck_assert_msg(clv_plane_check(&s.plane, why, sizeof(why)), "%s", why);
		ck_assert_uint_eq(s.plane.sum.held, a->heap.held);
		ck_assert_uint_eq(of[CLV_CAUSE_LIVE], a->heap.live);
		ck_assert_uint_eq(of[CLV_CAUSE_INTERNAL], a->heap.internal);
		ck_assert_uint_eq(of[CLV_CAUSE_RESERVATION], a->heap.reserved);
		ck_assert_uint_eq(of[CLV_CAUSE_STREAM] + of[CLV_CAUSE_HARD] + of[CLV_CAUSE_SOFT],
				  a->heap.stream + a->heap.hard + a->heap.soft);
		if (!a->quiet) /* that a stream's work is done the heap knows before it tells, and of some it does not tell */
			continue;
		ck_assert_uint_eq(a->heap.stream, 0);
		ck_assert_uint_eq(of[CLV_CAUSE_STREAM], 0);
		ck_assert_uint_eq(of[CLV_CAUSE_HARD], a->heap.hard);
		ck_assert_uint_eq(of[CLV_CAUSE_SOFT], a->heap.soft);
		quiet++;
	}
	ck_assert_uint_eq(quiet, HEAP_HISTORY_STEPS / HEAP_HISTORY_QUIET);
	clv_state_close(&s);
}

static void work(uint64_t seed, const char *settings, bool manual)
{
	heap_history_open(&t);
	count = 0;
	heap_history_begin(&r, &t.observer, seed, settings, manual);
	for (int i = 0; i < HEAP_HISTORY_STEPS; i++)
		ask(heap_history_step(&r, i));
	compare();
	heap_history_end(&r);
	clv_trace_free(t.trace);
}

START_TEST(random_work)
{
	work(1, NULL, false);
	work(2, "growth:tight", true);
	work(3, "cache:off", false);
}
END_TEST

START_TEST(reservations)
{
	work(4, "reserve:3MiB*8,reserve:6MiB*4+class+hard", false);
}
END_TEST

CHECK_MAIN("report_heap", random_work, reservations)
