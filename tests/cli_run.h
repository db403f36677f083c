/* SPDX-License-Identifier: MIT
 *
 * cli_run: runs the built `cleave` in a test and keeps what it printed; writes the files that it is given. Each test
 * has a folder of its own, which goes with it.
 */
#ifndef CLV_CLI_RUN_H
#define CLV_CLI_RUN_H

#include "../src/base/base.h"

#include <check.h>

struct cli_result {
	int status; /* exit status; 1000 + signal if a signal ended it */
	char *out, *err;
	size_t out_len;
	uint64_t max_rss_bytes; /* the most memory it had at once; at least that of the test that started it */
};

/* The main() of a Check program whose tests have a folder each. */
int cli_suite(const char *name, const TTest *const *tests, size_t count);

/* Runs `cleave` with these arguments (NULL ends them) in the test's folder, with its stdout and stderr in files. The
 * result belongs to the test and goes with it. */
struct cli_result cli_run(const char *first, ...) __attribute__((sentinel));

/* The same with a shell command line, in which $CLEAVE is the command. */
struct cli_result cli_shell(const char *line);

/* Where a file of this name is in the test's folder. Good until the next call. */
const char *cli_path(const char *name);

/* A file in the test's folder; returns its name, which is relative to it. */
const char *cli_file(const char *name, const void *data, size_t size);
const char *cli_text(const char *name, const char *text);

/* The command must refuse: status 2, nothing on stdout, one line on stderr that contains `part`. */
void cli_assert_refused(struct cli_result r, const char *part);

#endif
