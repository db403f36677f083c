/* SPDX-License-Identifier: MIT */
#include "trace.h"

#include "map.h"
#include "memory.h"

#include <stdio.h>

const char *clv_action_name(enum clv_action a)
{
	static const char *const names[] = {
#define X(name, text) [CLV_ACTION_##name] = text,
		CLV_ACTIONS(X)
#undef X
	};
	return (size_t)a < CLV_ARRAY_LEN(names) ? names[a] : "other";
}

const char *clv_trace_format_name(enum clv_trace_format f)
{
	switch (f) {
	case CLV_FORMAT_TORCH:
		return "torch";
	case CLV_FORMAT_CLV:
		return "clv";
	case CLV_FORMAT_RMM:
		return "rmm";
	}
	return "unknown";
}

static void history_free(struct clv_history *h)
{
	clv_mem_free(h->events);
	clv_mem_free(h->segments);
	clv_mem_free(h->blocks);
	clv_mem_free(h->pools);
	clv_mem_free(h->initial);
	clv_mem_free(h->threads);
	clv_mem_free(h->slack);
	clv_mem_free(h->notes);
}

void clv_trace_free(struct clv_trace *trace)
{
	if (!trace)
		return;
	for (uint32_t i = 0; i < trace->history_count; i++)
		history_free(&trace->histories[i]);
	for (uint32_t i = 0; i < trace->string_count; i++)
		clv_mem_free(trace->strings[i]);
	if (trace->stream_index)
		clv_map_free(trace->stream_index);
	clv_mem_free(trace->stream_index);
	clv_mem_free(trace->file);
	clv_mem_free(trace->note);
	clv_mem_free(trace->histories);
	clv_mem_free(trace->streams);
	clv_mem_free(trace->torch.conf);
	clv_mem_free(trace->stacks);
	clv_mem_free(trace->stack_frames);
	clv_mem_free(trace->strings);
	clv_mem_free(trace->modules);
	clv_mem_free(trace);
}

/* Writes "0, 2, 5" for people. */
static void list_devices(const struct clv_trace *trace, bool with_events, char *buf, size_t len)
{
	size_t used = 0;
	buf[0] = '\0';
	for (uint32_t i = 0; i < trace->history_count && used < len; i++) {
		const struct clv_history *h = &trace->histories[i];
		if (with_events && h->event_count == 0)
			continue;
		int n = snprintf(buf + used, len - used, "%s%d", used ? ", " : "", h->device);
		if (n < 0)
			return;
		used += (size_t)n;
	}
}

const struct clv_history *clv_trace_select(const struct clv_trace *trace, int device, struct clv_error *err)
{
	bool any_events = false, any_state = false;
	const struct clv_history *named = NULL;
	for (uint32_t i = 0; i < trace->history_count; i++) {
		const struct clv_history *h = &trace->histories[i];
		any_events |= h->event_count > 0;
		any_state |= h->segment_count > 0;
		if (device < 0 && h->event_count > 0)
			return h;
		if (h->device == device)
			named = h;
	}
	if (named && named->event_count > 0)
		return named;
	if (!any_events) {
		if (any_state)
			clv_error_set(
				err,
				"%s: holds a state but no history, so there is nothing to replay; `cleave report` shows "
				"the state (to record a history: torch.cuda.memory._record_memory_history())",
				trace->file);
		else
			clv_error_set(err, "%s: holds neither a history nor a state; nothing was recorded",
				      trace->file);
		return NULL;
	}
	char devices[128];
	list_devices(trace, true, devices, sizeof(devices));
	if (named)
		clv_error_set(
			err,
			"%s: device %d has a state but no history, so there is nothing to replay; `cleave report` shows "
			"the state (devices with a history: %s)",
			trace->file, device, devices);
	else
		clv_error_set(err, "%s: has no device %d (devices with a history: %s)", trace->file, device, devices);
	return NULL;
}

uint32_t clv_trace_stream(struct clv_trace *trace, uint64_t handle)
{
	if (!trace->stream_index) {
		trace->stream_index = clv_mem_zalloc(1, sizeof(*trace->stream_index));
		if (!trace->stream_index)
			return UINT32_MAX;
		for (uint32_t i = 0; i < trace->stream_count; i++) {
			struct clv_map_slot *slot = clv_map_slot(trace->stream_index, trace->streams[i]);
			if (!slot)
				goto no_index;
			slot->value = i;
		}
	}
	uint32_t known = clv_map_get(trace->stream_index, handle);
	if (known != CLV_MAP_NONE)
		return known;
	size_t n = trace->stream_count;
	if (n >= CLV_MAP_NONE - 1)
		return UINT32_MAX;
	if (n >= trace->stream_room) {
		size_t room = n < 8 ? 16 : n * 2;
		uint64_t *grown = clv_mem_realloc(trace->streams, room, sizeof(*grown));
		if (!grown)
			return UINT32_MAX;
		trace->streams = grown;
		trace->stream_room = (uint32_t)clv_min_u64(room, UINT32_MAX);
	}
	struct clv_map_slot *slot = clv_map_slot(trace->stream_index, handle);
	if (!slot)
		return UINT32_MAX;
	slot->value = (uint32_t)n;
	trace->streams[n] = handle;
	trace->stream_count++;
	return (uint32_t)n;
no_index: /* a partly filled index would give one handle two numbers */
	clv_map_free(trace->stream_index);
	clv_mem_free(trace->stream_index);
	trace->stream_index = NULL;
	return UINT32_MAX;
}

const struct clv_initial_block *clv_history_initial_from(const struct clv_history *h, uint64_t addr)
{
	uint32_t lo = 0, hi = h->initial_count;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (h->initial[mid].addr < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < h->initial_count ? &h->initial[lo] : NULL;
}
