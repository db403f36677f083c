/* SPDX-License-Identifier: MIT
 *
 * stat_serve: answers `cleave stat` about the heap of this process, and writes the file of metrics. One thread does both
 * (service.h); it is there once a heap is open, if the settings ask for anything of it, and does nothing more once the process
 * runs its destructors. Started under a lock of who starts it.
 */
#ifndef CLV_STAT_SERVE_H
#define CLV_STAT_SERVE_H

#include "gather.h"

/* For the first heap of the process alone; what `live` points to stays. Nothing is said if there can be no socket. */
void clv_stat_serve(const struct clv_live *live);

/* In the child of a fork. */
void clv_stat_in_child(void);

extern int clv_stat_patience_ms; /* how long a connection may say nothing; tests shorten it */

#endif
