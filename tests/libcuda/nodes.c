/* SPDX-License-Identifier: MIT
 *
 * Memory nodes of graphs. An allocation has its place from the node on, but exists from a launch to its free: in the same
 * graph, in another one, or by a call. A graph that has such nodes can neither be copied, nor be in another, nor be
 * instantiated twice at a time; with which code the real driver refuses that is not documented.
 */
#include "fake.h"

static bool has(const struct fc_body *body, enum fc_op_kind kind, const struct fc_block *b)
{
	for (size_t i = 0; i < body->count; i++)
		if (body->node[i]->op.kind == kind && (!b || body->node[i]->op.block == b))
			return true;
	return false;
}

bool fc_body_has_memory(const struct fc_body *body)
{
	return has(body, FC_OP_ALLOC, NULL) || has(body, FC_OP_FREE, NULL);
}

CUresult fc_capture_free(struct fc_graph *graph, struct fc_block *b)
{
	if (b->kind != FC_GRAPH || has(graph->body, FC_OP_FREE, b))
		return CUDA_ERROR_INVALID_VALUE;
	if (has(graph->body, FC_OP_ALLOC, b))
		b->inside = b->dead = true;
	else if (b->inside)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult fc_memory_instantiate(struct fc_body *body, bool begins)
{
	for (size_t i = 0; i < body->count && begins; i++)
		if (body->node[i]->op.kind == FC_OP_ALLOC && body->node[i]->op.block->used)
			return CUDA_ERROR_NOT_SUPPORTED;
	for (size_t i = 0; i < body->count; i++)
		if (body->node[i]->op.kind == FC_OP_ALLOC)
			body->node[i]->op.block->used = begins;
	return CUDA_SUCCESS;
}

FC_CALL(cuDeviceGraphMemTrim, FC_INIT, (CUdevice device), (device))
{
	if (device < 0 || device >= fc.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	CUresult r = fc_unsafe();
	if (!r)
		fc_pool_trim(fc.device[device].graph_pool, 0);
	return r;
}

/* Before a launch (`now` false): whether it can be. After it: what it has allocated, and freed of others. */
CUresult fc_memory_launch(struct fc_body *body, bool auto_free, struct fc_queue *q, bool now)
{
	for (size_t i = 0; i < body->count; i++) {
		const struct fc_op *op = &body->node[i]->op;
		struct fc_block *b = op->block;
		bool lasts = op->kind == FC_OP_ALLOC && !has(body, FC_OP_FREE, b);
		bool of_another = op->kind == FC_OP_FREE && !has(body, FC_OP_ALLOC, b);
		if (!now && ((lasts && b->live && !auto_free) || (of_another && !b->live)))
			return CUDA_ERROR_INVALID_VALUE;
		if (now && of_another)
			fc_pool_free(b, q);
		if (now && lasts && !b->live) {
			b->refs++;
			b->live = true;
			b->dead = false;
		}
	}
	return CUDA_SUCCESS;
}
