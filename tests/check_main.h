/* SPDX-License-Identifier: MIT
 *
 * check_main: the main() of a Check program that has one suite. `CHECK_MAIN("module", test, ...)`; exits 0 if all passed,
 * else 1. What needs more than a list of tests (loops, fixtures, signals) makes a case with check_main_case(), adds to it and
 * returns check_main_end() of it.
 */
#ifndef CLV_CHECK_MAIN_H
#define CLV_CHECK_MAIN_H

#include <check.h>
#include <stdlib.h>

static inline TCase *check_main_case(const char *name)
{
	TCase *tcase = tcase_create(name);
	tcase_set_timeout(tcase, 0); /* meson times tests out */
	return tcase;
}

static inline int check_main_end(const char *name, TCase *tcase)
{
	Suite *suite = suite_create(name);
	suite_add_tcase(suite, tcase);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

static inline int check_main_run(const char *name, const TTest *const *tests, size_t count)
{
	TCase *tcase = check_main_case(name);
	for (size_t i = 0; i < count; i++)
		tcase_add_test(tcase, tests[i]);
	return check_main_end(name, tcase);
}

#define CHECK_MAIN(name, ...)                                                                                          \
	int main(void)                                                                                                 \
	{                                                                                                              \
		const TTest *const tests[] = {__VA_ARGS__};                                                            \
		return check_main_run(name, tests, sizeof(tests) / sizeof(tests[0]));                                  \
	}

#endif
