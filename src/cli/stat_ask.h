/* SPDX-License-Identifier: MIT
 *
 * stat_ask: the side of `cleave stat` that asks (live/stat_wire.h). An answer belongs to who asked.
 */
#ifndef CLV_STAT_ASK_H
#define CLV_STAT_ASK_H

#include "../live/gather.h"
#include "exit.h"

struct clv_stat_sample {
	void *data; /* what the view points into */
	struct clv_stat_view view;
};

/* Asks the process, and waits for the answer as long as `patience_ms`. CLV_EXIT_DONE, or with a sentence in err
 * CLV_EXIT_FAILED: the process is there, but has nothing to tell, or does not answer; CLV_EXIT_USAGE: there is no such
 * process, it may not be asked, or its answer cannot be understood. */
enum clv_exit clv_stat_ask(long pid, enum clv_stat_op op, int64_t patience_ms, struct clv_stat_sample *out,
			   struct clv_error *err);

/* There is no such process, or it has ended and is only waited for by its parent. */
bool clv_stat_has_ended(long pid);

void clv_stat_sample_free(struct clv_stat_sample *s);

#endif
