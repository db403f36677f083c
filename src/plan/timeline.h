/* SPDX-License-Identifier: MIT
 *
 * timeline: the memory of one rank from the first weight loaded to the last buffer of serving: how much each strategy of
 * converting the experts needs, where everything lies if it is to need no more, what is to be held back for it, and what is
 * to be warned about. Owns what it is made of, but for the model and the backend, which must outlive it; immutable once made,
 * no lock.
 *
 * The schedule. All that is not converted is loaded first (other weights, layers that the backend leaves alone, buffers that
 * stay where they are), then the sources of all layers. Layers are converted in the order of the model, each as conversion.h
 * says: its sources go last, pieces go right after they are stacked. KV cache and workspace come when the last layer is
 * done. So engines do it (vLLM: load_weights(), process_weights_after_loading(), determine_available_memory()).
 *
 * Only one layer of a kind is packed; the others follow from it. Let S and D be the bytes of a layer's sources and
 * destinations, and G the height of a packing of everything else that its conversion needs, destinations included, in which
 * the destinations fill one end, the other end being where sources begin. Of n layers, let i be in conversion. With
 *
 *     0     base          +sources of layers n-1 ... i+1     +S          gap              +destinations of i-1 ... 0     H
 *     | base | n-1 | ... | i+1 |  layer i's sources  |  G or more  | i-1 | ... | 1 | 0 |
 *
 * the gap of layer i has H - base - (n-i) S - i D bytes, without a hole. Layer i is packed into it, its destinations at the
 * upper end; its sources, which border on it, go; what is left is the picture of layer i+1. So the whole is possible if and
 * as soon as each gap has G bytes: H = base + max over i of ((n-i) S + i D + G). The term is linear in i, so it is largest
 * for the first layer (D <= S) or the last (D > S). That is also what is live then, if G is what is live at the worst moment
 * of a layer, and nothing can need less than is live. Layers of two kinds only make the sums longer. In place, sources
 * stay and D counts as 0; ping-pong keeps destinations in the sources of the layer before, and the gap where it is.
 */
#ifndef CLV_TIMELINE_H
#define CLV_TIMELINE_H

#include "backend.h"
#include "conversion.h"

#define CLV_TIMELINE_TRANSIENTS 64
#define CLV_TIMELINE_RESERVATIONS 64
#define CLV_TIMELINE_WARNINGS 16

struct clv_timeline_config {
	const struct clv_model *model;
	const struct clv_backend *backend;
	const struct clv_shard_config *parallel; /* alignments and `zeroed` are not read */
	uint32_t rank;
	uint64_t other_weights; /* bytes of all that is no routed expert; 0: none */
	uint64_t kv_cache, workspace;
	uint64_t gpu_memory;         /* that the rank can have; 0: not known */
	enum clv_strategy strategy;  /* the one that the engine uses: of it are `fits`, reservations and warnings */
};

/* Defaults: rank 0, preallocated, nothing else there, memory not known. */
void clv_timeline_config_init(struct clv_timeline_config *config);

/* What a layer's conversion asks for and gives back, sources and destinations apart. */
struct clv_timeline_transient {
	char name[80];
	uint64_t bytes;
	uint64_t segment_bytes; /* that PyTorch's native allocator takes from the driver if it has no room for it */
	uint64_t requests;      /* of a layer */
	unsigned strategies;    /* that ask for it: 1 << enum clv_strategy */
};

/* Held back, in the sense of a reservation of the heap: `count` slots of `bytes`, for requests of exactly this size (to whole
 * 512 B), the first `after_n` of which are others' and are let pass. */
struct clv_timeline_reservation {
	char name[80]; /* the buffer it is for; of several of one size, the first */
	uint64_t bytes;
	uint64_t count;
	uint64_t after_n;
	bool hard;
};

struct clv_timeline_warning {
	const char *code; /* stable */
	char text[1024];  /* a sentence */
};

enum clv_timeline_phase {
	CLV_PHASE_LOAD, /* everything is loaded, nothing is converted */
	CLV_PHASE_CONVERT,
	CLV_PHASE_SERVE /* everything is converted; KV cache and workspace are there */
};

const char *clv_timeline_phase_name(enum clv_timeline_phase phase);

struct clv_timeline_strategy {
	bool legal;
	char why[256];        /* if it is not; nothing below is set then */
	uint64_t peak_bytes;  /* the height H of the schedule */
	uint64_t least_bytes; /* the most that is live at once: no schedule of this strategy can need less */
	enum clv_timeline_phase phase; /* of the peak */
	uint32_t layer;       /* of the model, if the phase is CLV_PHASE_CONVERT */
	bool fits;            /* peak_bytes <= gpu_memory; true if that is not known */
	int64_t headroom_bytes; /* gpu_memory - peak_bytes; 0 if it is not known */
};

/* The layers of a kind. */
struct clv_timeline_kind {
	uint32_t layers; /* on this rank; 0: nothing below is set */
	bool converted;  /* false: the backend is not for them, they stay as they were loaded */
	struct clv_backend_layer backend; /* if converted */
	uint64_t kept_bytes;              /* of a layer: buffers that stay where they are */
	uint64_t source_bytes;            /* the others' */
	uint64_t destination_bytes;
	struct clv_conversion conversion; /* of a layer, if converted and any buffer does not stay */
	struct clv_conversion_tensor tensors[CLV_CONVERSION_TENSORS];
	char tensor_names[CLV_CONVERSION_TENSORS][40];
	struct clv_conversion_plan plans[CLV_STRATEGIES]; /* of the legal ones: one layer, packed */
};

struct clv_timeline {
	struct clv_timeline_config config;
	struct clv_shard_rank rank;
	struct clv_timeline_kind kinds[CLV_SETS];
	uint64_t base_bytes;  /* other weights, layers that are not converted, and what stays of the others */
	bool transients_known; /* false: for this backend no figures are known, and peaks are without them */

	struct clv_timeline_strategy strategies[CLV_STRATEGIES];
	bool fits; /* with config.strategy */
	int64_t headroom_bytes;

	struct clv_timeline_transient transients[CLV_TIMELINE_TRANSIENTS];
	uint32_t transient_count;
	struct clv_timeline_reservation reservations[CLV_TIMELINE_RESERVATIONS];
	uint32_t reservation_count;
	struct clv_timeline_warning warnings[CLV_TIMELINE_WARNINGS];
	uint32_t warning_count;
};

/* False with `err` if model and backend do not go together (backend.h), the rank is none of the world's, or config.strategy
 * is not legal for them; without a text if host memory is out. On false nothing need be freed. */
bool clv_timeline_make(struct clv_timeline *timeline, const struct clv_timeline_config *config, struct clv_error *err);
void clv_timeline_free(struct clv_timeline *timeline);

/* A request or its end, in the order of the program. */
struct clv_timeline_event {
	bool birth;
	uint64_t block; /* of a birth: how many there were before; of an end: that of the birth */
	uint64_t bytes; /* as asked for */
	const char *name; /* of the buffer; what it is of */
	const char *role; /* "source", "destination", ... */
	uint32_t layer;   /* of the model; UINT32_MAX: of none */
	uint64_t offset;  /* where it lies in the schedule that reaches peak_bytes */
};

/* False ends the walk. */
typedef bool clv_timeline_visit(void *arg, const struct clv_timeline_event *event);

/* The whole history of a legal strategy: every layer, every expert. False if a visit was, or host memory is out. */
bool clv_timeline_walk(const struct clv_timeline *timeline, enum clv_strategy strategy, clv_timeline_visit *visit,
		       void *arg);

#endif
