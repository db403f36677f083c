/* SPDX-License-Identifier: MIT
 *
 * The cache: (code object, instruction) to the id of a frame, for all threads, of a fixed size; what is new takes the
 * place of what was there. Each entry is a sequence lock: odd while it is written; a reader whose entry changed
 * meanwhile, and a writer that finds another at work, do without it.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dl_iterate_phdr */
#endif
#include "stack_python.h"

#include "stack_code.h"

#include "../../src/host/meta.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STRINGS_MAX (1u << 17)
#define FRAMES_MAX (1u << 18)
#define CACHE_BITS 13
#define TEXT_MAX 4096u
#define WALK_MAX (4 * CLV_STACK_PYTHON_MAX)
#define BASICSIZE 32 /* offset of tp_basicsize in a type; that has not changed */

struct cache_entry {
	_Atomic uint32_t sequence;
	_Atomic uint32_t frame;
	_Atomic uintptr_t code; /* 0: empty */
	_Atomic int64_t offset;
	_Atomic uint64_t contents; /* clv_code_contents() */
	_Atomic uint32_t version;  /* 0: contents decide */
	_Atomic uint32_t used;     /* bytes of the table of lines that decided */
};

struct python {
	struct clv_python_layout layout;
	void *(*this_thread)(void);
	const char *code_type;
	_Atomic(void *) *finalizing; /* in _PyRuntime */
};

static struct python python; /* written once, before `found` is set */
static _Atomic bool found;
static bool refused; /* of the one thread that looks */
static struct cache_entry *cache;
static _Atomic uint64_t lost;
struct clv_intern clv_python_frame_table, clv_python_string_table;

bool clv_python_open(void)
{
	cache = clv_meta_zalloc(sizeof(*cache) << CACHE_BITS);
	return cache && clv_intern_open(&clv_python_frame_table, FRAMES_MAX) &&
	       clv_intern_open(&clv_python_string_table, STRINGS_MAX);
}

unsigned clv_python_minor(void)
{
	return atomic_load_explicit(&found, memory_order_acquire) ? python.layout.minor : 0;
}

uint64_t clv_python_lost(void)
{
	return atomic_load_explicit(&lost, memory_order_relaxed);
}

/* ---- looking for it ---- */

struct library {
	char path[TEXT_MAX];
};

/* A program may have opened libpython3.N.so to itself. (libpython3.so has nothing in it.) */
static int note_library(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct library *lib = arg;
	const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
	if (!name || strncmp(name, "/libpython3.", strlen("/libpython3.")) != 0 ||
	    strlen(info->dlpi_name) >= TEXT_MAX || strcmp(name, "/libpython3.so") == 0)
		return 0;
	memcpy(lib->path, info->dlpi_name, strlen(info->dlpi_name) + 1);
	return 1;
}

/* The library is never unloaded then, since threads may be in it. RTLD_DEFAULT: it is the program, or there is none. */
static void *handle_of_python(void)
{
	static struct library lib; /* of the one thread that looks */
	Dl_info info;
	void *symbol = dlsym(RTLD_DEFAULT, "Py_GetVersion"), *handle = NULL;
	lib.path[0] = '\0';
	if (!symbol)
		dl_iterate_phdr(note_library, &lib);
	else if (dladdr(symbol, &info) && info.dli_fname && strlen(info.dli_fname) < sizeof(lib.path))
		memcpy(lib.path, info.dli_fname, strlen(info.dli_fname) + 1);
	if (lib.path[0])
		handle = dlopen(lib.path, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD | RTLD_NODELETE);
	return handle ? handle : RTLD_DEFAULT;
}

static size_t basicsize(const char *type)
{
	size_t v;
	memcpy(&v, type + BASICSIZE, sizeof(v));
	return v;
}

/* Types are as large as they should be, so that a build with other structures (Py_TRACE_REFS, a fork) is noticed. */
static bool types_agree(void *handle, const struct clv_python_layout *l)
{
	const char *type = dlsym(handle, "PyType_Type"), *code = dlsym(handle, "PyCode_Type");
	const char *text = dlsym(handle, "PyUnicode_Type"), *frame = dlsym(handle, "PyFrame_Type");
	return type && code && text && frame && memcmp(type + l->object_type, &type, sizeof(type)) == 0 &&
	       memcmp(code + l->object_type, &type, sizeof(type)) == 0 && basicsize(code) == l->code_size &&
	       basicsize(text) == l->text_size && (l->frame_size == 0 || basicsize(frame) == l->frame_size);
}

/* NULL: `python` is filled. Else why its frames are not read. */
static const char *understand(void *handle, const char *version)
{
	const char *why = "its version is not known", *runtime = dlsym(handle, "_PyRuntime");
	char *end;
	if (strncmp(version, "3.", 2) != 0)
		return why;
	unsigned long minor = strtoul(version + 2, &end, 10);
	end += strspn(end, ".0123456789");
	if (*end && *end != ' ' && *end != '+' && strncmp(end, "rc", 2) != 0)
		return "it is no released version";
	*(void **)&python.this_thread = dlsym(handle, "PyGILState_GetThisThreadState");
	python.code_type = dlsym(handle, "PyCode_Type");
	if (!runtime || !python.this_thread || !python.code_type)
		return "it does not export what is needed";
	if (!clv_python_layout((unsigned)clv_min_u64(minor, UINT32_MAX), runtime, &python.layout, &why))
		return why;
	if (!types_agree(handle, &python.layout))
		return "its structures are not those of its version";
	python.finalizing = (void *)(runtime + python.layout.runtime_finalizing);
	return NULL;
}

void clv_python_look(clv_stack_say *say, void *arg)
{
	const char *(*get_version)(void);
	if (!cache || refused || clv_python_minor())
		return;
	void *handle = handle_of_python();
	*(void **)&get_version = dlsym(handle, "Py_GetVersion");
	if (!get_version)
		return;
	const char *version = get_version();
	const char *why = understand(handle, version);
	if (!why) {
		atomic_store_explicit(&found, true, memory_order_release);
		return;
	}
	char text[256];
	refused = true;
	snprintf(text, sizeof(text), "stacks have no Python frames: this is Python %.*s, and %s",
		 (int)strcspn(version, " "), version, why);
	if (say)
		say(arg, text);
}

/* ---- a frame's id ---- */

static uint32_t string_id(const char *code, enum clv_code_text which)
{
	char text[TEXT_MAX];
	size_t len = clv_code_text(&python.layout, code, which, text, sizeof(text));
	uint64_t hash = 0;
	if (len == 0)
		len = (size_t)snprintf(text, sizeof(text), "?");
	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3ull; /* FNV-1a: once for each new frame */
	return clv_intern(&clv_python_string_table, clv_mix64(hash), text, len);
}

static uint32_t version_of(const char *code)
{
	uint32_t v = 0;
	if (python.layout.code_version)
		memcpy(&v, code + python.layout.code_version, sizeof(v));
	return v;
}

static void remember(struct cache_entry *e, const char *code, int64_t offset, size_t used, uint32_t frame)
{
	uint32_t seq = atomic_load_explicit(&e->sequence, memory_order_relaxed);
	if ((seq & 1) || used > UINT32_MAX ||
	    !atomic_compare_exchange_strong_explicit(&e->sequence, &seq, seq + 1, memory_order_acq_rel,
						     memory_order_relaxed))
		return;
	/* release: who sees one of these also sees the odd number, or one after it */
	atomic_store_explicit(&e->frame, frame, memory_order_release);
	atomic_store_explicit(&e->code, (uintptr_t)code, memory_order_release);
	atomic_store_explicit(&e->offset, offset, memory_order_release);
	atomic_store_explicit(&e->version, version_of(code), memory_order_release);
	atomic_store_explicit(&e->contents, clv_code_contents(&python.layout, code, used), memory_order_release);
	atomic_store_explicit(&e->used, (uint32_t)used, memory_order_release);
	atomic_store_explicit(&e->sequence, seq + 2, memory_order_release);
}

static uint32_t resolve(struct cache_entry *e, const char *code, int64_t offset)
{
	size_t used;
	struct clv_stack_frame f = {.line = clv_code_line(&python.layout, code, offset, &used)};
	f.file = string_id(code, CLV_CODE_FILE);
	f.function = string_id(code, CLV_CODE_FUNCTION);
	if (!f.file || !f.function)
		return 0;
	uint64_t hash = clv_mix64(clv_mix64((uint64_t)f.file << 32 | f.function) + f.line);
	uint32_t id = clv_intern(&clv_python_frame_table, hash, &f, sizeof(f));
	if (id)
		remember(e, code, offset, used, id);
	return id;
}

/* 0: the entry is of something else. */
static uint32_t recall(const struct cache_entry *e, const char *code, int64_t offset)
{
	uint32_t seq = atomic_load_explicit(&e->sequence, memory_order_acquire);
	uint32_t frame = atomic_load_explicit(&e->frame, memory_order_acquire);
	uint32_t version = atomic_load_explicit(&e->version, memory_order_acquire);
	uint32_t used = atomic_load_explicit(&e->used, memory_order_acquire);
	uint64_t contents = atomic_load_explicit(&e->contents, memory_order_acquire);
	bool same = atomic_load_explicit(&e->code, memory_order_acquire) == (uintptr_t)code &&
		    atomic_load_explicit(&e->offset, memory_order_acquire) == offset;
	if (!same || (seq & 1) || atomic_load_explicit(&e->sequence, memory_order_relaxed) != seq ||
	    version != version_of(code))
		return 0;
	return version || contents == clv_code_contents(&python.layout, code, used) ? frame : 0;
}

static uint32_t frame_id(const char *code, int64_t offset)
{
	struct cache_entry *e = &cache[clv_mix64((uintptr_t)code ^ (uint64_t)offset << 48) >> (64 - CACHE_BITS)];
	uint32_t id = recall(e, code, offset);
	return CLV_LIKELY(id) ? id : resolve(e, code, offset);
}

/* ---- the chain ---- */

/* An object's address; low bits are tags, from 3.14 on. */
static const char *object_at(const char *p)
{
	uintptr_t v;
	memcpy(&v, p, sizeof(v));
	return (const char *)(v & ~(uintptr_t)7);
}

static bool plausible(const char *p)
{
	return (uintptr_t)p >= 65536 && (uintptr_t)p % sizeof(void *) == 0;
}

static bool ending(void)
{
	return atomic_load_explicit(python.finalizing, memory_order_acquire) != NULL;
}

static const char *innermost(void)
{
	const struct clv_python_layout *l = &python.layout;
	const char *thread = ending() ? NULL : python.this_thread();
	if (!plausible(thread) || ending())
		return NULL;
	const char *frame = object_at(thread + l->thread_frame);
	if (l->thread_cframe)
		frame = plausible(frame) ? object_at(frame + l->cframe_frame) : NULL;
	return frame;
}

size_t clv_python_frames(uint32_t *out, unsigned max)
{
	const struct clv_python_layout *l = &python.layout;
	size_t count = 0;
	if (!atomic_load_explicit(&found, memory_order_acquire))
		return 0;
	const char *frame = innermost();
	for (unsigned steps = 0; plausible(frame) && count < max && steps < WALK_MAX && !ending(); steps++) {
		if (!l->frame_owner || (uint8_t)frame[l->frame_owner] < l->owners) {
			const char *code = object_at(frame + l->frame_code);
			uint32_t id = plausible(code) && object_at(code + l->object_type) == python.code_type
					      ? frame_id(code, clv_code_offset(l, frame, code))
					      : 0;
			if (id)
				out[count++] = id;
			else
				atomic_fetch_add_explicit(&lost, 1, memory_order_relaxed);
		}
		frame = object_at(frame + l->frame_previous);
	}
	return count;
}
