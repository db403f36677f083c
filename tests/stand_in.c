/* SPDX-License-Identifier: MIT
 *
 * stand_in: a library in the place of libcleave-preload.so, which says that it is there.
 */
int clv_stand_in(void);

__attribute__((visibility("default"))) int clv_stand_in(void)
{
	return 1;
}
