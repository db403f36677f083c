/* SPDX-License-Identifier: MIT
 *
 * What cuda_abi.h and cuda_calls.h say of the CUDA Driver API, compared with a real cuda.h: constants, layouts and
 * prototypes. Without one, or with one older than what they were written after, it is skipped.
 */
#ifdef CLV_HAVE_CUDA_H

/* Every version of every function is declared under the name that it is exported by. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#if CUDA_VERSION >= 13000

#define CLV_CUDA_ABI_LISTS_ONLY
#include "../src/driver/cuda_abi.h" /* a typedef or a macro that differs from cuda.h's does not compile */
#include "../src/driver/cuda_calls.h"

#include "check_main.h"
#include "cuda_abi_layouts.h"

#include <string.h>

START_TEST(constants_have_their_values)
{
	static const struct {
		const char *name;
		long long ours, real;
	} all[] = {
#define CONSTANT(name, value) {#name, value, name},
#define OF_TYPE(type, constants) constants(CONSTANT)
		CLV_CUDA_ENUMS(OF_TYPE) CLV_CUDA_FLAGS(CONSTANT)};
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		ck_assert_msg(all[i].ours == all[i].real, "%s is %lld, not %lld", all[i].name, all[i].real,
			      all[i].ours);
}
END_TEST

START_TEST(structures_are_laid_out_alike)
{
	static const struct abi_size real[] = ABI_TABLE;
	ck_assert_uint_eq(abi_ours_count, sizeof(real) / sizeof(real[0]));
	for (size_t i = 0; i < abi_ours_count; i++) {
		ck_assert_str_eq(abi_ours[i].name, real[i].name);
		ck_assert_msg(abi_ours[i].size == real[i].size, "%s has %zu bytes, not %zu", real[i].name, real[i].size,
			      abi_ours[i].size);
		ck_assert_msg(abi_ours[i].align_or_offset == real[i].align_or_offset,
			      "%s is at (or aligned to) %zu, not %zu", real[i].name, real[i].align_or_offset,
			      abi_ours[i].align_or_offset);
	}
}
END_TEST

START_TEST(functions_take_what_we_pass)
{
	static const struct {
		const char *name;
		int same;
	} all[] = {
#define SAME(name, params) {#name, __builtin_types_compatible_p(__typeof__(&name), CUresult(*) params)},
#define SAME_TWINS(name, params) SAME(name, params) SAME(name##_ptsz, params)
		CLV_CUDA_CALLS(SAME, SAME_TWINS)};
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		ck_assert_msg(all[i].same, "%s is declared otherwise in cuda.h", all[i].name);
}
END_TEST

START_TEST(numbers_have_their_signs)
{
	ck_assert((CUdevice)-1 < 0);
	ck_assert((CUdeviceptr)-1 > 0);
	ck_assert((CUmemGenericAllocationHandle)-1 > 0);
	ck_assert((cuuint64_t)-1 > 0);
	ck_assert_ptr_eq(CU_STREAM_LEGACY, (void *)1);
	ck_assert_ptr_eq(CU_STREAM_PER_THREAD, (void *)2);
}
END_TEST

CHECK_MAIN("cuda_abi", constants_have_their_values, structures_are_laid_out_alike, functions_take_what_we_pass,
	   numbers_have_their_signs)

#else
#define CLV_SKIP "the cuda.h found is older than CUDA 13.0"
#endif
#else
#define CLV_SKIP "no cuda.h was found (-D toolkit_include=FOLDER)"
#endif

#ifdef CLV_SKIP
#include <stdio.h>

int main(void)
{
	puts(CLV_SKIP);
	return 77;
}
#endif
