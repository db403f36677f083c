/* SPDX-License-Identifier: MIT */
#include "gather.h"

#include "../base/clock.h"
#include "../host/meta.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REST_TIMES 4 /* of the time that the walks took, the heap is left alone after them */
#define REST_MOST_NS 100000000u

struct bytes {
	char *at;
	size_t len, room;
};

/* Room for `size` more bytes, which the caller fills before the next call; NULL: host memory is out. */
static void *append(struct bytes *b, size_t size)
{
	if (b->room - b->len < size) {
		size_t room = (b->len + size) * 2;
		char *more = clv_meta_realloc(b->at, room);
		if (!more)
			return NULL;
		b->at = more;
		b->room = room;
	}
	void *at = b->at + b->len;
	b->len += size;
	return at;
}

static bool add_reservations(struct bytes *b, const struct clv_live *live, struct clv_stat_device *d)
{
	/* some may be made in between: those are told next time */
	uint64_t room = d->state.reservations;
	if (!room)
		return true;
	cleave_reservation_stats *rows = append(b, room * sizeof(*rows));
	if (!rows)
		return false;
	clv_heap_state(live->heap, (int)d->device, &d->state, rows, room);
	d->reservations = clv_min_u64(room, d->state.reservations);
	b->len -= (room - d->reservations) * sizeof(*rows);
	return true;
}

/* The heap goes on while memory for the lists is found: what does not fit is tried again with more. */
static bool add_picture(struct bytes *b, const struct clv_live *live, struct clv_stat_device *d)
{
	struct clv_heap_picture p = {.block_count = d->state.stats.live_blocks + d->state.stats.free_blocks,
				     .frame_count = d->state.stats.frames};
	bool fits = false;
	for (int tries = 0; tries < 4 && !fits; tries++) {
		clv_meta_free(p.blocks);
		clv_meta_free(p.frames);
		p.block_room = p.block_count + p.block_count / 4 + 1024;
		p.frame_room = p.frame_count + p.frame_count / 4 + 64;
		p.blocks = clv_meta_alloc(p.block_room * sizeof(*p.blocks));
		p.frames = clv_meta_alloc(p.frame_room * sizeof(*p.frames));
		if (!p.blocks || !p.frames)
			break;
		clv_heap_picture(live->heap, (int)d->device, &p);
		fits = p.block_count <= p.block_room && p.frame_count <= p.frame_room;
	}
	void *blocks = fits ? append(b, p.block_count * sizeof(*p.blocks)) : NULL;
	if (blocks)
		memcpy(blocks, p.blocks, p.block_count * sizeof(*p.blocks));
	void *frames = blocks ? append(b, p.frame_count * sizeof(*p.frames)) : NULL;
	if (frames)
		memcpy(frames, p.frames, p.frame_count * sizeof(*p.frames));
	d->blocks = p.block_count;
	d->frames = p.frame_count;
	clv_meta_free(p.blocks);
	clv_meta_free(p.frames);
	return frames != NULL;
}

/* False: host memory is out. */
static bool add_device(struct bytes *b, const struct clv_live *live, int device, enum clv_stat_op op, uint32_t *used)
{
	struct clv_stat_device d = {.device = device};
	if (*used == CLV_STAT_DEVICES || !clv_heap_state(live->heap, device, &d.state, NULL, 0))
		return true;
	size_t at = b->len;
	if (!append(b, sizeof(d)) || !add_reservations(b, live, &d) ||
	    (op == CLV_STAT_SNAPSHOT && !add_picture(b, live, &d)))
		return false;
	memcpy(b->at + at, &d, sizeof(d));
	++*used;
	return true;
}

static uint64_t trim(const struct clv_live *live)
{
	uint64_t sum = 0;
	for (int d = 0; d < live->driver->devices; d++) {
		uint64_t released = 0;
		clv_heap_trim(live->heap, d, 0, false, &released);
		sum += released;
	}
	return sum;
}

static void fill_process(struct clv_stat_process *p, const struct clv_live *live, enum clv_stat_op op)
{
	memset(p, 0, sizeof(*p));
	p->magic = CLV_STAT_MAGIC;
	p->version = CLV_STAT_VERSION;
	p->layout = CLV_STAT_LAYOUT;
	p->op = op;
	p->pid = (int32_t)getpid();
	p->opened_ns = live->opened_ns;
	snprintf(p->library, sizeof(p->library), "%s", CLV_VERSION);
	if (clv_settings_print(live->settings, p->settings, sizeof(p->settings)) >= sizeof(p->settings))
		strcpy(p->settings + sizeof(p->settings) - sizeof("..."), "...");
	p->devices = (uint32_t)live->driver->devices;
	if (live->recording)
		live->recording(&p->recording);
	if (op == CLV_STAT_TRIM)
		p->released = trim(live);
}

void *clv_gather(const struct clv_live *live, enum clv_stat_op op, size_t *len)
{
	static uint64_t rest_until;
	struct bytes b = {0};
	struct clv_stat_process p;
	uint64_t began = clv_clock_ns();
	if (began < rest_until) {
		nanosleep(&(struct timespec){.tv_nsec = (long)(rest_until - began)}, NULL);
		began = clv_clock_ns();
	}
	fill_process(&p, live, op);
	bool good = append(&b, sizeof(p)) != NULL;
	for (int d = 0; good && d < live->driver->devices; d++)
		good = add_device(&b, live, d, op, &p.used);
	live->driver->counts(live->driver, &p.driver);
	p.now_ns = clv_clock_ns();
	rest_until = p.now_ns + clv_min_u64((p.now_ns - began) * REST_TIMES, REST_MOST_NS);
	if (!good) {
		clv_meta_free(b.at);
		return NULL;
	}
	memcpy(b.at, &p, sizeof(p));
	*len = b.len;
	return b.at;
}

/* ---- read ---- */

static const void *take(const char **at, size_t *left, uint64_t count, size_t size)
{
	const char *here = *at;
	if (count > *left / size)
		return NULL;
	*at += count * size;
	*left -= count * size;
	return here;
}

static bool ends(const char *text, size_t room)
{
	return memchr(text, 0, room) != NULL;
}

bool clv_stat_view(const void *data, size_t len, struct clv_stat_view *out, struct clv_error *err)
{
	const char *at = data;
	memset(out, 0, sizeof(*out));
	const struct clv_stat_process *p = take(&at, &len, 1, sizeof(*p));
	if (!p || p->magic != CLV_STAT_MAGIC)
		return clv_error_set(err, "the answer is none of Cleave's");
	if (p->version != CLV_STAT_VERSION || p->layout != CLV_STAT_LAYOUT)
		return clv_error_set(err, "the answer is of another version of Cleave");
	if (!ends(p->library, sizeof(p->library)) || !ends(p->settings, sizeof(p->settings)) ||
	    p->used > CLV_STAT_DEVICES)
		return clv_error_set(err, "the answer makes no sense");
	out->process = p;
	for (out->used = 0; out->used < p->used; out->used++) {
		struct clv_stat_part *part = &out->parts[out->used];
		const struct clv_stat_device *d = part->device = take(&at, &len, 1, sizeof(*d));
		if (!d || !(part->reservations = take(&at, &len, d->reservations, sizeof(*part->reservations))) ||
		    !(part->blocks = take(&at, &len, d->blocks, sizeof(*part->blocks))) ||
		    !(part->frames = take(&at, &len, d->frames, sizeof(*part->frames))))
			return clv_error_set(err, "the answer is cut off");
		for (uint64_t i = 0; i < d->reservations; i++)
			if (!ends(part->reservations[i].name, sizeof(part->reservations[i].name)))
				return clv_error_set(err, "the answer makes no sense");
	}
	return !len || clv_error_set(err, "the answer is longer than it says");
}
