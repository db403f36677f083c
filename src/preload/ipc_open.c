/* SPDX-License-Identifier: MIT
 *
 * ipc_open: the importing side. A block is open once for each context that opened it, at an address of its own, and counted
 * there, as the driver does it.
 *
 * `opening` is held while a block is fetched and mapped, or closed; `lock` guards the table and is held for short. They are
 * taken in this order.
 */
#define _GNU_SOURCE
#include "ipc.h"
#include "ipc_wire.h"

#include "../base/error.h"
#include "../host/meta.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define LAZY_PEER_ACCESS 1u /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */
#define SAID_MAX 4          /* a program may try again and again */

int clv_ipc_patience_ms = 10000;

/* ---- the table of what is open ---- */

struct opened {
	CUdeviceptr start;
	size_t size;
	uint64_t addr, span; /* mapped, and of the reservation */
	struct clv_ipc_id token, key;
	CUcontext context;
	int device, owner; /* which opened it; whose memory it is */
	unsigned count;
};

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct opened *table;   /* by start */
static _Atomic size_t entries; /* read without the lock to see whether there is any */
static size_t room;

/* With the lock held: the first entry that starts above `ptr`. */
static size_t above(CUdeviceptr ptr)
{
	size_t lo = 0, hi = entries;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (table[mid].start <= ptr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* With the lock held. */
static struct opened *containing(CUdeviceptr ptr)
{
	size_t i = above(ptr);
	return i && ptr - table[i - 1].start < table[i - 1].size ? &table[i - 1] : NULL;
}

static void take_out(struct opened *o)
{
	size_t i = (size_t)(o - table);
	memmove(o, o + 1, (entries - i - 1) * sizeof(*o));
	entries--;
}

static bool add(const struct opened *o)
{
	pthread_mutex_lock(&lock);
	if (entries == room) {
		size_t more = room ? room * 2 : 16;
		struct opened *grown = clv_meta_realloc(table, more * sizeof(*table));
		if (!grown) {
			pthread_mutex_unlock(&lock);
			return false;
		}
		table = grown;
		room = more;
	}
	size_t i = above(o->start);
	memmove(&table[i + 1], &table[i], (entries - i) * sizeof(*table));
	table[i] = *o;
	entries++;
	pthread_mutex_unlock(&lock);
	return true;
}

bool clv_ipc_opened(CUdeviceptr ptr, CUdeviceptr *start, size_t *size)
{
	if (CLV_LIKELY(!atomic_load_explicit(&entries, memory_order_acquire)))
		return false;
	pthread_mutex_lock(&lock);
	const struct opened *o = containing(ptr);
	if (o && start)
		*start = o->start;
	if (o && size)
		*size = o->size;
	pthread_mutex_unlock(&lock);
	return o;
}

/* ---- asking the exporting process ---- */

struct exporter {
	int fd;
	int64_t deadline; /* of the next answer */
	const struct clv_ipc_handle *handle;
	CUresult result; /* if it fails */
};

/* False: the time is over. */
static bool set_patience(const struct exporter *x)
{
	int64_t left = x->deadline - clv_service_now_ms();
	struct timeval t = {.tv_sec = left / 1000, .tv_usec = left % 1000 * 1000};
	return left > 0 && !setsockopt(x->fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t)) &&
	       !setsockopt(x->fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
}

/* What a failed call says about the exporting process. */
static bool no_answer(int why, struct clv_error *err)
{
	switch (why) {
	case ECONNREFUSED:
		return clv_error_set(err, "that process has ended, or is in another network namespace");
	case 0:
	case ECONNRESET:
	case EPIPE:
		return clv_error_set(err, "that process has ended");
	case EAGAIN:
	case ETIMEDOUT:
		return clv_error_set(err, "that process does not answer");
	default:
		return clv_error_set(err, "%s", strerrordesc_np(why));
	}
}

static bool is_trusted(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);
	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) &&
	       (peer.uid == geteuid() || peer.uid == 0 || geteuid() == 0);
}

static bool connect_to(struct exporter *x, struct clv_error *err)
{
	struct sockaddr_un address;
	socklen_t len = clv_ipc_address(&x->handle->token, &address);
	x->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (x->fd < 0)
		return clv_error_set(err, "no socket (%s)", strerrordesc_np(errno));
	for (;;) {
		if (!set_patience(x))
			return no_answer(ETIMEDOUT, err);
		if (!connect(x->fd, (struct sockaddr *)&address, len))
			return is_trusted(x->fd) || clv_error_set(err, "its socket is another user's");
		if (errno != EINTR)
			return no_answer(errno, err);
	}
}

struct given {
	struct clv_ipc_reply reply;
	unsigned count; /* descriptors that came; fewer than in the reply if this process has none left */
	int fds[CLV_IPC_BATCH];
};

static void keep(struct given *g, unsigned count)
{
	while (g->count > count)
		close(g->fds[--g->count]);
}

static ssize_t receive(int fd, struct given *g)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(CLV_IPC_BATCH * sizeof(int))];
	} control;
	struct iovec data = {.iov_base = &g->reply, .iov_len = sizeof(g->reply)};
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	g->count = 0;
	for (struct cmsghdr *c = n >= 0 ? CMSG_FIRSTHDR(&message) : NULL; c; c = CMSG_NXTHDR(&message, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		g->count = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int)); /* there is room for one of these */
		memcpy(g->fds, CMSG_DATA(c), g->count * sizeof(int));
	}
	return n;
}

static bool understand(struct exporter *x, const struct given *g, ssize_t len, struct clv_error *err)
{
	const struct clv_ipc_reply *r = &g->reply;
	if (len == 0)
		return no_answer(0, err);
	if (len != (ssize_t)sizeof(*r) || r->magic != CLV_IPC_MAGIC || r->version != CLV_IPC_VERSION)
		return clv_error_set(err, "that process gave an answer that makes no sense");
	switch (r->status) {
	case CLV_IPC_GIVEN:
		if (!r->count || r->count > CLV_IPC_BATCH || g->count > r->count)
			return clv_error_set(err, "that process gave an answer that makes no sense");
		return g->count || clv_error_set(err, "this process has no file descriptor left");
	case CLV_IPC_NOT_EXPORTED:
		x->result = CUDA_ERROR_INVALID_VALUE;
		return clv_error_set(err, "the block was freed there");
	case CLV_IPC_OTHER_USER:
		return clv_error_set(err, "that process is another user's");
	case CLV_IPC_NO_DESCRIPTORS:
		return clv_error_set(
			err, "that process could not get a file descriptor (error %" PRIu32 " of the driver)", r->why);
	default:
		return clv_error_set(err, "that process refused the request");
	}
}

/* Frames of the block, from `first` on. On success there is one or more, and the caller closes the descriptors. */
static bool ask(struct exporter *x, uint32_t first, struct given *g, struct clv_error *err)
{
	const struct clv_ipc_request request = {
		.magic = CLV_IPC_MAGIC, .version = CLV_IPC_VERSION, .first = first, .key = x->handle->key};
	ssize_t n;
	bool reset = false;
	x->deadline = clv_service_now_ms() + clv_ipc_patience_ms;
	do {
		if (!set_patience(x))
			return no_answer(ETIMEDOUT, err);
		n = send(x->fd, &request, sizeof(request), MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EPIPE && errno != ECONNRESET)
		return no_answer(errno, err);
	/* Who is refused before he asked gets the reason after an error that says that nobody listened. */
	do {
		if (!set_patience(x))
			return no_answer(ETIMEDOUT, err);
		n = receive(x->fd, g);
	} while (n < 0 && (errno == EINTR || (errno == ECONNRESET && !reset && (reset = true))));
	if (n < 0)
		return no_answer(errno, err);
	if (understand(x, g, n, err))
		return true;
	keep(g, 0);
	return false;
}

/* ---- mapping ---- */

struct importing {
	const struct clv_process *p;
	uint64_t granularity;
	uint64_t addr, span, end; /* the reservation, and how much of it is mapped */
	uint64_t frames, offset, size;
	bool no_memory; /* why it failed */
};

static bool driver_failed(struct importing *m, const char *call, enum clv_result r, struct clv_error *err)
{
	m->no_memory = r == CLV_OUT_OF_MEMORY;
	return clv_error_set(err, "%s: %s", call, clv_result_name(r));
}

/* The first reply says what the block is, the others must agree. */
static bool agree(struct importing *m, const struct clv_ipc_handle *h, const struct clv_ipc_reply *r,
		  struct clv_error *err)
{
	struct clv_driver *driver = m->p->driver;
	if (m->span)
		return (r->frames == m->frames && r->span == m->span && r->offset == m->offset && r->size == m->size) ||
		       clv_error_set(err, "that process changed its answer");
	if (!r->span || r->span % m->granularity || !r->frames || r->frames > r->span / m->granularity ||
	    r->size != h->size || !r->size || r->size > r->span || r->offset > r->span - r->size)
		return clv_error_set(err, "that process gave an answer that makes no sense");
	enum clv_result got = driver->address_reserve(driver, &m->addr, r->span, m->granularity);
	if (got != CLV_OK)
		return driver_failed(m, clv_call_name(CLV_CALL_address_reserve), got, err);
	m->span = r->span;
	m->frames = r->frames;
	m->offset = r->offset;
	m->size = r->size;
	return true;
}

static bool map_frame(struct importing *m, struct given *g, unsigned i, struct clv_error *err)
{
	struct clv_driver *driver = m->p->driver;
	const uint64_t bytes = g->reply.bytes[i];
	clv_handle handle;
	if (!bytes || bytes % m->granularity || bytes > m->span - m->end)
		return clv_error_set(err, "that process gave an answer that makes no sense");
	enum clv_result r = clv_cuda_import(driver, g->fds[i], &handle);
	if (r != CLV_OK && g->count > i + 1) { /* the driver may need a descriptor, and these may be the last */
		keep(g, i + 1);
		r = clv_cuda_import(driver, g->fds[i], &handle);
	}
	if (r != CLV_OK)
		return driver_failed(m, "cuMemImportFromShareableHandle", r, err);
	r = driver->map(driver, m->addr + m->end, bytes, 0, handle);
	driver->release(driver, handle); /* the mapping keeps the memory */
	if (r != CLV_OK)
		return driver_failed(m, clv_call_name(CLV_CALL_map), r, err);
	m->end += bytes;
	return true;
}

static bool map_all(struct importing *m, struct exporter *x, struct clv_error *err)
{
	struct given g;
	for (uint64_t first = 0; !m->span || first < m->frames;) {
		if (!ask(x, (uint32_t)first, &g, err))
			return false;
		bool good = agree(m, x->handle, &g.reply, err);
		for (unsigned i = 0; good && i < g.count; i++)
			good = map_frame(m, &g, i, err);
		first += g.count;
		keep(&g, 0);
		if (!good)
			return false;
	}
	return m->end == m->span || clv_error_set(err, "that process left frames out");
}

static void unmap(const struct clv_process *p, uint64_t addr, uint64_t mapped, uint64_t span)
{
	enum clv_result r = mapped ? p->driver->unmap(p->driver, addr, mapped) : CLV_OK;
	if (r == CLV_OK && span)
		p->driver->address_free(p->driver, addr, span);
}

/* The device whose memory is mapped there, which the driver knows; it may be another than the one that opens it. */
static int owner_of(uint64_t addr, int otherwise)
{
	int device = -1;
	CUresult r = CLV_PASS(cuPointerGetAttribute, &device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, addr);
	return r == CUDA_SUCCESS && device >= 0 ? device : otherwise;
}

/* Access for the device that opens, and for those that may touch the memory of its owner anyway. The owner itself is left
 * out if it is another: it may have no context here, and none is to be made. */
static enum clv_result give_access(const struct clv_process *p, const struct opened *o)
{
	CUmemAccessDesc access[64];
	size_t n = 0;
	if (o->owner == o->device)
		return p->driver->set_access(p->driver, o->addr, o->span, o->device);
	for (int d = 0; d < p->driver->devices && n < CLV_ARRAY_LEN(access); d++)
		if (d == o->device || clv_cuda_is_peer(p->driver, o->owner, d))
			access[n++] =
				(CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, d}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	return CLV_PASS(cuMemSetAccess, o->addr, o->span, access, n) == CUDA_SUCCESS ? CLV_OK : CLV_FAILED;
}

static bool make_usable(struct importing *m, struct opened *o, struct clv_error *err)
{
	o->start = m->addr + m->offset;
	o->size = m->size;
	o->addr = m->addr;
	o->span = m->span;
	o->owner = owner_of(m->addr, o->device);
	enum clv_result r = give_access(m->p, o);
	if (r != CLV_OK && o->owner != o->device)
		return clv_error_set(err, "device %d cannot reach the memory of device %d", o->device, o->owner);
	if (r != CLV_OK)
		return driver_failed(m, clv_call_name(CLV_CALL_set_access), r, err);
	m->no_memory = !add(o);
	return !m->no_memory || clv_error_set(err, "no host memory");
}

/* ---- opening ---- */

static CUresult import_block(const struct clv_process *p, const struct clv_ipc_handle *h, CUcontext context, int device,
			     CUdeviceptr *out, struct clv_error *err)
{
	struct exporter x = {.fd = -1,
			     .deadline = clv_service_now_ms() + clv_ipc_patience_ms,
			     .handle = h,
			     .result = CUDA_ERROR_MAP_FAILED};
	struct importing m = {.p = p};
	struct clv_device_info info;
	struct opened o = {.token = h->token, .key = h->key, .context = context, .device = device, .count = 1};
	if (p->driver->device_info(p->driver, device, &info) != CLV_OK || !info.vmm) {
		clv_error_set(err, "device %d cannot map memory", device);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	m.granularity = info.granularity;
	bool good = connect_to(&x, err) && map_all(&m, &x, err) && make_usable(&m, &o, err);
	if (x.fd >= 0)
		close(x.fd);
	if (!good) {
		unmap(p, m.addr, m.end, m.span);
		return m.no_memory ? CUDA_ERROR_OUT_OF_MEMORY : x.result;
	}
	*out = o.start;
	return CUDA_SUCCESS;
}

static bool open_again(const struct clv_ipc_handle *h, CUcontext context, CUdeviceptr *out)
{
	bool found = false;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < entries && !found; i++) {
		struct opened *o = &table[i];
		found = o->context == context && clv_ipc_same(&o->key, &h->key) && clv_ipc_same(&o->token, &h->token);
		if (found) {
			o->count++;
			*out = o->start;
		}
	}
	pthread_mutex_unlock(&lock);
	return found;
}

static CUresult open_ours(const struct clv_process *p, const struct clv_ipc_handle *h, CUdeviceptr *out,
			  struct clv_error *err)
{
	CUcontext context;
	CUdevice device;
	if (h->check != clv_ipc_check(h)) {
		clv_error_set(err, "the handle is damaged");
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (h->version != CLV_IPC_VERSION) {
		clv_error_set(err, "that process uses another version of Cleave");
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!p->settings.ipc) {
		clv_error_set(err, "CLEAVE_CONF says ipc:off in this one");
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (clv_ipc_own_token(&h->token)) {
		clv_error_set(err, "that is this process, where the block has an address already");
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	if (CLV_PASS(cuCtxGetCurrent, &context) != CUDA_SUCCESS || !context ||
	    CLV_PASS(cuCtxGetDevice, &device) != CUDA_SUCCESS) {
		clv_error_set(err, "no context is current");
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	pthread_mutex_lock(&opening);
	CUresult r = open_again(h, context, out) ? CUDA_SUCCESS : import_block(p, h, context, device, out, err);
	pthread_mutex_unlock(&opening);
	return r;
}

typedef CUresult open_fn(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags);

static CUresult open_handle(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags, open_fn *driver)
{
	static _Atomic unsigned said;
	struct clv_ipc_handle h;
	struct clv_error err = {""};
	const struct clv_process *p;
	CUresult r;
	int cancel;
	memcpy(&h, &handle, sizeof(h));
	if (h.magic != CLV_IPC_MAGIC)
		return driver ? driver(out, handle, flags) : CUDA_ERROR_NOT_INITIALIZED;
	if (!out || (flags & ~LAZY_PEER_ACCESS))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	p = clv_process();
	if (p) {
		r = open_ours(p, &h, out, &err);
	} else {
		r = driver ? driver(out, handle, flags) : CUDA_ERROR_NOT_INITIALIZED;
		if (r != CUDA_SUCCESS)
			clv_error_set(&err, "Cleave shares it, but is off in this one");
	}
	if (r != CUDA_SUCCESS && atomic_fetch_add(&said, 1) < SAID_MAX)
		clv_say("memory of process %" PRId32 " cannot be opened: %s", h.pid, err.text);
	pthread_setcancelstate(cancel, NULL);
	return r;
}

EXPORTED CUresult cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
	return open_handle(out, handle, flags, clv_real()->cuIpcOpenMemHandle);
}

EXPORTED CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
	return open_handle(out, handle, flags, clv_real()->cuIpcOpenMemHandle_v2);
}

/* ---- closing ---- */

/* With `opening` held. False: nothing starts there. */
static bool find_start(CUdeviceptr start, struct opened *out)
{
	pthread_mutex_lock(&lock);
	struct opened *o = containing(start);
	bool found = o && o->start == start;
	if (found)
		*out = *o;
	pthread_mutex_unlock(&lock);
	return found;
}

/* With `opening` held: closes once. True: that was the last time. */
static bool uncount(CUdeviceptr start)
{
	pthread_mutex_lock(&lock);
	struct opened *o = containing(start);
	bool last = !--o->count;
	if (last)
		take_out(o);
	pthread_mutex_unlock(&lock);
	return last;
}

/* Memory must not go while the device works on it; the driver's own waits as well. */
static bool wait_for(const struct clv_process *p, const struct opened *o)
{
	return clv_cuda_synchronize(p->driver, o->device, o->context) != CLV_CAPTURING &&
	       clv_cuda_synchronize(p->driver, o->device, NULL) != CLV_CAPTURING;
}

static CUresult close_ours(const struct clv_process *p, const struct opened *o)
{
	if (o->count == 1 && !wait_for(p, o))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (uncount(o->start))
		unmap(p, o->addr, o->span, o->span);
	return CUDA_SUCCESS;
}

EXPORTED CUresult cuIpcCloseMemHandle(CUdeviceptr ptr)
{
	const struct clv_process *p = clv_process_if_open();
	struct opened o;
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	int cancel;
	if (!p || !clv_ipc_opened(ptr, NULL, NULL))
		return CLV_PASS(cuIpcCloseMemHandle, ptr);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&opening);
	if (find_start(ptr, &o))
		r = close_ours(p, &o);
	pthread_mutex_unlock(&opening);
	pthread_setcancelstate(cancel, NULL);
	return r;
}

/* ---- what happens around it ---- */

/* The next entry of a context, or of an owner, at or above an address. */
static bool next_of(CUdeviceptr from, CUcontext context, int owner, struct opened *out)
{
	bool found = false;
	pthread_mutex_lock(&lock);
	for (size_t i = from ? above(from - 1) : 0; i < entries && !found; i++) {
		found = context ? table[i].context == context : table[i].owner == owner;
		if (found)
			*out = table[i];
	}
	pthread_mutex_unlock(&lock);
	return found;
}

void clv_ipc_context_gone(const struct clv_process *p, CUcontext context)
{
	struct opened o;
	if (!atomic_load(&entries) || !context)
		return;
	pthread_mutex_lock(&opening);
	for (CUdeviceptr from = 0; next_of(from, context, -1, &o); from = o.start + 1) {
		while (!uncount(o.start))
			;
		unmap(p, o.addr, o.span, o.span);
	}
	pthread_mutex_unlock(&opening);
}

void clv_ipc_access(const struct clv_process *p, int device)
{
	struct opened o;
	if (!atomic_load(&entries))
		return;
	pthread_mutex_lock(&opening);
	for (CUdeviceptr from = 0; next_of(from, NULL, device, &o); from = o.start + 1)
		give_access(p, &o);
	pthread_mutex_unlock(&opening);
}
