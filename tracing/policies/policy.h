/* SPDX-License-Identifier: MIT
 *
 * policy: the interface through which `cleave replay` puts one history to one allocator. A policy is told requests and
 * frees in recorded order and answers whether they fit.
 */
#ifndef CLV_POLICY_H
#define CLV_POLICY_H

#include "../../src/driver/driver.h"
#include "../trace.h"

struct clv_policy_config {
	const struct clv_trace *trace;
	const struct clv_history *history;
	uint64_t capacity;     /* what the device can give; 0: without limit */
	uint64_t event_lag_us; /* when work before a free is done for other streams */
	/* What cleave works on, NULL: a simulated device. The others are models, and have a simulated one always. */
	const struct clv_policy_device *device;
};

/* The first device of a driver. Its time is the real one, so that there is no lag. */
struct clv_policy_device {
	struct clv_driver *driver;
	const cleave_stream *streams; /* for each of the trace's */
};

struct clv_policy_stats {
	uint64_t held_bytes, peak_reserved_bytes; /* reserved includes reservations */
	uint64_t stranded_peak_bytes;             /* the most free bytes, at any event, in frames (segments) with a live block */
	uint64_t oom_retries;                     /* times everything cached was flushed because a request did not fit */
	uint64_t waits;                           /* a stream or the host made to wait for another stream's frees */
	struct clv_call_counts driver;            /* calls and modelled time, creation included */

	/* Of what is reserved by a search: */
	bool searched;
	bool proved;          /* no search can find less for the whole history */
	uint64_t least_bytes; /* that none can go below, as far as is known */
};

struct clv_policy;

struct clv_policy_ops {
	/* One request of a recorded ALLOC event or initial block. True if served. */
	bool (*alloc)(struct clv_policy *self, uint32_t block, uint64_t size, uint32_t stream, uint16_t pool);
	/* The program gives the block up (FREE_REQUESTED); may be NULL. */
	void (*free_requested)(struct clv_policy *self, uint32_t block, uint32_t stream);
	/* The block's memory is free in the order of `stream` (FREE_COMPLETED). */
	void (*free_completed)(struct clv_policy *self, uint32_t block, uint32_t stream);
	/* A request that failed when recorded; NULL: the policy skips it. */
	void (*recorded_oom)(struct clv_policy *self, const struct clv_event_record *e);
	/* The program emptied PyTorch's cache here (inferred); NULL: ignored. */
	void (*empty_cache)(struct clv_policy *self);
	/* Recorded time goes on; NULL: ignored. */
	void (*set_time)(struct clv_policy *self, uint64_t us_since_start);
	void (*stats)(struct clv_policy *self, struct clv_policy_stats *out);
	/* For people: why the last alloc failed. */
	void (*explain)(struct clv_policy *self, char *buf, size_t len);
	void (*close)(struct clv_policy *self);
};

struct clv_policy {
	const struct clv_policy_ops *ops;
};

/* Opens a policy by its name: "cleave[:SETTINGS]", "torch[:PYTORCH_CUDA_ALLOC_CONF text]", "torch:recorded", "direct",
 * "packed". NULL with an error if there is no such policy, its settings are refused, or host memory is out. */
struct clv_policy *clv_policy_open(const struct clv_policy_config *config, const char *name, struct clv_error *err);

/* Whether there is a policy of this name; its settings are not looked at. false with an error that lists what there is. */
bool clv_policy_known(const char *name, struct clv_error *err);

/* Whether the policy is PyTorch's allocator, which repeats what the program did to its cache. */
bool clv_policy_is_torch(const char *name);

/* `settings` is the text after the first ':' of the policy's name, "" if there is none. NULL with an error if it is refused
 * or host memory is out. */
struct clv_policy *clv_policy_cleave(const struct clv_policy_config *config, const char *settings, struct clv_error *err);
struct clv_policy *clv_policy_direct(const struct clv_policy_config *config, const char *settings, struct clv_error *err);
struct clv_policy *clv_policy_packed(const struct clv_policy_config *config, const char *settings, struct clv_error *err);
struct clv_policy *clv_policy_torch(const struct clv_policy_config *config, const char *settings, struct clv_error *err);

#endif
