/* SPDX-License-Identifier: MIT
 *
 * stack_embed LIBPYTHON: a program that loads Python, to itself, after stacks were opened. Prints the number of Python
 * frames: before it is loaded, while it runs a line of code, when it has ended, when it has begun again and runs one,
 * and at the end.
 */
#include "../tracing/record/stack.h"

#include <dlfcn.h>
#include <stdio.h>

static int print_count(void *unused)
{
	struct clv_stack s;
	clv_stack_capture(&s, 0);
	printf("%u\n", s.python_count);
	fflush(stdout);
	return 0;
}

int main(int argc, char **argv)
{
	struct clv_stack_config config = {.native_max = 16, .python_max = 16};
	if (argc != 2 || !clv_stack_open(&config))
		return 2;
	print_count(NULL);
	void *lib = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		printf("%s\n", dlerror());
		return 1;
	}
	void (*begin)(int) = NULL;
	int (*end)(void) = NULL, (*run)(const char *, void *) = NULL, (*call_soon)(int (*)(void *), void *) = NULL;
	*(void **)&begin = dlsym(lib, "Py_InitializeEx");
	*(void **)&end = dlsym(lib, "Py_FinalizeEx");
	*(void **)&run = dlsym(lib, "PyRun_SimpleStringFlags");
	*(void **)&call_soon = dlsym(lib, "Py_AddPendingCall");
	if (!begin || !end || !run || !call_soon)
		return 1;
	clv_stack_poll();
	for (int i = 0; i < 2; i++) {
		begin(0);
		/* Extension modules, which could call us, need a libpython that is no secret. */
		if (call_soon(print_count, NULL) || run("for i in range(1000): pass", NULL) || end())
			return 1;
		print_count(NULL);
	}
	return 0;
}
