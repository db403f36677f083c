/* SPDX-License-Identifier: MIT
 *
 * timeline: what one rank of a model needs to load its experts and to convert them for a backend: how much under each
 * strategy, what comes and goes on the way, what is to be held back, and what is to be warned about. Owns what it is made
 * of, but for the model and the backend, which must outlive it; immutable once made, no lock.
 *
 * How the bytes of all layers follow from one layer, and the order of requests, are explained in layers.h.
 */
#ifndef CLV_TIMELINE_H
#define CLV_TIMELINE_H

#include "backend_steps.h"
#include "layers.h"

struct clv_timeline_config {
	const struct clv_model *model;
	const struct clv_backend *backend;
	const struct clv_shard_config *parallel; /* alignments and `zeroed` are not read */
	uint32_t rank;
	uint64_t other_weights; /* bytes of all that is no routed expert; 0: none */
	bool other_weights_known; /* else there is a warning where they matter */
	uint64_t kv_cache, workspace;
	uint64_t gpu_memory;        /* that the rank can have; 0: not known */
	enum clv_strategy strategy; /* the one that the engine uses: of it are `fits`, reservations and warnings */
	bool strategy_assumed; /* nobody said that it uses that: there is a warning if those of today do not fit */
};

/* Defaults: rank 0, preallocated, nothing else there, memory not known. */
void clv_timeline_config_init(struct clv_timeline_config *config);

/* What a layer's conversion asks for and gives back, sources and destinations apart. */
struct clv_timeline_transient {
	char name[64];
	uint64_t bytes;
	uint64_t segment_bytes; /* that PyTorch's native allocator takes from the driver if it has no room for it */
	uint64_t requests;      /* of a layer */
	unsigned strategies;    /* that ask for it: 1 << enum clv_strategy */
};

/* Held back, in the sense of a reservation of the heap: `count` slots of `bytes`, for requests of exactly this size (to whole
 * 512 B), the first `after_n` of which are others' and are let pass.
 *
 * The rule. What is loaded and all slots together are never more than peak_bytes, by which `fits` is judged: what fits can be
 * held, too. Slots are held for the buffers that are live at a layer's worst moment. When they are there, no request can
 * fail for want of room any more: each finds the room of what has ended. What comes and goes before that moment, such as
 * chunks of rows, is not held beyond it: it uses the room of what is there later, which is therefore soft, yields to it
 * without a word, and is then served from ordinary memory, into which that room has come back. Requests of the same size
 * before the conversion, which sources can be, are let pass. The layers after the first find the room of its sources; if
 * destinations are larger than those, whole slots for what all layers grow by come on top. Of two kinds of layers it is the
 * one that needs more.
 *
 * Under lists, pieces of four kinds would lie mixed, and a list that is freed would leave holes between pieces. So the pieces of
 * all kinds are held for, and one slot for what an expert's piece is gathered in, but for the kind that is stacked first: its
 * pieces then lie together in what is left, and what they leave is room for the other kinds' destinations.
 *
 * Hard are destinations for which no request comes that is not held for; one slot for several buffers of a size is hard if all of
 * them are. */
struct clv_timeline_reservation {
	char name[64]; /* the buffer it is for; of several of one size the first, destinations before others */
	uint64_t bytes;
	uint64_t count;
	uint64_t after_n;
	uint64_t uses; /* requests of the size that come then, until the last layer is converted: what is held then is free again */
	bool hard;
};

struct clv_timeline_warning {
	const char *code; /* stable */
	char text[1024];  /* a sentence */
};

struct clv_timeline_strategy {
	bool legal;
	char why[256];               /* if it is not; nothing below is set then */
	struct clv_layers_peak peak; /* its `layer` is one of clv_timeline's */
	bool fits;                   /* peak_bytes <= gpu_memory; true if that is not known */
	int64_t headroom_bytes;      /* gpu_memory - peak_bytes; 0 if it is not known */
};

/* The layers of a kind. */
struct clv_timeline_kind {
	uint32_t layers;                   /* on this rank; 0: nothing below is set */
	bool planned;                      /* the backend is for them; else they stay as they were loaded */
	struct clv_backend_layer backend;  /* if planned */
	struct clv_backend_conversion way; /* the same */
	/* One layer, packed, under each legal strategy; none if all of it stays. */
	struct clv_conversion_plan plans[CLV_STRATEGIES];
	struct clv_layers_load loads[CLV_BACKEND_BUFFERS];
	uint32_t load_count;
};

/* Not to be copied: it points into itself. */
struct clv_timeline {
	struct clv_timeline_config config;
	struct clv_shard_rank rank;
	struct clv_timeline_kind kinds[CLV_SETS];
	uint32_t layer_count;  /* of this rank, with experts */
	uint32_t *layers;      /* their numbers in the model */
	uint8_t *layer_kinds;  /* CLV_SET_QUANT or CLV_SET_PLAIN */
	bool transients_known; /* false: for this backend no figures are known, and peaks are without them */

	struct clv_timeline_strategy strategies[CLV_STRATEGIES];
	bool fits; /* with config.strategy */
	int64_t headroom_bytes;

	struct clv_timeline_transient *transients; /* of all legal strategies */
	uint32_t transient_count;
	struct clv_timeline_reservation *reservations;
	uint32_t reservation_count;
	struct clv_timeline_warning *warnings;
	uint32_t warning_count;
};

/* In less than 50 ms for the largest models. False with `err` if model and backend do not go together (backend.h), the rank
 * is none of the world's, or config.strategy is not legal for them; without a text if host memory is out. On false nothing
 * need be freed. */
bool clv_timeline_make(struct clv_timeline *timeline, const struct clv_timeline_config *config, struct clv_error *err);
void clv_timeline_free(struct clv_timeline *timeline);

/* Makes another legal strategy the one of `fits`, reservations and warnings. False: host memory is out, and the timeline is good
 * for nothing but to be freed. */
bool clv_timeline_choose(struct clv_timeline *timeline, enum clv_strategy strategy);

/* All layers under a legal strategy, for clv_layers_peak() and clv_layers_walk(); good while the timeline is. */
struct clv_layers clv_timeline_layers(const struct clv_timeline *timeline, enum clv_strategy strategy);

#endif
