/* SPDX-License-Identifier: MIT
 *
 * models: the configurations in tests/data/models, and reading them in tests. Owns no state.
 */
#ifndef CLV_TESTS_MODELS_H
#define CLV_TESTS_MODELS_H

#include "../src/plan/model.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const small_models[] = {"first_dense", "sparse_step", "interleaved", "latent",
					   "by_groups",   "not_gated",   "int4_groups"};

/* Published ones, with the fields that sizes depend on. */
static const char *const published_models[] = {"deepseek-v3-fp8",   "glm-4.5-air-fp8",      "gpt-oss-120b-mxfp4",
					   "kimi-k2-nvfp4",     "kimi-k2.5-int4",       "kimi-k3-mxfp4",
					   "kimi-k3-nvfp4",     "llama4-maverick-fp8",  "minimax-m2-fp8",
					   "mixtral-8x7b-bf16", "qwen3-235b-a22b-bf16", "qwen3-coder-480b-bf16"};

static inline void model_path(const char *name, char *buf, size_t len)
{
	snprintf(buf, len, "%s/models/%s", getenv("CLEAVE_TEST_DATA"), name);
}

static inline void read_model(struct clv_model *m, const char *path)
{
	struct clv_error err = {0};
	ck_assert_msg(clv_model_read(m, path, &err), "%s", err.text);
}

/* One of these by its name. */
static inline void read_named(struct clv_model *m, const char *name)
{
	char path[4096];
	model_path(name, path, sizeof(path));
	read_model(m, path);
}

/* The bytes of a file, with a 0 behind them; to be freed. */
static inline char *file_text(const char *path, size_t *len)
{
	FILE *f = fopen(path, "rb");
	ck_assert_msg(f != NULL, "%s", path);
	char *text = malloc(1 << 20);
	*len = fread(text, 1, (1 << 20) - 1, f);
	text[*len] = 0;
	fclose(f);
	return text;
}

#endif
