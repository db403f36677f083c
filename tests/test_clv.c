/* SPDX-License-Identifier: MIT
 *
 * The .clv format: everything of a trace comes back; files that were cut are read as far as they go; damage is told;
 * what a later version adds is skipped.
 */
#include "../tracing/format/clv.h"
#include "../tracing/import/import.h"
#include "../tracing/memory.h"
#include "check_main.h"
#include "clv_maker.h"
#include "torch_totals.h"
#include "trace_check.h"
#include "trace_maker.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static struct clv_error err;
static char folder[64], path[256];

static void make_folder(void)
{
	strcpy(folder, "/tmp/cleave-clv-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/t.clv", folder);
	err.text[0] = '\0';
}

static void remove_folder(void)
{
	DIR *d = opendir(folder);
	ck_assert_ptr_nonnull(d);
	for (struct dirent *e; (e = readdir(d));) {
		char name[512];
		snprintf(name, sizeof(name), "%s/%s", folder, e->d_name);
		if (e->d_name[0] != '.')
			remove(name);
	}
	closedir(d);
	ck_assert_int_eq(rmdir(folder), 0); /* so hidden leftovers would be noticed, too */
}

static size_t files_in_folder(void)
{
	size_t n = 0;
	DIR *d = opendir(folder);
	for (struct dirent *e; (e = readdir(d));)
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	closedir(d);
	return n;
}

static struct clv_bytes slurp(const char *name)
{
	struct clv_bytes b = {0};
	FILE *f = fopen(name, "rb");
	ck_assert_msg(f != NULL, "%s", name);
	uint8_t buf[65536];
	for (size_t n; (n = fread(buf, 1, sizeof(buf), f)) > 0;)
		cm_add(&b, buf, n);
	fclose(f);
	return b;
}

static struct clv_trace *read_bytes(const void *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);
	memcpy(copy, data, size);
	const struct clv_input in = {.name = "t", .data = copy, .size = size};
	err.text[0] = '\0';
	struct clv_trace *t = clv_import_memory(&in, &err);
	free(copy);
	ck_assert_msg((t != NULL) == (err.text[0] == '\0'), "%s", err.text);
	const char *wrong = t ? trace_wrong(t) : NULL;
	ck_assert_msg(!wrong, "%s", wrong);
	return t;
}

static void refused(const struct clv_bytes *file, const char *part)
{
	ck_assert_msg(read_bytes(file->data, file->size) == NULL, "accepted; should say %s", part);
	ck_assert_msg(strstr(err.text, part) != NULL, "%s, not %s", err.text, part);
	ck_assert_msg(strncmp(err.text, "t: offset ", 10) == 0, "%s", err.text);
}

static struct clv_bytes write_trace(const struct clv_trace *t)
{
	ck_assert_msg(clv_trace_write(t, path, &err), "%s", err.text);
	return slurp(path);
}

static void round_trip(const struct clv_trace *t)
{
	struct clv_bytes file = write_trace(t);
	struct clv_trace *back = read_bytes(file.data, file.size);
	ck_assert_msg(back != NULL, "%s", err.text);
	const char *difference = trace_difference(t, back);
	ck_assert_msg(!difference, "%s", difference);
	ck_assert_ptr_null(back->note);
	ck_assert_int_eq(back->format, CLV_FORMAT_CLV);
	/* and written again it is the same file */
	ck_assert_msg(clv_trace_write(back, path, &err), "%s", err.text);
	struct clv_bytes again = slurp(path);
	ck_assert_uint_eq(file.size, again.size);
	ck_assert_mem_eq(file.data, again.data, file.size);
	free(file.data);
	free(again.data);
	clv_trace_free(back);
}

START_TEST(round_trips)
{
	make_folder();
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct clv_trace *t = random_trace(seed, (uint32_t)seed * 50);
		round_trip(t);
		clv_trace_free(t);
	}
	struct clv_trace *t = random_trace(3, 400000); /* several records and chunks */
	round_trip(t);
	clv_trace_free(t);
	t = random_trace(1, 0);
	round_trip(t);
	clv_trace_free(t);
	remove_folder();
}
END_TEST

START_TEST(empty_trace)
{
	make_folder();
	struct clv_trace *t = clv_mem_zalloc(1, sizeof(*t));
	t->file = clv_mem_strndup("e", 1);
	t->torch.conf = clv_mem_strndup("", 0);
	t->torch.max_split_size = -1;
	t->stacks = clv_mem_zalloc(1, sizeof(*t->stacks));
	t->stack_count = 1;
	round_trip(t);
	clv_trace_free(t);
	remove_folder();
}
END_TEST

START_TEST(bundled_recordings)
{
	const char *data = getenv("CLEAVE_TEST_DATA");
	size_t found = 0;
	ck_assert_ptr_nonnull(data);
	make_folder();
	for (size_t i = 0; i < CLV_ARRAY_LEN(torch_totals); i++) {
		char name[4096], flat[64];
		snprintf(flat, sizeof(flat), "%s", torch_totals[i].name);
		for (char *c = flat; *c; c++)
			if (*c == '/')
				*c = '_';
		snprintf(name, sizeof(name), "%s/%s.clv", data, flat);
		if (access(name, R_OK) != 0)
			continue;
		found++;
		struct stat st;
		ck_assert_int_eq(stat(name, &st), 0);
		ck_assert_msg(st.st_size < 200000, "%s has %lld bytes", name, (long long)st.st_size);
		struct clv_trace *t = clv_trace_import(name, &err);
		ck_assert_msg(t != NULL, "%s", err.text);
		const char *wrong = trace_wrong(t);
		ck_assert_msg(!wrong, "%s: %s", name, wrong);
		ck_assert_uint_eq(t->histories[0].events[0].time_us, 0);
		torch_assert_totals(t, &torch_totals[i], false);
		round_trip(t);
		clv_trace_free(t);
	}
	ck_assert_uint_eq(found, 12);
	remove_folder();
}
END_TEST

/* Cut at any byte, a file gives what its whole chunks hold, and says that something is missing. */
START_TEST(cut_anywhere)
{
	make_folder();
	struct clv_trace *t = random_trace(6, 300);
	struct clv_bytes whole = write_trace(t), file = cm_rechunk(whole.data, whole.size);
	size_t first_chunk = CLV_FILE_HEADER + CLV_CHUNK_HEADER + clv_get_le(file.data + CLV_FILE_HEADER + 4, 4);
	uint32_t events = 0, states = 0;
	for (size_t n = 1; n < file.size; n++) {
		struct clv_trace *part = read_bytes(file.data, n);
		if (n < first_chunk) {
			ck_assert_ptr_null(part);
			ck_assert_msg(strstr(err.text, "cut short") || n < 4, "%zu: %s", n, err.text);
			continue;
		}
		ck_assert_msg(part != NULL, "%zu of %zu bytes: %s", n, file.size, err.text);
		ck_assert_msg(part->note && strstr(part->note, "cut short"), "%zu of %zu bytes", n, file.size);
		for (uint32_t i = 0; i < part->history_count; i++) {
			const struct clv_history *h = &part->histories[i], *full = &t->histories[i];
			ck_assert_int_eq(h->device, full->device);
			for (uint32_t e = 0; e < h->event_count; e++)
				ck_assert(h->events[e].addr == full->events[e].addr &&
					  h->events[e].size == full->events[e].size);
			events += h->event_count == full->event_count;
			if (h->has_state) {
				states++;
				ck_assert_uint_eq(h->segment_count, full->segment_count);
				ck_assert_uint_eq(h->block_record_count, full->block_record_count);
			}
		}
		clv_trace_free(part);
	}
	ck_assert_uint_gt(events, 0);
	ck_assert_uint_gt(states, 0);
	struct clv_trace *back = read_bytes(file.data, file.size);
	ck_assert(back && !back->note && !trace_difference(t, back));
	clv_trace_free(back);
	/* of the file as it was written, in one chunk, nothing can be read when it is cut */
	for (size_t n = 1; n < whole.size; n++)
		ck_assert_ptr_null(read_bytes(whole.data, n));
	clv_trace_free(t);
	free(whole.data);
	free(file.data);
	remove_folder();
}
END_TEST

/* Every byte is covered by a checksum: no change goes unnoticed. */
START_TEST(any_change_is_noticed)
{
	make_folder();
	struct clv_trace *t = random_trace(7, 30);
	struct clv_bytes whole = write_trace(t), file = cm_rechunk(whole.data, whole.size);
	for (size_t at = 0; at < file.size; at++)
		for (int bit = 0; bit < 8; bit++) {
			file.data[at] ^= (uint8_t)(1 << bit);
			ck_assert_msg(read_bytes(file.data, file.size) == NULL, "byte %zu, bit %d", at, bit);
			ck_assert_msg(at < 4 || strstr(err.text, "offset"), "%s", err.text);
			file.data[at] ^= (uint8_t)(1 << bit);
		}
	cm_add(&file, "x", 1);
	refused(&file, "bytes after the end");
	clv_trace_free(t);
	free(whole.data);
	free(file.data);
	remove_folder();
}
END_TEST

/* Damage that the checksums cover up: an error or a valid trace, never more. */
START_TEST(damaged_records)
{
	make_folder();
	struct clv_rng rng = {.state = 11};
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct clv_trace *t = random_trace(seed, 60);
		struct clv_bytes whole = write_trace(t), records = cm_records(whole.data, whole.size);
		uint8_t *raw = malloc(records.size);
		for (int round = 0; round < 3000; round++) {
			struct clv_bytes file = {0};
			memcpy(raw, records.data, records.size);
			for (uint64_t n = clv_rng_range(&rng, 1, 3); n-- > 0;)
				raw[clv_rng_below(&rng, records.size)] = (uint8_t)clv_rng_next(&rng);
			cm_header(&file, CLV_FILE_VERSION);
			cm_chunk(&file, raw,
				 clv_rng_below(&rng, 10) ? records.size : clv_rng_below(&rng, records.size));
			clv_trace_free(read_bytes(file.data, file.size));
			free(file.data);
		}
		free(raw);
		free(records.data);
		free(whole.data);
		clv_trace_free(t);
	}
	remove_folder();
}
END_TEST

START_TEST(versions_and_additions)
{
	make_folder();
	struct clv_trace *t = random_trace(5, 100);
	struct clv_bytes whole = write_trace(t), records = cm_records(whole.data, whole.size), raw = {0}, file = {0};
	/* unknown records between the known ones, and unknown fields at the end of these */
	const uint8_t *at = records.data, *end = records.data + records.size;
	while (at < end) {
		uint64_t kind, len;
		struct clv_bytes record = {0}, unknown = {0};
		ck_assert(cm_get_number(&at, end, &kind) && cm_get_number(&at, end, &len));
		cm_add(&record, at, len);
		cm_field(&record, 15, "later", 5);
		cm_field(&record, 16, "", 0);
		cm_field(&record, 1000000, "much later", 10);
		at += len;
		cm_field(&unknown, 1, "what", 4);
		cm_record(&raw, 1000, &unknown);
		cm_record(&raw, kind, &record);
		free(record.data);
		free(unknown.data);
	}
	cm_header(&file, CLV_FILE_VERSION);
	cm_chunk(&file, raw.data, raw.size);
	struct clv_trace *back = read_bytes(file.data, file.size);
	ck_assert_msg(back != NULL, "%s", err.text);
	ck_assert_ptr_null(trace_difference(t, back));
	clv_trace_free(back);
	free(file.data);

	static const uint32_t versions[] = {0, 2, UINT32_MAX};
	for (size_t i = 0; i < CLV_ARRAY_LEN(versions); i++) {
		file = (struct clv_bytes){0};
		cm_header(&file, versions[i]);
		cm_chunk(&file, records.data, records.size);
		refused(&file, "reads up to version 1");
		free(file.data);
	}
	/* an action that this version does not know */
	file = (struct clv_bytes){0};
	struct clv_bytes record = {0}, events = {0};
	cm_field(&record, CLV_STREAMS_HANDLES, "\0", 1);
	cm_record(&events, CLV_REC_STREAMS, &record);
	record.size = 0;
	cm_field(&record, CLV_EVENTS_ACTIONS, "\x00\x63\xff", 3);
	cm_field(&record, CLV_EVENTS_TIMES, "\0\0\0", 3);
	cm_field(&record, CLV_EVENTS_ADDRESSES, "\0\0\0", 3);
	cm_field(&record, CLV_EVENTS_NEW_ADDRESSES, "\2\2\2", 3);
	cm_field(&record, CLV_EVENTS_SIZES, "\2\2\2", 3);
	cm_record(&events, CLV_REC_EVENTS, &record);
	cm_header(&file, CLV_FILE_VERSION);
	cm_chunk(&file, events.data, events.size);
	back = read_bytes(file.data, file.size);
	ck_assert_msg(back != NULL, "%s", err.text);
	ck_assert_ptr_nonnull(back->note); /* no END */
	ck_assert_uint_eq(back->histories[0].device, 0);
	ck_assert_uint_eq(back->histories[0].event_count, 3);
	ck_assert_uint_eq(back->histories[0].events[1].action, CLV_ACTION_OTHER);
	ck_assert_uint_eq(back->histories[0].events[2].action, CLV_ACTION_OTHER);
	ck_assert_uint_eq(back->histories[0].events[2].addr, 3);
	ck_assert_str_eq(back->torch.conf, "");
	clv_trace_free(back);
	free(file.data);
	free(record.data);
	free(events.data);
	free(records.data);
	free(raw.data);
	free(whole.data);
	clv_trace_free(t);
	remove_folder();
}
END_TEST

/* One record in one chunk, behind one stream and one string. */
static struct clv_bytes file_with(uint64_t kind, const struct clv_bytes *record)
{
	struct clv_bytes file = {0}, raw = {0}, r = {0};
	cm_field(&r, CLV_STREAMS_HANDLES, "\0", 1);
	cm_record(&raw, CLV_REC_STREAMS, &r);
	r.size = 0;
	cm_field(&r, CLV_STRINGS_LENGTHS, "\1", 1);
	cm_field(&r, CLV_STRINGS_TEXT, "s", 1);
	cm_record(&raw, CLV_REC_STRINGS, &r);
	r.size = 0;
	cm_field_number(&r, CLV_STATE_SEGMENTS, 1);
	cm_field_number(&r, CLV_STATE_BLOCKS, 1);
	cm_record(&raw, CLV_REC_STATE, &r);
	cm_record(&raw, kind, record);
	r.size = 0;
	cm_record(&raw, CLV_REC_END, &r);
	cm_header(&file, CLV_FILE_VERSION);
	cm_chunk(&file, raw.data, raw.size);
	free(raw.data);
	free(r.data);
	return file;
}

#define MAX10 "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"  /* 2^64 - 1 */
#define HALF10 "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01" /* 2^63 */

START_TEST(misleading_records)
{
	static const struct {
		uint64_t kind;
		struct {
			unsigned id;
			const char *data;
			size_t size;
		} fields[8];
		const char *part;
	} cases[] = {
#define F(id, literal) {id, literal, sizeof(literal) - 1}
		{CLV_REC_HISTORY, {F(CLV_ANY_DEVICE, "\x80\x80\x04")}, "device number"},
		{CLV_REC_HISTORY, {F(CLV_ANY_DEVICE, "\x80")}, "device number"},
		{CLV_REC_SETTINGS, {F(CLV_SETTINGS_GC, "\0\0\0\0\0\0\xf0\x7f")}, "settings"}, /* infinity */
		{CLV_REC_SETTINGS, {F(CLV_SETTINGS_ROUNDUP, "\1\2")}, "settings"},
		{CLV_REC_SETTINGS, {F(CLV_SETTINGS_PROBE, "\1\2")}, "settings"},
		{CLV_REC_SETTINGS, {F(CLV_SETTINGS_MAX_SPLIT, "\x80")}, "settings"},
		{CLV_REC_STREAMS, {F(CLV_STREAMS_HANDLES, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02")}, "streams"},
		{CLV_REC_STREAMS, {F(CLV_STREAMS_HANDLES, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")}, "streams"},
		{CLV_REC_STRINGS, {F(CLV_STRINGS_LENGTHS, "\x05"), F(CLV_STRINGS_TEXT, "four")}, "strings"},
		{CLV_REC_STRINGS, {F(CLV_STRINGS_LENGTHS, MAX10)}, "strings"},
		{CLV_REC_STACKS, {F(CLV_STACKS_COUNTS, "\1")}, "stacks"},
		{CLV_REC_STACKS,
		 {F(CLV_STACKS_COUNTS, "\1"), F(CLV_STACKS_FILES, "\1"), F(CLV_STACKS_FUNCTIONS, "\0")},
		 "stacks"},
		{CLV_REC_STACKS,
		 {F(CLV_STACKS_COUNTS, "\1"), F(CLV_STACKS_FILES, "\0"), F(CLV_STACKS_FUNCTIONS, "\1")},
		 "stacks"},
		{CLV_REC_STACKS, {F(CLV_STACKS_COUNTS, MAX10), F(CLV_STACKS_FILES, "\0")}, "stacks"},
		{CLV_REC_EVENTS, {F(CLV_EVENTS_ACTIONS, "\0")}, "addresses of events"},
		{CLV_REC_EVENTS, {F(CLV_EVENTS_ACTIONS, "\0"), F(CLV_EVENTS_ADDRESSES, "\1")}, "addresses of events"},
		{CLV_REC_EVENTS, {F(CLV_EVENTS_ACTIONS, "\0"), F(CLV_EVENTS_ADDRESSES, "\0")}, "addresses of events"},
		{CLV_REC_EVENTS,
		 {F(CLV_EVENTS_ACTIONS, "\0"), F(CLV_EVENTS_ADDRESSES, "\0"), F(CLV_EVENTS_NEW_ADDRESSES, "\0")},
		 "times of events"},
		{CLV_REC_EVENTS,
		 {F(CLV_EVENTS_ACTIONS, "\0"), F(CLV_EVENTS_ADDRESSES, "\0"), F(CLV_EVENTS_NEW_ADDRESSES, "\0"),
		  F(CLV_EVENTS_TIMES, "\0")},
		 "sizes of events"},
		{CLV_REC_EVENTS,
		 {F(CLV_EVENTS_ACTIONS, "\0"), F(CLV_EVENTS_ADDRESSES, "\0"), F(CLV_EVENTS_NEW_ADDRESSES, "\0"),
		  F(CLV_EVENTS_TIMES, "\0"), F(CLV_EVENTS_SIZES, "\1")},
		 "cannot be"}, /* a size of -1 */
		{CLV_REC_EVENTS,
		 {F(CLV_EVENTS_ACTIONS, "\0"), F(CLV_EVENTS_ADDRESSES, "\0"), F(CLV_EVENTS_NEW_ADDRESSES, "\1"),
		  F(CLV_EVENTS_TIMES, "\0"), F(CLV_EVENTS_SIZES, "\2")},
		 "cannot be"}, /* an address of -1 */
		{CLV_REC_EVENTS,
		 {F(CLV_EVENTS_ACTIONS, "\0"), F(CLV_EVENTS_ADDRESSES, "\0"), F(CLV_EVENTS_NEW_ADDRESSES, "\0"),
		  F(CLV_EVENTS_TIMES, "\0"), F(CLV_EVENTS_SIZES, "\2"), F(CLV_EVENTS_STREAMS, "\2")},
		 "cannot be"}, /* stream 1 of 1 */
		{CLV_REC_EVENTS,
		 {F(CLV_EVENTS_ACTIONS, "\0"), F(CLV_EVENTS_ADDRESSES, "\0"), F(CLV_EVENTS_NEW_ADDRESSES, "\0"),
		  F(CLV_EVENTS_TIMES, "\0"), F(CLV_EVENTS_SIZES, "\2"), F(CLV_EVENTS_STACKS, "\2")},
		 "cannot be"}, /* stack 1 of none */
		{CLV_REC_EVENTS,
		 {F(CLV_EVENTS_ACTIONS, "\0"), F(CLV_EVENTS_ADDRESSES, "\0"), F(CLV_EVENTS_NEW_ADDRESSES, "\0"),
		  F(CLV_EVENTS_TIMES, "\0"), F(CLV_EVENTS_SIZES, "\2"), F(CLV_EVENTS_FLAGS, "")},
		 "cannot be"},
		{CLV_REC_STATE, {F(CLV_STATE_SEGMENTS, MAX10)}, "state"},
		{CLV_REC_STATE, {F(CLV_STATE_POOLS, "\1\0")}, "pools"},
		{CLV_REC_STATE, {F(CLV_STATE_POOLS, "\0")}, "pools"},
		{CLV_REC_STATE, {F(CLV_STATE_SEGMENTS, "\1")}, "missing"},
		{CLV_REC_SEGMENTS, {F(CLV_SEGMENTS_GAPS, "\0")}, "segments"},
		{CLV_REC_SEGMENTS,
		 {F(CLV_SEGMENTS_GAPS, "\0"), F(CLV_SEGMENTS_SIZES, "\1"), F(CLV_SEGMENTS_BLOCKS, "\1")},
		 "missing"},
		{CLV_REC_SEGMENTS,
		 {F(CLV_SEGMENTS_GAPS, "\0\0"), F(CLV_SEGMENTS_SIZES, "\1\1"), F(CLV_SEGMENTS_BLOCKS, "\1\1")},
		 "segments"}, /* more than announced */
		{CLV_REC_SEGMENTS,
		 {F(CLV_SEGMENTS_GAPS, HALF10), F(CLV_SEGMENTS_SIZES, "\1"), F(CLV_SEGMENTS_BLOCKS, "\1")},
		 "cannot be"},
		{CLV_REC_SEGMENTS,
		 {F(CLV_SEGMENTS_GAPS, "\0"), F(CLV_SEGMENTS_SIZES, HALF10), F(CLV_SEGMENTS_BLOCKS, "\1")},
		 "cannot be"},
		{CLV_REC_SEGMENTS,
		 {F(CLV_SEGMENTS_GAPS, "\0"), F(CLV_SEGMENTS_SIZES, "\1"), F(CLV_SEGMENTS_BLOCKS, MAX10)},
		 "cannot be"},
		{CLV_REC_SEGMENTS,
		 {F(CLV_SEGMENTS_GAPS, "\0"), F(CLV_SEGMENTS_SIZES, "\1"), F(CLV_SEGMENTS_BLOCKS, "\1"),
		  F(CLV_SEGMENTS_POOLS, "\1")},
		 "cannot be"},
		{CLV_REC_SEGMENTS,
		 {F(CLV_SEGMENTS_GAPS, "\0"), F(CLV_SEGMENTS_SIZES, "\1"), F(CLV_SEGMENTS_BLOCKS, "\1"),
		  F(CLV_SEGMENTS_STREAMS, "\1")},
		 "cannot be"},
		{CLV_REC_SEGMENTS,
		 {F(CLV_SEGMENTS_GAPS, "\0"), F(CLV_SEGMENTS_SIZES, "\1"), F(CLV_SEGMENTS_BLOCKS, "\1"),
		  F(CLV_SEGMENTS_STACKS, "\1")},
		 "cannot be"},
		{CLV_REC_BLOCKS, {F(CLV_BLOCKS_SIZES, "\1\1")}, "blocks"}, /* more than announced */
		{CLV_REC_BLOCKS, {F(CLV_BLOCKS_SIZES, HALF10)}, "cannot be"},
		{CLV_REC_BLOCKS, {F(CLV_BLOCKS_SIZES, "\1"), F(CLV_BLOCKS_REQUESTED, "\4")}, "cannot be"},
		{CLV_REC_BLOCKS, {F(CLV_BLOCKS_SIZES, "\1"), F(CLV_BLOCKS_STATES, "\3")}, "cannot be"},
		{CLV_REC_BLOCKS,
		 {F(CLV_BLOCKS_SIZES, "\1"), F(CLV_BLOCKS_REQUESTED, "\1"), F(CLV_BLOCKS_STATES, "\1")},
		 "cannot be"}, /* in use, and more was requested than it has */
		{CLV_REC_BLOCKS, {F(CLV_BLOCKS_SIZES, "\1"), F(CLV_BLOCKS_STACKS, "\1")}, "cannot be"},
		{CLV_REC_BLOCKS, {F(CLV_BLOCKS_SIZES, "\1")}, "missing"},
#undef F
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		struct clv_bytes record = {0};
		for (size_t k = 0; k < CLV_ARRAY_LEN(cases[i].fields) && cases[i].fields[k].id; k++)
			cm_field(&record, cases[i].fields[k].id, cases[i].fields[k].data, cases[i].fields[k].size);
		struct clv_bytes file = file_with(cases[i].kind, &record);
		refused(&file, cases[i].part);
		free(file.data);
		free(record.data);
	}
}
END_TEST

START_TEST(misleading_chunks)
{
	struct clv_bytes file = {0};
	cm_header(&file, CLV_FILE_VERSION);
	cm_chunk_claiming(&file, "\x0a\0", 2, (64u << 20) + 1);
	refused(&file, "offset 24: damaged chunk: it would unpack to more than 64 MiB");
	file.size = CLV_FILE_HEADER;
	cm_chunk_claiming(&file, "\x0a\0", 2, 3);
	refused(&file, "cannot be unpacked");
	file.size = CLV_FILE_HEADER;
	cm_chunk_claiming(&file, "\x0a\0", 2, 1);
	refused(&file, "cannot be unpacked");
	file.size = CLV_FILE_HEADER;
	cm_chunk(&file, "\x0a\1", 2);
	refused(&file, "a record is longer than its chunk");
	file.size = CLV_FILE_HEADER;
	cm_chunk(&file, "\x0a\2\1\1", 4);
	refused(&file, "a field is longer than its record");
	file.size = CLV_FILE_HEADER;
	cm_chunk(&file, "\x0a\0", 2);
	memset(file.data + CLV_FILE_HEADER, 0, 4); /* no longer "CHNK" */
	refused(&file, "offset 24: damaged chunk: its header");
	/* damage in the second chunk has the second chunk's offset */
	file.size = CLV_FILE_HEADER;
	cm_chunk(&file, "\x05\0", 2);
	size_t second = file.size;
	cm_chunk(&file, "\x0a\0", 2);
	file.data[file.size - 1] ^= 1;
	char expected[80];
	snprintf(expected, sizeof(expected), "offset %zu: damaged chunk: its content does not match its checksum",
		 second);
	refused(&file, expected);
	file.data[file.size - 1] ^= 1;
	struct clv_trace *t = read_bytes(file.data, file.size);
	ck_assert_msg(t && !t->note, "%s", err.text);
	clv_trace_free(t);
	free(file.data);
}
END_TEST

/* As many devices as there can be, the last first, by turns. */
START_TEST(many_devices)
{
	enum { DEVICES = 65536 };
	struct clv_bytes file = {0};
	uint8_t *records = malloc(2 * DEVICES * 7 + 2), *to = records;
	cm_header(&file, CLV_FILE_VERSION);
	for (int turn = 0; turn < 2; turn++)
		for (uint32_t d = DEVICES; d-- > 0;) {
			const uint8_t record[] = {
				CLV_REC_HISTORY,   5, CLV_ANY_DEVICE, 3, (uint8_t)(d | 128), (uint8_t)(d >> 7 | 128),
				(uint8_t)(d >> 14)};
			memcpy(to, record, sizeof(record));
			to += sizeof(record);
		}
	memcpy(to, "\x0a\0", 2);
	cm_chunk(&file, records, (size_t)(to + 2 - records));
	free(records);
	const struct clv_input in = {.name = "t", .data = file.data, .size = file.size};
	struct clv_trace *t = clv_import_memory(&in, &err);
	ck_assert_msg(t != NULL, "%s", err.text);
	ck_assert_uint_eq(t->history_count, DEVICES);
	for (int d = 0; d < DEVICES; d++)
		ck_assert_int_eq(t->histories[d].device, d);
	clv_trace_free(t);
	free(file.data);
}
END_TEST

/* A history that contradicts itself is refused here, too. */
START_TEST(contradiction)
{
	struct clv_bytes record = {0};
	cm_field(&record, CLV_EVENTS_ACTIONS, "\0\0", 2);
	cm_field(&record, CLV_EVENTS_TIMES, "\0\0", 2);
	cm_field(&record, CLV_EVENTS_ADDRESSES, "\0\1", 2);
	cm_field(&record, CLV_EVENTS_NEW_ADDRESSES, "\2", 1);
	cm_field(&record, CLV_EVENTS_SIZES, "\2\0", 2);
	struct clv_bytes file = {0}, raw = {0}, r = {0};
	cm_field(&r, CLV_STREAMS_HANDLES, "\0", 1);
	cm_record(&raw, CLV_REC_STREAMS, &r);
	cm_record(&raw, CLV_REC_EVENTS, &record);
	cm_header(&file, CLV_FILE_VERSION);
	cm_chunk(&file, raw.data, raw.size);
	ck_assert_ptr_null(read_bytes(file.data, file.size));
	ck_assert_msg(strstr(err.text, "t: device 0, event 1: 0x1 is allocated") != NULL, "%s", err.text);
	free(file.data);
	free(raw.data);
	free(r.data);
	free(record.data);
}
END_TEST

START_TEST(files)
{
	make_folder();
	struct clv_trace *t = random_trace(2, 50);
	char name[256];
	/* where it cannot be written */
	snprintf(name, sizeof(name), "%s/no/such/folder.clv", folder);
	ck_assert(!clv_trace_write(t, name, &err));
	ck_assert_msg(strstr(err.text, "No such file") && strstr(err.text, name), "%s", err.text);
	err.text[0] = '\0';
	ck_assert(!clv_trace_write(t, folder, &err));
	ck_assert_msg(strstr(err.text, "not a regular file") != NULL, "%s", err.text);
	err.text[0] = '\0';
	ck_assert(!clv_trace_write(t, "/dev/null", &err));
	ck_assert_msg(strstr(err.text, "not a regular file") != NULL, "%s", err.text);
	err.text[0] = '\0';
	ck_assert_uint_eq(files_in_folder(), 0);
	/* what was there is replaced, also through a link */
	FILE *f = fopen(path, "w");
	fputs("old", f);
	fclose(f);
	snprintf(name, sizeof(name), "%s/link", folder);
	ck_assert_int_eq(symlink("t.clv", name), 0);
	ck_assert_msg(clv_trace_write(t, name, &err), "%s", err.text);
	struct stat st;
	ck_assert_int_eq(lstat(name, &st), 0);
	ck_assert(S_ISLNK(st.st_mode));
	ck_assert_uint_eq(files_in_folder(), 2);
	struct clv_trace *back = clv_trace_import(path, &err);
	ck_assert_msg(back && !trace_difference(t, back), "%s", err.text);
	clv_trace_free(back);
	/* a state that the format cannot hold is refused, and what was there stays */
	struct clv_history *h = &t->histories[1];
	h->blocks[0].addr++;
	ck_assert(!clv_trace_write(t, path, &err));
	ck_assert_msg(strstr(err.text, "device 7") != NULL, "%s", err.text);
	ck_assert_uint_eq(files_in_folder(), 2);
	err.text[0] = '\0';
	back = clv_trace_import(path, &err);
	ck_assert_msg(back != NULL, "%s", err.text);
	clv_trace_free(back);
	clv_trace_free(t);
	remove_folder();
}
END_TEST

START_TEST(full_disk)
{
	/* a limit on the size of files is as good as a full disk */
	const struct rlimit small = {4096, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
	make_folder();
	struct clv_trace *t = random_trace(2, 20000);
	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
	bool ok = clv_trace_write(t, path, &err);
	setrlimit(RLIMIT_FSIZE, &none);
	ck_assert(!ok);
	ck_assert_msg(strstr(err.text, "cannot be written: File too large") != NULL, "%s", err.text);
	ck_assert_uint_eq(files_in_folder(), 0);
	clv_trace_free(t);
	remove_folder();
}
END_TEST

START_TEST(out_of_memory)
{
	make_folder();
	struct clv_trace *t = random_trace(6, 200);
	uint64_t n = 1;
	for (;; n++) {
		clv_mem_fail_after(n);
		bool ok = clv_trace_write(t, path, &err);
		clv_mem_fail_after(0);
		if (ok)
			break;
		ck_assert_msg(strstr(err.text, "out of host memory") != NULL, "%s", err.text);
		err.text[0] = '\0';
		ck_assert_uint_eq(files_in_folder(), 0);
	}
	ck_assert_uint_gt(n, 8);
	struct clv_bytes file = slurp(path);
	for (n = 1;; n++) {
		clv_mem_fail_after(n);
		struct clv_trace *back = read_bytes(file.data, file.size);
		clv_mem_fail_after(0);
		if (back) {
			ck_assert_ptr_null(trace_difference(t, back));
			clv_trace_free(back);
			break;
		}
		ck_assert_str_eq(err.text, "t: out of host memory");
	}
	ck_assert_uint_gt(n, 20);
	free(file.data);
	clv_trace_free(t);
	remove_folder();
}
END_TEST

CHECK_MAIN("clv", round_trips, empty_trace, bundled_recordings, cut_anywhere, any_change_is_noticed, damaged_records,
	   versions_and_additions, misleading_records, misleading_chunks, many_devices, contradiction, files, full_disk,
	   out_of_memory)
