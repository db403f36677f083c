/* SPDX-License-Identifier: MIT
 *
 * symbols: what native addresses of a recorded process stand for: function, file and line, found after the fact from
 * the files that were loaded there. With libdw from their symbol tables and debug information, else no more than file
 * and offset. A file that is not the one recorded, by its build-id, is not asked; debug information may also lie in a
 * file of its own, found by build-id. Owns open files; belongs to one thread.
 */
#ifndef CLV_SYMBOLS_H
#define CLV_SYMBOLS_H

#include "../../src/base/base.h"

#define CLV_SYMBOLS_BUILD_ID_MAX 32u

/* As recorded (clv_stack_module in tracing/record/stack.h). */
struct clv_symbols_module {
	const char *path;        /* copied */
	uint64_t begin, end;     /* addresses of code */
	uint64_t bias;           /* address in memory less that in the file */
	const uint8_t *build_id; /* copied */
	size_t build_id_len;     /* 0: it had none, and its path is trusted */
};

struct clv_symbol {
	const char *function; /* demangled if it can be; NULL: not known */
	const char *file;     /* of the source; NULL: not known */
	uint32_t line;        /* 0: not known */
	bool inlined;         /* into the next one */
};

struct clv_symbols;

/* NULL: out of memory. `debug_folders`: where files by build-id lie (FOLDER/.build-id/ab/cdef.debug), separated by ':',
 * before the system's /usr/lib/debug; may be NULL. */
struct clv_symbols *clv_symbols_open(const char *debug_folders);
void clv_symbols_close(struct clv_symbols *s); /* NULL is allowed */

/* Modules in the order in which they were loaded: of two that overlap, the later one counts. False: out of memory. */
bool clv_symbols_add(struct clv_symbols *s, const struct clv_symbols_module *m);

/* The module of an address, its offset in that file (as objdump counts), and the path; NULL: it is in none. */
const char *clv_symbols_module_of(const struct clv_symbols *s, uint64_t address, uint64_t *offset);

/* What is at the address of an instruction (of a return address: the byte before it): the innermost function first,
 * then those that it is inlined into, at most `max` (> 0). Answers how many; 0: nothing is known. Texts live as long as
 * `s`. */
size_t clv_symbols_find(struct clv_symbols *s, uint64_t address, struct clv_symbol *out, size_t max);

bool clv_symbols_have_libdw(void);

#endif
