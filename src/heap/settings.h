/* SPDX-License-Identifier: MIT
 *
 * settings: the one table of the library's settings, with default and explanation of each.
 */
#ifndef CLV_SETTINGS_H
#define CLV_SETTINGS_H

#include <stdio.h>

/* `cleave help settings`: the table for people, and as one JSON document
 * {"settings":[{"key","default","unit" or null,"help"}]}. */
void clv_settings_print(FILE *out);
void clv_settings_print_json(FILE *out);

#endif
