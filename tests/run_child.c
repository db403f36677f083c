/* SPDX-License-Identifier: MIT
 *
 * run_child: a program for `cleave run` that says on stdout what it was given.
 *
 *   env NAME...     NAME=VALUE of each, or "NAME is not set"
 *   args ARG...     argv[0] and each argument, one a line
 *   loaded          whether the library that stands in for ours is
 *   cat             stdin to stdout, byte by byte
 *   pid             its process, its process group and its session
 *   status N        ends with this exit status
 *   signal N        ends itself by this signal
 *   ignored N...    whether it ignores these signals
 *   open            the numbers of its open files
 */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int loaded(void)
{
#ifdef STATIC
	return 0;
#else
	return dlsym(RTLD_DEFAULT, "clv_stand_in") != NULL;
#endif
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int number = argc > 2 ? atoi(argv[2]) : 0;
	if (!strcmp(what, "env")) {
		for (int i = 2; i < argc; i++) {
			const char *value = getenv(argv[i]);
			printf(value ? "%s=%s\n" : "%s is not set\n", argv[i], value);
		}
	} else if (!strcmp(what, "args")) {
		for (int i = 0; i < argc; i++)
			puts(argv[i]);
	} else if (!strcmp(what, "loaded")) {
		puts(loaded() ? "loaded" : "not loaded");
	} else if (!strcmp(what, "cat")) {
		char c;
		while (read(STDIN_FILENO, &c, 1) == 1)
			if (write(STDOUT_FILENO, &c, 1) != 1)
				return 1;
	} else if (!strcmp(what, "pid")) {
		printf("%d %d %d\n", (int)getpid(), (int)getpgrp(), (int)getsid(0));
	} else if (!strcmp(what, "status")) {
		return number;
	} else if (!strcmp(what, "signal")) {
		raise(number);
	} else if (!strcmp(what, "ignored")) {
		for (int i = 2; i < argc; i++) {
			struct sigaction action;
			sigaction(atoi(argv[i]), NULL, &action);
			puts(action.sa_handler == SIG_IGN ? "ignored" : "not ignored");
		}
	} else if (!strcmp(what, "open")) {
		for (int fd = 0; fd < 64; fd++)
			if (fcntl(fd, F_GETFD) != -1)
				printf("%d ", fd);
		putchar('\n');
	}
	return 0;
}
