/* SPDX-License-Identifier: MIT
 *
 * fake_policy: a policy for tests of the replay. It writes down what it is told, and serves what a rule of the test
 * allows. One test, one thread: the state is static.
 */
#ifndef CLV_FAKE_POLICY_H
#define CLV_FAKE_POLICY_H

#include "../tracing/policies/policy.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fake {
	struct clv_policy base;
	/* set by the test */
	bool (*serves)(uint64_t capacity); /* NULL: always; asked at fail_block */
	uint32_t fail_block;               /* the block whose request fails if not served */
	uint64_t reserved;                 /* what stats say: peak reserved, and driver time in ns */
	int refuse_open_at;                /* the n-th opening is refused; 0: none */
	bool torch;                        /* takes recorded ooms and empty_cache */
	bool bare;                         /* has no operation that may be missing */
	/* what happened */
	struct clv_policy_config config;
	char name[64];
	char log[4096];
	size_t log_len;
	int opened, closed;
	uint64_t capacities[256];
} fake;

static inline void fake_say(const char *fmt, ...) CLV_PRINTF(1, 2);

static inline void fake_say(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(fake.log + fake.log_len, sizeof(fake.log) - fake.log_len, fmt, ap);
	va_end(ap);
	if (n > 0 && fake.log_len + (size_t)n < sizeof(fake.log))
		fake.log_len += (size_t)n;
}

static bool fake_alloc(struct clv_policy *self, uint32_t block, uint64_t size, uint32_t stream, uint16_t pool)
{
	fake_say("a%u:%" PRIu64 "@%u/%u ", block, size, stream, pool);
	return block != fake.fail_block || !fake.serves || fake.serves(fake.config.capacity);
}

static void fake_free_requested(struct clv_policy *self, uint32_t block, uint32_t stream)
{
	fake_say("r%u@%u ", block, stream);
}

static void fake_free_completed(struct clv_policy *self, uint32_t block, uint32_t stream)
{
	fake_say("f%u@%u ", block, stream);
}

static void fake_oom(struct clv_policy *self, const struct clv_event_record *e)
{
	fake_say("oom:%" PRIu64 " ", e->size);
}

static void fake_empty_cache(struct clv_policy *self)
{
	fake_say("empty ");
}

static void fake_set_time(struct clv_policy *self, uint64_t us)
{
	fake_say("t%" PRIu64 " ", us);
}

static void fake_stats(struct clv_policy *self, struct clv_policy_stats *out)
{
	*out = (struct clv_policy_stats){.peak_reserved_bytes = fake.reserved, .oom_retries = 3};
	out->driver.ns = fake.config.capacity;
	out->driver.calls[CLV_CALL_create] = 7;
}

static void fake_explain(struct clv_policy *self, char *buf, size_t len)
{
	snprintf(buf, len, "no room");
}

static void fake_close(struct clv_policy *self)
{
	fake.closed++;
}

static struct clv_policy *fake_open(const struct clv_policy_config *config, const char *name, struct clv_error *err)
{
	static const struct clv_policy_ops bare = {
		.alloc = fake_alloc, .free_completed = fake_free_completed, .stats = fake_stats, .close = fake_close};
	static const struct clv_policy_ops full = {.alloc = fake_alloc,
						   .free_requested = fake_free_requested,
						   .free_completed = fake_free_completed,
						   .set_time = fake_set_time,
						   .stats = fake_stats,
						   .explain = fake_explain,
						   .close = fake_close};
	static const struct clv_policy_ops torch = {.alloc = fake_alloc,
						    .free_requested = fake_free_requested,
						    .free_completed = fake_free_completed,
						    .recorded_oom = fake_oom,
						    .empty_cache = fake_empty_cache,
						    .set_time = fake_set_time,
						    .stats = fake_stats,
						    .explain = fake_explain,
						    .close = fake_close};
	if (fake.opened + 1 == fake.refuse_open_at) {
		clv_error_set(err, "refused by the test");
		return NULL;
	}
	fake.capacities[fake.opened++ % CLV_ARRAY_LEN(fake.capacities)] = config->capacity;
	fake.config = *config;
	snprintf(fake.name, sizeof(fake.name), "%s", name);
	fake.base.ops = fake.torch ? &torch : fake.bare ? &bare : &full;
	return &fake.base;
}

static inline void fake_reset(void)
{
	memset(&fake, 0, sizeof(fake));
	fake.fail_block = CLV_NO_BLOCK;
}

#endif
