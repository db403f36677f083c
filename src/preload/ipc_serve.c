/* SPDX-License-Identifier: MIT
 *
 * ipc_serve: the exporting side. With the first handle a socket is bound and a thread started, which never ends and knows
 * nothing of CUDA but the call that makes a descriptor of a frame. Descriptors are made when they are asked for and closed
 * when they are sent, so an exported block costs a table entry.
 *
 * `lock` guards the table and the start of the server. `exporting` is held while the frames of one block are looked up and
 * exported, at most CLV_IPC_BATCH of them, and while a block is taken out of the table: so what is given away is the
 * block's. It is taken before `lock`.
 */
#define _GNU_SOURCE
#include "ipc.h"
#include "ipc_wire.h"

#include "../base/error.h"
#include "../host/meta.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- the table of exported blocks ---- */

struct exported {
	CUdeviceptr start;
	size_t size;
	struct clv_ipc_id key;
	struct exported *next;
};

#define BUCKETS 256u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t exporting = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct exported *) buckets[BUCKETS]; /* by start; read without the lock to see whether one is empty */

static unsigned bucket_of(CUdeviceptr start)
{
	return (unsigned)(clv_mix64(start) % BUCKETS);
}

/* With the lock held, as the others here. */
static struct exported *find(CUdeviceptr start)
{
	struct exported *e = buckets[bucket_of(start)];
	while (e && e->start != start)
		e = e->next;
	return e;
}

/* The first byte of a key is its bucket. */
static struct exported *find_key(const struct clv_ipc_id *key)
{
	struct exported *e = buckets[key->bytes[0]];
	while (e && !clv_ipc_same(&e->key, key))
		e = e->next;
	return e;
}

static struct exported *add(CUdeviceptr start, size_t size)
{
	struct exported *e = clv_meta_alloc(sizeof(*e));
	unsigned bucket = bucket_of(start);
	if (!e)
		return NULL;
	*e = (struct exported){.start = start, .size = size, .next = buckets[bucket]};
	if (getrandom(&e->key, sizeof(e->key), 0) != (ssize_t)sizeof(e->key)) {
		clv_meta_free(e);
		return NULL;
	}
	_Static_assert(BUCKETS == 256, "a byte names a bucket");
	e->key.bytes[0] = (uint8_t)bucket;
	buckets[bucket] = e;
	return e;
}

static void take_out(CUdeviceptr start)
{
	unsigned bucket = bucket_of(start);
	struct exported *e = buckets[bucket], *before = NULL;
	for (; e && e->start != start; e = e->next)
		before = e;
	if (!e)
		return;
	if (before)
		before->next = e->next;
	else
		buckets[bucket] = e->next;
	clv_meta_free(e);
}

void clv_ipc_block_freed(CUdeviceptr ptr)
{
	if (CLV_LIKELY(!atomic_load_explicit(&buckets[bucket_of(ptr)], memory_order_acquire)))
		return;
	pthread_mutex_lock(&lock);
	bool there = find(ptr);
	pthread_mutex_unlock(&lock);
	if (!there)
		return;
	pthread_mutex_lock(&exporting);
	pthread_mutex_lock(&lock);
	take_out(ptr);
	pthread_mutex_unlock(&lock);
	pthread_mutex_unlock(&exporting);
}

/* ---- descriptors of a block's frames ---- */

/* Frames [first, first + CLV_IPC_BATCH) of a block, and what all of them are. */
struct gathered {
	uint64_t first;
	uint64_t frames, span, addr;
	unsigned count;
	clv_handle handles[CLV_IPC_BATCH];
	uint64_t bytes[CLV_IPC_BATCH];
};

static void gather(void *arg, clv_handle handle, uint64_t addr, uint64_t bytes)
{
	struct gathered *g = arg;
	if (!g->frames)
		g->addr = addr;
	if (g->frames >= g->first && g->count < CLV_IPC_BATCH) {
		g->handles[g->count] = handle;
		g->bytes[g->count++] = bytes;
	}
	g->frames++;
	g->span += bytes;
}

/* The answer to a request, with `reply->count` descriptors in `fds`. */
static void make_reply(const struct clv_ipc_request *request, struct clv_ipc_reply *reply, int *fds)
{
	const struct clv_process *p = clv_process_if_open();
	struct gathered g = {.first = request->first};
	cleave_ptr start;
	size_t size;
	*reply = (struct clv_ipc_reply){
		.magic = CLV_IPC_MAGIC, .version = CLV_IPC_VERSION, .status = CLV_IPC_NOT_EXPORTED};
	pthread_mutex_lock(&exporting);
	pthread_mutex_lock(&lock);
	struct exported *found = p ? find_key(&request->key) : NULL;
	struct exported e = found ? *found : (struct exported){0};
	pthread_mutex_unlock(&lock);
	if (found && !clv_heap_frames(p->heap, e.start, &start, &size, gather, &g) && start == e.start &&
	    size == e.size) {
		CUresult why = CUDA_SUCCESS;
		while (reply->count < g.count &&
		       (fds[reply->count] = clv_cuda_export(p->driver, g.handles[reply->count], &why)) >= 0) {
			reply->bytes[reply->count] = g.bytes[reply->count];
			reply->count++;
		}
		reply->status = reply->count ? CLV_IPC_GIVEN : !g.count ? CLV_IPC_BAD_REQUEST : CLV_IPC_NO_DESCRIPTORS;
		reply->why = reply->count ? 0 : why;
		reply->frames = g.frames;
		reply->span = g.span;
		reply->offset = e.start - g.addr;
		reply->size = e.size;
	}
	pthread_mutex_unlock(&exporting);
}

/* ---- the server ---- */

static struct clv_service service = CLV_SERVICE_INIT;
static struct clv_ipc_id service_token; /* that names its socket */

/* False: the connection is of no use any more. */
static bool send_reply(int fd, const struct clv_ipc_reply *reply, const int *fds)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(CLV_IPC_BATCH * sizeof(int))];
	} control;
	struct iovec data = {.iov_base = (void *)reply, .iov_len = sizeof(*reply)};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
	if (reply->count) {
		memset(&control, 0, sizeof(control));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(reply->count * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(reply->count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, reply->count * sizeof(int));
	}
	return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(*reply);
}

static bool send_status(int fd, enum clv_ipc_status status)
{
	const struct clv_ipc_reply reply = {.magic = CLV_IPC_MAGIC, .version = CLV_IPC_VERSION, .status = status};
	return send_reply(fd, &reply, NULL);
}

/* One packet of a connection. An importer that asks has read the last reply, so a reply always finds room. */
static bool serve(void *unused, int fd)
{
	(void)unused;
	struct clv_ipc_request request;
	struct clv_ipc_reply reply;
	int fds[CLV_IPC_BATCH];
	ssize_t n = recv(fd, &request, sizeof(request), MSG_DONTWAIT | MSG_TRUNC);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == 0)
		return false;
	if (n != (ssize_t)sizeof(request) || request.magic != CLV_IPC_MAGIC || request.version != CLV_IPC_VERSION) {
		send_status(fd, CLV_IPC_BAD_REQUEST);
		return false;
	}
	make_reply(&request, &reply, fds);
	bool sent = send_reply(fd, &reply, fds);
	if (!sent && errno == ETOOMANYREFS) /* as many as the user may have on the way */
		send_status(fd, CLV_IPC_NO_DESCRIPTORS);
	for (unsigned i = 0; i < reply.count; i++)
		close(fds[i]);
	return sent && reply.status == CLV_IPC_GIVEN;
}

static void turn_away(void *unused, int fd)
{
	(void)unused;
	send_status(fd, CLV_IPC_OTHER_USER);
}

/* With the lock held. */
static bool start_server(struct clv_error *err)
{
	static const struct clv_service_config config = {.thread_name = "cleave-ipc",
							 .patience_ms = &clv_ipc_patience_ms,
							 .serve = serve,
							 .turn_away = turn_away};
	char name[CLV_IPC_NAME];
	if (atomic_load(&service.up))
		return true;
	if (getrandom(&service_token, sizeof(service_token), 0) != (ssize_t)sizeof(service_token))
		return clv_error_set(err, "no random numbers (%s)", strerrordesc_np(errno));
	clv_ipc_name(&service_token, name);
	return clv_service_start(&service, &config, name, err);
}

bool clv_ipc_own_token(const struct clv_ipc_id *token)
{
	pthread_mutex_lock(&lock);
	bool own = atomic_load(&service.up) && clv_ipc_same(token, &service_token);
	pthread_mutex_unlock(&lock);
	return own;
}

void clv_ipc_in_child(void)
{
	clv_service_in_child(&service);
}

/* ---- handles ---- */

/* That the device hands frames out at all shows best here, where programs know what else to do. */
static bool can_export(const struct clv_process *p, CUdeviceptr start, struct clv_error *err)
{
	struct gathered g = {0};
	CUresult why = CUDA_SUCCESS;
	if (clv_heap_frames(p->heap, start, NULL, NULL, gather, &g) || !g.count)
		return clv_error_set(err, "the block is not there any more");
	int fd = clv_cuda_export(p->driver, g.handles[0], &why);
	if (fd < 0)
		return clv_error_set(err, "the driver gives no descriptor of its memory (error %d)", (int)why);
	close(fd);
	return true;
}

static CUresult get_handle(const struct clv_process *p, CUdeviceptr start, size_t size, struct clv_ipc_handle *out,
			   struct clv_error *err)
{
	if (!p->settings.ipc) {
		clv_error_set(err, "CLEAVE_CONF says ipc:off");
		return CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_lock(&lock);
	struct exported *e = find(start);
	bool known = e && e->size == size;
	pthread_mutex_unlock(&lock);
	if (!known && !can_export(p, start, err))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = CUDA_SUCCESS;
	pthread_mutex_lock(&exporting);
	pthread_mutex_lock(&lock);
	e = find(start);
	if (e && e->size != size) { /* was freed behind our back */
		take_out(start);
		e = NULL;
	}
	if (!start_server(err)) {
		r = CUDA_ERROR_MAP_FAILED;
	} else if (!e && !(e = add(start, size))) {
		clv_error_set(err, "no host memory");
		r = CUDA_ERROR_OUT_OF_MEMORY;
	} else {
		*out = (struct clv_ipc_handle){CLV_IPC_MAGIC, CLV_IPC_VERSION, getpid(), service_token, e->key, size, 0};
		out->check = clv_ipc_check(out);
	}
	pthread_mutex_unlock(&lock);
	pthread_mutex_unlock(&exporting);
	return r;
}

EXPORTED CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr ptr)
{
	const struct clv_process *p = out && ptr ? clv_process_if_open() : NULL;
	struct clv_ipc_handle handle;
	struct clv_error err = {""};
	cleave_ptr start;
	size_t size;
	int cancel;
	if (!p || cleave_block_info(p->heap, ptr, &start, &size, NULL))
		return CLV_PASS(cuIpcGetMemHandle, out, ptr);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	CUresult r = get_handle(p, start, size, &handle, &err);
	if (r == CUDA_SUCCESS)
		memcpy(out, &handle, sizeof(*out));
	else
		CLV_SAY_ONCE("memory cannot be shared with other processes: %s", err.text);
	pthread_setcancelstate(cancel, NULL);
	return r;
}
