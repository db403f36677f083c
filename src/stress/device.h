/* SPDX-License-Identifier: MIT
 *
 * device: what a stress run works on: a simulated device, or a part of a GPU's memory. Work on a block is put on streams
 * and tells when it has happened. Thread-safe, but for opening and closing.
 */
#ifndef CLV_STRESS_DEVICE_H
#define CLV_STRESS_DEVICE_H

#include "../base/error.h"
#include "../driver/cuda_program.h"
#include "pattern.h"

/* A piece of work: writes a block's pattern, or reads the block and compares. */
struct clv_stress_work {
	int device;
	cleave_ptr addr;
	struct clv_stamp stamp;
	bool write, full;
	_Atomic bool *stop; /* set: the memory is not touched any more */
	/* Called once, on whatever thread, when it has happened; `wrong` if that is the verdict. The work is the callee's
	 * again. It may take no lock that is held around calls of the device. */
	void (*happened)(struct clv_stress_work *work, enum clv_pattern_verdict verdict,
			 const struct clv_pattern_wrong *wrong);
};

struct clv_stress_device {
	const struct clv_stress_device_ops *ops;
	struct clv_driver *driver; /* what the heap and the program call; it gives the capacity and no more */
};

struct clv_stress_device_ops {
	bool (*new_stream)(struct clv_stress_device *self, int device, uint32_t index, cleave_stream *out);
	void (*end_stream)(struct clv_stress_device *self, cleave_stream stream); /* all work on it is done */

	/* Appends to the stream work that takes about `ns`. false: it was not taken, as host memory is out. */
	bool (*launch)(struct clv_stress_device *self, cleave_stream stream, uint64_t ns, struct clv_stress_work *work);
	/* The same by the host: it has happened when this returns. */
	bool (*touch)(struct clv_stress_device *self, struct clv_stress_work *work);

	void (*complete)(struct clv_stress_device *self, cleave_stream stream); /* what is on the stream happens now */
	void (*pass_time)(struct clv_stress_device *self, uint64_t ns);

	uint64_t (*used)(struct clv_stress_device *self, int device); /* bytes that frames hold */
	void (*set_foreign)(struct clv_stress_device *self, int device, uint64_t bytes);
	const char *(*leaks)(struct clv_stress_device *self); /* the kind of a thing that is left; NULL: none */
	void (*close)(struct clv_stress_device *self);
};

struct clv_stress_device_config {
	int devices;
	uint64_t capacity; /* of each */
	bool manual;       /* simulated: work completes when told to, else by the clock */
	uint64_t event_lag_ns;
};

struct clv_stress_device *clv_stress_sim_open(const struct clv_stress_device_config *config, struct clv_error *err);
/* On the program's devices, of which it holds `capacity` at most; `program` is borrowed. */
struct clv_stress_device *clv_stress_cuda_open(const struct clv_stress_device_config *config,
					       struct clv_cuda_program *program, struct clv_error *err);

#endif
