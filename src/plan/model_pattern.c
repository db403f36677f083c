/* SPDX-License-Identifier: MIT */
#include "model_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_FIRST 64      /* of most matches less is needed */
#define STEPS_MAX (1 << 18) /* of one match: some ms */
#define DEPTH_MAX 10000     /* of nested choices */
#define MEMORY_KIB 1024
#define NESTED_MAX 100 /* parentheses */

struct clv_pattern {
	pcre2_code *code;
	pcre2_match_data *data;
	pcre2_match_context *limits;
};

static pcre2_code *compile(const char *text, char *why, size_t len)
{
	int error = 0;
	PCRE2_SIZE at = 0;
	char message[128] = "";
	pcre2_compile_context *bounds = pcre2_compile_context_create(NULL);
	pcre2_code *code = NULL;
	if (bounds) {
		pcre2_set_max_pattern_length(bounds, CLV_PATTERN_MAX);
		pcre2_set_parens_nest_limit(bounds, NESTED_MAX);
		code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
				     PCRE2_ANCHORED | PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &at, bounds);
	}
	if (!bounds)
		snprintf(why, len, "host memory is out");
	else if (!code && pcre2_get_error_message(error, (PCRE2_UCHAR *)message, sizeof(message)) >= 0)
		snprintf(why, len, "it is no regular expression, by its character %zu: %s", (size_t)at, message);
	else if (!code)
		snprintf(why, len, "it is no regular expression");
	pcre2_compile_context_free(bounds);
	return code;
}

struct clv_pattern *clv_pattern_make(const char *text, char *why, size_t len)
{
	struct clv_pattern *p = calloc(1, sizeof(*p));
	if (!p) {
		snprintf(why, len, "host memory is out");
		return NULL;
	}
	p->code = compile(text, why, len);
	if (p->code) {
		p->data = pcre2_match_data_create(1, NULL);
		p->limits = pcre2_match_context_create(NULL);
		if (p->data && p->limits) {
			pcre2_set_depth_limit(p->limits, DEPTH_MAX);
			pcre2_set_heap_limit(p->limits, MEMORY_KIB);
			return p;
		}
		snprintf(why, len, "host memory is out");
	}
	clv_pattern_free(p);
	return NULL;
}

void clv_pattern_free(struct clv_pattern *p)
{
	if (!p)
		return;
	pcre2_match_context_free(p->limits);
	pcre2_match_data_free(p->data);
	pcre2_code_free(p->code);
	free(p);
}

bool clv_pattern_refers_back(const struct clv_pattern *p)
{
	uint32_t most = 0;
	return pcre2_pattern_info(p->code, PCRE2_INFO_BACKREFMAX, &most) || most;
}

/* PCRE2 does not tell how many steps a match took; so it is tried with few, and with more if they were not enough. */
enum clv_pattern_answer clv_pattern_match(const struct clv_pattern *p, const char *name, uint64_t *budget,
					  const char **why)
{
	size_t len = strlen(name);
	for (uint32_t steps = STEPS_FIRST; steps <= STEPS_MAX; steps *= 4) {
		if (*budget < steps) {
			*why = "all entries together take too long to match";
			return CLV_PATTERN_TOO_MUCH;
		}
		*budget -= steps;
		pcre2_set_match_limit(p->limits, steps);
		int got = pcre2_match(p->code, (PCRE2_SPTR)name, len, 0, PCRE2_NO_UTF_CHECK, p->data, p->limits);
		if (got >= 0)
			return CLV_PATTERN_YES;
		if (got == PCRE2_ERROR_NOMATCH)
			return CLV_PATTERN_NO;
		if (got != PCRE2_ERROR_MATCHLIMIT) {
			*why = got == PCRE2_ERROR_DEPTHLIMIT || got == PCRE2_ERROR_HEAPLIMIT
				       ? "it takes too much memory to match"
				       : "it cannot be matched";
			return CLV_PATTERN_TOO_MUCH;
		}
	}
	*why = "it takes too long to match";
	return CLV_PATTERN_TOO_MUCH;
}
