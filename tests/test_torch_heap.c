/* SPDX-License-Identifier: MIT
 *
 * What PyTorch's pluggable allocator calls, on the test double of libcuda.so.1 (which LD_LIBRARY_PATH leads to). Each test is
 * a process of its own, and so has a heap of its own.
 */
#include <cleave/torch.h>

#include "../src/base/base.h"
#include "check_main.h"
#include "fakecuda_open.h"
#include "plan_sample.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static cleave_heap_stats stats(void)
{
	cleave_heap *heap;
	cleave_heap_stats s;
	ck_assert_int_eq(cleave_torch_heap(&heap, NULL, 0), 0);
	ck_assert_int_eq(cleave_heap_get_stats(heap, 0, &s), 0);
	return s;
}

START_TEST(blocks_on_streams)
{
	CUstream stream;
	start_cuda();
	stream = new_stream(CU_STREAM_NON_BLOCKING);
	void *a = cleave_torch_alloc(5 * CLV_MIB, 0, stream), *b = cleave_torch_alloc(100, 0, NULL);
	ck_assert(a && b);
	ck_assert_uint_eq(stats().live_blocks, 2);
	OK(cu.cuMemsetD8_v2((CUdeviceptr)(uintptr_t)a, 7, 5 * CLV_MIB));
	cleave_torch_free(a, 5 * CLV_MIB, 0, stream);
	cleave_torch_free(b, 100, 0, NULL);
	cleave_torch_free(NULL, 0, 0, NULL);
	ck_assert_uint_eq(stats().live_blocks, 0);
	/* what was freed on the stream is there for it again */
	ck_assert_ptr_eq(cleave_torch_alloc(5 * CLV_MIB, 0, stream), a);
	ck_assert_ptr_null(cleave_torch_alloc(0, 0, stream));
	ck_assert_ptr_null(cleave_torch_alloc(-5, 0, stream));
	ck_assert_ptr_null(cleave_torch_alloc(5, 9, stream));
	ck_assert_ptr_null(cleave_torch_alloc((ssize_t)1 << 40, 0, stream));
	cleave_failure failure;
	cleave_heap *heap;
	ck_assert_int_eq(cleave_torch_heap(&heap, NULL, 0), 0);
	ck_assert_int_eq(cleave_heap_last_failure(heap, 0, &failure), 0);
	ck_assert_uint_eq(failure.request_bytes, (uint64_t)1 << 40);
}
END_TEST

static void *in_a_thread(void *arg)
{
	CUcontext current = NULL;
	OK(cu.cuCtxGetCurrent(&current));
	ck_assert_ptr_null(current);
	void *p = cleave_torch_alloc(3 * CLV_MIB, 0, NULL);
	ck_assert_ptr_nonnull(p);
	*(void **)arg = p;
	OK(cu.cuCtxGetCurrent(&current));
	ck_assert_ptr_null(current); /* as it was */
	return NULL;
}

/* PyTorch frees tensors in threads that have no context, and on streams that the program has destroyed. */
START_TEST(no_context_and_no_stream)
{
	pthread_t thread;
	void *p = NULL;
	CUstream stream;
	start_cuda();
	ck_assert_int_eq(pthread_create(&thread, NULL, in_a_thread, &p), 0);
	pthread_join(thread, NULL);
	cleave_torch_free(p, 3 * CLV_MIB, 0, NULL);
	ck_assert_uint_eq(stats().live_blocks, 0);
	stream = new_stream(CU_STREAM_NON_BLOCKING);
	p = cleave_torch_alloc(3 * CLV_MIB, 0, stream);
	ck_assert_ptr_nonnull(p);
	cleave_torch_free(p, 3 * CLV_MIB, 0, (void *)(uintptr_t)0xdead0); /* of which the driver knows nothing */
	ck_assert_uint_eq(stats().live_blocks, 0);
	cleave_torch_free(p, 3 * CLV_MIB, 0, NULL); /* twice: told of, and nothing else */
	ck_assert_uint_eq(stats().frees, 2);
	cleave_stream s;
	ck_assert_int_eq(cleave_torch_stream(0, stream, &s), 0);
	ck_assert_uint_eq(s.handle, (uintptr_t)stream);
	ck_assert_int_eq(cleave_torch_stream(0, (void *)(uintptr_t)0xdead0, &s), -EINVAL);
	ck_assert_int_eq(cleave_torch_stream(-1, NULL, &s), -EINVAL);
	ck_assert_int_eq(cleave_torch_stream(0, NULL, NULL), -EINVAL);
}
END_TEST

START_TEST(two_devices)
{
	cleave_stream first, second;
	CUcontext other;
	CUstream stream;
	start_cuda();
	OK(cu.cuDevicePrimaryCtxRetain(&other, 1));
	/* the context of device 0 is current: the default stream of device 1 is its own all the same */
	ck_assert_int_eq(cleave_torch_stream(0, NULL, &first), 0);
	ck_assert_int_eq(cleave_torch_stream(1, NULL, &second), 0);
	ck_assert_uint_ne(first.id, second.id);
	void *p = cleave_torch_alloc(3 * CLV_MIB, 1, NULL);
	ck_assert_ptr_nonnull(p);
	cleave_heap *heap;
	int device = -1;
	ck_assert_int_eq(cleave_torch_heap(&heap, NULL, 0), 0);
	ck_assert_int_eq(cleave_block_info(heap, (uintptr_t)p, NULL, NULL, &device), 0);
	ck_assert_int_eq(device, 1);
	stream = new_stream(CU_STREAM_NON_BLOCKING);
	ck_assert_ptr_null(cleave_torch_alloc(100, 1, stream)); /* it is of device 0 */
	cleave_torch_free(p, 3 * CLV_MIB, 1, NULL);
}
END_TEST

START_TEST(the_pool)
{
	char path[] = "/tmp/cleave-plan-XXXXXX", why[512] = "";
	cleave_plan *plan;
	cleave_plan_memory memory;
	cleave_stream stream;
	cleave_plan_buffer b;
	start_cuda();
	int fd = mkstemp(path);
	ck_assert_int_eq((int)write(fd, sample_plan, sizeof(sample_plan) - 1), (int)sizeof(sample_plan) - 1);
	close(fd);
	ck_assert_msg(cleave_plan_load(&plan, path, why, sizeof(why)) == 0, "%s", why);
	unlink(path);
	ck_assert_msg(cleave_torch_pool(&memory, why, sizeof(why)) == 0, "%s", why);
	ck_assert_int_eq(cleave_torch_stream(0, NULL, &stream), 0);
	ck_assert_int_eq(cleave_plan_bind_memory(plan, &memory, 0, stream, 2), 0);
	ck_assert_int_eq(cleave_plan_get_buffer(plan, 1, "w13_weight", &b), 0);
	OK(cu.cuMemsetD8_v2(b.address, 7, b.bytes));
	ck_assert_int_ge(fake.calls("cuMemAllocAsync"), 2 * SAMPLE_BUFFERS);
	ck_assert_uint_eq(stats().live_blocks, 0); /* none is of our heap */
	ck_assert_int_eq(cleave_plan_release_layer(plan, 1, stream), 0);
	ck_assert_int_eq(fake.calls("cuMemFreeAsync"), SAMPLE_BUFFERS);
	cleave_plan_close(plan);
	ck_assert_int_eq(fake.calls("cuMemFreeAsync"), 2 * SAMPLE_BUFFERS);
	ck_assert_int_eq(memory.free(memory.arg, 0x1234, stream), -EINVAL);
	cleave_ptr p;
	ck_assert_int_eq(memory.alloc(memory.arg, 0, stream, (size_t)1 << 40, &p), -ENOMEM);
	ck_assert_uint_eq(p, 0);
	ck_assert_int_eq(cleave_torch_pool(NULL, NULL, 0), -EINVAL);
}
END_TEST

CHECK_MAIN("torch_heap", blocks_on_streams, no_context_and_no_stream, two_devices, the_pool)
