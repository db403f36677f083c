/* SPDX-License-Identifier: MIT */
#include "torch_snapshot.h"

#include "../link.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT 65535 /* bytes that are kept of a name; C++ names can be long */

const char *const clv_snapshot_strings[CLV_S_COUNT] = {
#define X(name, text) [CLV_S_##name] = text,
	CLV_SNAPSHOT_STRINGS(X)
#undef X
#define X(name, text) [CLV_S_ACTION_##name] = text,
		CLV_ACTIONS(X)
#undef X
};

/* The parts of the top level that matter; a value of None or a missing key is CLV_PK_NONE. */
struct top {
	clv_pk segments, traces, settings, probe, made_up_state;
	bool has_segments, has_traces, has_annotations;
};

/* The value of a key, or None. */
static clv_pk lookup(const struct clv_pickle *p, clv_pk dict, enum clv_snapshot_string key)
{
	const clv_pk *items;
	size_t count;
	uint64_t offset;
	clv_pk found = clv_pk_make(CLV_PK_NONE, 0);
	if (clv_pk_tag(dict) != CLV_PK_DICT || !clv_pickle_items(p, dict, &items, &count, &offset))
		return found;
	for (size_t i = 0; i + 1 < count; i += 2) /* as in Python, the last one counts */
		if (items[i] == clv_pk_make(CLV_PK_STR, (uint64_t)key))
			found = items[i + 1];
	return found;
}

static bool find_top(struct clv_pickle *p, clv_pk root, struct top *top)
{
	*top = (struct top){0};
	if (clv_pk_tag(root) == CLV_PK_LIST) { /* torch.cuda.memory_snapshot(): the segments alone */
		top->segments = root;
		top->has_segments = true;
		return true;
	}
	if (clv_pk_tag(root) != CLV_PK_DICT)
		return clv_pickle_error(p, 0, "not a PyTorch memory snapshot: the pickle holds no dict");
	top->segments = lookup(p, root, CLV_S_SEGMENTS);
	top->traces = lookup(p, root, CLV_S_DEVICE_TRACES);
	top->settings = lookup(p, root, CLV_S_ALLOCATOR_SETTINGS);
	top->probe = lookup(p, root, CLV_S_PROBE);
	top->made_up_state = lookup(p, root, CLV_S_MADE_UP_STATE);
	top->has_annotations = clv_pk_tag(lookup(p, root, CLV_S_EXTERNAL_ANNOTATIONS)) != CLV_PK_NONE;
	top->has_segments = clv_pk_tag(top->segments) != CLV_PK_NONE;
	top->has_traces = clv_pk_tag(top->traces) != CLV_PK_NONE;
	if (!top->has_segments && !top->has_traces)
		return clv_pickle_error(
			p, 0, "not a PyTorch memory snapshot: the pickle has neither 'device_traces' nor 'segments'");
	return true;
}

/* Where the value is that does not belong in a list. */
static uint64_t place_of(clv_pk v, uint64_t otherwise)
{
	return clv_pk_tag(v) == CLV_PK_OPAQUE ? clv_pk_payload(v) : otherwise;
}

static struct clv_history *history_of(struct clv_trace *t, uint64_t device)
{
	return device < t->history_count ? &t->histories[device] : NULL;
}

/* One history a device for now; those that stay empty go at the end. */
static bool make_histories(struct clv_snapshot *s, struct clv_pickle *p, const struct top *top)
{
	const clv_pk *items;
	size_t count, at = 0;
	uint64_t offset, run, devices = 0;
	clv_pk v;
	if (top->has_traces) {
		if (clv_pk_tag(top->traces) != CLV_PK_LIST ||
		    !clv_pickle_items(p, top->traces, &items, &count, &offset))
			return clv_pickle_error(p, place_of(top->traces, 0), "'device_traces' is no list");
		while (clv_pickle_next(items, count, &at, &v, &run)) {
			if (clv_pk_tag(v) != CLV_PK_LIST)
				return clv_pickle_error(p, place_of(v, offset),
							"an entry of 'device_traces' is no list of events");
			devices++;
		}
		if (devices > 65536)
			return clv_pickle_error(p, offset, "'device_traces' has %llu devices",
						(unsigned long long)devices);
	}
	for (size_t i = 0; i < s->segment_count; i++)
		devices = clv_max_u64(devices, s->segments[i].device + 1u);
	s->trace->histories = clv_mem_zalloc((size_t)devices, sizeof(*s->trace->histories));
	if (!s->trace->histories)
		return clv_pickle_no_memory(p);
	s->trace->history_count = (uint32_t)devices;
	for (uint64_t d = 0; d < devices; d++) {
		s->trace->histories[d].device = (int)d;
		s->trace->histories[d].has_state = top->has_segments;
	}
	return true;
}

/* The events of a device's list, counted. */
static bool count_events(struct clv_pickle *p, clv_pk list, uint64_t *total)
{
	const clv_pk *items;
	size_t count, at = 0;
	uint64_t offset, run;
	clv_pk v;
	*total = 0;
	if (!clv_pickle_items(p, list, &items, &count, &offset))
		return true;
	while (clv_pickle_next(items, count, &at, &v, &run)) {
		if (clv_pk_tag(v) != CLV_PK_EVENT)
			return clv_pickle_error(
				p, place_of(v, offset),
				"event %llu of a history is no event: a dict without 'action', or no dict",
				(unsigned long long)*total);
		*total += run;
		if (*total > CLV_PK_EVENT_MAX)
			return clv_pickle_error(p, offset, "a history of more than %u events", CLV_PK_EVENT_MAX);
	}
	return true;
}

/* A list whose events lie together in s->events; *first is where. */
static bool is_one_run(struct clv_pickle *p, clv_pk list, uint64_t *first)
{
	const clv_pk *items;
	size_t count;
	uint64_t offset;
	if (!clv_pickle_items(p, list, &items, &count, &offset) || count != 2)
		return false;
	*first = clv_pk_payload(items[0]);
	return true;
}

static bool copy_events(struct clv_snapshot *s, struct clv_pickle *p, clv_pk list, struct clv_history *h)
{
	const clv_pk *items;
	size_t count, at = 0, to = 0;
	uint64_t offset, run;
	clv_pk v;
	h->events = clv_mem_realloc(NULL, h->event_count, sizeof(*h->events));
	if (!h->events)
		return clv_pickle_no_memory(p);
	clv_pickle_items(p, list, &items, &count, &offset);
	while (clv_pickle_next(items, count, &at, &v, &run)) {
		memcpy(&h->events[to], &s->events[clv_pk_payload(v)], (size_t)run * sizeof(*h->events));
		to += (size_t)run;
	}
	return true;
}

/* Shrinks what was gathered to `count` events; that it cannot fail is of no importance. */
static void shrink_events(struct clv_snapshot *s, size_t count)
{
	struct clv_event_record *less = clv_mem_realloc(s->events, count, sizeof(*less));
	if (less) {
		s->events = less;
		s->event_cap = count;
	}
	s->event_count = count;
}

/* Gives each device its events. The lists of a real file follow each other in s->events: then they are cut off from the
 * end, so that never much more memory is in use than the events need. */
static bool hand_out_events(struct clv_snapshot *s, struct clv_pickle *p, clv_pk traces)
{
	const clv_pk *lists;
	size_t devices;
	uint64_t offset, end = 0;
	bool ascending = true;
	size_t first_device = SIZE_MAX;
	if (clv_pk_tag(traces) != CLV_PK_LIST || !clv_pickle_items(p, traces, &lists, &devices, &offset))
		return true;
	s->first_events = clv_mem_realloc(NULL, devices, sizeof(*s->first_events));
	if (!s->first_events)
		return clv_pickle_no_memory(p);
	s->first_event_count = devices;
	uint64_t all = 0;
	for (size_t d = 0; d < devices; d++) {
		struct clv_history *h = history_of(s->trace, d);
		uint64_t total, first;
		if (!count_events(p, lists[d], &total))
			return false;
		all += total;
		if (all > s->size)
			return clv_pickle_error(p, offset, "'device_traces' has one list of events many times");
		h->event_count = (uint32_t)total;
		s->first_events[d] = total && is_one_run(p, lists[d], &first) ? first : SIZE_MAX;
		if (total == 0)
			continue;
		if (first_device == SIZE_MAX)
			first_device = d;
		ascending = ascending && is_one_run(p, lists[d], &first) && first >= end;
		if (ascending)
			end = first + total;
	}
	for (size_t d = devices; d-- > 0;) {
		struct clv_history *h = history_of(s->trace, d);
		uint64_t first = 0;
		if (h->event_count == 0)
			continue;
		if (!ascending || d != first_device) {
			if (!copy_events(s, p, lists[d], h))
				return false;
			if (ascending && is_one_run(p, lists[d], &first))
				shrink_events(s, (size_t)first);
			continue;
		}
		is_one_run(p, lists[d], &first);
		if (first)
			memmove(s->events, &s->events[first], h->event_count * sizeof(*s->events));
		shrink_events(s, h->event_count);
		h->events = s->events;
		s->events = NULL;
		s->event_count = s->event_cap = 0;
	}
	return true;
}

/* Takes out what the exporter made up. */
static void drop_made_up_events(struct clv_snapshot *s)
{
	for (uint32_t d = 0; s->made_up && d < s->trace->history_count; d++) {
		struct clv_history *h = &s->trace->histories[d];
		uint32_t kept = 0;
		for (uint32_t i = 0; i < h->event_count; i++)
			if (!(h->events[i].flags & CLV_SNAPSHOT_MADE_UP))
				h->events[kept++] = h->events[i];
		if (kept < h->event_count) /* then the number of an event does not say where it is in the file */
			s->first_events[d] = SIZE_MAX;
		h->event_count = kept;
	}
}

static void drop_made_up_state(struct clv_snapshot *s, const struct clv_pickle *p, const struct top *top)
{
	const clv_pk *items;
	size_t count, at = 0;
	uint64_t offset, run, device;
	clv_pk v;
	if (clv_pk_tag(top->made_up_state) != CLV_PK_LIST ||
	    !clv_pickle_items(p, top->made_up_state, &items, &count, &offset))
		return;
	while (clv_pickle_next(items, count, &at, &v, &run)) {
		struct clv_history *h = clv_pickle_u64(p, v, &device) ? history_of(s->trace, device) : NULL;
		if (!h)
			continue;
		h->has_state = false;
		h->segment_count = h->block_record_count = h->pool_count = 0;
		clv_mem_free(h->pools);
		h->pools = NULL;
	}
}

static int by_device_and_address(const void *a, const void *b)
{
	const struct clv_snapshot_segment *x = a, *y = b;
	if (x->device != y->device)
		return x->device < y->device ? -1 : 1;
	return x->r.addr < y->r.addr ? -1 : x->r.addr > y->r.addr;
}

/* The index of a pool id in the history, added if new. There are few. */
static bool pool_index(struct clv_snapshot *s, struct clv_pickle *p, struct clv_history *h, size_t *cap,
		       struct clv_map *known, const struct clv_snapshot_segment *seg, uint16_t *out)
{
	struct clv_pool_id id = {(uint64_t)seg->pool_a, (uint64_t)seg->pool_b};
	if (id.a == 0 && id.b == 0) {
		*out = 0;
		return true;
	}
	for (uint64_t key = clv_mix64(id.a) ^ id.b;; key = clv_mix64(key + 1)) {
		struct clv_map_slot *slot = clv_map_slot(known, key);
		if (!slot)
			return clv_pickle_no_memory(p);
		if (slot->value == CLV_MAP_NONE) {
			slot->value = 0;
			if (h->pool_count > UINT16_MAX)
				return clv_pickle_error(p, seg->offset, "more than %u pools", UINT16_MAX);
			if (!clv_mem_reserve(&h->pools, cap, h->pool_count + 1u, sizeof(*h->pools)))
				return clv_pickle_no_memory(p);
			slot->value = h->pool_count;
			h->pools[h->pool_count++] = id;
		} else if (slot->value == 0 || h->pools[slot->value].a != id.a || h->pools[slot->value].b != id.b) {
			continue;
		}
		*out = (uint16_t)slot->value;
		return true;
	}
}

/* The segments [from, to) of s->segments, all of one device, with their blocks. */
static bool fill_state(struct clv_snapshot *s, struct clv_pickle *p, struct clv_history *h, size_t from, size_t to)
{
	size_t blocks = 0, pools_cap = 0;
	struct clv_map known = {0};
	bool ok = false;
	for (size_t i = from; i < to; i++)
		blocks += s->segments[i].r.blocks;
	h->segments = clv_mem_realloc(NULL, to - from, sizeof(*h->segments));
	h->blocks = clv_mem_realloc(NULL, blocks, sizeof(*h->blocks));
	if (!h->segments || !h->blocks || !clv_mem_reserve(&h->pools, &pools_cap, 1, sizeof(*h->pools))) {
		clv_pickle_no_memory(p);
		goto out;
	}
	h->pools[0] = (struct clv_pool_id){0, 0};
	h->pool_count = 1;
	uint64_t end = 0;
	for (size_t i = from; i < to; i++) {
		const struct clv_snapshot_segment *t = &s->segments[i];
		struct clv_segment_record r = t->r;
		if (r.addr < end) {
			clv_pickle_error(p, t->offset, "the segment at 0x%llx overlaps the one before it",
					 (unsigned long long)r.addr);
			goto out;
		}
		end = r.addr + r.size;
		if (!pool_index(s, p, h, &pools_cap, &known, t, &r.pool))
			goto out;
		if (r.blocks)
			memcpy(&h->blocks[h->block_record_count], &s->blocks[r.first_block],
			       r.blocks * sizeof(*h->blocks));
		r.first_block = h->block_record_count;
		h->block_record_count += r.blocks;
		h->segments[h->segment_count++] = r;
	}
	ok = true;
out:
	clv_map_free(&known);
	return ok;
}

/* Reduces s->segments to those that 'segments' lists, sorted by device and address. */
static bool choose_segments(struct clv_snapshot *s, struct clv_pickle *p, const struct top *top)
{
	const clv_pk *items;
	size_t count, at = 0;
	uint64_t offset, run, listed = 0;
	clv_pk v;
	struct clv_snapshot_segment *chosen = NULL;
	size_t cap = 0;
	if (!top->has_segments) {
		s->segment_count = 0;
		return true;
	}
	if (clv_pk_tag(top->segments) != CLV_PK_LIST || !clv_pickle_items(p, top->segments, &items, &count, &offset))
		return clv_pickle_error(p, place_of(top->segments, 0), "'segments' is no list");
	while (clv_pickle_next(items, count, &at, &v, &run)) {
		if (clv_pk_tag(v) != CLV_PK_SEGMENT) {
			clv_mem_free(chosen);
			return clv_pickle_error(
				p, place_of(v, offset),
				"entry %llu of 'segments' is no segment: a dict without 'blocks', or no dict",
				(unsigned long long)listed);
		}
		if (!clv_mem_reserve(&chosen, &cap, (size_t)(listed + run), sizeof(*chosen))) {
			clv_mem_free(chosen);
			return clv_pickle_no_memory(p);
		}
		memcpy(&chosen[listed], &s->segments[clv_pk_payload(v)], (size_t)run * sizeof(*chosen));
		listed += run;
	}
	clv_mem_free(s->segments);
	s->segments = chosen;
	s->segment_count = (size_t)listed;
	s->segment_cap = cap;
	if (listed > 1)
		qsort(chosen, (size_t)listed, sizeof(*chosen), by_device_and_address);
	return true;
}

static bool hand_out_state(struct clv_snapshot *s, struct clv_pickle *p)
{
	for (size_t from = 0, to; from < s->segment_count; from = to) {
		for (to = from + 1; to < s->segment_count && s->segments[to].device == s->segments[from].device;)
			to++;
		if (!fill_state(s, p, history_of(s->trace, s->segments[from].device), from, to))
			return false;
	}
	return true;
}

/* A setting that is there and is not what PyTorch writes: passed over, it would give a baseline of other settings. */
static bool wrong_setting(struct clv_pickle *p, uint64_t offset, enum clv_snapshot_string key, const char *kind)
{
	return clv_pickle_error(p, offset, "the setting '%s' is no %s", clv_snapshot_strings[key], kind);
}

static bool read_roundup(struct clv_snapshot *s, struct clv_pickle *p, clv_pk table, uint64_t offset)
{
	struct clv_torch_recorded *t = &s->trace->torch;
	const clv_pk *items;
	size_t count, len;
	uint64_t table_offset, divisions;
	const char *key;
	if (clv_pk_tag(table) == CLV_PK_NONE)
		return true;
	if (clv_pk_tag(table) != CLV_PK_DICT || !clv_pickle_items(p, table, &items, &count, &table_offset))
		return wrong_setting(p, offset, CLV_S_ROUNDUP, "dict");
	for (size_t i = 0; i + 1 < count; i += 2) { /* "1", "2", "4", ... "32768": MiB */
		if (!clv_pickle_string(p, items[i], &key, &len))
			continue;
		if (!clv_pickle_u64(p, items[i + 1], &divisions) || divisions > UINT32_MAX)
			return wrong_setting(p, table_offset, CLV_S_ROUNDUP, "table of numbers");
		uint64_t mib = 0;
		for (size_t k = 0; k < len && k < 6 && key[k] >= '0' && key[k] <= '9'; k++)
			mib = mib * 10 + (uint64_t)(key[k] - '0');
		if (clv_is_pow2(mib) && clv_log2(mib) < CLV_ARRAY_LEN(t->roundup))
			t->roundup[clv_log2(mib)] = (uint32_t)divisions;
	}
	return true;
}

static bool read_settings(struct clv_snapshot *s, struct clv_pickle *p, clv_pk settings)
{
	struct clv_torch_recorded *t = &s->trace->torch;
	const clv_pk *items;
	size_t count, len = 0;
	uint64_t offset = 0, u;
	const char *text = "";
	enum clv_snapshot_string key = CLV_S_CONF;
	t->max_split_size = -1;
	t->present = clv_pk_tag(settings) != CLV_PK_NONE;
	if (t->present) {
		if (clv_pk_tag(settings) != CLV_PK_DICT || !clv_pickle_items(p, settings, &items, &count, &offset))
			return clv_pickle_error(p, place_of(settings, 0), "'allocator_settings' is no dict");
		clv_pk v = lookup(p, settings, key);
		if (clv_pk_tag(v) == CLV_PK_NONE)
			v = lookup(p, settings, key = CLV_S_NEW_CONF);
		if (clv_pk_tag(v) != CLV_PK_NONE && !clv_pickle_string(p, v, &text, &len))
			return wrong_setting(p, offset, key, "text");
		/* an int64 view of a size_t; some versions write the size_t */
		v = lookup(p, settings, CLV_S_MAX_SPLIT_SIZE);
		if (clv_pickle_u64(p, v, &u))
			t->max_split_size = (int64_t)u;
		else if (clv_pk_tag(v) != CLV_PK_NONE && !clv_pickle_i64(p, v, &t->max_split_size))
			return wrong_setting(p, offset, CLV_S_MAX_SPLIT_SIZE, "integer of 64 bits");
		v = lookup(p, settings, CLV_S_GC_THRESHOLD);
		if (clv_pk_tag(v) != CLV_PK_NONE &&
		    (!clv_pickle_double(p, v, &t->gc_threshold) || !isfinite(t->gc_threshold)))
			return wrong_setting(p, offset, CLV_S_GC_THRESHOLD, "finite number");
		v = lookup(p, settings, CLV_S_EXPANDABLE_SEGMENTS);
		if (clv_pk_tag(v) != CLV_PK_NONE && clv_pk_tag(v) != CLV_PK_BOOL &&
		    (clv_pk_tag(v) != CLV_PK_INT || clv_pk_payload(v) > 1))
			return wrong_setting(p, offset, CLV_S_EXPANDABLE_SEGMENTS, "boolean");
		t->expandable = clv_pk_payload(v) != 0;
		if (!read_roundup(s, p, lookup(p, settings, CLV_S_ROUNDUP), offset))
			return false;
	}
	t->conf = clv_mem_strndup(text, clv_min_u64(len, MAX_TEXT));
	return t->conf || clv_pickle_no_memory(p);
}

/* What our own recordings say of the limit they ran under. */
static void read_probe(struct clv_snapshot *s, struct clv_pickle *p, clv_pk probe)
{
	struct clv_torch_recorded *t = &s->trace->torch;
	t->has_probe = clv_pickle_u64(p, lookup(p, probe, CLV_S_CAP_MIB), &t->cap_mib) &&
		       clv_pickle_u64(p, lookup(p, probe, CLV_S_TOTAL), &t->total_bytes);
	if (!t->has_probe) {
		t->cap_mib = t->total_bytes = 0;
		return;
	}
	if (!clv_pickle_u64(p, lookup(p, probe, CLV_S_RETRIES), &t->retries))
		t->retries = 0;
	if (!clv_pickle_u64(p, lookup(p, probe, CLV_S_OOMS), &t->ooms))
		t->ooms = 0;
	if (!clv_pickle_u64(p, lookup(p, probe, CLV_S_DEVICE_LEFT_MIB), &t->device_left_mib))
		t->device_left_mib = 0;
}

/* The trace's number of a string of the pickle, added if new. `numbers` holds what is known, plus 1. */
static bool keep_string(struct clv_snapshot *s, struct clv_pickle *p, uint32_t *numbers, size_t *cap, uint32_t *string)
{
	struct clv_trace *t = s->trace;
	const char *text = "";
	size_t len = 0;
	uint32_t *number = *string == UINT32_MAX ? &numbers[0] : &numbers[*string + 1u];
	if (*number == 0) {
		if (*string != UINT32_MAX)
			clv_pickle_string(p, clv_pk_make(CLV_PK_STR, *string), &text, &len);
		if (!clv_mem_reserve(&t->strings, cap, t->string_count + 1u, sizeof(*t->strings)))
			return clv_pickle_no_memory(p);
		len = clv_min_u64(len, MAX_TEXT);
		char *copy = clv_mem_strndup(text, len);
		if (!copy)
			return clv_pickle_no_memory(p);
		for (size_t i = 0; i < len; i++) /* a C string ends at a NUL */
			if (copy[i] == '\0')
				copy[i] = '?';
		t->strings[t->string_count++] = copy;
		*number = t->string_count;
	}
	*string = *number - 1;
	return true;
}

static int by_time(const void *a, const void *b)
{
	const struct clv_snapshot_note *x = a, *y = b;
	if (x->time_us != y->time_us)
		return x->time_us < y->time_us ? -1 : 1;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Sorts them by time, and leaves each once. */
static void settle_notes(struct clv_snapshot *s)
{
	size_t kept = 0;
	if (s->note_count > 1)
		qsort(s->notes, s->note_count, sizeof(*s->notes), by_time);
	for (size_t i = 0; i < s->note_count; i++)
		if (!kept || s->notes[kept - 1].offset != s->notes[i].offset)
			s->notes[kept++] = s->notes[i];
	s->note_count = kept;
}

/* Whether the note and the next one are of one moment: a mark. */
static bool is_mark(const struct clv_snapshot_note *n, const struct clv_snapshot_note *next)
{
	return n->kind == CLV_EVENT_PHASE_BEGIN && next->kind == CLV_EVENT_PHASE_END && n->name == next->name &&
	       n->device == next->device && n->time_us == next->time_us;
}

/* Of the device, or if it has none the first. */
static uint32_t history_number(const struct clv_trace *t, uint32_t device)
{
	uint32_t lo = 0, hi = t->history_count;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (t->histories[mid].device < (int)device)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < t->history_count && t->histories[lo].device == (int)device ? lo : 0;
}

/* Annotations become notes of their device's history, or of the first one. */
static bool hand_out_notes(struct clv_snapshot *s, struct clv_pickle *p, uint32_t *numbers, size_t *string_cap)
{
	struct clv_trace *t = s->trace;
	size_t *caps = clv_mem_zalloc(t->history_count, sizeof(*caps));
	bool ok = caps != NULL;
	settle_notes(s);
	for (size_t i = 0; ok && t->history_count && i < s->note_count; i++) {
		const struct clv_snapshot_note *n = &s->notes[i];
		uint32_t d = history_number(t, n->device);
		struct clv_history *h = &t->histories[d];
		struct clv_note note = {.time_us = n->time_us,
					.event = h->note_count ? h->notes[h->note_count - 1].event : 0,
					.stream = CLV_NO_STREAM,
					.text = n->name,
					.kind = n->kind};
		ok = clv_mem_reserve(&h->notes, &caps[d], h->note_count + 1u, sizeof(*h->notes)) &&
		     keep_string(s, p, numbers, string_cap, &note.text);
		if (!ok)
			break;
		if (i + 1 < s->note_count && is_mark(n, &s->notes[i + 1])) {
			note.kind = CLV_EVENT_MARK;
			i++;
		}
		while (note.event < h->event_count && h->events[note.event].time_us < note.time_us)
			note.event++;
		h->notes[h->note_count++] = note;
	}
	clv_mem_free(caps);
	return ok || clv_pickle_no_memory(p);
}

/* Stacks and notes, and the strings of both. */
static bool hand_over_texts(struct clv_snapshot *s, struct clv_pickle *p, const struct top *top)
{
	struct clv_trace *t = s->trace;
	size_t cap = 0;
	bool ok = true;
	uint32_t *numbers = clv_mem_zalloc(clv_pickle_string_count(p) + 1u, sizeof(*numbers));
	if (!numbers)
		return clv_pickle_no_memory(p);
	for (size_t i = 0; ok && i < s->stack_frame_count; i++)
		ok = keep_string(s, p, numbers, &cap, &s->stack_frames[i].file) &&
		     keep_string(s, p, numbers, &cap, &s->stack_frames[i].function);
	ok = ok && (!top->has_annotations || hand_out_notes(s, p, numbers, &cap));
	clv_mem_free(numbers);
	t->stacks = s->stacks;
	t->stack_count = (uint32_t)s->stack_count;
	t->stack_frames = s->stack_frames;
	t->stack_frame_count = (uint32_t)s->stack_frame_count;
	s->stacks = NULL;
	s->stack_frames = NULL;
	return ok;
}

static void drop_empty_histories(struct clv_trace *t)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < t->history_count; i++) {
		struct clv_history *h = &t->histories[i];
		if (h->event_count || h->segment_count) {
			t->histories[kept++] = *h;
			continue;
		}
		clv_mem_free(h->events); /* all of which were made up */
		clv_mem_free(h->segments);
		clv_mem_free(h->blocks);
		clv_mem_free(h->pools);
	}
	t->history_count = kept;
}

static bool assemble(struct clv_snapshot *s, struct clv_pickle *p, clv_pk root)
{
	struct top top;
	if (!find_top(p, root, &top) || !choose_segments(s, p, &top) || !make_histories(s, p, &top) ||
	    !hand_out_state(s, p) || !hand_out_events(s, p, top.traces) || !read_settings(s, p, top.settings))
		return false;
	read_probe(s, p, top.probe);
	drop_made_up_events(s);
	drop_made_up_state(s, p, &top);
	drop_empty_histories(s->trace);
	return hand_over_texts(s, p, &top);
}

static void snapshot_clear(struct clv_snapshot *s)
{
	clv_mem_free(s->events);
	clv_mem_free(s->blocks);
	clv_mem_free(s->segments);
	clv_mem_free(s->notes);
	clv_mem_free(s->frames);
	clv_map_free(&s->frame_index);
	clv_mem_free(s->stack_frames);
	clv_mem_free(s->stacks);
	clv_map_free(&s->stack_index);
	clv_mem_free(s->first_events);
}

static bool read_snapshot(struct clv_snapshot *s, const struct clv_input *in)
{
	s->stacks = NULL;
	if (!clv_mem_reserve(&s->stacks, &s->stack_cap, 1, sizeof(*s->stacks)))
		return clv_error_set(s->err, "%s: out of host memory", in->name);
	s->stacks[0] = (struct clv_stack_record){0, 0};
	s->stack_count = 1;
	struct clv_pickle_user user = {
		.dict = clv_snapshot_dict,
		.list = clv_snapshot_list,
		.known = clv_snapshot_strings,
		.known_count = CLV_S_COUNT,
		.arg = s,
	};
	struct clv_pickle *p = clv_pickle_open(in, &user, s->err);
	clv_pk root;
	bool ok = p && clv_pickle_run(p, &root) && assemble(s, p, root);
	clv_pickle_close(p);
	return ok;
}

static bool snapshot_init(struct clv_snapshot *s, const struct clv_input *in, struct clv_error *err)
{
	*s = (struct clv_snapshot){
		.err = err, .name = in->name, .size = in->size, .last_stream = UINT32_MAX, .refused = SIZE_MAX};
	s->trace = clv_mem_zalloc(1, sizeof(*s->trace));
	if (!s->trace)
		return clv_error_set(err, "%s: out of host memory", in->name);
	s->trace->format = CLV_FORMAT_TORCH;
	s->trace->file = clv_mem_strndup(in->name, strlen(in->name));
	return s->trace->file || clv_error_set(err, "%s: out of host memory", in->name);
}

/* Event number `event` of the file contradicts what was before: reads the file again, to say where it is. */
static void refuse_event(const struct clv_input *in, size_t event, const char *why, struct clv_error *err)
{
	struct clv_snapshot s;
	if (event != SIZE_MAX && snapshot_init(&s, in, err)) {
		s.refused = event;
		s.refusal = why;
		read_snapshot(&s, in);
		snapshot_clear(&s);
	}
	if (event != SIZE_MAX)
		clv_trace_free(s.trace);
	clv_error_set(err, "%s: %.400s", in->name, why); /* unless it was said, with the place */
}

struct clv_trace *clv_import_torch(const struct clv_input *in, struct clv_error *err)
{
	struct clv_snapshot s;
	bool ok = snapshot_init(&s, in, err) && read_snapshot(&s, in);
	size_t *first_events = s.first_events, first_event_count = s.first_event_count;
	s.first_events = NULL;
	snapshot_clear(&s); /* before linking, which needs room of its own */
	for (uint32_t i = 0; ok && i < s.trace->history_count; i++) {
		struct clv_history *h = &s.trace->histories[i];
		struct clv_error why = {{0}};
		uint32_t event;
		ok = clv_history_link_at(s.trace, h, &event, &why);
		if (!ok && event == CLV_NO_EVENT)
			clv_error_set(err, "%s", why.text);
		if (!ok && event != CLV_NO_EVENT) {
			size_t first = (size_t)h->device < first_event_count ? first_events[h->device] : SIZE_MAX;
			clv_trace_free(s.trace);
			s.trace = NULL;
			refuse_event(in, first == SIZE_MAX ? SIZE_MAX : first + event, why.text, err);
		}
	}
	clv_mem_free(first_events);
	if (ok)
		return s.trace;
	clv_trace_free(s.trace);
	return NULL;
}
