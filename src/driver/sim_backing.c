/* SPDX-License-Identifier: MIT
 *
 * One memfd holds the bytes of all frames and plain allocations, but for frames that can be handed to another process,
 * which have a file each; an address range of the device has host addresses of its own, into which frames are mapped as
 * the driver is told to. So aliases of a frame share its bytes, neighbours are contiguous, and
 * host code that touches what is unmapped, or mapped without access, faults as a kernel would.
 */
#define _GNU_SOURCE
#include "sim_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Fresh memory is what the last owner left there; code that counts on zeros must fail in tests. */
#define GARBAGE 0xa5

#define FRAME_NAME "cleave-sim-frame-"

bool clv_sim_backing_open(struct sim *sim)
{
	if (!sim->config.backing)
		return true;
	if (sim->config.granularity & ((uint64_t)sysconf(_SC_PAGESIZE) - 1))
		return false;
	sim->file = memfd_create("cleave-sim", MFD_CLOEXEC);
	return sim->file >= 0;
}

void clv_sim_backing_close(struct sim *sim)
{
	if (sim->file >= 0)
		close(sim->file);
}

#define PIECE (64 * 1024)

static bool fill_piece(int file, uint64_t offset, uint64_t size)
{
	static const uint8_t garbage[PIECE] = {[0 ... PIECE - 1] = GARBAGE};
	while (size) {
		ssize_t n = pwrite(file, garbage, size, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		offset += (uint64_t)n;
		size -= (uint64_t)n;
	}
	return true;
}

/* A bit a piece. */
static uint64_t *all_untouched(struct sim *sim, uint64_t size)
{
	uint64_t words = (size + 64 * PIECE - 1) / (64 * PIECE);
	uint64_t *bits = clv_sim_host_alloc(sim, words * sizeof(*bits));
	for (uint64_t i = 0; i < words && bits; i++)
		bits[i] = UINT64_MAX;
	return bits;
}

static bool touch(uint64_t *untouched, int file, uint64_t base, uint64_t total, uint64_t offset, uint64_t size)
{
	if (!untouched || !size)
		return true;
	for (uint64_t i = offset / PIECE; i <= (offset + size - 1) / PIECE; i++) {
		uint64_t bit = (uint64_t)1 << i % 64;
		if (!(untouched[i / 64] & bit))
			continue;
		if (!fill_piece(file, base + i * PIECE, clv_min_u64(PIECE, total - i * PIECE)))
			return false;
		untouched[i / 64] &= ~bit;
	}
	return true;
}

bool clv_sim_backing_touch_frame(struct sim *sim, struct sim_frame *frame, uint64_t offset, uint64_t size)
{
	int file = frame->file >= 0 ? frame->file : sim->file;
	return touch(frame->untouched, file, frame->file_offset, frame->size, offset, size);
}

bool clv_sim_backing_touch_plain(struct sim *sim, struct sim_range *range, uint64_t offset, uint64_t size)
{
	return touch(range->untouched, sim->file, range->file_offset, range->size, offset, size);
}

static void give_bytes(struct sim *sim, uint64_t offset, uint64_t size)
{
	(void)fallocate(sim->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size);
}

/* The file is sparse and its offsets are not used twice, so that frames of all sizes fit without fragmenting it. */
static bool take_bytes(struct sim *sim, uint64_t size, uint64_t *offset, uint64_t **untouched)
{
	*untouched = all_untouched(sim, size);
	if (!*untouched || ftruncate(sim->file, (off_t)(sim->file_end + size))) {
		free(*untouched);
		*untouched = NULL;
		return false;
	}
	*offset = sim->file_end;
	sim->file_end += size;
	return true;
}

bool clv_sim_backing_create(struct sim *sim, struct sim_frame *frame)
{
	if (sim->file < 0)
		return true;
	if (frame->file < 0)
		return take_bytes(sim, frame->size, &frame->file_offset, &frame->untouched);
	frame->untouched = all_untouched(sim, frame->size);
	return frame->untouched && !ftruncate(frame->file, (off_t)frame->size);
}

bool clv_sim_backing_own_file(struct sim *sim, struct sim_frame *frame)
{
	if (sim->file < 0)
		return false;
	char name[sizeof(FRAME_NAME) + 16]; /* tells whoever imports it whose memory it is */
	snprintf(name, sizeof(name), FRAME_NAME "%d", frame->device);
	frame->file_offset = 0;
	frame->file = memfd_create(name, MFD_CLOEXEC);
	return frame->file >= 0;
}

int clv_sim_file_device(int fd)
{
	char link[64], name[128];
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, name, sizeof(name) - 1);
	if (n < 0)
		return -1;
	name[n] = 0;
	int device;
	return sscanf(name, "/memfd:" FRAME_NAME "%d", &device) == 1 ? device : -1;
}

void clv_sim_backing_destroy(struct sim *sim, struct sim_frame *frame)
{
	if (frame->file >= 0)
		close(frame->file);
	else if (sim->file >= 0)
		give_bytes(sim, frame->file_offset, frame->size);
	frame->file = -1;
	free(frame->untouched);
	frame->untouched = NULL;
}

bool clv_sim_backing_reserve(struct sim *sim, struct sim_range *range)
{
	if (sim->file < 0)
		return true;
	void *p = mmap(NULL, range->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return false;
	range->host = p;
	return true;
}

void clv_sim_backing_unreserve(struct sim *sim, struct sim_range *range)
{
	if (!range->host)
		return;
	munmap(range->host, range->size);
	if (range->plain)
		give_bytes(sim, range->file_offset, range->size);
	free(range->untouched);
	range->untouched = NULL;
}

bool clv_sim_backing_map(struct sim *sim, struct sim_range *range, uint64_t addr, const struct sim_frame *frame)
{
	if (sim->file < 0)
		return true;
	void *at = range->host + (addr - range->addr);
	int file = frame->file >= 0 ? frame->file : sim->file;
	return mmap(at, frame->size, PROT_NONE, MAP_SHARED | MAP_FIXED, file, (off_t)frame->file_offset) != MAP_FAILED;
}

bool clv_sim_backing_unmap(struct sim *sim, struct sim_range *range, uint64_t addr, uint64_t size)
{
	if (sim->file < 0)
		return true;
	void *at = range->host + (addr - range->addr);
	return mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

bool clv_sim_backing_access(struct sim *sim, struct sim_range *range, uint64_t addr, uint64_t size, bool access)
{
	return sim->file < 0 ||
	       !mprotect(range->host + (addr - range->addr), size, access ? PROT_READ | PROT_WRITE : PROT_NONE);
}

bool clv_sim_backing_plain(struct sim *sim, struct sim_range *range)
{
	if (sim->file < 0)
		return true;
	if (!take_bytes(sim, range->size, &range->file_offset, &range->untouched))
		return false;
	void *p = mmap(NULL, range->size, PROT_READ | PROT_WRITE, MAP_SHARED, sim->file, (off_t)range->file_offset);
	if (p == MAP_FAILED) {
		free(range->untouched);
		range->untouched = NULL;
		return false;
	}
	range->host = p;
	return true;
}
