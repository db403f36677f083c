/* SPDX-License-Identifier: MIT
 *
 * gather: answers about a heap (stat_wire.h), made in the process that has it, and read where they are used. An answer belongs
 * to who asked for it. Locks of the heap are held for one walk a device at a time (heap/breakdown.h).
 */
#ifndef CLV_GATHER_H
#define CLV_GATHER_H

#include "stat_wire.h"

#include "../base/error.h"

/* A heap that can be asked about, and is not closed before the process ends. */
struct clv_live {
	cleave_heap *heap;
	struct clv_driver *driver;
	const struct clv_settings *settings;
	void (*say)(const char *sentence); /* once in a while, to who runs the program */
	void (*recording)(struct clv_stat_recording *out); /* NULL: this library records nothing */
	uint64_t opened_ns;
};

#define CLV_STAT_DEVICES 64u

/* An answer in parts, which point into it. */
struct clv_stat_view {
	const struct clv_stat_process *process;
	unsigned used; /* devices */
	struct clv_stat_part {
		const struct clv_stat_device *device;
		const cleave_reservation_stats *reservations;
		const cleave_block *blocks;
		const struct clv_heap_frame *frames;
	} parts[CLV_STAT_DEVICES];
};

/* An answer, to be freed with clv_meta_free(); NULL: host memory is out. To be called by one thread at a time. So that a
 * program whose walks are long does not stand still because somebody asks all the time, a call that comes soon after the last
 * one first sleeps, at most 0.1 s. */
void *clv_gather(const struct clv_live *live, enum clv_stat_op op, size_t *len);

/* False with the reason: the bytes are not an answer that this version understands. `data` is aligned to 8. */
bool clv_stat_view(const void *data, size_t len, struct clv_stat_view *out, struct clv_error *err);

#endif
