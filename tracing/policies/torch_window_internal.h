/* SPDX-License-Identifier: MIT
 *
 * torch_window_internal: what the two halves of torch_window share: native segments and blocks in torch_window.c, mapped
 * pages in torch_window_pages.c.
 */
#ifndef CLV_TORCH_WINDOW_INTERNAL_H
#define CLV_TORCH_WINDOW_INTERNAL_H

#include "torch_window.h"

struct clv_window_builder {
	struct clv_torch_window *w;
	const struct clv_trace *trace;
	const struct clv_history *h;
	const struct clv_torch_settings *settings;
	uint64_t reservation; /* addresses of an expandable segment */
	uint32_t room;        /* of w->ranges */
};

bool clv_window_add_range(struct clv_window_builder *b, const struct clv_window_range *r);
int clv_window_by_addr(const void *a, const void *b); /* of ranges and blocks, and of plain addresses */

/* Adds the pages that were mapped, and the reservations that they lie in. False: out of host memory. */
bool clv_window_expandable(struct clv_window_builder *b);

#endif
