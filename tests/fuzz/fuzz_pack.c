/* SPDX-License-Identifier: MIT
 *
 * Fuzzing of tables of buffers, from bytes to a packing and back: a table is refused with its line, or packed validly and
 * written so that it can be read again. With libFuzzer (-D fuzzer=true, clang) it is a target of the usual kind.
 * Without it, a program that makes its own inputs: fuzz_pack [SECONDS [SEED]]. The same seed makes the same inputs in
 * the same order; a failing one is written to fuzz_pack.crash and its number printed.
 */
#include "../../src/cli/pack_csv.h"
#include "../../tracing/memory.h"
#include "../clv_maker.h"
#include "../pack_check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void demand(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "does not hold: %s\n", what);
	abort();
}

/* "fuzz:LINE: ...", with a line that there is. */
static void demand_line(const struct clv_error *err, const uint8_t *data, size_t size)
{
	unsigned long long line = 0, lines = 1;
	int rest = 0;
	for (size_t i = 0; i < size; i++)
		lines += data[i] == '\n';
	demand(sscanf(err->text, "fuzz:%llu: %n", &line, &rest) == 1 && rest && err->text[rest], err->text);
	demand(line >= 1 && line <= lines, err->text);
	for (const char *c = err->text; *c; c++)
		demand(*c >= ' ' && *c < 127, "only what can be printed is");
}

static struct clv_bytes written(const struct clv_pack_csv *t, const uint64_t *offsets)
{
	static char path[64];
	struct clv_bytes b = {0};
	struct clv_error err = {{0}};
	uint8_t buf[4096];
	if (!path[0])
		snprintf(path, sizeof(path), "/tmp/fuzz_pack.%ld.csv", (long)getpid());
	demand(clv_pack_csv_write(t, offsets, path, &err), err.text);
	FILE *f = fopen(path, "rb");
	demand(f != NULL, "the file is there");
	for (size_t n; (n = fread(buf, 1, sizeof(buf), f)) > 0;)
		cm_add(&b, buf, n);
	fclose(f);
	unlink(path);
	return b;
}

/* The table that was written says what was packed, with every offset. */
static void demand_same(const struct clv_pack_csv *t, const uint64_t *offsets, struct clv_bytes file)
{
	struct clv_pack_csv again;
	struct clv_error err = {{0}};
	const struct clv_input in = {.name = "again", .data = file.data, .size = file.size};
	demand(clv_pack_csv_read(&again, &in, &err), err.text);
	demand(again.count == t->count, "as many buffers");
	for (size_t i = 0; i < t->count; i++) {
		const cleave_pack_buffer *a = &t->buffers[i], *b = &again.buffers[i];
		demand(a->lower == b->lower && a->upper == b->upper && a->size == b->size &&
			       a->alignment == b->alignment && a->gap_count == b->gap_count &&
			       t->rows[i].line == again.rows[i].line,
		       "the same buffer");
		demand(b->offset == offsets[i], "the offset that was found");
	}
	struct clv_bytes twice = written(&again, offsets);
	demand(twice.size == file.size && memcmp(twice.data, file.data, file.size) == 0, "nothing to add any more");
	free(twice.data);
	clv_pack_csv_free(&again);
}

static uint64_t packed;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct clv_error err = {{0}};
	const struct clv_input in = {.name = "fuzz", .data = data, .size = size};
	struct clv_pack_csv t;
	if (!clv_pack_csv_read(&t, &in, &err)) {
		demand_line(&err, data, size);
		return 0;
	}
	demand(!err.text[0], "a table or an error");
	uint64_t *offsets = calloc(t.count + 1, sizeof(*offsets));
	const cleave_pack_settings settings = {.effort = 20000};
	cleave_pack_result r;
	char why[512] = "";
	int ret = cleave_pack(t.buffers, t.count, &settings, offsets, &r, why, sizeof(why));
	demand(ret == 0 || ret == -EINVAL, "packed or refused");
	if (ret) {
		demand(!clv_pack_csv_refuse(&t, why, &err), "refused");
		demand_line(&err, data, size);
	} else {
		const char *wrong = pack_wrong(t.buffers, t.count, 0, offsets, &r);
		demand(!wrong, wrong ? wrong : "");
		struct clv_bytes file = written(&t, offsets);
		demand_same(&t, offsets, file);
		free(file.data);
		packed++;
	}
	free(offsets);
	clv_pack_csv_free(&t);
	return 0;
}

#ifndef CLV_LIBFUZZER
#include <signal.h>
#include <time.h>

static const char *const seeds[] = {
	"id,lower,upper,size\na,0,3,4\nb,3,9,4\nc,0,9,6\nk,-5,-1,100\n",
	"id,lower,upper,size,offset\r\na,0,3,4,\r\nb,3,9,4,12\r\nc,0,9,6,\r\n",
	"\xef\xbb\xbfsize,\"x,y\",alignment,gaps,upper,id,lower\n4,\"x\"\"y\n\",512,1-2 4-5,9,\"q\",0\n7,,3,,5,r,4\n2,-,,-8--6,0,s,-9\n",
	"gaps,offset,id,lower,upper,size,alignment\n,0,a,0,10,4,\n3-4,,b,0,10,4,8\n,4,c,3,4,2,7\n,,d,9,9,5,1\n,,e,0,10,0,1\n",
	"id,lower,upper,size\n1,-9223372036854775808,9223372036854775807,4611686018427387903\n2,0,1,1\n",
};
/* What is put into tables: pieces that mean something. */
static const char *const tokens[] = {",",
				     "\n",
				     "\r\n",
				     "\"",
				     "\"\"",
				     "-",
				     "0",
				     "1",
				     "9",
				     "id",
				     "lower",
				     "upper",
				     "size",
				     "gaps",
				     " ",
				     "1-2",
				     "-5--3",
				     "9223372036854775807",
				     "\r",
				     "offset",
				     "a",
				     "\xef\xbb\xbf",
				     "alignment",
				     "18446744073709551615",
				     "4611686018427387904"};

static struct clv_bytes current;
static uint64_t run_number, run_seed;

static void on_abort(int sig)
{
	FILE *f = fopen("fuzz_pack.crash", "wb");
	if (f) {
		fwrite(current.data, 1, current.size, f);
		fclose(f);
	}
	fprintf(stderr, "signal %d at input %llu of seed %llu: see fuzz_pack.crash\n", sig,
		(unsigned long long)run_number, (unsigned long long)run_seed);
	signal(sig, SIG_DFL);
	raise(sig);
}

static void replace(struct clv_bytes *b, size_t at, size_t len, const void *with, size_t with_len)
{
	size_t rest = b->size - at - len;
	uint8_t *tail = malloc(rest + 1);
	demand(tail != NULL, "host memory");
	memcpy(tail, b->data + at + len, rest);
	b->size = at;
	cm_add(b, with, with_len);
	cm_add(b, tail, rest);
	free(tail);
}

/* Where the n-th field, roughly, begins and ends. */
static void some_field(struct clv_rng *rng, const struct clv_bytes *b, size_t *at, size_t *len)
{
	*at = clv_rng_below(rng, b->size);
	while (*at > 0 && b->data[*at - 1] != ',' && b->data[*at - 1] != '\n')
		--*at;
	for (*len = 0; *at + *len < b->size && b->data[*at + *len] != ',' && b->data[*at + *len] != '\n';)
		++*len;
}

static void mutate(struct clv_rng *rng, struct clv_bytes *b)
{
	for (uint64_t n = clv_rng_range(rng, 1, 4); n-- > 0 && b->size;) {
		size_t at = clv_rng_below(rng, b->size), len = clv_min_u64(b->size - at, clv_rng_range(rng, 1, 12));
		const char *token = tokens[clv_rng_below(rng, CLV_ARRAY_LEN(tokens))];
		char number[24];
		uint8_t byte = (uint8_t)clv_rng_next(rng), copy[16];
		switch (clv_rng_below(rng, 8)) {
		case 0:
			b->data[at] ^= (uint8_t)(1 << clv_rng_below(rng, 8));
			break;
		case 1:
			b->data[at] = byte;
			break;
		case 2:
			replace(b, at, len, NULL, 0);
			break;
		case 3:
			memcpy(copy, b->data + at, len);
			replace(b, clv_rng_below(rng, b->size), 0, copy, len);
			break;
		case 4:
			replace(b, at, 0, token, strlen(token));
			break;
		case 5:
			some_field(rng, b, &at, &len);
			replace(b, at, len, token, strlen(token));
			break;
		default: /* tables that stay tables */
			some_field(rng, b, &at, &len);
			snprintf(number, sizeof(number), "%d", (int)clv_rng_below(rng, 24) - 4);
			replace(b, at, len, number, strlen(number));
			break;
		}
	}
	if (clv_rng_below(rng, 40) == 0)
		b->size = clv_rng_below(rng, b->size + 1);
}

/* Host memory runs out somewhere: an error, nothing else. */
static void out_of_memory(struct clv_rng *rng, const uint8_t *data, size_t size)
{
	struct clv_error err = {{0}};
	struct clv_pack_csv t;
	const struct clv_input in = {.name = "fuzz", .data = data, .size = size};
	clv_mem_fail_after(clv_rng_range(rng, 1, 12));
	bool ok = clv_pack_csv_read(&t, &in, &err);
	clv_mem_fail_after(0);
	demand(ok == !err.text[0], "a table or an error");
	if (ok)
		clv_pack_csv_free(&t);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 20;
	run_seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	struct clv_rng rng = {.state = run_seed};
	signal(SIGABRT, on_abort);
	signal(SIGSEGV, on_abort);
	signal(SIGBUS, on_abort);
	signal(SIGFPE, on_abort);
	struct timespec start, now;
	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		for (int i = 0; i < 50; i++, run_number++) {
			const char *seed = seeds[clv_rng_below(&rng, CLV_ARRAY_LEN(seeds))];
			current.size = 0;
			cm_add(&current, seed, strlen(seed));
			mutate(&rng, &current);
			/* a copy of exactly its size, so that a sanitizer sees each byte read beyond it */
			uint8_t *copy = malloc(current.size ? current.size : 1);
			memcpy(copy, current.data, current.size);
			if (run_number % 8 == 0)
				out_of_memory(&rng, copy, current.size);
			LLVMFuzzerTestOneInput(copy, current.size);
			free(copy);
		}
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) / 1e9 < seconds);
	printf("%llu inputs, %llu of them packed, seed %llu: nothing wrong\n", (unsigned long long)run_number,
	       (unsigned long long)packed, (unsigned long long)run_seed);
	free(current.data);
	return 0;
}
#endif
