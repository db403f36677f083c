/* SPDX-License-Identifier: MIT
 *
 * step_count: how many instructions a function takes, counted by single-stepping a child of this process: the same
 * number whatever else the machine does, so that a test may compare costs without a clock.
 */
#ifndef CLV_STEP_COUNT_H
#define CLV_STEP_COUNT_H

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEP_REFUSED (-1) /* processes may not be traced here */
#define STEP_FAILED (-2)  /* the function answered false, or the child died */

/* Runs until the child stops by SIGSTOP, in single steps if `counting`. */
static int64_t step_until_stop(pid_t child, bool counting)
{
	int64_t steps = 0;
	int status;
	for (int deliver = 0;; deliver = 0) {
		if (ptrace(counting ? PTRACE_SINGLESTEP : PTRACE_CONT, child, 0, deliver) != 0 ||
		    waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
			return STEP_FAILED;
		if (WSTOPSIG(status) == SIGSTOP)
			return steps;
		if (WSTOPSIG(status) == SIGTRAP)
			steps++;
		else
			return STEP_FAILED;
	}
}

/* Instructions from before `fn` until after it, with those of the two stops. `fn` runs in a child: what it does to
 * memory is not seen here. */
static int64_t step_count_raw(bool (*fn)(void *), void *arg)
{
	pid_t child = fork();
	if (child < 0)
		return STEP_REFUSED;
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0)
			_exit(77);
		raise(SIGSTOP);
		bool good = fn(arg);
		raise(SIGSTOP);
		_exit(good ? 0 : 1);
	}
	int status;
	if (waitpid(child, &status, 0) != child)
		return STEP_REFUSED;
	if (!WIFSTOPPED(status))
		return STEP_REFUSED;
	int64_t steps = step_until_stop(child, true);
	if (steps >= 0 && (ptrace(PTRACE_CONT, child, 0, 0) != 0 || waitpid(child, &status, 0) != child ||
			   !WIFEXITED(status) || WEXITSTATUS(status) != 0))
		return STEP_FAILED;
	if (steps < 0) {
		kill(child, SIGKILL);
		waitpid(child, &status, 0);
	}
	return steps;
}

static bool step_nothing(void *arg)
{
	return arg == NULL || arg != NULL;
}

/* Instructions of `fn` alone, or one of the numbers above. */
static int64_t step_count(bool (*fn)(void *), void *arg)
{
	int64_t nothing = step_count_raw(step_nothing, NULL);
	int64_t steps = nothing < 0 ? nothing : step_count_raw(fn, arg);
	return steps < 0 ? steps : steps - nothing;
}

#endif
