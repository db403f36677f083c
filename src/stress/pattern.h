/* SPDX-License-Identifier: MIT
 *
 * pattern: the bytes by which a block shows whose it is. Owns no state.
 *
 * A block's contents follow from its stamp and from the position in the frame, so that what another block left there
 * is not only seen to be wrong, but says who wrote it, also through a second mapping of the frame. Blocks are written
 * and checked in full or at samples. Samples are the first and last CLV_PATTERN_EDGE bytes and 16 bytes around each
 * multiple of CLV_PATTERN_EDGE: wherever two large blocks overlap, or a frame is mapped under both, they have a sample
 * in common.
 */
#ifndef CLV_PATTERN_H
#define CLV_PATTERN_H

#include "../driver/sim.h"

#define CLV_PATTERN_EDGE (64 * CLV_KIB)

struct clv_stamp {
	uint64_t size;      /* bytes of the block */
	uint32_t block;     /* its number */
	uint16_t stream;    /* whose work wrote it */
	uint8_t generation; /* how often it was written anew */
};

enum clv_pattern_verdict {
	CLV_PATTERN_GOOD,
	CLV_PATTERN_UNMAPPED, /* not all of the block can be touched */
	CLV_PATTERN_WRONG,    /* other bytes than were written */
	CLV_PATTERN_REFUSED,  /* the device does no work on it */
};

struct clv_pattern_wrong {
	uint64_t offset; /* of the first wrong byte, in the block */
	uint8_t expected, found;
	uint64_t word; /* the 8 bytes there, aligned */
};

/* Writes the block at `addr`; false: not all of it is mapped with access, and nothing was written. */
bool clv_pattern_write(struct clv_driver *sim, uint64_t addr, const struct clv_stamp *stamp, bool full);

/* `wrong` is set if the verdict is CLV_PATTERN_WRONG. */
enum clv_pattern_verdict clv_pattern_check(struct clv_driver *sim, uint64_t addr, const struct clv_stamp *stamp,
					   bool full, struct clv_pattern_wrong *wrong);

/* The same of a copy of the block, aligned to 8 bytes. */
void clv_pattern_fill(uint8_t *bytes, uint64_t addr, const struct clv_stamp *stamp, bool full);
enum clv_pattern_verdict clv_pattern_compare(const uint8_t *bytes, uint64_t addr, const struct clv_stamp *stamp,
					     bool full, struct clv_pattern_wrong *wrong);

/* Who may have written the word found at `addr`, in words: another block, nobody (fresh memory), or unknown. `blocks`
 * is the number of blocks so far. Returns buf. */
char *clv_pattern_author(uint64_t addr, const struct clv_pattern_wrong *wrong, uint32_t blocks, char *buf, size_t len);

#endif
