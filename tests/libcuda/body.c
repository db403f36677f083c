/* SPDX-License-Identifier: MIT
 *
 * What graphs and executables are made of: nodes, sets of them, and the user objects that they keep alive.
 */
#include "fake.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

void fc_nodes_clear(struct fc_nodes *nodes)
{
	free(nodes->node);
	*nodes = (struct fc_nodes){0};
}

void fc_nodes_add(struct fc_nodes *to, struct fc_node *node)
{
	for (size_t i = 0; i < to->count; i++)
		if (to->node[i] == node)
			return;
	to->node = realloc(to->node, (to->count + 1) * sizeof(struct fc_node *));
	if (!to->node)
		abort();
	to->node[to->count++] = node;
}

void fc_nodes_merge(struct fc_nodes *to, const struct fc_nodes *from)
{
	for (size_t i = 0; from && i < from->count; i++)
		fc_nodes_add(to, from->node[i]);
}

void fc_nodes_set(struct fc_nodes *to, const struct fc_nodes *from)
{
	fc_nodes_clear(to);
	fc_nodes_merge(to, from);
}

struct fc_body *fc_body_new(void)
{
	struct fc_body *b = fc_alloc(sizeof(*b));
	b->refs = 1;
	return b;
}

static struct fc_node *add(struct fc_body *body, const struct fc_op *op)
{
	if (!(body->count & (body->count - 1))) {
		size_t room = body->count ? 2 * body->count : 1;
		body->node = realloc(body->node, room * sizeof(struct fc_node *));
		if (!body->node)
			abort();
	}
	struct fc_node *n = fc_alloc(sizeof(*n));
	n->op = *op;
	if (op->block)
		op->block->refs++;
	body->node[body->count++] = n;
	return n;
}

struct fc_node *fc_body_add(struct fc_body *body, const struct fc_op *op, const struct fc_nodes *after)
{
	struct fc_node *n = add(body, op);
	fc_nodes_set(&n->after, after);
	return n;
}

struct fc_body *fc_body_copy(const struct fc_body *from)
{
	struct fc_body *b = fc_body_new();
	for (size_t i = 0; i < from->count; i++) {
		struct fc_op op = from->node[i]->op;
		if (op.body)
			op.body->refs++; /* no one changes a body inside a node */
		struct fc_node *n = add(b, &op);
		const struct fc_nodes *after = &from->node[i]->after;
		for (size_t k = 0, at = 0; k < after->count; k++) {
			for (at = 0; from->node[at] != after->node[k];)
				at++;
			fc_nodes_add(&n->after, b->node[at]);
		}
	}
	for (size_t i = 0; i < from->objects; i++)
		fc_body_retain(b, from->object[i].object, from->object[i].count, false);
	return b;
}

void fc_body_unref(struct fc_body *body)
{
	if (--body->refs)
		return;
	for (size_t i = 0; i < body->count; i++) {
		struct fc_node *n = body->node[i];
		if (n->op.block)
			fc_pool_drop(n->op.block, NULL);
		fc_op_drop(&n->op);
		fc_nodes_clear(&n->after);
		free(n);
	}
	free(body->node);
	for (size_t i = 0; i < body->objects; i++)
		fc_object_release(body->object[i].object, body->object[i].count);
	free(body->object);
	free(body);
}

void fc_body_run(struct fc_context *context, const struct fc_body *body)
{
	for (size_t i = 0; i < body->count; i++) {
		const struct fc_op *op = &body->node[i]->op;
		unsigned us = op->kind == FC_OP_BODY ? 0 : __atomic_load_n(&fc.delay_us, __ATOMIC_RELAXED);
		struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};
		while (us && nanosleep(&t, &t))
			;
		fc_op_run(context, op);
	}
}

/* User objects. */

struct fc_object {
	CUuserObject handle;
	void *arg;
	CUhostFn destroy;
	unsigned refs;
	struct fc_object *next; /* whose turn it is to be destroyed */
};

static struct fc_object *ended, **ended_tail = &ended;
static pthread_cond_t some_ended = PTHREAD_COND_INITIALIZER;

/* The thread that calls destructors, which must not call the driver. */
static void *destroyer(void *unused)
{
	fc_self.callback = true;
	pthread_mutex_lock(&fc.lock);
	for (;;) {
		struct fc_object *o = ended;
		if (!o) {
			pthread_cond_wait(&some_ended, &fc.lock);
			continue;
		}
		ended = o->next;
		if (!ended)
			ended_tail = &ended;
		pthread_mutex_unlock(&fc.lock);
		o->destroy(o->arg);
		free(o);
		pthread_mutex_lock(&fc.lock);
	}
	return NULL;
}

void fc_object_release(struct fc_object *o, unsigned count)
{
	static bool started;
	o->refs -= count;
	if (o->refs)
		return;
	fc_handle_free(FC_HANDLE_OBJECT, o->handle);
	o->next = NULL;
	*ended_tail = o;
	ended_tail = &o->next;
	if (!started)
		fc_thread_start(destroyer, NULL);
	started = true;
	pthread_cond_signal(&some_ended);
}

void fc_body_retain(struct fc_body *body, struct fc_object *object, unsigned count, bool move)
{
	if (!move)
		object->refs += count;
	for (size_t i = 0; i < body->objects; i++)
		if (body->object[i].object == object) {
			body->object[i].count += count;
			return;
		}
	body->object = realloc(body->object, (body->objects + 1) * sizeof(*body->object));
	if (!body->object)
		abort();
	body->object[body->objects++] = (struct fc_object_use){object, count};
}

FC_CALL(cuUserObjectCreate, FC_INIT,
	(CUuserObject * object_out, void *ptr, CUhostFn destroy, unsigned int initialRefcount, unsigned int flags),
	(object_out, ptr, destroy, initialRefcount, flags))
{
	if (!object_out || !destroy || !initialRefcount || initialRefcount > INT32_MAX ||
	    flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return CUDA_ERROR_INVALID_VALUE;
	struct fc_object *o = fc_alloc(sizeof(*o));
	o->arg = ptr;
	o->destroy = destroy;
	o->refs = initialRefcount;
	*object_out = o->handle = fc_handle_new(FC_HANDLE_OBJECT, o);
	return CUDA_SUCCESS;
}

FC_CALL(cuUserObjectRetain, FC_INIT, (CUuserObject object, unsigned int count), (object, count))
{
	struct fc_object *o = fc_handle_get(FC_HANDLE_OBJECT, object);
	if (!o || !count || count > INT32_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	o->refs += count;
	return CUDA_SUCCESS;
}

FC_CALL(cuUserObjectRelease, FC_INIT, (CUuserObject object, unsigned int count), (object, count))
{
	struct fc_object *o = fc_handle_get(FC_HANDLE_OBJECT, object);
	if (!o || !count || count > o->refs)
		return CUDA_ERROR_INVALID_VALUE;
	fc_object_release(o, count);
	return CUDA_SUCCESS;
}

FC_CALL(cuGraphReleaseUserObject, FC_INIT, (CUgraph graph, CUuserObject object, unsigned int count), (graph, object, count))
{
	struct fc_graph *g = fc_handle_get(FC_HANDLE_GRAPH, graph);
	struct fc_object *o = fc_handle_get(FC_HANDLE_OBJECT, object);
	for (size_t i = 0; g && o && count && i < g->body->objects; i++) {
		struct fc_object_use *use = &g->body->object[i];
		if (use->object != o || use->count < count)
			continue;
		use->count -= count;
		if (!use->count)
			*use = g->body->object[--g->body->objects];
		fc_object_release(o, count);
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

FC_CALL(cuGraphRetainUserObject, FC_INIT, (CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags),
	(graph, object, count, flags))
{
	struct fc_graph *g = fc_handle_get(FC_HANDLE_GRAPH, graph);
	struct fc_object *o = fc_handle_get(FC_HANDLE_OBJECT, object);
	if (!g || !o || !count || count > INT32_MAX || flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CU_GRAPH_USER_OBJECT_MOVE && count > o->refs)
		return CUDA_ERROR_INVALID_VALUE;
	fc_body_retain(g->body, o, count, flags & CU_GRAPH_USER_OBJECT_MOVE);
	return CUDA_SUCCESS;
}
