/* SPDX-License-Identifier: MIT
 *
 * record_live: what is there, as far as the writer was told: blocks that live, and frames. A file that is begun in the middle of
 * a recording begins with it, or nobody could say later who holds what was allocated before. Owned by the writer.
 */
#ifndef CLV_RECORD_LIVE_H
#define CLV_RECORD_LIVE_H

#include "../../src/base/event.h"
#include "../format/clv_encode.h"
#include "ring.h"

struct clv_live_map {
	struct clv_live_slot {
		uint64_t key;
		struct clv_raw raw; /* as it would be told now */
		uint32_t thread;
		bool used;
	} *slots;
	size_t count, used; /* count: a power of two, or 0 */
};

struct clv_live {
	struct clv_live_map blocks, frames;
	bool incomplete; /* host memory was out: nothing is known any more */
};

/* An event as a thread told it, in the order of time. */
void clv_live_take(struct clv_encoder *e, struct clv_live *l, const struct clv_raw *raw, uint32_t thread);

void clv_live_free(struct clv_encoder *e, struct clv_live *l);

#endif
