/* SPDX-License-Identifier: MIT
 *
 * Says what scripts/cleave_torch.py must know of the structures of the public headers: "NAME MEMBER OFFSET" for the last member
 * and some before it, and "NAME - SIZE".
 */
#include <cleave/preload.h>
#include <cleave/torch.h>

#include <stdio.h>

#define SIZE(type) printf(#type " - %zu\n", sizeof(type))
#define AT(type, member) printf(#type " " #member " %zu\n", offsetof(type, member))

int main(void)
{
	SIZE(cleave_stream);
	AT(cleave_stream, handle);
	SIZE(cleave_heap_stats);
	AT(cleave_heap_stats, live_peak_bytes);
	AT(cleave_heap_stats, metadata_in_jemalloc);
	AT(cleave_heap_stats, reservation_bytes);
	AT(cleave_heap_stats, live_blocks);
	AT(cleave_heap_stats, failures);
	AT(cleave_heap_stats, host_waits);
	SIZE(cleave_failure);
	AT(cleave_failure, number);
	SIZE(cleave_block);
	AT(cleave_block, stream_id);
	AT(cleave_block, state);
	SIZE(cleave_plan_info);
	AT(cleave_plan_info, strategy);
	AT(cleave_plan_info, rank);
	AT(cleave_plan_info, buffers);
	AT(cleave_plan_info, layer_bytes);
	SIZE(cleave_plan_buffer);
	AT(cleave_plan_buffer, bytes);
	AT(cleave_plan_buffer, shape);
	AT(cleave_plan_buffer, strides);
	AT(cleave_plan_buffer, dims);
	AT(cleave_plan_buffer, dtype);
	AT(cleave_plan_buffer, experts);
	AT(cleave_plan_buffer, expert_bytes);
	AT(cleave_plan_buffer, same);
	SIZE(cleave_plan_memory);
	AT(cleave_plan_memory, free);
	AT(cleave_plan_memory, arg);
	SIZE(cleave_preload);
	AT(cleave_preload, size);
	AT(cleave_preload, heap);
	AT(cleave_preload, blocks);
	AT(cleave_preload, failure_print);
	printf("CLEAVE_PLAN_ALL - %u\n", CLEAVE_PLAN_ALL);
	printf("CLEAVE_PRELOAD_VERSION - %d\n", CLEAVE_PRELOAD_VERSION);
	for (int i = 1; cleave_dtype_name((enum cleave_dtype)i); i++)
		printf("%s - %u\n", cleave_dtype_name((enum cleave_dtype)i), cleave_dtype_bits((enum cleave_dtype)i));
	return 0;
}
