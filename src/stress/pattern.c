/* SPDX-License-Identifier: MIT */
#include "pattern.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Frames begin at multiples of this, and so does every mapping of them: a byte keeps its position modulo it. */
#define PAGE (2 * CLV_MIB)

/* word = identity * AUTHOR + position * STEP. Both are odd; AUTHOR * AUTHOR_INVERSE = 1 modulo 2^64. */
#define AUTHOR 0x9e3779b97f4a7c15ull
#define AUTHOR_INVERSE 0xf1de83e19937733dull
#define STEP 0xd1b54a32d192ed03ull

#define FRESH 0xa5a5a5a5a5a5a5a5ull /* what the simulated device leaves in new frames */

static uint64_t identity(const struct clv_stamp *s)
{
	return (uint64_t)s->block << 32 | (uint64_t)(s->stream & 0xfff) << 20 | (uint64_t)s->generation << 12 |
	       clv_mix64(s->size) >> 52;
}

static uint64_t word_at(uint64_t id, uint64_t addr)
{
	return id * AUTHOR + (addr % PAGE / 8) * STEP;
}

/* [addr, addr + n) at `to`; addr is a multiple of 8. */
static void fill(uint8_t *to, uint64_t addr, uint64_t n, uint64_t id)
{
	while (n) {
		uint64_t part = clv_min_u64(n, PAGE - addr % PAGE), words = part / 8, word = word_at(id, addr);
		uint64_t *p = (uint64_t *)(void *)to;
		for (uint64_t i = 0; i < words; i++)
			p[i] = word + i * STEP;
		word += words * STEP;
		memcpy(to + words * 8, &word, part % 8);
		to += part;
		addr += part;
		n -= part;
	}
}

/* The offset of the first byte that differs, or n. */
static uint64_t compare(const uint8_t *at, uint64_t addr, uint64_t n, uint64_t id)
{
	for (uint64_t done = 0; done < n;) {
		uint64_t here = addr + done, part = clv_min_u64(n - done, clv_min_u64(PAGE - here % PAGE, 4096));
		uint64_t words = part / 8, word = word_at(id, here), differs = 0;
		const uint64_t *p = (const uint64_t *)(const void *)(at + done);
		for (uint64_t i = 0; i < words; i++)
			differs |= p[i] ^ (word + i * STEP);
		uint64_t last = word + words * STEP;
		if (CLV_UNLIKELY(differs || memcmp(at + done + words * 8, &last, part % 8))) {
			uint8_t expected[4096 + 8];
			fill(expected, here, part, id);
			for (uint64_t i = 0; i < part; i++)
				if (expected[i] != at[done + i])
					return done + i;
		}
		done += part;
	}
	return n;
}

/* The ranges of a block that are written and checked, in turn; *lo, *hi as offsets in the block, *step counts up from
 * 0. */
static bool next_range(uint64_t addr, uint64_t size, bool full, uint64_t *step, uint64_t *lo, uint64_t *hi)
{
	const uint64_t edge = CLV_PATTERN_EDGE;
	uint64_t n = (*step)++;
	if (full || size <= 2 * edge) {
		*lo = 0;
		*hi = size;
		return n == 0;
	}
	if (n < 2) {
		*lo = n ? clv_align_down(size - edge, 8) : 0;
		*hi = n ? size : edge;
		return true;
	}
	uint64_t grid = clv_align_up(addr + edge, edge) - addr + (n - 2) * edge;
	*lo = grid - 8;
	*hi = grid + 8;
	return *hi <= size - edge;
}

void clv_pattern_fill(uint8_t *bytes, uint64_t addr, const struct clv_stamp *stamp, bool full)
{
	uint64_t step = 0, lo, hi, id = identity(stamp);
	while (next_range(addr, stamp->size, full, &step, &lo, &hi))
		fill(bytes + lo, addr + lo, hi - lo, id);
}

enum clv_pattern_verdict clv_pattern_compare(const uint8_t *bytes, uint64_t addr, const struct clv_stamp *stamp,
					     bool full, struct clv_pattern_wrong *wrong)
{
	uint64_t step = 0, lo, hi, id = identity(stamp);
	while (next_range(addr, stamp->size, full, &step, &lo, &hi)) {
		uint64_t at = lo + compare(bytes + lo, addr + lo, hi - lo, id);
		if (CLV_LIKELY(at == hi))
			continue;
		uint64_t base = clv_align_down(at, 8), expected = word_at(id, addr + base);
		wrong->offset = at;
		wrong->expected = (uint8_t)(expected >> at % 8 * 8);
		wrong->found = bytes[at];
		memcpy(&wrong->word, bytes + base, 8); /* blocks end at multiples of 512 */
		return CLV_PATTERN_WRONG;
	}
	return CLV_PATTERN_GOOD;
}

bool clv_pattern_write(struct clv_driver *sim, uint64_t addr, const struct clv_stamp *stamp, bool full)
{
	uint8_t *bytes = clv_sim_bytes(sim, addr, stamp->size, NULL);
	if (bytes)
		clv_pattern_fill(bytes, addr, stamp, full);
	return bytes != NULL;
}

enum clv_pattern_verdict clv_pattern_check(struct clv_driver *sim, uint64_t addr, const struct clv_stamp *stamp,
					   bool full, struct clv_pattern_wrong *wrong)
{
	const uint8_t *bytes = clv_sim_bytes(sim, addr, stamp->size, NULL);
	return bytes ? clv_pattern_compare(bytes, addr, stamp, full, wrong) : CLV_PATTERN_UNMAPPED;
}

char *clv_pattern_author(uint64_t addr, const struct clv_pattern_wrong *wrong, uint32_t blocks, char *buf, size_t len)
{
	uint64_t position = (addr + clv_align_down(wrong->offset, 8)) % PAGE / 8;
	uint64_t id = (wrong->word - position * STEP) * AUTHOR_INVERSE;
	uint32_t block = (uint32_t)(id >> 32);
	if (wrong->word == FRESH)
		snprintf(buf, len, "memory fresh from the device");
	else if (block && block <= blocks)
		snprintf(buf, len, "what was written for block %" PRIu32 " on stream %u (generation %u)", block,
			 (unsigned)(id >> 20 & 0xfff), (unsigned)(id >> 12 & 0xff));
	else
		snprintf(buf, len, "%016" PRIx64, wrong->word);
	return buf;
}
