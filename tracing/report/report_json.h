/* SPDX-License-Identifier: MIT
 *
 * report_json: the JSON document of `cleave report`; programs rely on its keys. Holds no state.
 */
#ifndef CLV_REPORT_JSON_H
#define CLV_REPORT_JSON_H

#include "report.h"

#include <stdio.h>

/* The document on one stream, with a newline at the end; with `timeline` the buckets, too. false: out of host memory, or the
 * stream refused it. */
bool clv_report_json_write(const struct clv_report *report, bool timeline, FILE *out, struct clv_error *err);

#endif
