/* SPDX-License-Identifier: MIT
 *
 * synth: a made-up history, as large as wanted and the same on every machine, for benchmarks and for tests of scale.
 * Owns nothing between calls.
 *
 * Tensors live in layers, as a program's do: a few sizes come again and again, most blocks die young and in the reverse
 * of the order in which they were made, some stay. One in eight is freed by another stream than its own.
 */
#ifndef CLV_SYNTH_H
#define CLV_SYNTH_H

#include "trace.h"

struct clv_synth {
	uint32_t events;    /* of the history; at least 4 */
	uint32_t live;      /* blocks that are live at once, about; at most events / 4; 0: 2,000 */
	uint32_t streams;   /* 0: 1 */
	uint32_t addresses; /* different ones that occur, at least `live`; 0: as few as there can be */
	uint64_t seed;
};

/* A linked trace of one device, without a state and without settings, or NULL if host memory is out or it makes no
 * sense. */
struct clv_trace *clv_synth_trace(const struct clv_synth *synth, struct clv_error *err);

#endif
