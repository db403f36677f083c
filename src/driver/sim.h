/* SPDX-License-Identifier: MIT
 *
 * sim: a simulated device behind the driver table: capacity, a virtual clock, the VMM rules and refusals of a real GPU,
 * streams and events that complete when the clock or a test says so, and optional real memory behind the addresses.
 * One mutex guards each simulated driver.
 */
#ifndef CLV_SIM_H
#define CLV_SIM_H

#include "driver.h"

struct clv_sim_config {
	int devices;          /* 0: one */
	uint64_t capacity;    /* bytes a device can give, rounded down to the granularity; 0: 139 GiB */
	uint64_t granularity; /* 0: 2 MiB */
	bool backing;         /* real memory (memfd) behind each frame: clv_sim_bytes works */
	bool manual;          /* events complete by clv_sim_complete() or a synchronize, never by the clock */
	bool clock_free;      /* calls are charged to counts.ns but do not advance the clock (replays set it themselves) */
	uint64_t event_lag_ns; /* an event recorded at t completes at max(t + lag, end of the work before it) */
};

/* Returns NULL if host memory is out. Close with driver->close. */
struct clv_driver *clv_sim_open(const struct clv_sim_config *config);

/* The virtual clock, in nanoseconds since open. Work and events that are due complete. Setting it back is ignored. */
void clv_sim_set_time(struct clv_driver *sim, uint64_t ns);
void clv_sim_advance(struct clv_driver *sim, uint64_t ns);

/* Appends work to a stream (streams exist from their first use): it ends `ns` after the work before it, and `fn`, if any,
 * runs when it ends, in stream order, without the driver's mutex. */
enum clv_result clv_sim_launch(struct clv_driver *sim, cleave_stream stream, uint64_t ns, void (*fn)(void *), void *arg);

/* Completes everything appended to the stream so far (and what that waits for). */
void clv_sim_complete(struct clv_driver *sim, cleave_stream stream);

/* The host address of `size` bytes at a device address, or NULL if they are not all mapped with access, or not backed, or
 * not contiguous on the host (a range across frames: ask frame by frame, *contiguous says how many bytes are). */
uint8_t *clv_sim_bytes(struct clv_driver *sim, uint64_t addr, uint64_t size, uint64_t *contiguous);

/* Bytes that frames and plain allocations hold now, and the peak. */
uint64_t clv_sim_used(struct clv_driver *sim, int device);
uint64_t clv_sim_used_peak(struct clv_driver *sim, int device);

/* Takes memory away as another process would (cuMemGetInfo's free shrinks); 0 gives all of it back. */
void clv_sim_set_foreign(struct clv_driver *sim, int device, uint64_t bytes);

/* After close-down by the user: NULL if no handle, mapping, reservation, event or plain allocation is left, else the name
 * of the first kind that leaks. */
const char *clv_sim_leaks(struct clv_driver *sim);

#endif
