/* SPDX-License-Identifier: MIT */
#include "import.h"

#include "../memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define RELEASE_STEP ((size_t)8 << 20)

/* Files up to this size are read, larger ones mapped. A mapped file must not be made shorter meanwhile (as a program
 * does that writes its next snapshot under the same name): touching what is gone ends the process. */
#define READ_MAX ((uint64_t)64 << 20)

void clv_input_release(const struct clv_input *in, size_t offset, size_t *released)
{
	if (CLV_LIKELY(!in->mapped || offset < *released + RELEASE_STEP))
		return;
	size_t end = offset & ~(RELEASE_STEP - 1); /* a multiple of any page size; data begins at a page */
	madvise((void *)(uintptr_t)(in->data + *released), end - *released, MADV_DONTNEED);
	*released = end;
}

static bool starts(const struct clv_input *in, const char *magic, size_t len)
{
	return in->size >= len && memcmp(in->data, magic, len) == 0;
}

static bool is_text_pickle(const struct clv_input *in)
{
	return starts(in, "(dp", 3) || starts(in, "(lp", 3) || starts(in, "}q", 2) || starts(in, "]q", 2);
}

struct clv_trace *clv_import_memory(const struct clv_input *in, struct clv_error *err)
{
	if (in->size == 0) {
		clv_error_set(err, "%s: the file is empty", in->name);
		return NULL;
	}
	if (in->data[0] == 0x80)
		return clv_import_torch(in, err);
	if (starts(in,
		   "\x93"
		   "CLV",
		   4))
		return clv_import_clv(in, err);
	const char *what = NULL;
	if (starts(in, "\x1f\x8b", 2))
		what = "a gzip file; decompress it first (gunzip)";
	else if (starts(in, "\x28\xb5\x2f\xfd", 4))
		what = "a zstd file; decompress it first (unzstd)";
	else if (starts(in,
			"\xfd"
			"7zXZ",
			5))
		what = "an xz file; decompress it first (unxz)";
	else if (starts(in, "PK\x03\x04", 4))
		what = "a zip file, as torch.save() writes; a snapshot is written by "
		       "torch.cuda.memory._dump_snapshot() or pickle.dump()";
	else if (is_text_pickle(in))
		what = "a pickle of protocol 0 or 1; protocols 2 to 5 are read";
	else if (in->data[0] == '{' || in->data[0] == '[')
		what = "JSON, or nothing known; a trace is a PyTorch snapshot pickle, a .clv file or an RMM CSV log";
	if (what) {
		clv_error_at(err, in->name, 0, "%s", what);
		return NULL;
	}
	return clv_import_rmm(in, err);
}

static bool input_read(struct clv_input *in, int fd, size_t size, struct clv_error *err)
{
	uint8_t *data = clv_mem_alloc(size);
	size_t got = 0;
	if (!data)
		return clv_error_set(err, "%s: out of host memory", in->name);
	while (got < size) {
		ssize_t n = read(fd, data + got, size - got);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			clv_error_set(err, "%s: %s", in->name, strerror(errno));
			clv_mem_free(data);
			return false;
		}
		if (n == 0)
			break; /* it became shorter: the importer says where it ends */
		got += (size_t)n;
	}
	in->data = data;
	in->size = got;
	return true;
}

static bool input_map(struct clv_input *in, int fd, size_t size, struct clv_error *err)
{
	void *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return clv_error_set(err, "%s: cannot be mapped: %s", in->name, strerror(errno));
	madvise(map, size, MADV_SEQUENTIAL);
	in->data = map;
	in->size = size;
	in->mapped = true;
	return true;
}

static bool input_fd(struct clv_input *in, int fd, struct clv_error *err)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return clv_error_set(err, "%s: %s", in->name, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return clv_error_set(err, "%s: %s, not a regular file", in->name,
				     S_ISDIR(st.st_mode) ? "a directory" : "a pipe or device");
	return ((uint64_t)st.st_size <= READ_MAX ? input_read : input_map)(in, fd, (size_t)st.st_size, err);
}

bool clv_input_open(struct clv_input *in, const char *path, struct clv_error *err)
{
	*in = (struct clv_input){.name = path};
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO without a writer must not block */
	if (fd < 0)
		return clv_error_set(err, "%s: %s", path, strerror(errno));
	bool ok = input_fd(in, fd, err);
	close(fd);
	return ok;
}

void clv_input_close(struct clv_input *in)
{
	if (in->mapped)
		munmap((void *)(uintptr_t)in->data, in->size);
	else
		clv_mem_free((void *)(uintptr_t)in->data);
	in->data = NULL;
}

struct clv_trace *clv_trace_import(const char *path, struct clv_error *err)
{
	struct clv_input in;
	if (!clv_input_open(&in, path, err))
		return NULL;
	struct clv_trace *trace = clv_import_memory(&in, err);
	clv_input_close(&in);
	return trace;
}
