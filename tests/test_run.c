/* SPDX-License-Identifier: MIT
 *
 * `cleave run` as a program, with another library in the place of ours: what it sets, what the program sees of it, and
 * that a program which cannot have it runs as without it. run_child.c is the program.
 */
#include "cli_run.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUN "\"$CLEAVE\" run "
#define NO_NATIVE_NOTE "runs with --native"

/* A shell line; $CHILD and $STATIC are the programs, $LIB the library. */
static struct cli_result sh(const char *line)
{
	struct cli_result r = cli_shell(line);
	/* a line that the shell did not like tests nothing */
	ck_assert_msg(!strstr(r.err, "syntax error"), "%s: %s", line, r.err);
	return r;
}

static void says(struct cli_result r, const char *out, const char *err)
{
	ck_assert_msg(strstr(r.out, out) != NULL, "stdout has no '%s': %s\nstderr: %s", out, r.out, r.err);
	ck_assert_msg(strstr(r.err, err) != NULL, "stderr has no '%s': %s", err, r.err);
}

static void says_not(struct cli_result r, const char *text)
{
	ck_assert_msg(!strstr(r.err, text), "stderr has '%s': %s", text, r.err);
}

static unsigned lines(const char *text)
{
	unsigned n = 0;
	for (; *text; text++)
		n += *text == '\n';
	return n;
}

/* The variables that `cleave run` may set, as the program finds them. */
#define SEEN " env LD_PRELOAD CLEAVE_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_HIP_ALLOC_CONF PYTORCH_ALLOC_CONF"

/* The program ran, with none of them and without the library; one line says why. */
static void left_alone(const char *assign, const char *program, const char *why)
{
	char line[1024];
	snprintf(line, sizeof(line), "%s " RUN "--stats -- %s" SEEN, assign, program);
	struct cli_result r = sh(line);
	ck_assert_msg(r.status == 0, "%s: %d, %s", line, r.status, r.err);
	says(r,
	     "LD_PRELOAD is not set\nCLEAVE_CONF is not set\nPYTORCH_CUDA_ALLOC_CONF is not set\n"
	     "PYTORCH_HIP_ALLOC_CONF is not set\nPYTORCH_ALLOC_CONF is not set\n",
	     "cleave run: Cleave is not loaded and nothing is set: ");
	says(r, "", why);
	ck_assert_msg(lines(r.err) == 1, "%s", r.err);
	snprintf(line, sizeof(line), "%s " RUN "-- %s loaded", assign, program);
	says(sh(line), "not loaded\n", why);
}

START_TEST(sets_variables)
{
	struct cli_result r = sh(RUN "-- \"$CHILD\"" SEEN "; " RUN "\"$CHILD\" loaded");
	char expect[512];
	snprintf(expect, sizeof(expect),
		 "LD_PRELOAD=%s\nCLEAVE_CONF is not set\nPYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync\n"
		 "PYTORCH_HIP_ALLOC_CONF is not set\nPYTORCH_ALLOC_CONF is not set\nloaded\n",
		 getenv("STAND_IN"));
	ck_assert_str_eq(r.out, expect);
	snprintf(expect, sizeof(expect),
		 "cleave run: set LD_PRELOAD=%s PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync\n", getenv("STAND_IN"));
	says(r, "", expect);
	static const char *const lacks[] = {"snapshot",    "MemPool",           "sleep mode",
					    "graph trees", "between processes", NO_NATIVE_NOTE};
	for (size_t i = 0; i < CLV_ARRAY_LEN(lacks); i++)
		says(r, "", lacks[i]);
	ck_assert_uint_eq(lines(r.err), 4); /* two runs */
	/* what is there already is not set again, and a run in a run adds nothing */
	r = sh(RUN "--stats -- \"$CLEAVE\" run -- \"$CHILD\"" SEEN);
	snprintf(expect, sizeof(expect), "LD_PRELOAD=%s\n", getenv("STAND_IN"));
	says(r, expect, "cleave run: set nothing: all is set already\n");
	says(r, "CLEAVE_CONF=stats:on\nPYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync\n", "");
	ck_assert_uint_eq(lines(r.err), 3);
}
END_TEST

START_TEST(conf)
{
	says(sh(RUN "--stats -- \"$CHILD\"" SEEN), "\nCLEAVE_CONF=stats:on\n", " CLEAVE_CONF=stats:on ");
	says(sh(RUN "--conf growth:tight --conf=limit:1GiB,serve:all --stats \"$CHILD\"" SEEN),
	     "\nCLEAVE_CONF=growth:tight,limit:1GiB,serve:all,stats:on\n", "");
	/* what is there comes first; what it says wrong is for the library to complain about */
	says(sh("CLEAVE_CONF=cache:off,what:ever " RUN "--conf cache:on -- \"$CHILD\"" SEEN),
	     "\nCLEAVE_CONF=cache:off,what:ever,cache:on\n", " CLEAVE_CONF=cache:off,what:ever,cache:on ");
	struct cli_result r = sh("CLEAVE_CONF=cache:off " RUN "-- \"$CHILD\"" SEEN);
	says(r, "\nCLEAVE_CONF=cache:off\n", "");
	says_not(r, "CLEAVE_CONF");
	/* off is as if we were not there, wherever it is said */
	static const char *const off[] = {"CLEAVE_CONF=off " RUN, RUN "--conf off ",
					  "CLEAVE_CONF=cache:off,off " RUN "--stats "};
	for (size_t i = 0; i < CLV_ARRAY_LEN(off); i++) {
		char line[256];
		snprintf(line, sizeof(line), "%s -- \"$CHILD\"" SEEN, off[i]);
		r = sh(line);
		says(r, "LD_PRELOAD is not set\n", "nothing is set: CLEAVE_CONF=");
		says(r, "PYTORCH_CUDA_ALLOC_CONF is not set\n", "off");
		ck_assert_uint_eq(lines(r.err), 1);
	}
}
END_TEST

START_TEST(preloaded_already)
{
	ck_assert_int_eq(
		sh("cp \"$LIB\" one.so; cp \"$LIB\" two.so; mkdir other; cp \"$LIB\" other/libstand_in.so").status, 0);
	static const char *const separators[] = {":", " ", "::", " : "};
	for (size_t i = 0; i < CLV_ARRAY_LEN(separators); i++) {
		char line[256], expect[512];
		snprintf(line, sizeof(line), "LD_PRELOAD=\"./one.so%s./two.so\" " RUN "-- \"$CHILD\" env LD_PRELOAD",
			 separators[i]);
		snprintf(expect, sizeof(expect), "LD_PRELOAD=%s:./one.so%s./two.so\n", getenv("STAND_IN"),
			 separators[i]);
		struct cli_result r = sh(line);
		ck_assert_str_eq(r.out, expect);
		expect[strlen(expect) - 1] = '\0';
		says(r, "", expect);
	}
	/* ours is there: as it is, at the place where it is, also another copy of it */
	struct cli_result r = sh("LD_PRELOAD=\"./one.so:$LIB\" " RUN "-- \"$CHILD\" env LD_PRELOAD");
	says(r, "LD_PRELOAD=./one.so:/", "set PYTORCH");
	r = sh("LD_PRELOAD=\"./other/libstand_in.so ./one.so\" " RUN "-- \"$CHILD\" env LD_PRELOAD");
	says(r, "LD_PRELOAD=./other/libstand_in.so ./one.so\n", "set PYTORCH");
	r = sh("LD_PRELOAD= " RUN "-- \"$CHILD\" env LD_PRELOAD");
	says(r, "LD_PRELOAD=/", "");
	ck_assert_ptr_null(strchr(strchr(r.out, '='), ':'));
	/* what else cannot be loaded is not our affair */
	r = sh("LD_PRELOAD=./gone.so " RUN "-- \"$CHILD\" env LD_PRELOAD 2>&1 >seen | grep -v 'ld.so' >&2; cat seen");
	says(r, ":./gone.so\n", "set LD_PRELOAD=");
}
END_TEST

START_TEST(pytorch)
{
	static const struct {
		const char *given;              /* before the command; NULL: nothing */
		const char *cuda, *hip, *alloc; /* what the program finds; NULL: not set */
		const char *says;
		bool note;
	} cases[] = {
		{"PYTORCH_CUDA_ALLOC_CONF=", "backend:cudaMallocAsync", NULL, NULL, "set LD_PRELOAD", true},
		{"PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:20", "backend:cudaMallocAsync,max_split_size_mb:20", NULL,
		 NULL, "(this backend ignores max_split_size_mb)", true},
		{"PYTORCH_ALLOC_CONF=expandable_segments:True,pinned_use_cuda_host_register:True", NULL, NULL,
		 "backend:cudaMallocAsync,expandable_segments:True,pinned_use_cuda_host_register:True",
		 "(this backend ignores expandable_segments)", true},
		{"PYTORCH_HIP_ALLOC_CONF=x:1", NULL, "backend:cudaMallocAsync,x:1", NULL, "ignores x", true},
		{"PYTORCH_CUDA_ALLOC_CONF=pinned_x:1 PYTORCH_ALLOC_CONF=a:1,b:2", "backend:cudaMallocAsync,pinned_x:1",
		 NULL, "backend:cudaMallocAsync,a:1,b:2", "ignores a, b)", true},
		{"PYTORCH_CUDA_ALLOC_CONF=backend:native", "backend:native", NULL, NULL,
		 "; PyTorch keeps its backend 'native', which PYTORCH_CUDA_ALLOC_CONF chooses", false},
		{"PYTORCH_ALLOC_CONF=a:1,backend:native", NULL, NULL, "a:1,backend:native",
		 "which PYTORCH_ALLOC_CONF chooses", false},
		{"PYTORCH_CUDA_ALLOC_CONF=a:1 PYTORCH_ALLOC_CONF=backend:native", "a:1", NULL, "backend:native",
		 "which PYTORCH_ALLOC_CONF chooses", false},
		{"PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync", "backend:cudaMallocAsync", NULL, NULL,
		 "set LD_PRELOAD", false},
		{"PYTORCH_ALLOC_CONF=backend:cudaMallocAsync", NULL, NULL, "backend:cudaMallocAsync", "set LD_PRELOAD",
		 false},
		{"PYTORCH_CUDA_ALLOC_CONF=a:1 PYTORCH_ALLOC_CONF=backend:cudaMallocAsync",
		 "backend:cudaMallocAsync,a:1", NULL, "backend:cudaMallocAsync", "set LD_PRELOAD", true},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		char line[512];
		snprintf(line, sizeof(line), "%s " RUN "-- \"$CHILD\"" SEEN, cases[i].given);
		struct cli_result r = sh(line);
		const char *const names[] = {"CUDA_", "HIP_", ""};
		const char *const values[] = {cases[i].cuda, cases[i].hip, cases[i].alloc};
		for (size_t v = 0; v < CLV_ARRAY_LEN(names); v++) {
			char expect[256];
			snprintf(expect, sizeof(expect), "\nPYTORCH_%sALLOC_CONF%s%s\n", names[v],
				 values[v] ? "=" : " is not set", values[v] ? values[v] : "");
			says(r, expect, cases[i].says);
		}
		ck_assert_msg(cases[i].note == (strstr(r.err, NO_NATIVE_NOTE) != NULL), "%s: %s", line, r.err);
		ck_assert_uint_eq(lines(r.err), cases[i].note ? 2 : 1);
		/* with --native nothing of this is touched */
		snprintf(line, sizeof(line),
			 "%s \"$CHILD\"" SEEN " | tail -3; %s " RUN "--native -- \"$CHILD\"" SEEN " | tail -3",
			 cases[i].given, cases[i].given);
		r = sh(line);
		size_t half = strlen(r.out) / 2;
		ck_assert_msg(!memcmp(r.out, r.out + half, half), "%s: %s", line, r.out);
		says(r, "", "; PyTorch keeps its own allocator\n");
		says_not(r, "set PYTORCH");
		ck_assert_uint_eq(lines(r.err), 1);
	}
}
END_TEST

/* The program takes the place of the command: it is the same process, with everything as it was. */
START_TEST(is_the_program)
{
	struct cli_result r = sh(RUN "-- \"$CHILD\" pid & echo $! >expect; wait; cat expect");
	int pid, group, session, expect;
	ck_assert_int_eq(sscanf(r.out, "%d %d %d %d", &pid, &group, &session, &expect), 4);
	ck_assert_int_eq(pid, expect);
	r = sh("echo $$; exec " RUN "-- \"$CHILD\" pid");
	ck_assert_int_eq(sscanf(r.out, "%d %d", &expect, &pid), 2);
	ck_assert_int_eq(pid, expect);
	static const int statuses[] = {0, 1, 2, 3, 77, 126, 127, 255};
	for (size_t i = 0; i < CLV_ARRAY_LEN(statuses); i++) {
		char number[8];
		snprintf(number, sizeof(number), "%d", statuses[i]);
		r = cli_run("run", "--", getenv("CHILD"), "status", number, NULL);
		ck_assert_int_eq(r.status, statuses[i]);
	}
	r = cli_run("run", "--", getenv("CHILD"), "signal", "15", NULL);
	ck_assert_int_eq(r.status, 1000 + SIGTERM);
	ck_assert_int_eq(sh(RUN "-- \"$CHILD\" signal 15; exit $?").status, 143);
	ck_assert_int_eq(sh("mkfifo fifo; " RUN "-- \"$CHILD\" cat <fifo >out & exec 3>fifo; echo x >&3;"
			    "while [ ! -s out ]; do sleep 0.01; done; kill -TERM $!; wait $!")
				 .status,
			 143);
	/* arguments, those that look like ours as well */
	r = sh(RUN "-- \"$CHILD\" args --stats -- '' 'a b' --native");
	says(r, "\nargs\n--stats\n--\n\na b\n--native\n", "");
	says_not(r, "CLEAVE_CONF");
	ck_assert(!strncmp(r.out, getenv("CHILD"), strlen(getenv("CHILD"))));
	says(sh("PATH=\"$(dirname \"$CHILD\"):$PATH\"; " RUN "run_child args x"), "run_child\nargs\nx\n", "");
	/* stdin and stdout, whatever the bytes */
	r = sh("head -c 100000 \"$CHILD\" >in; " RUN "-- \"$CHILD\" cat <in >out; cmp in out");
	ck_assert_int_eq(r.status, 0);
}
END_TEST

/* What `cleave` does to signals and files for itself ends with it. */
START_TEST(nothing_left_behind)
{
	static const char *const ways[] = {"\"$CHILD\" ignored 13 25",
					   "(trap '' PIPE; %s\"$CHILD\" ignored 13 25)",
					   "\"$CHILD\" open",
					   "\"$CHILD\" open <&-",
					   "\"$CHILD\" open <&- 2>&-",
					   "\"$CHILD\" open 2>&-",
					   "\"$CHILD\" open 5</dev/null"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(ways); i++) {
		char line[512], with[128], without[128];
		const char *way = ways[i], *at = strstr(way, "%s");
		if (at) {
			snprintf(with, sizeof(with), "%.*s" RUN "%s", (int)(at - way), way, at + 2);
			snprintf(without, sizeof(without), "%.*s%s", (int)(at - way), way, at + 2);
		} else {
			snprintf(with, sizeof(with), RUN "%s", way);
			snprintf(without, sizeof(without), "%s", way);
		}
		snprintf(line, sizeof(line), "%s >without; %s >with; cat with; cmp with without", without, with);
		struct cli_result r = sh(line);
		ck_assert_msg(r.status == 0 && r.out_len, "%s: %s%s", line, r.out, r.err);
	}
	/* a parent that ignores its children's ends */
	says(sh("trap '' CHLD; " RUN "-- \"$CHILD\" loaded"), "loaded\n", "set LD_PRELOAD");
}
END_TEST

START_TEST(commands_that_are_none)
{
	static const struct {
		const char *command;
		int status;
		const char *says;
	} cases[] = {
		{"cleave-no-such-command", 127, "cleave-no-such-command: command not found"},
		{"./none", 127, "./none: No such file or directory"},
		{"./plain/none", 127, "./plain/none: Not a directory"},
		{"''", 127, "command not found"},
		{"./plain", 126, "./plain: Permission denied"},
		{".", 126, ".: Is a directory"},
		{"./", 126, "./: Is a directory"},
		{"/", 126, "/: Is a directory"},
		{"/dev/null", 126, "/dev/null: Permission denied"},
		{"./loop", 126, "symbolic links"},
	};
	cli_text("plain", "no program\n");
	ck_assert_int_eq(sh("ln -s loop loop").status, 0);
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		char line[256];
		snprintf(line, sizeof(line), RUN "-- %s x", cases[i].command);
		struct cli_result r = sh(line);
		ck_assert_msg(r.status == cases[i].status, "%s: %d %s", line, r.status, r.err);
		says(r, "", cases[i].says);
		ck_assert_msg(lines(r.err) == 1 && !r.out_len && !strncmp(r.err, "cleave run: ", 12), "%s: %s", line,
			      r.err);
	}
	/* PATH: the first that can be executed; one that cannot is told of if there is no other */
	struct cli_result r =
		sh("mkdir a b c; cp \"$CHILD\" b/tool; mkdir c/tool; echo x >a/tool;"
		   "PATH=a:c:b " RUN "tool args; PATH=a:c " RUN "tool args; echo $?; PATH=c " RUN "tool; echo $?");
	says(r, "tool\nargs\n126\n126\n", "tool: Permission denied\n");
	r = sh("cp \"$CHILD\" tool; PATH= " RUN "tool args; PATH=a:: " RUN "tool args; unset PATH; " RUN "env true");
	says(r, "tool\nargs\ntool\nargs\n", "");
	ck_assert_int_eq(r.status, 0);
}
END_TEST

START_TEST(usage)
{
	static const struct {
		const char *line, *says;
	} cases[] = {
		{"", "COMMAND is missing; usage: cleave run [OPTION]... -- COMMAND"},
		{"--", "COMMAND is missing"},
		{"--stats", "COMMAND is missing"},
		{"--conf", "--conf needs a value"},
		{"--conf '' -- \"$CHILD\"", "not empty"},
		{"--conf nosuch:1 -- \"$CHILD\"", "--conf: unknown setting 'nosuch'"},
		{"--conf stats:yes,nosuch:1 -- \"$CHILD\"", "--conf: stats:yes: expected on or off"},
		{"--conf off:1 -- \"$CHILD\"", "'off' takes no value"},
		{"--conf frame:3 nosuch-command", "frame:3"},
		{"--native=1 \"$CHILD\"", "--native takes no value"},
		{"--nativ \"$CHILD\"", NULL}, /* an abbreviation, as everywhere */
		{"--what \"$CHILD\"", "unknown option '--what'"},
		{"-x \"$CHILD\"", "unknown option '-x'"},
		{"--plan", "--plan needs a value"},
		{"--plan gone.json -- \"$CHILD\"", "--plan: gone.json: "},
		{"--trace", "--trace needs a value"},
		{"--trace a,b.clv -- \"$CHILD\"", "--trace: "},
		{"--trace %x.clv -- \"$CHILD\"", "expected %p (process), %r (rank)"},
		{"--report ,.html -- \"$CHILD\"", "a comma in the path would end the setting"},
		{"--observe -- \"$CHILD\"", "--observe: nothing says where to record; expected --trace FILE as well"},
		{"--observe --trace t.clv --plan p.json -- \"$CHILD\"", "expected one of them"},
		{"--trace /dev/null -- \"$CHILD\"", "/dev/null is there already, and is no trace"},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		char line[256];
		snprintf(line, sizeof(line), RUN "%s", cases[i].line);
		if (cases[i].says)
			cli_assert_refused(sh(line), cases[i].says);
		else
			ck_assert_int_eq(sh(line).status, 0);
	}
	struct cli_result r = cli_run("help", "run", NULL);
	static const char *const named[] = {"--conf",
					    "--plan PLAN",
					    "--trace FILE",
					    "--report FILE.html",
					    "--observe",
					    "--native",
					    "--stats",
					    "-- COMMAND",
					    "LD_PRELOAD",
					    "CLEAVE_CONF",
					    "PYTORCH_CUDA_ALLOC_CONF",
					    "CLEAVE_PRELOAD"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(named); i++)
		ck_assert_msg(strstr(r.out, named[i]) != NULL, "%s", named[i]);
	r = cli_run("help", NULL, NULL);
	ck_assert(strstr(r.out, "  126  ") && strstr(r.out, "  127  "));
}
END_TEST

/* The folder in which the program runs, with a slash behind it. */
static const char *folder(void)
{
	static char path[4096];
	snprintf(path, sizeof(path), "%s", cli_path("x"));
	path[strlen(path) - 1] = '\0';
	return path;
}

START_TEST(traces)
{
	char expect[8192];
	struct cli_result r = sh("CLEAVE_CONF=stacks:off " RUN "--stats --conf growth:tight --trace t.clv -- \"$CHILD\"" SEEN);
	snprintf(expect, sizeof(expect), "CLEAVE_CONF=stacks:off,growth:tight,stats:on,trace:%st.clv\n", folder());
	says(r, expect, "cleave run: recording into /");
	says(r, "", "`cleave report t.clv` shows it");
	ck_assert_int_eq(r.status, 0);
	/* with a report the command waits; there is nothing to report of a program that uses no device */
	r = sh(RUN "--report r.html -- \"$CHILD\" status 7");
	snprintf(expect, sizeof(expect), "trace:%sr.clv", folder());
	says(r, "", expect);
	says(r, "", "there is nothing to report");
	ck_assert_int_eq(r.status, 7);
	r = sh("exec " RUN "--report r.html --trace t.clv -- \"$CHILD\" signal 15");
	ck_assert_int_eq(r.status, 1000 + 15);
	r = sh(RUN "--report r.html -- nosuch-command; echo $?; " RUN "--report r.html -- \"$CHILD\" cat <t.in; echo $?");
	says(r, "127\n2\n", ""); /* of the shell, which finds no t.in */
	/* what a signal does to the command it does to the program */
	r = sh(RUN "--report r.html -- sh -c 'trap \"echo got it; exit 5\" TERM; echo $PPID >pid; while :; do sleep 0.05; done' & "
	       "while ! [ -s pid ]; do sleep 0.05; done; sleep 0.1; kill -TERM $(cat pid); wait $!; echo status $?");
	says(r, "got it\nstatus 5\n", "");
	/* nothing but the settings changes under --observe */
	r = sh(RUN "--observe --trace t.clv -- \"$CHILD\"" SEEN);
	snprintf(expect, sizeof(expect), "CLEAVE_CONF=observe,trace:%st.clv\nPYTORCH_CUDA_ALLOC_CONF is not set\n", folder());
	says(r, expect, "what the driver is asked for is recorded into /");
	says_not(r, NO_NATIVE_NOTE);
	/* what is no trace stays, a trace from before goes */
	r = sh("echo text >t.clv; " RUN "--trace t.clv -- \"$CHILD\" status 3; echo $?; cat t.clv");
	says(r, "2\ntext\n", "t.clv is there already, and is no trace");
	r = sh("printf '\\223CLV\\r\\n\\032\\n' >t.clv; " RUN "--trace t.clv -- \"$CHILD\" status 3; echo $?; ls t.clv");
	says(r, "3\n", "t.clv");
	ck_assert_msg(!strstr(r.out, "t.clv"), "%s", r.out);
	/* as does the trace if nothing is recorded at all */
	r = sh("printf '\\223CLV\\r\\n\\032\\n' >t.clv; " RUN "--trace t.clv -- \"$STATIC\"; CLEAVE_CONF=off " RUN
	       "--trace t.clv -- \"$CHILD\"; ls t.clv");
	says(r, "t.clv\n", "nothing is set");
	says_not(r, "recording into");
}
END_TEST

#define PLAN_HEAD                                                                                                      \
	"{\"moe_layers\": 1, \"experts_local\": 1, \"buffers\": [{\"name\": \"w\", \"shape\": [4], \"dtype\": \"uint8\", "    \
	"\"bytes\": 4}], \"reservations\": ["
#define W "{\"name\": \"w\", "

/* A plan that makes no sense sets nothing and runs nothing: exit 2, the file, the member, and what was expected. */
START_TEST(plans_refused)
{
	static const struct {
		const char *reservation, *says;
	} cases[] = {
		{"7", "p.json: reservations[0] is a whole number: an object was expected"},
		{"{\"bytes\": 1048576, \"count\": 1}", "p.json: reservations[0].name is missing"},
		{W "\"count\": 1}", "p.json: reservations[0].bytes is missing"},
		{W "\"bytes\": \"1MiB\", \"count\": 1}", "p.json: reservations[0].bytes is "},
		{W "\"bytes\": -5, \"count\": 1}", "p.json: reservations[0].bytes is -5"},
		{W "\"bytes\": 1048576, \"count\": 0}", "p.json: reservations[0].count is 0"},
		{W "\"bytes\": 1048576, \"count\": 1.5}", "p.json: reservations[0].count is "},
		{W "\"bytes\": 1048576, \"count\": 1, \"after_n\": -1}", "p.json: reservations[0].after_n is -1"},
		{W "\"bytes\": 1048576, \"count\": 1, \"hard\": 1}", "p.json: reservations[0].hard is "},
		{W "\"bytes\": 1048576, \"count\": 9999999}",
		 "p.json: reservations[0] has bytes 1048576 and count 9999999: expected a number of slots from 1 to 1048576"},
		{W "\"bytes\": 281474976710656, \"count\": 2}", "all slots together to be up to 256TiB"},
	};
	char text[8192];
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		snprintf(text, sizeof(text), PLAN_HEAD "%s]}", cases[i].reservation);
		cli_text("p.json", text);
		cli_assert_refused(sh(RUN "--plan p.json -- \"$CHILD\""), cases[i].says);
	}
	cli_text("p.json", "{,");
	cli_assert_refused(sh(RUN "--plan p.json -- \"$CHILD\""), "p.json:1: this is no JSON");
	/* so many that settings have no room for them */
	size_t len = (size_t)snprintf(text, sizeof(text), PLAN_HEAD);
	for (unsigned i = 0; i < 65; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s" W "\"bytes\": %u, \"count\": 1}", i ? "," : "",
					(i + 1) * 100000);
	snprintf(text + len, sizeof(text) - len, "]}");
	cli_text("p.json", text);
	cli_assert_refused(sh(RUN "--plan p.json -- \"$CHILD\""), "p.json: reservations has more entries above 32 KiB than the 64");
}
END_TEST

START_TEST(programs_that_cannot_load_it)
{
	left_alone("", "\"$STATIC\"", "is a static program");
	/* as root, a program of somebody else's that takes on their rights */
	if (geteuid() == 0) {
		ck_assert_int_eq(sh("cp \"$CHILD\" owned; chmod 755 .; chown 65534 owned; chmod 4755 owned").status, 0);
		left_alone("", "./owned", "runs with rights");
		ck_assert_int_eq(sh("chown 0:65534 owned; chmod 2755 owned").status, 0);
		left_alone("", "./owned", "runs with rights");
		ck_assert_int_eq(sh("chown 0:0 owned; chmod 6755 owned").status, 0);
		says(sh(RUN "./owned loaded"), "loaded\n", "set LD_PRELOAD");
	}
	/* those that do not run here at all: the line comes first, then why it did not run */
	says(sh(RUN "\"$MUSL\""), "", "nothing is set: ");
	says(sh(RUN "\"$MUSL\""), "", "uses musl as its C library");
	static const struct {
		const char *make, *says;
		int status; /* 0: as the machine likes */
	} cases[] = {
		{"printf '\\267' | dd of=odd bs=1 seek=18 conv=notrunc",
		 "is a program for aarch64, the library is for x86-64", 0},
		{"printf '\\076' | dd of=odd bs=1 seek=18 conv=notrunc",
		 "is a program for x86-64, the library is for aarch64", 0},
		{"printf '\\001' | dd of=odd bs=1 seek=4 conv=notrunc", "is no 64-bit program", 0},
		{"printf '\\002' | dd of=odd bs=1 seek=5 conv=notrunc", "is no 64-bit program", 0},
		{"head -c 40 \"$CHILD\" >odd", "cut off", 126},
		{"head -c 100 \"$CHILD\" >odd", "cut off", 126},
		{"head -c 4 \"$CHILD\" >odd", "is no 64-bit program", 126},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
#ifdef __aarch64__
		if (i == 0)
			continue;
#else
		if (i == 1)
			continue;
#endif
		char line[256];
		snprintf(line, sizeof(line), "cp \"$CHILD\" odd; %s 2>/dev/null; ", cases[i].make);
		strcat(line, RUN "./odd");
		struct cli_result r = sh(line);
		says(r, "", "Cleave is not loaded and nothing is set: ./odd ");
		says(r, "", cases[i].says);
		ck_assert_msg(!cases[i].status || r.status == cases[i].status, "%s: %d %s", line, r.status, r.err);
	}
}
END_TEST

START_TEST(libraries_that_cannot_be_loaded)
{
	cli_text("junk.so", "x\n");
	ck_assert_int_eq(
		sh("head -c 3000 \"$LIB\" >cut.so; cp \"$NEEDS\" needs.so; mkdir 'a b' c:d; cp \"$LIB\" 'a b/l.so';"
		   "cp \"$LIB\" c:d/l.so; mkdir e; cp \"$LIB\" e/l.so; chmod 000 e/l.so")
			.status,
		0);
	left_alone("CLEAVE_PRELOAD=./none.so", "\"$CHILD\"", "./none.so, which CLEAVE_PRELOAD names, is not there");
	left_alone("CLEAVE_PRELOAD=/none/none.so", "\"$CHILD\"",
		   "/none/none.so, which CLEAVE_PRELOAD names, is not there");
	left_alone("CLEAVE_PRELOAD=junk.so", "\"$CHILD\"", "cannot be preloaded (file too short)");
	left_alone("CLEAVE_PRELOAD=cut.so", "\"$CHILD\"", "its loader ");
	left_alone("CLEAVE_PRELOAD=needs.so", "\"$CHILD\"", "libabsent.so");
	left_alone("CLEAVE_PRELOAD='a b/l.so'", "\"$CHILD\"", "LD_PRELOAD cannot hold the path");
	left_alone("CLEAVE_PRELOAD=c:d/l.so", "\"$CHILD\"", "LD_PRELOAD cannot hold the path");
	if (geteuid() != 0)
		left_alone("CLEAVE_PRELOAD=e/l.so", "\"$CHILD\"", "cannot be preloaded");
	/* what makes a loader talk, or run something, does not mislead */
	says(sh("LD_DEBUG=libs LD_DEBUG_OUTPUT=talk LD_BIND_NOW=1 LD_WARN=1 " RUN "\"$CHILD\" loaded"), "loaded\n",
	     "set LD_PRELOAD");
}
END_TEST

START_TEST(scripts)
{
	char text[512];
	snprintf(text, sizeof(text), "#!%s args\n", getenv("CHILD"));
	cli_text("direct", text);
	cli_text("shell", "#!/bin/sh\n\"$CHILD\" loaded; echo $0 $*\n");
	cli_text("bare", "\"$CHILD\" loaded; echo $0 $*\n");
	cli_text("by-env", "#! /usr/bin/env  sh\n\"$CHILD\" loaded; echo $0 $*\n");
	cli_text("by-env-S", "#!/usr/bin/env -S A=1 sh -e\n\"$CHILD\" loaded; echo $0 $*\n");
	snprintf(text, sizeof(text), "#!%s args\n", getenv("STATIC"));
	cli_text("static", text);
	cli_text("env-static", "#!/usr/bin/env tool\n");
	cli_text("env-none", "#!/usr/bin/env cleave-no-such-command\n");
	cli_text("empty", "");
	cli_text("nobody", "#!\n");
	cli_text("gone", "#!/none/none\n");
	cli_text("loop", "#!./loop\n");
	ck_assert_int_eq(
		sh("chmod 755 direct shell bare by-env by-env-S static env-static env-none empty nobody gone loop;"
		   "mkdir bin; cp \"$STATIC\" bin/tool")
			.status,
		0);
	says(sh(RUN "./direct x"), "args\n./direct\nx\n", "set LD_PRELOAD");
	static const char *const names[] = {"./shell", "./bare", "./by-env", "./by-env-S"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(names); i++) {
		char line[128], expect[128];
		snprintf(line, sizeof(line), RUN "%s x y", names[i]);
		snprintf(expect, sizeof(expect), "loaded\n%s x y\n", names[i]);
		struct cli_result r = sh(line);
		ck_assert_str_eq(r.out, expect);
		says(r, "", "set LD_PRELOAD");
	}
	struct cli_result r = sh(RUN "./static x");
	says(r, "args\n./static\nx\n", "is a static program");
	ck_assert_uint_eq(lines(r.err), 1);
	r = sh("PATH=\"$PWD/bin:$PATH\" " RUN "./env-static");
	says(r, "", "bin/tool is a static program");
	ck_assert_int_eq(r.status, 0);
	r = sh(RUN "./env-none");
	says(r, "", "nothing is set: cleave-no-such-command: command not found");
	ck_assert_int_eq(r.status, 127); /* env's */
	ck_assert_int_eq(sh(RUN "./empty").status, 0);
	says(sh(RUN "./nobody"), "", "script without an interpreter");
	r = sh(RUN "./gone");
	says(r, "", "/none/none cannot be looked at: No such file");
	ck_assert_int_eq(r.status, 127);
	r = sh(RUN "./loop");
	says(r, "", "too many interpreters");
	ck_assert_int_eq(r.status, 126);
}
END_TEST

/* Where it lies when it is built and when it is installed. */
START_TEST(finds_the_library)
{
	static const char *const places[] = {"bin", "lib", "lib64",
#ifdef __aarch64__
					     "lib/aarch64-linux-gnu"
#else
					     "lib/x86_64-linux-gnu"
#endif
	};
	ck_assert_int_eq(sh("mkdir -p prefix/bin; cp \"$CLEAVE\" prefix/bin").status, 0);
	for (size_t i = 0; i < CLV_ARRAY_LEN(places); i++) {
		char line[512], expect[256];
		snprintf(line, sizeof(line),
			 "unset CLEAVE_PRELOAD; mkdir -p prefix/%s; cp \"$LIB\" prefix/%s/libcleave-preload.so;"
			 "prefix/bin/cleave run -- \"$CHILD\" env LD_PRELOAD; rm prefix/%s/libcleave-preload.so",
			 places[i], places[i], places[i]);
		snprintf(expect, sizeof(expect), "LD_PRELOAD=%s/%s/libcleave-preload.so\n", cli_path("prefix"),
			 places[i]);
		ck_assert_str_eq(sh(line).out, expect);
	}
	struct cli_result r =
		sh("unset CLEAVE_PRELOAD; ln -s prefix/bin/cleave linked; ./linked run -- \"$CHILD\" env LD_PRELOAD");
	says(r, "LD_PRELOAD is not set\n", "libcleave-preload.so is neither in ");
	/* beside the command itself, not beside a link to it */
	r = sh("unset CLEAVE_PRELOAD; cp \"$LIB\" prefix/bin/libcleave-preload.so; ./linked run -- \"$CHILD\" env LD_PRELOAD");
	says(r, "prefix/bin/libcleave-preload.so\n", "");
	/* a relative CLEAVE_PRELOAD is made absolute: the program may be started elsewhere */
	r = sh("CLEAVE_PRELOAD=prefix/bin/libcleave-preload.so " RUN "-- \"$CHILD\" env LD_PRELOAD");
	says(r, "LD_PRELOAD=/", "/prefix/bin/libcleave-preload.so");
}
END_TEST

/* The library that is built, found where it is built, under programs of everybody's that have nothing to do with a GPU. */
START_TEST(the_real_library)
{
	struct cli_result r = sh("unset CLEAVE_PRELOAD; " RUN
				 "--stats sh -c 'grep -c libcleave-preload.so /proc/self/maps; echo $CLEAVE_CONF'");
	ck_assert_msg(r.status == 0 && atoi(r.out) > 0, "%s%s", r.out, r.err);
	says(r, "\nstats:on\n", "/libcleave-preload.so ");
	r = sh("unset CLEAVE_PRELOAD; printf 'b\\na\\n' | " RUN "env sort");
	ck_assert_str_eq(r.out, "a\nb\n");
	ck_assert_msg(lines(r.err) == 2, "%s", r.err);
}
END_TEST

/* What the shell lines call by name. Nothing of the tests' own environment may be merged. */
static void prepare(void)
{
	static const char *const names[][2] = {{"CHILD", "RUN_CHILD"},    {"STATIC", "RUN_STATIC"},
					       {"MUSL", "RUN_MUSL"},      {"LIB", "STAND_IN"},
					       {"NEEDS", "NEEDS_ABSENT"}, {"CLEAVE_PRELOAD", "STAND_IN"}};
	for (size_t i = 0; i < CLV_ARRAY_LEN(names); i++) {
		const char *value = getenv(names[i][1]);
		setenv(names[i][0], value ? value : "", 1);
	}
	static const char *const unwanted[] = {"LD_PRELOAD",
					       "LD_LIBRARY_PATH",
					       "CLEAVE_CONF",
					       "PYTORCH_CUDA_ALLOC_CONF",
					       "PYTORCH_HIP_ALLOC_CONF",
					       "PYTORCH_ALLOC_CONF"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(unwanted); i++)
		unsetenv(unwanted[i]);
	/* One of a machine's own may hold folders that cannot be searched, which is another answer than "not found". */
	setenv("PATH", "/usr/local/bin:/usr/bin:/bin", 1);
	/* The command, built with AddressSanitizer, must bear other libraries in LD_PRELOAD. */
	char options[1024];
	const char *there = getenv("ASAN_OPTIONS");
	snprintf(options, sizeof(options), "%s%sverify_asan_link_order=0", there ? there : "", there ? ":" : "");
	setenv("ASAN_OPTIONS", options, 1);
}

int main(void)
{
	prepare();
	const TTest *const tests[] = {sets_variables,
				      conf,
				      preloaded_already,
				      pytorch,
				      is_the_program,
				      nothing_left_behind,
				      commands_that_are_none,
				      usage, traces,
				      plans_refused,
				      programs_that_cannot_load_it,
				      libraries_that_cannot_be_loaded,
				      scripts,
				      finds_the_library,
				      the_real_library};
	/* A library that is built with a sanitizer fits no program of everybody's. */
	bool sanitized = getenv("CLEAVE_SANITIZED") != NULL;
	return cli_suite("run", tests, CLV_ARRAY_LEN(tests) - sanitized);
}
