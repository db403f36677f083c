/* SPDX-License-Identifier: MIT */
#include "recorded.h"

#include "../policies/torch_device.h"
#include "../policies/torch_settings.h"
#include "replay_json.h"

#include <string.h>

#define SMALL_PAGE (2 * CLV_MIB)

/* Pages of the large pool are mapped in wholes; a small pool never maps so much at once. */
static uint64_t page_of(const struct clv_event_record *e, uint64_t large_page)
{
	return e->size >= large_page && e->size % large_page == 0 ? large_page : SMALL_PAGE;
}

static void count_event(struct clv_call_counts *counts, const struct clv_event_record *e, uint64_t large_page)
{
	switch (e->action) {
	case CLV_ACTION_SEGMENT_ALLOC:
		clv_torch_count_alloc(counts, e->size);
		break;
	case CLV_ACTION_SEGMENT_FREE:
		clv_torch_count_free(counts, e->size);
		break;
	case CLV_ACTION_SEGMENT_MAP:
		clv_torch_count_map(counts, e->size, page_of(e, large_page));
		break;
	case CLV_ACTION_SEGMENT_UNMAP:
		clv_torch_count_unmap(counts, e->size, page_of(e, large_page));
		break;
	default:
		break;
	}
}

bool clv_replay_recorded(const struct clv_trace *trace, const struct clv_history *history,
			 const struct clv_verify_result *verify, double wall_s, struct clv_replay_result *out)
{
	struct clv_torch_settings settings;
	struct clv_error err = {""};
	if (!clv_verify_matches(verify) || !clv_torch_settings_recorded(&settings, &trace->torch, &err))
		return false;
	memset(out, 0, sizeof(*out));
	out->completed = true;
	out->wall_s = wall_s;
	out->events = history->event_count;
	out->stats.peak_reserved_bytes = verify->peak_reserved_bytes;
	out->stats.stranded_peak_bytes = verify->stranded_peak_bytes;
	out->stats.oom_retries = verify->retries;
	for (uint32_t i = 0; i < history->event_count; i++) {
		const struct clv_event_record *e = &history->events[i];
		bool request = e->action == CLV_ACTION_ALLOC || e->action == CLV_ACTION_FREE_COMPLETED;
		out->requests += request && e->block != CLV_NO_BLOCK;
		count_event(&out->stats.driver, e, settings.large_segment_size);
	}
	out->requests += history->initial_count;
	return true;
}
