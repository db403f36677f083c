/* SPDX-License-Identifier: MIT */
#include "plan_json.h"

#include "../../tracing/json_text.h"

/* jansson's setters take NULL, as of a value that could not be made, and answer that they failed; so a document is made
 * without a look at each, and checked here once. */
struct maker {
	bool failed;
};

static void set(struct maker *k, json_t *o, const char *key, json_t *v)
{
	k->failed |= json_object_set_new(o, key, v) != 0;
}

static void set_bytes(struct maker *k, json_t *o, const char *key, uint64_t v)
{
	set(k, o, key, json_integer((json_int_t)v)); /* sizes are below 2^63 (model.h) */
}

static void set_text(struct maker *k, json_t *o, const char *key, const char *text)
{
	set(k, o, key, clv_json_text(text));
}

static void append(struct maker *k, json_t *list, json_t *v)
{
	k->failed |= json_array_append_new(list, v) != 0;
}

/* ---- buffers ---- */

static json_t *numbers(struct maker *k, const uint64_t *v, uint32_t count)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < count; i++)
		append(k, list, json_integer((json_int_t)v[i]));
	return list;
}

static json_t *buffer(struct maker *k, const struct clv_backend_buffer *b)
{
	static const char *const kinds[] = {"weight", "scale", "zero_point", "bias", "index", "scalar"};
	json_t *o = json_object();
	set_text(k, o, "name", b->name);
	set(k, o, "shape", numbers(k, b->shape, b->dims));
	set_text(k, o, "dtype", b->dtype.name);
	set_bytes(k, o, "bytes", b->bytes);
	set(k, o, "strides", numbers(k, b->stride, b->dims));
	set_text(k, o, "kind", kinds[b->kind]);
	set_bytes(k, o, "alignment", b->alignment);
	set(k, o, "zeroed", json_boolean(b->zeroed));
	set(k, o, "same", json_boolean(b->same));
	return o;
}

static json_t *buffers(struct maker *k, const struct clv_backend_buffer *b, uint32_t count)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < count; i++)
		append(k, list, buffer(k, &b[i]));
	return list;
}

/* ---- sizes ---- */

static json_t *intermediate(struct maker *k, const struct clv_backend_layer *l)
{
	const struct clv_shard_extent *n = &l->destination_shard.intermediate;
	json_t *o = json_object();
	set_bytes(k, o, "logical", n->logical);
	set_bytes(k, o, "raw", l->share);
	set_bytes(k, o, "padded", n->padded);
	return o;
}

static json_t *padding(struct maker *k, const struct clv_plan_rank *r)
{
	const struct clv_plan_padding *p = &r->padding;
	const struct clv_shard *s = &r->layer.destination_shard;
	json_t *o = json_object(), *other = json_null();
	set_text(k, o, "owner", clv_plan_owner_name(p->owner));
	set_text(k, o, "padded_by", clv_backend_pads_name(r->layer.backend->pads));
	set_bytes(k, o, "passed", p->passed);
	set_bytes(k, o, "raw", r->layer.share);
	set_bytes(k, o, "padded", s->intermediate.padded);
	set_bytes(k, o, "hidden_raw", s->hidden.raw);
	set_bytes(k, o, "hidden_padded", s->hidden.padded);
	set_bytes(k, o, "valid_bytes", p->valid_bytes);
	set_bytes(k, o, "bytes", p->padding_bytes);
	set_bytes(k, o, "layout_bytes", p->layout_bytes);
	set(k, o, "percent",
	    p->valid_bytes ? json_real(100.0 * (double)p->padding_bytes / (double)p->valid_bytes) : json_null());
	if (p->other_padded) {
		other = json_object();
		set_text(k, other, "owner",
			 clv_plan_owner_name(p->owner == CLV_OWNER_MODEL ? CLV_OWNER_BACKEND : CLV_OWNER_MODEL));
		set_bytes(k, other, "padded", p->other_padded);
		set_bytes(k, other, "weights_bytes", p->other_weights_bytes);
	}
	set(k, o, "other", other);
	return o;
}

/* ---- the timeline ---- */

static json_t *transients(struct maker *k, const struct clv_timeline *t)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < t->transient_count; i++) {
		const struct clv_timeline_transient *x = &t->transients[i];
		json_t *o = json_object(), *strategies = json_array();
		set_text(k, o, "name", x->name);
		set_bytes(k, o, "bytes", x->bytes);
		set_bytes(k, o, "torch_segment_bytes", x->segment_bytes);
		set_bytes(k, o, "requests", x->requests);
		for (unsigned s = 0; s < CLV_STRATEGIES; s++)
			if (x->strategies >> s & 1)
				append(k, strategies, json_string(clv_strategy_name((enum clv_strategy)s)));
		set(k, o, "strategies", strategies);
		append(k, list, o);
	}
	return list;
}

static json_t *strategy(struct maker *k, const struct clv_timeline *t, unsigned s)
{
	const struct clv_timeline_strategy *x = &t->strategies[s];
	json_t *o = json_object();
	set_text(k, o, "name", clv_strategy_name((enum clv_strategy)s));
	if (!x->legal) {
		set_text(k, o, "why", x->why);
		return o;
	}
	set_bytes(k, o, "peak_bytes", x->peak.peak_bytes);
	set_bytes(k, o, "least_bytes", x->peak.least_bytes);
	set_text(k, o, "phase", clv_phase_name(x->peak.phase));
	set(k, o, "layer", x->peak.phase == CLV_PHASE_CONVERT ? json_integer(t->layers[x->peak.layer]) : json_null());
	set(k, o, "fits", json_boolean(x->fits));
	set(k, o, "headroom_bytes", t->config.gpu_memory ? json_integer(x->headroom_bytes) : json_null());
	return o;
}

static json_t *strategies(struct maker *k, const struct clv_timeline *t, bool legal)
{
	json_t *list = json_array();
	for (unsigned s = 0; s < CLV_STRATEGIES; s++)
		if (t->strategies[s].legal == legal)
			append(k, list, strategy(k, t, s));
	return list;
}

static json_t *reservations(struct maker *k, const struct clv_timeline *t)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < t->reservation_count; i++) {
		const struct clv_timeline_reservation *r = &t->reservations[i];
		json_t *o = json_object();
		set_text(k, o, "name", r->name);
		set_bytes(k, o, "bytes", r->bytes);
		set_bytes(k, o, "count", r->count);
		set_bytes(k, o, "after_n", r->after_n);
		set_bytes(k, o, "uses", r->uses);
		set(k, o, "hard", json_boolean(r->hard));
		append(k, list, o);
	}
	return list;
}

static json_t *warnings(struct maker *k, const struct clv_timeline *t)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < t->warning_count; i++) {
		json_t *o = json_object();
		set_text(k, o, "code", t->warnings[i].code);
		set_text(k, o, "text", t->warnings[i].text);
		append(k, list, o);
	}
	return list;
}

/* ---- ranks ---- */

/* [[first, last], ...] of the ranks that are like this one. */
static json_t *spans(struct maker *k, const struct clv_plan *p, uint32_t like)
{
	json_t *list = json_array();
	for (uint32_t first = 0, i = 0; i < p->world; first = i) {
		while (i < p->world && p->like[i] == p->like[first])
			i++;
		if (p->like[first] == like)
			append(k, list, json_pack("[i,i]", (int)first, (int)i - 1));
	}
	return list;
}

/* What is of a rank, into `o`. */
static void add_rank(struct maker *k, json_t *o, const struct clv_plan *p, const struct clv_plan_rank *r)
{
	const struct clv_backend_layer *l = &r->layer;
	const struct clv_timeline *t = &r->timeline;
	set_bytes(k, o, "rank", r->rank);
	set_bytes(k, o, "experts_local", l->rank.expert_count);
	set_bytes(k, o, "layers_local", l->rank.moe_layers[p->set]);
	set_bytes(k, o, "kept_layers_local", clv_plan_kept_layers(p, r));
	set(k, o, "layer_span", json_pack("[i,i]", (int)l->rank.layer_first, (int)l->rank.layer_end));
	set(k, o, "intermediate", intermediate(k, l));
	set(k, o, "padding", padding(k, r));
	set_text(k, o, "row_order",
		 clv_backend_order_name(l->order, p->config.timeline.model->gated,
					p->config.timeline.model->interleaved));
	set(k, o, "sources", buffers(k, l->sources, l->source_count));
	set(k, o, "buffers", buffers(k, l->destinations, l->destination_count));
	set_bytes(k, o, "layer_bytes", r->layer_bytes);
	set_bytes(k, o, "scalar_bytes", r->scalar_bytes);
	set_bytes(k, o, "other_bytes", r->other_bytes);
	set_bytes(k, o, "kept_layer_bytes", r->kept_layer_bytes);
	set_bytes(k, o, "weights_bytes", r->weights_bytes);
	set(k, o, "transients_known", json_boolean(t->transients_known));
	set(k, o, "transients", transients(k, t));
	set(k, o, "strategies", strategies(k, t, true));
	set(k, o, "impossible_strategies", strategies(k, t, false));
	set(k, o, "reservations", reservations(k, t));
	set(k, o, "fits", json_boolean(t->fits));
	set(k, o, "headroom_bytes", t->config.gpu_memory ? json_integer(t->headroom_bytes) : json_null());
	set(k, o, "warnings", warnings(k, t));
}

static json_t *all_ranks(struct maker *k, const struct clv_plan *p)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < p->rank_count; i++) {
		json_t *o = json_object();
		set_bytes(k, o, "count", p->ranks[i].count);
		set(k, o, "spans", spans(k, p, i));
		add_rank(k, o, p, &p->ranks[i]);
		append(k, list, o);
	}
	return list;
}

/* ---- the proof ---- */

static json_t *sums(struct maker *k, const struct clv_plan_sum *s)
{
	json_t *o = json_object();
	set_bytes(k, o, "bytes", s->bytes);
	set_bytes(k, o, "valid_bytes", s->valid_bytes);
	set_bytes(k, o, "tail_bytes", s->tail_bytes);
	set_bytes(k, o, "layout_bytes", s->layout_bytes);
	return o;
}

/* `own`: of the plan's buffers, or NULL. */
static json_t *figures(struct maker *k, const struct clv_coverage_figures *f, const struct clv_plan_sum *own)
{
	json_t *o = json_object();
	set_text(k, o, "name", f->name);
	set_bytes(k, o, "copies", f->copies);
	set_bytes(k, o, "elements", f->elements);
	set_bytes(k, o, "bytes", f->bytes);
	set_bytes(k, o, "written", f->written);
	set_bytes(k, o, "buffer_bytes", f->buffer_bytes);
	set_bytes(k, o, "tails", f->tails);
	set_bytes(k, o, "tail_bytes", f->tail_bytes);
	if (own)
		set(k, o, "converted", sums(k, own));
	return o;
}

static json_t *coverage(struct maker *k, const struct clv_plan *p)
{
	json_t *o = json_object(), *list = json_array();
	set_bytes(k, o, "ranks", p->world);
	set(k, o, "holds", json_boolean(!p->disproved.text[0]));
	set(k, o, "why", p->disproved.text[0] ? clv_json_text(p->disproved.text) : json_null());
	for (uint32_t i = 0; i < p->proof_count; i++) {
		const struct clv_plan_proof *x = &p->proofs[i];
		json_t *proof = json_object(), *of = json_array();
		set_text(k, proof, "layers", x->set == CLV_SET_QUANT ? "quantized" : "left_out");
		set_text(k, proof, "buffers_of", x->converted ? "destination" : "source");
		for (uint32_t b = 0; b < x->coverage.count; b++)
			if (x->coverage.buffers[b].set == x->set)
				append(k, of, figures(k, &x->coverage.buffers[b], x->converted ? &x->sums[b] : NULL));
		set(k, proof, "buffers", of);
		append(k, list, proof);
	}
	set(k, o, "proofs", list);
	return o;
}

/* ---- the document ---- */

static json_t *parallel(struct maker *k, const struct clv_shard_config *c)
{
	json_t *o = json_object();
	set_bytes(k, o, "tp", c->tp);
	set_bytes(k, o, "dp", c->dp);
	set_bytes(k, o, "pcp", c->pcp);
	set_bytes(k, o, "pp", c->pp);
	set(k, o, "ep", json_boolean(c->expert_parallel));
	return o;
}

static json_t *memory(struct maker *k, const struct clv_timeline_config *c)
{
	json_t *o = json_object();
	set(k, o, "gpu_memory", c->gpu_memory ? json_integer((json_int_t)c->gpu_memory) : json_null());
	set_bytes(k, o, "other_weights", c->other_weights);
	set_bytes(k, o, "kv_cache", c->kv_cache);
	set_bytes(k, o, "workspace", c->workspace);
	return o;
}

static json_t *notes(struct maker *k, const struct clv_model *m)
{
	json_t *list = json_array();
	for (size_t i = 0; i < m->note_count; i++)
		append(k, list, clv_json_text(m->notes[i]));
	return list;
}

json_t *clv_plan_json(const struct clv_plan *p)
{
	struct maker k = {false};
	const struct clv_timeline_config *c = &p->config.timeline;
	const struct clv_model *m = c->model;
	json_t *doc = json_object();
	set_bytes(&k, doc, "version", CLV_PLAN_JSON_VERSION);
	set_text(&k, doc, "model", m->name);
	set_text(&k, doc, "config", m->path);
	set_text(&k, doc, "backend", c->backend->name);
	set_text(&k, doc, "quantization",
		 clv_format_name(p->set == CLV_SET_PLAIN ? CLV_FORMAT_PLAIN : m->quant.format));
	set(&k, doc, "parallel", parallel(&k, c->parallel));
	set_bytes(&k, doc, "world", p->world);
	set(&k, doc, "memory", memory(&k, c));
	set_text(&k, doc, "strategy", clv_strategy_name(c->strategy));
	set_bytes(&k, doc, "moe_layers", m->moe_layers);
	set_bytes(&k, doc, "experts_total", m->experts);
	set_bytes(&k, doc, "hidden", m->routed_hidden);
	add_rank(&k, doc, p, clv_plan_worst(p));
	if (p->like)
		set(&k, doc, "ranks", all_ranks(&k, p));
	if (p->proof_count)
		set(&k, doc, "coverage", coverage(&k, p));
	set(&k, doc, "notes", notes(&k, m));
	if (!k.failed)
		return doc;
	json_decref(doc);
	return NULL;
}
