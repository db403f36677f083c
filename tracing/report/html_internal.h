/* SPDX-License-Identifier: MIT
 *
 * html_internal: what the parts of a page are made by. Each function answers NULL when host memory is out. Owns nothing.
 * The page's numbers are doubles, so addresses and handles are texts (clv_json_hex).
 */
#ifndef CLV_HTML_INTERNAL_H
#define CLV_HTML_INTERNAL_H

#include "../json_text.h"
#include "address_map.h"
#include "html_texts.h"

/* Made at build time (page/embed.py): the page before and after its data. */
extern const unsigned char clv_html_head[], clv_html_tail[];
extern const size_t clv_html_head_size, clv_html_tail_size;

/* One device on its way into the page. */
struct clv_html_device {
	const struct clv_report_device *d;
	uint32_t trace_index;
	uint32_t share;    /* devices that the page has: each gets its part of the bytes */
	uint64_t begin_us; /* when the trace began: its first event or note, on whatever device */
	struct clv_html_texts *texts;
};

/* An event's time, in us since the trace began; at event_count, that of the last. */
uint64_t clv_html_time(const struct clv_html_device *p, uint32_t event);

/* Seconds; null if they are no number. */
json_t *clv_html_seconds(double s);

/* [held, each cause] */
json_t *clv_html_sum(const struct clv_report_sum *s);

json_t *clv_html_timeline(const struct clv_html_device *p);
json_t *clv_html_times(const struct clv_html_device *p); /* of events */
json_t *clv_html_map(const struct clv_html_device *p, struct clv_error *err);
json_t *clv_html_moments(const struct clv_html_device *p);
json_t *clv_html_trials(const struct clv_html_device *p);

/* From what the recorder noted: [{name, slot, slots, hard, ..}], [{text, from, to, depth}] and [{text, at}] */
json_t *clv_html_reservations(const struct clv_html_device *p);
json_t *clv_html_phases(const struct clv_html_device *p);
json_t *clv_html_marks(const struct clv_html_device *p);

/* [[what, value]..] for people */
json_t *clv_html_info(const struct clv_html_device *p);

/* All that the page shows. */
json_t *clv_html_data(const struct clv_report *report, struct clv_error *err);

#endif
