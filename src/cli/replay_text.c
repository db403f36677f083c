/* SPDX-License-Identifier: MIT */
#include "replay_text.h"
#include "table.h"

#include "../base/clock.h"
#include "../base/size_text.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define CELL CLV_TABLE_CELL

static void count_cell(char *cell, uint64_t n)
{
	snprintf(cell, CELL, "%" PRIu64, n);
}

static void head_cells(char cells[][CELL], bool fit, int *count)
{
	static const char *const names[] = {"policy",      "completes", "peak reserved", "/ live",
					    "stranded",    "retries",   "waits",         "driver calls",
					    "driver time", "events/s",  "fit",           "/ live"};
	*count = (int)CLV_ARRAY_LEN(names) - (fit ? 0 : 2);
	for (int i = 0; i < *count; i++)
		snprintf(cells[i], CELL, "%s", names[i]);
}

static void time_cell(char *cell, double s)
{
	if (s < 1)
		snprintf(cell, CELL, "%.1f ms", s * 1e3);
	else
		snprintf(cell, CELL, "%.2f s", s);
}

static void ratio_cell(char *cell, const struct clv_history *h, uint64_t bytes)
{
	if (h->peak_live_bytes)
		snprintf(cell, CELL, "%.3f", clv_replay_over_live(h, bytes));
	else
		snprintf(cell, CELL, "-");
}

static void row_cells(char cells[][CELL], const struct clv_replay_row *row, const struct clv_history *h)
{
	const struct clv_replay_result *r = &row->result;
	uint64_t calls = 0;
	for (int c = 0; c < CLV_CALL_COUNT; c++)
		calls += r->stats.driver.calls[c];
	snprintf(cells[0], CELL, "%.150s", row->policy);
	snprintf(cells[1], CELL, "%s", r->completed ? "yes" : "no");
	clv_size_print(r->stats.peak_reserved_bytes, cells[2], CELL);
	ratio_cell(cells[3], h, r->stats.peak_reserved_bytes);
	clv_size_print(r->stats.stranded_peak_bytes, cells[4], CELL);
	count_cell(cells[5], r->stats.oom_retries);
	count_cell(cells[6], r->stats.waits);
	count_cell(cells[7], calls);
	time_cell(cells[8], (double)r->stats.driver.ns * 1e-9);
	if (r->wall_s > 0)
		snprintf(cells[9], CELL, "%.2f M", (double)r->events / r->wall_s * 1e-6);
	else
		snprintf(cells[9], CELL, "-");
	if (!row->fitted)
		return;
	if (row->fit.found) {
		clv_size_print(row->fit.fit_bytes, cells[10], CELL);
		ratio_cell(cells[11], h, row->fit.fit_bytes);
	} else {
		snprintf(cells[10], CELL, "none");
		snprintf(cells[11], CELL, "-");
	}
}

static void print_table(const struct clv_replay_report *report, FILE *out)
{
	struct clv_table t = {.out = out, .left = 1};
	char cells[CLV_TABLE_COLUMNS][CELL];
	for (int pass = 0; clv_table_pass(&t, pass); pass++) {
		int count;
		head_cells(cells, report->row_count && report->rows[0].fitted, &count);
		clv_table_row(&t, cells, count);
		for (size_t i = 0; i < report->row_count; i++) {
			row_cells(cells, &report->rows[i], report->history);
			clv_table_row(&t, cells, count);
		}
	}
}

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

static void print_trace(const struct clv_replay_report *report, uint64_t capacity, FILE *out)
{
	const struct clv_history *h = report->history;
	char live[32], limit[32];
	fprintf(out, "%s (%s), device %d", report->trace->file, clv_trace_format_name(report->trace->format),
		h->device);
	if (report->trace->history_count > 1)
		fprintf(out, " of %" PRIu32, report->trace->history_count);
	fprintf(out, ": %" PRIu32 " event%s, %" PRIu32 " allocation%s on %" PRIu32 " stream%s, %.3g s, peak live %s\n",
		h->event_count, plural(h->event_count), h->alloc_count, plural(h->alloc_count), h->stream_count,
		plural(h->stream_count), h->duration_s, clv_size_print(h->peak_live_bytes, live, sizeof(live)));
	if (h->oom_count)
		fprintf(out, "%" PRIu32 " request%s failed when this was recorded.\n", h->oom_count,
			plural(h->oom_count));
	if (h->unmatched_frees)
		fprintf(out, "%" PRIu64 " free%s of blocks that the file does not explain: skipped.\n",
			h->unmatched_frees, plural(h->unmatched_frees));
	if (capacity)
		fprintf(out, "The device gives %s.\n", clv_size_print(capacity, limit, sizeof(limit)));
	fputc('\n', out);
}

static void print_sentences(const struct clv_replay_report *report, FILE *out)
{
	for (size_t i = 0; i < report->row_count; i++) {
		const struct clv_replay_row *row = &report->rows[i];
		char size[32];
		if (!row->result.completed)
			fprintf(out, "\n%s does not complete: event %" PRIu64 ": %s\n", row->policy,
				row->result.failed_at_event, row->result.failure);
		if (row->result.skipped_ooms)
			fprintf(out,
				"\n%s skipped %" PRIu64
				" request%s that failed when recorded, since nothing ever frees %s.\n",
				row->policy, row->result.skipped_ooms, plural(row->result.skipped_ooms),
				row->result.skipped_ooms == 1 ? "it" : "them");
		if (row->result.stats.searched) {
			clv_size_print(row->result.stats.least_bytes, size, sizeof(size));
			fprintf(out,
				row->result.stats.proved
					? "\n%s is proved: there is no packing below %s.\n"
					: "\n%s is not proved: there may be a lower packing, but none below %s.\n",
				row->policy, size);
		}
		if (row->fitted && !row->fit.found)
			fprintf(out, "\n%s has no fit: it does not complete even without limit.\n", row->policy);
		if (row->fitted && row->fit.found && !row->fit.monotone)
			fprintf(out, "\n%s completes with %s but fails with a little more.\n", row->policy,
				clv_size_print(row->fit.fit_bytes, size, sizeof(size)));
	}
}

static void print_verify(const struct clv_verify_result *v, FILE *out)
{
	if (clv_verify_matches(v)) {
		fprintf(out,
			"\nVerified: the model of PyTorch's allocator gives all %" PRIu64
			" recorded addresses and all %" PRIu64 " segment events",
			v->allocs, v->segment_events);
	} else {
		fprintf(out,
			"\nNot verified: %" PRIu64 " of %" PRIu64 " addresses and %" PRIu64 " of %" PRIu64
			" segment events differ",
			v->address_mismatches, v->allocs, v->segment_mismatches, v->segment_events);
		if (v->oom_mismatches)
			fprintf(out, ", %" PRIu64 " of %" PRIu64 " ooms differ", v->oom_mismatches, v->ooms);
		if (!v->final_state_matches)
			fprintf(out, ", the blocks at the end differ");
		if (v->first_mismatch.set)
			fprintf(out, "; first at event %" PRIu64 ": %s", v->first_mismatch.event,
				v->first_mismatch.text);
	}
	const char *separator = "; not in the file and inferred: ";
	for (int i = 0; i < CLV_INFERRED_COUNT; i++)
		if (v->inferred[i]) {
			fprintf(out, "%s%" PRIu64 " %s", separator, v->inferred[i],
				clv_inferred_name((enum clv_inferred)i));
			separator = ", ";
		}
	if (v->exact_from_event)
		fprintf(out, "; exact from event %" PRIu64, v->exact_from_event);
	fprintf(out, ".\n");
}

void clv_replay_text_write(const struct clv_replay_report *report, uint64_t capacity, FILE *out)
{
	print_trace(report, capacity, out);
	print_table(report, out);
	print_sentences(report, out);
	if (report->verify)
		print_verify(report->verify, out);
}

static int64_t now_ms(void)
{
	return (int64_t)(clv_clock_ns() / 1000000);
}

void clv_replay_meter_init(struct clv_replay_meter *meter, FILE *terminal)
{
	/* What takes less than this shows no numbers. */
	*meter = (struct clv_replay_meter){.out = isatty(fileno(terminal)) ? terminal : NULL,
					   .shown_ms = now_ms() + 400};
}

void clv_replay_meter_say(struct clv_replay_meter *meter, const char *what, const char *of)
{
	if (!meter->out)
		return;
	fprintf(meter->out, "\r\033[K%s %.60s", what, of);
	fflush(meter->out);
	meter->shown = true;
}

void clv_replay_meter_show(void *arg, const struct clv_replay_progress *p)
{
	struct clv_replay_meter *meter = arg;
	int64_t now = meter->out ? now_ms() : 0;
	if (!meter->out || now < meter->shown_ms + 100)
		return;
	char size[32];
	fprintf(meter->out, "\r\033[K%.60s: ", p->policy);
	if (p->run)
		fprintf(meter->out, "fit, run %" PRIu64 " with %s, ", p->run,
			p->capacity ? clv_size_print(p->capacity, size, sizeof(size)) : "no limit");
	fprintf(meter->out, "%.0f %%", p->total ? 100.0 * (double)p->done / (double)p->total : 0.0);
	fflush(meter->out);
	meter->shown = true;
	meter->shown_ms = now;
}

void clv_replay_meter_clear(struct clv_replay_meter *meter)
{
	if (!meter->shown)
		return;
	fprintf(meter->out, "\r\033[K");
	fflush(meter->out);
	meter->shown = false;
}
