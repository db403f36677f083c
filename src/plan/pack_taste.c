/* SPDX-License-Identifier: MIT */
#include "pack_taste.h"

/* log2 in 1/256, with a straight line between powers of two; v > 0 */
static int32_t log2_256(uint64_t v)
{
	unsigned whole = clv_log2(v);
	uint64_t part = whole >= 8 ? v >> (whole - 8) : v << (8 - whole);
	return (int32_t)(256 * whole + (part & 255));
}

struct clv_pack_traits clv_pack_traits_of(const struct clv_pack_problem *p, const struct clv_pack_item *item)
{
	return (struct clv_pack_traits){log2_256(item->life), log2_256(item->size),
					log2_256(clv_pack_load_in(p, item->lo, item->hi))};
}

struct clv_pack_taste clv_pack_taste_for(uint32_t attempt, struct clv_rng *rng)
{
	static const struct clv_pack_taste first[] = {
		{.life = 1024, .size = 1024, .flush = 131072}, /* area */
		{.life = 10, .size = 1024, .flush = 131072},
		{.life = 1024, .size = 1024, .load = 10240, .flush = 131072},
		{.life = 1024, .size = 10, .flush = 131072},
	};
	static const int32_t loads[] = {0, 1024, 3072, 10240, 30720, 102400, 307200, 1024000};
	static const int32_t flushes[] = {0, 65536, 131072, 262144, 524288}; /* 0, 1/4, 1/2, 1, 2 powers of two */
	static const int32_t noises[] = {64, 128, 256, 512};
	static const enum clv_pack_pits pits[] = {CLV_PACK_PIT_NEAR, CLV_PACK_PIT_LOADED, CLV_PACK_PIT_LOWEST,
						  CLV_PACK_PIT_TIGHT};
	struct clv_pack_taste taste;
	if (attempt < CLV_ARRAY_LEN(first)) {
		taste = first[attempt];
	} else {
		taste.life = (int32_t)clv_rng_below(rng, 1536);
		taste.size = (int32_t)clv_rng_below(rng, 1536);
		taste.load = loads[clv_rng_below(rng, CLV_ARRAY_LEN(loads))];
		taste.flush = flushes[clv_rng_below(rng, CLV_ARRAY_LEN(flushes))];
		taste.noise = noises[clv_rng_below(rng, CLV_ARRAY_LEN(noises))];
	}
	taste.pits = pits[attempt % CLV_ARRAY_LEN(pits)];
	taste.from_end = attempt / CLV_ARRAY_LEN(pits) % 2;
	return taste;
}

int64_t clv_pack_taste_value(const struct clv_pack_taste *taste, const struct clv_pack_traits *traits, struct clv_rng *rng)
{
	int64_t value = (int64_t)taste->life * traits->life + (int64_t)taste->size * traits->size +
			(int64_t)taste->load * traits->load;
	if (taste->noise)
		value += (int64_t)clv_rng_below(rng, (uint64_t)taste->noise * 1024) - taste->noise * 512;
	return value;
}

uint64_t clv_pack_luby(uint32_t n)
{
	for (;;) {
		unsigned bits = clv_log2((uint64_t)n + 1);
		uint64_t full = ((uint64_t)1 << bits) - 1; /* the largest 2^k - 1 that is not above n */
		if (full == n)
			return (uint64_t)1 << (bits - 1);
		n -= (uint32_t)full;
	}
}
