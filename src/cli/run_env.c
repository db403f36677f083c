/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* basename that leaves its argument alone, asprintf */
#include "run_env.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PRELOAD_SEPARATORS " :" /* of ld.so */

/* A formatted text, or NULL. */
static CLV_PRINTF(1, 2) char *text(const char *fmt, ...)
{
	va_list ap;
	char *out;
	va_start(ap, fmt);
	int n = vasprintf(&out, fmt, ap);
	va_end(ap);
	return n < 0 ? NULL : out;
}

static bool same_file(const char *a, const char *b)
{
	struct stat sa, sb;
	return !stat(a, &sa) && !stat(b, &sb) && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

/* Another copy counts, too: two of them would hook each other. */
static bool is_library(const char *entry, size_t len, const char *library)
{
	char path[4096];
	if (len >= sizeof(path))
		return false;
	memcpy(path, entry, len);
	path[len] = '\0';
	return !strcmp(basename(path), basename(library)) || same_file(path, library);
}

bool clv_run_preloaded(const char *list, const char *library)
{
	for (const char *at = list ? list : ""; *at;) {
		at += strspn(at, PRELOAD_SEPARATORS);
		size_t len = strcspn(at, PRELOAD_SEPARATORS);
		if (len && is_library(at, len, library))
			return true;
		at += len;
	}
	return false;
}

static bool must_be_first(const char *entry, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (entry[i] == '/') {
			entry += i + 1;
			len -= i + 1;
			i = (size_t)-1;
		}
	static const char *const runtimes[] = {"libasan", "libclang_rt.asan"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(runtimes); i++)
		if (len >= strlen(runtimes[i]) && !memcmp(entry, runtimes[i], strlen(runtimes[i])))
			return true;
	return false;
}

char *clv_run_preload_merge(const char *list, const char *library)
{
	if (!list)
		list = "";
	size_t keep = 0; /* bytes that stay before ours */
	for (;;) {
		size_t at = keep + strspn(list + keep, PRELOAD_SEPARATORS);
		size_t len = strcspn(list + at, PRELOAD_SEPARATORS);
		if (!len || !must_be_first(list + at, len))
			break;
		keep = at + len;
	}
	const char *rest = list + keep;
	bool joined = *rest && !strchr(PRELOAD_SEPARATORS, *rest);
	return text("%.*s%s%s%s%s", (int)keep, list, keep ? ":" : "", library, joined ? ":" : "", rest);
}

char *clv_run_conf_merge(const char *before, const char *after)
{
	bool both = before && *before && after && *after;
	return text("%s%s%s", before ? before : "", both ? "," : "", after ? after : "");
}

const char *const clv_run_torch_variables[CLV_RUN_TORCH_VARIABLES] = {
	"PYTORCH_CUDA_ALLOC_CONF",
	"PYTORCH_HIP_ALLOC_CONF",
	"PYTORCH_ALLOC_CONF",
};

/* The next word of PyTorch's settings into `word`, without the blanks in it; returns what ended it, ',' also at the end of
 * the text, and moves *at past that. '[' and ']' end words as well. */
static char torch_word(const char **at, char *word, size_t len)
{
	size_t used = 0;
	char c;
	while ((c = **at) && !strchr(",:[]", c)) {
		if (!strchr(" \t\n\v\f\r", c) && used < len - 1)
			word[used++] = c;
		++*at;
	}
	word[used] = '\0';
	*at += c != '\0';
	return c ? c : ',';
}

/* The next key:value, lists in brackets being values; false at the end. An item without a colon has no value. */
static bool torch_item(const char **at, char *key, size_t key_len, char *value, size_t value_len)
{
	if (!**at)
		return false;
	int depth = 0;
	value[0] = '\0';
	char end = torch_word(at, key, key_len);
	if (end == ':')
		end = torch_word(at, value, value_len);
	for (;;) {
		depth += (end == '[') - (end == ']');
		if (!**at || (end == ',' && depth <= 0))
			return true;
		char skipped[2];
		end = torch_word(at, skipped, sizeof(skipped));
	}
}

bool clv_run_torch_backend(const char *settings, char *value, size_t len)
{
	char key[64];
	while (settings && torch_item(&settings, key, sizeof(key), value, len))
		if (!strcmp(key, "backend"))
			return true;
	return false;
}

char *clv_run_torch_merge(const char *settings)
{
	bool empty = !settings || !settings[strspn(settings, " \t")];
	return text("backend:" CLV_RUN_TORCH_BACKEND "%s%s", empty ? "" : ",", empty ? "" : settings);
}

/* What is left of the settings then: those of page-locked host memory, which has an allocator of its own. */
static bool torch_heeds(const char *key)
{
	return !strcmp(key, "backend") || !strncmp(key, "pinned_", strlen("pinned_"));
}

char *clv_run_torch_ignored(const char *settings)
{
	char key[64], value[2];
	char *list = strdup("");
	while (list && settings && torch_item(&settings, key, sizeof(key), value, sizeof(value))) {
		if (!key[0] || torch_heeds(key))
			continue;
		char *longer = text("%s%s%s", list, list[0] ? ", " : "", key);
		free(list);
		list = longer;
	}
	return list;
}
