/* SPDX-License-Identifier: MIT
 *
 * report: what a trace says about fragmentation: how much memory is lost at every moment and to what, who pins it, why requests
 * failed, and what would have helped. A `clv_report` is one answer to one or more traces; it is made once, read-only afterwards,
 * and points into the traces, which must outlive it. One thread.
 *
 * The words, for every moment of a device's history (src/heap/breakdown.h says the same of a running heap). A *frame* is what the
 * driver gives and takes back as a whole: a frame of Cleave, a native segment of PyTorch, a page of an expandable segment. A
 * frame is *occupied* if a byte of a live block, or of memory that a reservation holds back, lies in it. Each held byte is of one
 * kind, the first of these that it is:
 *
 *   live         of a block that the program has not freed, up to its requested size rounded up to 512 B
 *   internal     of such a block, beyond that: what it was given more
 *   reservation  held back for requests to come, and not used yet
 *   stream       freed, but work of a stream may still use it (PyTorch: a free that is requested and not completed; Cleave: until
 *                the heap has told that it is complete for every stream)
 *   hard         free, in an occupied frame: it serves only what fits there, and no flush gives it back. This is what is stranded
 *   soft         free, in a frame that is not occupied, or in one that is mapped nowhere: only not given back, or not merged
 *
 *   held = live + internal + reservation + stream + hard + soft, to the byte, after every event.
 *
 * What this is taken from differs by trace (enum clv_report_basis). Sizes that blocks were given: PyTorch's follow from the
 * settings and from the free range that a block was placed in, as it splits nothing off that is small; a recorder's are in the
 * file. Where neither is known, a block is given its size rounded up to 512 B, and nothing is internal.
 */
#ifndef CLV_REPORT_H
#define CLV_REPORT_H

#include "../trace.h"

/* (enumerator, name in JSON and texts) */
#define CLV_CAUSES(X)                                                                                                  \
	X(LIVE, "live")                                                                                                \
	X(INTERNAL, "internal")                                                                                        \
	X(RESERVATION, "reservation")                                                                                  \
	X(STREAM, "stream")                                                                                            \
	X(HARD, "hard")                                                                                                \
	X(SOFT, "soft")

enum clv_cause {
#define X(name, text) CLV_CAUSE_##name,
	CLV_CAUSES(X)
#undef X
	CLV_CAUSE_COUNT
};

const char *clv_cause_name(enum clv_cause c);

struct clv_report_sum {
	uint64_t held;
	uint64_t of[CLV_CAUSE_COUNT];
};

#define CLV_REPORT_BEFORE (UINT32_MAX - 1) /* born, freed: before the first event */
#define CLV_REPORT_NEVER UINT32_MAX        /* freed, gone: not until the end of the trace */

/* Where the frames come from. */
enum clv_report_basis {
	CLV_BASIS_SEGMENTS, /* PyTorch's segment events and final state */
	CLV_BASIS_FRAMES,   /* notes of Cleave's heap */
	CLV_BASIS_DRIVER,   /* the driver's allocations as the program got them: each is a frame */
	CLV_BASIS_EXTENTS,  /* neither was recorded: stretches of addresses of 2 MiB that blocks ever lay in, from the first use
	                       to the end. What was held is then a guess; what is live is not */
};

const char *clv_report_basis_name(enum clv_report_basis b); /* "segments", "frames", "driver", "extents" */

/* A block of the program, by its dense id in the history. */
struct clv_report_block {
	uint64_t addr;
	uint64_t size;      /* requested */
	uint64_t given;     /* bytes that it takes */
	uint64_t cut_from;  /* the free range that it was placed in, its own bytes included; 0: not known */
	uint32_t born;      /* event, or CLV_REPORT_BEFORE */
	uint32_t freed;     /* event at which the program gave it up, or CLV_REPORT_NEVER */
	uint32_t gone;      /* event from which others can have its memory: of a free at once, the same; or CLV_REPORT_NEVER */
	uint32_t stack;     /* index into trace->stacks; CLV_NO_STACK: not known */
	uint32_t stream;    /* index into trace->streams */
	uint32_t pool;      /* index into history->pools */
};

/* A frame while it is mapped in one place; mapped elsewhere, it is another one. */
struct clv_report_frame {
	uint64_t addr, size;
	uint32_t born, gone;  /* events: it is there from `born` on and not any more at `gone`; as of blocks */
	uint32_t stream, pool; /* PyTorch: as of blocks; else CLV_NO_STREAM, 0 */
	bool small;           /* PyTorch: of a pool for requests of up to 1 MiB */
	bool expandable;      /* a page, whose neighbours can be parts of the same segment */
};

/* A stretch of time with an equal share of the steps (events and notes); a short history has a bucket a step. Extremes are over all
 * moments in it, so no peak is lost. */
#define CLV_REPORT_BUCKETS 4096

struct clv_report_bucket {
	uint32_t first_event, last_event; /* the events in it are first_event .. last_event - 1 */
	double begin_s, end_s;            /* of its first and its last step, since the trace began */
	struct clv_report_sum end;        /* after its last step */
	struct clv_report_sum min, max;   /* of each value by itself */
};

/* Live blocks with the same stack; without a stack, of the same requested size and stream.
 *
 * A group *pins* an occupied frame if one of its live blocks lies in it; `alone` if no other group and no reservation does.
 *   stranded  = sum of the hard bytes of frames that it pins alone: what would not be stranded any more without it
 *   frames    = sum of the whole sizes of these frames: what could go back to the driver then
 *   shared    = sum over the frames that it pins with others, of their hard bytes: an upper bound of its part in them
 *   marginal  = what is stranded no more if this group goes after all those ranked before it have gone
 * Groups are ranked greedily: first the one with the largest `stranded`, then each time the one with the largest `marginal`; of
 * equals, that with the larger `shared`, then the more bytes, then the older one. So the marginals of the first n add up to
 * what is freed when all n go, to the byte. */
struct clv_report_group {
	uint32_t stack;           /* CLV_NO_STACK: told by size and stream */
	uint64_t size;            /* requested bytes of a block; 0: they differ */
	uint32_t stream;          /* index into trace->streams; CLV_NO_STREAM: they differ */
	uint64_t blocks, bytes;   /* live ones, and what they were given */
	uint64_t stranded_bytes, frame_bytes, shared_bytes, marginal_bytes;
	uint64_t frames, frames_alone; /* pinned */
	double age_min_s, age_max_s;   /* lived so far; of blocks from before the window: since its beginning */
	double left_min_s, left_max_s; /* will live until freed; negative: until after the end of the trace */
	uint64_t never_freed;          /* of its blocks, those that live to the end of the trace */
	uint32_t sample;               /* a block of the group: the one that pins the most stranded bytes */
	/* Would the failed request have been served without it? Only at failures: 1 yes, 0 no, -1: not known. */
	int would_serve;
};

/* A free range at a moment, within frames that lie side by side in one segment or range. */
struct clv_report_hole {
	uint64_t addr, size;
	uint64_t stranded;    /* of it, in occupied frames */
	uint32_t left, right; /* blocks at its ends, live or pending, or CLV_NO_BLOCK: the end of the range */
	uint32_t cutter;      /* the block that was cut off last and left this: the younger neighbour that was placed in a larger
	                         free range; CLV_NO_BLOCK: none of them, or not known */
	uint32_t stream, pool; /* PyTorch: whose it is */
};

/* (enumerator, name in JSON, title for people) */
#define CLV_MOMENTS(X)                                                                                                 \
	X(PEAK_LIVE, "peak_live", "most live")                                                                         \
	X(PEAK_HELD, "peak_held", "most held")                                                                         \
	X(PEAK_STRANDED, "peak_stranded", "most stranded")                                                             \
	X(FAILURE, "failure", "a request failed")                                                                      \
	X(MARK, "mark", "mark")                                                                                        \
	X(CHOSEN, "chosen", "chosen")                                                                                  \
	X(END, "end", "at the end")

enum clv_moment_kind {
#define X(name, text, title) CLV_MOMENT_##name,
	CLV_MOMENTS(X)
#undef X
	CLV_MOMENT_COUNT
};

const char *clv_moment_name(enum clv_moment_kind k);
const char *clv_moment_title(enum clv_moment_kind k);

/* What is held at a moment as far as that is known: of extents, where it is a guess, what is live. */
static inline uint64_t clv_report_surely_held(enum clv_report_basis basis, const struct clv_report_sum *sum)
{
	return basis == CLV_BASIS_EXTENTS ? sum->of[CLV_CAUSE_LIVE] : sum->held;
}

/* Of a request that failed. */
struct clv_report_failure {
	uint64_t asked;       /* as recorded: PyTorch's rounded size */
	uint64_t needed;      /* what the allocator asks the driver for to serve it: a whole segment */
	uint64_t device_free; /* what the device could still give; UINT64_MAX: not recorded */
	uint64_t limit;       /* of memory, that was set; UINT64_MAX: none is known */
	uint32_t stream, pool, stack;
	uint64_t usable_free;    /* free bytes that the allocator may use for this request: of its stream and pool */
	uint64_t largest_usable; /* the largest such hole */
	uint64_t foreign_free;   /* free bytes of other streams and pools */
	uint64_t repeats;        /* further failures like this one (same stack, size and stream) that are not told one by one */
	char *text;              /* the paragraph; owned by the report */
};

struct clv_report_moment {
	enum clv_moment_kind kind;
	uint32_t event, note; /* the state after so many events and notes of the history */
	double time_s;        /* since the trace began: its first event or note, on whatever device */
	uint32_t label;       /* of a mark: index into trace->strings; else CLV_NO_TEXT */
	struct clv_report_sum sum;
	uint64_t live_blocks, frames, frames_occupied;
	uint64_t hole_count, largest_hole;
	struct clv_report_hole *holes; /* the largest, by size */
	uint32_t holes_kept;
	struct clv_report_group *groups; /* ranked */
	uint32_t groups_kept, group_count;
	uint64_t pinned_by_others; /* stranded bytes in frames that groups not kept pin too */
	struct clv_report_failure failure; /* kind FAILURE */
};

/* A reservation as the recording tells of it, by name and size of a slot. */
struct clv_report_reservation {
	uint32_t name;        /* index into trace->strings, or CLV_NO_TEXT */
	uint64_t slot_bytes;
	uint64_t slots;       /* asked for */
	bool hard;
	uint64_t held, served, yielded; /* slots that were held back, went to requests, were given up; of classes, pieces */
	uint64_t held_bytes_peak;       /* held back at one moment */
	uint64_t missed;      /* requests of its size that found nothing left, if it has ended */
	bool ended;
};

/* A replay of the same requests with something changed. */
struct clv_report_trial {
	char *policy;             /* as `cleave replay --policy` takes it; owned by the report */
	char *what;               /* for people: "hold 64 slots of 2 MiB back"; owned */
	uint64_t capacity;        /* of the simulated device; 0: no limit */
	bool completed;           /* every request was served, those too that had failed when recorded if `serves_failures` */
	uint64_t peak_held, peak_stranded, failures;
	bool confirmed;           /* it is better than `base` by what matters here; only these are told as advice */
	int64_t saved_bytes;      /* of the peak held; negative: it takes more */
};

/* One device of one trace. */
struct clv_report_device {
	const struct clv_trace *trace;
	const struct clv_history *history;
	uint32_t number; /* in the order in which traces were given and devices are in them, from 0 on */
	enum clv_report_basis basis;
	bool has_history;          /* false: a state only; it has one moment, END */
	bool given_known;          /* sizes given are known, else nothing is internal */
	uint64_t uncertain_until;  /* events before this one are seen through guesses about what was there before; 0: none are */
	uint64_t limit;           /* of what the allocator may hold, as it was set; 0: none is known */
	uint64_t device_bytes;    /* that the device has; 0: not known */

	struct clv_report_sum peak; /* of each value by itself, over all moments */
	uint64_t peak_stranded;     /* peak.of[CLV_CAUSE_HARD] */
	uint64_t peak_live_holds;   /* held at the moment of peak live */
	uint64_t failures;          /* requests that failed */

	struct clv_report_bucket *buckets;
	uint32_t bucket_count;
	struct clv_report_moment *moments; /* by time; the peaks at one and the same moment are one, of the first kind */
	uint32_t moment_count;
	uint32_t worst; /* the moment to look at first: the first failure, else the most stranded */
	uint64_t failures_untold, marks_untold; /* moments of these kinds beyond the limit of options */

	struct clv_report_block *blocks; /* history->block_count of them */
	struct clv_report_frame *frames; /* by `born`, then address */
	uint32_t frame_count;

	struct clv_report_reservation *reservations; /* in the order in which they were first told of */
	uint32_t reservation_count;

	/* What helps: trials[0] is the base, what was recorded replayed as it was; none if nothing was tried. */
	struct clv_report_trial *trials;
	uint32_t trial_count;
	uint32_t untried;   /* candidates that were left out, the trace being long */
	char *summary;      /* a paragraph about the device for people; owned by the report */
};

struct clv_report {
	struct clv_report_device *devices; /* the worst first: failures before none, then by what was stranded at most */
	uint32_t device_count;
	const struct clv_trace *const *traces;
	uint32_t trace_count;
};

struct clv_report_options {
	uint32_t top;            /* groups and holes kept at a moment; 0: 10 */
	uint32_t failures;       /* told one by one; 0: 8: the first ones, each kind once, and the last */
	uint32_t marks;          /* 0: 16 */
	bool at_event_set, at_time_set;
	uint64_t at_event;       /* the state after so many events */
	double at_s;             /* since the trace began */
	uint64_t trial_events;   /* events that all trials together may replay; 0: none is made */
	void (*progress)(void *arg, const char *what, double part); /* may be NULL */
	void *progress_arg;
};

/* All devices of all traces that hold a history or a state. NULL with an error: nothing is in them, a chosen moment is in none, or
 * host memory is out. */
struct clv_report *clv_report_make(const struct clv_trace *const *traces, uint32_t count,
				   const struct clv_report_options *options, struct clv_error *err);
void clv_report_free(struct clv_report *report); /* NULL is allowed */

/* "attention.py:312 forward"; without a stack "blocks of 2.0 MiB on stream 0x..". The frame told is the innermost one that is not
 * of an allocator or of PyTorch's own machinery. If another group of the same moment would be called so, the caller that tells
 * them apart follows: " (from train.py:20 step)". Returns buf. */
char *clv_report_group_name(const struct clv_report_device *d, const struct clv_report_group *g, char *buf, size_t len);

/* The frame of a stack that tells a person most, or NULL if there is none. */
const struct clv_frame_record *clv_report_frame_of(const struct clv_trace *trace, uint32_t stack);

#endif
