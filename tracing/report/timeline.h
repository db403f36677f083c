/* SPDX-License-Identifier: MIT
 *
 * timeline: one pass over a device's history: buckets, peaks, and where the moments of interest are. Owns nothing between calls.
 */
#ifndef CLV_REPORT_TIMELINE_H
#define CLV_REPORT_TIMELINE_H

#include "state.h"

/* A moment that is to be looked at. */
struct clv_stop {
	enum clv_moment_kind kind;
	uint32_t event, note; /* after so many steps of each */
	double time_s;
	uint32_t of; /* FAILURE: the event, or `by_note` the note; MARK: the note in the first history; else 0 */
	bool by_note;
	uint64_t repeats; /* FAILURE: like this one, and not told */
};

struct clv_timeline {
	uint64_t begin_us;      /* of the trace */
	struct clv_stop *stops; /* by time; free with clv_mem_free */
	size_t stop_count, stop_cap;
};

/* Runs the state from its start to the end and fills in the device's buckets, peaks and counts. False with an error: out of host
 * memory. */
bool clv_timeline_run(struct clv_timeline *t, struct clv_state *s, struct clv_report_device *d,
		      const struct clv_report_options *options, struct clv_error *err);

/* What was asked for and not given, and by whom, as an event: OOM. */
struct clv_event_record clv_stop_request(const struct clv_stop *stop, const struct clv_history *h);

/* When a trace begins: at the first event or note of any of its devices. */
uint64_t clv_timeline_begin(const struct clv_trace *trace);

#endif
