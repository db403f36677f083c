/* SPDX-License-Identifier: MIT
 *
 * `cleave stat` and programs under libcleave-preload.so, on the double of the driver: tests/preload/gpu_stat.c, which does what
 * it is told.
 */
#define _GNU_SOURCE
#include "cli_run.h"
#include "json_expect.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1 << 20)

/* ---- the program ---- */

struct program {
	pid_t pid;
	FILE *to, *from;
};

static const char *said(struct program *p)
{
	static char line[256];
	struct pollfd polled = {.fd = fileno(p->from), .events = POLLIN};
	ck_assert_msg(poll(&polled, 1, 60000) == 1, "the program says nothing");
	ck_assert_msg(fgets(line, sizeof(line), p->from) != NULL, "the program has ended");
	line[strcspn(line, "\n")] = '\0';
	return line;
}

static const char *tell(struct program *p, const char *what)
{
	fprintf(p->to, "%s\n", what);
	fflush(p->to);
	return said(p);
}

/* `argument`: a second one, or "". */
static struct program start(const char *conf, bool preload, const char *argument)
{
	struct program p;
	int to[2], from[2];
	ck_assert(!pipe2(to, O_CLOEXEC) && !pipe2(from, O_CLOEXEC));
	p.pid = fork();
	ck_assert_int_ge(p.pid, 0);
	if (!p.pid) {
		char program[1024];
		snprintf(program, sizeof(program), "%s/gpu-stat", getenv("CLEAVE_PROGRAMS"));
		dup2(to[0], STDIN_FILENO);
		dup2(from[1], STDOUT_FILENO);
		setenv("LD_LIBRARY_PATH", getenv("CLEAVE_FAKE_CUDA"), 1);
		setenv("FAKE_CUDA_MEMORY", "256MiB", 1);
		setenv("FAKE_CUDA_DEVICES", "2", 1);
		setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
		setenv("CLEAVE_CONF", conf, 1);
		if (preload)
			setenv("LD_PRELOAD", getenv("CLEAVE_PRELOAD"), 1);
		execl(program, program, "linked", argument, (char *)NULL);
		_exit(99);
	}
	close(to[0]);
	close(from[1]);
	p.to = fdopen(to[1], "w");
	p.from = fdopen(from[0], "r");
	ck_assert_str_eq(said(&p), "ready");
	return p;
}

static void end(struct program *p)
{
	int status;
	fclose(p->to);
	ck_assert_int_eq(waitpid(p->pid, &status, 0), p->pid);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "the program ends with status %#x", status);
	fclose(p->from);
}

static struct cli_result stat_of(const char *options, long pid)
{
	char line[512];
	snprintf(line, sizeof(line), "\"$CLEAVE\" stat %s %ld", options, pid);
	return cli_shell(line);
}

/* One line on stderr, nothing on stdout. */
static void says_why(struct cli_result r, int status, const char *part)
{
	ck_assert_msg(r.status == status, "status %d: %s", r.status, r.err);
	ck_assert_str_eq(r.out, "");
	ck_assert_msg(strstr(r.err, part) != NULL, "%s", r.err);
	ck_assert_msg(!strncmp(r.err, "cleave stat: ", 13) && strchr(r.err, '\n') == r.err + strlen(r.err) - 1, "%s",
		      r.err);
}

static json_t *json_of(const char *options, const struct program *p)
{
	char all[256];
	snprintf(all, sizeof(all), "--json %s", options);
	struct cli_result r = stat_of(all, p->pid);
	ck_assert_msg(r.status == 0, "status %d: %s", r.status, r.err);
	json_error_t error;
	json_t *doc = json_loads(r.out, JSON_REJECT_DUPLICATES, &error);
	ck_assert_msg(doc != NULL, "%s\n%s", error.text, r.out);
	return doc;
}

/* ---- what is shown ---- */

START_TEST(numbers)
{
	struct program p = start("growth:tight,reserve:3MiB*2+name=pair", true, "");
	char what[64];
	ck_assert_str_eq(tell(&p, "alloc 3145728"), "0");
	ck_assert_str_eq(tell(&p, "alloc 4200"), "1");
	ck_assert_str_eq(tell(&p, "alloc 5242880"), "2");
	ck_assert_str_eq(tell(&p, "free 2"), "ok");
	ck_assert_str_eq(tell(&p, "alloc 999999999"), "error 2");
	json_t *doc = json_of("", &p);
	ck_assert_int_eq(whole(doc, "pid"), p.pid);
	ck_assert_str_eq(json_string_value(json_object_get(doc, "settings")),
			 "growth:tight,reserve:3145728*2+name=pair");
	ck_assert_int_eq(whole(doc, "device_count"), 2);
	ck_assert(real(doc, "uptime_s") > 0);
	ck_assert(real(doc, "rates_over_s") > 0.1);
	ck_assert_double_eq(real(doc, "driver_calls_per_s"), 0);
	ck_assert(json_is_null(json_object_get(doc, "released_bytes")));
	ck_assert(json_is_null(json_object_get(doc, "recording")));
	ck_assert_int_gt(whole(json_object_get(doc, "driver_calls"), "cuMemCreate"), 0);
	json_t *devices = json_object_get(doc, "devices"), *d = json_array_get(devices, 0);
	ck_assert_uint_eq(json_array_size(devices), 1);
	ck_assert_int_eq(whole(d, "device"), 0);
	ck_assert_int_eq(whole(d, "live_bytes"), 3 * MIB + 4608);
	ck_assert_int_eq(whole(d, "internal_bytes"), 512);
	ck_assert_int_eq(whole(d, "allocs"), 3);
	ck_assert_int_eq(whole(d, "frees"), 1);
	ck_assert_int_eq(whole(d, "failures"), 1);
	ck_assert_int_eq(whole(d, "live_blocks"), 2);
	ck_assert_int_eq(whole(d, "streams"), 1);
	ck_assert_double_eq(real(d, "allocs_per_s"), 0);
	const json_t *stranded = json_object_get(d, "stranded");
	ck_assert_int_eq(whole(d, "live_bytes") + whole(d, "internal_bytes") + whole(d, "reserved_unused_bytes") +
				 whole(stranded, "hard_bytes") + whole(stranded, "soft_bytes") +
				 whole(stranded, "stream_bytes"),
			 whole(d, "held_bytes"));
	const json_t *failure = json_object_get(d, "last_failure"),
		     *pair = json_array_get(json_object_get(d, "reservations"), 0);
	ck_assert_int_eq(whole(failure, "request_bytes"), 999999999);
	ck_assert_ptr_nonnull(
		strstr(json_string_value(json_object_get(failure, "text")), "could not serve a request of 953.7 MiB"));
	ck_assert_str_eq(json_string_value(json_object_get(pair, "name")), "pair");
	ck_assert_int_eq(whole(pair, "served"), 1);
	json_decref(doc);

	struct cli_result r = stat_of("", p.pid);
	ck_assert_int_eq(r.status, 0);
	ck_assert_str_eq(r.err, "");
	snprintf(what, sizeof(what), "process %d: Cleave ", (int)p.pid);
	static const char *const parts[] = {"\ndevice 0\n",
					    "settings: growth:tight,reserve",
					    "stranded: hard",
					    "stranded: soft",
					    "stranded: stream",
					    "  pair ",
					    "3 allocations (0/s), 1 frees (0/s), 1 failures",
					    " s ago: Cleave could not serve a request of 953.7 MiB"};
	ck_assert_msg(!strncmp(r.out, what, strlen(what)), "%s", r.out);
	for (size_t i = 0; i < CLV_ARRAY_LEN(parts); i++)
		ck_assert_msg(strstr(r.out, parts[i]) != NULL, "no '%s' in\n%s", parts[i], r.out);
	end(&p);
}
END_TEST

/* Of a process that is recorded it is told how much is in the file, and that nothing is missing there. */
START_TEST(recorded)
{
	static const char counted[] = "grep -q '^cleave_trace_dropped_events_total{device=\"all\"} 0$' r.prom";
	char conf[512];
	size_t len = (size_t)snprintf(conf, sizeof(conf), "trace_flush:0.05,stacks:off,metrics_interval:0.1,trace:%s",
				      cli_path("r.clv"));
	snprintf(conf + len, sizeof(conf) - len, ",metrics:%s", cli_path("r.prom"));
	struct program p = start(conf, true, "");
	tell(&p, "alloc 1048576");
	json_int_t events = 0, bytes = 0;
	for (int i = 0; i < 60 && !events; i++) {
		json_t *doc = json_of("", &p), *r = json_object_get(doc, "recording");
		ck_assert(json_is_true(json_object_get(r, "on")));
		ck_assert_int_eq(whole(r, "files"), 1);
		ck_assert_int_eq(whole(r, "dropped_events"), 0);
		events = whole(r, "events");
		bytes = whole(r, "written_bytes");
		json_decref(doc);
	}
	ck_assert_int_gt(events, 0);
	ck_assert_int_gt(bytes, 0);
	struct cli_result r = stat_of("", p.pid);
	ck_assert_msg(strstr(r.out, "recorded: ") && strstr(r.out, ", none lost\n"), "%s", r.out);
	for (int i = 0; cli_shell(counted).status; i++) {
		ck_assert_int_lt(i, 600);
		usleep(100000);
	}
	end(&p);
}
END_TEST

START_TEST(trim_and_snapshot)
{
	struct program p = start("growth:tight", true, "");
	tell(&p, "alloc 1048576");
	tell(&p, "alloc 33554432");
	tell(&p, "free 1");
	tell(&p, "sync");
	json_t *doc = json_of("", &p);
	json_int_t held = whole(json_array_get(json_object_get(doc, "devices"), 0), "held_bytes");
	json_decref(doc);
	struct cli_result r = stat_of("--snapshot state.clv", p.pid);
	ck_assert_msg(r.status == 0 && !*r.out && !*r.err, "status %d: %s%s", r.status, r.out, r.err);
	/* a state without a history is read, and cannot be replayed */
	r = cli_shell("\"$CLEAVE\" replay state.clv");
	ck_assert_int_eq(r.status, 2);
	ck_assert_msg(strstr(r.err, "cleave report") != NULL, "%s", r.err);
	ck_assert_int_eq(
		cli_shell("\"$CLEAVE\" convert state.clv --to clv -o again.clv && cmp state.clv again.clv").status, 0);
	doc = json_of("--trim", &p);
	json_int_t released = whole(doc, "released_bytes");
	ck_assert_int_ge(released, 32 * MIB);
	ck_assert_int_eq(whole(json_array_get(json_object_get(doc, "devices"), 0), "held_bytes"), held - released);
	json_decref(doc);
	r = stat_of("--trim", p.pid);
	char expect[64];
	snprintf(expect, sizeof(expect), "process %d gave 0 B back to the driver\n", (int)p.pid);
	ck_assert_str_eq(r.out, expect);
	cli_assert_refused(stat_of("--snapshot none/state.clv", p.pid), "none/state.clv");
	end(&p);
}
END_TEST

START_TEST(watched_until_it_ends)
{
	struct program p = start("", true, "");
	char line[256], out[64];
	tell(&p, "alloc 1000000");
	snprintf(out, sizeof(out), "%s", cli_path("watched"));
	snprintf(line, sizeof(line), "\"$CLEAVE\" stat --json --watch 0.05 %d >watched 2>why & echo $! >id",
		 (int)p.pid);
	ck_assert_int_eq(cli_shell(line).status, 0);
	for (int i = 0; i < 600 && cli_shell("test $(wc -l <watched) -ge 4").status; i++)
		tell(&p, "work 20");
	end(&p);
	struct cli_result r =
		cli_shell("while kill -0 $(cat id) 2>/dev/null; do sleep 0.02; done; cat why >&2; cat watched");
	snprintf(line, sizeof(line), "cleave stat: process %d has ended\n", (int)p.pid);
	ck_assert_str_eq(r.err, line);
	unsigned documents = 0;
	double allocs = 0;
	for (char *at = strtok(r.out, "\n"); at; at = strtok(NULL, "\n"), documents++) {
		json_t *doc = json_loads(at, JSON_REJECT_DUPLICATES, NULL);
		ck_assert_msg(doc != NULL, "%s", at);
		const json_t *d = json_array_get(json_object_get(doc, "devices"), 0);
		const json_t *rate = json_object_get(d, "allocs_per_s");
		ck_assert_int_eq(json_is_null(rate), documents == 0);
		allocs += json_number_value(rate);
		json_decref(doc);
	}
	ck_assert_uint_ge(documents, 4);
	ck_assert_double_gt(allocs, 0);
}
END_TEST

/* ---- who cannot be asked ---- */

START_TEST(refusals)
{
	struct program plain = start("", false, ""), off = start("stat:off", true, ""), idle = start("", true, "idle");
	says_why(stat_of("", plain.pid), 1, "does not run under Cleave");
	says_why(stat_of("", off.pid), 1, "runs under Cleave, but has no heap to ask about");
	says_why(stat_of("", idle.pid), 1, "runs under Cleave, but has no heap to ask about");
	end(&plain);
	says_why(stat_of("", plain.pid), 2, "there is no process");
	tell(&off, "alloc 100000");
	says_why(stat_of("--trim", off.pid), 1, "stat:off");
	end(&off);
	end(&idle);
	static const struct {
		const char *arguments, *says;
	} cases[] = {
		{"", "PID is missing"},
		{"x", "'x' is no process id"},
		{"0", "'0' is no process id"},
		{"1 2", "one argument too many"},
		{"-- -5", "'-5' is no process id"},
		{"99999999999", "is no process id"},
		{"--watch 0 1", "--watch"},
		{"--watch 1 --trim 1", "only one of"},
		{"--snapshot x --trim 1", "only one of"},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		char line[128];
		snprintf(line, sizeof(line), "\"$CLEAVE\" stat %s", cases[i].arguments);
		cli_assert_refused(cli_shell(line), cases[i].says);
	}
}
END_TEST

/* A stopped process takes the call, and never answers. */
START_TEST(a_stopped_process)
{
	struct program p = start("", true, "");
	tell(&p, "alloc 100000");
	ck_assert_int_eq(kill(p.pid, SIGSTOP), 0);
	int status;
	ck_assert_int_eq(waitpid(p.pid, &status, WUNTRACED), p.pid);
	says_why(stat_of("--timeout 0.3", p.pid), 1, "does not answer (waited 0.3 s)");
	ck_assert_int_eq(kill(p.pid, SIGCONT), 0);
	json_decref(json_of("", &p));
	end(&p);
}
END_TEST

START_TEST(a_killed_process)
{
	struct program p = start("", true, "");
	tell(&p, "alloc 100000");
	kill(p.pid, SIGKILL);
	siginfo_t info;
	ck_assert_int_eq(waitid(P_PID, (id_t)p.pid, &info, WEXITED | WNOWAIT), 0);
	says_why(stat_of("", p.pid), 2, "has ended"); /* nobody has waited for it */
	ck_assert_int_eq(waitpid(p.pid, NULL, 0), p.pid);
	says_why(stat_of("", p.pid), 2, "there is no process");
	fclose(p.to);
	fclose(p.from);
}
END_TEST

/* ---- what programs do ---- */

START_TEST(forks)
{
	struct program p = start("", true, "");
	tell(&p, "alloc 100000");
	long child = atol(tell(&p, "fork"));
	ck_assert_int_gt(child, 0);
	says_why(stat_of("", child), 1, "has no heap to ask about");
	json_decref(json_of("", &p));
	end(&p);
}
END_TEST

/* Its socket is gone with the others; it makes another one. */
START_TEST(closes_what_is_not_its_own)
{
	struct program p = start("", true, "");
	tell(&p, "alloc 100000");
	for (int i = 0; i < 3; i++) {
		ck_assert_int_gt(atoi(tell(&p, "careless")), 0);
		struct cli_result r = {.status = 1};
		for (int tries = 0; tries < 100 && r.status; tries++)
			r = stat_of("--timeout 1", p.pid);
		ck_assert_msg(r.status == 0, "%s", r.err);
	}
	end(&p);
}
END_TEST

START_TEST(beside_work)
{
	struct program p = start("", true, "");
	tell(&p, "alloc 100000");
	for (int i = 0; i < 20; i++) {
		fprintf(p.to, "work 300\n");
		fflush(p.to);
		json_t *doc = json_of(i % 2 ? "" : "--snapshot state.clv", &p);
		json_decref(doc);
		ck_assert_str_eq(said(&p), "ok");
	}
	end(&p);
}
END_TEST

START_TEST(metrics)
{
	char conf[256], text[128];
	snprintf(conf, sizeof(conf), "metrics_interval:0.02,metrics:%s", cli_path("%p-%r.prom"));
	unsetenv("SLURM_PROCID");
	setenv("RANK", "4", 1);
	struct program p = start(conf, true, "");
	tell(&p, "alloc 100000");
	snprintf(text, sizeof(text), "grep -q 'cleave_requested_bytes{device=\"0\",rank=\"4\"} 100352' %d-4.prom",
		 (int)p.pid);
	for (int i = 0; cli_shell(text).status; i++)
		ck_assert_int_lt(i, 500);
	end(&p);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {numbers,
				      recorded,
				      trim_and_snapshot,
				      watched_until_it_ends,
				      refusals,
				      a_stopped_process,
				      a_killed_process,
				      forks,
				      closes_what_is_not_its_own,
				      beside_work,
				      metrics};
	return cli_suite("preload_stat", tests, CLV_ARRAY_LEN(tests));
}
