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
