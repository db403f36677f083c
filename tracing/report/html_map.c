/* SPDX-License-Identifier: MIT */
#include "html_internal.h"

/* Of the whole page. A kept block is some 20 bytes of it, a tile up to 1.4. */
#define RECTS_MAX ((uint32_t)1 << 18)
#define TILES_MAX ((uint32_t)1 << 21)
/* Of one device: more blocks are not drawn quickly. */
#define DEVICE_RECTS ((uint32_t)1 << 16)
#define DEVICE_COLUMNS 2048u
#define DEVICE_ROWS 512u

static struct clv_address_map_limits limits_of(uint32_t devices)
{
	struct clv_address_map_limits l = {.rects = (uint32_t)clv_min_u64(DEVICE_RECTS, RECTS_MAX / devices + 1),
					   .columns = DEVICE_COLUMNS,
					   .rows = DEVICE_ROWS};
	while ((uint64_t)l.columns * l.rows * devices > TILES_MAX && l.columns > 32) {
		l.columns /= 2;
		l.rows /= 2;
	}
	return l;
}

static json_t *extents(const struct clv_address_map *map)
{
	struct clv_pack addr = {0}, size = {0}, y = {0};
	for (uint32_t i = 0; i < map->extent_count; i++) {
		clv_pack_step(&addr, map->extents[i].addr);
		clv_pack_number(&size, map->extents[i].size);
		clv_pack_step(&y, map->extents[i].y);
	}
	return json_pack("{s:I, s:o, s:o, s:o}", "count", (json_int_t)map->extent_count, "addr", clv_pack_json(&addr),
			 "size", clv_pack_json(&size), "y", clv_pack_json(&y));
}

/* What a block is beyond its place: the columns of a block's rectangle that others have not. */
static json_t *blocks(const struct clv_html_device *p, const struct clv_address_layer *layer)
{
	struct clv_pack stack = {0}, stream = {0}, asked = {0}, life = {0}, freed = {0};
	for (uint32_t i = 0; i < layer->count; i++) {
		const struct clv_address_rect *r = &layer->rects[i];
		const struct clv_report_block *b = &p->d->blocks[r->of];
		uint64_t from = clv_html_time(p, r->born), to = clv_html_time(p, r->freed);
		clv_pack_number(&stack, clv_html_stack(p->texts, p->d->trace, p->trace_index, b->stack, false));
		clv_pack_number(&stream, b->stream < p->d->trace->stream_count ? b->stream + 1 : 0);
		clv_pack_number(&asked, b->size);
		clv_pack_number(&life, to > from ? to - from : 0);
		/* 0: the program never freed it; else how long it waited for a stream, and one */
		clv_pack_number(&freed, b->freed == CLV_REPORT_NEVER ? 0 : r->gone - r->freed + 1);
	}
	return json_pack("{s:o, s:o, s:o, s:o, s:o}", "stack", clv_pack_json(&stack), "stream", clv_pack_json(&stream),
			 "asked", clv_pack_json(&asked), "life", clv_pack_json(&life), "freed", clv_pack_json(&freed));
}

/* The names of reservations, each once, as the layer's rectangles number them. */
static json_t *names(const struct clv_html_device *p, const struct clv_address_layer *layer)
{
	json_t *list = json_array();
	struct clv_pack which = {0};
	struct clv_map known = {0};
	for (uint32_t i = 0; i < layer->count; i++) {
		struct clv_map_slot *slot = clv_map_slot(&known, layer->rects[i].of);
		uint32_t text = layer->rects[i].of;
		if (!slot) {
			which.failed = true;
			break;
		}
		if (slot->value == CLV_MAP_NONE) {
			slot->value = (uint32_t)json_array_size(list);
			json_array_append_new(
				list,
				clv_html_text(text < p->d->trace->string_count ? p->d->trace->strings[text] : ""));
		}
		clv_pack_number(&which, slot->value);
	}
	clv_map_free(&known);
	return json_pack("{s:o, s:o}", "names", list, "which", clv_pack_json(&which));
}

static json_t *tiles(const struct clv_address_map *map, const struct clv_address_layer *layer)
{
	if (!layer->tiles)
		return json_null();
	struct clv_pack share = {0};
	clv_pack_sparse(&share, layer->tiles, (size_t)map->columns * map->rows);
	return clv_pack_json(&share);
}

static json_t *layer_json(const struct clv_html_device *p, const struct clv_address_map *map, int kind)
{
	const struct clv_address_layer *layer = &map->layers[kind];
	struct clv_pack born = {0}, events = {0}, y = {0}, size = {0};
	for (uint32_t i = 0; i < layer->count; i++) {
		const struct clv_address_rect *r = &layer->rects[i];
		clv_pack_step(&born, r->born);
		clv_pack_number(&events, r->gone - r->born);
		clv_pack_step(&y, r->y);
		clv_pack_number(&size, r->size);
	}
	json_t *more = kind == CLV_ADDRESS_BLOCKS         ? blocks(p, layer)
		       : kind == CLV_ADDRESS_RESERVATIONS ? names(p, layer)
							  : json_object();
	return json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "count", (json_int_t)layer->count, "total",
			 clv_json_number(layer->total), "born", clv_pack_json(&born), "events", clv_pack_json(&events),
			 "y", clv_pack_json(&y), "size", clv_pack_json(&size), "tiles", tiles(map, layer), "more",
			 more);
}

json_t *clv_html_map(const struct clv_html_device *p, struct clv_error *err)
{
	static const char *const layer_names[] = {
#define X(name, text) [CLV_ADDRESS_##name] = text,
		CLV_ADDRESS_LAYERS(X)
#undef X
	};
	const struct clv_address_map_limits limits = limits_of(p->share);
	struct clv_address_map map;
	if (!clv_address_map_make(p->d, &limits, &map, err))
		return NULL;
	json_t *j = json_pack("{s:I, s:o, s:I, s:I, s:o}", "width", (json_int_t)map.width, "height",
			      clv_json_number(map.height), "columns", (json_int_t)map.columns, "rows",
			      (json_int_t)map.rows, "extents", extents(&map));
	for (int i = 0; j && i < CLV_ADDRESS_LAYER_COUNT; i++)
		if (json_object_set_new(j, layer_names[i], layer_json(p, &map, i))) {
			json_decref(j);
			j = NULL;
		}
	clv_address_map_free(&map);
	return j;
}
