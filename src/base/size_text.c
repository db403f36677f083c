/* SPDX-License-Identifier: MIT */
#include "size_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool unit_shift(const char *unit, unsigned *shift)
{
	static const struct {
		const char *name;
		unsigned shift;
	} units[] = {{"", 0},     {"B", 0},  {"K", 10},   {"KiB", 10}, {"M", 20},
		     {"MiB", 20}, {"G", 30}, {"GiB", 30}, {"T", 40},   {"TiB", 40}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(units); i++)
		if (strcasecmp(unit, units[i].name) == 0) {
			*shift = units[i].shift;
			return true;
		}
	return false;
}

enum parsed { A_SIZE, NO_SIZE, TOO_LARGE };

static enum parsed parse(const char *text, uint64_t *out)
{
	uint64_t whole = 0;
	bool large = false;
	const char *p = text;
	if (*p < '0' || *p > '9')
		return NO_SIZE;
	for (; *p >= '0' && *p <= '9'; p++)
		large |= __builtin_mul_overflow(whole, 10, &whole) ||
			 __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole);
	double fraction = 0;
	bool has_fraction = *p == '.';
	if (has_fraction) {
		double scale = 0.1;
		p++;
		if (*p < '0' || *p > '9')
			return NO_SIZE;
		for (; *p >= '0' && *p <= '9'; p++, scale /= 10)
			fraction += scale * (*p - '0');
	}
	while (*p == ' ')
		p++;
	unsigned shift;
	if (!unit_shift(p, &shift) || (has_fraction && shift == 0))
		return NO_SIZE;
	uint64_t bytes;
	if (large || __builtin_mul_overflow(whole, (uint64_t)1 << shift, &bytes) ||
	    __builtin_add_overflow(bytes, (uint64_t)(fraction * (double)((uint64_t)1 << shift)), &bytes))
		return TOO_LARGE;
	*out = bytes;
	return A_SIZE;
}

bool clv_size_parse(const char *text, uint64_t *out)
{
	return parse(text, out) == A_SIZE;
}

bool clv_size_too_large(const char *text)
{
	uint64_t bytes;
	return parse(text, &bytes) == TOO_LARGE;
}

char *clv_size_print(uint64_t bytes, char *buf, size_t len)
{
	if (bytes < CLV_KIB)
		snprintf(buf, len, "%" PRIu64 " B", bytes);
	else if (bytes < CLV_MIB)
		snprintf(buf, len, "%.1f KiB", (double)bytes / (double)CLV_KIB);
	else if (bytes < CLV_GIB)
		snprintf(buf, len, "%.1f MiB", (double)bytes / (double)CLV_MIB);
	else
		snprintf(buf, len, "%.2f GiB", (double)bytes / (double)CLV_GIB);
	return buf;
}

char *clv_seconds_print(double seconds, char *buf, size_t len)
{
	static const struct {
		double below, unit;
		const char *name;
	} units[] = {{0.9995e-3, 1e-6, "us"}, {0.9995, 1e-3, "ms"}, {120, 1, "s"}, {7200, 60, "min"}};
	if (seconds <= 0) {
		snprintf(buf, len, "0 s");
		return buf;
	}
	for (size_t i = 0; i < CLV_ARRAY_LEN(units); i++) {
		if (seconds >= units[i].below)
			continue;
		snprintf(buf, len, "%.3g %s", seconds / units[i].unit, units[i].name);
		return buf;
	}
	snprintf(buf, len, "%.1f h", seconds / 3600);
	return buf;
}

struct clv_size_text clv_size_text(uint64_t bytes)
{
	struct clv_size_text t;
	clv_size_print(bytes, t.text, sizeof(t.text));
	return t;
}
