/* SPDX-License-Identifier: MIT
 *
 * lookup: how programs come to the hooks. A program that is linked with libcuda finds the exported names; one that asks
 * dlsym or cuGetProcAddress (cudart, and through it nearly everybody) is answered here. An answer of the driver is
 * replaced by address, so no table of versions is kept, and what is not the driver's is never touched.
 *
 * dlsym itself is a stub without a frame: it asks clv_dlsym_target() where to go on and jumps there, so that glibc sees
 * the caller's return address, on which RTLD_NEXT and RTLD_DEFAULT depend.
 *
 * State: the driver's functions and the map of their addresses, built when libcuda.so.1 is found loaded, constant from then
 * on. No lock is held meanwhile, since the loader has its own, under which libraries start that ask here: of threads that
 * build at the same time one wins.
 */
#define _GNU_SOURCE
#include "preload.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#define HIDDEN __attribute__((visibility("hidden")))

typedef void *dlsym_fn(void *handle, const char *name);

/* What runs in a lookup by a sanitizer's runtime, before it is up. */
#define BEFORE_SANITIZERS __attribute__((no_sanitize("address", "thread", "undefined")))

/* ---- the next dlsym ---- */

/* glibc moved dlsym to a new version when libdl became part of libc (2.34). */
static const char *const dlsym_versions[] = {
#if defined(__x86_64__)
	"GLIBC_2.34", "GLIBC_2.2.5",
#elif defined(__aarch64__)
	"GLIBC_2.34", "GLIBC_2.17",
#else
#error "the versions of dlsym are not known for this architecture"
#endif
};

BEFORE_SANITIZERS static dlsym_fn *libc_dlsym(void)
{
	static _Atomic(dlsym_fn *) found;
	dlsym_fn *fn = atomic_load_explicit(&found, memory_order_acquire);
	if (CLV_LIKELY(fn != NULL))
		return fn;
	for (unsigned i = 0; i < CLV_ARRAY_LEN(dlsym_versions) && !fn; i++)
		*(void **)&fn = dlvsym(RTLD_NEXT, "dlsym", dlsym_versions[i]);
	atomic_store_explicit(&found, fn, memory_order_release);
	return fn;
}

/* That of the next library which has one: of another that replaces it as well, or libc's. dlvsym finds libc's alone. */
BEFORE_SANITIZERS static dlsym_fn *next_dlsym(void)
{
	static _Atomic(dlsym_fn *) found;
	dlsym_fn *fn = atomic_load_explicit(&found, memory_order_acquire), *libc = fn ? NULL : libc_dlsym();
	if (CLV_LIKELY(fn != NULL) || !libc)
		return fn;
	*(void **)&fn = libc(RTLD_NEXT, "dlsym");
	if (!fn)
		fn = libc;
	atomic_store_explicit(&found, fn, memory_order_release);
	return fn;
}

/* ---- the driver's functions ---- */

#define CLV_HOOK_NAME_(name) +1
enum { HOOK_COUNT = 0 CLV_HOOKS };
#undef CLV_HOOK_NAME_
#define MAP_SIZE 1024u /* a power of two, with at least half of it empty; a hook may stand for two addresses */
_Static_assert(HOOK_COUNT * 4 <= MAP_SIZE, "the map of addresses is too small");

struct library {
	struct clv_cuda_api api;
	struct {
		const void *real;
		void *hook;
	} map[MAP_SIZE];
	bool complete; /* has what Cleave cannot do without */
};

static const struct clv_cuda_api nothing;
_Atomic(const struct clv_cuda_api *) clv_real_found; /* that of a library */

static const struct library *known(void)
{
	const struct clv_cuda_api *api = atomic_load_explicit(&clv_real_found, memory_order_acquire);
	return api ? CLV_CONTAINER_OF(api, const struct library, api) : NULL;
}

static unsigned place_of(const void *real)
{
	return (unsigned)(clv_mix64((uint64_t)(uintptr_t)real) % MAP_SIZE);
}

static void map_hook(struct library *l, const void *real, void *hook)
{
	if (!real)
		return;
	unsigned i = place_of(real);
	while (l->map[i].real && l->map[i].real != real)
		i = (i + 1) % MAP_SIZE;
	if (!l->map[i].real) { /* of two names for one function, the first */
		l->map[i].real = real;
		l->map[i].hook = hook;
	}
}

static void *resolve(void *lib, const char *name)
{
	return next_dlsym()(lib, name);
}

static bool build(struct library *l, void *lib)
{
	struct clv_error err = {""};
	l->complete = clv_cuda_api_load(&l->api, resolve, lib, &err);
	/* what we call, and what cuGetProcAddress answers, if another library stands between */
#define CLV_HOOK_NAME_(name)                                                                                           \
	map_hook(l, *(void **)&l->api.name, (void *)(name));                                                           \
	map_hook(l, libc_dlsym()(lib, #name), (void *)(name));
	CLV_HOOKS
#undef CLV_HOOK_NAME_
	const struct clv_cuda_api *none = NULL;
	bool first = atomic_compare_exchange_strong(&clv_real_found, &none, &l->api);
	if (first && !l->complete)
		clv_say("%s: memory is left to the driver", err.text);
	return first;
}

/* The library must be loaded already: nothing is loaded for our sake. */
const struct clv_cuda_api *clv_real_find(void)
{
	void *lib = next_dlsym() ? dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) : NULL;
	if (!lib) {
		dlerror(); /* the program did not ask for it */
		return &nothing;
	}
	void *pages = mmap(NULL, sizeof(struct library), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED) {
		dlclose(lib);
		return &nothing;
	}
	if (!build(pages, lib)) {
		munmap(pages, sizeof(struct library));
		dlclose(lib);
	}
	return atomic_load_explicit(&clv_real_found, memory_order_acquire);
}

bool clv_real_is_complete(void)
{
	const struct library *l = known();
	return l && l->complete;
}

void *clv_hook_of(const void *real)
{
	const struct library *l = known();
	for (unsigned i = place_of(real); l && l->map[i].real; i = (i + 1) % MAP_SIZE)
		if (l->map[i].real == real)
			return l->map[i].hook;
	return NULL;
}

static bool is_hook(const void *address)
{
#define CLV_HOOK_NAME_(name) || address == (void *)(name)
	return false CLV_HOOKS;
#undef CLV_HOOK_NAME_
}

static bool is_hook_name(const char *name)
{
#define CLV_HOOK_NAME_(hook) || !strcmp(name, #hook)
	return false CLV_HOOKS;
#undef CLV_HOOK_NAME_
}

/* ---- dlsym ---- */

/* The name of a hook, from a handle or RTLD_DEFAULT. Our own export is not to be seen, but what is behind it, if anything. */
static void *answer(void *handle, const char *name)
{
	dlsym_fn *next = next_dlsym();
	void *found = next(handle, name);
	if (is_hook(found))
		found = libc_dlsym()(RTLD_NEXT, name); /* another library's dlsym would look after itself */
	void *hook = found && clv_real() != &nothing ? clv_hook_of(found) : NULL;
	return hook ? hook : found;
}

/* Where dlsym(handle, name) goes on. */
HIDDEN BEFORE_SANITIZERS __attribute__((used)) dlsym_fn *clv_dlsym_target(void *handle, const char *name);
dlsym_fn *clv_dlsym_target(void *handle, const char *name)
{
	dlsym_fn *next = next_dlsym();
	if (CLV_LIKELY(!name || name[0] != 'c' || name[1] != 'u') || handle == RTLD_NEXT || !next || !is_hook_name(name))
		return next;
	return answer;
}

#if defined(__x86_64__)
__asm__(".text\n"
	".p2align 4\n"
	".globl dlsym\n"
	".type dlsym, @function\n"
	"dlsym:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	push %rdi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	push %rsi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	sub $8, %rsp\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	call clv_dlsym_target\n"
	"	add $8, %rsp\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	pop %rsi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	pop %rdi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	jmp *%rax\n"
	"	.cfi_endproc\n"
	".size dlsym, . - dlsym\n");
#elif defined(__aarch64__)
__asm__(".text\n"
	".p2align 4\n"
	".globl dlsym\n"
	".type dlsym, %function\n"
	"dlsym:\n"
	"	.cfi_startproc\n"
	"	hint #34\n" /* bti c */
	"	stp x29, x30, [sp, #-32]!\n"
	"	.cfi_def_cfa_offset 32\n"
	"	.cfi_offset 29, -32\n"
	"	.cfi_offset 30, -24\n"
	"	mov x29, sp\n"
	"	stp x0, x1, [sp, #16]\n"
	"	bl clv_dlsym_target\n"
	"	mov x16, x0\n"
	"	ldp x0, x1, [sp, #16]\n"
	"	ldp x29, x30, [sp], #32\n"
	"	.cfi_restore 29\n"
	"	.cfi_restore 30\n"
	"	.cfi_def_cfa_offset 0\n"
	"	br x16\n"
	"	.cfi_endproc\n"
	".size dlsym, . - dlsym\n");
#endif

/* ---- cuGetProcAddress ---- */

/* The driver is asked first; what it has not is not there. */
static CUresult replaced(CUresult r, void **pfn)
{
	void *hook = r == CUDA_SUCCESS && pfn && *pfn ? clv_hook_of(*pfn) : NULL;
	if (hook)
		*pfn = hook;
	return r;
}

EXPORTED CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	return replaced(CLV_PASS(cuGetProcAddress, symbol, pfn, version, flags), pfn);
}

EXPORTED CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
				      CUdriverProcAddressQueryResult *status)
{
	return replaced(CLV_PASS(cuGetProcAddress_v2, symbol, pfn, version, flags, status), pfn);
}
