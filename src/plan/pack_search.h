/* SPDX-License-Identifier: MIT
 *
 * pack_search: is there a packing of at most a given height? An exact search over a plain problem; it finds one, shows
 * that there is none, or gives up. Owns its arrays; one thread.
 *
 * Packings are built from below; pack_state.h says what is known of one on the way.
 *
 * A *pit* is a section that is as low as any section of the items that wait in it. Items can always be let down until each
 * rests on another or on the ground; so in some packing either one of the items whose floor is the pit's lies at that
 * height, or all of the pit's lie at or above the next height at which something can end or begin there. These are the
 * branches of a node: each such item, then the waste of what is between. Any pit will do; which is taken first, and which
 * item, decides how soon a packing is found, not whether.
 *
 * When items are placed, the others fall apart into components that share no section: they are solved one by one, and when
 * one has no solution, no other solution of those before it can help. What was shown to have none is remembered by a hash of 64
 * bits of the items and bases left. Taken from the literature: canonical order and section inference (Moffitt, "MiniMalloc: A
 * Lightweight Memory Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023); restarts by Luby, Sinclair and
 * Zuckerman, "Optimal speedup of Las Vegas algorithms", 1993.
 */
#ifndef CLV_PACK_SEARCH_H
#define CLV_PACK_SEARCH_H

#include "pack_clock.h"
#include "pack_state.h"

enum clv_pack_answer { CLV_PACK_FOUND, CLV_PACK_NONE, CLV_PACK_UNDECIDED };

struct clv_pack_search;

/* Whether an attempt takes less than a second or so, and memory proportional to `buffers`: it takes 8 bytes for each section
 * of each item. */
bool clv_pack_search_suits(const struct clv_pack_problem *p, uint64_t buffers);

/* NULL: host memory is out. */
struct clv_pack_search *clv_pack_search_new(const struct clv_pack_problem *p, uint64_t seed);
void clv_pack_search_free(struct clv_pack_search *s);

/* Looks for a packing of at most `height` (in grains) until the clock has counted about `steps` more; at least one
 * attempt is made. The items' offsets go to offset[] when one is found. Goes on with other preferences each time that it is
 * called. */
enum clv_pack_answer clv_pack_search_run(struct clv_pack_search *s, uint64_t height, uint64_t steps,
					 struct clv_pack_clock *clock, uint64_t *offset);

/* For tests: called at each node. */
typedef void clv_pack_watch(void *watcher, const struct clv_pack_state *state);
void clv_pack_search_watch(struct clv_pack_search *s, clv_pack_watch *watch, void *watcher);

#endif
