/* SPDX-License-Identifier: MIT
 *
 * heap_more: what the heap offers to the other layers of Cleave beside the public API. Thread-safe as that is.
 */
#ifndef CLV_HEAP_MORE_H
#define CLV_HEAP_MORE_H

#include "settings.h"
#include "../driver/driver.h"

#include <cleave/heap.h>

/* As cleave_heap_open, with settings that were parsed before. */
int clv_heap_open(cleave_heap **out, cleave_driver *driver, const struct clv_settings *settings);

/* As cleave_alloc; the address is a multiple of `align`, a power of two from 512 to 2 MiB. */
int clv_heap_alloc(cleave_heap *heap, int device, cleave_stream stream, size_t size, size_t align, cleave_ptr *out);

/* What programs ask for all the time, without a walk: O(threads). All zero before the first use of the device. */
struct clv_heap_usage {
	uint64_t held, held_peak; /* of frames */
	uint64_t live, live_peak; /* requested, each rounded up to 512 B */
};
void clv_heap_usage(cleave_heap *heap, int device, struct clv_heap_usage *out);

/* The peaks become what they measure is now. */
void clv_heap_reset_peaks(cleave_heap *heap, int device, bool held, bool live);

/* Calls `visit` for each frame under the live block that contains `ptr`, by address; while the block lives they stay what
 * and where they are. `visit` must not call the heap. `start` and `size` (may be NULL) get the block. -EINVAL: no live
 * block there. */
int clv_heap_frames(cleave_heap *heap, cleave_ptr ptr, cleave_ptr *start, size_t *size,
		    void (*visit)(void *arg, clv_handle handle, uint64_t addr, uint64_t bytes), void *arg);

/* As cleave_heap_blocks, and at the same moment the frames under them, by address. Either list may have no room. */
struct clv_heap_frame {
	uint64_t addr, bytes;
};
struct clv_heap_picture {
	cleave_block *blocks;
	struct clv_heap_frame *frames;
	size_t block_room, frame_room;
	size_t block_count, frame_count; /* that there are */
};
int clv_heap_picture(cleave_heap *heap, int device, struct clv_heap_picture *out);

/* As cleave_heap_trim; without `wait` nothing is waited for: what is not known to be complete stays. */
int clv_heap_trim(cleave_heap *heap, int device, uint64_t keep, bool wait, uint64_t *released);

/* The stream is about to take no events, since it will capture: what was freed on it is told by one that is recorded now. */
void clv_heap_stream_mark(cleave_heap *heap, int device, cleave_stream stream);

/* Nothing comes on the stream any more, nor is it waited for: its state is dropped once what was freed on it is complete. False:
 * not yet, to be called again, in the end or from time to time. `first`: for the first time. */
bool clv_heap_stream_left(cleave_heap *heap, int device, cleave_stream stream, bool first);

/* Folding, of memory in the order of streams that are apart, `count` of them, whose addresses work may touch again and again
 * as that of graphs does, while nobody cares for what is in it. Other frames are mapped at the addresses of those that no
 * live block touches: frames that have been folded onto before, in the order of the stream `shared`, each once for one call.
 * Where there is none the frame itself becomes one. To be called before any work has been done there, and when it is known
 * that the streams follow one another from here on. */
void clv_heap_fold(cleave_heap *heap, int device, const cleave_stream *streams, unsigned count, cleave_stream shared);

/* Frames of `shared` that are folded onto no more become free for everybody. */
void clv_heap_unfold(cleave_heap *heap, int device, cleave_stream shared);

/* Gives every frame of a device access again, after more devices may touch it. 0, or -EIO if the driver refused one. */
int clv_heap_access(cleave_heap *heap, int device);

#endif
