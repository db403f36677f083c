/* SPDX-License-Identifier: MIT
 *
 * model_names: whether a list of modules, in one of the languages that configurations have for it, means the routed experts
 * of a layer. Owns a compiled copy of the list; for model_quant.c; no lock.
 *
 * A configuration does not say what its checkpoint's modules are called, so each of the usual names is tried:
 * PREFIX.LAYER.BLOCK.experts, and of expert 0 its matrices, which stand for all as they do in vLLM
 * (compressed_tensors_moe: get_moe_method()).
 */
#ifndef CLV_MODEL_NAMES_H
#define CLV_MODEL_NAMES_H

#include "model_fields.h"

enum clv_names_language {
	CLV_NAMES_EQUAL_OR_RE, /* compressed-tensors: the name itself, or "re:" and a regular expression for its beginning */
	CLV_NAMES_WILDCARD, /* modelopt.py, is_layer_excluded(): the name, a wildcard, or a part of the name */
	CLV_NAMES_EXPERTS,  /* utils/quant_utils.py, is_layer_skipped(): only entries with "experts" concern experts */
	CLV_NAMES_PART      /* awq.py, is_layer_skipped_awq(): a part of the name */
};

enum clv_names_verdict {
	CLV_NAMES_NONE,
	CLV_NAMES_ALL,
	CLV_NAMES_SOME, /* some matrices of an expert and not others: no engine can load that */
	CLV_NAMES_FAILED
};

struct clv_names;

/* `list` is a JSON list of texts, called `where` in messages; it must outlive what is made. NULL with `err`. */
struct clv_names *clv_names_make(const struct clv_model *m, json_t *list, const char *where,
				 enum clv_names_language language, struct clv_error *err);
void clv_names_free(struct clv_names *names);

/* Of the experts of a layer. On SOME, *which is the entry that did it. */
enum clv_names_verdict clv_names_experts(struct clv_names *names, uint32_t layer, const char **which);

/* The names under which the experts of a layer may go, to look them up: true while `i` is one of them. `matrix` 0: the
 * experts as a whole, else the matrices of expert 0, from 1 (*matrices of them). */
bool clv_names_of_experts(const struct clv_model *m, uint32_t i, uint32_t layer, uint32_t matrix, char *buf, size_t len,
			  uint32_t *matrices);

#endif
