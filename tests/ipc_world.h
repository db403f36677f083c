/* SPDX-License-Identifier: MIT
 *
 * ipc_world: what the two sides of IPC need of the rest of the library, made up for one process: a heap of hand-made blocks
 * whose frames are memory files, a driver that maps those, and an exporting process that does what it is told. Contents
 * are real, so both sides see what the other writes. Frames may be of any multiple of IPC_GRANULARITY.
 *
 * Threads: blocks and the driver's books have a mutex each, as the real ones.
 */
#ifndef IPC_WORLD_H
#define IPC_WORLD_H

#include "../src/preload/ipc.h"
#include "../src/preload/ipc_wire.h"

#include <sys/types.h>

#define IPC_GRANULARITY ((uint64_t)64 * CLV_KIB)
#define IPC_BLOCKS 64
#define IPC_FRAMES 400

/* The answers of the driver's own functions, by which a test knows that a call went there. */
#define IPC_DRIVERS_GET ((CUresult)601)
#define IPC_DRIVERS_OPEN ((CUresult)602)
#define IPC_DRIVERS_CLOSE ((CUresult)603)

/* What a test can change. */
extern struct ipc_world {
	CUcontext context;         /* the current one */
	int device;                /* its device */
	int owner;                 /* of all imported memory, as the driver says; -1: it does not */
	bool no_access;            /* cuMemSetAccess fails */
	bool peers;                /* every device may touch the memory of every other */
	bool captures;             /* a stream captures */
	_Atomic int fail_export;   /* the n-th from now fails, once; 0: none */
	int fail_at;               /* the n-th call of the driver table from now and all later ones fail; 0: none */
	enum clv_result failure;   /* with this */
	unsigned synchronized;     /* waits for the device, so far */
	unsigned accesses;         /* set_access of the table, so far */
	unsigned foreign_accesses; /* devices that cuMemSetAccess was called for, so far */
	_Atomic unsigned says;
	char said[1024]; /* the last */
	/* what is not given back */
	size_t ranges, handles;
	uint64_t mapped;
} world;

/* The process is served, or passed through; with the setting or without. */
void ipc_world_serve(bool on, bool ipc);

/* A block of `size` bytes at `offset` in frames of `bytes` each; its address. Writes a pattern made from `seed`. */
CUdeviceptr ipc_make(unsigned i, unsigned frames, uint64_t bytes, uint64_t offset, uint64_t size, uint64_t seed);
void ipc_free(unsigned i); /* as the hooks do it */
void ipc_fill(CUdeviceptr at, uint64_t size, uint64_t seed);
bool ipc_filled(CUdeviceptr at, uint64_t size, uint64_t seed);

unsigned ipc_descriptors(void); /* open in this process */
void ipc_leave(unsigned few);   /* descriptors that can be opened from now on */

/* ---- another process, which exports ---- */

enum ipc_op {
	IPC_MAKE,   /* value: the address */
	IPC_HANDLE, /* of the address `offset` bytes into block i: result, handle; value: its address */
	IPC_FREE,
	IPC_FILL,
	IPC_FILLED,      /* value: whether */
	IPC_DESCRIPTORS, /* value */
	IPC_LEAVE,       /* `size` descriptors */
	IPC_CLOSE_ALL,   /* descriptors but those of this world, as careless programs do */
	IPC_FORK,        /* a child that sleeps; value: its id */
	IPC_FAIL_EXPORT, /* after `size` calls */
	IPC_BECOME,      /* user `size` */
	IPC_CHURN,       /* threads export and free for as long as it is; IPC_CALM stops them */
	IPC_CALM,
	IPC_CHURNED, /* handle: of a block that a thread has just exported; it may be gone already */
	IPC_END,
};

struct ipc_order {
	enum ipc_op op;
	unsigned i, frames;
	uint64_t bytes, offset, size, seed;
};

struct ipc_answer {
	CUresult result;
	uint64_t value;
	CUipcMemHandle handle;
	char said[256];
};

struct ipc_exporter {
	pid_t pid;
	int fd;
};

/* To be called before this process has threads. */
struct ipc_exporter ipc_start(void);
struct ipc_answer ipc_tell(const struct ipc_exporter *x, struct ipc_order order);
void ipc_kill(struct ipc_exporter *x); /* and waits for it */

/* How many descriptors the exporter has when it is at rest: what it served before may still be open for a moment. */
unsigned ipc_at_rest(const struct ipc_exporter *x);

/* Its thread closes what is over soon, not at once: waits until it has only so many descriptors. */
void ipc_calm(const struct ipc_exporter *x, unsigned descriptors);

#endif
