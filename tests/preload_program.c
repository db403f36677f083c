/* SPDX-License-Identifier: MIT
 *
 * preload_program allocator|memory|fork: a program that knows nothing of Cleave, run with and without tests/preload_host.c
 * by tests/test_preload_host.c. Exits 0 if all is right.
 *
 * allocator   prints where the functions of its allocator are, and uses them together with libc's
 * memory      works with the preloaded library's memory in threads that come and go
 * fork        forks while threads do so; each child works, too, and frees what its parent had allocated
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int (*host_has_jemalloc)(void);
static int (*host_option)(const char *name);
static int (*host_work)(unsigned seed, int steps);
static void *(*host_keep)(size_t size);
static void (*host_end)(void *p);
static int (*host_pins)(void);

static int fail(const char *what)
{
	fprintf(stderr, "%s\n", what);
	return 1;
}

static void *find(const char *name)
{
	void *p = dlsym(RTLD_DEFAULT, name);
	if (!p) {
		fprintf(stderr, "%s is not preloaded\n", name);
		exit(2);
	}
	return p;
}

static int allocator(void)
{
	static const char *const names[] = {"malloc",         "calloc",        "realloc", "free",
					    "posix_memalign", "aligned_alloc", "strdup",  "malloc_usable_size"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		Dl_info info;
		if (!dladdr(dlsym(RTLD_DEFAULT, names[i]), &info))
			return fail("dladdr");
		printf("%s %s\n", names[i], info.dli_fname);
	}
	/* nothing of jemalloc's can be seen */
	static const char *const hidden[] = {"mallocx",     "je_mallocx",     "je_malloc",
					     "malloc_conf", "je_malloc_conf", "mallctl"};
	for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
		if (dlsym(RTLD_DEFAULT, hidden[i]))
			return fail(hidden[i]);
	/* libc's functions that allocate, and free, are of one allocator */
	char *line = NULL, *copy = strdup("a line of text");
	size_t size = 0;
	FILE *f = fmemopen(copy, strlen(copy), "r");
	if (!f || getline(&line, &size, f) != 14 || strcmp(line, copy))
		return fail("getline");
	fclose(f);
	line = realloc(line, 1 << 20);
	free(line);
	free(copy);
	void *p = NULL;
	if (posix_memalign(&p, 4096, 100000))
		return fail("posix_memalign");
	free(p);
	return 0;
}

static void *worker(void *arg)
{
	return (void *)(size_t)host_work((unsigned)(size_t)arg, 2000);
}

static int memory(void)
{
	int wrong = 0;
	for (size_t round = 0; round < 5; round++) {
		pthread_t thread[8];
		for (size_t i = 0; i < 8; i++)
			if (pthread_create(&thread[i], NULL, worker, (void *)(8 * round + i)))
				return fail("pthread_create");
		for (size_t i = 0; i < 8; i++) {
			void *result;
			pthread_join(thread[i], &result);
			wrong += (int)(size_t)result;
		}
	}
	if (wrong)
		return fail("contents were lost");
	bool jemalloc = host_has_jemalloc();
	printf("jemalloc %d\n", jemalloc);
	if (host_pins() != jemalloc)
		return fail("pinned memory");
	/* its settings are its own, whatever MALLOC_CONF tells the host program's allocator */
	if (jemalloc && (host_option("opt.narenas") != 1 || host_option("opt.stats_print") != 0 ||
			 host_option("opt.abort_conf") != 0 || host_option("opt.background_thread") != 0))
		return fail("MALLOC_CONF was read");
	return 0;
}

#ifdef __SANITIZE_THREAD__ /* which loses count */
#define THREADS_IN_CHILDREN false
#else
#define THREADS_IN_CHILDREN true
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) /* a fork is slow with their shadow memory */
#define FORKS 32
#else
#define FORKS 100
#endif

static bool stop; /* atomic */

static void *storm(void *arg)
{
	unsigned seed = (unsigned)(size_t)arg;
	int wrong = 0;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		wrong += host_work(seed++, 300);
	return (void *)(size_t)wrong;
}

static int forks(void)
{
	enum { THREADS = 4, KEPT = 50 };
	pthread_t thread[THREADS];
	void *kept[KEPT];
	host_end(host_keep(1)); /* the first call must not race a fork */
	for (size_t i = 0; i < KEPT; i++)
		kept[i] = host_keep(10 + i * i * 40);
	for (size_t i = 0; i < THREADS; i++)
		if (pthread_create(&thread[i], NULL, storm, (void *)(1000 * i)))
			return fail("pthread_create");
	for (unsigned n = 0; n < FORKS; n++) {
		pid_t child = fork();
		if (child < 0)
			return fail("fork");
		if (!child) {
			alarm(60); /* instead of hanging */
			for (size_t i = 0; i < KEPT; i++)
				host_end(kept[i]);
			int wrong = host_work(n, 500);
			/* some have a thread, or a child, of their own, and some leave through exit() */
			pthread_t other;
			void *result = NULL;
			if (n % 4 == 1 && THREADS_IN_CHILDREN && !pthread_create(&other, NULL, worker, NULL))
				pthread_join(other, &result);
			if (n % 4 == 2) {
				int status = 1;
				pid_t grandchild = fork();
				if (!grandchild)
					_exit(host_work(n, 100) != 0);
				waitpid(grandchild, &status, 0);
				wrong += status;
			}
			wrong += (int)(size_t)result;
			if (n % 4 == 3)
				exit(wrong != 0);
			_exit(wrong != 0);
		}
		int status;
		if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status)) {
			fprintf(stderr, "child %u: status %#x\n", n, (unsigned)status);
			return 1;
		}
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (size_t i = 0; i < THREADS; i++) {
		void *result;
		pthread_join(thread[i], &result);
		if (result)
			return fail("contents were lost");
	}
	for (size_t i = 0; i < KEPT; i++)
		host_end(kept[i]);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	if (!strcmp(what, "allocator"))
		return allocator();
	*(void **)&host_has_jemalloc = find("preload_host_has_jemalloc");
	*(void **)&host_option = find("preload_host_option");
	*(void **)&host_work = find("preload_host_work");
	*(void **)&host_keep = find("preload_host_keep");
	*(void **)&host_end = find("preload_host_end");
	*(void **)&host_pins = find("preload_host_pins");
	if (!strcmp(what, "memory"))
		return memory();
	if (!strcmp(what, "fork"))
		return forks();
	return 2;
}
