/* SPDX-License-Identifier: MIT
 *
 * The .clv format, version 1. All integers are little-endian; a *number* is a base-128 varint of at most 64 bits (7
 * bits a byte, low bits first, the top bit says that another byte follows); a *signed* number is a difference modulo
 * 2^64, zigzag coded.
 *
 *	file   = header chunk...
 *	header = magic[8] version[4] 0[4] xxh64(the 16 bytes before)[8]
 *	chunk  = "CHNK" stored[4] raw[4] 0[4] xxh64(payload)[8] xxh64(the 24 bytes before)[8] payload[stored]
 *	         the payload is one zstd frame that unpacks to `raw` bytes (at most 64 MiB) of records
 *	record = kind:number length:number field...     kinds that a reader does not know are skipped
 *	field  = id:number length:number bytes          so are ids; a field is a number, a text, bytes, or a column
 *	column = number...                              one entry for each thing the record lists
 *
 * A file only grows at its end. One that was cut anywhere is readable up to its last whole chunk; a damaged chunk is
 * told from a missing one because its header has a checksum of its own. END in the last record says that nothing is
 * missing.
 *
 * Each EVENTS record can be read by itself. Addresses come again and again, so the record numbers them in the order in
 * which they first occur: entry 0 of the column is a new address (taken from the other column), v > 0 the one whose
 * number differs by unzigzag(v - 1) from the number before. Sizes, streams and stacks are differences to what was last
 * seen at that address. Which free ends which block, pools and totals are not stored: clv_history_link() finds them
 * again.
 *
 * Segments are sorted by address, and blocks tile them, so only the gaps between segments are stored. A STATE record
 * begins the state of a device anew; it holds when all the segments and blocks that it announces have been read.
 */
#include "clv.h"

#include "../map.h"
#include "../output.h"
#include "clv_format.h"

#include <string.h>
#include <xxhash.h>
#include <zstd.h>

#define BATCH 65536u /* entries of one record */
#define CHUNK_TARGET ((size_t)1 << 20)
#define LEVEL 12 /* within a few percent of 19 at a fraction of the time */

struct bytes {
	uint8_t *data;
	size_t len, cap;
};

enum { COLUMNS = 8 };

struct writer {
	const struct clv_trace *trace;
	struct clv_error *err;
	const char *path;
	struct clv_output out;
	bool failed;         /* the reason is in err; everything after it does nothing */
	struct bytes chunk;  /* records */
	struct bytes record; /* fields of the record in the making */
	struct bytes column[COLUMNS];
	struct bytes packed;
	ZSTD_CCtx *zstd;
	struct clv_map numbers; /* of the addresses in an EVENTS record */
	struct seen {
		uint64_t size;
		uint32_t stream, stack;
	} *seen;
	size_t seen_cap;
};

static void fail_memory(struct writer *w)
{
	w->failed = true;
	clv_error_set(w->err, "%s: out of host memory", w->path);
}

static void put(struct writer *w, struct bytes *b, const void *data, size_t len)
{
	if (w->failed)
		return;
	if (!clv_mem_reserve(&b->data, &b->cap, b->len + len, 1)) {
		fail_memory(w);
		return;
	}
	if (len)
		memcpy(b->data + b->len, data, len);
	b->len += len;
}

static void put_byte(struct writer *w, struct bytes *b, uint8_t v)
{
	put(w, b, &v, 1);
}

static void put_number(struct writer *w, struct bytes *b, uint64_t v)
{
	uint8_t buf[10];
	size_t n = 0;
	for (; v >= 128; v >>= 7)
		buf[n++] = (uint8_t)v | 128;
	buf[n++] = (uint8_t)v;
	put(w, b, buf, n);
}

static void put_signed(struct writer *w, struct bytes *b, uint64_t difference)
{
	put_number(w, b, clv_zigzag(difference));
}

static void write_all(struct writer *w, const uint8_t *data, size_t len)
{
	if (w->failed)
		return;
	clv_output_write(&w->out, data, len, w->err);
	w->failed = w->out.failed;
}

static void write_header(struct writer *w)
{
	uint8_t header[CLV_FILE_HEADER];
	memcpy(header, CLV_FILE_MAGIC, 8);
	clv_put_le(header + 8, CLV_FILE_VERSION, 4);
	clv_put_le(header + 12, 0, 4);
	clv_put_le(header + 16, XXH64(header, 16, 0), 8);
	write_all(w, header, sizeof(header));
}

static void flush_chunk(struct writer *w)
{
	if (w->failed || w->chunk.len == 0)
		return;
	size_t bound = ZSTD_compressBound(w->chunk.len);
	if (!clv_mem_reserve(&w->packed.data, &w->packed.cap, bound, 1)) {
		fail_memory(w);
		return;
	}
	size_t stored = ZSTD_compressCCtx(w->zstd, w->packed.data, bound, w->chunk.data, w->chunk.len, LEVEL);
	if (ZSTD_isError(stored)) {
		w->failed = true;
		clv_error_set(w->err, "%s: zstd: %s", w->path, ZSTD_getErrorName(stored));
		return;
	}
	uint8_t header[CLV_CHUNK_HEADER];
	clv_put_le(header, CLV_CHUNK_MAGIC, 4);
	clv_put_le(header + 4, stored, 4);
	clv_put_le(header + 8, w->chunk.len, 4);
	clv_put_le(header + 12, 0, 4);
	clv_put_le(header + 16, XXH64(w->packed.data, stored, 0), 8);
	clv_put_le(header + 24, XXH64(header, 24, 0), 8);
	write_all(w, header, sizeof(header));
	write_all(w, w->packed.data, stored);
	w->chunk.len = 0;
}

/* Fields of the record in the making. */
static void field_bytes(struct writer *w, uint64_t id, const void *data, size_t len)
{
	put_number(w, &w->record, id);
	put_number(w, &w->record, len);
	put(w, &w->record, data, len);
}

static void field_number(struct writer *w, uint64_t id, uint64_t v)
{
	w->column[0].len = 0;
	put_number(w, &w->column[0], v);
	field_bytes(w, id, w->column[0].data, w->column[0].len);
}

static struct bytes *column(struct writer *w, unsigned i)
{
	w->column[i].len = 0;
	return &w->column[i];
}

static void field_column(struct writer *w, uint64_t id, const struct bytes *c)
{
	field_bytes(w, id, c->data, c->len);
}

static void end_record(struct writer *w, enum clv_record_kind kind)
{
	if (w->chunk.len && w->chunk.len + w->record.len > CHUNK_TARGET)
		flush_chunk(w);
	if (!w->failed && w->record.len > CLV_CHUNK_RAW_MAX - 32) {
		w->failed = true;
		clv_error_set(w->err, "%s: a record of %zu bytes is too long for the format", w->path, w->record.len);
	}
	put_number(w, &w->chunk, kind);
	put_number(w, &w->chunk, w->record.len);
	put(w, &w->chunk, w->record.data, w->record.len);
	w->record.len = 0;
}

static void write_settings(struct writer *w)
{
	const struct clv_torch_recorded *t = &w->trace->torch;
	uint8_t gc[8];
	uint64_t bits;
	memcpy(&bits, &t->gc_threshold, sizeof(bits));
	clv_put_le(gc, bits, 8);
	if (t->conf)
		field_bytes(w, CLV_SETTINGS_CONF, t->conf, strlen(t->conf));
	struct bytes *c = column(w, 0);
	put_signed(w, c, (uint64_t)t->max_split_size);
	field_column(w, CLV_SETTINGS_MAX_SPLIT, c);
	field_bytes(w, CLV_SETTINGS_GC, gc, sizeof(gc));
	if (t->expandable)
		field_bytes(w, CLV_SETTINGS_EXPANDABLE, NULL, 0);
	c = column(w, 0);
	for (size_t i = 0; i < CLV_ARRAY_LEN(t->roundup); i++)
		put_number(w, c, t->roundup[i]);
	field_column(w, CLV_SETTINGS_ROUNDUP, c);
	if (t->present)
		field_bytes(w, CLV_SETTINGS_PRESENT, NULL, 0);
	if (t->has_probe) {
		c = column(w, 0);
		put_number(w, c, t->cap_mib);
		put_number(w, c, t->total_bytes);
		put_number(w, c, t->retries);
		put_number(w, c, t->ooms);
		put_number(w, c, t->device_left_mib);
		field_column(w, CLV_SETTINGS_PROBE, c);
	}
	end_record(w, CLV_REC_SETTINGS);
}

static void write_streams(struct writer *w)
{
	const struct clv_trace *t = w->trace;
	for (uint32_t i = 0; i < t->stream_count && !w->failed;) {
		struct bytes *c = column(w, 0);
		for (uint32_t end = i + (uint32_t)clv_min_u64(BATCH, t->stream_count - i); i < end; i++)
			put_number(w, c, t->streams[i]);
		field_column(w, CLV_STREAMS_HANDLES, c);
		end_record(w, CLV_REC_STREAMS);
	}
}

static void write_strings(struct writer *w)
{
	const struct clv_trace *t = w->trace;
	for (uint32_t i = 0; i < t->string_count && !w->failed;) {
		struct bytes *lengths = column(w, 0), *text = column(w, 1);
		for (uint32_t n = 0; n < BATCH && i < t->string_count && text->len < CHUNK_TARGET && !w->failed;
		     n++, i++) {
			size_t len = strlen(t->strings[i]);
			put_number(w, lengths, len);
			put(w, text, t->strings[i], len);
		}
		field_column(w, CLV_STRINGS_LENGTHS, lengths);
		field_column(w, CLV_STRINGS_TEXT, text);
		end_record(w, CLV_REC_STRINGS);
	}
}

static void write_stacks(struct writer *w)
{
	const struct clv_trace *t = w->trace;
	for (uint32_t i = 1; i < t->stack_count && !w->failed;) {
		struct bytes *counts = column(w, 0), *files = column(w, 1), *functions = column(w, 2),
			     *lines = column(w, 3);
		uint32_t line = 0;
		for (uint64_t frames = 0; frames < BATCH && counts->len < BATCH && i < t->stack_count && !w->failed;
		     i++) {
			const struct clv_stack_record *s = &t->stacks[i];
			put_number(w, counts, s->count);
			for (uint32_t k = s->first; k < s->first + s->count; k++) {
				const struct clv_frame_record *f = &t->stack_frames[k];
				put_number(w, files, f->file);
				put_number(w, functions, f->function);
				put_signed(w, lines, (uint64_t)f->line - line);
				line = f->line;
			}
			frames += s->count;
		}
		field_column(w, CLV_STACKS_COUNTS, counts);
		field_column(w, CLV_STACKS_FILES, files);
		field_column(w, CLV_STACKS_FUNCTIONS, functions);
		field_column(w, CLV_STACKS_LINES, lines);
		end_record(w, CLV_REC_STACKS);
	}
}

/* The number of an address in this record, and whether it is new. */
static bool number_address(struct writer *w, uint64_t addr, uint32_t *number, bool *is_new)
{
	struct clv_map_slot *slot = clv_map_slot(&w->numbers, addr);
	if (!slot) {
		fail_memory(w);
		return false;
	}
	*is_new = slot->value == CLV_MAP_NONE;
	if (*is_new) {
		slot->value = (uint32_t)w->numbers.used - 1;
		if (!clv_mem_reserve(&w->seen, &w->seen_cap, w->numbers.used, sizeof(*w->seen))) {
			fail_memory(w);
			return false;
		}
		w->seen[slot->value] = (struct seen){0, 0, 0};
	}
	*number = slot->value;
	return true;
}

static void write_events(struct writer *w, const struct clv_history *h, uint32_t first, uint32_t count)
{
	field_number(w, CLV_ANY_DEVICE, (uint64_t)h->device);
	struct bytes *actions = column(w, 0), *times = column(w, 1), *addresses = column(w, 2), *fresh = column(w, 3);
	struct bytes *sizes = column(w, 4), *streams = column(w, 5), *stacks = column(w, 6), *flags = column(w, 7);
	uint64_t time = 0, last_new = 0;
	uint32_t last_number = 0;
	bool any_stack = false, any_flag = false;
	clv_map_clear(&w->numbers);
	for (uint32_t i = first; i < first + count; i++) {
		const struct clv_event_record *e = &h->events[i];
		uint32_t number;
		bool is_new;
		if (w->failed || !number_address(w, e->addr, &number, &is_new))
			return;
		struct seen *s = &w->seen[number];
		put_byte(w, actions, e->action < CLV_ACTION_OTHER ? e->action : CLV_ACTION_BYTE_OTHER);
		put_signed(w, times, e->time_us - time);
		if (is_new) {
			put_number(w, addresses, 0);
			put_signed(w, fresh, e->addr - last_new);
			last_new = e->addr;
		} else {
			put_number(w, addresses, clv_zigzag((uint64_t)number - last_number) + 1);
		}
		put_signed(w, sizes, e->size - s->size);
		put_signed(w, streams, (uint64_t)e->stream - s->stream);
		put_signed(w, stacks, (uint64_t)e->stack - s->stack);
		put_byte(w, flags, e->flags);
		any_stack |= e->stack != CLV_NO_STACK;
		any_flag |= e->flags != 0;
		time = e->time_us;
		last_number = number;
		*s = (struct seen){e->size, e->stream, e->stack};
	}
	field_column(w, CLV_EVENTS_ACTIONS, actions);
	field_column(w, CLV_EVENTS_TIMES, times);
	field_column(w, CLV_EVENTS_ADDRESSES, addresses);
	field_column(w, CLV_EVENTS_NEW_ADDRESSES, fresh);
	field_column(w, CLV_EVENTS_SIZES, sizes);
	field_column(w, CLV_EVENTS_STREAMS, streams);
	if (any_stack)
		field_column(w, CLV_EVENTS_STACKS, stacks);
	if (any_flag)
		field_column(w, CLV_EVENTS_FLAGS, flags);
	end_record(w, CLV_REC_EVENTS);
}

static void write_segments(struct writer *w, const struct clv_history *h, uint32_t first, uint32_t count)
{
	field_number(w, CLV_ANY_DEVICE, (uint64_t)h->device);
	struct bytes *gaps = column(w, 0), *sizes = column(w, 1), *streams = column(w, 2), *pools = column(w, 3);
	struct bytes *flags = column(w, 4), *stacks = column(w, 5), *blocks = column(w, 6);
	uint64_t end = first ? h->segments[first - 1].addr + h->segments[first - 1].size : 0;
	for (uint32_t i = first; i < first + count; i++) {
		const struct clv_segment_record *s = &h->segments[i];
		put_number(w, gaps, s->addr - end);
		put_number(w, sizes, s->size);
		put_number(w, streams, s->stream);
		put_number(w, pools, s->pool);
		put_byte(w, flags, (uint8_t)((s->small ? 1 : 0) | (s->expandable ? 2 : 0)));
		put_number(w, stacks, s->stack);
		put_number(w, blocks, s->blocks);
		end = s->addr + s->size;
	}
	field_column(w, CLV_SEGMENTS_GAPS, gaps);
	field_column(w, CLV_SEGMENTS_SIZES, sizes);
	field_column(w, CLV_SEGMENTS_STREAMS, streams);
	field_column(w, CLV_SEGMENTS_POOLS, pools);
	field_column(w, CLV_SEGMENTS_FLAGS, flags);
	field_column(w, CLV_SEGMENTS_STACKS, stacks);
	field_column(w, CLV_SEGMENTS_BLOCKS, blocks);
	end_record(w, CLV_REC_SEGMENTS);
}

static void write_blocks(struct writer *w, const struct clv_history *h, uint32_t first, uint32_t count)
{
	field_number(w, CLV_ANY_DEVICE, (uint64_t)h->device);
	struct bytes *sizes = column(w, 0), *requested = column(w, 1), *states = column(w, 2), *stacks = column(w, 3);
	for (uint32_t i = first; i < first + count; i++) {
		const struct clv_block_record *b = &h->blocks[i];
		put_number(w, sizes, b->size);
		put_signed(w, requested, b->size - b->requested);
		put_byte(w, states, b->state);
		put_number(w, stacks, b->stack);
	}
	field_column(w, CLV_BLOCKS_SIZES, sizes);
	field_column(w, CLV_BLOCKS_REQUESTED, requested);
	field_column(w, CLV_BLOCKS_STATES, states);
	field_column(w, CLV_BLOCKS_STACKS, stacks);
	end_record(w, CLV_REC_BLOCKS);
}

/* The format leaves out what follows from the order of segments and blocks; a trace that breaks it cannot be written.
 */
static bool state_is_regular(struct writer *w, const struct clv_history *h)
{
	uint64_t end = 0, block = 0;
	for (uint32_t i = 0; i < h->segment_count; i++) {
		const struct clv_segment_record *s = &h->segments[i];
		uint64_t at = s->addr;
		bool regular = s->addr >= end && s->first_block == block && block + s->blocks <= h->block_record_count;
		for (uint32_t b = 0; regular && b < s->blocks; b++) {
			regular = h->blocks[block + b].addr == at;
			at += h->blocks[block + b].size;
		}
		end = s->addr + s->size;
		block += s->blocks;
		if (!regular || at != end) {
			w->failed = true;
			return clv_error_set(w->err,
					     "%s: device %d: segment %u is out of order, or its blocks do not tile it",
					     w->path, h->device, i);
		}
	}
	if (block != h->block_record_count) {
		w->failed = true;
		return clv_error_set(w->err, "%s: device %d: blocks outside of every segment", w->path, h->device);
	}
	return true;
}

static void write_state(struct writer *w, const struct clv_history *h)
{
	if (!h->has_state || !state_is_regular(w, h))
		return;
	field_number(w, CLV_ANY_DEVICE, (uint64_t)h->device);
	field_number(w, CLV_STATE_SEGMENTS, h->segment_count);
	field_number(w, CLV_STATE_BLOCKS, h->block_record_count);
	struct bytes *pools = column(w, 0);
	for (uint32_t i = 0; i < h->pool_count; i++) {
		put_number(w, pools, h->pools[i].a);
		put_number(w, pools, h->pools[i].b);
	}
	field_column(w, CLV_STATE_POOLS, pools);
	end_record(w, CLV_REC_STATE);
	for (uint32_t i = 0; i < h->segment_count && !w->failed; i += BATCH)
		write_segments(w, h, i, (uint32_t)clv_min_u64(BATCH, h->segment_count - i));
	for (uint32_t i = 0; i < h->block_record_count && !w->failed; i += BATCH)
		write_blocks(w, h, i, (uint32_t)clv_min_u64(BATCH, h->block_record_count - i));
}

static void write_trace(struct writer *w)
{
	const struct clv_trace *t = w->trace;
	write_header(w);
	write_settings(w);
	write_streams(w);
	write_strings(w);
	write_stacks(w);
	for (uint32_t i = 0; i < t->history_count && !w->failed; i++) {
		const struct clv_history *h = &t->histories[i];
		field_number(w, CLV_ANY_DEVICE, (uint64_t)h->device);
		end_record(w, CLV_REC_HISTORY);
		for (uint32_t e = 0; e < h->event_count && !w->failed; e += BATCH)
			write_events(w, h, e, (uint32_t)clv_min_u64(BATCH, h->event_count - e));
		write_state(w, h);
	}
	end_record(w, CLV_REC_END);
	flush_chunk(w);
}

static void writer_clear(struct writer *w)
{
	for (unsigned i = 0; i < COLUMNS; i++)
		clv_mem_free(w->column[i].data);
	clv_mem_free(w->chunk.data);
	clv_mem_free(w->record.data);
	clv_mem_free(w->packed.data);
	clv_mem_free(w->seen);
	clv_map_free(&w->numbers);
	ZSTD_freeCCtx(w->zstd);
}

bool clv_trace_write(const struct clv_trace *trace, const char *path, struct clv_error *err)
{
	struct writer w = {.trace = trace, .err = err, .path = path};
	w.zstd = ZSTD_createCCtx();
	bool ok = false;
	if (!w.zstd) {
		fail_memory(&w);
	} else if (clv_output_begin(&w.out, path, err)) {
		write_trace(&w);
		ok = clv_output_end(&w.out, !w.failed, err);
	}
	writer_clear(&w);
	return ok;
}
