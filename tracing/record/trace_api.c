/* SPDX-License-Identifier: MIT
 *
 * The functions of include/cleave/trace.h, in libcleave.so and in libcleave-preload.so. Owns nothing.
 */
#include "recording.h"

#include "../../src/base/file_name.h"

#include <cleave/trace.h>

#include <errno.h>
#include <stdio.h>

#define FLUSH_MS 10000u
#define NAME_MAX_BYTES 255u

static int refuse(int status, const struct clv_error *err, char *why, size_t why_len)
{
	if (why && why_len)
		snprintf(why, why_len, "%s", err->text);
	return status;
}

int cleave_trace_start(const char *path, const char *settings, char *why, size_t why_len)
{
	struct clv_settings s;
	struct clv_error err = {{0}};
	if (!path)
		clv_error_set(&err, "a recording needs the name of a file");
	if (!path || !clv_file_name_check(path, &err) || !clv_settings_parse_record(&s, settings, &err))
		return refuse(-EINVAL, &err, why, why_len);
	if (clv_recording_start(&(struct clv_recording_config){.settings = &s, .path = path}, NULL, 0, &err))
		return 0;
	return refuse(clv_record_is_open() ? -EBUSY : -EIO, &err, why, why_len);
}

int cleave_trace_flush(void)
{
	if (!clv_record_is_open())
		return -ENOENT;
	return clv_record_flush(FLUSH_MS) ? 0 : -ETIMEDOUT;
}

int cleave_trace_stop(void)
{
	return clv_recording_stop() ? 0 : -ENOENT;
}

static void tell(enum clv_event event, const char *name)
{
	char kept[NAME_MAX_BYTES + 1];
	if (!clv_record_is_open() || !name)
		return;
	size_t len = clv_record_text_len(name, NAME_MAX_BYTES);
	memcpy(kept, name, len);
	kept[len] = '\0';
	clv_record_event(&(struct clv_record_event){.event = event, .device = -1, .stream = UINT64_MAX, .text = kept});
}

void cleave_trace_mark(const char *name)
{
	tell(CLV_EVENT_MARK, name);
}

void cleave_trace_phase_begin(const char *name)
{
	tell(CLV_EVENT_PHASE_BEGIN, name);
}

void cleave_trace_phase_end(const char *name)
{
	tell(CLV_EVENT_PHASE_END, name);
}
