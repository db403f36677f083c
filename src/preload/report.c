/* SPDX-License-Identifier: MIT
 *
 * report: what is said on stderr, in one write each, without the host program's malloc or its stdio. `lock` guards how
 * often failures are reported.
 */
#define _GNU_SOURCE
#include "preload.h"

#include "../base/clock.h"
#include "../base/fd.h"
#include "../base/size_text.h"

#include <cleave/plan.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A program may run out of memory on purpose, again and again: the first few failures are explained, then one in a while. */
#define FIRST_FAILURES 3
#define FAILURE_PAUSE_S 30

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned reported, left_out;
static time_t last_report;

/* Nobody may be reading any more: that ends no program which would not have written there itself. */
static void write_all(const char *text, size_t len)
{
	sigset_t pipe, before, pending;
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	sigpending(&pending);
	bool blocked = !sigismember(&pending, SIGPIPE) && !pthread_sigmask(SIG_BLOCK, &pipe, &before);
	if (!clv_fd_write(STDERR_FILENO, text, len) && errno == EPIPE && blocked)
		sigtimedwait(&pipe, NULL, &(struct timespec){0});
	if (blocked)
		pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void clv_say(const char *fmt, ...)
{
	char text[4096] = "cleave: ";
	const size_t start = strlen(text), room = sizeof(text) - 1; /* for the end of the line */
	va_list args;
	va_start(args, fmt);
	int n = vsnprintf(text + start, room - start, fmt, args);
	va_end(args);
	size_t len = n < 0 ? start : clv_min_u64(start + (size_t)n, room - 1);
	if (text[len - 1] != '\n')
		text[len++] = '\n';
	write_all(text, len);
}

void clv_report_failure(const struct clv_process *p, int device)
{
	cleave_failure failure;
	if (!p->settings.report || cleave_heap_last_failure(p->heap, device, &failure))
		return;
	time_t now = (time_t)(clv_clock_ns() / 1000000000u);
	pthread_mutex_lock(&lock);
	bool due = reported < FIRST_FAILURES || now - last_report >= FAILURE_PAUSE_S;
	unsigned silent = left_out;
	left_out = due ? 0 : left_out + 1;
	if (due) {
		reported++;
		last_report = now;
	}
	pthread_mutex_unlock(&lock);
	if (!due)
		return;
	char text[3072], more[96] = "";
	cleave_failure_print(&failure, text, sizeof(text));
	if (silent)
		snprintf(more, sizeof(more), " (%u failures before this one were not reported)", silent);
	clv_say("device %d: %s%s", device, text, more);
}

/* One line each. */
static void report_reservations(const struct clv_process *p, int device)
{
	cleave_reservation_stats stats[64];
	size_t count;
	if (cleave_reserve_stats(p->heap, device, stats, CLV_ARRAY_LEN(stats), &count))
		return;
	for (size_t i = 0; i < clv_min_u64(count, CLV_ARRAY_LEN(stats)); i++) {
		char text[1024];
		cleave_reservation_print(&stats[i], text, sizeof(text));
		clv_say("process %ld, device %d: %s", (long)getpid(), device, text);
	}
}

void clv_report_stats(const struct clv_process *p)
{
	for (int d = 0; d < p->driver->devices; d++) {
		struct clv_heap_usage usage;
		clv_heap_usage(p->heap, d, &usage);
		cleave_heap_stats s;
		if (!usage.held_peak || cleave_heap_get_stats(p->heap, d, &s))
			continue;
		char live[32], live_peak[32], held[32], held_peak[32], metadata[32];
		clv_say("process %ld, device %d: live %s (peak %s), held %s (peak %s), %" PRIu64
			" allocations, %" PRIu64 " frees, %" PRIu64 " failures; frames: %" PRIu64 " created, %" PRIu64
			" released, %" PRIu64 " moved; waits: %" PRIu64 " on the device, %" PRIu64
			" of the host; metadata %s",
			(long)getpid(), d, clv_size_print(s.live_bytes, live, sizeof(live)),
			clv_size_print(s.live_peak_bytes, live_peak, sizeof(live_peak)),
			clv_size_print(s.held_bytes, held, sizeof(held)),
			clv_size_print(s.held_peak_bytes, held_peak, sizeof(held_peak)), s.allocs, s.frees, s.failures,
			s.frames_created, s.frames_released, s.frames_moved, s.device_waits, s.host_waits,
			clv_size_print(s.metadata_bytes, metadata, sizeof(metadata)));
		report_reservations(p, d);
	}
}

__attribute__((destructor)) static void at_end(void)
{
	const struct clv_process *p = clv_process_if_open();
	if (p && p->settings.stats)
		clv_report_stats(p);
}
