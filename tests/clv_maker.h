/* SPDX-License-Identifier: MIT
 *
 * clv_maker: takes .clv files apart and puts them together again, with right checksums, for tests that change what the
 * checksums cover.
 */
#ifndef CLV_CLV_MAKER_H
#define CLV_CLV_MAKER_H

#include "../tracing/format/clv_format.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <zstd.h>

struct clv_bytes {
	uint8_t *data;
	size_t size;
};

static inline void cm_add(struct clv_bytes *b, const void *data, size_t size)
{
	b->data = realloc(b->data, b->size + size + 1);
	if (!b->data)
		abort();
	if (size)
		memcpy(b->data + b->size, data, size);
	b->size += size;
}

static inline void cm_number(struct clv_bytes *b, uint64_t v)
{
	uint8_t byte;
	for (; v >= 128; v >>= 7) {
		byte = (uint8_t)v | 128;
		cm_add(b, &byte, 1);
	}
	byte = (uint8_t)v;
	cm_add(b, &byte, 1);
}

static inline bool cm_get_number(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
	*out = 0;
	for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
		uint8_t byte = *(*at)++;
		*out |= (uint64_t)(byte & 127) << shift;
		if (!(byte & 128))
			return true;
	}
	return false;
}

static inline void cm_field(struct clv_bytes *record, uint64_t id, const void *data, size_t size)
{
	cm_number(record, id);
	cm_number(record, size);
	cm_add(record, data, size);
}

static inline void cm_field_number(struct clv_bytes *record, uint64_t id, uint64_t v)
{
	struct clv_bytes b = {0};
	cm_number(&b, v);
	cm_field(record, id, b.data, b.size);
	free(b.data);
}

static inline void cm_record(struct clv_bytes *raw, uint64_t kind, const struct clv_bytes *record)
{
	cm_number(raw, kind);
	cm_number(raw, record->size);
	cm_add(raw, record->data, record->size);
}

static inline void cm_header(struct clv_bytes *file, uint32_t version)
{
	uint8_t h[CLV_FILE_HEADER] = {0};
	memcpy(h, CLV_FILE_MAGIC, 8);
	clv_put_le(h + 8, version, 4);
	clv_put_le(h + 16, XXH64(h, 16, 0), 8);
	cm_add(file, h, sizeof(h));
}

/* A chunk that claims to unpack to `raw_size` bytes. */
static inline void cm_chunk_claiming(struct clv_bytes *file, const void *raw, size_t size, uint32_t raw_size)
{
	size_t bound = ZSTD_compressBound(size);
	uint8_t *packed = malloc(bound), h[CLV_CHUNK_HEADER] = {0};
	if (!packed)
		abort();
	size_t stored = ZSTD_compress(packed, bound, raw, size, 1);
	clv_put_le(h, CLV_CHUNK_MAGIC, 4);
	clv_put_le(h + 4, stored, 4);
	clv_put_le(h + 8, raw_size, 4);
	clv_put_le(h + 16, XXH64(packed, stored, 0), 8);
	clv_put_le(h + 24, XXH64(h, 24, 0), 8);
	cm_add(file, h, sizeof(h));
	cm_add(file, packed, stored);
	free(packed);
}

static inline void cm_chunk(struct clv_bytes *file, const void *raw, size_t size)
{
	cm_chunk_claiming(file, raw, size, (uint32_t)size);
}

/* Every record of a valid file, unpacked, one after the other. */
static inline struct clv_bytes cm_records(const uint8_t *data, size_t size)
{
	struct clv_bytes all = {0};
	for (size_t at = CLV_FILE_HEADER; at + CLV_CHUNK_HEADER <= size;) {
		size_t stored = clv_get_le(data + at + 4, 4), raw = clv_get_le(data + at + 8, 4);
		if (stored > size - at - CLV_CHUNK_HEADER || raw > CLV_CHUNK_RAW_MAX)
			break;
		uint8_t *unpacked = malloc(raw ? raw : 1);
		if (!unpacked)
			abort();
		size_t got = ZSTD_decompress(unpacked, raw, data + at + CLV_CHUNK_HEADER, stored);
		if (!ZSTD_isError(got))
			cm_add(&all, unpacked, got);
		free(unpacked);
		at += CLV_CHUNK_HEADER + stored;
	}
	return all;
}

/* The same records with a chunk for each. */
static inline struct clv_bytes cm_rechunk(const uint8_t *data, size_t size)
{
	struct clv_bytes records = cm_records(data, size), file = {0};
	const uint8_t *at = records.data, *end = records.data + records.size;
	cm_header(&file, CLV_FILE_VERSION);
	while (at < end) {
		const uint8_t *from = at;
		uint64_t kind, len;
		if (!cm_get_number(&at, end, &kind) || !cm_get_number(&at, end, &len) || len > (size_t)(end - at))
			break;
		at += len;
		cm_chunk(&file, from, (size_t)(at - from));
	}
	free(records.data);
	return file;
}

#endif
