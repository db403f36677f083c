/* SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "recording.h"

#include "../../src/base/file_name.h"
#include "../../src/driver/driver.h"
#include "../../src/heap/observer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATH_ROOM 4096u
#define NAMES_MAX 1000u /* of one pattern and process id */

static _Atomic(void (*)(int, char *, size_t)) name_device;

uint64_t clv_recording_stream(cleave_stream s)
{
	if (s.id == CLEAVE_STREAM_ANY.id)
		return UINT64_MAX;
	if (s.handle <= 1 && !clv_stream_is_virtual(s.id))
		return 0;
	if (s.handle == 2) /* each thread has its own */
		return s.id << 2 | 2;
	return clv_stream_is_virtual(s.id) ? s.id : s.handle;
}

/* ---- what heaps tell ---- */

static const char *device_name(int device, char *out, size_t room)
{
	void (*describe)(int, char *, size_t) = atomic_load_explicit(&name_device, memory_order_acquire);
	if (!describe)
		return NULL;
	describe(device, out, room);
	return out;
}

static void tell(struct clv_observer *self, const struct clv_observed *w)
{
	char name[128];
	struct clv_record_event e = {.event = w->event,
				     .device = w->device,
				     .stream = clv_recording_stream(w->stream),
				     .addr = w->addr,
				     .size = w->size,
				     .a = w->a,
				     .b = w->b,
				     .text = w->text};
	(void)self;
	if (w->event == CLV_EVENT_FREE || w->event == CLV_EVENT_WAIT)
		e.b = clv_recording_stream(w->other);
	else if (w->event == CLV_EVENT_READY)
		e.a = clv_recording_stream(w->other);
	else if (CLV_UNLIKELY(w->event == CLV_EVENT_DEVICE))
		e.text = device_name(w->device, name, sizeof(name));
	clv_record_event(&e);
}

static struct clv_observer observer = {tell};

void clv_recording_device(int device, uint64_t total)
{
	tell(&observer,
	     &(struct clv_observed){
		     .event = CLV_EVENT_DEVICE, .device = device, .stream = CLEAVE_STREAM_ANY, .size = total});
}

/* ---- names ---- */

/* As the kernel writes it; opendir() would take host memory of the program's. */
struct entry {
	uint64_t ino, next;
	uint16_t len;
	uint8_t type;
	char name[];
};

/* True if there is a file that followed one of this name at its limit, when that may have been removed. */
static bool has_later(const char *path)
{
	_Alignas(8) char buf[4096];
	const char *slash = strrchr(path, '/');
	bool found = false;
	snprintf(buf, sizeof(buf), "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
	int fd = open(buf, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (long n; fd >= 0 && !found && (n = syscall(SYS_getdents64, fd, buf, sizeof(buf))) > 0;)
		for (long at = 0; at < n && !found;) {
			const struct entry *e = (const struct entry *)(buf + at);
			found = clv_file_name_is_later(slash ? slash + 1 : path, e->name);
			at += e->len;
		}
	if (fd >= 0)
		close(fd);
	return found;
}

/* Makes the file, which nobody has made before. 0 or a negative errno. */
static int claim(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0666);
	if (fd < 0)
		return -errno;
	close(fd);
	if (!has_later(path))
		return 0;
	unlink(path);
	return -EEXIST;
}

/* The name of a file that is ours alone, as are those that follow it. */
static bool own_name(const char *pattern, char *out, size_t room, struct clv_error *err)
{
	char further[PATH_ROOM];
	if (!clv_file_name_expand(pattern, out, room, err))
		return false;
	for (unsigned n = 1; claim(out) == -EEXIST; n++) { /* other errors are told by who opens it */
		if (n > NAMES_MAX)
			return clv_error_set(err, "%s is there already, as are %u before it; they are left alone", out,
					     NAMES_MAX);
		if (!clv_file_name_further(pattern, n, further, sizeof(further)))
			return clv_error_set(err, "%s: the name is too long", pattern);
		if (!clv_file_name_expand(further, out, room, err))
			return false;
	}
	return true;
}

/* ---- start and stop ---- */

bool clv_recording_start(const struct clv_recording_config *config, char *name, size_t room, struct clv_error *err)
{
	const struct clv_settings *s = config->settings;
	char path[PATH_ROOM], pattern[PATH_ROOM * 2], settings[2048];
	if (!(config->keep_files ? own_name(config->path, path, sizeof(path), err)
				 : clv_file_name_expand(config->path, path, sizeof(path), err)))
		return false;
	if (!clv_file_name_escape(path, pattern, sizeof(pattern)))
		return clv_error_set(err, "%s: the name is too long", path);
	if (name)
		snprintf(name, room, "%s", path);
	clv_settings_print(s, settings, sizeof(settings));
	const struct clv_record_config record = {
		.path = pattern,
		.buffer_bytes = s->trace_buffer,
		.limit_bytes = s->trace_limit,
		.keep = (uint32_t)s->trace_keep,
		.flush_ms = (uint32_t)s->trace_flush_ms,
		.stack_every = s->stacks == CLV_STACKS_OFF ? 0 : (uint32_t)clv_max_u64(s->stack_every, 1),
		.stack_above = s->stack_above,
		.stack_depth = (uint32_t)s->stack_depth,
		.python = s->stacks == CLV_STACKS_PYTHON || s->stacks == CLV_STACKS_ALL,
		.python_only = s->stacks == CLV_STACKS_PYTHON,
		.settings = settings,
		.say = config->say,
	};
	if (!clv_record_open(&record, err)) {
		if (config->keep_files)
			unlink(path); /* it is empty, and ours */
		return false;
	}
	atomic_store_explicit(&name_device, config->name_device, memory_order_release);
	clv_heaps_observe(&observer);
	return true;
}

bool clv_recording_stop(void)
{
	if (!clv_record_is_open())
		return false;
	clv_heaps_observe(NULL);
	clv_record_close();
	return true;
}
