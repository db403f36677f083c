/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "stat_serve.h"

#include "metrics.h"
#include "service.h"
#include "stat_name.h"

#include "../base/fd.h"
#include "../host/meta.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u /* Linux 6.3, where memory that is executable can be forbidden */
#endif

int clv_stat_patience_ms = 2000;

static struct clv_service service = CLV_SERVICE_INIT;
static struct clv_live asked; /* about this heap */
static _Atomic bool ending;   /* the process: its driver may be gone any moment */

/* False: the connection is of no use any more. Whoever asks has read the last reply, so one always finds room. */
static bool send_reply(int fd, struct clv_stat_reply *reply, int memory)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec data = {.iov_base = reply, .iov_len = sizeof(*reply)};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
	if (memory >= 0) {
		memset(&control, 0, sizeof(control));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		struct cmsghdr *c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &memory, sizeof(int));
	}
	return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(*reply);
}

static bool send_status(int fd, enum clv_stat_status status, int why)
{
	struct clv_stat_reply reply = {.head = {CLV_STAT_MAGIC, CLV_STAT_VERSION, status}, .why = why};
	snprintf(reply.library, sizeof(reply.library), "%s", CLV_VERSION);
	return send_reply(fd, &reply, -1);
}

/* A descriptor of memory that holds the bytes; -1 with errno. */
static int memory_with(const char *bytes, size_t len)
{
	int fd = memfd_create("cleave-stat", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL) /* before that flag */
		fd = memfd_create("cleave-stat", MFD_CLOEXEC);
	if (fd < 0 || clv_fd_write(fd, bytes, len))
		return fd;
	int why = errno ? errno : ENOSPC;
	close(fd);
	errno = why;
	return -1;
}

static bool answer(int fd, enum clv_stat_op op)
{
	struct clv_stat_reply reply = {.head = {CLV_STAT_MAGIC, CLV_STAT_VERSION, CLV_STAT_GIVEN}};
	size_t len;
	void *bytes = clv_gather(&asked, op, &len);
	if (!bytes)
		return send_status(fd, CLV_STAT_NO_MEMORY, ENOMEM);
	int memory = memory_with(bytes, len);
	int why = errno;
	clv_meta_free(bytes);
	if (memory < 0)
		return send_status(fd, CLV_STAT_NO_MEMORY, why);
	snprintf(reply.library, sizeof(reply.library), "%s", CLV_VERSION);
	reply.bytes = len;
	bool sent = send_reply(fd, &reply, memory);
	why = errno;
	close(memory);
	return sent || (why == ETOOMANYREFS && send_status(fd, CLV_STAT_NO_MEMORY, why));
}

static bool serve(void *unused, int fd)
{
	struct clv_stat_request request;
	ssize_t n = recv(fd, &request, sizeof(request), MSG_DONTWAIT | MSG_TRUNC);
	(void)unused;
	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == 0 || atomic_load(&ending))
		return false;
	if (n == (ssize_t)sizeof(request) && request.head.magic == CLV_STAT_MAGIC &&
	    request.head.version == CLV_STAT_VERSION && request.head.what < CLV_STAT_OPS)
		return answer(fd, request.head.what);
	send_status(fd, CLV_STAT_BAD_REQUEST, 0);
	return false;
}

static void turn_away(void *unused, int fd)
{
	(void)unused;
	send_status(fd, CLV_STAT_OTHER_USER, 0);
}

static int write_metrics(void *unused)
{
	(void)unused;
	return atomic_load(&ending) ? -1 : clv_metrics_work(&asked);
}

void clv_stat_serve(const struct clv_live *live)
{
	static struct clv_service_config config = {.thread_name = "cleave-stat",
						   .patience_ms = &clv_stat_patience_ms,
						   .serve = serve,
						   .turn_away = turn_away,
						   .lasting = true};
	char name[CLV_STAT_NAME];
	uint64_t start;
	int cancel;
	if (atomic_load(&service.up))
		return;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); /* reading files would be a moment for it */
	asked = *live;
	config.work = clv_metrics_open(live) ? write_metrics : NULL;
	bool named = live->settings->stat && clv_stat_start_of("self", &start);
	if (named)
		clv_stat_name(name, (long)getpid(), start);
	if (named || config.work)
		clv_service_start(&service, &config, named ? name : NULL, NULL);
	pthread_setcancelstate(cancel, NULL);
}

__attribute__((destructor)) static void at_end(void)
{
	atomic_store(&ending, true);
}

void clv_stat_in_child(void)
{
	clv_service_in_child(&service);
}
