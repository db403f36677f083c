/* SPDX-License-Identifier: MIT */
#include "table.h"

#include <string.h>

static bool is_command(char byte)
{
	return (unsigned char)byte < ' ' || byte == 0x7f;
}

void clv_text_print(const char *text, size_t len, FILE *out)
{
	for (size_t i = 0; i < len; i++)
		fputc(is_command(text[i]) ? '?' : text[i], out);
}

bool clv_table_pass(struct clv_table *t, int pass)
{
	t->measuring = pass == 0;
	return pass < 2;
}

void clv_table_row(struct clv_table *t, char cells[][CLV_TABLE_CELL], int count)
{
	while (!t->measuring && count && !cells[count - 1][0])
		count--; /* no spaces at the end of a line */
	for (int i = 0; i < count; i++) {
		int len = (int)strlen(cells[i]);
		for (char *c = cells[i]; *c; c++)
			*c = is_command(*c) ? '?' : *c;
		bool left = t->left >> i & 1;
		if (t->measuring)
			t->widths[i] = len > t->widths[i] ? len : t->widths[i];
		else if (left && i == count - 1)
			fprintf(t->out, "%s%s", i ? "  " : "", cells[i]);
		else
			fprintf(t->out, "%s%*s", i ? "  " : "", left ? -t->widths[i] : t->widths[i], cells[i]);
	}
	if (!t->measuring)
		fputc('\n', t->out);
}
