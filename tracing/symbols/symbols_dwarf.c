/* SPDX-License-Identifier: MIT */
#include "symbols_internal.h"

#if CLV_HAVE_LIBDW

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SYSTEM_DEBUG_FOLDER "/usr/lib/debug"

struct clv_symbols_dwarf {
	Dwfl *dwfl;
	Dwfl_Module *module;
	Dwfl_Callbacks callbacks;
	char *debug_path; /* as dwfl_standard_find_debuginfo() takes it */
};

bool clv_symbols_have_libdw(void)
{
	return true;
}

/* ---- which file ---- */

/* Whether it is the file that was recorded. */
static bool is_that_file(const char *path, const struct symbols_module *m)
{
	const void *id;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* not to wait for a pipe */
	if (fd < 0)
		return false;
	Elf *elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	ssize_t len = elf ? dwelf_elf_gnu_build_id(elf, &id) : -1;
	bool same = elf && elf_kind(elf) == ELF_K_ELF &&
		    (m->m.build_id_len == 0 ||
		     (len == (ssize_t)m->m.build_id_len && memcmp(id, m->build_id, m->m.build_id_len) == 0));
	elf_end(elf);
	close(fd);
	return same;
}

/* FOLDER/.build-id/ab/cdef.debug in the first folder that has it. False: none has. */
static bool find_by_build_id(const char *folders, const struct symbols_module *m, char *path, size_t room)
{
	char hex[2 * CLV_SYMBOLS_BUILD_ID_MAX + 1];
	if (m->m.build_id_len < 2)
		return false;
	for (size_t i = 0; i < m->m.build_id_len; i++)
		snprintf(hex + 2 * i, 3, "%02x", m->build_id[i]);
	while (*folders) {
		size_t len = strcspn(folders, ":");
		int need = snprintf(path, room, "%.*s/.build-id/%.2s/%s.debug", (int)len, folders, hex, hex + 2);
		if (len && need > 0 && (size_t)need < room && is_that_file(path, m))
			return true;
		folders += len + (folders[len] == ':');
	}
	return false;
}

struct clv_symbols_dwarf *clv_symbols_dwarf_open(struct clv_symbols *s, const struct symbols_module *m)
{
	char by_id[4096], folders[4096 + sizeof(SYSTEM_DEBUG_FOLDER) + 1];
	elf_version(EV_CURRENT);
	snprintf(folders, sizeof(folders), "%.4095s:" SYSTEM_DEBUG_FOLDER, s->debug_folders);
	const char *path = m->m.path;
	if (!is_that_file(path, m)) {
		if (!find_by_build_id(folders, m, by_id, sizeof(by_id)))
			return NULL;
		path = by_id;
	}
	struct clv_symbols_dwarf *d = calloc(1, sizeof(*d));
	/* "+": no checksums are wanted of what is found by build-id; the empty one: beside the file */
	if (!d || asprintf(&d->debug_path, "+:.debug:%s", folders) < 0) {
		free(d);
		return NULL;
	}
	d->callbacks = (Dwfl_Callbacks){.find_elf = dwfl_build_id_find_elf,
					.find_debuginfo = dwfl_standard_find_debuginfo,
					.debuginfo_path = &d->debug_path};
	d->dwfl = dwfl_begin(&d->callbacks);
	if (d->dwfl) {
		dwfl_report_begin(d->dwfl);
		d->module = dwfl_report_elf(d->dwfl, path, path, -1, m->m.bias, true);
		dwfl_report_end(d->dwfl, NULL, NULL);
	}
	if (d->module)
		return d;
	clv_symbols_dwarf_close(d);
	return NULL;
}

void clv_symbols_dwarf_close(struct clv_symbols_dwarf *d)
{
	if (!d)
		return;
	if (d->dwfl)
		dwfl_end(d->dwfl);
	free(d->debug_path);
	free(d);
}

/* ---- what is there ---- */

/* The name that the linker knows, since what is demangled says more than the last part of it; else the plain one. */
static const char *name_of(Dwarf_Die *die)
{
	Dwarf_Attribute attribute;
	const char *name = dwarf_formstring(dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute));
	return name ? name : dwarf_diename(die);
}

/* A path as the compiler knew it, from its folder on. */
static const char *whole_path(struct clv_symbols *s, const char *file, const char *folder)
{
	char *text = NULL;
	if (!file || file[0] == '/' || !folder)
		return file;
	if (asprintf(&text, "%s/%s", folder, file) < 0)
		return file;
	const char *kept = clv_symbols_keep(s, text);
	return kept ? kept : file;
}

static const char *folder_of(Dwarf_Die *unit)
{
	Dwarf_Attribute attribute;
	return dwarf_formstring(dwarf_attr(unit, DW_AT_comp_dir, &attribute));
}

/* Where the function that is inlined here is called. */
static void set_call_site(struct clv_symbols *s, Dwarf_Die *unit, Dwarf_Die *inlined, struct clv_symbol *caller)
{
	Dwarf_Attribute attribute;
	Dwarf_Word file, line;
	Dwarf_Files *files;
	size_t count;
	if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &attribute), &line) == 0)
		caller->line = (uint32_t)line;
	if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &attribute), &file) == 0 &&
	    dwarf_getsrcfiles(unit, &files, &count) == 0 && file < count)
		caller->file = whole_path(s, dwarf_filesrc(files, file, NULL, NULL), folder_of(unit));
}

static void set_line(struct clv_symbols *s, struct clv_symbols_dwarf *d, uint64_t address, struct clv_symbol *out)
{
	int line = 0;
	Dwfl_Line *l = dwfl_module_getsrc(d->module, address);
	const char *file = l ? dwfl_lineinfo(l, NULL, &line, NULL, NULL, NULL) : NULL;
	if (!file)
		return;
	out->file = whole_path(s, file, dwfl_line_comp_dir(l));
	out->line = line > 0 ? (uint32_t)line : 0;
}

/* The functions around the address by the debug information, innermost first; 0: it says nothing. */
static size_t scopes_at(struct clv_symbols *s, struct clv_symbols_dwarf *d, uint64_t address, struct clv_symbol *out,
			size_t max)
{
	Dwarf_Addr bias;
	Dwarf_Die *unit = dwfl_module_addrdie(d->module, address, &bias), *lexical = NULL, *scopes = NULL;
	size_t count = 0;
	int n = unit ? dwarf_getscopes(unit, address - bias, &lexical) : 0;
	if (n > 0) /* from the innermost outwards by what lies in what, where the first answer follows the source */
		n = dwarf_getscopes_die(&lexical[0], &scopes);
	for (int i = 0; scopes && i < n && count < max; i++) {
		int tag = dwarf_tag(&scopes[i]);
		if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram)
			continue;
		out[count].function = name_of(&scopes[i]);
		out[count].inlined = tag == DW_TAG_inlined_subroutine;
		count++;
		if (tag == DW_TAG_subprogram)
			break;
		if (count < max)
			set_call_site(s, unit, &scopes[i], &out[count]);
	}
	free(lexical);
	free(scopes);
	return count;
}

size_t clv_symbols_dwarf_find(struct clv_symbols *s, struct clv_symbols_dwarf *d, uint64_t address,
			      struct clv_symbol *out, size_t max)
{
	memset(out, 0, max * sizeof(*out));
	set_line(s, d, address, &out[0]);
	size_t count = scopes_at(s, d, address, out, max);
	if (count == 0)
		out[0].function = dwfl_module_addrname(d->module, address);
	return count ? count : out[0].function || out[0].file;
}

#else /* without libdw */

bool clv_symbols_have_libdw(void)
{
	return false;
}

struct clv_symbols_dwarf *clv_symbols_dwarf_open(struct clv_symbols *s, const struct symbols_module *m)
{
	return NULL;
}

void clv_symbols_dwarf_close(struct clv_symbols_dwarf *d)
{
}

size_t clv_symbols_dwarf_find(struct clv_symbols *s, struct clv_symbols_dwarf *d, uint64_t address,
			      struct clv_symbol *out, size_t max)
{
	return 0;
}

#endif
