/* SPDX-License-Identifier: MIT
 *
 * text: sentences put together in a buffer of the caller's, as snprintf does: what has no room is cut off, but counted. Owns
 * nothing.
 */
#ifndef CLV_TEXT_H
#define CLV_TEXT_H

#include "base.h"

struct clv_text {
	char *buf; /* may be NULL if len is 0 */
	size_t len;
	size_t at; /* length of the whole text so far, without the 0 at its end */
};

void clv_text_say(struct clv_text *t, const char *fmt, ...) CLV_PRINTF(2, 3);

#endif
