/* SPDX-License-Identifier: MIT
 *
 * meddler: a driver between the heap and the device that does one thing wrong, so that a test can see that it is
 * found. The calls of one meddler come from one thread.
 */
#ifndef CLV_MEDDLER_H
#define CLV_MEDDLER_H

#include "../src/driver/driver.h"

enum meddling {
	MEDDLE_NOT,
	MEDDLE_EVENTS,  /* events are said to be complete when they are not, and waits of the host return at once */
	MEDDLE_WAITS,   /* a stream made to wait does not */
	MEDDLE_ALIAS,   /* one frame is mapped where another of its size should be */
	MEDDLE_UNMAP,   /* a mapping is taken away some time after it was made */
	MEDDLE_ACCESS,  /* a mapping gets no access */
	MEDDLE_RELEASE, /* a frame is said to be released, and is kept */
	MEDDLE_MISUSE,  /* the device is called as the heap should never call it */
};

struct meddler {
	enum meddling what;
	unsigned after; /* what is done once is done at the n-th call that offers itself, from 1 */
	unsigned opened;
	unsigned done; /* times that something was done wrong */
};

/* For clv_stress_config.wrap: `arg` is a struct meddler. A new driver begins to count anew. */
struct clv_driver *meddler_open(struct clv_driver *inner, void *arg);

#endif
