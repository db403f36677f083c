/* SPDX-License-Identifier: MIT
 *
 * model_pattern: regular expressions of a configuration, matched with module names as Python's re.match() does, within bounds
 * of time and memory. Owns what is compiled; for model_names.c; no lock.
 *
 * PCRE2's syntax is Python's but for rare constructs, and of those nearly all are refused when they are compiled. What a
 * match may cost is bounded, and so is what all matches with a budget may cost together, in steps of PCRE2's matcher: the same
 * file is refused on any machine.
 */
#ifndef CLV_MODEL_PATTERN_H
#define CLV_MODEL_PATTERN_H

#include "../base/base.h"

#define CLV_PATTERN_MAX 16384 /* characters */

/* Steps of all matches: half a second to two, on machines of today. */
#define CLV_PATTERN_BUDGET 200000000

struct clv_pattern;

/* NULL: it is no regular expression, or too large; `why` is set. */
struct clv_pattern *clv_pattern_make(const char *text, char *why, size_t len);
void clv_pattern_free(struct clv_pattern *pattern);

/* Whether a part of it must equal what another part has matched. */
bool clv_pattern_refers_back(const struct clv_pattern *pattern);

enum clv_pattern_answer { CLV_PATTERN_NO, CLV_PATTERN_YES, CLV_PATTERN_TOO_MUCH };

/* Does it match the beginning of a name? What that costs is taken from `budget`. TOO_MUCH: it cannot be told within the
 * bounds, and `why` is set. */
enum clv_pattern_answer clv_pattern_match(const struct clv_pattern *pattern, const char *name, uint64_t *budget,
					  const char **why);

#endif
