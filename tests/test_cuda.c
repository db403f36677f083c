/* SPDX-License-Identifier: MIT
 *
 * The cuda driver over fakes: how it opens, what it says of devices, how frames and plain allocations are made, in which
 * context, and what it does while a stream captures.
 */
#include "../src/host/meta.h"
#include "check_main.h"
#include "fake_cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define G (2 * CLV_MIB)

static struct clv_driver *d;

static struct clv_driver *open_fake(const struct clv_cuda_config *config)
{
	struct clv_error err = {{0}};
	struct clv_driver *driver = clv_cuda_open(config, &err);
	ck_assert_msg(driver != NULL, "%s", err.text);
	fake_forget_calls();
	return driver;
}

static void start(void)
{
	fake_reset();
	d = open_fake(&(struct clv_cuda_config){.api = &fake_api});
}

static void finish(void)
{
	ck_assert_str_eq(fake_wrong(), "");
	ck_assert_uint_eq(fake_depth(), 0);
	ck_assert_int_eq(fake_mode(), CU_STREAM_CAPTURE_MODE_GLOBAL);
	d->close(d);
}

/* ---- opening ---- */

#define NAMES 256
static const char *asked[NAMES];
static unsigned asked_count;

static void *resolve(void *missing, const char *name)
{
	ck_assert_uint_lt(asked_count, NAMES);
	asked[asked_count++] = name;
	return missing && strcmp(name, missing) == 0 ? NULL : (void *)(uintptr_t)(0x1000 + asked_count);
}

static bool was_asked(const char *name)
{
	for (unsigned i = 0; i < asked_count; i++)
		if (strcmp(asked[i], name) == 0)
			return true;
	return false;
}

START_TEST(functions_are_looked_up_by_their_exported_names)
{
	struct clv_cuda_api api;
	struct clv_error err = {{0}};
	asked_count = 0;
	ck_assert(clv_cuda_api_load(&api, resolve, NULL, &err));
	/* one for each member of the table, each into a place of its own */
	ck_assert_uint_eq(asked_count, sizeof(api) / sizeof(api.cuInit));
	for (unsigned i = 0; i < asked_count; i++)
		for (unsigned k = 0; k < i; k++)
			ck_assert_str_ne(asked[i], asked[k]);
	ck_assert(was_asked("cuMemAlloc_v2"));
	ck_assert(was_asked("cuMemAllocAsync"));
	ck_assert(was_asked("cuMemAllocAsync_ptsz"));
	ck_assert(was_asked("cuStreamGetCaptureInfo_v3_ptsz"));
	ck_assert_ptr_ne((void *)(uintptr_t)api.cuMemFreeAsync, (void *)(uintptr_t)api.cuMemFreeAsync_ptsz);
}
END_TEST

START_TEST(a_missing_function_is_named)
{
	static const char *const needed[] = {"cuMemCreate", "cuStreamGetId", "cuThreadExchangeStreamCaptureMode",
					     "cuEventDestroy_v2"};
	static const char *const optional[] = {"cuMemCreate_v9", "cuGraphAddNode_v2", "cuStreamGetId_ptsz",
					       "cuMemExportToShareableHandle"};
	struct clv_cuda_api api;
	for (size_t i = 0; i < CLV_ARRAY_LEN(needed); i++) {
		struct clv_error err = {{0}};
		asked_count = 0;
		ck_assert(!clv_cuda_api_load(&api, resolve, (void *)(uintptr_t)needed[i], &err));
		ck_assert_msg(strstr(err.text, needed[i]) != NULL, "%s", err.text);
	}
	for (size_t i = 0; i < CLV_ARRAY_LEN(optional); i++) {
		struct clv_error err = {{0}};
		asked_count = 0;
		ck_assert(clv_cuda_api_load(&api, resolve, (void *)(uintptr_t)optional[i], &err));
	}
	ck_assert_ptr_null((void *)(uintptr_t)api.cuMemExportToShareableHandle);
}
END_TEST

static void refused_with(const struct clv_cuda_config *config, const char *why)
{
	struct clv_error err = {{0}};
	ck_assert_ptr_null(clv_cuda_open(config, &err));
	ck_assert_msg(strstr(err.text, why) != NULL, "'%s' does not say '%s'", err.text, why);
}

START_TEST(a_driver_that_cannot_be_used_is_refused_with_the_reason)
{
	struct clv_cuda_config config = {.api = &fake_api};
	fake_reset();
	fake.version = 11080;
	refused_with(&config, "CUDA 11.8");
	fake.version = 14010;
	refused_with(&config, "CUDA 14.1");
	config.any_version = true;
	d = open_fake(&config);
	d->close(d);
	config.any_version = false;
	fake.version = 12020;
	fake.no_init = true;
	refused_with(&config, "not initialised");
	fake.no_init = false;
	fake.devices = 0;
	refused_with(&config, "no device");
	fake.devices = 1;
	fake.fail = "cuDriverGetVersion";
	fake.fail_count = -1;
	fake.fail_with = CUDA_ERROR_UNKNOWN;
	refused_with(&config, "999");
	fake.fail = "cuDeviceGetCount";
	fake.fail_with = CUDA_ERROR_NO_DEVICE;
	refused_with(&config, "no device");
	fake.fail = "cuDeviceTotalMem_v2";
	refused_with(&config, "device 0");
}
END_TEST

START_TEST(host_memory_may_be_out)
{
	fake_reset();
	uint64_t before = clv_meta_bytes();
	for (uint64_t n = 1; n <= 2; n++) {
		clv_meta_fail_after(n);
		refused_with(&(struct clv_cuda_config){.api = &fake_api}, "out of host memory");
	}
	clv_meta_fail_after(1);
	refused_with(&(struct clv_cuda_config){0}, "out of host memory");
	clv_meta_fail_after(0);
	ck_assert_uint_eq(clv_meta_bytes(), before);
}
END_TEST

START_TEST(without_an_api_libcuda_is_opened)
{
	struct clv_error err = {{0}};
	struct clv_driver *driver = clv_cuda_open(&(struct clv_cuda_config){.any_version = true}, &err);
	if (driver)
		driver->close(driver);
	else
		ck_assert_msg(strstr(err.text, "libcuda.so.1") || strstr(err.text, "driver"), "%s", err.text);
	cleave_driver *by_name = NULL;
	int answer = cleave_driver_open(&by_name, "cuda");
	ck_assert_msg(answer == 0 || answer == -ENODEV, "%d", answer);
	ck_assert_int_eq(by_name != NULL, answer == 0);
	cleave_driver_close(by_name);
}
END_TEST

/* ---- devices ---- */

START_TEST(devices_are_described)
{
	struct clv_device_info info;
	start();
	ck_assert_int_eq(d->devices, FAKE_DEVICES);
	ck_assert_str_eq(d->name, "cuda");
	ck_assert_int_eq(d->device_info(d, 2, &info), CLV_OK);
	ck_assert_uint_eq(info.total, 3 * CLV_GIB);
	ck_assert_uint_eq(info.granularity, G);
	ck_assert(info.vmm);
	ck_assert_int_eq(d->device_info(d, 3, &info), CLV_INVALID);
	ck_assert_int_eq(d->device_info(d, -1, &info), CLV_INVALID);
	ck_assert_uint_eq(fake_all_calls(), 0); /* all that was learnt at the start */
	ck_assert_ptr_eq(clv_cuda_api_of(d), &fake_api);
	ck_assert_ptr_null(clv_cuda_api_of(NULL));
	finish();

	fake_reset();
	fake.attributes[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] = 0;
	d = open_fake(&(struct clv_cuda_config){.api = &fake_api});
	ck_assert_int_eq(d->device_info(d, 0, &info), CLV_OK);
	ck_assert(!info.vmm);
	finish();
}
END_TEST

START_TEST(a_call_runs_in_a_context_of_its_device)
{
	uint64_t free_bytes = 0, total = 0;
	start();
	/* none at all: nothing is asked, and none is made */
	ck_assert_int_eq(d->mem_get_info(d, 0, &free_bytes, &total), CLV_FAILED);
	ck_assert_uint_eq(fake_calls("cuMemGetInfo_v2"), 0);

	/* the primary one, if the program has made it: held for the call only */
	fake.primary_active[1] = true;
	ck_assert_int_eq(d->mem_get_info(d, 1, &free_bytes, &total), CLV_OK);
	ck_assert_uint_eq(free_bytes, 2 * CLV_MIB);
	ck_assert_uint_eq(total, 2 * CLV_GIB);
	ck_assert_ptr_eq(fake.last_context, &fake.primary[1]);
	ck_assert_int_eq(fake.retained[1], 0);
	ck_assert_uint_eq(fake_calls("cuDevicePrimaryCtxRetain"), 1);

	/* one that is known from a stream, though another device's is current */
	CUcontext zero = fake_context(0, 0), one = fake_context(1, 1);
	struct clv_cuda_stream s;
	ck_assert_int_eq(clv_cuda_stream(d, fake_stream(0, 11, one), false, &s), CUDA_SUCCESS);
	fake_set_current(zero);
	fake_forget_calls();
	ck_assert_int_eq(d->mem_get_info(d, 1, &free_bytes, &total), CLV_OK);
	ck_assert_ptr_eq(fake.last_context, one);
	ck_assert_ptr_eq(fake_current(), zero);
	ck_assert_uint_eq(fake_calls("cuCtxPushCurrent_v2"), 1);

	/* the current one */
	fake_forget_calls();
	ck_assert_int_eq(d->mem_get_info(d, 0, &free_bytes, &total), CLV_OK);
	ck_assert_ptr_eq(fake.last_context, zero);
	ck_assert_uint_eq(fake_calls("cuCtxPushCurrent_v2"), 0);

	/* not one that is gone */
	one->dead = true;
	clv_cuda_context_forget(d, one);
	ck_assert_int_eq(d->mem_get_info(d, 1, &free_bytes, &total), CLV_OK);
	ck_assert_ptr_eq(fake.last_context, &fake.primary[1]);
	ck_assert_int_eq(d->mem_get_info(d, 2, &free_bytes, &total), CLV_FAILED);
	ck_assert_int_eq(d->mem_get_info(d, 3, &free_bytes, &total), CLV_INVALID);
	fake.fail = "cuCtxGetDevice";
	fake.fail_with = CUDA_ERROR_DEINITIALIZED;
	fake.fail_count = 1;
	ck_assert_int_eq(d->mem_get_info(d, 0, &free_bytes, &total), CLV_GONE);
	finish();
}
END_TEST

START_TEST(plain_allocations_are_made_on_their_device)
{
	uint64_t addr = 0;
	start();
	ck_assert_int_eq(d->mem_alloc(d, &addr, 4096, 0), CLV_FAILED);
	ck_assert_int_eq(d->mem_free(d, 0x7000), CLV_FAILED);
	fake.primary_active[2] = true;
	ck_assert_int_eq(d->mem_alloc(d, &addr, 4096, 2), CLV_OK);
	ck_assert_uint_eq(addr, 0x7000);
	ck_assert_ptr_eq(fake.last_context, &fake.primary[2]);
	ck_assert_int_eq(d->mem_free(d, addr), CLV_OK); /* in any context */
	ck_assert_uint_eq(fake.last_addr, 0x7000);
	ck_assert_int_eq(fake.retained[2], 0);
	CUcontext zero = fake_context(0, 0);
	fake_set_current(zero);
	ck_assert_int_eq(d->mem_free(d, addr), CLV_OK);
	ck_assert_ptr_eq(fake.last_context, zero);
	fake.fail = "cuMemAlloc_v2";
	fake.fail_with = CUDA_ERROR_OUT_OF_MEMORY;
	fake.fail_count = 1;
	ck_assert_int_eq(d->mem_alloc(d, &addr, 4096, 0), CLV_OUT_OF_MEMORY);
	ck_assert_int_eq(d->mem_alloc(d, &addr, 4096, 7), CLV_INVALID);
	finish();
}
END_TEST

/* ---- frames ---- */

START_TEST(frames_are_made_with_all_that_the_device_can)
{
	clv_handle h = 0;
	start();
	ck_assert_int_eq(d->create(d, &h, G, 1), CLV_OK);
	ck_assert_uint_eq(h, 0x77);
	ck_assert_int_eq(fake.prop.type, CU_MEM_ALLOCATION_TYPE_PINNED);
	ck_assert_int_eq(fake.prop.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
	ck_assert_int_eq(fake.prop.location.id, FAKE_FIRST_DEVICE + 1);
	ck_assert_int_eq(fake.prop.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	ck_assert_int_eq(fake.prop.allocFlags.gpuDirectRDMACapable, 1);
	ck_assert_int_eq(d->create(d, &h, G, FAKE_DEVICES), CLV_INVALID);
	finish();

	fake_reset();
	fake.attributes[CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED] = 0;
	d = open_fake(&(struct clv_cuda_config){.api = &fake_api, .not_exportable = true});
	ck_assert_int_eq(d->create(d, &h, G, 0), CLV_OK);
	ck_assert_int_eq(fake.prop.requestedHandleTypes, CU_MEM_HANDLE_TYPE_NONE);
	ck_assert_int_eq(fake.prop.allocFlags.gpuDirectRDMACapable, 0);
	finish();
}
END_TEST

START_TEST(what_the_device_refuses_is_tried_once)
{
	clv_handle h = 0;
	start();
	fake.refuse_rdma = true;
	/* a size that makes no sense settles nothing */
	ck_assert_int_eq(d->create(d, &h, G / 2, 0), CLV_INVALID);
	ck_assert_int_eq(d->create(d, &h, G, 0), CLV_OK);
	ck_assert_int_eq(fake.prop.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	ck_assert_int_eq(fake.prop.allocFlags.gpuDirectRDMACapable, 0);
	fake_forget_calls();
	ck_assert_int_eq(d->create(d, &h, G, 0), CLV_OK);
	ck_assert_uint_eq(fake_calls("cuMemCreate"), 1);
	ck_assert_int_eq(d->create(d, &h, G / 2, 0), CLV_INVALID);
	ck_assert_uint_eq(fake_calls("cuMemCreate"), 2);
	finish();

	start();
	fake.refuse_rdma = fake.refuse_export = true;
	ck_assert_int_eq(d->create(d, &h, G, 0), CLV_OK);
	ck_assert_int_eq(fake.prop.requestedHandleTypes, CU_MEM_HANDLE_TYPE_NONE);
	ck_assert_int_eq(fake.prop.allocFlags.gpuDirectRDMACapable, 0);
	finish();

	start();
	fake.refuse_export = true;
	ck_assert_int_eq(d->create(d, &h, G, 0), CLV_OK);
	ck_assert_int_eq(fake.prop.requestedHandleTypes, CU_MEM_HANDLE_TYPE_NONE);
	ck_assert_int_eq(fake.prop.allocFlags.gpuDirectRDMACapable, 1);
	finish();

	/* a full device is no refusal */
	start();
	fake.fail = "cuMemCreate";
	fake.fail_with = CUDA_ERROR_OUT_OF_MEMORY;
	fake.fail_count = 1;
	ck_assert_int_eq(d->create(d, &h, G, 0), CLV_OUT_OF_MEMORY);
	ck_assert_uint_eq(fake_calls("cuMemCreate"), 1);
	finish();
}
END_TEST

START_TEST(peers_get_access_in_the_call_that_gives_it)
{
	start();
	ck_assert_int_eq(d->set_access(d, 0x400000, G, 1), CLV_OK);
	ck_assert_uint_eq(fake.access_count, 1);
	ck_assert_int_eq(fake.access[0].location.id, FAKE_FIRST_DEVICE + 1);
	ck_assert(clv_cuda_peer(d, 1, 0));
	ck_assert(!clv_cuda_peer(d, 1, 0));
	ck_assert(clv_cuda_peer(d, 1, 2));
	ck_assert(!clv_cuda_peer(d, 1, 1));
	ck_assert(!clv_cuda_peer(d, 1, 5));
	ck_assert(!clv_cuda_peer(d, -1, 0));
	ck_assert(clv_cuda_is_peer(d, 1, 2));
	ck_assert(!clv_cuda_is_peer(d, 2, 1));
	fake_forget_calls();
	ck_assert_int_eq(d->set_access(d, 0x400000, G, 1), CLV_OK);
	ck_assert_uint_eq(fake_calls("cuMemSetAccess"), 1);
	ck_assert_uint_eq(fake.access_count, 3);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(fake.access[i].location.type, CU_MEM_LOCATION_TYPE_DEVICE);
		ck_assert_int_eq(fake.access[i].location.id, FAKE_FIRST_DEVICE + i);
		ck_assert_int_eq(fake.access[i].flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	}
	ck_assert_int_eq(d->set_access(d, 0x400000, G, 2), CLV_OK);
	ck_assert_uint_eq(fake.access_count, 1);
	finish();
}
END_TEST

START_TEST(frames_go_to_other_processes_and_come_from_them)
{
	CUresult why = CUDA_ERROR_UNKNOWN;
	clv_handle h = 0;
	start();
	int fd = clv_cuda_export(d, 0x77, &why);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(why, CUDA_SUCCESS);
	ck_assert_uint_eq(fake.last_addr, 0x77);
	ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	close(fd);
	fake.fail = "cuMemExportToShareableHandle";
	fake.fail_with = CUDA_ERROR_INVALID_VALUE;
	fake.fail_count = 1;
	ck_assert_int_eq(clv_cuda_export(d, 0x77, &why), -1);
	ck_assert_int_eq(why, CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(clv_cuda_import(d, 5, &h), CLV_OK);
	ck_assert_uint_eq(h, 1005);
	finish();
}
END_TEST

START_TEST(answers_of_the_driver_are_told_apart)
{
	static const struct {
		int answer;
		enum clv_result result;
	} expected[] = {
		{0, CLV_OK},          {1, CLV_INVALID},         {2, CLV_OUT_OF_MEMORY},   {3, CLV_FAILED},
		{4, CLV_GONE},        {101, CLV_INVALID},       {201, CLV_GONE},          {205, CLV_FAILED},
		{400, CLV_INVALID},   {600, CLV_NOT_READY},     {700, CLV_FAILED},        {709, CLV_GONE},
		{719, CLV_FAILED},    {800, CLV_NOT_SUPPORTED}, {801, CLV_NOT_SUPPORTED}, {900, CLV_CAPTURING},
		{901, CLV_CAPTURING}, {902, CLV_CAPTURING},     {903, CLV_CAPTURING},     {904, CLV_CAPTURING},
		{905, CLV_CAPTURING}, {906, CLV_CAPTURING},     {907, CLV_CAPTURING},     {908, CLV_CAPTURING},
		{909, CLV_FAILED},    {999, CLV_FAILED},
	};
	start();
	fake.fail = "cuMemUnmap";
	for (size_t i = 0; i < CLV_ARRAY_LEN(expected); i++) {
		fake.fail_with = (CUresult)expected[i].answer;
		fake.fail_count = 1;
		ck_assert_msg(d->unmap(d, 0x400000, G) == expected[i].result, "%d", expected[i].answer);
	}
	finish();
}
END_TEST

/* ---- captures ---- */

/* Calls everything that a stream may not capture for, and that needs no stream. */
static void every_call(void)
{
	uint64_t addr = 0, free_bytes, total;
	clv_handle h = 0;
	clv_event e = 0;
	ck_assert_int_eq(d->mem_get_info(d, 0, &free_bytes, &total), CLV_OK);
	ck_assert_int_eq(d->address_reserve(d, &addr, 4 * G, G), CLV_OK);
	ck_assert_int_eq(d->create(d, &h, G, 0), CLV_OK);
	ck_assert_int_eq(d->map(d, addr, G, 0, h), CLV_OK);
	ck_assert_int_eq(d->set_access(d, addr, G, 0), CLV_OK);
	ck_assert_int_eq(d->unmap(d, addr, G), CLV_OK);
	ck_assert_int_eq(d->release(d, h), CLV_OK);
	ck_assert_int_eq(d->address_free(d, addr, 4 * G), CLV_OK);
	ck_assert_int_eq(d->mem_alloc(d, &addr, 512, 0), CLV_OK);
	ck_assert_int_eq(d->mem_free(d, addr), CLV_OK);
	ck_assert_int_eq(d->event_create(d, &e, 0), CLV_OK);
	ck_assert_int_eq(d->event_destroy(d, e), CLV_OK);
}

START_TEST(without_a_capture_the_mode_is_left_alone)
{
	start();
	fake_set_current(fake_context(0, 0));
	every_call();
	ck_assert_uint_eq(fake_calls("cuThreadExchangeStreamCaptureMode"), 0);
	ck_assert_uint_eq(clv_cuda_captures(d), 0);
	finish();
}
END_TEST

START_TEST(a_capture_is_not_disturbed)
{
	start();
	CUcontext zero = fake_context(0, 0);
	fake_set_current(zero);
	CUstream work = fake_stream(0, 1, zero), captured = fake_stream(1, 2, zero);
	struct clv_cuda_stream w, c, legacy;
	ck_assert_int_eq(clv_cuda_stream(d, work, false, &w), CUDA_SUCCESS);
	ck_assert_int_eq(clv_cuda_stream(d, captured, false, &c), CUDA_SUCCESS);
	ck_assert_int_eq(clv_cuda_stream(d, NULL, false, &legacy), CUDA_SUCCESS);
	clv_event before, on_work = 0;
	ck_assert_int_eq(d->event_create(d, &before, 0), CLV_OK);
	ck_assert_int_eq(d->event_create(d, &on_work, 0), CLV_OK);
	ck_assert_int_eq(d->event_record(d, before, w.stream), CLV_OK);

	captured->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	clv_cuda_captures_add(d, 1);
	ck_assert_uint_eq(clv_cuda_captures(d), 1);
	fake_forget_calls();
	every_call();
	ck_assert_uint_gt(fake_calls("cuThreadExchangeStreamCaptureMode"), 0);
	/* what was recorded before can be asked about and waited for */
	ck_assert_int_eq(d->event_query(d, before), CLV_NOT_READY);
	ck_assert_int_eq(d->event_synchronize(d, before), CLV_OK);
	ck_assert_int_eq(d->event_query(d, before), CLV_OK);
	/* a stream that does not capture is used as ever */
	ck_assert_int_eq(d->event_record(d, on_work, w.stream), CLV_OK);
	ck_assert_int_eq(d->stream_wait_event(d, w.stream, before), CLV_OK);
	ck_assert_int_eq(d->stream_synchronize(d, w.stream), CLV_OK);
	/* one that does, and the legacy stream beside it, are not */
	fake_forget_calls();
	const cleave_stream closed[] = {c.stream, legacy.stream};
	for (size_t i = 0; i < CLV_ARRAY_LEN(closed); i++) {
		ck_assert_int_eq(d->event_record(d, on_work, closed[i]), CLV_CAPTURING);
		ck_assert_int_eq(d->stream_wait_event(d, closed[i], on_work), CLV_CAPTURING);
		ck_assert_int_eq(d->stream_synchronize(d, closed[i]), CLV_CAPTURING);
	}
	captured->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
	ck_assert_int_eq(d->event_record(d, on_work, c.stream), CLV_CAPTURING);
	ck_assert_uint_eq(
		fake_calls("cuEventRecord") + fake_calls("cuStreamWaitEvent") + fake_calls("cuStreamSynchronize"), 0);
	ck_assert_int_eq(clv_cuda_synchronize(d, 0, zero), CLV_CAPTURING);
	ck_assert_int_eq(clv_cuda_synchronize(d, 0, NULL), CLV_CAPTURING);
	ck_assert_uint_eq(fake_calls("cuCtxSynchronize"), 0);

	captured->status = CU_STREAM_CAPTURE_STATUS_NONE;
	clv_cuda_captures_add(d, -1);
	ck_assert_int_eq(d->event_record(d, on_work, c.stream), CLV_OK);
	ck_assert_int_eq(d->event_destroy(d, on_work), CLV_OK);
	ck_assert_int_eq(d->event_destroy(d, before), CLV_OK);
	finish();
}
END_TEST

START_TEST(contexts_are_waited_for)
{
	start();
	struct clv_cuda_stream s;
	ck_assert_int_eq(clv_cuda_synchronize(d, 0, NULL), CLV_FAILED);
	CUcontext a = fake_context(0, 0), b = fake_context(1, 0), other = fake_context(2, 1);
	clv_cuda_stream(d, fake_stream(0, 1, a), false, &s);
	clv_cuda_stream(d, fake_stream(1, 2, b), false, &s);
	clv_cuda_stream(d, fake_stream(2, 3, other), false, &s);
	ck_assert_int_eq(clv_cuda_synchronize(d, 0, a), CLV_OK);
	ck_assert_ptr_eq(fake.last_context, a);
	ck_assert_uint_eq(fake_calls("cuCtxSynchronize"), 1);
	ck_assert_int_eq(clv_cuda_synchronize(d, 0, NULL), CLV_OK);
	ck_assert_uint_eq(fake_calls("cuCtxSynchronize"), 3);
	fake.fail = "cuCtxSynchronize";
	fake.fail_with = CUDA_ERROR_LAUNCH_FAILED;
	fake.fail_count = 1;
	ck_assert_int_eq(clv_cuda_synchronize(d, 0, NULL), CLV_FAILED);
	ck_assert_int_eq(clv_cuda_synchronize(d, 9, NULL), CLV_INVALID);
	fake.primary_active[2] = true;
	ck_assert_int_eq(clv_cuda_synchronize(d, 2, NULL), CLV_OK);
	ck_assert_ptr_eq(fake.last_context, &fake.primary[2]);
	finish();
}
END_TEST

START_TEST(calls_are_counted_and_timed)
{
	struct clv_call_counts counts;
	uint64_t addr = 0;
	clv_event e;
	start();
	d->counts(d, &counts);
	ck_assert_uint_eq(counts.ns, 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(d->address_reserve(d, &addr, G, G), CLV_OK);
	ck_assert_int_eq(d->event_create(d, &e, 0), CLV_OK); /* no call of the driver yet */
	ck_assert_int_eq(d->event_destroy(d, e), CLV_OK);
	d->counts(d, &counts);
	for (int i = 0; i < CLV_CALL_COUNT; i++)
		ck_assert_uint_eq(counts.calls[i], i == CLV_CALL_address_reserve ? 3 : 0);
	ck_assert_uint_gt(counts.ns, 0);
	ck_assert_uint_le(counts.ns, d->now_ns(d));
	finish();
}
END_TEST

CHECK_MAIN("cuda", functions_are_looked_up_by_their_exported_names, a_missing_function_is_named,
	   a_driver_that_cannot_be_used_is_refused_with_the_reason, host_memory_may_be_out,
	   without_an_api_libcuda_is_opened, devices_are_described, a_call_runs_in_a_context_of_its_device,
	   plain_allocations_are_made_on_their_device, frames_are_made_with_all_that_the_device_can,
	   what_the_device_refuses_is_tried_once, peers_get_access_in_the_call_that_gives_it,
	   frames_go_to_other_processes_and_come_from_them, answers_of_the_driver_are_told_apart,
	   without_a_capture_the_mode_is_left_alone, a_capture_is_not_disturbed, contexts_are_waited_for,
	   calls_are_counted_and_timed)
