/* SPDX-License-Identifier: MIT
 *
 * The buffers of a plan: their memory, layer by layer, and which experts of them are filled. Each plan has a lock, which
 * guards its binding and its layers; it is held around calls of the heap, which never calls back. What the file says is
 * immutable and read without it.
 */
#include "jansson_api.h"
#include "plan_file.h"

#include "../base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BITS 64u

struct held_buffer {
	cleave_ptr address; /* 0: no memory */
	uint32_t filled;    /* experts: bits set in `bits` */
	uint64_t *bits;     /* of layer.bits, one an expert */
};

struct layer {
	struct held_buffer *buffers; /* NULL: nothing was ever taken, or all was given back */
	uint64_t *bits;
	bool whole; /* every buffer has memory */
};

struct cleave_plan {
	struct clv_plan_file file;
	size_t layer_words; /* of a layer's `bits` */
	pthread_mutex_t lock;
	bool bound;
	cleave_plan_memory memory;
	int device;
	cleave_stream stream;
	struct layer *layers;
};

static size_t words_of(const struct clv_plan_file_buffer *b)
{
	return (b->experts + WORD_BITS - 1) / WORD_BITS;
}

static int load(cleave_plan **out, const char *path, uint32_t rank, char *why, size_t why_len)
{
	if (!out)
		return -EINVAL;
	*out = NULL;
	if (!path)
		return -EINVAL;
	struct clv_error err = {""};
	struct cleave_plan *plan = calloc(1, sizeof(*plan));
	if (!plan)
		return -ENOSPC;
	int result = clv_plan_file_read_rank(&plan->file, path, rank, &err) ? 0
		     : !clv_jansson(NULL)                                   ? -ELIBACC
									    : -EINVAL;
	if (!result && !(plan->layers = calloc((size_t)plan->file.layers + 1, sizeof(*plan->layers)))) {
		clv_error_set(&err, "%s: host memory is out", path);
		result = -ENOSPC;
	}
	if (result) {
		if (why)
			snprintf(why, why_len, "%s", err.text);
		clv_plan_file_free(&plan->file);
		free(plan);
		return result;
	}
	for (size_t i = 0; i < plan->file.buffer_count; i++)
		plan->layer_words += words_of(&plan->file.buffers[i]);
	pthread_mutex_init(&plan->lock, NULL);
	*out = plan;
	return 0;
}

int cleave_plan_load(cleave_plan **out, const char *path, char *why, size_t why_len)
{
	return load(out, path, CLV_PLAN_OWN_RANK, why, why_len);
}

int cleave_plan_load_rank(cleave_plan **out, const char *path, uint32_t rank, char *why, size_t why_len)
{
	if (rank == CLV_PLAN_OWN_RANK) {
		if (out)
			*out = NULL;
		return -EINVAL;
	}
	return load(out, path, rank, why, why_len);
}

int cleave_plan_get_info(const cleave_plan *plan, cleave_plan_info *out)
{
	if (!plan || !out)
		return -EINVAL;
	const struct clv_plan_file *f = &plan->file;
	*out = (cleave_plan_info){.path = f->path,
				  .model = f->model,
				  .backend = f->backend,
				  .strategy = f->strategy,
				  .rank = f->rank,
				  .moe_layers = f->moe_layers,
				  .layers = f->layers,
				  .experts = f->experts,
				  .buffers = (uint32_t)f->buffer_count,
				  .layer_bytes = f->layer_bytes};
	return 0;
}

static void describe(const struct clv_plan_file_buffer *b, cleave_plan_buffer *out)
{
	*out = (cleave_plan_buffer){.name = b->name,
				    .bytes = b->bytes,
				    .dims = b->dims,
				    .dtype = b->dtype,
				    .dtype_bits = cleave_dtype_bits(b->dtype),
				    .experts = b->experts,
				    .expert_bytes = b->expert_bytes,
				    .zeroed = b->zeroed,
				    .same = b->same};
	memcpy(out->shape, b->shape, sizeof(b->shape));
	memcpy(out->strides, b->strides, sizeof(b->strides));
}

int cleave_plan_describe(const cleave_plan *plan, uint32_t index, cleave_plan_buffer *out)
{
	if (!plan || !out)
		return -EINVAL;
	if (index >= plan->file.buffer_count)
		return -ENOENT;
	describe(&plan->file.buffers[index], out);
	return 0;
}

/* ---- memory; with the lock held ---- */

static void forget_filled(struct cleave_plan *plan, struct layer *l)
{
	memset(l->bits, 0, plan->layer_words * sizeof(*l->bits));
	for (size_t i = 0; i < plan->file.buffer_count; i++)
		l->buffers[i].filled = 0;
}

static bool make_books(struct cleave_plan *plan, struct layer *l)
{
	if (l->buffers)
		return true;
	l->buffers = calloc(plan->file.buffer_count, sizeof(*l->buffers));
	l->bits = calloc(plan->layer_words, sizeof(*l->bits));
	if (!l->buffers || !l->bits) {
		free(l->buffers);
		free(l->bits);
		*l = (struct layer){0};
		return false;
	}
	uint64_t *bits = l->bits;
	for (size_t i = 0; i < plan->file.buffer_count; i++) {
		l->buffers[i].bits = bits;
		bits += words_of(&plan->file.buffers[i]);
	}
	return true;
}

static void drop_books(struct layer *l)
{
	free(l->buffers);
	free(l->bits);
	*l = (struct layer){0};
}

static int release(struct cleave_plan *plan, struct layer *l, cleave_stream stream)
{
	int result = 0;
	bool any = false;
	for (size_t i = 0; i < plan->file.buffer_count; i++) {
		struct held_buffer *b = &l->buffers[i];
		int why = b->address ? plan->memory.free(plan->memory.arg, b->address, stream) : 0;
		if (!why)
			b->address = 0;
		else if (!result)
			result = why;
		any |= b->address != 0;
	}
	l->whole = false;
	if (any)
		forget_filled(plan, l);
	else
		drop_books(l);
	return result;
}

static int take(struct cleave_plan *plan, struct layer *l)
{
	if (l->whole)
		return 0;
	if (!make_books(plan, l))
		return -ENOSPC;
	for (size_t i = 0; i < plan->file.buffer_count; i++) {
		struct held_buffer *b = &l->buffers[i];
		if (b->address)
			continue;
		int why = plan->memory.alloc(plan->memory.arg, plan->device, plan->stream, plan->file.buffers[i].bytes,
					     &b->address);
		if (why) {
			b->address = 0;
			release(plan, l, plan->stream);
			return why;
		}
	}
	l->whole = true;
	return 0;
}

static void release_all(struct cleave_plan *plan)
{
	for (uint32_t i = 0; i < plan->file.layers; i++)
		if (plan->layers[i].buffers) {
			release(plan, &plan->layers[i], plan->stream);
			drop_books(&plan->layers[i]);
		}
}

/* ---- binding ---- */

void cleave_plan_close(cleave_plan *plan)
{
	if (!plan)
		return;
	release_all(plan);
	pthread_mutex_destroy(&plan->lock);
	free(plan->layers);
	clv_plan_file_free(&plan->file);
	free(plan);
}

int cleave_plan_bind_memory(cleave_plan *plan, const cleave_plan_memory *memory, int device, cleave_stream stream,
			    uint32_t ahead)
{
	if (!plan || !memory || !memory->alloc || !memory->free || device < 0 ||
	    (ahead > plan->file.layers && ahead != CLEAVE_PLAN_ALL))
		return -EINVAL;
	pthread_mutex_lock(&plan->lock);
	int why = plan->bound ? -EALREADY : 0;
	if (!why) {
		plan->memory = *memory;
		plan->device = device;
		plan->stream = stream;
		for (uint32_t i = 0; i < plan->file.layers && i < ahead && !why; i++)
			why = take(plan, &plan->layers[i]);
		if (why)
			release_all(plan);
		plan->bound = !why;
	}
	pthread_mutex_unlock(&plan->lock);
	return why;
}

static int heap_alloc(void *arg, int device, cleave_stream stream, size_t size, cleave_ptr *out)
{
	return cleave_alloc(arg, device, stream, size, out);
}

static int heap_free(void *arg, cleave_ptr ptr, cleave_stream stream)
{
	return cleave_free(arg, ptr, stream);
}

int cleave_plan_bind(cleave_plan *plan, cleave_heap *heap, int device, cleave_stream stream, uint32_t ahead)
{
	const cleave_plan_memory memory = {heap_alloc, heap_free, heap};
	return heap ? cleave_plan_bind_memory(plan, &memory, device, stream, ahead) : -EINVAL;
}

/* ---- layers ---- */

/* Takes the lock, and answers whether the plan is bound and has such a layer. */
static int lock_layer(struct cleave_plan *plan, uint32_t layer, struct layer **out)
{
	if (!plan)
		return -EINVAL;
	pthread_mutex_lock(&plan->lock);
	int why = !plan->bound ? -ENXIO : layer >= plan->file.layers ? -EINVAL : 0;
	if (why)
		pthread_mutex_unlock(&plan->lock);
	else
		*out = &plan->layers[layer];
	return why;
}

int cleave_plan_take_layer(cleave_plan *plan, uint32_t layer)
{
	struct layer *l;
	int why = lock_layer(plan, layer, &l);
	if (why)
		return why;
	why = take(plan, l);
	pthread_mutex_unlock(&plan->lock);
	return why;
}

int cleave_plan_release_layer(cleave_plan *plan, uint32_t layer, cleave_stream stream)
{
	struct layer *l;
	int why = lock_layer(plan, layer, &l);
	if (why)
		return why;
	why = l->buffers ? release(plan, l, stream) : -EINVAL;
	pthread_mutex_unlock(&plan->lock);
	return why;
}

static const struct clv_plan_file_buffer *find(const struct cleave_plan *plan, const char *name, size_t *index)
{
	for (size_t i = 0; i < plan->file.buffer_count; i++)
		if (!strcmp(plan->file.buffers[i].name, name)) {
			*index = i;
			return &plan->file.buffers[i];
		}
	return NULL;
}

int cleave_plan_get_buffer(cleave_plan *plan, uint32_t layer, const char *name, cleave_plan_buffer *out)
{
	struct layer *l;
	size_t index = 0;
	if (!plan || !name || !out)
		return -EINVAL;
	const struct clv_plan_file_buffer *b = find(plan, name, &index);
	if (!b)
		return -ENOENT;
	int why = lock_layer(plan, layer, &l);
	if (why)
		return why;
	why = take(plan, l);
	if (!why) {
		describe(b, out);
		out->address = l->buffers[index].address;
	}
	pthread_mutex_unlock(&plan->lock);
	return why;
}

/* ---- experts ---- */

int cleave_plan_fill_expert(cleave_plan *plan, uint32_t layer, const char *name, uint32_t expert, cleave_ptr *address,
			    uint64_t *bytes)
{
	struct layer *l;
	size_t index = 0;
	if (!plan || !name || !address)
		return -EINVAL;
	*address = 0;
	const struct clv_plan_file_buffer *b = find(plan, name, &index);
	if (!b || expert >= b->experts)
		return b ? -EINVAL : -ENOENT;
	int why = lock_layer(plan, layer, &l);
	if (why)
		return why;
	why = take(plan, l);
	if (!why) {
		struct held_buffer *held = &l->buffers[index];
		uint64_t *word = &held->bits[expert / WORD_BITS], bit = (uint64_t)1 << expert % WORD_BITS;
		why = *word & bit ? -EEXIST : 0;
		held->filled += !why;
		*word |= bit;
		*address = held->address + expert * b->expert_bytes;
		if (bytes)
			*bytes = b->expert_bytes;
	}
	pthread_mutex_unlock(&plan->lock);
	return why;
}

int cleave_plan_unfill_expert(cleave_plan *plan, uint32_t layer, const char *name, uint32_t expert)
{
	struct layer *l;
	size_t index = 0;
	if (!plan || !name)
		return -EINVAL;
	const struct clv_plan_file_buffer *b = find(plan, name, &index);
	if (!b || expert >= b->experts)
		return b ? -EINVAL : -ENOENT;
	int why = lock_layer(plan, layer, &l);
	if (why)
		return why;
	uint64_t *word = l->buffers ? &l->buffers[index].bits[expert / WORD_BITS] : NULL;
	uint64_t bit = (uint64_t)1 << expert % WORD_BITS;
	if (word && *word & bit) {
		*word &= ~bit;
		l->buffers[index].filled--;
	} else {
		why = -ENOENT;
	}
	pthread_mutex_unlock(&plan->lock);
	return why;
}

/* With the lock held. */
static uint32_t missing(const struct cleave_plan *plan, const struct layer *l, size_t index, uint32_t *experts,
			size_t room)
{
	uint32_t all = plan->file.buffers[index].experts;
	const struct held_buffer *held = l->buffers ? &l->buffers[index] : NULL;
	for (uint32_t e = 0, n = 0; e < all && n < room; e++)
		if (!held || !(held->bits[e / WORD_BITS] >> e % WORD_BITS & 1))
			experts[n++] = e;
	return all - (held ? held->filled : 0);
}

int64_t cleave_plan_missing(cleave_plan *plan, uint32_t layer, const char *name, uint32_t *experts, size_t room)
{
	size_t index = 0;
	if (!plan || !name || (room && !experts) || layer >= plan->file.layers)
		return -EINVAL;
	if (!find(plan, name, &index))
		return -ENOENT;
	pthread_mutex_lock(&plan->lock);
	uint32_t n = missing(plan, &plan->layers[layer], index, experts, room);
	pthread_mutex_unlock(&plan->lock);
	return n;
}

#define NAMED 3u /* experts, in the sentence */

int cleave_plan_layer_done(cleave_plan *plan, uint32_t layer, char *why, size_t why_len)
{
	struct clv_text t = {why, why ? why_len : 0, 0};
	bool done = true;
	if (!plan || layer >= plan->file.layers)
		return -EINVAL;
	pthread_mutex_lock(&plan->lock);
	for (size_t i = 0; i < plan->file.buffer_count; i++) {
		const struct clv_plan_file_buffer *b = &plan->file.buffers[i];
		uint32_t first[NAMED], n = missing(plan, &plan->layers[layer], i, first, NAMED);
		if (!n)
			continue;
		if (done)
			clv_text_say(&t, "layer %u is not filled: ", layer);
		clv_text_say(&t, "%s%s lacks %u of %u", done ? "" : "; ", b->name, n, b->experts);
		for (uint32_t k = 0; k < n && k < NAMED && b->experts > 1; k++)
			clv_text_say(&t, "%s%u", !k ? " (" : ", ", first[k]);
		if (b->experts > 1)
			clv_text_say(&t, n > NAMED ? ", ...)" : ")");
		done = false;
	}
	pthread_mutex_unlock(&plan->lock);
	return done ? 0 : -ENODATA;
}
