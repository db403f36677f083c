/* SPDX-License-Identifier: MIT */
#include "policy.h"

#include <string.h>

static const struct {
	const char *name;
	struct clv_policy *(*open)(const struct clv_policy_config *config, const char *settings, struct clv_error *err);
} policies[] = {
	{"cleave", clv_policy_cleave},
	{"torch", clv_policy_torch},
	{"direct", clv_policy_direct},
	{"packed", clv_policy_packed},
};

/* Index in the table, or -1. The name ends at the first ':'. */
static int find(const char *name)
{
	size_t len = strcspn(name, ":");
	for (size_t i = 0; i < CLV_ARRAY_LEN(policies); i++)
		if (strlen(policies[i].name) == len && memcmp(policies[i].name, name, len) == 0)
			return (int)i;
	return -1;
}

bool clv_policy_known(const char *name, struct clv_error *err)
{
	if (find(name) >= 0)
		return true;
	return clv_error_set(
		err,
		"unknown policy '%.200s': there are cleave[:SETTINGS], torch[:PYTORCH_CUDA_ALLOC_CONF text], "
		"torch:recorded, direct and packed",
		name);
}

bool clv_policy_is_torch(const char *name)
{
	int i = find(name);
	return i >= 0 && policies[i].open == clv_policy_torch;
}

struct clv_policy *clv_policy_open(const struct clv_policy_config *config, const char *name, struct clv_error *err)
{
	if (!clv_policy_known(name, err))
		return NULL;
	const char *colon = strchr(name, ':');
	struct clv_error why = {{0}};
	struct clv_policy *policy = policies[find(name)].open(config, colon ? colon + 1 : "", &why);
	if (!policy) /* there may be several: which of them */
		clv_error_set(err, "policy '%.200s': %s", name, why.text);
	return policy;
}
