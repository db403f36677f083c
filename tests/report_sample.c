/* SPDX-License-Identifier: MIT
 *
 * What tests of the page need: report_sample page OUT.html writes the report of a made-up trace with all that a recorder notes
 * (phases, marks, reservations, lost events); report_sample trace EVENTS OUT.clv a long history for the command.
 */
#include "../tracing/format/clv.h"
#include "../tracing/report/html.h"
#include "report_made.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS 6000u

static bool write_page(const char *path, struct clv_error *err)
{
	struct clv_trace *t = made_trace(EVENTS);
	const struct clv_trace *const traces[] = {t};
	const struct clv_report_options options = {0};
	struct clv_report *r = t ? clv_report_make(traces, 1, &options, err) : NULL;
	bool ok = r && clv_report_html(r, path, err);
	clv_report_free(r);
	clv_trace_free(t);
	return ok;
}

static bool write_trace(uint32_t events, const char *path, struct clv_error *err)
{
	const struct clv_synth synth = {.events = events, .live = 8000, .streams = 4, .addresses = 20000, .seed = 7};
	struct clv_trace *t = clv_synth_trace(&synth, err);
	bool ok = t && clv_trace_write(t, path, err);
	clv_trace_free(t);
	return ok;
}

int main(int argc, char **argv)
{
	struct clv_error err = {{0}};
	bool ok = false;
	if (argc == 3 && strcmp(argv[1], "page") == 0)
		ok = write_page(argv[2], &err);
	else if (argc == 4 && strcmp(argv[1], "trace") == 0)
		ok = write_trace((uint32_t)strtoul(argv[2], NULL, 10), argv[3], &err);
	else
		clv_error_set(&err, "usage: report_sample page OUT.html | report_sample trace EVENTS OUT.clv");
	if (!ok)
		fprintf(stderr, "%s\n", err.text[0] ? err.text : "out of host memory");
	return ok ? 0 : 1;
}
