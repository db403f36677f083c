/* SPDX-License-Identifier: MIT
 *
 * clv_decode: takes numbers out of fields of .clv records. Whatever is read beyond the end of a field is an error of the file.
 */
#ifndef CLV_DECODE_H
#define CLV_DECODE_H

#include "clv_format.h"

#include <stdbool.h>

struct clv_span {
	const uint8_t *at, *end;
};

static inline bool clv_get_number(struct clv_span *s, uint64_t *out)
{
	uint64_t v = 0;
	for (unsigned shift = 0; shift < 64 && s->at < s->end; shift += 7) {
		uint8_t byte = *s->at++;
		if (shift == 63 && byte > 1)
			return false;
		v |= (uint64_t)(byte & 127) << shift;
		if (!(byte & 128)) {
			*out = v;
			return true;
		}
	}
	return false;
}

static inline bool clv_get_signed(struct clv_span *s, uint64_t *difference)
{
	uint64_t v;
	if (!clv_get_number(s, &v))
		return false;
	*difference = clv_unzigzag(v);
	return true;
}

/* The next entry of a column that may be absent (then every entry is 0). */
static inline bool clv_get_optional(struct clv_span *s, uint64_t *out)
{
	*out = 0;
	return !s->at || clv_get_number(s, out);
}

static inline bool clv_get_optional_byte(struct clv_span *s, uint8_t *out)
{
	*out = 0;
	if (!s->at)
		return true;
	if (s->at == s->end)
		return false;
	*out = *s->at++;
	return true;
}

static inline size_t clv_span_len(struct clv_span s)
{
	return s.at ? (size_t)(s.end - s.at) : 0;
}

#endif
