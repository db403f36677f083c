/* SPDX-License-Identifier: MIT */
#include "json_text.h"

#include "utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *clv_json_text(const char *s)
{
	size_t len = strlen(s);
	char *clean = malloc(3 * len + 1);
	if (!clean)
		return NULL;
	json_t *j = json_stringn(clean, clv_utf8_clean(s, len, clean));
	free(clean);
	return j;
}

json_t *clv_json_number(uint64_t v)
{
	return json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v);
}

json_t *clv_json_hex(uint64_t v)
{
	char text[24];
	snprintf(text, sizeof(text), "0x%" PRIx64, v);
	return json_string(text);
}
