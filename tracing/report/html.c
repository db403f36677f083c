/* SPDX-License-Identifier: MIT */
#include "html.h"

bool clv_report_html(const struct clv_report *report, const char *path, struct clv_error *err)
{
	return clv_error_set(err, "%s: this build cannot write HTML; `cleave report --json` has everything", path);
}
