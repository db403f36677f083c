/* SPDX-License-Identifier: MIT
 *
 * state: whether this process is served, and its heap. Opened under `lock` at the first call that finds CUDA initialised;
 * read without it. A process that is passed through stays so.
 *
 * In the child of a fork nothing of CUDA works that was made before it: if the heap was open, the child is passed through
 * and never takes a lock of ours; if not, it may open its own.
 */
#define _GNU_SOURCE
#include "ipc.h"
#include "seen.h"

#include "../base/clock.h"
#include "../live/stat_serve.h"
#include "../../tracing/record/record.h"

#include <cleave/plan.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct clv_process process;
_Atomic(const struct clv_process *) clv_process_opened;
static _Atomic bool passing; /* through, for good */
static _Atomic bool more_than_plain;
static _Atomic bool refused[DEVICES_MAX];

static void warn_setting(void *arg, const char *sentence)
{
	(void)arg;
	clv_say("CLEAVE_CONF: %s; ignored", sentence);
}

static void warn_heap(void *arg, const char *sentence)
{
	(void)arg;
	clv_say("%s", sentence);
}

static void say_sentence(const char *sentence)
{
	clv_say("%s", sentence);
}

static void in_child(void)
{
	clv_seen_in_child();
	if (atomic_load(&clv_process_opened)) {
		atomic_store(&clv_process_opened, NULL);
		atomic_store(&passing, true);
		clv_ipc_in_child();
		clv_stat_in_child();
	}
	pthread_mutex_init(&lock, NULL); /* another thread may have held it */
}

static bool cuda_is_up(void)
{
	int count = 0;
	const struct clv_cuda_api *real = clv_real();
	return clv_real_is_complete() && real->cuDeviceGetCount && real->cuDeviceGetCount(&count) == CUDA_SUCCESS && count > 0;
}

/* Everything passes through, and is recorded if it was asked for. */
static const struct clv_process *left_to_the_driver(void)
{
	if (!process.settings.off)
		clv_seen_open(&process.settings, false);
	else
		atomic_store(&clv_seen_how, CLV_SEEN_NOT);
	atomic_store(&passing, true);
	return NULL;
}

static void tell_recording(struct clv_stat_recording *out)
{
	struct clv_record_stats s;
	clv_record_get_stats(&s);
	*out = (struct clv_stat_recording){.on = clv_record_is_open(),
					   .events = s.events,
					   .dropped = s.dropped,
					   .bytes_written = s.bytes_written,
					   .files = s.files};
}

/* With the lock held. */
static const struct clv_process *open_now(void)
{
	struct clv_error err = {""};
	clv_settings_parse_lenient(&process.settings, getenv("CLEAVE_CONF"), warn_setting, NULL);
	pthread_atfork(NULL, NULL, in_child);
	if (process.settings.off || process.settings.observe)
		return left_to_the_driver();
	struct clv_cuda_config config = {.api = clv_real(),
					 .not_exportable = !process.settings.ipc,
					 .any_version = process.settings.any_driver};
	process.driver = clv_cuda_open(&config, &err);
	if (!process.driver) {
		clv_say("%s: memory is left to the driver", err.text);
		return left_to_the_driver();
	}
	if (clv_heap_open(&process.heap, process.driver, &process.settings)) {
		clv_say("no host memory for the heap: memory is left to the driver");
		process.driver->close(process.driver);
		return left_to_the_driver();
	}
	cleave_reserve_on_warning(process.heap, warn_heap, NULL);
	clv_graphs_open(process.driver);
	clv_seen_open(&process.settings, true);
	atomic_store_explicit(&clv_process_opened, &process, memory_order_release);
	clv_stat_serve(&(struct clv_live){.heap = process.heap,
					  .driver = process.driver,
					  .settings = &process.settings,
					  .say = say_sentence,
					  .recording = tell_recording,
					  .opened_ns = clv_clock_ns()});
	return &process;
}

const struct clv_process *clv_process_open(void)
{
	if (atomic_load_explicit(&passing, memory_order_relaxed) || !cuda_is_up())
		return NULL;
	pthread_mutex_lock(&lock);
	const struct clv_process *p = clv_process_if_open();
	if (!p && !atomic_load(&passing))
		p = open_now();
	pthread_mutex_unlock(&lock);
	return p;
}

bool clv_device_usable(const struct clv_process *p, int device)
{
	return device >= 0 && device < DEVICES_MAX && device < p->driver->devices &&
	       !atomic_load_explicit(&refused[device], memory_order_relaxed);
}

void clv_device_refused(const struct clv_process *p, int device, int why)
{
	(void)p;
	if (why == -ENODEV && device >= 0 && device < DEVICES_MAX && !atomic_exchange(&refused[device], true))
		clv_say("device %d cannot map memory (no virtual memory management): it is left to the driver", device);
}

void clv_saw_more_than_plain(void)
{
	if (CLV_UNLIKELY(!atomic_load_explicit(&more_than_plain, memory_order_relaxed)))
		atomic_store_explicit(&more_than_plain, true, memory_order_relaxed);
}

bool clv_plain_alone(void)
{
	return !atomic_load_explicit(&more_than_plain, memory_order_relaxed);
}

bool clv_reclaim(const struct clv_process *p, int device)
{
	bool any = clv_plain_reclaim(p, device);
	return clv_graphs_reclaim(p) || any;
}

/* True if the driver may have more now. */
static bool trim(bool wait)
{
	const struct clv_process *p = clv_process_if_open();
	bool any = false;
	if (p && wait) {
		for (int d = 0; d < p->driver->devices; d++)
			clv_plain_reclaim(p, d);
		any = clv_graphs_reclaim(p);
	} else if (p) {
		clv_graphs_settle(p);
	}
	for (int d = 0; p && d < p->driver->devices; d++) {
		uint64_t bytes = 0;
		struct clv_heap_usage usage;
		clv_heap_usage(p->heap, d, &usage);
		any |= usage.held && !clv_heap_trim(p->heap, d, 0, wait, &bytes) && bytes;
	}
	return any;
}

bool clv_trim_for_retry(int *step)
{
	while (*step < 2)
		if (trim((*step)++ == 1))
			return true;
	return false;
}
