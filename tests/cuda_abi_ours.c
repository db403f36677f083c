/* SPDX-License-Identifier: MIT */
#include "cuda_abi_layouts.h"

#include "../src/driver/cuda_calls.h"

const struct abi_size abi_ours[] = ABI_TABLE;
const size_t abi_ours_count = sizeof(abi_ours) / sizeof(abi_ours[0]);
