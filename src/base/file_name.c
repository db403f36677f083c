/* SPDX-License-Identifier: MIT */
#include "file_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In this order: a launcher may run under another, and the inner one knows the rank that programs mean. */
static const char *const rank_variables[] = {"RANK",     "OMPI_COMM_WORLD_RANK", "PMIX_RANK",
					     "PMI_RANK", "MV2_COMM_WORLD_RANK",  "SLURM_PROCID"};

/* A number of at most 9 digits and nothing else: it becomes part of a file's name. */
static bool number_of(const char *text, uint32_t *out)
{
	size_t len = text ? strlen(text) : 0;
	if (!len || len > 9 || strspn(text, "0123456789") != len)
		return false;
	*out = (uint32_t)strtoul(text, NULL, 10);
	return true;
}

uint32_t clv_process_rank(bool *known)
{
	uint32_t rank = 0;
	bool found = false;
	for (size_t i = 0; i < CLV_ARRAY_LEN(rank_variables) && !found; i++)
		found = number_of(getenv(rank_variables[i]), &rank);
	if (known)
		*known = found;
	return rank;
}

bool clv_file_name_check(const char *pattern, struct clv_error *err)
{
	if (!*pattern)
		return clv_error_set(err, "a file has a name");
	for (const char *c = strchr(pattern, '%'); c; c = strchr(c + 2, '%'))
		if (!c[1] || !strchr("pr%", c[1]))
			return clv_error_set(err, "%s: expected %%p (process), %%r (rank) or %%%% after a percent sign",
					     pattern);
	return true;
}

bool clv_file_name_expand(const char *pattern, char *out, size_t room, struct clv_error *err)
{
	size_t used = 0;
	if (room)
		*out = '\0';
	if (!clv_file_name_check(pattern, err))
		return false;
	for (const char *c = pattern; *c; c++) {
		char piece[16] = {*c};
		if (*c == '%') {
			c++;
			if (*c == 'p')
				snprintf(piece, sizeof(piece), "%ld", (long)getpid());
			else if (*c == 'r')
				snprintf(piece, sizeof(piece), "%u", clv_process_rank(NULL));
		}
		size_t len = strlen(piece);
		if (used + len >= room) {
			if (room)
				*out = '\0';
			return clv_error_set(err, "%s: the name is longer than %zu characters", pattern,
					     room ? room - 1 : 0);
		}
		memcpy(out + used, piece, len + 1);
		used += len;
	}
	return true;
}

bool clv_file_name_escape(const char *name, char *out, size_t room)
{
	size_t used = 0;
	for (; *name && used + 3 <= room; name++) {
		if (*name == '%')
			out[used++] = '%';
		out[used++] = *name;
	}
	if (room)
		out[used] = '\0';
	return room && !*name;
}

static bool insert(const char *pattern, const char *middle, char *out, size_t room)
{
	static const char end[] = ".clv";
	size_t len = strlen(pattern), end_len = strlen(end);
	bool has_end = len > end_len && !strcmp(pattern + len - end_len, end);
	int n = snprintf(out, room, "%.*s.%%p%s%s", (int)(has_end ? len - end_len : len), pattern, middle, end);
	return n >= 0 && (size_t)n < room;
}

bool clv_file_name_further(const char *pattern, unsigned nth, char *out, size_t room)
{
	char middle[16] = "";
	if (nth > 1)
		snprintf(middle, sizeof(middle), "-%u", nth);
	return insert(pattern, middle, out, room);
}

static const char *skip_digits(const char *text)
{
	return text + strspn(text, "0123456789");
}

static bool is_later_end(const char *end)
{
	return end[0] == '.' && end[1] && !*skip_digits(end + 1);
}

bool clv_file_name_is_later(const char *first, const char *name)
{
	size_t len = strlen(first);
	return !strncmp(name, first, len) && is_later_end(name + len);
}

/* As the pattern up to its end, and then nothing or a number. */
static bool matches(const char *pattern, const char *name)
{
	for (; *pattern; pattern++) {
		if (*pattern == '%' && pattern[1] != '%') {
			const char *after = skip_digits(name);
			if (after == name)
				return false;
			name = after;
			pattern++;
			continue;
		}
		pattern += *pattern == '%';
		if (*name++ != *pattern)
			return false;
	}
	return !*name || is_later_end(name);
}

bool clv_file_name_is_of(const char *pattern, const char *name)
{
	char further[4096]; /* as long as a path can be */
	if (matches(pattern, name))
		return true;
	return (insert(pattern, "", further, sizeof(further)) && matches(further, name)) ||
	       (insert(pattern, "-%p", further, sizeof(further)) && matches(further, name));
}

void clv_file_name_absolute(const char *name, char *out, size_t room)
{
	size_t len = 0, own = strlen(name) + 2; /* with a slash before it and a 0 behind */
	if (name[0] != '/' && own < room && getcwd(out, room - own)) {
		len = strlen(out);
		if (out[len - 1] != '/')
			out[len++] = '/';
	}
	snprintf(out + len, room - len, "%s", name);
}
