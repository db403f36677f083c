/* SPDX-License-Identifier: MIT */
#include "layers.h"

#include <stdlib.h>

const char *clv_phase_name(enum clv_phase phase)
{
	static const char *const names[CLV_PHASES] = {"load", "convert", "serve"};
	return names[phase];
}

static uint64_t whole(uint64_t bytes)
{
	return clv_align_up(bytes, CLV_LAYERS_ALIGNMENT);
}

static bool converts(const struct clv_layers_kind *k)
{
	return k->conversion != NULL;
}

static uint64_t lasting_of(const struct clv_layers_kind *k)
{
	return converts(k) ? k->plan->lasting : 0;
}

static uint64_t going_of(const struct clv_layers_kind *k)
{
	return converts(k) ? k->plan->sources - k->plan->lasting : 0;
}

static uint64_t kept_of(const struct clv_layers_kind *k)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < k->load_count; i++)
		sum += k->loads[i].stays ? whole(k->loads[i].bytes) : 0;
	return sum;
}

/* The spare layer of ping-pong. */
static uint64_t spare_of(const struct clv_layers *l)
{
	for (uint32_t i = 0; i < l->count && l->strategy == CLV_STRATEGY_PING_PONG; i++)
		if (converts(&l->kinds[l->kind[i]]))
			return l->kinds[l->kind[i]].plan->destinations;
	return 0;
}

static void note_peak(struct clv_layers_peak *p, uint64_t peak, uint64_t least, enum clv_phase phase, uint32_t layer)
{
	p->least_bytes = clv_max_u64(p->least_bytes, least);
	if (peak <= p->peak_bytes)
		return;
	p->peak_bytes = peak;
	p->phase = phase;
	p->layer = layer;
}

/* Of all layers: sources that last, those that are still to go, and destinations that are there, but for a spare layer. */
struct progress {
	uint64_t lasting, going, done;
};

static struct progress start(const struct clv_layers *l)
{
	struct progress p = {0};
	for (uint32_t i = 0; i < l->count; i++) {
		p.lasting += lasting_of(&l->kinds[l->kind[i]]);
		p.going += going_of(&l->kinds[l->kind[i]]);
	}
	return p;
}

static void advance(const struct clv_layers *l, struct progress *p, const struct clv_layers_kind *k)
{
	p->going -= going_of(k);
	p->done += l->strategy == CLV_STRATEGY_PING_PONG ? 0 : k->plan->destinations;
}

void clv_layers_peak(const struct clv_layers *l, struct clv_layers_peak *out)
{
	struct progress p = start(l);
	uint64_t last = 0;
	*out = (struct clv_layers_peak){.base_bytes = whole(l->other_weights)};
	for (uint32_t i = 0; i < l->count; i++)
		out->base_bytes += kept_of(&l->kinds[l->kind[i]]);
	uint64_t loaded = out->base_bytes + p.lasting + p.going;
	note_peak(out, loaded, loaded, CLV_PHASE_LOAD, 0);
	for (uint32_t i = 0; i < l->count; i++) {
		const struct clv_layers_kind *k = &l->kinds[l->kind[i]];
		if (!converts(k))
			continue;
		/* the plan's height has the sources; ping-pong's, the spare, which is there for all layers alike */
		uint64_t rest = out->base_bytes + p.lasting + p.going + p.done - k->plan->sources;
		note_peak(out, rest + k->plan->packed.height, rest + k->plan->packed.lower_bound, CLV_PHASE_CONVERT, i);
		last = lasting_of(k);
		advance(l, &p, k);
	}
	out->final_bytes = out->base_bytes + p.lasting + p.done;
	if (l->strategy == CLV_STRATEGY_PING_PONG)
		out->final_bytes += spare_of(l) - last;
	uint64_t serving = out->final_bytes + whole(l->kv_cache) + whole(l->workspace);
	note_peak(out, serving, serving, CLV_PHASE_SERVE, 0);
}

/* ---- the history ---- */

struct walk {
	const struct clv_layers *l;
	struct clv_layers_peak peak;
	clv_layers_visit *visit;
	void *arg;
	uint64_t blocks;                          /* born so far */
	uint64_t *first;                          /* block of each layer's first load */
	uint64_t *lasting_at, *going_at;          /* where each layer's sources lie */
	uint32_t first_converted, last_converted; /* layers */
	uint64_t spare, kept_at;
	struct progress progress;
	struct kind {
		size_t *steps;  /* clv_conversion_steps() */
		uint64_t *born; /* block of each buffer */
		uint32_t *load; /* of each source: its place among the loads */
	} kinds[CLV_LAYERS_KINDS];
};

static bool birth(struct walk *w, const struct clv_layers_event *e)
{
	struct clv_layers_event event = *e;
	event.birth = true;
	event.block = w->blocks++;
	return w->visit(w->arg, &event);
}

static bool alone(struct walk *w, const char *name, uint64_t bytes, enum clv_phase phase, uint64_t offset)
{
	const struct clv_layers_event e = {
		.phase = phase, .bytes = bytes, .name = name, .role = "", .layer = UINT32_MAX, .offset = offset};
	return !bytes || birth(w, &e);
}

static void place_sources(struct walk *w)
{
	const struct clv_layers *l = w->l;
	uint64_t at = w->peak.base_bytes + w->spare;
	for (uint32_t i = 0; i < l->count; i++) {
		w->lasting_at[i] = at;
		at += lasting_of(&l->kinds[l->kind[i]]);
	}
	for (uint32_t i = l->count; i-- > 0;) {
		w->going_at[i] = at;
		at += going_of(&l->kinds[l->kind[i]]);
	}
}

static uint64_t source_place(const struct walk *w, uint32_t layer, size_t buffer)
{
	const struct clv_conversion_plan *p = w->l->kinds[w->l->kind[layer]].plan;
	uint64_t offset = p->offsets[buffer];
	return offset < p->lasting ? w->lasting_at[layer] + offset : w->going_at[layer] + offset - p->lasting;
}

static bool load_layer(struct walk *w, uint32_t layer)
{
	const struct clv_layers_kind *k = &w->l->kinds[w->l->kind[layer]];
	size_t source = 0;
	w->first[layer] = w->blocks;
	for (uint32_t i = 0; i < k->load_count; i++) {
		const struct clv_layers_load *load = &k->loads[i];
		const struct clv_layers_event e = {
			.phase = CLV_PHASE_LOAD,
			.bytes = load->bytes,
			.name = load->name,
			.role = load->stays ? "kept" : clv_conversion_role_name(CLV_ROLE_SOURCE),
			.layer = layer,
			.offset = load->stays ? w->kept_at : source_place(w, layer, source++)};
		w->kept_at += load->stays ? whole(load->bytes) : 0;
		if (!birth(w, &e))
			return false;
	}
	return true;
}

/* Where a buffer of the layer's plan, no source, lies. */
static uint64_t place(const struct walk *w, const struct clv_conversion_plan *p, size_t buffer)
{
	uint64_t offset = p->offsets[buffer];
	uint64_t end = w->peak.peak_bytes - w->progress.done;
	if (w->l->strategy == CLV_STRATEGY_PING_PONG) {
		if (p->buffers[buffer].role == CLV_ROLE_DESTINATION)
			return w->peak.base_bytes + offset - (p->packed.height - p->destinations);
		end += w->spare; /* the plan has destinations at the end, and they are not there */
	}
	return end - (p->packed.height - offset);
}

static bool step(struct walk *w, uint32_t layer, size_t buffer, bool is_birth)
{
	const struct clv_layers_kind *k = &w->l->kinds[w->l->kind[layer]];
	struct kind *s = &w->kinds[w->l->kind[layer]];
	const struct clv_conversion_buffer *b = &k->plan->buffers[buffer];
	enum clv_strategy strategy = w->l->strategy;
	struct clv_layers_event e = {.birth = is_birth,
				     .phase = CLV_PHASE_CONVERT,
				     .bytes = b->bytes,
				     .name = k->conversion->tensors[b->tensor].name,
				     .role = clv_conversion_role_name(b->role),
				     .layer = layer};
	bool pass = false;
	if (b->role == CLV_ROLE_SOURCE)
		pass = is_birth || (clv_conversion_lasts(&k->conversion->tensors[b->tensor], strategy) &&
				    (strategy == CLV_STRATEGY_IN_PLACE || layer != w->last_converted));
	if (b->role == CLV_ROLE_DESTINATION)
		pass = !is_birth || (strategy == CLV_STRATEGY_PING_PONG && layer != w->first_converted);
	if (pass)
		return true;
	if (b->role == CLV_ROLE_SOURCE) {
		e.block = w->first[layer] + s->load[buffer];
		e.offset = source_place(w, layer, buffer);
		return w->visit(w->arg, &e);
	}
	e.offset = place(w, k->plan, buffer);
	if (is_birth) {
		s->born[buffer] = w->blocks;
		return birth(w, &e);
	}
	e.block = s->born[buffer];
	return w->visit(w->arg, &e);
}

static bool convert_layer(struct walk *w, uint32_t layer)
{
	const struct clv_layers_kind *k = &w->l->kinds[w->l->kind[layer]];
	const struct kind *s = &w->kinds[w->l->kind[layer]];
	if (!converts(k))
		return true;
	for (size_t t = 0; t < 2 * k->plan->count; t++)
		if (!step(w, layer, s->steps[t] / 2, s->steps[t] % 2))
			return false;
	advance(w->l, &w->progress, k);
	return true;
}

static bool walk_all(struct walk *w)
{
	const struct clv_layers *l = w->l;
	uint64_t left;
	if (!alone(w, "other weights", l->other_weights, CLV_PHASE_LOAD, 0))
		return false;
	w->kept_at = whole(l->other_weights);
	for (uint32_t i = 0; i < l->count; i++)
		if (!load_layer(w, i))
			return false;
	for (uint32_t i = 0; i < l->count; i++)
		if (!convert_layer(w, i))
			return false;
	left = w->peak.final_bytes - w->progress.done; /* destinations are at the upper end */
	return alone(w, "KV cache", l->kv_cache, CLV_PHASE_SERVE, left) &&
	       alone(w, "workspace", l->workspace, CLV_PHASE_SERVE, left + whole(l->kv_cache));
}

static bool open_kind(struct kind *s, const struct clv_layers_kind *k)
{
	const struct clv_conversion_plan *p = k->plan;
	uint32_t load = 0;
	if (!converts(k))
		return true;
	s->steps = clv_conversion_steps(p);
	s->born = malloc(p->count * sizeof(*s->born));
	s->load = malloc(p->count * sizeof(*s->load));
	if (!s->steps || !s->born || !s->load)
		return false;
	for (size_t i = 0; i < p->count && p->buffers[i].role == CLV_ROLE_SOURCE; i++) {
		while (k->loads[load].stays)
			load++;
		s->load[i] = load++;
	}
	return true;
}

bool clv_layers_walk(const struct clv_layers *l, clv_layers_visit *visit, void *arg)
{
	struct walk w = {.l = l, .visit = visit, .arg = arg, .spare = spare_of(l), .first_converted = UINT32_MAX};
	clv_layers_peak(l, &w.peak);
	w.progress = start(l);
	for (uint32_t i = 0; i < l->count; i++)
		if (converts(&l->kinds[l->kind[i]])) {
			w.first_converted = w.first_converted == UINT32_MAX ? i : w.first_converted;
			w.last_converted = i;
		}
	w.first = malloc((l->count + 1) * sizeof(*w.first));
	w.lasting_at = malloc((l->count + 1) * sizeof(*w.lasting_at));
	w.going_at = malloc((l->count + 1) * sizeof(*w.going_at));
	bool ok = w.first && w.lasting_at && w.going_at;
	for (unsigned k = 0; k < CLV_LAYERS_KINDS && ok; k++)
		ok = open_kind(&w.kinds[k], &l->kinds[k]);
	if (ok) {
		place_sources(&w);
		ok = walk_all(&w);
	}
	for (unsigned k = 0; k < CLV_LAYERS_KINDS; k++) {
		free(w.kinds[k].steps);
		free(w.kinds[k].born);
		free(w.kinds[k].load);
	}
	free(w.first);
	free(w.lasting_at);
	free(w.going_at);
	return ok;
}
