/* SPDX-License-Identifier: MIT
 *
 * The program's side of stream order: what a correct program does with events before it uses or frees a block on
 * another stream, and not more, so that whatever else is needed is for the heap to do.
 */
#include "stress_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* A piece of work on a stream. It has copies of all that it needs, since the block is forgotten when it is freed. */
struct work {
	struct clv_stress_work base;
	struct stress_round *round;
	uint64_t op, made;
	uint32_t stream;
	unsigned thread;
};

#define BY_HOST UINT32_MAX

/* ---- streams ---- */

static bool new_stream(struct stress_round *r, uint32_t index)
{
	struct stress_stream *s = &r->streams[index];
	return r->device->ops->new_stream(r->device, s->device, index, &s->stream);
}

bool clv_stress_streams_open(struct stress_round *r)
{
	r->stream_count = r->config->streams;
	r->streams = calloc(r->stream_count, sizeof(*r->streams));
	if (!r->streams)
		return false;
	for (; r->streams_ready < r->stream_count; r->streams_ready++) {
		struct stress_stream *s = &r->streams[r->streams_ready];
		if (pthread_rwlock_init(&s->lock, NULL))
			return false;
		s->device = (int)(r->streams_ready % r->plan.devices);
		if (!new_stream(r, r->streams_ready)) {
			pthread_rwlock_destroy(&s->lock);
			return false;
		}
	}
	return true;
}

void clv_stress_streams_close(struct stress_round *r)
{
	for (unsigned i = 0; i < r->streams_ready; i++) {
		r->device->ops->end_stream(r->device, r->streams[i].stream);
		pthread_rwlock_destroy(&r->streams[i].lock);
	}
	free(r->streams);
}

/* A thread has a stream that it likes, as programs have. */
uint32_t clv_stress_pick_stream(struct stress_worker *w, int device)
{
	const struct stress_round *r = w->round;
	uint32_t devices = r->plan.devices, first = (uint32_t)device;
	uint32_t mine = (r->stream_count - first + devices - 1) / devices; /* streams of the device */
	uint32_t n = clv_rng_below(&w->rng, 2) ? w->number % mine : (uint32_t)clv_rng_below(&w->rng, mine);
	return first + n * devices;
}

/* Threads take the locks of several streams in any order. They do not wait in a circle, since only who destroys a
 * stream excludes others, and while it does it takes no second one. */
struct stress_use clv_stress_enter(struct stress_round *r, uint32_t stream)
{
	while (pthread_rwlock_tryrdlock(&r->streams[stream].lock))
		sched_yield();
	return (struct stress_use){stream, r->streams[stream].life};
}

void clv_stress_leave(struct stress_round *r, struct stress_use use)
{
	pthread_rwlock_unlock(&r->streams[use.stream].lock);
}

/* Enters the stream if it is still the same; false: what was done on it is complete. */
static bool enter_again(struct stress_round *r, struct stress_use use)
{
	struct stress_use now = clv_stress_enter(r, use.stream);
	if (now.life == use.life)
		return true;
	clv_stress_leave(r, now);
	return false;
}

void clv_stress_settle(struct stress_round *r)
{
	for (unsigned i = 0; i < r->stream_count; i++)
		r->device->ops->complete(r->device, r->streams[i].stream);
}

void clv_stress_order(struct stress_worker *w, struct stress_use from, struct stress_use to, bool wait)
{
	struct stress_round *r = w->round;
	/* a stream is behind itself, and one that has ended is done */
	if (from.stream == to.stream || !enter_again(r, from))
		return;
	cleave_stream before = stress_stream_of(r, from.stream), after = stress_stream_of(r, to.stream);
	if (wait) {
		r->driver->stream_synchronize(r->driver, before);
	} else {
		r->driver->event_record(r->driver, w->event, before);
		r->driver->stream_wait_event(r->driver, after, w->event);
	}
	w->counts.crossings++;
	clv_stress_leave(r, from);
}

void clv_stress_await(struct stress_worker *w, const struct stress_block *b)
{
	struct stress_round *r = w->round;
	for (unsigned i = 0; i < b->use_count; i++)
		if (enter_again(r, b->uses[i])) {
			r->driver->stream_synchronize(r->driver, stress_stream_of(r, b->uses[i].stream));
			clv_stress_leave(r, b->uses[i]);
		}
}

/* The heap drains what was freed on the stream; what else is on it the program waits for, before or after. A heap
 * that the driver keeps from waiting says so, and the stream lives on. */
void clv_stress_destroy_stream(struct stress_worker *w, uint32_t index)
{
	struct stress_round *r = w->round;
	struct stress_stream *s = &r->streams[index];
	if (pthread_rwlock_trywrlock(&s->lock))
		return;
	if (clv_rng_below(&w->rng, 2))
		r->driver->stream_synchronize(r->driver, s->stream);
	int answer = cleave_stream_destroyed(r->heap, s->device, s->stream);
	if (answer == 0) {
		r->driver->stream_synchronize(r->driver, s->stream);
		r->device->ops->end_stream(r->device, s->stream);
		if (!new_stream(r, index)) {
			atomic_store(&r->no_memory, true);
			atomic_store(&r->stop, true);
		}
		s->life++;
		w->counts.streams_destroyed++;
	} else if (answer != -EIO || !r->config->faults || !w->op) {
		clv_stress_wrong(r, w->number, w->op, "cleave_stream_destroyed answers %d", answer);
	}
	pthread_rwlock_unlock(&s->lock);
}

/* ---- work ---- */

static void tell_wrong(const struct work *k, enum clv_pattern_verdict verdict, const struct clv_pattern_wrong *wrong)
{
	char who[128], what[320], by[32] = "the host";
	if (k->stream != BY_HOST)
		snprintf(by, sizeof(by), "stream %" PRIu32, k->stream);
	if (verdict == CLV_PATTERN_UNMAPPED)
		snprintf(what, sizeof(what), "is not mapped when %s %s it", by, k->base.write ? "writes" : "reads");
	else if (verdict == CLV_PATTERN_REFUSED)
		snprintf(what, sizeof(what),
			 "is not touched: the GPU refuses, or does not end, the work by which %s %s it", by,
			 k->base.write ? "writes" : "reads");
	else
		snprintf(what, sizeof(what),
			 "has 0x%02x instead of 0x%02x at byte %" PRIu64 " when %s reads it: there is %s", wrong->found,
			 wrong->expected, wrong->offset, by,
			 clv_pattern_author(k->base.addr, wrong, atomic_load(&k->round->next_block), who, sizeof(who)));
	clv_stress_wrong(k->round, k->thread, k->op,
			 "block %" PRIu32 " (%" PRIu64 " bytes at 0x%" PRIx64 ", allocated in operation %" PRIu64
			 ", written on stream %u, generation %u) %s",
			 k->base.stamp.block, k->base.stamp.size, k->base.addr, k->made, k->base.stamp.stream,
			 k->base.stamp.generation, what);
}

static void count(const struct work *k, enum clv_pattern_verdict verdict, const struct clv_pattern_wrong *wrong)
{
	struct stress_round *r = k->round;
	const struct clv_stress_work *w = &k->base;
	if (atomic_load_explicit(&r->stop, memory_order_relaxed))
		return;
	if (verdict != CLV_PATTERN_GOOD)
		tell_wrong(k, verdict, wrong);
	atomic_fetch_add_explicit(w->write ? &r->written : &r->checked, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(w->write ? &r->bytes_written : &r->bytes_checked, w->stamp.size,
				  memory_order_relaxed);
}

static void happened(struct clv_stress_work *base, enum clv_pattern_verdict verdict,
		     const struct clv_pattern_wrong *wrong)
{
	struct work *k = CLV_CONTAINER_OF(base, struct work, base);
	count(k, verdict, wrong);
	free(k);
}

static struct work *work_of(const struct stress_worker *w, const struct stress_block *b, uint32_t stream, bool write)
{
	struct work *k = malloc(sizeof(*k));
	if (k)
		*k = (struct work){.base = {.device = b->device,
					    .addr = b->addr,
					    .stamp = b->stamp,
					    .write = write,
					    .full = w->round->config->full,
					    .stop = &w->round->stop,
					    .happened = happened},
				   .round = w->round,
				   .op = w->op,
				   .made = b->made,
				   .stream = stream,
				   .thread = w->number};
	return k;
}

static bool out_of_memory(struct stress_round *r, struct work *k)
{
	free(k);
	atomic_store(&r->no_memory, true);
	atomic_store(&r->stop, true);
	return false;
}

bool clv_stress_launch(struct stress_worker *w, const struct stress_block *b, struct stress_use on, bool write)
{
	struct stress_round *r = w->round;
	struct work *k = work_of(w, b, on.stream, write);
	uint64_t ns = clv_rng_below(&w->rng, r->phase.work_ns + 1);
	return (k && r->device->ops->launch(r->device, stress_stream_of(r, on.stream), ns, &k->base)) ||
	       out_of_memory(r, k);
}

void clv_stress_touch(struct stress_worker *w, const struct stress_block *b, bool write)
{
	struct stress_round *r = w->round;
	struct work *k = work_of(w, b, BY_HOST, write);
	if (!k || !r->device->ops->touch(r->device, &k->base))
		out_of_memory(r, k);
}
