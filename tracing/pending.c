/* SPDX-License-Identifier: MIT
 *
 * pending: answers for what is written elsewhere and has not landed. Linked last, so that whatever has landed is taken
 * instead; each definition is weak, so that the rest may stay. To be deleted when nothing here is linked any more.
 */
#include "../src/driver/sim.h"
#include "../src/heap/settings.h"
#include "import/import.h"
#include "policies/policy.h"
#include "policies/torch_verify.h"

#define WEAK __attribute__((weak))

WEAK struct clv_trace *clv_trace_import(const char *path, struct clv_error *err)
{
	clv_error_set(err, "%s: no importer yet", path);
	return NULL;
}

WEAK const struct clv_history *clv_trace_select(const struct clv_trace *trace, int device, struct clv_error *err)
{
	clv_error_set(err, "no importer yet");
	return NULL;
}

WEAK void clv_trace_free(struct clv_trace *trace)
{
}

WEAK const char *clv_trace_format_name(enum clv_trace_format f)
{
	return f == CLV_FORMAT_TORCH ? "torch" : f == CLV_FORMAT_CLV ? "clv" : "rmm";
}

WEAK struct clv_policy *clv_policy_cleave(const struct clv_policy_config *config, const char *settings,
					  struct clv_error *err)
{
	clv_error_set(err, "the policy cleave is not there yet");
	return NULL;
}

WEAK struct clv_policy *clv_policy_torch(const struct clv_policy_config *config, const char *settings, struct clv_error *err)
{
	clv_error_set(err, "the policy torch is not there yet");
	return NULL;
}

WEAK bool clv_torch_verify(const struct clv_trace *trace, const struct clv_history *history, struct clv_verify_result *out,
			   struct clv_error *err)
{
	return clv_error_set(err, "the model of PyTorch's allocator is not there yet");
}

WEAK void clv_verify_free(struct clv_verify_result *result)
{
}

WEAK const char *clv_inferred_name(enum clv_inferred i)
{
#define X(name, text) text,
	static const char *const names[] = {CLV_INFERRED(X)};
#undef X
	return names[i];
}

WEAK struct clv_driver *clv_sim_open(const struct clv_sim_config *config)
{
	return NULL;
}

WEAK void clv_settings_print(FILE *out)
{
}

WEAK void clv_settings_print_json(FILE *out)
{
}
