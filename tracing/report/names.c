/* SPDX-License-Identifier: MIT
 *
 * names: what things of a report are called, for people and in JSON. Owns nothing.
 */
#include "report.h"

#include "../../src/base/size_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *clv_cause_name(enum clv_cause c)
{
	static const char *const names[] = {
#define X(name, text) [CLV_CAUSE_##name] = text,
		CLV_CAUSES(X)
#undef X
	};
	return (size_t)c < CLV_ARRAY_LEN(names) ? names[c] : "other";
}

const char *clv_moment_name(enum clv_moment_kind k)
{
	static const char *const names[] = {
#define X(name, text, title) [CLV_MOMENT_##name] = text,
		CLV_MOMENTS(X)
#undef X
	};
	return (size_t)k < CLV_ARRAY_LEN(names) ? names[k] : "other";
}

const char *clv_moment_title(enum clv_moment_kind k)
{
	static const char *const titles[] = {
#define X(name, text, title) [CLV_MOMENT_##name] = title,
		CLV_MOMENTS(X)
#undef X
	};
	return (size_t)k < CLV_ARRAY_LEN(titles) ? titles[k] : "other";
}

const char *clv_report_basis_name(enum clv_report_basis b)
{
	switch (b) {
	case CLV_BASIS_SEGMENTS:
		return "segments";
	case CLV_BASIS_FRAMES:
		return "frames";
	case CLV_BASIS_DRIVER:
		return "driver";
	case CLV_BASIS_EXTENTS:
		return "extents";
	}
	return "other";
}

static const char *string_of(const struct clv_trace *trace, uint32_t index)
{
	return index < trace->string_count ? trace->strings[index] : "";
}

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

static bool ends(const char *text, const char *with)
{
	size_t n = strlen(text), m = strlen(with);
	return n >= m && strcmp(text + n - m, with) == 0;
}

/* How much a frame tells a person about their own program. */
enum told { NOTHING, MACHINERY, LIBRARY, SOME_CODE, OWN_PYTHON };

static enum told worth(const struct clv_trace *trace, const struct clv_frame_record *f)
{
	/* of C++ and C: the interpreter, PyTorch, the start of the process, and us */
	static const char *const machinery[] = {
		"c10::",    "at::",   "torch::", "void at::", "void c10::", "THP",        "pybind11::", "_Py", "Py",
		"_object*", "__libc", "_start",  "clv_",      "cleave_",    "cudaMalloc", "cuMem",      "main"};
	const char *file = string_of(trace, f->file), *function = string_of(trace, f->function);
	if (ends(file, ".py"))
		return strstr(file, "-packages/torch/") ? LIBRARY : OWN_PYTHON;
	if (!*function && (!*file || strcmp(file, "??") == 0))
		return NOTHING;
	for (size_t i = 0; i < CLV_ARRAY_LEN(machinery); i++)
		if (begins(function, machinery[i]))
			return MACHINERY;
	return *function ? SOME_CODE : MACHINERY;
}

const struct clv_frame_record *clv_report_frame_of(const struct clv_trace *trace, uint32_t stack)
{
	const struct clv_frame_record *best = NULL;
	enum told best_worth = NOTHING;
	if (stack == CLV_NO_STACK || stack >= trace->stack_count)
		return NULL;
	for (uint32_t i = 0; i < trace->stacks[stack].count; i++) { /* innermost first: of equals the first */
		const struct clv_frame_record *f = &trace->stack_frames[trace->stacks[stack].first + i];
		enum told w = worth(trace, f);
		if (w > best_worth) {
			best = f;
			best_worth = w;
		}
	}
	return best;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static void write_frame(const struct clv_trace *trace, const struct clv_frame_record *f, char *buf, size_t len)
{
	if (f->line)
		snprintf(buf, len, "%s:%" PRIu32 " %s", base_name(string_of(trace, f->file)), f->line,
			 string_of(trace, f->function));
	else if (*string_of(trace, f->function))
		snprintf(buf, len, "%s", string_of(trace, f->function));
	else
		snprintf(buf, len, "%s", base_name(string_of(trace, f->file)));
}

static bool same_text(const struct clv_trace *trace, uint32_t a, uint32_t b)
{
	return a == b || !strcmp(string_of(trace, a), string_of(trace, b));
}

static bool same_frame(const struct clv_trace *trace, const struct clv_frame_record *a,
		       const struct clv_frame_record *b)
{
	return a->line == b->line && same_text(trace, a->function, b->function) && same_text(trace, a->file, b->file);
}

/* Frame f of one stack and g of another are the same. The first one further out in which the first stack differs; NULL: none. */
static const struct clv_frame_record *first_other(const struct clv_trace *trace, uint32_t stack,
						  const struct clv_frame_record *f, uint32_t other,
						  const struct clv_frame_record *g)
{
	const struct clv_frame_record *end =
		trace->stack_frames + trace->stacks[stack].first + trace->stacks[stack].count;
	const struct clv_frame_record *other_end =
		trace->stack_frames + trace->stacks[other].first + trace->stacks[other].count;
	while (f < end && g < other_end && same_frame(trace, f, g)) {
		f++;
		g++;
	}
	return f < end ? f : NULL;
}

/* Of a group that would be called as another one at the same moment: the caller that tells them apart. NULL: there is none. */
static const struct clv_frame_record *caller_of(const struct clv_report_device *d, const struct clv_report_group *g,
						const struct clv_frame_record *f)
{
	for (uint32_t i = 0; i < d->moment_count; i++) {
		const struct clv_report_moment *m = &d->moments[i];
		if (g < m->groups || g >= m->groups + m->groups_kept)
			continue;
		for (uint32_t k = 0; k < m->groups_kept; k++) {
			const struct clv_frame_record *other = clv_report_frame_of(d->trace, m->groups[k].stack);
			if (m->groups[k].stack != g->stack && other && same_frame(d->trace, f, other))
				return first_other(d->trace, g->stack, f, m->groups[k].stack, other);
		}
	}
	return NULL;
}

char *clv_report_group_name(const struct clv_report_device *d, const struct clv_report_group *g, char *buf, size_t len)
{
	const struct clv_trace *trace = d->trace;
	const struct clv_frame_record *f = clv_report_frame_of(trace, g->stack);
	char size[32];
	if (f) {
		const struct clv_frame_record *caller = caller_of(d, g, f);
		char from[256];
		write_frame(trace, f, buf, len);
		if (caller && strlen(buf) < len) {
			write_frame(trace, caller, from, sizeof(from));
			snprintf(buf + strlen(buf), len - strlen(buf), " (from %s)", from);
		}
	} else if (!g->size) {
		snprintf(buf, len, "blocks of several sizes");
	} else if (trace->stream_count > 1 && g->stream < trace->stream_count && trace->streams[g->stream]) {
		snprintf(buf, len, "blocks of %s on stream 0x%" PRIx64, clv_size_print(g->size, size, sizeof(size)),
			 trace->streams[g->stream]);
	} else {
		snprintf(buf, len, "blocks of %s", clv_size_print(g->size, size, sizeof(size)));
	}
	return buf;
}
