/* SPDX-License-Identifier: MIT
 *
 * What the fast path does not do: a small request and its free take no lock, call no driver and make no system call.
 * The functions that lock are replaced when this program is linked (--wrap) and count; the simulated driver counts its
 * calls; and the kernel kills a child in strict seccomp mode at its first system call. Each count is also shown to
 * count. (Check is linked statically in places, and its assertions lock: none stands where locks are counted.)
 */
#include "check_main.h"

#include "../src/driver/sim.h"

#include <cleave/plan.h>

#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAIRS 1000000u
#define SMALL_MAX (32 * 1024u) /* the largest request that slabs serve */

static _Thread_local uint64_t locks; /* of this thread */

#define COUNTING(type, name, parameters, arguments)                                                                    \
	type __real_##name parameters;                                                                                 \
	type __wrap_##name parameters;                                                                                 \
	type __wrap_##name parameters                                                                                  \
	{                                                                                                              \
		locks++;                                                                                               \
		return __real_##name arguments;                                                                        \
	}

COUNTING(int, pthread_mutex_lock, (pthread_mutex_t * m), (m))
COUNTING(int, pthread_mutex_trylock, (pthread_mutex_t * m), (m))
COUNTING(int, pthread_mutex_timedlock, (pthread_mutex_t * m, const struct timespec *t), (m, t))
COUNTING(int, pthread_rwlock_rdlock, (pthread_rwlock_t * l), (l))
COUNTING(int, pthread_rwlock_wrlock, (pthread_rwlock_t * l), (l))
COUNTING(int, pthread_spin_lock, (pthread_spinlock_t * l), (l))
COUNTING(int, pthread_cond_wait, (pthread_cond_t * c, pthread_mutex_t *m), (c, m))
COUNTING(int, pthread_once, (pthread_once_t * o, void (*fn)(void)), (o, fn))

static struct clv_driver *driver;
static cleave_heap *heap;
static const cleave_stream streams[] = {{1, 1}, {2, 2}};

static void open_heap(void)
{
	driver = clv_sim_open(NULL);
	ck_assert_ptr_nonnull(driver);
	ck_assert_int_eq(cleave_heap_open(&heap, driver, NULL, NULL, 0), 0);
}

static void close_heap(void)
{
	char why[256] = "";
	ck_assert_msg(cleave_heap_check(heap, why, sizeof(why)) == 0, "%s", why);
	cleave_heap_close(heap);
	ck_assert_ptr_null(clv_sim_leaks(driver));
	driver->close(driver);
}

static uint64_t driver_calls(void)
{
	struct clv_call_counts counts;
	uint64_t calls = 0;
	driver->counts(driver, &counts);
	for (int c = 0; c < CLV_CALL_COUNT; c++)
		calls += counts.calls[c];
	return calls;
}

/* Sizes of every class come up, in an order that does not depend on anything. Returns the bytes given. */
static uint64_t pairs(unsigned n, cleave_stream stream)
{
	uint64_t total = 0;
	for (unsigned i = 0; i < n; i++) {
		size_t size = 1 + i * 7919u % SMALL_MAX;
		cleave_ptr p;
		if (cleave_alloc(heap, 0, stream, size, &p) != 0 || cleave_free(heap, p, stream) != 0)
			return 0;
		total += size;
	}
	return total;
}

/* The first request of each class takes slots out of slabs, under the lock. */
static void warm_up(void)
{
	for (size_t s = 0; s < CLV_ARRAY_LEN(streams); s++)
		ck_assert_uint_ne(pairs(SMALL_MAX, streams[s]), 0);
}

/* Reservations concern larger requests. */
static void reserve_much(void)
{
	for (uint64_t bytes = 33 * CLV_KIB; bytes < CLV_GIB; bytes *= 2) {
		const cleave_reservation r = {.bytes = bytes, .count = 1, .by_class = 1};
		ck_assert_int_eq(cleave_reserve(heap, 0, &r, NULL), 0);
	}
	cleave_heap_stats stats;
	ck_assert_int_eq(cleave_heap_get_stats(heap, 0, &stats), 0);
	ck_assert_uint_ge(stats.reservation_bytes, 512 * CLV_MIB);
}

/* The counts must not be taken for zero because nothing counts. */
static void assert_that_counts_count(void)
{
	uint64_t locks_before = locks, calls_before = driver_calls();
	cleave_ptr p;
	ck_assert_int_eq(cleave_alloc(heap, 0, streams[0], CLV_GIB, &p), 0);
	ck_assert_int_eq(cleave_free(heap, p, streams[0]), 0);
	ck_assert_uint_gt(locks, locks_before);
	ck_assert_uint_gt(driver_calls(), calls_before);
}

static void no_lock_and_no_driver_call_with(void (*what)(void))
{
	open_heap();
	assert_that_counts_count();
	what();
	warm_up();
	for (size_t s = 0; s < CLV_ARRAY_LEN(streams); s++) {
		uint64_t calls = driver_calls(), before = locks;
		bool good = pairs(PAIRS, streams[s]) != 0;
		uint64_t taken = locks - before;
		ck_assert(good);
		ck_assert_uint_eq(taken, 0);
		ck_assert_uint_eq(driver_calls(), calls);
	}
	cleave_heap_stats stats;
	ck_assert_int_eq(cleave_heap_get_stats(heap, 0, &stats), 0);
	ck_assert_uint_eq(stats.allocs, 2 * (PAIRS + SMALL_MAX) + 1);
	ck_assert_uint_eq(stats.frees, stats.allocs);
	ck_assert_uint_eq(stats.live_bytes, 0);
	close_heap();
}

static void nothing_else(void)
{
}

START_TEST(no_lock_and_no_driver_call)
{
	no_lock_and_no_driver_call_with(nothing_else);
}
END_TEST

START_TEST(nor_with_reservations)
{
	no_lock_and_no_driver_call_with(reserve_much);
}
END_TEST

/* `depth` blocks of one size are live at once, and freed in either order. */
static bool batch(unsigned depth, size_t size, bool reverse)
{
	static cleave_ptr blocks[1000];
	bool good = true;
	for (unsigned i = 0; i < depth; i++)
		good &= cleave_alloc(heap, 0, streams[0], size, &blocks[i]) == 0;
	for (unsigned i = 0; i < depth; i++)
		good &= cleave_free(heap, blocks[reverse ? depth - 1 - i : i], streams[0]) == 0;
	return good;
}

/* As many at once as a cache holds of the largest class. */
START_TEST(no_lock_for_a_few_at_once)
{
	open_heap();
	warm_up();
	uint64_t before = 0;
	bool good = true;
	for (unsigned round = 0; round < 100000; round++) {
		if (round == SMALL_MAX) /* by now the cache of each class has been filled */
			before = locks;
		good &= batch(4, 1 + round * 7919u % SMALL_MAX, round & 1);
	}
	uint64_t taken = locks - before;
	ck_assert(good);
	ck_assert_uint_eq(taken, 0);
	close_heap();
}
END_TEST

/* Many at once cannot all be in a cache; the lock is taken once for several of them. */
START_TEST(few_locks_for_many_at_once)
{
	open_heap();
	for (unsigned round = 0; round < 10; round++) {
		uint64_t before = locks;
		bool good = batch(1000, 1024, false);
		uint64_t taken = locks - before;
		ck_assert(good);
		if (round)
			ck_assert_uint_le(taken, 2 * 1000 / 6);
	}
	close_heap();
}
END_TEST

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) /* their runtimes make system calls of their own */

/* In strict mode only read, write, sigreturn and exit (of the thread) are allowed; neither of them is made by the
 * pairs, as they have nothing open to read from or write to. */
static int run_in_strict_mode(unsigned n, bool and_a_call)
{
	fflush(NULL);
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
			_exit(77);
		bool good = pairs(n, streams[0]) != 0;
		if (and_a_call)
			syscall(SYS_getppid);
		syscall(SYS_exit, good ? 0 : 1); /* _exit() would end the process, which is not allowed */
	}
	int status = 0;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	return status;
}

START_TEST(no_system_call)
{
	open_heap();
	warm_up();
	int status = run_in_strict_mode(PAIRS, false);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		fprintf(stderr, "no_system_call: skipped, strict seccomp mode is refused here\n");
		close_heap();
		return;
	}
	ck_assert_msg(WIFEXITED(status), "killed by signal %d: a system call was made", WTERMSIG(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	status = run_in_strict_mode(PAIRS, true); /* one is noticed */
	ck_assert(WIFSIGNALED(status));
	ck_assert_int_eq(WTERMSIG(status), SIGKILL);
	close_heap();
}
END_TEST

#else

START_TEST(no_system_call)
{
	fprintf(stderr, "no_system_call: skipped, this build makes system calls of its own\n");
}
END_TEST

#endif

/* Each thread with a stream of its own. */
static void *thread_of_pairs(void *arg)
{
	const cleave_stream *stream = arg;
	bool warm = pairs(SMALL_MAX, *stream) != 0;
	uint64_t before = locks;
	bool good = pairs(PAIRS / 8, *stream) != 0;
	return warm && good && locks == before ? NULL : arg;
}

START_TEST(no_lock_in_another_thread)
{
	open_heap();
	pthread_t thread;
	void *wrong;
	ck_assert_int_eq(pthread_create(&thread, NULL, thread_of_pairs, (void *)(uintptr_t)&streams[1]), 0);
	ck_assert_int_eq(pthread_join(thread, &wrong), 0);
	ck_assert_ptr_null(wrong);
	cleave_heap_stats stats;
	ck_assert_int_eq(cleave_heap_get_stats(heap, 0, &stats), 0);
	ck_assert_uint_eq(stats.allocs, SMALL_MAX + PAIRS / 8); /* its counts outlive it */
	ck_assert_uint_eq(stats.frees, stats.allocs);
	ck_assert_uint_eq(stats.live_bytes, 0);
	ck_assert_uint_eq(stats.cached_bytes, 0);
	close_heap();
}
END_TEST

CHECK_MAIN("fast_path", no_lock_and_no_driver_call, nor_with_reservations, no_lock_for_a_few_at_once, few_locks_for_many_at_once,
	   no_system_call, no_lock_in_another_thread)
