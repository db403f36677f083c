/* SPDX-License-Identifier: MIT
 *
 * A program that uses no CUDA and prints what a preloaded library could change: lookups and their errors, whose malloc it
 * has, descriptors, threads, signals, children.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int entries(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;
	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static void whose(const char *name)
{
	Dl_info info;
	void *p = dlsym(RTLD_DEFAULT, name);
	printf("%s: %s\n", name, p && dladdr(p, &info) ? base_name(info.dli_fname) : "not found");
}

/* A name that is a hook is looked up by another library: only there the text of dlerror() tells that. */
static void lookup(const char *what, void *handle, const char *name)
{
	dlerror();
	void *p = dlsym(handle, name);
	const char *error = dlerror();
	printf("%s %s: %s, %s\n", what, name, p ? "found" : "none",
	       !error                                              ? "no error"
	       : strncmp(name, "cu", 2) || !strcmp(name, "cuInit") ? error
								   : "an error");
}

static void in_signal(int number)
{
	printf("signal %d\n", number);
}

static void *in_thread(void *arg)
{
	lookup("thread", RTLD_DEFAULT, "cuMemAllocAsync");
	return arg;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	whose("malloc");
	whose("getpid");
	lookup("default", RTLD_DEFAULT, "cuInit");
	lookup("default", RTLD_DEFAULT, "cuMemAlloc_v2");
	lookup("default", RTLD_DEFAULT, "cuGetProcAddress_v2");
	lookup("default", RTLD_DEFAULT, "no_such_function");
	lookup("next", RTLD_NEXT, "free");
	void *self = dlopen(NULL, RTLD_NOW);
	lookup("program", self, "cuMemFreeAsync");
	lookup("program", self, "stdout");
	lookup("program", self, "curl_easy_init");
	printf("no library: %s\n", dlopen("libno-such-library.so.1", RTLD_NOW) ? "found" : dlerror());

	/* a function asks for the next one of its name, in a library that its own needs: glibc knows by the return address
	 * who asks */
	if (argc > 1) {
		void *first = dlopen(argv[1], RTLD_NOW);
		int (*chain)(void) = first ? (int (*)(void))dlsym(first, "quiet_chain") : NULL;
		printf("chain: %d\n", chain ? chain() : -1);
		int (*own)(void) = first ? (int (*)(void))dlsym(first, "cuMemAllocManaged") : NULL;
		printf("another library's function of a driver's name: %d\n", own ? own() : -1);
	}

	errno = 0;
	free(malloc(1000));
	printf("errno %d, descriptors %d, threads %d\n", errno, entries("/proc/self/fd"), entries("/proc/self/task"));
	signal(SIGUSR1, in_signal);
	raise(SIGUSR1);
	pthread_t thread;
	pthread_create(&thread, NULL, in_thread, NULL);
	pthread_join(thread, NULL);

	int status;
	fflush(stdout);
	pid_t child = fork();
	if (!child) {
		lookup("child", RTLD_DEFAULT, "cuMemAllocAsync");
		exit(7);
	}
	waitpid(child, &status, 0);
	printf("child %d\n", WEXITSTATUS(status));
	child = fork();
	if (!child) {
		execlp("sh", "sh", "-c", "echo from a shell; exit 9", (char *)NULL);
		_exit(1);
	}
	waitpid(child, &status, 0);
	printf("shell %d\n", WEXITSTATUS(status));
	child = vfork();
	if (!child) {
		execlp("true", "true", (char *)NULL);
		_exit(1);
	}
	waitpid(child, &status, 0);
	printf("true %d\n", WEXITSTATUS(status));
	return 5;
}
