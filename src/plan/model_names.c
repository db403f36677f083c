/* SPDX-License-Identifier: MIT */
#include "model_names.h"

#include <ctype.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_LEN 160
#define PATTERN_MAX 512 /* of a regular expression; libc's compiler recurses */
#define MATRICES_MAX 3

enum entry_kind { ENTRY_PLAIN, ENTRY_WILDCARD, ENTRY_RE };

struct entry {
	const char *text;
	enum entry_kind kind;
	bool numbered; /* it has a digit, so layers differ under it */
	regex_t re;    /* of ENTRY_RE */
};

struct clv_names {
	const struct clv_model *m;
	const char *where;
	struct clv_error *err;
	enum clv_names_language language;
	json_t *set;           /* EQUAL_OR_RE: the plain entries that name experts, as keys */
	struct entry *entries; /* the others; in other languages all that can concern experts */
	size_t count;
	uint32_t numbered; /* how many of them are */
	struct {
		bool known;
		enum clv_names_verdict verdict;
		const char *which;
	} by_digits[8]; /* if none is numbered: the verdict for layers with so many digits */
};

/* ---- the names ---- */

bool clv_names_of_experts(const struct clv_model *m, uint32_t i, uint32_t layer, uint32_t matrix, char *buf, size_t len,
			  uint32_t *matrices)
{
	static const char *const usual[] = {"model", "language_model.model", "model.language_model"};
	static const char *const nemotron[] = {"backbone", "model"};
	static const struct {
		const char *name, *matrices[MATRICES_MAX];
	} blocks[] = {{"mlp", {"gate_proj", "up_proj", "down_proj"}},
		      {"block_sparse_moe", {"w1", "w3", "w2"}},
		      {"feed_forward", {"gate_proj", "up_proj", "down_proj"}},
		      {"mixer", {"up_proj", "down_proj"}}};
	bool hybrid = !strncmp(m->type, "nemotron", 8);
	const char *const *prefixes = hybrid ? nemotron : usual;
	uint32_t prefix_count = hybrid ? CLV_ARRAY_LEN(nemotron) : CLV_ARRAY_LEN(usual);
	uint32_t block_first = hybrid ? 3 : !strncmp(m->type, "llama4", 6) ? 2 : 0;
	uint32_t block_count = block_first ? 1 : 2;
	if (i >= prefix_count * block_count)
		return false;
	uint32_t block = block_first + i / prefix_count;
	*matrices = 0;
	while (*matrices < MATRICES_MAX && blocks[block].matrices[*matrices])
		(*matrices)++;
	int n = snprintf(buf, len, "%s.layers.%" PRIu32 ".%s.experts", prefixes[i % prefix_count], layer,
			 blocks[block].name);
	if (matrix && n > 0 && (size_t)n < len)
		snprintf(buf + n, len - (size_t)n, ".0.%s", blocks[block].matrices[matrix - 1]);
	return true;
}

/* ---- regular expressions ---- */

/* Python's syntax in POSIX's extended one, anchored where re.match() is. NULL on success, else what is not understood. What
 * could make libc's compiler need much memory or time is not let through: back references, more than one counted repeat. */
static const char *translate(const char *p, char *out, size_t len)
{
	size_t n = 0;
	bool bracket = false, counted = false;
	if (strlen(p) > PATTERN_MAX)
		return "it is too long";
#define PUT(c)                                                                                                         \
	do {                                                                                                           \
		if (n + 2 >= len)                                                                                      \
			return "it is too long";                                                                       \
		out[n++] = (c);                                                                                        \
	} while (0)
#define PUTS(s)                                                                                                        \
	for (const char *s_ = (s); *s_; s_++)                                                                          \
	PUT(*s_)
	PUT('^');
	PUT('(');
	for (; *p; p++) {
		if (*p == '\\') {
			p++;
			if (*p == 'd')
				PUTS(bracket ? "0-9" : "[0-9]");
			else if (*p == 'w')
				PUTS(bracket ? "A-Za-z0-9_" : "[A-Za-z0-9_]");
			else if (ispunct((unsigned char)*p) && !bracket) {
				PUT('\\');
				PUT(*p);
			} else if (*p == '.' || *p == '_' || *p == '/')
				PUT(*p);
			else
				return "it has an escape that is not known here";
		} else if (bracket) {
			if (*p == '[')
				return "it has a bracket within brackets";
			bracket = *p != ']';
			PUT(*p);
		} else if (*p == '[') {
			bracket = true;
			PUT(*p);
			if (p[1] == '^')
				PUT(*++p);
			if (p[1] == ']')
				return "it has brackets that begin with a bracket";
		} else if (*p == '(' && p[1] == '?') {
			if (p[2] != ':')
				return "it looks around, or has a group of a kind that is not known here";
			PUT('(');
			p += 2;
		} else if (*p == '{') {
			unsigned lo, hi;
			int used = 0;
			if (counted || ((sscanf(p, "{%2u}%n", &lo, &used) < 1 || !used) &&
					(sscanf(p, "{%2u,%2u}%n", &lo, &hi, &used) < 2 || !used)))
				return "it has repeats that are not known here";
			counted = true;
			PUT(*p);
		} else {
			PUT(*p);
			if (strchr("*+?}", *p) && p[1] == '?') /* reluctant, which only matters to what is captured */
				p++;
		}
	}
#undef PUTS
#undef PUT
	out[n++] = ')';
	out[n] = 0;
	return bracket ? "a bracket is not closed" : NULL;
}

static bool in_any_name(const struct clv_model *m, const char *word)
{
	char name[NAME_MAX_LEN];
	uint32_t matrices;
	for (uint32_t i = 0; clv_names_of_experts(m, i, 0, 0, name, sizeof(name), &matrices); i++) {
		for (uint32_t k = 0; k <= matrices; k++) {
			clv_names_of_experts(m, i, 0, k, name, sizeof(name), &matrices);
			if (strstr(name, word))
				return true;
		}
	}
	return false;
}

/* Whether a pattern asks for a word, such as self_attn, that no name of experts has. Most do, and matching each of them with
 * each layer's names takes longer than all the rest. Words are of letters, outside of groups and where there is no choice. */
static bool hopeless(const struct clv_model *m, const char *pattern)
{
	if (strpbrk(pattern, "|("))
		return false;
	for (const char *p = pattern; *p; p++) {
		char word[64];
		size_t n = 0;
		if (*p == '[')
			p += strcspn(p, "]");
		else if (*p == '\\' && p[1])
			p++;
		else
			while (n + 1 < sizeof(word) && (isalpha((unsigned char)p[n]) || p[n] == '_'))
				n++;
		if (!*p)
			break;
		memcpy(word, p, n);
		word[n && p[n] && strchr("*?{", p[n]) ? n - 1 : n] = 0; /* the last letter may be absent */
		if (word[0] && !in_any_name(m, word))
			return true;
		p += n ? n - 1 : 0;
	}
	return false;
}

static bool compile(struct clv_names *names, struct entry *e, const char *pattern)
{
	char posix[2 * PATTERN_MAX];
	const char *wrong = translate(pattern, posix, sizeof(posix));
	if (!wrong) {
		if (!regcomp(&e->re, posix, REG_EXTENDED | REG_NOSUB)) {
			e->kind = ENTRY_RE;
			return true;
		}
		wrong = "it is no regular expression";
	}
	return clv_error_set(names->err, "%s: %s has \"%.200s\", and whether that means experts cannot be told: %s",
			     names->m->path, names->where, e->text, wrong);
}

/* ---- the list ---- */

/* An entry of the list: into the set, into entries, or nowhere. */
static bool take(struct clv_names *names, const char *text)
{
	struct entry *e = &names->entries[names->count];
	*e = (struct entry){.text = text};
	switch (names->language) {
	case CLV_NAMES_EQUAL_OR_RE:
		if (strncmp(text, "re:", 3))
			return !strstr(text, "experts") || !json_object_set_new(names->set, text, json_true()) ||
			       clv_error_set(names->err, "%s: host memory is out, or %s is not UTF-8", names->m->path,
					     names->where);
		if (!compile(names, e, text + 3))
			return false;
		if (hopeless(names->m, text + 3)) {
			regfree(&e->re);
			return true;
		}
		break;
	case CLV_NAMES_WILDCARD:
		e->kind = strpbrk(text, "*?[") ? ENTRY_WILDCARD : ENTRY_PLAIN;
		break;
	case CLV_NAMES_EXPERTS:
		if (!strstr(text, "experts") || strstr(text, "shared_expert"))
			return true;
		break;
	case CLV_NAMES_PART:
		break;
	}
	e->numbered = strpbrk(text, "0123456789") || (e->kind == ENTRY_RE && strstr(text, "\\d"));
	names->numbered += e->numbered;
	names->count++;
	return true;
}

struct clv_names *clv_names_make(const struct clv_model *m, json_t *list, const char *where,
				 enum clv_names_language language, struct clv_error *err)
{
	size_t i;
	json_t *v;
	if (!json_is_array(list)) {
		clv_error_set(err, "%s: %s is %s, not a list", m->path, where, clv_json_kind(list));
		return NULL;
	}
	struct clv_names *names = calloc(1, sizeof(*names));
	if (names) {
		names->set = json_object();
		names->entries = calloc(json_array_size(list) + 1, sizeof(*names->entries));
	}
	if (!names || !names->set || !names->entries) {
		clv_error_set(err, "%s: host memory is out", m->path);
		clv_names_free(names);
		return NULL;
	}
	names->m = m;
	names->where = where;
	names->language = language;
	names->err = err;
	json_array_foreach(list, i, v)
	{
		if (!json_is_string(v) || !json_string_length(v)) {
			clv_error_set(err, "%s: %s has %s at position %zu, where a module's name belongs", m->path,
				      where, json_is_string(v) ? "an empty text" : clv_json_kind(v), i);
			clv_names_free(names);
			return NULL;
		}
		if (!take(names, json_string_value(v))) {
			clv_names_free(names);
			return NULL;
		}
	}
	return names;
}

void clv_names_free(struct clv_names *names)
{
	if (!names)
		return;
	for (size_t i = 0; i < names->count; i++)
		if (names->entries[i].kind == ENTRY_RE)
			regfree(&names->entries[i].re);
	json_decref(names->set);
	free(names->entries);
	free(names);
}

/* ---- the verdict ---- */

/* Does an entry mean this name? `whole`: the name is that of the experts as a whole. */
static bool means(const struct clv_names *names, const struct entry *e, const char *name, bool whole)
{
	switch (names->language) {
	case CLV_NAMES_EQUAL_OR_RE:
		return !regexec(&e->re, name, 0, NULL, 0);
	case CLV_NAMES_WILDCARD:
		return !strcmp(e->text, name) || (whole && strstr(name, e->text)) ||
		       (e->kind == ENTRY_WILDCARD && !fnmatch(e->text, name, FNM_NOESCAPE));
	case CLV_NAMES_EXPERTS:
		return whole && (strstr(e->text, name) || strstr(name, e->text));
	default:
		return whole && strstr(name, e->text);
	}
}

static bool meant(const struct clv_names *names, const char *name, bool whole, const char **which)
{
	json_t *set = names->language == CLV_NAMES_EQUAL_OR_RE ? names->set : NULL;
	for (size_t i = 0; i < names->count; i++) {
		if (means(names, &names->entries[i], name, whole)) {
			*which = names->entries[i].text;
			return true;
		}
	}
	if (!json_object_get(set, name))
		return false;
	*which = json_object_iter_key(json_object_iter_at(set, name));
	return true;
}

static enum clv_names_verdict judge(const struct clv_names *names, uint32_t layer, const char **which)
{
	char name[NAME_MAX_LEN];
	uint32_t matrices;
	bool some = false;
	for (uint32_t i = 0; clv_names_of_experts(names->m, i, layer, 0, name, sizeof(name), &matrices); i++) {
		const char *entry;
		uint32_t hit = 0;
		if (meant(names, name, true, which))
			return CLV_NAMES_ALL;
		for (uint32_t k = 1; k <= matrices; k++) {
			clv_names_of_experts(names->m, i, layer, k, name, sizeof(name), &matrices);
			if (meant(names, name, false, &entry)) {
				hit++;
				*which = entry;
			}
		}
		if (hit == matrices)
			return CLV_NAMES_ALL;
		some = some || hit;
	}
	return some ? CLV_NAMES_SOME : CLV_NAMES_NONE;
}

enum clv_names_verdict clv_names_experts(struct clv_names *names, uint32_t layer, const char **which)
{
	if (names->numbered || (names->language == CLV_NAMES_EQUAL_OR_RE && json_object_size(names->set)))
		return judge(names, layer, which);
	unsigned digits = layer < 10 ? 1 : layer < 100 ? 2 : layer < 1000 ? 3 : 4;
	if (!names->by_digits[digits].known) {
		names->by_digits[digits].verdict = judge(names, layer, &names->by_digits[digits].which);
		names->by_digits[digits].known = true;
	}
	*which = names->by_digits[digits].which;
	return names->by_digits[digits].verdict;
}
