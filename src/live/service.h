/* SPDX-License-Identifier: MIT
 *
 * service: a thread in a host program that answers other processes on an abstract Unix socket of packets (SOCK_SEQPACKET),
 * and that the program does not notice: it takes no signal of the program's, has a small stack, uses neither the program's
 * malloc nor its stdio, and sleeps in poll() until somebody asks. The child of a fork has no such thread, and closes what the
 * parent listens on. Who is of another user, and not root, is turned away.
 *
 * A service is a static object. Who starts it makes sure that only one thread does so at a time; what is in `connections` is
 * the service's thread's alone, but for a child of fork().
 */
#ifndef CLV_SERVICE_H
#define CLV_SERVICE_H

#include "../base/error.h"

#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#define CLV_SERVICE_CONNECTIONS 8u /* at a time; the others wait their turn */

struct clv_service_config {
	const char *thread_name;              /* at most 15 characters */
	const int *patience_ms;               /* how long a connection may say nothing */
	bool (*serve)(void *arg, int fd);     /* a packet is there. False: the connection is of no use any more */
	void (*turn_away)(void *arg, int fd); /* tells a process of another user; must not wait */
	/* The socket is made anew when the program has closed it; else the thread ends, and can be started again. */
	bool lasting;
	/* May be NULL: what there is to do besides, with a socket or without. Called whenever the thread wakes; returns after
	 * how many milliseconds it wants to be called again, -1: not before something happens. */
	int (*work)(void *arg);
	void *arg;
};

struct clv_service {
	const struct clv_service_config *config;
	struct sockaddr_un address;
	socklen_t address_len; /* 0: no socket */
	_Atomic bool up;       /* the thread runs */
	_Atomic int fd;        /* it listens there; -1: nowhere */
	dev_t dev;             /* which socket it is: programs close descriptors that are not theirs */
	ino_t ino;
	struct clv_service_connection {
		_Atomic int fd; /* -1: none */
		int64_t deadline;
	} connections[CLV_SERVICE_CONNECTIONS];
};

#define CLV_SERVICE_INIT                                                                                               \
	{                                                                                                              \
		.fd = -1, .connections = { [0 ... CLV_SERVICE_CONNECTIONS - 1] = {.fd = -1} }                          \
	}

/* Binds the socket to an abstract name (NULL: there is to be none) and starts the thread, if it does not run. Where there can be
 * no socket, but there is work, the thread starts all the same. False with the reason: there is no thread. */
bool clv_service_start(struct clv_service *s, const struct clv_service_config *config, const char *name,
		       struct clv_error *err);

/* In the child of a fork. */
void clv_service_in_child(struct clv_service *s);

/* The address of an abstract name, which is cut off where there is no room; its length. */
socklen_t clv_service_address(const char *name, struct sockaddr_un *out);

/* Monotonic. */
int64_t clv_service_now_ms(void);

#endif
