/* SPDX-License-Identifier: MIT
 *
 * torch_fixture: the model of PyTorch's allocator on a simulated device that writes down what it is asked. Owned by the test.
 */
#ifndef CLV_TORCH_FIXTURE_H
#define CLV_TORCH_FIXTURE_H

#include "../tracing/policies/torch_device.h"

#include <check.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MIB(x) ((uint64_t)(x)*CLV_MIB)
#define S0 0u
#define S1 0x1000u

/* A device that writes down what it is asked, in MiB: +20 a segment, -20 its end, m2 and u2 pages mapped and unmapped, !
 * what it refuses. */
struct fixture {
	struct clv_torch *m;
	struct clv_torch_settings settings;
	struct clv_torch_device device;
	struct clv_torch_source inner;
	char log[1024];
};

CLV_PRINTF(2, 3) static inline void note(struct fixture *f, const char *fmt, ...)
{
	size_t used = strlen(f->log);
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(f->log + used, sizeof(f->log) - used, fmt, ap);
	va_end(ap);
}

static inline uint64_t on_alloc(void *ctx, uint64_t size)
{
	struct fixture *f = ctx;
	uint64_t addr = f->inner.device_alloc(f->inner.ctx, size);
	note(f, "%s+%" PRIu64 " ", addr ? "" : "!", size / CLV_MIB);
	return addr;
}

static inline void on_free(void *ctx, uint64_t addr, uint64_t size)
{
	struct fixture *f = ctx;
	f->inner.device_free(f->inner.ctx, addr, size);
	note(f, "-%" PRIu64 " ", size / CLV_MIB);
}

static inline uint64_t on_reserve(void *ctx, uint64_t size, uint64_t page, uint64_t stream)
{
	struct fixture *f = ctx;
	note(f, "r%" PRIu64 " ", page / CLV_MIB);
	return f->inner.reserve(f->inner.ctx, size, page, stream);
}

static inline void on_unreserve(void *ctx, uint64_t addr, uint64_t size)
{
	note(ctx, "x ");
}

static inline bool on_map(void *ctx, uint64_t addr, uint64_t size, uint64_t page)
{
	struct fixture *f = ctx;
	bool ok = f->inner.map(f->inner.ctx, addr, size, page);
	note(f, "%sm%" PRIu64 " ", ok ? "" : "!", size / CLV_MIB);
	return ok;
}

static inline void on_unmap(void *ctx, uint64_t addr, uint64_t size, uint64_t page)
{
	struct fixture *f = ctx;
	f->inner.unmap(f->inner.ctx, addr, size, page);
	note(f, "u%" PRIu64 " ", size / CLV_MIB);
}

/* Limits in MiB; 0: none. */
static inline void open_with(struct fixture *f, const char *conf, uint64_t capacity_mib, uint64_t limit_mib)
{
	struct clv_error err = {""};
	*f = (struct fixture){0};
	ck_assert_msg(clv_torch_settings_parse(&f->settings, conf, &err), "%s", err.text);
	clv_torch_device_init(&f->device, MIB(capacity_mib));
	f->inner = clv_torch_device_source(&f->device);
	struct clv_torch_config config = {
		.settings = f->settings,
		.limit = limit_mib ? MIB(limit_mib) : CLV_TORCH_UNLIMITED,
		.find = true,
		.source = {.ctx = f,
			   .device_alloc = on_alloc,
			   .device_free = on_free,
			   .reserve = on_reserve,
			   .unreserve = on_unreserve,
			   .map = on_map,
			   .unmap = on_unmap},
	};
	f->m = clv_torch_open(&config);
	ck_assert_ptr_nonnull(f->m);
}

static inline void check(const struct fixture *f)
{
	char why[256];
	ck_assert_msg(clv_torch_check(f->m, why, sizeof(why)), "%s", why);
}

static inline void close_it(struct fixture *f)
{
	check(f);
	clv_torch_close(f->m);
}

/* What was asked of the device since the last call. */
static inline const char *log_of(struct fixture *f)
{
	static char copy[sizeof(f->log)];
	check(f);
	snprintf(copy, sizeof(copy), "%s", f->log);
	size_t n = strlen(copy);
	if (n)
		copy[n - 1] = 0;
	f->log[0] = 0;
	return copy;
}

static inline uint32_t get(struct fixture *f, uint64_t size, uint64_t stream, uint32_t pool)
{
	struct clv_torch_request r = {.size = size, .stream = stream, .pool = pool, .capturing = pool != 0};
	uint32_t block;
	enum clv_torch_status status = clv_torch_malloc(f->m, &r, &block);
	ck_assert_int_ne(status, CLV_TORCH_NO_HOST_MEMORY);
	ck_assert_int_eq(status == CLV_TORCH_OK, block != CLV_TORCH_NONE);
	check(f);
	return block;
}

static inline uint32_t ask(struct fixture *f, uint64_t size)
{
	return get(f, size, S0, 0);
}

static inline void give(struct fixture *f, uint32_t block)
{
	ck_assert(clv_torch_free(f->m, block));
	check(f);
}

static inline uint64_t addr_of(const struct fixture *f, uint32_t block)
{
	return clv_torch_block_addr(f->m, block);
}

static inline uint64_t size_of(const struct fixture *f, uint32_t block)
{
	struct clv_torch_block_info b;
	clv_torch_block_get(f->m, block, &b);
	return b.size;
}

static inline struct clv_torch_stats stats_of(const struct fixture *f)
{
	struct clv_torch_stats s;
	clv_torch_get_stats(f->m, &s);
	return s;
}

static inline uint64_t reserved_mib(const struct fixture *f)
{
	return clv_torch_reserved(f->m) / CLV_MIB;
}

#endif
