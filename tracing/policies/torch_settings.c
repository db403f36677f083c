/* SPDX-License-Identifier: MIT */
#include "torch_settings.h"

#include "../../src/base/torch_sizes.h"
#include "../memory.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MIN_LARGE_SEGMENT_MB 10
#define MAX_REGISTER_THREADS 128

/* The text cut at ',' ':' '[' and ']', blanks dropped. Each token is a string in `chars`. */
struct tokens {
	char *chars;
	const char **at;
	size_t count;
};

static void tokens_free(struct tokens *t)
{
	clv_mem_free(t->chars);
	clv_mem_free(t->at);
}

static bool tokenize(struct tokens *t, const char *text, struct clv_error *err)
{
	size_t len = strlen(text);
	t->count = 0;
	t->chars = clv_mem_alloc(2 * len + 2);
	t->at = clv_mem_zalloc(len + 1, sizeof(*t->at));
	if (!t->chars || !t->at)
		return clv_error_set(err, "out of host memory");
	char *w = t->chars;
	bool in_word = false;
	for (const char *p = text; *p; p++) {
		bool separator = *p == ',' || *p == ':' || *p == '[' || *p == ']';
		if (!separator && isspace((unsigned char)*p))
			continue;
		if (separator && in_word)
			*w++ = 0;
		if (separator || !in_word)
			t->at[t->count++] = w;
		*w++ = *p;
		if (separator)
			*w++ = 0;
		in_word = !separator;
	}
	*w = 0;
	return true;
}

static bool token_is(const struct tokens *t, size_t i, const char *what)
{
	return i < t->count && strcmp(t->at[i], what) == 0;
}

/* PyTorch checks its own tokens with an internal assertion, and that in a static initializer: the process dies. */
static bool aborts(const struct tokens *t, size_t i, const char *wanted, struct clv_error *err)
{
	if (i < t->count)
		return clv_error_set(err,
				     "PyTorch would abort while loading (a token is missing or unexpected): "
				     "%s expected where the settings have '%s'",
				     wanted, t->at[i]);
	return clv_error_set(err,
			     "PyTorch would abort while loading (a token is missing or unexpected): "
			     "%s expected where the settings end",
			     wanted);
}

static bool expect(const struct tokens *t, size_t i, const char *what, struct clv_error *err)
{
	char wanted[8] = {'\'', what[0], '\'', 0};
	return token_is(t, i, what) || aborts(t, i, wanted, err);
}

/* std::stoull: leading digits, a sign wraps, the rest of the word is ignored */
static bool to_size(const struct tokens *t, size_t i, uint64_t *out, struct clv_error *err)
{
	if (i >= t->count)
		return aborts(t, i, "a number", err);
	char *end;
	errno = 0;
	*out = strtoull(t->at[i], &end, 10);
	if (end == t->at[i] || errno == ERANGE)
		return clv_error_set(err, "RuntimeError: stoull");
	return true;
}

static bool to_double(const struct tokens *t, size_t i, double *out, struct clv_error *err)
{
	if (i >= t->count)
		return aborts(t, i, "a number", err);
	char *end;
	errno = 0;
	*out = strtod(t->at[i], &end);
	if (end == t->at[i] || errno == ERANGE)
		return clv_error_set(err, "RuntimeError: stod");
	return true;
}

static bool to_bool(const struct tokens *t, size_t i, bool *out, struct clv_error *err)
{
	if (i >= t->count)
		return aborts(t, i, "True or False", err);
	*out = token_is(t, i, "True");
	if (!*out && !token_is(t, i, "False"))
		return clv_error_set(
			err, "ValueError: Expected 'True' or 'False' at index %zu in ConfigTokenizer but got '%s'", i,
			t->at[i]);
	return true;
}

/* The parsers of one key take the index of its name and answer that of its last token, or 0 with an error (the last token
 * is never the first). */

static size_t megabytes(const struct tokens *t, size_t i, uint64_t least_bytes, uint64_t *out, struct clv_error *err)
{
	const char *name = t->at[i];
	uint64_t mb;
	if (!expect(t, i + 1, ":", err) || !to_size(t, i + 2, &mb, err))
		return 0;
	if (mb < least_bytes / CLV_MIB) {
		clv_error_set(err, "ValueError: CachingAllocator option %s too small, must be >= %" PRIu64, name,
			      least_bytes / CLV_MIB);
		return 0;
	}
	*out = clv_min_u64(mb, UINT64_MAX / CLV_MIB) * CLV_MIB;
	return i + 2;
}

static size_t large_segment(const struct tokens *t, size_t i, struct clv_torch_settings *s, struct clv_error *err)
{
	uint64_t mb;
	if (!expect(t, i + 1, ":", err) || !to_size(t, i + 2, &mb, err))
		return 0;
	if (mb <= MIN_LARGE_SEGMENT_MB) {
		clv_error_set(err, "ValueError: CachingAllocator option large_segment_size_mb must be > 10 MB");
		return 0;
	}
	s->large_segment_size = clv_min_u64(mb, UINT64_MAX / CLV_MIB) * CLV_MIB;
	return i + 2;
}

static size_t gc_threshold(const struct tokens *t, size_t i, struct clv_torch_settings *s, struct clv_error *err)
{
	double v;
	if (!expect(t, i + 1, ":", err) || !to_double(t, i + 2, &v, err))
		return 0;
	if (!(v > 0.0 && v < 1.0)) {
		clv_error_set(err, "ValueError: garbage_collect_threshold is invalid, set it in (0.0, 1.0)");
		return 0;
	}
	s->gc_threshold = v;
	return i + 2;
}

static void fill_roundup(struct clv_torch_settings *s, size_t from, size_t to, uint64_t divisions)
{
	for (size_t k = from; k < to; k++)
		s->roundup[k] = divisions;
}

/* [256:1,512:2,>:8]: keys in MiB. The first key also holds for all smaller sizes, '>' for all above the last one. */
static size_t roundup_list(const struct tokens *t, size_t i, struct clv_torch_settings *s, struct clv_error *err)
{
	bool first = true;
	size_t last = 0;
	for (i++; i < t->count && !token_is(t, i, "]"); i++) {
		size_t key = i;
		uint64_t divisions, boundary;
		if (!expect(t, i + 1, ":", err) || !to_size(t, i + 2, &divisions, err))
			return 0;
		i += 2;
		if (divisions && !clv_is_pow2(divisions)) {
			clv_error_set(
				err,
				"ValueError: For roundups, the divisions has to be power of 2 or 0 to disable roundup ");
			return 0;
		}
		if (token_is(t, key, ">")) {
			fill_roundup(s, last + 1, CLV_TORCH_ROUNDUP_CLASSES, divisions);
		} else {
			if (!to_size(t, key, &boundary, err))
				return 0;
			if (!clv_is_pow2(boundary)) {
				clv_error_set(err, "ValueError: For roundups, the intervals have to be power of 2 ");
				return 0;
			}
			last = clv_min_u64(clv_log2(boundary), CLV_TORCH_ROUNDUP_CLASSES - 1);
			if (first)
				fill_roundup(s, 0, last, divisions);
			first = false;
			s->roundup[last] = divisions;
		}
		if (i + 1 >= t->count) {
			aborts(t, i + 1, "']'", err);
			return 0;
		}
		if (!token_is(t, i + 1, "]") && !expect(t, ++i, ",", err))
			return 0;
	}
	if (i >= t->count) {
		aborts(t, i, "']'", err);
		return 0;
	}
	return i;
}

static size_t roundup(const struct tokens *t, size_t i, struct clv_torch_settings *s, struct clv_error *err)
{
	uint64_t divisions;
	if (!expect(t, i + 1, ":", err))
		return 0;
	if (token_is(t, i + 2, "["))
		return roundup_list(t, i + 2, s, err);
	if (!to_size(t, i + 2, &divisions, err))
		return 0;
	if (!clv_is_pow2(divisions)) {
		clv_error_set(err, "ValueError: For roundups, the divisions has to be power of 2 ");
		return 0;
	}
	fill_roundup(s, 0, CLV_TORCH_ROUNDUP_CLASSES, divisions);
	return i + 2;
}

static size_t boolean(const struct tokens *t, size_t i, bool *out, struct clv_error *err)
{
	return expect(t, i + 1, ":", err) && to_bool(t, i + 2, out, err) ? i + 2 : 0;
}

static size_t register_threads(const struct tokens *t, size_t i, struct clv_error *err)
{
	uint64_t n;
	if (!expect(t, i + 1, ":", err) || !to_size(t, i + 2, &n, err))
		return 0;
	if (!clv_is_pow2(n)) {
		clv_error_set(err, "ValueError: Number of register threads has to be power of 2, got %" PRIu64, n);
		return 0;
	}
	if (n > MAX_REGISTER_THREADS) {
		clv_error_set(err,
			      "ValueError: Number of register threads should be less than or equal to %d, got %" PRIu64,
			      MAX_REGISTER_THREADS, n);
		return 0;
	}
	return i + 2;
}

static size_t reserve_segment(const struct tokens *t, size_t i, struct clv_error *err)
{
	uint64_t mb;
	if (!expect(t, i + 1, ":", err) || !to_size(t, i + 2, &mb, err))
		return 0;
	if (!mb) {
		clv_error_set(err, "ValueError: Pinned reserve segment size has to be greater than 0");
		return 0;
	}
	return i + 2;
}

static size_t fraction(const struct tokens *t, size_t i, struct clv_torch_settings *s, struct clv_error *err)
{
	double v;
	if (!expect(t, i + 1, ":", err) || !to_double(t, i + 2, &v, err))
		return 0;
	if (!(v >= 0.0 && v <= 1.0)) {
		clv_error_set(err, "ValueError: per_process_memory_fraction is invalid, set it in [0.0, 1.0]");
		return 0;
	}
	s->memory_fraction = v;
	return i + 2;
}

static size_t backend(const struct tokens *t, size_t i, struct clv_torch_settings *s, struct clv_error *err)
{
	if (!expect(t, i + 1, ":", err))
		return 0;
	if (i + 2 >= t->count) {
		aborts(t, i + 2, "a backend", err);
		return 0;
	}
	s->cuda_malloc_async = token_is(t, i + 2, "cudaMallocAsync");
	if (!s->cuda_malloc_async && !token_is(t, i + 2, "native")) {
		clv_error_set(err, "ValueError: Unknown allocator backend, options are native and cudaMallocAsync");
		return 0;
	}
	return i + 2;
}

/* A key that belongs to the other pass: its name, ':' and one value or list. */
static size_t skip(const struct tokens *t, size_t i, struct clv_error *err)
{
	if (!expect(t, i + 1, ":", err))
		return 0;
	i += 2;
	if (i >= t->count) {
		aborts(t, i, "a value", err);
		return 0;
	}
	if (!token_is(t, i, "["))
		return i;
	while (i < t->count && !token_is(t, i, "]"))
		i++;
	if (i >= t->count) {
		aborts(t, i, "']'", err);
		return 0;
	}
	return i;
}

/* PyTorch reads the text three times: for large_segment_size_mb, which sets the least value of others; then for the keys of
 * every accelerator; then for those of CUDA, where alone an unknown key is an error. The first error of the first pass that
 * has one is what the user sees. */
enum pass { PASS_SEGMENT_SIZE, PASS_COMMON, PASS_CUDA, PASSES };

static size_t parse_key(enum pass pass, const struct tokens *t, size_t i, struct clv_torch_settings *s,
			struct clv_error *err)
{
	bool ignored;
	if (token_is(t, i, "large_segment_size_mb"))
		return pass == PASS_SEGMENT_SIZE ? large_segment(t, i, s, err) : skip(t, i, err);
	if (pass == PASS_SEGMENT_SIZE)
		return 0;
	if (token_is(t, i, "max_split_size_mb"))
		return pass == PASS_COMMON ? megabytes(t, i, s->large_segment_size, &s->max_split_size, err)
					   : skip(t, i, err);
	if (token_is(t, i, "max_non_split_rounding_mb"))
		return pass == PASS_COMMON ? megabytes(t, i, s->large_segment_size, &s->max_non_split_rounding, err)
					   : skip(t, i, err);
	if (token_is(t, i, "garbage_collection_threshold"))
		return pass == PASS_COMMON ? gc_threshold(t, i, s, err) : skip(t, i, err);
	if (token_is(t, i, "roundup_power2_divisions"))
		return pass == PASS_COMMON ? roundup(t, i, s, err) : skip(t, i, err);
	if (token_is(t, i, "expandable_segments"))
		return pass == PASS_COMMON ? boolean(t, i, &s->expandable, err) : skip(t, i, err);
	if (token_is(t, i, "pinned_use_background_threads"))
		return pass == PASS_COMMON ? boolean(t, i, &ignored, err) : skip(t, i, err);
	if (pass == PASS_COMMON)
		return skip(t, i, err);
	if (token_is(t, i, "backend"))
		return backend(t, i, s, err);
	if (token_is(t, i, "per_process_memory_fraction"))
		return fraction(t, i, s, err);
	if (token_is(t, i, "pinned_num_register_threads"))
		return register_threads(t, i, err);
	if (token_is(t, i, "pinned_reserve_segment_size_mb"))
		return reserve_segment(t, i, err);
	if (token_is(t, i, "release_lock_on_cudamalloc") || token_is(t, i, "release_lock_on_hipmalloc") ||
	    token_is(t, i, "pinned_use_cuda_host_register") || token_is(t, i, "pinned_use_hip_host_register") ||
	    token_is(t, i, "graph_capture_record_stream_reuse"))
		return boolean(t, i, &ignored, err);
	clv_error_set(err, "ValueError: Unrecognized key '%s' in CUDA allocator config.", t->at[i]);
	return 0;
}

static bool run_pass(enum pass pass, const struct tokens *t, struct clv_torch_settings *s, struct clv_error *err)
{
	for (size_t i = 0; i < t->count; i++) {
		size_t last = parse_key(pass, t, i, s, err);
		if (!last && pass != PASS_SEGMENT_SIZE)
			return false;
		if (pass == PASS_SEGMENT_SIZE) {
			/* this pass only picks out its key; what is wrong elsewhere is for the others to say */
			if (!last && token_is(t, i, "large_segment_size_mb"))
				return false;
			i = last ? last : i;
			continue;
		}
		i = last;
		if (i + 1 < t->count && !expect(t, ++i, ",", err))
			return false;
	}
	return true;
}

/* Takes our own key out, with one comma beside it, so that PyTorch's rules see what PyTorch would see. */
static bool strip_tie_break(struct tokens *t, struct clv_torch_settings *s, struct clv_error *err)
{
	for (size_t i = 0; i < t->count;) {
		bool starts = i == 0 || token_is(t, i - 1, ",");
		if (!starts || !token_is(t, i, "tie_break") || !token_is(t, i + 1, ":")) {
			i++;
			continue;
		}
		if (token_is(t, i + 2, "address"))
			s->tie_break = CLV_TORCH_TIE_ADDRESS;
		else if (token_is(t, i + 2, "counter"))
			s->tie_break = CLV_TORCH_TIE_COUNTER;
		else if (token_is(t, i + 2, "segment"))
			s->tie_break = CLV_TORCH_TIE_SEGMENT;
		else
			return clv_error_set(err, "tie_break is address, counter or segment, not '%s'",
					     i + 2 < t->count ? t->at[i + 2] : "");
		size_t from = i, n = 3;
		if (token_is(t, i + 3, ","))
			n = 4;
		else if (i > 0 && i + 3 == t->count)
			from = i - 1, n = 4;
		memmove(&t->at[from], &t->at[from + n], (t->count - from - n) * sizeof(*t->at));
		t->count -= n;
		i = from;
	}
	return true;
}

void clv_torch_settings_default(struct clv_torch_settings *out)
{
	*out = (struct clv_torch_settings){
		.max_split_size = CLV_TORCH_UNLIMITED,
		.max_non_split_rounding = CLV_TORCH_LARGE_SEGMENT,
		.large_segment_size = CLV_TORCH_LARGE_SEGMENT,
		.memory_fraction = 1.0,
	};
}

bool clv_torch_settings_parse(struct clv_torch_settings *out, const char *text, struct clv_error *err)
{
	struct clv_torch_settings s;
	struct tokens t;
	clv_torch_settings_default(&s);
	bool ok = tokenize(&t, text, err) && strip_tie_break(&t, &s, err);
	for (enum pass pass = 0; ok && pass < PASSES; pass++) {
		ok = run_pass(pass, &t, &s, err);
		if (pass == PASS_SEGMENT_SIZE)
			s.max_non_split_rounding = s.large_segment_size;
	}
	tokens_free(&t);
	if (ok)
		*out = s;
	return ok;
}

bool clv_torch_settings_recorded(struct clv_torch_settings *out, const struct clv_torch_recorded *recorded,
				 struct clv_error *err)
{
	if (!recorded->present)
		return clv_error_set(err, "the file does not record PyTorch's allocator settings");
	struct clv_torch_settings s;
	struct clv_error ignored = {""};
	if (!clv_torch_settings_parse(&s, recorded->conf ? recorded->conf : "", &ignored))
		clv_torch_settings_default(&s);
	if (s.cuda_malloc_async)
		return clv_error_set(err,
				     "the file was recorded under backend:cudaMallocAsync, which is another allocator");
	if (recorded->max_split_size != -1)
		s.max_split_size = (uint64_t)recorded->max_split_size;
	if (recorded->gc_threshold > 0.0)
		s.gc_threshold = recorded->gc_threshold;
	if (recorded->expandable)
		s.expandable = true;
	bool rounds = false;
	for (size_t k = 0; k < CLV_TORCH_ROUNDUP_CLASSES; k++)
		rounds |= recorded->roundup[k] != 0;
	for (size_t k = 0; rounds && k < CLV_TORCH_ROUNDUP_CLASSES; k++)
		s.roundup[k] = recorded->roundup[k];
	*out = s;
	return true;
}

uint64_t clv_torch_fraction_limit(double fraction_of, uint64_t total)
{
	/* as PyTorch computes it; the truncation can cost a byte */
	return fraction_of < 1.0 ? (uint64_t)(fraction_of * (double)total) : CLV_TORCH_UNLIMITED;
}

uint64_t clv_torch_recorded_limit(const struct clv_torch_recorded *recorded)
{
	if (!recorded->has_probe || !recorded->cap_mib || !recorded->total_bytes)
		return CLV_TORCH_UNLIMITED;
	return clv_torch_fraction_limit((double)(recorded->cap_mib << 20) / (double)recorded->total_bytes,
					recorded->total_bytes);
}
