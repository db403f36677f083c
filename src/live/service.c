/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "service.h"

#include "../base/clock.h"
#include "../base/fd.h"
#include "../base/thread.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define BACKLOG 64
#define STACK (256 * CLV_KIB)
#define STARVED_PAUSE_MS 50 /* until accept is tried again when the process is out of descriptors */

int64_t clv_service_now_ms(void)
{
	return (int64_t)(clv_clock_ns() / 1000000);
}

socklen_t clv_service_address(const char *name, struct sockaddr_un *out)
{
	*out = (struct sockaddr_un){.sun_family = AF_UNIX};
	size_t len = clv_min_u64(strlen(name), sizeof(out->sun_path) - 1);
	memcpy(out->sun_path + 1, name, len); /* abstract: the first byte is 0 */
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

/* First forgotten, then closed, so that the child of a fork closes nothing that is not ours. */
static void close_of(_Atomic int *fd)
{
	int open = atomic_exchange(fd, -1);
	if (open >= 0)
		close(open);
}

static bool is_allowed(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);
	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) && (peer.uid == geteuid() || peer.uid == 0);
}

static bool is_our_socket(const struct clv_service *s)
{
	struct stat st;
	return s->fd >= 0 && !fstat(s->fd, &st) && st.st_dev == s->dev && st.st_ino == s->ino;
}

/* False: the socket is gone. */
static bool take_in(struct clv_service *s, struct clv_service_connection *place, bool *starved)
{
	if (!is_our_socket(s))
		return false;
	int fd = clv_fd_off_std(accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
	if (fd < 0) {
		*starved = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
		return errno != EBADF && errno != EINVAL && errno != ENOTSOCK;
	}
	if (!is_allowed(fd)) {
		s->config->turn_away(s->config->arg, fd);
		close(fd);
		return true;
	}
	place->fd = fd;
	place->deadline = clv_service_now_ms() + *s->config->patience_ms;
	return true;
}

static int sooner(int a, int b)
{
	return a < 0 ? b : b < 0 ? a : a < b ? a : b;
}

/* Waits for something to do and does it. False: the socket is gone. */
static bool step(struct clv_service *s, bool *starved)
{
	struct pollfd polled[CLV_SERVICE_CONNECTIONS + 1];
	struct clv_service_connection *of[CLV_SERVICE_CONNECTIONS + 1], *unused = NULL;
	int pause = s->config->work ? s->config->work(s->config->arg) : -1;
	int64_t now = clv_service_now_ms();
	nfds_t n = 0;
	for (unsigned i = 0; i < CLV_SERVICE_CONNECTIONS; i++) {
		struct clv_service_connection *c = &s->connections[i];
		if (c->fd >= 0 && c->deadline <= now)
			close_of(&c->fd);
		if (c->fd < 0) {
			unused = c;
			continue;
		}
		pause = sooner(pause, (int)(c->deadline - now));
		of[n] = c;
		polled[n++] = (struct pollfd){.fd = c->fd, .events = POLLIN};
	}
	nfds_t listening = s->fd >= 0 && unused && !*starved ? n : CLV_SERVICE_CONNECTIONS + 1;
	if (listening == n)
		polled[n++] = (struct pollfd){.fd = s->fd, .events = POLLIN};
	if (*starved)
		pause = sooner(pause, STARVED_PAUSE_MS);
	*starved = false;
	if (poll(polled, n, pause) <= 0)
		return true;
	for (nfds_t i = 0; i < n; i++) {
		if (!polled[i].revents)
			continue;
		if (i == listening) {
			if (!take_in(s, unused, starved))
				return false;
		} else if (!s->config->serve(s->config->arg, polled[i].fd)) {
			close_of(&of[i]->fd);
		} else {
			of[i]->deadline = clv_service_now_ms() + *s->config->patience_ms;
		}
	}
	return true;
}

static bool listen_at(struct clv_service *s, struct clv_error *err)
{
	struct stat st;
	if (!s->address_len)
		return false;
	int fd = clv_fd_off_std(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (fd < 0 || fstat(fd, &st) || bind(fd, (struct sockaddr *)&s->address, s->address_len) ||
	    listen(fd, BACKLOG)) {
		clv_error_set(err, "no socket (%s)", strerrordesc_np(errno));
		if (fd >= 0)
			close(fd);
		return false;
	}
	s->dev = st.st_dev;
	s->ino = st.st_ino;
	s->fd = fd;
	return true;
}

static void *run(void *service)
{
	struct clv_service *s = service;
	bool starved = false;
	bool goes_on;
	prctl(PR_SET_NAME, s->config->thread_name);
	do {
		while (step(s, &starved))
			;
		for (unsigned i = 0; i < CLV_SERVICE_CONNECTIONS; i++)
			close_of(&s->connections[i].fd);
		s->fd = -1; /* whoever closed it closed the socket; the number may be another file's by now */
		goes_on = s->config->lasting && listen_at(s, NULL);
	} while (goes_on || s->config->work);
	atomic_store(&s->up, false); /* to be started anew */
	return NULL;
}

bool clv_service_start(struct clv_service *s, const struct clv_service_config *config, const char *name,
		       struct clv_error *err)
{
	if (atomic_load(&s->up))
		return true;
	s->config = config;
	s->address_len = name ? clv_service_address(name, &s->address) : 0;
	if (!listen_at(s, config->work ? NULL : err) && !config->work)
		return false;
	atomic_store(&s->up, true);
	int why = clv_thread_start(NULL, STACK, run, s);
	if (!why)
		return true;
	atomic_store(&s->up, false);
	close_of(&s->fd);
	return clv_error_set(err, "no thread (%s)", strerrordesc_np(why));
}

void clv_service_in_child(struct clv_service *s)
{
	atomic_store(&s->up, false);
	if (is_our_socket(s))
		close_of(&s->fd);
	s->fd = -1; /* else the program has closed it, and has the number */
	for (unsigned i = 0; i < CLV_SERVICE_CONNECTIONS; i++)
		close_of(&s->connections[i].fd);
}
