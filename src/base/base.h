/* SPDX-License-Identifier: MIT
 *
 * base: units, rounding and small helpers that every layer uses. Owns no state.
 */
#ifndef CLV_BASE_H
#define CLV_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLV_KIB ((uint64_t)1 << 10)
#define CLV_MIB ((uint64_t)1 << 20)
#define CLV_GIB ((uint64_t)1 << 30)

/* Every live size is rounded up to this; neighbouring blocks meet at it. */
#define CLV_GRAIN ((uint64_t)512)

#define CLV_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define CLV_LIKELY(x) __builtin_expect(!!(x), 1)
#define CLV_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define CLV_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define CLV_CONTAINER_OF(p, type, member) ((type *)(void *)((char *)(p)-offsetof(type, member)))

/* `align` must be a power of two. The caller makes sure that v + align does not overflow. */
static inline uint64_t clv_align_up(uint64_t v, uint64_t align)
{
	return (v + align - 1) & ~(align - 1);
}

static inline uint64_t clv_align_down(uint64_t v, uint64_t align)
{
	return v & ~(align - 1);
}

static inline uint64_t clv_min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t clv_max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static inline bool clv_is_pow2(uint64_t v)
{
	return v && !(v & (v - 1));
}

/* floor(log2 v), v > 0 */
static inline unsigned clv_log2(uint64_t v)
{
	return 63u - (unsigned)__builtin_clzll(v);
}

/* Finalizer of splitmix64: a well-mixed hash of a 64-bit key. Source: Steele, Lea, Flood, "Fast splittable
 * pseudorandom number generators", OOPSLA 2014. */
static inline uint64_t clv_mix64(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* Deterministic random numbers for tests, stress and fault injection (splitmix64); never for secrets. */
struct clv_rng {
	uint64_t state;
};

static inline uint64_t clv_rng_next(struct clv_rng *r)
{
	return clv_mix64(r->state += 0x9e3779b97f4a7c15ull);
}

/* uniform enough in [0, n), n > 0 */
static inline uint64_t clv_rng_below(struct clv_rng *r, uint64_t n)
{
	return (uint64_t)(((unsigned __int128)clv_rng_next(r) * n) >> 64);
}

/* uniform in [lo, hi], lo <= hi */
static inline uint64_t clv_rng_range(struct clv_rng *r, uint64_t lo, uint64_t hi)
{
	return lo + clv_rng_below(r, hi - lo + 1);
}

#endif
