/* SPDX-License-Identifier: MIT
 *
 * symbols_internal: what symbols.c and symbols_dwarf.c share. Each module's files are opened when first asked for,
 * apart from those of other modules, since what was loaded at the same addresses one after the other must not get in
 * each other's way.
 */
#ifndef CLV_SYMBOLS_INTERNAL_H
#define CLV_SYMBOLS_INTERNAL_H

#include "symbols.h"

struct clv_symbols_dwarf;

struct symbols_module {
	struct clv_symbols_module m; /* path and build-id are ours */
	uint8_t build_id[CLV_SYMBOLS_BUILD_ID_MAX];
	bool asked;
	struct clv_symbols_dwarf *dwarf; /* NULL: not asked yet, or nothing to be had */
};

struct clv_symbols {
	char *debug_folders;
	struct symbols_module *modules;
	size_t module_count, module_room;
	char **texts; /* made for answers */
	size_t text_count, text_room;
	/* of libstdc++; NULL: there is none */
	char *(*demangle)(const char *name, char *out, size_t *len, int *status);
	void *libstdcxx;
};

/* Takes over a text that malloc() made (NULL is allowed); NULL: out of memory. */
const char *clv_symbols_keep(struct clv_symbols *s, char *text);

struct clv_symbols_dwarf *clv_symbols_dwarf_open(struct clv_symbols *s, const struct symbols_module *m);
void clv_symbols_dwarf_close(struct clv_symbols_dwarf *d); /* NULL is allowed */
size_t clv_symbols_dwarf_find(struct clv_symbols *s, struct clv_symbols_dwarf *d, uint64_t address,
			      struct clv_symbol *out, size_t max);

#endif
