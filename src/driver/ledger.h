/* SPDX-License-Identifier: MIT
 *
 * ledger: wraps the driver of a real device to be had as a simulated one is: with less memory than there is, with what
 * others hold, and at a time of one's own. It knows what is in use. One mutex guards its books; no call of the driver is
 * made under it.
 */
#ifndef CLV_LEDGER_H
#define CLV_LEDGER_H

#include "driver.h"

/* Gives `capacity` on each of the first `devices` of `inner`, which it does not own; 0: what there is. NULL: host memory is
 * out. */
struct clv_driver *clv_ledger_open(struct clv_driver *inner, int devices, uint64_t capacity);

uint64_t clv_ledger_used(struct clv_driver *ledger, int device);
/* What others hold, at most what is free. */
void clv_ledger_set_foreign(struct clv_driver *ledger, int device, uint64_t bytes);
/* From now on it is this late, until it is set again. */
void clv_ledger_set_time(struct clv_driver *ledger, uint64_t ns);
/* NULL, or the name of what was made and not given back. */
const char *clv_ledger_leaks(struct clv_driver *ledger);

#endif
