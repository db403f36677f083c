/* SPDX-License-Identifier: MIT
 *
 * record_model: threads that allocate and free as a heap's would, and what all of them together put into the recorder.
 */
#ifndef CLV_RECORD_MODEL_H
#define CLV_RECORD_MODEL_H

#include "record_rig.h"

#include <pthread.h>
#include <stdatomic.h>

#define MODEL_SLOTS 256u /* addresses that threads share */

/* The model: a block is allocated and freed as a heap would, under a lock that is let go of in between; so frees are told
 * before the address is another's. */
static struct {
	pthread_mutex_t lock;
	bool taken[MODEL_SLOTS];
	_Atomic uint64_t events, checksum;
} model = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Order does not matter to it. */
static inline uint64_t model_digest(unsigned action, uint64_t addr, uint64_t size, uint64_t stream, int device)
{
	return clv_mix64(addr * 31 + size * 7 + stream * 3 + action + ((uint64_t)device << 50));
}

static inline void model_tell(enum clv_event event, int device, uint64_t stream, uint64_t addr, uint64_t size)
{
	rig_event(event, device, stream, addr, size);
	atomic_fetch_add(&model.events, 1);
	atomic_fetch_add(&model.checksum,
			 model_digest(event == CLV_EVENT_ALLOC ? CLV_ACTION_ALLOC : CLV_ACTION_FREE_COMPLETED, addr,
				      size, stream, device));
}

struct model_worker {
	pthread_t thread;
	uint64_t seed;
	unsigned rounds;
};

static inline void *model_work(void *arg)
{
	const struct model_worker *w = arg;
	struct clv_rng rng = {.state = w->seed};
	for (unsigned i = 0; i < w->rounds; i++) {
		unsigned slot = (unsigned)clv_rng_below(&rng, MODEL_SLOTS);
		uint64_t addr = 0x7f0000000000 + slot * 0x100000, size = clv_rng_range(&rng, 1, 5000);
		pthread_mutex_lock(&model.lock);
		bool mine = !model.taken[slot];
		model.taken[slot] = true;
		pthread_mutex_unlock(&model.lock);
		if (!mine)
			continue;
		model_tell(CLV_EVENT_ALLOC, (int)(slot % 3), w->seed, addr, size);
		if (clv_rng_below(&rng, 8) == 0)
			rig_mark("something");
		model_tell(CLV_EVENT_FREE, (int)(slot % 3), w->seed, addr, size);
		pthread_mutex_lock(&model.lock);
		model.taken[slot] = false;
		pthread_mutex_unlock(&model.lock);
		if (clv_rng_below(&rng, 300) == 0)
			usleep(100);
	}
	return NULL;
}

static inline void run_workers(unsigned count, unsigned rounds, uint64_t seed)
{
	struct model_worker workers[16];
	ck_assert_uint_le(count, 16);
	for (unsigned i = 0; i < count; i++) {
		workers[i] = (struct model_worker){.seed = seed * 100 + i, .rounds = rounds};
		ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, model_work, &workers[i]), 0);
	}
	for (unsigned i = 0; i < count; i++)
		pthread_join(workers[i].thread, NULL);
}

#endif
