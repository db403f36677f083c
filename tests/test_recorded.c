/* SPDX-License-Identifier: MIT
 *
 * `torch:recorded` without a capacity is what PyTorch did. The expected figures are those that PyTorch itself counted
 * while it was recorded (reserved_bytes.all.peak, num_alloc_retries) and the numbers of its segment events.
 */
#include "../tracing/import/import.h"
#include "../tracing/replay/recorded.h"
#include "check_main.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
	const char *name;
	uint64_t peak_reserved, retries, segment_allocs, segment_frees, maps;
} histories[] = {
	{"fuzz_capped", 4192206848, 23, 188, 177, 0},	{"fuzz_gc60", 5238685696, 2, 181, 124, 0},
	{"fuzz_mempool", 4181721088, 4, 76, 10, 0},	{"fuzz_pendcap", 4175429632, 2, 194, 167, 0},
	{"fuzz_streams", 10502537216, 0, 208, 85, 0},	{"fuzz_expandcap", 4183818240, 22, 0, 0, 202},
};

START_TEST(what_pytorch_counted)
{
	const char *data = getenv("CLEAVE_TEST_DATA");
	ck_assert_ptr_nonnull(data);
	char path[4096];
	snprintf(path, sizeof(path), "%s/%s.clv", data, histories[_i].name);
	struct clv_error err = {""};
	struct clv_trace *trace = clv_trace_import(path, &err);
	ck_assert_msg(trace != NULL, "%s", err.text);
	const struct clv_history *history = clv_trace_select(trace, -1, &err);
	struct clv_verify_result verify;
	ck_assert_msg(clv_torch_verify(trace, history, &verify, &err), "%s", err.text);
	struct clv_replay_result r;
	ck_assert(clv_replay_recorded(trace, history, &verify, 0.5, &r));
	ck_assert(r.completed);
	ck_assert_uint_eq(r.stats.peak_reserved_bytes, histories[_i].peak_reserved);
	ck_assert_uint_eq(r.stats.oom_retries, histories[_i].retries);
	ck_assert_uint_eq(r.stats.driver.calls[CLV_CALL_mem_alloc], histories[_i].segment_allocs);
	ck_assert_uint_eq(r.stats.driver.calls[CLV_CALL_mem_free], histories[_i].segment_frees);
	ck_assert_uint_eq(r.stats.driver.calls[CLV_CALL_set_access], histories[_i].maps);
	ck_assert_uint_eq(r.events, history->event_count);
	ck_assert(r.wall_s == 0.5);

	/* a run that did not agree with the file is no answer */
	verify.address_mismatches = 1;
	ck_assert(!clv_replay_recorded(trace, history, &verify, 0.5, &r));
	clv_verify_free(&verify);
	clv_trace_free(trace);
}
END_TEST

int main(void)
{
	TCase *tcase = check_main_case("recorded");
	tcase_add_loop_test(tcase, what_pytorch_counted, 0, (int)CLV_ARRAY_LEN(histories));
	return check_main_end("recorded", tcase);
}
