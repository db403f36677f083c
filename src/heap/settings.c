/* SPDX-License-Identifier: MIT */
#include "settings.h"

#include "../base/file_name.h"
#include "../base/size_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MIN_FRAME (2 * CLV_MIB)

enum kind {
	CHOICE,
	SIZE,
	BOOL,
	WORD,
	RESERVATION,
	FILE_NAME,
	SECONDS,
};

static const struct clv_setting table[] = {
#define X(reader, key, member, kind, words, initial, help) {CLV_READER_##reader, #key, #kind, words, initial, help},
	CLV_SETTINGS(X)
#undef X
};

/* The other half of each row: where its value goes. */
static const struct place {
	enum kind kind;
	size_t at;
} places[] = {
#define X(reader, key, member, kind, words, initial, help) {kind, offsetof(struct clv_settings, member)},
	CLV_SETTINGS(X)
#undef X
};

#define X(reader, key, member, kind, words, initial, help)                                                             \
	_Static_assert(sizeof(((struct clv_settings *)0)->member) ==                                                   \
			       ((kind) == RESERVATION ? sizeof(struct clv_reserves_set)                                \
				: (kind) == FILE_NAME    ? CLV_SETTING_FILE                                               \
				: (kind) == SIZE || (kind) == SECONDS ? sizeof(uint64_t)                               \
						      : 1),                                                            \
		       #key);
CLV_SETTINGS(X)
#undef X

const struct clv_setting *clv_settings_table(size_t *count)
{
	*count = CLV_ARRAY_LEN(table);
	return table;
}

/* Which of "a|b|c" the value is; -1: none. */
static int word_index(const char *words, const char *value)
{
	size_t len = strlen(value);
	for (int i = 0;; i++) {
		size_t word = strcspn(words, "|");
		if (word == len && !memcmp(words, value, len))
			return i;
		if (!words[word])
			return -1;
		words += word + 1;
	}
}

/* Says "a, b or c" of "a|b|c". */
static bool refuse_word(const struct clv_setting *row, const char *value, struct clv_error *err)
{
	char list[64] = "";
	size_t used = 0;
	for (const char *w = row->words; *w && used < sizeof(list) - 5; w++) {
		const char *put = *w != '|' ? w : strchr(w + 1, '|') ? ", " : " or ";
		size_t len = *w != '|' ? 1 : strlen(put);
		memcpy(list + used, put, len);
		used += len;
	}
	list[used] = '\0';
	return clv_error_set(err, "%s:%s: expected %s", row->key, value, list);
}

static bool add_reservation(struct clv_reserves_set *set, const char *value, struct clv_error *err)
{
	struct clv_error why;
	why.text[0] = '\0';
	if (set->count == CLV_RESERVES_SET)
		return clv_error_set(err, "reserve:%s: there are %u reservations already, and no room for more", value,
				     CLV_RESERVES_SET);
	if (!clv_reserve_parse(&set->items[set->count], value, &why))
		return clv_error_set(err, "reserve:%s", why.text);
	set->count++;
	return true;
}

static bool set_file(char *member, const struct clv_setting *row, const char *value, struct clv_error *err)
{
	struct clv_error why = {""};
	if (strlen(value) >= CLV_SETTING_FILE)
		return clv_error_set(err, "%s: a name of %zu characters is too long", row->key, strlen(value));
	if (!clv_file_name_check(value, &why))
		return clv_error_set(err, "%s:%s", row->key, why.text);
	strcpy(member, value);
	return true;
}

/* "15" or "0.25": at least a hundredth, at most a million. */
static bool set_seconds(uint64_t *member, const struct clv_setting *row, const char *value, struct clv_error *err)
{
	size_t whole = strspn(value, "0123456789"), part = 0;
	uint64_t ms = 0;
	if (value[whole] == '.')
		part = strspn(value + whole + 1, "0123456789");
	bool good = whole && whole <= 7 && part <= 3 && !value[whole + (part ? 1 + part : 0)];
	for (size_t i = 0; good && i < whole; i++)
		ms = ms * 10 + (uint64_t)(value[i] - '0');
	for (size_t i = 0; good && i < 3; i++)
		ms = ms * 10 + (i < part ? (uint64_t)(value[whole + 1 + i] - '0') : 0);
	if (!good || ms < 10 || ms > 1000000000)
		return clv_error_set(err, "%s:%s: expected seconds such as 15 or 0.5", row->key, value);
	*member = ms;
	return true;
}

/* `value` NULL: the key stood alone. */
static bool set(struct clv_settings *s, size_t i, const char *value, struct clv_error *err)
{
	const struct clv_setting *row = &table[i];
	void *member = (char *)s + places[i].at;
	if (places[i].kind == WORD) {
		if (value)
			return clv_error_set(err, "'%s' takes no value", row->key);
		*(bool *)member = true;
		return true;
	}
	if (!value)
		return clv_error_set(err, "'%s': expected key:value", row->key);
	if (places[i].kind == RESERVATION)
		return add_reservation(member, value, err);
	if (places[i].kind == FILE_NAME)
		return set_file(member, row, value, err);
	if (places[i].kind == SECONDS)
		return set_seconds(member, row, value, err);
	if (places[i].kind == SIZE) {
		uint64_t size;
		if (!clv_size_parse(value, &size))
			return clv_error_set(err, "%s:%s: expected a size such as 64MiB", row->key, value);
		if (member == &s->frame_bytes && (size < MIN_FRAME || !clv_is_pow2(size)))
			return clv_error_set(err, "frame:%s: expected a power of two, at least 2MiB", value);
		*(uint64_t *)member = size;
		return true;
	}
	int word = word_index(row->words, value);
	if (word < 0)
		return refuse_word(row, value, err);
	/* "on" stands first since people read it so */
	*(uint8_t *)member = (uint8_t)(places[i].kind == BOOL ? !word : word);
	return true;
}

static void set_defaults(struct clv_settings *s)
{
	memset(s, 0, sizeof(*s));
	for (size_t i = 0; i < CLV_ARRAY_LEN(table); i++)
		if (table[i].initial[0])
			(void)set(s, i, table[i].initial, NULL);
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

/* One "key:value". */
static bool take(struct clv_settings *s, char *item, enum clv_setting_reader reader, struct clv_error *err)
{
	char *key = trimmed(item), *value = strchr(key, ':');
	if (!*key)
		return true;
	if (value) {
		*value++ = '\0';
		value = trimmed(value);
		key = trimmed(key);
	}
	size_t i = 0;
	while (i < CLV_ARRAY_LEN(table) && strcmp(table[i].key, key))
		i++;
	if (i == CLV_ARRAY_LEN(table))
		return clv_error_set(err, "unknown setting '%s' (cleave help settings lists them)", key);
	if (table[i].reader == CLV_READER_PRELOAD && reader == CLV_READER_HEAP)
		return clv_error_set(err, "'%s' is a setting of programs that run under Cleave; it does nothing here",
				     key);
	return set(s, i, value, err);
}

/* The next item of *text, which moves past it. false with the reason if it is no item. */
static bool next_item(const char **text, char *item, size_t room, struct clv_error *err)
{
	size_t len = strcspn(*text, ",");
	const char *from = *text;
	*text += len + (from[len] == ',');
	if (len >= room)
		return clv_error_set(err, "a setting of %zu characters is too long", len);
	memcpy(item, from, len);
	item[len] = '\0';
	return true;
}

bool clv_settings_parse(struct clv_settings *s, const char *text, struct clv_error *err)
{
	char item[256];
	set_defaults(s);
	while (text && *text)
		if (!next_item(&text, item, sizeof(item), err) || !take(s, item, CLV_READER_HEAP, err))
			return false;
	return true;
}

void clv_settings_parse_lenient(struct clv_settings *s, const char *text, void (*warn)(void *arg, const char *sentence),
				void *arg)
{
	char item[256];
	set_defaults(s);
	while (text && *text) {
		struct clv_error err;
		err.text[0] = '\0';
		if ((!next_item(&text, item, sizeof(item), &err) || !take(s, item, CLV_READER_PRELOAD, &err)) && warn)
			warn(arg, err.text);
	}
}

/* ---- printed ---- */

struct text {
	char *buf;
	size_t len, at;
};

static void CLV_PRINTF(2, 3) say(struct text *t, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(t->at < t->len ? t->buf + t->at : NULL, t->at < t->len ? t->len - t->at : 0, fmt, ap);
	va_end(ap);
	t->at += n > 0 ? (size_t)n : 0;
}

/* The n-th of "a|b|c". */
static void say_word(struct text *t, const char *words, unsigned n)
{
	for (; n; n--)
		words += strcspn(words, "|") + 1;
	say(t, "%.*s", (int)strcspn(words, "|"), words);
}

static void say_setting(struct text *t, size_t i, const void *member)
{
	const struct clv_setting *row = &table[i];
	const struct clv_reserves_set *reserves = member;
	char item[256];
	switch (places[i].kind) {
	case RESERVATION:
		for (unsigned k = 0; k < reserves->count; k++) {
			clv_reserve_print(&reserves->items[k], item, sizeof(item));
			say(t, "%s%s:%s", t->at ? "," : "", row->key, item);
		}
		return;
	case WORD:
		say(t, "%s%s", t->at ? "," : "", row->key);
		return;
	default:
		say(t, "%s%s:", t->at ? "," : "", row->key);
	}
	uint64_t value = 0;
	if (places[i].kind == SIZE || places[i].kind == SECONDS)
		memcpy(&value, member, sizeof(value));
	if (places[i].kind == FILE_NAME)
		say(t, "%s", (const char *)member);
	else if (places[i].kind == SECONDS)
		say(t, "%" PRIu64 ".%03" PRIu64, value / 1000, value % 1000);
	else if (places[i].kind == SIZE && value && value % CLV_MIB == 0)
		say(t, "%" PRIu64 "MiB", value / CLV_MIB);
	else if (places[i].kind == SIZE)
		say(t, "%" PRIu64, value);
	else
		say_word(t, row->words, places[i].kind == BOOL ? !*(const bool *)member : *(const uint8_t *)member);
}

static size_t size_of(size_t i)
{
	switch (places[i].kind) {
	case RESERVATION:
		return sizeof(((struct clv_reserves_set *)0)->count); /* by default there are none */
	case SIZE:
	case SECONDS:
		return sizeof(uint64_t);
	default:
		return 1; /* of a FILE_NAME the first character: by default there is none */
	}
}

size_t clv_settings_print(const struct clv_settings *s, char *buf, size_t len)
{
	struct clv_settings defaults;
	struct text t = {buf, len, 0};
	set_defaults(&defaults);
	if (len)
		*buf = '\0';
	for (size_t i = 0; i < CLV_ARRAY_LEN(table); i++) {
		const char *member = (const char *)s + places[i].at;
		if (memcmp(member, (const char *)&defaults + places[i].at, size_of(i)))
			say_setting(&t, i, member);
	}
	return t.at;
}
