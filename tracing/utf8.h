/* SPDX-License-Identifier: MIT
 *
 * utf8: file names and what users type are bytes; JSON and pickles hold UTF-8. Owns nothing.
 */
#ifndef CLV_UTF8_H
#define CLV_UTF8_H

#include <stddef.h>

/* Copies `len` bytes without a NUL as UTF-8: what is not becomes U+FFFD. Returns how many bytes that are, at most 3
 * * len; `to` may be NULL, to count them. Nothing ends the copy. */
size_t clv_utf8_clean(const char *bytes, size_t len, char *to);

#endif
