/* SPDX-License-Identifier: MIT */
#include "stress_internal.h"

#include "../base/clock.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool clv_stress_wrong(struct stress_round *r, unsigned thread, uint64_t op, const char *fmt, ...)
{
	pthread_mutex_lock(&r->wrong_lock);
	struct clv_stress_result *out = r->out;
	if (out->passed) {
		out->passed = false;
		out->seed = r->seed;
		out->operation = op;
		out->thread = thread;
		va_list ap;
		va_start(ap, fmt);
		vsnprintf(out->wrong, sizeof(out->wrong), fmt, ap);
		va_end(ap);
	}
	atomic_store(&r->stop, true);
	pthread_mutex_unlock(&r->wrong_lock);
	return false;
}

/* ---- the books, between phases: no thread is at work and no call fails ---- */

struct books {
	uint64_t live[CLV_STRESS_DEVICES];
	uint64_t blocks, allocs, frees, failures;
};

static void add_up(const struct stress_round *r, struct books *books)
{
	memset(books, 0, sizeof(*books));
	for (unsigned i = 0; i <= r->config->threads; i++) {
		const struct stress_worker *w = &r->workers[i];
		for (unsigned d = 0; d < CLV_STRESS_DEVICES; d++)
			books->live[d] += w->live[d];
		books->blocks += w->block_count;
		books->allocs += w->counts.allocs;
		books->frees += w->counts.frees;
		books->failures += w->counts.failures;
	}
	for (unsigned i = 0; i < STRESS_EXCHANGE; i++) {
		const struct stress_block *b = atomic_load(&r->exchange[i]);
		if (!b)
			continue;
		books->live[b->device] += clv_align_up(b->size, CLV_GRAIN);
		books->blocks++;
	}
}

static bool equal(struct stress_round *r, const char *what, uint64_t heap, uint64_t ours)
{
	return heap == ours ||
	       clv_stress_wrong(r, 0, 0, "%s: the heap says %" PRIu64 ", right is %" PRIu64, what, heap, ours);
}

static bool balance(struct stress_round *r)
{
	struct books ours;
	uint64_t blocks = 0, allocs = 0, frees = 0, failures = 0, held = 0;
	char why[512] = "";
	add_up(r, &ours);
	for (int d = 0; d < (int)r->plan.devices; d++) {
		cleave_heap_stats s;
		int answer = cleave_heap_get_stats(r->heap, d, &s);
		if (answer)
			return clv_stress_wrong(r, 0, 0, "cleave_heap_get_stats answers %d", answer);
		if (!equal(r, "live bytes", s.live_bytes, ours.live[d]) ||
		    !equal(r, "held bytes", s.held_bytes, r->device->ops->used(r->device, d)))
			return false;
		if (s.live_bytes + s.rounding_bytes + s.free_bytes != s.held_bytes)
			return clv_stress_wrong(r, 0, 0,
						"live %" PRIu64 " + rounding %" PRIu64 " + free %" PRIu64
						" are not held %" PRIu64,
						s.live_bytes, s.rounding_bytes, s.free_bytes, s.held_bytes);
		if (stress_alone(r) && s.live_peak_bytes > s.held_peak_bytes)
			return clv_stress_wrong(r, 0, 0, "at most %" PRIu64 " bytes were held, but %" PRIu64 " live",
						s.held_peak_bytes, s.live_peak_bytes);
		blocks += s.live_blocks;
		allocs += s.allocs;
		frees += s.frees;
		failures += s.failures;
		held += s.held_bytes;
		r->out->live_peak = clv_max_u64(r->out->live_peak, s.live_peak_bytes);
		r->out->held_peak = clv_max_u64(r->out->held_peak, s.held_peak_bytes);
	}
	if (!equal(r, "live blocks", blocks, ours.blocks) || !equal(r, "requests served", allocs, ours.allocs) ||
	    !equal(r, "blocks freed", frees, ours.frees) || !equal(r, "requests refused", failures, ours.failures))
		return false;
	if (cleave_heap_check(r->heap, why, sizeof(why)))
		return clv_stress_wrong(r, 0, 0, "the heap contradicts its books: %s", why);
	const char *refused = clv_fault_refused(r->fault);
	if (refused)
		return clv_stress_wrong(r, 0, 0, "the heap called %s with arguments that the driver refuses", refused);
	struct stress_worker *main_worker = &r->workers[r->config->threads];
	main_worker->counts.books++;
	main_worker->digest = clv_mix64(main_worker->digest ^ held);
	return true;
}

/* ---- phases ---- */

static void *work(void *arg)
{
	struct stress_worker *w = arg;
	for (; w->ops && !atomic_load_explicit(&w->round->stop, memory_order_relaxed); w->ops--)
		clv_stress_step(w);
	return NULL;
}

/* `ops` operations, shared out among new threads: those of the phase before have ended, with what the heap kept for
 * them. */
static bool run_threads(struct stress_round *r, uint64_t ops, struct clv_error *err)
{
	pthread_t threads[CLV_STRESS_THREADS];
	unsigned count = r->config->threads, started = 0;
	bool ok = true;
	for (unsigned i = 0; i < count && ok; i++) {
		r->workers[i].ops = ops / count + (i < ops % count);
		ok = pthread_create(&threads[i], NULL, work, &r->workers[i]) == 0;
		started += ok;
	}
	if (!ok)
		atomic_store(&r->stop, true);
	for (unsigned i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	return ok || clv_error_set(err, "%u threads could not be started", count);
}

/* false: the round is over, with something wrong or an error. */
static bool run_phase(struct stress_round *r, uint64_t ops, struct clv_error *err)
{
	struct stress_worker *w = &r->workers[r->config->threads];
	clv_stress_plan_phase(&r->phase, r->config, &w->rng);
	clv_fault_set(r->fault, &r->phase.faults);
	clv_fault_pause(r->fault, false);
	bool ok = run_threads(r, ops, err);
	clv_fault_pause(r->fault, true);
	r->out->faults += clv_fault_injected(r->fault);
	r->out->ops += ops;
	if (!ok || atomic_load(&r->stop) || !balance(r))
		return false;
	if (clv_rng_below(&w->rng, 2))
		clv_stress_settle(r);
	if (clv_rng_below(&w->rng, 4) == 0 && !clv_stress_keep_promise(w, (int)clv_rng_below(&w->rng, r->plan.devices)))
		return false;
	clv_fault_pause(r->fault, true);
	return !atomic_load(&r->stop);
}

/* ---- rounds ---- */

static bool open_round(struct stress_round *r, struct clv_error *err)
{
	const struct clv_stress_config *c = r->config;
	const struct clv_stress_device_config device = {.devices = (int)r->plan.devices,
							.capacity = c->capacity,
							.manual = r->plan.manual,
							.event_lag_ns = r->plan.event_lag_ns};
	char why[512] = "out of host memory";
	r->workers = calloc(c->threads + 1, sizeof(*r->workers));
	r->device = c->cuda ? clv_stress_cuda_open(&device, c->cuda, err) : clv_stress_sim_open(&device, err);
	if (!r->device)
		return false;
	r->driver = r->device->driver;
	if (!r->workers || !clv_stress_streams_open(r))
		return clv_error_set(err, "out of host memory");
	struct clv_driver *driver = r->fault = clv_fault_open(r->driver, NULL);
	if (driver && c->wrap)
		driver = r->wrap = c->wrap(driver, c->wrap_arg);
	if (!driver)
		return clv_error_set(err, "out of host memory");
	if (cleave_heap_open(&r->heap, driver, r->plan.settings, why, sizeof(why)))
		return clv_error_set(err, "%s", why);
	for (unsigned i = 0; i <= c->threads; i++) {
		struct stress_worker *w = &r->workers[i];
		w->round = r;
		w->number = i;
		w->rng.state = clv_mix64(r->seed * (CLV_STRESS_THREADS + 1) + i);
		if (r->driver->event_create(r->driver, &w->event, 0) != CLV_OK)
			return clv_error_set(err, "out of host memory");
	}
	return true;
}

/* The main thread takes over all blocks. */
static bool gather(struct stress_round *r)
{
	struct stress_worker *to = &r->workers[r->config->threads];
	size_t count = to->block_count + STRESS_EXCHANGE;
	for (unsigned i = 0; i < r->config->threads; i++)
		count += r->workers[i].block_count;
	struct stress_block **blocks = realloc(to->blocks, count * sizeof(struct stress_block *));
	if (!blocks)
		return false;
	to->blocks = blocks;
	to->block_room = count;
	for (unsigned i = 0; i < r->config->threads; i++) {
		struct stress_worker *from = &r->workers[i];
		for (size_t b = 0; b < from->block_count; b++)
			to->blocks[to->block_count++] = from->blocks[b];
		from->block_count = 0;
		for (unsigned d = 0; d < CLV_STRESS_DEVICES; d++) {
			to->live[d] += from->live[d];
			from->live[d] = 0;
		}
	}
	for (unsigned i = 0; i < STRESS_EXCHANGE; i++) {
		struct stress_block *b = atomic_exchange(&r->exchange[i], NULL);
		if (!b)
			continue;
		to->blocks[to->block_count++] = b;
		to->live[b->device] += clv_align_up(b->size, CLV_GRAIN);
	}
	return true;
}

/* Everything is freed and given back: then nothing is held. */
static bool empty_heap(struct stress_round *r)
{
	struct stress_worker *w = &r->workers[r->config->threads];
	clv_fault_pause(r->fault, true);
	while (w->block_count && !atomic_load(&r->stop))
		clv_stress_free_block(w, clv_rng_below(&w->rng, w->block_count));
	if (clv_rng_below(&w->rng, 2))
		for (uint32_t i = 0; i < r->stream_count; i++)
			clv_stress_destroy_stream(w, i);
	for (int d = 0; d < (int)r->plan.devices && !atomic_load(&r->stop); d++) {
		int answer = cleave_heap_trim(r->heap, d, 0, NULL);
		if (answer)
			return clv_stress_wrong(r, 0, 0, "a trim of the empty heap answers %d", answer);
		if (r->device->ops->used(r->device, d))
			return clv_stress_wrong(r, 0, 0, "all is freed and trimmed, but %" PRIu64 " bytes are held",
						r->device->ops->used(r->device, d));
	}
	return !atomic_load(&r->stop) && balance(r);
}

static void close_round(struct stress_round *r)
{
	if (r->heap && r->device)
		clv_stress_settle(r);
	cleave_heap_close(r->heap);
	for (unsigned i = 0; r->workers && i <= r->config->threads; i++) {
		struct stress_worker *w = &r->workers[i];
		struct clv_stress_counts *sum = &r->out->counts;
#define X(field, text) sum->field += w->counts.field;
		CLV_STRESS_COUNTS(X)
#undef X
		r->out->digest = clv_mix64(r->out->digest ^ w->digest);
		for (size_t b = 0; b < w->block_count; b++)
			free(w->blocks[b]);
		free(w->blocks);
		if (w->event)
			r->driver->event_destroy(r->driver, w->event);
	}
	for (unsigned i = 0; i < STRESS_EXCHANGE; i++)
		free(atomic_load(&r->exchange[i]));
	r->out->counts.written += atomic_load(&r->written);
	r->out->counts.checked += atomic_load(&r->checked);
	r->out->bytes_written += atomic_load(&r->bytes_written);
	r->out->bytes_checked += atomic_load(&r->bytes_checked);
	if (r->heap && !atomic_load(&r->stop)) {
		const char *leaks = r->device->ops->leaks(r->device);
		if (leaks)
			clv_stress_wrong(r, 0, 0, "the heap is closed, and there is still a %s of its", leaks);
	}
	clv_stress_streams_close(r);
	if (r->wrap)
		r->wrap->close(r->wrap);
	if (r->fault)
		r->fault->close(r->fault);
	if (r->device)
		r->device->ops->close(r->device);
	free(r->workers);
}

/* false: an error. */
static bool run_round(const struct clv_stress_config *config, uint64_t seed, uint64_t ops,
		      struct clv_stress_result *out, struct clv_error *err)
{
	struct stress_round *r = calloc(1, sizeof(*r));
	if (!r)
		return clv_error_set(err, "out of host memory");
	r->config = config;
	r->seed = seed;
	r->out = out;
	pthread_mutex_init(&r->limit_lock, NULL);
	pthread_mutex_init(&r->wrong_lock, NULL);
	struct clv_rng rng = {clv_mix64(seed)};
	clv_stress_plan_round(&r->plan, config, &rng);
	bool ok = open_round(r, err), going = ok;
	for (uint64_t done = 0; going && done < ops; done += STRESS_PHASE) {
		if (config->progress)
			config->progress(config->progress_arg, seed, out->ops, config->ops);
		going = run_phase(r, clv_min_u64(STRESS_PHASE, ops - done), err);
	}
	if (going && !r->plan.close_live) {
		if (!gather(r))
			atomic_store(&r->no_memory, true);
		else
			empty_heap(r);
	}
	close_round(r);
	if (atomic_load(&r->no_memory))
		clv_error_set(err, "out of host memory");
	ok = !err->text[0];
	out->rounds++;
	out->round_ops = ops;
	pthread_mutex_destroy(&r->limit_lock);
	pthread_mutex_destroy(&r->wrong_lock);
	free(r);
	return ok;
}

static double seconds(void)
{
	return 1e-9 * (double)clv_clock_ns();
}

bool clv_stress_run(const struct clv_stress_config *config, struct clv_stress_result *out, struct clv_error *err)
{
	struct clv_error mine = {{0}};
	memset(out, 0, sizeof(*out));
	out->passed = true;
	double begin = seconds();
	bool ok = true;
	for (uint64_t round = 0, done = 0; ok && out->passed && done < config->ops; round++, done += CLV_STRESS_ROUND)
		ok = run_round(config, config->seed + round, clv_min_u64(CLV_STRESS_ROUND, config->ops - done), out,
			       &mine);
	out->wall_s = seconds() - begin;
	return ok || clv_error_set(err, "%s", mine.text);
}
