/* SPDX-License-Identifier: MIT
 *
 * pool: fixed-size records cut from larger pieces of metadata memory. Guarded by the lock of its owner.
 *
 * A caller that must not fail half-way reserves first: after clv_pool_reserve(p, n) the next n takes succeed.
 */
#ifndef CLV_POOL_H
#define CLV_POOL_H

#include "../base/base.h"

struct clv_pool {
	size_t size;     /* of a record */
	void *free_list; /* linked through the first word */
	uint64_t spare, total;
	void *pieces;
};

void clv_pool_init(struct clv_pool *p, size_t record_size);
void clv_pool_fini(struct clv_pool *p);
bool clv_pool_reserve(struct clv_pool *p, uint64_t n); /* false: host memory is out */
void *clv_pool_take(struct clv_pool *p);               /* zeroed; a reserved record must be there */
void clv_pool_give(struct clv_pool *p, void *record);

#endif
