/* SPDX-License-Identifier: MIT */
#include "report_text.h"
#include "table.h"

#include "../base/size_text.h"

#include <inttypes.h>
#include <string.h>

#define CELL CLV_TABLE_CELL
#define WIDTH 100 /* of paragraphs */

static void size_cell(char *cell, uint64_t bytes)
{
	if (bytes)
		clv_size_print(bytes, cell, CELL);
	else
		snprintf(cell, CELL, "-");
}

/* A paragraph in lines of words. Its bytes may be anything that file names and functions are made of. */
static void paragraph(const char *text, FILE *out)
{
	size_t column = 0;
	for (const char *at = text; *at;) {
		size_t n = strcspn(at, " ");
		if (column && column + 1 + n > WIDTH) {
			fputc('\n', out);
			column = 0;
		} else if (column) {
			fputc(' ', out);
			column++;
		}
		clv_text_print(at, n, out);
		column += n;
		at += n;
		at += strspn(at, " ");
	}
	fputc('\n', out);
}

/* ---- devices side by side ---- */

static void device_cells(char cells[][CELL], const struct clv_report_device *d)
{
	const struct clv_report_sum *s = &d->peak;
	snprintf(cells[0], CELL, "%.140s", d->trace->file ? d->trace->file : "trace");
	snprintf(cells[1], CELL, "%d", d->history->device);
	if (d->failures)
		snprintf(cells[2], CELL, "%" PRIu64, d->failures);
	else
		snprintf(cells[2], CELL, "-");
	size_cell(cells[3], s->of[CLV_CAUSE_LIVE]);
	size_cell(cells[4], s->held);
	if (s->of[CLV_CAUSE_LIVE])
		snprintf(cells[5], CELL, "%.3f", (double)s->held / (double)s->of[CLV_CAUSE_LIVE]);
	else
		snprintf(cells[5], CELL, "-");
	size_cell(cells[6], s->of[CLV_CAUSE_HARD]);
	size_cell(cells[7], s->of[CLV_CAUSE_SOFT]);
	size_cell(cells[8], s->of[CLV_CAUSE_INTERNAL]);
	size_cell(cells[9], s->of[CLV_CAUSE_STREAM]);
	size_cell(cells[10], s->of[CLV_CAUSE_RESERVATION]);
}

static void write_devices(const struct clv_report *r, FILE *out)
{
	char head[11][CELL] = {"most of each:", "device",     "failed",   "live",   "held",    "/ live",
			       "stranded",      "free whole", "rounding", "stream", "reserved"};
	struct clv_table t = {.out = out, .left = 1};
	for (int pass = 0; clv_table_pass(&t, pass); pass++) {
		clv_table_row(&t, head, (int)CLV_ARRAY_LEN(head));
		for (uint32_t i = 0; i < r->device_count; i++) {
			char cells[11][CELL];
			device_cells(cells, &r->devices[i]);
			clv_table_row(&t, cells, (int)CLV_ARRAY_LEN(cells));
		}
	}
}

/* ---- moments of one device ---- */

/* Kinds of bytes as columns: what they are called here, and what that is. */
static const struct {
	const char *head, *legend;
} kinds[CLV_CAUSE_COUNT] = {
	[CLV_CAUSE_LIVE] = {"live", "in use"},
	[CLV_CAUSE_INTERNAL] = {"rounding", "given to blocks in use beyond what they asked for"},
	[CLV_CAUSE_RESERVATION] = {"reserved", "held back for requests to come"},
	[CLV_CAUSE_STREAM] = {"stream", "freed, but work of a stream may still use it"},
	[CLV_CAUSE_HARD] = {"stranded",
			    "free, in a segment or frame that blocks in use keep: it serves only what fits there"},
	[CLV_CAUSE_SOFT] = {"free whole", "in segments or frames that nobody uses: only not given back"},
};

/* A kind that never was there needs no column. */
static bool is_shown(const struct clv_report_device *d, int cause)
{
	return cause == CLV_CAUSE_LIVE || cause == CLV_CAUSE_HARD || d->peak.of[cause];
}

/* Returns how many there are. */
static int moment_cells(char cells[][CELL], const struct clv_report_device *d, const struct clv_report_moment *m)
{
	const struct clv_report_sum *s = &m->sum;
	const char *label = m->label < d->trace->string_count ? d->trace->strings[m->label] : NULL;
	int n = 4;
	snprintf(cells[0], CELL, "%s%s%.100s", clv_moment_title(m->kind), label ? ": " : "", label ? label : "");
	snprintf(cells[1], CELL, "%.6f s", m->time_s);
	snprintf(cells[2], CELL, "%" PRIu32, m->event);
	size_cell(cells[3], s->held);
	for (int c = 0; c < CLV_CAUSE_COUNT; c++)
		if (is_shown(d, c))
			size_cell(cells[n++], s->of[c]);
	size_cell(cells[n++], m->largest_hole);
	return n;
}

static void write_moments(const struct clv_report_device *d, FILE *out)
{
	enum { COLUMNS = 5 + CLV_CAUSE_COUNT };
	char head[COLUMNS][CELL] = {"moment", "time", "after event", "held"};
	int n = 4;
	for (int c = 0; c < CLV_CAUSE_COUNT; c++)
		if (is_shown(d, c))
			snprintf(head[n++], CELL, "%s", kinds[c].head);
	snprintf(head[n++], CELL, "largest hole");
	struct clv_table t = {.out = out, .left = 1};
	for (int pass = 0; clv_table_pass(&t, pass); pass++) {
		clv_table_row(&t, head, n);
		for (uint32_t i = 0; i < d->moment_count; i++) {
			char cells[COLUMNS][CELL];
			clv_table_row(&t, cells, moment_cells(cells, d, &d->moments[i]));
		}
	}
}

/* ---- culprits at one moment ---- */

static void span_cell(char *cell, double min, double max)
{
	char low[32], high[32];
	if (min < 0)
		snprintf(cell, CELL, "never freed");
	else if (max - min <= 0.01 * max)
		clv_seconds_print(max, cell, CELL);
	else
		snprintf(cell, CELL, "%s to %s", clv_seconds_print(min, low, sizeof(low)),
			 clv_seconds_print(max, high, sizeof(high)));
}

static void group_cells(char cells[][CELL], const struct clv_report_device *d, const struct clv_report_group *g)
{
	char name[CELL];
	clv_report_group_name(d, g, name, sizeof(name));
	size_cell(cells[0], g->stranded_bytes);
	size_cell(cells[1], g->marginal_bytes);
	size_cell(cells[2], g->shared_bytes);
	snprintf(cells[3], CELL, "%" PRIu64, g->blocks);
	size_cell(cells[4], g->bytes);
	if (d->has_history) {
		span_cell(cells[5], g->age_min_s, g->age_max_s);
		span_cell(cells[6], g->left_min_s, g->left_max_s);
	} else {
		snprintf(cells[5], CELL, "?");
		snprintf(cells[6], CELL, "?");
	}
	snprintf(cells[7], CELL, "%.100s", name);
}

static void write_groups(const struct clv_report_device *d, const struct clv_report_moment *m, FILE *out)
{
	char head[8][CELL] = {"frees alone", "and then", "shares",   "blocks",
			      "bytes",       "lived",    "freed in", "who pins it"};
	struct clv_table t = {.out = out, .left = 1u << 7};
	for (int pass = 0; clv_table_pass(&t, pass); pass++) {
		clv_table_row(&t, head, (int)CLV_ARRAY_LEN(head));
		for (uint32_t g = 0; g < m->groups_kept; g++) {
			char cells[8][CELL];
			if (!m->groups[g].stranded_bytes && !m->groups[g].shared_bytes)
				continue;
			group_cells(cells, d, &m->groups[g]);
			clv_table_row(&t, cells, (int)CLV_ARRAY_LEN(cells));
		}
	}
}

static void write_trials(const struct clv_report_device *d, FILE *out)
{
	char head[4][CELL] = {"replayed:", "served", "held", "stranded"};
	struct clv_table t = {.out = out, .left = 1};
	for (int pass = 0; clv_table_pass(&t, pass); pass++) {
		clv_table_row(&t, head, (int)CLV_ARRAY_LEN(head));
		for (uint32_t i = 0; i < d->trial_count; i++) {
			const struct clv_report_trial *trial = &d->trials[i];
			char cells[4][CELL];
			snprintf(cells[0], CELL, "%.150s", trial->policy);
			snprintf(cells[1], CELL, "%s", trial->completed ? "all" : "not all");
			size_cell(cells[2], trial->peak_held);
			size_cell(cells[3], trial->peak_stranded);
			clv_table_row(&t, cells, (int)CLV_ARRAY_LEN(cells));
		}
	}
}

/* The moment that was asked for, else the one to look at first. */
static const struct clv_report_moment *moment_to_show(const struct clv_report_device *d)
{
	for (uint32_t i = 0; i < d->moment_count; i++)
		if (d->moments[i].kind == CLV_MOMENT_CHOSEN)
			return &d->moments[i];
	return d->moment_count ? &d->moments[d->worst] : NULL;
}

static void write_device(const struct clv_report_device *d, FILE *out)
{
	const struct clv_report_moment *m = moment_to_show(d);
	const char *file = d->trace->file ? d->trace->file : "trace";
	fputc('\n', out);
	clv_text_print(file, strlen(file), out);
	fprintf(out, ", device %d\n", d->history->device);
	paragraph(d->summary, out);
	if (d->failures) {
		fputc('\n', out);
		paragraph(d->moments[d->worst].failure.text, out);
	}
	if (!m)
		return;
	fputc('\n', out);
	write_moments(d, out);
	if (m->sum.of[CLV_CAUSE_HARD]) {
		fprintf(out, "\nStranded after event %" PRIu32 " (%s):\n", m->event, clv_moment_title(m->kind));
		write_groups(d, m, out);
	}
	if (d->trial_count > 1) {
		fputc('\n', out);
		write_trials(d, out);
	}
}

#define TOLD_WHOLE 2u /* devices; of more, a person reads the worst first */

/* What the words in the tables mean, once for all devices. */
static void write_legend(const struct clv_report *r, FILE *out)
{
	bool shown[CLV_CAUSE_COUNT] = {false}, culprits = false;
	for (uint32_t i = 0; i < r->device_count; i++) {
		const struct clv_report_moment *m = moment_to_show(&r->devices[i]);
		for (int c = 0; c < CLV_CAUSE_COUNT; c++)
			shown[c] |= is_shown(&r->devices[i], c);
		culprits |= m && m->sum.of[CLV_CAUSE_HARD];
	}
	fputc('\n', out);
	for (int c = 0; c < CLV_CAUSE_COUNT; c++)
		if (shown[c])
			fprintf(out, "%-12s %s\n", kinds[c].head, kinds[c].legend);
	if (culprits)
		fputs("frees alone  what would not be stranded, had the blocks of this row been freed\n"
		      "and then     what more, once those of the rows above are freed too; this column adds up\n"
		      "shares       stranded beside these blocks and others\n",
		      out);
}

void clv_report_text_write(const struct clv_report *r, FILE *out)
{
	uint32_t told = r->device_count <= TOLD_WHOLE ? r->device_count : 1;
	write_devices(r, out);
	for (uint32_t i = 0; i < told; i++)
		write_device(&r->devices[i], out);
	if (told < r->device_count)
		fprintf(out,
			"\nThis was the worst of %" PRIu32
			" devices. The page (-o) and --json have all; a trace by itself is told of whole.\n",
			r->device_count);
	write_legend(r, out);
}
