/* SPDX-License-Identifier: MIT
 *
 * table: what the program is told of its heap. Constant.
 */
#include "preload.h"

#include <cleave/preload.h>

static cleave_heap *heap(void)
{
	const struct clv_process *p = clv_process_if_open();
	return p ? p->heap : NULL;
}

const cleave_preload *cleave_preload_table(void)
{
	static const cleave_preload table = {.version = CLEAVE_PRELOAD_VERSION,
					     .size = sizeof(table),
					     .heap = heap,
					     .get_stats = cleave_heap_get_stats,
					     .blocks = cleave_heap_blocks,
					     .last_failure = cleave_heap_last_failure,
					     .failure_print = cleave_failure_print};
	return &table;
}
