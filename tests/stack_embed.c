/* SPDX-License-Identifier: MIT
 *
 * stack_embed LIBPYTHON: a program that loads Python, to itself, after stacks were opened. Prints the number of Python frames seen
 * from two calls deep: before it is loaded, after, when it has ended, when it has begun again, and at the end.
 */
#include "../tracing/record/stack.h"

#include <dlfcn.h>
#include <stdio.h>

static void print_count(void)
{
	struct clv_stack s;
	clv_stack_capture(&s, 0);
	printf("%u\n", s.python_count);
	fflush(stdout);
}

__attribute__((visibility("default"))) void embed_capture(void);
void embed_capture(void)
{
	print_count();
}

int main(int argc, char **argv)
{
	struct clv_stack_config config = {.native_max = 16, .python_max = 16};
	if (argc != 2 || !clv_stack_open(&config))
		return 2;
	print_count();
	void *lib = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		printf("%s\n", dlerror());
		return 1;
	}
	void (*begin)(int) = NULL;
	int (*end)(void) = NULL, (*run)(const char *, void *) = NULL;
	*(void **)&begin = dlsym(lib, "Py_InitializeEx");
	*(void **)&end = dlsym(lib, "Py_FinalizeEx");
	*(void **)&run = dlsym(lib, "PyRun_SimpleStringFlags");
	if (!begin || !end || !run)
		return 1;
	clv_stack_poll();
	for (int i = 0; i < 2; i++) {
		begin(0);
		/* the program's symbols are those of the first handle there is */
		if (run("import ctypes\ndef f(): ctypes.CDLL(None).embed_capture()\nf()", NULL))
			return 1;
		if (end())
			return 1;
		print_count();
	}
	return 0;
}
