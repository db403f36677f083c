/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "stat_ask.h"

#include "../live/service.h"
#include "../live/stat_name.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MOST (4 * CLV_GIB)
#define RETRY_PAUSE_MS 10

static enum clv_exit CLV_PRINTF(3, 4) refuse(struct clv_error *err, enum clv_exit status, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return status;
}

/* ---- which process it is ---- */

/* What the process calls itself, in the innermost of its namespaces; `pid` where that is not told. */
static long own_pid(long pid)
{
	char path[64], line[512];
	long own = pid;
	snprintf(path, sizeof(path), "/proc/%ld/status", pid);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "NSpid:", 6)) {
			const char *last = strrchr(line, '\t');
			own = last ? atol(last) : pid;
			break;
		}
	if (f)
		fclose(f);
	return own;
}

static bool maps_our_library(long pid)
{
	char path[64], line[8192];
	bool found = false;
	snprintf(path, sizeof(path), "/proc/%ld/maps", pid);
	FILE *f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, "/libcleave-preload.so") != NULL;
	if (f)
		fclose(f);
	return found;
}

/* Abstract sockets belong to a network namespace. */
static bool in_other_network(long pid)
{
	char path[64];
	struct stat ours, theirs;
	snprintf(path, sizeof(path), "/proc/%ld/ns/net", pid);
	return !stat("/proc/self/ns/net", &ours) && !stat(path, &theirs) &&
	       (ours.st_ino != theirs.st_ino || ours.st_dev != theirs.st_dev);
}

static enum clv_exit other_user(long pid, struct clv_error *err)
{
	return refuse(err, CLV_EXIT_USAGE, "process %ld belongs to another user: only that user and root may ask it",
		      pid);
}

bool clv_stat_has_ended(long pid)
{
	char path[64], line[512];
	bool ended = kill((pid_t)pid, 0) && errno == ESRCH;
	snprintf(path, sizeof(path), "/proc/%ld/status", pid);
	FILE *f = ended ? NULL : fopen(path, "re");
	while (f && !ended && fgets(line, sizeof(line), f))
		ended = !strncmp(line, "State:\tZ", 8) || !strncmp(line, "State:\tX", 8);
	if (f)
		fclose(f);
	return ended;
}

/* Nobody listens: why not? */
static enum clv_exit nobody(long pid, struct clv_error *err)
{
	char path[64];
	struct stat st;
	if (clv_stat_has_ended(pid))
		return refuse(err, CLV_EXIT_USAGE, "process %ld has ended", pid);
	snprintf(path, sizeof(path), "/proc/%ld", pid);
	if (geteuid() && !stat(path, &st) && st.st_uid != geteuid())
		return other_user(pid, err);
	if (in_other_network(pid))
		return refuse(err, CLV_EXIT_USAGE,
			      "process %ld is in another network namespace: nsenter --net --target %ld cleave stat %ld",
			      pid, pid, pid);
	if (maps_our_library(pid))
		return refuse(
			err, CLV_EXIT_FAILED,
			"process %ld runs under Cleave, but has no heap to ask about: it has not used the GPU yet, or "
			"its CLEAVE_CONF says off or stat:off",
			pid);
	return refuse(err, CLV_EXIT_FAILED, "process %ld does not run under Cleave", pid);
}

/* ---- the connection ---- */

struct call {
	long pid;
	int fd;
	int64_t patience_ms, deadline;
	struct clv_error *err;
};

static enum clv_exit no_answer(const struct call *c)
{
	return refuse(c->err, CLV_EXIT_FAILED, "process %ld does not answer (waited %.1f s)", c->pid,
		      (double)c->patience_ms / 1000);
}

/* False: it is over. */
static bool wait_for(const struct call *c, short events)
{
	for (;;) {
		int64_t left = c->deadline - clv_service_now_ms();
		struct pollfd p = {.fd = c->fd, .events = events};
		int n = left > 0 ? poll(&p, 1, (int)clv_min_u64((uint64_t)left, 1000)) : 0;
		if (n > 0)
			return true;
		if (left <= 0 || (n < 0 && errno != EINTR))
			return false;
	}
}

static enum clv_exit dial(struct call *c)
{
	char who[32], name[CLV_STAT_NAME];
	struct sockaddr_un address;
	struct ucred peer;
	socklen_t peer_len = sizeof(peer);
	uint64_t start;
	snprintf(who, sizeof(who), "%ld", c->pid);
	if (!clv_stat_start_of(who, &start)) {
		if (kill((pid_t)c->pid, 0) && errno == ESRCH)
			return refuse(c->err, CLV_EXIT_USAGE, "there is no process %ld", c->pid);
		return other_user(c->pid, c->err); /* /proc does not show it */
	}
	clv_stat_name(name, own_pid(c->pid), start);
	socklen_t len = clv_service_address(name, &address);
	c->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->fd < 0)
		return refuse(c->err, CLV_EXIT_USAGE, "no socket: %s", strerror(errno));
	while (connect(c->fd, (struct sockaddr *)&address, len)) {
		if (errno == ECONNREFUSED)
			return nobody(c->pid, c->err);
		if (errno != EAGAIN && errno != EINTR)
			return refuse(c->err, CLV_EXIT_USAGE, "process %ld cannot be asked: %s", c->pid,
				      strerror(errno));
		if (clv_service_now_ms() >= c->deadline) /* many others ask it */
			return no_answer(c);
		nanosleep(&(struct timespec){.tv_nsec = RETRY_PAUSE_MS * 1000000}, NULL);
	}
	/* names are for everybody to take */
	if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_len) || peer.pid != c->pid)
		return refuse(c->err, CLV_EXIT_USAGE, "process %d answers for process %ld: it is not asked",
			      (int)peer.pid, c->pid);
	return CLV_EXIT_DONE;
}

/* The reply, and the descriptor that came with it (-1: none). */
static enum clv_exit listen_for(const struct call *c, struct clv_stat_reply *reply, int *memory)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec data = {.iov_base = reply, .iov_len = sizeof(*reply)};
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	*memory = -1;
	memset(reply, 0, sizeof(*reply));
	if (!wait_for(c, POLLIN))
		return no_answer(c);
	ssize_t n = recvmsg(c->fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n < 0 && errno == ECONNRESET) /* it has hung up on the request; what it said before comes after that */
		n = recvmsg(c->fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	const struct cmsghdr *first = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	if (first && first->cmsg_level == SOL_SOCKET && first->cmsg_type == SCM_RIGHTS &&
	    first->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(memory, CMSG_DATA(first), sizeof(int));
	if (n <= 0)
		return refuse(c->err, CLV_EXIT_FAILED, "process %ld has hung up", c->pid);
	reply->library[sizeof(reply->library) - 1] = '\0';
	if (n < (ssize_t)sizeof(reply->head) || reply->head.magic != CLV_STAT_MAGIC)
		return refuse(c->err, CLV_EXIT_USAGE, "process %ld answers with something that is not Cleave's",
			      c->pid);
	if (reply->head.version != CLV_STAT_VERSION || n != (ssize_t)sizeof(*reply))
		return refuse(
			c->err, CLV_EXIT_USAGE,
			"process %ld has another version of Cleave than this command (%s), which it does not understand",
			c->pid, CLV_VERSION);
	return CLV_EXIT_DONE;
}

static enum clv_exit understand(const struct call *c, const struct clv_stat_reply *reply)
{
	switch (reply->head.what) {
	case CLV_STAT_GIVEN:
		return CLV_EXIT_DONE;
	case CLV_STAT_OTHER_USER:
		return other_user(c->pid, c->err);
	case CLV_STAT_NO_MEMORY:
		return refuse(c->err, CLV_EXIT_FAILED, "process %ld cannot answer: %s", c->pid,
			      reply->why ? strerror(reply->why) : "it has no memory for it");
	default:
		return refuse(c->err, CLV_EXIT_USAGE, "process %ld (Cleave %s) does not understand the request", c->pid,
			      reply->library);
	}
}

/* It is read, not mapped: the process could make it shorter. */
static enum clv_exit fetch(const struct call *c, int memory, uint64_t bytes, struct clv_stat_sample *out)
{
	size_t done = 0;
	if (memory < 0 || bytes > ANSWER_MOST)
		return refuse(c->err, CLV_EXIT_USAGE, "the answer of process %ld makes no sense", c->pid);
	out->data = malloc(bytes + 1);
	if (!out->data)
		return refuse(c->err, CLV_EXIT_USAGE, "out of host memory");
	while (done < bytes) {
		ssize_t n = pread(memory, (char *)out->data + done, bytes - done, (off_t)done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return refuse(c->err, CLV_EXIT_USAGE, "the answer of process %ld is cut off", c->pid);
		done += (size_t)n;
	}
	struct clv_error why = {""};
	if (!clv_stat_view(out->data, bytes, &out->view, &why))
		return refuse(c->err, CLV_EXIT_USAGE, "process %ld: %s", c->pid, why.text);
	return CLV_EXIT_DONE;
}

enum clv_exit clv_stat_ask(long pid, enum clv_stat_op op, int64_t patience_ms, struct clv_stat_sample *out,
			   struct clv_error *err)
{
	struct call c = {.pid = pid,
			 .fd = -1,
			 .patience_ms = patience_ms,
			 .deadline = clv_service_now_ms() + patience_ms,
			 .err = err};
	const struct clv_stat_request request = {{CLV_STAT_MAGIC, CLV_STAT_VERSION, op}};
	struct clv_stat_reply reply;
	int memory = -1;
	*out = (struct clv_stat_sample){0};
	enum clv_exit status = dial(&c);
	/* one that turns us away has hung up, and its reply is there */
	if (status == CLV_EXIT_DONE &&
	    send(c.fd, &request, sizeof(request), MSG_NOSIGNAL) != (ssize_t)sizeof(request) && errno != EPIPE &&
	    errno != ECONNRESET)
		status = refuse(err, CLV_EXIT_USAGE, "process %ld cannot be asked: %s", pid, strerror(errno));
	if (status == CLV_EXIT_DONE)
		status = listen_for(&c, &reply, &memory);
	if (status == CLV_EXIT_DONE)
		status = understand(&c, &reply);
	if (status == CLV_EXIT_DONE)
		status = fetch(&c, memory, reply.bytes, out);
	if (memory >= 0)
		close(memory);
	if (c.fd >= 0)
		close(c.fd);
	if (status != CLV_EXIT_DONE)
		clv_stat_sample_free(out);
	return status;
}

void clv_stat_sample_free(struct clv_stat_sample *s)
{
	free(s->data);
	*s = (struct clv_stat_sample){0};
}
