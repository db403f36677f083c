/* SPDX-License-Identifier: MIT
 *
 * recorded: what PyTorch did when the history was recorded. Without a capacity, `torch:recorded` is no simulation: where the
 * run in step with the file agrees with every recorded address and segment, that run is the answer. A simulated device
 * hands out other addresses, which decide ties, so near a limit the same requests can end otherwise.
 */
#ifndef CLV_RECORDED_H
#define CLV_RECORDED_H

#include "../policies/torch_verify.h"
#include "replay.h"

/* `wall_s` is how long the run in step took. false: it did not agree with the file; replay on a simulated device then. */
bool clv_replay_recorded(const struct clv_trace *trace, const struct clv_history *history,
			 const struct clv_verify_result *verify, double wall_s, struct clv_replay_result *out);

#endif
