/* SPDX-License-Identifier: MIT */
#include "cache.h"

#include "recent.h"

#include "../host/meta.h"

struct device_cache {
	struct clv_counts counts;
	struct clv_cache_stream streams[CLV_CACHE_STREAMS];
};

/* What one thread keeps of one heap. `devices` is filled under the lock of that device's arena. */
struct clv_cache {
	struct cleave_heap *heap;
	struct clv_cache *next;
	_Atomic(struct device_cache *) devices[];
};

/* Heaps whose caches an ending thread may still reach. */
static struct {
	pthread_mutex_t lock;
	pthread_once_t once;
	pthread_key_t key;
	bool has_key;
	uint64_t next_id;
	struct open_heap {
		struct cleave_heap *heap;
		struct open_heap *next;
	} *open;
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

#define TLS_HEAPS 4

static __thread struct {
	uint64_t heap_id;
	struct clv_cache *cache;
} mine[TLS_HEAPS];

static struct clv_cache *find_mine(const struct cleave_heap *heap)
{
	for (unsigned i = 0; i < TLS_HEAPS; i++)
		if (mine[i].heap_id == heap->id)
			return mine[i].cache;
	return NULL;
}

static struct device_cache *of_device(const struct clv_cache *cache, int device)
{
	return atomic_load_explicit(&cache->devices[device], memory_order_acquire);
}

/* With the arena's lock held. */
static bool empty_stream(struct clv_arena *a, struct clv_cache_stream *s)
{
	bool any = false;
	for (unsigned c = 0; c < CLV_CLASS_COUNT; c++)
		for (unsigned i = 0; i < CLV_CACHE_SLOTS; i++) {
			uint64_t addr = atomic_exchange_explicit(&s->bins[c].cells[i], 0, memory_order_acquire);
			if (addr) {
				clv_slab_give(a, addr);
				any = true;
			}
		}
	return any;
}

static void move_count(_Atomic int64_t *to, _Atomic int64_t *from)
{
	clv_count_add(to, clv_count(from));
	atomic_store_explicit(from, 0, memory_order_relaxed);
}

/* The thread's counts become the arena's, with its lock held. */
static void hand_in(struct clv_arena *a, struct clv_counts *own)
{
	clv_count_share(&a->counts.live, clv_count(&own->live));
	atomic_store_explicit(&own->live, 0, memory_order_relaxed);
	move_count(&a->counts.rounding, &own->rounding);
	move_count(&a->counts.allocs, &own->allocs);
	move_count(&a->counts.frees, &own->frees);
}

static void free_cache(struct clv_cache *cache)
{
	for (int d = 0; d < cache->heap->devices; d++)
		clv_meta_free(of_device(cache, d));
	clv_meta_free(cache);
}

/* An ending thread gives its slots back to heaps that are still open. */
static void thread_ends(void *unused)
{
	pthread_mutex_lock(&registry.lock);
	for (unsigned i = 0; i < TLS_HEAPS; i++) {
		struct open_heap *o = registry.open;
		while (o && (!mine[i].heap_id || o->heap->id != mine[i].heap_id))
			o = o->next;
		mine[i].heap_id = 0;
		if (!o)
			continue;
		struct cleave_heap *heap = o->heap;
		struct clv_cache *cache = mine[i].cache;
		for (int d = 0; d < heap->devices; d++) {
			struct device_cache *own = of_device(cache, d);
			if (!own)
				continue;
			struct clv_arena *a = heap->arenas[d];
			pthread_mutex_lock(&a->lock);
			for (unsigned k = 0; k < CLV_CACHE_STREAMS; k++)
				empty_stream(a, &own->streams[k]);
			hand_in(a, &own->counts);
			pthread_mutex_unlock(&a->lock);
		}
		pthread_mutex_lock(&heap->lock);
		struct clv_cache **link = &heap->caches;
		while (*link != cache)
			link = &(*link)->next;
		*link = cache->next;
		pthread_mutex_unlock(&heap->lock);
		free_cache(cache);
	}
	pthread_mutex_unlock(&registry.lock);
}

static void make_key(void)
{
	registry.has_key = pthread_key_create(&registry.key, thread_ends) == 0;
}

void clv_caches_open(struct cleave_heap *heap)
{
	pthread_once(&registry.once, make_key);
	struct open_heap *o = clv_meta_alloc(sizeof(*o));
	pthread_mutex_lock(&registry.lock);
	heap->id = ++registry.next_id;
	if (o && registry.has_key) {
		*o = (struct open_heap){heap, registry.open};
		registry.open = o;
	} else {
		/* nobody would empty a thread's cache at its end: go without */
		heap->settings.cache = false;
		clv_meta_free(o);
	}
	pthread_mutex_unlock(&registry.lock);
}

void clv_caches_close(struct cleave_heap *heap)
{
	pthread_mutex_lock(&registry.lock);
	for (struct open_heap **link = &registry.open; *link; link = &(*link)->next)
		if ((*link)->heap == heap) {
			struct open_heap *o = *link;
			*link = o->next;
			clv_meta_free(o);
			break;
		}
	while (heap->caches) {
		struct clv_cache *cache = heap->caches;
		heap->caches = cache->next;
		free_cache(cache);
	}
	pthread_mutex_unlock(&registry.lock);
}

struct clv_cache_stream *clv_cache_find(struct clv_arena *a, uint64_t stream_id)
{
	struct clv_cache *cache = find_mine(a->heap);
	struct device_cache *own = cache ? of_device(cache, a->device) : NULL;
	if (!own)
		return NULL;
	struct clv_cache_stream *s = own->streams;
	uint64_t epoch = atomic_load_explicit(&a->epoch, memory_order_acquire);
	for (unsigned i = 0; i < CLV_CACHE_STREAMS; i++)
		if (s[i].used && s[i].stream_id == stream_id)
			return s[i].epoch == epoch ? &s[i] : NULL;
	return NULL;
}

struct clv_counts *clv_cache_counts(const struct clv_arena *a)
{
	struct clv_cache *cache = find_mine(a->heap);
	struct device_cache *own = cache ? of_device(cache, a->device) : NULL;
	return own ? &own->counts : NULL;
}

static void make_mine(struct cleave_heap *heap)
{
	struct clv_cache *cache = clv_meta_zalloc(sizeof(*cache) + (size_t)heap->devices * sizeof(cache->devices[0]));
	if (!cache)
		return;
	cache->heap = heap;
	unsigned i = 0;
	for (unsigned k = 0; k < TLS_HEAPS; k++) /* a place of no heap, or of one that is closed */
		if (!mine[k].heap_id) {
			i = k;
			break;
		}
	if (mine[i].heap_id) {
		bool taken = true;
		pthread_mutex_lock(&registry.lock);
		for (unsigned k = 0; k < TLS_HEAPS && taken; k++) {
			taken = false;
			for (struct open_heap *o = registry.open; o && !taken; o = o->next)
				taken = o->heap->id == mine[k].heap_id;
			i = k;
		}
		pthread_mutex_unlock(&registry.lock);
		if (taken) { /* a thread with more open heaps than places goes without in the others */
			clv_meta_free(cache);
			return;
		}
	}
	if (pthread_setspecific(registry.key, mine) != 0) {
		clv_meta_free(cache);
		return;
	}
	mine[i].heap_id = heap->id;
	mine[i].cache = cache;
	pthread_mutex_lock(&heap->lock);
	cache->next = heap->caches;
	heap->caches = cache;
	pthread_mutex_unlock(&heap->lock);
}

void clv_cache_prepare(struct cleave_heap *heap)
{
	if (heap->settings.cache && !find_mine(heap))
		make_mine(heap);
}

struct clv_cache_stream *clv_cache_make(struct clv_arena *a, const struct clv_slot *slot)
{
	struct clv_cache *cache = find_mine(a->heap);
	if (!cache)
		return NULL;
	struct device_cache *own = of_device(cache, a->device);
	if (!own) {
		own = clv_meta_zalloc(sizeof(*own));
		if (!own)
			return NULL;
		atomic_store_explicit(&cache->devices[a->device], own, memory_order_release);
	}
	struct clv_cache_stream *s = own->streams;
	static __thread uint64_t clock;
	struct clv_cache_stream *pick = &s[0];
	for (unsigned i = 0; i < CLV_CACHE_STREAMS; i++) {
		if (s[i].used && s[i].stream_id == slot->stream.id) {
			pick = &s[i];
			break;
		}
		if (s[i].last_use < pick->last_use)
			pick = &s[i];
	}
	empty_stream(a, pick); /* it was another stream's, or is out of date */
	pick->counts = &own->counts;
	pick->used = true;
	pick->stream_id = slot->stream.id;
	pick->slot = slot->index;
	pick->epoch = atomic_load_explicit(&a->epoch, memory_order_relaxed);
	pick->last_use = ++clock;
	for (unsigned c = 0; c < CLV_CLASS_COUNT; c++) {
		pick->bins[c].count = 0;
		pick->bins[c].room = (uint32_t)clv_min_u64(CLV_CACHE_SLOTS, 2 + 64 * CLV_KIB / clv_class_size(c));
	}
	return pick;
}

bool clv_caches_flush(struct clv_arena *a)
{
	bool any = false;
	pthread_mutex_lock(&a->heap->lock);
	for (struct clv_cache *cache = a->heap->caches; cache; cache = cache->next) {
		struct device_cache *own = of_device(cache, a->device);
		for (unsigned i = 0; own && i < CLV_CACHE_STREAMS; i++)
			any |= empty_stream(a, &own->streams[i]);
	}
	pthread_mutex_unlock(&a->heap->lock);
	any |= clv_recent_flush(a);
	return clv_slabs_shrink(a) || any;
}

uint64_t clv_caches_bytes(struct clv_arena *a)
{
	uint64_t bytes = 0;
	pthread_mutex_lock(&a->heap->lock);
	for (struct clv_cache *cache = a->heap->caches; cache; cache = cache->next) {
		const struct device_cache *own = of_device(cache, a->device);
		for (unsigned i = 0; own && i < CLV_CACHE_STREAMS; i++)
			for (unsigned c = 0; c < CLV_CLASS_COUNT; c++)
				for (unsigned k = 0; k < CLV_CACHE_SLOTS; k++)
					if (atomic_load_explicit(&own->streams[i].bins[c].cells[k], memory_order_relaxed))
						bytes += clv_class_size(c);
	}
	pthread_mutex_unlock(&a->heap->lock);
	return bytes;
}

struct clv_counts_sum clv_caches_sum(struct clv_arena *a)
{
	const struct clv_counts *c = &a->counts;
	int64_t live = clv_count(&c->live), rounding = clv_count(&c->rounding);
	int64_t allocs = clv_count(&c->allocs), frees = clv_count(&c->frees);
	uint64_t threads = 0;
	pthread_mutex_lock(&a->heap->lock);
	for (const struct clv_cache *cache = a->heap->caches; cache; cache = cache->next) {
		const struct device_cache *own = of_device(cache, a->device);
		if (!own)
			continue;
		threads++;
		live += clv_count(&own->counts.live);
		rounding += clv_count(&own->counts.rounding);
		allocs += clv_count(&own->counts.allocs);
		frees += clv_count(&own->counts.frees);
	}
	pthread_mutex_unlock(&a->heap->lock);
	return (struct clv_counts_sum){
		.live = live > 0 ? (uint64_t)live : 0,
		.rounding = rounding > 0 ? (uint64_t)rounding : 0,
		.small_allocs = (uint64_t)allocs,
		.small_frees = (uint64_t)frees,
		.threads = threads,
	};
}
