/* SPDX-License-Identifier: MIT
 *
 * torch_records: dicts of a PyTorch memory snapshot into compact records. A dict is told by its keys: one with `action`
 * is an event, with `blocks` a segment, with `state` a block, with `stage` an annotation, with `filename` a frame. Keys
 * that are not known are ignored, and None stands for a missing value.
 */
#include "torch_snapshot.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define MAX_DEVICE 65535
#define MAX_DEPTH 4096 /* of a stack: the innermost frames are kept */

static const char *const known_names[] = {
#define X(name, text) [CLV_S_##name] = text,
	CLV_SNAPSHOT_STRINGS(X)
#undef X
};

static uint32_t string_number(clv_pk v)
{
	return clv_pk_tag(v) == CLV_PK_STR ? (uint32_t)clv_pk_payload(v) : UINT32_MAX;
}

static bool missing(struct clv_pickle *p, uint64_t offset, const char *what, enum clv_snapshot_string key)
{
	return clv_pickle_error(p, offset, "%s without '%s'", what, known_names[key]);
}

/* An address, a size or another number that cannot be negative. */
static bool get_number(struct clv_pickle *p, uint64_t offset, uint32_t key, clv_pk v, uint64_t *out)
{
	if (CLV_LIKELY(clv_pickle_u64(p, v, out) && *out <= INT64_MAX))
		return true;
	int64_t negative;
	if (clv_pickle_i64(p, v, &negative))
		return clv_pickle_error(p, offset, "'%s' is %lld, which no %s can be", known_names[key],
					(long long)negative,
					key == CLV_S_ADDR || key == CLV_S_ADDRESS ? "address" : "size");
	if (clv_pk_tag(v) == CLV_PK_BIG || clv_pk_tag(v) == CLV_PK_OPAQUE)
		return clv_pickle_error(p, offset, "'%s' is no integer below 2^63", known_names[key]);
	return clv_pickle_error(p, offset, "'%s' is no integer", known_names[key]);
}

static bool get_stream(struct clv_snapshot *s, struct clv_pickle *p, uint64_t offset, clv_pk v, uint32_t *out)
{
	uint64_t handle;
	int64_t negative = 0;
	if (!clv_pickle_u64(p, v, &handle)) { /* a handle above 2^63, seen through a signed integer */
		if (!clv_pickle_i64(p, v, &negative))
			return clv_pickle_error(p, offset, "'stream' is no integer of 64 bits");
		handle = (uint64_t)negative;
	}
	if (s->last_stream == UINT32_MAX || handle != s->last_handle) {
		s->last_stream = clv_trace_stream(s->trace, handle);
		if (s->last_stream == UINT32_MAX)
			return clv_pickle_no_memory(p);
		s->last_handle = handle;
	}
	*out = s->last_stream;
	return true;
}

/* True or False; also 0 and 1, as other writers have them. */
static bool get_bool(struct clv_pickle *p, uint64_t offset, uint32_t key, clv_pk v, bool *out)
{
	bool known = clv_pk_tag(v) == CLV_PK_BOOL || (clv_pk_tag(v) == CLV_PK_INT && clv_pk_payload(v) <= 1);
	*out = clv_pk_payload(v) != 0;
	return known || clv_pickle_error(p, offset, "'%s' is neither true nor false", known_names[key]);
}

/* Frames are data for people: what is odd about them is no reason to refuse a file. */
static uint32_t get_stack(clv_pk v)
{
	return clv_pk_tag(v) == CLV_PK_STACK ? (uint32_t)clv_pk_payload(v) : CLV_NO_STACK;
}

static uint8_t get_action(clv_pk v)
{
	uint32_t number = string_number(v);
	return number >= CLV_S_ACTION_ALLOC && number < CLV_S_COUNT ? (uint8_t)(number - CLV_S_ACTION_ALLOC)
								    : (uint8_t)CLV_ACTION_OTHER;
}

static bool make_event(struct clv_snapshot *s, struct clv_pickle *p, const clv_pk *items, size_t count, uint64_t offset,
		       clv_pk *out)
{
	enum { HAS_ADDR = 1, HAS_SIZE = 2, HAS_STREAM = 4 };
	struct clv_event_record e = {.action = CLV_ACTION_OTHER, .block = CLV_NO_BLOCK};
	uint64_t addr = 0, device_free = 0, time = 0;
	clv_pk time_value = 0;
	unsigned has = 0;
	for (size_t i = 0; i + 1 < count; i += 2) {
		clv_pk v = items[i + 1];
		uint32_t key = string_number(items[i]);
		if (clv_pk_tag(v) == CLV_PK_NONE)
			continue;
		switch (key) {
		case CLV_S_ACTION:
			if (clv_pk_tag(v) != CLV_PK_STR)
				return clv_pickle_error(p, offset, "'action' is no text");
			e.action = get_action(v);
			break;
		case CLV_S_ADDR:
			if (!get_number(p, offset, key, v, &addr))
				return false;
			has |= HAS_ADDR;
			break;
		case CLV_S_DEVICE_FREE:
			if (!get_number(p, offset, key, v, &device_free))
				return false;
			break;
		case CLV_S_SIZE:
			if (!get_number(p, offset, key, v, &e.size))
				return false;
			has |= HAS_SIZE;
			break;
		case CLV_S_STREAM:
			if (!get_stream(s, p, offset, v, &e.stream))
				return false;
			has |= HAS_STREAM;
			break;
		case CLV_S_TIME_US:
			time_value = v;
			break;
		case CLV_S_FRAMES:
			e.stack = get_stack(v);
			break;
		case CLV_S_MADE_UP:
			if (clv_pk_tag(v) == CLV_PK_BOOL && clv_pk_payload(v)) {
				e.flags = CLV_SNAPSHOT_MADE_UP;
				s->made_up = true;
			}
			break;
		default:
			break;
		}
	}
	if (time_value && !clv_pickle_u64(p, time_value, &time))
		time = 0; /* a clock before 1970, or none */
	e.time_us = time;
	e.addr = e.action == CLV_ACTION_OOM ? device_free : addr;
	bool needs = e.action < CLV_ACTION_OOM;
	if (needs && !(has & HAS_ADDR))
		return missing(p, offset, clv_action_name(e.action), CLV_S_ADDR);
	if ((needs || e.action == CLV_ACTION_OOM) && !(has & HAS_SIZE))
		return missing(p, offset, clv_action_name(e.action), CLV_S_SIZE);
	if (needs && e.addr + e.size > INT64_MAX)
		return clv_pickle_error(p, offset, "%s at 0x%llx of %llu bytes ends beyond 2^63",
					clv_action_name(e.action), (unsigned long long)e.addr,
					(unsigned long long)e.size);
	if (!(has & HAS_STREAM) && !get_stream(s, p, offset, clv_pk_make(CLV_PK_INT, 0), &e.stream))
		return false;
	if (s->event_count >= CLV_PK_EVENT_MAX)
		return clv_pickle_error(p, offset, "more than %u events", CLV_PK_EVENT_MAX);
	if (CLV_UNLIKELY(s->event_count == s->event_cap) &&
	    !clv_mem_reserve(&s->events, &s->event_cap, s->event_count + 1, sizeof(*s->events)))
		return clv_pickle_no_memory(p);
	if (CLV_UNLIKELY(s->event_count == s->refused))
		return clv_pickle_error(p, offset, "%s", s->refusal);
	*out = clv_pk_make(CLV_PK_EVENT, s->event_count);
	s->events[s->event_count++] = e;
	return true;
}

/* An entry of external_annotations. Like frames they are data for people: an odd one is left out. No record stands
 * for one, so each is told twice: when the dict gets its items, and when the list gets the dict. */
static bool note_annotation(struct clv_snapshot *s, struct clv_pickle *p, const clv_pk *items, size_t count,
			    uint64_t offset)
{
	struct clv_snapshot_note n = {.name = UINT32_MAX, .offset = offset};
	uint32_t stage = UINT32_MAX;
	uint64_t device = 0;
	bool has_time = false;
	for (size_t i = 0; i + 1 < count; i += 2) {
		clv_pk v = items[i + 1];
		switch (string_number(items[i])) {
		case CLV_S_STAGE:
			stage = string_number(v);
			break;
		case CLV_S_NAME:
			n.name = string_number(v);
			break;
		case CLV_S_DEVICE:
			if (!clv_pickle_u64(p, v, &device) || device > MAX_DEVICE)
				device = 0;
			break;
		case CLV_S_TIME_US:
			has_time = clv_pickle_u64(p, v, &n.time_us);
			break;
		default:
			break;
		}
	}
	if ((stage != CLV_S_START && stage != CLV_S_END) || n.name == UINT32_MAX || !has_time)
		return true;
	n.device = (uint32_t)device;
	n.kind = stage == CLV_S_START ? CLV_EVENT_PHASE_BEGIN : CLV_EVENT_PHASE_END;
	if (s->note_count >= CLV_PK_RECORD_MAX)
		return clv_pickle_error(p, clv_pickle_offset(p), "more than %u annotations", CLV_PK_RECORD_MAX);
	if (!clv_mem_reserve(&s->notes, &s->note_cap, s->note_count + 1, sizeof(*s->notes)))
		return clv_pickle_no_memory(p);
	s->notes[s->note_count++] = n;
	return true;
}

static bool make_block(struct clv_snapshot *s, struct clv_pickle *p, const clv_pk *items, size_t count, uint64_t offset,
		       clv_pk *out)
{
	struct clv_block_record b = {.addr = CLV_NO_ADDR};
	bool has_size = false;
	for (size_t i = 0; i + 1 < count; i += 2) {
		clv_pk v = items[i + 1];
		uint32_t key = string_number(items[i]);
		if (clv_pk_tag(v) == CLV_PK_NONE)
			continue;
		switch (key) {
		case CLV_S_ADDRESS:
			if (!get_number(p, offset, key, v, &b.addr))
				return false;
			break;
		case CLV_S_SIZE:
			if (!get_number(p, offset, key, v, &b.size))
				return false;
			has_size = true;
			break;
		case CLV_S_REQUESTED_SIZE:
			if (!get_number(p, offset, key, v, &b.requested))
				return false;
			break;
		case CLV_S_STATE:
			switch (string_number(v)) {
			case CLV_S_INACTIVE:
				b.state = CLV_BLOCK_INACTIVE;
				break;
			case CLV_S_ACTIVE_ALLOCATED:
				b.state = CLV_BLOCK_ACTIVE;
				break;
			case CLV_S_ACTIVE_PENDING_FREE:
			case CLV_S_ACTIVE_AWAITING_FREE:
				b.state = CLV_BLOCK_PENDING_FREE;
				break;
			default:
				return clv_pickle_error(p, offset, "a block of an unknown state");
			}
			break;
		case CLV_S_FRAMES:
			b.stack = get_stack(v);
			break;
		default:
			break;
		}
	}
	if (!has_size)
		return missing(p, offset, "a block", CLV_S_SIZE);
	if (b.state != CLV_BLOCK_INACTIVE && b.requested > b.size) /* a free one keeps what was asked of a larger one */
		return clv_pickle_error(p, offset, "a block in use of %llu bytes, of which %llu were requested",
					(unsigned long long)b.size, (unsigned long long)b.requested);
	if (s->block_count >= CLV_PK_RECORD_MAX)
		return clv_pickle_error(p, offset, "more than %u blocks", CLV_PK_RECORD_MAX);
	if (!clv_mem_reserve(&s->blocks, &s->block_cap, s->block_count + 1, sizeof(*s->blocks)))
		return clv_pickle_no_memory(p);
	*out = clv_pk_make(CLV_PK_BLOCK, s->block_count);
	s->blocks[s->block_count++] = b;
	return true;
}

/* Copies blocks that do not lie together, or belong to another segment already, to the end. */
static bool copy_blocks(struct clv_snapshot *s, struct clv_pickle *p, uint64_t first, uint64_t count)
{
	s->copied += count;
	if (s->copied > s->size)
		return clv_pickle_error(p, clv_pickle_offset(p), "one list of blocks belongs to many segments");
	if (s->block_count + count > CLV_PK_RECORD_MAX)
		return clv_pickle_error(p, clv_pickle_offset(p), "more than %u blocks", CLV_PK_RECORD_MAX);
	if (!clv_mem_reserve(&s->blocks, &s->block_cap, s->block_count + (size_t)count, sizeof(*s->blocks)))
		return clv_pickle_no_memory(p);
	memcpy(&s->blocks[s->block_count], &s->blocks[first], (size_t)count * sizeof(*s->blocks));
	s->block_count += (size_t)count;
	return true;
}

static bool gather_blocks(struct clv_snapshot *s, struct clv_pickle *p, clv_pk list, uint64_t offset,
			  struct clv_segment_record *seg)
{
	const clv_pk *items;
	size_t count, at = 0;
	uint64_t list_offset, run;
	clv_pk v;
	if (clv_pk_tag(list) != CLV_PK_LIST || !clv_pickle_items(p, list, &items, &count, &list_offset))
		return clv_pickle_error(p, offset, "the blocks of a segment are no list");
	uint32_t last_end = s->segment_count ? s->segments[s->segment_count - 1].r.first_block +
						       s->segments[s->segment_count - 1].r.blocks
					     : 0;
	bool together = count == 2 && clv_pk_tag(items[0]) == CLV_PK_BLOCK && clv_pk_payload(items[0]) >= last_end;
	seg->first_block = together ? (uint32_t)clv_pk_payload(items[0]) : (uint32_t)s->block_count;
	while (clv_pickle_next(items, count, &at, &v, &run)) {
		if (clv_pk_tag(v) != CLV_PK_BLOCK)
			return clv_pickle_error(p, clv_pk_tag(v) == CLV_PK_OPAQUE ? clv_pk_payload(v) : offset,
						"an entry of a segment's blocks is no block with a state");
		if (!together && !copy_blocks(s, p, clv_pk_payload(v), run))
			return false;
		seg->blocks += (uint32_t)run;
	}
	return true;
}

/* The blocks of a segment must cover it from end to end. */
static bool tile(struct clv_snapshot *s, struct clv_pickle *p, const struct clv_segment_record *seg, uint64_t offset)
{
	uint64_t at = seg->addr, end = seg->addr + seg->size;
	for (uint32_t i = 0; i < seg->blocks; i++) {
		struct clv_block_record *b = &s->blocks[seg->first_block + i];
		if (b->addr == CLV_NO_ADDR)
			b->addr = at;
		if (b->addr != at || b->size > end - at)
			return clv_pickle_error(p, offset, "block %u does not fit the segment at 0x%llx of %llu bytes",
						i, (unsigned long long)seg->addr, (unsigned long long)seg->size);
		at += b->size;
	}
	if (at != end)
		return clv_pickle_error(p, offset, "the blocks of the segment at 0x%llx make %llu of its %llu bytes",
					(unsigned long long)seg->addr, (unsigned long long)(at - seg->addr),
					(unsigned long long)seg->size);
	return true;
}

static bool make_segment(struct clv_snapshot *s, struct clv_pickle *p, const clv_pk *items, size_t count,
			 uint64_t offset, clv_pk *out)
{
	struct clv_snapshot_segment t = {.offset = offset};
	bool has_addr = false, has_size = false, has_stream = false;
	uint64_t device;
	clv_pk blocks = 0;
	for (size_t i = 0; i + 1 < count; i += 2) {
		clv_pk v = items[i + 1];
		uint32_t key = string_number(items[i]);
		if (clv_pk_tag(v) == CLV_PK_NONE)
			continue;
		switch (key) {
		case CLV_S_DEVICE:
			if (!clv_pickle_u64(p, v, &device) || device > MAX_DEVICE)
				return clv_pickle_error(p, offset, "'device' is no device number");
			t.device = (uint32_t)device;
			break;
		case CLV_S_ADDRESS:
			if (!get_number(p, offset, key, v, &t.r.addr))
				return false;
			has_addr = true;
			break;
		case CLV_S_TOTAL_SIZE:
			if (!get_number(p, offset, key, v, &t.r.size))
				return false;
			has_size = true;
			break;
		case CLV_S_STREAM:
			if (!get_stream(s, p, offset, v, &t.r.stream))
				return false;
			has_stream = true;
			break;
		case CLV_S_SEGMENT_TYPE:
			t.r.small = string_number(v) == CLV_S_SMALL;
			if (!t.r.small && string_number(v) != CLV_S_LARGE)
				return clv_pickle_error(p, offset, "a segment that is neither small nor large");
			break;
		case CLV_S_SEGMENT_POOL_ID:
			if (!clv_pickle_pair(p, v, &t.pool_a, &t.pool_b))
				return clv_pickle_error(p, offset, "'segment_pool_id' is no pair of integers");
			break;
		case CLV_S_IS_EXPANDABLE:
			if (!get_bool(p, offset, key, v, &t.r.expandable))
				return false;
			break;
		case CLV_S_FRAMES:
			t.r.stack = get_stack(v);
			break;
		case CLV_S_BLOCKS:
			blocks = v;
			break;
		default:
			break;
		}
	}
	if (!has_addr)
		return missing(p, offset, "a segment", CLV_S_ADDRESS);
	if (!has_size)
		return missing(p, offset, "a segment", CLV_S_TOTAL_SIZE);
	if (t.r.addr + t.r.size > INT64_MAX)
		return clv_pickle_error(p, offset, "the segment at 0x%llx of %llu bytes ends beyond 2^63",
					(unsigned long long)t.r.addr, (unsigned long long)t.r.size);
	if (!has_stream && !get_stream(s, p, offset, clv_pk_make(CLV_PK_INT, 0), &t.r.stream))
		return false;
	if (!gather_blocks(s, p, blocks, offset, &t.r) || !tile(s, p, &t.r, offset))
		return false;
	if (s->segment_count >= CLV_PK_RECORD_MAX)
		return clv_pickle_error(p, offset, "more than %u segments", CLV_PK_RECORD_MAX);
	if (!clv_mem_reserve(&s->segments, &s->segment_cap, s->segment_count + 1, sizeof(*s->segments)))
		return clv_pickle_no_memory(p);
	*out = clv_pk_make(CLV_PK_SEGMENT, s->segment_count);
	s->segments[s->segment_count++] = t;
	return true;
}

static bool make_frame(struct clv_snapshot *s, struct clv_pickle *p, const clv_pk *items, size_t count, clv_pk *out)
{
	struct clv_frame_record f = {.file = UINT32_MAX, .function = UINT32_MAX};
	uint64_t line;
	for (size_t i = 0; i + 1 < count; i += 2) {
		clv_pk v = items[i + 1];
		switch (string_number(items[i])) {
		case CLV_S_FILENAME:
			f.file = string_number(v);
			break;
		case CLV_S_NAME:
			f.function = string_number(v);
			break;
		case CLV_S_LINE:
			f.line = clv_pickle_u64(p, v, &line) && line <= UINT32_MAX ? (uint32_t)line : 0;
			break;
		default:
			break;
		}
	}
	for (uint64_t key = XXH3_64bits(&f, sizeof(f));; key = clv_mix64(key + 1)) {
		struct clv_map_slot *slot = clv_map_slot(&s->frame_index, key);
		if (!slot)
			return clv_pickle_no_memory(p);
		if (slot->value == CLV_MAP_NONE) {
			slot->value = 0;
			if (s->frame_count >= CLV_PK_RECORD_MAX)
				return clv_pickle_error(p, clv_pickle_offset(p), "more than %u different frames",
							CLV_PK_RECORD_MAX);
			if (!clv_mem_reserve(&s->frames, &s->frame_cap, s->frame_count + 1, sizeof(*s->frames)))
				return clv_pickle_no_memory(p);
			slot->value = (uint32_t)s->frame_count;
			s->frames[s->frame_count++] = f;
		} else if (memcmp(&s->frames[slot->value], &f, sizeof(f)) != 0) {
			continue;
		}
		*out = clv_pk_make(CLV_PK_FRAME, slot->value);
		return true;
	}
}

bool clv_snapshot_dict(void *arg, struct clv_pickle *p, const clv_pk *items, size_t count, uint64_t offset, clv_pk *out)
{
	struct clv_snapshot *s = arg;
	bool state = false, filename = false, stage = false;
	for (size_t i = 0; i + 1 < count; i += 2)
		switch (string_number(items[i])) {
		case CLV_S_ACTION:
			return make_event(s, p, items, count, offset, out);
		case CLV_S_BLOCKS:
			return make_segment(s, p, items, count, offset, out);
		case CLV_S_STATE:
			state = true;
			break;
		case CLV_S_FILENAME:
			filename = true;
			break;
		case CLV_S_STAGE:
			stage = true;
			break;
		default:
			break;
		}
	if (state)
		return make_block(s, p, items, count, offset, out);
	if (stage)
		return note_annotation(s, p, items, count, offset);
	return !filename || make_frame(s, p, items, count, out);
}

/* A list of frames is a stack; equal stacks have one number. */
bool clv_snapshot_list(void *arg, struct clv_pickle *p, const clv_pk *items, size_t count, clv_pk *out)
{
	struct clv_snapshot *s = arg;
	for (size_t i = 0; i < count; i++)
		if (clv_pk_tag(items[i]) != CLV_PK_FRAME)
			return true;
	count = clv_min_u64(count, MAX_DEPTH);
	if (s->stack_frame_count + count >= UINT32_MAX)
		return clv_pickle_error(p, clv_pickle_offset(p), "more than %u frames in stacks", UINT32_MAX);
	if (!clv_mem_reserve(&s->stack_frames, &s->stack_frame_cap, s->stack_frame_count + count,
			     sizeof(*s->stack_frames)))
		return clv_pickle_no_memory(p);
	struct clv_frame_record *mine = &s->stack_frames[s->stack_frame_count];
	for (size_t i = 0; i < count; i++)
		mine[i] = s->frames[clv_pk_payload(items[i])];
	for (uint64_t key = XXH3_64bits(mine, count * sizeof(*mine));; key = clv_mix64(key + 1)) {
		struct clv_map_slot *slot = clv_map_slot(&s->stack_index, key);
		if (!slot)
			return clv_pickle_no_memory(p);
		if (slot->value != CLV_MAP_NONE) {
			const struct clv_stack_record *other = &s->stacks[slot->value];
			if (other->count != count ||
			    memcmp(&s->stack_frames[other->first], mine, count * sizeof(*mine)) != 0)
				continue;
			*out = clv_pk_make(CLV_PK_STACK, slot->value);
			return true;
		}
		slot->value = 0;
		if (s->stack_count >= CLV_PK_RECORD_MAX)
			return clv_pickle_error(p, clv_pickle_offset(p), "more than %u different stacks",
						CLV_PK_RECORD_MAX);
		if (!clv_mem_reserve(&s->stacks, &s->stack_cap, s->stack_count + 1, sizeof(*s->stacks)))
			return clv_pickle_no_memory(p);
		slot->value = (uint32_t)s->stack_count;
		s->stacks[s->stack_count++] =
			(struct clv_stack_record){(uint32_t)s->stack_frame_count, (uint32_t)count};
		s->stack_frame_count += count;
		*out = clv_pk_make(CLV_PK_STACK, slot->value);
		return true;
	}
}
