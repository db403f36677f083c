/* SPDX-License-Identifier: MIT */
#include "explain.h"

#include "../memory.h"

#include "../../src/base/size_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text {
	const struct clv_report_device *d;
	char *data;
	size_t len, cap;
	bool failed;
};

CLV_PRINTF(2, 3) static void say(struct text *t, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (t->failed || n < 0 || !clv_mem_reserve(&t->data, &t->cap, t->len + (size_t)n + 1, 1)) {
		t->failed = true;
		return;
	}
	va_start(ap, fmt);
	vsnprintf(t->data + t->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	t->len += (size_t)n;
}

struct words {
	char text[32];
};

static struct words count(uint64_t n, const char *one, const char *many)
{
	struct words s;
	snprintf(s.text, sizeof(s.text), "%" PRIu64 " %s", n, n == 1 ? one : many);
	return s;
}

struct name {
	char text[512];
};

static struct name group_name(const struct clv_report_device *d, const struct clv_report_group *g)
{
	struct name n;
	clv_report_group_name(d, g, n.text, sizeof(n.text));
	return n;
}

/* "the blocks of 2.2 MiB", "the block of a.py:10 f" */
static struct name group_blocks(const struct clv_report_device *d, const struct clv_report_group *g)
{
	static const char told_by_size[] = "blocks of ";
	const struct name name = group_name(d, g);
	size_t skip = strncmp(name.text, told_by_size, strlen(told_by_size)) ? 0 : strlen(told_by_size);
	struct name n;
	snprintf(n.text, sizeof(n.text), "the %s of %.480s", g->blocks == 1 ? "block" : "blocks", name.text + skip);
	return n;
}

/* What frames are called in this trace. */
static const char *frame_word(const struct clv_report_device *d)
{
	switch (d->basis) {
	case CLV_BASIS_SEGMENTS:
		if (d->frame_count && d->frames[0].expandable)
			return "pages of segments";
		return "segments";
	case CLV_BASIS_DRIVER:
		return "driver allocations";
	case CLV_BASIS_EXTENTS:
		return "stretches of 2 MiB";
	case CLV_BASIS_FRAMES:
		break;
	}
	return "frames";
}

static struct words seconds(double s)
{
	struct words t;
	clv_seconds_print(s, t.text, sizeof(t.text));
	return t;
}

static uint64_t sum_free(const struct clv_report_sum *s)
{
	return s->of[CLV_CAUSE_HARD] + s->of[CLV_CAUSE_SOFT];
}

/* ---- what helps ---- */

static const struct clv_report_trial *best(const struct clv_report_device *d)
{
	return d->trial_count > 1 && d->trials[1].confirmed ? &d->trials[1] : NULL;
}

static void say_trial(struct text *t, const struct clv_report_trial *trial, const struct clv_report_trial *base)
{
	say(t, "%s (", trial->what);
	if (base->failures)
		say(t, "every request is served, with %s held at the peak)", clv_size_text(trial->peak_held).text);
	else
		say(t, "%s held at the peak instead of %s)", clv_size_text(trial->peak_held).text,
		    clv_size_text(base->peak_held).text);
}

/* Advice is what a replay has confirmed, and nothing else. */
static void say_advice(struct text *t)
{
	const struct clv_report_device *d = t->d;
	if (best(d)) {
		say(t, " What helps, by a replay of the same requests: ");
		for (uint32_t i = 1, told = 0; i < d->trial_count && d->trials[i].confirmed && told < 3; i++, told++) {
			say(t, "%s", told ? "; or " : "");
			say_trial(t, &d->trials[i], &d->trials[0]);
		}
		say(t, ".");
	} else if (d->trial_count > 1) {
		say(t, " %s tried by a replay of the same requests, and none %s.",
		    count(d->trial_count - 1, "change was", "changes were").text,
		    d->failures ? "serves all of them" : "holds less");
	}
	if (d->untried)
		say(t, " %s not tried, since the trace is long.",
		    count(d->untried, "further change was", "further changes were").text);
}

/* ---- culprits ---- */

static void say_lifetime(struct text *t, const struct clv_report_group *g)
{
	if (g->never_freed == g->blocks)
		say(t, "never freed in this trace");
	else if (g->left_max_s - g->left_min_s <= 0.01 * g->left_max_s)
		say(t, "freed %s later", seconds(g->left_max_s).text);
	else
		say(t, "freed %s to %s later", seconds(g->left_min_s).text, seconds(g->left_max_s).text);
	if (g->never_freed && g->never_freed < g->blocks)
		say(t, ", %" PRIu64 " never", g->never_freed);
}

/* "a.py:10 f (3 blocks, 6.0 MiB in all, never freed in this trace)", "one block of 3.0 MiB (freed 71 us later)". A state without
 * a history says nothing of lifetimes. */
static void say_group(struct text *t, const struct clv_report_group *g)
{
	bool told_by_size = !clv_report_frame_of(t->d->trace, g->stack) && g->size, one = g->blocks == 1;
	const struct name name = group_name(t->d, g);
	if (told_by_size && one) {
		say(t, "one block%s", name.text + strlen("blocks"));
	} else {
		if (told_by_size)
			say(t, "%" PRIu64 " %s (", g->blocks, name.text);
		else
			say(t, "%s (%s, ", name.text, count(g->blocks, "block", "blocks").text);
		say(t, "%s%s", clv_size_text(g->bytes).text, one ? "" : " in all");
	}
	if (t->d->has_history) {
		say(t, "%s", told_by_size && one ? " (" : ", ");
		say_lifetime(t, g);
	}
	if (t->d->has_history || !(told_by_size && one))
		say(t, ")");
}

static void say_culprits(struct text *t, const struct clv_report_moment *m)
{
	uint64_t stranded = m->sum.of[CLV_CAUSE_HARD];
	if (!stranded || !m->groups_kept)
		return;
	const struct clv_report_group *g = &m->groups[0];
	if (g->stranded_bytes) {
		say(t, g->stranded_bytes >= stranded / 2 ? " Most of what is stranded is pinned by "
							 : " Of what is stranded, the most is pinned by ");
		say_group(t, g);
		say(t, ": had %s been freed, %s would not be stranded, and %s could go back to the driver",
		    g->blocks == 1 ? "it" : "they", clv_size_text(g->stranded_bytes).text,
		    clv_size_text(g->frame_bytes).text);
	} else {
		say(t, " No blocks of one origin pin what is stranded alone; the largest part of it lies beside ");
		say_group(t, g);
	}
	uint64_t sum = g->marginal_bytes;
	uint32_t more = 1;
	for (; more < m->groups_kept && more < 3 && m->groups[more].marginal_bytes; more++)
		sum += m->groups[more].marginal_bytes;
	if (more > 1) {
		say(t, g->stranded_bytes ? "; with " : g->blocks == 1 ? ": had it" : ": had they");
		for (uint32_t i = 1; i < more; i++)
			say(t, "%s%s", i > 1 || !g->stranded_bytes ? " and " : "",
			    group_blocks(t->d, &m->groups[i]).text);
		say(t, g->stranded_bytes ? " freed as well, %s" : " been freed, %s would not be stranded",
		    clv_size_text(sum).text);
	}
	say(t, ".");
}

/* ---- failures ---- */

static void say_request(struct text *t, const struct clv_report_moment *m)
{
	const struct clv_report_failure *f = &m->failure;
	const struct clv_report_group as_group = {.stack = f->stack, .size = f->asked, .stream = f->stream};
	say(t, "A request of %s failed at %.6f s (after event %" PRIu32 "%s%s)", clv_size_text(f->asked).text,
	    m->time_s, m->event, f->stack != CLV_NO_STACK ? ", " : "",
	    f->stack != CLV_NO_STACK ? group_name(t->d, &as_group).text : "");
	if (f->repeats)
		say(t, ", and %" PRIu64 " more like it later", f->repeats);
	say(t, ".");
}

/* "179.6 MiB live (in use), 8.5 MiB lost to rounding, ...": all but what is free. */
static void say_used(struct text *t, const struct clv_report_sum *s)
{
	say(t, "%s live (in use)", clv_size_text(s->of[CLV_CAUSE_LIVE]).text);
	if (s->of[CLV_CAUSE_INTERNAL])
		say(t, ", %s lost to rounding", clv_size_text(s->of[CLV_CAUSE_INTERNAL]).text);
	if (s->of[CLV_CAUSE_RESERVATION])
		say(t, ", %s held back by reservations", clv_size_text(s->of[CLV_CAUSE_RESERVATION]).text);
	if (s->of[CLV_CAUSE_STREAM])
		say(t, ", %s freed but waiting for work of a stream", clv_size_text(s->of[CLV_CAUSE_STREAM]).text);
}

static void say_memory(struct text *t, const struct clv_report_moment *m)
{
	const struct clv_report_sum *s = &m->sum;
	const struct clv_report_failure *f = &m->failure;
	uint64_t stranded = s->of[CLV_CAUSE_HARD];
	if (t->d->basis == CLV_BASIS_EXTENTS) {
		say(t, " %s were live (in use); what was held besides is not in the file.",
		    clv_size_text(s->of[CLV_CAUSE_LIVE]).text);
		return;
	}
	if (!s->held) {
		say(t, " Nothing was held then.");
		return;
	}
	say(t, " %s were held: ", clv_size_text(s->held).text);
	say_used(t, s);
	if (sum_free(s))
		say(t, ", %s free.", clv_size_text(sum_free(s)).text);
	else
		say(t, ", nothing free.");
	if (stranded)
		say(t,
		    " %s is stranded: it lies in %s that hold live blocks too, and serves only what fits between them.",
		    stranded == sum_free(s) ? "All that is free" : clv_size_text(stranded).text, frame_word(t->d));
	if (f->foreign_free)
		say(t, " %s of what is free belongs to other streams, pools or sizes, which PyTorch keeps apart.",
		    clv_size_text(f->foreign_free).text);
	if (f->largest_usable)
		say(t, " The largest hole that the request could use has %s.", clv_size_text(f->largest_usable).text);
	else if (sum_free(s))
		say(t, " The request could use none of it.");
}

/* By how much what is live and asked for exceeds what there is; 0: not, or that is not known. */
static uint64_t too_much(const struct clv_report_device *d, const struct clv_report_moment *m)
{
	uint64_t held = clv_report_surely_held(d->basis, &m->sum);
	const struct clv_report_failure *f = &m->failure;
	uint64_t live = m->sum.of[CLV_CAUSE_LIVE], most = UINT64_MAX;
	if (f->limit != UINT64_MAX)
		most = f->limit;
	else if (f->device_free < UINT64_MAX - held)
		most = held + f->device_free;
	uint64_t wanted = f->asked > UINT64_MAX - live ? UINT64_MAX : live + f->asked;
	return wanted > most ? wanted - most : 0;
}

static void say_why(struct text *t, const struct clv_report_moment *m)
{
	const struct clv_report_failure *f = &m->failure;
	const struct clv_report_sum *s = &m->sum;
	uint64_t left = f->limit - clv_min_u64(f->limit, s->held); /* UINT64_MAX is far */
	say(t, " So %s more were needed from the driver", clv_size_text(f->needed).text);
	if (f->limit != UINT64_MAX && left < f->needed)
		say(t, ", but the limit of %s left %s", clv_size_text(f->limit).text, clv_size_text(left).text);
	else if (f->device_free < f->needed)
		say(t, ", but the device had %s", clv_size_text(f->device_free).text);
	else if (f->device_free != UINT64_MAX)
		say(t, ", and it did not give them, though it told of %s free", clv_size_text(f->device_free).text);
	else
		say(t, ", and it did not give them");
	say(t, ".");
	if (too_much(t->d, m))
		say(t,
		    " What is live and the request together exceed what there is by %s: no allocator could serve both, so "
		    "the program must keep less.",
		    clv_size_text(too_much(t->d, m)).text);
	else if (s->of[CLV_CAUSE_STREAM] >= f->asked && s->of[CLV_CAUSE_HARD] < f->asked)
		say(t, " It was short of frees that waited for other streams.");
}

static void say_who_must_go(struct text *t, const struct clv_report_moment *m)
{
	for (uint32_t g = 0; g < m->groups_kept; g++) {
		if (m->groups[g].would_serve != 1 || !(m->groups[g].marginal_bytes || m->groups[g].shared_bytes))
			continue;
		say(t, " Had %s been freed before, the request would have been served.",
		    group_blocks(t->d, &m->groups[g]).text);
		return;
	}
}

static char *explain_failure(const struct clv_report_device *d, const struct clv_report_moment *m)
{
	struct text t = {.d = d};
	say_request(&t, m);
	say_memory(&t, m);
	say_why(&t, m);
	say_culprits(&t, m);
	say_who_must_go(&t, m);
	if (!too_much(d, m))
		say_advice(&t);
	if (!t.failed)
		return t.data;
	clv_mem_free(t.data);
	return NULL;
}

/* ---- the device ---- */

static void say_basis(struct text *t)
{
	const struct clv_report_device *d = t->d;
	if (!d->has_history)
		say(t,
		    " The file holds a state and no history, so nothing is known of lifetimes and of what came before.");
	if (d->basis == CLV_BASIS_EXTENTS)
		say(t,
		    " What the allocator held is not in the file: every stretch of 2 MiB that blocks ever lay in is counted "
		    "from its first use on.");
	else if (!d->given_known)
		say(t,
		    " Sizes that blocks were given are not in the file, and are taken to be the requested ones, rounded up.");
	if (d->uncertain_until)
		say(t, " The beginning was lost: up to event %" PRIu64 " the sizes of some blocks are guesses.",
		    d->uncertain_until);
}

static const struct clv_report_moment *find(const struct clv_report_device *d, enum clv_moment_kind kind)
{
	for (uint32_t i = 0; i < d->moment_count; i++)
		if (d->moments[i].kind == kind)
			return &d->moments[i];
	return NULL;
}

/* What the peak was made of. Where it was at the moment of another peak, that one is there in its place. */
static void say_peak(struct text *t)
{
	const struct clv_report_device *d = t->d;
	const struct clv_report_moment *m = find(d, CLV_MOMENT_PEAK_HELD);
	uint64_t live = d->peak.of[CLV_CAUSE_LIVE];
	for (uint32_t i = 0; !m && i < d->moment_count; i++)
		if (d->moments[i].sum.held == d->peak.held)
			m = &d->moments[i];
	if (!d->peak.held) {
		say(t, "Nothing was held at any moment.");
		return;
	}
	say(t, d->has_history ? "At the peak %s were held" : "%s are held", clv_size_text(d->peak.held).text);
	if (live && d->has_history && d->peak.held - clv_min_u64(d->peak.held, live) < live / 200)
		say(t, ", hardly more than the most that was live (%s)", clv_size_text(live).text);
	else if (live && d->has_history)
		say(t, ", %.3g times the most that was live (%s)", (double)d->peak.held / (double)live,
		    clv_size_text(live).text);
	if (m) {
		say(t, ": ");
		say_used(t, &m->sum);
		if (m->sum.of[CLV_CAUSE_HARD])
			say(t, ", %s stranded (free, in %s that hold live blocks too)",
			    clv_size_text(m->sum.of[CLV_CAUSE_HARD]).text, frame_word(d));
		if (m->sum.of[CLV_CAUSE_SOFT])
			say(t, ", %s in whole %s that nobody used", clv_size_text(m->sum.of[CLV_CAUSE_SOFT]).text,
			    frame_word(d));
	}
	say(t, ".");
}

/* Below this part of what was held it is not what a person should look at. */
#define LITTLE 100

static void say_most_stranded(struct text *t)
{
	const struct clv_report_device *d = t->d;
	const struct clv_report_moment *m = d->moment_count ? &d->moments[d->worst] : NULL;
	if (!d->peak.held)
		return;
	if (!d->peak_stranded) {
		say(t, " Nothing was stranded%s.", d->has_history ? " at any moment" : "");
		return;
	}
	if (d->peak_stranded < d->peak.held / LITTLE) {
		say(t, " Little was ever stranded: %s at most.", clv_size_text(d->peak_stranded).text);
		return;
	}
	if (!m || !m->sum.of[CLV_CAUSE_HARD])
		return;
	if (d->has_history)
		say(t, " Most was stranded at %.6f s: %s, in %" PRIu64 " of %" PRIu64 " %s.", m->time_s,
		    clv_size_text(m->sum.of[CLV_CAUSE_HARD]).text, m->frames_occupied, m->frames, frame_word(d));
	say_culprits(t, m);
}

static char *summarise(const struct clv_report_device *d)
{
	struct text t = {.d = d};
	if (d->failures) /* why is said of each of them */
		say(&t, "%s failed, the first at %.6f s. ", count(d->failures, "request", "requests").text,
		    d->moments[d->worst].time_s);
	say_peak(&t);
	if (!d->failures) {
		say_most_stranded(&t);
		say_advice(&t);
	}
	say_basis(&t);
	if (!t.failed)
		return t.data;
	clv_mem_free(t.data);
	return NULL;
}

bool clv_explain_device(struct clv_report_device *d, struct clv_error *err)
{
	bool ok = true;
	for (uint32_t i = 0; ok && i < d->moment_count; i++)
		if (d->moments[i].kind == CLV_MOMENT_FAILURE)
			ok = (d->moments[i].failure.text = explain_failure(d, &d->moments[i])) != NULL;
	ok = ok && (d->summary = summarise(d)) != NULL;
	return ok || clv_error_set(err, "out of host memory");
}
