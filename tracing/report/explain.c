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

struct size {
	char text[32];
};

static struct size size(uint64_t bytes)
{
	struct size s;
	clv_size_print(bytes, s.text, sizeof(s.text));
	return s;
}

static struct size count(uint64_t n, const char *one, const char *many)
{
	struct size s;
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
		say(t, "every request is served; ");
	say(t, "%s held at the peak instead of %s)", size(trial->peak_held).text, size(base->peak_held).text);
}

/* Advice is what a replay has confirmed, and nothing else. */
static void say_advice(struct text *t)
{
	const struct clv_report_device *d = t->d;
	if (best(d)) {
		say(t, " Replayed with the same requests, this helps: ");
		for (uint32_t i = 1, told = 0; i < d->trial_count && d->trials[i].confirmed && told < 3; i++, told++) {
			say(t, "%s", told ? "; or " : "");
			say_trial(t, &d->trials[i], &d->trials[0]);
		}
		say(t, ".");
	} else if (d->trial_count > 1) {
		say(t, " No change that was tried by replaying the same requests (%" PRIu32 " in all) %s.",
		    d->trial_count - 1, d->failures ? "serves all of them" : "holds less");
	}
	if (d->untried)
		say(t, " %s not tried, since the trace is long.",
		    count(d->untried, "further change was", "further changes were").text);
}

/* ---- culprits ---- */

static void say_group(struct text *t, const struct clv_report_group *g)
{
	say(t, "%s (%s, %s live", group_name(t->d, g).text, count(g->blocks, "block", "blocks").text,
	    size(g->bytes).text);
	if (g->never_freed == g->blocks)
		say(t, ", never freed in this trace");
	else if (g->left_max_s - g->left_min_s <= 0.01 * g->left_max_s)
		say(t, ", freed %.3g s later", g->left_max_s);
	else
		say(t, ", freed %.3g to %.3g s later", g->left_min_s, g->left_max_s);
	say(t, ")");
}

static void say_culprits(struct text *t, const struct clv_report_moment *m)
{
	uint64_t stranded = m->sum.of[CLV_CAUSE_HARD];
	if (!stranded || !m->groups_kept)
		return;
	const struct clv_report_group *g = &m->groups[0];
	if (g->stranded_bytes) {
		say(t, g->stranded_bytes >= stranded / 2 ? " Most of it is pinned by "
							 : " Most of what one group pins alone is pinned by ");
		say_group(t, g);
		say(t, ": without %s, %s of it would be free again, and %s could go back whole",
		    g->blocks == 1 ? "it" : "them", size(g->stranded_bytes).text, size(g->frame_bytes).text);
	} else {
		say(t, " No group of blocks pins it alone; most has a part in it ");
		say_group(t, g);
	}
	uint64_t sum = g->marginal_bytes;
	uint32_t more = 1;
	for (; more < m->groups_kept && more < 3 && m->groups[more].marginal_bytes; more++)
		sum += m->groups[more].marginal_bytes;
	if (more > 1) {
		say(t, "; with ");
		for (uint32_t i = 1; i < more; i++)
			say(t, "%s%s", i > 1 ? " and " : "", group_name(t->d, &m->groups[i]).text);
		say(t, " gone as well, %s", size(sum).text);
	}
	say(t, ".");
}

/* ---- failures ---- */

static void say_request(struct text *t, const struct clv_report_moment *m)
{
	const struct clv_report_failure *f = &m->failure;
	const struct clv_report_group as_group = {.stack = f->stack, .size = f->asked, .stream = f->stream};
	say(t, "A request of %s failed at %.6g s (after event %" PRIu32 "%s%s)", size(f->asked).text, m->time_s,
	    m->event, f->stack != CLV_NO_STACK ? ", " : "",
	    f->stack != CLV_NO_STACK ? group_name(t->d, &as_group).text : "");
	if (f->repeats)
		say(t, ", and %" PRIu64 " more like it later", f->repeats);
	say(t, ".");
}

static void say_memory(struct text *t, const struct clv_report_moment *m)
{
	const struct clv_report_sum *s = &m->sum;
	const struct clv_report_failure *f = &m->failure;
	say(t, " %s were held: %s live", size(s->held).text, size(s->of[CLV_CAUSE_LIVE]).text);
	if (s->of[CLV_CAUSE_INTERNAL])
		say(t, ", %s lost to rounding", size(s->of[CLV_CAUSE_INTERNAL]).text);
	if (s->of[CLV_CAUSE_RESERVATION])
		say(t, ", %s held back by reservations", size(s->of[CLV_CAUSE_RESERVATION]).text);
	if (s->of[CLV_CAUSE_STREAM])
		say(t, ", %s freed but not complete on their streams", size(s->of[CLV_CAUSE_STREAM]).text);
	say(t, ", %s free", size(sum_free(s)).text);
	if (s->of[CLV_CAUSE_HARD])
		say(t, ", of which %s are stranded: they lie in %s that hold a live block too",
		    size(s->of[CLV_CAUSE_HARD]).text, frame_word(t->d));
	say(t, ".");
	if (f->foreign_free)
		say(t, " %s of what is free belongs to other streams, pools or sizes, which PyTorch keeps apart.",
		    size(f->foreign_free).text);
	say(t, " The largest hole that the request could use has %s.", size(f->largest_usable).text);
}

/* By how much what is live and asked for exceeds what there is; 0: not, or that is not known. */
static uint64_t too_much(const struct clv_report_moment *m)
{
	const struct clv_report_failure *f = &m->failure;
	uint64_t live = m->sum.of[CLV_CAUSE_LIVE], most = UINT64_MAX;
	if (f->limit != UINT64_MAX)
		most = f->limit;
	else if (f->device_free < UINT64_MAX - m->sum.held)
		most = m->sum.held + f->device_free;
	uint64_t wanted = f->asked > UINT64_MAX - live ? UINT64_MAX : live + f->asked;
	return wanted > most ? wanted - most : 0;
}

static void say_why(struct text *t, const struct clv_report_moment *m)
{
	const struct clv_report_failure *f = &m->failure;
	const struct clv_report_sum *s = &m->sum;
	say(t, " So the driver was to give %s", size(f->needed).text);
	if (f->limit != UINT64_MAX)
		say(t, ", but the limit of %s left %s", size(f->limit).text,
		    size(f->limit - clv_min_u64(f->limit, s->held)).text);
	else if (f->device_free != UINT64_MAX)
		say(t, ", but the device had %s", size(f->device_free).text);
	else
		say(t, ", and it did not");
	say(t, ".");
	if (too_much(m))
		say(t,
		    " What is live and the request together exceed what there is by %s: no allocator could serve both.",
		    size(too_much(m)).text);
	else if (s->of[CLV_CAUSE_STREAM] >= f->asked && s->of[CLV_CAUSE_HARD] < f->asked)
		say(t, " It was short of frees that waited for other streams.");
}

static void say_who_must_go(struct text *t, const struct clv_report_moment *m)
{
	for (uint32_t g = 0; g < m->groups_kept; g++) {
		if (m->groups[g].would_serve != 1 || !(m->groups[g].marginal_bytes || m->groups[g].shared_bytes))
			continue;
		say(t, " Without %s the request would have been served.", group_name(t->d, &m->groups[g]).text);
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
	if (!too_much(m))
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
	say(t, "%s %s were held", d->has_history ? "At the peak" : "At the end", size(d->peak.held).text);
	if (live && d->has_history)
		say(t, ", %.3g times the most that was live (%s)", (double)d->peak.held / (double)live,
		    size(live).text);
	if (m) {
		say(t, ": %s live", size(m->sum.of[CLV_CAUSE_LIVE]).text);
		if (m->sum.of[CLV_CAUSE_INTERNAL])
			say(t, ", %s lost to rounding", size(m->sum.of[CLV_CAUSE_INTERNAL]).text);
		if (m->sum.of[CLV_CAUSE_RESERVATION])
			say(t, ", %s held back by reservations", size(m->sum.of[CLV_CAUSE_RESERVATION]).text);
		if (m->sum.of[CLV_CAUSE_STREAM])
			say(t, ", %s not complete on their streams", size(m->sum.of[CLV_CAUSE_STREAM]).text);
		if (m->sum.of[CLV_CAUSE_HARD])
			say(t, ", %s stranded beside live blocks", size(m->sum.of[CLV_CAUSE_HARD]).text);
		if (m->sum.of[CLV_CAUSE_SOFT])
			say(t, ", %s in whole %s that nobody used", size(m->sum.of[CLV_CAUSE_SOFT]).text,
			    frame_word(d));
	}
	say(t, ".");
}

static void say_most_stranded(struct text *t)
{
	const struct clv_report_device *d = t->d;
	const struct clv_report_moment *m = d->moment_count ? &d->moments[d->worst] : NULL;
	if (!d->peak_stranded) {
		say(t, " Nothing was stranded at any moment.");
		return;
	}
	if (!m || !m->sum.of[CLV_CAUSE_HARD])
		return;
	say(t, " Most was stranded at %.6g s: %s, in %" PRIu64 " of %" PRIu64 " %s.", m->time_s,
	    size(m->sum.of[CLV_CAUSE_HARD]).text, m->frames_occupied, m->frames, frame_word(d));
	say_culprits(t, m);
}

static char *summarise(const struct clv_report_device *d)
{
	struct text t = {.d = d};
	say_peak(&t);
	if (d->failures) { /* why is said of each of them */
		say(&t, " %s failed, the first at %.6g s.", count(d->failures, "request", "requests").text,
		    d->moments[d->worst].time_s);
	} else {
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
