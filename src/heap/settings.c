/* SPDX-License-Identifier: MIT */
#include "settings.h"

#include "../base/size_text.h"

#include <string.h>

#define MIN_FRAME (2 * CLV_MIB)

static const struct clv_setting table[] = {
#define X(key, kind, initial, help) {#key, #kind, initial, help},
	CLV_SETTINGS(X)
#undef X
};

const struct clv_setting *clv_settings_table(size_t *count)
{
	*count = CLV_ARRAY_LEN(table);
	return table;
}

static bool parse_bool(const char *value, bool *out)
{
	bool on = !strcmp(value, "on");
	*out = on;
	return on || !strcmp(value, "off");
}

static bool set(struct clv_settings *s, const char *key, const char *value, struct clv_error *err)
{
	if (!strcmp(key, "growth")) {
		s->tight = !strcmp(value, "tight");
		if (!s->tight && strcmp(value, "normal"))
			return clv_error_set(err, "growth:%s: expected normal or tight", value);
		return true;
	}
	if (!strcmp(key, "cache"))
		return parse_bool(value, &s->cache) || clv_error_set(err, "cache:%s: expected on or off", value);
	uint64_t *size = !strcmp(key, "limit")      ? &s->limit
			 : !strcmp(key, "headroom") ? &s->headroom
			 : !strcmp(key, "frame")    ? &s->frame_bytes
						    : NULL;
	if (!size)
		return clv_error_set(err, "unknown setting '%s' (cleave help settings lists them)", key);
	if (!clv_size_parse(value, size))
		return clv_error_set(err, "%s:%s: expected a size such as 64MiB", key, value);
	if (size == &s->frame_bytes && (*size < MIN_FRAME || !clv_is_pow2(*size)))
		return clv_error_set(err, "frame:%s: expected a power of two, at least 2MiB", value);
	return true;
}

/* Blanks around a word go; blanks inside stay and make it one that nobody knows. */
static char *trimmed(char *word)
{
	word += strspn(word, " \t");
	size_t len = strlen(word);
	while (len && (word[len - 1] == ' ' || word[len - 1] == '\t'))
		word[--len] = '\0';
	return word;
}

bool clv_settings_parse(struct clv_settings *s, const char *text, struct clv_error *err)
{
	memset(s, 0, sizeof(*s));
	for (size_t i = 0; i < CLV_ARRAY_LEN(table); i++)
		if (!set(s, table[i].key, table[i].initial, err))
			return false;
	while (text && *text) {
		size_t len = strcspn(text, ",");
		char item[256];
		if (len >= sizeof(item))
			return clv_error_set(err, "a setting of %zu characters is too long", len);
		memcpy(item, text, len);
		item[len] = '\0';
		text += len + (text[len] == ',');
		char *key = trimmed(item), *value = strchr(key, ':');
		if (!*key)
			continue;
		if (!value)
			return clv_error_set(err, "'%s': expected key:value", key);
		*value++ = '\0';
		if (!set(s, trimmed(key), trimmed(value), err))
			return false;
	}
	return true;
}
