/* SPDX-License-Identifier: MIT
 *
 * reserve_text: a reservation as the setting `reserve` says it. Owns no state.
 *
 *   SIZE[*COUNT][+after=N][+uses=N][+idle=MS][+class][+hard][+device=N][+name=NAME]
 *
 * SIZE is of one slot. A NAME has no blank, comma, colon or plus sign in it. What the words mean is said in
 * include/cleave/plan.h.
 */
#ifndef CLV_RESERVE_TEXT_H
#define CLV_RESERVE_TEXT_H

#include "../base/base.h"
#include "../base/error.h"

#include <cleave/plan.h>

#define CLV_RESERVE_EACH_DEVICE (-1)

/* Sizes up to this are served from slabs, which are not reserved; and no block is larger than the other. */
#define CLV_RESERVE_ABOVE (32 * CLV_KIB)
#define CLV_RESERVE_MOST ((uint64_t)1 << 48)
#define CLV_RESERVE_COUNT_MAX ((uint64_t)1 << 20)

struct clv_reserve_text {
	char name[CLEAVE_RESERVATION_NAME]; /* "": none */
	uint64_t bytes, count, after_n, uses, idle_ms;
	int32_t device; /* or CLV_RESERVE_EACH_DEVICE */
	bool by_class, hard;
};

/* False with the reason, which begins with the text. */
bool clv_reserve_parse(struct clv_reserve_text *out, const char *text, struct clv_error *err);

/* The text that is parsed as *in. Returns the length as snprintf does. A character that a name cannot have becomes '_', and
 * the name is cut where it is too long. */
int clv_reserve_print(const struct clv_reserve_text *in, char *buf, size_t len);

/* Whether slots of so many bytes, in such a number, can be reserved at all; false with what was expected. */
bool clv_reserve_sane(uint64_t bytes, uint64_t count, struct clv_error *err);

#endif
