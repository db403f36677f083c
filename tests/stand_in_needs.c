/* SPDX-License-Identifier: MIT
 *
 * stand_in_needs: a library that needs another one.
 */
int clv_stand_in(void);
int clv_stand_in_needs(void);

__attribute__((visibility("default"))) int clv_stand_in_needs(void)
{
	return clv_stand_in();
}
