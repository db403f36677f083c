/* SPDX-License-Identifier: MIT */
#include "torch_verify.h"

#include "../memory.h"
#include "torch_walk.h"

#include <string.h>

/* How often a file is walked in search of an explanation, and how many events in all. */
#define MAX_WALKS 1000
#define MAX_WALKED 100000000u

const char *clv_inferred_name(enum clv_inferred i)
{
	static const char *const names[] = {
#define X(name, text) [CLV_INFERRED_##name] = text,
		CLV_INFERRED(X)
#undef X
	};
	return (size_t)i < CLV_ARRAY_LEN(names) ? names[i] : "unknown";
}

static bool clean(const struct clv_verify_result *r)
{
	return !r->late_mismatches && r->final_state_matches;
}

static void take(struct clv_verify_result *out, struct clv_verify_result *better)
{
	clv_verify_free(out);
	*out = *better;
}

/* Later versions of PyTorch tell equal blocks apart otherwise, and the file does not say which version wrote it. Another
 * rule is believed only if it explains the whole file. */
static bool try_tie_breaks(struct clv_walk *v, struct clv_verify_result *out, struct clv_error *err)
{
	static const enum clv_torch_tie_break others[] = {CLV_TORCH_TIE_SEGMENT, CLV_TORCH_TIE_COUNTER};
	for (size_t i = 0; v->suspect_tie && i < CLV_ARRAY_LEN(others) && !clean(out); i++) {
		struct clv_walk again = *v;
		struct clv_verify_result r;
		again.settings.tie_break = others[i];
		again.trial = true;
		if (!clv_walk_run(&again, NULL, &r, err))
			return false;
		if (!clean(&r)) {
			clv_verify_free(&r);
			continue;
		}
		r.inferred[CLV_INFERRED_TIE_BREAK]++;
		take(out, &r);
	}
	return true;
}

/* A walk in which the segments of some events are taken to be of pools that vanished; it finds more of them by itself. */
static bool run_vanished(struct clv_walk *v, const uint32_t *made, uint32_t count, struct clv_verify_result *out,
			 struct clv_error *err)
{
	struct clv_map vanished = {0};
	bool ok = true;
	for (uint32_t i = 0; ok && i < count; i++) {
		struct clv_map_slot *slot = clv_map_slot(&vanished, made[i]);
		ok = slot != NULL;
		if (ok)
			slot->value = CLV_STEP_ANY_POOL;
	}
	ok = ok ? clv_walk_run(v, &vanished, out, err) : clv_error_set(err, "out of host memory");
	clv_map_free(&vanished);
	return ok;
}

static bool in_set_order(const struct clv_walk *v, const struct clv_event_record *a, const struct clv_event_record *b)
{
	uint64_t s = v->trace->streams[a->stream], t = v->trace->streams[b->stream];
	return s != t ? s < t : a->size != b->size ? a->size < b->size : a->addr < b->addr;
}

/* The end of a run of segments given back, and whether they are a flush and nothing else: where a request follows, some may
 * be of another fallback, which has another order. */
static uint32_t flush_end(const struct clv_walk *v, uint32_t i, bool *pure)
{
	const struct clv_history *h = v->h;
	while (i < h->event_count && h->events[i].action == CLV_ACTION_SEGMENT_FREE)
		i++;
	bool others = v->settings.gc_threshold > 0.0 || v->settings.max_split_size != CLV_TORCH_UNLIMITED;
	*pure = !others || i == h->event_count ||
		(h->events[i].action != CLV_ACTION_ALLOC && h->events[i].action != CLV_ACTION_OOM &&
		 !clv_walk_is_segment_event(&h->events[i]));
	return i;
}

/* A flush gives back the default pool's large segments in the order of its set, then its small ones, then those of pools
 * that nobody uses any more: what comes after a break of that order was of such a pool. The events that made these go to
 * `made`. */
static bool released_after_default(struct clv_walk *v, uint32_t *made, uint32_t *count)
{
	const struct clv_history *h = v->h;
	struct clv_map maker = {0};
	bool ok = true;
	for (uint32_t i = 0; ok && i < h->event_count && *count < MAX_WALKS / 2; i++) {
		const struct clv_event_record *e = &h->events[i];
		if (e->action == CLV_ACTION_SEGMENT_ALLOC) {
			struct clv_map_slot *slot = clv_map_slot(&maker, e->addr);
			ok = slot != NULL;
			if (ok)
				slot->value = i;
		}
		if (e->action != CLV_ACTION_SEGMENT_FREE)
			continue;
		bool pure, broken = false;
		uint32_t end = flush_end(v, i, &pure);
		for (uint32_t k = i + 1; pure && k < end && *count < MAX_WALKS / 2; k++) {
			const struct clv_event_record *f = &h->events[k];
			bool small = f->size == 2 * CLV_MIB, was_small = f[-1].size == 2 * CLV_MIB;
			uint32_t event = clv_map_get(&maker, f->addr);
			broken |= small != was_small ? was_small : !in_set_order(v, f - 1, f);
			if (broken && event != CLV_MAP_NONE && !f->pool)
				made[(*count)++] = event;
		}
		i = end - 1;
	}
	clv_map_free(&maker);
	return ok;
}

static bool listed(const uint32_t *made, uint32_t count, uint32_t event)
{
	for (uint32_t i = 0; i < count; i++)
		if (made[i] == event)
			return true;
	return event == CLV_NO_BLOCK;
}

/* Pools that were there and vanished with all their segments. A walk's first mismatch suggests segments that may be of them;
 * what moves the first mismatch on is kept, and what only shows one more such segment there is followed until it does, or
 * given up. In the end all that is believed only if it explains the whole file. The first `kept` of `made` are given. */
static bool search_vanished(struct clv_walk *v, uint32_t *made, uint32_t kept, struct clv_verify_result *out,
			    struct clv_error *err)
{
	uint32_t count = kept, next = 2, suspects[2];
	uint64_t reached = 0;
	uint64_t walks = clv_min_u64(MAX_WALKS, MAX_WALKED / (v->h->event_count + (uint64_t)1));
	while (walks--) {
		struct clv_walk again = *v;
		struct clv_verify_result r;
		again.trial = true;
		if (!run_vanished(&again, made, count, &r, err))
			return false;
		if (clean(&r)) {
			take(out, &r);
			return true;
		}
		uint64_t event = r.first_mismatch.event;
		bool further = r.first_mismatch.set && event > reached;
		bool beside = r.first_mismatch.set && event == reached && count > kept && count < MAX_WALKS;
		clv_verify_free(&r);
		if (further) {
			reached = event;
			kept = count;
			next = 0;
			memcpy(suspects, again.suspects, sizeof(suspects));
		} else if (beside && !listed(made, count, again.suspects[0]) && v->vanishes[again.suspects[0]]) {
			made[count++] = again.suspects[0];
			continue;
		}
		count = kept;
		while (next < 2 && (listed(made, count, suspects[next]) || !v->vanishes[suspects[next]]))
			next++;
		if (next == 2 || count == MAX_WALKS)
			return true;
		made[count++] = suspects[next++];
	}
	return true;
}

/* Which segments are given back within the window, and so could be of a pool that the final state does not show. */
static bool find_vanishing(struct clv_walk *v)
{
	struct clv_map ends = {0}; /* 1: the next event at the address gives the segment back */
	bool ok = true;
	v->vanishes = clv_mem_zalloc(v->h->event_count, 1);
	for (uint32_t i = v->h->event_count; v->vanishes && ok && i-- > 0;) {
		const struct clv_event_record *e = &v->h->events[i];
		bool gives = e->action == CLV_ACTION_SEGMENT_FREE;
		if (!gives && e->action != CLV_ACTION_SEGMENT_ALLOC)
			continue;
		struct clv_map_slot *slot = clv_map_slot(&ends, e->addr);
		ok = slot != NULL;
		if (!ok)
			break;
		v->vanishes[i] = !gives && slot->value == 1 && !e->pool;
		slot->value = gives;
	}
	clv_map_free(&ends);
	return ok && v->vanishes;
}

static bool try_vanished_pools(struct clv_walk *v, struct clv_verify_result *out, struct clv_error *err)
{
	uint32_t *made = clv_mem_realloc(NULL, MAX_WALKS, sizeof(*made)), given = 0;
	bool ok = made && find_vanishing(v) && released_after_default(v, made, &given);
	if (!ok)
		clv_error_set(err, "out of host memory");
	else
		ok = search_vanished(v, made, given, out, err) &&
		     (clean(out) || !given || search_vanished(v, made, 0, out, err));
	clv_mem_free(made);
	clv_mem_free(v->vanishes);
	v->vanishes = NULL;
	return ok;
}

bool clv_torch_verify(const struct clv_trace *trace, const struct clv_history *history, struct clv_verify_result *out,
		      struct clv_error *err)
{
	struct clv_walk v = {.trace = trace, .h = history};
	*out = (struct clv_verify_result){0};
	if (!clv_torch_settings_recorded(&v.settings, &trace->torch, err))
		return false;
	v.limit = clv_torch_recorded_limit(&trace->torch);
	v.total = trace->torch.has_probe ? trace->torch.total_bytes : 0;
	if (!clv_walk_run(&v, NULL, out, err))
		return false;
	if (!clean(out) && !(try_tie_breaks(&v, out, err) && (clean(out) || try_vanished_pools(&v, out, err)))) {
		clv_verify_free(out);
		return false;
	}
	return true;
}

void clv_verify_free(struct clv_verify_result *result)
{
	clv_mem_free(result->empty_caches);
	result->empty_caches = NULL;
	result->empty_cache_count = 0;
}
