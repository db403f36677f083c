/* SPDX-License-Identifier: MIT */
#include "sink.h"

#include "../memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_MAX 4096

bool clv_sink_begin(struct clv_sink *s, const char *path, struct clv_error *err)
{
	*s = (struct clv_sink){.err = err, .data = clv_mem_alloc(CLV_SINK_ROOM)};
	if (!s->data)
		return clv_error_set(err, "%s: out of host memory", path);
	if (clv_output_begin(&s->out, path, err))
		return true;
	clv_mem_free(s->data);
	return false;
}

static void flush(struct clv_sink *s)
{
	clv_output_write(&s->out, s->data, s->len, s->err);
	s->len = 0;
}

char *clv_sink_room(struct clv_sink *s, size_t len)
{
	if (CLV_UNLIKELY(s->len + len > CLV_SINK_ROOM))
		flush(s);
	return s->data + s->len;
}

void clv_sink_write(struct clv_sink *s, const void *data, size_t len)
{
	if (len > CLV_SINK_ROOM) {
		flush(s);
		clv_output_write(&s->out, data, len, s->err);
		return;
	}
	memcpy(clv_sink_room(s, len), data, len);
	s->len += len;
}

void clv_sink_text(struct clv_sink *s, const char *text)
{
	clv_sink_write(s, text, strlen(text));
}

void clv_sink_printf(struct clv_sink *s, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(clv_sink_room(s, TEXT_MAX), TEXT_MAX, fmt, ap);
	va_end(ap);
	if (n >= 0 && n < TEXT_MAX)
		s->len += (size_t)n;
	else
		clv_sink_fail(s, "a line of more than %d bytes", TEXT_MAX - 1);
}

bool clv_sink_fail(struct clv_sink *s, const char *fmt, ...)
{
	char why[512];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	s->out.failed = true;
	return clv_error_set(s->err, "%s: %s", s->out.path, why);
}

bool clv_sink_end(struct clv_sink *s)
{
	flush(s);
	bool there = clv_output_end(&s->out, true, s->err);
	clv_mem_free(s->data);
	return there;
}
