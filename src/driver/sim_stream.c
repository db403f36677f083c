/* SPDX-License-Identifier: MIT
 *
 * By the clock, the end of everything is known when it is submitted: work ends after what is before it in its stream,
 * an event when its stream's work does, and a wait moves the end of the waiting stream. Only work that has something to
 * run is kept, in a heap by end. In manual mode nothing has an end, and each stream keeps what was appended in a ring;
 * what an entry waits for was always submitted before it, so that the waits cannot form a circle.
 */
#include "sim_internal.h"

#include <stdlib.h>

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
	uint64_t sum;
	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* Streams. */

static struct sim_stream **bucket_of(const struct sim *sim, uint64_t id)
{
	return &sim->buckets[clv_mix64(id) & (sim->bucket_count - 1)];
}

static bool buckets_double(struct sim *sim)
{
	uint32_t old_count = sim->bucket_count;
	struct sim_stream **old = sim->buckets;
	uint32_t count = old_count ? old_count * 2 : 64;
	struct sim_stream **buckets = clv_sim_host_alloc(sim, count * sizeof(*buckets));
	if (!buckets)
		return false;
	sim->buckets = buckets;
	sim->bucket_count = count;
	for (uint32_t i = 0; i < old_count; i++)
		while (old[i]) {
			struct sim_stream *s = old[i], **bucket = bucket_of(sim, s->id);
			old[i] = s->next;
			s->next = *bucket;
			*bucket = s;
		}
	free(old);
	return true;
}

/* A stream exists from its first use. NULL: out of host memory. */
static struct sim_stream *stream_get(struct sim *sim, uint64_t id)
{
	if (sim->last_stream && sim->last_stream->id == id)
		return sim->last_stream;
	struct sim_stream *s = NULL;
	if (sim->bucket_count)
		for (s = *bucket_of(sim, id); s && s->id != id;)
			s = s->next;
	if (!s) {
		if (sim->stream_count >= sim->bucket_count && !buckets_double(sim))
			return NULL;
		s = clv_sim_host_alloc(sim, sizeof(*s));
		if (!s)
			return NULL;
		s->id = id;
		struct sim_stream **bucket = bucket_of(sim, id);
		s->next = *bucket;
		*bucket = s;
		s->older = sim->newest_stream;
		sim->newest_stream = s;
		sim->stream_count++;
	}
	sim->last_stream = s;
	return s;
}

static bool is_stream(cleave_stream stream)
{
	return stream.id != CLEAVE_STREAM_ANY.id;
}

static void stream_ends(struct sim *sim, struct sim_stream *s, uint64_t ns)
{
	s->end_ns = clv_max_u64(s->end_ns, ns);
	sim->device_end_ns = clv_max_u64(sim->device_end_ns, s->end_ns);
}

static bool entry_push(struct sim *sim, struct sim_stream *s, struct sim_entry entry)
{
	uint64_t count = s->submitted - s->completed;
	if (count == s->ring_capacity) {
		uint32_t old = s->ring_capacity;
		if (!clv_sim_host_grow(sim, &s->ring, &s->ring_capacity, sizeof(*s->ring)))
			return false;
		/* a full ring that wrapped: what stands before the head goes behind the old end */
		for (uint32_t i = 0; i < s->ring_head; i++)
			s->ring[old + i] = s->ring[i];
	}
	s->ring[(s->ring_head + count) & (s->ring_capacity - 1)] = entry;
	s->submitted++;
	return true;
}

/* Running callbacks. */

static bool earlier(uint64_t a_ns, uint64_t a_seq, uint64_t b_ns, uint64_t b_seq)
{
	return a_ns < b_ns || (a_ns == b_ns && a_seq < b_seq);
}

static bool work_push(struct sim *sim, struct sim_work work)
{
	if (sim->work_count == sim->work_capacity &&
	    !clv_sim_host_grow(sim, &sim->work, &sim->work_capacity, sizeof(*sim->work)))
		return false;
	uint32_t i = sim->work_count++;
	while (i && earlier(work.end_ns, work.seq, sim->work[(i - 1) / 2].end_ns, sim->work[(i - 1) / 2].seq)) {
		sim->work[i] = sim->work[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	sim->work[i] = work;
	return true;
}

static struct sim_work work_pop(struct sim *sim)
{
	struct sim_work first = sim->work[0], last = sim->work[--sim->work_count];
	uint32_t i = 0;
	for (;;) {
		uint32_t child = 2 * i + 1;
		if (child >= sim->work_count)
			break;
		if (child + 1 < sim->work_count && earlier(sim->work[child + 1].end_ns, sim->work[child + 1].seq,
							   sim->work[child].end_ns, sim->work[child].seq))
			child++;
		if (!earlier(sim->work[child].end_ns, sim->work[child].seq, last.end_ns, last.seq))
			break;
		sim->work[i] = sim->work[child];
		i = child;
	}
	if (sim->work_count)
		sim->work[i] = last;
	return first;
}

static bool in_callback(const struct sim *sim)
{
	return sim->draining && pthread_equal(sim->drainer, pthread_self());
}

static void token_take(struct sim *sim)
{
	while (sim->draining)
		pthread_cond_wait(&sim->settled, &sim->lock);
	sim->draining = true;
	sim->drainer = pthread_self();
}

static void token_give(struct sim *sim)
{
	sim->draining = false;
	pthread_cond_broadcast(&sim->settled);
}

static void call_unlocked(struct sim *sim, void (*fn)(void *), void *arg)
{
	pthread_mutex_unlock(&sim->lock);
	fn(arg);
	pthread_mutex_lock(&sim->lock);
}

void clv_sim_settle(struct sim *sim)
{
	if (CLV_LIKELY(!sim->work_count) || sim->draining || sim->work[0].end_ns > sim->now)
		return;
	token_take(sim);
	while (sim->work_count && sim->work[0].end_ns <= sim->now) {
		struct sim_work w = work_pop(sim);
		sim->running = true;
		sim->running_end_ns = w.end_ns;
		sim->running_seq = w.seq;
		call_unlocked(sim, w.fn, w.arg);
		sim->running = false;
		pthread_cond_broadcast(&sim->settled);
	}
	token_give(sim);
}

/* By the clock: whether (ns, seq) is over and nothing that had to run before it is left or under way. */
static bool is_over(const struct sim *sim, uint64_t ns, uint64_t seq)
{
	return ns <= sim->now && !(sim->running && earlier(sim->running_end_ns, sim->running_seq, ns, seq)) &&
	       !(sim->work_count && earlier(sim->work[0].end_ns, sim->work[0].seq, ns, seq));
}

static void wait_clock(struct sim *sim, uint64_t ns, uint64_t seq)
{
	clv_sim_clock_to(sim, ns);
	clv_sim_settle(sim);
	while (!is_over(sim, ns, seq)) {
		pthread_cond_wait(&sim->settled, &sim->lock);
		clv_sim_settle(sim);
	}
}

/* Manual: completes `position` entries of a stream, and what they wait for. */
static void wait_manual(struct sim *sim, struct sim_stream *s, uint64_t position)
{
	if (s->completed >= position)
		return;
	token_take(sim);
	while (s->completed < position) {
		struct sim_stream *next = s;
		struct sim_entry *e = &next->ring[next->ring_head];
		while (e->wait_stream && e->wait_stream->completed < e->wait_position) {
			next = e->wait_stream;
			e = &next->ring[next->ring_head];
		}
		if (e->fn)
			call_unlocked(sim, e->fn, e->arg);
		next->ring_head = (next->ring_head + 1) & (next->ring_capacity - 1);
		next->completed++;
	}
	token_give(sim);
}

bool clv_sim_wait_device(struct sim *sim)
{
	if (in_callback(sim))
		return false;
	if (!sim->config.manual) {
		wait_clock(sim, sim->device_end_ns, sim->seq);
		return true;
	}
	clv_sim_clock_to(sim, sim->device_end_ns);
	/* The lock is dropped around callbacks; streams that come meanwhile stand before the one we began at. */
	for (struct sim_stream *s = sim->newest_stream; s; s = s->older)
		wait_manual(sim, s, s->submitted);
	return true;
}

enum clv_result clv_sim_launch(struct clv_driver *driver, cleave_stream stream, uint64_t ns, void (*fn)(void *),
			       void *arg)
{
	struct sim *sim = sim_of(driver);
	pthread_mutex_lock(&sim->lock);
	struct sim_stream *s = is_stream(stream) ? stream_get(sim, stream.id) : NULL;
	if (!s)
		return clv_sim_leave(sim, is_stream(stream) ? CLV_FAILED : CLV_INVALID, 0);
	uint64_t end = add_saturating(clv_max_u64(sim->now, s->end_ns), ns);
	bool kept = sim->config.manual ? entry_push(sim, s, (struct sim_entry){.fn = fn, .arg = arg})
		    : fn ? work_push(sim, (struct sim_work){.end_ns = end, .seq = sim->seq, .fn = fn, .arg = arg})
			 : true;
	if (!kept)
		return clv_sim_leave(sim, CLV_FAILED, 0);
	sim->seq++;
	stream_ends(sim, s, end);
	return clv_sim_leave(sim, CLV_OK, 0);
}

void clv_sim_complete(struct clv_driver *driver, cleave_stream stream)
{
	struct sim *sim = sim_of(driver);
	pthread_mutex_lock(&sim->lock);
	struct sim_stream *s = is_stream(stream) && !in_callback(sim) ? stream_get(sim, stream.id) : NULL;
	if (s && sim->config.manual)
		wait_manual(sim, s, s->submitted);
	else if (s)
		wait_clock(sim, s->end_ns, sim->seq);
	clv_sim_leave(sim, CLV_OK, 0);
}

enum clv_result clv_sim_stream_synchronize(struct clv_driver *self, cleave_stream stream)
{
	struct sim *sim = clv_sim_enter(self, CLV_CALL_stream_synchronize);
	if (!is_stream(stream) || in_callback(sim))
		return clv_sim_leave(sim, CLV_INVALID, 0);
	if (clv_sim_breaks_capture(sim))
		return clv_sim_leave(sim, CLV_CAPTURING, 0);
	struct sim_stream *s = stream_get(sim, stream.id);
	if (!s)
		return clv_sim_leave(sim, CLV_FAILED, 0);
	clv_sim_charge(sim, clv_cost_ns(CLV_CALL_stream_synchronize, 0, 1));
	uint64_t end = s->end_ns, seq = sim->seq;
	if (sim->config.manual) {
		wait_manual(sim, s, s->submitted);
		clv_sim_clock_to(sim, end);
	} else {
		wait_clock(sim, end, seq);
	}
	return clv_sim_leave(sim, CLV_OK, 0);
}

/* Events. */

static struct sim_event *event_of(const struct sim *sim, clv_event event)
{
	uint32_t index = (uint32_t)event - 1;
	if (index >= sim->event_capacity)
		return NULL;
	struct sim_event *e = &sim->events[index];
	return e->live && e->generation == event >> 32 ? e : NULL;
}

enum clv_result clv_sim_event_create(struct clv_driver *self, clv_event *event, int device)
{
	struct sim *sim = clv_sim_enter(self, CLV_CALL_event_create);
	if (!event || device < 0 || device >= self->devices)
		return clv_sim_leave(sim, CLV_INVALID, 0);
	if (sim->event_free == SIM_NONE) {
		uint32_t old = sim->event_capacity;
		if (!clv_sim_host_grow(sim, &sim->events, &sim->event_capacity, sizeof(*sim->events)))
			return clv_sim_leave(sim, CLV_FAILED, 0);
		for (uint32_t i = sim->event_capacity; i-- > old;) {
			sim->events[i].next_free = sim->event_free;
			sim->event_free = i;
		}
	}
	uint32_t index = sim->event_free;
	struct sim_event *e = &sim->events[index];
	sim->event_free = e->next_free;
	e->live = true;
	e->stream = NULL;
	sim->events_live++;
	*event = (uint64_t)e->generation << 32 | (index + 1);
	return clv_sim_leave(sim, CLV_OK, clv_cost_ns(CLV_CALL_event_create, 0, 1));
}

enum clv_result clv_sim_event_destroy(struct clv_driver *self, clv_event event)
{
	struct sim *sim = clv_sim_enter(self, CLV_CALL_event_destroy);
	struct sim_event *e = event_of(sim, event);
	if (!e)
		return clv_sim_leave(sim, CLV_INVALID, 0);
	e->live = false;
	e->generation++;
	e->next_free = sim->event_free;
	sim->event_free = (uint32_t)(e - sim->events);
	sim->events_live--;
	return clv_sim_leave(sim, CLV_OK, clv_cost_ns(CLV_CALL_event_destroy, 0, 1));
}

/* The event's place in the stream counts as work of the stream: with a lag it stands for the work that the
 * simulation does not see, so that a synchronize of the stream, and later work on it, come after the event. */
enum clv_result clv_sim_event_record(struct clv_driver *self, clv_event event, cleave_stream stream)
{
	struct sim *sim = clv_sim_enter(self, CLV_CALL_event_record);
	struct sim_event *e = event_of(sim, event);
	if (!e || !is_stream(stream))
		return clv_sim_leave(sim, CLV_INVALID, 0);
	struct sim_stream *s = stream_get(sim, stream.id);
	if (!s || (sim->config.manual && !entry_push(sim, s, (struct sim_entry){0})))
		return clv_sim_leave(sim, CLV_FAILED, 0);
	stream_ends(sim, s, add_saturating(sim->now, sim->config.event_lag_ns));
	e->stream = s;
	e->complete_ns = s->end_ns;
	e->seq = sim->seq++;
	e->position = s->submitted;
	return clv_sim_leave(sim, CLV_OK, clv_cost_ns(CLV_CALL_event_record, 0, 1));
}

static bool event_complete(const struct sim *sim, const struct sim_event *e)
{
	if (!e->stream)
		return true;
	return sim->config.manual ? e->stream->completed >= e->position : is_over(sim, e->complete_ns, e->seq);
}

enum clv_result clv_sim_event_query(struct clv_driver *self, clv_event event)
{
	struct sim *sim = clv_sim_enter(self, CLV_CALL_event_query);
	if (!event_of(sim, event))
		return clv_sim_leave(sim, CLV_INVALID, 0);
	if (clv_sim_breaks_capture(sim))
		return clv_sim_leave(sim, CLV_CAPTURING, 0);
	clv_sim_charge(sim, clv_cost_ns(CLV_CALL_event_query, 0, 1));
	clv_sim_settle(sim); /* drops the lock if something is due */
	struct sim_event *e = event_of(sim, event);
	if (!e)
		return clv_sim_leave(sim, CLV_INVALID, 0);
	return clv_sim_leave(sim, event_complete(sim, e) ? CLV_OK : CLV_NOT_READY, 0);
}

enum clv_result clv_sim_event_synchronize(struct clv_driver *self, clv_event event)
{
	struct sim *sim = clv_sim_enter(self, CLV_CALL_event_synchronize);
	const struct sim_event *found = event_of(sim, event);
	if (!found || in_callback(sim))
		return clv_sim_leave(sim, CLV_INVALID, 0);
	if (clv_sim_breaks_capture(sim))
		return clv_sim_leave(sim, CLV_CAPTURING, 0);
	struct sim_event e = *found; /* as recorded now: the wait drops the lock */
	clv_sim_charge(sim, clv_cost_ns(CLV_CALL_event_synchronize, 0, 1));
	if (e.stream && sim->config.manual) {
		wait_manual(sim, e.stream, e.position);
		clv_sim_clock_to(sim, e.complete_ns);
	} else if (e.stream) {
		wait_clock(sim, e.complete_ns, e.seq);
	}
	return clv_sim_leave(sim, CLV_OK, 0);
}

enum clv_result clv_sim_stream_wait_event(struct clv_driver *self, cleave_stream stream, clv_event event)
{
	struct sim *sim = clv_sim_enter(self, CLV_CALL_stream_wait_event);
	struct sim_event *e = event_of(sim, event);
	if (!e || !is_stream(stream))
		return clv_sim_leave(sim, CLV_INVALID, 0);
	struct sim_stream *s = stream_get(sim, stream.id);
	if (!s)
		return clv_sim_leave(sim, CLV_FAILED, 0);
	if (e->stream && e->stream != s && !event_complete(sim, e)) {
		struct sim_entry wait = {.wait_stream = e->stream, .wait_position = e->position};
		if (sim->config.manual && !entry_push(sim, s, wait))
			return clv_sim_leave(sim, CLV_FAILED, 0);
		stream_ends(sim, s, e->complete_ns);
	}
	return clv_sim_leave(sim, CLV_OK, clv_cost_ns(CLV_CALL_stream_wait_event, 0, 1));
}

/* What is still pending is dropped, not run: its arguments may be gone. */
void clv_sim_stream_close(struct sim *sim)
{
	while (sim->newest_stream) {
		struct sim_stream *s = sim->newest_stream;
		sim->newest_stream = s->older;
		free(s->ring);
		free(s);
	}
	free(sim->buckets);
	free(sim->events);
	free(sim->work);
}
