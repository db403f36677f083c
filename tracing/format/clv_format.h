/* SPDX-License-Identifier: MIT
 *
 * clv_format: numbers and integer encodings of the .clv format, shared by its reader and its writer. The format is
 * described in clv_write.c.
 */
#ifndef CLV_FORMAT_H
#define CLV_FORMAT_H

#include "../../src/base/base.h"

#define CLV_FILE_MAGIC "\x93" "CLV\r\n\x1a\n" /* as PNG's: a transfer as text or as 7 bits shows at once */
#define CLV_FILE_VERSION 1u
#define CLV_FILE_HEADER 24u  /* magic, version, 0, checksum */
#define CLV_CHUNK_HEADER 32u /* magic, stored size, raw size, 0, checksum of the payload, checksum of these 24 bytes */
#define CLV_CHUNK_MAGIC 0x4b4e4843u /* "CHNK" */
#define CLV_CHUNK_RAW_MAX ((size_t)64 << 20)
#define CLV_DEVICE_MAX 65535

enum clv_record_kind {
	CLV_REC_SETTINGS = 1,
	CLV_REC_STREAMS = 2,
	CLV_REC_STRINGS = 3,
	CLV_REC_STACKS = 4,
	CLV_REC_HISTORY = 5,
	CLV_REC_EVENTS = 6,
	CLV_REC_STATE = 7,
	CLV_REC_SEGMENTS = 8,
	CLV_REC_BLOCKS = 9,
	CLV_REC_END = 10,
	CLV_REC_NOTES = 11,
	CLV_REC_MODULES = 12,
};

/* Fields of each kind. Numbers are never reused. */
enum {
	CLV_SETTINGS_CONF = 1,        /* text */
	CLV_SETTINGS_MAX_SPLIT = 2,   /* signed */
	CLV_SETTINGS_GC = 3,          /* 8 bytes, a double */
	CLV_SETTINGS_EXPANDABLE = 4,  /* present: true */
	CLV_SETTINGS_ROUNDUP = 5,     /* 16 numbers */
	CLV_SETTINGS_PRESENT = 6,     /* present: true */
	CLV_SETTINGS_PROBE = 7,       /* cap_mib, total_bytes, retries, ooms, device_left_mib */

	CLV_STREAMS_HANDLES = 1,      /* column; streams are numbered in the order of the file */

	CLV_STRINGS_LENGTHS = 1,      /* column */
	CLV_STRINGS_TEXT = 2,         /* the texts one after the other */

	CLV_STACKS_COUNTS = 1,        /* column: frames of each stack; stacks are numbered from 1 on */
	CLV_STACKS_FILES = 2,         /* column, one entry a frame: string */
	CLV_STACKS_FUNCTIONS = 3,     /* the same */
	CLV_STACKS_LINES = 4,         /* column, signed: difference to the line before */
	CLV_STACKS_MODULES = 5,       /* column: number of a module from 1 on; absent: 0, none */
	CLV_STACKS_ADDRESSES = 6,     /* column, signed: difference to the address before; absent: 0, no native frame */

	CLV_MODULES_PATHS = 1,        /* column: string; modules are numbered from 1 on, in the order of the file */
	CLV_MODULES_ID_LENGTHS = 2,   /* column: bytes of each build-id */
	CLV_MODULES_IDS = 3,          /* the build-ids one after the other */

	CLV_ANY_DEVICE = 1,           /* number; absent: 0. Of HISTORY, EVENTS, STATE, SEGMENTS, BLOCKS; of NOTES, absent: none */
	CLV_ANY_UNIT = 10,            /* number: ns that the times count; absent: 1,000. Of EVENTS, NOTES */

	CLV_EVENTS_ACTIONS = 2,       /* one byte an event: enum clv_action, 255 for OTHER; gives the number of events */
	CLV_EVENTS_TIMES = 3,         /* column, signed: difference to the time before */
	CLV_EVENTS_ADDRESSES = 4,     /* column: see clv_write.c */
	CLV_EVENTS_NEW_ADDRESSES = 5, /* column, signed: difference to the new address before */
	CLV_EVENTS_SIZES = 6,         /* column, signed: difference to the last size at that address */
	CLV_EVENTS_STREAMS = 7,       /* column, signed: difference to the last stream at that address */
	CLV_EVENTS_STACKS = 8,        /* column, signed: difference to the last stack at that address; absent: none */
	CLV_EVENTS_FLAGS = 9,         /* one byte an event; absent: 0 */
	CLV_EVENTS_THREADS = 11,      /* column, signed: difference to the thread before; absent: not known */
	CLV_EVENTS_SLACK = 12,        /* column: bytes that an ALLOC takes beyond its size; absent: not known */

	CLV_NOTES_KINDS = 2,          /* column: enum clv_event; gives the number of notes */
	CLV_NOTES_TIMES = 3,          /* column, signed: difference to the time before */
	CLV_NOTES_ADDRESSES = 4,      /* column, signed: difference to the last note of that kind (clv_note_slot); */
	CLV_NOTES_SIZES = 5,          /* so are these; absent: 0 */
	CLV_NOTES_A = 6,
	CLV_NOTES_B = 7,
	CLV_NOTES_STREAMS = 8,        /* column: stream plus 1; absent: 0, none */
	CLV_NOTES_TEXTS = 9,          /* column: string plus 1; absent: 0, none */
	CLV_NOTES_THREADS = 11,       /* column, signed: difference to the thread before; absent: not known */
	CLV_NOTES_STACKS = 12,        /* column; absent: none */
	CLV_NOTES_EVENTS = 13,        /* column, signed: difference of the index of the event that follows, in whole traces;
	                                 absent: found by time */

	CLV_STATE_SEGMENTS = 2,       /* number of segments that follow */
	CLV_STATE_BLOCKS = 3,         /* number of blocks that follow */
	CLV_STATE_POOLS = 4,          /* column: both numbers of each pool */

	CLV_SEGMENTS_GAPS = 2,        /* column: bytes between the end of the segment before and this one */
	CLV_SEGMENTS_SIZES = 3,
	CLV_SEGMENTS_STREAMS = 4,
	CLV_SEGMENTS_POOLS = 5,
	CLV_SEGMENTS_FLAGS = 6,       /* one byte a segment: 1 small, 2 expandable */
	CLV_SEGMENTS_STACKS = 7,
	CLV_SEGMENTS_BLOCKS = 8,      /* number of blocks of each; their addresses follow from their sizes */

	CLV_BLOCKS_SIZES = 2,
	CLV_BLOCKS_REQUESTED = 3,     /* column, signed: size less requested */
	CLV_BLOCKS_STATES = 4,        /* one byte a block: enum clv_block_state */
	CLV_BLOCKS_STACKS = 5,
};

#define CLV_ACTION_BYTE_OTHER 255u
#define CLV_UNIT_DEFAULT 1000u

/* What is remembered of the last note of a kind. Kinds that this version cannot know share one place. */
#define CLV_NOTE_KINDS 64u
struct clv_note_seen {
	uint64_t addr, size, a, b;
};

static inline unsigned clv_note_slot(uint64_t kind)
{
	return kind < CLV_NOTE_KINDS ? (unsigned)kind : CLV_NOTE_KINDS - 1;
}

/* Small numbers of either sign become small numbers. Differences wrap around 2^64, so that every value has one. */
static inline uint64_t clv_zigzag(uint64_t difference)
{
	return difference << 1 ^ (difference >> 63 ? UINT64_MAX : 0);
}

static inline uint64_t clv_unzigzag(uint64_t v)
{
	return v >> 1 ^ (v & 1 ? UINT64_MAX : 0);
}

static inline uint64_t clv_get_le(const uint8_t *p, unsigned bytes)
{
	uint64_t v = 0;
	for (unsigned i = bytes; i-- > 0;)
		v = v << 8 | p[i];
	return v;
}

static inline void clv_put_le(uint8_t *p, uint64_t v, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++, v >>= 8)
		p[i] = (uint8_t)v;
}

#endif
