/* SPDX-License-Identifier: MIT
 *
 * threads: per-thread default streams end with their threads, and nobody calls to say so. What a thread has used is noted;
 * when it ends no call of the driver is made any more, and other threads drop what was known of its streams once their work
 * is done. Without a lock: what has ended is pushed one by one and taken all at once.
 */
#include "preload.h"

#include "../host/meta.h"

#include <pthread.h>
#include <stdatomic.h>

#define ENOUGH 16u /* so many are looked after at a time */

struct noted {
	uint64_t id; /* of a stream */
	bool asked;  /* the heap knows that it is left */
	struct noted *next;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* the streams of a thread */
static bool has_key;
static __thread __attribute__((tls_model("initial-exec"))) uint64_t last_noted;

static _Atomic(struct noted *) ended;
static _Atomic unsigned ended_count;

/* A list, from its first to its last. */
static void push(struct noted *first, struct noted *last)
{
	struct noted *before = atomic_load_explicit(&ended, memory_order_relaxed);
	do
		last->next = before;
	while (!atomic_compare_exchange_weak_explicit(&ended, &before, first, memory_order_release,
						      memory_order_relaxed));
}

static void thread_ends(void *streams)
{
	struct noted *first = streams, *n = first;
	unsigned count = 1;
	last_noted = 0;
	for (; n->next; n = n->next)
		count++;
	push(first, n);
	atomic_fetch_add_explicit(&ended_count, count, memory_order_relaxed);
}

static void make_key(void)
{
	has_key = !pthread_key_create(&key, thread_ends);
}

void clv_threads_note(const struct clv_cuda_stream *s)
{
	if (s->stream.id == last_noted)
		return;
	pthread_once(&once, make_key);
	struct noted *first = has_key ? pthread_getspecific(key) : NULL, *n = first;
	while (n && n->id != s->stream.id)
		n = n->next;
	if (!n && has_key && (n = clv_meta_zalloc(sizeof(*n)))) {
		*n = (struct noted){.id = s->stream.id, .next = first};
		if (pthread_setspecific(key, n)) {
			clv_meta_free(n);
			return;
		}
	}
	last_noted = s->stream.id;
}

/* True if nothing is known of the stream any more. */
static bool look_after(const struct clv_process *p, struct noted *n)
{
	struct clv_cuda_stream s;
	bool gone = true;
	if (!clv_cuda_stream_known(p->driver, n->id, &s)) /* its context has ended */
		return true;
	if (!n->asked)
		clv_graphs_stream_ends(p, &s);
	for (int d = 0; d < p->driver->devices; d++)
		gone &= clv_heap_stream_left(p->heap, d, s.stream, !n->asked);
	n->asked = true;
	if (gone)
		clv_cuda_stream_forget(p->driver, n->id);
	return gone;
}

void clv_threads_settle(const struct clv_process *p)
{
	if (CLV_LIKELY(atomic_load_explicit(&ended_count, memory_order_relaxed) < ENOUGH) ||
	    clv_cuda_captures(p->driver))
		return;
	atomic_store_explicit(&ended_count, 0, memory_order_relaxed);
	struct noted *list = atomic_exchange_explicit(&ended, NULL, memory_order_acquire), *left = NULL;
	for (struct noted *n = list, *next; n; n = next) {
		next = n->next;
		if (look_after(p, n)) {
			clv_meta_free(n);
			continue;
		}
		n->next = left;
		left = n;
	}
	if (!left)
		return;
	struct noted *last = left;
	while (last->next)
		last = last->next;
	push(left, last); /* they are asked after again when more have ended */
}
