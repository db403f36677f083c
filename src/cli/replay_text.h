/* SPDX-License-Identifier: MIT
 *
 * replay_text: what `cleave replay` shows people: the table of results, and a line of progress on a terminal. The meter
 * belongs to the command that runs.
 */
#ifndef CLV_REPLAY_TEXT_H
#define CLV_REPLAY_TEXT_H

#include "../../tracing/replay/replay_json.h"

#include <stdio.h>

void clv_replay_text_write(const struct clv_replay_report *report, uint64_t capacity, FILE *out);

struct clv_replay_meter {
	FILE *out; /* NULL: not a terminal, nothing is shown */
	bool shown;
	int64_t shown_ms;
};

void clv_replay_meter_init(struct clv_replay_meter *meter, FILE *terminal);
void clv_replay_meter_say(struct clv_replay_meter *meter, const char *what,
			  const char *of);                                    /* at once: "reading FILE" */
void clv_replay_meter_show(void *meter, const struct clv_replay_progress *p); /* a few times a second at most */
void clv_replay_meter_clear(struct clv_replay_meter *meter);

#endif
