/* SPDX-License-Identifier: MIT */
#include "reserve.h"

#include "../base/size_text.h"
#include "../host/meta.h"
#include "cache.h"
#include "reclaim.h"
#include "space.h"
#include "streams.h"
#include "tell.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define SHOWS_WORK CLV_MIB /* a request of so much shows that the program works on the device */
#define ENDED_KEPT 64u     /* whose statistics are still told */
#define MISPLANNED_FROM 2  /* requests for which it yielded, */
#define MISPLANNED_TIMES 2 /* and so many more for each that it served, show that a plan is for another program */
#define SLOTS_LOOKED_AT 8  /* for one that can be had without a wait */

_Static_assert(CLV_RESERVE_ABOVE == CLV_SMALL_MAX, "what cannot be reserved comes from slabs");

/* ---- which reservations a size concerns ---- */

static bool lasts(const struct clv_reservation *r)
{
	return r->stats.ended == CLEAVE_RESERVATION_LASTS;
}

static bool class_takes(uint64_t slot_size, uint64_t size)
{
	return size <= slot_size && size > clv_max_u64(slot_size / 2, CLV_RESERVE_ABOVE);
}

/* Bits of reserve_sizes. The smallest of a class are too small by half. */
static uint64_t bits_of(uint64_t size, bool by_class)
{
	uint64_t bit = (uint64_t)1 << clv_log2(size);
	return by_class ? bit | bit >> 1 : bit;
}

static uint64_t bits_from(uint64_t size)
{
	return UINT64_MAX << clv_log2(size);
}

static const struct clv_reserve_text *set_for(const struct clv_arena *a, unsigned i)
{
	const struct clv_reserve_text *t = &a->heap->settings.reserves.items[i];
	return t->device == CLV_RESERVE_EACH_DEVICE || t->device == a->device ? t : NULL;
}

static void refresh_sizes(struct clv_arena *a)
{
	uint64_t bits = 0;
	for (const struct clv_reservation *r = a->reserves ? a->reserves->first : NULL; r; r = r->next)
		bits |= lasts(r) ? bits_of(r->size, r->stats.by_class) : 0;
	for (unsigned i = 0; a->reserves_due && i < a->heap->settings.reserves.count; i++) {
		const struct clv_reserve_text *t = set_for(a, i);
		if (t)
			bits |= bits_of(clv_align_up(t->bytes, CLV_GRAIN), t->by_class) | bits_from(SHOWS_WORK);
	}
	atomic_store_explicit(&a->reserve_sizes, bits, memory_order_relaxed);
}

static struct clv_reservation **exact_chain(struct clv_reserves *rs, uint64_t size)
{
	return &rs->exact[clv_mix64(size) % CLV_RESERVE_CHAINS];
}

/* The reservations that take requests of a size, one after the other: exact ones, then classes from the smallest slot on. */
struct matches {
	struct clv_reservation *heads[3];
	unsigned next_head;
	struct clv_reservation *at;
	uint64_t size;
};

static struct matches matches_of(struct clv_reserves *rs, uint64_t size)
{
	unsigned log2 = clv_log2(size);
	return (struct matches){.heads = {*exact_chain(rs, size), rs->classes[log2], rs->classes[log2 + 1]},
				.size = size};
}

static struct clv_reservation *next_match(struct matches *m)
{
	for (;;) {
		while (!m->at) {
			if (m->next_head == CLV_ARRAY_LEN(m->heads))
				return NULL;
			m->at = m->heads[m->next_head++];
		}
		struct clv_reservation *r = m->at;
		m->at = r->next_same;
		if (r->stats.by_class ? class_takes(r->size, m->size) : r->size == m->size)
			return r;
	}
}

static void link_chain(struct clv_reserves *rs, struct clv_reservation *r)
{
	struct clv_reservation **link = r->stats.by_class ? &rs->classes[clv_log2(r->size)] : exact_chain(rs, r->size);
	while (*link && (!r->stats.by_class || (*link)->size <= r->size))
		link = &(*link)->next_same;
	r->next_same = *link;
	*link = r;
}

static void unlink_chain(struct clv_reserves *rs, struct clv_reservation *r)
{
	struct clv_reservation **link = r->stats.by_class ? &rs->classes[clv_log2(r->size)] : exact_chain(rs, r->size);
	while (*link != r)
		link = &(*link)->next_same;
	*link = r->next_same;
}

/* ---- slots ---- */

static void hold(struct clv_arena *a, struct clv_reservation *r, struct clv_extent *e)
{
	e->live.requested = 0;
	e->live.held_for = r;
	e->live.held_next = r->slots;
	r->slots = e;
	r->stats.held++;
	a->reserve_bytes += e->size;
	a->reserve_slots++;
	CLV_TELL(a, RESERVE_HOLD, a->slots[e->slot]->stream, .addr = e->addr, .size = e->size, .a = r->size,
		 .text = r->stats.name);
}

static struct clv_extent *let_go(struct clv_arena *a, struct clv_reservation *r, struct clv_extent **link)
{
	struct clv_extent *e = *link;
	*link = e->live.held_next;
	e->live.held_for = NULL;
	e->live.held_next = NULL;
	r->stats.held--;
	a->reserve_bytes -= e->size;
	a->reserve_slots--;
	return e;
}

/* The last slot that was freed becomes a hole: of everybody's, if that is known to be in order. `need`: a request would have to
 * wait or fail otherwise. */
static void give_up_slot(struct clv_arena *a, struct clv_reservation *r, bool need)
{
	struct clv_extent *e = let_go(a, r, &r->slots);
	CLV_TELL(a, RESERVE_YIELD, a->slots[e->slot]->stream, .addr = e->addr, .size = e->size, .a = r->size, .b = need,
		 .text = r->stats.name);
	if (clv_slot_passed(a, e->slot, e->live.seq))
		clv_space_free(a, e, CLV_SLOT_ANY, 0);
	else
		clv_space_free(a, e, e->slot, e->live.seq);
}

/* Of stats.unused: those that are not there now have been of use. */
static void note_use(struct clv_reservation *r)
{
	r->stats.unused = clv_min_u64(r->stats.unused, r->stats.held);
}

static uint64_t now(const struct clv_arena *a)
{
	return a->driver->now_ns(a->driver);
}

/* ---- phases ---- */

static void end(struct clv_arena *a, struct clv_reservation *r, int how)
{
	struct clv_reserves *rs = a->reserves;
	unlink_chain(rs, r);
	while (r->slots)
		give_up_slot(a, r, false);
	r->stats.ended = how;
	CLV_TELL(a, RESERVE_END, CLEAVE_STREAM_ANY, .size = r->size, .a = r->stats.served, .b = r->stats.missed,
		 .text = r->stats.name);
	rs->lasting--;
	rs->timed -= r->idle_ns != 0;
	rs->ended++;
	refresh_sizes(a);
}

int clv_reserve_end(struct clv_arena *a, uint64_t id)
{
	int found = id ? -ENOENT : 0;
	if (!id && a->reserves_due) { /* what the settings ask for is not made any more */
		a->reserves_due = false;
		refresh_sizes(a);
	}
	for (struct clv_reservation *r = a->reserves ? a->reserves->first : NULL, *next; r; r = next) {
		next = r->next;
		if (!lasts(r) || (id && r->stats.id != id))
			continue;
		end(a, r, CLEAVE_RESERVATION_ENDED_BY_CALL);
		found = 0;
	}
	return found;
}

void clv_reserve_expire(struct clv_arena *a)
{
	struct clv_reserves *rs = a->reserves;
	if (!rs || !rs->timed || rs->making)
		return;
	uint64_t time = now(a);
	for (struct clv_reservation *r = rs->first, *next; r; r = next) {
		next = r->next;
		if (lasts(r) && r->idle_ns && time > r->last_ns && time - r->last_ns > r->idle_ns)
			end(a, r, CLEAVE_RESERVATION_ENDED_IDLE);
	}
}

/* ---- making ---- */

static bool ready(struct clv_arena *a)
{
	if (a->reserves)
		return true;
	a->reserves = clv_meta_zalloc(sizeof(*a->reserves));
	if (!a->reserves)
		return false;
	a->reserves->tail = &a->reserves->first;
	return true;
}

/* One that has ended; *link is the next one then. */
static void forget(struct clv_reserves *rs, struct clv_reservation **link)
{
	struct clv_reservation *r = *link;
	*link = r->next;
	if (!r->next)
		rs->tail = link;
	rs->ended--;
	clv_meta_free(r);
}

/* Where there would be more than are told of. */
static void forget_ended(struct clv_reserves *rs)
{
	for (struct clv_reservation **link = &rs->first; rs->ended > ENDED_KEPT;)
		if (lasts(*link))
			link = &(*link)->next;
		else
			forget(rs, link);
}

/* As many slots as can be had; 0 if that is all, else why not. */
static int fill(struct clv_arena *a, struct clv_reservation *r, cleave_stream stream, bool wait)
{
	struct clv_slot *slot = r->stats.one_stream ? clv_slot_get(a, stream) : a->slots[CLV_SLOT_ANY];
	struct clv_request rq = {.size = r->size,
				 .align = CLV_GRAIN,
				 .slot = slot,
				 .exact = true,
				 .no_wait = !wait,
				 .reserves = true};
	int why = slot ? 0 : -ENOSPC;
	while (!why && r->stats.made < r->stats.count) {
		struct clv_extent *e = clv_reclaim_alloc(a, &rq, &why);
		if (!e)
			break;
		hold(a, r, e);
		r->stats.made++;
		r->stats.unused++;
	}
	return why;
}

/* It is as if it had never been. */
static void unmake(struct clv_arena *a, struct clv_reservation *r)
{
	struct clv_reserves *rs = a->reserves;
	end(a, r, CLEAVE_RESERVATION_ENDED_BY_CALL);
	struct clv_reservation **link = &rs->first;
	while (*link != r)
		link = &(*link)->next;
	forget(rs, link);
}

int clv_reserve_make(struct clv_arena *a, const cleave_reservation *asked, bool in_full, uint64_t *id)
{
	struct clv_reservation *r = ready(a) ? clv_meta_zalloc(sizeof(*r)) : NULL;
	if (!r)
		return -ENOSPC;
	struct clv_reserves *rs = a->reserves;
	r->stats = (cleave_reservation_stats){
		.id = ++rs->last_id,
		.bytes = asked->bytes,
		.count = asked->count,
		.after_n = asked->after_n,
		.uses = asked->uses,
		.idle_ms = asked->idle_ms,
		.stream_id = asked->one_stream ? asked->stream.id : 0,
		.one_stream = asked->one_stream != 0,
		.by_class = asked->by_class != 0,
		.hard = asked->hard != 0,
	};
	snprintf(r->stats.name, sizeof(r->stats.name), "%s", asked->name ? asked->name : "");
	r->size = clv_align_up(asked->bytes, CLV_GRAIN);
	r->idle_ns = asked->idle_ms * 1000000;
	r->last_ns = now(a);
	CLV_TELL(a, RESERVE, CLEAVE_STREAM_ANY, .size = r->size, .a = r->stats.count, .b = r->stats.hard,
		 .text = r->stats.name);
	forget_ended(rs);
	rs->lasting++;
	rs->timed += r->idle_ns != 0;
	*rs->tail = r;
	rs->tail = &r->next;
	link_chain(rs, r);
	refresh_sizes(a);
	clv_caches_flush(a); /* empty chunks may be what it needs */
	rs->making++;
	int why = -ENOMEM; /* others are to yield only if that can help */
	if (!in_full || (asked->count <= UINT64_MAX / r->size && clv_reclaim_may_fit(a, r->size * asked->count)))
		why = fill(a, r, asked->stream, in_full);
	rs->making--;
	if (why && in_full) {
		unmake(a, r);
		return why;
	}
	r->stats.refused = why;
	r->last_ns = now(a); /* idle time begins when it is made */
	if (id)
		*id = r->stats.id;
	return 0;
}

static CLV_PRINTF(2, 3) void warn(struct clv_arena *a, const char *fmt, ...)
{
	struct cleave_heap *heap = a->heap;
	pthread_mutex_lock(&heap->lock);
	void (*tell)(void *, const char *) = heap->warn;
	void *arg = heap->warn_arg;
	pthread_mutex_unlock(&heap->lock);
	if (!tell)
		return;
	char text[512];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	tell(arg, text);
}

/* "the hard reservation 'name' of 147.0 MiB" */
static const char *described(const cleave_reservation_stats *s, char *buf, size_t len)
{
	char size[32];
	snprintf(buf, len, "the %s reservation %s%s%sof %s", s->hard ? "hard" : "soft", s->name[0] ? "'" : "", s->name,
		 s->name[0] ? "' " : "", clv_size_print(s->bytes, size, sizeof(size)));
	return buf;
}

/* Nobody gets the error of a reservation that the settings ask for: a hard one takes what it can, and is warned of. */
static void make_one_set(struct clv_arena *a, const struct clv_reserve_text *t)
{
	const cleave_reservation asked = {.name = t->name,
					  .bytes = t->bytes,
					  .count = t->count,
					  .after_n = t->after_n,
					  .uses = t->uses,
					  .idle_ms = t->idle_ms,
					  .by_class = t->by_class,
					  .hard = t->hard};
	char text[128];
	if (clv_reserve_make(a, &asked, false, NULL)) {
		cleave_reservation_stats none = {.bytes = t->bytes, .hard = t->hard};
		warn(a, "device %d: %s cannot be made: host memory is out", a->device,
		     described(&none, text, sizeof(text)));
		return;
	}
	const struct clv_reservation *r = CLV_CONTAINER_OF(a->reserves->tail, struct clv_reservation, next);
	if (r->stats.hard && r->stats.made < r->stats.count)
		warn(a, "device %d: %s got %" PRIu64 " of %" PRIu64 " slots when it was made", a->device,
		     described(&r->stats, text, sizeof(text)), r->stats.made, r->stats.count);
}

/* Hard ones first: the others take what is left. */
static void make_set(struct clv_arena *a)
{
	struct clv_reserves *rs = ready(a) ? a->reserves : NULL; /* NULL: each says why it is not made */
	a->reserves_due = false;
	if (rs)
		rs->making++;
	for (int pass = 0; pass < 2; pass++)
		for (unsigned i = 0; i < a->heap->settings.reserves.count; i++) {
			const struct clv_reserve_text *t = set_for(a, i);
			if (t && t->hard == !pass)
				make_one_set(a, t);
		}
	if (rs)
		rs->making--;
	for (struct clv_reservation *r = rs ? rs->first : NULL; r; r = r->next)
		r->last_ns = now(a);
	refresh_sizes(a);
}

static bool shows_work(const struct clv_arena *a, uint64_t size)
{
	bool shows = size >= SHOWS_WORK;
	for (unsigned i = 0; !shows && i < a->heap->settings.reserves.count; i++) {
		const struct clv_reserve_text *t = set_for(a, i);
		uint64_t slot_size = t ? clv_align_up(t->bytes, CLV_GRAIN) : 0;
		shows = t && (t->by_class ? class_takes(slot_size, size) : slot_size == size);
	}
	return shows;
}

void clv_reserve_open(struct clv_arena *a)
{
	for (unsigned i = 0; i < a->heap->settings.reserves.count; i++)
		a->reserves_due |= set_for(a, i) != NULL;
	refresh_sizes(a);
}

void clv_reserve_close(struct clv_arena *a)
{
	for (struct clv_reservation *r = a->reserves ? a->reserves->first : NULL, *next; r; r = next) {
		next = r->next;
		clv_meta_free(r);
	}
	clv_meta_free(a->reserves);
}

/* ---- requests and frees ---- */

static bool of_stream(const struct clv_reservation *r, const struct clv_slot *slot)
{
	return !r->stats.one_stream || r->stats.stream_id == slot->stream.id;
}

static bool usable(const struct clv_arena *a, const struct clv_extent *e, const struct clv_slot *slot)
{
	return e->slot == slot->index || clv_slot_passed(a, e->slot, e->live.seq);
}

/* The slot comes into the order of the request. False if that cannot be without a wait of the host. */
static bool bring_over(struct clv_arena *a, struct clv_extent *e, struct clv_slot *to)
{
	struct clv_slot *from = a->slots[e->slot];
	if (from == to)
		return true;
	uint64_t seq = 0;
	if (!clv_slot_passed(a, e->slot, e->live.seq)) {
		clv_slot_record(a, from);
		clv_slot_poll(a, from);
		if (!clv_slot_passed(a, e->slot, e->live.seq)) {
			if (!clv_slot_follow(a, to, from))
				return false;
			seq = to->seq;
		}
	}
	e->slot = to->index;
	e->live.seq = seq;
	return true;
}

static struct clv_extent *take(struct clv_arena *a, struct clv_reservation *r, const struct clv_request *rq)
{
	struct clv_extent **pick = NULL, **link = &r->slots;
	for (int i = 0; *link && i < SLOTS_LOOKED_AT; i++, link = &(*link)->live.held_next) {
		if ((*link)->addr & (rq->align - 1))
			continue;
		if (!pick)
			pick = link;
		if (usable(a, *link, rq->slot)) {
			pick = link;
			break;
		}
	}
	if (!pick || !bring_over(a, *pick, rq->slot))
		return NULL;
	struct clv_extent *e = let_go(a, r, pick);
	CLV_TELL(a, RESERVE_SERVE, rq->slot->stream, .addr = e->addr, .size = e->size, .a = r->size, .text = r->stats.name);
	note_use(r);
	return e;
}

static void note_missed(struct clv_reserves *rs, struct clv_reservation *r, uint64_t size)
{
	r->stats.missed++;
	rs->missed++;
	rs->missed_bytes_most = clv_max_u64(rs->missed_bytes_most, size);
}

struct clv_extent *clv_reserve_serve(struct clv_arena *a, const struct clv_request *rq)
{
	if (rq->slot->lasting)
		return NULL;
	if (a->reserves_due && shows_work(a, rq->size))
		make_set(a);
	struct clv_reserves *rs = a->reserves;
	if (!rs || !rs->lasting)
		return NULL;
	clv_reserve_expire(a);
	struct matches m = matches_of(rs, rq->size);
	struct clv_reservation *missed = NULL;
	struct clv_extent *e = NULL;
	for (struct clv_reservation *r = next_match(&m), *next; r; r = next) {
		next = next_match(&m);
		if (!of_stream(r, rq->slot))
			continue;
		if (r->idle_ns)
			r->last_ns = now(a);
		if (r->stats.skipped < r->stats.after_n) {
			r->stats.skipped++;
			continue;
		}
		if (!e && (e = take(a, r, rq)))
			r->stats.served++;
		else if (!e && !missed)
			missed = r;
		if (++r->matched == r->stats.uses)
			end(a, r, CLEAVE_RESERVATION_ENDED_BY_USES);
	}
	if (!e && missed)
		note_missed(rs, missed, rq->size);
	return e;
}

/* What is held back is given up for others again and again, and serves few. To take what is freed for it once more would keep
 * holes apart that others need. */
static bool misplanned(const struct clv_reservation *r)
{
	return !r->stats.hard && r->given_up >= MISPLANNED_FROM + MISPLANNED_TIMES * r->stats.served;
}

bool clv_reserve_keep(struct clv_arena *a, struct clv_extent *block, struct clv_slot *slot, bool earlier)
{
	struct clv_reserves *rs = a->reserves;
	if (!rs || !rs->lasting || slot->lasting)
		return false;
	struct matches m = matches_of(rs, block->size);
	for (struct clv_reservation *r = next_match(&m); r; r = next_match(&m)) {
		if (r->size != block->size || r->stats.held >= r->stats.count || misplanned(r))
			continue;
		if (slot->index != CLV_SLOT_ANY && !of_stream(r, slot))
			continue;
		if (!earlier)
			block->live.seq = clv_slot_freed(a, slot, block->size, block->slot != slot->index);
		block->slot = slot->index;
		hold(a, r, block);
		r->stats.kept++;
		return true;
	}
	return false;
}

/* ---- giving up ---- */

/* The reservation with the smallest slot of at least `size` bytes, else the one with the largest. */
static struct clv_reservation *cheapest(const struct clv_arena *a, uint64_t size, bool hard)
{
	struct clv_reservation *pick = NULL;
	for (struct clv_reservation *r = a->reserves->first; r; r = r->next) {
		if (!r->slots || r->stats.hard != hard)
			continue;
		bool better =
			!pick || (pick->size < size ? r->size > pick->size : r->size >= size && r->size < pick->size);
		pick = better ? r : pick;
	}
	return pick;
}

bool clv_reserve_yield(struct clv_arena *a, uint64_t size, bool hard)
{
	uint64_t bytes = 0;
	if (!a->reserve_slots)
		return false;
	while (bytes < size) {
		struct clv_reservation *r = cheapest(a, size - bytes, hard);
		if (!r)
			break;
		bytes += r->size;
		a->reserves->yielded_bytes += r->size;
		r->stats.yielded++;
		r->given_up += !r->given_up || r->given_up_for != a->large_allocs; /* however many slots for one request */
		r->given_up_for = a->large_allocs;
		give_up_slot(a, r, true);
		note_use(r);
		char text[128], request[32];
		if (hard && r->stats.yielded == 1) /* the statistics count the others */
			warn(a, "device %d: %s gives slots up, since a request of %s would have failed otherwise",
			     a->device, described(&r->stats, text, sizeof(text)),
			     clv_size_print(size, request, sizeof(request)));
	}
	return bytes != 0;
}

void clv_reserve_trim(struct clv_arena *a)
{
	clv_reserve_expire(a);
	if (!a->reserve_slots)
		return;
	for (struct clv_reservation *r = a->reserves->first; r; r = r->next) {
		if (r->stats.hard)
			continue;
		for (; r->slots; note_use(r)) {
			r->stats.trimmed++;
			give_up_slot(a, r, false);
		}
	}
}

/* ---- books ---- */

uint64_t clv_reserve_pending(const struct clv_arena *a)
{
	uint64_t bytes = 0;
	if (!a->reserve_slots)
		return 0;
	for (const struct clv_reservation *r = a->reserves->first; r; r = r->next)
		for (const struct clv_extent *e = r->slots; e; e = e->live.held_next)
			bytes += clv_slot_passed(a, e->slot, e->live.seq) ? 0 : e->size;
	return bytes;
}

static bool in_chain(struct clv_reserves *rs, const struct clv_reservation *r)
{
	struct matches m = matches_of(rs, r->size);
	for (const struct clv_reservation *at = next_match(&m); at; at = next_match(&m))
		if (at == r)
			return true;
	return false;
}

static const char *check_one(const struct clv_arena *a, const struct clv_reservation *r)
{
	const cleave_reservation_stats *s = &r->stats;
	uint64_t held = 0;
	for (const struct clv_extent *e = r->slots; e; e = e->live.held_next, held++) {
		if (e->kind != CLV_LIVE || e->chunk || e->live.held_for != r || e->live.requested || e->size != r->size)
			return "reserve: what is held back is no slot of its reservation";
		if (e->slot >= a->slot_count || a->slots[e->slot]->lasting || e->live.seq > a->slots[e->slot]->seq)
			return "reserve: a slot waits for work that does not end";
	}
	if (held != s->held || held > s->count || (lasts(r) && s->unused > held))
		return "reserve: a reservation holds another number of slots than its books say, or too many";
	if (lasts(r) != in_chain(a->reserves, r) || (!lasts(r) && held))
		return "reserve: a reservation is not in the chain of its size, or in one after its end";
	if (lasts(r) && s->made + s->kept != s->held + s->served + s->yielded + s->trimmed)
		return "reserve: the books of a reservation do not add up";
	uint64_t bits = bits_of(r->size, s->by_class);
	if (lasts(r) && (atomic_load_explicit(&a->reserve_sizes, memory_order_relaxed) & bits) != bits)
		return "reserve: requests of a reserved size would not be noticed";
	return NULL;
}

const char *clv_reserve_check(const struct clv_arena *a)
{
	uint64_t bytes = 0, slots = 0;
	unsigned lasting = 0, timed = 0, ended = 0;
	const struct clv_reserves *rs = a->reserves;
	for (const struct clv_reservation *r = rs ? rs->first : NULL; r; r = r->next) {
		const char *broken = check_one(a, r);
		if (broken)
			return broken;
		bytes += r->stats.held * r->size;
		slots += r->stats.held;
		lasting += lasts(r);
		timed += lasts(r) && r->idle_ns;
		ended += !lasts(r);
	}
	if (bytes != a->reserve_bytes || slots != a->reserve_slots)
		return "reserve: the arena's sums are not those of its reservations";
	if (rs && (lasting != rs->lasting || timed != rs->timed || ended != rs->ended))
		return "reserve: reservations are counted wrongly";
	return NULL;
}
