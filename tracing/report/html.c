/* SPDX-License-Identifier: MIT */
#include "html.h"

#include "html_internal.h"

#include "../export/sink.h"

/* JSON inside of HTML: what could end the element it is in, or begin another one, is written as an escape. Such characters
 * occur in JSON only within texts. */
static int put_json(const char *text, size_t len, void *arg)
{
	struct clv_sink *page = arg;
	size_t from = 0;
	for (size_t i = 0; i < len; i++) {
		const char *escape = text[i] == '<'   ? "\\u003c"
				     : text[i] == '>' ? "\\u003e"
				     : text[i] == '&' ? "\\u0026"
						      : NULL;
		if (!escape)
			continue;
		clv_sink_write(page, text + from, i - from);
		clv_sink_text(page, escape);
		from = i + 1;
	}
	clv_sink_write(page, text + from, len - from);
	return clv_sink_failed(page) ? -1 : 0;
}

static bool write_page(const json_t *data, const char *path, struct clv_error *err)
{
	struct clv_sink page;
	if (!clv_sink_begin(&page, path, err))
		return false;
	clv_sink_write(&page, clv_html_head, clv_html_head_size);
	if (json_dump_callback(data, put_json, &page, JSON_COMPACT | JSON_ENSURE_ASCII) && !clv_sink_failed(&page))
		clv_sink_fail(&page, "out of host memory");
	clv_sink_write(&page, clv_html_tail, clv_html_tail_size);
	return clv_sink_end(&page);
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
	bool ok = data ? write_page(data, path, err) : clv_error_set(err, "%s: out of host memory", path);
	json_decref(data);
	return ok;
}
