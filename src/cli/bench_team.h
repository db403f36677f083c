/* SPDX-License-Identifier: MIT
 *
 * bench_team: threads that begin at the same moment, timed by the wall. Owns its threads for the time of a call.
 */
#ifndef CLV_BENCH_TEAM_H
#define CLV_BENCH_TEAM_H

#include "../base/base.h"

#define CLV_BENCH_TEAM_MAX 4u

struct clv_bench_team {
	unsigned threads; /* at most CLV_BENCH_TEAM_MAX */
	void *arg;
	void (*prepare)(void *arg);                /* in each thread before the moment; NULL: nothing */
	bool (*work)(void *arg, unsigned number); /* what is timed; threads are numbered from 0. False: it failed */
};

/* Nanoseconds from the moment when the first began until the last was done. Negative: a thread could not be started or failed. */
double clv_bench_team_run(const struct clv_bench_team *team);

#endif
