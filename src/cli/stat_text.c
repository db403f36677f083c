/* SPDX-License-Identifier: MIT */
#include "stat_print.h"

#include "table.h"

#include "../base/size_text.h"

#include <inttypes.h>
#include <string.h>

bool clv_stat_rates(const struct clv_stat_view *before, const struct clv_stat_view *after, struct clv_stat_rates *out)
{
	const struct clv_stat_process *a = before->process, *b = after->process;
	if (a->opened_ns != b->opened_ns || b->now_ns <= a->now_ns)
		return false;
	memset(out, 0, sizeof(*out));
	out->seconds = (double)(b->now_ns - a->now_ns) / 1e9;
	for (unsigned i = 0; i < CLV_CALL_COUNT; i++)
		out->driver_calls += (double)(b->driver.calls[i] - a->driver.calls[i]) / out->seconds;
	for (unsigned i = 0, k = 0; i < after->used; i++) {
		const struct clv_stat_device *now = after->parts[i].device;
		/* devices come in order, and only more of them */
		while (k < before->used && before->parts[k].device->device < now->device)
			k++;
		bool known = k < before->used && before->parts[k].device->device == now->device;
		const cleave_heap_stats *was = known ? &before->parts[k].device->state.stats : NULL;
		out->devices[i].allocs = (double)(now->state.stats.allocs - (was ? was->allocs : 0)) / out->seconds;
		out->devices[i].frees = (double)(now->state.stats.frees - (was ? was->frees : 0)) / out->seconds;
	}
	return true;
}

/* ---- one device ---- */

static void bytes_row(struct clv_table *t, const char *name, uint64_t bytes, uint64_t whole, const char *note)
{
	char cells[4][CLV_TABLE_CELL] = {""};
	snprintf(cells[0], CLV_TABLE_CELL, "  %s", name);
	clv_size_print(bytes, cells[1], CLV_TABLE_CELL);
	if (whole)
		snprintf(cells[2], CLV_TABLE_CELL, "%.1f %%", 100.0 * (double)bytes / (double)whole);
	snprintf(cells[3], CLV_TABLE_CELL, "%s", note);
	clv_table_row(t, cells, 4);
}

static void bytes_table(const struct clv_heap_state *s, FILE *out)
{
	struct clv_table t = {.out = out, .left = 1u | 1u << 3};
	const struct clv_breakdown *b = &s->sorted;
	char peak[64], size[32], live_peak[64], total[64];
	snprintf(peak, sizeof(peak), "peak %s", clv_size_print(s->stats.held_peak_bytes, size, sizeof(size)));
	snprintf(live_peak, sizeof(live_peak), "peak %s", clv_size_print(s->stats.live_peak_bytes, size, sizeof(size)));
	snprintf(total, sizeof(total), "of the device's %s, ", clv_size_print(s->device_total, size, sizeof(size)));
	strncat(total, peak, sizeof(total) - strlen(total) - 1);
	for (int pass = 0; clv_table_pass(&t, pass); pass++) {
		bytes_row(&t, "held", b->held, 0, total);
		bytes_row(&t, "live", b->live, b->held, live_peak);
		bytes_row(&t, "internal", b->internal, b->held, "rounding beyond the requests");
		bytes_row(&t, "reserved", b->reserved, b->held, "held back for requests to come");
		bytes_row(&t, "stranded: hard", b->hard, b->held, "free, between live blocks");
		bytes_row(&t, "stranded: soft", b->soft, b->held, "free and whole, not given back");
		bytes_row(&t, "stranded: stream", b->stream, b->held, "free, waiting for a stream");
	}
}

static void reservations_table(const struct clv_stat_part *part, FILE *out)
{
	struct clv_table t = {.out = out, .left = 1u | 1u << 6};
	uint64_t count = part->device->reservations;
	if (!count)
		return;
	for (int pass = 0; clv_table_pass(&t, pass); pass++) {
		char head[7][CLV_TABLE_CELL] = {"  reservation", "size", "slots", "held", "served", "missed", ""};
		clv_table_row(&t, head, 7);
		for (uint64_t i = 0; i < count; i++) {
			const cleave_reservation_stats *r = &part->reservations[i];
			char cells[7][CLV_TABLE_CELL] = {""};
			snprintf(cells[0], CLV_TABLE_CELL, "  %s", r->name[0] ? r->name : "-");
			clv_size_print(r->bytes, cells[1], CLV_TABLE_CELL);
			snprintf(cells[2], CLV_TABLE_CELL, "%" PRIu64, r->count);
			snprintf(cells[3], CLV_TABLE_CELL, "%" PRIu64, r->held);
			snprintf(cells[4], CLV_TABLE_CELL, "%" PRIu64, r->served);
			snprintf(cells[5], CLV_TABLE_CELL, "%" PRIu64, r->missed);
			snprintf(cells[6], CLV_TABLE_CELL, "%s%s", r->hard ? "hard" : "soft",
				 r->ended ? ", ended" : "");
			clv_table_row(&t, cells, 7);
		}
	}
}

static void rate(char *buf, size_t len, const struct clv_stat_rates *rates, double value)
{
	*buf = '\0';
	if (rates)
		snprintf(buf, len, " (%.*f/s)", value > 0 && value < 100 ? 1 : 0, value);
}

static void device_text(const struct clv_stat_part *part, const struct clv_stat_rates *rates, unsigned index,
			const struct clv_stat_process *p, FILE *out)
{
	const struct clv_heap_state *s = &part->device->state;
	char size[32], one[48], two[48], text[4096];
	fprintf(out, "\ndevice %" PRId64 "\n", part->device->device);
	bytes_table(s, out);
	fprintf(out, "  %" PRIu64 " live blocks, %" PRIu64 " free, the largest of them %s; %" PRIu64 " frames\n",
		s->stats.live_blocks, s->stats.free_blocks,
		clv_size_print(s->stats.largest_hole_bytes, size, sizeof(size)), s->stats.frames);
	rate(one, sizeof(one), rates, rates ? rates->devices[index].allocs : 0);
	rate(two, sizeof(two), rates, rates ? rates->devices[index].frees : 0);
	fprintf(out,
		"  %" PRIu64 " allocations%s, %" PRIu64 " frees%s, %" PRIu64 " failures; %" PRIu64 " streams, %" PRIu64
		" threads\n",
		s->stats.allocs, one, s->stats.frees, two, s->stats.failures, s->streams, s->threads);
	reservations_table(part, out);
	if (!s->failure.number)
		return;
	cleave_failure_print(&s->failure, text, sizeof(text));
	fprintf(out, "  last failure, %.0f s ago: %s\n",
		(double)(p->now_ns - clv_min_u64(s->failed_ns, p->now_ns)) / 1e9, text);
}

void clv_stat_text(const struct clv_stat_view *view, const struct clv_stat_rates *rates, FILE *out)
{
	const struct clv_stat_process *p = view->process;
	uint64_t calls = 0, s = (p->now_ns - clv_min_u64(p->opened_ns, p->now_ns)) / 1000000000;
	char calls_rate[48];
	for (unsigned i = 0; i < CLV_CALL_COUNT; i++)
		calls += p->driver.calls[i];
	rate(calls_rate, sizeof(calls_rate), rates, rates ? rates->driver_calls : 0);
	fprintf(out,
		"process %d: Cleave %s, heap open for %" PRIu64 ":%02" PRIu64 ":%02" PRIu64
		", %u of %u devices used, %" PRIu64 " driver calls%s\n",
		(int)p->pid, p->library, s / 3600, s / 60 % 60, s % 60, p->used, p->devices, calls, calls_rate);
	if (p->settings[0])
		fprintf(out, "settings: %s\n", p->settings);
	for (unsigned i = 0; i < view->used; i++)
		device_text(&view->parts[i], rates, i, p, out);
}
