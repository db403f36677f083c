/* SPDX-License-Identifier: MIT
 *
 * What a heap tells of random work, exported: the figures at each moment beside those of a model that keeps the device's map from
 * the same events, and files that their readers read and that come back as the same history.
 */
#include "../tracing/export/export.h"
#include "../tracing/export/gauges.h"
#include "../tracing/export/torch_state.h"
#include "../tracing/import/import.h"
#include "../tracing/replay/replay.h"
#include "check_main.h"
#include "event_model.h"
#include "export_same.h"
#include "heap_history.h"
#include "heap_rig.h"

#include <cleave/plan.h>

#include <stdio.h>
#include <unistd.h>

/* What the model says after an event or a note. */
struct moment {
	uint64_t live, held, mapped, stranded, largest;
	bool between; /* a reservation has served what no request has yet */
};

static struct rig r;
static struct event_model m;
static struct heap_history t;
static struct moment *moments;
static size_t moment_count, moment_cap;

/* ---- the model's figures ---- */

static uint64_t used_in(const struct event_spans *s, uint64_t addr, uint64_t end)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < s->count && s->at[i].addr < end; i++) {
		uint64_t from = clv_max_u64(addr, s->at[i].addr), to = clv_min_u64(end, s->at[i].addr + s->at[i].size);
		sum += from < to ? to - from : 0;
	}
	return sum;
}

static uint64_t stranded(void)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < m.homes.count; i++) {
		const struct event_span *f = &m.homes.at[i];
		uint64_t used = used_in(&m.live, f->addr, f->addr + f->size) +
				used_in(&m.held_back, f->addr, f->addr + f->size);
		sum += used ? f->size - used : 0;
	}
	return sum;
}

/* The longest way within frames side by side that meets nothing. */
static uint64_t largest(void)
{
	uint64_t longest = 0, from = 0, end = 0;
	size_t live = 0, held = 0;
	for (size_t i = 0; i < m.homes.count; i++) {
		const struct event_span *f = &m.homes.at[i];
		from = f->addr == end ? from : f->addr;
		end = f->addr + f->size;
		for (;;) {
			const struct event_span *a = live < m.live.count ? &m.live.at[live] : NULL;
			const struct event_span *b = held < m.held_back.count ? &m.held_back.at[held] : NULL;
			const struct event_span *next = !a || (b && b->addr < a->addr) ? b : a;
			if (!next || next->addr >= end)
				break;
			longest = clv_max_u64(longest, next->addr - from);
			from = next->addr + next->size;
			live += next == a;
			held += next == b;
		}
		longest = clv_max_u64(longest, end > from ? end - from : 0);
	}
	return longest;
}

static void told(struct clv_observer *self, const struct clv_observed *w)
{
	if (t.deaf)
		return;
	event_model_tell(&m, w);
	heap_history_tell(&t.observer, w);
	struct moment now = {m.live_bytes, m.held,    m.homes.bytes,
			     stranded(),   largest(), w->event == CLV_EVENT_RESERVE_SERVE};
	if (w->event == CLV_EVENT_FAIL) { /* is an event and a note */
		ck_assert(clv_mem_reserve(&moments, &moment_cap, moment_count + 1, sizeof(*moments)));
		moments[moment_count++] = now;
	}
	ck_assert(clv_mem_reserve(&moments, &moment_cap, moment_count + 1, sizeof(*moments)));
	moments[moment_count++] = now;
}

/* ---- the exports ---- */

static void compare_gauges(void)
{
	struct clv_error err = {{0}};
	struct clv_gauges g;
	uint64_t exact = 0;
	ck_assert_msg(clv_gauges_begin(&g, t.trace, t.h, &err), "%s", err.text);
	ck_assert(g.has_frames);
	for (size_t i = 0; i < moment_count; i++) {
		const struct moment *now = &moments[i];
		ck_assert(clv_gauges_step(&g));
		uint64_t pending = g.state.plane.sum.of[CLV_CAUSE_STREAM];
		bool holds = g.allocated == now->live && g.reserved == now->held && g.stranded <= now->stranded &&
			     g.stranded + pending >= now->stranded && g.largest_free <= now->largest;
		if (now->between)
			holds = g.allocated == now->live && g.reserved == now->held;
		else if (!pending)
			holds = holds && g.stranded == now->stranded && g.largest_free == now->largest;
		exact += !pending && !now->between;
		ck_assert_msg(
			holds,
			"step %zu, %llu pending: allocated %llu, reserved %llu, stranded %llu, largest %llu, not %llu, %llu, "
			"%llu, %llu",
			i, (unsigned long long)pending, (unsigned long long)g.allocated, (unsigned long long)g.reserved,
			(unsigned long long)g.stranded, (unsigned long long)g.largest_free,
			(unsigned long long)now->live, (unsigned long long)now->held, (unsigned long long)now->stranded,
			(unsigned long long)now->largest);
	}
	ck_assert(!clv_gauges_step(&g) && !g.state.plane.broken);
	ck_assert_uint_gt(exact, HEAP_HISTORY_STEPS / 10);
	clv_gauges_end(&g);
}

/* Frames that come and go map what the model says after each note; and its blocks are there at the end. */
static void compare_state(void)
{
	struct clv_torch_state s;
	uint64_t mapped = 0, blocks = 0;
	size_t next = 0, moment = 0;
	ck_assert(clv_torch_state_make(&s, t.trace, t.h));
	for (uint32_t note = 0, event = 0; note < t.h->note_count; note++) {
		for (; event < t.h->notes[note].event; event++)
			moment++;
		for (; next < s.mapping_count && s.mappings[next].time_us == t.h->notes[note].time_us; next++)
			mapped += s.mappings[next].there ? s.mappings[next].size : -s.mappings[next].size;
		ck_assert_uint_eq(mapped, moments[moment].mapped);
		moment++;
	}
	ck_assert_uint_eq(next, s.mapping_count);
	for (uint32_t i = 0; i < s.segment_count; i++) {
		mapped -= s.segments[i].size;
		for (uint32_t k = 0; k < s.segments[i].blocks; k++) {
			const struct clv_block_record *b = &s.blocks[s.segments[i].first_block + k];
			if (b->state == CLV_BLOCK_INACTIVE)
				continue;
			ck_assert_uint_lt(blocks, m.live.count);
			const struct event_span *live = &m.live.at[blocks++];
			ck_assert(b->state == CLV_BLOCK_ACTIVE && b->addr == live->addr && b->size == live->size &&
				  b->requested == live->what);
		}
		if (i) /* frames side by side are one */
			ck_assert_uint_gt(s.segments[i].addr, s.segments[i - 1].addr + s.segments[i - 1].size);
	}
	ck_assert_uint_eq(mapped, 0);
	ck_assert_uint_eq(blocks, m.live.count);
	clv_torch_state_free(&s);
}

static const char *scratch(void)
{
	static char path[64];
	snprintf(path, sizeof(path), "/tmp/cleave-export-heap-%ld", (long)getpid());
	return path;
}

static void check(const char *kind)
{
	char line[8192];
	if (system("python3 -c '' 2>/dev/null") != 0)
		return;
	snprintf(line, sizeof(line), "python3 '%s/../export_check.py' %s '%s'", getenv("CLEAVE_TEST_DATA"), kind,
		 scratch());
	ck_assert_int_eq(system(line), 0);
}

static struct clv_policy_stats replayed(const struct clv_trace *trace)
{
	const struct clv_replay_options options = {.policy = "cleave"};
	struct clv_error err = {{0}};
	struct clv_replay_result result;
	ck_assert_msg(clv_replay(trace, &trace->histories[0], &options, &result, &err), "%s", err.text);
	ck_assert_msg(result.completed, "%s", result.failure);
	return result.stats;
}

static void export_and_import(void)
{
	struct clv_error err = {{0}};
	ck_assert_msg(clv_export_torch(t.trace, scratch(), &err), "%s", err.text);
	check("snapshot");
	struct clv_trace *back = clv_trace_import(scratch(), &err);
	ck_assert_msg(back != NULL, "%s", err.text);
	const char *why = same_by_torch(t.trace, back, true);
	ck_assert_msg(!why, "%s", why);
	struct clv_policy_stats a = replayed(t.trace), b = replayed(back);
	ck_assert(a.peak_reserved_bytes > 0 && a.held_bytes == b.held_bytes);
	ck_assert(a.peak_reserved_bytes == b.peak_reserved_bytes && a.stranded_peak_bytes == b.stranded_peak_bytes);
	ck_assert(a.oom_retries == b.oom_retries && a.waits == b.waits);
	clv_trace_free(back);
	ck_assert_msg(clv_export_rmm(t.trace, t.h, scratch(), &err), "%s", err.text);
	back = clv_trace_import(scratch(), &err);
	ck_assert_msg(back != NULL, "%s", err.text);
	why = same_by_rmm(t.trace, t.h, back, &back->histories[0]);
	ck_assert_msg(!why, "%s", why);
	clv_trace_free(back);
	ck_assert_msg(clv_export_perfetto(t.trace, scratch(), &err), "%s", err.text);
	check("perfetto");
	unlink(scratch());
}

static void work(uint64_t seed, const char *settings, bool manual)
{
	struct clv_observer observer = {told};
	moment_count = 0;
	heap_history_open(&t);
	event_model_open(&m);
	heap_history_begin(&r, &observer, seed, settings, manual);
	for (int i = 0; i < HEAP_HISTORY_STEPS; i++)
		heap_history_step(&r, i);
	heap_history_link(&t);
	ck_assert_uint_gt(m.moved, 0);
	ck_assert_uint_gt(m.live.count, 0);
	compare_gauges();
	compare_state();
	export_and_import();
	heap_history_end(&r);
	event_model_close(&m);
	clv_trace_free(t.trace);
	clv_mem_free(moments);
	moments = NULL;
	moment_cap = 0;
}

START_TEST(random_work)
{
	work(1, NULL, false);
	work(2, "growth:tight", true);
}
END_TEST

START_TEST(reservations)
{
	work(4, "reserve:3MiB*8,reserve:6MiB*4+class+hard", false);
}
END_TEST

CHECK_MAIN("export_heap", random_work, reservations)
