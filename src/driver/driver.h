/* SPDX-License-Identifier: MIT
 *
 * driver: the table of functions through which everything reaches device memory. It is shaped by the CUDA Driver API;
 * implementations are `cuda` (libcuda.so.1), `sim` (a simulated device), `fault` (wraps another, makes chosen calls fail) and
 * `ledger` (wraps another, gives less than there is).
 *
 * Thread-safety: every function may be called from any thread; an implementation guards its own state.
 * Units: bytes, nanoseconds. Device addresses are 64-bit integers and never dereferenced here.
 */
#ifndef CLV_DRIVER_H
#define CLV_DRIVER_H

#include "../base/base.h"

#include <cleave/heap.h>

enum clv_result {
	CLV_OK = 0,
	CLV_NOT_READY,     /* an event or a stream whose work is not done (CUDA_ERROR_NOT_READY, 600) */
	CLV_OUT_OF_MEMORY, /* CUDA_ERROR_OUT_OF_MEMORY, 2 */
	CLV_INVALID,       /* CUDA_ERROR_INVALID_VALUE, 1: an argument that the real driver refuses */
	CLV_NOT_SUPPORTED, /* CUDA_ERROR_NOT_SUPPORTED, 801: a handle mapped in part or at an offset */
	CLV_CAPTURING,     /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900 */
	CLV_GONE,          /* the context or the driver is being torn down: CUDA_ERROR_DEINITIALIZED, 4 */
	CLV_FAILED,        /* anything else */
};

/* One list of driver calls: (field of the table, the Driver API's name). Counters, the cost table, the fault driver and the
 * JSON of `cleave replay` are made from it. */
#define CLV_DRIVER_CALLS(X)                                                                                            \
	X(mem_get_info, "cuMemGetInfo")                                                                                \
	X(address_reserve, "cuMemAddressReserve")                                                                      \
	X(address_free, "cuMemAddressFree")                                                                            \
	X(create, "cuMemCreate")                                                                                       \
	X(release, "cuMemRelease")                                                                                     \
	X(map, "cuMemMap")                                                                                             \
	X(unmap, "cuMemUnmap")                                                                                         \
	X(set_access, "cuMemSetAccess")                                                                                \
	X(mem_alloc, "cuMemAlloc")                                                                                     \
	X(mem_free, "cuMemFree")                                                                                       \
	X(event_create, "cuEventCreate")                                                                               \
	X(event_destroy, "cuEventDestroy")                                                                             \
	X(event_record, "cuEventRecord")                                                                               \
	X(event_query, "cuEventQuery")                                                                                 \
	X(event_synchronize, "cuEventSynchronize")                                                                     \
	X(stream_wait_event, "cuStreamWaitEvent")                                                                      \
	X(stream_synchronize, "cuStreamSynchronize")

enum clv_call {
#define X(field, name) CLV_CALL_##field,
	CLV_DRIVER_CALLS(X)
#undef X
	CLV_CALL_COUNT
};

/* What was asked of a driver so far. `ns` is the time charged by the cost table (sim) or measured (cuda). */
struct clv_call_counts {
	uint64_t calls[CLV_CALL_COUNT];
	uint64_t ns;
};

/* A stream whose id has this bit is an order of work that has no foreseeable end, and no stream of the device: recorded
 * events are marks of it, and waiting for one that has not passed is refused, for the host and for streams alike, as is
 * letting it wait. UINT64_MAX is CLEAVE_STREAM_ANY and not one of them. */
#define CLV_STREAM_VIRTUAL ((uint64_t)1 << 63)

/* And with this bit, too: its memory is in frames that it has to itself, so that they can be folded (heap_more.h). */
#define CLV_STREAM_APART ((uint64_t)1 << 62)

static inline bool clv_stream_is_virtual(uint64_t id)
{
	return (id & CLV_STREAM_VIRTUAL) && id != CLEAVE_STREAM_ANY.id;
}

static inline bool clv_stream_is_apart(uint64_t id)
{
	return clv_stream_is_virtual(id) && (id & CLV_STREAM_APART);
}

typedef uint64_t clv_handle; /* CUmemGenericAllocationHandle: one physical allocation; 0 is none */
typedef uint64_t clv_event;  /* CUevent; 0 is none */

struct clv_device_info {
	uint64_t total;       /* bytes of memory on the device */
	uint64_t granularity; /* of create, map, unmap and set_access: 2 MiB on every GPU measured */
	bool vmm;             /* create/map and so on are supported */
};

struct clv_driver {
	const char *name; /* "cuda", "sim", "fault", "ledger" */
	int devices;

	enum clv_result (*device_info)(struct clv_driver *self, int device, struct clv_device_info *out);
	enum clv_result (*mem_get_info)(struct clv_driver *self, int device, uint64_t *free, uint64_t *total);

	/* Address ranges: `size` and `align` are multiples of the granularity. */
	enum clv_result (*address_reserve)(struct clv_driver *self, uint64_t *addr, uint64_t size, uint64_t align);
	enum clv_result (*address_free)(struct clv_driver *self, uint64_t addr, uint64_t size);

	/* Frames. A handle is mapped whole (offset 0) inside a reserved range, also at several addresses at once. unmap takes a
	 * range made of whole mappings. The memory returns to the device when a handle is released and no mapping is left. A
	 * fresh mapping cannot be touched before set_access, which takes a range that is mapped without gaps. */
	enum clv_result (*create)(struct clv_driver *self, clv_handle *handle, uint64_t size, int device);
	enum clv_result (*release)(struct clv_driver *self, clv_handle handle);
	enum clv_result (*map)(struct clv_driver *self, uint64_t addr, uint64_t size, uint64_t offset, clv_handle handle);
	enum clv_result (*unmap)(struct clv_driver *self, uint64_t addr, uint64_t size);
	enum clv_result (*set_access)(struct clv_driver *self, uint64_t addr, uint64_t size, int device);

	/* Plain allocations (cuMemAlloc); mem_free waits until the device is done with them. */
	enum clv_result (*mem_alloc)(struct clv_driver *self, uint64_t *addr, uint64_t size, int device);
	enum clv_result (*mem_free)(struct clv_driver *self, uint64_t addr);

	/* Events (timing disabled). query answers CLV_OK or CLV_NOT_READY. */
	enum clv_result (*event_create)(struct clv_driver *self, clv_event *event, int device);
	enum clv_result (*event_destroy)(struct clv_driver *self, clv_event event);
	enum clv_result (*event_record)(struct clv_driver *self, clv_event event, cleave_stream stream);
	enum clv_result (*event_query)(struct clv_driver *self, clv_event event);
	enum clv_result (*event_synchronize)(struct clv_driver *self, clv_event event);
	enum clv_result (*stream_wait_event)(struct clv_driver *self, cleave_stream stream, clv_event event);
	enum clv_result (*stream_synchronize)(struct clv_driver *self, cleave_stream stream);

	uint64_t (*now_ns)(struct clv_driver *self);
	void (*pause)(struct clv_driver *self, uint64_t ns); /* lets so much time pass, for work on the device to go on */
	void (*counts)(struct clv_driver *self, struct clv_call_counts *out);
	void (*close)(struct clv_driver *self);
};

const char *clv_result_name(enum clv_result r);
const char *clv_call_name(enum clv_call call); /* "cuMemCreate" */

#endif
