/* SPDX-License-Identifier: MIT */
#include "record_writer.h"

#include "../../src/base/clock.h"
#include "../../src/base/file_name.h"
#include "../../src/host/meta.h"
#include "../trace.h"
#include "stack.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MS ((uint64_t)1000000)
#define COST_MAX (2 * CLV_MIB) /* of a chunk before it is packed, about */
#define EVENT_COST 32u         /* bytes that one takes, about; columns are shorter as a rule */
#define NOTE_COST 64u
#define RETRY_MS 50u      /* until a disk that took nothing is tried again */
#define SLOW_MS 50u       /* a disk that takes so long for a chunk is what makes events drop */
#define POLL_MS 1000u     /* between looks for new modules */
#define FORK_WAIT_MS 500u /* a child that has not told its id by then does not */

struct clv_writer_device {
	int device;
	struct clv_encode_events events;
	struct clv_encode_notes notes;
	bool described; /* what follows was told of it; later files begin with it */
	struct clv_raw description;
	char name[256];
};

struct clv_cursor {
	struct clv_ring *ring;
	uint64_t at, end, time; /* time: of the record at `at` */
};

enum saying { SAY_DISK, SAY_LIMIT, SAY_MEMORY, SAY_SLOW, SAY_FILE };

static void say(struct clv_writer *w, enum saying what, const char *fmt, ...) CLV_PRINTF(3, 4);

static void say(struct clv_writer *w, enum saying what, const char *fmt, ...)
{
	struct clv_error sentence = {{0}};
	va_list ap;
	if (w->said[what] || !w->config.say)
		return;
	w->said[what] = true;
	va_start(ap, fmt);
	vsnprintf(sentence.text, sizeof(sentence.text), fmt, ap);
	va_end(ap);
	w->config.say(sentence.text);
}

static void name_errno(int status, char *out, size_t room)
{
	if (strerror_r(status, out, room))
		snprintf(out, room, "error %d", status);
}

/* ---- waiting ---- */

void clv_writer_wake(struct clv_record_shared *shared)
{
	if (atomic_exchange(&shared->sleeping, 0))
		syscall(SYS_futex, &shared->sleeping, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Unless there is something to do. */
static void sleep_for(struct clv_writer *w, uint64_t ns, bool flushing)
{
	struct clv_record_shared *s = w->shared;
	struct timespec t = clv_clock_timespec(ns);
	atomic_store(&s->sleeping, 1);
	if (!atomic_load(&s->stop) && (flushing || atomic_load(&s->flush_asked) == atomic_load(&s->flush_done)))
		syscall(SYS_futex, &s->sleeping, FUTEX_WAIT_PRIVATE, 1, &t, NULL, 0);
	atomic_store(&s->sleeping, 0);
}

/* ---- what goes into a chunk ---- */

static struct clv_writer_device *device_of(struct clv_writer *w, int device)
{
	for (uint32_t i = 0; i < w->device_count; i++)
		if (w->devices[i].device == device)
			return &w->devices[i];
	if (w->device_count == w->device_cap) {
		uint32_t cap = w->device_cap ? w->device_cap * 2 : 8;
		struct clv_writer_device *grown = clv_meta_realloc(w->devices, cap * sizeof(*grown));
		if (!grown) {
			w->encoder.failed = true;
			return NULL;
		}
		w->devices = grown;
		w->device_cap = cap;
	}
	struct clv_writer_device *d = &w->devices[w->device_count++];
	*d = (struct clv_writer_device){.device = device};
	return d;
}

static void put_note(struct clv_writer *w, struct clv_writer_device *d, const struct clv_raw *raw, uint32_t thread,
		     const char *text)
{
	struct clv_encoder *e = &w->encoder;
	struct clv_encode_note n = {.time = raw->time,
				    .addr = raw->addr,
				    .size = raw->size,
				    .a = raw->a,
				    .b = raw->b,
				    .event = UINT64_MAX,
				    .thread = thread,
				    .kind = raw->event};
	n.stream = raw->stream == UINT64_MAX ? 0 : clv_tables_stream(e, &w->tables, raw->stream) + 1;
	n.text = raw->text_len ? clv_tables_string(e, &w->tables, text, raw->text_len) + 1 : 0;
	n.stack = clv_tables_stack(e, &w->tables, raw->stack);
	clv_encode_note(e, d ? &d->notes : &w->loose, &n);
	w->chunk_cost += NOTE_COST;
}

static void put_request(struct clv_writer *w, struct clv_writer_device *d, const struct clv_raw *raw, uint32_t thread)
{
	struct clv_encoder *e = &w->encoder;
	struct clv_encode_event event = {.time = raw->time, .addr = raw->addr, .size = raw->size, .thread = thread};
	event.action = raw->event == CLV_EVENT_ALLOC  ? CLV_ACTION_ALLOC
		       : raw->event == CLV_EVENT_FREE ? CLV_ACTION_FREE_COMPLETED
						      : CLV_ACTION_OOM;
	if (raw->event == CLV_EVENT_ALLOC && raw->a > raw->size)
		event.slack = (uint32_t)clv_min_u64(raw->a - raw->size, UINT32_MAX);
	if (raw->event == CLV_EVENT_FAIL)
		event.size = clv_min_u64(event.size, INT64_MAX);
	event.stream = clv_tables_stream(e, &w->tables, raw->stream);
	event.stack = clv_tables_stack(e, &w->tables, raw->stack);
	clv_encode_event(e, &d->events, &event);
	w->chunk_cost += EVENT_COST;
}

static bool is_request(const struct clv_raw *raw)
{
	return raw->event == CLV_EVENT_ALLOC || raw->event == CLV_EVENT_FREE || raw->event == CLV_EVENT_FAIL;
}

/* Readers refuse what cannot be, so they must not get it. */
static bool makes_sense(const struct clv_raw *raw)
{
	if (raw->device > CLV_DEVICE_MAX)
		return false;
	if (raw->event == CLV_EVENT_FAIL || !is_request(raw))
		return true;
	return raw->addr <= INT64_MAX && raw->size <= INT64_MAX && raw->addr + raw->size <= INT64_MAX;
}

static void put(struct clv_writer *w, const struct clv_raw *raw, uint32_t thread, const char *text)
{
	struct clv_writer_device *d = NULL;
	if (!w->chunk_begun)
		w->chunk_begun = raw->time;
	w->chunk_events++;
	if (raw->device >= 0 || is_request(raw)) {
		d = device_of(w, raw->device < 0 ? 0 : raw->device);
		if (!d)
			return;
	}
	if (is_request(raw))
		put_request(w, d, raw, thread);
	if (raw->event != CLV_EVENT_ALLOC && raw->event != CLV_EVENT_FREE)
		put_note(w, d, raw, thread, text);
	if (raw->event == CLV_EVENT_DEVICE && d) {
		d->described = true;
		d->description = *raw;
		d->description.text_len = (uint32_t)clv_min_u64(raw->text_len, sizeof(d->name));
		memcpy(d->name, text, d->description.text_len);
	}
}

static void put_own(struct clv_writer *w, struct clv_raw raw, uint32_t thread, const char *text)
{
	raw.stream = UINT64_MAX;
	raw.text_len = text ? (uint32_t)clv_min_u64(strlen(text), CLV_RAW_TEXT_MAX) : 0;
	put(w, &raw, thread, text);
}

static void put_drop(struct clv_writer *w, enum clv_drop_cause cause, uint64_t count, uint32_t thread)
{
	w->drops[cause] += count;
	w->drops_told[cause] += count;
	w->chunk_drops[cause] += count;
	atomic_fetch_add_explicit(&w->shared->dropped, count, memory_order_relaxed);
	put_own(w,
		(struct clv_raw){
			.event = CLV_EVENT_DROPPED, .device = -1, .time = clv_clock_ns(), .size = count, .a = cause},
		thread, NULL);
}

/* The command as /proc has it, with spaces between its words. */
static void read_command(char *out, size_t room)
{
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, out, room - 1);
	if (fd >= 0)
		close(fd);
	while (n > 0 && !out[n - 1])
		n--;
	for (ssize_t i = 0; i < n; i++)
		if (!out[i])
			out[i] = ' ';
	out[n > 0 ? n : 0] = '\0';
}

/* What each file begins with. */
static void put_process(struct clv_writer *w)
{
	char command[1024];
	struct timespec wall;
	bool has_rank;
	uint64_t rank = clv_process_rank(&has_rank), now = clv_clock_ns(), begun = w->begun;
	clock_gettime(CLOCK_REALTIME, &wall);
	read_command(command, sizeof(command));
	put_own(w,
		(struct clv_raw){.event = CLV_EVENT_PROCESS,
				 .device = -1,
				 .time = begun,
				 .addr = (uint64_t)getpid(),
				 .size = (uint64_t)getppid(),
				 .a = has_rank ? rank : UINT64_MAX,
				 .b = (uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec - (now - begun)},
		0, command);
	if (w->config.settings)
		put_own(w, (struct clv_raw){.event = CLV_EVENT_SETTINGS, .device = -1, .time = begun}, 0,
			w->config.settings);
	for (uint32_t i = 0; i < w->device_count; i++)
		if (w->devices[i].described) {
			struct clv_raw again = w->devices[i].description;
			again.time = begun;
			put(w, &again, 0, w->devices[i].name);
		}
}

/* ---- chunks ---- */

static void clear_columns(struct clv_writer *w)
{
	for (uint32_t i = 0; i < w->device_count; i++) {
		clv_encode_events_free(&w->encoder, &w->devices[i].events);
		clv_encode_notes_free(&w->encoder, &w->devices[i].notes);
	}
	clv_encode_notes_free(&w->encoder, &w->loose);
}

/* Puts the records that are in the encoder's chunk behind what is packed. */
static void pack(struct clv_writer *w, bool plain)
{
	struct clv_encoder *e = &w->encoder;
	size_t at = w->packed.len;
	if (!clv_buf_reserve(e, &w->packed, CLV_CHUNK_HEADER))
		return;
	w->packed.len += CLV_CHUNK_HEADER;
	if (plain ? clv_pack_plain(e, &e->chunk, &w->packed) : clv_pack(&w->packer, e, &e->chunk, &w->packed)) {
		uint8_t *header = w->packed.data + at;
		clv_encode_chunk_header(header, header + CLV_CHUNK_HEADER, w->packed.len - at - CLV_CHUNK_HEADER,
					e->chunk.len);
	} else {
		w->packed.len = at;
	}
	e->chunk.len = 0;
}

static void end_chunk(struct clv_writer *w, bool plain)
{
	struct clv_encoder *e = &w->encoder;
	uint64_t told = w->chunk_events, taken = w->chunk_taken;
	w->chunk_events = w->chunk_taken = w->chunk_cost = w->chunk_begun = 0;
	if (!told)
		return;
	clv_tables_end(e, &w->tables);
	for (uint32_t i = 0; i < w->device_count; i++) {
		struct clv_writer_device *d = &w->devices[i];
		clv_encode_events_end(e, &d->events, (uint64_t)d->device, 1);
		clv_encode_notes_end(e, &d->notes, d->device, 1);
	}
	clv_encode_notes_end(e, &w->loose, -1, 1);
	pack(w, plain);
	if (!e->failed) {
		clv_tables_kept(&w->tables);
		memset(w->chunk_drops, 0, sizeof(w->chunk_drops));
		w->packed_taken += taken;
		return;
	}
	say(w, SAY_MEMORY, "recording: out of host memory; events are lost");
	e->failed = false;
	clear_columns(w);
	e->chunk.len = e->record.len = 0;
	clv_tables_lost(e, &w->tables);
	e->failed = false;
	/* told in the next chunk, as is what this one would have told */
	w->drops[CLV_DROP_MEMORY] += taken;
	for (int i = 0; i < CLV_DROP_CAUSES; i++) {
		w->drops_told[i] -= w->chunk_drops[i];
		atomic_fetch_sub_explicit(&w->shared->dropped, w->chunk_drops[i], memory_order_relaxed);
		w->chunk_drops[i] = 0;
	}
}

static void put_map(struct clv_writer *w, const struct clv_live_map *m)
{
	for (size_t i = 0; i < m->count; i++) {
		if (!m->slots[i].used)
			continue;
		struct clv_raw raw = m->slots[i].raw;
		raw.time = w->begun;
		raw.text_len = 0; /* no such event has one */
		put(w, &raw, m->slots[i].thread, NULL);
		if (w->chunk_cost + w->tables.cost >= w->cost_max)
			end_chunk(w, false);
	}
}

/* What there is, as if it came about when the file begins, which is between the last event that was taken and the next; an event
 * of before that comes late must not seem to have been before this. Not if half of the file would be full of it. */
static void put_live(struct clv_writer *w)
{
	w->floor = w->begun + 1;
	if ((w->live.blocks.used + w->live.frames.used) * EVENT_COST > w->config.limit_bytes / 2)
		return;
	put_map(w, &w->live.frames);
	put_map(w, &w->live.blocks);
}

/* False: host memory is out, and the file has no header. */
static bool begin_file(struct clv_writer *w, bool plain)
{
	w->encoder.failed = false; /* of the file before, whose end is missing then */
	if (!clv_buf_reserve(&w->encoder, &w->packed, CLV_FILE_HEADER)) {
		w->encoder.failed = false;
		return false;
	}
	clv_encode_file_header(w->packed.data + w->packed.len);
	w->packed.len += CLV_FILE_HEADER;
	clv_tables_begin(&w->encoder, &w->tables);
	if (w->newest)
		w->begun = w->newest;
	put_process(w);
	put_live(w);
	end_chunk(w, plain);
	atomic_fetch_add_explicit(&w->shared->files, 1, memory_order_relaxed);
	return true;
}

static void end_file(struct clv_writer *w)
{
	clv_encode_end(&w->encoder, CLV_REC_END);
	pack(w, false);
}

/* ---- the file ---- */

static void say_disk(struct clv_writer *w, int status)
{
	char reason[128];
	atomic_store_explicit(&w->shared->disk_errno, -status, memory_order_relaxed);
	name_errno(-status, reason, sizeof(reason));
	say(w, SAY_DISK, "recording into %s: %s; events are dropped until it can be written again", w->file.name,
	    reason);
}

/* Appends what is packed. False: the disk takes nothing. */
static bool append(struct clv_writer *w)
{
	if (!w->packed.len)
		return true;
	uint64_t begun = clv_clock_ns();
	int status = clv_record_file_append(&w->file, w->packed.data, w->packed.len);
	w->stalled |= status || clv_clock_ns() - begun > SLOW_MS * MS;
	if (status) {
		say_disk(w, status);
		return false;
	}
	atomic_fetch_add_explicit(&w->shared->bytes, w->packed.len, memory_order_relaxed);
	atomic_fetch_add_explicit(&w->shared->events, w->packed_taken, memory_order_relaxed);
	w->packed.len = w->packed_taken = 0;
	return true;
}

/* Whether the next chunk could be too much for the file. */
static bool is_full(const struct clv_writer *w)
{
	return w->config.limit_bytes && w->file.size + w->cost_max + w->cost_max / 2 > w->config.limit_bytes;
}

/* Does with the file what is due: what is packed, its end at the limit, the next one. False: the disk takes nothing. */
static bool advance(struct clv_writer *w)
{
	for (;;) {
		if (!append(w))
			return false;
		switch (w->rotation) {
		case CLV_ROTATE_NOT:
			if (!is_full(w) || w->limit_reached)
				return true;
			if (!w->config.keep) {
				w->limit_reached = true;
				say(w, SAY_LIMIT,
				    "recording: %s has reached its limit of %llu bytes; what comes is not recorded",
				    w->file.name, (unsigned long long)w->config.limit_bytes);
				return true;
			}
			end_file(w);
			w->rotation = CLV_ROTATE_NEXT;
			break;
		case CLV_ROTATE_NEXT: {
			int status = clv_record_file_open(&w->file, w->next_number);
			if (!status && !begin_file(w, false))
				status = -ENOMEM;
			if (status) {
				w->stalled = true;
				say_disk(w, status);
				return false;
			}
			w->next_number++;
			for (; w->next_number - w->first_kept > (uint64_t)w->config.keep + 1; w->first_kept++)
				clv_record_file_remove(&w->file, w->first_kept);
			w->rotation = CLV_ROTATE_NOT;
			/* a file that is full from the start would be followed by another without end */
			return append(w);
		}
		}
	}
}

/* ---- passes ---- */

static void sift(struct clv_cursor *c, size_t count, size_t i)
{
	for (;;) {
		size_t child = 2 * i + 1;
		if (child >= count)
			return;
		if (child + 1 < count && c[child + 1].time < c[child].time)
			child++;
		if (c[i].time <= c[child].time)
			return;
		struct clv_cursor t = c[i];
		c[i] = c[child];
		c[child] = t;
		i = child;
	}
}

static const struct clv_raw *raw_at(const struct clv_ring *ring, uint64_t at)
{
	return &ring->slots[at & (ring->slot_count - 1)].raw;
}

/* Whether the cursor stands on a record of before `cutoff`. */
static bool look(struct clv_cursor *c, uint64_t cutoff)
{
	if (c->at == c->end)
		return false;
	c->time = raw_at(c->ring, c->at)->time;
	return c->time < cutoff;
}

static void take(struct clv_writer *w, struct clv_cursor *c)
{
	struct clv_ring *ring = c->ring;
	struct clv_raw raw = *raw_at(ring, c->at);
	char text[CLV_RAW_TEXT_MAX];
	uint32_t slots = (raw.text_len + 63) / 64;
	for (uint32_t i = 0; i < slots; i++)
		memcpy(text + i * 64, ring->slots[(c->at + 1 + i) & (ring->slot_count - 1)].text, 64);
	raw.time = clv_max_u64(clv_ticks_ns(&w->scale, raw.time), ring->taken_ns + 1);
	ring->taken_ns = raw.time;
	if (w->limit_reached) {
		w->drops[CLV_DROP_LIMIT]++;
	} else if (!makes_sense(&raw)) {
		w->drops[CLV_DROP_MEMORY]++;
	} else {
		if (raw.time < w->floor)
			raw.time = w->floor++; /* one after the other, as they were */
		w->newest = clv_max_u64(w->newest, raw.time);
		if (w->config.limit_bytes && w->config.keep)
			clv_live_take(&w->encoder, &w->live, &raw, ring->thread);
		put(w, &raw, ring->thread, text);
		w->chunk_taken++;
	}
	c->at += 1 + slots;
}

/* Gives the room of what was taken back to the thread. */
static void give_back(struct clv_cursor *c)
{
	atomic_store_explicit(&c->ring->tail, c->at, memory_order_release);
}

/* What is counted in `drops` and was not told of. */
static void tell_counted(struct clv_writer *w)
{
	for (int i = 0; i < CLV_DROP_CAUSES; i++)
		if (w->drops[i] != w->drops_told[i]) {
			uint64_t count = w->drops[i] - w->drops_told[i];
			w->drops[i] -= count; /* put_drop() counts it */
			put_drop(w, i, count, 0);
		}
}

/* Of what was dropped since the last pass. */
static void tell_drops(struct clv_writer *w)
{
	enum clv_drop_cause cause = w->limit_reached ? CLV_DROP_LIMIT : w->stalled ? CLV_DROP_DISK : CLV_DROP_MEMORY;
	uint64_t total = 0;
	for (size_t i = 0; i < w->rings.count; i++) {
		struct clv_ring *ring = w->rings.rings[i];
		uint64_t now = atomic_load_explicit(&ring->dropped, memory_order_relaxed),
			 count = now - ring->dropped_told;
		if (!count)
			continue;
		ring->dropped_told = now;
		total += count;
		if (w->limit_reached)
			w->drops[cause] += count;
		else
			put_drop(w, cause, count, ring->thread);
	}
	w->drops[CLV_DROP_MEMORY] += atomic_exchange_explicit(&w->shared->homeless, 0, memory_order_relaxed);
	if (!w->limit_reached)
		tell_counted(w);
	w->stalled = false;
	if (total && cause == CLV_DROP_MEMORY)
		say(w, SAY_SLOW,
		    "recording: events came faster than they can be written; some were dropped, and are counted in %s",
		    w->file.name);
}

static void tell_forks(struct clv_writer *w, bool last)
{
	if (!w->forks)
		return;
	uint64_t begun = atomic_load_explicit(&w->forks->begun, memory_order_acquire), now = clv_clock_ns();
	if (begun - w->forks_told > CLV_FORKS)
		w->forks_told = begun - CLV_FORKS;
	for (; w->forks_told < begun; w->forks_told++) {
		uint64_t place = w->forks_told % CLV_FORKS;
		uint32_t pid = atomic_load_explicit(&w->forks->places[place].pid, memory_order_acquire);
		uint64_t time = atomic_load_explicit(&w->forks->places[place].time, memory_order_relaxed);
		if (!pid && !last && now < time + FORK_WAIT_MS * MS)
			return;
		if (pid && !w->limit_reached)
			put_own(w, (struct clv_raw){.event = CLV_EVENT_FORK, .device = -1, .time = time, .addr = pid},
				0, NULL);
	}
}

/* Takes all that has happened so far; `last`: and whatever threads still put in. False: the disk takes nothing, or there is no
 * host memory; the rest stays where it is. */
static bool pass(struct clv_writer *w, bool last)
{
	bool goes_on = clv_ticks_extend(&w->scale);
	uint64_t cutoff = last || !goes_on ? UINT64_MAX : w->scale.to.ticks;
	size_t count = 0;
	bool good = true;
	if (!clv_rings_list(w->session, &w->rings))
		return false; /* threads drop and count until there is host memory */
	if (w->cursor_cap < w->rings.count) {
		struct clv_cursor *grown = clv_meta_realloc(w->cursors, w->rings.cap * sizeof(*grown));
		if (!grown)
			return false;
		w->cursors = grown;
		w->cursor_cap = w->rings.cap;
	}
	tell_drops(w);
	w->tables.looked_anew = false;
	struct clv_cursor *c = w->cursors;
	for (size_t i = 0; i < w->rings.count; i++) {
		struct clv_ring *ring = w->rings.rings[i];
		c[count] = (struct clv_cursor){.ring = ring,
					       .at = atomic_load_explicit(&ring->tail, memory_order_relaxed),
					       .end = atomic_load_explicit(&ring->head, memory_order_acquire)};
		count += look(&c[count], cutoff);
	}
	for (size_t i = count / 2; i-- > 0;)
		sift(c, count, i);
	while (count && good) {
		take(w, c);
		if (w->chunk_cost + w->tables.cost >= w->cost_max) {
			give_back(c);
			end_chunk(w, false);
			good = advance(w);
		} else if ((c->at & 255) == 0) {
			give_back(c);
		}
		if (!look(c, cutoff)) {
			give_back(c);
			c[0] = c[--count];
		}
		sift(c, count, 0);
	}
	for (size_t i = 0; i < count; i++)
		give_back(&c[i]);
	tell_forks(w, last);
	clv_rings_tidy(w->session);
	return good;
}

/* ---- the thread ---- */

static bool due(const struct clv_writer *w, uint64_t now)
{
	return w->chunk_begun && now >= w->chunk_begun + w->config.flush_ms * MS;
}

/* Nothing more will be written: what is left is counted as lost. */
static void give_up(struct clv_writer *w)
{
	uint64_t lost = w->packed_taken + w->chunk_taken;
	w->chunk_cost = w->tables.cost = 0;
	w->limit_reached = true; /* what a pass finds is counted only */
	pass(w, true);
	for (int i = 0; i < CLV_DROP_CAUSES; i++)
		lost += w->drops[i] - w->drops_told[i];
	atomic_fetch_add_explicit(&w->shared->dropped, lost, memory_order_relaxed);
}

/* Everything that is in buffers, and the end of the file. */
static void finish(struct clv_writer *w)
{
	bool ended = false;
	for (;;) {
		bool good = advance(w);
		if (good && ended)
			break;
		if (good && pass(w, true)) {
			end_chunk(w, false);
			tell_counted(w); /* for this there is room behind the limit, too */
			end_chunk(w, false);
			end_file(w);
			w->rotation = CLV_ROTATE_NOT;
			w->limit_reached = true; /* no other is begun */
			ended = true;
			continue;
		}
		if (clv_clock_ns() >= atomic_load(&w->shared->stop_by)) {
			give_up(w);
			break;
		}
		struct timespec t = {.tv_nsec = (long)(RETRY_MS * MS)};
		nanosleep(&t, NULL);
	}
}

void clv_writer_run(struct clv_writer *w)
{
	struct clv_record_shared *s = w->shared;
	while (!atomic_load(&s->stop)) {
		uint32_t asked = atomic_load(&s->flush_asked);
		bool flushing = asked != atomic_load(&s->flush_done);
		uint64_t now = clv_clock_ns();
		bool good = advance(w) && pass(w, false);
		if (good && (flushing || due(w, now))) {
			end_chunk(w, false);
			good = advance(w);
		}
		if (good && flushing) {
			atomic_store(&s->flush_done, asked);
			syscall(SYS_futex, &s->flush_done, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
		}
		if (now >= w->polled + POLL_MS * MS) {
			w->polled = now;
			clv_stack_poll();
		}
		atomic_store_explicit(&s->stacks, clv_stack_count(), memory_order_relaxed);
		sleep_for(w, good ? clv_min_u64(w->config.flush_ms, POLL_MS) * MS : RETRY_MS * MS, !good);
	}
	finish(w);
	clv_record_file_close(&w->file);
}

static void *resize(void *p, size_t size)
{
	return clv_meta_realloc(p, size);
}

static const struct clv_encode_memory memory = {resize, clv_meta_free};

bool clv_writer_begin(struct clv_writer *w, struct clv_error *err)
{
	char reason[128];
	w->encoder.memory = &memory;
	w->cost_max = COST_MAX;
	if (w->config.limit_bytes)
		w->cost_max = clv_min_u64(COST_MAX, w->config.limit_bytes / 8);
	w->next_number = 1;
	int status = clv_record_file_open(&w->file, 0);
	if (!status) {
		status =
			begin_file(w, true) ? clv_record_file_append(&w->file, w->packed.data, w->packed.len) : -ENOMEM;
		atomic_fetch_add_explicit(&w->shared->bytes, w->packed.len, memory_order_relaxed);
		w->packed.len = 0;
	}
	if (!status)
		return true;
	clv_record_file_close(&w->file);
	if (status == -EINVAL)
		return clv_error_set(err, "%s: is not a regular file", w->file.name);
	if (status == -EBUSY)
		return clv_error_set(err, "%s: another process records into it (%%p in a name keeps them apart)",
				     w->file.name);
	name_errno(-status, reason, sizeof(reason));
	return clv_error_set(err, "%s: %s", w->file.name, reason);
}

void clv_writer_free(struct clv_writer *w)
{
	struct clv_encoder *e = &w->encoder;
	if (e->memory) {
		clear_columns(w);
		clv_live_free(e, &w->live);
		clv_tables_free(e, &w->tables);
		clv_buf_free(e, &w->packed);
		clv_encoder_clear(e);
	}
	clv_packer_clear(&w->packer);
	clv_meta_free(w->devices);
	clv_meta_free(w->rings.rings);
	clv_meta_free(w->cursors);
	clv_meta_free((void *)(uintptr_t)w->config.settings);
	clv_meta_free(w);
}
