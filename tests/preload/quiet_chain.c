/* SPDX-License-Identifier: MIT
 *
 * Two libraries are made of this file, with LINK 1 and 2; each adds its own number to what the next one says.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

int quiet_chain(void);
int cuMemAllocManaged(void);

#if LINK == 1
extern const int quiet_second; /* a reference, so that the second library is needed by the first */
const int *quiet_reference(void);
const int *quiet_reference(void)
{
	return &quiet_second;
}
#else
extern const int quiet_second;
const int quiet_second = 2;
#endif

int quiet_chain(void)
{
	int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "quiet_chain");
	return LINK + (next && next != quiet_chain ? 10 * next() : 0);
}

int cuMemAllocManaged(void)
{
	return 40 + LINK;
}
