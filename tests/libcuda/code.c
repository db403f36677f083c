/* SPDX-License-Identifier: MIT
 *
 * Modules and kernels. Any image loads; its kernels are those that the double knows by name:
 *   noop()  fill32(CUdeviceptr to, unsigned value, size_t words)  sleep(unsigned microseconds)
 *   differ32(CUdeviceptr at, unsigned value, size_t words, CUdeviceptr count): adds the words that are not `value`
 */
#include "fake.h"

#include <string.h>
#include <time.h>

enum kernel { NOOP, FILL32, SLEEP, DIFFER32, KERNELS };

static const struct {
	const char *name;
	unsigned params;
	unsigned size[4];
} kernels[KERNELS] = {
	[NOOP] = {"noop", 0, {0}},
	[FILL32] = {"fill32", 3, {8, 4, 8}},
	[SLEEP] = {"sleep", 1, {4}},
	[DIFFER32] = {"differ32", 4, {8, 4, 8, 8}},
};

static char image; /* what handles of modules and libraries stand for */
static void *module_handle, *kernel_handle[KERNELS];

static CUresult load(void *out, const void *from)
{
	if (!out || !from)
		return CUDA_ERROR_INVALID_VALUE;
	if (!module_handle)
		module_handle = fc_handle_new(FC_HANDLE_CODE, &image);
	memcpy(out, &module_handle, sizeof(module_handle));
	return CUDA_SUCCESS;
}

static CUresult kernel_named(void *out, const void *module, const char *name)
{
	if (!out || !name)
		return CUDA_ERROR_INVALID_VALUE;
	if (fc_handle_get(FC_HANDLE_CODE, module) != &image)
		return CUDA_ERROR_INVALID_HANDLE;
	for (int k = 0; k < KERNELS; k++)
		if (!strcmp(kernels[k].name, name)) {
			if (!kernel_handle[k])
				kernel_handle[k] = fc_handle_new(FC_HANDLE_CODE, (void *)&kernels[k]);
			memcpy(out, &kernel_handle[k], sizeof(void *));
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_NOT_FOUND;
}

FC_CALL(cuModuleLoad, FC_CONTEXT, (CUmodule * module, const char *fname), (module, fname))
{
	return load(module, fname);
}

FC_CALL(cuModuleLoadData, FC_CONTEXT, (CUmodule * module, const void *image_), (module, image_))
{
	return load(module, image_);
}

FC_CALL(cuModuleLoadDataEx, FC_CONTEXT,
	(CUmodule * module, const void *image_, unsigned int numOptions, CUjit_option *options, void **optionValues),
	(module, image_, numOptions, options, optionValues))
{
	return load(module, image_);
}

FC_CALL(cuModuleLoadFatBinary, FC_CONTEXT, (CUmodule * module, const void *fatCubin), (module, fatCubin))
{
	return load(module, fatCubin);
}

static CUresult unload(const void *module)
{
	return fc_handle_get(FC_HANDLE_CODE, module) == &image ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

FC_CALL(cuModuleUnload, FC_CONTEXT, (CUmodule hmod), (hmod))
{
	return unload(hmod);
}

FC_CALL(cuLibraryUnload, FC_INIT, (CUlibrary library), (library))
{
	return unload(library);
}

FC_CALL(cuModuleGetFunction, FC_CONTEXT, (CUfunction * hfunc, CUmodule hmod, const char *name), (hfunc, hmod, name))
{
	return kernel_named(hfunc, hmod, name);
}

FC_CALL(cuLibraryLoadData, FC_INIT,
	(CUlibrary * library, const void *code, CUjit_option *jitOptions, void **jitOptionsValues,
	 unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
	 unsigned int numLibraryOptions),
	(library, code, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues,
	 numLibraryOptions))
{
	return load(library, code);
}

FC_CALL(cuLibraryLoadFromFile, FC_INIT,
	(CUlibrary * library, const char *fileName, CUjit_option *jitOptions, void **jitOptionsValues,
	 unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
	 unsigned int numLibraryOptions),
	(library, fileName, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues,
	 numLibraryOptions))
{
	return load(library, fileName);
}

FC_CALL(cuLibraryGetModule, FC_CONTEXT, (CUmodule * pMod, CUlibrary library), (pMod, library))
{
	return fc_handle_get(FC_HANDLE_CODE, library) == &image ? load(pMod, library) : CUDA_ERROR_INVALID_HANDLE;
}

FC_CALL(cuLibraryGetKernel, FC_INIT, (CUkernel * pKernel, CUlibrary library, const char *name),
	(pKernel, library, name))
{
	return kernel_named(pKernel, library, name);
}

static int kernel_of(const void *handle)
{
	const char *k = fc_handle_get(FC_HANDLE_CODE, handle);
	return k && k != &image ? (int)((k - (const char *)kernels) / (ptrdiff_t)sizeof(kernels[0])) : -1;
}

FC_CALL(cuKernelGetFunction, FC_CONTEXT, (CUfunction * pFunc, CUkernel kernel), (pFunc, kernel))
{
	if (!pFunc)
		return CUDA_ERROR_INVALID_VALUE;
	if (kernel_of(kernel) < 0)
		return CUDA_ERROR_INVALID_HANDLE;
	*pFunc = (CUfunction)(void *)kernel;
	return CUDA_SUCCESS;
}

FC_CALL(cuFuncLoad, FC_CONTEXT, (CUfunction function), (function))
{
	return kernel_of(function) < 0 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult fc_kernel(CUfunction f, void **params, struct fc_op *op)
{
	int k = kernel_of(f);
	if (k < 0)
		return CUDA_ERROR_INVALID_HANDLE;
	if (kernels[k].params && !params)
		return CUDA_ERROR_INVALID_VALUE;
	*op = (struct fc_op){.kind = FC_OP_KERNEL, .value = (uint32_t)k};
	for (unsigned i = 0; i < kernels[k].params; i++)
		memcpy(&op->params[i], params[i], kernels[k].size[i]);
	return CUDA_SUCCESS;
}

static void fault(struct fc_context *context, uint64_t addr)
{
	context->fault = FC_ILLEGAL_ADDRESS;
	fc.faults++;
	fc_log("fault", "kernel %llx", (unsigned long long)addr);
}

static void differ(const uint8_t *at, uint32_t value, uint64_t words, uint8_t *count)
{
	uint32_t found, n = 0;
	for (uint64_t i = 0; i < words; i++) {
		memcpy(&found, at + 4 * i, 4);
		n += found != value;
	}
	memcpy(&found, count, 4);
	n += found;
	memcpy(count, &n, 4);
}

void fc_kernel_run(struct fc_context *context, const struct fc_op *op)
{
	const uint64_t *p = op->params;
	if (op->value == FILL32) {
		const struct fc_op set = {
			.kind = FC_OP_SET, .to = p[0], .value = (uint32_t)p[1], .width = 4, .bytes = p[2] * 4};
		fc_op_run(context, &set);
	} else if (op->value == SLEEP) {
		struct timespec t = {.tv_sec = (time_t)(p[0] / 1000000), .tv_nsec = (long)(p[0] % 1000000) * 1000};
		while (nanosleep(&t, &t))
			;
	} else if (op->value == DIFFER32) {
		pthread_mutex_lock(&fc.lock);
		const uint8_t *at = p[2] ? fc_bytes(context, p[0], p[2] * 4) : &(const uint8_t){0};
		uint8_t *count = fc_bytes(context, p[3], 4);
		if (!at || !count) {
			fault(context, at ? p[3] : p[0]);
			pthread_mutex_unlock(&fc.lock);
			return;
		}
		pthread_rwlock_rdlock(&fc.memory);
		pthread_mutex_unlock(&fc.lock);
		differ(at, (uint32_t)p[1], p[2], count);
		pthread_rwlock_unlock(&fc.memory);
	}
}

static CUresult launch(CUfunction f, CUstream stream, bool per_thread, void **params)
{
	struct fc_queue *q;
	struct fc_op op;
	CUresult r = fc_kernel(f, params, &op);
	r = r ? r : fc_queue_of(stream, per_thread, &q);
	return r ? r : fc_submit(q, &op);
}

FC_STREAM_CALL(cuLaunchKernel, FC_STREAM,
	       (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
		unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes,
		CUstream hStream, void **kernelParams, void **extra),
	       (f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams,
		extra))
{
	if (!gridDimX || !gridDimY || !gridDimZ || !blockDimX || !blockDimY || !blockDimZ || extra)
		return CUDA_ERROR_INVALID_VALUE;
	return launch(f, hStream, per_thread, kernelParams);
}

/* The beginning of CUlaunchConfig. */
struct launch_config {
	unsigned grid[3], block[3], shared_bytes;
	CUstream stream;
};

FC_STREAM_CALL(cuLaunchKernelEx, FC_STREAM,
	       (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra),
	       (config, f, kernelParams, extra))
{
	const struct launch_config *c = (const struct launch_config *)(const void *)config;
	return c && !extra ? launch(f, c->stream, per_thread, kernelParams) : CUDA_ERROR_INVALID_VALUE;
}

FC_STREAM_CALL(cuLaunchCooperativeKernel, FC_STREAM,
	       (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
		unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes,
		CUstream hStream, void **kernelParams),
	       (f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,
		kernelParams))
{
	return launch(f, hStream, per_thread, kernelParams);
}
