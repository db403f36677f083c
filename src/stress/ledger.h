/* SPDX-License-Identifier: MIT
 *
 * ledger: wraps a driver of a device that is larger than wanted: gives so much memory and no more, says so when asked what
 * is free, and knows what is in use. One mutex guards its books; no call of the driver is made under it.
 */
#ifndef CLV_STRESS_LEDGER_H
#define CLV_STRESS_LEDGER_H

#include "../driver/driver.h"

/* Does not own `inner`. NULL: host memory is out. */
struct clv_driver *clv_ledger_open(struct clv_driver *inner, int devices, uint64_t capacity);

uint64_t clv_ledger_used(struct clv_driver *ledger, int device);
/* What others hold, at most what is free. */
void clv_ledger_set_foreign(struct clv_driver *ledger, int device, uint64_t bytes);
/* NULL, or the name of what was made and not given back. */
const char *clv_ledger_leaks(struct clv_driver *ledger);

#endif
