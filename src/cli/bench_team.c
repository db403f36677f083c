/* SPDX-License-Identifier: MIT */
#include "bench_team.h"

#include "bench.h"

#include <pthread.h>

enum order { ORDER_WAIT, ORDER_BEGIN, ORDER_GO_HOME };

struct meeting {
	const struct clv_bench_team *team;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum order order; /* under the lock, as is `ready` */
	unsigned ready;
};

struct worker {
	struct meeting *meeting;
	pthread_t thread;
	unsigned number;
	double begin, end;
	bool ok;
};

/* In a thread of the team: it is there. */
static enum order wait_for_order(struct meeting *m)
{
	pthread_mutex_lock(&m->lock);
	m->ready++;
	pthread_cond_broadcast(&m->changed);
	while (m->order == ORDER_WAIT)
		pthread_cond_wait(&m->changed, &m->lock);
	enum order order = m->order;
	pthread_mutex_unlock(&m->lock);
	return order;
}

/* Once so many are there. */
static void give_order(struct meeting *m, unsigned there, enum order order)
{
	pthread_mutex_lock(&m->lock);
	while (m->ready < there)
		pthread_cond_wait(&m->changed, &m->lock);
	m->order = order;
	pthread_cond_broadcast(&m->changed);
	pthread_mutex_unlock(&m->lock);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	const struct clv_bench_team *t = w->meeting->team;
	if (t->prepare)
		t->prepare(t->arg);
	if (wait_for_order(w->meeting) != ORDER_BEGIN)
		return NULL;
	w->begin = clv_bench_wall_ns();
	w->ok = t->work(t->arg, w->number);
	w->end = clv_bench_wall_ns();
	return NULL;
}

double clv_bench_team_run(const struct clv_bench_team *team)
{
	struct meeting m = {.team = team,
			    .lock = PTHREAD_MUTEX_INITIALIZER,
			    .changed = PTHREAD_COND_INITIALIZER,
			    .order = ORDER_WAIT};
	struct worker workers[CLV_BENCH_TEAM_MAX];
	unsigned started = 0;
	for (; started < team->threads; started++) {
		workers[started] = (struct worker){.meeting = &m, .number = started};
		if (pthread_create(&workers[started].thread, NULL, work, &workers[started]))
			break;
	}
	bool ok = started == team->threads;
	give_order(&m, started, ok ? ORDER_BEGIN : ORDER_GO_HOME);
	double begin = 0, end = 0;
	for (unsigned i = 0; i < started; i++) {
		pthread_join(workers[i].thread, NULL);
		ok &= workers[i].ok;
		begin = i == 0 || workers[i].begin < begin ? workers[i].begin : begin;
		end = i == 0 || workers[i].end > end ? workers[i].end : end;
	}
	pthread_cond_destroy(&m.changed);
	pthread_mutex_destroy(&m.lock);
	return ok ? end - begin : -1;
}
