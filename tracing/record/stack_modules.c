/* SPDX-License-Identifier: MIT
 *
 * A module that was unloaded and is loaded again elsewhere is another entry; at the same place it is the same one, and
 * then what lay there meanwhile is taken for the later one. Such a program is rare, and its stacks are read with the
 * wrong symbols, not lost.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dl_iterate_phdr */
#endif
#include "stack_modules.h"

#include <limits.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

#define MODULES_MAX (1u << 14)

/* As it lies in the table, without the rest of the path. */
struct record {
	struct clv_stack_module module; /* its path is NULL */
	char path[PATH_MAX];
};

struct look {
	bool first; /* the program itself is next */
	bool changed;
	unsigned long long adds, subs; /* as the dynamic linker counts */
	struct record record;
};

static struct clv_intern modules;
static unsigned long long seen_adds, seen_subs; /* when it was last looked through to the end, by the one thread that looks */
static struct look look;

bool clv_modules_open(void)
{
	return clv_intern_open(&modules, MODULES_MAX);
}

static size_t note_size(size_t size)
{
	return clv_align_up(size, 4);
}

static void find_build_id(const char *note, size_t len, struct clv_stack_module *m)
{
	while (len >= sizeof(ElfW(Nhdr))) {
		ElfW(Nhdr) head;
		memcpy(&head, note, sizeof(head));
		size_t name = note_size(head.n_namesz), desc = note_size(head.n_descsz);
		if (name > len - sizeof(head) || desc > len - sizeof(head) - name)
			return;
		const char *text = note + sizeof(head);
		if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == sizeof("GNU") &&
		    memcmp(text, "GNU", sizeof("GNU")) == 0 && head.n_descsz <= CLV_STACK_BUILD_ID_MAX) {
			m->build_id_len = head.n_descsz;
			memcpy(m->build_id, text + name, head.n_descsz);
		}
		note += sizeof(head) + name + desc;
		len -= sizeof(head) + name + desc;
	}
}

static bool is_loaded(const struct dl_phdr_info *info, const ElfW(Phdr) *part)
{
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type == PT_LOAD && (p->p_flags & PF_R) && part->p_vaddr >= p->p_vaddr &&
		    part->p_vaddr - p->p_vaddr <= p->p_filesz &&
		    part->p_memsz <= p->p_filesz - (part->p_vaddr - p->p_vaddr))
			return true;
	}
	return false;
}

static void set_path(struct record *r, const struct dl_phdr_info *info, bool program)
{
	ssize_t len = -1;
	r->path[0] = '\0';
	if (program && (len = readlink("/proc/self/exe", r->path, sizeof(r->path) - 1)) >= 0)
		r->path[len] = '\0';
	else if (info->dlpi_name && strlen(info->dlpi_name) < sizeof(r->path))
		memcpy(r->path, info->dlpi_name, strlen(info->dlpi_name) + 1);
}

/* The dynamic linker's lock is held. */
static int note_module(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct look *l = arg;
	struct record *r = &l->record;
	bool program = l->first;
	if (program && info->dlpi_adds == seen_adds && info->dlpi_subs == seen_subs)
		return 1;
	l->first = false;
	l->changed = true;
	l->adds = info->dlpi_adds;
	l->subs = info->dlpi_subs;
	memset(r, 0, sizeof(r->module));
	r->module.bias = info->dlpi_addr;
	set_path(r, info, program);
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type == PT_NOTE && is_loaded(info, p))
			find_build_id((const char *)info->dlpi_addr + p->p_vaddr, p->p_memsz, &r->module);
	}
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
			continue;
		r->module.begin = info->dlpi_addr + p->p_vaddr;
		r->module.end = r->module.begin + p->p_memsz;
		clv_intern(&modules, clv_mix64(r->module.begin) ^ r->module.end, r,
			   sizeof(r->module) + strlen(r->path) + 1);
	}
	return 0;
}

bool clv_modules_look(void)
{
	look.first = true;
	look.changed = false;
	dl_iterate_phdr(note_module, &look);
	if (look.changed) {
		seen_adds = look.adds;
		seen_subs = look.subs;
	}
	return look.changed;
}

uint32_t clv_module_count(void)
{
	return clv_intern_count(&modules);
}

bool clv_module_get(uint32_t id, struct clv_stack_module *out)
{
	size_t len;
	const struct record *r = clv_intern_get(&modules, id, &len);
	if (!r)
		return false;
	*out = r->module;
	out->path = r->path;
	return true;
}
