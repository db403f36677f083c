/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "ipc_world.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct ipc_world world = {.context = (CUcontext)0x100, .owner = -1, .failure = CLV_FAILED};

#define DESCRIPTORS 2048 /* more are never open */

/* ---- blocks ---- */

struct block {
	bool live;
	uint64_t addr, bytes, span; /* of the frames */
	CUdeviceptr start;
	size_t size;
	unsigned frames;
	int fds[IPC_FRAMES];
};

static pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;
static struct block blocks[IPC_BLOCKS];

static void must(bool good, const char *what)
{
	if (good)
		return;
	perror(what);
	abort();
}

void ipc_fill(CUdeviceptr at, uint64_t size, uint64_t seed)
{
	uint64_t *words = (uint64_t *)(uintptr_t)at;
	for (uint64_t i = 0; i < size / 8; i++)
		words[i] = clv_mix64(seed + i);
}

bool ipc_filled(CUdeviceptr at, uint64_t size, uint64_t seed)
{
	const uint64_t *words = (const uint64_t *)(uintptr_t)at;
	for (uint64_t i = 0; i < size / 8; i++)
		if (words[i] != clv_mix64(seed + i))
			return false;
	return true;
}

CUdeviceptr ipc_make(unsigned i, unsigned frames, uint64_t bytes, uint64_t offset, uint64_t size, uint64_t seed)
{
	struct block *b = &blocks[i];
	char *at = mmap(NULL, frames * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	must(at != MAP_FAILED, "mmap");
	pthread_mutex_lock(&heap_lock);
	*b = (struct block){.live = true,
			    .addr = (uint64_t)(uintptr_t)at,
			    .bytes = bytes,
			    .span = frames * bytes,
			    .start = (uint64_t)(uintptr_t)at + offset,
			    .size = size,
			    .frames = frames};
	for (unsigned f = 0; f < frames; f++) {
		b->fds[f] = memfd_create("frame", MFD_CLOEXEC);
		must(b->fds[f] >= 0 && !ftruncate(b->fds[f], (off_t)bytes), "memfd");
		must(mmap(at + f * bytes, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, b->fds[f], 0) !=
			     MAP_FAILED,
		     "mmap");
	}
	pthread_mutex_unlock(&heap_lock);
	ipc_fill(b->start, size, seed);
	return b->start;
}

void ipc_free(unsigned i)
{
	struct block *b = &blocks[i];
	clv_ipc_block_freed(b->start);
	pthread_mutex_lock(&heap_lock);
	for (unsigned f = 0; f < b->frames; f++)
		close(b->fds[f]);
	munmap((void *)(uintptr_t)b->addr, b->span);
	b->live = false;
	pthread_mutex_unlock(&heap_lock);
}

static struct block *block_at(CUdeviceptr ptr)
{
	for (unsigned i = 0; i < IPC_BLOCKS; i++)
		if (blocks[i].live && ptr - blocks[i].start < blocks[i].size)
			return &blocks[i];
	return NULL;
}

int cleave_block_info(cleave_heap *heap, cleave_ptr ptr, cleave_ptr *start, size_t *size, int *device)
{
	return clv_heap_frames(heap, ptr, start, size, NULL, NULL);
}

int clv_heap_frames(cleave_heap *heap, cleave_ptr ptr, cleave_ptr *start, size_t *size,
		    void (*visit)(void *arg, clv_handle handle, uint64_t addr, uint64_t bytes), void *arg)
{
	pthread_mutex_lock(&heap_lock);
	const struct block *b = block_at(ptr);
	if (b && start)
		*start = b->start;
	if (b && size)
		*size = b->size;
	for (unsigned f = 0; b && visit && f < b->frames; f++)
		visit(arg, (clv_handle)b->fds[f] + 1, b->addr + f * b->bytes, b->bytes);
	pthread_mutex_unlock(&heap_lock);
	return b ? 0 : -EINVAL;
}

/* ---- the driver: a handle is a descriptor + 1 ---- */

static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;

static bool fails(void)
{
	if (world.fail_at > 1)
		world.fail_at--;
	else
		return world.fail_at;
	return false;
}

static void book(size_t *what, int change)
{
	pthread_mutex_lock(&books);
	*what += (size_t)change;
	pthread_mutex_unlock(&books);
}

static enum clv_result fake_info(struct clv_driver *self, int device, struct clv_device_info *out)
{
	*out = (struct clv_device_info){CLV_GIB, IPC_GRANULARITY, true};
	return CLV_OK;
}

static enum clv_result fake_reserve(struct clv_driver *self, uint64_t *addr, uint64_t size, uint64_t align)
{
	if (fails() || align > IPC_GRANULARITY)
		return world.failure;
	void *p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return CLV_OUT_OF_MEMORY;
	*addr = (uint64_t)(uintptr_t)p;
	book(&world.ranges, 1);
	return CLV_OK;
}

static enum clv_result fake_free(struct clv_driver *self, uint64_t addr, uint64_t size)
{
	book(&world.ranges, -1);
	return munmap((void *)(uintptr_t)addr, size) ? CLV_INVALID : CLV_OK;
}

static enum clv_result fake_release(struct clv_driver *self, clv_handle handle)
{
	book(&world.handles, -1);
	return close((int)handle - 1) ? CLV_INVALID : CLV_OK;
}

static enum clv_result fake_map(struct clv_driver *self, uint64_t addr, uint64_t size, uint64_t offset,
				clv_handle handle)
{
	struct stat st;
	if (fails())
		return world.failure;
	if (offset || fstat((int)handle - 1, &st) || (uint64_t)st.st_size != size)
		return CLV_INVALID;
	if (mmap((void *)(uintptr_t)addr, size, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle - 1, 0) == MAP_FAILED)
		return CLV_FAILED;
	pthread_mutex_lock(&books);
	world.mapped += size;
	pthread_mutex_unlock(&books);
	return CLV_OK;
}

static enum clv_result fake_unmap(struct clv_driver *self, uint64_t addr, uint64_t size)
{
	pthread_mutex_lock(&books);
	world.mapped -= size;
	pthread_mutex_unlock(&books);
	return mmap((void *)(uintptr_t)addr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
		    -1, 0) == MAP_FAILED
		       ? CLV_INVALID
		       : CLV_OK;
}

static enum clv_result fake_access(struct clv_driver *self, uint64_t addr, uint64_t size, int device)
{
	if (fails())
		return world.failure;
	world.accesses++;
	return mprotect((void *)(uintptr_t)addr, size, PROT_READ | PROT_WRITE) ? CLV_INVALID : CLV_OK;
}

int clv_cuda_export(struct clv_driver *cuda, clv_handle handle, CUresult *why)
{
	int n = atomic_load(&world.fail_export);
	if (n && atomic_fetch_sub(&world.fail_export, 1) == 1) {
		*why = CUDA_ERROR_NOT_SUPPORTED;
		return -1;
	}
	int fd = fcntl((int)handle - 1, F_DUPFD_CLOEXEC, 0);
	*why = fd < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
	return fd;
}

enum clv_result clv_cuda_import(struct clv_driver *cuda, int fd, clv_handle *out)
{
	int copy = fails() ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (copy < 0)
		return world.failure;
	book(&world.handles, 1);
	*out = (clv_handle)copy + 1;
	return CLV_OK;
}

enum clv_result clv_cuda_synchronize(struct clv_driver *cuda, int device, CUcontext context)
{
	world.synchronized += !world.captures;
	return world.captures ? CLV_CAPTURING : CLV_OK;
}

bool clv_cuda_is_peer(const struct clv_driver *cuda, int owner, int reader)
{
	return world.peers && owner != reader;
}

const char *clv_result_name(enum clv_result r)
{
	return r == CLV_OUT_OF_MEMORY ? "out of memory" : "failed";
}

const char *clv_call_name(enum clv_call call)
{
	return "a call";
}

/* ---- the rest of the library ---- */

static CUresult get_current(CUcontext *out)
{
	*out = world.context;
	return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *out)
{
	*out = world.device;
	return CUDA_SUCCESS;
}

static CUresult pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	if (attribute != CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL || world.owner < 0)
		return CUDA_ERROR_INVALID_VALUE;
	*(int *)data = world.owner;
	return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	world.foreign_accesses += (unsigned)count;
	if (!world.no_access)
		mprotect((void *)(uintptr_t)ptr, size, PROT_READ | PROT_WRITE);
	return world.no_access ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

static CUresult drivers_get(CUipcMemHandle *out, CUdeviceptr ptr)
{
	return IPC_DRIVERS_GET;
}

static CUresult drivers_open(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
	return IPC_DRIVERS_OPEN;
}

static CUresult drivers_close(CUdeviceptr ptr)
{
	return IPC_DRIVERS_CLOSE;
}

_Atomic(const struct clv_cuda_api *) clv_real_found;

const struct clv_cuda_api *clv_real_find(void)
{
	static const struct clv_cuda_api api = {
		.cuCtxGetCurrent = get_current,
		.cuCtxGetDevice = get_device,
		.cuPointerGetAttribute = pointer_attribute,
		.cuMemSetAccess = set_access,
		.cuIpcGetMemHandle = drivers_get,
		.cuIpcOpenMemHandle = drivers_open,
		.cuIpcOpenMemHandle_v2 = drivers_open,
		.cuIpcCloseMemHandle = drivers_close,
	};
	return &api;
}

static struct clv_driver driver = {
	.name = "fake",
	.devices = 3,
	.device_info = fake_info,
	.address_reserve = fake_reserve,
	.address_free = fake_free,
	.release = fake_release,
	.map = fake_map,
	.unmap = fake_unmap,
	.set_access = fake_access,
};
static struct clv_process process = {.settings.ipc = true, .driver = &driver};
_Atomic(const struct clv_process *) clv_process_opened = &process;

const struct clv_process *clv_process_open(void)
{
	return NULL;
}

void ipc_world_serve(bool on, bool ipc)
{
	process.settings.ipc = ipc;
	atomic_store(&clv_process_opened, on ? &process : NULL);
}

void clv_say(const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	vsnprintf(world.said, sizeof(world.said), fmt, args);
	va_end(args);
	world.says++;
}

/* Asked one by one, since this must work when there is none left. */
unsigned ipc_descriptors(void)
{
	unsigned n = 0;
	for (int fd = 0; fd < DESCRIPTORS; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

void ipc_leave(unsigned few)
{
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	for (limit.rlim_cur = 0; few || fcntl((int)limit.rlim_cur, F_GETFD) >= 0; limit.rlim_cur++)
		few -= fcntl((int)limit.rlim_cur, F_GETFD) < 0;
	must(!setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
}

/* ---- the exporting process ---- */

#define CHURNERS 3
static _Atomic bool churning;
static pthread_t churners[CHURNERS];
static pthread_mutex_t last_lock = PTHREAD_MUTEX_INITIALIZER;
static CUipcMemHandle last;

/* Makes, exports and frees blocks of its own. */
static void *churn(void *arg)
{
	unsigned i = IPC_BLOCKS - 1 - (unsigned)(uintptr_t)arg;
	CUipcMemHandle handle;
	while (atomic_load(&churning)) {
		CUdeviceptr ptr = ipc_make(i, 3, IPC_GRANULARITY, 512, IPC_GRANULARITY, 77);
		if (cuIpcGetMemHandle(&handle, ptr) != CUDA_SUCCESS)
			abort();
		pthread_mutex_lock(&last_lock);
		last = handle;
		pthread_mutex_unlock(&last_lock);
		ipc_free(i);
	}
	return NULL;
}

static bool is_frame(int fd)
{
	for (unsigned i = 0; i < IPC_BLOCKS; i++)
		for (unsigned f = 0; blocks[i].live && f < blocks[i].frames; f++)
			if (blocks[i].fds[f] == fd)
				return true;
	return false;
}

static void obey(const struct ipc_order *o, struct ipc_answer *a, int orders)
{
	struct block *b = &blocks[o->i];
	switch (o->op) {
	case IPC_MAKE:
		a->value = ipc_make(o->i, o->frames, o->bytes, o->offset, o->size, o->seed);
		break;
	case IPC_HANDLE:
		a->value = b->start + o->offset;
		a->result = cuIpcGetMemHandle(&a->handle, a->value);
		break;
	case IPC_FREE:
		ipc_free(o->i);
		break;
	case IPC_FILL:
		ipc_fill(b->start, b->size, o->seed);
		break;
	case IPC_FILLED:
		a->value = ipc_filled(b->start, b->size, o->seed);
		break;
	case IPC_DESCRIPTORS:
		a->value = ipc_descriptors();
		break;
	case IPC_LEAVE:
		ipc_leave((unsigned)o->size);
		break;
	case IPC_CLOSE_ALL:
		for (int fd = 3; fd < DESCRIPTORS; fd++)
			if (fd != orders && !is_frame(fd))
				close(fd);
		break;
	case IPC_FORK:
		a->value = (uint64_t)fork();
		if (!a->value) {
			close(orders);
			alarm(60); /* if nobody ends it */
			for (;;)
				pause();
		}
		break;
	case IPC_FAIL_EXPORT:
		atomic_store(&world.fail_export, (int)o->size);
		break;
	case IPC_BECOME:
		must(!setresuid((uid_t)o->size, (uid_t)o->size, (uid_t)o->size), "setresuid");
		break;
	case IPC_CHURN:
		atomic_store(&churning, true);
		for (unsigned t = 0; t < CHURNERS; t++)
			must(!pthread_create(&churners[t], NULL, churn, (void *)(uintptr_t)t), "thread");
		break;
	case IPC_CALM:
		atomic_store(&churning, false);
		for (unsigned t = 0; t < CHURNERS; t++)
			pthread_join(churners[t], NULL);
		break;
	case IPC_CHURNED:
		pthread_mutex_lock(&last_lock);
		a->handle = last;
		pthread_mutex_unlock(&last_lock);
		break;
	case IPC_END:
		_exit(0);
	}
	snprintf(a->said, sizeof(a->said), "%.*s", (int)sizeof(a->said) - 1, world.said);
}

struct ipc_exporter ipc_start(void)
{
	struct ipc_order order;
	int pair[2];
	must(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), "socketpair");
	fflush(NULL);
	pid_t pid = fork();
	must(pid >= 0, "fork");
	if (pid) {
		close(pair[1]);
		return (struct ipc_exporter){pid, pair[0]};
	}
	close(pair[0]);
	pthread_atfork(NULL, NULL, clv_ipc_in_child);
	while (recv(pair[1], &order, sizeof(order), 0) == (ssize_t)sizeof(order)) {
		struct ipc_answer answer = {.result = CUDA_SUCCESS};
		obey(&order, &answer, pair[1]);
		if (send(pair[1], &answer, sizeof(answer), MSG_NOSIGNAL) < 0)
			break;
	}
	_exit(0);
}

struct ipc_answer ipc_tell(const struct ipc_exporter *x, struct ipc_order order)
{
	struct ipc_answer answer = {.result = CUDA_ERROR_UNKNOWN};
	must(send(x->fd, &order, sizeof(order), MSG_NOSIGNAL) == (ssize_t)sizeof(order), "order");
	if (order.op == IPC_END)
		waitpid(x->pid, NULL, 0);
	else
		must(recv(x->fd, &answer, sizeof(answer), 0) == (ssize_t)sizeof(answer), "answer");
	return answer;
}

void ipc_kill(struct ipc_exporter *x)
{
	kill(x->pid, SIGKILL);
	waitpid(x->pid, NULL, 0);
	close(x->fd);
}

unsigned ipc_at_rest(const struct ipc_exporter *x)
{
	const struct ipc_order count = {.op = IPC_DESCRIPTORS};
	unsigned least = (unsigned)ipc_tell(x, count).value;
	for (unsigned same = 0; same < 20; same++) {
		poll(NULL, 0, 5);
		unsigned now = (unsigned)ipc_tell(x, count).value;
		if (now < least) {
			least = now;
			same = 0;
		}
	}
	return least;
}

void ipc_calm(const struct ipc_exporter *x, unsigned descriptors)
{
	const struct ipc_order count = {.op = IPC_DESCRIPTORS};
	for (unsigned i = 0; i < 2000 && ipc_tell(x, count).value != descriptors; i++)
		poll(NULL, 0, 5);
	ck_assert_uint_eq(ipc_tell(x, count).value, descriptors);
}
