/* SPDX-License-Identifier: MIT
 *
 * explain: a report in sentences: why a request failed, and what a device suffered from. Owns nothing between calls.
 */
#ifndef CLV_REPORT_EXPLAIN_H
#define CLV_REPORT_EXPLAIN_H

#include "report.h"

/* Writes the text of every failure and the device's summary; trials have been made before. False with an error: out of host
 * memory. */
bool clv_explain_device(struct clv_report_device *d, struct clv_error *err);

#endif
