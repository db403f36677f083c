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
	bool backing;         /* real memory (memfd), fresh with garbage in it, behind each frame: clv_sim_bytes works */
	bool manual;          /* events complete by clv_sim_complete() or a synchronize, never by the clock */
	bool clock_free;      /* calls are charged to counts.ns but do not advance the clock (replays set it) */
	uint64_t event_lag_ns; /* an event recorded at t completes at max(t + lag, end of the work before it) */
};

/* `config` may be NULL for the defaults. Returns NULL if host memory is out or the configuration makes no sense
 * (more than 64 devices, a granularity that is no power of two from 512 B on, with backing: from the host's page
 * size on). Close with driver->close; work that is still pending then is dropped and not run. */
struct clv_driver *clv_sim_open(const struct clv_sim_config *config);

/* The virtual clock, in nanoseconds since open. Work and events that are due complete. Setting it back is ignored. */
void clv_sim_set_time(struct clv_driver *sim, uint64_t ns);
void clv_sim_advance(struct clv_driver *sim, uint64_t ns);

/* Appends work to a stream (streams exist from their first use): it ends `ns` after the work before it, and `fn`, if
 * any, runs when it ends, in stream order and after what the stream was made to wait for, without the driver's
 * mutex, on whatever thread finds it due. `fn` may call the driver, but what waits (synchronize, mem_free) is
 * CLV_INVALID there; it must not take a lock that is held around calls of this driver. CLV_INVALID for
 * CLEAVE_STREAM_ANY. */
enum clv_result clv_sim_launch(struct clv_driver *sim, cleave_stream stream, uint64_t ns, void (*fn)(void *),
			       void *arg);

/* Completes everything appended to the stream so far (and what that waits for). The clock stands still in manual
 * mode, else it goes on to the end of that work. */
void clv_sim_complete(struct clv_driver *sim, cleave_stream stream);

/* The host address of `size` bytes at a device address, or NULL if they are not all mapped with access, or not
 * backed. Frames mapped side by side are contiguous on the host, and all mappings of a frame show the same bytes.
 * *contiguous (may be NULL) says how many of the bytes can be touched. */
uint8_t *clv_sim_bytes(struct clv_driver *sim, uint64_t addr, uint64_t size, uint64_t *contiguous);

/* What is at an address. */
struct clv_sim_place {
	bool plain;                 /* a plain allocation, else a reservation */
	uint64_t range, range_size; /* the reservation, or what the plain allocation's pages take */
	uint64_t addr, size;        /* the mapping or plain allocation; size 0: nothing is there */
	int device;                 /* whose memory it is */
	uint64_t access;            /* of the mapping: bit d, device d may touch it */
	clv_handle handle;          /* of the mapping's frame; 0: released */
	int file;                   /* plain, with backing: the bytes of the range, from file_offset on; the file is */
	uint64_t file_offset;       /* the driver's. Else -1 */
};
/* False: no reservation and no plain allocation is there. */
bool clv_sim_find(struct clv_driver *sim, uint64_t addr, struct clv_sim_place *out);

/* The opposite of set_access. */
enum clv_result clv_sim_clear_access(struct clv_driver *sim, uint64_t addr, uint64_t size, int device);

/* With backing: a frame whose bytes are a file of their own, of the frame's size; a descriptor of that, for the caller
 * to close, or -1; and a frame made of [offset, offset + size) of such a file, which takes nothing from the device. `fd`
 * stays the caller's. */
enum clv_result clv_sim_create_exportable(struct clv_driver *sim, clv_handle *handle, uint64_t size, int device);
int clv_sim_export(struct clv_driver *sim, clv_handle handle);
int clv_sim_file_device(int fd); /* whose memory an exported file is; -1: it is none */
enum clv_result clv_sim_import(struct clv_driver *sim, clv_handle *handle, int fd, uint64_t offset, uint64_t size,
			       int device);

/* Bytes that frames and plain allocations hold now, and the peak. */
uint64_t clv_sim_used(struct clv_driver *sim, int device);
uint64_t clv_sim_used_peak(struct clv_driver *sim, int device);

/* Takes memory away as another process would (cuMemGetInfo's free shrinks), at most what is free; 0 gives all of it
 * back. */
void clv_sim_set_foreign(struct clv_driver *sim, int device, uint64_t bytes);

/* While the program captures a stream, event_query, event_synchronize, stream_synchronize and mem_alloc answer
 * CLV_CAPTURING and invalidate the capture; what the heap needs otherwise is allowed. Answers, when a capture ends,
 * whether it is still valid; else true. */
bool clv_sim_set_capturing(struct clv_driver *sim, bool capturing);

/* After close-down by the user: NULL if no handle, mapping, reservation, event or plain allocation is left, else the
 * name of the first kind that leaks. */
const char *clv_sim_leaks(struct clv_driver *sim);

/* Tests: the n-th host allocation of the simulation from now (1: the next) and every later one fails; 0: none does. */
void clv_sim_fail_host_after(struct clv_driver *sim, uint64_t n);

#endif
