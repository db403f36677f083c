/* SPDX-License-Identifier: MIT
 *
 * report_text: what `cleave report` shows in a terminal: what a person reads in a minute. Owns nothing.
 */
#ifndef CLV_REPORT_TEXT_H
#define CLV_REPORT_TEXT_H

#include "../../tracing/report/report.h"

#include <stdio.h>

void clv_report_text_write(const struct clv_report *report, FILE *out);

#endif
