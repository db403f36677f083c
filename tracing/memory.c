/* SPDX-License-Identifier: MIT */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

static _Thread_local uint64_t fail_after; /* 0: never; 1: now */

static bool refused(void)
{
	if (CLV_LIKELY(fail_after == 0))
		return false;
	if (fail_after == 1)
		return true;
	fail_after--;
	return false;
}

void clv_mem_fail_after(uint64_t n)
{
	fail_after = n;
}

void *clv_mem_alloc(size_t size)
{
	return refused() ? NULL : malloc(size ? size : 1);
}

void *clv_mem_zalloc(size_t count, size_t size)
{
	return refused() ? NULL : calloc(count ? count : 1, size ? size : 1);
}

void *clv_mem_realloc(void *p, size_t count, size_t size)
{
	size_t bytes;
	if (refused() || __builtin_mul_overflow(count, size, &bytes))
		return NULL;
	return realloc(p, bytes ? bytes : 1);
}

char *clv_mem_strndup(const char *text, size_t len)
{
	char *copy = clv_mem_alloc(len + 1);
	if (!copy)
		return NULL;
	memcpy(copy, text, len);
	copy[len] = '\0';
	return copy;
}

void clv_mem_free(void *p)
{
	free(p);
}

bool clv_mem_reserve(void *p_to_array, size_t *cap, size_t need, size_t size)
{
	if (CLV_LIKELY(need <= *cap))
		return true;
	size_t next = *cap < 16 ? 16 : *cap;
	while (next < need)
		if (__builtin_mul_overflow(next, (size_t)2, &next))
			return false;
	void *old;
	memcpy(&old, p_to_array, sizeof(old));
	void *p = clv_mem_realloc(old, next, size);
	if (!p)
		return false;
	memcpy(p_to_array, &p, sizeof(p));
	*cap = next;
	return true;
}
