/* SPDX-License-Identifier: MIT
 *
 * html_pack: columns of numbers as the page gets them: base64 of numbers of variable length, which takes a tenth of what JSON would
 * take. page/data.js reads them. A pack belongs to who makes it.
 */
#ifndef CLV_HTML_PACK_H
#define CLV_HTML_PACK_H

#include "../../src/base/base.h"

#include <jansson.h>

struct clv_pack {
	uint8_t *data;
	size_t size, cap;
	uint64_t last; /* of clv_pack_step() */
	bool failed;   /* host memory is out; what follows does nothing */
};

void clv_pack_byte(struct clv_pack *p, uint8_t byte);

/* 7 bits a byte, the low ones first, the top bit set in all but the last. */
void clv_pack_number(struct clv_pack *p, uint64_t n);

/* The difference to the last one, signed: bit 0 says that it is below zero, the rest is its size less that bit. */
void clv_pack_step(struct clv_pack *p, uint64_t n);

/* A byte each, but 0 is followed by how many more zeros come. */
void clv_pack_sparse(struct clv_pack *p, const uint8_t *bytes, size_t count);

/* As base64, and frees the pack. NULL: out of host memory, now or before. */
json_t *clv_pack_json(struct clv_pack *p);

#endif
