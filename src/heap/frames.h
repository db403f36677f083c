/* SPDX-License-Identifier: MIT
 *
 * frames: the physical memory of an arena. Guarded by the arena's lock.
 *
 * Invariants: held is the sum of the sizes of all frames, mapped and loose; every mapped frame has access. A call that
 * fails leaves everything as it was, but for a frame that the driver would neither map back nor take back: it is kept as
 * loose, still counted as held, and given back later.
 */
#ifndef CLV_FRAMES_H
#define CLV_FRAMES_H

#include "arena.h"

/* Buys a frame of `size` bytes and maps it at `addr`, inside a gap, as a hole of `slot`. `anchor` as in clv_space_locate.
 * CLV_OK, or what the driver answered, or CLV_FAILED if host memory is out. */
enum clv_result clv_frame_buy(struct clv_arena *a, struct clv_extent *anchor, uint64_t addr, uint64_t size, uint32_t slot);

/* Maps a whole frame at `addr` instead, as a hole of `slot`: no byte is bought. If its old address may still be read by
 * work (its frees are not complete) that mapping lingers until they are. The slot must be allowed to use the frame. */
enum clv_result clv_frame_move(struct clv_arena *a, struct clv_frame *f, struct clv_extent *anchor, uint64_t addr, uint32_t slot);

/* Another frame of the same size is mapped where a whole frame is, as long as work of the slot, of which the whole frame is,
 * may touch the addresses: nobody gets them until then. The whole frame goes back to the driver. */
enum clv_result clv_frame_fold(struct clv_arena *a, struct clv_frame *f, struct clv_frame *onto);

/* Gives a whole, complete frame back to the driver. */
enum clv_result clv_frame_release(struct clv_arena *a, struct clv_frame *f);

/* True if no work may still use what was freed in the frame, and no old mapping is left of it: it can be released. */
bool clv_frame_complete(const struct clv_arena *a, const struct clv_frame *f);

/* Unmaps what lingers and is complete; tries to give loose frames back. Returns bytes of addresses that came free. */
uint64_t clv_frames_reap(struct clv_arena *a);

/* At close: gives everything back, whatever is in it. */
void clv_frames_close(struct clv_arena *a);

#endif
