/* SPDX-License-Identifier: MIT */
#include "html.h"

#include "html_internal.h"

#include "../memory.h"
#include "../output.h"

#include <string.h>

/* Collects what comes in small pieces. */
struct writer {
	struct clv_output file;
	struct clv_error *err;
	size_t used;
	char buffer[1 << 16];
};

static void flush(struct writer *w)
{
	clv_output_write(&w->file, w->buffer, w->used, w->err);
	w->used = 0;
}

static void put(struct writer *w, const void *data, size_t len)
{
	if (len > sizeof(w->buffer) - w->used)
		flush(w);
	if (len > sizeof(w->buffer)) {
		clv_output_write(&w->file, data, len, w->err);
		return;
	}
	memcpy(w->buffer + w->used, data, len);
	w->used += len;
}

/* JSON inside of HTML: what could end the element it is in, or begin another one, is written as an escape. Such characters
 * occur in JSON only within texts. */
static int put_json(const char *text, size_t len, void *arg)
{
	struct writer *w = arg;
	size_t from = 0;
	for (size_t i = 0; i < len; i++) {
		const char *escape = text[i] == '<'   ? "\\u003c"
				     : text[i] == '>' ? "\\u003e"
				     : text[i] == '&' ? "\\u0026"
						      : NULL;
		if (!escape)
			continue;
		put(w, text + from, i - from);
		put(w, escape, strlen(escape));
		from = i + 1;
	}
	put(w, text + from, len - from);
	return w->file.failed ? -1 : 0;
}

static bool write_page(struct writer *w, const json_t *data, const char *path)
{
	if (!clv_output_begin(&w->file, path, w->err))
		return false;
	put(w, clv_html_head, clv_html_head_size);
	bool ok = json_dump_callback(data, put_json, w, JSON_COMPACT | JSON_ENSURE_ASCII) == 0;
	if (!ok && !w->file.failed)
		clv_error_set(w->err, "%s: out of host memory", path);
	put(w, clv_html_tail, clv_html_tail_size);
	flush(w);
	return clv_output_end(&w->file, ok, w->err);
}

bool clv_report_html_ready(const char *path, struct clv_error *err)
{
	return clv_html_head_size ||
	       clv_error_set(err,
			     "%s: this build cannot write pages, since d3 was not there when it was configured: "
			     "install node-d3 and configure anew (meson setup --reconfigure build)",
			     path);
}

bool clv_report_html(const struct clv_report *report, const char *path, struct clv_error *err)
{
	if (!clv_report_html_ready(path, err))
		return false;
	json_t *data = clv_html_data(report, err);
	struct writer *w = data ? clv_mem_zalloc(1, sizeof(*w)) : NULL;
	bool ok = false;
	if (w) {
		w->err = err;
		ok = write_page(w, data, path);
	} else
		clv_error_set(err, "%s: out of host memory", path);
	clv_mem_free(w);
	json_decref(data);
	return ok;
}
