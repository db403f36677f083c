/* SPDX-License-Identifier: MIT */
#include "device.h"

#include <stdatomic.h>
#include <stdlib.h>

struct sim_device {
	struct clv_stress_device base;
	_Atomic uint64_t next_stream;
};

/* What the simulation calls back with. */
struct launched {
	struct clv_driver *sim;
	struct clv_stress_work *work;
};

static bool new_stream(struct clv_stress_device *self, int device, uint32_t index, cleave_stream *out)
{
	struct sim_device *d = CLV_CONTAINER_OF(self, struct sim_device, base);
	*out = (cleave_stream){.id = atomic_fetch_add(&d->next_stream, 1) + 1, .handle = 0x1000 + index};
	return true;
}

static void end_stream(struct clv_stress_device *self, cleave_stream stream)
{
}

static void happen(struct clv_driver *sim, struct clv_stress_work *work)
{
	enum clv_pattern_verdict verdict = CLV_PATTERN_GOOD;
	struct clv_pattern_wrong wrong = {0};
	if (!atomic_load_explicit(work->stop, memory_order_relaxed)) {
		if (!work->write)
			verdict = clv_pattern_check(sim, work->addr, &work->stamp, work->full, &wrong);
		else if (!clv_pattern_write(sim, work->addr, &work->stamp, work->full))
			verdict = CLV_PATTERN_UNMAPPED;
	}
	work->happened(work, verdict, &wrong);
}

static void run(void *arg)
{
	struct launched k = *(struct launched *)arg;
	free(arg);
	happen(k.sim, k.work);
}

static bool launch(struct clv_stress_device *self, cleave_stream stream, uint64_t ns, struct clv_stress_work *work)
{
	struct launched *k = malloc(sizeof(*k));
	if (!k)
		return false;
	*k = (struct launched){self->driver, work};
	if (clv_sim_launch(self->driver, stream, ns, run, k) == CLV_OK)
		return true;
	free(k);
	return false;
}

static bool touch(struct clv_stress_device *self, struct clv_stress_work *work)
{
	happen(self->driver, work);
	return true;
}

static void complete(struct clv_stress_device *self, cleave_stream stream)
{
	clv_sim_complete(self->driver, stream);
}

static void pass_time(struct clv_stress_device *self, uint64_t ns)
{
	clv_sim_advance(self->driver, ns);
}

static uint64_t used(struct clv_stress_device *self, int device)
{
	return clv_sim_used(self->driver, device);
}

static void set_foreign(struct clv_stress_device *self, int device, uint64_t bytes)
{
	clv_sim_set_foreign(self->driver, device, bytes);
}

static const char *leaks(struct clv_stress_device *self)
{
	return clv_sim_leaks(self->driver);
}

static void close_sim(struct clv_stress_device *self)
{
	self->driver->close(self->driver);
	free(CLV_CONTAINER_OF(self, struct sim_device, base));
}

struct clv_stress_device *clv_stress_sim_open(const struct clv_stress_device_config *config, struct clv_error *err)
{
	static const struct clv_stress_device_ops ops = {
		.new_stream = new_stream,
		.end_stream = end_stream,
		.launch = launch,
		.touch = touch,
		.complete = complete,
		.pass_time = pass_time,
		.used = used,
		.set_foreign = set_foreign,
		.leaks = leaks,
		.close = close_sim,
	};
	struct sim_device *d = calloc(1, sizeof(*d));
	struct clv_sim_config sim = {.devices = config->devices,
				     .capacity = config->capacity,
				     .backing = true,
				     .manual = config->manual,
				     .event_lag_ns = config->event_lag_ns};
	if (d)
		d->base.driver = clv_sim_open(&sim);
	if (!d || !d->base.driver) {
		free(d);
		clv_error_set(err, "out of host memory, or of files, for the simulated device");
		return NULL;
	}
	d->base.ops = &ops;
	return &d->base;
}
