/* SPDX-License-Identifier: MIT
 *
 * `cleave convert` into the formats of other programs: what comes back replays the same, and what their readers need is
 * there (tests/export_check.py, which is skipped without python3).
 */
#include "cli_run.h"
#include "pickle_json.h"
#include "snapshot_full.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const recorded[] = {
	"fuzz_capped",        "fuzz_gc60",    "fuzz_mempool", "fuzz_expandcap", "fuzz_pendcap", "fuzz_streams",
	"k3_reorder_split20", "moe_prealloc", "moe_stack",    "pools",          "serve",        "train"};

/* Larger recordings, where they are: with stacks, with annotations, with frees that wait, with failures, with pools. */
static const char *const shared[] = {"stacks", "train", "fuzz/pendexpand", "fuzz/realoom", "fuzz/mempool"};

static bool have_python;

static const char *data_path(const char *name)
{
	static char path[4096];
	const char *folder = getenv("CLEAVE_TEST_DATA");
	ck_assert_ptr_nonnull(folder);
	snprintf(path, sizeof(path), "%s/%s.clv", folder, name);
	return path;
}

static void assert_done(struct cli_result r)
{
	ck_assert_msg(r.status == 0, "%s%s", r.out, r.err);
	ck_assert_str_eq(r.out, "");
	ck_assert_str_eq(r.err, "");
}

static void check(const char *kind, const char *file, const char *original)
{
	char line[8192];
	if (!have_python)
		return;
	const char *quote = *original ? "'" : "";
	snprintf(line, sizeof(line), "python3 '%s/../export_check.py' %s %s %s%s%s", getenv("CLEAVE_TEST_DATA"), kind,
		 file, quote, original, quote);
	assert_done(cli_shell(line));
}

/* What a replay says, without what may differ between files and runs. */
static json_t *replay(const char *file, const char *policies)
{
	char line[8192];
	json_t *policy, *trace;
	size_t i;
	snprintf(line, sizeof(line), "exec \"$CLEAVE\" replay '%s' %s --json", file, policies);
	struct cli_result r = cli_shell(line);
	ck_assert_msg(r.status <= 1, "%s", r.err);
	json_t *json = json_loads(r.out, 0, NULL);
	ck_assert_msg(json != NULL, "%s: %s", file, r.out);
	trace = json_object_get(json, "trace");
	ck_assert_int_eq(json_object_del(trace, "file"), 0);
	ck_assert_int_eq(json_object_del(trace, "format"), 0);
	json_array_foreach(json_object_get(json, "policies"), i, policy)
	{
		ck_assert_int_eq(json_object_del(policy, "wall_s"), 0);
		ck_assert_int_eq(json_object_del(policy, "events_per_s"), 0);
	}
	ck_assert_uint_gt(i, 0);
	return json;
}

static void assert_same(json_t *a, json_t *b, const char *what)
{
	char *x = json_dumps(a, JSON_SORT_KEYS), *y = json_dumps(b, JSON_SORT_KEYS);
	ck_assert_msg(json_equal(a, b), "%s:\n%s\n%s", what, x, y);
	free(x);
	free(y);
	json_decref(a);
	json_decref(b);
}

/* Every policy says of our own snapshot what it says of the recording; and that becomes the same file again. */
static void snapshot_replays_the_same(const char *name)
{
	static const char policies[] =
		"-p torch:recorded -p torch:expandable_segments:True -p cleave -p direct --verify";
	const char *from = data_path(name);
	char line[8192];
	assert_done(cli_run("convert", from, "--to", "torch", "-o", "t.pkl", NULL));
	assert_same(replay(from, policies), replay("t.pkl", policies), name);
	assert_done(cli_run("convert", "t.pkl", "--to", "clv", "-o", "back.clv", NULL));
	snprintf(line, sizeof(line), "cmp '%s' back.clv", from);
	assert_done(cli_shell(line));
	check("snapshot", "t.pkl", "");
}

START_TEST(snapshots_replay_the_same)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(recorded); i++)
		snapshot_replays_the_same(recorded[i]);
}
END_TEST

/* Of a log, replays count fewer events, since it holds requests and completed frees alone, and no pools. */
static void log_replays_the_same(const char *name)
{
	static const char policies[] = "-p cleave -p direct";
	const char *from = data_path(name);
	assert_done(cli_run("convert", from, "--to", "rmm", "-o", "l.csv", NULL));
	json_t *a = replay(from, policies), *b = replay("l.csv", policies);
	json_t *traces[] = {json_object_get(a, "trace"), json_object_get(b, "trace")};
	ck_assert_int_gt(json_integer_value(json_object_get(traces[0], "events")),
			 json_integer_value(json_object_get(traces[1], "events")));
	for (int i = 0; i < 2; i++) {
		json_object_del(traces[i], "events");
		json_object_del(traces[i], "duration_s"); /* from a segment event on, where one comes first */
	}
	assert_same(a, b, name);
	/* a snapshot of a log has a made-up state, and replays as the log does */
	static const char more[] = "-p torch -p cleave -p direct";
	assert_done(cli_run("convert", "l.csv", "--to", "torch", "-o", "t.pkl", NULL));
	assert_same(replay("l.csv", more), replay("t.pkl", more), name);
	check("snapshot", "t.pkl", "");
	assert_done(cli_run("convert", "t.pkl", "--to", "rmm", "-o", "again.csv", NULL));
	assert_done(cli_shell("cmp l.csv again.csv"));
}

START_TEST(logs_replay_the_same)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(recorded); i += 2) /* every other one, since it takes its time */
		log_replays_the_same(recorded[i]);
}
END_TEST

static void peaks_are_those_of(const char *name)
{
	json_t *r = replay(data_path(name), "-p torch:recorded"), *e, *policy, *trace;
	json_int_t allocated = 0, reserved = 0;
	size_t i;
	assert_done(cli_run("convert", data_path(name), "--to", "perfetto", "-o", "p.json", NULL));
	check("perfetto", "p.json", "");
	json_t *json = json_load_file(cli_path("p.json"), 0, NULL);
	ck_assert_ptr_nonnull(json);
	json_array_foreach(json_object_get(json, "traceEvents"), i, e)
	{
		json_int_t bytes = json_integer_value(json_object_get(json_object_get(e, "args"), "bytes"));
		const char *counter = json_string_value(json_object_get(e, "name"));
		if (strcmp(json_string_value(json_object_get(e, "ph")), "C") != 0)
			continue;
		if (!strcmp(counter, "allocated") && bytes > allocated)
			allocated = bytes;
		if (!strcmp(counter, "reserved") && bytes > reserved)
			reserved = bytes;
	}
	policy = json_array_get(json_object_get(r, "policies"), 0);
	trace = json_object_get(r, "trace");
	ck_assert_int_eq(allocated, json_integer_value(json_object_get(trace, "peak_live_bytes")));
	ck_assert_int_eq(reserved, json_integer_value(json_object_get(policy, "peak_reserved_bytes")));
	json_decref(json);
	json_decref(r);
}

START_TEST(perfetto)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(recorded); i += 3)
		peaks_are_those_of(recorded[i]);
}
END_TEST

/* A recording of Cleave's recorder, with an event of each kind: every reader takes what is made of it. */
START_TEST(recordings)
{
	const char *from = data_path("recorder/v1");
	assert_done(cli_run("convert", from, "--to", "perfetto", "-o", "p.json", NULL));
	check("perfetto", "p.json", "");
	ck_assert_int_eq(cli_shell("grep -q '\"cat\":\"phase\"' p.json && grep -q '\"thread\":' p.json && "
				   "grep -q '\"reserve_hold\"' p.json && grep -q '\"driver_fail\"' p.json")
				 .status,
			 0);
	assert_done(cli_run("convert", from, "--to", "torch", "-o", "t.pkl", NULL));
	check("snapshot", "t.pkl", "");
	assert_same(replay(from, "-p cleave"), replay("t.pkl", "-p cleave"), from);
	assert_done(cli_run("convert", from, "--to", "rmm", "--device-index", "0", "-o", "l.csv", NULL));
	assert_done(cli_run("convert", "t.pkl", "--to", "rmm", "--device-index", "0", "-o", "again.csv", NULL));
	/* but for the time of day and the threads, which a snapshot does not hold */
	assert_done(cli_shell("cut -d, -f3- l.csv >a && cut -d, -f3- again.csv >b && cmp a b && test -s a"));
}
END_TEST

/* PyTorch's own files through a trace and back are the same dictionary, but for what a trace does not keep. */
static void snapshot_is_kept(const char *name)
{
	char from[4096];
	snprintf(from, sizeof(from), "%s/traces/%s.pkl", getenv("CLEAVE_SHARED"), name);
	if (access(from, R_OK) != 0)
		return;
	assert_done(cli_run("convert", from, "--to", "torch", "-o", "t.pkl", NULL));
	check("snapshot", "t.pkl", from);
	/* by way of our own format, which does not hold annotations */
	assert_done(cli_run("convert", from, "--to", "clv", "-o", "t.clv", NULL));
	assert_done(cli_run("convert", "t.clv", "--to", "torch", "-o", "u.pkl", NULL));
	check("snapshot", "u.pkl", strcmp(name, "train") != 0 ? from : "");
}

START_TEST(shared_snapshots)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(shared); i++)
		snapshot_is_kept(shared[i]);
}
END_TEST

/* The judge does judge. */
START_TEST(checks_can_fail)
{
	char line[8192];
	if (!have_python)
		return;
	assert_done(cli_run("convert", data_path("pools"), "--to", "torch", "-o", "a.pkl", NULL));
	assert_done(cli_run("convert", data_path("moe_stack"), "--to", "torch", "-o", "b.pkl", NULL));
	snprintf(line, sizeof(line), "exec python3 '%s/../export_check.py' snapshot a.pkl b.pkl",
		 getenv("CLEAVE_TEST_DATA"));
	struct cli_result r = cli_shell(line);
	ck_assert_int_eq(r.status, 1);
	ck_assert_ptr_nonnull(strstr(r.err, "differs"));
	/* a completion that nothing asked for, a block outside of every segment, a segment that never was */
	static const char *const wrong[] = {
		"{'action':'free_requested','addr':4194304,'size':512,'stream':0,'time_us':1}",
		"{'action':'free_completed','addr':4194304,'size':512,'stream':0,'time_us':1}",
		"{'action':'segment_alloc','addr':4194304,'size':512,'stream':0,'time_us':1}"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(wrong); i++) {
		char text[512];
		snprintf(text, sizeof(text), "{'segments':[],'device_traces':[[%s]],'external_annotations':[]}",
			 wrong[i]);
		struct pickle_writer w = pickle_of(text, PICKLE_PYTHON);
		cli_file("w.pkl", w.data, w.size);
		free(w.data);
		snprintf(line, sizeof(line), "exec python3 '%s/../export_check.py' snapshot w.pkl",
			 getenv("CLEAVE_TEST_DATA"));
		r = cli_shell(line);
		ck_assert_msg(r.status == 1 && strstr(r.err, "4194304"), "%s: %s", wrong[i], r.err);
	}
}
END_TEST

static const char two_devices[] =
	"{'segments':[],'device_traces':[[],[{'action':'alloc','addr':512,'size':10,'stream':3,'time_us':1}],[],"
	"[{'action':'alloc','addr':4096,'size':20,'stream':-1,'time_us':2},"
	"{'action':'oom','device_free':7,'size':99,'stream':0,'time_us':3}]]}";

START_TEST(several_devices)
{
	struct pickle_writer w = pickle_of(two_devices, PICKLE_PYTHON);
	cli_file("two.pkl", w.data, w.size);
	free(w.data);
	cli_assert_refused(cli_run("convert", "two.pkl", "--to", "rmm", "-o", "x", NULL),
			   "two.pkl: --to rmm holds one device, and devices 1 and 3 have a history: --device-index N");
	cli_assert_refused(cli_run("convert", "two.pkl", "--to", "rmm", "--device-index", "2", "-o", "x", NULL),
			   "has no device 2");
	cli_assert_refused(cli_run("convert", "two.pkl", "--to", "torch", "--device-index", "1", "-o", "x", NULL),
			   "--device-index goes with --to rmm");
	ck_assert_int_ne(access(cli_path("x"), F_OK), 0);
	assert_done(cli_run("convert", "two.pkl", "--to", "rmm", "--device-index", "3", "-o", "l.csv", NULL));
	ck_assert_str_eq(cli_shell("cat l.csv").out, "Thread,Time,Action,Pointer,Size,Stream\n"
						     "0,00:00:00.000002,allocate,0x1000,20,18446744073709551615\n"
						     "0,00:00:00.000003,allocate failure,(nil),99,0\n");
	assert_done(cli_run("convert", "two.pkl", "--to", "torch", "-o", "t.pkl", NULL));
	assert_done(cli_run("convert", "t.pkl", "--to", "rmm", "--device-index", "3", "-o", "again.csv", NULL));
	assert_done(cli_shell("cmp l.csv again.csv"));
	assert_done(cli_run("convert", "two.pkl", "--to", "perfetto", "-o", "p.json", NULL));
	check("perfetto", "p.json", "");
	ck_assert_int_eq(
		cli_shell("grep -q '\"pid\":2,.*\"device 1\"' p.json && grep -q '\"pid\":4,.*\"device 3\"' p.json")
			.status,
		0);
}
END_TEST

/* An output that cannot be written is told before the work, and nothing is left of one that fails later. */
START_TEST(refuses)
{
	static const char *const formats[] = {"torch", "perfetto", "rmm"};
	char line[8192];
	for (size_t i = 0; i < CLV_ARRAY_LEN(formats); i++) {
		const char *from = data_path("serve");
		cli_assert_refused(cli_run("convert", from, "--to", formats[i], "-o", "no/folder", NULL),
				   "no/folder: cannot be created");
		cli_assert_refused(cli_run("convert", from, "--to", formats[i], "-o", ".", NULL), "not a regular file");
		snprintf(line, sizeof(line), "ulimit -f 64; exec \"$CLEAVE\" convert '%s' --to %s -o full", from,
			 formats[i]);
		cli_assert_refused(cli_shell(line), "File too large");
		ck_assert_int_eq(cli_shell("ls full*").status, 2);
		cli_assert_refused(cli_run("convert", cli_text("bad", "what"), "--to", formats[i], "-o", "x", NULL),
				   "bad: offset 0");
	}
	/* a file with a state alone has nothing that a log could hold */
	struct pickle_writer w =
		pickle_of("[{'address':512,'total_size':512,'segment_type':'small','blocks':[{'size':512,"
			  "'state':'inactive'}]}]",
			  PICKLE_PYTHON);
	cli_file("state.pkl", w.data, w.size);
	free(w.data);
	cli_assert_refused(cli_run("convert", "state.pkl", "--to", "rmm", "-o", "x", NULL),
			   "holds a state but no history");
	assert_done(cli_run("convert", "state.pkl", "--to", "torch", "-o", "t.pkl", NULL));
	check("snapshot", "t.pkl", "");
}
END_TEST

/* Every key, written by PyTorch's names. */
START_TEST(every_key)
{
	struct pickle_writer w = pickle_of(snapshot_full, PICKLE_PYTHON);
	cli_file("full.pkl", w.data, w.size);
	free(w.data);
	assert_done(cli_run("convert", "full.pkl", "--to", "torch", "-o", "t.pkl", NULL));
	if (!have_python)
		return;
	assert_done(cli_shell(
		"python3 -c \"\n"
		"import pickle\n"
		"d = pickle.load(open('t.pkl', 'rb'))\n"
		"s = d['segments'][1]\n"
		"assert s['frames'] == [] and s['segment_pool_id'] == (0, 3) and s['is_expandable'] is True\n"
		"assert (s['allocated_size'], s['active_size'], s['requested_size']) == (1024, 1536, 1300)\n"
		"assert [b['state'] for b in s['blocks']] == ['active_allocated', 'active_pending_free', 'inactive']\n"
		"t = d['device_traces'][0]\n"
		"f, g = t[1]['frames']\n"
		"assert f == {'name': 'f', 'filename': 'a.py', 'line': 7} and (g['name'], g['line']) == ('g', 8)\n"
		"assert t[1]['frames'] is t[2]['frames'] is s['blocks'][0]['frames']\n"
		"assert ' '.join(e['action'] for e in t) == "
		"'segment_map alloc alloc free_requested free_completed oom snapshot other'\n"
		"assert t[4]['made_up'] and 'made_up' not in t[3]\n"
		"assert 'addr' not in t[5] and t[5]['device_free'] == 123456\n"
		"a = d['allocator_settings']\n"
		"assert a['PYTORCH_CUDA_ALLOC_CONF'] == 'max_split_size_mb:20' and a['max_split_size'] == 20971520\n"
		"assert a['garbage_collection_threshold'] == 0.75 and a['expandable_segments'] is True\n"
		"assert a['roundup_power2_divisions']['8'] == 8 and len(a['roundup_power2_divisions']) == 16\n"
		"assert d['external_annotations'] == [{'stage': 'START', 'name': 'n', 'device': 0, 'time_us': 1}]\n"
		"assert d['probe']['cap_mib'] == 4000\n"
		"\""));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {snapshots_replay_the_same,
				      logs_replay_the_same,
				      perfetto,
				      shared_snapshots,
				      checks_can_fail,
				      several_devices,
				      refuses,
				      every_key,
				      recordings};
	have_python = system("python3 -c '' 2>/dev/null") == 0;
	if (!have_python)
		printf("there is no python3: what other readers need is not checked\n");
	return cli_suite("cli_export", tests, CLV_ARRAY_LEN(tests));
}
