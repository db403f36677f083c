/* SPDX-License-Identifier: MIT */
#include "error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

bool clv_error_set(struct clv_error *err, const char *fmt, ...)
{
	if (!err || err->text[0])
		return false;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return false;
}

/* The sentence behind the first `n` characters, which are there; n is what snprintf() said of them. */
static void say_after(struct clv_error *err, int n, const char *fmt, va_list ap)
{
	if (n >= 0 && (size_t)n < sizeof(err->text))
		vsnprintf(err->text + n, sizeof(err->text) - (size_t)n, fmt, ap);
}

bool clv_error_at(struct clv_error *err, const char *file, uint64_t offset, const char *fmt, ...)
{
	if (!err || err->text[0])
		return false;
	va_list ap;
	va_start(ap, fmt);
	say_after(err, snprintf(err->text, sizeof(err->text), "%s: offset %" PRIu64 ": ", file, offset), fmt, ap);
	va_end(ap);
	return false;
}

bool clv_error_at_line(struct clv_error *err, const char *file, uint64_t line, const char *fmt, ...)
{
	if (!err || err->text[0])
		return false;
	va_list ap;
	va_start(ap, fmt);
	say_after(err, snprintf(err->text, sizeof(err->text), "%s:%" PRIu64 ": ", file, line), fmt, ap);
	va_end(ap);
	return false;
}
