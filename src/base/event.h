/* SPDX-License-Identifier: MIT
 *
 * event: the one list of what happens to memory and is worth telling: the heap tells its observer, the recorder writes it, the
 * trace reader gives it to reports. Owns nothing.
 */
#ifndef CLV_EVENT_H
#define CLV_EVENT_H

#include <stdint.h>

/* (enumerator, name in files and reports, what `addr`, `size`, `a` and `b` are). Numbers stand in files: new ones come at the end.
 *
 * Requests are told after they have succeeded, frees before anybody can have the memory: so, by time, a block's free comes
 * before the next allocation at its address whatever threads do. */
#define CLV_EVENTS(X)                                                                                                  \
	/* of programs */                                                                                              \
	X(ALLOC, "alloc", "a block; requested bytes; bytes that it takes; -")                                          \
	X(FREE, "free", "a block; requested bytes; -; the stream that it was allocated on")                            \
	X(FAIL, "fail", "free bytes of the device; requested bytes; the failure's number; -")                          \
	/* of the heap: physical memory */                                                                             \
	X(FRAME_CREATE, "frame_create", "where it is mapped, 0: nowhere; bytes; its number; -")                        \
	X(FRAME_RELEASE, "frame_release", "where it was mapped; bytes; its number; -")                                 \
	X(FRAME_MAP, "frame_map", "where it is mapped now; bytes; its number; where it was, or 0")                     \
	X(FRAME_UNMAP, "frame_unmap", "where it is mapped no more; bytes; its number; -")                              \
	/* of the heap: how it is divided */                                                                           \
	X(CUT, "cut", "the block that was cut off; its bytes; the hole's address before; the hole's bytes before")     \
	X(MERGE, "merge", "the hole; its bytes; the address where its right part began; -")                            \
	X(READY, "ready", "a hole that is complete for every stream now; its bytes; the stream it waited for; -")      \
	/* of the heap: reservations. The text is the reservation's name */                                            \
	X(RESERVE, "reserve", "-; bytes of a slot; slots; 1: hard")                                                    \
	X(RESERVE_HOLD, "reserve_hold", "the memory; bytes of it; bytes of a slot; -")                                 \
	X(RESERVE_SERVE, "reserve_serve", "the memory, which a request gets; bytes; bytes of a slot; -")               \
	X(RESERVE_YIELD, "reserve_yield", "the memory, which is given up; bytes; bytes of a slot; 1: to avoid a failure") \
	X(RESERVE_END, "reserve_end", "-; bytes of a slot; requests that it served; requests that found nothing left") \
	/* of the heap: what a request had to wait for */                                                              \
	X(WAIT, "wait", "-; requested bytes; 0: the stream waits on the device, 1: the host waits; the stream waited for") \
	X(TRIM, "trim", "-; bytes given back; bytes to keep; -")                                                       \
	/* of the driver, as the program asked for it and got it without Cleave (observed, or not served). The text is   \
	 * the call's name */                                                                                          \
	X(DRIVER_ALLOC, "driver_alloc", "the address or handle; bytes; -; -")                                          \
	X(DRIVER_FREE, "driver_free", "the address or handle; bytes if known; -; -")                                   \
	X(DRIVER_FAIL, "driver_fail", "-; bytes; the driver's error; -")                                               \
	/* of the user. The text is what the user said */                                                              \
	X(MARK, "mark", "-; -; -; -")                                                                                  \
	X(PHASE_BEGIN, "phase_begin", "-; -; -; -")                                                                    \
	X(PHASE_END, "phase_end", "-; -; -; -")                                                                        \
	/* of the recorder */                                                                                          \
	X(PROCESS, "process", "pid; parent's pid; rank, or UINT64_MAX; wall clock, ns since 1970. The text is the command") \
	X(SETTINGS, "settings", "-; -; -; -. The text is CLEAVE_CONF as it is in force")                               \
	X(DEVICE, "device", "-; bytes that the device has; bytes that the heap may hold, 0: no limit; -. The text is its name") \
	X(DROPPED, "dropped", "-; events lost; 0: no room in memory, 1: the disk, 2: the size limit; -")               \
	X(FORK, "fork", "the child's pid; -; -; -")

enum clv_event {
#define X(name, text, what) CLV_EVENT_##name,
	CLV_EVENTS(X)
#undef X
	CLV_EVENT_COUNT
};

const char *clv_event_name(enum clv_event e); /* "alloc"; "other" for what this version does not know */

#endif
