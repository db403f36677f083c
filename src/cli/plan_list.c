/* SPDX-License-Identifier: MIT */
#include "plan_list.h"

#include "../plan/backend_layouts.h"
#include "table.h"

#include <inttypes.h>
#include <string.h>

#define CELL CLV_TABLE_CELL

/* "64", "128 / 64" where experts without a gate differ, "-" for none. */
static void align_cell(char *cell, uint32_t not_gated, uint32_t gated)
{
	if (not_gated <= 1 && gated <= 1)
		snprintf(cell, CELL, "-");
	else if (not_gated == gated)
		snprintf(cell, CELL, "%" PRIu32, gated);
	else if (gated <= 1)
		snprintf(cell, CELL, "%" PRIu32 " / -", not_gated);
	else
		snprintf(cell, CELL, "%" PRIu32 " / %" PRIu32, not_gated, gated);
}

static void formats_cell(char *cell, uint32_t formats)
{
	cell[0] = '\0';
	for (unsigned f = 0; f < CLV_FORMATS; f++)
		if (formats >> f & 1) {
			size_t at = strlen(cell);
			snprintf(cell + at, CELL - at, "%s%s", at ? ", " : "",
				 clv_format_name((enum clv_model_format)f));
		}
}

static const char *order_of(const struct clv_backend *b)
{
	return b->weights ? clv_backend_order_name(b->order, true, false) : "-";
}

static int cells_of(const struct clv_backend *b, char cells[][CELL])
{
	snprintf(cells[0], CELL, "%s", b->name);
	formats_cell(cells[1], b->formats);
	align_cell(cells[2], b->align_n[0], b->align_n[1]);
	align_cell(cells[3], b->align_k, b->align_k);
	snprintf(cells[4], CELL, "%s", clv_layout_name(b->scales));
	snprintf(cells[5], CELL, "%s", order_of(b));
	snprintf(cells[6], CELL, "%s",
		 b->rule_text ? b->rule_text
		 : b->weights ? ""
			      : "sizes only: it cannot be planned");
	return 7;
}

void clv_plan_list_text(FILE *out)
{
	static const char *const heads[] = {"backend", "experts", "N to", "K to", "scales", "rows of w13", "rule"};
	struct clv_table t = {.out = out, .left = 1 << 0 | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 6};
	char cells[CLV_TABLE_COLUMNS][CELL];
	for (int pass = 0; clv_table_pass(&t, pass); pass++) {
		const struct clv_backend *b;
		for (size_t i = 0; i < CLV_ARRAY_LEN(heads); i++)
			snprintf(cells[i], CELL, "%s", heads[i]);
		clv_table_row(&t, cells, (int)CLV_ARRAY_LEN(heads));
		for (size_t i = 0; (b = clv_backend_at(i)); i++)
			clv_table_row(&t, cells, cells_of(b, cells));
	}
	fprintf(out,
		"\nN, the intermediate size of a rank, and K, the hidden size of experts, are padded to multiples of\n"
		"these; where two are given, the first is for experts without a gate.\n");
}

/* What it is for experts without a gate, and with one; null: not padded, or any will do. */
static json_t *sizes_json(const uint32_t n[2], uint32_t k)
{
	json_t *o = json_object();
	json_object_set_new(o, "intermediate_not_gated", n[0] > 1 ? json_integer(n[0]) : json_null());
	json_object_set_new(o, "intermediate_gated", n[1] > 1 ? json_integer(n[1]) : json_null());
	json_object_set_new(o, "hidden", k > 1 ? json_integer(k) : json_null());
	return o;
}

static json_t *formats_json(uint32_t formats)
{
	json_t *list = json_array();
	for (unsigned f = 0; f < CLV_FORMATS; f++)
		if (formats >> f & 1)
			json_array_append_new(list, json_string(clv_format_name((enum clv_model_format)f)));
	return list;
}

static json_t *backend_json(const struct clv_backend *b)
{
	json_t *group = b->group ? json_integer(b->group) : json_null();
	json_t *in_turn = b->interleaved_order ? json_string(clv_backend_order_name(b->interleaved_order, true, true))
					       : json_null();
	return json_pack("{s:s,s:s,s:s,s:b,s:o,s:o,s:o,s:s*,s:s,s:o,s:s,s:s,s:s,s:s,s:o,s:b,s:s*}", "name", b->name,
			 "engine", b->engine, "source", b->source, "planned", b->weights != NULL, "quantization",
			 formats_json(b->formats), "align", sizes_json(b->align_n, b->align_k), "required_multiples",
			 sizes_json(b->must_n, b->must_k), "required_why", b->must_why, "pads",
			 clv_backend_pads_name(b->pads), "group", group, "scale_dtype", b->scale_dtype, "weight_layout",
			 clv_layout_name(b->weights), "scale_layout", clv_layout_name(b->scales), "row_order",
			 order_of(b), "row_order_interleaved", in_turn, "gated_only", b->gated_only, "rule",
			 b->rule_text);
}

json_t *clv_plan_list_json(void)
{
	json_t *list = json_array();
	const struct clv_backend *b;
	for (size_t i = 0; (b = clv_backend_at(i)); i++)
		if (json_array_append_new(list, backend_json(b))) {
			json_decref(list);
			return NULL;
		}
	return json_pack("{s:o}", "backends", list);
}
