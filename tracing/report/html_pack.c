/* SPDX-License-Identifier: MIT */
#include "html_pack.h"

#include "../memory.h"

void clv_pack_byte(struct clv_pack *p, uint8_t byte)
{
	if (p->size == p->cap && !p->failed)
		p->failed = !clv_mem_reserve(&p->data, &p->cap, p->size + 1, 1);
	if (!p->failed)
		p->data[p->size++] = byte;
}

void clv_pack_number(struct clv_pack *p, uint64_t n)
{
	for (; n >= 128; n >>= 7)
		clv_pack_byte(p, (uint8_t)(n | 128));
	clv_pack_byte(p, (uint8_t)n);
}

void clv_pack_step(struct clv_pack *p, uint64_t n)
{
	uint64_t by = n - p->last;
	clv_pack_number(p, by >> 63 ? ~(by << 1) : by << 1);
	p->last = n;
}

void clv_pack_sparse(struct clv_pack *p, const uint8_t *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		clv_pack_byte(p, bytes[i]);
		if (bytes[i])
			continue;
		size_t more = 0;
		while (i + 1 < count && !bytes[i + 1])
			i++, more++;
		clv_pack_number(p, more);
	}
}

json_t *clv_pack_json(struct clv_pack *p)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t len = (p->size + 2) / 3 * 4;
	char *text = p->failed ? NULL : clv_mem_alloc(len + 1);
	json_t *j = NULL;
	if (text) {
		char *to = text;
		for (size_t i = 0; i < p->size; i += 3) {
			size_t there = p->size - i;
			uint32_t bits = (uint32_t)p->data[i] << 16;
			bits |= there > 1 ? (uint32_t)p->data[i + 1] << 8 : 0;
			bits |= there > 2 ? p->data[i + 2] : 0;
			*to++ = digits[bits >> 18];
			*to++ = digits[bits >> 12 & 63];
			*to++ = there > 1 ? digits[bits >> 6 & 63] : '=';
			*to++ = there > 2 ? digits[bits & 63] : '=';
		}
		j = json_stringn_nocheck(text, len);
	}
	clv_mem_free(text);
	clv_mem_free(p->data);
	*p = (struct clv_pack){0};
	return j;
}
