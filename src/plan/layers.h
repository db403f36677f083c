/* SPDX-License-Identifier: MIT
 *
 * layers: the memory of a rank from the first weight loaded to the last buffer of serving, given how each kind of layer is
 * converted: how much it needs, where everything lies if it is to need no more, and the history of its requests. Owns nothing:
 * it points to plans and names, which must outlive it; no lock.
 *
 * The schedule. Other weights are loaded first, then the layers: what stays as it is and what is converted, in the order of
 * `loads`. When all are there they are converted one after another, each as conversion.h says. KV cache and workspace come when
 * the last layer is done. So engines do it (vLLM: load_weights(), process_weights_after_loading(), and then it is measured
 * what is left for the KV cache).
 *
 * Only one layer of a kind is packed; the others follow from it. Let S and D be the bytes of a layer's sources and
 * destinations, and G the height of a packing of all else that its conversion needs, destinations included, in which
 * destinations fill the upper end. What never moves is the base. Of n layers, let i be in conversion:
 *
 *     0      base   + sources of n-1 ... i+1   + S           + gap         + destinations of i-1 ... 0          H
 *     | base | n-1 |        ...        | i+1 |  i's sources  |             | i-1 |        ...        | 1 | 0 |
 *
 * The gap has H - base - (n-i) S - i D bytes, in one piece. The layer is packed into it, destinations at the upper end. Its
 * sources, which border on it, go: the picture is that of layer i+1. So the whole is possible if and only if in this picture
 * every gap has G bytes: H = base + max over i of ((n-i) S + i D + G). The term is linear in i, so it is largest for the first
 * layer (D <= S) or for the last (D > S). If G is what is live of this at the worst moment of a layer, as it is whenever the
 * packing is proved to be the best, then H is what is live at the worst moment of all: no schedule of the strategy needs less.
 * Layers of two kinds make sums of (n-i) S and i D, and the maximum one over all layers.
 *
 * In place and under ping-pong there are sources that last (conversion.h). They lie on the base in the order of layers, and S
 * is of the others only. Of ping-pong's, a spare layer of D bytes comes before them: the first layer's destinations are there,
 * each other one's in the sources of the layer before, and D counts as 0 above. In the end the last layer's sources go; what
 * is between them and the gap is gone by then.
 */
#ifndef CLV_LAYERS_H
#define CLV_LAYERS_H

#include "conversion.h"

#define CLV_LAYERS_KINDS 2
#define CLV_LAYERS_ALIGNMENT 512

struct clv_layers_load {
	const char *name;
	uint64_t bytes;
	bool stays; /* else it is the plan's next source */
};

struct clv_layers_kind {
	const struct clv_layers_load *loads;
	uint32_t load_count;
	const struct clv_conversion *conversion; /* NULL: all stays */
	const struct clv_conversion_plan *plan;  /* of it, by the strategy below */
};

struct clv_layers {
	enum clv_strategy strategy;
	const uint8_t *kind; /* of each layer */
	uint32_t count;
	struct clv_layers_kind kinds[CLV_LAYERS_KINDS]; /* ping-pong: one at most has a conversion */
	uint64_t other_weights, kv_cache, workspace;    /* bytes, 0: none */
};

enum clv_phase {
	CLV_PHASE_LOAD, /* everything is loaded, nothing is converted */
	CLV_PHASE_CONVERT,
	CLV_PHASE_SERVE, /* everything is converted; KV cache and workspace are there */
	CLV_PHASES
};

const char *clv_phase_name(enum clv_phase phase);

struct clv_layers_peak {
	uint64_t peak_bytes;  /* H, or what serving needs if that is more */
	uint64_t least_bytes; /* no schedule of the strategy needs less; the same, if packings are proved to be best */
	uint64_t base_bytes;  /* what never moves */
	uint64_t final_bytes; /* when all is converted, KV cache and workspace apart */
	enum clv_phase phase; /* of the peak, the first that reaches it */
	uint32_t layer;       /* of the peak, if it is in the conversion */
};

void clv_layers_peak(const struct clv_layers *layers, struct clv_layers_peak *peak);

/* A request or its end, in the order of the program. */
struct clv_layers_event {
	bool birth;
	enum clv_phase phase;
	uint64_t block;   /* of a birth: how many there were before; of an end: that of the birth */
	uint64_t bytes;   /* as asked for */
	const char *name; /* of the tensor, or what else it is */
	const char *role; /* clv_conversion_role_name(), "kept", or "" if the name says it all */
	uint32_t layer;   /* UINT32_MAX: of none */
	uint64_t offset;  /* where it lies, if there are peak_bytes */
};

/* False ends the walk. */
typedef bool clv_layers_visit(void *arg, const struct clv_layers_event *event);

/* The whole history: every layer, every expert. False if a visit was, or host memory is out. */
bool clv_layers_walk(const struct clv_layers *layers, clv_layers_visit *visit, void *arg);

#endif
