/* SPDX-License-Identifier: MIT */
#include "utf8.h"

#include <string.h>

/* Length of the UTF-8 sequence at `s`, of which `left` bytes are there, or 0 if there is none. */
static size_t sequence_length(const unsigned char *s, size_t left)
{
	if (s[0] < 0x80)
		return 1;
	size_t n = s[0] >= 0xc2 && s[0] <= 0xdf ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4 : 0;
	if (n > left)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
	    (s[0] == 0xf4 && s[1] > 0x8f))
		return 0; /* too long a form, a surrogate, or beyond U+10FFFF */
	return n;
}

size_t clv_utf8_clean(const char *bytes, size_t len, char *to)
{
	static const char replacement[] = "\xef\xbf\xbd";
	size_t made = 0;
	for (size_t at = 0; at < len;) {
		size_t n = sequence_length((const unsigned char *)bytes + at, len - at), copied = n ? n : 3;
		if (to)
			memcpy(to + made, n ? bytes + at : replacement, copied);
		made += copied;
		at += n ? n : 1;
	}
	return made;
}
