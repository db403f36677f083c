/* SPDX-License-Identifier: MIT
 *
 * torch_explain: PyTorch's out-of-memory message for the model's last failed request, in the spirit of the real one, but
 * saying which of the unused bytes could not have been used and what of the settings is at fault. Owns no state.
 */
#ifndef CLV_TORCH_EXPLAIN_H
#define CLV_TORCH_EXPLAIN_H

#include "torch_allocator.h"

/* `capacity` 0 and `limit` CLV_TORCH_UNLIMITED: there is none. */
void clv_torch_explain(const struct clv_torch *m, const struct clv_torch_settings *s,
		       const struct clv_torch_request *failed, uint64_t limit, uint64_t capacity, char *buf,
		       size_t len);

#endif
