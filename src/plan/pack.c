/* SPDX-License-Identifier: MIT */
#include <cleave/plan.h>

#include "../base/base.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int cleave_pack(const cleave_pack_buffer *buffers, size_t count, const cleave_pack_settings *settings, uint64_t *offsets,
		cleave_pack_result *result, char *why, size_t why_len)
{
	/* placeholder: one above the other */
	uint64_t top = 0;
	for (size_t i = 0; i < count; i++) {
		offsets[i] = top;
		top += buffers[i].size;
	}
	memset(result, 0, sizeof(*result));
	result->height = top;
	result->fits = !settings || !settings->capacity || top <= settings->capacity;
	return 0;
}
