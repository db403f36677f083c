/* SPDX-License-Identifier: MIT
 *
 * A program that tells what it does, and is linked with nothing: trace_user [FILE]. With a file it asks whoever is there to
 * record into it; status 3: nobody is.
 */
#include <cleave/trace.h>

static int start(const char *, const char *, char *, size_t) __attribute__((weakref("cleave_trace_start")));

int main(int argc, char **argv)
{
	if (argc > 1 && !start)
		return 3;
	if (argc > 1 && start(argv[1], NULL, NULL, 0))
		return 4;
	CLEAVE_TRACE_PHASE_BEGIN("work");
	if (argc > 0)
		CLEAVE_TRACE_MARK("in the middle");
	else
		CLEAVE_TRACE_MARK("nowhere");
	CLEAVE_TRACE_PHASE_END("work");
	return 0;
}
