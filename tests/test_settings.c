/* SPDX-License-Identifier: MIT */
#include "../src/heap/settings.h"
#include "check_main.h"

#include <stdio.h>
#include <string.h>

static struct clv_settings parsed(const char *text)
{
	struct clv_settings s;
	struct clv_error err = {""};
	ck_assert_msg(clv_settings_parse(&s, text, &err), "'%s': %s", text, err.text);
	return s;
}

static void same(struct clv_settings a, struct clv_settings b)
{
	ck_assert_int_eq(a.tight, b.tight);
	ck_assert_uint_eq(a.limit, b.limit);
	ck_assert_uint_eq(a.headroom, b.headroom);
	ck_assert_uint_eq(a.frame_bytes, b.frame_bytes);
	ck_assert_int_eq(a.cache, b.cache);
	ck_assert_uint_eq(a.reserves.count, b.reserves.count);
	for (unsigned i = 0; i < a.reserves.count; i++) {
		char one[256], other[256];
		clv_reserve_print(&a.reserves.items[i], one, sizeof(one));
		clv_reserve_print(&b.reserves.items[i], other, sizeof(other));
		ck_assert_str_eq(one, other);
	}
	ck_assert_int_eq(a.off, b.off);
	ck_assert_uint_eq(a.serve, b.serve);
	ck_assert_int_eq(a.free_now, b.free_now);
	ck_assert_int_eq(a.graphs, b.graphs);
	ck_assert_int_eq(a.ipc, b.ipc);
	ck_assert_int_eq(a.pinned, b.pinned);
	ck_assert_uint_eq(a.pinned_limit, b.pinned_limit);
	ck_assert_int_eq(a.any_driver, b.any_driver);
	ck_assert_int_eq(a.report, b.report);
	ck_assert_int_eq(a.stats, b.stats);
	ck_assert_int_eq(a.stat, b.stat);
	ck_assert_str_eq(a.metrics, b.metrics);
	ck_assert_uint_eq(a.metrics_ms, b.metrics_ms);
}

/* What the lenient parser complained about, one sentence a line. */
struct warnings {
	char text[8192];
	unsigned count;
};

static void collect(void *arg, const char *sentence)
{
	struct warnings *w = arg;
	ck_assert_uint_gt(strlen(sentence), 0);
	ck_assert_uint_lt(strlen(w->text) + strlen(sentence) + 2, sizeof(w->text));
	strcat(strcat(w->text, sentence), "\n");
	w->count++;
}

static struct clv_settings lenient(const char *text, struct warnings *w)
{
	struct clv_settings s;
	memset(&s, 0xa5, sizeof(s));
	memset(w, 0, sizeof(*w));
	clv_settings_parse_lenient(&s, text, collect, w);
	return s;
}

/* Without a complaint. */
static struct clv_settings for_program(const char *text)
{
	struct warnings w;
	struct clv_settings s = lenient(text, &w);
	ck_assert_msg(!w.count, "'%s': %s", text, w.text);
	return s;
}

START_TEST(defaults)
{
	struct clv_settings s = parsed(NULL);
	ck_assert(!s.tight);
	ck_assert_uint_eq(s.limit, 0);
	ck_assert_uint_eq(s.headroom, 0);
	ck_assert(clv_is_pow2(s.frame_bytes));
	ck_assert(s.cache);
	same(s, parsed(""));
	same(s, parsed(","));
	same(s, parsed(" , ,"));
	same(s, for_program(NULL));
	same(s, for_program(""));
	same(s, for_program(", ,"));
	ck_assert(!s.off && !s.free_now && s.graphs && s.ipc && !s.pinned && !s.any_driver && s.report && !s.stats && s.stat);
	ck_assert_str_eq(s.metrics, "");
	ck_assert_uint_eq(s.metrics_ms, 15000);
	ck_assert_uint_eq(s.serve, CLV_SERVE_AUTO);
	ck_assert_uint_gt(s.pinned_limit, 0);
	/* the table's defaults are the defaults */
	char heap[512] = "", all[1024] = "";
	size_t count;
	const struct clv_setting *table = clv_settings_table(&count);
	for (size_t i = 0; i < count; i++) {
		char item[64];
		if (!table[i].initial[0])
			continue;
		snprintf(item, sizeof(item), "%s:%s,", table[i].key, table[i].initial);
		strcat(all, item);
		if (table[i].reader == CLV_READER_HEAP)
			strcat(heap, item);
	}
	same(s, parsed(heap));
	same(s, for_program(all));
}
END_TEST

START_TEST(each_key)
{
	struct clv_settings s = parsed("growth:tight,limit:1.5GiB,headroom:300MiB,frame:4MiB,cache:off");
	ck_assert(s.tight);
	ck_assert_uint_eq(s.limit, 3 * CLV_GIB / 2);
	ck_assert_uint_eq(s.headroom, 300 * CLV_MIB);
	ck_assert_uint_eq(s.frame_bytes, 4 * CLV_MIB);
	ck_assert(!s.cache);
	ck_assert(!parsed("growth:tight,growth:normal").tight); /* the last counts */
	ck_assert_uint_eq(parsed("limit:0").limit, 0);
	same(s, parsed(" growth:tight , limit:1.5GiB ,headroom:300MiB\t,\tframe:4MiB,cache:off,"));
	same(s, parsed("growth : tight, limit: 1.5GiB, headroom :300MiB, frame: 4MiB, cache : off "));
}
END_TEST

START_TEST(each_key_of_a_program)
{
	struct clv_settings s = for_program("off,serve:all,free:now,graphs:off,ipc:off,pinned:on,pinned_limit:64MiB,"
					    "driver:any,report:off,stats:on,growth:tight,limit:1GiB");
	ck_assert(s.off && s.free_now && !s.graphs && !s.ipc && s.pinned && s.any_driver && !s.report && s.stats);
	ck_assert_uint_eq(s.serve, CLV_SERVE_ALL);
	ck_assert_uint_eq(s.pinned_limit, 64 * CLV_MIB);
	ck_assert(s.tight);
	ck_assert_uint_eq(s.limit, CLV_GIB);
	ck_assert_uint_eq(for_program("serve:pool").serve, CLV_SERVE_POOL);
	ck_assert_uint_eq(for_program("serve:all,serve:auto").serve, CLV_SERVE_AUTO);
	ck_assert(for_program("free:wait,graphs:on,ipc:on,report:on").graphs);
	ck_assert_uint_eq(for_program("pinned_limit:0").pinned_limit, 0);
	ck_assert(for_program(" off ").off);
	ck_assert(for_program("stats : on , off,").off);
	ck_assert(!for_program("stat:off").stat);
	ck_assert_str_eq(for_program("metrics:/run/%p-%r 100%%.prom").metrics, "/run/%p-%r 100%%.prom");
	ck_assert_uint_eq(for_program("metrics_interval:60").metrics_ms, 60000);
	ck_assert_uint_eq(for_program("metrics_interval:0.05").metrics_ms, 50);
	ck_assert_uint_eq(for_program("metrics_interval:1000000").metrics_ms, 1000000000);
	ck_assert_uint_eq(for_program("metrics_interval:2.125").metrics_ms, 2125);
}
END_TEST

/* One bad item costs that item, and a complaint about it; no more. */
START_TEST(lenient_goes_on)
{
	static const struct {
		const char *bad, *says;
	} cases[] = {
		{"groth:tight", "groth"},
		{"growth", "key:value"},
		{"growth:loose", "normal or tight"},
		{"serve:", "auto, pool or all"},
		{"serve:pools", "auto, pool or all"},
		{"serve:auto|pool", "auto, pool or all"},
		{"serve", "key:value"},
		{"free:later", "wait or now"},
		{"graphs:yes", "on or off"},
		{"off:on", "takes no value"},
		{"off:", "takes no value"},
		{"OFF", "OFF"},
		{"of", "'of'"},
		{"driver:all", "tested or any"},
		{"pinned_limit:some", "64MiB"},
		{"limit:much", "much"},
		{"frame:3MiB", "power of two"},
		{"stats:1", "on or off"},
		{"stat:yes", "on or off"},
		{"metrics:", "has a name"},
		{"metrics:a%q", "%p (process)"},
		{"metrics_interval:0", "seconds such as"},
		{"metrics_interval:0.001", "seconds such as"},
		{"metrics_interval:1000001", "seconds such as"},
		{"metrics_interval:99999999999999999999", "seconds such as"},
		{"metrics_interval:1.", "seconds such as"},
		{"metrics_interval:.5", "seconds such as"},
		{"metrics_interval:1.5s", "seconds such as"},
		{"metrics_interval:-1", "seconds such as"},
		{"metrics_interval:", "seconds such as"},
		{":", "''"},
	};
	const struct clv_settings expect = for_program("cache:off,stats:on");
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		char text[256];
		struct warnings w;
		snprintf(text, sizeof(text), "cache:off,%s,stats:on", cases[i].bad);
		same(lenient(text, &w), expect);
		ck_assert_uint_eq(w.count, 1);
		ck_assert_msg(strstr(w.text, cases[i].says), "'%s': %s", cases[i].bad, w.text);
		snprintf(text, sizeof(text), "%s,cache:off,stats:on,%s", cases[i].bad, cases[i].bad);
		same(lenient(text, &w), expect);
		ck_assert_uint_eq(w.count, 2);
		struct clv_settings s;
		clv_settings_parse_lenient(&s, text, NULL, NULL);
		same(s, expect);
	}
	/* a good value before a bad one of the same key stays */
	struct warnings w;
	ck_assert_uint_eq(lenient("serve:pool,serve:x", &w).serve, CLV_SERVE_POOL);
	ck_assert_uint_eq(w.count, 1);
	char name[CLV_SETTING_FILE + 16] = "metrics:";
	memset(name + strlen(name), 'x', CLV_SETTING_FILE - 1);
	ck_assert_uint_eq(strlen(for_program(name).metrics), CLV_SETTING_FILE - 1);
	strcat(name, "x");
	ck_assert_str_eq(lenient(name, &w).metrics, "");
	ck_assert_ptr_nonnull(strstr(w.text, "too long"));
	char longer[5000];
	memset(longer, 'x', sizeof(longer));
	strcpy(longer + sizeof(longer) - sizeof(",stats:on"), ",stats:on");
	ck_assert(lenient(longer, &w).stats);
	ck_assert_uint_eq(w.count, 1);
	ck_assert(strstr(w.text, "too long"));
}
END_TEST

/* Where no preload library reads them they would do nothing, and nobody would know. */
START_TEST(refused_outside_programs)
{
	size_t count;
	const struct clv_setting *table = clv_settings_table(&count);
	unsigned refused = 0;
	for (size_t i = 0; i < count; i++) {
		if (table[i].reader != CLV_READER_PRELOAD)
			continue;
		refused++;
		char text[128];
		bool word = !strcmp(table[i].kind, "WORD");
		const char *value = !strcmp(table[i].kind, "FILE_NAME") ? "file" : table[i].initial;
		snprintf(text, sizeof(text), "growth:tight,%s%s%s", table[i].key, word ? "" : ":", value);
		struct clv_settings s;
		struct clv_error err = {""};
		ck_assert_msg(!clv_settings_parse(&s, text, &err), "'%s' is accepted", text);
		ck_assert_msg(strstr(err.text, table[i].key) && strstr(err.text, "programs"), "%s", err.text);
		for_program(text);
	}
	ck_assert_uint_gt(refused, 5);
}
END_TEST

START_TEST(refusals)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{"groth:tight", "groth"},
		{"growth", "key:value"},
		{"growth:", "growth:"},
		{"growth:loose", "loose"},
		{"growth:tightly", "tightly"},
		{"growth:tight fit", "tight fit"},
		{":tight", "''"},
		{"limit:", "limit:"},
		{"limit:much", "much"},
		{"limit:-1", "-1"},
		{"limit:1.5", "1.5"},
		{"limit:1GiB 2", "1GiB 2"},
		{"limit:99999999999999999999", "99999999999999999999"},
		{"frame:3MiB", "power of two"},
		{"frame:1MiB", "2MiB"},
		{"frame:0", "2MiB"},
		{"cache:yes", "on or off"},
		{"cache:on,frame:5", "frame:5"},
		{"GROWTH:tight", "GROWTH"},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		struct clv_settings s;
		struct clv_error err = {""};
		ck_assert_msg(!clv_settings_parse(&s, cases[i].text, &err), "'%s' is accepted", cases[i].text);
		ck_assert_msg(strstr(err.text, cases[i].says), "'%s': %s", cases[i].text, err.text);
		ck_assert(!clv_settings_parse(&s, cases[i].text, NULL));
	}
	char longer[5000];
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	struct clv_settings s;
	struct clv_error err = {""};
	ck_assert(!clv_settings_parse(&s, longer, &err));
	ck_assert_str_ne(err.text, "");
}
END_TEST

/* What is printed is read as it was, and says no more than it must. */
START_TEST(printed)
{
	static const char *const cases[] = {
		"",
		"growth:tight",
		"off",
		"growth:tight,limit:1536MiB,headroom:300MiB,frame:4MiB,cache:off",
		"limit:1000000007,serve:all,free:now,graphs:off,ipc:off,pinned:on,pinned_limit:0,driver:any",
		"reserve:1176MiB*4+after=92+hard+name=w13_weight,reserve:70000+class,report:off,stats:on,stat:off",
		"metrics:/run/x %p-%r.prom,metrics_interval:0.250",
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		char text[512], again[512];
		struct clv_settings s = for_program(cases[i]);
		size_t len = clv_settings_print(&s, text, sizeof(text));
		ck_assert_uint_eq(len, strlen(text));
		ck_assert_uint_le(len, strlen(cases[i]) + 16);
		struct clv_settings read = for_program(text);
		same(read, s);
		clv_settings_print(&read, again, sizeof(again));
		ck_assert_str_eq(again, text);
		/* cut off where there is no room */
		memset(again, 'x', sizeof(again));
		ck_assert_uint_eq(clv_settings_print(&s, again, 8), len);
		ck_assert_uint_eq(strlen(again), clv_min_u64(len, 7));
		ck_assert_int_eq(again[8], 'x');
	}
	struct clv_settings s = for_program("frame:16MiB,stat:on,cache:on,metrics_interval:15");
	char text[16];
	ck_assert_uint_eq(clv_settings_print(&s, text, sizeof(text)), 0);
	ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(table_is_complete)
{
	size_t count;
	const struct clv_setting *table = clv_settings_table(&count);
	ck_assert_uint_gt(count, 0);
	for (size_t i = 0; i < count; i++) {
		bool word = !strcmp(table[i].kind, "WORD"), size = !strcmp(table[i].kind, "SIZE");
		bool choice = !strcmp(table[i].kind, "CHOICE"), on_off = !strcmp(table[i].kind, "BOOL");
		bool reservation = !strcmp(table[i].kind, "RESERVATION");
		bool file = !strcmp(table[i].kind, "FILE_NAME"), seconds = !strcmp(table[i].kind, "SECONDS");
		ck_assert(word || size || choice || on_off || reservation || file || seconds);
		ck_assert_int_eq(word || reservation || file, !table[i].initial[0]);
		ck_assert_int_eq(choice || on_off, table[i].words[0] != 0);
		ck_assert(!on_off || !strcmp(table[i].words, "on|off"));
		ck_assert_uint_gt(strlen(table[i].help), 10);
		for (size_t k = 0; k < i; k++)
			ck_assert_str_ne(table[i].key, table[k].key);
	}
}
END_TEST

START_TEST(reservations)
{
	struct clv_settings s = parsed("reserve:147MiB");
	ck_assert_uint_eq(s.reserves.count, 1);
	const struct clv_reserve_text *r = s.reserves.items;
	ck_assert_uint_eq(r->bytes, 147 * CLV_MIB);
	ck_assert_uint_eq(r->count, 1);
	ck_assert(!r->after_n && !r->uses && !r->idle_ms && !r->hard && !r->by_class && !r->name[0]);
	ck_assert_int_eq(r->device, CLV_RESERVE_EACH_DEVICE);
	/* each adds one, and words come in any order */
	s = parsed("reserve:1176MiB*4+after=92+hard+name=w13_weight,cache:off, reserve : 73.5MiB+idle=1500+class+uses=7+device=3");
	ck_assert_uint_eq(s.reserves.count, 2);
	ck_assert(!s.cache);
	ck_assert_uint_eq(r[0].bytes, 1176 * CLV_MIB);
	ck_assert_uint_eq(r[0].count, 4);
	ck_assert_uint_eq(r[0].after_n, 92);
	ck_assert(r[0].hard && !r[0].by_class);
	ck_assert_str_eq(r[0].name, "w13_weight");
	ck_assert_uint_eq(r[1].bytes, 147 * CLV_MIB / 2);
	ck_assert_uint_eq(r[1].idle_ms, 1500);
	ck_assert_uint_eq(r[1].uses, 7);
	ck_assert_int_eq(r[1].device, 3);
	ck_assert(!r[1].hard && r[1].by_class);
	same(s, for_program("reserve:1176MiB*4+name=w13_weight+hard+after=92,cache:off,reserve:77070336+device=3+uses=7+class+idle=1500"));
	/* one that makes no sense is left out */
	struct warnings w;
	s = lenient("reserve:1MiB+hrad,reserve:2MiB", &w);
	ck_assert_uint_eq(w.count, 1);
	ck_assert_uint_eq(s.reserves.count, 1);
	ck_assert_uint_eq(s.reserves.items[0].bytes, 2 * CLV_MIB);
	/* there is room for so many */
	char many[4096] = "";
	for (unsigned i = 0; i <= CLV_RESERVES_SET; i++)
		strcat(many, "reserve:1MiB,");
	s = lenient(many, &w);
	ck_assert_uint_eq(w.count, 1);
	ck_assert_uint_eq(s.reserves.count, CLV_RESERVES_SET);
}
END_TEST

START_TEST(reservations_refused)
{
	static const struct {
		const char *value, *says;
	} cases[] = {
		{"", "size"},
		{"4*1MiB", "above 32KiB"},
		{"32KiB", "above 32KiB"},
		{"0", "above 32KiB"},
		{"257TiB", "256TiB"},
		{"1MiB*0", "1 to"},
		{"1MiB*1048577", "1 to"},
		{"1TiB*1000", "together"},
		{"1MiB*x", "1 to"},
		{"1MiB*-1", "1 to"},
		{"1MiB+", "''"},
		{"1MiB+hard=1", "'hard' takes no value"},
		{"1MiB+after", "after=NUMBER"},
		{"1MiB+after=", "after=NUMBER"},
		{"1MiB+after=-1", "after=NUMBER"},
		{"1MiB+after=1.5", "after=NUMBER"},
		{"1MiB+uses=99999999999999999999", "uses=NUMBER"},
		{"1MiB+idle=18446744073709551615", "idle=NUMBER"},
		{"1MiB+device=-1", "device=NUMBER"},
		{"1MiB+name=", "name=NAME"},
		{"1MiB+name=a b", "name=NAME"},
		{"1MiB+name=a:b", "name=NAME"},
		{"1MiB+name=0123456789012345678901234567890123456789012345678901234567890123", "up to 63"},
		{"1MiB+often", "'often'"},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		char text[128];
		snprintf(text, sizeof(text), "reserve:%s", cases[i].value);
		struct clv_settings s;
		struct clv_error err = {""};
		ck_assert_msg(!clv_settings_parse(&s, text, &err), "'%s' is accepted", text);
		ck_assert_msg(strstr(err.text, cases[i].says) && !strncmp(err.text, text, strlen(text)), "'%s': %s", text, err.text);
	}
}
END_TEST

/* What is printed is read as it was. */
START_TEST(reservations_printed)
{
	struct clv_rng rng = {5};
	for (unsigned i = 0; i < 2000; i++) {
		struct clv_reserve_text in = {
			.bytes = clv_rng_range(&rng, CLV_RESERVE_ABOVE + 1, CLV_RESERVE_MOST >> clv_rng_below(&rng, 15)),
			.after_n = clv_rng_below(&rng, 3) * clv_rng_next(&rng),
			.uses = clv_rng_below(&rng, 2) * clv_rng_next(&rng),
			.idle_ms = clv_rng_below(&rng, 2) * clv_rng_below(&rng, UINT64_MAX / 1000000),
			.device = (int32_t)clv_rng_below(&rng, 10) - 1,
			.by_class = clv_rng_below(&rng, 2),
			.hard = clv_rng_below(&rng, 2),
		};
		in.count = clv_rng_range(&rng, 1, clv_min_u64(CLV_RESERVE_MOST / in.bytes, CLV_RESERVE_COUNT_MAX));
		for (uint64_t n = clv_rng_below(&rng, sizeof(in.name)), k = 0; k < n; k++)
			in.name[k] = (char)clv_rng_range(&rng, 'A', 'z');
		char text[256], again[256];
		int len = clv_reserve_print(&in, text, sizeof(text));
		ck_assert_int_lt(len, (int)sizeof(text));
		struct clv_reserve_text out;
		struct clv_error err = {""};
		ck_assert_msg(clv_reserve_parse(&out, text, &err), "%s", err.text);
		clv_reserve_print(&out, again, sizeof(again));
		ck_assert_str_eq(again, text);
		ck_assert(out.bytes == in.bytes && out.count == in.count && out.after_n == in.after_n && out.uses == in.uses &&
			  out.idle_ms == in.idle_ms && out.device == in.device && out.by_class == in.by_class && out.hard == in.hard);
		ck_assert_str_eq(out.name, in.name);
	}
	struct clv_reserve_text odd = {.name = "a,b+c d:e", .bytes = CLV_MIB, .count = 1, .device = CLV_RESERVE_EACH_DEVICE};
	char text[256];
	clv_reserve_print(&odd, text, sizeof(text));
	ck_assert_str_eq(text, "1048576*1+name=a_b_c_d_e");
}
END_TEST

/* Whatever the bytes: accepted or refused with a reason, nothing else. */
START_TEST(random_text)
{
	static const char *const parts[] = {"growth", "limit", "frame", "cache", ":",  ",",   " ",     "tight",
					    "16MiB",  "on",    "4",     "\xff",  "\t", "off", "serve", "all",
					    "reserve", "*", "+", "after=", "hard"};
	struct clv_rng rng = {3};
	unsigned accepted = 0;
	for (unsigned i = 0; i < 20000; i++) {
		char text[256] = "";
		for (uint64_t n = clv_rng_below(&rng, 8); n; n--)
			strcat(text, parts[clv_rng_below(&rng, CLV_ARRAY_LEN(parts))]);
		struct clv_settings s;
		struct clv_error err = {""};
		bool good = clv_settings_parse(&s, text, &err);
		accepted += good;
		ck_assert_msg(good == !err.text[0], "'%s': %s", text, err.text);
		struct warnings w;
		struct clv_settings same_text = lenient(text, &w);
		if (good) {
			same(s, same_text);
			ck_assert_uint_eq(w.count, 0);
		}
		ck_assert(clv_is_pow2(same_text.frame_bytes) && same_text.frame_bytes >= 2 * CLV_MIB);
		if (good)
			ck_assert(clv_is_pow2(s.frame_bytes) && s.frame_bytes >= 2 * CLV_MIB);
	}
	ck_assert_uint_gt(accepted, 100);
	ck_assert_uint_lt(accepted, 15000);
}
END_TEST

CHECK_MAIN("settings", defaults, each_key, each_key_of_a_program, lenient_goes_on, refused_outside_programs, refusals,
	   printed, table_is_complete, reservations, reservations_refused, reservations_printed, random_text)
