/* SPDX-License-Identifier: MIT
 *
 * The public functions of reservations, and what is said of them to people.
 */
#include "reserve.h"

#include "../base/size_text.h"
#include "../base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static bool makes_sense(const cleave_reservation *r)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(r->reserved); i++)
		if (r->reserved[i])
			return false;
	if (r->one_stream && clv_stream_is_virtual(r->stream.id))
		return false;
	return r->idle_ms <= UINT64_MAX / 1000000 && clv_reserve_sane(r->bytes, r->count, NULL);
}

int cleave_reserve(cleave_heap *heap, int device, const cleave_reservation *reservation, uint64_t *id)
{
	int why = -EINVAL;
	struct clv_arena *a =
		heap && reservation && makes_sense(reservation) ? clv_heap_arena(heap, device, &why) : NULL;
	if (!a)
		return why;
	pthread_mutex_lock(&a->lock);
	why = clv_reserve_make(a, reservation, reservation->hard != 0, id);
	pthread_mutex_unlock(&a->lock);
	return why;
}

int cleave_reserve_end(cleave_heap *heap, int device, uint64_t id)
{
	int why = -EINVAL;
	struct clv_arena *a = heap ? clv_heap_arena(heap, device, &why) : NULL;
	if (!a)
		return why;
	pthread_mutex_lock(&a->lock);
	why = clv_reserve_end(a, id);
	pthread_mutex_unlock(&a->lock);
	return why;
}

int cleave_reserve_stats(cleave_heap *heap, int device, cleave_reservation_stats *out, size_t room, size_t *count)
{
	int why = -EINVAL;
	struct clv_arena *a = heap && count && (out || !room) ? clv_heap_arena(heap, device, &why) : NULL;
	if (!a)
		return why;
	pthread_mutex_lock(&a->lock);
	clv_reserve_expire(a);
	*count = 0;
	for (const struct clv_reservation *r = a->reserves ? a->reserves->first : NULL; r; r = r->next, ++*count)
		if (*count < room)
			out[*count] = r->stats;
	pthread_mutex_unlock(&a->lock);
	return 0;
}

int cleave_reserve_on_warning(cleave_heap *heap, void (*warn)(void *arg, const char *sentence), void *arg)
{
	if (!heap)
		return -EINVAL;
	pthread_mutex_lock(&heap->lock);
	heap->warn = warn;
	heap->warn_arg = arg;
	pthread_mutex_unlock(&heap->lock);
	return 0;
}

/* ---- for people ---- */

struct text {
	struct clv_text text;
	bool differs; /* something was said that is not as planned */
};

static void CLV_PRINTF(2, 3) differ(struct text *t, const char *fmt, ...)
{
	char part[160];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(part, sizeof(part), fmt, ap);
	va_end(ap);
	clv_text_say(&t->text, "%s %s", t->differs ? ";" : "; not as planned:", part);
	t->differs = true;
}

static const char *const ends[] = {
	[CLEAVE_RESERVATION_LASTS] = "",
	[CLEAVE_RESERVATION_ENDED_BY_CALL] = "; ended",
	[CLEAVE_RESERVATION_ENDED_IDLE] = "; ended as no request came for a while",
	[CLEAVE_RESERVATION_ENDED_BY_USES] = "; ended by its last use",
};

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

int cleave_reservation_print(const cleave_reservation_stats *s, char *buf, size_t len)
{
	struct text t = {{buf, buf ? len : 0, 0}, false};
	char size[32];
	clv_text_say(&t.text, "reservation %" PRIu64 "%s%s%s, %s: %" PRIu64 " of %s%s", s->id, s->name[0] ? " '" : "",
		     s->name, s->name[0] ? "'" : "", s->hard ? "hard" : "soft", s->count,
		     clv_size_print(s->bytes, size, sizeof(size)), s->by_class ? " and less" : "");
	if (s->after_n)
		clv_text_say(&t.text, " after %" PRIu64 " request%s", s->after_n, plural(s->after_n));
	clv_text_say(&t.text, "; %" PRIu64 " request%s served, %" PRIu64 " held now%s", s->served, plural(s->served),
		     s->held, s->ended >= 0 && (size_t)s->ended < CLV_ARRAY_LEN(ends) ? ends[s->ended] : "");
	if (s->made < s->count)
		differ(&t, "%" PRIu64 " could be had at first%s", s->made,
		       s->refused == -ENOSPC ? " (host memory was out)"
		       : s->refused == -EIO  ? " (the driver refused)"
					     : "");
	if (s->skipped < s->after_n)
		differ(&t, "only %" PRIu64 " of the request%s before it came", s->skipped, plural(s->after_n));
	if (s->missed)
		differ(&t, "%" PRIu64 " request%s found none left", s->missed, plural(s->missed));
	if (s->served + s->missed < s->uses)
		differ(&t, "%" PRIu64 " uses were expected", s->uses);
	if (s->unused)
		differ(&t, "%" PRIu64 " %s never used", s->unused, s->unused == 1 ? "was" : "were");
	if (s->yielded)
		differ(&t, "%" PRIu64 " given up for other requests", s->yielded);
	if (s->trimmed)
		differ(&t, "%" PRIu64 " given up to trims", s->trimmed);
	return (int)t.text.at;
}
