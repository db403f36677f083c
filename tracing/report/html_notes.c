/* SPDX-License-Identifier: MIT */
#include "html_internal.h"

#define NOTED_MAX 2000u /* marks and phases that are told */

struct phase {
	const struct clv_note *begin;
	uint32_t to;
	uint32_t depth;
	bool open;
};

static json_t *note_text(const struct clv_trace *t, uint32_t text)
{
	return text < t->string_count ? clv_html_text(t->strings[text]) : json_string("");
}

/* What concerns no device is in the first history. */
static const struct clv_history *common(const struct clv_html_device *p)
{
	return &p->d->trace->histories[0];
}

/* The event of this device at which a note of the first history came. */
static uint32_t event_of(const struct clv_html_device *p, const struct clv_note *n)
{
	const struct clv_history *h = p->d->history;
	if (h == common(p))
		return (uint32_t)clv_min_u64(n->event, h->event_count);
	uint32_t low = 0, high = h->event_count;
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		if (h->events[mid].time_us < n->time_us)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

json_t *clv_html_marks(const struct clv_html_device *p)
{
	json_t *list = json_array();
	const struct clv_history *h = common(p);
	for (uint32_t i = 0; i < h->note_count && json_array_size(list) < NOTED_MAX; i++)
		if (h->notes[i].kind == CLV_EVENT_MARK &&
		    json_array_append_new(list, json_pack("{s:I, s:o}", "at", (json_int_t)event_of(p, &h->notes[i]),
							  "text", note_text(p->d->trace, h->notes[i].text)))) {
			json_decref(list);
			return NULL;
		}
	return list;
}

/* The latest open one of this name, or if an end has no name, of its thread. */
static struct phase *ending(struct phase *phases, uint32_t count, const struct clv_note *end)
{
	for (uint32_t i = count; i-- > 0;)
		if (phases[i].open && (end->text != CLV_NO_TEXT ? phases[i].begin->text == end->text
								: phases[i].begin->thread == end->thread))
			return &phases[i];
	return NULL;
}

static uint32_t find_phases(const struct clv_html_device *p, struct phase *phases)
{
	const struct clv_history *h = common(p);
	uint32_t count = 0, open = 0;
	for (uint32_t i = 0; i < h->note_count; i++) {
		const struct clv_note *n = &h->notes[i];
		if (n->kind == CLV_EVENT_PHASE_BEGIN && count < NOTED_MAX)
			phases[count++] = (struct phase){n, p->d->history->event_count, open++, true};
		struct phase *ended = n->kind == CLV_EVENT_PHASE_END ? ending(phases, count, n) : NULL;
		if (ended) {
			ended->open = false;
			ended->to = event_of(p, n);
			open--;
		}
	}
	return count;
}

json_t *clv_html_phases(const struct clv_html_device *p)
{
	struct phase *phases = clv_mem_alloc(NOTED_MAX * sizeof(*phases));
	json_t *list = phases ? json_array() : NULL;
	uint32_t count = phases ? find_phases(p, phases) : 0;
	for (uint32_t i = 0; list && i < count; i++) {
		uint32_t from = event_of(p, phases[i].begin);
		if (json_array_append_new(list, json_pack("{s:I, s:I, s:I, s:o}", "from", (json_int_t)from, "to",
							  (json_int_t)clv_max_u64(from, phases[i].to), "depth",
							  (json_int_t)phases[i].depth, "text",
							  note_text(p->d->trace, phases[i].begin->text)))) {
			json_decref(list);
			list = NULL;
		}
	}
	clv_mem_free(phases);
	return list;
}

json_t *clv_html_reservations(const struct clv_html_device *p)
{
	json_t *list = json_array();
	for (uint32_t i = 0; list && i < p->d->reservation_count; i++) {
		const struct clv_report_reservation *r = &p->d->reservations[i];
		json_t *j = json_pack("{s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:b}", "name",
				      note_text(p->d->trace, r->name), "slot", clv_json_number(r->slot_bytes), "slots",
				      clv_json_number(r->slots), "hard", r->hard, "held", clv_json_number(r->held),
				      "held_most", clv_json_number(r->held_bytes_peak), "served",
				      clv_json_number(r->served), "yielded", clv_json_number(r->yielded), "missed",
				      clv_json_number(r->missed), "ended", r->ended);
		if (json_array_append_new(list, j)) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}
