/* SPDX-License-Identifier: MIT
 *
 * link: clv_history_link() for importers that can say where in their file an event was. Owns nothing.
 */
#ifndef CLV_LINK_H
#define CLV_LINK_H

#include "trace.h"

#define CLV_NO_EVENT UINT32_MAX

/* As clv_history_link(). If the history contradicts itself, *event is the offending one and the error is a sentence
 * about it that does not name the file; else it is CLV_NO_EVENT and the error is complete. */
bool clv_history_link_at(struct clv_trace *trace, struct clv_history *history, uint32_t *event, struct clv_error *err);

#endif
