/* SPDX-License-Identifier: MIT */
#include "ring.h"

#include "../../src/host/meta.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define UNUSED_KEPT 8u /* buffers of threads that have ended, for those that will come */

__thread struct clv_ring *clv_ring_mine __attribute__((tls_model("initial-exec")));

static struct {
	pthread_mutex_t lock;
	pthread_once_t once;
	pthread_key_t key; /* tells that a thread ends */
	bool has_key;
	struct clv_ring *all;
	size_t count;
	uint32_t session;
	bool writer;
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

void clv_rings_lock(void)
{
	pthread_mutex_lock(&registry.lock);
}

void clv_rings_unlock(void)
{
	pthread_mutex_unlock(&registry.lock);
}

/* With the lock held, from here to the end of the section. */

static void unmap(struct clv_ring *ring)
{
	munmap(ring, ring->bytes);
	registry.count--;
}

static void drop_ring(struct clv_ring *ring)
{
	for (struct clv_ring **at = &registry.all; *at; at = &(*at)->next)
		if (*at == ring) {
			*at = ring->next;
			unmap(ring);
			return;
		}
}

/* Nothing that was put in before counts any more. */
static void begin(struct clv_ring *ring, uint32_t session)
{
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	ring->session = session;
	ring->thread = (uint32_t)syscall(SYS_gettid);
	ring->tail_seen = head;
	ring->look_at = head + ring->slot_count / 8;
	ring->requests = 0;
	ring->busy = false;
	ring->dropped_told = atomic_load_explicit(&ring->dropped, memory_order_relaxed);
	atomic_store_explicit(&ring->tail, head, memory_order_relaxed);
	atomic_store_explicit(&ring->state, CLV_RING_OWNED, memory_order_relaxed);
}

static struct clv_ring *find_unused(uint64_t slot_count)
{
	for (struct clv_ring *ring = registry.all; ring; ring = ring->next)
		if (atomic_load_explicit(&ring->state, memory_order_relaxed) == CLV_RING_UNUSED &&
		    ring->slot_count == slot_count)
			return ring;
	return NULL;
}

static struct clv_ring *make(uint64_t slot_count)
{
	size_t bytes = sizeof(struct clv_ring) + (size_t)slot_count * sizeof(union clv_slot);
	struct clv_ring *ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ring == MAP_FAILED)
		return NULL;
	ring->bytes = bytes;
	ring->slot_count = slot_count;
	ring->next = registry.all;
	registry.all = ring;
	registry.count++;
	return ring;
}

/* ---- */

static void thread_ends(void *arg)
{
	struct clv_ring *ring = arg;
	clv_ring_mine = NULL;
	clv_rings_lock();
	if (registry.writer)
		atomic_store_explicit(&ring->state, CLV_RING_LEFT, memory_order_release);
	else
		drop_ring(ring);
	clv_rings_unlock();
}

static void make_key(void)
{
	registry.has_key = pthread_key_create(&registry.key, thread_ends) == 0;
}

struct clv_ring *clv_ring_attach(uint32_t session, uint64_t slot_count)
{
	struct clv_ring *ring = clv_ring_mine;
	pthread_once(&registry.once, make_key);
	if (!registry.has_key)
		return NULL;
	clv_rings_lock();
	if (session != registry.session) {
		clv_rings_unlock();
		return NULL;
	}
	if (ring && ring->slot_count != slot_count) {
		drop_ring(ring);
		ring = NULL;
	}
	if (!ring)
		ring = find_unused(slot_count);
	if (!ring)
		ring = make(slot_count);
	if (ring)
		begin(ring, session);
	clv_rings_unlock();
	clv_ring_mine = ring;
	if (pthread_setspecific(registry.key, ring) && ring) { /* nobody would hear of the thread's end */
		thread_ends(ring);
		ring = NULL;
	}
	return ring;
}

void clv_rings_session(uint32_t session, bool writer)
{
	clv_rings_lock();
	registry.session = session;
	registry.writer = writer;
	for (struct clv_ring *ring = registry.all, *next; ring && !writer; ring = next) {
		next = ring->next;
		if (atomic_load_explicit(&ring->state, memory_order_relaxed) != CLV_RING_OWNED)
			drop_ring(ring);
	}
	clv_rings_unlock();
}

bool clv_rings_list(uint32_t session, struct clv_ring_list *list)
{
	for (;;) { /* no host memory is taken under the lock: others hold theirs when they come here before a fork */
		clv_rings_lock();
		size_t need = registry.count;
		list->count = 0;
		if (need <= list->cap)
			for (struct clv_ring *ring = registry.all; ring; ring = ring->next)
				if (ring->session == session &&
				    atomic_load_explicit(&ring->state, memory_order_relaxed) != CLV_RING_UNUSED)
					list->rings[list->count++] = ring;
		clv_rings_unlock();
		if (need <= list->cap)
			return true;
		struct clv_ring **grown = clv_meta_realloc(list->rings, (need + 16) * sizeof(*grown));
		if (!grown)
			return false;
		list->rings = grown;
		list->cap = need + 16;
	}
}

void clv_rings_tidy(uint32_t session)
{
	size_t unused = 0;
	clv_rings_lock();
	for (struct clv_ring *ring = registry.all, *next; ring; ring = next) {
		next = ring->next;
		int state = atomic_load_explicit(&ring->state, memory_order_acquire);
		if (state == CLV_RING_LEFT &&
		    (ring->session != session ||
		     (atomic_load_explicit(&ring->head, memory_order_relaxed) ==
			      atomic_load_explicit(&ring->tail, memory_order_relaxed) &&
		      atomic_load_explicit(&ring->dropped, memory_order_relaxed) == ring->dropped_told))) {
			state = CLV_RING_UNUSED;
			atomic_store_explicit(&ring->state, state, memory_order_relaxed);
		}
		if (state == CLV_RING_UNUSED && ++unused > UNUSED_KEPT)
			drop_ring(ring);
	}
	clv_rings_unlock();
}

void clv_rings_forget(void)
{
	for (struct clv_ring *ring = registry.all, *next; ring; ring = next) {
		next = ring->next;
		if (ring != clv_ring_mine || !ring->busy) /* else a signal handler forked, and returns into it */
			unmap(ring);
	}
	registry.all = NULL;
	registry.count = 0;
	registry.session = 0;
	registry.writer = false;
	clv_ring_mine = NULL;
	if (registry.has_key)
		pthread_setspecific(registry.key, NULL);
}
