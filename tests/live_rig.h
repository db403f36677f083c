/* SPDX-License-Identifier: MIT
 *
 * live_rig: a heap over a simulated device that answers as a program under Cleave does. A process has one.
 */
#ifndef CLV_LIVE_RIG_H
#define CLV_LIVE_RIG_H

#include "../src/base/clock.h"
#include "../src/driver/sim.h"
#include "../src/live/stat_serve.h"

#include <check.h>

#define LIVE_STREAM ((cleave_stream){7, 0x107})

static struct clv_live live;
static struct clv_settings live_settings;
static _Atomic unsigned live_said;

static inline void live_say(const char *sentence)
{
	(void)sentence;
	live_said++;
}

static inline void live_complain(void *arg, const char *sentence)
{
	(void)arg;
	ck_abort_msg("%s", sentence);
}

static inline void live_open(const char *settings)
{
	clv_settings_parse_lenient(&live_settings, settings, live_complain, NULL);
	live.driver = clv_sim_open(&(struct clv_sim_config){.capacity = 256 * CLV_MIB, .devices = 2, .manual = true});
	ck_assert_ptr_nonnull(live.driver);
	ck_assert_int_eq(clv_heap_open(&live.heap, live.driver, &live_settings), 0);
	live.settings = &live_settings;
	live.say = live_say;
	live.opened_ns = clv_clock_ns();
}

static inline cleave_ptr live_alloc(size_t bytes)
{
	cleave_ptr p;
	ck_assert_int_eq(cleave_alloc(live.heap, 0, LIVE_STREAM, bytes, &p), 0);
	return p;
}

static inline void live_free(cleave_ptr p)
{
	ck_assert_int_eq(cleave_free(live.heap, p, LIVE_STREAM), 0);
}

#endif
