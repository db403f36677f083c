/* SPDX-License-Identifier: MIT
 *
 * model_quant: what a configuration says about quantization, as far as it decides about routed experts. Owns nothing;
 * writes m->quant and the CLV_LAYER_PLAIN flags. The layers, sizes and dtype of `m` are read before.
 */
#ifndef CLV_MODEL_QUANT_H
#define CLV_MODEL_QUANT_H

#include "model_fields.h"

/* `config` is the root of config.json, `hf` that of hf_quant_config.json or NULL. In the order in which vLLM looks
 * (config/model.py): quantization_config, also in text_config, compression_config, hf_quant_config.json. Two that disagree
 * are an error. */
bool clv_model_read_quant(struct clv_model *m, json_t *config, json_t *hf, const char *hf_path, struct clv_error *err);

#endif
