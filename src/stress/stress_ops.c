/* SPDX-License-Identifier: MIT
 *
 * What a thread does, one operation at a time. Whatever the heap answers is compared with what it promises.
 */
#include "stress_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define PAGE (2 * CLV_MIB)

static bool chance(struct stress_worker *w, uint32_t permille)
{
	return clv_rng_below(&w->rng, 1000) < permille;
}

static void digest(struct stress_worker *w, uint64_t answer)
{
	w->digest = clv_mix64(w->digest ^ answer) + w->op;
}

static void out_of_memory(struct stress_worker *w)
{
	atomic_store(&w->round->no_memory, true);
	atomic_store(&w->round->stop, true);
}

#define WRONG(w, ...) clv_stress_wrong((w)->round, (w)->number, (w)->op, __VA_ARGS__)

/* ---- the blocks of a thread ---- */

static bool room_for_block(struct stress_worker *w)
{
	if (w->block_count < w->block_room)
		return true;
	size_t room = w->block_room ? 2 * w->block_room : 256;
	struct stress_block **blocks = realloc(w->blocks, room * sizeof(struct stress_block *));
	if (!blocks)
		return false;
	w->blocks = blocks;
	w->block_room = room;
	return true;
}

static void push_block(struct stress_worker *w, struct stress_block *b)
{
	w->blocks[w->block_count++] = b;
	w->live[b->device] += clv_align_up(b->size, CLV_GRAIN);
}

static void remove_block(struct stress_worker *w, size_t index)
{
	const struct stress_block *b = w->blocks[index];
	w->live[b->device] -= clv_align_up(b->size, CLV_GRAIN);
	w->blocks[index] = w->blocks[--w->block_count];
}

static struct stress_block *random_block(struct stress_worker *w)
{
	return w->block_count ? w->blocks[clv_rng_below(&w->rng, w->block_count)] : NULL;
}

/* ---- allocate ---- */

static uint64_t ask_free(struct stress_round *r, int device)
{
	uint64_t left = 0;
	r->driver->mem_get_info(r->driver, device, &left, NULL);
	r->own_asks++;
	return left;
}

static uint64_t heap_asks(struct stress_round *r)
{
	struct clv_call_counts counts;
	r->driver->counts(r->driver, &counts);
	return counts.calls[CLV_CALL_mem_get_info] - r->own_asks;
}

/* What can be held beside the frames that hold live blocks, in whole pages. */
static uint64_t room_beside(struct stress_round *r, int device, const cleave_heap_stats *s)
{
	uint64_t pinned = s->held_bytes - (s->free_bytes - s->stranded_bytes), left = ask_free(r, device);
	uint64_t room = left > r->headroom[device] ? left - r->headroom[device] : 0;
	uint64_t cap = s->held_bytes + room, limit = r->limit[device];
	if (limit)
		cap = clv_min_u64(cap, limit);
	return cap > pinned ? clv_align_down(cap - pinned, PAGE) : 0;
}

/* The heap's promise: it refuses only what frames with live blocks leave no room for. */
static bool right_verdict(struct stress_worker *w, int device, uint64_t size)
{
	struct stress_round *r = w->round;
	cleave_heap_stats s;
	int answer = cleave_heap_get_stats(r->heap, device, &s);
	if (answer)
		return WRONG(w, "cleave_heap_get_stats answers %d", answer);
	uint64_t room = room_beside(r, device, &s);
	return size > room || WRONG(w,
				    "a request of %" PRIu64 " bytes was refused, though %" PRIu64
				    " can be held beside the frames with live blocks (held %" PRIu64 ", free %" PRIu64
				    ", stranded %" PRIu64 ")",
				    size, room, s.held_bytes, s.free_bytes, s.stranded_bytes);
}

static bool right_refusal(struct stress_worker *w, int device, uint64_t size, int answer)
{
	struct stress_round *r = w->round;
	if (answer != -ENOMEM && !(r->config->faults && answer == -EIO))
		return WRONG(w, "a request of %" PRIu64 " bytes is answered with %d", size, answer);
	cleave_failure f;
	char text[1024];
	answer = cleave_heap_last_failure(r->heap, device, &f);
	if (answer)
		return WRONG(w, "after a request has failed cleave_heap_last_failure answers %d", answer);
	if (stress_alone(r) && (f.request_bytes != size || (!r->config->faults && !f.missing_bytes)))
		return WRONG(w,
			     "a request of %" PRIu64 " bytes failed; the failure speaks of %" PRIu64
			     " and misses %" PRIu64,
			     size, f.request_bytes, f.missing_bytes);
	if (cleave_failure_print(&f, text, sizeof(text)) <= 0)
		return WRONG(w, "a failure cannot be printed");
	return !stress_alone(r) || r->config->faults || right_verdict(w, device, size);
}

/* What the heap may not do when it grows: exceed the limit, or leave less than the headroom of what it has seen to be
 * free; what others took since it last asked it cannot know. */
static bool right_growth(struct stress_worker *w, int device, uint64_t used_before)
{
	struct stress_round *r = w->round;
	uint64_t used = r->device->ops->used(r->device, device), limit = r->limit[device],
		 headroom = r->headroom[device];
	if (used <= used_before)
		return true;
	if (limit && used > limit)
		return WRONG(w, "the heap grew to %" PRIu64 " bytes, over its limit of %" PRIu64, used, limit);
	uint64_t left = ask_free(r, device);
	if (left < headroom && heap_asks(r) > r->asked_before)
		return WRONG(
			w, "the heap grew and left %" PRIu64 " bytes of the device, less than the headroom of %" PRIu64,
			left, headroom);
	return true;
}

static bool right_address(struct stress_worker *w, int device, uint64_t size, cleave_ptr addr)
{
	cleave_ptr start;
	size_t bytes;
	int where;
	if (!addr || addr % CLV_GRAIN)
		return WRONG(w, "a request of %" PRIu64 " bytes gets the address 0x%" PRIx64, size, addr);
	int answer = cleave_block_info(w->round->heap, addr + size - 1, &start, &bytes, &where);
	if (answer || start != addr || bytes != size || where != device)
		return WRONG(w, "the block of %" PRIu64 " bytes at 0x%" PRIx64 " is not known by its last byte (%d)",
			     size, addr, answer);
	return true;
}

/* A new block is written: by work on its stream or, if it belongs to none, by the host at once. */
static void begin_block(struct stress_worker *w, struct stress_block *b, struct stress_use on, bool any)
{
	struct stress_round *r = w->round;
	b->id = atomic_fetch_add(&r->next_block, 1) + 1;
	b->made = w->op;
	b->home = any ? STRESS_NO_STREAM : on.stream;
	b->stamp = (struct clv_stamp){.size = b->size, .block = b->id, .stream = (uint16_t)on.stream};
	b->writer.stream = STRESS_NO_STREAM;
	b->written = !chance(w, r->phase.unwritten_permille);
	if (any) {
		if (b->written)
			clv_stress_touch(w, b, true);
		return;
	}
	b->uses[b->use_count++] = on; /* the allocation itself is an event of the stream */
	b->writer = on;
	if (b->written)
		clv_stress_launch(w, b, on, true);
}

static bool serve(struct stress_worker *w, struct stress_block *b, struct stress_use on, bool any)
{
	struct stress_round *r = w->round;
	uint64_t used = stress_alone(r) ? r->device->ops->used(r->device, b->device) : 0;
	cleave_stream stream = any ? CLEAVE_STREAM_ANY : stress_stream_of(r, on.stream);
	int answer = cleave_alloc(r->heap, b->device, stream, b->size, &b->addr);
	digest(w, answer ? (uint64_t)answer : b->addr);
	if (answer) {
		w->counts.failures++;
		w->relief = (uint32_t)clv_rng_below(&w->rng, 8);
		if (b->addr)
			WRONG(w, "a request that fails gets the address 0x%" PRIx64, b->addr);
		else if (right_refusal(w, b->device, b->size, answer) && stress_alone(r) && chance(w, 5))
			clv_stress_keep_promise(w, b->device);
		if (chance(w, 20)) /* or a low limit would stop all work of a phase */
			clv_stress_lift_limit(w, b->device);
		return false;
	}
	w->counts.allocs++;
	w->counts.any += any;
	w->counts.small += b->size <= 32 * CLV_KIB;
	if (!right_address(w, b->device, b->size, b->addr) || (stress_alone(r) && !right_growth(w, b->device, used)))
		return false;
	begin_block(w, b, on, any);
	return true;
}

static void do_alloc(struct stress_worker *w, int device)
{
	struct stress_round *r = w->round;
	struct stress_block *b = calloc(1, sizeof(*b));
	if (!b || !room_for_block(w)) {
		free(b);
		out_of_memory(w);
		return;
	}
	b->device = device;
	b->size = clv_stress_draw_size(&r->phase, r->config, &w->rng);
	bool any = chance(w, r->phase.any_permille);
	struct stress_use on = clv_stress_enter(r, clv_stress_pick_stream(w, device));
	if (serve(w, b, on, any))
		push_block(w, b);
	else
		free(b);
	clv_stress_leave(r, on);
}

/* ---- use ---- */

static void use_block(struct stress_worker *w, struct stress_block *b, struct stress_use on, bool write)
{
	struct stress_round *r = w->round;
	bool wait = chance(w, r->phase.wait_permille);
	bool known = false;
	for (unsigned i = 0; i < b->use_count; i++)
		known |= b->uses[i].stream == on.stream && b->uses[i].life == on.life;
	if (write || !b->written || (!known && b->use_count == STRESS_USES)) {
		for (unsigned i = 0; i < b->use_count; i++)
			clv_stress_order(w, b->uses[i], on, wait);
		b->use_count = 0;
		known = false;
	} else if (b->writer.stream != STRESS_NO_STREAM) {
		clv_stress_order(w, b->writer, on, wait);
	}
	if (write || !b->written) {
		b->written = true;
		b->stamp.generation++;
		b->stamp.stream = (uint16_t)on.stream;
		b->writer = on;
		write = true;
	}
	if (!known)
		b->uses[b->use_count++] = on;
	clv_stress_launch(w, b, on, write);
}

static void do_use(struct stress_worker *w)
{
	struct stress_block *b = random_block(w);
	if (!b)
		return;
	struct stress_use on = clv_stress_enter(w->round, clv_stress_pick_stream(w, b->device));
	use_block(w, b, on, clv_rng_below(&w->rng, 2));
	clv_stress_leave(w->round, on);
}

/* ---- free ---- */

static void free_in_order(struct stress_worker *w, const struct stress_block *b, uint32_t stream)
{
	struct stress_round *r = w->round;
	struct stress_use on = clv_stress_enter(r, stream);
	bool wait = chance(w, r->phase.wait_permille);
	for (unsigned i = 0; i < b->use_count; i++)
		clv_stress_order(w, b->uses[i], on, wait);
	if (b->written)
		clv_stress_launch(w, b, on, false);
	int answer = cleave_free(r->heap, b->addr, stress_stream_of(r, stream));
	if (answer)
		WRONG(w, "freeing block %" PRIu32 " (%" PRIu64 " bytes at 0x%" PRIx64 ") is answered with %d", b->id,
		      b->size, b->addr, answer);
	w->counts.cross_frees += b->home != STRESS_NO_STREAM && b->home != stream;
	clv_stress_leave(r, on);
}

/* The promise of ANY is that nothing uses the block any more; so a block that nothing ever used needs no wait. */
static void free_as_any(struct stress_worker *w, const struct stress_block *b)
{
	struct stress_round *r = w->round;
	if (b->written) {
		clv_stress_await(w, b);
		clv_stress_touch(w, b, false);
	}
	int answer = cleave_free(r->heap, b->addr, CLEAVE_STREAM_ANY);
	if (answer)
		WRONG(w, "freeing block %" PRIu32 " (%" PRIu64 " bytes at 0x%" PRIx64 ") as ANY is answered with %d",
		      b->id, b->size, b->addr, answer);
	w->counts.any++;
}

void clv_stress_free_block(struct stress_worker *w, size_t index)
{
	struct stress_round *r = w->round;
	struct stress_block *b = w->blocks[index];
	remove_block(w, index);
	uint32_t stream = b->home;
	if (stream == STRESS_NO_STREAM || chance(w, r->phase.other_permille))
		stream = clv_stress_pick_stream(w, b->device);
	if (chance(w, r->phase.any_permille))
		free_as_any(w, b);
	else
		free_in_order(w, b, stream);
	w->counts.frees++;
	digest(w, b->addr);
	if (stress_alone(r) && chance(w, 20)) {
		int answer = cleave_free(r->heap, b->addr, stress_stream_of(r, stream));
		if (answer != -EINVAL)
			WRONG(w,
			      "block %" PRIu32 " (%" PRIu64 " bytes at 0x%" PRIx64 ") is freed twice: answered with %d",
			      b->id, b->size, b->addr, answer);
		w->counts.refusals++;
	}
	free(b);
}

static void do_free(struct stress_worker *w)
{
	size_t index = 0; /* removal mixes the array: about the oldest, about the newest */
	if (w->round->phase.order == ORDER_RANDOM)
		index = clv_rng_below(&w->rng, w->block_count);
	else if (w->round->phase.order == ORDER_NEWEST)
		index = w->block_count - 1;
	clv_stress_free_block(w, index);
}

/* Leaves a block, if it has any, and takes what lies there. */
static void do_hand(struct stress_worker *w)
{
	struct stress_block *mine = NULL;
	if (!room_for_block(w))
		return;
	if (w->block_count) {
		size_t index = clv_rng_below(&w->rng, w->block_count);
		mine = w->blocks[index];
		remove_block(w, index);
	}
	struct stress_block *yours =
		atomic_exchange(&w->round->exchange[clv_rng_below(&w->rng, STRESS_EXCHANGE)], mine);
	if (yours)
		push_block(w, yours);
	w->counts.handed_over += mine != NULL;
}

static void do_churn(struct stress_worker *w)
{
	struct stress_round *r = w->round;
	int device = (int)clv_rng_below(&w->rng, r->plan.devices);
	bool full = w->live[device] >= r->phase.target_bytes || w->block_count >= r->phase.target_blocks;
	if (w->relief) {
		w->relief--;
		if (w->block_count)
			do_free(w);
		else
			do_hand(w);
	} else if (w->block_count && chance(w, full ? 600 : 350)) {
		do_free(w);
	} else {
		do_alloc(w, device);
	}
}

static void do_drain(struct stress_worker *w)
{
	for (uint64_t n = clv_rng_below(&w->rng, w->block_count + 1); n; n--)
		do_free(w);
}

/* ---- the rest ---- */

static void do_time(struct stress_worker *w)
{
	struct stress_round *r = w->round;
	if (!r->plan.manual) {
		r->device->ops->pass_time(r->device, clv_rng_below(&w->rng, 8 * r->phase.work_ns));
		return;
	}
	struct stress_use on = clv_stress_enter(r, (uint32_t)clv_rng_below(&w->rng, r->stream_count));
	r->device->ops->complete(r->device, stress_stream_of(r, on.stream));
	clv_stress_leave(r, on);
}

static void do_look(struct stress_worker *w)
{
	struct stress_round *r = w->round;
	struct stress_block *b = random_block(w);
	cleave_ptr p = 0;
	if (!b)
		return;
	if (!right_address(w, b->device, b->size, b->addr))
		return;
	cleave_stream stream = {UINT64_MAX - 1, 0}; /* nobody's: a refused call does nothing on it */
	uint64_t inside =
		b->size > CLV_GRAIN ? clv_align_down(clv_rng_range(&w->rng, CLV_GRAIN, b->size - 1), CLV_GRAIN) : 1;
	int answer = cleave_free(r->heap, b->addr + inside, stream);
	if (answer != -EINVAL)
		WRONG(w, "freeing 0x%" PRIx64 ", which is inside a block, is answered with %d", b->addr + inside,
		      answer);
	answer = cleave_alloc(r->heap, (int)r->plan.devices, stream, b->size, &p);
	if (answer != -EINVAL || p)
		WRONG(w, "a request on a device that is not there is answered with %d", answer);
	answer = cleave_alloc(r->heap, b->device, stream, 0, &p);
	if (answer || p || cleave_free(r->heap, 0, stream))
		WRONG(w, "a request of 0 bytes is answered with %d and 0x%" PRIx64, answer, p);
	w->counts.refusals += 2;
}

static void do_stats(struct stress_worker *w)
{
	struct stress_round *r = w->round;
	int device = (int)clv_rng_below(&w->rng, r->plan.devices);
	cleave_heap_stats s;
	int answer = cleave_heap_get_stats(r->heap, device, &s);
	if (answer)
		WRONG(w, "cleave_heap_get_stats answers %d", answer);
	else if (s.stranded_bytes > s.free_bytes || s.cached_bytes > s.free_bytes ||
		 s.largest_hole_bytes > s.held_bytes || s.held_bytes > s.held_peak_bytes)
		WRONG(w,
		      "statistics contradict themselves: free %" PRIu64 ", stranded %" PRIu64 ", cached %" PRIu64
		      ", largest hole %" PRIu64 ", held %" PRIu64 ", peak %" PRIu64,
		      s.free_bytes, s.stranded_bytes, s.cached_bytes, s.largest_hole_bytes, s.held_bytes,
		      s.held_peak_bytes);
	if (stress_alone(r))
		digest(w, s.held_bytes);
}

static void do_trim(struct stress_worker *w)
{
	struct stress_round *r = w->round;
	int device = (int)clv_rng_below(&w->rng, r->plan.devices);
	uint64_t keep = clv_rng_below(&w->rng, 2) ? 0 : clv_rng_below(&w->rng, r->config->capacity), released = 0;
	uint64_t before = r->device->ops->used(r->device, device);
	int answer = cleave_heap_trim(r->heap, device, keep, &released);
	uint64_t after = r->device->ops->used(r->device, device);
	if (answer)
		WRONG(w, "cleave_heap_trim answers %d", answer);
	else if (stress_alone(r) && before - after != released)
		WRONG(w, "a trim says that it gave %" PRIu64 " bytes back; the device got %" PRIu64, released,
		      before - after);
	digest(w, released);
	w->counts.trims++;
}

void clv_stress_lift_limit(struct stress_worker *w, int device)
{
	struct stress_round *r = w->round;
	if (pthread_mutex_trylock(&r->limit_lock))
		return;
	r->limit[device] = 0;
	int answer = cleave_heap_set_limit(r->heap, device, 0);
	pthread_mutex_unlock(&r->limit_lock);
	if (answer)
		WRONG(w, "lifting the limit is answered with %d", answer);
	w->counts.limits++;
}

/* Half of the limits are about what is held now, where the next requests are. */
static void do_limit(struct stress_worker *w)
{
	struct stress_round *r = w->round;
	int device = (int)clv_rng_below(&w->rng, r->plan.devices), answer = 0;
	uint64_t capacity = r->config->capacity, kind = clv_rng_range(&w->rng, 2, 9);
	uint64_t part = clv_rng_range(&w->rng, capacity / 4, capacity), used = r->device->ops->used(r->device, device);
	if (pthread_mutex_trylock(&r->limit_lock))
		return;
	if (kind < 5) {
		answer = cleave_heap_set_limit(r->heap, device, r->limit[device] = part);
	} else if (kind < 7) {
		uint64_t near = used - used / 8 + clv_rng_below(&w->rng, clv_max_u64(used / 4, 8 * CLV_MIB));
		answer = cleave_heap_set_limit(r->heap, device, r->limit[device] = near);
	} else if (kind < 9) {
		r->headroom[device] = kind == 7 ? 0 : part / 8;
		answer = cleave_heap_set_headroom(r->heap, device, r->headroom[device]);
	} else {
		r->device->ops->set_foreign(r->device, device, clv_rng_below(&w->rng, 2) ? 0 : part / 4);
		/* which of two devices the heap asked about, and which answers got lost, is not known */
		if (stress_alone(r))
			r->asked_before = r->plan.devices > 1 || r->config->faults ? UINT64_MAX : heap_asks(r);
	}
	pthread_mutex_unlock(&r->limit_lock);
	if (answer)
		WRONG(w, "setting the limit or headroom is answered with %d", answer);
	w->counts.limits++;
}

bool clv_stress_keep_promise(struct stress_worker *w, int device)
{
	struct stress_round *r = w->round;
	clv_fault_pause(r->fault, true);
	cleave_heap_stats s;
	int answer = cleave_heap_trim(r->heap, device, 0, NULL);
	if (!answer)
		answer = cleave_heap_get_stats(r->heap, device, &s);
	if (answer)
		return WRONG(w, "a trim, or the statistics after it, answer %d", answer);
	if (s.free_bytes != s.stranded_bytes)
		return WRONG(w,
			     "after a trim to 0 bytes %" PRIu64 " are free, but %" PRIu64
			     " of them in frames with a live block",
			     s.free_bytes, s.stranded_bytes);
	uint64_t room = room_beside(r, device, &s);
	if (room) {
		struct stress_use on = clv_stress_enter(r, clv_stress_pick_stream(w, device));
		cleave_stream stream = clv_rng_below(&w->rng, 4) ? stress_stream_of(r, on.stream) : CLEAVE_STREAM_ANY;
		cleave_ptr p;
		answer = cleave_alloc(r->heap, device, stream, room, &p);
		if (answer || cleave_free(r->heap, p, stream))
			WRONG(w,
			      "a request of %" PRIu64
			      " bytes is answered with %d, though frames with live blocks hold %" PRIu64
			      ", and so much more can be held",
			      room, answer, s.held_bytes);
		clv_stress_leave(r, on);
		w->counts.allocs++;
		w->counts.frees++;
		w->counts.promises++;
	}
	clv_fault_pause(r->fault, false);
	return !atomic_load(&r->stop);
}

static void do_check(struct stress_worker *w)
{
	char why[512] = "";
	if (cleave_heap_check(w->round->heap, why, sizeof(why)))
		WRONG(w, "the heap contradicts its books: %s", why);
}

void clv_stress_step(struct stress_worker *w)
{
	struct stress_round *r = w->round;
	uint64_t pick = clv_rng_below(&w->rng, r->phase.op_sum);
	int op = 0;
	while (pick >= r->phase.op[op])
		pick -= r->phase.op[op++];
	w->op++;
	switch ((enum stress_op)op) {
	case OP_CHURN:
		do_churn(w);
		break;
	case OP_USE:
		do_use(w);
		break;
	case OP_HAND:
		do_hand(w);
		break;
	case OP_TIME:
		do_time(w);
		break;
	case OP_LOOK:
		do_look(w);
		break;
	case OP_STATS:
		do_stats(w);
		break;
	case OP_DRAIN:
		do_drain(w);
		break;
	case OP_TRIM:
		do_trim(w);
		break;
	case OP_LIMIT:
		if (clv_rng_below(&w->rng, 4))
			do_limit(w);
		else
			clv_stress_lift_limit(w, (int)clv_rng_below(&w->rng, r->plan.devices));
		break;
	case OP_DESTROY:
		clv_stress_destroy_stream(w, (uint32_t)clv_rng_below(&w->rng, r->stream_count));
		break;
	case OP_CHECK:
		do_check(w);
		break;
	case OP_COUNT:
		break;
	}
}
