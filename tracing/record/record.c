/* SPDX-License-Identifier: MIT */
#include "record.h"

#include <string.h>

bool clv_record_open(const struct clv_record_config *config, struct clv_error *err)
{
	return clv_error_set(err, "%s: this build cannot record yet", config->path);
}

bool clv_record_is_open(void)
{
	return false;
}

void clv_record_event(const struct clv_record_event *event)
{
	(void)event;
}

bool clv_record_flush(uint32_t timeout_ms)
{
	(void)timeout_ms;
	return true;
}

void clv_record_close(void)
{
}

void clv_record_get_stats(struct clv_record_stats *out)
{
	memset(out, 0, sizeof(*out));
}
