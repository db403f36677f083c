/* SPDX-License-Identifier: MIT */
#include "stat_print.h"

#include "../../tracing/json_text.h"

/* A value that could not be made fails the whole: json_pack drops what it took and answers NULL. */

static double ago_s(const struct clv_stat_process *p, uint64_t ns)
{
	return (double)(p->now_ns - clv_min_u64(ns, p->now_ns)) / 1e9;
}

static json_t *failure_json(const struct clv_heap_state *s, const struct clv_stat_process *p)
{
	const cleave_failure *f = &s->failure;
	char text[4096];
	if (!f->number)
		return json_null();
	cleave_failure_print(f, text, sizeof(text));
	return json_pack("{s:o,s:f,s:s,s:o,s:o,s:o,s:o,s:o,s:o}", "number", clv_json_number(f->number), "ago_s",
			 ago_s(p, s->failed_ns), "text", text, "request_bytes", clv_json_number(f->request_bytes),
			 "live_bytes", clv_json_number(f->live_bytes), "held_bytes", clv_json_number(f->held_bytes),
			 "largest_free_bytes", clv_json_number(f->largest_hole_bytes), "limit_bytes",
			 clv_json_number(f->limit_bytes), "missing_bytes", clv_json_number(f->missing_bytes));
}

static json_t *reservation_json(const cleave_reservation_stats *r)
{
	return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:b,s:b}", "id", clv_json_number(r->id), "name",
			 clv_json_text(r->name), "bytes", clv_json_number(r->bytes), "count", clv_json_number(r->count),
			 "held", clv_json_number(r->held), "served", clv_json_number(r->served), "missed",
			 clv_json_number(r->missed), "yielded", clv_json_number(r->yielded), "trimmed",
			 clv_json_number(r->trimmed), "hard", r->hard != 0, "ended",
			 r->ended != CLEAVE_RESERVATION_LASTS);
}

static json_t *reservations_json(const struct clv_stat_part *part)
{
	json_t *list = json_array();
	for (uint64_t i = 0; i < part->device->reservations; i++)
		if (json_array_append_new(list, reservation_json(&part->reservations[i]))) {
			json_decref(list);
			return NULL;
		}
	return list;
}

/* Adds the keys of a flat object that is made by json_pack(); false: out of host memory. */
static bool add_all(json_t *to, json_t *from)
{
	bool good = from && !json_object_update(to, from);
	json_decref(from);
	return good;
}

static json_t *device_json(const struct clv_stat_part *part, const struct clv_stat_rates *rates, unsigned index,
			   const struct clv_stat_process *p)
{
	const struct clv_heap_state *s = &part->device->state;
	const struct clv_breakdown *b = &s->sorted;
	json_t *o = json_object();
	bool good =
		add_all(o, json_pack("{s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:{s:o,s:o,s:o},s:o,s:o,s:o,s:o}", "device",
				     (json_int_t)part->device->device, "total_bytes", clv_json_number(s->device_total),
				     "held_bytes", clv_json_number(b->held), "held_peak_bytes",
				     clv_json_number(s->stats.held_peak_bytes), "live_bytes", clv_json_number(b->live),
				     "live_peak_bytes", clv_json_number(s->stats.live_peak_bytes), "internal_bytes",
				     clv_json_number(b->internal), "stranded", "hard_bytes", clv_json_number(b->hard),
				     "soft_bytes", clv_json_number(b->soft), "stream_bytes", clv_json_number(b->stream),
				     "reserved_unused_bytes", clv_json_number(b->reserved), "pending_bytes",
				     clv_json_number(s->stats.pending_bytes), "cached_bytes",
				     clv_json_number(s->stats.cached_bytes), "largest_free_bytes",
				     clv_json_number(s->stats.largest_hole_bytes)));
	good = good &&
	       add_all(o,
		       json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "live_blocks",
				 clv_json_number(s->stats.live_blocks), "free_blocks",
				 clv_json_number(s->stats.free_blocks), "frames", clv_json_number(s->stats.frames),
				 "streams", clv_json_number(s->streams), "threads", clv_json_number(s->threads),
				 "allocs", clv_json_number(s->stats.allocs), "frees", clv_json_number(s->stats.frees),
				 "failures", clv_json_number(s->stats.failures), "splits",
				 clv_json_number(s->stats.splits), "merges", clv_json_number(s->stats.merges)));
	good = good && add_all(o, json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "frames_created",
					    clv_json_number(s->stats.frames_created), "frames_released",
					    clv_json_number(s->stats.frames_released), "frames_moved",
					    clv_json_number(s->stats.frames_moved), "device_waits",
					    clv_json_number(s->stats.device_waits), "host_waits",
					    clv_json_number(s->stats.host_waits), "limit_bytes",
					    clv_json_number(s->stats.limit_bytes), "headroom_bytes",
					    clv_json_number(s->stats.headroom_bytes)));
	good = good &&
	       add_all(o, json_pack("{s:o,s:o,s:o,s:o}", "allocs_per_s",
				    rates ? json_real(rates->devices[index].allocs) : json_null(), "frees_per_s",
				    rates ? json_real(rates->devices[index].frees) : json_null(), "reservations",
				    reservations_json(part), "last_failure", failure_json(s, p)));
	if (good)
		return o;
	json_decref(o);
	return NULL;
}

static json_t *calls_json(const struct clv_call_counts *c)
{
	json_t *calls = json_object();
	for (unsigned i = 0; i < CLV_CALL_COUNT; i++)
		if (json_object_set_new(calls, clv_call_name((enum clv_call)i), clv_json_number(c->calls[i]))) {
			json_decref(calls);
			return NULL;
		}
	return calls;
}

json_t *clv_stat_json(const struct clv_stat_view *view, const struct clv_stat_rates *rates)
{
	const struct clv_stat_process *p = view->process;
	json_t *devices = json_array();
	for (unsigned i = 0; i < view->used; i++)
		if (json_array_append_new(devices, device_json(&view->parts[i], rates, i, p))) {
			json_decref(devices);
			return NULL;
		}
	return json_pack("{s:i,s:o,s:f,s:o,s:i,s:o,s:f,s:o,s:o,s:o,s:o}", "pid", (int)p->pid, "version",
			 clv_json_text(p->library), "uptime_s", ago_s(p, p->opened_ns), "settings",
			 clv_json_text(p->settings), "device_count", (int)p->devices, "driver_calls",
			 calls_json(&p->driver), "driver_s", (double)p->driver.ns / 1e9, "rates_over_s",
			 rates ? json_real(rates->seconds) : json_null(), "driver_calls_per_s",
			 rates ? json_real(rates->driver_calls) : json_null(), "released_bytes",
			 p->op == CLV_STAT_TRIM ? clv_json_number(p->released) : json_null(), "devices", devices);
}
