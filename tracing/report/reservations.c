/* SPDX-License-Identifier: MIT */
#include "reservations.h"

#include "../memory.h"

/* Reservations are few: there are as many as a person or a plan named. */
#define MOST 4096u

struct lister {
	struct clv_report_device *d;
	size_t cap;
	uint64_t now[MOST]; /* bytes that each holds back */
};

/* By name and size of a slot; a new one is empty. NULL: out of host memory, or there are too many to tell of. */
static struct clv_report_reservation *reservation_of(struct lister *l, const struct clv_note *n)
{
	struct clv_report_device *d = l->d;
	bool by_a = n->kind == CLV_EVENT_RESERVE_HOLD || n->kind == CLV_EVENT_RESERVE_SERVE ||
		    n->kind == CLV_EVENT_RESERVE_YIELD;
	uint64_t slot = by_a ? n->a : n->size;
	for (uint32_t i = 0; i < d->reservation_count; i++)
		if (d->reservations[i].name == n->text && d->reservations[i].slot_bytes == slot)
			return &d->reservations[i];
	if (d->reservation_count == MOST ||
	    !clv_mem_reserve(&d->reservations, &l->cap, d->reservation_count + (size_t)1, sizeof(*d->reservations)))
		return NULL;
	l->now[d->reservation_count] = 0;
	d->reservations[d->reservation_count] = (struct clv_report_reservation){.name = n->text, .slot_bytes = slot};
	return &d->reservations[d->reservation_count++];
}

static void count(struct lister *l, struct clv_report_reservation *r, const struct clv_note *n)
{
	uint64_t *now = &l->now[r - l->d->reservations];
	switch (n->kind) {
	case CLV_EVENT_RESERVE:
		r->slots += n->a;
		r->hard |= n->b == 1;
		r->ended = false;
		break;
	case CLV_EVENT_RESERVE_HOLD:
		r->held++;
		*now += clv_min_u64(n->size, UINT64_MAX - *now);
		r->held_bytes_peak = clv_max_u64(r->held_bytes_peak, *now);
		break;
	case CLV_EVENT_RESERVE_SERVE:
	case CLV_EVENT_RESERVE_YIELD:
		*(n->kind == CLV_EVENT_RESERVE_SERVE ? &r->served : &r->yielded) += 1;
		*now -= clv_min_u64(n->size, *now);
		break;
	default: /* RESERVE_END */
		r->missed += n->b;
		r->ended = true;
		break;
	}
}

bool clv_reservations_list(struct clv_report_device *d, struct clv_error *err)
{
	struct lister *l = clv_mem_zalloc(1, sizeof(*l));
	bool ok = l != NULL;
	for (uint32_t i = 0; ok && i < d->history->note_count; i++) {
		const struct clv_note *n = &d->history->notes[i];
		if (n->kind < CLV_EVENT_RESERVE || n->kind > CLV_EVENT_RESERVE_END)
			continue;
		l->d = d;
		struct clv_report_reservation *r = reservation_of(l, n);
		ok = r || d->reservation_count == MOST;
		if (r)
			count(l, r, n);
	}
	clv_mem_free(l);
	return ok || clv_error_set(err, "out of host memory");
}
