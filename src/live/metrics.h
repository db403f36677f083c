/* SPDX-License-Identifier: MIT
 *
 * metrics: the state of a heap as Prometheus reads it (text format 0.0.4), in a file for the textfile collector of its node
 * exporter. The file is written beside itself and renamed, so that nobody sees half of one. What there is of one thread calls
 * clv_metrics_work().
 *
 * Names are of one kind and unit each, in bytes and seconds; what only grows ends in _total. Every series of a device has the
 * label `device`; calls of the driver, which are counted for all of them together, have device="all". Where the launcher
 * says a rank, every series has the label `rank`, so that files of several processes of a machine can lie side by side.
 */
#ifndef CLV_METRICS_H
#define CLV_METRICS_H

#include "gather.h"

/* True if the settings ask for a file, whose name is expanded here. */
bool clv_metrics_open(const struct clv_live *live);

/* Writes the file if it is due; after how many milliseconds it is due again. A file that cannot be written is said once, and
 * tried again every time. */
int clv_metrics_work(const struct clv_live *live);

/* The text, to be freed with clv_meta_free(); NULL: host memory is out. `rank`: -1 for none. */
char *clv_metrics_print(const struct clv_stat_view *view, int64_t rank, size_t *len);

#endif
