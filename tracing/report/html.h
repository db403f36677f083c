/* SPDX-License-Identifier: MIT
 *
 * html: a report as one file that a browser shows without a network. Owns nothing between calls.
 */
#ifndef CLV_REPORT_HTML_H
#define CLV_REPORT_HTML_H

#include "report.h"

/* Whether this build can write pages at all, which is better told before the work; `path` is for the error. */
bool clv_report_html_ready(const char *path, struct clv_error *err);

/* Writes the page; a file that is there is replaced when the new one is complete. */
bool clv_report_html(const struct clv_report *report, const char *path, struct clv_error *err);

#endif
