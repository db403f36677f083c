/* SPDX-License-Identifier: MIT
 *
 * The test double of libcuda.so.1 between two processes: legacy handles of plain memory, and frames as descriptors.
 */
#define _GNU_SOURCE
#include "check_main.h"
#include "fakecuda_open.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static int wire[2]; /* the test's end, the other's end */

static void put(int fd, const void *data, size_t size)
{
	ck_assert_int_eq(write(fd, data, size), (ssize_t)size);
}

static void get(int fd, void *data, size_t size)
{
	ck_assert_int_eq(recv(fd, data, size, MSG_WAITALL), (ssize_t)size);
}

static void put_descriptor(int at, int fd)
{
	char byte = 0;
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec io = {&byte, 1};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control.bytes,
			   .msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	ck_assert_int_eq(sendmsg(at, &m, 0), 1);
}

static int get_descriptor(int at)
{
	char byte;
	int fd;
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec io = {&byte, 1};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control.bytes,
			   .msg_controllen = sizeof(control.bytes)};
	ck_assert_int_eq(recvmsg(at, &m, MSG_CMSG_CLOEXEC), 1);
	ck_assert_ptr_nonnull(CMSG_FIRSTHDR(&m));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
	return fd;
}

/* Runs `other` in a process that has not opened the driver yet, beside this one. */
static pid_t beside(void (*other)(int fd))
{
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, wire), 0);
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		/* a failed assertion of Check ends this process, and the other sees that in its exit status */
		close(wire[0]);
		other(wire[1]);
		_exit(0);
	}
	close(wire[1]);
	return pid;
}

static void joined(pid_t pid)
{
	int status;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}

static void open_plain(int fd)
{
	CUipcMemHandle small, large;
	CUdeviceptr p, again, q, base;
	size_t size;
	CUcontext ctx = start_cuda();
	get(fd, &small, sizeof(small));
	get(fd, &large, sizeof(large));
	OK(cu.cuIpcOpenMemHandle_v2(&p, small, 1));
	OK(cu.cuIpcOpenMemHandle_v2(&again, small, 1)); /* counted */
	ck_assert_uint_eq(p, again);
	OK(cu.cuIpcOpenMemHandle(&q, large, 1));
	OK(cu.cuMemGetAddressRange_v2(&base, &size, p + 99));
	ck_assert_uint_eq(base, p);
	ck_assert_uint_eq(size, 100);
	ck_assert_int_eq(byte_at(p), 11);
	ck_assert_int_eq(byte_at(q + 5 * MIB - 1), 22);
	OK(cu.cuMemsetD8_v2(p, 33, 100));
	OK(cu.cuCtxSynchronize());
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(p));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuIpcGetMemHandle(&small, p));
	OK(cu.cuIpcCloseMemHandle(p));
	ck_assert_int_eq(byte_at(p), 33);
	OK(cu.cuIpcCloseMemHandle(p));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuIpcCloseMemHandle(p));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8_v2(p, 1, 1));
	ck_assert_uint_eq(fake.used(0), 0);
	put(fd, "", 1);
	OK(cu.cuDevicePrimaryCtxReset_v2(0)); /* closes the other one */
	(void)ctx;
	ck_assert_ptr_null(fake.leaks());
}

START_TEST(plain_memory)
{
	CUipcMemHandle h;
	CUdeviceptr small, large, other;
	char done;
	pid_t pid = beside(open_plain);
	start_cuda();
	OK(cu.cuMemAlloc_v2(&other, 1000));
	OK(cu.cuMemAlloc_v2(&small, 100));
	OK(cu.cuMemAlloc_v2(&large, 5 * MIB));
	OK(cu.cuMemsetD8_v2(small, 11, 100));
	OK(cu.cuMemsetD8_v2(large, 22, 5 * MIB));
	OK(cu.cuCtxSynchronize());
	OK(cu.cuIpcGetMemHandle(&h, small));
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cu.cuIpcOpenMemHandle_v2(&other, h, 1));
	put(wire[0], &h, sizeof(h));
	OK(cu.cuIpcGetMemHandle(&h, large));
	put(wire[0], &h, sizeof(h));
	get(wire[0], &done, 1);
	ck_assert_int_eq(byte_at(small + 99), 33);
	joined(pid);
	OK(cu.cuMemAllocAsync(&other, 512, NULL));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuIpcGetMemHandle(&h, other));
	memset(&h, 0, sizeof(h));
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuIpcOpenMemHandle_v2(&other, h, 1));
}
END_TEST

static void import_frame(int fd)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr at;
	start_cuda();
	int frame = get_descriptor(fd);
	OK(cu.cuMemImportFromShareableHandle(&h, (void *)(intptr_t)frame, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(frame);
	OK(cu.cuMemAddressReserve(&at, 8 * MIB, 0, 0, 0));
	FAILS(CUDA_ERROR_NOT_SUPPORTED, cu.cuMemMap(at, 2 * MIB, 0, h, 0));
	OK(cu.cuMemMap(at, 4 * MIB, 0, h, 0));
	give_access(at, 4 * MIB, 0);
	ck_assert_int_eq(byte_at(at + 4 * MIB - 1), 44);
	OK(cu.cuMemsetD8_v2(at, 55, 1));
	OK(cu.cuCtxSynchronize());
	put(fd, "", 1);
	OK(cu.cuMemUnmap(at, 4 * MIB));
	OK(cu.cuMemRelease(h));
	OK(cu.cuMemAddressFree(at, 8 * MIB));
	ck_assert_ptr_null(fake.leaks());
}

START_TEST(frames)
{
	CUmemGenericAllocationHandle h, closed;
	CUdeviceptr at;
	CUipcMemHandle legacy;
	int fd;
	char done;
	struct stat st;
	pid_t pid = beside(import_frame);
	start_cuda();
	CUmemAllocationProp prop = frame_of_device(0);
	OK(cu.cuMemCreate(&h, 4 * MIB, &prop, 0));
	OK(cu.cuMemAddressReserve(&at, 4 * MIB, 0, 0, 0));
	OK(cu.cuMemMap(at, 4 * MIB, 0, h, 0));
	give_access(at, 4 * MIB, 0);
	OK(cu.cuMemsetD8_v2(at, 44, 4 * MIB));
	OK(cu.cuCtxSynchronize());
	OK(cu.cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_size, (off_t)(4 * MIB));
	put_descriptor(wire[0], fd);
	close(fd);
	get(wire[0], &done, 1);
	ck_assert_int_eq(byte_at(at), 55);
	joined(pid);
	FAILS(CUDA_ERROR_INVALID_VALUE, cu.cuIpcGetMemHandle(&legacy, at));
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
	OK(cu.cuMemCreate(&closed, 2 * MIB, &prop, 0));
	FAILS(CUDA_ERROR_INVALID_VALUE,
	      cu.cuMemExportToShareableHandle(&fd, closed, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	/* in the same process: another handle for the same memory */
	OK(cu.cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(cu.cuMemImportFromShareableHandle(&closed, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	ck_assert_uint_ne(h, closed);
}
END_TEST

CHECK_MAIN("libcuda_ipc", plain_memory, frames)
