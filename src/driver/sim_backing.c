/* SPDX-License-Identifier: MIT
 *
 * One memfd holds the bytes of all frames; an address range of the device has host addresses of its own, into which
 * frames are mapped as the driver is told to. So aliases of a frame share its bytes, neighbours are contiguous, and
 * host code that touches what is unmapped, or mapped without access, faults as a kernel would.
 */
#define _GNU_SOURCE
#include "sim_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Fresh memory is what the last owner left there; code that counts on zeros must fail in tests. */
#define GARBAGE 0xa5

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

static bool fill_file(int file, uint64_t offset, uint64_t size)
{
	static const uint8_t garbage[64 * 1024] = {[0 ... 64 * 1024 - 1] = GARBAGE};
	while (size) {
		ssize_t n = pwrite(file, garbage, (size_t)clv_min_u64(size, sizeof(garbage)), (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		offset += (uint64_t)n;
		size -= (uint64_t)n;
	}
	return true;
}

/* The file is sparse and its offsets are not used twice, so that frames of all sizes fit without fragmenting it. */
bool clv_sim_backing_create(struct sim *sim, struct sim_frame *frame)
{
	if (sim->file < 0)
		return true;
	frame->file_offset = sim->file_end;
	if (!fill_file(sim->file, frame->file_offset, frame->size)) {
		clv_sim_backing_destroy(sim, frame);
		return false;
	}
	sim->file_end += frame->size;
	return true;
}

void clv_sim_backing_destroy(struct sim *sim, struct sim_frame *frame)
{
	if (sim->file >= 0)
		(void)fallocate(sim->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)frame->file_offset,
				(off_t)frame->size);
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
	if (range->host)
		munmap(range->host, range->size);
}

bool clv_sim_backing_map(struct sim *sim, struct sim_range *range, uint64_t addr, const struct sim_frame *frame)
{
	if (sim->file < 0)
		return true;
	void *at = range->host + (addr - range->addr);
	return mmap(at, frame->size, PROT_NONE, MAP_SHARED | MAP_FIXED, sim->file, (off_t)frame->file_offset) !=
	       MAP_FAILED;
}

bool clv_sim_backing_unmap(struct sim *sim, struct sim_range *range, uint64_t addr, uint64_t size)
{
	if (sim->file < 0)
		return true;
	void *at = range->host + (addr - range->addr);
	return mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

bool clv_sim_backing_access(struct sim *sim, struct sim_range *range, uint64_t addr, uint64_t size)
{
	return sim->file < 0 || !mprotect(range->host + (addr - range->addr), size, PROT_READ | PROT_WRITE);
}

bool clv_sim_backing_plain(struct sim *sim, struct sim_range *range)
{
	if (sim->file < 0)
		return true;
	void *p = mmap(NULL, range->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return false;
	range->host = p;
	for (uint64_t i = 0; i < range->size; i++)
		range->host[i] = GARBAGE;
	return true;
}
