/* SPDX-License-Identifier: MIT */
#include "symbols_internal.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

struct clv_symbols *clv_symbols_open(const char *debug_folders)
{
	struct clv_symbols *s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->debug_folders = strdup(debug_folders ? debug_folders : "");
	if (!s->debug_folders) {
		clv_symbols_close(s);
		return NULL;
	}
	s->libstdcxx = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_LOCAL);
	if (s->libstdcxx)
		*(void **)&s->demangle = dlsym(s->libstdcxx, "__cxa_demangle");
	return s;
}

void clv_symbols_close(struct clv_symbols *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->module_count; i++) {
		clv_symbols_dwarf_close(s->modules[i].dwarf);
		free((char *)s->modules[i].m.path);
	}
	for (size_t i = 0; i < s->text_count; i++)
		free(s->texts[i]);
	if (s->libstdcxx)
		dlclose(s->libstdcxx);
	free(s->modules);
	free(s->texts);
	free(s->debug_folders);
	free(s);
}

/* Room for one more of `size` bytes each. */
static bool grow(void *items, size_t count, size_t *room, size_t size)
{
	void *old;
	if (count < *room)
		return true;
	memcpy(&old, items, sizeof(old));
	size_t wanted = *room ? 2 * *room : 64;
	void *more = reallocarray(old, wanted, size);
	if (!more)
		return false;
	memcpy(items, &more, sizeof(more));
	*room = wanted;
	return true;
}

const char *clv_symbols_keep(struct clv_symbols *s, char *text)
{
	if (!text || !grow(&s->texts, s->text_count, &s->text_room, sizeof(*s->texts))) {
		free(text);
		return NULL;
	}
	return s->texts[s->text_count++] = text;
}

bool clv_symbols_add(struct clv_symbols *s, const struct clv_symbols_module *m)
{
	if (!grow(&s->modules, s->module_count, &s->module_room, sizeof(*s->modules)))
		return false;
	struct symbols_module *mine = &s->modules[s->module_count];
	*mine = (struct symbols_module){.m = *m};
	mine->m.path = strdup(m->path);
	if (!mine->m.path)
		return false;
	mine->m.build_id_len = clv_min_u64(m->build_id_len, sizeof(mine->build_id));
	if (mine->m.build_id_len)
		memcpy(mine->build_id, m->build_id, mine->m.build_id_len);
	mine->m.build_id = NULL; /* the array moves when it grows */
	s->module_count++;
	return true;
}

static struct symbols_module *module_of(const struct clv_symbols *s, uint64_t address)
{
	for (size_t i = s->module_count; i-- > 0;)
		if (address >= s->modules[i].m.begin && address < s->modules[i].m.end)
			return &s->modules[i];
	return NULL;
}

const char *clv_symbols_module_of(const struct clv_symbols *s, uint64_t address, uint64_t *offset)
{
	const struct symbols_module *m = module_of(s, address);
	if (!m)
		return NULL;
	*offset = address - m->m.bias;
	return m->m.path;
}

size_t clv_symbols_find(struct clv_symbols *s, uint64_t address, struct clv_symbol *out, size_t max)
{
	struct symbols_module *m = module_of(s, address);
	if (!m)
		return 0;
	if (!m->asked) {
		m->asked = true;
		m->dwarf = clv_symbols_dwarf_open(s, m);
	}
	size_t count = m->dwarf ? clv_symbols_dwarf_find(s, m->dwarf, address, out, max) : 0;
	for (size_t i = 0; i < count; i++) {
		int status;
		if (out[i].function && strncmp(out[i].function, "_Z", 2) == 0 && s->demangle) {
			const char *text = clv_symbols_keep(s, s->demangle(out[i].function, NULL, NULL, &status));
			out[i].function = text ? text : out[i].function;
		}
	}
	return count;
}
