/* SPDX-License-Identifier: MIT */
#include "html_internal.h"

#include "../../src/base/size_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ROWS_MAX 200u /* files of many processes, one after the other, have a row for each */

static void row(json_t *list, const char *what, const char *fmt, ...) CLV_PRINTF(3, 4);

static void row(json_t *list, const char *what, const char *fmt, ...)
{
	char text[4096];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (json_array_size(list) < ROWS_MAX)
		json_array_append_new(list, json_pack("[s, o]", what, clv_html_text(text)));
}

static const char *text_of(const struct clv_trace *t, const struct clv_note *n)
{
	return n->text < t->string_count ? t->strings[n->text] : "";
}

static void process(json_t *list, const struct clv_trace *t, const struct clv_note *n)
{
	char begin[40] = "", rank[40] = "";
	time_t seconds = (time_t)(n->b / 1000000000u);
	struct tm tm;
	if (n->b && gmtime_r(&seconds, &tm))
		strftime(begin, sizeof(begin), ", %Y-%m-%d %H:%M:%S UTC", &tm);
	if (n->a != UINT64_MAX)
		snprintf(rank, sizeof(rank), ", rank %" PRIu64, n->a);
	row(list, "process", "%" PRIu64 "%s%s: %s", n->addr, rank, begin, text_of(t, n));
}

static const char *dropped_by(uint64_t why)
{
	static const char *const reasons[] = {"no room in memory", "the disk was too slow or full",
					      "the size limit was reached"};
	return why < CLV_ARRAY_LEN(reasons) ? reasons[why] : "for another reason";
}

static void note(json_t *list, const struct clv_trace *t, const struct clv_note *n)
{
	char size[32], limit[32];
	switch (n->kind) {
	case CLV_EVENT_PROCESS:
		process(list, t, n);
		break;
	case CLV_EVENT_SETTINGS:
		row(list, "CLEAVE_CONF", "%s", *text_of(t, n) ? text_of(t, n) : "(none)");
		break;
	case CLV_EVENT_DEVICE:
		row(list, "device", "%s%s%s%s%s", text_of(t, n), *text_of(t, n) ? ", " : "",
		    clv_size_print(n->size, size, sizeof(size)), n->a ? "; the heap may hold " : "",
		    n->a ? clv_size_print(n->a, limit, sizeof(limit)) : "");
		break;
	case CLV_EVENT_DROPPED:
		row(list, "events lost", "%" PRIu64 ": %s", n->size, dropped_by(n->a));
		break;
	case CLV_EVENT_FORK:
		row(list, "forked", "process %" PRIu64, n->addr);
		break;
	default:
		break;
	}
}

static void recorded_settings(json_t *list, const struct clv_torch_recorded *torch)
{
	char size[32];
	if (!torch->present)
		return;
	row(list, "PYTORCH_CUDA_ALLOC_CONF", "%s", torch->conf && *torch->conf ? torch->conf : "(default)");
	if (torch->has_probe && torch->cap_mib)
		row(list, "memory limit", "%s", clv_size_print(torch->cap_mib * CLV_MIB, size, sizeof(size)));
	if (torch->has_probe)
		row(list, "counted by PyTorch", "%" PRIu64 " retries, %" PRIu64 " out of memory", torch->retries,
		    torch->ooms);
}

static void notes_of(json_t *list, const struct clv_html_device *p)
{
	const struct clv_trace *t = p->d->trace;
	const struct clv_history *first = &t->histories[0], *h = p->d->history;
	for (uint32_t i = 0; i < first->note_count; i++)
		note(list, t, &first->notes[i]);
	for (uint32_t i = 0; h != first && i < h->note_count; i++)
		note(list, t, &h->notes[i]);
}

json_t *clv_html_info(const struct clv_html_device *p)
{
	const struct clv_report_device *d = p->d;
	json_t *list = json_array();
	row(list, "file", "%s", d->trace->file);
	row(list, "format", "%s; frames are known from %s", clv_trace_format_name(d->trace->format),
	    clv_report_basis_name(d->basis));
	if (d->trace->note)
		row(list, "not read", "%s", d->trace->note);
	if (d->history->unmatched_frees)
		row(list, "frees of unknown blocks", "%" PRIu64, d->history->unmatched_frees);
	if (d->uncertain_until)
		row(list, "what was there before", "guessed, up to event %" PRIu64, d->uncertain_until);
	if (!d->given_known)
		row(list, "rounding", "not known: no byte counts as internal");
	if (d->failures_untold || d->marks_untold)
		row(list, "not told one by one", "%" PRIu64 " failures, %" PRIu64 " marks", d->failures_untold,
		    d->marks_untold);
	recorded_settings(list, &d->trace->torch);
	notes_of(list, p);
	return list;
}
