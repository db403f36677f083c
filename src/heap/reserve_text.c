/* SPDX-License-Identifier: MIT */
#include "reserve_text.h"

#include "../base/size_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NOT_IN_NAMES " \t\r\n,:+"

/* Digits alone, so that "-1" is no large number. */
static bool parse_number(const char *text, uint64_t most, uint64_t *out)
{
	uint64_t value = 0;
	if (!*text)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return false;
		uint64_t digit = (uint64_t)(*text - '0');
		if (value > (most - digit) / 10)
			return false;
		value = value * 10 + digit;
	}
	*out = value;
	return true;
}

bool clv_reserve_sane(uint64_t bytes, uint64_t count, struct clv_error *err)
{
	if (bytes <= CLV_RESERVE_ABOVE || bytes > CLV_RESERVE_MOST)
		return clv_error_set(err,
				     "expected a size above 32KiB (smaller ones come from slabs) and up to 256TiB");
	if (!count || count > CLV_RESERVE_COUNT_MAX)
		return clv_error_set(err, "expected a number of slots from 1 to %" PRIu64, CLV_RESERVE_COUNT_MAX);
	if (bytes > CLV_RESERVE_MOST / count)
		return clv_error_set(err, "expected all slots together to be up to 256TiB");
	return true;
}

static bool parse_name(const char *value, char name[CLEAVE_RESERVATION_NAME])
{
	size_t len = strlen(value);
	if (!len || len >= CLEAVE_RESERVATION_NAME || value[strcspn(value, NOT_IN_NAMES)])
		return false;
	memcpy(name, value, len + 1);
	return true;
}

/* One word after a plus sign. */
static bool parse_word(struct clv_reserve_text *r, char *word, struct clv_error *err)
{
	char *value = strchr(word, '=');
	if (value)
		*value++ = '\0';
	const struct {
		const char *word;
		bool *flag;
	} flags[] = {{"hard", &r->hard}, {"class", &r->by_class}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(flags); i++)
		if (!strcmp(word, flags[i].word)) {
			*flags[i].flag = true;
			return !value || clv_error_set(err, "'%s' takes no value", word);
		}
	const struct {
		const char *word;
		uint64_t *number;
		uint64_t most;
	} numbers[] = {{"after", &r->after_n, UINT64_MAX},
		       {"uses", &r->uses, UINT64_MAX},
		       {"idle", &r->idle_ms, UINT64_MAX / 1000000}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(numbers); i++)
		if (!strcmp(word, numbers[i].word))
			return (value && parse_number(value, numbers[i].most, numbers[i].number)) ||
			       clv_error_set(err, "expected %s=NUMBER", word);
	uint64_t device;
	if (!strcmp(word, "device")) {
		if (!value || !parse_number(value, INT32_MAX, &device))
			return clv_error_set(err, "expected device=NUMBER");
		r->device = (int32_t)device;
		return true;
	}
	if (!strcmp(word, "name"))
		return (value && parse_name(value, r->name)) ||
		       clv_error_set(err,
				     "expected name=NAME of up to %d characters, none of them a blank or one of ,:+",
				     CLEAVE_RESERVATION_NAME - 1);
	return clv_error_set(err, "'%s' is none of after, uses, idle, class, hard, device and name", word);
}

static bool parse(struct clv_reserve_text *r, char *text, struct clv_error *err)
{
	char *rest = strchr(text, '+');
	if (rest)
		*rest++ = '\0';
	char *count = strchr(text, '*');
	if (count)
		*count++ = '\0';
	if (!clv_size_parse(text, &r->bytes))
		return clv_error_set(err, "expected a size first, as in 147MiB*4+after=92");
	if (count && !parse_number(count, CLV_RESERVE_COUNT_MAX, &r->count))
		r->count = 0; /* refused with the range */
	if (!clv_reserve_sane(r->bytes, r->count, err))
		return false;
	while (rest) {
		char *word = rest;
		rest = strchr(word, '+');
		if (rest)
			*rest++ = '\0';
		if (!parse_word(r, word, err))
			return false;
	}
	return true;
}

bool clv_reserve_parse(struct clv_reserve_text *out, const char *text, struct clv_error *err)
{
	char copy[256];
	struct clv_error why;
	why.text[0] = '\0';
	*out = (struct clv_reserve_text){.count = 1, .device = CLV_RESERVE_EACH_DEVICE};
	size_t len = strlen(text);
	if (len >= sizeof(copy))
		return clv_error_set(err, "a reservation of %zu characters is too long", len);
	memcpy(copy, text, len + 1);
	return parse(out, copy, &why) || clv_error_set(err, "%s: %s", text, why.text);
}

int clv_reserve_print(const struct clv_reserve_text *in, char *buf, size_t len)
{
	char more[192];
	size_t used = 0;
	more[0] = '\0';
	const struct {
		const char *word;
		uint64_t value;
		bool said;
	} numbers[] = {{"after", in->after_n, in->after_n != 0},
		       {"uses", in->uses, in->uses != 0},
		       {"idle", in->idle_ms, in->idle_ms != 0},
		       {"device", (uint64_t)in->device, in->device >= 0}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(numbers); i++)
		if (numbers[i].said)
			used += (size_t)snprintf(more + used, sizeof(more) - used, "+%s=%" PRIu64, numbers[i].word,
						 numbers[i].value);
	char name[CLEAVE_RESERVATION_NAME];
	snprintf(name, sizeof(name), "%s", in->name);
	for (char *c = name; *c; c++)
		if (strchr(NOT_IN_NAMES, *c))
			*c = '_';
	return snprintf(buf, len, "%" PRIu64 "*%" PRIu64 "%s%s%s%s%s", in->bytes, in->count, more,
			in->by_class ? "+class" : "", in->hard ? "+hard" : "", name[0] ? "+name=" : "", name);
}
