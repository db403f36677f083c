/* SPDX-License-Identifier: MIT
 *
 * model_names: whether a list of modules, in one of the languages that configurations have for it, means the routed experts
 * of a layer. Owns what it found for each layer; for model_quant.c; no lock.
 *
 * A configuration does not say what its checkpoint's modules are called, so each of the usual names is tried:
 * PREFIX.LAYER.BLOCK.experts, and of expert 0 its matrices, which stand for all as they do in vLLM
 * (compressed_tensors_moe: get_moe_method()).
 *
 * Lists may be long. What an entry means is asked once for all layers that look alike to it: if it has no digits, those
 * whose numbers have as many digits; else, and only if it would mean a layer were all digits the same, those whose numbers
 * differ in digits that it does not have. So the time goes with the length of the list, and it has a limit.
 */
#ifndef CLV_MODEL_NAMES_H
#define CLV_MODEL_NAMES_H

#include "model_fields.h"

enum clv_names_language {
	CLV_NAMES_EQUAL_OR_RE, /* compressed-tensors: the name itself, or "re:" and a regular expression for its beginning */
	CLV_NAMES_WILDCARD, /* modelopt.py, is_layer_excluded(): the name, a wildcard, or a part of the name */
	CLV_NAMES_KEYS,     /* modelopt's quantized_layers: the keys of an object, names or with "*" wildcards */
	CLV_NAMES_EXPERTS,  /* utils/quant_utils.py, is_layer_skipped(): only entries with "experts" concern experts */
	CLV_NAMES_PART      /* awq.py, is_layer_skipped_awq(): a part of the name */
};

enum clv_names_verdict {
	CLV_NAMES_NONE,
	CLV_NAMES_ALL,
	CLV_NAMES_SOME /* some matrices of an expert and not others: no engine can load that */
};

struct clv_names;

/* `list` is a JSON list of texts, or for KEYS an object, called `where` in messages; it must outlive what is made. NULL with
 * `err`. */
struct clv_names *clv_names_make(const struct clv_model *m, json_t *list, const char *where,
				 enum clv_names_language language, struct clv_error *err);
void clv_names_free(struct clv_names *names);

/* Of the experts of a layer. On SOME, *which is an entry that did it. */
enum clv_names_verdict clv_names_experts(const struct clv_names *names, uint32_t layer, const char **which);

/* Of KEYS the one that describes the experts of a layer, by the experts as a whole or else by their first matrix; NULL: none
 * does. Of several it is the one for the name that is tried first. */
const char *clv_names_key(const struct clv_names *names, uint32_t layer);

#endif
