/* SPDX-License-Identifier: MIT */
#include "ticks.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#endif

#define TRIES 3 /* of a reading: one that was interrupted is far off */

bool clv_ticks_are_counter;

#ifdef __x86_64__
/* By its own measures the kernel trusts the counter: one rate, one time on all processors. */
static bool kernel_counts(void)
{
	char source[64] = "";
	int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t n = read(fd, source, sizeof(source) - 1);
	close(fd);
	return n > 0 && !strcmp(source, "tsc\n");
}

/* Leaf 0x80000007, EDX, bit 8: it counts at one rate whatever the processor does; 0x80000001, EDX, bit 27: and can be read in
 * order, by RDTSCP (Intel SDM, volume 2, CPUID). */
static bool is_invariant(void)
{
	unsigned a, b, c, d, features;
	return __get_cpuid(0x80000001, &a, &b, &c, &features) && (features >> 27 & 1) && __get_cpuid(0x80000007, &a, &b, &c, &d) &&
	       (d >> 8 & 1);
}

static bool may_read(void)
{
	int mode = 0;
	return !prctl(PR_GET_TSC, &mode, 0, 0, 0) && mode == PR_TSC_ENABLE;
}
#endif

void clv_ticks_init(void)
{
#ifdef __x86_64__
	static bool known;
	if (known)
		return;
	known = true;
	clv_ticks_are_counter = is_invariant() && may_read() && kernel_counts();
#endif
}

struct clv_ticks_reading clv_ticks_read(void)
{
	struct clv_ticks_reading best = {0, 0};
	uint64_t least = UINT64_MAX;
	for (int i = 0; i < TRIES; i++) {
		uint64_t before = clv_ticks_now(), ns = clv_clock_ns(), took = clv_ticks_now() - before;
		if (took < least) {
			least = took;
			best = (struct clv_ticks_reading){before + took / 2, ns};
		}
	}
	return best;
}

bool clv_ticks_extend(struct clv_ticks_scale *scale)
{
	scale->from = scale->to;
	scale->to = clv_ticks_read();
	bool goes_on = scale->to.ticks >= scale->from.ticks && scale->to.ns >= scale->from.ns;
	if (!goes_on)
		scale->from = scale->to;
	return goes_on;
}

uint64_t clv_ticks_ns(const struct clv_ticks_scale *scale, uint64_t ticks)
{
	const struct clv_ticks_reading *from = &scale->from, *to = &scale->to;
	if (!clv_ticks_are_counter)
		return ticks;
	if (to->ticks == from->ticks)
		return to->ns;
	__int128 past = (__int128)ticks - from->ticks, ns = past * (to->ns - from->ns) / (to->ticks - from->ticks);
	ns += from->ns;
	return ns < 0 ? 0 : (uint64_t)ns;
}
