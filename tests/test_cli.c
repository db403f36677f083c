/* SPDX-License-Identifier: MIT
 *
 * The command as a program: what it answers to right and wrong usage, and to inputs of every kind. The JSON is taken
 * apart in test_cli_replay.c.
 */
#include "cli_run.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const commands[] = {"run",    "replay", "convert", "plan",   "pack",
				       "stress", "bench",  "help",    "version"};

static const char tiny[] = "Thread,Time,Action,Pointer,Size,Stream\n"
			   "1,10:00:00.000001,allocate,0x1000,1000,0x0\n"
			   "1,10:00:00.000002,free,0x1000,1000,0x0\n";

START_TEST(no_command)
{
	cli_assert_refused(cli_run(NULL, NULL), "cleave help");
}
END_TEST

START_TEST(unknown_commands)
{
	static const char *const names[] = {"plans", "Pack", "status", "report", "",
					    "-",    "--",   "--json", "Replay", "replay "};
	for (size_t i = 0; i < CLV_ARRAY_LEN(names); i++)
		cli_assert_refused(cli_run(names[i], "x", NULL), "unknown");
}
END_TEST

START_TEST(help_of_everything)
{
	static const char *const overview[] = {"help", "--help", "-h"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(overview); i++) {
		struct cli_result r = cli_run(overview[i], NULL);
		ck_assert_int_eq(r.status, 0);
		ck_assert_str_eq(r.err, "");
		for (size_t c = 0; c < CLV_ARRAY_LEN(commands); c++)
			ck_assert_ptr_nonnull(strstr(r.out, commands[c]));
	}
	for (size_t c = 0; c < CLV_ARRAY_LEN(commands); c++) {
		struct cli_result r = cli_run("help", commands[c], NULL);
		ck_assert_msg(r.status == 0, "%s: %s", commands[c], r.err);
		ck_assert_ptr_nonnull(strstr(r.out, commands[c]));
		struct cli_result same = cli_run(commands[c], "--help", NULL);
		ck_assert_int_eq(same.status, 0);
		ck_assert_str_eq(r.out, same.out);
		same = cli_run(commands[c], "-h", NULL);
		ck_assert_str_eq(r.out, same.out);
	}
	static const char *const options[] = {"--policy",    "--capacity", "--fit",  "--verify",      "--device-index",
					      "--event-lag", "--driver",   "--json", "torch:recorded"};
	struct cli_result r = cli_run("help", "replay", NULL);
	for (size_t i = 0; i < CLV_ARRAY_LEN(options); i++)
		ck_assert_msg(strstr(r.out, options[i]) != NULL, "%s", options[i]);
}
END_TEST

START_TEST(help_refuses)
{
	cli_assert_refused(cli_run("help", "plans", NULL), "plans");
	cli_assert_refused(cli_run("help", "replay", "convert", NULL), "convert");
	cli_assert_refused(cli_run("help", "--json", NULL), "--json");
	cli_assert_refused(cli_run("help", "replay", "--json", NULL), "--json");
	cli_assert_refused(cli_run("help", "--what", NULL), "--what");
}
END_TEST

START_TEST(help_settings)
{
	struct cli_result r = cli_run("help", "settings", NULL);
	ck_assert_int_eq(r.status, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "growth"));
	/* two groups: the heap's first */
	ck_assert_ptr_nonnull(strstr(r.out, "\n  off "));
	ck_assert_ptr_nonnull(strstr(r.out, "not for replays"));
	ck_assert(strstr(r.out, "\n  off ") > strstr(r.out, "not for replays"));
	ck_assert(strstr(r.out, "\n  growth ") < strstr(r.out, "not for replays"));
	r = cli_run("help", "settings", "--json", NULL);
	ck_assert_int_eq(r.status, 0);
	json_error_t error;
	json_t *doc = json_loads(r.out, 0, &error);
	ck_assert_msg(doc != NULL, "%s: %s", error.text, r.out);
	const json_t *table = json_object_get(doc, "settings"), *setting;
	size_t i;
	bool growth = false, off = false;
	json_array_foreach((json_t *)table, i, setting)
	{
		const char *key = json_string_value(json_object_get(setting, "key"));
		const char *reader = json_string_value(json_object_get(setting, "reader"));
		ck_assert(key && reader);
		growth |= !strcmp(key, "growth") && !strcmp(reader, "heap");
		off |= !strcmp(key, "off") && !strcmp(reader, "preload");
		ck_assert(json_is_string(json_object_get(setting, "default")));
		ck_assert(json_is_string(json_object_get(setting, "help")));
	}
	ck_assert(growth && off);
	json_decref(doc);
}
END_TEST

START_TEST(version)
{
	struct cli_result r = cli_run("version", NULL);
	ck_assert_int_eq(r.status, 0);
	int major, minor, patch;
	ck_assert_int_eq(sscanf(r.out, "cleave %d.%d.%d\n", &major, &minor, &patch), 3);
	struct cli_result same = cli_run("--version", NULL);
	ck_assert_int_eq(same.status, 0);
	ck_assert_str_eq(r.out, same.out);
	cli_assert_refused(cli_run("version", "x", NULL), "x");
}
END_TEST

START_TEST(wrong_options)
{
	const char *f = cli_text("t.csv", tiny);
	static const struct {
		const char *option, *value, *part;
	} cases[] = {
		{"--polcy", "direct", "--polcy"},
		{"--polcy=direct", NULL, "--polcy"},
		{"-x", NULL, "-x"},
		{"-jx", NULL, "-j"},
		{"--policy", NULL, "--policy needs a value"},
		{"-p", NULL, "--policy needs a value"},
		{"--policy", "", "not empty"},
		{"--policy=", NULL, "not empty"},
		{"--json=1", NULL, "--json takes no value"},
		{"--fit=", NULL, "--fit takes no value"},
		{"--capacity", "", "no size"},
		{"--capacity", "x", "'x' is no size"},
		{"--capacity", "-1", "no size"},
		{"--capacity", "1.5", "no size"},
		{"--capacity", "1e3", "no size"},
		{"--capacity", "20MiBs", "no size"},
		{"--capacity", "99999999999999999999", "too large"},
		{"--capacity", "0", "size of 0"},
		{"--capacity", "0GiB", "size of 0"},
		{"--event-lag", "x", "whole number"},
		{"--event-lag", "1.5", "whole number"},
		{"--event-lag", "-1", "whole number"},
		{"--event-lag", "18446744073709551615", "out of range"},
		{"--event-lag", "18446744073709551616", "too large"},
		{"--device-index", "-1", "whole number"},
		{"--device-index", "2147483648", "out of range"},
		{"--device-index", "1", "device 1"},
		{"--driver", "foo", "'foo'"},
		{"--policy", "foo", "direct"},
		{"--policy", "direct:x", "'x'"},
		{"--policy", "cleave:nosuch:1", "nosuch"},
		{"--policy", "cleave:serve:all", "'serve' is a setting of programs"},
		{"--policy", "cleave:off", "'off' is a setting of programs"},
		{"--policy", "torch:nosuch:1", "nosuch"},
		{"--policy", "torch:recorded", "settings"},
		{"--verify", NULL, "settings"},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		cli_assert_refused(cli_run("replay", f, cases[i].option, cases[i].value, NULL), cases[i].part);
		cli_assert_refused(cli_run("replay", "--json", f, cases[i].option, cases[i].value, NULL),
				   cases[i].part);
	}
	/* of several policies, which one */
	cli_assert_refused(cli_run("replay", f, "-p", "cleave", "-p", "torch:max_split_size_mb:1", NULL),
			   "policy 'torch:max_split_size_mb:1': ValueError");
	cli_assert_refused(cli_run("replay", f, "-p", "cleave", "-p", "cleave:frame:3", NULL),
			   "policy 'cleave:frame:3': ");
	cli_assert_refused(cli_run("replay", NULL, NULL), "TRACE is missing");
	cli_assert_refused(cli_run("replay", "--json", NULL), "TRACE is missing");
	cli_assert_refused(cli_run("replay", f, "b", NULL), "'b'");
	/* the first policy is good, the second is refused before the first runs */
	cli_assert_refused(cli_run("replay", f, "-p", "direct", "-p", "direct:x", NULL), "'x'");
	/* options are looked at before the file is */
	cli_assert_refused(cli_run("replay", "missing", "-p", "foo", NULL), "foo");
	/* after -- everything is a name */
	cli_assert_refused(cli_run("replay", "--", "--json", NULL), "--json");
}
END_TEST

START_TEST(too_many_policies)
{
	char line[2048] = "\"$CLEAVE\" replay t.csv";
	cli_text("t.csv", tiny);
	for (int i = 0; i < 64; i++)
		strcat(line, " -p direct");
	ck_assert_int_eq(cli_shell(line).status, 0);
	strcat(line, " -p direct");
	cli_assert_refused(cli_shell(line), "64");
}
END_TEST

START_TEST(files_that_are_none)
{
	cli_assert_refused(cli_run("replay", "missing.pkl", NULL), "missing.pkl");
	cli_assert_refused(cli_run("replay", ".", NULL), ".");
	cli_assert_refused(cli_run("replay", "", NULL), "");
	cli_assert_refused(cli_run("replay", cli_text("empty", ""), NULL), "empty");
	cli_assert_refused(cli_run("replay", "/dev/null", NULL), "/dev/null");
	if (geteuid() != 0) {
		cli_text("secret", tiny);
		ck_assert_int_eq(cli_shell("chmod 000 secret").status, 0);
		cli_assert_refused(cli_run("replay", "secret", NULL), "secret");
	}
}
END_TEST

START_TEST(broken_files)
{
	struct clv_rng rng = {.state = 7};
	uint8_t noise[4096];
	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (uint8_t)clv_rng_next(&rng);
	static const struct {
		const char *name, *data;
		size_t size; /* 0: of the text */
	} cases[] = {
		{"text", "hello\n", 0},
		{"letter", "x", 0},
		{"zeros", "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16},
		{"json", "{\"traceEvents\":[]}", 0},
		{"protocol-only.pkl", "\x80\x04", 2},
		{"cut.pkl", "\x80\x04\x95\x10\0\0\0\0\0\0\0}\x94(", 14},
		{"number.pkl", "\x80\x02K\x01.", 5},
		{"global.pkl",
		 "\x80\x02"
		 "cos\nsystem\nX\x02\0\0\0ls\x85R.",
		 0},
		{"no-rows.csv", "Thread,Time,Action,Pointer,Size,Stream\n", 0},
		{"no-size.csv", "Thread,Time,Action,Pointer,Stream\n1,10:00:00.000001,allocate,0x1000,0x0\n", 0},
		{"bad-size.csv", "Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.000001,allocate,0x1000,x,0x0\n",
		 0},
		{"bad-action.csv", "Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.000001,swallow,0x1000,1,0x0\n",
		 0},
		{"twice.csv",
		 "Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.000001,allocate,0x1000,8,0x0\n"
		 "1,10:00:00.000002,allocate,0x1000,8,0x0\n",
		 0},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		cli_file(cases[i].name, cases[i].data, cases[i].size ? cases[i].size : strlen(cases[i].data));
		cli_assert_refused(cli_run("replay", cases[i].name, NULL), cases[i].name);
	}
	cli_assert_refused(cli_run("replay", cli_file("noise", noise, sizeof(noise)), NULL), "noise");
	noise[0] = 0x80;
	noise[1] = 4;
	cli_assert_refused(cli_run("replay", cli_file("noise.pkl", noise, sizeof(noise)), NULL), "noise.pkl");
	/* where in the file: what a person needs to look at it */
	cli_assert_refused(cli_run("replay", "global.pkl", NULL), "offset 2");
}
END_TEST

START_TEST(output_that_cannot_be_written)
{
	cli_text("t.csv", tiny);
	if (access("/dev/full", W_OK) == 0) {
		cli_assert_refused(cli_shell("\"$CLEAVE\" replay t.csv -p direct >/dev/full"), "standard output: No space");
		cli_assert_refused(cli_shell("\"$CLEAVE\" replay t.csv -p direct --json >/dev/full"),
				   "standard output: No space");
		cli_assert_refused(cli_shell("\"$CLEAVE\" help >/dev/full"), "standard output: No space");
		cli_assert_refused(cli_shell("\"$CLEAVE\" help settings --json >/dev/full"), "standard output: No space");
		cli_assert_refused(cli_shell("\"$CLEAVE\" version >/dev/full"), "standard output: No space");
	}
	/* a reader that is gone: a message and status 2, no signal. The fifo's reader opens and leaves at once. */
	struct cli_result r =
		cli_shell("{ sleep 0.3; \"$CLEAVE\" replay t.csv -p direct --json; echo $? >status; } | true; "
			  "while [ ! -s status ]; do sleep 0.1; done; read s <status; exit $s");
	cli_assert_refused(r, "standard output: Broken pipe");
	/* closed streams: nothing may be written into the file that gets their number */
	cli_assert_refused(cli_shell("\"$CLEAVE\" replay t.csv -p direct >&-"), "standard output");
	r = cli_shell("\"$CLEAVE\" replay t.csv -p direct <&- 2>&-");
	ck_assert_int_eq(r.status, 0);
	r = cli_shell("cmp t.csv - <<'.'\n"
		      "Thread,Time,Action,Pointer,Size,Stream\n"
		      "1,10:00:00.000001,allocate,0x1000,1000,0x0\n1,10:00:00.000002,free,0x1000,1000,0x0\n.\n");
	ck_assert_msg(r.status == 0, "%s%s", r.out, r.err);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {no_command,
				      unknown_commands,
				      help_of_everything,
				      help_refuses,
				      help_settings,
				      version,
				      wrong_options,
				      too_many_policies,
				      files_that_are_none,
				      broken_files,
				      output_that_cannot_be_written};
	return cli_suite("cli", tests, CLV_ARRAY_LEN(tests));
}
