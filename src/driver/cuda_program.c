/* SPDX-License-Identifier: MIT */
#include "cuda_program.h"

#include "../host/meta.h"

const char *clv_cuda_program_text(const struct clv_cuda_program *p, CUresult r)
{
	const char *text = NULL;
	if (!p->api->cuGetErrorString || p->api->cuGetErrorString(r, &text) != CUDA_SUCCESS || !text)
		return "unknown error";
	return text;
}

static bool failed(const struct clv_cuda_program *p, const char *what, CUresult r, struct clv_error *err)
{
	return clv_error_set(err, "%s: %s (error %d of the driver)", what, clv_cuda_program_text(p, r), (int)r);
}

bool clv_cuda_program_open(struct clv_cuda_program *p, const struct clv_cuda_api *api, int devices,
			   struct clv_error *err)
{
	*p = (struct clv_cuda_program){
		.driver = clv_cuda_open(&(struct clv_cuda_config){.api = api, .any_version = true}, err)};
	if (!p->driver)
		return false;
	p->api = clv_cuda_api_of(p->driver);
	if (devices > p->driver->devices)
		devices = p->driver->devices;
	p->contexts = clv_meta_zalloc((size_t)devices * sizeof(*p->contexts));
	CUresult r = CUDA_SUCCESS;
	bool ok = p->contexts || clv_error_set(err, "out of host memory");
	for (; ok && p->devices < devices; p->devices++) {
		CUdevice device;
		r = p->api->cuDeviceGet(&device, p->devices);
		if (r == CUDA_SUCCESS)
			r = p->api->cuDevicePrimaryCtxRetain(&p->contexts[p->devices], device);
		ok = r == CUDA_SUCCESS || failed(p, "the device gives no context", r, err);
		if (!ok)
			break;
	}
	if (ok) {
		r = p->api->cuCtxPushCurrent_v2(p->contexts[0]);
		ok = r == CUDA_SUCCESS || failed(p, "the context cannot be used", r, err);
		if (ok)
			return true;
	}
	clv_cuda_program_close(p);
	return false;
}

void clv_cuda_program_close(struct clv_cuda_program *p)
{
	CUcontext current = NULL;
	if (!p->driver)
		return;
	if (p->devices && p->api->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == p->contexts[0])
		p->api->cuCtxPopCurrent_v2(&current);
	for (int d = 0; d < p->devices; d++) {
		CUdevice device;
		clv_cuda_context_forget(p->driver, p->contexts[d]);
		if (p->api->cuDeviceGet(&device, d) == CUDA_SUCCESS)
			p->api->cuDevicePrimaryCtxRelease_v2(device);
	}
	clv_meta_free(p->contexts);
	p->driver->close(p->driver);
	*p = (struct clv_cuda_program){0};
}

bool clv_cuda_program_stream(struct clv_cuda_program *p, int device, cleave_stream *out, struct clv_error *err)
{
	CUcontext popped;
	CUstream stream = NULL;
	struct clv_cuda_stream known;
	if (!p->api->cuStreamCreate || !p->api->cuStreamDestroy_v2)
		return clv_error_set(err, "the driver has no cuStreamCreate");
	CUresult r = p->api->cuCtxPushCurrent_v2(p->contexts[device]);
	if (r != CUDA_SUCCESS)
		return failed(p, "the context cannot be used", r, err);
	r = p->api->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
	if (r == CUDA_SUCCESS) {
		r = clv_cuda_stream(p->driver, stream, false, &known);
		if (r != CUDA_SUCCESS)
			p->api->cuStreamDestroy_v2(stream);
	}
	p->api->cuCtxPopCurrent_v2(&popped);
	if (r != CUDA_SUCCESS)
		return failed(p, "a stream cannot be made", r, err);
	*out = known.stream;
	return true;
}

void clv_cuda_program_stream_end(struct clv_cuda_program *p, cleave_stream stream)
{
	clv_cuda_stream_forget(p->driver, stream.id);
	p->api->cuStreamDestroy_v2((CUstream)(uintptr_t)stream.handle);
}
