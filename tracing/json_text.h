/* SPDX-License-Identifier: MIT
 *
 * json_text: bytes as a string of JSON, large numbers and addresses. Owns nothing.
 */
#ifndef CLV_JSON_TEXT_H
#define CLV_JSON_TEXT_H

#include <jansson.h>
#include <stdint.h>

/* File names and what users type are bytes; JSON is UTF-8: what is not becomes U+FFFD. NULL if host memory is out. */
json_t *clv_json_text(const char *bytes);

/* JSON readers hold integers in 63 bits; nothing real is larger. */
json_t *clv_json_number(uint64_t v);

/* "0x7f0000000000": an address or a handle. */
json_t *clv_json_hex(uint64_t v);

#endif
