/* SPDX-License-Identifier: MIT
 *
 * torch_verify: runs the model of PyTorch's allocator in step with a recorded history and compares every address and every
 * segment event; what the file leaves out (empty_cache, pools, driver refusals) is inferred and counted.
 */
#ifndef CLV_TORCH_VERIFY_H
#define CLV_TORCH_VERIFY_H

#include "../trace.h"

/* Kinds of input that a recording leaves out and a run infers: (enumerator, name in the JSON). */
#define CLV_INFERRED(X)                                                                                                \
	X(EMPTY_CACHE, "empty_cache")                                                                                  \
	X(INITIAL_SEGMENT, "initial_segment")                                                                          \
	X(INITIAL_BLOCK, "initial_block")                                                                              \
	X(DRIVER_REFUSAL, "driver_refusal")                                                                            \
	X(DEFERRED_FREE, "deferred_free")                                                                              \
	X(POOL_ON_OOM, "pool_on_oom")                                                                                  \
	X(VANISHED_POOL, "vanished_pool")                                                                              \
	X(TIE_BREAK, "tie_break")

enum clv_inferred {
#define X(name, text) CLV_INFERRED_##name,
	CLV_INFERRED(X)
#undef X
	CLV_INFERRED_COUNT
};

const char *clv_inferred_name(enum clv_inferred i);

struct clv_verify_result {
	uint64_t allocs, address_mismatches;
	uint64_t segment_events, segment_mismatches;
	uint64_t ooms, oom_mismatches;           /* recorded ooms, and those that the model served or vice versa */
	bool final_state_matches;                /* blocks at the end, where the file has a state */
	uint64_t exact_from_event;               /* 0, or where a lost beginning stops to matter */
	uint64_t late_mismatches;                /* of all mismatches, those from exact_from_event on */
	uint64_t inferred[CLV_INFERRED_COUNT];
	uint64_t retries;                        /* num_alloc_retries as the model counts */
	uint64_t peak_reserved_bytes, stranded_peak_bytes;
	struct {
		bool set;
		uint64_t event;           /* index in the device's history */
		char text[256];           /* expected and got */
	} first_mismatch;
	/* Events before which empty_cache was inferred, ascending; event_count means after the last. Owned: clv_verify_free. */
	uint32_t *empty_caches;
	uint32_t empty_cache_count;
};

/* false: no settings in the file, settings that torch refuses, or out of host memory. A mismatch is a result, no error. */
bool clv_torch_verify(const struct clv_trace *trace, const struct clv_history *history, struct clv_verify_result *out,
		      struct clv_error *err);
void clv_verify_free(struct clv_verify_result *result);

#endif
