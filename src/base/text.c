/* SPDX-License-Identifier: MIT */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>

void clv_text_say(struct clv_text *t, const char *fmt, ...)
{
	va_list ap;
	bool room = t->at < t->len;
	va_start(ap, fmt);
	int n = vsnprintf(room ? t->buf + t->at : NULL, room ? t->len - t->at : 0, fmt, ap);
	va_end(ap);
	t->at += n > 0 ? (size_t)n : 0;
}
