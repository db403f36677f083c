/* SPDX-License-Identifier: MIT */
#include "record_pack.h"

#include <dlfcn.h>
#include <stdatomic.h>

#define LEVEL 3
#define BLOCK_MAX ((size_t)128 << 10)
#define ZSTD_MAGIC 0xfd2fb528u

enum { UNKNOWN, LOOKING, FOUND, MISSING };

static _Atomic int library; /* one of these */
static void *(*create)(void);
static size_t (*release)(void *);
static size_t (*bound)(size_t);
static size_t (*compress)(void *, void *, size_t, const void *, size_t, int);
static unsigned (*is_error)(size_t);

static bool find(void)
{
	void *lib = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!lib)
		return false;
	*(void **)&create = dlsym(lib, "ZSTD_createCCtx");
	*(void **)&release = dlsym(lib, "ZSTD_freeCCtx");
	*(void **)&bound = dlsym(lib, "ZSTD_compressBound");
	*(void **)&compress = dlsym(lib, "ZSTD_compressCCtx");
	*(void **)&is_error = dlsym(lib, "ZSTD_isError");
	return create && release && bound && compress && is_error;
}

static bool have_library(void)
{
	int expected = UNKNOWN;
	if (atomic_compare_exchange_strong(&library, &expected, LOOKING))
		atomic_store(&library, find() ? FOUND : MISSING);
	return atomic_load(&library) == FOUND;
}

void clv_pack_forked(void)
{
	int expected = LOOKING;
	atomic_compare_exchange_strong(&library, &expected, MISSING);
}

void clv_pack_without_library(void)
{
	atomic_store(&library, MISSING);
}

/* A frame of one segment, with its size in 4 bytes, of raw blocks. */
bool clv_pack_plain(struct clv_encoder *e, const struct clv_buf *raw, struct clv_buf *out)
{
	size_t blocks = raw->len ? (raw->len + BLOCK_MAX - 1) / BLOCK_MAX : 1;
	if (!clv_buf_reserve(e, out, 9 + blocks * 3 + raw->len))
		return false;
	uint8_t header[9];
	clv_put_le(header, ZSTD_MAGIC, 4);
	header[4] = 2 << 6 | 1 << 5;
	clv_put_le(header + 5, raw->len, 4);
	clv_buf_put(e, out, header, sizeof(header));
	for (size_t i = 0; i < blocks; i++) {
		size_t at = i * BLOCK_MAX, len = clv_min_u64(raw->len - at, BLOCK_MAX);
		uint8_t block[3];
		clv_put_le(block, (uint64_t)len << 3 | (i == blocks - 1), 3);
		clv_buf_put(e, out, block, sizeof(block));
		clv_buf_put(e, out, raw->data + at, len);
	}
	return true;
}

bool clv_pack(struct clv_packer *p, struct clv_encoder *e, const struct clv_buf *raw, struct clv_buf *out)
{
	if (!p->looked) {
		p->looked = true;
		p->context = have_library() ? create() : NULL;
	}
	if (!p->context)
		return clv_pack_plain(e, raw, out);
	size_t most = bound(raw->len);
	if (!clv_buf_reserve(e, out, most))
		return false;
	size_t packed = compress(p->context, out->data + out->len, most, raw->data, raw->len, LEVEL);
	if (is_error(packed)) /* it has no memory */
		return clv_pack_plain(e, raw, out);
	out->len += packed;
	return true;
}

void clv_packer_clear(struct clv_packer *p)
{
	if (p->context)
		release(p->context);
	*p = (struct clv_packer){0};
}
