/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* posix_openpt */
#include "../src/cli/replay_text.h"
#include "check_main.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct clv_trace trace = {.file = (char *)"a.pkl", .format = CLV_FORMAT_TORCH, .history_count = 1};
static struct clv_history history;

static struct clv_replay_row row(const char *policy)
{
	struct clv_replay_row r = {.policy = policy, .result = {.completed = true, .wall_s = 0.5, .events = 1000000}};
	r.result.stats.peak_reserved_bytes = 1536 * CLV_MIB;
	r.result.stats.driver.calls[CLV_CALL_create] = 11;
	r.result.stats.driver.calls[CLV_CALL_map] = 12;
	r.result.stats.driver.ns = 1500000;
	return r;
}

/* Not inlined: gcc 12 takes what open_memstream allocates for a local variable then. */
static __attribute__((noinline)) char *written(const struct clv_replay_row *rows, size_t count,
					       const struct clv_verify_result *verify, uint64_t capacity)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	const struct clv_replay_report report = {
		.trace = &trace, .history = &history, .rows = rows, .row_count = count, .verify = verify};
	clv_replay_text_write(&report, capacity, f);
	fclose(f);
	return text;
}

static void setup(void)
{
	history = (struct clv_history){.device = 1,
				       .event_count = 2000,
				       .alloc_count = 1,
				       .stream_count = 2,
				       .duration_s = 0.25,
				       .peak_live_bytes = 1024 * CLV_MIB};
}

START_TEST(the_whole_table)
{
	setup();
	struct clv_replay_row rows[2] = {row("cleave"), row("torch:recorded")};
	rows[1].result.stats.driver.ns = 12345000000;
	rows[1].result.stats.oom_retries = 1234;
	char *text = written(rows, 2, NULL, 0);
	ck_assert_str_eq(
		text,
		"a.pkl (torch), device 1: 2000 events, 1 allocation on 2 streams, 0.25 s, peak live 1.00 GiB\n\n"
		"policy          completes  peak reserved  / live  stranded  retries  waits  driver calls  driver time  events/s\n"
		"cleave                yes       1.50 GiB   1.500       0 B        0      0            23       1.5 ms    2.00 M\n"
		"torch:recorded        yes       1.50 GiB   1.500       0 B     1234      0            23      12.35 s    2.00 M\n");
	free(text);
}
END_TEST

START_TEST(sentences)
{
	setup();
	trace.history_count = 3;
	history.oom_count = 2;
	history.unmatched_frees = 1;
	struct clv_replay_row rows[3] = {row("direct"), row("cleave"), row("torch")};
	rows[0].result.completed = false;
	rows[0].result.failed_at_event = 17;
	snprintf(rows[0].result.failure, sizeof(rows[0].result.failure), "it was full");
	rows[0].result.skipped_ooms = 1;
	for (int i = 0; i < 3; i++)
		rows[i].fitted = true;
	rows[1].fit = (struct clv_fit_result){.found = true, .fit_bytes = 1030 * CLV_MIB, .monotone = true};
	rows[2].fit = (struct clv_fit_result){.found = true, .fit_bytes = 1100 * CLV_MIB};
	char *text = written(rows, 3, NULL, 20 * CLV_MIB);
	static const char *const parts[] = {
		"device 1 of 3:",
		"2 requests failed when this was recorded.\n",
		"1 free of blocks that the file does not explain: skipped.\n",
		"The device gives 20.0 MiB.\n",
		"direct does not complete: event 17: it was full\n",
		"direct skipped 1 request that failed when recorded, since nothing ever frees it.",
		"direct has no fit: it does not complete even without limit.\n",
		"torch completes with 1.07 GiB but fails with a little more.\n",
		" 1.01 GiB   1.006\n",
		" none       -\n",
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(parts); i++)
		ck_assert_msg(strstr(text, parts[i]) != NULL, "'%s' is not in: %s", parts[i], text);
	ck_assert_ptr_null(strstr(text, "cleave completes"));
	ck_assert_ptr_null(strstr(text, "cleave has"));
	free(text);
	trace.history_count = 1;
}
END_TEST

START_TEST(proofs)
{
	setup();
	struct clv_replay_row rows[2] = {row("packed"), row("cleave")};
	struct clv_policy_stats *s = &rows[0].result.stats;
	s->searched = true;
	s->least_bytes = 1500 * CLV_MIB;
	char *text = written(rows, 2, NULL, 0);
	ck_assert_ptr_nonnull(
		strstr(text, " M\n\npacked is not proved: there may be a lower packing, but none below 1.46 GiB.\n"));
	ck_assert_ptr_null(strstr(text, "cleave is"));
	free(text);
	s->proved = true;
	text = written(rows, 1, NULL, 0);
	ck_assert_ptr_nonnull(strstr(text, " M\n\npacked is proved: there is no packing below 1.46 GiB.\n"));
	free(text);
}
END_TEST

START_TEST(nothing_live)
{
	setup();
	history.peak_live_bytes = 0;
	struct clv_replay_row r = row("cleave");
	r.result.wall_s = 0;
	r.fitted = true;
	r.fit = (struct clv_fit_result){.found = true, .fit_bytes = 2 * CLV_MIB, .monotone = true};
	char *text = written(&r, 1, NULL, 0);
	ck_assert_ptr_null(strstr(text, "nan"));
	ck_assert_ptr_null(strstr(text, "inf"));
	ck_assert_ptr_nonnull(strstr(text, "2.0 MiB       -\n"));
	free(text);
}
END_TEST

START_TEST(long_names_are_cut_and_nothing_breaks)
{
	setup();
	char name[4000];
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	struct clv_replay_row rows[2] = {row(name), row("cleave")};
	char *text = written(rows, 2, NULL, 0);
	const char *head = strstr(text, "policy");
	size_t len = strcspn(head, "\n");
	ck_assert_uint_lt(len, 300);
	ck_assert_uint_eq(strcspn(head + len + 1, "\n"), len);
	ck_assert_uint_eq(strcspn(head + 2 * (len + 1), "\n"), len);
	free(text);
}
END_TEST

START_TEST(verifications)
{
	setup();
	struct clv_replay_row r = row("cleave");
	struct clv_verify_result v = {.allocs = 10, .segment_events = 20, .final_state_matches = true};
	char *text = written(&r, 1, &v, 0);
	ck_assert_ptr_nonnull(strstr(text,
				     "\nVerified: the model of PyTorch's allocator gives all 10 recorded addresses "
				     "and all 20 segment events.\n"));
	free(text);
	v.inferred[CLV_INFERRED_EMPTY_CACHE] = 2;
	v.inferred[CLV_INFERRED_POOL_ON_OOM] = 1;
	v.exact_from_event = 50;
	text = written(&r, 1, &v, 0);
	ck_assert_ptr_nonnull(strstr(text,
				     "segment events; not in the file and inferred: 2 empty_cache, 1 pool_on_oom; "
				     "exact from event 50.\n"));
	free(text);
	v = (struct clv_verify_result){.allocs = 10, .segment_events = 20, .ooms = 3, .oom_mismatches = 1};
	v.address_mismatches = 4;
	v.segment_mismatches = 5;
	v.first_mismatch.set = true;
	v.first_mismatch.event = 7;
	snprintf(v.first_mismatch.text, sizeof(v.first_mismatch.text), "wrong");
	text = written(&r, 1, &v, 0);
	ck_assert_ptr_nonnull(strstr(text,
				     "\nNot verified: 4 of 10 addresses and 5 of 20 segment events differ, 1 of 3 ooms "
				     "differ, the blocks at the end differ; first at event 7: wrong.\n"));
	free(text);
}
END_TEST

START_TEST(the_meter)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	struct clv_replay_meter meter = {.out = f};
	struct clv_replay_progress p = {.policy = "cleave", .done = 1, .total = 4};
	clv_replay_meter_show(&meter, &p);
	ck_assert_str_eq(text, "\r\033[Kcleave: 25 %");
	size_t before = len;
	clv_replay_meter_show(&meter, &p); /* too soon */
	fflush(f);
	ck_assert_uint_eq(len, before);
	p = (struct clv_replay_progress){.policy = "torch", .capacity = 6 * CLV_MIB, .run = 3};
	meter.shown_ms = 0;
	clv_replay_meter_show(&meter, &p);
	ck_assert_str_eq(text + before, "\r\033[Ktorch: fit, run 3 with 6.0 MiB, 0 %");
	before = len;
	p.capacity = 0;
	meter.shown_ms = 0;
	clv_replay_meter_show(&meter, &p);
	ck_assert_str_eq(text + before, "\r\033[Ktorch: fit, run 3 with no limit, 0 %");
	before = len;
	clv_replay_meter_clear(&meter);
	ck_assert_str_eq(text + before, "\r\033[K");
	before = len;
	clv_replay_meter_clear(&meter);
	fflush(f);
	ck_assert_uint_eq(len, before);
	clv_replay_meter_say(&meter, "reading", "a.pkl");
	ck_assert_str_eq(text + before, "\r\033[Kreading a.pkl");
	fclose(f);
	free(text);
}
END_TEST

START_TEST(the_meter_is_for_terminals)
{
	FILE *f = tmpfile();
	ck_assert_ptr_nonnull(f);
	struct clv_replay_meter meter;
	struct clv_replay_progress p = {.policy = "cleave", .done = 1, .total = 4};
	clv_replay_meter_init(&meter, f);
	meter.shown_ms = 0;
	clv_replay_meter_say(&meter, "reading", "a.pkl");
	clv_replay_meter_show(&meter, &p);
	clv_replay_meter_clear(&meter);
	fflush(f);
	ck_assert_int_eq(ftell(f), 0);
	fclose(f);
	int terminal = posix_openpt(O_RDWR | O_NOCTTY);
	if (terminal < 0)
		return; /* no terminals here */
	f = fdopen(terminal, "w");
	clv_replay_meter_init(&meter, f);
	ck_assert_ptr_eq(meter.out, f);
	clv_replay_meter_show(&meter, &p); /* short work shows nothing */
	ck_assert(!meter.shown);
	fclose(f);
}
END_TEST

CHECK_MAIN("replay_text", the_whole_table, sentences, proofs, nothing_live, long_names_are_cut_and_nothing_breaks,
	   verifications, the_meter, the_meter_is_for_terminals)
