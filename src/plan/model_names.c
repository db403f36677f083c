/* SPDX-License-Identifier: MIT */
#include "model_names.h"
#include "model_pattern.h"

#include <ctype.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_LEN 160
#define MATRICES_MAX 3
#define NAMES_MAX 6                                /* under which the experts of a layer may go */
#define KINDS_MAX (NAMES_MAX * (1 + MATRICES_MAX)) /* at most 32: they are bits */
#define DIGITS_MAX 4                               /* of a layer's number */
#define NUMBERS_MAX (10 + 100 + 1000 + 10000)      /* with so many digits */
#define NUMBER_LEN 12
#define ALL_DIGITS ((1u << 10) - 1) /* as bits */
#define DIGITS "0123456789"
#define ANY_DIGIT "[0-9]" /* which tells no digits apart */

_Static_assert(CLV_MODEL_LAYERS_MAX <= 10000, "a layer's number has at most DIGITS_MAX digits");

/* A name of experts, without the layer's number: of the experts as a whole, or of one matrix of expert 0. */
struct kind {
	char head[NAME_LEN / 2], tail[NAME_LEN / 2];
	bool whole;
};

struct clv_names {
	const struct clv_model *m;
	const char *where;
	struct clv_error *err;
	enum clv_names_language language;
	uint64_t budget;              /* clv_pattern_match() */
	struct kind kinds[KINDS_MAX]; /* by matrix, the experts as a whole first, and then by name */
	uint32_t kind_count, name_count, matrices;
	uint32_t digits; /* that the number of the last layer has */
	json_t *set;     /* entries that are names, as keys */
	struct found {
		uint32_t kinds;    /* that are meant, as bits */
		uint32_t first;    /* of them */
		const char *which; /* the first entry that means it */
	} * layers;
};

/* ---- the names ---- */

static void list_kinds(struct clv_names *n)
{
	static const char *const usual[] = {"model", "language_model.model", "model.language_model"};
	static const char *const nemotron[] = {"backbone", "model"};
	static const struct {
		const char *name, *matrices[MATRICES_MAX];
		uint32_t count;
	} blocks[] = {{"mlp", {"gate_proj", "up_proj", "down_proj"}, 3},
		      {"block_sparse_moe", {"w1", "w3", "w2"}, 3},
		      {"feed_forward", {"gate_proj", "up_proj", "down_proj"}, 3},
		      {"mixer", {"up_proj", "down_proj"}, 2}};
	const char *type = n->m->type;
	bool hybrid = !strncmp(type, "nemotron", 8);
	const char *const *prefixes = hybrid ? nemotron : usual;
	uint32_t prefix_count = hybrid ? CLV_ARRAY_LEN(nemotron) : CLV_ARRAY_LEN(usual);
	uint32_t first = hybrid ? 3 : !strncmp(type, "llama4", 6) ? 2 : 0, end = first ? first + 1 : 2;
	n->name_count = prefix_count * (end - first);
	n->matrices = blocks[first].count; /* of all that are tried */
	for (uint32_t matrix = 0; matrix <= n->matrices; matrix++)
		for (uint32_t b = first; b < end; b++)
			for (uint32_t p = 0; p < prefix_count; p++) {
				struct kind *k = &n->kinds[n->kind_count++];
				k->whole = !matrix;
				snprintf(k->head, sizeof(k->head), "%s.layers.", prefixes[p]);
				snprintf(k->tail, sizeof(k->tail), matrix ? ".%s.experts.0.%s" : ".%s.experts",
					 blocks[b].name, matrix ? blocks[b].matrices[matrix - 1] : "");
			}
}

static void print_name(char name[NAME_LEN], const struct kind *k, const char *number)
{
	size_t head = strlen(k->head), digits = strlen(number), tail = strlen(k->tail);
	memcpy(name, k->head, head);
	memcpy(name + head, number, digits);
	memcpy(name + head + digits, k->tail, tail + 1);
}

static const char *print_number(char number[NUMBER_LEN], uint32_t layer)
{
	snprintf(number, NUMBER_LEN, "%" PRIu32, layer);
	return number;
}

static void note_found(struct clv_names *n, uint32_t layer, uint32_t kind, const char *entry)
{
	struct found *f = &n->layers[layer];
	if (!f->kinds || kind < f->first) {
		f->first = kind;
		f->which = entry;
	}
	f->kinds |= 1u << kind;
}

static bool is_found(const struct clv_names *n, uint32_t layer, uint32_t kind)
{
	return n->layers[layer].kinds >> kind & 1;
}

static bool has_experts(const struct clv_names *n, uint32_t layer)
{
	return n->m->layer[layer] & CLV_LAYER_EXPERTS;
}

/* ---- one entry ---- */

enum entry_kind { ENTRY_NAME, ENTRY_PART, ENTRY_WILDCARD, ENTRY_RE };

struct entry {
	const char *text; /* of ENTRY_RE without "re:" */
	enum entry_kind kind;
	struct clv_pattern *re;
};

static bool refuse(const struct clv_names *n, const char *text, const char *why)
{
	return clv_error_set(n->err, "%s: %s has \"%.200s\", and whether that means experts cannot be told: %s",
			     n->m->path, n->where, text, why);
}

/* ENTRY_NAME also for one that cannot concern experts. */
static enum entry_kind kind_of(enum clv_names_language language, const char *text)
{
	switch (language) {
	case CLV_NAMES_EQUAL_OR_RE:
		return strncmp(text, "re:", 3) ? ENTRY_NAME : ENTRY_RE;
	case CLV_NAMES_WILDCARD:
		return strpbrk(text, "*?[") ? ENTRY_WILDCARD : ENTRY_PART;
	case CLV_NAMES_KEYS:
		return strchr(text, '*') ? ENTRY_WILDCARD : ENTRY_NAME;
	case CLV_NAMES_EXPERTS:
		return strstr(text, "experts") && !strstr(text, "shared_expert") ? ENTRY_PART : ENTRY_NAME;
	default:
		return ENTRY_PART;
	}
}

/* Does an entry mean this name? `whole`: the name is that of the experts as a whole. */
static enum clv_pattern_answer means(struct clv_names *n, const struct entry *e, const char *name, bool whole,
				     const char **why)
{
	bool yes = false;
	if (e->kind == ENTRY_RE)
		return clv_pattern_match(e->re, name, &n->budget, why);
	switch (n->language) {
	case CLV_NAMES_WILDCARD:
		yes = !strcmp(e->text, name) || (whole && strstr(name, e->text)) ||
		      (e->kind == ENTRY_WILDCARD && !fnmatch(e->text, name, FNM_NOESCAPE));
		break;
	case CLV_NAMES_KEYS:
		yes = !fnmatch(e->text, name, FNM_NOESCAPE);
		break;
	case CLV_NAMES_EXPERTS:
		yes = whole && (strstr(e->text, name) || strstr(name, e->text));
		break;
	default:
		yes = whole && strstr(name, e->text);
	}
	return yes ? CLV_PATTERN_YES : CLV_PATTERN_NO;
}

/* ---- what looks alike to an entry ---- */

/* A group with a question mark that asks for what is in it, or for the contrary, but then of no digits. */
static bool group_is_plain(const char *p)
{
	size_t inside = strcspn(p + 1, "()");
	return strchr(":=", p[2]) || !strncmp(p, "(?<=", 4) ||
	       ((p[2] == '!' || !strncmp(p, "(?<!", 4)) && p[1 + inside] == ')' && strcspn(p, DIGITS) > inside);
}

/* Whether each digit in the text stands for itself where a digit may be, or in brackets for what may be there. */
static bool digits_are_plain(const struct entry *e)
{
	if (strstr(e->text, "[!") || strstr(e->text, "[^"))
		return false;
	for (const char *p = e->text; e->kind == ENTRY_RE && *p; p++) {
		if (*p == '(' && (p[1] == '*' || (p[1] == '?' && !group_is_plain(p))))
			return false;
		if (*p == '\\' && p[1] && isalnum((unsigned char)*++p) && !strchr("dDwWsSbB", *p))
			return false;
	}
	return true;
}

/* The digits that the entry tells apart from others, as bits. */
static unsigned digits_of(const struct entry *e, bool plain)
{
	unsigned digits = 0;
	bool brackets = false;
	for (const char *p = e->text; *p; p++) {
		if (!strncmp(p, ANY_DIGIT, strlen(ANY_DIGIT))) {
			p += strlen(ANY_DIGIT) - 1;
			continue;
		}
		brackets |= *p == '[';
		digits |= isdigit((unsigned char)*p) ? 1u << (*p - '0') : 0;
	}
	return digits && (brackets || !plain) ? ALL_DIGITS : digits; /* there may be ranges */
}

/* All digits are made 0. The numbers of counted repeats are not what is matched. */
static void forget_digits(char *text, bool is_re)
{
	for (char *p = text; *p; p++) {
		if (is_re && *p == '{')
			p += strcspn(p, "}") - (strchr(p, '}') == NULL);
		else if (isdigit((unsigned char)*p))
			*p = '0';
	}
}

/* Numbers that only differ in digits that are not told apart have the same class, below NUMBERS_MAX. */
static uint32_t class_of(const char *number, unsigned told)
{
	uint32_t value = 0, before = 0, of_length = 10;
	char other = '0';
	while (told >> (other - '0') & 1)
		other++;
	for (const char *p = number; *p; p++) {
		value = value * 10 + (uint32_t)((told >> (*p - '0') & 1 ? *p : other) - '0');
		if (p[1]) {
			before += of_length;
			of_length *= 10;
		}
	}
	return before + value;
}

/* The layers whose numbers have so many digits. */
static void layers_of(const struct clv_names *n, uint32_t digits, uint32_t *first, uint32_t *end)
{
	static const uint32_t tens[] = {0, 10, 100, 1000, 10000};
	*first = tens[digits - 1];
	*end = (uint32_t)clv_min_u64(tens[digits], n->m->layers);
}

static bool meet_layers(struct clv_names *n, const struct entry *e, const char *text, unsigned told, uint32_t kind,
			uint32_t first, uint32_t end, const char **why)
{
	uint8_t known[NUMBERS_MAX] = {0};
	char number[NUMBER_LEN], name[NAME_LEN];
	bool all_told = told == ALL_DIGITS;
	for (uint32_t l = first; l < end; l++) {
		if (!has_experts(n, l) || is_found(n, l, kind))
			continue;
		uint8_t *answer = &known[all_told ? l : class_of(print_number(number, l), told)];
		if (!*answer) {
			print_name(name, &n->kinds[kind], print_number(number, l));
			enum clv_pattern_answer a = means(n, e, name, n->kinds[kind].whole, why);
			if (a == CLV_PATTERN_TOO_MUCH)
				return false;
			*answer = (uint8_t)(1 + a);
		}
		if (*answer == 1 + CLV_PATTERN_YES)
			note_found(n, l, kind, text);
	}
	return true;
}

/* `rough`: the entry without what tells digits apart, NULL: as it is not known. */
static bool meet(struct clv_names *n, const struct entry *e, const struct entry *rough, const char *text, unsigned told,
		 const char **why)
{
	char name[NAME_LEN];
	for (uint32_t digits = 1; digits <= n->digits; digits++) {
		uint32_t first, end;
		layers_of(n, digits, &first, &end);
		for (uint32_t k = 0; k < n->kind_count; k++) {
			enum clv_pattern_answer a = CLV_PATTERN_YES;
			if (rough) {
				print_name(name, &n->kinds[k], "0000" + DIGITS_MAX - digits);
				if (told)
					forget_digits(name, false);
				a = means(n, rough, name, n->kinds[k].whole, why);
			}
			if (a == CLV_PATTERN_TOO_MUCH)
				return false;
			if (a == CLV_PATTERN_NO)
				continue;
			if (told) {
				if (!meet_layers(n, e, text, told, k, first, end, why))
					return false;
				continue;
			}
			for (uint32_t l = first; l < end; l++)
				if (has_experts(n, l) && !is_found(n, l, k))
					note_found(n, l, k, text);
		}
	}
	return true;
}

static bool take(struct clv_names *n, const char *text)
{
	struct entry e = {.text = text, .kind = kind_of(n->language, text)}, rough;
	char why_not[256];
	const char *why = why_not;
	char *without = NULL;
	if (e.kind == ENTRY_NAME)
		return true;
	if (strlen(text) > CLV_PATTERN_MAX)
		return refuse(n, text, "it is too long");
	if (e.kind == ENTRY_RE) {
		e.text += 3;
		e.re = clv_pattern_make(e.text, why_not, sizeof(why_not));
		if (!e.re)
			return refuse(n, text, why_not);
	}
	bool plain = digits_are_plain(&e);
	unsigned told = digits_of(&e, plain);
	if (e.re && clv_pattern_refers_back(e.re))
		told = ALL_DIGITS;
	rough = e;
	bool ok = true;
	if (told && plain) {
		without = strdup(e.text);
		ok = without != NULL;
		if (ok)
			forget_digits(without, e.kind == ENTRY_RE);
		rough.text = without;
		rough.re = ok && e.re ? clv_pattern_make(without, why_not, sizeof(why_not)) : NULL;
		ok = ok && (!e.re || rough.re);
	}
	ok = ok ? meet(n, &e, told && !plain ? NULL : &rough, text, told, &why) || refuse(n, text, why)
		: refuse(n, text, "host memory is out");
	if (rough.re != e.re)
		clv_pattern_free(rough.re);
	clv_pattern_free(e.re);
	free(without);
	return ok;
}

/* ---- the list ---- */

/* Names, which need no comparison: those of experts as a whole, and of the matrices of expert 0. */
static bool take_name(struct clv_names *n, const char *text)
{
	size_t len = strlen(text);
	if ((n->language != CLV_NAMES_EQUAL_OR_RE && n->language != CLV_NAMES_KEYS) ||
	    kind_of(n->language, text) != ENTRY_NAME)
		return true;
	if (!strstr(text, ".experts.0.") && (len < 8 || strcmp(text + len - 8, ".experts")))
		return true;
	return !json_object_set_new(n->set, text, json_true()) ||
	       clv_error_set(n->err, "%s: host memory is out", n->m->path);
}

static void meet_names(struct clv_names *n)
{
	char number[NUMBER_LEN], name[NAME_LEN];
	for (uint32_t l = 0; l < n->m->layers && json_object_size(n->set); l++) {
		print_number(number, l);
		for (uint32_t k = 0; k < n->kind_count && has_experts(n, l); k++) {
			print_name(name, &n->kinds[k], number);
			void *at = json_object_iter_at(n->set, name);
			if (at)
				note_found(n, l, k, json_object_iter_key(at));
		}
	}
}

static bool each_text(struct clv_names *n, json_t *list, bool (*visit)(struct clv_names *n, const char *text))
{
	const char *key;
	size_t i;
	json_t *v;
	json_object_foreach(list, key, v)
	{
		if (!visit(n, key))
			return false;
	}
	json_array_foreach(list, i, v)
	{
		if (!visit(n, json_string_value(v)))
			return false;
	}
	return true;
}

static bool check_list(const struct clv_names *n, json_t *list)
{
	bool keys = n->language == CLV_NAMES_KEYS;
	size_t i;
	json_t *v;
	if (keys ? !json_is_object(list) : !json_is_array(list))
		return clv_error_set(n->err, "%s: %s is %s, not %s", n->m->path, n->where, clv_json_kind(list),
				     keys ? "an object" : "a list");
	json_array_foreach(list, i, v)
	{
		if (!json_is_string(v) || !json_string_length(v))
			return clv_error_set(n->err, "%s: %s has %s at position %zu, where a module's name belongs",
					     n->m->path, n->where,
					     json_is_string(v) ? "an empty text" : clv_json_kind(v), i);
	}
	return true;
}

struct clv_names *clv_names_make(const struct clv_model *m, json_t *list, const char *where,
				 enum clv_names_language language, struct clv_error *err)
{
	struct clv_names *n = calloc(1, sizeof(*n));
	if (!n) {
		clv_error_set(err, "%s: host memory is out", m->path);
		return NULL;
	}
	*n = (struct clv_names){.m = m, .where = where, .err = err, .language = language, .budget = CLV_PATTERN_BUDGET};
	n->set = json_object();
	n->layers = calloc(m->layers, sizeof(*n->layers));
	for (uint32_t rest = m->layers - 1; rest || !n->digits; rest /= 10)
		n->digits++;
	list_kinds(n);
	bool ok = (n->set && n->layers) || clv_error_set(err, "%s: host memory is out", m->path);
	ok = ok && check_list(n, list) && each_text(n, list, take_name);
	if (ok)
		meet_names(n); /* before others: a name counts more than a wildcard */
	if (ok && each_text(n, list, take))
		return n;
	clv_names_free(n);
	return NULL;
}

void clv_names_free(struct clv_names *n)
{
	if (!n)
		return;
	json_decref(n->set);
	free(n->layers);
	free(n);
}

/* ---- the verdict ---- */

enum clv_names_verdict clv_names_experts(const struct clv_names *n, uint32_t layer, const char **which)
{
	const struct found *f = &n->layers[layer];
	*which = f->which;
	for (uint32_t i = 0; i < n->name_count; i++) {
		bool all = true;
		for (uint32_t matrix = 1; matrix <= n->matrices; matrix++)
			all = all && is_found(n, layer, matrix * n->name_count + i);
		if (all || is_found(n, layer, i))
			return CLV_NAMES_ALL;
	}
	return f->kinds ? CLV_NAMES_SOME : CLV_NAMES_NONE;
}

const char *clv_names_key(const struct clv_names *n, uint32_t layer)
{
	const struct found *f = &n->layers[layer];
	return f->kinds && f->first < 2 * n->name_count ? f->which : NULL;
}
