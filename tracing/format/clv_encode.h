/* SPDX-License-Identifier: MIT
 *
 * clv_encode: makes the records and chunks of the .clv format, which clv_write.c describes: for whole traces, and for the
 * recorder, which has no more than libc. Host memory comes from where the caller says. Each structure is owned by the thread
 * that writes; all of them begin as zeros.
 */
#ifndef CLV_ENCODE_H
#define CLV_ENCODE_H

#include "clv_format.h"

/* Where host memory comes from. `resize` of NULL makes; it answers NULL, and `p` is as before, when there is no more. */
struct clv_encode_memory {
	void *(*resize)(void *p, size_t size);
	void (*release)(void *p);
};

struct clv_buf {
	uint8_t *data;
	size_t len, cap;
};

struct clv_encoder {
	const struct clv_encode_memory *memory;
	bool failed;           /* host memory is out: everything after it does nothing, until the caller says otherwise */
	struct clv_buf chunk;  /* whole records */
	struct clv_buf record; /* fields of the record in the making */
	struct clv_buf scratch;
	/* Called before a record that would make the chunk longer than `chunk_target`: empties the chunk. May be NULL. */
	void (*flush)(struct clv_encoder *e);
	size_t chunk_target;
};

void clv_encoder_clear(struct clv_encoder *e);

bool clv_buf_reserve(struct clv_encoder *e, struct clv_buf *b, size_t more);
void clv_buf_put(struct clv_encoder *e, struct clv_buf *b, const void *data, size_t len);
void clv_buf_byte(struct clv_encoder *e, struct clv_buf *b, uint8_t v);
void clv_buf_number(struct clv_encoder *e, struct clv_buf *b, uint64_t v);
void clv_buf_signed(struct clv_encoder *e, struct clv_buf *b, uint64_t difference);
void clv_buf_free(struct clv_encoder *e, struct clv_buf *b);

/* Of the record in the making. */
void clv_encode_field(struct clv_encoder *e, uint64_t id, const void *data, size_t len);
void clv_encode_number(struct clv_encoder *e, uint64_t id, uint64_t v);
void clv_encode_column(struct clv_encoder *e, uint64_t id, struct clv_buf *column); /* empties it */
void clv_encode_end(struct clv_encoder *e, enum clv_record_kind kind);

void clv_encode_file_header(uint8_t header[CLV_FILE_HEADER]);
void clv_encode_chunk_header(uint8_t header[CLV_CHUNK_HEADER], const void *payload, size_t stored, size_t raw);

/* The records that list things: add what they list, then end them. Nothing is made of an empty list. */

struct clv_encode_strings {
	struct clv_buf lengths, text;
};
void clv_encode_string(struct clv_encoder *e, struct clv_encode_strings *s, const char *text, size_t len);
void clv_encode_strings_end(struct clv_encoder *e, struct clv_encode_strings *s);
void clv_encode_strings_free(struct clv_encoder *e, struct clv_encode_strings *s);

struct clv_encode_modules {
	struct clv_buf paths, id_lengths, ids;
};
void clv_encode_module(struct clv_encoder *e, struct clv_encode_modules *m, uint32_t path, const void *build_id,
		       size_t build_id_len);
void clv_encode_modules_end(struct clv_encoder *e, struct clv_encode_modules *m);
void clv_encode_modules_free(struct clv_encoder *e, struct clv_encode_modules *m);

struct clv_encode_stacks {
	struct clv_buf counts, files, functions, lines, modules, addresses;
	uint32_t line;
	uint64_t address;
	bool any_native;
};
void clv_encode_stack(struct clv_encoder *e, struct clv_encode_stacks *s, uint32_t frames); /* then each of them */
void clv_encode_frame(struct clv_encoder *e, struct clv_encode_stacks *s, uint32_t file, uint32_t function, uint32_t line,
		      uint32_t module, uint64_t address);
void clv_encode_stacks_end(struct clv_encoder *e, struct clv_encode_stacks *s);
void clv_encode_stacks_free(struct clv_encoder *e, struct clv_encode_stacks *s);

struct clv_encode_event {
	uint64_t time, addr, size;
	uint32_t stream, stack, thread, slack;
	uint8_t action, flags; /* enum clv_action */
};

struct clv_encode_events {
	struct clv_buf actions, times, references, fresh, sizes, streams, stacks, flags, threads, slack;
	bool any_stack, any_flag, any_thread, any_slack;
	uint64_t time, last_new;
	uint32_t number, thread;
	/* the addresses of this record: a table of which only slots of this epoch count, and what was last seen at each */
	struct clv_encode_slot {
		uint64_t addr;
		uint32_t number, epoch;
	} *slots;
	struct clv_encode_seen {
		uint64_t size;
		uint32_t stream, stack;
	} *seen;
	size_t slot_count, seen_cap; /* slot_count: a power of two, or 0 */
	uint32_t address_count, epoch;
};
void clv_encode_event(struct clv_encoder *e, struct clv_encode_events *s, const struct clv_encode_event *event);
/* `unit`: of the times, in ns. */
void clv_encode_events_end(struct clv_encoder *e, struct clv_encode_events *s, uint64_t device, uint32_t unit);
void clv_encode_events_free(struct clv_encoder *e, struct clv_encode_events *s);

struct clv_encode_note {
	uint64_t time, addr, size, a, b;
	uint64_t event;               /* index of the event that follows; UINT64_MAX: not known */
	uint32_t stream, text, stack; /* indices plus 1; 0: none */
	uint32_t thread;
	uint32_t kind;
};

struct clv_encode_notes {
	struct clv_buf kinds, times, addresses, sizes, as, bs, events, streams, texts, stacks, threads;
	uint64_t time, event;
	uint32_t thread;
	bool any_event, any_stream, any_text, any_stack, any_thread;
	struct clv_note_seen seen[CLV_NOTE_KINDS];
};
void clv_encode_note(struct clv_encoder *e, struct clv_encode_notes *s, const struct clv_encode_note *note);
/* `device` below 0: of none. */
void clv_encode_notes_end(struct clv_encoder *e, struct clv_encode_notes *s, int64_t device, uint32_t unit);
void clv_encode_notes_free(struct clv_encoder *e, struct clv_encode_notes *s);

#endif
