/* SPDX-License-Identifier: MIT */
#include "pack_grade.h"
#include "pack_order.h"
#include "pack_search.h"

#include <stdlib.h>

enum { SHARE_FIRST = 32 }; /* in 1/256 */

bool clv_pack_grade_make(struct clv_pack_grade *g, const struct clv_pack_problem *problem, uint64_t seed)
{
	*g = (struct clv_pack_grade){.problem = problem, .share = SHARE_FIRST, .seed = seed};
	g->by_size = malloc(((size_t)problem->count + 1) * sizeof(*g->by_size));
	g->inner = malloc(((size_t)problem->count + 1) * sizeof(*g->inner));
	if (g->by_size && g->inner && clv_pack_order_by(problem, CLV_PACK_BY_SIZE, g->by_size))
		return true;
	clv_pack_grade_free(g);
	return false;
}

void clv_pack_grade_free(struct clv_pack_grade *g)
{
	free(g->by_size);
	free(g->inner);
	*g = (struct clv_pack_grade){0};
}

/* The next number of items to be searched, all of a size or none. */
static uint32_t next_count(struct clv_pack_grade *g)
{
	const struct clv_pack_item *items = g->problem->items;
	uint32_t n = g->problem->count, count = g->last;
	while (count <= g->last && count < n) {
		count = (uint32_t)((uint64_t)n * g->share / 256);
		g->share += g->share / 2;
		while (count && count < n && items[g->by_size[count]].size == items[g->by_size[count - 1]].size)
			count++;
	}
	return g->last = count < n ? count : n;
}

/* Searches the next share at a height (in grains of all), or at its own bound if that is 0; then the offsets of its items go to
 * g->inner. False: host memory is out. */
static bool search_share(struct clv_pack_grade *g, struct clv_pack_problem *larger, uint64_t height, uint64_t steps,
			 struct clv_pack_clock *clock, enum clv_pack_answer *answer)
{
	uint32_t count = next_count(g);
	*answer = CLV_PACK_UNDECIDED;
	if (!clv_pack_problem_subset(larger, g->problem, g->by_size, count))
		return false;
	if (count == g->problem->count || !clv_pack_search_suits(larger, g->problem->count)) {
		g->share = SHARE_FIRST;
		g->last = 0;
		g->round++;
		return true;
	}
	if (clv_pack_clock_look(clock))
		return true;
	struct clv_pack_search *search = clv_pack_search_new(larger, clv_mix64(g->seed + g->round));
	if (!search) {
		clv_pack_problem_free(larger);
		return false;
	}
	*answer = clv_pack_search_run(search, height ? height / larger->grain : larger->bound, steps, clock, g->inner);
	clv_pack_search_free(search);
	return true;
}

bool clv_pack_grade_fit(struct clv_pack_grade *g, struct clv_pack_fit *fit, uint64_t steps, struct clv_pack_clock *clock,
			uint64_t *offset, bool *packed)
{
	struct clv_pack_problem larger;
	enum clv_pack_answer answer;
	*packed = false;
	if (!search_share(g, &larger, 0, steps, clock, &answer))
		return false;
	bool ok = true;
	if (answer == CLV_PACK_FOUND) {
		clv_pack_fit_begin(fit, offset);
		for (uint32_t i = 0; i < larger.count; i++)
			clv_pack_fit_put(fit, larger.items[i].buffer, g->inner[i] * larger.unit, offset);
		ok = clv_pack_fit_run(fit, g->by_size, g->problem->count, offset, clock) != UINT64_MAX;
		*packed = ok;
	}
	clv_pack_problem_free(&larger);
	return ok;
}

bool clv_pack_grade_disprove(struct clv_pack_grade *g, uint64_t height, uint64_t steps, struct clv_pack_clock *clock,
			     bool *none)
{
	struct clv_pack_problem larger;
	enum clv_pack_answer answer;
	*none = false;
	if (!search_share(g, &larger, height, steps, clock, &answer))
		return false;
	*none = answer == CLV_PACK_NONE;
	clv_pack_problem_free(&larger);
	return true;
}
