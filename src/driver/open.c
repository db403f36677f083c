/* SPDX-License-Identifier: MIT */
#include "../base/size_text.h"
#include "cuda.h"
#include "sim.h"

#include <errno.h>
#include <string.h>

/* What follows the beginning of a text; NULL: it begins in another way. */
static const char *after(const char *text, const char *beginning)
{
	size_t len = strlen(beginning);
	return strncmp(text, beginning, len) == 0 ? text + len : NULL;
}

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
	const char *rest = after(name, "sim-backed");
	config.backing = rest != NULL;
	if (!rest && !(rest = after(name, "sim")))
		return -EINVAL;
	/* 0 would mean the default capacity */
	if (*rest && (*rest != ':' || !clv_size_parse(rest + 1, &config.capacity) || !config.capacity))
		return -EINVAL;
	*out = clv_sim_open(&config);
	return *out ? 0 : -ENOSPC;
}

void cleave_driver_close(cleave_driver *driver)
{
	if (driver)
		driver->close(driver);
}

void *cleave_driver_host_address(cleave_driver *driver, cleave_ptr ptr, size_t size)
{
	/* of those that cleave_driver_open() makes, sim is the one with addresses on the host */
	return driver && size && strcmp(driver->name, "sim") == 0 ? clv_sim_bytes(driver, ptr, size, NULL) : NULL;
}
