/* SPDX-License-Identifier: MIT
 *
 * torch_snapshot: what the importer of PyTorch's memory snapshots gathers while the pickle is read, before it becomes a
 * trace. Owned by one import.
 */
#ifndef CLV_TORCH_SNAPSHOT_H
#define CLV_TORCH_SNAPSHOT_H

#include "../map.h"
#include "pickle.h"

/* Every string of a snapshot that means something: (name, text). Their numbers are those of the reader's strings.
 * The exporter writes the same ones.
 *
 * Two are ours: what the exporter makes up for viewers says so, and the importer leaves it out again. An event has
 * `made_up`; the snapshot lists the devices whose segments are in `made_up_state`. */
#define CLV_SNAPSHOT_STRINGS(X)                                                                                        \
	X(ACTION, "action")                                                                                            \
	X(ADDR, "addr")                                                                                                \
	X(DEVICE_FREE, "device_free")                                                                                  \
	X(SIZE, "size")                                                                                                \
	X(STREAM, "stream")                                                                                            \
	X(TIME_US, "time_us")                                                                                          \
	X(FRAMES, "frames")                                                                                            \
	X(DEVICE, "device")                                                                                            \
	X(ADDRESS, "address")                                                                                          \
	X(TOTAL_SIZE, "total_size")                                                                                    \
	X(SEGMENT_TYPE, "segment_type")                                                                                \
	X(SEGMENT_POOL_ID, "segment_pool_id")                                                                          \
	X(IS_EXPANDABLE, "is_expandable")                                                                              \
	X(BLOCKS, "blocks")                                                                                            \
	X(REQUESTED_SIZE, "requested_size")                                                                            \
	X(STATE, "state")                                                                                              \
	X(NAME, "name")                                                                                                \
	X(FILENAME, "filename")                                                                                        \
	X(LINE, "line")                                                                                                \
	X(SEGMENTS, "segments")                                                                                        \
	X(DEVICE_TRACES, "device_traces")                                                                              \
	X(ALLOCATOR_SETTINGS, "allocator_settings")                                                                    \
	X(CONF, "PYTORCH_CUDA_ALLOC_CONF")                                                                             \
	X(NEW_CONF, "PYTORCH_ALLOC_CONF")                                                                              \
	X(MAX_SPLIT_SIZE, "max_split_size")                                                                            \
	X(GC_THRESHOLD, "garbage_collection_threshold")                                                                \
	X(EXPANDABLE_SEGMENTS, "expandable_segments")                                                                  \
	X(ROUNDUP, "roundup_power2_divisions")                                                                         \
	X(PROBE, "probe")                                                                                              \
	X(CAP_MIB, "cap_mib")                                                                                          \
	X(TOTAL, "total")                                                                                              \
	X(RETRIES, "retries")                                                                                          \
	X(OOMS, "ooms")                                                                                                \
	X(DEVICE_LEFT_MIB, "device_left_mib")                                                                          \
	X(SMALL, "small")                                                                                              \
	X(LARGE, "large")                                                                                              \
	X(ACTIVE_ALLOCATED, "active_allocated")                                                                        \
	X(ACTIVE_PENDING_FREE, "active_pending_free")                                                                  \
	X(ACTIVE_AWAITING_FREE, "active_awaiting_free")                                                                \
	X(INACTIVE, "inactive")                                                                                        \
	X(ALLOCATED_SIZE, "allocated_size")                                                                            \
	X(ACTIVE_SIZE, "active_size")                                                                                  \
	X(EXTERNAL_ANNOTATIONS, "external_annotations")                                                                \
	X(OTHER, "other")                                                                                              \
	X(STAGE, "stage")                                                                                              \
	X(START, "START")                                                                                              \
	X(END, "END")                                                                                                  \
	X(MADE_UP, "made_up")                                                                                          \
	X(MADE_UP_STATE, "made_up_state")

enum clv_snapshot_string {
#define X(name, text) CLV_S_##name,
	CLV_SNAPSHOT_STRINGS(X)
#undef X
#define X(name, text) CLV_S_ACTION_##name,
		CLV_ACTIONS(X)
#undef X
			CLV_S_COUNT
};

extern const char *const clv_snapshot_strings[CLV_S_COUNT]; /* their texts */

#define CLV_NO_ADDR UINT64_MAX /* a block without an address: it follows the one before */

struct clv_snapshot_segment {
	struct clv_segment_record r; /* pool: set when the device is known */
	int64_t pool_a, pool_b;
	uint32_t device;
	uint64_t offset;
};

struct clv_snapshot_note {
	uint64_t time_us;
	uint64_t offset; /* of its dict in the file */
	uint32_t name;   /* number of the reader's string */
	uint32_t device;
	uint16_t kind; /* enum clv_event */
};

/* An event that the exporter made up: a flag that no trace has, for such events are taken out of it. */
#define CLV_SNAPSHOT_MADE_UP 128u

/* Records in the order in which the file completes them; numbers of CLV_PK_* values are indices here. */
struct clv_snapshot {
	struct clv_trace *trace;
	struct clv_error *err;
	const char *name;
	uint64_t size; /* bytes of the file: each event or block takes more than one, so it holds fewer */
	struct clv_event_record *events;
	size_t event_count, event_cap;
	struct clv_block_record *blocks;
	size_t block_count, block_cap;
	uint64_t copied; /* blocks that were copied, for a list of them was used again */
	struct clv_snapshot_segment *segments;
	size_t segment_count, segment_cap;
	struct clv_snapshot_note *notes;
	size_t note_count, note_cap;
	bool made_up;                    /* there are made-up events */
	struct clv_frame_record *frames; /* different ones; file and function are numbers of the reader's strings */
	size_t frame_count, frame_cap;
	struct clv_map frame_index;
	struct clv_frame_record *stack_frames;
	size_t stack_frame_count, stack_frame_cap;
	struct clv_stack_record *stacks; /* stacks[0] is empty */
	size_t stack_count, stack_cap;
	struct clv_map stack_index;
	size_t *first_events; /* of each device: number of its first event; SIZE_MAX if they do not lie together */
	size_t first_event_count;
	size_t refused;      /* the event that the second reading stops at, or SIZE_MAX */
	const char *refusal; /* why */
	uint64_t last_handle;
	uint32_t last_stream; /* index of last_handle, or UINT32_MAX */
};

/* torch_records.c: dicts and lists of the pickle into records; `arg` is a struct clv_snapshot. */
bool clv_snapshot_dict(void *arg, struct clv_pickle *p, const clv_pk *items, size_t count, uint64_t offset,
		       clv_pk *out);
bool clv_snapshot_list(void *arg, struct clv_pickle *p, const clv_pk *items, size_t count, clv_pk *out);

#endif
