/* SPDX-License-Identifier: MIT
 *
 * size_text: sizes as people write them ("123", "20MiB", "1.5GiB") and as we print them; durations as we print them.
 */
#ifndef CLV_SIZE_TEXT_H
#define CLV_SIZE_TEXT_H

#include "base.h"

/* Accepts a non-negative decimal number, with a fraction only if a unit follows, and an optional unit: B, KiB, MiB, GiB,
 * TiB, or the short K, M, G, T (also powers of 1024), in any case. The result is rounded down to a whole byte. Returns
 * false, and leaves *out alone, on anything else and on overflow of 64 bits. */
bool clv_size_parse(const char *text, uint64_t *out);

/* Whether it was the overflow alone: of a size that is written well, for a message. */
bool clv_size_too_large(const char *text);

/* "512 B", "20.0 MiB", "1.50 GiB". Returns buf. */
char *clv_size_print(uint64_t bytes, char *buf, size_t len);

/* The same as a value, for sentences: clv_size_text(bytes).text is good in the expression that it stands in. */
struct clv_size_text {
	char text[32];
};
struct clv_size_text clv_size_text(uint64_t bytes);

/* "0 s", "71 us", "9.74 ms", "3.2 s", "12.5 min", "2.4 h": three digits, of a duration that is not negative. Returns buf. */
char *clv_seconds_print(double seconds, char *buf, size_t len);

#endif
