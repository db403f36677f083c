/* SPDX-License-Identifier: MIT */
#include "../tracing/export/export.h"
#include "../tracing/export/gauges.h"
#include "../tracing/export/pickle_write.h"
#include "../tracing/export/torch_state.h"
#include "../tracing/import/pickle.h"
#include "../tracing/memory.h"
#include "../tracing/synth.h"
#include "export_same.h"
#include "pickle_json.h"
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
	t->histories[0].has_state = _i == 3 ? false : t->histories[0].has_state; /* one is made up */
	for (uint64_t n = 1;; n++) {
		err.text[0] = '\0';
		clv_mem_fail_after(n);
		bool ok = _i == 1   ? clv_export_perfetto(t, scratch(), &err)
			  : _i == 2 ? clv_export_rmm(t, t->histories, scratch(), &err)
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
	Suite *suite = suite_create("export");
	TCase *tcase = tcase_create("export");
	tcase_set_timeout(tcase, 0); /* meson times tests out */
	tcase_add_test(tcase, pickle_values);
	tcase_add_loop_test(tcase, gauges, 0, 20);
	tcase_add_loop_test(tcase, made_up_states, 0, 6);
	tcase_add_loop_test(tcase, round_trips, 0, 12);
	tcase_add_test(tcase, everything);
	tcase_add_test(tcase, cut_short);
	tcase_add_loop_test(tcase, no_memory, 0, 4);
	tcase_add_test(tcase, large_histories);
	suite_add_tcase(suite, tcase);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
