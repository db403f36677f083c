/* SPDX-License-Identifier: MIT
 *
 * stat_name: how a process and `cleave stat` find each other: by the process's id, and by when it was started, since ids are
 * used again. Owns no state.
 */
#ifndef CLV_STAT_NAME_H
#define CLV_STAT_NAME_H

#include "../base/base.h"

#define CLV_STAT_NAME 64u

/* The name of the socket of a process that knows itself by `pid` and was started at `start`. */
void clv_stat_name(char name[CLV_STAT_NAME], long pid, uint64_t start);

/* When a process was started, in clock ticks since the machine was; `who` is its folder in /proc ("self", "1234"). False with
 * errno: that cannot be read. */
bool clv_stat_start_of(const char *who, uint64_t *start);

#endif
