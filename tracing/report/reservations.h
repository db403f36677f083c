/* SPDX-License-Identifier: MIT
 *
 * reservations: what became of the reservations of a recording. Owns nothing between calls.
 */
#ifndef CLV_REPORT_RESERVATIONS_H
#define CLV_REPORT_RESERVATIONS_H

#include "report.h"

/* Fills in the device's reservations. False with an error: out of host memory. */
bool clv_reservations_list(struct clv_report_device *d, struct clv_error *err);

#endif
