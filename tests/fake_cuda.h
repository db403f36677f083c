/* SPDX-License-Identifier: MIT
 *
 * fake_cuda: the functions of libcuda that the cuda driver calls, as small fakes that note what was called, in which
 * context and under which capture mode, and that find what a real driver would not forgive. Nothing is allocated or run.
 * One mutex guards its state.
 */
#ifndef CLV_FAKE_CUDA_H
#define CLV_FAKE_CUDA_H

#include "../src/driver/cuda.h"

#define FAKE_DEVICES 3
#define FAKE_FIRST_DEVICE 40 /* CUdevice of device 0: not its ordinal */

struct CUctx_st {
	int device;
	bool dead;
	unsigned long long legacy_id;
};

struct CUstream_st {
	unsigned long long id;
	CUcontext context;
	bool non_blocking, dead;
	CUstreamCaptureStatus status;
};

struct CUevent_st {
	CUcontext context;
	CUstream stream; /* recorded on; default streams by their names */
	bool pending, destroyed;
};

/* What tests set and read. Zeroed by fake_reset(). */
struct fake {
	int version, devices;
	int attributes[160]; /* of every device */
	size_t granularity;
	bool no_init;

	struct CUctx_st contexts[8];
	struct CUctx_st primary[FAKE_DEVICES];
	bool primary_active[FAKE_DEVICES];
	int retained[FAKE_DEVICES];
	struct CUstream_st streams[16];
	struct CUevent_st events[256];
	unsigned event_count;
	bool done; /* what is recorded from now on is complete at once */

	/* The next calls of this name answer so. */
	const char *fail;
	CUresult fail_with;
	int fail_count; /* so many of them; negative: all */

	CUmemAllocationProp prop; /* of the last cuMemCreate */
	bool refuse_rdma, refuse_export;
	CUmemAccessDesc access[64]; /* of the last cuMemSetAccess */
	size_t access_count;
	CUdeviceptr last_addr;
	CUevent last_event;
	CUstream last_stream;
	CUcontext last_context; /* current in the last call that needs one */
	int exported_fd;
};
extern struct fake fake;

void fake_reset(void);
extern const struct clv_cuda_api fake_api;

/* How often a function was called since fake_reset() or fake_forget_calls(). */
unsigned fake_calls(const char *name);
unsigned fake_all_calls(void);
void fake_forget_calls(void);

/* The first thing that a real driver would have refused, or that would have broken a capture; "" if none was. */
const char *fake_wrong(void);

/* Of the calling thread. */
void fake_set_current(CUcontext context);
CUcontext fake_current(void);
unsigned fake_depth(void); /* contexts pushed and not popped */
CUstreamCaptureMode fake_mode(void);
void fake_capture_own(bool captures); /* its default stream, as cuStreamIsCapturing says */

CUcontext fake_context(int index, int device);
CUstream fake_stream(int index, unsigned long long id, CUcontext context);
void fake_finish(void); /* all that was recorded is complete */

#endif
