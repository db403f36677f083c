/* SPDX-License-Identifier: MIT */
#include "timeline_needs.h"

#include "../base/torch_sizes.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIN_SPLIT_MIB (CLV_TORCH_LARGE_SEGMENT / CLV_MIB) /* the least max_split_size_mb that PyTorch takes */
#define PADDING_PERCENT 10

/* Room for one more; NULL: host memory is out. */
static void *more(void *array_of, uint32_t *count, size_t size)
{
	void **array = array_of;
	void *grown = realloc(*array, (*count + 1) * size);
	if (!grown)
		return NULL;
	*array = grown;
	void *next = (char *)grown + (*count)++ * size;
	memset(next, 0, size);
	return next;
}

static uint64_t to_blocks(uint64_t bytes)
{
	return clv_align_up(bytes, CLV_GRAIN);
}

/* ---- transients ---- */

static bool is_transient(const struct clv_conversion_buffer *b)
{
	return b->role != CLV_ROLE_SOURCE && b->role != CLV_ROLE_DESTINATION;
}

static void name_buffer(char *name, size_t len, const struct clv_conversion *c, const struct clv_conversion_buffer *b)
{
	const char *tensor = c->tensors[b->tensor].name;
	if (is_transient(b))
		snprintf(name, len, "%s %s", tensor, clv_conversion_role_name(b->role));
	else
		snprintf(name, len, "%s", tensor);
}

static struct clv_timeline_transient *find_transient(struct clv_timeline *t, const char *name, uint64_t bytes)
{
	for (uint32_t i = 0; i < t->transient_count; i++)
		if (t->transients[i].bytes == bytes && !strcmp(t->transients[i].name, name))
			return &t->transients[i];
	return NULL;
}

/* Of one layer under one strategy. There are thousands of buffers of a few sorts: they are told apart by numbers, and only the
 * sorts by their names. */
static bool add_transients(struct clv_timeline *t, const struct clv_timeline_kind *k, enum clv_strategy strategy)
{
	const struct clv_conversion_plan *p = &k->plans[strategy];
	uint64_t *requests = calloc(p->count + 1, sizeof(*requests));
	uint32_t *sort = malloc((p->count + 1) * sizeof(*sort)); /* the first buffer of each */
	uint32_t sorts = 0;
	bool ok = requests && sort;
	for (size_t i = 0; i < p->count && ok; i++) {
		const struct clv_conversion_buffer *b = &p->buffers[i];
		uint32_t s = 0;
		if (!is_transient(b))
			continue;
		while (s < sorts && (p->buffers[sort[s]].role != b->role || p->buffers[sort[s]].tensor != b->tensor ||
				     p->buffers[sort[s]].bytes != b->bytes))
			s++;
		if (s == sorts)
			sort[sorts++] = (uint32_t)i;
		requests[s]++;
	}
	for (uint32_t s = 0; s < sorts && ok; s++) {
		const struct clv_conversion_buffer *b = &p->buffers[sort[s]];
		char name[sizeof(t->transients->name)];
		name_buffer(name, sizeof(name), &k->way.conversion, b);
		struct clv_timeline_transient *found = find_transient(t, name, b->bytes);
		if (!found) {
			found = more(&t->transients, &t->transient_count, sizeof(*found));
			ok = found != NULL;
			if (!ok)
				break;
			snprintf(found->name, sizeof(found->name), "%s", name);
			found->bytes = b->bytes;
			found->segment_bytes = clv_torch_segment(to_blocks(b->bytes), CLV_TORCH_LARGE_SEGMENT);
		}
		found->requests = clv_max_u64(found->requests, requests[s]);
		found->strategies |= 1u << strategy;
	}
	free(requests);
	free(sort);
	return ok;
}

/* ---- reservations ---- */

/* What is held for a layer, and what that leaves. */
struct held {
	bool *needed;     /* [buffers]: sources apart, those that are live when the most is (the first such time) */
	int64_t first_in; /* when a buffer is born that comes and goes before that; INT64_MAX: none does */
	uint64_t left;    /* bytes that may still be held */
};

static bool find_needed(const struct clv_conversion_plan *p, struct held *h)
{
	size_t *steps = clv_conversion_steps(p), at = 0;
	uint64_t live = 0, most = 0;
	h->first_in = INT64_MAX;
	h->needed = calloc(p->count + 1, sizeof(*h->needed));
	for (size_t n = 0; steps && n < 2 * p->count; n++) {
		size_t i = steps[n] / 2;
		if (p->buffers[i].role == CLV_ROLE_SOURCE)
			continue;
		live = steps[n] % 2 ? live + p->lives[i].size : live - p->lives[i].size;
		if (live > most) {
			most = live;
			at = n + 1;
		}
	}
	for (size_t i = 0; h->needed && i < p->count && at; i++) {
		if (p->buffers[i].role == CLV_ROLE_SOURCE || (size_t)p->lives[i].lower >= at)
			continue;
		h->needed[i] = (size_t)p->lives[i].upper >= at;
		if (!h->needed[i] && p->lives[i].lower < h->first_in)
			h->first_in = p->lives[i].lower;
	}
	bool ok = steps && h->needed;
	free(steps);
	return ok;
}

/* Under lists: the tensor that is stacked while all lists are there. */
static uint32_t stacked_first(const struct clv_conversion_plan *p, const struct held *h)
{
	for (size_t i = 0; i < p->count; i++)
		if (h->needed[i] && p->buffers[i].role == CLV_ROLE_DESTINATION)
			return p->buffers[i].tensor;
	return UINT32_MAX;
}

/* Under lists, what is held and what is not so that pieces of a kind lie together. */
static void sort_lists(const struct clv_conversion_plan *p, struct held *h)
{
	uint32_t first = stacked_first(p, h);
	for (size_t i = 0; i < p->count; i++) {
		const struct clv_conversion_buffer *b = &p->buffers[i];
		if (b->role == CLV_ROLE_CONVERTED && b->tensor == first)
			h->needed[i] = false;
		else if (b->role == CLV_ROLE_GATHERED && b->tensor != first && b->expert == 0)
			h->needed[i] = true;
	}
}

/* When all layers are loaded and none is converted. */
static uint64_t loaded_bytes(const struct clv_timeline *t)
{
	uint64_t sum = to_blocks(t->config.other_weights);
	for (uint32_t set = 0; set < CLV_SETS; set++)
		for (uint32_t i = 0; i < t->kinds[set].load_count; i++)
			sum += t->kinds[set].layers * to_blocks(t->kinds[set].loads[i].bytes);
	return sum;
}

static struct clv_timeline_reservation *find_reservation(struct clv_timeline *t, uint64_t bytes)
{
	for (uint32_t i = 0; i < t->reservation_count; i++)
		if (t->reservations[i].bytes == bytes)
			return &t->reservations[i];
	return NULL;
}

/* Holds slots for a buffer, or as many as may still be held. */
static bool hold(struct clv_timeline *t, const struct clv_timeline_kind *k, const struct clv_conversion_buffer *b,
		 uint64_t count, bool hard, struct held *h)
{
	uint64_t size = to_blocks(b->bytes);
	count = clv_min_u64(count, h->left / size);
	if (!count)
		return true;
	struct clv_timeline_reservation *r = find_reservation(t, size);
	if (!r) {
		r = more(&t->reservations, &t->reservation_count, sizeof(*r));
		if (!r)
			return false;
		r->bytes = size;
		r->hard = true;
		name_buffer(r->name, sizeof(r->name), &k->way.conversion, b);
	}
	r->count += count;
	r->hard &= hard;
	h->left -= count * size;
	return true;
}

static bool hold_layer(struct clv_timeline *t, const struct clv_timeline_kind *k, struct held *h)
{
	const struct clv_conversion_plan *p = &k->plans[t->config.strategy];
	for (int transients = 0; transients < 2; transients++)
		for (size_t i = 0; i < p->count; i++) {
			const struct clv_conversion_buffer *b = &p->buffers[i];
			bool hard = b->role == CLV_ROLE_DESTINATION && p->lives[i].lower < h->first_in;
			if (h->needed[i] && is_transient(b) == (transients == 1) && !hold(t, k, b, 1, hard, h))
				return false;
		}
	return true;
}

/* Destinations that are larger than their sources: all layers but the first need the difference, in slots of destinations. */
static bool hold_growth(struct clv_timeline *t, const struct clv_timeline_kind *k, struct held *h)
{
	const struct clv_conversion_plan *p = &k->plans[t->config.strategy];
	for (size_t i = 0; i < p->count; i++) {
		const struct clv_conversion_buffer *b = &p->buffers[i];
		if (b->role != CLV_ROLE_DESTINATION || t->config.strategy == CLV_STRATEGY_PING_PONG)
			continue;
		uint64_t size = p->lives[i].size;
		uint64_t source = to_blocks(k->way.conversion.experts * k->way.conversion.tensors[b->tensor].source);
		if (size > source && k->layers > 1 &&
		    !hold(t, k, b, ((k->layers - 1) * (size - source) + size - 1) / size,
			  p->lives[i].lower < h->first_in, h))
			return false;
	}
	return true;
}

/* Requests of a size that the conversion of so many layers of a kind makes. Under ping-pong only the first asks for destinations:
 * sources are the next layer's. */
static uint64_t requests_of(const struct clv_timeline *t, const struct clv_timeline_kind *k, uint32_t layers, uint64_t size)
{
	const struct clv_conversion_plan *p = &k->plans[t->config.strategy];
	uint64_t n = 0;
	for (size_t i = 0; i < p->count; i++) {
		bool once = p->buffers[i].role == CLV_ROLE_DESTINATION && t->config.strategy == CLV_STRATEGY_PING_PONG;
		if (p->buffers[i].role != CLV_ROLE_SOURCE && p->lives[i].size == size)
			n += once && layers ? 1 : layers;
	}
	return n;
}

/* Requests of the same size that come before the layer's, which are what is loaded, and what layers of another kind ask for; and
 * how many come from there on. */
static void count_requests(struct clv_timeline *t, uint32_t set)
{
	uint32_t earlier[CLV_SETS] = {0};
	for (uint32_t i = 0; i < t->layer_count && t->layer_kinds[i] != set; i++)
		earlier[t->layer_kinds[i]]++;
	for (uint32_t n = 0; n < t->reservation_count; n++) {
		struct clv_timeline_reservation *r = &t->reservations[n];
		r->after_n = t->config.other_weights && to_blocks(t->config.other_weights) == r->bytes;
		for (uint32_t other = 0; other < CLV_SETS; other++) {
			const struct clv_timeline_kind *k = &t->kinds[other];
			for (uint32_t i = 0; i < k->load_count; i++)
				r->after_n += to_blocks(k->loads[i].bytes) == r->bytes ? k->layers : 0;
			r->after_n += requests_of(t, k, earlier[other], r->bytes);
			r->uses += requests_of(t, k, k->layers - earlier[other], r->bytes);
		}
	}
}

static bool make_reservations(struct clv_timeline *t)
{
	uint64_t most = 0;
	uint32_t set = CLV_SETS;
	for (uint32_t i = 0; i < CLV_SETS; i++) {
		const struct clv_conversion_plan *p = &t->kinds[i].plans[t->config.strategy];
		if (p->packed.height - p->sources > most) {
			most = p->packed.height - p->sources;
			set = i;
		}
	}
	if (set == CLV_SETS)
		return true;
	uint64_t peak = t->strategies[t->config.strategy].peak.peak_bytes, loaded = loaded_bytes(t);
	struct held h = {.left = peak - loaded};
	bool ok = find_needed(&t->kinds[set].plans[t->config.strategy], &h);
	if (ok && t->config.strategy == CLV_STRATEGY_LISTS)
		sort_lists(&t->kinds[set].plans[t->config.strategy], &h);
	ok = ok && hold_layer(t, &t->kinds[set], &h) && hold_growth(t, &t->kinds[set], &h);
	free(h.needed);
	if (!ok)
		return false;
	count_requests(t, set);
	return true;
}

/* ---- warnings ---- */

static bool warn(struct clv_timeline *t, const char *code, const char *fmt, ...) CLV_PRINTF(3, 4);

static bool warn(struct clv_timeline *t, const char *code, const char *fmt, ...)
{
	struct clv_timeline_warning *w = more(&t->warnings, &t->warning_count, sizeof(*w));
	va_list args;
	if (!w)
		return false;
	w->code = code;
	va_start(args, fmt);
	vsnprintf(w->text, sizeof(w->text), fmt, args);
	va_end(args);
	return true;
}

/* A request below max_split_size never takes a free block of max_split_size or more. So if its own segment is just that large,
 * the segment is lost once it is free: this request and all smaller ones take a new one, larger ones take theirs. */
static bool is_trap(const struct clv_timeline *t, const struct clv_timeline_transient *a, uint64_t split)
{
	return a->strategies >> t->config.strategy & 1 && a->segment_bytes == split && to_blocks(a->bytes) < split;
}

static bool any_trap(const struct clv_timeline *t, uint64_t split)
{
	for (uint32_t i = 0; i < t->transient_count; i++)
		if (is_trap(t, &t->transients[i], split))
			return true;
	return false;
}

static uint64_t trapped_requests(const struct clv_timeline *t, uint64_t split)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < t->transient_count; i++)
		sum += is_trap(t, &t->transients[i], split) ? t->transients[i].requests : 0;
	return sum;
}

/* Those that are trapped, as many as there is room for. */
static void name_trapped(const struct clv_timeline *t, uint64_t split, char *names, size_t len)
{
	size_t at = 0;
	for (uint32_t i = 0; i < t->transient_count; i++) {
		const struct clv_timeline_transient *a = &t->transients[i];
		char name[128];
		if (!is_trap(t, a, split))
			continue;
		size_t n = (size_t)snprintf(name, sizeof(name), "%s%s (%" PRIu64 " bytes)", at ? ", " : "", a->name,
					    a->bytes);
		if (at + n + sizeof(", ...") > len) {
			snprintf(names + at, len - at, ", ...");
			return;
		}
		memcpy(names + at, name, n + 1);
		at += n;
	}
}

static bool warn_trap(struct clv_timeline *t, uint64_t split)
{
	char names[600];
	uint64_t better = split;
	name_trapped(t, split, names, sizeof(names));
	while (any_trap(t, better))
		better += CLV_MIB;
	return warn(
		t, "max-split-size",
		"under max_split_size_mb:%" PRIu64 " PyTorch does not use a segment of %" PRIu64
		" MiB again once all of it is free, and it takes such segments for %s (requests of a layer: %" PRIu64
		"); set %" PRIu64 " instead",
		split / CLV_MIB, split / CLV_MIB, names, trapped_requests(t, split), better / CLV_MIB);
}

/* From the smallest up. */
static bool warn_traps(struct clv_timeline *t)
{
	uint64_t split = MIN_SPLIT_MIB * CLV_MIB - 1, next;
	for (;; split = next) {
		next = UINT64_MAX;
		for (uint32_t i = 0; i < t->transient_count; i++) {
			uint64_t segment = t->transients[i].segment_bytes;
			if (segment > split && segment < next && is_trap(t, &t->transients[i], segment))
				next = segment;
		}
		if (next == UINT64_MAX)
			return true;
		if (!warn_trap(t, next))
			return false;
	}
}

static bool warn_sleep(struct clv_timeline *t)
{
	uint64_t requests = trapped_requests(t, CLV_TORCH_LARGE_SEGMENT), mib = MIN_SPLIT_MIB;
	return !requests ||
	       warn(t, "sleep-mode",
		    "with sleep mode weights are loaded into a pool that gives nothing back when memory is short: under "
		    "max_split_size_mb:%" PRIu64 ", which vLLM sets while it loads, dead segments of %" PRIu64
		    " MiB (requests of a layer that can leave one: %" PRIu64
		    ") stay there, and what must fit is the peak of reserved bytes, not of live ones",
		    mib, mib, requests);
}

/* What engines of today do, and did before, if nobody said that this one does something else. */
static bool warn_usual(struct clv_timeline *t)
{
	const struct clv_timeline_strategy *usual = &t->strategies[CLV_STRATEGY_PREALLOCATED],
					   *before = &t->strategies[CLV_STRATEGY_LISTS];
	char older[128] = "";
	if (usual->fits)
		return true;
	if (before->legal && !before->fits)
		snprintf(older, sizeof(older), ", nor does lists, which needs %" PRIu64, before->peak.peak_bytes);
	return warn(t, "other-strategy",
		    "this fits into %" PRIu64
		    " bytes only if the engine converts in the way of %s: preallocated, which "
		    "is usual, needs %" PRIu64 " and does not fit%s",
		    t->config.gpu_memory, clv_strategy_name(t->config.strategy), usual->peak.peak_bytes, older);
}

/* Without what is no routed expert, a plan fits that does not. */
static bool warn_other_weights(struct clv_timeline *t)
{
	const struct clv_model *m = t->config.model;
	uint64_t shared = (uint64_t)t->layer_count * (m->gated ? 3 : 2) * m->hidden * m->shared_intermediate *
			  (clv_dtype_bits(m->dtype) / 8);
	char part[256] = "";
	if (!t->config.gpu_memory || t->config.other_weights_known)
		return true;
	if (shared)
		snprintf(part, sizeof(part),
			 "; shared experts alone would have %" PRIu64 " bytes in %s, each whole on this rank", shared,
			 clv_dtype_name(m->dtype));
	return warn(t, "other-weights",
		    "no size of other weights is given, so attention, embeddings, dense layers and shared experts are "
		    "not in these peaks%s",
		    part);
}

static bool warn_other(struct clv_timeline *t)
{
	char names[256] = "";
	size_t at = 0;
	if (t->fits)
		return !t->config.strategy_assumed || warn_usual(t);
	for (unsigned s = 0; s < CLV_STRATEGIES; s++)
		if (t->strategies[s].legal && t->strategies[s].fits)
			at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s (%" PRIu64 " bytes)",
					       at ? ", " : "", clv_strategy_name((enum clv_strategy)s),
					       t->strategies[s].peak.peak_bytes);
	return !at ||
	       warn(t, "other-strategy", "%s needs %" PRIu64 " bytes and does not fit into %" PRIu64 "; %s would",
		    clv_strategy_name(t->config.strategy), t->strategies[t->config.strategy].peak.peak_bytes,
		    t->config.gpu_memory, names);
}

static bool warn_padding(struct clv_timeline *t)
{
	for (uint32_t set = 0; set < CLV_SETS; set++) {
		const struct clv_timeline_kind *k = &t->kinds[set];
		const struct clv_backend_layer *l = &k->backend;
		const struct clv_shard *shard = &l->destination_shard;
		if (!k->layers || !k->planned)
			continue;
		uint64_t padding = k->layers * l->padding_bytes, valid = k->layers * l->valid_bytes;
		char layouts[128] = "", hidden[96] = "";
		if (padding <= valid / 100 * PADDING_PERCENT)
			continue;
		if (l->layout_bytes)
			snprintf(layouts, sizeof(layouts), ", %" PRIu64 " of these where layouts of %s round up",
				 k->layers * l->layout_bytes, t->config.backend->name);
		if (shard->hidden.raw != shard->hidden.padded)
			snprintf(hidden, sizeof(hidden), ", the hidden size, %" PRIu64 ", to %" PRIu64,
				 shard->hidden.raw, shard->hidden.padded);
		if (!warn(t, "padding",
			  "%" PRIu64 " of the %" PRIu64 " bytes of experts are padding%s: the rank's share of the "
			  "intermediate size, %" PRIu64 ", is padded to %" PRIu64 "%s",
			  padding, padding + valid, layouts, l->share, shard->intermediate.padded, hidden))
			return false;
	}
	return true;
}

static bool warn_unknown(struct clv_timeline *t)
{
	const struct clv_timeline_kind *plain = &t->kinds[CLV_SET_PLAIN];
	if (!t->transients_known &&
	    !warn(t, "transients-unknown",
		  "what %s needs on the way for this model is not known: peaks and reservations are without it",
		  t->config.backend->name))
		return false;
	return !plain->layers || plain->planned ||
	       warn(t, "plain-layers",
		    "layers that the quantization leaves out (%" PRIu32
		    ") are counted as they were loaded, without a conversion: %s is not for them",
		    plain->layers, t->config.backend->name);
}

bool clv_timeline_needs(struct clv_timeline *t)
{
	for (unsigned s = 0; s < CLV_STRATEGIES; s++)
		for (uint32_t set = 0; set < CLV_SETS; set++)
			if (!add_transients(t, &t->kinds[set], (enum clv_strategy)s))
				return false;
	return make_reservations(t) && warn_other(t) && warn_other_weights(t) && warn_traps(t) && warn_sleep(t) &&
	       warn_padding(t) && warn_unknown(t);
}
