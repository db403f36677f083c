/* SPDX-License-Identifier: MIT
 *
 * torch_settings: the text of PYTORCH_CUDA_ALLOC_CONF, accepted and refused as PyTorch 2.11 does it, and the settings that a
 * snapshot records. Owns no state.
 */
#ifndef CLV_TORCH_SETTINGS_H
#define CLV_TORCH_SETTINGS_H

#include "../trace.h"

#define CLV_TORCH_UNLIMITED UINT64_MAX

/* What decides between free blocks of one stream and size. PyTorch up to 2.11 takes the lowest address; later versions the
 * block made first, then the segment made first and in it the lowest address. */
enum clv_torch_tie_break { CLV_TORCH_TIE_ADDRESS, CLV_TORCH_TIE_COUNTER, CLV_TORCH_TIE_SEGMENT };

#define CLV_TORCH_ROUNDUP_CLASSES 16 /* 1 MiB ... 32 GiB, the last for all above */

struct clv_torch_settings {
	uint64_t max_split_size;         /* bytes; CLV_TORCH_UNLIMITED: none */
	uint64_t max_non_split_rounding; /* bytes */
	uint64_t large_segment_size; /* bytes: of a segment for 1 to 10 MiB; the page of large expandable segments */
	uint64_t roundup[CLV_TORCH_ROUNDUP_CLASSES]; /* divisions between powers of 2; 0 and 1: none */
	double gc_threshold;                         /* of the memory limit; 0: no garbage collection */
	double memory_fraction;                      /* of the device's memory; 1: no limit */
	bool expandable;
	bool cuda_malloc_async; /* backend:cudaMallocAsync, which is another allocator */
	enum clv_torch_tie_break tie_break;
};

void clv_torch_settings_default(struct clv_torch_settings *out);

/* Text as in PYTORCH_CUDA_ALLOC_CONF, plus our own key tie_break:address|counter|segment. Where PyTorch raises, the error is
 * PyTorch's own text; where it would abort the process, a sentence of ours. *out is written only on success. */
bool clv_torch_settings_parse(struct clv_torch_settings *out, const char *text, struct clv_error *err);

/* The settings of a snapshot. Its text is parsed first, since large_segment_size, max_non_split_rounding and the memory
 * fraction are recorded nowhere else; values that the snapshot records win where they are not the default, as they are what
 * was in force (settings can be changed in pieces, and another version may have read the text differently). A text that
 * PyTorch 2.11 refuses comes from another version: then the recorded values alone count. */
bool clv_torch_settings_recorded(struct clv_torch_settings *out, const struct clv_torch_recorded *recorded,
				 struct clv_error *err);

/* The memory limit in bytes that a fraction of `total` makes, or CLV_TORCH_UNLIMITED. */
uint64_t clv_torch_fraction_limit(double fraction, uint64_t total);

/* The limit of a recording made with set_per_process_memory_fraction(cap_mib / total); CLV_TORCH_UNLIMITED if it had none. */
uint64_t clv_torch_recorded_limit(const struct clv_torch_recorded *recorded);

#endif
