/* SPDX-License-Identifier: MIT
 *
 * whatif: replays a device's requests under other settings, and with other allocators, to see what would have helped. Owns
 * nothing between calls.
 */
#ifndef CLV_REPORT_WHATIF_H
#define CLV_REPORT_WHATIF_H

#include "report.h"

/* Fills in the device's trials, as many as options->trial_events allow; first the base. Nothing is tried where nothing failed and
 * nothing but live bytes was ever held. False with an error: out of host memory. Settings that are refused are no trial, and no
 * error. */
bool clv_whatif_try(struct clv_report_device *d, const struct clv_report_options *options, struct clv_error *err);

#endif
