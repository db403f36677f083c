/* SPDX-License-Identifier: MIT */
#include "import.h"

struct clv_trace *clv_import_rmm(const struct clv_input *in, struct clv_error *err)
{
	clv_error_at(err, in->name, 0, "neither a PyTorch snapshot pickle nor a .clv file");
	return NULL;
}
