/* SPDX-License-Identifier: MIT
 *
 * A history of ten million events, in each format that is read, is imported, replayed and exported in less than 1 GiB.
 * It is made up in a process of its own, so that this one, from which the command is started, stays small.
 */
#include "cli_run.h"

#include "../tracing/export/export.h"
#include "../tracing/format/clv.h"
#include "../tracing/synth.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define EVENTS 10000000u
#define MEMORY (CLV_GIB)
#define DISK_NEEDED (2 * CLV_GIB)

/* ---- writers ---- */

static bool write_clv(const struct clv_trace *t, const char *path)
{
	struct clv_error err = {{0}};
	bool ok = clv_trace_write(t, path, &err);
	if (!ok)
		fprintf(stderr, "%s\n", err.text);
	return ok;
}

static bool write_rmm(const struct clv_trace *t, const char *path)
{
	struct clv_error err = {{0}};
	bool ok = clv_export_rmm(t, t->histories, path, &err);
	if (!ok)
		fprintf(stderr, "%s\n", err.text);
	return ok;
}

/* A snapshot as Python's pickler writes it in protocol 4: each text once and then by its number in the memo, into which
 * every dict and list goes as well. */
struct pickler {
	FILE *f;
	uint32_t memo;
};

static uint32_t memoize(struct pickler *p)
{
	fputc('\x94', p->f);
	return p->memo++;
}

static void put_text(struct pickler *p, const char *text, uint32_t *known)
{
	if (*known == UINT32_MAX) {
		fputc('\x8c', p->f); /* SHORT_BINUNICODE */
		fputc((int)strlen(text), p->f);
		fputs(text, p->f);
		*known = memoize(p);
	} else {
		fputc('h', p->f); /* BINGET; the first texts have small numbers */
		fputc((int)*known, p->f);
	}
}

static void put_int(struct pickler *p, uint64_t v)
{
	unsigned bytes = v <= UINT8_MAX ? 1 : v <= UINT16_MAX ? 2 : v <= INT32_MAX ? 4 : 8;
	fputs(bytes == 1 ? "K" : bytes == 2 ? "M" : bytes == 4 ? "J" : "\x8a\x08", p->f);
	for (unsigned i = 0; i < bytes; i++)
		fputc((int)(v >> (8 * i) & 255), p->f);
}

static bool write_pickle(const struct clv_trace *t, const char *path)
{
	static const char *const keys[] = {"action", "addr", "size", "stream", "time_us", "frames"};
	uint32_t known[CLV_ARRAY_LEN(keys)], known_actions[CLV_ACTION_COUNT], once = UINT32_MAX;
	const struct clv_history *h = t->histories;
	struct pickler p = {.f = fopen(path, "wb")};
	if (!p.f)
		return false;
	memset(known, 255, sizeof(known));
	memset(known_actions, 255, sizeof(known_actions));
	fputs("\x80\x04}", p.f);
	memoize(&p);
	fputc('(', p.f);
	put_text(&p, "segments", &once);
	fputc(']', p.f);
	memoize(&p);
	once = UINT32_MAX;
	put_text(&p, "device_traces", &once);
	fputc(']', p.f);
	memoize(&p);
	fputc(']', p.f);
	memoize(&p);
	fputc('(', p.f);
	for (uint32_t i = 0; i < h->event_count; i++) {
		const struct clv_event_record *e = &h->events[i];
		const uint64_t values[] = {0, e->addr, e->size, t->streams[e->stream], e->time_us + 1700000000000000};
		fputc('}', p.f);
		memoize(&p);
		fputc('(', p.f);
		for (size_t k = 0; k < CLV_ARRAY_LEN(keys); k++) {
			put_text(&p, keys[k], &known[k]);
			if (k == 0) {
				put_text(&p, clv_action_name((enum clv_action)e->action), &known_actions[e->action]);
			} else if (k < CLV_ARRAY_LEN(values)) {
				put_int(&p, values[k]);
			} else {
				fputc(']', p.f);
				memoize(&p);
			}
		}
		fputc('u', p.f);
		if (i % 1000 == 999) /* the pickler's batches */
			fputs("e(", p.f);
	}
	fputs("eau.", p.f);
	return fclose(p.f) == 0;
}

/* ---- the test ---- */

static void make_file(const struct clv_synth *synth, bool (*write)(const struct clv_trace *, const char *),
		      const char *name)
{
	fflush(NULL);
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		struct clv_error err = {{0}};
		struct clv_trace *t = clv_synth_trace(synth, &err);
		_exit(t && write(t, cli_path(name)) ? 0 : 1);
	}
	int status;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s cannot be made", name);
}

static void assert_replays(const char *name, const char *policy)
{
	struct cli_result r = cli_run("replay", name, "--policy", policy, "--json", NULL);
	ck_assert_msg(r.status == 0, "%s: %s%s", name, r.out, r.err);
	json_t *document = json_loads(r.out, 0, NULL);
	ck_assert_ptr_nonnull(document);
	json_t *events = json_object_get(json_object_get(document, "trace"), "events");
	json_t *row = json_array_get(json_object_get(document, "policies"), 0);
	ck_assert_int_ge(json_integer_value(events), EVENTS);
	ck_assert(json_is_true(json_object_get(row, "completed")));
	fprintf(stderr, "%s, %s: %lld events, %.0f MiB, replayed at %.2f M events/s\n", name, policy,
		(long long)json_integer_value(events), (double)r.max_rss_bytes / (double)CLV_MIB,
		json_real_value(json_object_get(row, "events_per_s")) * 1e-6);
	json_decref(document);
	ck_assert_uint_gt(r.max_rss_bytes, EVENTS * (uint64_t)8); /* it was measured: no event takes less */
	ck_assert_uint_lt(r.max_rss_bytes, MEMORY);
}

static bool enough_disk(void)
{
	struct statvfs v;
	if (statvfs(cli_path(""), &v) == 0 && (uint64_t)v.f_bavail * v.f_frsize >= DISK_NEEDED)
		return true;
	fprintf(stderr, "skipped: less than 2 GiB free in the temporary folder\n");
	return false;
}

static void check(const struct clv_synth *synth, bool (*write)(const struct clv_trace *, const char *),
		  const char *name)
{
	if (!enough_disk())
		return;
	make_file(synth, write, name);
	assert_replays(name, "cleave");
	assert_replays(name, "torch");
}

START_TEST(clv_file)
{
	const struct clv_synth synth = {.events = EVENTS, .streams = 3, .seed = 1};
	check(&synth, write_clv, "large.clv");
}
END_TEST

/* Of three events of the history two are logged; and hardly an address comes twice. */
START_TEST(rmm_log)
{
	const struct clv_synth synth = {
		.events = EVENTS + EVENTS / 2 + 10000, .streams = 3, .addresses = EVENTS / 2, .seed = 2};
	check(&synth, write_rmm, "large.csv");
}
END_TEST

START_TEST(torch_snapshot)
{
	const struct clv_synth synth = {.events = EVENTS, .live = 20000, .streams = 3, .seed = 3};
	check(&synth, write_pickle, "large.pkl");
}
END_TEST

/* Into each format of other programs, and what comes of it replays. */
START_TEST(exports)
{
	static const struct {
		const char *format, *name;
	} files[] = {{"torch", "large.pkl"}, {"rmm", "large.csv"}, {"perfetto", "large.json"}};
	const struct clv_synth synth = {
		.events = EVENTS, .live = 20000, .streams = 3, .addresses = EVENTS / 4, .seed = 4};
	if (!enough_disk())
		return;
	make_file(&synth, write_clv, "large.clv");
	for (size_t i = 0; i < CLV_ARRAY_LEN(files); i++) {
		struct cli_result r =
			cli_run("convert", "large.clv", "--to", files[i].format, "-o", files[i].name, NULL);
		ck_assert_msg(r.status == 0, "%s", r.err);
		fprintf(stderr, "%s: written with %.0f MiB\n", files[i].name,
			(double)r.max_rss_bytes / (double)CLV_MIB);
		ck_assert_uint_lt(r.max_rss_bytes, MEMORY);
	}
	assert_replays("large.pkl", "direct");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {clv_file, rmm_log, torch_snapshot, exports};
	return cli_suite("large", tests, CLV_ARRAY_LEN(tests));
}
