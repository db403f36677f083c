/* SPDX-License-Identifier: MIT
 *
 * What an address is: the real driver's answers for plain, pool, host and mapped memory.
 */
#include "fake.h"

/* Memory type codes of pointer attributes. */
enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2 };

struct fact {
	const struct fc_block *block; /* NULL: a mapping of frames */
	struct clv_sim_place place;
	uint64_t base, size;        /* what cuMemGetAddressRange says */
	uint64_t range, range_size; /* what the RANGE_* attributes say */
	uint64_t mapping;           /* MAPPING_SIZE */
	bool host;
	int device;
};

static bool look(uint64_t addr, struct fact *out)
{
	*out = (struct fact){.block = fc_block_at(addr)};
	const struct fc_block *b = out->block;
	if (b) {
		out->base = out->range = b->addr;
		out->size = out->range_size = b->size;
		out->mapping = b->kind == FC_POOL || b->kind == FC_GRAPH ? fc_pool_chunk(b)
									 : clv_align_up(b->size, 2 * CLV_MIB);
		out->host = b->kind == FC_HOST || b->kind == FC_REGISTERED;
		out->device = b->device;
		return !b->dead;
	}
	if (!clv_sim_find(fc.sim, addr, &out->place) || out->place.plain || !out->place.size)
		return false;
	/* a pool's chunk where nothing is allocated is nothing */
	if (fc_pool_has(addr))
		return false;
	out->base = out->place.addr;
	out->size = out->mapping = out->place.size;
	out->range = out->place.range;
	out->range_size = out->place.range_size;
	out->device = out->place.device;
	return true;
}

FC_CALL(cuMemGetAddressRange_v2, FC_CONTEXT, (CUdeviceptr * pbase, size_t *psize, CUdeviceptr dptr),
	(pbase, psize, dptr))
{
	struct fact f;
	if (!look(dptr, &f))
		return CUDA_ERROR_NOT_FOUND;
	if (pbase)
		*pbase = f.base;
	if (psize)
		*psize = f.size;
	return CUDA_SUCCESS;
}

/* Whether work of the current context may touch it. */
static bool reachable(uint64_t addr)
{
	const struct fc_context *c = fc_current();
	return c && fc_bytes(c, addr, 1);
}

/* The attribute of an address, or of one that is nothing (f NULL), for which most have an answer as well. */
static CUresult answer(void *data, CUpointer_attribute a, uint64_t addr, const struct fact *f)
{
	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	const struct fc_block *b = f ? f->block : NULL;
	switch (a) {
	case CU_POINTER_ATTRIBUTE_CONTEXT: {
		/* what belongs to none: frames, and memory of pools */
		*(CUcontext *)data = b && b->context ? b->context->handle : NULL;
		break;
	}
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = !f ? 0 : f->host ? MEMORY_HOST : MEMORY_DEVICE;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = f ? addr : 0;
		return f && !f->block && !reachable(addr) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(void **)data = f && (f->host || (b && b->kind == FC_MANAGED)) ? (void *)(uintptr_t)addr : NULL;
		return f && !*(void **)data ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(int *)data = b && b->sync_memops;
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)data = b ? b->id : f ? f->place.handle : 0;
		break;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(int *)data = b && b->kind == FC_MANAGED;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = f ? f->device : -2;
		break;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(int *)data = b && b->kind == FC_PLAIN;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = f ? f->range : 0;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = f ? f->range_size : 0;
		break;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(int *)data = f != NULL;
		break;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(uint64_t *)data = f && !b ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
		break;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		*(int *)data = b ? b->kind == FC_PLAIN : f && fc_frame_rdma(f->place.handle);
		break;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*(CUmemAccess_flags *)data =
			f && reachable(addr) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)data = b && b->kind == FC_POOL ? fc_pool_handle(b->pool) : NULL;
		break;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*(size_t *)data = f ? f->mapping : 0;
		break;
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*(CUdeviceptr *)data = f ? f->base : 0;
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		*(unsigned long long *)data = b ? b->id : f ? f->place.handle : 0;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

FC_CALL(cuPointerGetAttribute, FC_INIT, (void *data, CUpointer_attribute attribute, CUdeviceptr ptr),
	(data, attribute, ptr))
{
	struct fact f;
	return look(ptr, &f) ? answer(data, attribute, ptr, &f) : CUDA_ERROR_INVALID_VALUE;
}

FC_CALL(cuPointerGetAttributes, FC_INIT,
	(unsigned int numAttributes, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr),
	(numAttributes, attributes, data, ptr))
{
	struct fact f;
	if (!attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	bool known = look(ptr, &f);
	for (unsigned i = 0; i < numAttributes; i++) {
		/* one that has no answer for this memory is given none; one that does not exist is an error */
		if ((int)attributes[i] < 1 || (int)attributes[i] > CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID || !data[i])
			return CUDA_ERROR_INVALID_VALUE;
		(void)answer(data[i], attributes[i], ptr, known ? &f : NULL);
	}
	return CUDA_SUCCESS;
}
