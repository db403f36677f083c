/* SPDX-License-Identifier: MIT
 *
 * record_rig: a folder, a recorder that writes into it, and what is read back, for the tests of the recorder.
 */
#ifndef CLV_RECORD_RIG_H
#define CLV_RECORD_RIG_H

#include "../tracing/import/import.h"
#include "../tracing/record/record.h"
#include "../tracing/trace.h"
#include "check_main.h"
#include "trace_check.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char rig_folder[64], rig_path[128];
static struct clv_error rig_err;

static inline void rig_begin(void)
{
	strcpy(rig_folder, "/tmp/cleave-record-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(rig_folder));
	snprintf(rig_path, sizeof(rig_path), "%s/r.clv", rig_folder);
	rig_err.text[0] = '\0';
}

/* Files whose names begin so. */
static inline unsigned rig_files(const char *beginning)
{
	unsigned n = 0;
	DIR *d = opendir(rig_folder);
	ck_assert_ptr_nonnull(d);
	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.' && strncmp(e->d_name, beginning, strlen(beginning)) == 0;
	closedir(d);
	return n;
}

static inline void rig_end(void)
{
	DIR *d = opendir(rig_folder);
	ck_assert_ptr_nonnull(d);
	for (struct dirent *e; (e = readdir(d));) {
		char name[400];
		snprintf(name, sizeof(name), "%s/%s", rig_folder, e->d_name);
		if (e->d_name[0] != '.')
			ck_assert_int_eq(unlink(name), 0);
	}
	closedir(d);
	ck_assert_int_eq(rmdir(rig_folder), 0);
}

static inline void rig_open(const struct clv_record_config *config)
{
	struct clv_record_config c = *config;
	if (!c.path)
		c.path = rig_path;
	ck_assert_msg(clv_record_open(&c, &rig_err), "%s", rig_err.text);
}

static inline void rig_event(enum clv_event event, int device, uint64_t stream, uint64_t addr, uint64_t size)
{
	clv_record_event(&(struct clv_record_event){.event = event,
						    .device = device,
						    .stream = stream,
						    .addr = addr,
						    .size = size,
						    .a = size,
						    .b = stream});
}

static inline void rig_mark(const char *text)
{
	clv_record_event(
		&(struct clv_record_event){.event = CLV_EVENT_MARK, .device = -1, .stream = UINT64_MAX, .text = text});
}

static inline struct clv_trace *rig_read(const char *path)
{
	rig_err.text[0] = '\0';
	struct clv_trace *t = clv_trace_import(path, &rig_err);
	ck_assert_msg(t != NULL, "%s", rig_err.text);
	const char *wrong = trace_wrong(t);
	ck_assert_msg(!wrong, "%s: %s", path, wrong);
	return t;
}

/* Notes of one kind in all devices; their sizes summed. */
static inline uint32_t rig_notes(const struct clv_trace *t, enum clv_event kind, uint64_t *sizes)
{
	uint32_t n = 0;
	if (sizes)
		*sizes = 0;
	for (uint32_t h = 0; h < t->history_count; h++)
		for (uint32_t i = 0; i < t->histories[h].note_count; i++) {
			const struct clv_note *note = &t->histories[h].notes[i];
			if (note->kind != kind)
				continue;
			n++;
			if (sizes)
				*sizes += note->size;
		}
	return n;
}

static inline uint64_t rig_events(const struct clv_trace *t)
{
	uint64_t n = 0;
	for (uint32_t h = 0; h < t->history_count; h++)
		n += t->histories[h].event_count;
	return n;
}

#endif
