/* SPDX-License-Identifier: MIT
 *
 * Work on bytes: what a piece of work does when its turn comes, and the calls that submit fills and copies. Addresses
 * are looked up when they are touched, so that work on memory that has gone meanwhile is found out.
 */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

void fc_memory_lock(void)
{
	pthread_rwlock_wrlock(&fc.memory);
}

void fc_memory_unlock(void)
{
	pthread_rwlock_unlock(&fc.memory);
}

/* Whether each mapping of a range can be touched by the device. */
static bool mapped_for(int device, uint64_t addr, uint64_t size)
{
	for (uint64_t at = addr; at - addr < size;) {
		struct clv_sim_place place;
		if (!clv_sim_find(fc.sim, at, &place) || !place.size || !(place.access >> device & 1))
			return false;
		at = place.addr + place.size;
	}
	return true;
}

uint8_t *fc_bytes(const struct fc_context *context, uint64_t addr, uint64_t size)
{
	const struct fc_block *b = fc_block_at(addr);
	/* stream-ordered memory may be another block's by now, and is still right to be touched by work from before that */
	bool ordered = b && (b->kind == FC_POOL || b->kind == FC_GRAPH);
	if (b && !ordered && size > b->size - (addr - b->addr))
		return NULL;
	if (b && (b->kind == FC_HOST || b->kind == FC_REGISTERED || b->kind == FC_MANAGED))
		return (uint8_t *)(uintptr_t)addr;
	if (b && b->kind == FC_PLAIN) {
		if (b->device != context->device && !(context->peers >> b->device & 1))
			return NULL;
	} else {
		struct clv_sim_place place;
		if (!clv_sim_find(fc.sim, addr, &place) || place.plain || !mapped_for(context->device, addr, size))
			return NULL;
	}
	return clv_sim_bytes(fc.sim, addr, size, NULL);
}

static uint8_t *bytes_of(const struct fc_context *context, uint64_t addr, uint64_t size, bool host)
{
	return host ? (uint8_t *)(uintptr_t)addr : fc_bytes(context, addr, size);
}

/* When the program asks, it means a block that is live, and all bytes in it. */
static bool in_block(uint64_t addr, uint64_t size, bool host)
{
	const struct fc_block *b = host ? NULL : fc_block_at(addr);
	return !b || size <= b->size - (addr - b->addr);
}

CUresult fc_op_check(const struct fc_context *context, const struct fc_op *op)
{
	if (op->kind != FC_OP_SET && op->kind != FC_OP_COPY)
		return CUDA_SUCCESS;
	if (!in_block(op->to, op->bytes, op->to_host) ||
	    (op->kind == FC_OP_COPY && !in_block(op->from, op->bytes, op->from_host)))
		return CUDA_ERROR_INVALID_VALUE;
	if (op->bytes && !bytes_of(context, op->to, op->bytes, op->to_host))
		return CUDA_ERROR_INVALID_VALUE;
	if (op->kind == FC_OP_COPY && op->bytes && !bytes_of(context, op->from, op->bytes, op->from_host))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static void fill(uint8_t *to, const struct fc_op *op)
{
	if (op->width == 1)
		memset(to, (int)op->value, op->bytes);
	else
		for (uint64_t i = 0; i + 4 <= op->bytes; i += 4)
			memcpy(to + i, &op->value, 4);
}

static void touch(struct fc_context *context, const struct fc_op *op)
{
	pthread_mutex_lock(&fc.lock);
	uint8_t *to = bytes_of(context, op->to, op->bytes, op->to_host), *from = NULL;
	if (op->kind == FC_OP_COPY)
		from = op->staged ? op->staged : bytes_of(context, op->from, op->bytes, op->from_host);
	if (!to || (op->kind == FC_OP_COPY && !from)) {
		context->fault = FC_ILLEGAL_ADDRESS;
		fc.faults++;
		fc_log("fault", "%llx %llx %llu", (unsigned long long)op->to, (unsigned long long)op->from,
		       (unsigned long long)op->bytes);
		pthread_mutex_unlock(&fc.lock);
		return;
	}
	pthread_rwlock_rdlock(&fc.memory);
	pthread_mutex_unlock(&fc.lock);
	if (op->kind == FC_OP_COPY)
		memmove(to, from, op->bytes);
	else
		fill(to, op);
	pthread_rwlock_unlock(&fc.memory);
}

void fc_op_run(struct fc_context *context, const struct fc_op *op)
{
	switch (op->kind) {
	case FC_OP_SET:
	case FC_OP_COPY:
		if (op->bytes)
			touch(context, op);
		break;
	case FC_OP_HOST:
		op->fn(op->arg);
		break;
	case FC_OP_KERNEL:
		fc_kernel_run(context, op);
		break;
	case FC_OP_BODY:
		fc_body_run(context, op->body);
		break;
	default:
		break;
	}
}

void fc_op_drop(struct fc_op *op)
{
	free(op->staged);
	op->staged = NULL;
	if (op->body)
		fc_body_unref(op->body);
	op->body = NULL;
}

/* Calls. */

static CUresult submit(CUstream stream, bool per_thread, struct fc_op *op, struct fc_queue **queue)
{
	struct fc_queue *q;
	CUresult r = fc_queue_of(stream, per_thread, &q);
	r = r ? r : fc_op_check(q->context, op);
	if (r)
		return r;
	/* Memory that is not pinned is read before the call returns. */
	if (op->kind == FC_OP_COPY && op->from_host && op->bytes && !q->capture && !fc_is_host(op->from, op->bytes)) {
		op->staged = malloc(op->bytes);
		if (!op->staged)
			return CUDA_ERROR_OUT_OF_MEMORY;
		memcpy(op->staged, (void *)(uintptr_t)op->from, op->bytes);
	}
	if (queue)
		*queue = q;
	return fc_submit(q, op);
}

/* Calls on a default stream, of the context or (their twins) of the thread: copies to and from the host are waited for. */

static CUresult synchronous(bool per_thread, struct fc_op *op)
{
	struct fc_queue *q;
	CUresult r = fc_queue_of(NULL, per_thread, &q);
	if (!r && q->capture)
		return fc_unsafe_on(q);
	r = r ? r : submit(NULL, per_thread, op, &q);
	if (r)
		return r;
	struct fc_context *c = q->context;
	fc_wait(q, q->submitted);
	return c->fault;
}

#define DEFAULT_STREAM_CALL(name, params, args)                                                                        \
	static CUresult on_default_##name(bool per_thread, FC_BARE params);                                            \
	FC_CALL(name, FC_CONTEXT, (FC_BARE params), args)                                                              \
	{                                                                                                              \
		return on_default_##name(false, FC_BARE args);                                                         \
	}                                                                                                              \
	FC_CALL(name##_ptds, FC_CONTEXT, (FC_BARE params), args)                                                       \
	{                                                                                                              \
		return on_default_##name(true, FC_BARE args);                                                          \
	}                                                                                                              \
	static CUresult on_default_##name(bool per_thread, FC_BARE params)

DEFAULT_STREAM_CALL(cuMemsetD8_v2, (CUdeviceptr dstDevice, unsigned char uc, size_t N), (dstDevice, uc, N))
{
	struct fc_op op = {.kind = FC_OP_SET, .to = dstDevice, .value = uc, .width = 1, .bytes = N};
	return submit(NULL, per_thread, &op, NULL);
}

DEFAULT_STREAM_CALL(cuMemcpyDtoH_v2, (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount),
		    (dstHost, srcDevice, ByteCount))
{
	struct fc_op op = {
		.kind = FC_OP_COPY, .to = (uintptr_t)dstHost, .to_host = true, .from = srcDevice, .bytes = ByteCount};
	return synchronous(per_thread, &op);
}

DEFAULT_STREAM_CALL(cuMemcpyHtoD_v2, (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount),
		    (dstDevice, srcHost, ByteCount))
{
	struct fc_op op = {
		.kind = FC_OP_COPY, .to = dstDevice, .from = (uintptr_t)srcHost, .from_host = true, .bytes = ByteCount};
	return synchronous(per_thread, &op);
}

/* Not waited for, as inside a device. */
DEFAULT_STREAM_CALL(cuMemcpyDtoD_v2, (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount),
		    (dstDevice, srcDevice, ByteCount))
{
	struct fc_op op = {.kind = FC_OP_COPY, .to = dstDevice, .from = srcDevice, .bytes = ByteCount};
	return submit(NULL, per_thread, &op, NULL);
}

FC_STREAM_CALL(cuMemsetD8Async, FC_STREAM, (CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream),
	       (dstDevice, uc, N, hStream))
{
	struct fc_op op = {.kind = FC_OP_SET, .to = dstDevice, .value = uc, .width = 1, .bytes = N};
	fc_note("%llx %zu", dstDevice, N);
	return submit(hStream, per_thread, &op, NULL);
}

FC_STREAM_CALL(cuMemsetD32Async, FC_STREAM, (CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream),
	       (dstDevice, ui, N, hStream))
{
	struct fc_op op = {.kind = FC_OP_SET, .to = dstDevice, .value = ui, .width = 4, .bytes = N * 4};
	fc_note("%llx %zu", dstDevice, N);
	return N > SIZE_MAX / 4 || dstDevice % 4 ? CUDA_ERROR_INVALID_VALUE : submit(hStream, per_thread, &op, NULL);
}

FC_STREAM_CALL(cuMemcpyDtoHAsync_v2, FC_STREAM,
	       (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
	       (dstHost, srcDevice, ByteCount, hStream))
{
	struct fc_op op = {
		.kind = FC_OP_COPY, .to = (uintptr_t)dstHost, .to_host = true, .from = srcDevice, .bytes = ByteCount};
	struct fc_queue *q;
	bool pinned = fc_is_host((uintptr_t)dstHost, ByteCount);
	CUresult r = submit(hStream, per_thread, &op, &q);
	if (r || pinned || q->capture)
		return r;
	struct fc_context *c = q->context; /* memory that is not pinned is written before the call returns */
	fc_wait(q, q->submitted);
	return c->fault;
}

FC_STREAM_CALL(cuMemcpyHtoDAsync_v2, FC_STREAM,
	       (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream),
	       (dstDevice, srcHost, ByteCount, hStream))
{
	struct fc_op op = {
		.kind = FC_OP_COPY, .to = dstDevice, .from = (uintptr_t)srcHost, .from_host = true, .bytes = ByteCount};
	return submit(hStream, per_thread, &op, NULL);
}

FC_STREAM_CALL(cuMemcpyDtoDAsync_v2, FC_STREAM,
	       (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
	       (dstDevice, srcDevice, ByteCount, hStream))
{
	struct fc_op op = {.kind = FC_OP_COPY, .to = dstDevice, .from = srcDevice, .bytes = ByteCount};
	return submit(hStream, per_thread, &op, NULL);
}
