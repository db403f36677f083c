/* SPDX-License-Identifier: MIT
 *
 * Plans: memory whose use is known in advance.
 *
 * Packing gives each of a set of buffers, whose births and deaths are known, an offset in one region, so that no two
 * buffers that are live at the same time share a byte and the region is as low as can be. (Dynamic storage allocation, NP-hard:
 * Garey and Johnson, "Computers and Intractability", SR2.) The least conceivable height is the largest total that is live
 * at one time; it can often be reached.
 *
 * Units of packing: sizes, offsets and heights are in one unit of the caller's choice (bytes, mostly), times in another
 * (events, steps, ...).
 *
 * Plans of `cleave plan` say which buffers each mixture-of-experts layer of a model needs after its weights have been
 * converted. Here a program loads such a file, has the buffers made in a heap, and fills them expert by expert; the books
 * of what is filled are kept for it. Units: bytes; shapes and strides are in elements.
 *
 * Reservations hold memory of a heap back for requests that are known to come. Units: bytes and milliseconds.
 *
 * Errors: functions return 0 or a negative errno: -EINVAL (an argument makes no sense), -ENOSPC (host memory), and what is
 * said at each.
 * Thread-safety: every function may be called from any thread, except cleave_plan_close, which nothing may race.
 */
#ifndef CLEAVE_PLAN_H
#define CLEAVE_PLAN_H

#include <cleave/heap.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The times t with lower <= t < upper. */
typedef struct cleave_pack_span {
	int64_t lower, upper;
} cleave_pack_span;

#define CLEAVE_PACK_ANYWHERE UINT64_MAX

typedef struct cleave_pack_buffer {
	int64_t lower, upper; /* live at lower <= t < upper; lower == upper: never, it collides with nothing */
	uint64_t size;        /* 0: it collides with nothing */
	uint64_t alignment;   /* its offset is a multiple of this, not only of powers of two; 0: any offset */
	uint64_t offset;      /* where it must lie (not bound by `alignment`), or CLEAVE_PACK_ANYWHERE */

	/* Spans within its life in which it holds no memory, though it has the same offset before and after: others may
	 * lie there meanwhile. In ascending order, none overlapping another, within [lower, upper). NULL if there are
	 * none. */
	const cleave_pack_span *gaps;
	size_t gap_count;
} cleave_pack_buffer;

typedef struct cleave_pack_settings {
	uint64_t capacity;   /* the search ends when a packing of at most this height is found; 0: as low as can be */
	uint64_t seed;       /* the same seed gives the same packing, if no time limit ends the search */
	uint64_t effort;     /* the search ends after about this many steps of some 10 ns; 0: a default (10^9) */
	double time_limit_s; /* the function ends about then with what it has; 0: no limit */
	uint64_t reserved[4];
} cleave_pack_settings;

typedef struct cleave_pack_result {
	uint64_t lower_bound; /* no packing is lower: the largest live total, or more where a search has shown more */
	uint64_t height;      /* the largest offset + size */
	uint64_t steps;       /* that the search took */
	double seconds;
	int optimal;          /* 1: height == lower_bound, which proves that no packing is lower */
	int fits;             /* 1: height <= capacity, or no capacity was given */
	int timed_out;        /* 1: the time limit ended the search: another run may find another packing */
	uint64_t reserved[4];
} cleave_pack_result;

/* Packs `count` buffers: offsets[i] gets the offset of buffers[i]; a buffer that never holds memory gets 0, or where it is
 * fixed, and does not count in the height. `settings` may be NULL for the defaults. Needs host memory in proportion to `count`
 * and the number of gaps. On -EINVAL `why` (may be NULL; why_len bytes) gets a sentence that says what is wrong, and begins
 * "buffer N" or "buffers N and M" where those are to blame: a death before its birth, gaps out of order or outside of the
 * life, fixed buffers that collide, sizes that with their alignments are 2^62 or more in total, too many buffers or gaps
 * (2^29). On any error offsets and *result are left alone. */
CLEAVE_API int cleave_pack(const cleave_pack_buffer *buffers, size_t count, const cleave_pack_settings *settings,
			   uint64_t *offsets, cleave_pack_result *result, char *why, size_t why_len);

/* ---- plans of `cleave plan` ---- */

#define CLEAVE_PLAN_DIMS 8
#define CLEAVE_PLAN_ALL UINT32_MAX

/* Types of elements, as PyTorch has them. Weights of 4 bits lie two in a byte or eight in an int32, and are of that type. */
enum cleave_dtype {
	CLEAVE_DTYPE_NONE,
	CLEAVE_DTYPE_UINT8,
	CLEAVE_DTYPE_INT8,
	CLEAVE_DTYPE_INT16,
	CLEAVE_DTYPE_INT32,
	CLEAVE_DTYPE_INT64,
	CLEAVE_DTYPE_FLOAT16,
	CLEAVE_DTYPE_BFLOAT16,
	CLEAVE_DTYPE_FLOAT32,
	CLEAVE_DTYPE_FLOAT64,
	CLEAVE_DTYPE_FLOAT8_E4M3FN,
	CLEAVE_DTYPE_FLOAT8_E5M2,
	CLEAVE_DTYPE_FLOAT8_E8M0FNU
};

/* "bfloat16" and 16; NULL and 0 if there is no such type. */
CLEAVE_API const char *cleave_dtype_name(enum cleave_dtype dtype);
CLEAVE_API uint32_t cleave_dtype_bits(enum cleave_dtype dtype);

typedef struct cleave_plan cleave_plan;

/* Reads a plan. On an error *out is NULL and `why` (may be NULL; why_len bytes) gets a sentence that names the file, the
 * member and what was expected. -EINVAL: the file cannot be read, or is no plan. -ELIBACC: libjansson.so.4, which reads it,
 * cannot be opened.
 *
 * A plan of all ranks (`cleave plan --rank all`) is loaded for one of them by its number; another plan only for the rank
 * that it was made for. Without a number it is the rank that the plan was made for, or of all the one that needs the most. */
CLEAVE_API int cleave_plan_load(cleave_plan **out, const char *path, char *why, size_t why_len);
CLEAVE_API int cleave_plan_load_rank(cleave_plan **out, const char *path, uint32_t rank, char *why, size_t why_len);

/* Frees the memory of every layer, in the order of the stream that the plan was bound with. Before cleave_heap_close. */
CLEAVE_API void cleave_plan_close(cleave_plan *plan);

/* What the file says. Texts are the plan's own and stay until it is closed; one that the file lacks is "". */
typedef struct cleave_plan_info {
	const char *path, *model, *backend, *strategy;
	uint32_t rank;
	uint32_t moe_layers; /* of the model */
	uint32_t layers;     /* of them, those of this rank, which the functions below number from 0 */
	uint32_t experts;    /* of this rank, numbered from 0 */
	uint32_t buffers;    /* of a layer */
	uint64_t layer_bytes; /* of the buffers of a layer */
	uint64_t reserved[8];
} cleave_plan_info;

CLEAVE_API int cleave_plan_get_info(const cleave_plan *plan, cleave_plan_info *out);

/* A buffer. It consists of `experts` runs of `expert_bytes` each, which are filled one by one: those of the rank's experts; or
 * one run, if it is not divided by experts. */
typedef struct cleave_plan_buffer {
	const char *name;   /* the plan's own */
	cleave_ptr address; /* a multiple of 512; 0: it has no memory */
	uint64_t bytes;
	uint64_t shape[CLEAVE_PLAN_DIMS], strides[CLEAVE_PLAN_DIMS]; /* in elements; only the first `dims` are used */
	uint32_t dims;
	enum cleave_dtype dtype;
	uint32_t dtype_bits;
	uint32_t experts;
	uint64_t expert_bytes;
	uint32_t zeroed; /* 1: parts of it are padding, so it must be filled with zeros before its experts are */
	uint32_t same;   /* 1: the conversion leaves it as it was loaded, so it needs no source beside it */
	uint64_t reserved[8];
} cleave_plan_buffer;

/* The i-th buffer of every layer, without memory. -ENOENT: there are no more. */
CLEAVE_API int cleave_plan_describe(const cleave_plan *plan, uint32_t index, cleave_plan_buffer *out);

/* From now on the memory of layers comes from `heap` (borrowed; it outlives the plan), on that device and in the order of that
 * stream. For the first `ahead` layers (CLEAVE_PLAN_ALL: for all) it is taken at once, for each other layer when that is first
 * asked for.
 *
 * A conversion from sources that lie in the same heap, each layer's sources freed when its buffers are filled, needs room for
 * one layer more than the sources: bind with `ahead` 1 before the sources are loaded, and that room is held from the start;
 * each further layer then fits where the sources of the one before it were.
 *
 * -EALREADY: it is bound. -ENOMEM: device memory is out (cleave_heap_last_failure explains); like on every error, the plan
 * is then not bound and holds no memory. */
CLEAVE_API int cleave_plan_bind(cleave_plan *plan, cleave_heap *heap, int device, cleave_stream stream, uint32_t ahead);

/* The same with memory from elsewhere. The functions answer as cleave_alloc and cleave_free; they are called under the plan's
 * lock, so they must not call the plan. */
typedef struct cleave_plan_memory {
	int (*alloc)(void *arg, int device, cleave_stream stream, size_t size, cleave_ptr *out);
	int (*free)(void *arg, cleave_ptr ptr, cleave_stream stream);
	void *arg;
} cleave_plan_memory;

CLEAVE_API int cleave_plan_bind_memory(cleave_plan *plan, const cleave_plan_memory *memory, int device, cleave_stream stream,
				       uint32_t ahead);

/* Takes the memory of a layer, all buffers or none, unless it has it. What is in it is undefined. Errors of the functions that
 * need a layer's memory: -ENXIO: the plan is not bound; -EINVAL: there is no such layer; -ENOMEM and others: of the heap. */
CLEAVE_API int cleave_plan_take_layer(cleave_plan *plan, uint32_t layer);

/* Gives the memory of a layer back, in the order of `stream`; what was filled is forgotten. The caller uses none of its addresses
 * any more. -EINVAL: it has none. -EIO: some buffers could not be freed, and the layer keeps them; to be tried again. */
CLEAVE_API int cleave_plan_release_layer(cleave_plan *plan, uint32_t layer, cleave_stream stream);

/* A buffer of a layer by its name; takes the layer's memory if need be. -ENOENT: the plan has no buffer of that name. */
CLEAVE_API int cleave_plan_get_buffer(cleave_plan *plan, uint32_t layer, const char *name, cleave_plan_buffer *out);

/* Where an expert of a buffer lies, for the caller to write all its bytes there; it counts as filled from now on. Takes the
 * layer's memory if need be. `bytes` may be NULL. -EEXIST: it was filled before; *address and *bytes are set all the same.
 * -EINVAL: there is no such expert; -ENOENT as above. */
CLEAVE_API int cleave_plan_fill_expert(cleave_plan *plan, uint32_t layer, const char *name, uint32_t expert, cleave_ptr *address,
				       uint64_t *bytes);

/* The expert was not filled after all, or is to be filled anew. -ENOENT also if it does not count as filled. */
CLEAVE_API int cleave_plan_unfill_expert(cleave_plan *plan, uint32_t layer, const char *name, uint32_t expert);

/* How many experts of a buffer are not filled yet, or a negative errno (-EINVAL, -ENOENT). The first `room` of them are
 * written to `experts` (may be NULL if room is 0). Takes no memory: of a layer without, none is filled. */
CLEAVE_API int64_t cleave_plan_missing(cleave_plan *plan, uint32_t layer, const char *name, uint32_t *experts, size_t room);

/* 0: every expert of every buffer of the layer is filled. -ENODATA: not so, and `why` (may be NULL; why_len bytes) gets
 * a sentence that names the buffers, how many experts are missing in each, and the first of them. */
CLEAVE_API int cleave_plan_layer_done(cleave_plan *plan, uint32_t layer, char *why, size_t why_len);

/* ---- reservations ----
 *
 * A reservation holds *slots* back: pieces of memory of one size, mapped when it is made. Nobody else gets them; they are not
 * moved, nor cut, nor released. A request that matches takes one. While the phase of the reservation lasts, a block of
 * its size that is freed becomes a slot again, whether it was one before or not, until `count` slots are held. So of 92 equal
 * layers that are converted one after the other, through one spare layer, each finds its room: the first in the slot,
 * the next in what the first has freed, though it was loaded before and elsewhere.
 *
 * A request matches if it has the size, rounded up to 512 B (of a class: more than half of it, up to it, and above 32 KiB), on
 * the stream, or any; requests within captures of CUDA graphs never do. A slot that another stream has freed is taken by
 * a wait on the device; the host never waits for one. A matching request that finds none is served like any other and counted
 * as missed. If several reservations match, each counts the request, and the first that can serves it: exact ones in the
 * order in which they were made, then classes from the smallest slot on.
 *
 * Slots are part of held_bytes and free_bytes of the heap's statistics, not of stranded_bytes; reservation_bytes says how
 * much they are. A *soft* reservation gives them up, as few as will do, when a request would otherwise wait for the host, and
 * when the heap is trimmed; a *hard* one only when a request would otherwise fail, which it warns of. Either goes on to
 * hold what is freed afterwards; but a soft one no more once it has yielded to two requests, and two for each that it has
 * served: such a plan was made for another program.
 *
 * The phase ends by cleave_reserve_end(), after `uses` requests that matched (after the first after_n), or when no request
 * matched for `idle_ms` (which is noticed when memory is next bought, trimmed, or statistics are asked for). What is held is
 * then free for everybody. */

#define CLEAVE_RESERVATION_NAME 64 /* with the 0 at its end */

typedef struct cleave_reservation {
	const char *name;     /* for reports; copied, and cut where it is too long; NULL: none */
	uint64_t bytes;       /* of a slot: above 32 KiB (smaller requests come from slabs), up to 2^48 */
	uint64_t count;       /* of slots, up to 2^20 */
	uint64_t after_n;     /* the first so many requests that match take none */
	uint64_t uses;        /* the phase ends when so many more have matched, served or not; 0: not by that */
	uint64_t idle_ms;     /* ... or when none matched for so long; 0: not by that */
	cleave_stream stream; /* with one_stream: whose requests match */
	int one_stream;       /* 0: requests on any stream match */
	int by_class;         /* 1: requests of more than bytes/2 match, too, and get a whole slot (see rounding_bytes) */
	int hard;
	uint64_t reserved[4]; /* 0 */
} cleave_reservation;

/* Makes a reservation on a device; *id (may be NULL) gets its number there, which is never used again. A soft one takes
 * what can be had without a wait of the host, perhaps nothing, and says so in its statistics. A hard one that cannot be had
 * is not made: -ENOMEM, or what the driver's refusal means; soft ones yield to it. -EINVAL: bytes or count are out of range,
 * the stream is not one that memory can wait for, or reserved[] is not 0. */
CLEAVE_API int cleave_reserve(cleave_heap *heap, int device, const cleave_reservation *reservation, uint64_t *id);

/* Ends the phase of one reservation, or of all on the device (id 0). -ENOENT: there is none of that number, or its phase has
 * ended. */
CLEAVE_API int cleave_reserve_end(cleave_heap *heap, int device, uint64_t id);

/* How a phase ended. */
#define CLEAVE_RESERVATION_LASTS 0
#define CLEAVE_RESERVATION_ENDED_BY_CALL 1
#define CLEAVE_RESERVATION_ENDED_IDLE 2
#define CLEAVE_RESERVATION_ENDED_BY_USES 3

typedef struct cleave_reservation_stats {
	uint64_t id;
	char name[CLEAVE_RESERVATION_NAME];
	/* as asked for */
	uint64_t bytes, count, after_n, uses, idle_ms;
	uint64_t stream_id; /* with one_stream */
	int one_stream, by_class, hard;

	int ended;         /* CLEAVE_RESERVATION_... */
	int refused;       /* 0, or the errno (negative) for which it got fewer slots than `count` when it was made */
	uint64_t made;     /* slots that it got then */
	uint64_t held;     /* slots held back now */
	uint64_t skipped;  /* requests that after_n let pass */
	uint64_t served;   /* requests that got a slot */
	uint64_t missed;   /* requests that found none: beyond the plan */
	uint64_t kept;     /* freed blocks that became slots */
	uint64_t yielded;  /* slots given up before a request would have waited or failed */
	uint64_t trimmed;  /* slots given up to trims */
	uint64_t unused;   /* slots that nobody ever took: held all the time, until the phase ended */
	uint64_t reserved[4];
} cleave_reservation_stats;

/* The reservations of a device, in the order in which they were made: the first `room` of them in out[] (NULL if that is 0),
 * and how many there are in *count. Of those whose phase has ended the 64 that were made last are kept when further ones
 * are made. */
CLEAVE_API int cleave_reserve_stats(cleave_heap *heap, int device, cleave_reservation_stats *out, size_t room,
				    size_t *count);

/* A sentence for people: what was reserved, what came of it, and how that differed from the plan. Returns the length as
 * snprintf does. */
CLEAVE_API int cleave_reservation_print(const cleave_reservation_stats *stats, char *buf, size_t len);

/* warn(arg, sentence) is called when a hard reservation yields for the first time, or cannot be made though a setting asks
 * for it: in the thread that allocates, with locks of the heap held, so that it must not call the heap. NULL: nobody is told. */
CLEAVE_API int cleave_reserve_on_warning(cleave_heap *heap, void (*warn)(void *arg, const char *sentence), void *arg);

#ifdef __cplusplus
}
#endif

#endif
