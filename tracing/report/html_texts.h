/* SPDX-License-Identifier: MIT
 *
 * html_texts: the stacks that a page tells, each frame and each name once. What a trace says can be long: names are cut, and what
 * is over the page's share of bytes is left out, but for stacks that must be told whole. Owned by who makes the page.
 */
#ifndef CLV_HTML_TEXTS_H
#define CLV_HTML_TEXTS_H

#include "html_pack.h"
#include "report.h"

#include "../map.h"

struct clv_html_texts {
	struct clv_map strings, names, places, frames,
		stacks; /* by what they are in the traces to their number in the page */
	json_t *text;   /* array; [0] is "" */
	struct clv_pack frame_pack, stack_pack;
	uint32_t name_count, place_count, frame_count, stack_count;
	uint64_t text_bytes, stack_frames; /* so far */
};

bool clv_html_texts_init(struct clv_html_texts *t);
void clv_html_texts_free(struct clv_html_texts *t);

/* The number of a stack in the page, from 1. 0: there is none, or no room for one that need not be told (`must`), or host memory
 * is out, which clv_html_texts_json() tells. `trace` is its index in the report. */
uint32_t clv_html_stack(struct clv_html_texts *t, const struct clv_trace *trace, uint32_t trace_index, uint32_t stack,
			bool must);

/* {"text": [..], "frames": file, function, line and address of each, "stacks": the count of each and its frames} */
json_t *clv_html_texts_json(struct clv_html_texts *t);

/* As clv_json_text(), but no longer than a person reads. */
json_t *clv_html_text(const char *bytes);

#endif
