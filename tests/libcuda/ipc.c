/* SPDX-License-Identifier: MIT
 *
 * Plain memory between processes: a handle names the exporter's file of bytes, which the other opens through /proc.
 */
#define _GNU_SOURCE
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC 0x66616b65u

struct key {
	uint32_t magic;
	int pid, file, device;
	uint64_t file_offset, file_size; /* of the range that the allocation is in */
	uint64_t offset, size;           /* of it in there */
};

FC_CALL(cuIpcGetMemHandle, FC_CONTEXT, (CUipcMemHandle * pHandle, CUdeviceptr dptr), (pHandle, dptr))
{
	const struct fc_block *b = fc_block_at(dptr);
	struct clv_sim_place place;
	if (!pHandle || !b || b->kind != FC_PLAIN || !clv_sim_find(fc.sim, b->addr, &place))
		return CUDA_ERROR_INVALID_VALUE;
	struct key key = {.magic = MAGIC,
			  .pid = getpid(),
			  .file = place.file,
			  .device = b->device,
			  .file_offset = place.file_offset,
			  .file_size = place.range_size,
			  .offset = b->addr - place.range,
			  .size = b->size};
	_Static_assert(sizeof(key) <= sizeof(*pHandle), "a key fits into a handle");
	memset(pHandle, 0, sizeof(*pHandle));
	memcpy(pHandle, &key, sizeof(key));
	return CUDA_SUCCESS;
}

static CUresult map_key(const struct key *key, struct fc_block *b)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", key->pid, key->file);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_MAP_FAILED;
	enum clv_result r = clv_sim_import(fc.sim, &b->handle, fd, key->file_offset, key->file_size, key->device);
	close(fd);
	if (r)
		return CUDA_ERROR_MAP_FAILED;
	b->mapped_size = key->file_size;
	r = fc.sim->address_reserve(fc.sim, &b->mapped, b->mapped_size, 0);
	if (r) {
		fc.sim->release(fc.sim, b->handle);
		return CUDA_ERROR_MAP_FAILED;
	}
	r = fc.sim->map(fc.sim, b->mapped, b->mapped_size, 0, b->handle);
	r = r ? r : fc.sim->set_access(fc.sim, b->mapped, b->mapped_size, b->context->device);
	return fc_result(r);
}

static CUresult open_key(CUdeviceptr *out, const CUipcMemHandle *handle, unsigned flags)
{
	struct key key;
	memcpy(&key, handle, sizeof(key));
	if (!out || flags > 1 || key.magic != MAGIC)
		return CUDA_ERROR_INVALID_VALUE;
	if (key.pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (key.device >= fc.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	size_t i = 0;
	for (struct fc_block *b; (b = fc_block_each(&i));)
		if (b->kind == FC_IPC && b->context == fc_current() && !memcmp(b->key, &key, sizeof(key))) {
			b->refs++;
			*out = b->addr;
			return CUDA_SUCCESS;
		}
	struct fc_block *b = fc_alloc(sizeof(*b));
	b->kind = FC_IPC;
	b->context = fc_current();
	b->device = key.device;
	b->refs = 1;
	memcpy(b->key, &key, sizeof(key));
	CUresult r = map_key(&key, b);
	if (r) {
		free(b);
		return r;
	}
	b->addr = b->mapped + key.offset;
	b->size = key.size;
	fc_block_add(b);
	*out = b->addr;
	return CUDA_SUCCESS;
}

FC_CALL(cuIpcOpenMemHandle_v2, FC_CONTEXT, (CUdeviceptr * pdptr, CUipcMemHandle handle, unsigned int Flags),
	(pdptr, handle, Flags))
{
	return open_key(pdptr, &handle, Flags);
}

FC_CALL(cuIpcOpenMemHandle, FC_CONTEXT, (CUdeviceptr * pdptr, CUipcMemHandle handle, unsigned int Flags),
	(pdptr, handle, Flags))
{
	return open_key(pdptr, &handle, Flags);
}

void fc_ipc_close(struct fc_block *b)
{
	fc_memory_lock();
	fc.sim->unmap(fc.sim, b->mapped, b->mapped_size);
	fc.sim->release(fc.sim, b->handle);
	fc.sim->address_free(fc.sim, b->mapped, b->mapped_size);
	fc_memory_unlock();
	fc_block_remove(b);
}

FC_CALL(cuIpcCloseMemHandle, FC_CONTEXT, (CUdeviceptr dptr), (dptr))
{
	struct fc_block *b = fc_block_at(dptr);
	if (!b || b->kind != FC_IPC || b->addr != dptr)
		return CUDA_ERROR_INVALID_VALUE;
	if (b->refs > 1) {
		b->refs--;
		return CUDA_SUCCESS;
	}
	fc_wait_device(fc_current()->device);
	b = fc_block_at(dptr);
	if (!b || b->kind != FC_IPC)
		return CUDA_ERROR_INVALID_VALUE;
	if (!--b->refs)
		fc_ipc_close(b);
	return CUDA_SUCCESS;
}
