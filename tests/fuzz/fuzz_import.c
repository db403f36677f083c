/* SPDX-License-Identifier: MIT
 *
 * Fuzzing of everything that reads trace files. With libFuzzer (-D fuzzer=true, clang) it is a target of the usual
 * kind:
 *
 *	build-fuzz/tests/fuzz/fuzz_import CORPUS_FOLDER tests/data
 *
 * Without it, a program that makes its own inputs: fuzz_import [SECONDS [SEED]]. The same seed makes the same inputs
 * in the same order; a failing one is written to fuzz_import.crash and its number printed.
 */
#include "../../tracing/export/export.h"
#include "../../tracing/format/clv.h"
#include "../../tracing/import/import.h"
#include "../../tracing/memory.h"
#include "../../tracing/record/record.h"
#include "../../tracing/report/report.h"
#include "../../tracing/report/state.h"
#include "../clv_maker.h"
#include "../export_same.h"
#include "../trace_check.h"

#include <jansson.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void demand(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "does not hold: %s\n", what);
	abort();
}

static const char *file_path(void)
{
	static char path[64];
	if (!path[0])
		snprintf(path, sizeof(path), "/tmp/fuzz_import.%ld.clv", (long)getpid());
	return path;
}

/* The content of the file, which is removed. */
static struct clv_bytes take_file(void)
{
	struct clv_bytes b = {0};
	FILE *f = fopen(file_path(), "rb");
	uint8_t buf[65536];
	demand(f != NULL, "the file is there");
	for (size_t n; (n = fread(buf, 1, sizeof(buf), f)) > 0;)
		cm_add(&b, buf, n);
	fclose(f);
	unlink(file_path());
	return b;
}

static struct clv_bytes written(const struct clv_trace *t)
{
	struct clv_error err = {{0}};
	bool ok = clv_trace_write(t, file_path(), &err);
	demand(ok, err.text);
	return take_file();
}

/* Whatever is in a trace, the books of the analysis balance, and there is a report. */
static void report(const struct clv_trace *t)
{
	struct clv_error err = {{0}};
	bool any = false;
	for (uint32_t i = 0; i < t->history_count; i++) {
		struct clv_state s;
		char why[256] = "";
		demand(clv_state_open(&s, t, &t->histories[i], &err), err.text);
		do
			demand(clv_plane_check(&s.plane, why, sizeof(why)), why);
		while (clv_state_step(&s));
		demand(!s.plane.broken, "no host memory was wanting");
		clv_state_close(&s);
		any |= t->histories[i].event_count != 0;
	}
	struct clv_report *r = clv_report_make(&t, 1, &(struct clv_report_options){.trial_events = 100000}, &err);
	demand((r != NULL) == (err.text[0] == '\0') && (r || !any), "a report or an error");
	clv_report_free(r);
}

static struct clv_trace *imported(struct clv_bytes file)
{
	struct clv_error err = {{0}};
	const struct clv_input in = {.name = "again", .data = file.data, .size = file.size};
	struct clv_trace *t = clv_import_memory(&in, &err);
	demand(t != NULL, err.text);
	free(file.data);
	return t;
}

/* What can be read can be written for others; what comes back is the same as far as they hold it. */
static void check_exports(const struct clv_trace *t)
{
	struct clv_error err = {{0}};
	bool ok = clv_export_torch(t, file_path(), &err);
	demand(ok, err.text);
	struct clv_trace *back = imported(take_file());
	const char *wrong = trace_wrong(back);
	demand(!wrong, wrong ? wrong : "");
	const char *difference = same_by_torch(t, back, false);
	demand(!difference, difference ? difference : "");
	clv_trace_free(back);

	ok = clv_export_perfetto(t, file_path(), &err);
	demand(ok, err.text);
	struct clv_bytes file = take_file();
	json_t *json = json_loadb((const char *)file.data, file.size, 0, NULL);
	demand(json != NULL, "valid JSON");
	json_decref(json);
	free(file.data);

	for (uint32_t i = 0; i < t->history_count; i++) {
		const struct clv_history *h = &t->histories[i];
		if (!clv_export_rmm(t, h, file_path(), &err)) {
			demand(strstr(err.text, "at address 0") != NULL, err.text);
			err.text[0] = '\0';
			continue;
		}
		back = imported(take_file());
		if (h->event_count + h->initial_count && back->history_count) {
			difference = same_by_rmm(t, h, back, &back->histories[0]);
			demand(!difference, difference ? difference : "");
		}
		clv_trace_free(back);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct clv_error err = {{0}};
	const struct clv_input in = {.name = "fuzz", .data = data, .size = size};
	struct clv_trace *t = clv_import_memory(&in, &err);
	demand((t != NULL) == (err.text[0] == '\0'), "a trace or an error");
	if (!t)
		return 0;
	const char *wrong = trace_wrong(t);
	demand(!wrong, wrong ? wrong : "");
	/* what can be read can be written, and is the same when it is read again */
	struct clv_trace *back = imported(written(t));
	const char *difference = trace_difference(t, back);
	demand(!difference, difference ? difference : "");
	clv_trace_free(back);
	report(t);
	check_exports(t);
	clv_trace_free(t);
	return 0;
}

#ifndef CLV_LIBFUZZER
#define PICKLE_JSON_DEMAND(holds, ...) demand(holds, #holds)
#include "../pickle_json.h"

#include <dirent.h>
#include <signal.h>
#include <time.h>

#define MAX_SEEDS 64
#define MAX_SEED_SIZE 40000

static struct clv_bytes seeds[MAX_SEEDS], current;
static size_t seed_count;
static uint64_t run_number, run_seed;

static void on_abort(int sig)
{
	FILE *f = fopen("fuzz_import.crash", "wb");
	if (f) {
		fwrite(current.data, 1, current.size, f);
		fclose(f);
	}
	fprintf(stderr, "signal %d at input %llu of seed %llu: see fuzz_import.crash\n", sig,
		(unsigned long long)run_number, (unsigned long long)run_seed);
	signal(sig, SIG_DFL);
	raise(sig);
}

static void add_seed(struct clv_bytes b)
{
	if (seed_count < MAX_SEEDS && b.size && b.size <= MAX_SEED_SIZE)
		seeds[seed_count++] = b;
	else
		free(b.data);
}

static void add_files(const char *folder)
{
	struct dirent **entries;
	int n = scandir(folder, &entries, NULL, alphasort); /* in a fixed order */
	for (int i = 0; i < n; i++) {
		char path[4096];
		struct clv_bytes b = {0};
		uint8_t buf[MAX_SEED_SIZE + 1];
		snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
		FILE *f = entries[i]->d_name[0] == '.' ? NULL : fopen(path, "rb");
		if (f) {
			cm_add(&b, buf, fread(buf, 1, sizeof(buf), f));
			fclose(f);
			add_seed(b);
		}
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
}

static void add_made(void)
{
	static const char *const snapshots[] = {
		"{'segments':[{'device':0,'address':2097152,'total_size':2097152,'stream':5,'segment_type':'small',"
		"'segment_pool_id':{'$tuple':[0,3]},'is_expandable':true,'frames':[],'blocks':["
		"{'address':2097152,'size':1024,'requested_size':1000,'state':'active_allocated','frames':["
		"{'name':'f','filename':'a.py','line':7}]},{'size':2096128,'state':'inactive'}]}],"
		"'device_traces':[[{'action':'segment_alloc','addr':2097152,'size':2097152,'stream':5,'time_us':10},"
		"{'action':'alloc','addr':2097152,'size':1000,'stream':5,'time_us':11,'frames':[{'name':'f','filename':'a.py',"
		"'line':7}]},{'action':'free_requested','addr':2097664,'size':9,'stream':0,'time_us':12},"
		"{'action':'oom','device_free':7,'size':512,'stream':0},{'action':'new','frames':{'$ref':'frames'}}],"
		"[{'action':'free_completed','addr':512,'size':9}]],'allocator_settings':{'PYTORCH_CUDA_ALLOC_CONF':'a:b',"
		"'max_split_size':'$int:18446744073709551615','garbage_collection_threshold':0.5,"
		"'roundup_power2_divisions':{'1':4}},'probe':{'cap_mib':1,'total':2}}",
		"[{'address':512,'total_size':512,'segment_pool_id':[1,0],'blocks':[{'size':512,'state':'active_pending_free'}]}]",
	};
	static const char log_text[] =
		"Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.000001,allocate,0x1000,1000,0x0\n"
		"2,2024-01-02 10:00:01,allocate,0x2000,8,7\n1,,allocate failure,(nil),77,0x0\n"
		"1,10:00:00.000002,free,0x1000,1000,0x0\n1,09:00:00,free,0x9000,1,0x0\n";
	for (size_t i = 0; i < CLV_ARRAY_LEN(snapshots); i++)
		for (enum pickle_style s = 0; s < PICKLE_STYLES; s++) {
			struct pickle_writer w = pickle_of(snapshots[i], s);
			const struct clv_input in = {.name = "seed", .data = w.data, .size = w.size};
			struct clv_error err = {{0}};
			struct clv_trace *t = clv_import_memory(&in, &err);
			demand(t != NULL, err.text);
			if (s == 0)
				add_seed(written(t));
			clv_trace_free(t);
			add_seed((struct clv_bytes){w.data, w.size});
		}
	struct clv_bytes b = {0};
	cm_add(&b, log_text, sizeof(log_text) - 1);
	add_seed(b);
}

/* What a recorder writes: several chunks, notes of every kind, stacks if they can be had, and with `lost` a history that misses
 * some frees. */
static struct clv_bytes recorded(bool lost)
{
	struct clv_error err = {{0}};
	const struct clv_record_config config = {
		.path = file_path(), .stack_every = 3, .stack_depth = 4, .settings = "trace:x", .flush_ms = 60000};
	demand(clv_record_open(&config, &err), err.text);
	for (uint64_t i = 0; i < 120; i++) {
		struct clv_record_event e = {.event = i < CLV_EVENT_COUNT ? (enum clv_event)i : CLV_EVENT_ALLOC,
					     .device = (int)(i % 4) - 1,
					     .stream = i % 5 ? i % 5 : UINT64_MAX,
					     .addr = 0x10000 + i % (lost ? 40 : 120) * 512,
					     .size = 700 - i,
					     .a = 1024,
					     .b = i,
					     .text = i % 3 ? NULL : "text"};
		if (e.event == CLV_EVENT_DROPPED && !lost)
			continue;
		clv_record_event(&e);
		if (i % 40 == 39)
			demand(clv_record_flush(60000), "what was recorded is in the file");
	}
	clv_record_close();
	return take_file();
}

/* Changes bytes: flips, small differences, interesting values, runs copied, removed or inserted, parts of other
 * inputs. */
static void mutate(struct clv_rng *rng, struct clv_bytes *b)
{
	static const uint8_t interesting[] = {0,   1,   0x7f, 0x80, 0xff, '.', '(',  ']', '}',
					      'u', 'e', 'h',  'q',  'N',  ',', '\n', 0x94};
	for (uint64_t n = clv_rng_range(rng, 1, 6); n-- > 0 && b->size;) {
		size_t at = clv_rng_below(rng, b->size), len = clv_rng_range(rng, 1, 1 + clv_rng_below(rng, 40));
		const struct clv_bytes *other = &seeds[clv_rng_below(rng, seed_count)];
		size_t from = clv_rng_below(rng, other->size);
		len = clv_min_u64(len, clv_min_u64(b->size - at, other->size - from));
		switch (clv_rng_below(rng, 8)) {
		case 0:
			b->data[at] ^= (uint8_t)(1 << clv_rng_below(rng, 8));
			break;
		case 1:
			b->data[at] = (uint8_t)clv_rng_next(rng);
			break;
		case 2:
			b->data[at] = (uint8_t)(b->data[at] + clv_rng_below(rng, 9) - 4);
			break;
		case 3:
			b->data[at] = interesting[clv_rng_below(rng, sizeof(interesting))];
			break;
		case 4: /* remove */
			memmove(b->data + at, b->data + at + len, b->size - at - len);
			b->size -= len;
			break;
		case 5: /* twice */
			len = clv_min_u64(len, seeds[0].size);
			cm_add(b, seeds[0].data, len); /* makes room */
			memmove(b->data + at + len, b->data + at, b->size - at - len);
			break;
		case 6: /* from another */
			memcpy(b->data + at, other->data + from, len);
			break;
		default: /* insert from another */
			cm_add(b, other->data + from, len);
			memmove(b->data + at + len, b->data + at, b->size - at - len);
			memcpy(b->data + at, other->data + from, len);
			break;
		}
	}
	if (clv_rng_below(rng, 20) == 0)
		b->size = clv_rng_below(rng, b->size + 1);
}

/* An input: mostly a changed seed; of a .clv file what the checksums cover is changed and the checksums made right. */
static void make_input(struct clv_rng *rng)
{
	const struct clv_bytes *seed = &seeds[clv_rng_below(rng, seed_count)];
	current.size = 0;
	if (seed->size > 4 && memcmp(seed->data, CLV_FILE_MAGIC, 4) == 0 && clv_rng_below(rng, 8)) {
		struct clv_bytes records = cm_records(seed->data, seed->size);
		mutate(rng, &records);
		cm_header(&current, CLV_FILE_VERSION);
		cm_chunk(&current, records.data, records.size);
		free(records.data);
		return;
	}
	cm_add(&current, seed->data, seed->size);
	mutate(rng, &current);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 20;
	run_seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	struct clv_rng rng = {.state = run_seed};
	const char *data = getenv("CLEAVE_TEST_DATA");
	add_made();
	add_seed(recorded(false));
	add_seed(recorded(true));
	if (data)
		add_files(data);
	signal(SIGABRT, on_abort);
	signal(SIGSEGV, on_abort);
	signal(SIGBUS, on_abort);
	signal(SIGFPE, on_abort);
	struct timespec start, now;
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (size_t i = 0; i < seed_count; i++) /* as they are: all of them can be read */
		LLVMFuzzerTestOneInput(seeds[i].data, seeds[i].size);
	do {
		for (int i = 0; i < 200; i++, run_number++) {
			make_input(&rng);
			/* a copy of exactly its size, so that a sanitizer sees each byte read beyond it */
			uint8_t *copy = malloc(current.size ? current.size : 1);
			memcpy(copy, current.data, current.size);
			/* now and then host memory runs out somewhere: an error, nothing else */
			if (run_number % 16 == 0) {
				struct clv_error err = {{0}};
				const struct clv_input in = {.name = "fuzz", .data = copy, .size = current.size};
				clv_mem_fail_after(clv_rng_range(&rng, 1, 60));
				struct clv_trace *t = clv_import_memory(&in, &err);
				clv_mem_fail_after(0);
				demand((t != NULL) == (err.text[0] == '\0'), "a trace or an error");
				clv_trace_free(t);
			}
			LLVMFuzzerTestOneInput(copy, current.size);
			free(copy);
		}
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) / 1e9 < seconds);
	printf("%llu inputs from %zu seeds, seed %llu: nothing wrong\n", (unsigned long long)run_number, seed_count,
	       (unsigned long long)run_seed);
	for (size_t i = 0; i < seed_count; i++)
		free(seeds[i].data);
	free(current.data);
	return 0;
}
#endif
