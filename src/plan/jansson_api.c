/* SPDX-License-Identifier: MIT */
#include "jansson_api.h"

#include <dlfcn.h>
#include <pthread.h>

/* Written once, before `once` is done. */
static struct clv_jansson functions;
static struct clv_error why;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void start(void)
{
	/* RTLD_LOCAL: another jansson that the program has is not to be answered for by this one. */
	void *lib = dlopen("libjansson.so.4", RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		const char *reason = dlerror();
		clv_error_set(&why,
			      "plans are read with libjansson.so.4 (package libjansson4), which cannot be opened: %s",
			      reason ? reason : "not found");
		return;
	}
#define X(name)                                                                                                        \
	if (!(*(void **)&functions.name = dlsym(lib, #name)))                                                          \
		clv_error_set(&why, "libjansson.so.4 has no %s: it is not jansson 2.7 or newer", #name);
	CLV_JANSSON_CALLS(X)
#undef X
}

const struct clv_jansson *clv_jansson(struct clv_error *err)
{
	pthread_once(&once, start);
	if (!why.text[0])
		return &functions;
	clv_error_set(err, "%s", why.text);
	return NULL;
}
