/* SPDX-License-Identifier: MIT */
#include "whatif.h"

#include "../memory.h"
#include "../policies/torch_settings.h"
#include "../policies/torch_verify.h"
#include "../replay/replay.h"

#include "../../src/base/size_text.h"
#include "../../src/heap/settings.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT 1024
#define CANDIDATES_MAX 12 /* more than are ever added */
/* What is told as advice saves at least this, and so much of what was held. A setting beside a simpler change is to save more than
 * chance does. */
#define WORTH_BYTES (2 * CLV_MIB)
#define WORTH_PERCENT 1
#define WORTH_PERCENT_BESIDE 5
#define SLOTS_MIN 2       /* of a reservation that is tried */
#define EVENT_LAG_US 1000 /* as `cleave replay` has it by default */

struct candidate {
	char policy[TEXT], what[TEXT];
	/* SAME: no change of a recording of Cleave, and so no advice. BESIDE_PLAIN: it is to be better than PLAIN or SAME, too */
	enum { ALONE, SAME, PLAIN, BESIDE_PLAIN } role;
};

struct whatif {
	struct clv_report_device *d;
	const struct clv_report_options *o;
	struct clv_error *err;
	struct candidate candidates[CANDIDATES_MAX];
	uint32_t candidate_count;
	struct clv_torch_settings settings; /* SEGMENTS: as they were */
	struct clv_verify_result verify;
	struct clv_history
		asked; /* the history in which what failed is asked for as if it had been served, and freed at once */
	uint32_t *empty_caches; /* events of that history */
	uint64_t capacity;
	uint32_t plain;  /* index in trials of the PLAIN one, or of one beside it that is better; 0: it was not tried */
	uint64_t budget; /* events that may still be replayed */
};

CLV_PRINTF(3, 4) static struct candidate *add(struct whatif *w, const char *policy, const char *fmt, ...)
{
	struct candidate *c = &w->candidates[w->candidate_count++];
	c->role = ALONE;
	snprintf(c->policy, sizeof(c->policy), "%s", policy);
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(c->what, sizeof(c->what), fmt, ap);
	va_end(ap);
	return c;
}

/* ---- candidates ---- */

/* The settings text without some keys, and with more at its end. Values with commas are in brackets. */
static void change_conf(char *out, size_t len, const char *conf, const char *without, const char *more)
{
	size_t used = (size_t)snprintf(out, len, "torch:");
	for (const char *at = conf; *at && used < len;) {
		const char *end = at;
		for (int depth = 0; *end && (*end != ',' || depth > 0); end++)
			depth += (*end == '[') - (*end == ']');
		const char *key = at + strspn(at, " ");
		size_t n = strlen(without);
		bool drop = (n && strncmp(key, without, n) == 0 && strchr(" :", key[n])) || key >= end;
		if (!drop && (size_t)(end - at) < len - used)
			used += (size_t)snprintf(out + used, len - used, "%.*s,", (int)(end - at), at);
		at = *end ? end + 1 : end;
	}
	snprintf(out + used, len - used, "%s", more);
	size_t n = strlen(out);
	if (n && out[n - 1] == ',')
		out[n - 1] = '\0';
}

/* The text of the settings that were in force: programs can change them without the variable. */
static void conf_in_force(const struct whatif *w, char *out, size_t len)
{
	const struct clv_torch_settings *s = &w->settings;
	const char *conf = w->d->trace->torch.conf ? w->d->trace->torch.conf : "";
	int n = snprintf(out, len, "%s", conf);
	size_t used = n > 0 ? clv_min_u64((uint64_t)n, len - 1) : 0;
	if (s->max_split_size != CLV_TORCH_UNLIMITED && !strstr(conf, "max_split_size_mb"))
		used += (size_t)snprintf(out + used, len - used, "%smax_split_size_mb:%" PRIu64, used ? "," : "",
					 s->max_split_size / CLV_MIB);
	if (used < len && s->expandable && !strstr(conf, "expandable_segments"))
		snprintf(out + used, len - used, "%sexpandable_segments:True", used ? "," : "");
}

static void torch_candidates(struct whatif *w)
{
	const struct clv_torch_settings *s = &w->settings;
	bool limited = s->max_split_size != CLV_TORCH_UNLIMITED;
	char conf[TEXT / 2], policy[TEXT], more[TEXT], size[32];
	conf_in_force(w, conf, sizeof(conf));
	if (limited) {
		change_conf(policy, sizeof(policy), conf, "max_split_size_mb", "");
		add(w, policy, "without max_split_size_mb (it was %s)",
		    clv_size_print(s->max_split_size, size, sizeof(size)));
	}
	if (!s->expandable) {
		change_conf(policy, sizeof(policy), conf, "expandable_segments", "expandable_segments:True");
		add(w, policy, "PYTORCH_CUDA_ALLOC_CONF=%s", policy + strlen("torch:"));
		if (limited) {
			change_conf(more, sizeof(more), conf, "max_split_size_mb", "");
			change_conf(policy, sizeof(policy), more + strlen("torch:"), "expandable_segments",
				    "expandable_segments:True");
			add(w, policy, "PYTORCH_CUDA_ALLOC_CONF=%s, without max_split_size_mb",
			    policy + strlen("torch:"));
		}
	}
	if (!limited && !s->expandable) {
		/* above the largest block that pins, so that those no longer lie in what larger requests could use */
		uint64_t largest = 0;
		const struct clv_report_moment *m = &w->d->moments[w->d->worst];
		for (uint32_t g = 0; g < m->groups_kept; g++)
			if (m->groups[g].marginal_bytes && m->groups[g].sample < w->d->history->block_count)
				largest = clv_max_u64(largest, w->d->blocks[m->groups[g].sample].size);
		uint64_t mb = clv_max_u64((largest + CLV_MIB) / CLV_MIB, 20);
		snprintf(more, sizeof(more), "max_split_size_mb:%" PRIu64, mb);
		change_conf(policy, sizeof(policy), conf, "max_split_size_mb", more);
		add(w, policy, "PYTORCH_CUDA_ALLOC_CONF=%s", policy + strlen("torch:"));
	}
	bool rounded = false;
	for (int i = 0; i < CLV_TORCH_ROUNDUP_CLASSES; i++)
		rounded |= s->roundup[i] > 1;
	if (!rounded) {
		change_conf(policy, sizeof(policy), conf, "roundup_power2_divisions", "roundup_power2_divisions:8");
		add(w, policy, "PYTORCH_CUDA_ALLOC_CONF=%s", policy + strlen("torch:"));
	}
}

/* Of the settings in force, those that a replay takes. */
static void heap_settings(const struct clv_report_device *d, char *out, size_t len)
{
	const char *text = NULL;
	size_t rows, used = 0;
	const struct clv_setting *table = clv_settings_table(&rows);
	const struct clv_history *first = &d->trace->histories[0];
	for (uint32_t i = 0; i < first->note_count; i++) /* it is the process's */
		if (first->notes[i].kind == CLV_EVENT_SETTINGS && first->notes[i].text < d->trace->string_count)
			text = d->trace->strings[first->notes[i].text];
	out[0] = '\0';
	for (const char *at = text; at && *at;) {
		size_t n = strcspn(at, ","), key = strcspn(at, ":,");
		for (size_t r = 0; r < rows; r++) {
			bool taken = table[r].reader == CLV_READER_HEAP && strlen(table[r].key) == key &&
				     strncmp(table[r].key, at, key) == 0;
			if (taken && n + 1 < len - used)
				used += (size_t)snprintf(out + used, len - used, "%s%.*s", used ? "," : "", (int)n, at);
		}
		at += n + (at[n] == ',');
	}
}

/* Slots of their own for what pins most, so that it no longer lies among the rest. A single block, and what strands little, is not
 * worth a setting: where it helps in a replay, that is by chance. */
static bool is_worth_slots(const struct clv_report_moment *m, const struct clv_report_group *g)
{
	uint64_t stranded = m->sum.of[CLV_CAUSE_HARD], pinned = clv_max_u64(g->stranded_bytes, g->marginal_bytes);
	return g->size > CLV_RESERVE_ABOVE && g->blocks >= SLOTS_MIN && g->blocks <= CLV_RESERVE_COUNT_MAX &&
	       pinned >= stranded / 10 && pinned >= m->sum.held / 100;
}

static void reserve_candidates(struct whatif *w, const char *settings)
{
	const struct clv_report_moment *m = &w->d->moments[w->d->worst];
	char policy[TEXT], size[32];
	for (uint32_t g = 0; g < m->groups_kept && g < 3; g++) {
		const struct clv_report_group *group = &m->groups[g];
		if (!is_worth_slots(m, group) || strstr(settings, "reserve:"))
			continue;
		snprintf(policy, sizeof(policy), "cleave:%s%sreserve:%" PRIu64 "*%" PRIu64, settings,
			 *settings ? "," : "", group->size, group->blocks);
		clv_size_print(group->size, size, sizeof(size));
		add(w, policy, "`cleave run` with CLEAVE_CONF=%s, which keeps room for %" PRIu64 " blocks of %s",
		    policy + strlen("cleave:"), group->blocks, size)
			->role = BESIDE_PLAIN;
		snprintf(policy + strlen(policy), sizeof(policy) - strlen(policy), "+class");
		add(w, policy,
		    "`cleave run` with CLEAVE_CONF=%s, which keeps room for %" PRIu64 " blocks from half of %s to %s",
		    policy + strlen("cleave:"), group->blocks, size, size)
			->role = BESIDE_PLAIN;
		return;
	}
}

static void cleave_candidates(struct whatif *w)
{
	char settings[TEXT / 2], policy[TEXT];
	heap_settings(w->d, settings, sizeof(settings));
	bool own = w->d->basis == CLV_BASIS_FRAMES;
	snprintf(policy, sizeof(policy), "cleave%s%s", *settings ? ":" : "", settings);
	add(w, policy, own ? "the same settings, replayed" : "`cleave run`, so that Cleave serves the same requests")
		->role = own ? SAME : PLAIN;
	reserve_candidates(w, settings);
	if (own && !strstr(settings, "growth:tight")) {
		snprintf(policy, sizeof(policy), "cleave:%s%sgrowth:tight", settings, *settings ? "," : "");
		add(w, policy, "CLEAVE_CONF=%s", policy + strlen("cleave:"))->role = BESIDE_PLAIN;
	}
}

/* ---- replays ---- */

/* What failed is asked for again, and freed at once; its block is one more. */
static bool ask_for_all(struct whatif *w)
{
	const struct clv_history *h = w->d->history;
	w->asked = *h;
	w->asked.events = NULL;
	w->empty_caches = clv_mem_realloc(NULL, w->verify.empty_cache_count + (size_t)1, sizeof(*w->empty_caches));
	if (!w->empty_caches || h->oom_count > UINT32_MAX - 1 - h->event_count)
		return false;
	w->asked.events = clv_mem_realloc(NULL, (size_t)h->event_count + h->oom_count + 1, sizeof(*h->events));
	if (!w->asked.events)
		return false;
	uint32_t n = 0, e = 0;
	for (uint32_t i = 0; i <= h->event_count; i++) {
		for (; e < w->verify.empty_cache_count && w->verify.empty_caches[e] <= i; e++)
			w->empty_caches[e] = n;
		if (i == h->event_count)
			break;
		struct clv_event_record event = h->events[i];
		if (event.action == CLV_ACTION_OOM && event.size) {
			event.action = CLV_ACTION_ALLOC;
			event.block = h->block_count;
			w->asked.events[n++] = event;
			event.action = CLV_ACTION_FREE_COMPLETED;
		}
		w->asked.events[n++] = event;
	}
	w->asked.event_count = n;
	w->asked.block_count = h->block_count + 1;
	return true;
}

static bool is_better(const struct clv_report_trial *t, const struct clv_report_trial *base, uint64_t percent)
{
	if (!t->completed)
		return false;
	if (!base->completed)
		return true;
	uint64_t saved = base->peak_held - clv_min_u64(base->peak_held, t->peak_held);
	return saved >= clv_max_u64(WORTH_BYTES, base->peak_held / 100 * percent);
}

static char *copy(const char *text)
{
	return clv_mem_strndup(text, strlen(text));
}

/* False: out of host memory. */
static bool try_one(struct whatif *w, const struct candidate *c)
{
	struct clv_report_device *d = w->d;
	struct clv_replay_options options = {
		.policy = c->policy,
		.capacity = w->capacity,
		.event_lag_us = EVENT_LAG_US,
		.empty_caches = w->empty_caches,
		.empty_cache_count = w->verify.empty_cache_count,
	};
	struct clv_replay_result *result = clv_mem_zalloc(1, sizeof(*result));
	struct clv_error refused = {{0}};
	struct clv_report_trial *t = &d->trials[d->trial_count];
	if (!result)
		return false;
	if (!clv_replay(d->trace, &w->asked, &options, result, &refused)) {
		clv_mem_free(result);
		return true; /* settings that this model does not take */
	}
	*t = (struct clv_report_trial){
		.policy = copy(c->policy),
		.what = copy(c->what),
		.capacity = w->capacity,
		.completed = result->completed,
		.peak_held = result->stats.peak_reserved_bytes,
		.peak_stranded = result->stats.stranded_peak_bytes,
		.failures = !result->completed,
		.saved_bytes = (int64_t)(d->trials[0].peak_held - result->stats.peak_reserved_bytes),
	};
	bool beside = c->role == BESIDE_PLAIN && w->plain;
	t->confirmed = c->role != SAME && is_better(t, &d->trials[0], WORTH_PERCENT) &&
		       (!beside || is_better(t, &d->trials[w->plain], WORTH_PERCENT_BESIDE));
	if (c->role == PLAIN || c->role == SAME ||
	    (beside && t->confirmed)) /* what comes after is to be better than this */
		w->plain = d->trial_count;
	d->trial_count++;
	clv_mem_free(result);
	return t->policy && t->what;
}

static int best_first(const void *a, const void *b)
{
	const struct clv_report_trial *x = a, *y = b;
	if (x->confirmed != y->confirmed)
		return x->confirmed ? -1 : 1;
	if (x->completed != y->completed)
		return x->completed ? -1 : 1;
	if (x->peak_held != y->peak_held)
		return x->peak_held < y->peak_held ? -1 : 1;
	return strcmp(x->policy, y->policy);
}

/* What there was when the first request failed: the limit, or all that the device had left and the allocator held. */
static uint64_t capacity_then(const struct clv_report_device *d)
{
	if (d->limit)
		return d->limit;
	for (uint32_t i = 0; i < d->moment_count; i++) {
		const struct clv_report_moment *m = &d->moments[i];
		if (m->kind == CLV_MOMENT_FAILURE)
			return clv_report_surely_held(d->basis, &m->sum) +
			       (m->failure.device_free == UINT64_MAX ? 0 : m->failure.device_free);
	}
	return 0;
}

static bool try_all(struct whatif *w)
{
	struct clv_report_device *d = w->d;
	uint64_t cost = clv_max_u64(d->history->event_count, 1);
	/* Where the program emptied PyTorch's cache is part of what it did, and costs a walk to find out; alone that is of no use. */
	bool torch = d->basis == CLV_BASIS_SEGMENTS && d->trace->torch.present && w->budget / 2 >= cost;
	if (torch) {
		struct clv_error unknown = {{0}};
		if (!clv_torch_verify(d->trace, d->history, &w->verify, &unknown))
			w->verify = (struct clv_verify_result){0};
		w->budget -= cost;
	}
	if (!ask_for_all(w))
		return false;
	d->trials = clv_mem_zalloc(w->candidate_count + (size_t)1, sizeof(*d->trials));
	if (!d->trials)
		return false;
	d->trials[d->trial_count++] = (struct clv_report_trial){
		.policy = copy("recorded"),
		.what = copy("as it was recorded"),
		.capacity = w->capacity,
		.completed = !d->failures,
		.peak_held = d->peak.held,
		.peak_stranded = d->peak_stranded,
		.failures = d->failures,
	};
	if (!d->trials[0].policy || !d->trials[0].what)
		return false;
	for (uint32_t i = 0; i < w->candidate_count; i++) {
		if (w->budget < cost || (!torch && clv_policy_is_torch(w->candidates[i].policy))) {
			d->untried++;
			continue;
		}
		w->budget -= cost;
		if (w->o->progress)
			w->o->progress(w->o->progress_arg, "trying what would help", (double)i / w->candidate_count);
		if (!try_one(w, &w->candidates[i]))
			return false;
	}
	if (d->trial_count > 2)
		qsort(d->trials + 1, d->trial_count - 1, sizeof(*d->trials), best_first);
	return true;
}

bool clv_whatif_try(struct clv_report_device *d, const struct clv_report_options *options, struct clv_error *err)
{
	if (!options->trial_events || !d->history->alloc_count ||
	    (!d->failures && d->peak.held == d->peak.of[CLV_CAUSE_LIVE]))
		return true;
	struct whatif *w = clv_mem_zalloc(1, sizeof(*w));
	bool ok = w != NULL;
	if (ok) {
		w->d = d;
		w->o = options;
		w->budget = options->trial_events;
		w->capacity = d->failures ? capacity_then(d) : 0;
		if (d->basis == CLV_BASIS_SEGMENTS && d->trace->torch.present &&
		    clv_torch_settings_recorded(&w->settings, &d->trace->torch, NULL) && !w->settings.cuda_malloc_async)
			torch_candidates(w);
		cleave_candidates(w);
		ok = try_all(w);
		clv_verify_free(&w->verify);
		clv_mem_free(w->asked.events);
		clv_mem_free(w->empty_caches);
	}
	clv_mem_free(w);
	return ok || clv_error_set(err, "out of host memory");
}
