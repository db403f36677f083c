/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "stack_pipe.h"

#include "../../src/base/base.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NO_PIPE (-2) /* what libunwind has in place of both descriptors; it takes -1 for none yet */

/* ---- what libunwind calls ---- */

static int make_no_pipe(int ends[2], int flags)
{
	(void)flags;
	ends[0] = ends[1] = NO_PIPE;
	return 0;
}

/* All that it reads or writes by the single byte, it does to look: also by a pipe that it made for the program before we came,
 * whose numbers may be files of the program by now. It says what is wrong on stderr. */
static bool is_to_look(int fd, size_t len)
{
	return fd == NO_PIPE || (len == 1 && fd != STDERR_FILENO);
}

static ssize_t read_nothing(int fd, void *to, size_t len)
{
	if (!is_to_look(fd, len))
		return read(fd, to, len);
	errno = EAGAIN; /* an empty pipe */
	return -1;
}

/* The kernel reads the 8 bytes there before it finds that there is nothing that it could do with them. Anything else that it
 * says, as a filter of system calls may, is a no. */
static ssize_t can_be_read(const void *from, size_t len)
{
	uintptr_t at = (uintptr_t)from & ~(uintptr_t)7; /* aligned so, all of them are in the page of the first */
	if (syscall(SYS_rt_sigprocmask, -1L, at, 0L, 8L) == 0 || errno != EINVAL)
		return -1;
	errno = 0;
	return (ssize_t)len;
}

/* Not each emulation of a kernel does it in this order. */
static bool kernel_tells(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *closed = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (closed == MAP_FAILED)
		return false;
	bool tells = can_be_read(&page, 1) == 1 && can_be_read(closed, 1) == -1;
	(void)munmap(closed, page);
	return tells;
}

static ssize_t write_or_look(int fd, const void *from, size_t len)
{
	return is_to_look(fd, len) ? can_be_read(from, len) : write(fd, from, len);
}

/* libunwind 1.6 writes by the number of the call. */
static long call_or_look(long number, long a, long b, long c, long d, long e, long f)
{
	if (number == SYS_write && is_to_look((int)a, (unsigned)c))
		return can_be_read((const void *)b, (unsigned)c);
	return syscall(number, a, b, c, d, e, f);
}

/* ---- where it calls from ---- */

#if defined(__x86_64__)
#define IS_FUNCTION(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT)
#else
#define IS_FUNCTION(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT)
#endif

struct object {
	uintptr_t base;
	const void *dynamic;
	uintptr_t relro_begin, relro_end; /* read-only once it is loaded */
	const ElfW(Rela) * tables[2];
	size_t sizes[2]; /* in bytes */
	const ElfW(Sym) * symbols;
	const char *strings;
};

/* The headers as the loader has them: the first page need not be at the base, nor be there. */
static int find_relro(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct object *o = arg;
	uintptr_t begin = 0, end = 0;
	bool is_it = false;
	(void)size;
	if (info->dlpi_addr != o->base)
		return 0;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type == PT_DYNAMIC)
			is_it = (const void *)(o->base + p->p_vaddr) == o->dynamic;
		if (p->p_type == PT_GNU_RELRO) {
			begin = o->base + p->p_vaddr;
			end = begin + p->p_memsz;
		}
	}
	if (is_it) {
		o->relro_begin = begin;
		o->relro_end = end;
	}
	return is_it;
}

static bool read_object(void *lib, struct object *o)
{
	struct link_map *map = NULL;
	*o = (struct object){0};
	if (dlinfo(lib, RTLD_DI_LINKMAP, &map) || !map)
		return false;
	o->base = map->l_addr;
	o->dynamic = map->l_ld;
	for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
		uintptr_t at = d->d_un.d_ptr;
		const void *there = (const void *)(at < o->base ? at + o->base : at);
		switch (d->d_tag) {
		case DT_JMPREL:
			o->tables[0] = there;
			break;
		case DT_PLTRELSZ:
			o->sizes[0] = d->d_un.d_val;
			break;
		case DT_RELA:
			o->tables[1] = there;
			break;
		case DT_RELASZ:
			o->sizes[1] = d->d_un.d_val;
			break;
		case DT_SYMTAB:
			o->symbols = there;
			break;
		case DT_STRTAB:
			o->strings = there;
			break;
		default:
			break;
		}
	}
	return o->symbols && o->strings && dl_iterate_phdr(find_relro, o) == 1;
}

static void *_Atomic *find_slot(const struct object *o, const char *name)
{
	for (unsigned t = 0; t < CLV_ARRAY_LEN(o->tables); t++)
		for (size_t i = 0; o->tables[t] && i < o->sizes[t] / sizeof(*o->tables[t]); i++) {
			const ElfW(Rela) *r = &o->tables[t][i];
			if (IS_FUNCTION(ELF64_R_TYPE(r->r_info)) &&
			    !strcmp(o->strings + o->symbols[ELF64_R_SYM(r->r_info)].st_name, name))
				return (void *_Atomic *)(o->base + r->r_offset);
		}
	return NULL;
}

static bool set_slot(const struct object *o, void *_Atomic *slot, void *function)
{
	uintptr_t at = (uintptr_t)slot, page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = at & ~(page - 1);
	/* the loader closes whole pages: one that relro shares with other data stays open, and must */
	bool is_closed = at >= o->relro_begin && at < (o->relro_end & ~(page - 1));
	if (is_closed && mprotect((void *)begin, page, PROT_READ | PROT_WRITE))
		return false;
	atomic_store(slot, function);
	if (is_closed)
		(void)mprotect((void *)begin, page, PROT_READ);
	return true;
}

bool clv_stack_without_pipe(void *lib)
{
	struct object o;
	if (!kernel_tells() || !read_object(lib, &o))
		return false;
	void *_Atomic *make = find_slot(&o, "pipe2"), *_Atomic *reads = find_slot(&o, "read"),
		      *_Atomic *writes = find_slot(&o, "write"), *_Atomic *calls = find_slot(&o, "syscall");
	if (!make || !reads || (!writes && !calls))
		return false;
	/* the one that makes the difference last: the others are as before without it */
	return (!writes || set_slot(&o, writes, (void *)write_or_look)) &&
	       (!calls || set_slot(&o, calls, (void *)call_or_look)) && set_slot(&o, reads, (void *)read_nothing) &&
	       set_slot(&o, make, (void *)make_no_pipe);
}
