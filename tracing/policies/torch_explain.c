/* SPDX-License-Identifier: MIT */
#include "torch_explain.h"

#include "../../src/base/size_text.h"
#include "../../src/base/text.h"

static void say_device(struct clv_text *t, uint64_t capacity, uint64_t limit, uint64_t reserved)
{
	if (capacity)
		clv_text_say(t, " The device gives %s, of which %s is free.", clv_size_text(capacity).text,
			     clv_size_text(capacity - clv_min_u64(capacity, reserved)).text);
	if (limit != CLV_TORCH_UNLIMITED)
		clv_text_say(t, " The memory limit is %s.", clv_size_text(limit).text);
}

static void say_settings(struct clv_text *t, const struct clv_torch_settings *s, uint64_t rounded)
{
	bool limited = s->max_split_size != CLV_TORCH_UNLIMITED;
	if (limited && s->expandable)
		clv_text_say(
			t,
			" expandable_segments is on, but with max_split_size_mb no request below %s may use a free block of that "
			"size or more, and in an expandable segment everything free soon is one: drop max_split_size_mb.",
			clv_size_text(s->max_split_size).text);
	else if (s->expandable)
		clv_text_say(
			t,
			" expandable_segments is on already: whole free pages went back, and no setting moves what is in use in "
			"the others.");
	else if (limited && rounded < s->max_split_size)
		clv_text_say(t,
			     " With max_split_size_mb a free block of %s or more serves no smaller request. Try "
			     "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True instead.",
			     clv_size_text(s->max_split_size).text);
	else
		clv_text_say(
			t,
			" Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, which gives back single pages of a segment.");
}

void clv_torch_explain(const struct clv_torch *m, const struct clv_torch_settings *s,
		       const struct clv_torch_request *failed, uint64_t limit, uint64_t capacity, char *buf, size_t len)
{
	struct clv_text t = {buf, len, 0};
	struct clv_torch_stats stats;
	if (!len)
		return;
	buf[0] = 0;
	if (clv_torch_broken(m)) {
		clv_text_say(&t, "out of host memory for the model's own books");
		return;
	}
	clv_torch_get_stats(m, &stats);
	uint64_t reserved = clv_torch_reserved(m), private = clv_torch_unused_private(m);
	uint64_t in_use = (uint64_t)stats.of[CLV_TORCH_ALL][CLV_TORCH_ACTIVE_BYTES].current, unused = reserved - in_use;
	uint64_t rounded = failed->size < (uint64_t)1 << 60 ? clv_torch_round(s, failed->size) : failed->size;
	uint64_t segment = rounded < (uint64_t)1 << 60 ? clv_torch_segment_bytes(s, rounded) : rounded;
	clv_text_say(&t, "CUDA out of memory. Tried to allocate %s for a request of %s%s.", clv_size_text(segment).text,
		     clv_size_text(failed->size).text, failed->pool ? " to a private pool" : "");
	say_device(&t, capacity, limit, reserved);
	clv_text_say(&t, " PyTorch has reserved %s: %s is in use, and %s is reserved but unallocated",
		     clv_size_text(reserved).text, clv_size_text(in_use).text, clv_size_text(unused).text);
	if (stats.stranded_bytes)
		clv_text_say(&t, "; %s of that cannot go back, since blocks in use share its segments",
			     clv_size_text(stats.stranded_bytes).text);
	clv_text_say(&t, ".");
	if (private)
		clv_text_say(&t, " %s of it belongs to private pools, which give nothing back while they exist.",
			     clv_size_text(private).text);
	if (failed->capturing && unused > private)
		clv_text_say(&t, " While a request is diverted to a private pool, nothing cached is flushed.");
	uint64_t most = clv_min_u64(capacity ? capacity : UINT64_MAX, limit);
	uint64_t available = most > reserved ? unused + (most - reserved) : unused;
	if (available >= rounded)
		say_settings(&t, s, rounded);
	else
		clv_text_say(&t, " At least %s more is needed than is unused, whatever the settings do with that.",
			     clv_size_text(rounded - available).text);
}
