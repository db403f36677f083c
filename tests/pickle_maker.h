/* SPDX-License-Identifier: MIT
 *
 * pickle_maker: writes PyTorch memory snapshots, with the opcodes of pickle protocol 2, for tests. What does not fit
 * into the buffer fails the test.
 */
#ifndef CLV_PICKLE_MAKER_H
#define CLV_PICKLE_MAKER_H

#include "../src/base/base.h"

#include <check.h>
#include <string.h>

struct pickle {
	uint8_t data[16384];
	size_t size;
};

static inline void pickle_bytes(struct pickle *p, const void *bytes, size_t n)
{
	ck_assert_uint_le(p->size + n, sizeof(p->data));
	memcpy(p->data + p->size, bytes, n);
	p->size += n;
}

static inline void pickle_op(struct pickle *p, char op)
{
	pickle_bytes(p, &op, 1);
}

static inline void pickle_text(struct pickle *p, const char *text)
{
	uint32_t n = (uint32_t)strlen(text);
	pickle_op(p, 'X'); /* BINUNICODE */
	pickle_bytes(p, &n, 4);
	pickle_bytes(p, text, n);
}

static inline void pickle_int(struct pickle *p, int64_t v)
{
	pickle_bytes(p, "\x8a\x08", 2); /* LONG1 */
	pickle_bytes(p, &v, 8);
}

static inline void pickle_bool(struct pickle *p, bool v)
{
	pickle_op(p, v ? '\x88' : '\x89');
}

static inline void pickle_real0(struct pickle *p)
{
	pickle_bytes(p, "G\0\0\0\0\0\0\0\0", 9); /* BINFLOAT 0.0 */
}

static inline void dict_begin(struct pickle *p)
{
	pickle_bytes(p, "}(", 2); /* EMPTY_DICT MARK */
}

static inline void dict_end(struct pickle *p)
{
	pickle_op(p, 'u'); /* SETITEMS */
}

static inline void list_begin(struct pickle *p)
{
	pickle_bytes(p, "](", 2); /* EMPTY_LIST MARK */
}

static inline void list_end(struct pickle *p)
{
	pickle_op(p, 'e'); /* APPENDS */
}

static inline void item_int(struct pickle *p, const char *key, int64_t v)
{
	pickle_text(p, key);
	pickle_int(p, v);
}

static inline void item_text(struct pickle *p, const char *key, const char *text)
{
	pickle_text(p, key);
	pickle_text(p, text);
}

/* One entry of a device's trace; of an oom `addr` is the device_free. */
static inline void pickle_event(struct pickle *p, const char *action, uint64_t addr, uint64_t size, int64_t time_us)
{
	dict_begin(p);
	item_text(p, "action", action);
	item_int(p, strcmp(action, "oom") == 0 ? "device_free" : "addr", (int64_t)addr);
	item_int(p, "size", (int64_t)size);
	item_int(p, "stream", 0);
	item_int(p, "time_us", time_us);
	dict_end(p);
}

/* A segment of one free block. */
static inline void pickle_segment(struct pickle *p, int device, uint64_t addr, uint64_t size, const char *type)
{
	dict_begin(p);
	item_int(p, "device", device);
	item_int(p, "address", (int64_t)addr);
	item_int(p, "total_size", (int64_t)size);
	item_int(p, "allocated_size", 0);
	item_int(p, "active_size", 0);
	item_int(p, "requested_size", 0);
	item_int(p, "stream", 0);
	item_text(p, "segment_type", type);
	pickle_text(p, "segment_pool_id");
	pickle_int(p, 0);
	pickle_int(p, 0);
	pickle_op(p, '\x86'); /* TUPLE2 */
	pickle_text(p, "is_expandable");
	pickle_bool(p, false);
	pickle_text(p, "frames");
	list_begin(p);
	list_end(p);
	pickle_text(p, "blocks");
	list_begin(p);
	dict_begin(p);
	item_int(p, "address", (int64_t)addr);
	item_int(p, "size", (int64_t)size);
	item_int(p, "requested_size", 0);
	item_text(p, "state", "inactive");
	dict_end(p);
	list_end(p);
	dict_end(p);
}

static inline void pickle_settings(struct pickle *p, const char *conf, int64_t max_split)
{
	static const char *const keys[] = {"1",   "2",   "4",    "8",    "16",   "32",   "64",    "128",
					   "256", "512", "1024", "2048", "4096", "8192", "16384", "32768"};
	pickle_text(p, "allocator_settings");
	dict_begin(p);
	item_text(p, "PYTORCH_CUDA_ALLOC_CONF", conf);
	item_int(p, "max_split_size", max_split);
	pickle_text(p, "garbage_collection_threshold");
	pickle_real0(p);
	pickle_text(p, "expandable_segments");
	pickle_bool(p, false);
	pickle_text(p, "roundup_power2_divisions");
	dict_begin(p);
	for (size_t i = 0; i < CLV_ARRAY_LEN(keys); i++)
		item_int(p, keys[i], 0);
	dict_end(p);
	dict_end(p);
}

static inline void pickle_begin(struct pickle *p)
{
	p->size = 0;
	pickle_bytes(p, "\x80\x02", 2);
	dict_begin(p);
}

static inline void pickle_end(struct pickle *p)
{
	dict_end(p);
	pickle_op(p, '.');
}

#endif
