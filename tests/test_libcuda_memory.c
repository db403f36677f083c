/* SPDX-License-Identifier: MIT
 *
 * The test double of libcuda.so.1: plain and host memory, copies, frames, pools, peers, and what an address is.
 */
#include "check_main.h"
#include "fakecuda_open.h"

#define MIB ((size_t)1 << 20)

START_TEST(plain_memory)
{
	CUdeviceptr p, q, base;
	size_t size, pitch;
	start_cuda();
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemAlloc_v2(&p, 0));
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc_v2(&p, 300 * MIB));
	OK(cu.cuMemAlloc_v2(&p, 3 * MIB));
	OK(cu.cuMemAllocPitch_v2(&q, &pitch, 100, 10, 4));
	ck_assert_uint_eq(pitch, 512);
	OK(cu.cuMemGetAddressRange_v2(&base, &size, p + MIB));
	ck_assert_uint_eq(base, p);
	ck_assert_uint_eq(size, 3 * MIB);
	OK(cu.cuMemGetAddressRange_v2(NULL, NULL, q));
	FAILS(CUDA_ERROR_NOT_FOUND, cu.cuMemGetAddressRange_v2(&base, &size, p + 3 * MIB));
	OK(cu.cuMemsetD8_v2(p, 7, 3 * MIB));
	ck_assert_int_eq(byte_at(p + 3 * MIB - 1), 7);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8_v2(p, 7, 3 * MIB + 1));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(p + 512));
	OK(cu.cuMemFree_v2(0));
	OK(cu.cuMemFree_v2(p));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(p));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8_v2(p, 7, 1));
	OK(cu.cuMemFree_v2(q));
	ck_assert_uint_eq(fake.used(0), 0);
	ck_assert_uint_eq(fake.used_peak(0), 6 * MIB);
	ck_assert_ptr_null(fake.leaks());
}
END_TEST

/* cuMemFree waits for the device; work that touches memory that is gone faults, and that lasts. */
START_TEST(free_waits_and_stale_work_faults)
{
	CUdeviceptr p, q;
	CUmemGenericAllocationHandle h;
	struct gate g = {0};
	start_cuda();
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	fake.delay(20000);
	OK(cu.cuMemAlloc_v2(&p, MIB));
	OK(cu.cuMemsetD8Async(p, 1, MIB, s));
	OK(cu.cuMemFree_v2(p));
	OK(cu.cuStreamQuery(s));
	ck_assert_int_eq(fake.faults(), 0);
	fake.delay(0);

	CUmemAllocationProp prop = frame_of_device(0);
	OK(cu.cuMemAddressReserve(&q, 2 * MIB, 0, 0, 0));
	OK(cu.cuMemCreate(&h, 2 * MIB, &prop, 0));
	OK(cu.cuMemMap(q, 2 * MIB, 0, h, 0));
	give_access(q, 2 * MIB, 0);
	gate_on(s, &g);
	OK(cu.cuMemsetD8Async(q, 1, MIB, s));
	OK(cu.cuMemUnmap(q, 2 * MIB)); /* does not wait */
	gate_open(&g);
	FAILS(700, cu.cuStreamSynchronize(s));
	FAILS(700, cu.cuMemAlloc_v2(&p, MIB));
	ck_assert_int_eq(fake.faults(), 1);
}
END_TEST

START_TEST(copies)
{
	CUdeviceptr p, q;
	unsigned char out[4096], *pinned;
	uint32_t words[16], in[16];
	start_cuda();
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	OK(cu.cuMemHostAlloc((void **)&pinned, 4096, 0));
	OK(cu.cuMemAlloc_v2(&p, 4096));
	OK(cu.cuMemAlloc_v2(&q, 4096));
	fake.delay(5000);
	memset(out, 0x11, sizeof(out));
	OK(cu.cuMemcpyHtoDAsync_v2(p, out, 4096, s));
	memset(out, 0x22, sizeof(out)); /* not pinned: it has been read */
	OK(cu.cuMemcpyDtoDAsync_v2(q, p, 4096, s));
	OK(cu.cuMemcpyDtoHAsync_v2(out, q, 4096, s)); /* not pinned: it is there */
	ck_assert_int_eq(out[4095], 0x11);
	pinned[0] = 0;
	OK(cu.cuMemsetD32Async(q, 0x01020304, 16, s));
	OK(cu.cuMemcpyDtoHAsync_v2(pinned, q, 4096, s)); /* pinned: later */
	FAILS(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(s));
	OK(cu.cuStreamSynchronize(s));
	ck_assert_int_eq(pinned[0], 4);
	memcpy(words, pinned, sizeof(words));
	ck_assert_uint_eq(words[15], 0x01020304);
	for (int i = 0; i < 16; i++)
		in[i] = (uint32_t)i;
	OK(cu.cuMemcpyHtoD_v2(p, in, sizeof(in)));
	OK(cu.cuMemcpyDtoH_v2(words, p, sizeof(words)));
	ck_assert_mem_eq(words, in, sizeof(in));
	OK(cu.cuMemFreeHost(pinned));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeHost(pinned));
}
END_TEST

START_TEST(host_memory)
{
	CUcontext ctx = start_cuda(), got;
	void *p, *host = malloc(8192);
	CUdeviceptr d;
	unsigned flags, type;
	OK(cu.cuMemAllocHost_v2(&p, 100));
	OK(cu.cuMemHostGetDevicePointer_v2(&d, p, 0));
	ck_assert_uint_eq(d, (uintptr_t)p);
	OK(cu.cuMemHostGetFlags(&flags, p));
	OK(cu.cuMemsetD8_v2(d, 5, 100));
	OK(cu.cuCtxSynchronize());
	ck_assert_int_eq(((char *)p)[99], 5);
	OK(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, d));
	ck_assert_uint_eq(type, 1);
	OK(cu.cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_CONTEXT, d));
	ck_assert_ptr_eq(got, ctx);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemHostGetDevicePointer_v2(&d, host, 0));
	OK(cu.cuMemHostRegister_v2(host, 8192, 0));
	FAILS(712, cu.cuMemHostRegister_v2(host, 8192, 0));
	OK(cu.cuMemHostGetDevicePointer_v2(&d, host, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeHost(host));
	CUresult (*unregister)(void *) = (CUresult(*)(void *))cuda_symbol("cuMemHostUnregister");
	OK(unregister(host));
	FAILS(713, unregister(host));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemHostGetDevicePointer_v2(&d, host, 0));
	free(host);
	OK(cu.cuMemFreeHost(p));
	OK(cu.cuMemAllocManaged(&d, 4096, 1));
	*(volatile char *)(uintptr_t)d = 3;
	ck_assert_int_eq(byte_at(d), 3);
	OK(cu.cuMemFree_v2(d));
}
END_TEST

START_TEST(frames)
{
	CUdeviceptr at, base, rest;
	CUmemGenericAllocationHandle a, b, c;
	size_t granularity, size;
	start_cuda();
	CUmemAllocationProp prop = frame_of_device(0);
	OK(cu.cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	ck_assert_uint_eq(granularity, 2 * MIB);
	OK(cu.cuMemAddressReserve(&at, 16 * MIB, 0, 0, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemCreate(&a, MIB, &prop, 0));
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemCreate(&a, 300 * MIB, &prop, 0));
	OK(cu.cuMemCreate(&a, 4 * MIB, &prop, 0));
	OK(cu.cuMemCreate(&b, 2 * MIB, &prop, 0));
	FAILS(CUDA_ERROR_NOT_SUPPORTED, cu.cuMemMap(at, 2 * MIB, 0, a, 0));
	OK(cu.cuMemMap(at, 4 * MIB, 0, a, 0));
	OK(cu.cuMemMap(at + 4 * MIB, 2 * MIB, 0, b, 0));
	OK(cu.cuMemMap(at + 8 * MIB, 4 * MIB, 0, a, 0));             /* at a second address */
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8_v2(at, 1, 1)); /* no access yet */
	give_access(at, 6 * MIB, 0);
	give_access(at + 8 * MIB, 4 * MIB, 0);
	OK(cu.cuMemsetD8_v2(at, 1, 6 * MIB));
	ck_assert_int_eq(byte_at(at + 12 * MIB - 1), 1);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8_v2(at, 1, 7 * MIB));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemUnmap(at, 2 * MIB));

	/* What an address is. */
	OK(cu.cuMemGetAddressRange_v2(&base, &size, at + 5 * MIB));
	ck_assert_uint_eq(base, at + 4 * MIB);
	ck_assert_uint_eq(size, 2 * MIB);
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	void *into[] = {&rest, &size};
	OK(cu.cuPointerGetAttributes(2, which, into, at + 5 * MIB));
	ck_assert_uint_eq(rest, at);
	ck_assert_uint_eq(size, 16 * MIB);
	FAILS(CUDA_ERROR_NOT_FOUND, cu.cuMemGetAddressRange_v2(&base, &size, at + 6 * MIB));

	/* A handle lives as long as one of those given out. */
	OK(cu.cuMemRelease(a));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemRelease(a));
	ck_assert_uint_eq(fake.used(0), 6 * MIB);
	OK(cu.cuMemRetainAllocationHandle(&c, (void *)(uintptr_t)(at + 3 * MIB)));
	OK(cu.cuMemUnmap(at, 4 * MIB));
	OK(cu.cuMemUnmap(at + 8 * MIB, 4 * MIB));
	ck_assert_uint_eq(fake.used(0), 6 * MIB);
	OK(cu.cuMemRelease(c));
	ck_assert_uint_eq(fake.used(0), 2 * MIB);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemAddressFree(at, 16 * MIB));
	OK(cu.cuMemRelease(b));
	OK(cu.cuMemUnmap(at + 4 * MIB, 2 * MIB));
	OK(cu.cuMemAddressFree(at, 16 * MIB));
	ck_assert_ptr_null(fake.leaks());

	prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
	FAILS(CUDA_ERROR_NOT_SUPPORTED, cu.cuMemCreate(&a, 2 * MIB, &prop, 0));
}
END_TEST

START_TEST(pool_attributes)
{
	CUdeviceptr p, q;
	CUmemoryPool pool, handle;
	cuuint64_t v, zero = 0;
	start_cuda();
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	OK(cu.cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cu.cuMemAllocAsync(&p, 1000, s));
	OK(cu.cuMemAllocAsync(&q, 40 * MIB, s));
	OK(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &v));
	ck_assert_uint_eq(v, 40 * MIB + 1000);
	OK(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &v));
	ck_assert_uint_eq(v, fake.used(0));
	OK(cu.cuPointerGetAttribute(&handle, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
	ck_assert_ptr_eq(handle, pool);
	OK(cu.cuMemFreeAsync(q, s));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(q, s));
	OK(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
	OK(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &v));
	ck_assert_uint_eq(v, 1000);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &zero));
	OK(cu.cuStreamSynchronize(s)); /* what is free beyond the threshold goes back */
	ck_assert_uint_eq(fake.used(0), 32 * MIB);
	v = UINT64_MAX;
	OK(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v));
	OK(cu.cuMemAllocAsync(&q, 40 * MIB, s));
	OK(cu.cuMemFreeAsync(q, s));
	OK(cu.cuStreamSynchronize(s));
	ck_assert_uint_eq(fake.used(0), 96 * MIB);
	OK(cu.cuMemPoolTrimTo(pool, 0));
	ck_assert_uint_eq(fake.used(0), 32 * MIB);
	OK(cu.cuMemFree_v2(p)); /* takes pool memory, too */
	OK(cu.cuMemPoolTrimTo(pool, 0));
	ck_assert_uint_eq(fake.used(0), 0);
}
END_TEST

START_TEST(pool_reuse_is_ordered)
{
	CUdeviceptr p, q;
	struct gate g = {0};
	setenv("FAKE_CUDA_MEMORY", "4MiB", 1);
	start_cuda();
	CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
	OK(cu.cuMemAllocAsync(&p, 4 * MIB, a));
	gate_on(a, &g);
	OK(cu.cuMemsetD8Async(p, 1, 4 * MIB, a));
	OK(cu.cuMemFreeAsync(p, a));
	OK(cu.cuMemAllocAsync(&q, 4 * MIB, b)); /* there is only this memory: b waits for a */
	ck_assert_uint_eq(p, q);
	OK(cu.cuMemsetD8Async(q, 2, 4 * MIB, b));
	FAILS(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(b));
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocAsync(&p, 512, a)); /* nothing to wait for */
	gate_open(&g);
	OK(cu.cuCtxSynchronize());
	ck_assert_int_eq(byte_at(q), 2);
}
END_TEST

/* What is left of a piece that others may still use is not free for all, either. */
START_TEST(pool_rest_is_ordered)
{
	CUdeviceptr p, q, r;
	struct gate g = {0};
	setenv("FAKE_CUDA_MEMORY", "4MiB", 1);
	start_cuda();
	CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING),
		 c = new_stream(CU_STREAM_NON_BLOCKING);
	OK(cu.cuMemAllocAsync(&p, 4 * MIB, a));
	gate_on(a, &g);
	OK(cu.cuMemsetD8Async(p, 1, 4 * MIB, a));
	OK(cu.cuMemFreeAsync(p, a));
	OK(cu.cuMemAllocAsync(&q, 2 * MIB, b));
	OK(cu.cuMemAllocAsync(&r, 2 * MIB, c));
	OK(cu.cuMemsetD8Async(r, 2, 2 * MIB, c));
	FAILS(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(c));
	gate_open(&g);
	OK(cu.cuCtxSynchronize());
	ck_assert_int_eq(byte_at(r), 2);
}
END_TEST

START_TEST(pools_made_and_chosen)
{
	CUdeviceptr p;
	CUmemoryPool def, pool, got;
	start_cuda();
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
				.maxSize = 8 * MIB};
	OK(cu.cuDeviceGetDefaultMemPool(&def, 0));
	OK(cu.cuMemPoolCreate(&pool, &props));
	OK(cu.cuDeviceSetMemPool(0, pool));
	OK(cu.cuDeviceGetMemPool(&got, 0));
	ck_assert_ptr_eq(got, pool);
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAllocAsync(&p, 9 * MIB, NULL));
	OK(cu.cuMemAllocAsync(&p, 7 * MIB, NULL));
	OK(cu.cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
	ck_assert_ptr_eq(got, pool);
	OK(cu.cuMemPoolDestroy(pool)); /* lives on until its memory is free; the default one is current again */
	OK(cu.cuMemGetMemPool(&got, &props.location, CU_MEM_ALLOCATION_TYPE_PINNED));
	ck_assert_ptr_eq(got, def);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemPoolTrimTo(pool, 0));
	ck_assert_uint_eq(fake.used(0), 8 * MIB);
	OK(cu.cuMemFreeAsync(p, NULL));
	OK(cu.cuStreamSynchronize(NULL));
	ck_assert_uint_eq(fake.used(0), 0);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemPoolDestroy(def));
	OK(cu.cuMemPoolCreate(&pool, &props));
	OK(cu.cuMemSetMemPool(&props.location, CU_MEM_ALLOCATION_TYPE_PINNED, pool));
	OK(cu.cuMemAllocFromPoolAsync(&p, 512, def, NULL));
	OK(cu.cuMemFreeAsync(p, NULL));
	OK(cu.cuMemPoolDestroy(pool));
	OK(cu.cuStreamSynchronize(NULL));
	ck_assert_ptr_null(fake.leaks());
}
END_TEST

START_TEST(peers)
{
	CUdeviceptr plain, pooled, at;
	CUmemoryPool pool;
	CUmemAccess_flags flags;
	CUmemGenericAllocationHandle h;
	CUcontext first, second;
	setenv("FAKE_CUDA_DEVICES", "2", 1);
	first = start_cuda();
	OK(cu.cuMemAlloc_v2(&plain, MIB));
	OK(cu.cuMemAllocAsync(&pooled, MIB, NULL));
	CUmemAllocationProp prop = frame_of_device(0);
	OK(cu.cuMemAddressReserve(&at, 2 * MIB, 0, 0, 0));
	OK(cu.cuMemCreate(&h, 2 * MIB, &prop, 0));
	OK(cu.cuMemMap(at, 2 * MIB, 0, h, 0));
	give_access(at, 2 * MIB, 0);
	OK(cu.cuDevicePrimaryCtxRetain(&second, 1));
	OK(cu.cuCtxSetCurrent(second));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8_v2(plain, 1, MIB));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8_v2(pooled, 1, MIB));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8_v2(at, 1, MIB));
	OK(cu.cuCtxEnablePeerAccess(first, 0));
	FAILS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cu.cuCtxEnablePeerAccess(first, 0));
	OK(cu.cuMemsetD8_v2(plain, 1, MIB));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8_v2(pooled, 1, MIB));
	OK(cu.cuDeviceGetDefaultMemPool(&pool, 0));
	CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
				.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	OK(cu.cuMemPoolSetAccess(pool, &desc, 1));
	OK(cu.cuMemPoolGetAccess(&flags, pool, &desc.location));
	ck_assert_int_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	OK(cu.cuMemsetD8_v2(pooled, 1, MIB));
	OK(cu.cuMemSetAccess(at, 2 * MIB, &desc, 1));
	OK(cu.cuMemsetD8_v2(at, 1, MIB));
	OK(cu.cuCtxSynchronize());
	desc.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	OK(cu.cuMemSetAccess(at, 2 * MIB, &desc, 1));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8_v2(at, 1, MIB));
	OK(cu.cuCtxDisablePeerAccess(first));
	FAILS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cu.cuCtxDisablePeerAccess(first));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8_v2(plain, 1, MIB));
	OK(cu.cuCtxSetCurrent(first));
	ck_assert_int_eq(byte_at(at), 1);
	ck_assert_int_eq(byte_at(plain), 1);
}
END_TEST

START_TEST(pointer_attributes)
{
	CUdeviceptr p;
	unsigned type;
	int ordinal, capable;
	CUmemGenericAllocationHandle h;
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				       CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
	void *into[] = {&type, &ordinal, &capable};
	start_cuda();
	OK(cu.cuMemAlloc_v2(&p, MIB));
	OK(cu.cuPointerGetAttributes(3, which, into, p + 1));
	ck_assert_uint_eq(type, 2);
	ck_assert_int_eq(ordinal, 0);
	ck_assert_int_eq(capable, 1);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemRetainAllocationHandle(&h, (void *)(uintptr_t)p));
	OK(cu.cuMemFree_v2(p));
	OK(cu.cuPointerGetAttributes(3, which, into, p)); /* what is nothing has answers as well */
	ck_assert_uint_eq(type, 0);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	OK(cu.cuMemAllocAsync(&p, MIB, NULL));
	OK(cu.cuPointerGetAttributes(3, which, into, p + 1));
	ck_assert_uint_eq(type, 2);
	ck_assert_int_eq(capable, 0);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemRetainAllocationHandle(&h, (void *)(uintptr_t)p));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + MIB));
}
END_TEST

CHECK_MAIN("libcuda_memory", plain_memory, free_waits_and_stale_work_faults, copies, host_memory, frames,
	   pool_attributes, pool_reuse_is_ordered, pool_rest_is_ordered, pools_made_and_chosen, peers,
	   pointer_attributes)
