/* SPDX-License-Identifier: MIT
 *
 * run_trace: what `cleave run` does for a recording: the settings, the files that may be in the way, and the report when the
 * program has ended. Owns nothing but `settings`.
 */
#ifndef CLV_RUN_TRACE_H
#define CLV_RUN_TRACE_H

#include "../base/base.h"
#include "../base/error.h"

#include <limits.h>
#include <time.h>

struct clv_run_trace {
	/* as the user said; NULL: not */
	const char *file, *report;
	bool observe;

	char pattern[PATH_MAX];       /* of the first process's file, absolute; "": nothing is recorded */
	char settings[PATH_MAX + 64]; /* for CLEAVE_CONF; "": none */
	struct timespec begun;
};

/* Makes the settings of what the user said. False with the reason. */
bool clv_run_trace_prepare(struct clv_run_trace *t, struct clv_error *err);

/* A trace from before of just this name goes. False with the reason: what is there is no trace, and stays. */
bool clv_run_trace_make_way(const struct clv_run_trace *t, struct clv_error *err);

/* Runs the program as a child, hands signals on, and makes the report when it has ended, whose text goes to stderr. Returns the
 * program's exit status; ends by the signal that ended it. `execute` returns only if the program cannot be executed. */
int clv_run_trace_watch(const struct clv_run_trace *t, int (*execute)(void *arg), void *arg);

#endif
