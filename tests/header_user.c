/* SPDX-License-Identifier: MIT
 *
 * A program as a user would write it, compiled as C and as C++ but never run: macros of the public headers must be valid in
 * both where they are used, not only where they are defined.
 */
#include <cleave/heap.h>
#include <cleave/plan.h>
#include <cleave/preload.h>
#include <cleave/torch.h>
#include <cleave/trace.h>

int use(cleave_heap *heap);
int use_plan(uint64_t *offset);
int use_trace(void);

int use(cleave_heap *heap)
{
	cleave_ptr ptr = 0;
	cleave_stream stream = CLEAVE_STREAM_ANY;
	int status = cleave_alloc(heap, 0, CLEAVE_STREAM_ANY, 1, &ptr);
	return status ? status : cleave_free(heap, ptr, stream);
}

int use_plan(uint64_t *offset)
{
	cleave_pack_buffer buffer = {0, 1, 1, 0, CLEAVE_PACK_ANYWHERE, 0, 0};
	cleave_pack_settings settings = {0, 1, 0, 0.5, {0}};
	cleave_pack_result result;
	return cleave_pack(&buffer, 1, &settings, offset, &result, 0, 0);
}

int use_trace(void)
{
	CLEAVE_TRACE_PHASE_BEGIN("load");
	CLEAVE_TRACE_MARK("loaded");
	CLEAVE_TRACE_PHASE_END("load");
	return cleave_trace_flush();
}
