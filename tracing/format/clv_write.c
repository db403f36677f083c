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
 *
 * NOTES are what is no request (src/base/event.h). A whole trace says which event each comes before; those without a device
 * belong to the first one.
 *
 * A recorder (tracing/record) writes the same records while a program runs, with times in ns: a chunk has first the streams,
 * strings, modules and stacks that are new in it, then the events and notes of each device. Chunks may overlap in time, since
 * a thread can be interrupted between taking the time and writing it down: readers sort by time, stable, a free before
 * what else has the same time (clv_settle.c). A failed request is an OOM event and a FAIL note. A file begins with a PROCESS
 * note, and can begin in the middle: of what was there before, only frees are seen; and a DROPPED note tells of events that are
 * missing. Native frames are written as module and address in its file; their symbols are looked up afterwards.
 */
#include "clv.h"

#include "../memory.h"
#include "../output.h"
#include "clv_encode.h"

#include <string.h>
#include <zstd.h>

#define BATCH 65536u /* entries of one record */
#define CHUNK_TARGET ((size_t)1 << 20)
#define LEVEL 12 /* within a few percent of 19 at a fraction of the time */

struct writer {
	struct clv_encoder encoder; /* first: its flush() finds the writer by it */
	const struct clv_trace *trace;
	struct clv_error *err;
	const char *path;
	struct clv_output out;
	bool failed; /* the reason is in err; everything after it does nothing */
	struct clv_buf streams, packed;
	struct clv_encode_strings strings;
	struct clv_encode_modules modules;
	struct clv_encode_stacks stacks;
	struct clv_encode_events events;
	struct clv_encode_notes notes;
	struct clv_buf column[7];
	ZSTD_CCtx *zstd;
};

static void *resize(void *p, size_t size)
{
	return clv_mem_realloc(p, size, 1);
}

static const struct clv_encode_memory memory = {resize, clv_mem_free};

static void fail_memory(struct writer *w)
{
	w->failed = true;
	clv_error_set(w->err, "%s: out of host memory", w->path);
}

/* Whether to go on. */
static bool good(struct writer *w)
{
	if (w->encoder.failed && !w->failed)
		fail_memory(w);
	return !w->failed;
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
	clv_encode_file_header(header);
	write_all(w, header, sizeof(header));
}

static void flush_chunk(struct clv_encoder *e)
{
	struct writer *w = CLV_CONTAINER_OF(e, struct writer, encoder);
	struct clv_buf *chunk = &e->chunk;
	if (!good(w) || chunk->len == 0)
		return;
	if (chunk->len > CLV_CHUNK_RAW_MAX) {
		w->failed = true;
		clv_error_set(w->err, "%s: a record of %zu bytes is too long for the format", w->path, chunk->len);
		return;
	}
	size_t bound = ZSTD_compressBound(chunk->len);
	w->packed.len = 0;
	if (!clv_buf_reserve(e, &w->packed, bound)) {
		fail_memory(w);
		return;
	}
	size_t stored = ZSTD_compressCCtx(w->zstd, w->packed.data, bound, chunk->data, chunk->len, LEVEL);
	if (ZSTD_isError(stored)) {
		w->failed = true;
		clv_error_set(w->err, "%s: zstd: %s", w->path, ZSTD_getErrorName(stored));
		return;
	}
	uint8_t header[CLV_CHUNK_HEADER];
	clv_encode_chunk_header(header, w->packed.data, stored, chunk->len);
	write_all(w, header, sizeof(header));
	write_all(w, w->packed.data, stored);
	chunk->len = 0;
}

static void write_settings(struct writer *w)
{
	struct clv_encoder *e = &w->encoder;
	const struct clv_torch_recorded *t = &w->trace->torch;
	struct clv_buf *c = &w->column[0];
	uint8_t gc[8];
	uint64_t bits;
	memcpy(&bits, &t->gc_threshold, sizeof(bits));
	clv_put_le(gc, bits, 8);
	if (t->conf)
		clv_encode_field(e, CLV_SETTINGS_CONF, t->conf, strlen(t->conf));
	clv_encode_number(e, CLV_SETTINGS_MAX_SPLIT, clv_zigzag((uint64_t)t->max_split_size));
	clv_encode_field(e, CLV_SETTINGS_GC, gc, sizeof(gc));
	if (t->expandable)
		clv_encode_field(e, CLV_SETTINGS_EXPANDABLE, NULL, 0);
	for (size_t i = 0; i < CLV_ARRAY_LEN(t->roundup); i++)
		clv_buf_number(e, c, t->roundup[i]);
	clv_encode_column(e, CLV_SETTINGS_ROUNDUP, c);
	if (t->present)
		clv_encode_field(e, CLV_SETTINGS_PRESENT, NULL, 0);
	if (t->has_probe) {
		const uint64_t probe[] = {t->cap_mib, t->total_bytes, t->retries, t->ooms, t->device_left_mib};
		for (size_t i = 0; i < CLV_ARRAY_LEN(probe); i++)
			clv_buf_number(e, c, probe[i]);
		clv_encode_column(e, CLV_SETTINGS_PROBE, c);
	}
	clv_encode_end(e, CLV_REC_SETTINGS);
}

static void write_streams(struct writer *w)
{
	const struct clv_trace *t = w->trace;
	for (uint32_t i = 0; i < t->stream_count && good(w);) {
		for (uint32_t end = i + (uint32_t)clv_min_u64(BATCH, t->stream_count - i); i < end; i++)
			clv_buf_number(&w->encoder, &w->streams, t->streams[i]);
		clv_encode_column(&w->encoder, CLV_STREAMS_HANDLES, &w->streams);
		clv_encode_end(&w->encoder, CLV_REC_STREAMS);
	}
}

static void write_strings(struct writer *w)
{
	const struct clv_trace *t = w->trace;
	for (uint32_t i = 0; i < t->string_count && good(w);) {
		for (uint32_t n = 0; n < BATCH && i < t->string_count && w->strings.text.len < CHUNK_TARGET && good(w);
		     n++, i++)
			clv_encode_string(&w->encoder, &w->strings, t->strings[i], strlen(t->strings[i]));
		clv_encode_strings_end(&w->encoder, &w->strings);
	}
}

static void write_modules(struct writer *w)
{
	const struct clv_trace *t = w->trace;
	for (uint32_t i = 0; i < t->module_count && good(w); i++) {
		const struct clv_module_record *m = &t->modules[i];
		clv_encode_module(&w->encoder, &w->modules, m->path, m->build_id, m->build_id_len);
		if (i % BATCH == BATCH - 1)
			clv_encode_modules_end(&w->encoder, &w->modules);
	}
	clv_encode_modules_end(&w->encoder, &w->modules);
}

static void write_stacks(struct writer *w)
{
	const struct clv_trace *t = w->trace;
	for (uint32_t i = 1; i < t->stack_count && good(w);) {
		for (uint64_t frames = 0, n = 0; frames < BATCH && n < BATCH && i < t->stack_count && good(w); i++, n++) {
			const struct clv_stack_record *s = &t->stacks[i];
			clv_encode_stack(&w->encoder, &w->stacks, s->count);
			for (uint32_t k = s->first; k < s->first + s->count; k++) {
				const struct clv_frame_record *f = &t->stack_frames[k];
				clv_encode_frame(&w->encoder, &w->stacks, f->file, f->function, f->line, f->module,
						 f->address);
			}
			frames += s->count;
		}
		clv_encode_stacks_end(&w->encoder, &w->stacks);
	}
}

static void write_events(struct writer *w, const struct clv_history *h, uint32_t first, uint32_t count)
{
	for (uint32_t i = first; i < first + count; i++) {
		const struct clv_event_record *e = &h->events[i];
		clv_encode_event(&w->encoder, &w->events,
				 &(struct clv_encode_event){.time = e->time_us,
							    .addr = e->addr,
							    .size = e->size,
							    .slack = h->slack ? h->slack[i] : 0,
							    .stream = e->stream,
							    .stack = e->stack,
							    .thread = h->threads ? h->threads[i] : 0,
							    .action = e->action,
							    .flags = e->flags});
	}
	clv_encode_events_end(&w->encoder, &w->events, (uint64_t)h->device, CLV_UNIT_DEFAULT);
}

static void write_notes(struct writer *w, const struct clv_history *h, uint32_t first, uint32_t count)
{
	for (uint32_t i = first; i < first + count; i++) {
		const struct clv_note *n = &h->notes[i];
		clv_encode_note(&w->encoder, &w->notes,
				&(struct clv_encode_note){.time = n->time_us,
							  .addr = n->addr,
							  .size = n->size,
							  .a = n->a,
							  .b = n->b,
							  .event = n->event,
							  .stream = n->stream == CLV_NO_STREAM ? 0 : n->stream + 1,
							  .text = n->text == CLV_NO_TEXT ? 0 : n->text + 1,
							  .stack = n->stack,
							  .thread = n->thread,
							  .kind = n->kind});
	}
	clv_encode_notes_end(&w->encoder, &w->notes, h->device, CLV_UNIT_DEFAULT);
}

static void write_segments(struct writer *w, const struct clv_history *h, uint32_t first, uint32_t count)
{
	struct clv_encoder *e = &w->encoder;
	struct clv_buf *gaps = &w->column[0], *sizes = &w->column[1], *streams = &w->column[2], *pools = &w->column[3];
	struct clv_buf *flags = &w->column[4], *stacks = &w->column[5], *blocks = &w->column[6];
	uint64_t end = first ? h->segments[first - 1].addr + h->segments[first - 1].size : 0;
	for (uint32_t i = first; i < first + count; i++) {
		const struct clv_segment_record *s = &h->segments[i];
		clv_buf_number(e, gaps, s->addr - end);
		clv_buf_number(e, sizes, s->size);
		clv_buf_number(e, streams, s->stream);
		clv_buf_number(e, pools, s->pool);
		clv_buf_byte(e, flags, (uint8_t)((s->small ? 1 : 0) | (s->expandable ? 2 : 0)));
		clv_buf_number(e, stacks, s->stack);
		clv_buf_number(e, blocks, s->blocks);
		end = s->addr + s->size;
	}
	clv_encode_number(e, CLV_ANY_DEVICE, (uint64_t)h->device);
	clv_encode_column(e, CLV_SEGMENTS_GAPS, gaps);
	clv_encode_column(e, CLV_SEGMENTS_SIZES, sizes);
	clv_encode_column(e, CLV_SEGMENTS_STREAMS, streams);
	clv_encode_column(e, CLV_SEGMENTS_POOLS, pools);
	clv_encode_column(e, CLV_SEGMENTS_FLAGS, flags);
	clv_encode_column(e, CLV_SEGMENTS_STACKS, stacks);
	clv_encode_column(e, CLV_SEGMENTS_BLOCKS, blocks);
	clv_encode_end(e, CLV_REC_SEGMENTS);
}

static void write_blocks(struct writer *w, const struct clv_history *h, uint32_t first, uint32_t count)
{
	struct clv_encoder *e = &w->encoder;
	struct clv_buf *sizes = &w->column[0], *requested = &w->column[1], *states = &w->column[2];
	struct clv_buf *stacks = &w->column[3];
	for (uint32_t i = first; i < first + count; i++) {
		const struct clv_block_record *b = &h->blocks[i];
		clv_buf_number(e, sizes, b->size);
		clv_buf_signed(e, requested, b->size - b->requested);
		clv_buf_byte(e, states, b->state);
		clv_buf_number(e, stacks, b->stack);
	}
	clv_encode_number(e, CLV_ANY_DEVICE, (uint64_t)h->device);
	clv_encode_column(e, CLV_BLOCKS_SIZES, sizes);
	clv_encode_column(e, CLV_BLOCKS_REQUESTED, requested);
	clv_encode_column(e, CLV_BLOCKS_STATES, states);
	clv_encode_column(e, CLV_BLOCKS_STACKS, stacks);
	clv_encode_end(e, CLV_REC_BLOCKS);
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
	struct clv_encoder *e = &w->encoder;
	if (!h->has_state || !state_is_regular(w, h))
		return;
	clv_encode_number(e, CLV_ANY_DEVICE, (uint64_t)h->device);
	clv_encode_number(e, CLV_STATE_SEGMENTS, h->segment_count);
	clv_encode_number(e, CLV_STATE_BLOCKS, h->block_record_count);
	for (uint32_t i = 0; i < h->pool_count; i++) {
		clv_buf_number(e, &w->column[0], h->pools[i].a);
		clv_buf_number(e, &w->column[0], h->pools[i].b);
	}
	clv_encode_column(e, CLV_STATE_POOLS, &w->column[0]);
	clv_encode_end(e, CLV_REC_STATE);
	for (uint32_t i = 0; i < h->segment_count && good(w); i += BATCH)
		write_segments(w, h, i, (uint32_t)clv_min_u64(BATCH, h->segment_count - i));
	for (uint32_t i = 0; i < h->block_record_count && good(w); i += BATCH)
		write_blocks(w, h, i, (uint32_t)clv_min_u64(BATCH, h->block_record_count - i));
}

static void write_trace(struct writer *w)
{
	const struct clv_trace *t = w->trace;
	write_header(w);
	write_settings(w);
	write_streams(w);
	write_strings(w);
	write_modules(w);
	write_stacks(w);
	for (uint32_t i = 0; i < t->history_count && good(w); i++) {
		const struct clv_history *h = &t->histories[i];
		clv_encode_number(&w->encoder, CLV_ANY_DEVICE, (uint64_t)h->device);
		clv_encode_end(&w->encoder, CLV_REC_HISTORY);
		for (uint32_t e = 0; e < h->event_count && good(w); e += BATCH)
			write_events(w, h, e, (uint32_t)clv_min_u64(BATCH, h->event_count - e));
		for (uint32_t n = 0; n < h->note_count && good(w); n += BATCH)
			write_notes(w, h, n, (uint32_t)clv_min_u64(BATCH, h->note_count - n));
		write_state(w, h);
	}
	clv_encode_end(&w->encoder, CLV_REC_END);
	flush_chunk(&w->encoder);
}

static void writer_clear(struct writer *w)
{
	struct clv_encoder *e = &w->encoder;
	clv_buf_free(e, &w->streams);
	clv_buf_free(e, &w->packed);
	for (size_t i = 0; i < CLV_ARRAY_LEN(w->column); i++)
		clv_buf_free(e, &w->column[i]);
	clv_encode_strings_free(e, &w->strings);
	clv_encode_modules_free(e, &w->modules);
	clv_encode_stacks_free(e, &w->stacks);
	clv_encode_events_free(e, &w->events);
	clv_encode_notes_free(e, &w->notes);
	clv_encoder_clear(e);
	ZSTD_freeCCtx(w->zstd);
}

bool clv_trace_write(const struct clv_trace *trace, const char *path, struct clv_error *err)
{
	struct writer w = {.trace = trace, .err = err, .path = path};
	w.encoder.memory = &memory;
	w.encoder.flush = flush_chunk;
	w.encoder.chunk_target = CHUNK_TARGET;
	w.zstd = ZSTD_createCCtx();
	bool ok = false;
	if (!w.zstd) {
		fail_memory(&w);
	} else if (clv_output_begin(&w.out, path, err)) {
		write_trace(&w);
		ok = clv_output_end(&w.out, good(&w), err);
	}
	writer_clear(&w);
	return ok;
}
