/* SPDX-License-Identifier: MIT */
#include "plan_text.h"

#include "../base/size_text.h"
#include "table.h"

#include <inttypes.h>
#include <string.h>

#define CELL CLV_TABLE_CELL

/* Binary for what allocators count, decimal as GPUs and checkpoints are sold. */
static char *both_units(uint64_t bytes, char *buf, size_t len)
{
	char size[32];
	snprintf(buf, len, "%s (%.1f GB)", clv_size_print(bytes, size, sizeof(size)), (double)bytes * 1e-9);
	return buf;
}

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* ---- what is divided, and over how many ---- */

static void print_parallel(const struct clv_shard_config *c, FILE *out)
{
	static const char *const names[] = {"dp", "pcp", "pp"};
	const uint32_t sizes[] = {c->dp, c->pcp, c->pp};
	fprintf(out, "tp %" PRIu32, c->tp);
	for (size_t i = 0; i < CLV_ARRAY_LEN(names); i++)
		if (sizes[i] > 1)
			fprintf(out, " x %s %" PRIu32, names[i], sizes[i]);
	fprintf(out, "%s", c->expert_parallel ? ", expert parallel" : "");
}

static void print_head(const struct clv_plan *p, FILE *out)
{
	const struct clv_timeline_config *c = &p->config.timeline;
	const struct clv_plan_rank *r = clv_plan_worst(p);
	const struct clv_shard_rank *rank = &r->layer.rank;
	uint32_t all = p->set == CLV_SET_PLAIN ? c->model->plain_layers : c->model->moe_layers - c->model->plain_layers;
	fprintf(out, "%s (%s) for %s, rank %" PRIu32 " of %" PRIu32 " (", c->model->name,
		clv_format_name(p->set == CLV_SET_PLAIN ? CLV_FORMAT_PLAIN : c->model->quant.format), c->backend->name,
		r->rank, p->world);
	print_parallel(c->parallel, out);
	fprintf(out, ")\n");
	fprintf(out, "  layers       %" PRIu32 " of the %" PRIu32 " with experts for this backend",
		rank->moe_layers[p->set], all);
	if (r->kept_layer_bytes) {
		uint32_t kept = clv_plan_kept_layers(p, r);
		fprintf(out, ", and %" PRIu32 " other%s which stay%s as loaded", kept, plural(kept),
			kept == 1 ? "s" : "");
	}
	fprintf(out, "\n  experts      %" PRIu32 " of %" PRIu32 "\n", rank->expert_count, c->model->experts);
}

/* ---- padding ---- */

static void print_padding(const struct clv_plan *p, FILE *out)
{
	const struct clv_plan_rank *r = clv_plan_worst(p);
	const struct clv_plan_padding *pad = &r->padding;
	const struct clv_shard *s = &r->layer.destination_shard;
	const struct clv_backend *b = r->layer.backend;
	char bytes[32], layouts[32], other[64], weights[64];
	fprintf(out,
		"  intermediate %" PRIu64 ", of which the share of a rank is %" PRIu64 ", in buffers of %" PRIu64 "\n",
		s->intermediate.logical, r->layer.share, s->intermediate.padded);
	fprintf(out, "  hidden       %" PRIu64, s->hidden.logical);
	if (s->hidden.padded != s->hidden.logical)
		fprintf(out, ", in buffers of %" PRIu64, s->hidden.padded);
	fprintf(out, "\n  padding      ");
	if (pad->owner == CLV_OWNER_MODEL && pad->passed == s->intermediate.logical)
		fprintf(out, "the model's, which has nothing to add: it passes %" PRIu64 " to the backend\n",
			pad->passed);
	else if (pad->owner == CLV_OWNER_MODEL)
		fprintf(out, "the model's: it passes %" PRIu64 " instead of %" PRIu64 " to the backend\n", pad->passed,
			s->intermediate.logical);
	else if (pad->owner == CLV_OWNER_BACKEND)
		fprintf(out, "the backend's, %s the load: the model passes the logical size\n",
			b->pads == CLV_PADS_CREATE ? "before" : "after");
	else
		fprintf(out, "none: neither the model nor the backend pads\n");
	if (pad->padding_bytes)
		fprintf(out, "               %s on this rank",
			clv_size_print(pad->padding_bytes, bytes, sizeof(bytes)));
	if (pad->padding_bytes && pad->valid_bytes)
		fprintf(out, ", %.1f %% of what the checkpoint fills",
			100.0 * (double)pad->padding_bytes / (double)pad->valid_bytes);
	if (pad->layout_bytes)
		fprintf(out, "; %s of it where the backend's layouts round up",
			clv_size_print(pad->layout_bytes, layouts, sizeof(layouts)));
	if (pad->padding_bytes)
		fprintf(out, "\n");
	else if (pad->owner != CLV_OWNER_NOBODY)
		fprintf(out, "               nothing is padded here\n");
	if (pad->other_padded && pad->other_padded != s->intermediate.padded)
		fprintf(out,
			"               by %s (--padding %s): buffers of %" PRIu64
			", %s of experts a rank instead of %s\n",
			pad->owner == CLV_OWNER_MODEL ? "the backend" : "the model",
			pad->owner == CLV_OWNER_MODEL ? "backend" : "model", pad->other_padded,
			both_units(pad->other_weights_bytes, other, sizeof(other)),
			both_units(r->weights_bytes, weights, sizeof(weights)));
}

/* ---- buffers ---- */

static void shape_cell(char *cell, const struct clv_backend_buffer *b)
{
	int n = 0;
	for (uint32_t i = 0; i < b->dims; i++)
		n += snprintf(cell + n, CELL - (size_t)n, "%s%" PRIu64, i ? " x " : "", b->shape[i]);
}

static void print_buffers(const char *title, const struct clv_backend_buffer *b, uint32_t count, FILE *out)
{
	struct clv_table t = {.out = out, .left = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 4};
	char cells[CLV_TABLE_COLUMNS][CELL];
	for (int pass = 0; clv_table_pass(&t, pass); pass++) {
		static const char *const heads[] = {"", "shape", "dtype", "bytes", ""};
		for (size_t i = 0; i < CLV_ARRAY_LEN(heads); i++)
			snprintf(cells[i], CELL, "%s", i ? heads[i] : title);
		clv_table_row(&t, cells, 5);
		for (uint32_t i = 0; i < count; i++) {
			snprintf(cells[0], CELL, "  %s", b[i].name);
			shape_cell(cells[1], &b[i]);
			snprintf(cells[2], CELL, "%s", b[i].dtype.name);
			snprintf(cells[3], CELL, "%" PRIu64, b[i].bytes);
			snprintf(cells[4], CELL, "%s", b[i].same ? "stays where it was loaded" : "");
			clv_table_row(&t, cells, 5);
		}
	}
}

static void print_sums(const struct clv_plan_rank *r, FILE *out)
{
	char layer[32], scalars[32], others[32], weights[64];
	fprintf(out, "A layer has %s of weights and scales", clv_size_print(r->layer_bytes, layer, sizeof(layer)));
	if (r->scalar_bytes)
		fprintf(out, ", %s of scalars", clv_size_print(r->scalar_bytes, scalars, sizeof(scalars)));
	if (r->other_bytes)
		fprintf(out, ", %s of biases, zero points and indices",
			clv_size_print(r->other_bytes, others, sizeof(others)));
	fprintf(out, "; the experts of this rank %s.\n", both_units(r->weights_bytes, weights, sizeof(weights)));
}

/* ---- the timeline ---- */

static void strategy_cells(char cells[][CELL], const struct clv_timeline *t, unsigned s)
{
	const struct clv_timeline_strategy *x = &t->strategies[s];
	snprintf(cells[0], CELL, "  %s%s", clv_strategy_name((enum clv_strategy)s),
		 s == t->config.strategy ? " *" : "");
	for (int i = 1; i < 6; i++)
		cells[i][0] = '\0';
	if (!x->legal) {
		snprintf(cells[5], CELL, "not possible: %.130s", x->why);
		return;
	}
	clv_size_print(x->peak.peak_bytes, cells[1], CELL);
	clv_size_print(x->peak.least_bytes, cells[2], CELL);
	if (x->peak.phase == CLV_PHASE_CONVERT)
		snprintf(cells[3], CELL, "layer %" PRIu32, t->layers[x->peak.layer]);
	else
		snprintf(cells[3], CELL, "%s", clv_phase_name(x->peak.phase));
	if (!t->config.gpu_memory)
		return;
	clv_size_print((uint64_t)(x->headroom_bytes < 0 ? -x->headroom_bytes : x->headroom_bytes), cells[4], CELL);
	snprintf(cells[5], CELL, "%s", x->fits ? "left, fits" : "too much");
}

static void print_strategies(const struct clv_timeline *t, FILE *out)
{
	struct clv_table table = {.out = out, .left = 1 << 0 | 1 << 3 | 1 << 5};
	char cells[CLV_TABLE_COLUMNS][CELL];
	for (int pass = 0; clv_table_pass(&table, pass); pass++) {
		static const char *const heads[] = {"strategy", "peak", "least", "when", "", ""};
		for (size_t i = 0; i < CLV_ARRAY_LEN(heads); i++)
			snprintf(cells[i], CELL, "%s", heads[i]);
		clv_table_row(&table, cells, 6);
		for (unsigned s = 0; s < CLV_STRATEGIES; s++) {
			strategy_cells(cells, t, s);
			clv_table_row(&table, cells, 6);
		}
	}
}

static void print_transients(const struct clv_timeline *t, FILE *out)
{
	struct clv_table table = {.out = out, .left = 1};
	char cells[CLV_TABLE_COLUMNS][CELL];
	enum clv_strategy strategy = t->config.strategy;
	bool any = false;
	for (uint32_t i = 0; i < t->transient_count; i++)
		any |= t->transients[i].strategies >> strategy & 1;
	for (int pass = 0; any && clv_table_pass(&table, pass); pass++) {
		static const char *const heads[] = {"transient", "bytes", "PyTorch's segment", "a layer"};
		for (size_t i = 0; i < CLV_ARRAY_LEN(heads); i++)
			snprintf(cells[i], CELL, "%s", heads[i]);
		clv_table_row(&table, cells, 4);
		for (uint32_t i = 0; i < t->transient_count; i++) {
			const struct clv_timeline_transient *x = &t->transients[i];
			if (!(x->strategies >> strategy & 1))
				continue;
			snprintf(cells[0], CELL, "  %s", x->name);
			snprintf(cells[1], CELL, "%" PRIu64, x->bytes);
			clv_size_print(x->segment_bytes, cells[2], CELL);
			snprintf(cells[3], CELL, "%" PRIu64, x->requests);
			clv_table_row(&table, cells, 4);
		}
	}
	if (!t->transients_known)
		fprintf(out,
			"What the conversion asks for on the way is not known for this backend: peaks are without it.\n");
}

static void print_reservations(const struct clv_timeline *t, FILE *out)
{
	struct clv_table table = {.out = out, .left = 1 << 0 | 1 << 4};
	char cells[CLV_TABLE_COLUMNS][CELL];
	if (!t->reservation_count) {
		fprintf(out, "Nothing has to be held back.\n");
		return;
	}
	for (int pass = 0; clv_table_pass(&table, pass); pass++) {
		static const char *const heads[] = {"held back", "bytes", "slots", "after", ""};
		for (size_t i = 0; i < CLV_ARRAY_LEN(heads); i++)
			snprintf(cells[i], CELL, "%s", heads[i]);
		clv_table_row(&table, cells, 5);
		for (uint32_t i = 0; i < t->reservation_count; i++) {
			const struct clv_timeline_reservation *r = &t->reservations[i];
			snprintf(cells[0], CELL, "  %s", r->name);
			snprintf(cells[1], CELL, "%" PRIu64, r->bytes);
			snprintf(cells[2], CELL, "%" PRIu64, r->count);
			snprintf(cells[3], CELL, "%" PRIu64, r->after_n);
			snprintf(cells[4], CELL, "%s", r->hard ? "hard" : "");
			clv_table_row(&table, cells, 5);
		}
	}
}

/* ---- ranks ---- */

static void print_ranks(const struct clv_plan *p, FILE *out)
{
	struct clv_table table = {.out = out};
	char cells[CLV_TABLE_COLUMNS][CELL];
	if (!p->like)
		return;
	fputc('\n', out);
	for (int pass = 0; clv_table_pass(&table, pass); pass++) {
		static const char *const heads[] = {"ranks",   "first",   "layers", "experts",
						    "weights", "padding", "peak"};
		for (size_t i = 0; i < CLV_ARRAY_LEN(heads); i++)
			snprintf(cells[i], CELL, "%s", heads[i]);
		clv_table_row(&table, cells, 7);
		for (uint32_t i = 0; i < p->rank_count; i++) {
			const struct clv_plan_rank *r = &p->ranks[i];
			const struct clv_shard_rank *s = &r->layer.rank;
			snprintf(cells[0], CELL, "%" PRIu32, r->count);
			snprintf(cells[1], CELL, "%" PRIu32, r->rank);
			snprintf(cells[2], CELL, "%" PRIu32,
				 s->moe_layers[CLV_SET_QUANT] + s->moe_layers[CLV_SET_PLAIN]);
			snprintf(cells[3], CELL, "%" PRIu32, s->expert_count);
			clv_size_print(r->weights_bytes, cells[4], CELL);
			clv_size_print(r->padding.padding_bytes, cells[5], CELL);
			clv_size_print(r->timeline.strategies[p->config.timeline.strategy].peak.peak_bytes, cells[6],
				       CELL);
			clv_table_row(&table, cells, 7);
		}
	}
}

/* ---- the proof ---- */

static void print_proof(const struct clv_plan *p, FILE *out)
{
	struct clv_table table = {.out = out, .left = 1};
	char cells[CLV_TABLE_COLUMNS][CELL];
	if (!p->proof_count)
		return;
	fputc('\n', out);
	for (int pass = 0; clv_table_pass(&table, pass); pass++) {
		static const char *const heads[] = {"coverage",           "elements", "copies",         "written",
						    "bytes of all ranks", "tails",    "bytes of tails", "of layouts"};
		for (size_t i = 0; i < CLV_ARRAY_LEN(heads); i++)
			snprintf(cells[i], CELL, "%s", heads[i]);
		clv_table_row(&table, cells, 8);
		for (uint32_t i = 0; i < p->proof_count; i++)
			for (uint32_t b = 0; b < p->proofs[i].coverage.count; b++) {
				const struct clv_plan_proof *proof = &p->proofs[i];
				const struct clv_coverage_figures *f = &proof->coverage.buffers[b];
				const struct clv_plan_sum *own = &proof->sums[b];
				bool converted = proof->converted;
				const uint64_t figures[] = {
					f->elements,      f->copies,
					f->written,       converted ? own->bytes : f->buffer_bytes,
					f->tails,         converted ? own->tail_bytes : f->tail_bytes,
					own->layout_bytes};
				if (f->set != proof->set)
					continue;
				snprintf(cells[0], CELL, "  %s, %s", f->name, converted ? "converted" : "loaded");
				for (size_t n = 0; n < CLV_ARRAY_LEN(figures); n++)
					snprintf(cells[n + 1], CELL, "%" PRIu64, figures[n]);
				clv_table_row(&table, cells, 8);
			}
	}
	if (p->disproved.text[0])
		fprintf(out, "The proof fails: %s\n", p->disproved.text);
	else
		fprintf(out,
			"Proved: all %" PRIu32
			" rank%s together hold each element of the checkpoint as often as it has copies,\n"
			"write nothing else, and every tail is zeros, as is what layouts add. Where in its buffer a layout "
			"puts an\nelement is the backend's affair, and not proved.\n",
			p->world, plural(p->world));
}

/* ---- the end ---- */

static void print_verdict(const struct clv_plan *p, FILE *out)
{
	const struct clv_timeline *t = &clv_plan_worst(p)->timeline;
	char room[32], memory[32];
	if (!t->config.gpu_memory)
		return;
	clv_size_print(t->config.gpu_memory, memory, sizeof(memory));
	clv_size_print((uint64_t)(t->headroom_bytes < 0 ? -t->headroom_bytes : t->headroom_bytes), room, sizeof(room));
	fprintf(out, "\n%s with the strategy %s: of %s, %s %s.\n", p->fits ? "It fits" : "It does not fit",
		clv_strategy_name(t->config.strategy), memory, room, t->headroom_bytes < 0 ? "are lacking" : "remain");
}

static bool warns(const struct clv_plan_rank *r, const struct clv_timeline_warning *w)
{
	for (uint32_t i = 0; i < r->timeline.warning_count; i++)
		if (!strcmp(r->timeline.warnings[i].code, w->code) && !strcmp(r->timeline.warnings[i].text, w->text))
			return true;
	return false;
}

/* ", ranks 0 to 6 and 8": those that warn so, if not all do. */
static void print_warned(const struct clv_plan *p, const struct clv_timeline_warning *w, FILE *out)
{
	uint32_t warned = 0, spans = 0;
	for (uint32_t i = 0; i < p->world; i++)
		warned += warns(&p->ranks[p->like[i]], w);
	if (warned == p->world)
		return;
	fprintf(out, ", rank%s", plural(warned));
	for (uint32_t first = 0; first < p->world; first++) {
		uint32_t end = first;
		while (end < p->world && warns(&p->ranks[p->like[end]], w))
			end++;
		if (end == first)
			continue;
		fprintf(out, spans++ ? ", %" PRIu32 : " %" PRIu32, first);
		if (end - first > 1)
			fprintf(out, " to %" PRIu32, end - 1);
		first = end;
	}
}

/* Each once, those of the rank that needs the most first. */
static void print_warnings(const struct clv_plan *p, FILE *out)
{
	uint32_t printed = 0;
	for (uint32_t k = 0; k < p->rank_count; k++) {
		uint32_t at = !k ? p->worst : k <= p->worst ? k - 1 : k;
		const struct clv_timeline *t = &p->ranks[at].timeline;
		for (uint32_t i = 0; i < t->warning_count; i++) {
			bool again = k && warns(clv_plan_worst(p), &t->warnings[i]);
			for (uint32_t j = 0; j < at && k && !again; j++)
				again = warns(&p->ranks[j], &t->warnings[i]);
			if (again)
				continue;
			fprintf(out, "%swarning (%s", printed++ ? "" : "\n", t->warnings[i].code);
			if (p->like)
				print_warned(p, &t->warnings[i], out);
			fprintf(out, "): %s\n", t->warnings[i].text);
		}
	}
}

static void print_notes(const struct clv_plan *p, FILE *out)
{
	const struct clv_model *m = p->config.timeline.model;
	print_warnings(p, out);
	for (size_t i = 0; i < m->note_count; i++)
		fprintf(out, "%snote: %s\n", i ? "" : "\n", m->notes[i]);
}

/* As a shell reads it. */
static void print_word(const char *text, FILE *out)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789%+,-./:=@_";
	if (text[strspn(text, plain)] == '\0') {
		fputs(text, out);
		return;
	}
	fputc('\'', out);
	for (; *text; text++)
		fputs(*text == '\'' ? "'\\''" : (char[]){*text, '\0'}, out);
	fputc('\'', out);
}

void clv_plan_text(const struct clv_plan *p, const char *written, FILE *out)
{
	const struct clv_plan_rank *r = clv_plan_worst(p);
	print_head(p, out);
	print_padding(p, out);
	fputc('\n', out);
	print_buffers("loaded", r->layer.sources, r->layer.source_count, out);
	print_buffers("converted", r->layer.destinations, r->layer.destination_count, out);
	print_sums(r, out);
	fputc('\n', out);
	print_strategies(&r->timeline, out);
	print_transients(&r->timeline, out);
	print_reservations(&r->timeline, out);
	print_ranks(p, out);
	print_proof(p, out);
	print_verdict(p, out);
	print_notes(p, out);
	if (!p->fits || p->disproved.text[0])
		return;
	if (written) {
		fprintf(out, "\nNext: cleave run --plan ");
		print_word(written, out);
		fprintf(out, " -- COMMAND\n");
	} else
		fprintf(out, "\nNext: write the plan with -o PLAN, and run `cleave run --plan PLAN -- COMMAND`.\n");
}
