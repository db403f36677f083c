/* SPDX-License-Identifier: MIT
 *
 * trace: allocator histories in memory, as importers make them and policies replay them. One `clv_trace` is one file; it has
 * one `clv_history` a device. Owned by one thread at a time; read-only once imported.
 */
#ifndef CLV_TRACE_H
#define CLV_TRACE_H

#include "../src/base/base.h"
#include "../src/base/error.h"
#include "../src/base/event.h"

/* (enumerator, name in PyTorch's snapshots) */
#define CLV_ACTIONS(X)                                                                                                 \
	X(ALLOC, "alloc")                                                                                              \
	X(FREE_REQUESTED, "free_requested")                                                                            \
	X(FREE_COMPLETED, "free_completed")                                                                            \
	X(SEGMENT_ALLOC, "segment_alloc")                                                                              \
	X(SEGMENT_FREE, "segment_free")                                                                                \
	X(SEGMENT_MAP, "segment_map")                                                                                  \
	X(SEGMENT_UNMAP, "segment_unmap")                                                                              \
	X(OOM, "oom")                                                                                                  \
	X(SNAPSHOT, "snapshot")

enum clv_action {
#define X(name, text) CLV_ACTION_##name,
	CLV_ACTIONS(X)
#undef X
	CLV_ACTION_OTHER, /* an action this version does not know: kept in place, replayed by nothing */
	CLV_ACTION_COUNT
};

const char *clv_action_name(enum clv_action a); /* "alloc"; "other" for OTHER */

#define CLV_NO_BLOCK UINT32_MAX
#define CLV_NO_STACK 0u /* stack ids start at 1 */

/* flags */
#define CLV_EVENT_IMPLIED 1u /* a FREE_COMPLETED that was recorded as FREE_REQUESTED (clv_history_link) */
#define CLV_EVENT_LOST 2u    /* a FREE_COMPLETED that was not recorded: something else is there now. Events were lost, or a
                                block was told of twice while recording began */

/* 40 bytes: ten million events are 400 MB. */
struct clv_event_record {
	uint64_t time_us;
	uint64_t addr;   /* OOM: the recorded device_free */
	uint64_t size;   /* ALLOC, FREE_*: as requested; OOM: rounded; SEGMENT_*: mapped bytes */
	uint32_t stream; /* index into clv_trace.streams */
	uint32_t block;  /* ALLOC, FREE_*: dense id of the block in this history, set by clv_history_link(); a FREE of a block
	                    that no event or initial block explains, and everything else: CLV_NO_BLOCK */
	uint32_t stack;  /* index into clv_trace.stacks, or CLV_NO_STACK */
	uint16_t pool;   /* index into clv_history.pools: that of the final segment that contains addr, since it was made; 0 is
	                    (0,0) */
	uint8_t action;  /* enum clv_action */
	uint8_t flags;
};

enum clv_block_state { CLV_BLOCK_INACTIVE, CLV_BLOCK_ACTIVE, CLV_BLOCK_PENDING_FREE };

struct clv_block_record {
	uint64_t addr, size, requested; /* size: what the allocator gave */
	uint32_t stack;
	uint8_t state; /* enum clv_block_state */
};

struct clv_segment_record {
	uint64_t addr, size;
	uint32_t stream; /* index into clv_trace.streams */
	uint16_t pool;   /* index into clv_history.pools */
	bool small, expandable;
	uint32_t stack;
	uint32_t first_block, blocks; /* in clv_history.blocks; they tile the segment */
};

struct clv_pool_id {
	uint64_t a, b; /* PyTorch's segment_pool_id; {0,0} is the default */
};

/* A block that was there before the first event: freed in the window, or still active at its end. */
struct clv_initial_block {
	uint64_t addr, size; /* requested size where known, else the size given */
	uint32_t stream, block;
	uint16_t pool;
};

/* What a recorder saw besides requests: frames, cuts, reservations, waits, marks (src/base/event.h has the list and says what
 * `addr` to `b` are). Of ALLOC and FREE there are none: those are events; a FAIL is both, an OOM event and a note. */
struct clv_note {
	uint64_t time_us;
	uint64_t addr, size, a, b;
	uint32_t event;  /* the first event of the history that came later; its event_count: none did */
	uint32_t stream; /* index into clv_trace.streams, or CLV_NO_STREAM */
	uint32_t text;   /* index into clv_trace.strings, or CLV_NO_TEXT */
	uint32_t stack;
	uint32_t thread; /* as the system numbers them; 0: not known */
	uint16_t kind;   /* enum clv_event, or above: of a later version */
};

#define CLV_NO_STREAM UINT32_MAX
#define CLV_NO_TEXT UINT32_MAX

struct clv_history {
	int device;
	struct clv_event_record *events;
	uint32_t event_count;

	struct clv_segment_record *segments; /* at the end of the window, sorted by address; none in logs without a state */
	uint32_t segment_count;
	struct clv_block_record *blocks;
	uint32_t block_record_count;
	struct clv_pool_id *pools; /* pools[0] is (0,0) */
	uint32_t pool_count;
	bool has_state; /* the file says what was there at the end */

	uint32_t *threads; /* of each event, as in notes; NULL: not known */
	uint32_t *slack;   /* of each event: bytes that an ALLOC takes beyond its size; NULL: not known */
	struct clv_note *notes; /* by time; what concerns no device (marks, phases, the process) is in the first history */
	uint32_t note_count;

	/* made by clv_history_link() */
	struct clv_initial_block *initial;
	uint32_t initial_count;
	uint32_t block_count;     /* dense block ids: 0 .. block_count-1, the initial ones first */
	uint32_t alloc_count;     /* ALLOC events of a size above 0; the others make no block */
	uint32_t stream_count;    /* distinct streams of the ALLOC events */
	uint32_t oom_count;
	uint64_t peak_live_bytes; /* most bytes requested and not free-completed, each rounded up to 512 B */
	uint64_t unmatched_frees; /* frees that no block explains: skipped by every policy */
	double duration_s;        /* first to last event */
};

/* What a PyTorch snapshot says of its allocator's settings. */
struct clv_torch_recorded {
	bool present;        /* allocator_settings was there */
	char *conf;          /* PYTORCH_CUDA_ALLOC_CONF; "" if none */
	int64_t max_split_size; /* -1: unlimited */
	double gc_threshold;
	bool expandable;
	uint32_t roundup[16]; /* power-of-2 divisions for 1 MiB ... 32 GiB and above */
	bool has_probe;      /* our own recordings: the memory limit that was set */
	uint64_t cap_mib, total_bytes;
	uint64_t retries, ooms;     /* what the allocator itself counted (probe) */
	uint64_t device_left_mib;   /* what the device could still give (probe) */
};

enum clv_trace_format { CLV_FORMAT_TORCH, CLV_FORMAT_CLV, CLV_FORMAT_RMM };

const char *clv_trace_format_name(enum clv_trace_format f); /* "torch", "clv", "rmm" */

/* A native frame as it was recorded has the path of its module for a file, the empty string for a function and line 0, until
 * its symbol is looked up. */
struct clv_frame_record {
	uint32_t file, function; /* index into strings */
	uint32_t line;
	uint32_t module;  /* of a native frame: index into modules plus 1; 0: none is known */
	uint64_t address; /* of a native frame: where it returns to, in the module's file, or in memory without one; else 0 */
};

#define CLV_BUILD_ID_MAX 32u

struct clv_module_record {
	uint32_t path; /* index into strings */
	uint8_t build_id_len, build_id[CLV_BUILD_ID_MAX];
};

struct clv_map;

struct clv_trace {
	char *file; /* as named by the user */
	char *note; /* what could not be read of a file that was cut short; NULL: all of it was */
	enum clv_trace_format format;
	struct clv_history *histories; /* sorted by device */
	uint32_t history_count;
	uint64_t *streams; /* raw stream handles as recorded; PyTorch orders free blocks by them */
	uint32_t stream_count;
	uint32_t stream_room;         /* private to trace.c: how many `streams` has room for, as far as it knows */
	struct clv_map *stream_index; /* private to trace.c: handle to index, made by the first clv_trace_stream() */
	struct clv_torch_recorded torch;

	/* stacks: stack i (from 1) is stack_frames[stacks[i].first .. +count), innermost first; stacks[0] is empty */
	struct clv_stack_record {
		uint32_t first, count;
	} *stacks;
	uint32_t stack_count;
	struct clv_frame_record *stack_frames;
	uint32_t stack_frame_count;
	char **strings;
	uint32_t string_count;
	struct clv_module_record *modules;
	uint32_t module_count;
};

void clv_trace_free(struct clv_trace *trace); /* NULL is allowed */

/* Gives blocks their dense ids, finds the blocks that were there before the window (from the final state and from frees
 * without an allocation), assigns pools to events, and computes the totals. Importers call it once a history is read.
 *
 * Recorders can be told to leave out kinds of events. A FREE_REQUESTED whose completion was left out is turned into a
 * FREE_COMPLETED: every one in a history that has no FREE_COMPLETED at all, else one whose address is allocated again
 * (counted in unmatched_frees, being odd). A FREE_COMPLETED without its request stands as it is. So FREE_COMPLETED alone
 * ends a block, everywhere.
 *
 * false: out of host memory, or the history contradicts itself (an address allocated while live). */
bool clv_history_link(struct clv_trace *trace, struct clv_history *history, struct clv_error *err);

/* The history to replay: of `device`, or if that is -1 the first that has events. NULL and an error if there is none (the
 * error of a file that has only a state names `cleave report`). */
const struct clv_history *clv_trace_select(const struct clv_trace *trace, int device, struct clv_error *err);

/* The first of the blocks that were there before the window which begins at or above an address; NULL: none does. */
const struct clv_initial_block *clv_history_initial_from(const struct clv_history *history, uint64_t addr);

/* Index of a raw stream handle in trace->streams, added if new. UINT32_MAX: out of host memory. */
uint32_t clv_trace_stream(struct clv_trace *trace, uint64_t handle);

#endif
