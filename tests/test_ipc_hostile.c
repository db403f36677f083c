/* SPDX-License-Identifier: MIT
 *
 * Both sides of IPC beside those that do not keep to the rules: other users, importers that send anything, stay or die,
 * and an exporter whose answers make no sense.
 */
#define _GNU_SOURCE
#include "check_main.h"
#include "ipc_world.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define G IPC_GRANULARITY

static CUipcMemHandle made(const struct ipc_exporter *x, unsigned i, unsigned frames)
{
	ipc_tell(x, (struct ipc_order){
			    .op = IPC_MAKE, .i = i, .frames = frames, .bytes = G, .size = frames * G, .seed = i});
	struct ipc_answer a = ipc_tell(x, (struct ipc_order){.op = IPC_HANDLE, .i = i});
	ck_assert_int_eq(a.result, CUDA_SUCCESS);
	return a.handle;
}

static void ck_serves(CUipcMemHandle h, unsigned i, unsigned frames)
{
	CUdeviceptr at;
	ck_assert_msg(!cuIpcOpenMemHandle_v2(&at, h, 1), "%s", world.said);
	ck_assert(ipc_filled(at, frames * G, i));
	ck_assert_int_eq(cuIpcCloseMemHandle(at), CUDA_SUCCESS);
}

static int connected(const struct clv_ipc_id *token)
{
	struct sockaddr_un address;
	socklen_t len = clv_ipc_address(token, &address);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(fd, 0);
	ck_assert(!connect(fd, (struct sockaddr *)&address, len));
	return fd;
}

static struct clv_ipc_id token_of(CUipcMemHandle h)
{
	struct clv_ipc_handle ours;
	memcpy(&ours, &h, sizeof(ours));
	return ours.token;
}

/* Sends a packet with descriptors. */
static bool send_with(int fd, const void *data, size_t size, unsigned count, int what)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(253 * sizeof(int))];
	} control = {{0}};
	struct iovec iov = {(void *)data, size};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	if (count) {
		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE(count * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(count * sizeof(int));
		for (unsigned i = 0; i < count; i++)
			memcpy(CMSG_DATA(c) + i * sizeof(int), &what, sizeof(int));
	}
	return sendmsg(fd, &m, MSG_NOSIGNAL) == (ssize_t)size;
}

static void scramble(struct clv_rng *rng, void *data, size_t size)
{
	uint8_t *bytes = data;
	for (uint64_t n = clv_rng_range(rng, 1, 4); n--;)
		bytes[clv_rng_below(rng, size)] = (uint8_t)clv_rng_next(rng);
}

/* Random packets, descriptors with them, several at once, never read: the exporter goes on and keeps nothing. */
START_TEST(importers_that_send_anything)
{
	struct ipc_exporter x = ipc_start();
	CUipcMemHandle h = made(&x, 0, 70);
	struct clv_ipc_handle ours;
	struct clv_rng rng = {3};
	uint8_t noise[4096];
	memcpy(&ours, &h, sizeof(ours));
	ck_serves(h, 0, 70);
	unsigned theirs = ipc_at_rest(&x);
	for (unsigned n = 0; n < 400; n++) {
		int fd = connected(&ours.token);
		for (uint64_t packets = clv_rng_below(&rng, 4); packets--;) {
			struct clv_ipc_request r = {CLV_IPC_MAGIC, CLV_IPC_VERSION, (uint32_t)clv_rng_below(&rng, 80),
						    ours.key};
			uint64_t kind = clv_rng_below(&rng, 4);
			size_t size = sizeof(r);
			memcpy(noise, &r, sizeof(r));
			if (kind == 0)
				scramble(&rng, noise, sizeof(r));
			if (kind == 1)
				size = clv_rng_below(&rng, sizeof(noise));
			send_with(fd, noise, size, kind == 2 ? (unsigned)clv_rng_range(&rng, 1, 253) : 0, fd);
		}
		if (clv_rng_below(&rng, 2)) {
			struct clv_ipc_reply reply;
			recv(fd, &reply, sizeof(reply), MSG_DONTWAIT);
		}
		close(fd);
	}
	ck_serves(h, 0, 70);
	ipc_calm(&x, theirs);
	ipc_kill(&x);
}
END_TEST

/* A key that is not known is told nothing, though its first byte names a place in the table. */
START_TEST(keys_are_not_guessed)
{
	struct ipc_exporter x = ipc_start();
	struct clv_ipc_handle ours;
	struct clv_ipc_reply reply;
	CUipcMemHandle h = made(&x, 0, 1);
	memcpy(&ours, &h, sizeof(ours));
	for (unsigned i = 0; i < sizeof(ours.key) * 8; i++) {
		struct clv_ipc_request r = {CLV_IPC_MAGIC, CLV_IPC_VERSION, 0, ours.key};
		r.key.bytes[i / 8] ^= (uint8_t)(1 << i % 8);
		int fd = connected(&ours.token);
		ck_assert(send_with(fd, &r, sizeof(r), 0, 0));
		ck_assert_int_eq(recv(fd, &reply, sizeof(reply), 0), sizeof(reply));
		ck_assert_uint_eq(reply.status, CLV_IPC_NOT_EXPORTED);
		ck_assert_uint_eq(reply.span, 0);
		close(fd);
	}
	ipc_kill(&x);
}
END_TEST

/* Connections that ask for nothing end when their time is over, and meanwhile the others wait. */
START_TEST(importers_that_stay)
{
	clv_ipc_patience_ms = 1000;
	struct ipc_exporter x = ipc_start();
	clv_ipc_patience_ms = 30000;
	CUipcMemHandle h = made(&x, 0, 2);
	struct clv_ipc_id token = token_of(h);
	unsigned theirs = ipc_at_rest(&x);
	int idle[12];
	for (unsigned i = 0; i < 12; i++)
		idle[i] = connected(&token);
	ck_serves(h, 0, 2);
	ipc_calm(&x, theirs);
	for (unsigned i = 0; i < 12; i++)
		close(idle[i]);
	ipc_kill(&x);
}
END_TEST

/* An importer that is killed after the first of several batches. */
START_TEST(importers_that_die)
{
	struct ipc_exporter x = ipc_start();
	CUipcMemHandle h = made(&x, 0, 200);
	struct clv_ipc_handle ours;
	memcpy(&ours, &h, sizeof(ours));
	unsigned theirs = ipc_at_rest(&x);
	for (unsigned n = 0; n < 20; n++) {
		pid_t pid = fork();
		if (!pid) {
			struct clv_ipc_request r = {CLV_IPC_MAGIC, CLV_IPC_VERSION, 0, ours.key};
			struct clv_ipc_reply reply;
			int fd = connected(&ours.token);
			send(fd, &r, sizeof(r), 0);
			recv(fd, &reply, sizeof(reply), 0);
			r.first = CLV_IPC_BATCH;
			send(fd, &r, sizeof(r), 0);
			_exit(0);
		}
		ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	}
	ck_serves(h, 0, 200);
	ipc_calm(&x, theirs);
	ipc_kill(&x);
}
END_TEST

/* In a process of another user. */
static int try_as_other(CUipcMemHandle h)
{
	CUdeviceptr at;
	pid_t pid = fork();
	int status;
	if (!pid) {
		if (setresuid(4711, 4711, 4711))
			_exit(2);
		bool refused = cuIpcOpenMemHandle_v2(&at, h, 1) == CUDA_ERROR_MAP_FAILED &&
			       strstr(world.said, "another user's");
		_exit(refused ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* What a process of another user could put in the place of an exporter that has ended; its id. */
static pid_t squat(const struct clv_ipc_id *token)
{
	struct sockaddr_un address;
	socklen_t len = clv_ipc_address(token, &address);
	int ready[2];
	ck_assert(!pipe(ready));
	pid_t pid = fork();
	if (!pid) {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
		bool good =
			!setresuid(4712, 4712, 4712) && !bind(fd, (struct sockaddr *)&address, len) && !listen(fd, 8);
		alarm(60);
		if (good && write(ready[1], "", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	char byte;
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

START_TEST(other_users)
{
	if (geteuid()) /* only root can be another user */
		return;
	struct ipc_exporter x = ipc_start();
	CUipcMemHandle h = made(&x, 0, 1);
	for (unsigned n = 0; n < 20; n++)
		ck_assert_int_eq(try_as_other(h), 0);
	ck_serves(h, 0, 1);
	ipc_kill(&x);
	/* root opens what others export; others do not open what is on a socket that is not theirs */
	struct ipc_exporter user = ipc_start();
	ipc_tell(&user, (struct ipc_order){.op = IPC_BECOME, .size = 4712});
	h = made(&user, 0, 1);
	ck_serves(h, 0, 1);
	ck_assert_int_eq(try_as_other(h), 0);
	struct clv_ipc_id token = token_of(h);
	ipc_kill(&user);
	pid_t squatter = squat(&token);
	ck_assert_int_eq(try_as_other(h), 0);
	kill(squatter, SIGKILL);
	waitpid(squatter, NULL, 0);
}
END_TEST

/* ---- an exporter that makes no sense: a thread of this process ---- */

static _Atomic bool stop;
static struct clv_ipc_id bad_token = {{1, 2, 3, 4}};

static void answer_badly(struct clv_rng *rng, int fd, int frame, uint32_t first)
{
	struct clv_ipc_reply r[2] = {{CLV_IPC_MAGIC, CLV_IPC_VERSION, CLV_IPC_GIVEN, 0, 2, 5, 5 * G, 512, 4 * G}};
	size_t size = sizeof(r[0]);
	r[0].count = first < 4 ? 2 : 1;
	unsigned count = r[0].count;
	for (unsigned i = 0; i < count; i++)
		r[0].bytes[i] = G;
	switch (clv_rng_below(rng, 12)) {
	case 0:
		scramble(rng, &r[0], offsetof(struct clv_ipc_reply, bytes) + 16);
		break;
	case 1:
		size = clv_rng_below(rng, sizeof(r));
		break;
	case 2:
		count = (unsigned)clv_rng_below(rng, 254);
		break;
	case 3:
		r[0].count = count = CLV_IPC_BATCH;
		break;
	case 4:
		r[0].status = (uint32_t)clv_rng_below(rng, 8);
		break;
	case 5:
		r[0].span = clv_rng_next(rng) & ~(G - 1);
		break;
	case 6:
		r[0].bytes[0] = clv_rng_below(rng, 8) * G;
		break;
	case 7:
		r[0].offset = clv_rng_next(rng);
		break;
	case 8:
		r[0].frames = clv_rng_next(rng);
		break;
	default:
		break; /* goes on, to fail later */
	}
	send_with(fd, r, size, count, frame);
}

static void *serve_badly(void *arg)
{
	int listening = *(int *)arg;
	struct clv_rng rng = {5};
	struct clv_ipc_request r;
	int frame = memfd_create("frame", MFD_CLOEXEC);
	if (frame < 0 || ftruncate(frame, (off_t)G))
		return NULL;
	while (!atomic_load(&stop)) {
		int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
		while (clv_rng_below(&rng, 20) && recv(fd, &r, sizeof(r), 0) == (ssize_t)sizeof(r))
			answer_badly(&rng, fd, frame, r.first);
		close(fd);
	}
	close(frame);
	return NULL;
}

START_TEST(exporters_that_make_no_sense)
{
	struct sockaddr_un address;
	socklen_t len = clv_ipc_address(&bad_token, &address);
	struct clv_ipc_handle ours = {CLV_IPC_MAGIC, CLV_IPC_VERSION, 1, bad_token, {{9}}, 4 * G, 0};
	CUipcMemHandle h;
	CUdeviceptr at;
	pthread_t thread;
	unsigned opened = 0, descriptors = ipc_descriptors();
	ours.check = clv_ipc_check(&ours);
	memcpy(&h, &ours, sizeof(h));
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert(fd >= 0 && !bind(fd, (struct sockaddr *)&address, len) && !listen(fd, 8));
	ck_assert(!pthread_create(&thread, NULL, serve_badly, &fd));
	for (unsigned n = 0; n < 2000; n++) {
		if (cuIpcOpenMemHandle_v2(&at, h, 1) == CUDA_SUCCESS) {
			opened++;
			ck_assert_int_eq(cuIpcCloseMemHandle(at), CUDA_SUCCESS);
		}
		ck_assert_uint_eq(world.ranges, 0);
		ck_assert_uint_eq(world.handles, 0);
		ck_assert_uint_eq(world.mapped, 0);
	}
	ck_assert_uint_gt(opened, 0); /* as far as the last frame, at times */
	ck_assert_uint_lt(opened, 1500);
	atomic_store(&stop, true);
	close(connected(&bad_token));
	pthread_join(thread, NULL);
	close(fd);
	ck_assert_uint_eq(ipc_descriptors(), descriptors);
}
END_TEST

CHECK_MAIN("ipc_hostile", importers_that_send_anything, keys_are_not_guessed, importers_that_stay, importers_that_die,
	   other_users, exporters_that_make_no_sense)
