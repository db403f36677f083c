/* SPDX-License-Identifier: MIT
 *
 * threads/SIZE/T: T threads, each on a stream of its own, allocate and free blocks of one size in one heap. The time is
 * that of the wall, from the moment when all of them begin until the last is done, for each pair of all threads
 * together: threads that do not hinder each other take as many times less as there are processors for them.
 */
#include "bench.h"
#include "bench_memory.h"

#include <pthread.h>

#define THREADS_MAX 4u
#define PAIRS 60000u /* of all threads together */
#define DEPTH 8u     /* blocks that a thread holds at once */

enum order { ORDER_WAIT, ORDER_BEGIN, ORDER_GO_HOME };

struct team {
	struct clv_memory *memory;
	size_t size;
	unsigned threads;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum order order; /* under the lock */
};

struct worker {
	struct team *team;
	pthread_t thread;
	unsigned number;
	double begin, end;
	bool failed;
};

static enum order wait_for_order(struct team *t)
{
	pthread_mutex_lock(&t->lock);
	while (t->order == ORDER_WAIT)
		pthread_cond_wait(&t->changed, &t->lock);
	enum order order = t->order;
	pthread_mutex_unlock(&t->lock);
	return order;
}

static void give_order(struct team *t, enum order order)
{
	pthread_mutex_lock(&t->lock);
	t->order = order;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct clv_memory m = *w->team->memory;
	uint64_t blocks[DEPTH];
	m.stream = (cleave_stream){w->number + 1, w->number + 1};
	if (wait_for_order(w->team) != ORDER_BEGIN)
		return NULL;
	w->begin = clv_bench_wall_ns();
	for (unsigned done = 0; done < PAIRS / w->team->threads && !w->failed; done += DEPTH) {
		for (unsigned i = 0; i < DEPTH; i++)
			w->failed |= (blocks[i] = clv_memory_alloc(&m, w->team->size)) == 0;
		for (unsigned i = 0; i < DEPTH; i++)
			if (blocks[i])
				clv_memory_free(&m, blocks[i]);
	}
	w->end = clv_bench_wall_ns();
	return NULL;
}

static double run_team(void *arg)
{
	struct team *t = arg;
	struct worker workers[THREADS_MAX];
	unsigned started = 0;
	t->order = ORDER_WAIT;
	for (; started < t->threads; started++) {
		workers[started] = (struct worker){.team = t, .number = started};
		if (pthread_create(&workers[started].thread, NULL, work, &workers[started]))
			break;
	}
	bool ok = started == t->threads;
	give_order(t, ok ? ORDER_BEGIN : ORDER_GO_HOME);
	double begin = 0, end = 0;
	for (unsigned i = 0; i < started; i++) {
		pthread_join(workers[i].thread, NULL);
		ok &= !workers[i].failed;
		begin = i == 0 || workers[i].begin < begin ? workers[i].begin : begin;
		end = i == 0 || workers[i].end > end ? workers[i].end : end;
	}
	return ok ? end - begin : -1;
}

static const unsigned thread_counts[] = {1, 2, 4};

enum { COUNTS = CLV_ARRAY_LEN(thread_counts) };

static bool bench_size(struct clv_bench *b, const char *size_name, size_t size)
{
	struct clv_memory memory[2];
	struct team teams[2][COUNTS];
	struct clv_bench_case cases[2][COUNTS], *run[2 * COUNTS];
	char names[COUNTS][CLV_BENCH_NAME];
	bool wanted[COUNTS], any = false;
	size_t total = 0;
	for (int k = 0; k < COUNTS; k++) {
		clv_bench_set_name(names[k], "threads/%s/%u", size_name, thread_counts[k]);
		wanted[k] = clv_bench_wants(b, names[k]);
		any |= wanted[k];
	}
	if (!any)
		return true;
	wanted[0] = true; /* what the others are compared with */
	if (!clv_memory_heap(&memory[0]))
		return clv_bench_fail(b, "the heap cannot be opened");
	size_t count = 1 + clv_memory_libc(&memory[1]);
	for (size_t i = 0; i < count; i++)
		for (int k = 0; k < COUNTS; k++) {
			struct team *t = &teams[i][k];
			*t = (struct team){.memory = &memory[i], .size = size, .threads = thread_counts[k]};
			pthread_mutex_init(&t->lock, NULL);
			pthread_cond_init(&t->changed, NULL);
			cases[i][k] = (struct clv_bench_case){
				.unit = CLV_BENCH_NS_PER_OP, .clock = "wall", .run = run_team, .arg = t, .ops = PAIRS};
			clv_bench_set_name(cases[i][k].name, "%s", i ? memory[i].name : names[k]);
			if (wanted[k])
				run[total++] = &cases[i][k];
		}
	bool ok = clv_bench_measure(b, run, total);
	for (int k = 0; k < COUNTS && ok; k++)
		if (wanted[k])
			ok = clv_bench_report(b, &cases[0][k], count > 1 ? &cases[1][k] : NULL, &cases[0][0]);
	for (size_t i = 0; i < count; i++) {
		for (int k = 0; k < COUNTS; k++) {
			pthread_cond_destroy(&teams[i][k].changed);
			pthread_mutex_destroy(&teams[i][k].lock);
		}
		clv_memory_close(&memory[i]);
	}
	return ok;
}

bool clv_bench_threads(struct clv_bench *b)
{
	return bench_size(b, "1KiB", CLV_KIB) && bench_size(b, "64KiB", 64 * CLV_KIB);
}
