/* SPDX-License-Identifier: MIT
 *
 * lasting_driver: a driver over the simulated one that has virtual streams (CLV_STREAM_VIRTUAL), as the cuda driver has for
 * graphs: whatever begins is numbered, and what was freed before a mark is free when all is gone that had begun by then.
 * It also keeps a map of what is mapped where. One thread.
 */
#ifndef CLV_LASTING_DRIVER_H
#define CLV_LASTING_DRIVER_H

#include "../src/driver/sim.h"

#include <check.h>

#define LASTING_MAX 4096

struct lasting {
	struct clv_driver base;
	struct clv_driver *sim;
	uint64_t number;         /* of what began last */
	bool alive[LASTING_MAX]; /* by number */
	struct {
		clv_event event;
		uint64_t stream, mark;
	} marks[LASTING_MAX];
	unsigned mark_count;
	struct mapping {
		uint64_t addr, size;
		clv_handle handle;
	} mappings[LASTING_MAX];
	unsigned mapping_count;
};

static struct lasting *lasting_of(struct clv_driver *d)
{
	return CLV_CONTAINER_OF(d, struct lasting, base);
}

/* Of a stream that is apart: what has the number in its id is gone, or (0) everything is. */
static bool lasting_passed(const struct lasting *l, uint64_t stream, uint64_t mark)
{
	uint64_t number = stream >> 22 & (((uint64_t)1 << 40) - 1);
	if (clv_stream_is_apart(stream) && number)
		return !l->alive[number];
	if (clv_stream_is_apart(stream))
		mark = l->number;
	for (uint64_t n = 1; n <= mark; n++)
		if (l->alive[n])
			return false;
	return true;
}

static inline uint64_t lasting_begin(struct lasting *l)
{
	ck_assert_uint_lt(l->number + 1, LASTING_MAX);
	l->alive[++l->number] = true;
	return l->number;
}

/* ---- events ---- */

static unsigned mark_of(const struct lasting *l, clv_event event)
{
	unsigned i = 0;
	while (i < l->mark_count && l->marks[i].event != event)
		i++;
	return i;
}

static void drop_mark(struct lasting *l, clv_event event)
{
	unsigned i = mark_of(l, event);
	if (i < l->mark_count)
		l->marks[i] = l->marks[--l->mark_count];
}

static enum clv_result lasting_event_record(struct clv_driver *d, clv_event event, cleave_stream stream)
{
	struct lasting *l = lasting_of(d);
	drop_mark(l, event);
	if (!clv_stream_is_virtual(stream.id))
		return l->sim->event_record(l->sim, event, stream);
	ck_assert_uint_lt(l->mark_count, LASTING_MAX);
	l->marks[l->mark_count].event = event;
	l->marks[l->mark_count].stream = stream.id;
	l->marks[l->mark_count++].mark = l->number;
	return CLV_OK;
}

static enum clv_result lasting_event_query(struct clv_driver *d, clv_event event)
{
	struct lasting *l = lasting_of(d);
	unsigned i = mark_of(l, event);
	if (i == l->mark_count)
		return l->sim->event_query(l->sim, event);
	return lasting_passed(l, l->marks[i].stream, l->marks[i].mark) ? CLV_OK : CLV_NOT_READY;
}

static enum clv_result lasting_event_synchronize(struct clv_driver *d, clv_event event)
{
	struct lasting *l = lasting_of(d);
	if (mark_of(l, event) == l->mark_count)
		return l->sim->event_synchronize(l->sim, event);
	return lasting_event_query(d, event) == CLV_OK ? CLV_OK : CLV_CAPTURING;
}

static enum clv_result lasting_event_destroy(struct clv_driver *d, clv_event event)
{
	struct lasting *l = lasting_of(d);
	drop_mark(l, event);
	return l->sim->event_destroy(l->sim, event);
}

static enum clv_result lasting_stream_wait_event(struct clv_driver *d, cleave_stream stream, clv_event event)
{
	struct lasting *l = lasting_of(d);
	if (clv_stream_is_virtual(stream.id) || mark_of(l, event) < l->mark_count)
		return lasting_event_query(d, event) == CLV_OK ? CLV_OK : CLV_CAPTURING;
	return l->sim->stream_wait_event(l->sim, stream, event);
}

static enum clv_result lasting_stream_synchronize(struct clv_driver *d, cleave_stream stream)
{
	struct lasting *l = lasting_of(d);
	if (clv_stream_is_virtual(stream.id))
		return lasting_passed(l, stream.id, l->number) ? CLV_OK : CLV_CAPTURING;
	return l->sim->stream_synchronize(l->sim, stream);
}

/* ---- mappings ---- */

static enum clv_result lasting_map(struct clv_driver *d, uint64_t addr, uint64_t size, uint64_t offset,
				   clv_handle handle)
{
	struct lasting *l = lasting_of(d);
	enum clv_result r = l->sim->map(l->sim, addr, size, offset, handle);
	ck_assert_uint_lt(l->mapping_count, LASTING_MAX);
	if (r == CLV_OK)
		l->mappings[l->mapping_count++] = (struct mapping){addr, size, handle};
	return r;
}

static enum clv_result lasting_unmap(struct clv_driver *d, uint64_t addr, uint64_t size)
{
	struct lasting *l = lasting_of(d);
	enum clv_result r = l->sim->unmap(l->sim, addr, size);
	for (unsigned i = 0; r == CLV_OK && i < l->mapping_count;) {
		struct mapping *m = &l->mappings[i];
		if (m->addr >= addr && m->addr + m->size <= addr + size)
			*m = l->mappings[--l->mapping_count];
		else
			i++;
	}
	return r;
}

/* What is mapped at an address; NULL: nothing. */
static inline const struct mapping *mapped_at(const struct lasting *l, uint64_t addr)
{
	for (unsigned i = 0; i < l->mapping_count; i++)
		if (addr - l->mappings[i].addr < l->mappings[i].size)
			return &l->mappings[i];
	return NULL;
}

/* ---- the rest is the simulated driver's ---- */

#define LASTING_PASS(name, params, ...)                                                                                \
	static enum clv_result lasting_##name params                                                                   \
	{                                                                                                              \
		struct clv_driver *sim_ = lasting_of(d)->sim;                                                          \
		return sim_->name(sim_, __VA_ARGS__);                                                                  \
	}
LASTING_PASS(device_info, (struct clv_driver * d, int device, struct clv_device_info *out), device, out)
LASTING_PASS(mem_get_info, (struct clv_driver * d, int device, uint64_t *free, uint64_t *total), device, free, total)
LASTING_PASS(address_reserve, (struct clv_driver * d, uint64_t *addr, uint64_t size, uint64_t align), addr, size, align)
LASTING_PASS(address_free, (struct clv_driver * d, uint64_t addr, uint64_t size), addr, size)
LASTING_PASS(create, (struct clv_driver * d, clv_handle *handle, uint64_t size, int device), handle, size, device)
LASTING_PASS(release, (struct clv_driver * d, clv_handle handle), handle)
LASTING_PASS(set_access, (struct clv_driver * d, uint64_t addr, uint64_t size, int device), addr, size, device)
LASTING_PASS(mem_alloc, (struct clv_driver * d, uint64_t *addr, uint64_t size, int device), addr, size, device)
LASTING_PASS(mem_free, (struct clv_driver * d, uint64_t addr), addr)
LASTING_PASS(event_create, (struct clv_driver * d, clv_event *event, int device), event, device)

static uint64_t lasting_now_ns(struct clv_driver *d)
{
	return lasting_of(d)->sim->now_ns(lasting_of(d)->sim);
}

static void lasting_pause(struct clv_driver *d, uint64_t ns)
{
	lasting_of(d)->sim->pause(lasting_of(d)->sim, ns);
}

static void lasting_counts(struct clv_driver *d, struct clv_call_counts *out)
{
	lasting_of(d)->sim->counts(lasting_of(d)->sim, out);
}

static inline void lasting_open(struct lasting *l, const struct clv_sim_config *config)
{
	*l = (struct lasting){.sim = clv_sim_open(config)};
	ck_assert_ptr_nonnull(l->sim);
	l->base.name = "lasting";
	l->base.devices = l->sim->devices;
#define X(field, name) l->base.field = lasting_##field;
	CLV_DRIVER_CALLS(X)
#undef X
	l->base.device_info = lasting_device_info;
	l->base.now_ns = lasting_now_ns;
	l->base.pause = lasting_pause;
	l->base.counts = lasting_counts;
}

static inline void lasting_close(struct lasting *l)
{
	const char *leak = clv_sim_leaks(l->sim);
	ck_assert_msg(!leak, "leaked: %s", leak);
	l->sim->close(l->sim);
}

#endif
