/* SPDX-License-Identifier: MIT */
#include "heap_rig.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE (2 * CLV_MIB)
#define STAMP 4096u /* distance of the words that are written and read in a block */

/* Check writes a line to a file at each of its assertions: too dear for so many. */
#define RIG_ASSERT(r, condition, fmt, ...)                                                                             \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			ck_abort_msg("seed %" PRIu64 ", step %" PRIu64 ": " fmt, (r)->config.seed, (r)->step, ##__VA_ARGS__); \
	} while (0)

static uint64_t rounded(uint64_t size)
{
	return clv_align_up(size, CLV_GRAIN);
}

uint64_t rig_pinned(const struct rig *r)
{
	return witness_pinned(r->witness, 0);
}

uint64_t rig_cap(const struct rig *r)
{
	uint64_t taken = r->foreign + r->headroom;
	uint64_t gives = r->config.capacity > taken ? r->config.capacity - taken : 0;
	return r->limit ? clv_min_u64(r->limit, gives) : gives;
}

/* ---- asynchronous work on a block ---- */

struct rig_work {
	struct rig *rig;
	struct rig_work *next, **link;
	cleave_ptr addr;
	uint64_t size, pattern;
	bool write;
};

static void run_work(void *arg)
{
	struct rig_work *w = arg;
	struct rig *r = w->rig;
	uint8_t *p = clv_sim_bytes(r->sim, w->addr, w->size, NULL);
	RIG_ASSERT(r, p != NULL, "the block at %#" PRIx64 " is not mapped while its work runs", w->addr);
	for (uint64_t at = 0; at < w->size; at += STAMP) {
		uint64_t word = clv_mix64(w->pattern ^ at), *there = (uint64_t *)(void *)(p + clv_min_u64(at, rounded(w->size) - 8));
		if (w->write)
			*there = word;
		else
			RIG_ASSERT(r, *there == word, "the block at %#" PRIx64 " (%" PRIu64 " bytes) was written by others at %" PRIu64,
				   w->addr, w->size, at);
		r->checked_words += !w->write;
	}
	*w->link = w->next;
	if (w->next)
		w->next->link = w->link;
	free(w);
}

static void launch(struct rig *r, const struct rig_block *b, cleave_stream stream, bool write)
{
	struct rig_work *w = malloc(sizeof(*w));
	RIG_ASSERT(r, w != NULL, "host memory");
	*w = (struct rig_work){r, r->work, &r->work, b->addr, rounded(b->size), b->pattern, write};
	if (w->next)
		w->next->link = &w->next;
	r->work = w;
	RIG_ASSERT(r, clv_sim_launch(r->sim, stream, clv_rng_range(&r->rng, 1000, 500000), run_work, w) == CLV_OK, "launch");
}

/* ---- open, close, check ---- */

static struct clv_driver *driver(struct rig *r)
{
	return witness_driver(r->witness);
}

static void new_stream(struct rig *r, unsigned i)
{
	r->next_stream++;
	r->streams[i] = (cleave_stream){r->next_stream, 0x1000 + r->next_stream};
}

void rig_open(struct rig *r, const struct rig_config *config)
{
	const char *other = getenv("CLEAVE_TEST_SEED");
	memset(r, 0, sizeof(*r));
	r->config = *config;
	r->config.seed += other ? strtoull(other, NULL, 0) << 16 : 0;
	r->rng.state = r->config.seed;
	r->sim = clv_sim_open(&(struct clv_sim_config){.capacity = config->capacity,
						       .backing = config->backing,
						       .manual = config->manual,
						       .event_lag_ns = config->manual ? 0 : 200000});
	ck_assert_ptr_nonnull(r->sim);
	r->fault = clv_fault_open(r->sim, NULL);
	ck_assert_ptr_nonnull(r->fault);
	r->witness = witness_open(r->fault);
	ck_assert_ptr_nonnull(r->witness);
	char why[256] = "";
	int opened = cleave_heap_open(&r->heap, driver(r), config->settings, why, sizeof(why));
	ck_assert_msg(opened == 0, "%s", why);
	cleave_heap_stats s;
	ck_assert_int_eq(cleave_heap_get_stats(r->heap, 0, &s), 0); /* the device's arena is made */
	r->streams[0] = CLEAVE_STREAM_ANY;
	for (unsigned i = 1; i <= config->streams; i++)
		new_stream(r, i);
}

void rig_set_well(struct rig *r, bool well)
{
	r->well = well;
	clv_fault_pause(r->fault, well);
}

void rig_check(struct rig *r)
{
	const char *wrong = witness_wrong(r->witness);
	RIG_ASSERT(r, !wrong, "%s", wrong);
	char why[512] = "";
	RIG_ASSERT(r, cleave_heap_check(r->heap, why, sizeof(why)) == 0, "%s", why);
}

/* The books after each operation. */
static void check_books(struct rig *r)
{
	const char *wrong = witness_wrong(r->witness);
	RIG_ASSERT(r, !wrong, "%s", wrong);
	cleave_heap_stats s;
	RIG_ASSERT(r, cleave_heap_get_stats(r->heap, 0, &s) == 0, "no statistics");
	uint64_t used = clv_sim_used(r->sim, 0);
	RIG_ASSERT(r, s.held_bytes == used, "held %" PRIu64 ", the device says %" PRIu64, s.held_bytes, used);
	RIG_ASSERT(r, s.live_bytes == r->live, "live %" PRIu64 ", not %" PRIu64, s.live_bytes, r->live);
	RIG_ASSERT(r, s.live_peak_bytes == r->peak, "peak %" PRIu64 ", not %" PRIu64, s.live_peak_bytes, r->peak);
	RIG_ASSERT(r, s.live_blocks == r->count, "%" PRIu64 " live blocks, not %u", s.live_blocks, r->count);
	RIG_ASSERT(r, s.allocs == r->allocs && s.frees == r->frees && s.failures == r->failures,
		   "%" PRIu64 " allocs, %" PRIu64 " frees, %" PRIu64 " failures, not %" PRIu64 ", %" PRIu64 ", %" PRIu64, s.allocs,
		   s.frees, s.failures, r->allocs, r->frees, r->failures);
	RIG_ASSERT(r, s.held_bytes == s.live_bytes + s.rounding_bytes + s.free_bytes, "held is not live + rounding + free");
	RIG_ASSERT(r, s.stranded_bytes <= s.free_bytes && s.cached_bytes <= s.free_bytes && s.pending_bytes <= s.free_bytes &&
		   s.largest_hole_bytes + s.reservation_bytes <= s.free_bytes,
		   "more is stranded, cached, pending, reserved or in one hole than is free");
	uint64_t pinned = rig_pinned(r);
	RIG_ASSERT(r, s.stranded_bytes + s.live_bytes + s.rounding_bytes + s.reservation_bytes >= pinned,
		   "%" PRIu64 " bytes are stranded, but frames with live blocks have %" PRIu64, s.stranded_bytes, pinned);
	RIG_ASSERT(r, s.frames_created - s.frames_released >= s.frames, "fewer frames were bought than there are");
	RIG_ASSERT(r, s.limit_bytes == r->limit && s.headroom_bytes == r->headroom, "limit or headroom are not as set");
}

static void stepped(struct rig *r)
{
	check_books(r);
	r->step++;
	if (r->config.check_every && r->step % r->config.check_every == 0)
		rig_check(r);
}

void rig_close(struct rig *r)
{
	rig_check(r);
	clv_fault_pause(r->fault, true);
	if (r->work) /* live blocks are taken away with the heap; their work must not be under way */
		for (unsigned i = 1; i <= r->config.streams; i++)
			clv_sim_complete(r->sim, r->streams[i]);
	for (unsigned i = 0; i < r->count; i++)
		witness_freed(r->witness, r->blocks[i].addr, r->blocks[i].size, CLEAVE_STREAM_ANY);
	cleave_heap_close(r->heap);
	const char *wrong = witness_wrong(r->witness);
	RIG_ASSERT(r, !wrong, "at close: %s", wrong);
	const char *leak = clv_sim_leaks(r->sim);
	RIG_ASSERT(r, !leak, "leaked: %s", leak);
	ck_assert_uint_eq(clv_sim_used(r->sim, 0), 0);
	ck_assert_ptr_null(r->work);
	witness_close(r->witness);
	r->fault->close(r->fault);
	r->sim->close(r->sim);
}

/* ---- operations ---- */

/* "A heap fails a request only when the frames that hold live bytes, and the request, exceed the device or the limit." */
static void check_refusal(struct rig *r, uint64_t size, int answer)
{
	cleave_failure f;
	RIG_ASSERT(r, cleave_heap_last_failure(r->heap, 0, &f) == 0, "no report of the failure");
	RIG_ASSERT(r, f.number == r->failures && f.request_bytes == size && f.live_bytes == r->live,
		   "the report is of failure %" PRIu64 " of %" PRIu64 " bytes", f.number, f.request_bytes);
	if (r->config.faults_expected)
		return;
	uint64_t needed = rig_pinned(r) + clv_align_up(size, PAGE), cap = rig_cap(r);
	RIG_ASSERT(r, answer == -ENOMEM, "answer %d", answer);
	RIG_ASSERT(r, f.largest_hole_bytes < rounded(size), "a request of %" PRIu64 " bytes failed beside a hole of %" PRIu64, size,
		   f.largest_hole_bytes);
	RIG_ASSERT(r, needed > cap,
		   "a request of %" PRIu64 " bytes failed, though pinned %" PRIu64 " and its pages are %" PRIu64
		   " of %" PRIu64 " (held %" PRIu64 ", live %" PRIu64 ", limit %" PRIu64 ", headroom %" PRIu64 ", foreign %" PRIu64 ")",
		   size, rig_pinned(r), needed, cap, f.held_bytes, f.live_bytes, r->limit, r->headroom, r->foreign);
}

int rig_alloc(struct rig *r, unsigned stream, uint64_t size)
{
	cleave_ptr p = 1;
	cleave_stream s = r->streams[stream];
	int answer = cleave_alloc(r->heap, 0, s, size, &p);
	if (answer) {
		RIG_ASSERT(r, p == 0, "an address, though the request failed");
		r->failures++;
		check_refusal(r, size, answer);
		stepped(r);
		return answer;
	}
	RIG_ASSERT(r, r->count < RIG_BLOCKS, "too many blocks for the test");
	witness_given(r->witness, p, size, s);
	struct rig_block *b = &r->blocks[r->count++];
	*b = (struct rig_block){p, size, s, false, clv_mix64(++r->next_pattern)};
	r->allocs++;
	r->live += rounded(size);
	r->peak = clv_max_u64(r->peak, r->live);
	if (stream && clv_rng_below(&r->rng, 8)) { /* some blocks are never used */
		b->used = true;
		if (r->config.backing)
			launch(r, b, s, true);
	} else if (!stream && r->config.backing) {
		/* complete when given: the host may write it at once */
		uint8_t *bytes = clv_sim_bytes(r->sim, p, rounded(size), NULL);
		RIG_ASSERT(r, bytes != NULL, "the block at %#" PRIx64 " is not mapped", p);
		for (uint64_t at = 0; at < rounded(size); at += STAMP)
			*(uint64_t *)(void *)(bytes + clv_min_u64(at, rounded(size) - 8)) = clv_mix64(b->pattern ^ at);
		b->used = true;
	}
	stepped(r);
	return 0;
}

/* A program that frees on another stream has made that wait; one that frees on ANY has waited itself. */
void rig_free(struct rig *r, unsigned block, unsigned stream)
{
	struct rig_block b = r->blocks[block];
	cleave_stream s = r->streams[stream];
	bool any = s.id == CLEAVE_STREAM_ANY.id, of_any = b.stream.id == CLEAVE_STREAM_ANY.id;
	clv_fault_pause(r->fault, true);
	if (b.used && r->config.backing) {
		if (of_any) {
			struct rig_work *w = malloc(sizeof(*w));
			RIG_ASSERT(r, w != NULL, "host memory");
			*w = (struct rig_work){r, NULL, &w->next, b.addr, rounded(b.size), b.pattern, false};
			struct rig_work *dummy = NULL;
			w->link = &dummy;
			run_work(w);
		} else {
			launch(r, &b, b.stream, false);
		}
	}
	if (!of_any && any && b.used) {
		struct clv_driver *d = driver(r);
		RIG_ASSERT(r, d->stream_synchronize(d, b.stream) == CLV_OK, "the test could not wait");
	} else if (!of_any && !any && s.id != b.stream.id) {
		witness_order(r->witness, b.stream, s);
	}
	clv_fault_pause(r->fault, r->well);
	witness_freed(r->witness, b.addr, b.size, s);
	int answer = cleave_free(r->heap, b.addr, s);
	RIG_ASSERT(r, answer == 0, "free of %#" PRIx64 ": %d", b.addr, answer);
	r->blocks[block] = r->blocks[--r->count];
	r->frees++;
	r->live -= rounded(b.size);
	stepped(r);
}

static unsigned index_of_stream(const struct rig *r, cleave_stream s)
{
	for (unsigned i = 0; i <= r->config.streams; i++)
		if (r->streams[i].id == s.id)
			return i;
	return 0;
}

void rig_free_all(struct rig *r)
{
	while (r->count)
		rig_free(r, r->count - 1, index_of_stream(r, r->blocks[r->count - 1].stream));
}

void rig_complete(struct rig *r, unsigned stream)
{
	if (stream)
		clv_sim_complete(r->sim, r->streams[stream]);
	stepped(r);
}

void rig_pass_time(struct rig *r, uint64_t ns)
{
	clv_sim_advance(r->sim, ns);
	stepped(r);
}

void rig_destroy_stream(struct rig *r, unsigned stream)
{
	cleave_stream gone = r->streams[stream];
	RIG_ASSERT(r, stream != 0, "ANY cannot be destroyed");
	new_stream(r, stream);
	clv_fault_pause(r->fault, true);
	witness_order(r->witness, gone, r->streams[stream]);
	clv_fault_pause(r->fault, r->well);
	int answer = cleave_stream_destroyed(r->heap, 0, gone);
	RIG_ASSERT(r, answer == 0 || (r->config.faults_expected && answer == -EIO), "stream_destroyed: %d", answer);
	for (unsigned i = 0; i < r->count; i++) /* their owner goes on on the new one */
		if (r->blocks[i].stream.id == gone.id)
			r->blocks[i].stream = r->streams[stream];
	stepped(r);
}

void rig_trim(struct rig *r, uint64_t keep)
{
	uint64_t before = clv_sim_used(r->sim, 0), released = 1;
	RIG_ASSERT(r, cleave_heap_trim(r->heap, 0, keep, &released) == 0, "refused, though it makes sense");
	uint64_t after = clv_sim_used(r->sim, 0);
	RIG_ASSERT(r, before - after == released, "trim says %" PRIu64 ", the device %" PRIu64, released, before - after);
	if (!r->config.faults_expected)
		RIG_ASSERT(r, after <= clv_max_u64(keep, rig_pinned(r)), "trim to %" PRIu64 " leaves %" PRIu64 " with %" PRIu64 " pinned",
			   keep, after, rig_pinned(r));
	stepped(r);
}

void rig_set_limit(struct rig *r, uint64_t bytes)
{
	RIG_ASSERT(r, cleave_heap_set_limit(r->heap, 0, bytes) == 0, "refused, though it makes sense");
	r->limit = bytes;
	uint64_t held = clv_sim_used(r->sim, 0);
	if (bytes && !r->config.faults_expected)
		RIG_ASSERT(r, held <= clv_max_u64(bytes, rig_pinned(r)), "limit %" PRIu64 ", held %" PRIu64 ", pinned %" PRIu64, bytes,
			   held, rig_pinned(r));
	stepped(r);
}

void rig_set_headroom(struct rig *r, uint64_t bytes)
{
	RIG_ASSERT(r, cleave_heap_set_headroom(r->heap, 0, bytes) == 0, "refused, though it makes sense");
	r->headroom = bytes;
	stepped(r);
}

void rig_set_foreign(struct rig *r, uint64_t bytes)
{
	r->foreign = clv_min_u64(bytes, r->config.capacity - clv_sim_used(r->sim, 0));
	clv_sim_set_foreign(r->sim, 0, r->foreign);
	stepped(r);
}

void rig_bad_calls(struct rig *r)
{
	cleave_ptr start;
	size_t size;
	int device;
	if (r->count) {
		const struct rig_block *b = &r->blocks[clv_rng_below(&r->rng, r->count)];
		uint64_t inside = clv_rng_below(&r->rng, rounded(b->size));
		RIG_ASSERT(r, cleave_block_info(r->heap, b->addr + inside, &start, &size, &device) == 0, "refused, though it makes sense");
		RIG_ASSERT(r, start == b->addr && size == b->size && device == 0, "block_info at %" PRIu64 " of %#" PRIx64 ": %#" PRIx64
			   ", %zu bytes", inside, b->addr, start, size);
		if (inside)
			RIG_ASSERT(r, cleave_free(r->heap, b->addr + inside, b->stream) == -EINVAL, "a free inside of %#" PRIx64, b->addr);
	}
	/* a random address near a block is in a live block or it is refused */
	cleave_ptr p = r->count ? r->blocks[clv_rng_below(&r->rng, r->count)].addr : CLV_GIB;
	p += clv_rng_below(&r->rng, 64 * CLV_MIB) - 32 * CLV_MIB;
	const struct rig_block *around = NULL;
	for (unsigned i = 0; i < r->count; i++)
		if (p >= r->blocks[i].addr && p - r->blocks[i].addr < rounded(r->blocks[i].size))
			around = &r->blocks[i];
	int answer = cleave_block_info(r->heap, p, &start, &size, &device);
	RIG_ASSERT(r, answer == (around ? 0 : -EINVAL), "block_info of %#" PRIx64 ": %d", p, answer);
	if (around)
		RIG_ASSERT(r, start == around->addr, "block_info tells another block");
	else
		RIG_ASSERT(r, cleave_free(r->heap, p, r->streams[0]) == -EINVAL, "a free of %#" PRIx64 ", where no block is", p);
	stepped(r);
}

/* ---- random work ---- */

static uint64_t random_size(struct rig *r)
{
	struct clv_rng *g = &r->rng;
	uint64_t big = r->config.capacity / 6;
	switch (clv_rng_below(g, 10)) {
	case 0:
	case 1:
	case 2:
		return clv_rng_range(g, 1, 32 * CLV_KIB);
	case 3:
	case 4:
		return clv_rng_range(g, 32 * CLV_KIB, 512 * CLV_KIB);
	case 5:
		return clv_rng_range(g, 1, 2000) * CLV_GRAIN;
	case 6:
		return clv_rng_range(g, 1, 8) * CLV_MIB + clv_rng_below(g, 2) * 512 * CLV_KIB;
	case 7:
		return clv_rng_range(g, CLV_MIB, 16 * CLV_MIB);
	case 8:
		return clv_rng_range(g, 1, clv_max_u64(big / PAGE, 1)) * PAGE;
	default:
		return clv_rng_range(g, CLV_MIB, big);
	}
}

static unsigned random_stream(struct rig *r)
{
	return clv_rng_below(&r->rng, 12) == 0 ? 0 : 1 + (unsigned)clv_rng_below(&r->rng, r->config.streams);
}

void rig_step(struct rig *r, uint64_t target)
{
	struct clv_rng *g = &r->rng;
	uint64_t dice = clv_rng_below(g, 1000);
	if (dice < 20 && r->config.streams) {
		rig_complete(r, random_stream(r));
	} else if (dice < 40) {
		rig_pass_time(r, clv_rng_below(g, 1000000));
	} else if (dice < 45) {
		rig_destroy_stream(r, 1 + (unsigned)clv_rng_below(g, r->config.streams));
	} else if (dice < 50) {
		rig_trim(r, clv_rng_below(g, 2) ? 0 : clv_rng_below(g, r->config.capacity));
	} else if (dice < 55) {
		rig_set_limit(r, clv_rng_below(g, 2) ? 0 : clv_rng_below(g, r->config.capacity) + 1);
	} else if (dice < 60) {
		rig_set_headroom(r, clv_rng_below(g, 2) ? 0 : clv_rng_below(g, r->config.capacity / 4));
	} else if (dice < 65) {
		rig_set_foreign(r, clv_rng_below(g, 2) ? 0 : clv_rng_below(g, r->config.capacity / 2));
	} else if (dice < 80) {
		rig_bad_calls(r);
	} else if (r->count < RIG_BLOCKS && (r->live < target || !r->count || clv_rng_below(g, 16) == 0) &&
		   (!r->count || clv_rng_below(g, 4))) {
		rig_alloc(r, random_stream(r), random_size(r));
	} else {
		/* half of the time neighbours in time, so that regions come free */
		unsigned i = (unsigned)clv_rng_below(g, r->count), n = clv_rng_below(g, 4) ? 1 : 1 + (unsigned)clv_rng_below(g, 8);
		for (; n && r->count; n--) {
			i = clv_min_u64(i, r->count - 1);
			uint64_t where = clv_rng_below(g, 10);
			unsigned own = index_of_stream(r, r->blocks[i].stream);
			bool alive = own || r->blocks[i].stream.id == CLEAVE_STREAM_ANY.id;
			unsigned s = where == 0 ? 0 : where < 3 || !alive ? random_stream(r) : own;
			rig_free(r, i, s);
		}
	}
}
