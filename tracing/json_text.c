/* SPDX-License-Identifier: MIT */
#include "json_text.h"

#include <stdlib.h>
#include <string.h>

/* Length of the UTF-8 sequence at `s`, or 0 if there is none. */
static size_t utf8_length(const unsigned char *s)
{
	if (s[0] < 0x80)
		return 1;
	size_t n = s[0] >= 0xc2 && s[0] <= 0xdf ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4 : 0;
	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
	    (s[0] == 0xf4 && s[1] > 0x8f))
		return 0; /* too long a form, a surrogate, or beyond U+10FFFF */
	return n;
}

json_t *clv_json_text(const char *s)
{
	static const char replacement[] = "\xef\xbf\xbd";
	char *clean = malloc(3 * strlen(s) + 1), *to = clean;
	if (!clean)
		return NULL;
	while (*s) {
		size_t n = utf8_length((const unsigned char *)s);
		memcpy(to, n ? s : replacement, n ? n : 3);
		to += n ? n : 3;
		s += n ? n : 1;
	}
	json_t *j = json_stringn(clean, (size_t)(to - clean));
	free(clean);
	return j;
}

json_t *clv_json_number(uint64_t v)
{
	return json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v);
}
