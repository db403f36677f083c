/* SPDX-License-Identifier: MIT */
#include "html_internal.h"

#include <math.h>

#define TIMES_MAX 32768u   /* events whose time is told; between them it is interpolated */
#define BUCKETS_MAX 65536u /* of all devices together */

/* The columns of a timeline: (what, which sum of a bucket, which of its values: a cause, or CLV_CAUSE_COUNT for held) */
static const struct column {
	const char *name;
	enum { END, MAX } of;
	unsigned value;
} columns[] = {
	{"held", END, CLV_CAUSE_COUNT},        {"live", END, CLV_CAUSE_LIVE},
	{"internal", END, CLV_CAUSE_INTERNAL}, {"reservation", END, CLV_CAUSE_RESERVATION},
	{"stream", END, CLV_CAUSE_STREAM},     {"hard", END, CLV_CAUSE_HARD},
	{"soft", END, CLV_CAUSE_SOFT},         {"max_held", MAX, CLV_CAUSE_COUNT},
	{"max_live", MAX, CLV_CAUSE_LIVE},     {"max_hard", MAX, CLV_CAUSE_HARD},
};

uint64_t clv_html_time(const struct clv_html_device *p, uint32_t event)
{
	const struct clv_history *h = p->d->history;
	if (!h->event_count)
		return 0;
	uint64_t at = h->events[event < h->event_count ? event : h->event_count - 1].time_us;
	return at > p->begin_us ? at - p->begin_us : 0;
}

json_t *clv_html_times(const struct clv_html_device *p)
{
	const struct clv_history *h = p->d->history;
	uint32_t step = h->event_count / TIMES_MAX + 1;
	struct clv_pack us = {0};
	uint64_t last = 0;
	for (uint64_t i = 0; i < (uint64_t)h->event_count + step; i += step) {
		last = clv_max_u64(last, clv_html_time(p, (uint32_t)clv_min_u64(i, h->event_count)));
		clv_pack_step(&us, last);
	}
	return json_pack("{s:I, s:o}", "step", (json_int_t)step, "us", clv_pack_json(&us));
}

static uint64_t value_of(const struct clv_report_sum *s, unsigned value)
{
	return value == CLV_CAUSE_COUNT ? s->held : s->of[value];
}

/* Of `stride` buckets told as one, the state after the last, or the most of any. */
static json_t *column(const struct clv_report_device *d, const struct column *c, uint32_t stride)
{
	struct clv_pack pack = {0};
	for (uint32_t i = 0; i < d->bucket_count; i += stride) {
		uint32_t end = (uint32_t)clv_min_u64((uint64_t)i + stride, d->bucket_count);
		uint64_t value = value_of(&d->buckets[end - 1].end, c->value);
		for (uint32_t k = i; c->of == MAX && k < end; k++)
			value = clv_max_u64(value, value_of(&d->buckets[k].max, c->value));
		clv_pack_step(&pack, value);
	}
	return clv_pack_json(&pack);
}

json_t *clv_html_timeline(const struct clv_html_device *p)
{
	const struct clv_report_device *d = p->d;
	uint64_t stride = ((uint64_t)d->bucket_count * p->share + BUCKETS_MAX - 1) / BUCKETS_MAX;
	if (!stride)
		stride = 1;
	struct clv_pack after = {0}, us = {0};
	uint32_t count = 0;
	for (uint64_t i = 0; i < d->bucket_count; i += stride, count++) {
		const struct clv_report_bucket *b = &d->buckets[clv_min_u64(i + stride, d->bucket_count) - 1];
		clv_pack_step(&after, b->last_event);
		clv_pack_step(&us, (uint64_t)fmin(fmax(b->end_s * 1e6, 0), 9e18));
	}
	json_t *j = json_pack("{s:I, s:o, s:o}", "count", (json_int_t)count, "after", clv_pack_json(&after), "us",
			      clv_pack_json(&us));
	bool ok = j != NULL;
	for (size_t i = 0; ok && i < CLV_ARRAY_LEN(columns); i++)
		ok = json_object_set_new(j, columns[i].name, column(d, &columns[i], (uint32_t)stride)) == 0;
	if (ok)
		return j;
	json_decref(j);
	return NULL;
}
