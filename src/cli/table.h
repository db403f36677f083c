/* SPDX-License-Identifier: MIT
 *
 * table: a table of text whose columns are as wide as their widest cell. Owned by who prints; one thread.
 *
 * The rows are given twice, first to be measured and then to be printed, so that none is kept.
 */
#ifndef CLV_TABLE_H
#define CLV_TABLE_H

#include "../base/base.h"

#include <stdio.h>

#define CLV_TABLE_COLUMNS 16
#define CLV_TABLE_CELL 160

struct clv_table {
	FILE *out;
	uint32_t left; /* a bit a column: its text begins at the left; else it ends at the right */
	int widths[CLV_TABLE_COLUMNS];
	bool measuring;
};

/* for (int pass = 0; clv_table_pass(&t, pass); pass++) clv_table_row(...); */
bool clv_table_pass(struct clv_table *t, int pass);
void clv_table_row(struct clv_table *t, char cells[][CLV_TABLE_CELL], int count);

/* Names in traces may have any bytes: what a terminal takes for commands is printed as "?". Cells are printed so. */
void clv_text_print(const char *text, size_t len, FILE *out);

#endif
