/* SPDX-License-Identifier: MIT
 *
 * cmd_stress: `cleave stress`, as tests need it: with a driver of theirs between the heap and the device, to see that
 * what is wrong is found and told. Owns the handler of SIGSEGV and SIGBUS while it runs.
 */
#ifndef CLV_CMD_STRESS_H
#define CLV_CMD_STRESS_H

#include "../driver/driver.h"

typedef struct clv_driver *clv_stress_wrap(struct clv_driver *inner, void *arg); /* stress.h, wrap */

int clv_cmd_stress_with(int argc, char **argv, clv_stress_wrap *wrap, void *arg);

#endif
