/* SPDX-License-Identifier: MIT
 *
 * `lock` guards everything here but `gone`, `clv_graphs_news` and the filter, which are atomic. No function of the heap
 * is called under it: the heap asks mark() and passed() with its own lock held.
 */
#include "graphs.h"

#include "../base/clock.h"
#include "../host/meta.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define BRANCHES_MAX 0xffffu
#define BUCKETS_MIN 256u
#define FILTER_SIZE 8192u
#define GUESSES 16384u

/* A capture that uses memory of graph streams, and what comes of it: it is here until its graph, the copies of that and
 * all their executables are gone, and their launches done. */
struct capture {
	uint64_t id, number; /* the driver's, and ours, which grows */
	uint64_t devices;    /* whose graph streams it uses, a bit each */
	_Atomic bool gone;
	uint64_t *streams; /* ids of its streams; each one's index here is that of its branch */
	unsigned stream_count;
	uint64_t pattern; /* of the requests and frees so far */
	struct block *blocks;
	struct capture *older, *newer;
};

/* A block of a graph stream, until it is the heap's affair alone. */
struct block {
	CUdeviceptr ptr;
	int device;
	struct capture *capture; /* that it was allocated in; NULL: gone */
	uint64_t mark;           /* graphs up to this number may use its memory, and its own */
	uint64_t pattern;        /* when it was asked for */
	/* The program has freed it, but the graph may still be launched. */
	bool freed, ordered; /* freed in the order of a stream; of none */
	uint64_t launches;   /* how many there had been */
	clv_event event;     /* after the work of that stream, if `recorded` */
	bool recorded;
	uint64_t stream_id;
	cleave_stream order; /* in which it goes back to the heap */
	struct block *hash_next;
	struct block *next, **link; /* in capture->blocks or `orphans` */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	uint64_t number;                 /* of the newest capture */
	struct capture *oldest, *newest; /* by number */
	struct block **buckets;          /* of blocks, by address */
	size_t bucket_count, block_count;
	struct block *orphans;                /* whose capture is gone */
	unsigned branches[CLV_GRAPH_DEVICES]; /* graph streams in use */
} books;

/* Nearly every pointer that is freed is of no graph, and this says so without the lock: how many blocks have the hash. */
static _Atomic uint16_t filter[FILTER_SIZE];

/* What became of requests in captures, by what had been asked for and freed in them before: freed in it, or not. */
static bool outlives[GUESSES];

_Atomic bool clv_graphs_news;

static _Atomic(uint16_t) *filter_of(CUdeviceptr ptr)
{
	return &filter[clv_mix64(ptr) % FILTER_SIZE];
}

/* ---- graph streams ---- */

#define DEVICE_SHIFT 16 /* of ids, below it the branch */
#define NUMBER_SHIFT 22
#define NUMBER_MASK (((uint64_t)1 << 40) - 1)

/* Of what outlives its capture, or is freed in another. */
static cleave_stream lasting_stream(int device, unsigned branch)
{
	return (cleave_stream){CLV_STREAM_VIRTUAL | (uint64_t)device << DEVICE_SHIFT | branch, 0};
}

/* Of what is freed in the capture of this number. */
static cleave_stream passing_stream(uint64_t number, int device, unsigned branch)
{
	uint64_t id = CLV_STREAM_VIRTUAL | CLV_STREAM_APART | (number & NUMBER_MASK) << NUMBER_SHIFT;
	return (cleave_stream){id | (uint64_t)device << DEVICE_SHIFT | branch, 0};
}

/* Of the frames that captures are folded onto. */
static cleave_stream shared_stream(int device)
{
	return passing_stream(0, device, 0);
}

static uint64_t mark(void *arg, uint64_t stream)
{
	(void)arg, (void)stream;
	pthread_mutex_lock(&lock);
	uint64_t now = books.number;
	pthread_mutex_unlock(&lock);
	return now;
}

static bool passed_locked(int device, uint64_t upto)
{
	for (const struct capture *c = books.oldest; c && c->number <= upto; c = c->newer)
		if ((c->devices >> device & 1) && !atomic_load_explicit(&c->gone, memory_order_acquire))
			return false;
	return true;
}

static bool passed(void *arg, uint64_t stream, uint64_t upto)
{
	(void)arg;
	int device = (int)(stream >> DEVICE_SHIFT & (CLV_GRAPH_DEVICES - 1));
	uint64_t number = stream >> NUMBER_SHIFT & NUMBER_MASK;
	pthread_mutex_lock(&lock);
	bool yes;
	if (!clv_stream_is_apart(stream)) {
		yes = passed_locked(device, upto);
	} else if (!number) {
		yes = passed_locked(device, UINT64_MAX);
	} else {
		const struct capture *c = books.newest;
		while (c && c->number > number)
			c = c->older;
		yes = !c || c->number != number || atomic_load_explicit(&c->gone, memory_order_acquire);
	}
	pthread_mutex_unlock(&lock);
	return yes;
}

void clv_graphs_open(struct clv_driver *cuda)
{
	clv_cuda_set_virtual(cuda, &(struct clv_cuda_virtual){mark, passed, NULL});
}

/* ---- captures ---- */

struct clv_capture_info clv_capture_info(const struct clv_cuda_stream *s)
{
	const struct clv_cuda_api *real = clv_real();
	struct clv_capture_info i = {.status = CU_STREAM_CAPTURE_STATUS_NONE};
	CUstream handle = (CUstream)(uintptr_t)s->stream.handle;
	CUresult r = CUDA_ERROR_NOT_INITIALIZED;
	if (real->cuStreamGetCaptureInfo_v3)
		r = real->cuStreamGetCaptureInfo_v3(handle, &i.status, &i.id, &i.graph, NULL, NULL, NULL);
	else if (real->cuStreamGetCaptureInfo_v2)
		r = real->cuStreamGetCaptureInfo_v2(handle, &i.status, &i.id, &i.graph, NULL, NULL);
	if (r != CUDA_SUCCESS) /* the legacy default stream, while another captures, for one */
		i.status = CU_STREAM_CAPTURE_STATUS_NONE;
	return i;
}

static _Atomic unsigned graphs_gone; /* so far */

/* On a thread of the driver, or in the middle of a call of the program. */
static void graph_gone(void *capture)
{
	struct capture *c = capture;
	atomic_fetch_add_explicit(&graphs_gone, 1, memory_order_relaxed);
	atomic_store_explicit(&c->gone, true, memory_order_release);
	/* from here on it may have been freed */
	atomic_store_explicit(&clv_graphs_news, true, memory_order_release);
}

static struct capture *find_capture(cuuint64_t id)
{
	struct capture *c = books.newest;
	while (c && c->id != id)
		c = c->older;
	return c;
}

/* The driver tells when the graph is gone, or NULL. */
static struct capture *new_capture(const struct clv_capture_info *i, uint64_t devices)
{
	const struct clv_cuda_api *real = clv_real();
	struct capture *c = clv_meta_zalloc(sizeof(*c));
	CUgraph root = clv_handle_root(i->graph);
	CUuserObject object;
	if (!c || !real->cuUserObjectCreate || !real->cuGraphRetainUserObject || !clv_handle_mark(i->graph, devices) ||
	    real->cuUserObjectCreate(&object, c, graph_gone, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) != CUDA_SUCCESS) {
		clv_meta_free(c);
		return NULL;
	}
	c->id = i->id;
	c->number = ++books.number;
	c->older = books.newest;
	*(c->older ? &c->older->newer : &books.oldest) = c;
	books.newest = c;
	if (real->cuGraphRetainUserObject(root, object, 1, CU_GRAPH_USER_OBJECT_MOVE) == CUDA_SUCCESS) {
		clv_objects_given(root, object);
		return c;
	}
	c->id = UINT64_MAX;
	if (real->cuUserObjectRelease)
		real->cuUserObjectRelease(object, 1); /* calls back, and so ends the capture */
	return NULL;
}

/* Captures that follow one another do much the same. A wrong guess costs memory: what outlives its capture beside what does
 * not keeps a frame from being folded, and what does not outlive it elsewhere is not shared. */
static bool *guess_of(uint64_t pattern)
{
	return &outlives[pattern % GUESSES];
}

static void goes_on(struct capture *c, uint64_t what)
{
	c->pattern = clv_mix64(c->pattern ^ what);
}

static void unlink_capture(struct capture *c)
{
	*(c->older ? &c->older->newer : &books.oldest) = c->newer;
	*(c->newer ? &c->newer->older : &books.newest) = c->older;
}

/* The memory that only it has used is free, and so are frames that it was the last to be folded onto. */
static void end_capture(const struct clv_process *p, struct capture *c)
{
	for (int d = -1; (d = clv_next_device(c->devices, d + 1)) >= 0;) {
		for (unsigned k = 0; k < c->stream_count; k++)
			cleave_stream_destroyed(p->heap, d, passing_stream(c->number, d, k));
		clv_heap_unfold(p->heap, d, shared_stream(d));
	}
	clv_meta_free(c->streams);
	clv_meta_free(c);
}

void clv_graphs_captured(const struct clv_process *p, uint64_t id)
{
	pthread_mutex_lock(&lock);
	struct capture *c = find_capture(id);
	uint64_t devices = c ? c->devices : 0, number = c ? c->number : 0;
	unsigned count = c ? c->stream_count : 0;
	for (const struct block *b = c ? c->blocks : NULL; b; b = b->next)
		*guess_of(b->pattern) = true;
	pthread_mutex_unlock(&lock);
	cleave_stream *streams = count ? clv_meta_alloc(count * sizeof(*streams)) : NULL;
	if (!streams)
		return;
	for (int d = -1; (d = clv_next_device(devices, d + 1)) >= 0;) {
		for (unsigned k = 0; k < count; k++)
			streams[k] = passing_stream(number, d, k);
		clv_heap_fold(p->heap, d, streams, count, shared_stream(d));
	}
	clv_meta_free(streams);
}

/* The index of the stream in its capture. */
static bool branch_of(struct capture *c, uint64_t stream_id, unsigned *branch)
{
	for (*branch = 0; *branch < c->stream_count; ++*branch)
		if (c->streams[*branch] == stream_id)
			return true;
	uint64_t *grown = NULL;
	if (*branch < BRANCHES_MAX)
		grown = clv_meta_realloc(c->streams, (c->stream_count + 1) * sizeof(*grown));
	if (!grown)
		return false;
	c->streams = grown;
	c->streams[c->stream_count++] = stream_id;
	return true;
}

/* The capture that a stream is in, and its branch there, for memory of a device; with the lock held. NULL: what it needs is
 * not to be had. */
static struct capture *capture_of(int device, const struct clv_cuda_stream *s, const struct clv_capture_info *i,
				  unsigned *branch)
{
	if (device < 0 || device >= CLV_GRAPH_DEVICES)
		return NULL;
	uint64_t bit = (uint64_t)1 << device;
	struct capture *c = find_capture(i->id);
	if (!c)
		c = new_capture(i, bit);
	if (!c || (!(c->devices & bit) && !clv_handle_mark(i->graph, bit)) || !branch_of(c, s->stream.id, branch))
		return NULL;
	c->devices |= bit;
	if (books.branches[device] <= *branch)
		books.branches[device] = *branch + 1;
	return c;
}

/* ---- blocks ---- */

static struct block **bucket_of(CUdeviceptr ptr)
{
	return &books.buckets[clv_mix64(ptr) & (books.bucket_count - 1)];
}

static struct block *find_block(CUdeviceptr ptr)
{
	struct block *b = books.buckets ? *bucket_of(ptr) : NULL;
	while (b && b->ptr != ptr)
		b = b->hash_next;
	return b;
}

static void link_block(struct block **head, struct block *b)
{
	b->next = *head;
	b->link = head;
	if (b->next)
		b->next->link = &b->next;
	*head = b;
}

static void unlink_block(struct block *b)
{
	*b->link = b->next;
	if (b->next)
		b->next->link = b->link;
}

static bool room_for_block(void)
{
	if (books.block_count < books.bucket_count)
		return true;
	size_t room = books.bucket_count ? books.bucket_count * 2 : BUCKETS_MIN;
	struct block **old = books.buckets, **grown = clv_meta_zalloc(room * sizeof(struct block *));
	size_t before = books.bucket_count;
	if (!grown)
		return old != NULL; /* longer chains are slower, not wrong */
	books.buckets = grown;
	books.bucket_count = room;
	for (size_t i = 0; i < before; i++)
		for (struct block *b = old[i], *next; b; b = next) {
			next = b->hash_next;
			struct block **bucket = bucket_of(b->ptr);
			b->hash_next = *bucket;
			*bucket = b;
		}
	clv_meta_free(old);
	return true;
}

static void add_block(struct block *b)
{
	struct block **bucket = bucket_of(b->ptr);
	b->hash_next = *bucket;
	*bucket = b;
	books.block_count++;
	link_block(b->capture ? &b->capture->blocks : &books.orphans, b);
	atomic_fetch_add_explicit(filter_of(b->ptr), 1, memory_order_release);
}

/* Out of the books, before the heap can give its address to another. */
static void remove_block(struct block *b)
{
	struct block **link = bucket_of(b->ptr);
	while (*link != b)
		link = &(*link)->hash_next;
	*link = b->hash_next;
	books.block_count--;
	unlink_block(b);
	atomic_fetch_sub_explicit(filter_of(b->ptr), 1, memory_order_relaxed);
}

/* A block that is out of the books goes back to the heap. */
static int give_back(const struct clv_process *p, struct block *b, cleave_stream order)
{
	CUdeviceptr ptr = b->ptr;
	if (b->event)
		p->driver->event_destroy(p->driver, b->event);
	clv_meta_free(b);
	return cleave_free(p->heap, ptr, order);
}

/* ---- requests ---- */

enum clv_graphs_take clv_graphs_alloc(const struct clv_process *p, const struct clv_cuda_stream *s, size_t size,
				      CUdeviceptr *out, CUresult *result)
{
	clv_graphs_settle(p);
	if (CLV_LIKELY(!clv_cuda_captures(p->driver)))
		return CLV_GRAPHS_NOT;
	struct clv_capture_info now = clv_capture_info(s);
	if (now.status == CU_STREAM_CAPTURE_STATUS_NONE)
		return CLV_GRAPHS_NOT;
	if (now.status != CU_STREAM_CAPTURE_STATUS_ACTIVE || !p->settings.graphs)
		return CLV_GRAPHS_DRIVERS;
	struct block *b = clv_meta_zalloc(sizeof(*b));
	unsigned branch;
	pthread_mutex_lock(&lock);
	struct capture *c = b && room_for_block() ? capture_of(s->device, s, &now, &branch) : NULL;
	if (!c) {
		pthread_mutex_unlock(&lock);
		clv_meta_free(b);
		return CLV_GRAPHS_DRIVERS;
	}
	b->pattern = c->pattern;
	goes_on(c, 1);
	bool lasts = *guess_of(b->pattern);
	cleave_stream passing = passing_stream(c->number, s->device, branch),
		      lasting = lasting_stream(s->device, branch);
	pthread_mutex_unlock(&lock);
	cleave_ptr ptr;
	int why = cleave_alloc(p->heap, s->device, lasts ? lasting : passing, size, &ptr);
	if (why == -ENOMEM && !lasts) { /* memory beside that of others will do */
		lasts = true;
		why = cleave_alloc(p->heap, s->device, lasting, size, &ptr);
	}
	if (why == -ENOMEM && clv_graphs_reclaim(p))
		why = cleave_alloc(p->heap, s->device, lasting, size, &ptr);
	if (why) {
		clv_meta_free(b);
		if (why != -ENOMEM && why != -ENOSPC)
			return CLV_GRAPHS_DRIVERS;
		clv_report_failure(p, s->device);
		*result = CUDA_ERROR_OUT_OF_MEMORY;
		return CLV_GRAPHS_SERVED;
	}
	pthread_mutex_lock(&lock);
	b->ptr = ptr;
	b->device = s->device;
	b->capture = find_capture(now.id);
	b->mark = lasts ? books.number : 0;
	add_block(b);
	pthread_mutex_unlock(&lock);
	*out = ptr;
	*result = CUDA_SUCCESS;
	return CLV_GRAPHS_SERVED;
}

/* ---- frees ---- */

/* Once the work of the stream is done nothing of the program uses the block, only launches of the graph may. */
static void note_free(const struct clv_process *p, struct block *b, const struct clv_cuda_stream *s)
{
	struct clv_driver *d = p->driver;
	b->freed = true;
	b->launches = clv_graphs_launches();
	b->ordered = s != NULL;
	b->stream_id = s ? s->stream.id : 0;
	b->recorded = s && (b->event || d->event_create(d, &b->event, b->device) == CLV_OK) &&
		      d->event_record(d, b->event, s->stream) == CLV_OK;
}

/* With the lock held, which is given up. */
static int free_in_capture(const struct clv_process *p, struct block *b, const struct clv_cuda_stream *s,
			   const struct clv_capture_info *now)
{
	int why = 0;
	unsigned branch;
	struct capture *c = b->freed ? NULL : capture_of(b->device, s, now, &branch);
	if (b->freed) {
		why = -EINVAL;
	} else if (c) {
		bool own = b->capture == c;
		cleave_stream order =
			own ? passing_stream(c->number, b->device, branch) : lasting_stream(b->device, branch);
		if (own) {
			*guess_of(b->pattern) = false;
			goes_on(c, b->pattern);
		}
		remove_block(b);
		pthread_mutex_unlock(&lock);
		return give_back(p, b, order);
	} else {
		note_free(p, b, NULL); /* nobody has it before the graph is gone */
	}
	pthread_mutex_unlock(&lock);
	return why;
}

/* The same. */
static int free_outside(const struct clv_process *p, struct block *b, const struct clv_cuda_stream *s)
{
	int why = 0;
	if (b->freed && (!b->capture || b->launches == clv_graphs_launches())) {
		why = -EINVAL;
	} else if (!b->freed && !b->capture && passed_locked(b->device, b->mark)) {
		remove_block(b);
		pthread_mutex_unlock(&lock);
		return give_back(p, b, s ? s->stream : CLEAVE_STREAM_ANY);
	} else {
		/* a launch allocates it anew, so that it may be freed again */
		note_free(p, b, s);
		if (!b->capture)
			atomic_store_explicit(&clv_graphs_news, true, memory_order_relaxed);
	}
	pthread_mutex_unlock(&lock);
	return why;
}

/* The driver frees in a capture what a capture allocated, and nothing else. */
static bool refused(const struct clv_process *p, const struct clv_capture_info *now, CUdeviceptr ptr, CUresult *result)
{
	cleave_ptr start;
	if (now->status != CU_STREAM_CAPTURE_STATUS_ACTIVE || cleave_block_info(p->heap, ptr, &start, NULL, NULL) ||
	    start != ptr)
		return false;
	*result = CUDA_ERROR_INVALID_VALUE;
	return true;
}

bool clv_graphs_free(const struct clv_process *p, const struct clv_cuda_stream *s, CUdeviceptr ptr, CUresult *result)
{
	clv_graphs_settle(p);
	bool maybe = atomic_load_explicit(filter_of(ptr), memory_order_acquire) != 0;
	struct clv_capture_info now = {.status = CU_STREAM_CAPTURE_STATUS_NONE};
	if (s && CLV_UNLIKELY(clv_cuda_captures(p->driver)))
		now = clv_capture_info(s);
	bool captures = now.status != CU_STREAM_CAPTURE_STATUS_NONE;
	if (CLV_LIKELY(!maybe && !captures))
		return false;
	pthread_mutex_lock(&lock);
	struct block *b = maybe ? find_block(ptr) : NULL;
	if (!b) {
		pthread_mutex_unlock(&lock);
		return refused(p, &now, ptr, result);
	}
	int why = captures ? free_in_capture(p, b, s, &now) : free_outside(p, b, s);
	*result = !why ? CUDA_SUCCESS : why == -EINVAL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_UNKNOWN;
	return true;
}

/* ---- what the driver told ---- */

/* In which order a block may go back that the program has freed and whose graph is gone. With ANY the heap keeps it in that
 * of its graph stream as long as older graphs may use it. False: not yet. */
static bool can_go(const struct clv_process *p, struct block *b)
{
	struct clv_driver *d = p->driver;
	struct clv_cuda_stream s;
	b->order = CLEAVE_STREAM_ANY;
	if (!b->ordered || (b->recorded && d->event_query(d, b->event) == CLV_OK))
		return true;
	if (passed_locked(b->device, b->mark) && clv_cuda_stream_known(d, b->stream_id, &s)) {
		b->order = s.stream;
		return true;
	}
	return false;
}

static bool wait_for(const struct clv_process *p, const struct block *b)
{
	struct clv_driver *d = p->driver;
	return b->recorded ? d->event_synchronize(d, b->event) == CLV_OK
			   : clv_cuda_synchronize(d, b->device, NULL) == CLV_OK;
}

/* Waits without the lock, since the work may need what other threads do. The blocks have been freed, and are in no list that
 * others know; but they are in the table, so that a second free is refused. */
static bool give_back_awaited(const struct clv_process *p, struct block **awaited)
{
	bool any = false;
	for (struct block *b; (b = *awaited);) {
		bool done = wait_for(p, b);
		pthread_mutex_lock(&lock);
		if (done) {
			remove_block(b);
		} else {
			unlink_block(b);
			link_block(&books.orphans, b);
		}
		pthread_mutex_unlock(&lock);
		if (done)
			give_back(p, b, CLEAVE_STREAM_ANY);
		any |= done;
	}
	return any;
}

static void orphan_blocks(struct capture *c)
{
	for (struct block *b; (b = c->blocks);) {
		unlink_block(b);
		b->capture = NULL;
		link_block(&books.orphans, b);
	}
}

/* When a graph or an executable was last destroyed, for the thread that wants to know whether a call of the driver's about it
 * may still be under way. */
#define CALLBACKS_NS (100 * 1000 * 1000)
static _Atomic uint64_t ended_ns;

void clv_graphs_ended(void)
{
	atomic_store_explicit(&ended_ns, clv_clock_ns(), memory_order_relaxed);
}

static bool ended_lately(void)
{
	uint64_t then = atomic_load_explicit(&ended_ns, memory_order_relaxed);
	return then && clv_clock_ns() - then < CALLBACKS_NS;
}

/* The driver calls back from a thread of its own, soon: until no more comes for a while. */
static void wait_for_callbacks(void)
{
	unsigned before = atomic_load_explicit(&graphs_gone, memory_order_relaxed), now;
	for (unsigned i = 0, end = 200; i < end; i++, before = now) {
		nanosleep(&(struct timespec){.tv_nsec = 250000}, NULL);
		now = atomic_load_explicit(&graphs_gone, memory_order_relaxed);
		if (now != before)
			end = i + 40 < 800 ? i + 40 : 800;
	}
}

static bool settle_counted(const struct clv_process *p, bool wait)
{
	struct block *out = NULL, *awaited = NULL;
	struct capture *ended = NULL;
	unsigned branches[CLV_GRAPH_DEVICES] = {0};
	bool any = false;
	atomic_store_explicit(&clv_graphs_news, false, memory_order_seq_cst);
	bool released = clv_objects_settle(p, wait);
	if (wait && (released || ended_lately()))
		wait_for_callbacks();
	pthread_mutex_lock(&lock);
	for (struct capture *c = books.oldest, *newer; c; c = newer) {
		newer = c->newer;
		if (!atomic_load_explicit(&c->gone, memory_order_acquire))
			continue;
		orphan_blocks(c);
		unlink_capture(c);
		c->older = ended;
		ended = c;
	}
	for (struct block *b = books.orphans, *next; b; b = next) {
		next = b->next;
		/* without graphs, a block that the program has is like any other */
		bool plain = !b->freed && !books.oldest;
		if (!plain && !(b->freed && can_go(p, b))) {
			if (b->freed && wait) {
				unlink_block(b);
				link_block(&awaited, b);
			}
			continue;
		}
		remove_block(b);
		if (plain) {
			clv_meta_free(b);
		} else {
			b->next = out;
			out = b;
		}
	}
	for (int d = 0; d < CLV_GRAPH_DEVICES && !books.oldest; d++) {
		branches[d] = books.branches[d];
		books.branches[d] = 0;
	}
	pthread_mutex_unlock(&lock);
	for (struct capture *c; (c = ended); any = true) {
		ended = c->older;
		end_capture(p, c);
	}
	for (struct block *b; (b = out); any = true) {
		out = b->next;
		give_back(p, b, b->order);
	}
	any |= give_back_awaited(p, &awaited);
	/* If a capture has begun meanwhile the heap is told that it cannot be, and all stays in its order. */
	for (int d = 0; d < CLV_GRAPH_DEVICES; d++) {
		for (unsigned k = 0; k < branches[d]; k++)
			cleave_stream_destroyed(p->heap, d, lasting_stream(d, k));
		if (branches[d])
			cleave_stream_destroyed(p->heap, d, shared_stream(d));
	}
	return any;
}

/* Threads that settle: what one of them has taken from the books, and not given back yet, the others do not find. */
static _Atomic unsigned settling;

/* Events are asked here without a lock that a capture has to take before it begins: one that begins meanwhile would be broken
 * by that. */
static bool settle(const struct clv_process *p, bool wait)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool relaxed = CLV_PASS(cuThreadExchangeStreamCaptureMode, &mode) == CUDA_SUCCESS;
	atomic_fetch_add(&settling, 1);
	bool any = settle_counted(p, wait);
	atomic_fetch_sub(&settling, 1);
	if (relaxed)
		CLV_PASS(cuThreadExchangeStreamCaptureMode, &mode);
	return any;
}

/* For a while at most, since they may wait themselves. True if there were any. */
static bool wait_for_others(void)
{
	bool any = false;
	for (int i = 0; i < 200 && atomic_load(&settling); i++) {
		any = true;
		nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	}
	return any;
}

void clv_graphs_settle_now(const struct clv_process *p)
{
	settle(p, false);
}

/* The driver keeps what graphs with memory nodes of its own had, and gives it to graphs alone. True if there was any. */
static bool trim_driver(const struct clv_process *p)
{
	const struct clv_cuda_api *real = clv_real();
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool any = false;
	if (!real->cuDeviceGraphMemTrim || clv_cuda_captures(p->driver) ||
	    real->cuThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS)
		return false;
	for (int d = 0; d < p->driver->devices; d++) {
		uint64_t before, after, total;
		if (p->driver->mem_get_info(p->driver, d, &before, &total) == CLV_OK &&
		    real->cuDeviceGraphMemTrim(d) == CUDA_SUCCESS &&
		    p->driver->mem_get_info(p->driver, d, &after, &total) == CLV_OK)
			any |= after > before;
	}
	real->cuThreadExchangeStreamCaptureMode(&mode);
	return any;
}

bool clv_graphs_reclaim(const struct clv_process *p)
{
	bool lately = ended_lately(), settled = settle(p, true);
	if (wait_for_others())
		settled |= settle(p, true);
	return trim_driver(p) || settled || lately;
}

void clv_graphs_stream_ends(const struct clv_process *p, const struct clv_cuda_stream *s)
{
	clv_captures_stream_ends(p, s);
	clv_launches_off(p, s);
}
