/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "metrics.h"

#include "../base/clock.h"
#include "../base/fd.h"
#include "../base/file_name.h"
#include "../host/meta.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the text ---- */

struct text {
	char *buf;
	size_t len, room;
	bool failed; /* host memory is out */
	int64_t rank;
};

static void CLV_PRINTF(2, 3) say(struct text *t, const char *fmt, ...)
{
	va_list ap;
	while (!t->failed) {
		va_start(ap, fmt);
		int n = vsnprintf(t->buf ? t->buf + t->len : NULL, t->room - t->len, fmt, ap);
		va_end(ap);
		if (n >= 0 && (size_t)n < t->room - t->len) {
			t->len += (size_t)n;
			return;
		}
		size_t room = t->room * 2 + 16 * CLV_KIB;
		char *more = n < 0 ? NULL : clv_meta_realloc(t->buf, room);
		t->failed = !more;
		if (more) {
			t->buf = more;
			t->room = room;
		}
	}
}

static void family(struct text *t, const char *name, const char *type, const char *help)
{
	say(t, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* As the format wants values of labels: backslash, quote and line feed are escaped. */
static void say_value(struct text *t, const char *value)
{
	for (const char *c = value; *c; c++)
		if (*c == '\n')
			say(t, "\\n");
		else
			say(t, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
}

/* name{device="0",label="value",rank="3"}; `device` -1 and `label` NULL: none such */
static void series(struct text *t, const char *name, int64_t device, const char *label, const char *value)
{
	const char *before = "{";
	say(t, "%s", name);
	if (device >= 0) {
		say(t, "%sdevice=\"%" PRId64 "\"", before, device);
		before = ",";
	}
	if (label) {
		say(t, "%s%s=\"", before, label);
		say_value(t, value);
		say(t, "\"");
		before = ",";
	}
	if (t->rank >= 0) {
		say(t, "%srank=\"%" PRId64 "\"", before, t->rank);
		before = ",";
	}
	say(t, "%s ", *before == ',' ? "}" : "");
}

/* ---- what is told of each device ---- */

#define STATE(member) offsetof(struct clv_heap_state, member)
#define STATS(member) offsetof(struct clv_heap_state, stats.member)
#define SORTED(member) offsetof(struct clv_heap_state, sorted.member)

/* One row a series; rows of one name stand together. Each value is a uint64_t of clv_heap_state. */
static const struct row {
	const char *name, *type, *help, *label, *value;
	size_t at;
} rows[] = {
	{"cleave_requested_bytes", "gauge", "Bytes of live blocks, each request rounded up to 512.", NULL, NULL,
	 SORTED(live)},
	{"cleave_requested_peak_bytes", "gauge", "Most bytes of live blocks so far.", NULL, NULL,
	 STATS(live_peak_bytes)},
	{"cleave_reserved_bytes", "gauge", "Bytes of device memory held.", NULL, NULL, SORTED(held)},
	{"cleave_reserved_peak_bytes", "gauge", "Most bytes of device memory held so far.", NULL, NULL,
	 STATS(held_peak_bytes)},
	{"cleave_mapped_bytes", "gauge", "Bytes of the memory held that have an address.", NULL, NULL, STATE(mapped)},
	{"cleave_largest_free_bytes", "gauge", "The largest free piece that is mapped.", NULL, NULL,
	 STATS(largest_hole_bytes)},
	{"cleave_stranded_bytes", "gauge",
	 "Free bytes of the memory held: between live ones (hard), whole and not given back (soft), waiting for a stream (stream).",
	 "cause", "hard", SORTED(hard)},
	{"cleave_stranded_bytes", NULL, NULL, "cause", "soft", SORTED(soft)},
	{"cleave_stranded_bytes", NULL, NULL, "cause", "stream", SORTED(stream)},
	{"cleave_blocks", "gauge", "Numbers of blocks.", "state", "live", STATS(live_blocks)},
	{"cleave_blocks", NULL, NULL, "state", "free", STATS(free_blocks)},
	{"cleave_frames", "gauge", "Physical allocations held.", NULL, NULL, STATS(frames)},
	{"cleave_frees_total", "counter", "Blocks freed.", NULL, NULL, STATS(frees)},
	{"cleave_splits_total", "counter", "Free blocks that were cut for a request.", NULL, NULL, STATS(splits)},
	{"cleave_merges_total", "counter", "Free blocks that became one with a neighbour.", NULL, NULL, STATS(merges)},
	{"cleave_frames_created_total", "counter", "Physical allocations bought of the driver.", NULL, NULL,
	 STATS(frames_created)},
	{"cleave_frames_released_total", "counter", "Physical allocations given back.", NULL, NULL,
	 STATS(frames_released)},
	{"cleave_frames_moved_total", "counter", "Physical allocations mapped at another address.", NULL, NULL,
	 STATS(frames_moved)},
	{"cleave_waits_total", "counter", "Waits for work of streams.", "by", "host", STATS(host_waits)},
	{"cleave_waits_total", NULL, NULL, "by", "device", STATS(device_waits)},
};

static uint64_t value_at(const struct clv_stat_part *part, size_t at)
{
	uint64_t value;
	memcpy(&value, (const char *)&part->device->state + at, sizeof(value));
	return value;
}

static void say_rows(struct text *t, const struct clv_stat_view *v)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(rows); i++) {
		if (rows[i].type)
			family(t, rows[i].name, rows[i].type, rows[i].help);
		for (unsigned d = 0; d < v->used; d++) {
			series(t, rows[i].name, v->parts[d].device->device, rows[i].label, rows[i].value);
			say(t, "%" PRIu64 "\n", value_at(&v->parts[d], rows[i].at));
		}
	}
}

/* ---- what is computed ---- */

static double ratio(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

static void say_sums(struct text *t, const struct clv_stat_view *v)
{
	family(t, "cleave_allocated_bytes", "gauge",
	       "Bytes that live blocks take, with what each has beyond the request.");
	for (unsigned d = 0; d < v->used; d++) {
		const struct clv_breakdown *b = &v->parts[d].device->state.sorted;
		series(t, "cleave_allocated_bytes", v->parts[d].device->device, NULL, NULL);
		say(t, "%" PRIu64 "\n", b->live + b->internal);
	}
	family(t, "cleave_fragmentation_ratio", "gauge",
	       "Of the memory held the part that is stranded between live blocks (external); of what live blocks take the part "
	       "beyond the requests (internal).");
	for (unsigned d = 0; d < v->used; d++) {
		const struct clv_breakdown *b = &v->parts[d].device->state.sorted;
		series(t, "cleave_fragmentation_ratio", v->parts[d].device->device, "kind", "external");
		say(t, "%.6f\n", ratio(b->hard, b->held));
		series(t, "cleave_fragmentation_ratio", v->parts[d].device->device, "kind", "internal");
		say(t, "%.6f\n", ratio(b->internal, b->live + b->internal));
	}
	family(t, "cleave_allocations_total", "counter", "Requests served: up to 32 KiB (small), above (large).");
	for (unsigned d = 0; d < v->used; d++) {
		const struct clv_heap_state *s = &v->parts[d].device->state;
		series(t, "cleave_allocations_total", v->parts[d].device->device, "class", "small");
		say(t, "%" PRIu64 "\n", s->small_allocs);
		series(t, "cleave_allocations_total", v->parts[d].device->device, "class", "large");
		say(t, "%" PRIu64 "\n", s->stats.allocs - s->small_allocs);
	}
	family(t, "cleave_oom_total", "counter",
	       "Requests that failed: for want of memory (capacity), or as the driver refused (driver).");
	for (unsigned d = 0; d < v->used; d++) {
		const struct clv_heap_state *s = &v->parts[d].device->state;
		series(t, "cleave_oom_total", v->parts[d].device->device, "cause", "capacity");
		say(t, "%" PRIu64 "\n", s->stats.failures - s->failures_refused);
		series(t, "cleave_oom_total", v->parts[d].device->device, "cause", "driver");
		say(t, "%" PRIu64 "\n", s->failures_refused);
	}
}

/* ---- reservations ---- */

/* A reservation is told by its name, or else its size; those that are called the same are one series. */
static void class_of(const cleave_reservation_stats *r, char out[CLEAVE_RESERVATION_NAME])
{
	if (r->name[0])
		snprintf(out, CLEAVE_RESERVATION_NAME, "%s", r->name);
	else
		snprintf(out, CLEAVE_RESERVATION_NAME, "%" PRIu64, r->bytes);
}

static void say_reservations(struct text *t, const struct clv_stat_part *part)
{
	char cls[CLEAVE_RESERVATION_NAME], other[CLEAVE_RESERVATION_NAME];
	const cleave_reservation_stats *all = part->reservations;
	for (uint64_t i = 0; i < part->device->reservations; i++) {
		uint64_t bytes = 0;
		bool told = false;
		class_of(&all[i], cls);
		for (uint64_t k = 0; k < part->device->reservations && !told; k++) {
			class_of(&all[k], other);
			if (strcmp(cls, other))
				continue;
			told = k < i;
			bytes += all[k].held * clv_align_up(all[k].bytes, CLV_GRAIN);
		}
		if (told)
			continue;
		series(t, "cleave_reservation_bytes", part->device->device, "class", cls);
		say(t, "%" PRIu64 "\n", bytes);
	}
}

/* ---- of the process ---- */

/* The driver counts for all devices together; the label is there all the same, so that sums over it are right. */
static void say_driver(struct text *t, const struct clv_call_counts *c)
{
	char rank[32] = "";
	if (t->rank >= 0)
		snprintf(rank, sizeof(rank), ",rank=\"%" PRId64 "\"", t->rank);
	family(t, "cleave_driver_calls_total", "counter", "Calls of the CUDA driver.");
	for (unsigned i = 0; i < CLV_CALL_COUNT; i++)
		say(t, "cleave_driver_calls_total{device=\"all\",call=\"%s\"%s} %" PRIu64 "\n",
		    clv_call_name((enum clv_call)i), rank, c->calls[i]);
	family(t, "cleave_driver_call_seconds_total", "counter", "Time spent in these calls.");
	say(t, "cleave_driver_call_seconds_total{device=\"all\"%s} %" PRIu64 ".%09" PRIu64 "\n", rank,
	    c->ns / 1000000000, c->ns % 1000000000);
}

/* Only where there is a recording; for all devices together, as above. */
static void say_recording(struct text *t, const struct clv_stat_recording *r)
{
	const struct {
		const char *name, *help;
		uint64_t value;
	} counters[] = {
		{"cleave_trace_events_total", "Events written into the recording.", r->events},
		{"cleave_trace_dropped_events_total", "Events lost to the recording.", r->dropped},
		{"cleave_trace_written_bytes_total", "Bytes written into the files of the recording.",
		 r->bytes_written},
	};
	for (size_t i = 0; r->files && i < CLV_ARRAY_LEN(counters); i++) {
		family(t, counters[i].name, "counter", counters[i].help);
		series(t, counters[i].name, -1, "device", "all");
		say(t, "%" PRIu64 "\n", counters[i].value);
	}
}

char *clv_metrics_print(const struct clv_stat_view *view, int64_t rank, size_t *len)
{
	struct text t = {.rank = rank};
	family(&t, "cleave_build_info", "gauge", "The version of Cleave; always 1.");
	series(&t, "cleave_build_info", -1, "version", view->process->library);
	say(&t, "1\n");
	if (view->used) {
		say_rows(&t, view);
		say_sums(&t, view);
		family(&t, "cleave_reservation_bytes", "gauge",
		       "Bytes held back for requests to come, by reservation.");
		for (unsigned d = 0; d < view->used; d++)
			say_reservations(&t, &view->parts[d]);
	}
	say_driver(&t, &view->process->driver);
	say_recording(&t, &view->process->recording);
	if (t.failed) {
		clv_meta_free(t.buf);
		return NULL;
	}
	*len = t.len;
	return t.buf;
}

/* ---- the file ---- */

static struct {
	char name[PATH_MAX], temporary[PATH_MAX + 32];
	int64_t rank;
	uint64_t due_ns;
	bool said;
} file;

bool clv_metrics_open(const struct clv_live *live)
{
	char name[CLV_SETTING_FILE + 32];
	bool known;
	if (!live->settings->metrics[0] || !clv_file_name_expand(live->settings->metrics, name, sizeof(name), NULL))
		return false;
	clv_file_name_absolute(name, file.name, sizeof(file.name));
	/* of this process alone: one that has the same name must not publish what this one has begun to write. The collector reads
	 * what ends in .prom */
	snprintf(file.temporary, sizeof(file.temporary), "%s.%ld.tmp", file.name, (long)getpid());
	uint32_t rank = clv_process_rank(&known);
	file.rank = known ? (int64_t)rank : -1;
	file.due_ns = 0;
	file.said = false;
	return true;
}

/* False with errno. */
static bool replace_file(const char *text, size_t len)
{
	int fd = clv_fd_off_std(open(file.temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
	if (fd < 0)
		return false;
	bool good = clv_fd_write(fd, text, len);
	int why = errno;
	if (close(fd) && good) {
		good = false;
		why = errno;
	}
	if (good && !rename(file.temporary, file.name))
		return true;
	why = good ? errno : why;
	unlink(file.temporary);
	errno = why;
	return false;
}

static bool write_file(const struct clv_live *live)
{
	struct clv_stat_view view;
	size_t answer_len, len;
	void *answer = clv_gather(live, CLV_STAT_ASK, &answer_len);
	char *text = answer && clv_stat_view(answer, answer_len, &view, NULL)
			     ? clv_metrics_print(&view, file.rank, &len)
			     : NULL;
	bool good = text && replace_file(text, len);
	int why = text ? errno : ENOMEM;
	clv_meta_free(text);
	clv_meta_free(answer);
	errno = why;
	return good;
}

int clv_metrics_work(const struct clv_live *live)
{
	uint64_t now = clv_clock_ns();
	if (now < file.due_ns)
		return (int)((file.due_ns - now) / 1000000 + 1);
	if (write_file(live)) {
		file.said = false;
	} else if (!file.said) {
		char sentence[sizeof(file.name) + 128];
		snprintf(sentence, sizeof(sentence), "the metrics cannot be written to %s: %s", file.name,
			 strerrordesc_np(errno));
		live->say(sentence);
		file.said = true;
	}
	file.due_ns = clv_clock_ns() + live->settings->metrics_ms * 1000000;
	return (int)live->settings->metrics_ms;
}
