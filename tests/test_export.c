/* SPDX-License-Identifier: MIT */
#include "../tracing/export/export.h"
#include "../tracing/export/gauges.h"
#include "../tracing/export/pickle_write.h"
#include "../tracing/export/torch_state.h"
#include "../tracing/import/pickle.h"
#include "../tracing/memory.h"
#include "../tracing/synth.h"
#include "check_main.h"
#include "export_same.h"
#include "pickle_json.h"
#include "report_rig.h"
#include "snapshot_full.h"
#include "trace_check.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct clv_error err;
static char path[64];

static const char *scratch(void)
{
	snprintf(path, sizeof(path), "/tmp/cleave-export-%ld", (long)getpid());
	return path;
}

static uint8_t *take(size_t *size)
{
	FILE *f = fopen(scratch(), "rb");
	ck_assert_ptr_nonnull(f);
	fseek(f, 0, SEEK_END);
	*size = (size_t)ftell(f);
	rewind(f);
	uint8_t *data = malloc(*size + 1);
	ck_assert_uint_eq(fread(data, 1, *size, f), *size);
	fclose(f);
	unlink(scratch());
	return data;
}

static struct clv_trace *import(const uint8_t *data, size_t size)
{
	const struct clv_input in = {.name = "exported", .data = data, .size = size};
	err.text[0] = '\0';
	struct clv_trace *t = clv_import_memory(&in, &err);
	const char *wrong = t ? trace_wrong(t) : NULL;
	ck_assert_msg(!wrong, "%s", wrong);
	return t;
}

static struct clv_trace *back(void)
{
	size_t size;
	uint8_t *data = take(&size);
	struct clv_trace *t = import(data, size);
	ck_assert_msg(t != NULL, "%s", err.text);
	free(data);
	return t;
}

static struct clv_trace *synthetic(uint64_t seed, uint32_t events)
{
	struct clv_synth s = {
		.events = events, .live = events / 8 + 1, .streams = 1 + (uint32_t)(seed % 3), .seed = seed};
	struct clv_trace *t = clv_synth_trace(&s, &err);
	ck_assert_msg(t != NULL, "%s", err.text);
	return t;
}

static struct clv_trace *full(void)
{
	struct pickle_writer w = pickle_of(snapshot_full, PICKLE_PYTHON);
	struct clv_trace *t = import(w.data, w.size);
	ck_assert_msg(t != NULL, "%s", err.text);
	free(w.data);
	return t;
}

static const int64_t integers[] = {0,
				   1,
				   255,
				   256,
				   65535,
				   65536,
				   INT32_MAX,
				   INT32_MAX + 1ll,
				   -1,
				   -128,
				   -129,
				   -32769,
				   INT32_MIN,
				   INT32_MIN - 1ll,
				   INT64_MAX,
				   INT64_MIN,
				   0x7fffffffff,
				   -0x8000000000ll,
				   -0x8000000001ll,
				   1ll << 39,
				   1ll << 47,
				   1ll << 55};
static const uint64_t naturals[] = {0, 255, (uint64_t)INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX};

static bool no_dict(void *user, struct clv_pickle *p, const clv_pk *items, size_t count, uint64_t offset, clv_pk *out)
{
	(void)user, (void)p, (void)items, (void)count, (void)offset, (void)out;
	return true;
}

static bool no_list(void *user, struct clv_pickle *p, const clv_pk *items, size_t count, clv_pk *out)
{
	(void)user, (void)p, (void)items, (void)count, (void)out;
	return true;
}

/* A list of everything that the pickle writer writes, read by the reader. */
START_TEST(pickle_values)
{
	enum { MANY = 2500 };
	struct clv_pickle_writer w;
	struct clv_pickle_list list;
	static char texts[3][70000];
	memset(texts[0], 'x', 255);
	memset(texts[1], 'y', 40000);
	memset(texts[2], '\xff', 69999); /* no UTF-8, and cut off after 65,535 */
	uint32_t memo = CLV_PW_NO_MEMO;
	ck_assert_msg(clv_pw_begin(&w, scratch(), &err), "%s", err.text);
	clv_pw_list_begin(&w, &list);
	for (size_t i = 0; i < CLV_ARRAY_LEN(integers); i++) {
		clv_pw_list_item(&w, &list);
		clv_pw_int(&w, integers[i]);
	}
	for (size_t i = 0; i < CLV_ARRAY_LEN(naturals); i++) {
		clv_pw_list_item(&w, &list);
		clv_pw_uint(&w, naturals[i]);
	}
	for (size_t i = 0; i < 3; i++) {
		clv_pw_list_item(&w, &list);
		clv_pw_text(&w, texts[i]);
	}
	for (size_t i = 0; i < MANY; i++) {
		clv_pw_list_item(&w, &list);
		clv_pw_known_text(&w, "again", &memo);
	}
	clv_pw_list_item(&w, &list);
	clv_pw_double(&w, 0.6);
	clv_pw_list_end(&w, &list);
	ck_assert_msg(clv_pw_end(&w), "%s", err.text);
	size_t size, count, at = 0;
	uint8_t *data = take(&size);
	const struct clv_input in = {.name = "p", .data = data, .size = size};
	const struct clv_pickle_user user = {.dict = no_dict, .list = no_list};
	struct clv_pickle *p = clv_pickle_open(&in, &user, &err);
	clv_pk root;
	ck_assert_msg(p && clv_pickle_run(p, &root), "%s", err.text);
	const clv_pk *items;
	uint64_t offset, natural;
	int64_t integer;
	double d;
	const char *text;
	size_t len;
	ck_assert(clv_pickle_items(p, root, &items, &count, &offset));
	ck_assert_uint_eq(count, CLV_ARRAY_LEN(integers) + CLV_ARRAY_LEN(naturals) + 3 + MANY + 1);
	for (size_t i = 0; i < CLV_ARRAY_LEN(integers); i++) {
		ck_assert(clv_pickle_i64(p, items[at++], &integer));
		ck_assert_int_eq(integer, integers[i]);
	}
	for (size_t i = 0; i < CLV_ARRAY_LEN(naturals); i++) {
		ck_assert(clv_pickle_u64(p, items[at++], &natural));
		ck_assert_uint_eq(natural, naturals[i]);
	}
	for (size_t i = 0; i < 3; i++) {
		ck_assert(clv_pickle_string(p, items[at++], &text, &len));
		ck_assert_uint_eq(len, i < 2 ? strlen(texts[i]) : 3u * 65535);
		ck_assert(memcmp(text, i < 2 ? texts[i] : "\xef\xbf\xbd", i < 2 ? len : 3) == 0);
	}
	for (size_t i = 0; i < MANY; i++) {
		ck_assert(clv_pickle_string(p, items[at++], &text, &len));
		ck_assert(len == 5 && memcmp(text, "again", 5) == 0);
	}
	ck_assert(clv_pickle_double(p, items[at], &d) && d == 0.6);
	clv_pickle_close(p);
	free(data);
}
END_TEST

#define UNITS 64
#define UNIT (2 * CLV_MIB) /* the least that PyTorch maps, and more than it ever gives a block beyond its size */

/* What a random history of segments and blocks looks like, by unit. */
struct model {
	int segment[UNITS]; /* 0: none; of a cudaMalloc a number of its own, of an expandable one -1 */
	uint32_t block[UNITS];
	struct clv_event_record events[600];
	uint32_t count, blocks;
};

static bool all_of(const struct model *m, unsigned at, unsigned len, int segment, bool free_only)
{
	for (unsigned i = at; i < at + len; i++)
		if (m->segment[i] != segment || (free_only && m->block[i]))
			return false;
	return true;
}

static void add_event(struct model *m, enum clv_action action, unsigned at, unsigned len, uint32_t block)
{
	m->events[m->count++] = (struct clv_event_record){.time_us = m->count,
							  .addr = (1 + at) * UNIT,
							  .size = len * UNIT,
							  .block = block,
							  .action = (uint8_t)action};
}

static void random_step(struct model *m, struct clv_rng *rng)
{
	unsigned at = (unsigned)clv_rng_below(rng, UNITS), len = (unsigned)clv_rng_range(rng, 1, 9);
	len = (unsigned)clv_min_u64(len, UNITS - at);
	int s = m->segment[at];
	uint32_t b = m->block[at];
	if (b && clv_rng_below(rng, 2)) {
		unsigned first = at, end = at;
		while (first && m->block[first - 1] == b)
			first--;
		while (end < UNITS && m->block[end] == b)
			m->block[end++] = 0;
		for (unsigned i = first; i < end; i++)
			m->block[i] = 0;
		add_event(m, CLV_ACTION_FREE_COMPLETED, first, end - first, b - 1);
	} else if (s == 0 && all_of(m, at, len, 0, true)) {
		bool expandable = clv_rng_below(rng, 2);
		int number = expandable ? -1 : (int)m->count + 1;
		for (unsigned i = at; i < at + len; i++)
			m->segment[i] = number;
		add_event(m, expandable ? CLV_ACTION_SEGMENT_MAP : CLV_ACTION_SEGMENT_ALLOC, at, len, CLV_NO_BLOCK);
	} else if (s && all_of(m, at, len, s, true) && clv_rng_below(rng, 4)) {
		for (unsigned i = at; i < at + len; i++)
			m->block[i] = m->blocks + 1;
		add_event(m, CLV_ACTION_ALLOC, at, len, m->blocks++);
	} else if (s == -1 && all_of(m, at, len, -1, true)) {
		memset(&m->segment[at], 0, len * sizeof(m->segment[0]));
		add_event(m, CLV_ACTION_SEGMENT_UNMAP, at, len, CLV_NO_BLOCK);
	} else if (s > 0) {
		unsigned first = at, end = at;
		while (first && m->segment[first - 1] == s)
			first--;
		while (end < UNITS && m->segment[end] == s)
			end++;
		if (!all_of(m, first, end - first, s, true))
			return;
		memset(&m->segment[first], 0, (end - first) * sizeof(m->segment[0]));
		add_event(m, CLV_ACTION_SEGMENT_FREE, first, end - first, CLV_NO_BLOCK);
	}
}

static void assert_gauges(const struct clv_gauges *g, const struct model *m)
{
	uint64_t allocated = 0, reserved = 0, longest = 0, stranded = 0;
	for (unsigned i = 0, run = 0; i < UNITS; i++) {
		if (i && m->segment[i] != m->segment[i - 1])
			run = 0;
		run = m->segment[i] && !m->block[i] ? run + 1 : 0;
		longest = clv_max_u64(longest, run);
		reserved += m->segment[i] != 0;
		allocated += m->block[i] != 0;
	}
	for (unsigned first = 0, end; first < UNITS; first = end) {
		unsigned used = 0;
		for (end = first; end < UNITS && m->segment[end] == m->segment[first]; end++)
			used += m->block[end] != 0;
		/* a page of an expandable segment is a unit, which is all free or all used */
		stranded += m->segment[first] > 0 && used ? end - first - used : 0;
	}
	ck_assert_uint_eq(g->allocated, allocated * UNIT);
	ck_assert_uint_eq(g->reserved, reserved * UNIT);
	ck_assert_uint_eq(g->largest_free, longest * UNIT);
	ck_assert_uint_eq(g->stranded, stranded * UNIT);
}

/* Gauges after each event against units that are counted. */
START_TEST(gauges)
{
	struct clv_rng rng = {(uint64_t)_i + 1};
	static struct model m, at;
	uint64_t stream = 0;
	const struct clv_trace trace = {.streams = &stream, .stream_count = 1};
	struct clv_history h = {0};
	struct clv_gauges g;
	m = (struct model){.count = 0};
	while (m.count < CLV_ARRAY_LEN(m.events))
		random_step(&m, &rng);
	h.events = m.events;
	h.event_count = m.count;
	h.block_count = m.blocks;
	ck_assert_msg(clv_gauges_begin(&g, &trace, &h, &err), "%s", err.text);
	ck_assert(g.has_frames && g.reserved == 0 && g.allocated == 0);
	/* the same events again, to have the model at each of them */
	rng = (struct clv_rng){(uint64_t)_i + 1};
	at = (struct model){.count = 0};
	for (uint32_t i = 0; i < m.count; i++) {
		while (at.count == i)
			random_step(&at, &rng);
		ck_assert(clv_gauges_step(&g));
		assert_gauges(&g, &at);
	}
	clv_gauges_end(&g);
}
END_TEST

/* The made-up state of a log: every live block, and no other, in segments that it tiles. */
START_TEST(made_up_states)
{
	struct clv_trace *t = synthetic((uint64_t)_i, 3000);
	const struct clv_history *h = t->histories;
	struct clv_torch_state s;
	uint8_t *live = calloc(h->block_count, 1);
	uint64_t live_count = 0, end = 0, found = 0;
	for (uint32_t i = 0; i < h->event_count; i++)
		live[h->events[i].block] = h->events[i].action == CLV_ACTION_ALLOC            ? CLV_BLOCK_ACTIVE
					   : h->events[i].action == CLV_ACTION_FREE_REQUESTED ? CLV_BLOCK_PENDING_FREE
											      : CLV_BLOCK_INACTIVE;
	for (uint32_t i = 0; i < h->block_count; i++)
		live_count += live[i] != CLV_BLOCK_INACTIVE;
	ck_assert(clv_torch_state_make(&s, t, h));
	for (uint32_t i = 0; i < s.segment_count; i++) {
		uint64_t at = s.segments[i].addr;
		ck_assert_uint_ge(at, end);
		for (uint32_t k = 0; k < s.segments[i].blocks; k++) {
			const struct clv_block_record *b = &s.blocks[s.segments[i].first_block + k];
			ck_assert_uint_eq(b->addr, at);
			found += b->state != CLV_BLOCK_INACTIVE;
			ck_assert(b->state == CLV_BLOCK_INACTIVE || (b->requested && b->requested <= b->size));
			at += b->size;
		}
		end = s.segments[i].addr + s.segments[i].size;
		ck_assert_uint_eq(at, end);
	}
	ck_assert_uint_eq(found, live_count);
	clv_torch_state_free(&s);
	free(live);
	clv_trace_free(t);
}
END_TEST

/* Made-up histories through each format and back. */
START_TEST(round_trips)
{
	struct clv_trace *t = synthetic((uint64_t)_i, 2000 + 100u * (uint32_t)_i), *b;
	ck_assert_msg(clv_export_torch(t, scratch(), &err), "%s", err.text);
	b = back();
	const char *why = same_by_torch(t, b, true);
	ck_assert_msg(!why, "seed %d: %s", _i, why);
	clv_trace_free(b);
	ck_assert_msg(clv_export_rmm(t, t->histories, scratch(), &err), "%s", err.text);
	b = back();
	why = same_by_rmm(t, t->histories, b, b->histories);
	ck_assert_msg(!why, "seed %d: %s", _i, why);
	/* a log becomes a snapshot, and that one the log's trace again */
	ck_assert_msg(clv_export_torch(b, scratch(), &err), "%s", err.text);
	struct clv_trace *again = back();
	why = same_by_torch(b, again, true);
	ck_assert_msg(!why, "seed %d: %s", _i, why);
	clv_trace_free(again);
	clv_trace_free(b);
	clv_trace_free(t);
}
END_TEST

/* Every key, stacks, settings, marks and phases. */
START_TEST(everything)
{
	struct clv_trace *t = full();
	const struct clv_history *h = t->histories;
	ck_assert_uint_eq(h->note_count, 1);
	ck_assert_uint_eq(h->notes[0].kind, CLV_EVENT_PHASE_BEGIN);
	ck_assert_str_eq(t->strings[h->notes[0].text], "n");
	/* a mark and the phase's end */
	struct clv_note *notes = clv_mem_realloc(t->histories[0].notes, 3, sizeof(*notes));
	notes[1] = notes[2] = notes[0];
	notes[1].kind = CLV_EVENT_MARK;
	notes[1].time_us = 5;
	notes[2].kind = CLV_EVENT_PHASE_END;
	notes[2].time_us = UINT64_C(1796030623562500);
	notes[2].event = 6;
	t->histories[0].notes = notes;
	t->histories[0].note_count = 3;
	ck_assert_msg(clv_export_torch(t, scratch(), &err), "%s", err.text);
	struct clv_trace *b = back();
	const char *why = same_by_torch(t, b, true);
	ck_assert_msg(!why, "%s", why);
	ck_assert_uint_eq(b->histories[0].note_count, 3);
	for (uint32_t i = 0; i < 3; i++) {
		const struct clv_note *x = &notes[i], *y = &b->histories[0].notes[i];
		ck_assert(x->kind == y->kind && x->time_us == y->time_us && x->event == y->event);
		ck_assert_str_eq(t->strings[x->text], b->strings[y->text]);
	}
	clv_trace_free(b);
	ck_assert_msg(clv_export_perfetto(t, scratch(), &err), "%s", err.text);
	json_t *json = json_load_file(scratch(), 0, NULL), *e;
	unlink(scratch());
	ck_assert_ptr_nonnull(json);
	unsigned marks = 0, phases = 0, failures = 0, blocks = 0;
	size_t i;
	json_array_foreach(json_object_get(json, "traceEvents"), i, e)
	{
		const char *ph = json_string_value(json_object_get(e, "ph")),
			   *cat = json_string_value(json_object_get(e, "cat"));
		const char *name = json_string_value(json_object_get(e, "name"));
		marks += cat && !strcmp(cat, "mark") && !strcmp(name, "n") && *ph == 'i';
		phases += cat && !strcmp(cat, "phase") && !strcmp(name, "n") && *ph == 'X';
		failures += cat && !strcmp(cat, "failure") && *ph == 'i';
		blocks += cat && !strcmp(cat, "block") && *ph == 'b' &&
			  strstr("512 B to 1 KiB, 256 B to 512 B", name) &&
			  json_object_get(json_object_get(e, "args"), "stack");
	}
	ck_assert_uint_eq(marks, 1);
	ck_assert_uint_eq(phases, 1);
	ck_assert_uint_eq(failures, 1);
	ck_assert_uint_eq(blocks, 2);
	json_decref(json);
	clv_trace_free(t);
}
END_TEST

/* A note with a text, of a thread. */
static void note(struct rig *g, enum clv_event kind, const char *text, uint32_t thread)
{
	rig_note_full(g, (struct clv_note){.kind = (uint16_t)kind, .text = rig_string(g, text), .thread = thread});
}

/* One event of Chrome's JSON: the n-th of this category, or counter. */
static json_t *nth(json_t *file, const char *key, const char *value, unsigned n)
{
	json_t *e;
	size_t i;
	json_array_foreach(json_object_get(file, "traceEvents"), i, e)
	{
		const char *is = json_string_value(json_object_get(e, key));
		if (is && !strcmp(is, value) && n-- == 0)
			return e;
	}
	return NULL;
}

static json_int_t number(json_t *event, const char *key)
{
	json_t *v = json_object_get(event, key);
	v = v ? v : json_object_get(json_object_get(event, "args"), key);
	ck_assert_msg(json_is_integer(v), "no %s", key);
	return json_integer_value(v);
}

static json_t *perfetto_of(struct rig *g)
{
	rig_link(g);
	ck_assert_msg(clv_export_perfetto(g->trace, scratch(), &err), "%s", err.text);
	json_t *json = json_load_file(scratch(), 0, NULL);
	unlink(scratch());
	ck_assert_ptr_nonnull(json);
	return json;
}

/* Strings that are the same one, as a reader of recordings makes them. */
static void merge_strings(struct rig *g)
{
	for (uint32_t i = 0; i < g->h->note_count; i++)
		for (uint32_t k = 0; g->h->notes[i].text != CLV_NO_TEXT && k < g->h->notes[i].text; k++)
			if (!strcmp(g->trace->strings[k], g->trace->strings[g->h->notes[i].text]))
				g->h->notes[i].text = k;
}

/* A phase lies on a track where it lies within those that are open; its end is that of its own thread. */
START_TEST(phases)
{
	struct rig g = rig_open();
	note(&g, CLV_EVENT_PHASE_BEGIN, "a", 1); /* 0 to 5: lane 1 */
	note(&g, CLV_EVENT_PHASE_BEGIN, "b", 1); /* 1 to 3: in it */
	note(&g, CLV_EVENT_PHASE_BEGIN, "a", 2); /* 2 to 7: not in b or a */
	note(&g, CLV_EVENT_PHASE_END, "b", 1);
	note(&g, CLV_EVENT_PHASE_BEGIN, "c", 1); /* 4 to the end at 8 */
	note(&g, CLV_EVENT_PHASE_END, "a", 1);
	note(&g, CLV_EVENT_PHASE_END, "none", 1);
	note(&g, CLV_EVENT_PHASE_END, "a", 2);
	rig_mark(&g, "m");
	merge_strings(&g);
	static const struct {
		const char *name;
		int tid, dur, thread;
		bool ended;
	} expected[] = {{"a", 1, 5, 1, true}, {"b", 1, 2, 1, true}, {"a", 2, 5, 2, true}, {"c", 3, 4, 1, false}};
	json_t *json = perfetto_of(&g);
	for (unsigned i = 0; i < CLV_ARRAY_LEN(expected); i++) {
		json_t *e = nth(json, "cat", "phase", i);
		ck_assert_str_eq(json_string_value(json_object_get(e, "name")), expected[i].name);
		ck_assert_int_eq(number(e, "tid"), expected[i].tid);
		ck_assert_int_eq(number(e, "dur"), expected[i].dur * (int)RIG_STEP_US);
		ck_assert_int_eq(number(e, "thread"), expected[i].thread);
		ck_assert_int_eq(json_is_true(json_object_get(json_object_get(e, "args"), "ended")), expected[i].ended);
	}
	ck_assert_ptr_null(nth(json, "cat", "phase", 4));
	ck_assert_str_eq(json_string_value(json_object_get(nth(json, "cat", "mark", 0), "name")), "m");
	json_decref(json);
	clv_trace_free(g.trace);
}
END_TEST

/* More phases that cross than there are tracks: all are written, none goes beyond the slice that it lies in. */
START_TEST(many_phases)
{
	struct rig g = rig_open();
	char name[16];
	for (int end = 0; end < 2; end++)
		for (unsigned i = 0; i < 100; i++) {
			snprintf(name, sizeof(name), "p%u", i);
			note(&g, end ? CLV_EVENT_PHASE_END : CLV_EVENT_PHASE_BEGIN, name, 1);
		}
	merge_strings(&g);
	json_t *json = perfetto_of(&g), *e;
	json_int_t last_end = 0;
	unsigned clipped = 0;
	for (unsigned i = 0; i < 100; i++) {
		e = nth(json, "cat", "phase", i);
		json_int_t ends = number(e, "ts") + number(e, "dur");
		ck_assert_int_eq(number(e, "tid"), i < 64 ? i + 1 : 64);
		if (i >= 64) {
			ck_assert_int_le(ends, last_end);
			clipped++;
		}
		last_end = ends;
	}
	ck_assert_uint_eq(clipped, 36);
	json_decref(json);
	clv_trace_free(g.trace);
}
END_TEST

/* What a heap had to do, and the driver's refusal, each by its words. */
START_TEST(instants)
{
	struct rig g = rig_open();
	rig_note(&g, CLV_EVENT_WAIT, 0, 100, 1, 7);
	rig_note(&g, CLV_EVENT_TRIM, 0, 200, 50, 0);
	note(&g, CLV_EVENT_RESERVE, "experts", 9);
	g.h->notes[2].size = 300;
	g.h->notes[2].a = 4;
	rig_note(&g, CLV_EVENT_DRIVER_FAIL, 0, 400, 2, 0);
	rig_note(&g, CLV_EVENT_DROPPED, 0, 500, 1, 0);
	rig_note(&g, CLV_EVENT_CUT, 4096, 512, 4096, 1024); /* thousands of these say nothing to a person */
	uint64_t failed_at = g.now_us;
	rig_event(&g, CLV_ACTION_OOM, 77, 1024, 0, CLV_NO_STACK);
	note(&g, CLV_EVENT_FAIL, "live=1 held=2", 9);
	g.h->notes[6].time_us = failed_at;
	g.h->notes[6].size = 1024;
	g.h->notes[6].b = 640;
	g.h->threads = clv_mem_zalloc(1, sizeof(*g.h->threads));
	g.h->threads[0] = 9;
	json_t *json = perfetto_of(&g);
	json_t *wait = nth(json, "name", "wait", 0), *reserve = nth(json, "name", "reserve", 0);
	ck_assert(number(wait, "requested") == 100 && number(wait, "host_waits") == 1);
	ck_assert_str_eq(json_string_value(json_object_get(json_object_get(wait, "args"), "waits_for")), "0x7");
	ck_assert(number(nth(json, "name", "trim", 0), "given_back") == 200);
	ck_assert(number(nth(json, "name", "trim", 0), "keep") == 50);
	ck_assert_str_eq(json_string_value(json_object_get(json_object_get(reserve, "args"), "text")), "experts");
	ck_assert(number(reserve, "slot") == 300 && number(reserve, "slots") == 4 && number(reserve, "thread") == 9);
	ck_assert(number(nth(json, "name", "driver_fail", 0), "error") == 2);
	ck_assert(number(nth(json, "name", "dropped", 0), "events") == 500);
	ck_assert_ptr_null(nth(json, "name", "cut", 0));
	json_t *failure = nth(json, "cat", "failure", 0);
	ck_assert(number(failure, "requested") == 1024 && number(failure, "largest_hole") == 640);
	ck_assert(number(failure, "device_free") == 77 && number(failure, "thread") == 9);
	ck_assert_str_eq(json_string_value(json_object_get(json_object_get(failure, "args"), "state")),
			 "live=1 held=2");
	ck_assert_ptr_null(nth(json, "cat", "failure", 1));
	json_decref(json);
	clv_trace_free(g.trace);
}
END_TEST

#define AT(mib) (UINT64_C(0x300000000) + (mib)*CLV_MIB)

/* Of a program that was observed, what the driver gave is a segment; a block takes what was recorded. */
START_TEST(observed)
{
	struct rig g = rig_open();
	rig_note(&g, CLV_EVENT_DRIVER_ALLOC, AT(0), 4 * CLV_MIB, 0, 0);
	rig_alloc(&g, AT(0), 1000, CLV_NO_STACK);
	rig_note(&g, CLV_EVENT_DRIVER_ALLOC, AT(4), 6 * CLV_MIB, 0, 0);
	rig_note(&g, CLV_EVENT_DRIVER_FREE, AT(4), 6 * CLV_MIB, 0, 0);
	g.h->slack = clv_mem_zalloc(1, sizeof(*g.h->slack));
	g.h->slack[0] = 3096;
	json_t *json = perfetto_of(&g);
	static const int64_t reserved[] = {0, 4, 10, 4};
	for (unsigned i = 0; i < CLV_ARRAY_LEN(reserved); i++)
		ck_assert_int_eq(number(nth(json, "name", "reserved", i), "bytes"), reserved[i] * (int64_t)CLV_MIB);
	ck_assert_ptr_null(nth(json, "name", "reserved", CLV_ARRAY_LEN(reserved)));
	ck_assert_int_eq(number(nth(json, "cat", "block", 0), "takes"), 4096);
	json_decref(json);
	struct clv_torch_state s;
	ck_assert(clv_torch_state_make(&s, g.trace, g.h));
	ck_assert(s.mapping_count == 3 && s.mappings[1].there && !s.mappings[2].there && !s.mappings[2].expandable);
	ck_assert(s.segment_count == 1 && s.segments[0].addr == AT(0) && s.segments[0].size == 4 * CLV_MIB);
	ck_assert(s.block_count == 2 && s.blocks[0].size == 4096 && s.blocks[0].requested == 1000);
	clv_torch_state_free(&s);
	clv_trace_free(g.trace);
}
END_TEST

/* A pool of the driver's own and its other allocations use the same addresses in turn. */
START_TEST(observed_in_turn)
{
	struct rig g = rig_open();
	rig_note(&g, CLV_EVENT_DRIVER_ALLOC, AT(8), 2 * CLV_MIB, 0, 0);
	rig_alloc(&g, AT(0), 1000, CLV_NO_STACK);
	rig_free(&g, AT(0), 1000);
	rig_note(&g, CLV_EVENT_DRIVER_ALLOC, AT(0), 4 * CLV_MIB, 0, 0);
	rig_note(&g, CLV_EVENT_DRIVER_FREE, AT(0), 4 * CLV_MIB, 0, 0);
	rig_alloc(&g, AT(0), 600, CLV_NO_STACK);
	rig_link(&g);
	static const struct {
		uint64_t addr, size;
		uint32_t before;
		bool there;
	} expected[] = {{AT(8), 2 * CLV_MIB, 0, true}, {AT(0), 1024, 0, true},         {AT(0), 1024, 2, false},
			{AT(0), 4 * CLV_MIB, 2, true}, {AT(0), 4 * CLV_MIB, 2, false}, {AT(0), 1024, 2, true}};
	struct clv_torch_state s;
	ck_assert(clv_torch_state_make(&s, g.trace, g.h));
	ck_assert_uint_eq(s.mapping_count, CLV_ARRAY_LEN(expected));
	for (size_t i = 0; i < CLV_ARRAY_LEN(expected); i++)
		ck_assert(s.mappings[i].addr == expected[i].addr && s.mappings[i].size == expected[i].size &&
			  s.mappings[i].before == expected[i].before && s.mappings[i].there == expected[i].there);
	ck_assert(s.segment_count == 2 && s.segments[0].size == 1024 && s.segments[1].addr == AT(8));
	clv_torch_state_free(&s);
	clv_trace_free(g.trace);
}
END_TEST

/* A log has the time of day at which the recorded process lived. */
START_TEST(time_of_day)
{
	struct rig g = rig_open();
	size_t size;
	rig_note(&g, CLV_EVENT_PROCESS, 1, 1, UINT64_MAX, (2 * UINT64_C(86400) + 3723) * 1000000000);
	rig_alloc(&g, AT(0), 1000, CLV_NO_STACK);
	rig_link(&g);
	ck_assert_msg(clv_export_rmm(g.trace, g.h, scratch(), &err), "%s", err.text);
	char *text = (char *)take(&size);
	text[size] = '\0';
	ck_assert_str_eq(text,
			 "Thread,Time,Action,Pointer,Size,Stream\n0,01:02:04.000000,allocate,0x300000000,1000,0\n");
	free(text);
	clv_trace_free(g.trace);
}
END_TEST

/* A file that was cut anywhere is told from a whole one. */
START_TEST(cut_short)
{
	struct clv_trace *t = synthetic(1, 40), *b;
	size_t size;
	ck_assert_msg(clv_export_torch(t, scratch(), &err), "%s", err.text);
	uint8_t *data = take(&size);
	for (size_t n = 0; n < size; n++) {
		b = import(data, n);
		ck_assert_msg(!b && err.text[0], "%zu of %zu bytes are a snapshot", n, size);
	}
	free(data);
	ck_assert_msg(clv_export_rmm(t, t->histories, scratch(), &err), "%s", err.text);
	data = take(&size);
	for (size_t n = 0; n < size; n++) {
		b = import(data, n);
		ck_assert(b || err.text[0]);
		/* a log has no end; half of a line is told, but where what there is of it makes a line */
		ck_assert(!b || !b->history_count || b->histories[0].event_count <= t->histories[0].event_count);
		clv_trace_free(b);
	}
	free(data);
	clv_trace_free(t);
}
END_TEST

/* Host memory that runs out at any point is an error, and leaves no file. */
START_TEST(no_memory)
{
	struct clv_trace *t = full();
	t->histories[0].has_state = _i >= 3 ? false : t->histories[0].has_state; /* one is made up */
	if (_i >= 4) {                                                           /* and has frames */
		struct clv_history *h = t->histories;
		h->notes = clv_mem_realloc(h->notes, h->note_count + 2, sizeof(*h->notes));
		for (uint64_t i = 1; i <= 2; i++)
			h->notes[h->note_count++] = (struct clv_note){.addr = AT(16 * i),
								      .size = 2 * CLV_MIB,
								      .a = i,
								      .event = h->event_count,
								      .stream = CLV_NO_STREAM,
								      .text = CLV_NO_TEXT,
								      .kind = CLV_EVENT_FRAME_CREATE};
	}
	for (uint64_t n = 1;; n++) {
		err.text[0] = '\0';
		clv_mem_fail_after(n);
		bool ok = _i % 4 == 1 ? clv_export_perfetto(t, scratch(), &err)
			  : _i == 2   ? clv_export_rmm(t, t->histories, scratch(), &err)
				      : clv_export_torch(t, scratch(), &err);
		clv_mem_fail_after(0);
		ck_assert_msg(ok == !err.text[0], "%llu: %s", (unsigned long long)n, err.text);
		ck_assert_int_eq(access(scratch(), F_OK) == 0, ok);
		ck_assert(ok || strstr(err.text, "out of host memory"));
		if (ok)
			break;
		ck_assert_uint_lt(n, 1000);
	}
	unlink(scratch());
	clv_trace_free(t);
}
END_TEST

/* What a history of any size may become is bounded. */
START_TEST(large_histories)
{
	struct clv_synth s = {.events = 700000, .live = 1000, .seed = 1};
	struct clv_trace *t = clv_synth_trace(&s, &err);
	ck_assert_msg(t != NULL, "%s", err.text);
	ck_assert_uint_gt(t->histories[0].block_count, 200000);
	ck_assert_msg(clv_export_perfetto(t, scratch(), &err), "%s", err.text);
	json_t *json = json_load_file(scratch(), 0, NULL), *e, *other;
	unlink(scratch());
	ck_assert_ptr_nonnull(json);
	other = json_object_get(json, "otherData");
	ck_assert_int_eq(json_integer_value(json_object_get(other, "blocks")), 100000);
	ck_assert_int_eq(json_integer_value(json_object_get(other, "blocks_left_out")),
			 t->histories[0].block_count - 100000);
	uint64_t peak = 0, samples = 0, written[2] = {0};
	size_t i;
	json_array_foreach(json_object_get(json, "traceEvents"), i, e)
	{
		const char *ph = json_string_value(json_object_get(e, "ph"));
		json_t *bytes = json_object_get(json_object_get(e, "args"), "bytes");
		written[0] += *ph == 'b';
		written[1] += *ph == 'e';
		if (*ph != 'C')
			continue;
		samples++;
		peak = clv_max_u64(peak, (uint64_t)json_integer_value(bytes));
	}
	ck_assert(written[0] == 100000 && written[1] == 100000);
	ck_assert_uint_le(samples, 100000 + 2);
	ck_assert_uint_eq(peak, t->histories[0].peak_live_bytes); /* no sample hides the peak */
	json_decref(json);
	clv_trace_free(t);
}
END_TEST

int main(void)
{
	TCase *tcase = check_main_case("export");
	tcase_add_test(tcase, pickle_values);
	tcase_add_loop_test(tcase, gauges, 0, 20);
	tcase_add_loop_test(tcase, made_up_states, 0, 6);
	tcase_add_loop_test(tcase, round_trips, 0, 12);
	tcase_add_test(tcase, everything);
	tcase_add_test(tcase, phases);
	tcase_add_test(tcase, many_phases);
	tcase_add_test(tcase, instants);
	tcase_add_test(tcase, observed);
	tcase_add_test(tcase, observed_in_turn);
	tcase_add_test(tcase, time_of_day);
	tcase_add_test(tcase, cut_short);
	tcase_add_loop_test(tcase, no_memory, 0, 6);
	tcase_add_test(tcase, large_histories);
	return check_main_end("export", tcase);
}
