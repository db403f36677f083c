/* SPDX-License-Identifier: MIT
 *
 * state: the memory of one device as a history goes on, step by step: what is mapped, used, freed and held back. It makes sense of
 * PyTorch's segment events, of the notes of Cleave's heap, and of histories that have neither (enum clv_report_basis). Owned by
 * one thread.
 *
 * A step is one event or one note. A FREE_REQUESTED that is completed by the next event is complete at once, so that no moment
 * in between is seen.
 */
#ifndef CLV_REPORT_STATE_H
#define CLV_REPORT_STATE_H

#include "../policies/torch_window.h"
#include "plane.h"

/* The heap serves requests up to this size from slabs, of whose slots it does not tell when they are complete. */
#define CLV_STATE_SMALL_MAX (32 * CLV_KIB)
#define CLV_STATE_CHUNK (2 * CLV_MIB) /* slabs lie in chunks of this size */

struct clv_state {
	const struct clv_trace *trace;
	const struct clv_history *h;
	enum clv_report_basis basis;
	bool given_known;
	struct clv_torch_settings settings; /* SEGMENTS */
	struct clv_torch_window window;     /* SEGMENTS: what was there before */
	struct clv_report_block *blocks;    /* by dense id */
	struct clv_plane plane;
	uint32_t event, note; /* so many of each have been applied */
	uint64_t live_blocks;

	/* private to state.c */
	struct clv_state_place *places; /* by dense id */
	bool whole_ranges;              /* ranges are not divided into pages: there would be too many */
	bool has_ready;                 /* FRAMES: the heap tells when a free is complete */
	bool driver_is_live; /* DRIVER: no requests were recorded, so what the driver gave is taken to be in use */
	uint64_t pages;
	struct clv_map
		served; /* FRAMES: by address, the note of the cut or the reservation that made room for a request */
	struct clv_map numbers; /* FRAMES: by a frame's number, its index in `physical` */
	struct clv_physical *physical;
	size_t physical_count, physical_cap;
};

/* What a walk over it goes by. */
enum clv_report_basis clv_state_basis(const struct clv_history *h);

/* Before the first step. False with an error: out of host memory. Close it in any case. */
bool clv_state_open(struct clv_state *s, const struct clv_trace *trace, const struct clv_history *history,
		    struct clv_error *err);
void clv_state_close(struct clv_state *s);

/* Back before the first step; what is known of blocks and given sizes stays, the list of frames begins anew. */
void clv_state_rewind(struct clv_state *s);

/* False: that was all, or host memory is out (plane.broken). */
bool clv_state_step(struct clv_state *s);

/* The time of the next step, in microseconds; false: there is none. */
bool clv_state_next_time(const struct clv_state *s, uint64_t *time_us);

#endif
