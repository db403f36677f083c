/* SPDX-License-Identifier: MIT */
#include "../base/size_text.h"
#include "cuda.h"
#include "sim.h"

#include <errno.h>
#include <string.h>

int cleave_driver_open(cleave_driver **out, const char *name)
{
	if (!out)
		return -EINVAL;
	*out = NULL;
	if (!name)
		return -EINVAL;
	if (strcmp(name, "cuda") == 0) {
		*out = clv_cuda_open(&(struct clv_cuda_config){.adopt_streams = true}, NULL);
		return *out ? 0 : -ENODEV;
	}
	struct clv_sim_config config = {0};
	if (strncmp(name, "sim:", 4) == 0) {
		/* 0 would mean the default capacity */
		if (!clv_size_parse(name + 4, &config.capacity) || !config.capacity)
			return -EINVAL;
	} else if (strcmp(name, "sim") != 0) {
		return -EINVAL;
	}
	*out = clv_sim_open(&config);
	return *out ? 0 : -ENOSPC;
}

void cleave_driver_close(cleave_driver *driver)
{
	if (driver)
		driver->close(driver);
}
