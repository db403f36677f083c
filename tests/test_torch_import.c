/* SPDX-License-Identifier: MIT
 *
 * Import of PyTorch memory snapshots: what each key becomes, what is refused and where, in every style in which a
 * pickle can be written.
 */
#include "../tracing/import/import.h"
#include "../tracing/memory.h"
#include "check_main.h"
#include "pickle_json.h"
#include "snapshot_full.h"
#include "trace_check.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct clv_error err;

/* Imports bytes from a copy of exactly their size, so that a sanitizer sees each one read beyond. */
static struct clv_trace *import_bytes(const void *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);
	memcpy(copy, data, size);
	const struct clv_input in = {.name = "s", .data = copy, .size = size};
	err.text[0] = '\0';
	struct clv_trace *t = clv_import_memory(&in, &err);
	free(copy); /* a trace must not refer to the input */
	ck_assert_msg((t != NULL) == (err.text[0] == '\0'), "%s", err.text);
	const char *wrong = t ? trace_wrong(t) : NULL;
	ck_assert_msg(!wrong, "%s", wrong);
	return t;
}

static struct clv_trace *import_json(const char *json, enum pickle_style style)
{
	struct pickle_writer w = pickle_of(json, style);
	struct clv_trace *t = import_bytes(w.data, w.size);
	free(w.data);
	return t;
}

/* Imports in every style; all must give the same trace. */
static struct clv_trace *import_ok(const char *json)
{
	struct clv_trace *first = import_json(json, PICKLE_PYTHON);
	ck_assert_msg(first != NULL, "%s: %s", json, err.text);
	for (enum pickle_style s = PICKLE_PYTHON + 1; s < PICKLE_STYLES; s++) {
		struct clv_trace *t = import_json(json, s);
		ck_assert_msg(t != NULL, "style %d: %s: %s", (int)s, json, err.text);
		const char *difference = trace_difference(first, t);
		ck_assert_msg(!difference, "style %d: %s: %s", (int)s, json, difference);
		clv_trace_free(t);
	}
	return first;
}

/* Refused in every style, for a reason that contains `part`, with the name of the file and an offset. */
static void import_refused(const char *json, const char *part)
{
	for (enum pickle_style s = 0; s < PICKLE_STYLES; s++) {
		struct clv_trace *t = import_json(json, s);
		ck_assert_msg(t == NULL, "style %d: accepted: %s", (int)s, json);
		ck_assert_msg(strstr(err.text, part) != NULL, "style %d: '%s' does not say '%s'", (int)s, err.text,
			      part);
		ck_assert_msg(strncmp(err.text, "s: offset ", 10) == 0, "style %d: %s", (int)s, err.text);
	}
}

/* Some parts of snapshots. */
#define EV(action, addr, size) "{'action':'" action "','addr':" addr ",'size':" size ",'stream':0,'time_us':1}"
#define TRACE(...) "{'device_traces':[[" __VA_ARGS__ "]]}"
#define BLOCK(addr, size, state) "{'address':" addr ",'size':" size ",'requested_size':" size ",'state':'" state "'}"
#define SEG(device, addr, size, blocks)                                                                                \
	"{'device':" device ",'address':" addr ",'total_size':" size ",'stream':0,'segment_type':'large',"             \
	"'segment_pool_id':{'$tuple':[0,0]},'is_expandable':false,'blocks':[" blocks "]}"

START_TEST(every_key)
{
	struct clv_trace *t = import_ok(snapshot_full);
	ck_assert_str_eq(t->file, "s");
	ck_assert_int_eq(t->format, CLV_FORMAT_TORCH);
	ck_assert_ptr_null(t->note);
	ck_assert_uint_eq(t->history_count, 1);
	const struct clv_history *h = &t->histories[0];
	static const uint8_t actions[] = {CLV_ACTION_SEGMENT_MAP,    CLV_ACTION_ALLOC, CLV_ACTION_ALLOC,
					  CLV_ACTION_FREE_COMPLETED, CLV_ACTION_OOM,   CLV_ACTION_SNAPSHOT,
					  CLV_ACTION_OTHER};
	ck_assert_uint_eq(h->event_count, CLV_ARRAY_LEN(actions));
	for (uint32_t i = 0; i < h->event_count; i++)
		ck_assert_uint_eq(h->events[i].action, actions[i]);
	ck_assert_uint_eq(h->events[1].addr, 2097152);
	ck_assert_uint_eq(h->events[1].size, 1000);
	ck_assert_uint_eq(h->events[1].time_us, 1796030623561600u);
	ck_assert_uint_eq(t->streams[h->events[1].stream], 140000);
	ck_assert_uint_eq(h->events[1].pool, 1);
	ck_assert_uint_eq(h->events[4].addr, 123456);
	ck_assert_uint_eq(h->events[4].size, 4096);
	ck_assert_uint_eq(h->events[4].pool, 0);
	ck_assert_double_eq(h->duration_s, 0.002);

	ck_assert(h->has_state);
	ck_assert_uint_eq(h->segment_count, 2); /* sorted */
	const struct clv_segment_record *s = &h->segments[1];
	ck_assert_uint_eq(h->segments[0].addr, 1048576);
	ck_assert(!h->segments[0].small && !h->segments[0].expandable && h->segments[0].pool == 0);
	ck_assert(s->small && s->expandable && s->pool == 1 && s->blocks == 3 && s->first_block == 1);
	ck_assert_uint_eq(h->pool_count, 2);
	ck_assert_uint_eq(h->pools[1].a, 0);
	ck_assert_uint_eq(h->pools[1].b, 3);
	ck_assert_uint_eq(h->blocks[1].requested, 1000);
	ck_assert_uint_eq(h->blocks[1].state, CLV_BLOCK_ACTIVE);
	ck_assert_uint_eq(h->blocks[2].state, CLV_BLOCK_PENDING_FREE);
	ck_assert_uint_eq(h->blocks[3].state, CLV_BLOCK_INACTIVE);
	ck_assert_uint_eq(h->blocks[3].size, 2095616);

	/* one stack of two frames, three times */
	ck_assert_uint_eq(t->stack_count, 2);
	ck_assert_uint_eq(t->stacks[1].count, 2);
	ck_assert_uint_eq(h->blocks[1].stack, 1);
	ck_assert_uint_eq(h->events[1].stack, 1);
	ck_assert_uint_eq(h->events[2].stack, 1);
	ck_assert_uint_eq(h->events[0].stack, CLV_NO_STACK);
	const struct clv_frame_record *f = &t->stack_frames[t->stacks[1].first];
	ck_assert_str_eq(t->strings[f[0].file], "a.py");
	ck_assert_str_eq(t->strings[f[0].function], "f");
	ck_assert_str_eq(t->strings[f[1].function], "g");
	ck_assert_uint_eq(f[0].line, 7);
	ck_assert_uint_eq(f[1].line, 8);
	ck_assert_uint_eq(f[0].file, f[1].file);
	ck_assert_uint_eq(t->string_count, 4); /* and the annotation's */
	ck_assert_uint_eq(h->note_count, 1);
	ck_assert_str_eq(t->strings[h->notes[0].text], "n");
	ck_assert_uint_eq(h->notes[0].kind, CLV_EVENT_PHASE_BEGIN);
	ck_assert_uint_eq(h->notes[0].event, 0);

	const struct clv_torch_recorded *r = &t->torch;
	ck_assert(r->present && r->expandable && r->has_probe);
	ck_assert_str_eq(r->conf, "max_split_size_mb:20");
	ck_assert_int_eq(r->max_split_size, 20971520);
	ck_assert_double_eq(r->gc_threshold, 0.75);
	static const uint32_t roundup[16] = {1, 2, 4, 8, [15] = 16};
	ck_assert_mem_eq(r->roundup, roundup, sizeof(roundup));
	ck_assert_uint_eq(r->cap_mib, 4000);
	ck_assert_uint_eq(r->total_bytes, 150109880320u);
	ck_assert_uint_eq(r->retries, 3);
	ck_assert_uint_eq(r->ooms, 2);
	ck_assert_uint_eq(r->device_left_mib, 5);
	clv_trace_free(t);
}
END_TEST

START_TEST(settings)
{
	static const struct {
		const char *text;
		int64_t max_split;
		double gc;
	} cases[] = {
		{"'max_split_size':-1", -1, 0},
		{"'max_split_size':'$int:18446744073709551615'", -1, 0},
		{"'max_split_size':'$int:18446744073708503040'", -1048576, 0},
		{"'max_split_size':-1048576", -1048576, 0},
		{"'max_split_size':null", -1, 0},
		{"'garbage_collection_threshold':1", -1, 1},
		{"'roundup_power2_divisions':null,'expandable_segments':null,'garbage_collection_threshold':null", -1,
		 0},
		{"'roundup_power2_divisions':{'x':1,'3':1},'expandable_segments':0,'PYTORCH_CUDA_ALLOC_CONF':null", -1,
		 0},
	};
	char json[256];
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		snprintf(json, sizeof(json), "{'device_traces':[],'allocator_settings':{%s}}", cases[i].text);
		struct clv_trace *t = import_ok(json);
		ck_assert(t->torch.present && !t->torch.expandable && !t->torch.has_probe);
		ck_assert_int_eq(t->torch.max_split_size, cases[i].max_split);
		ck_assert_double_eq(t->torch.gc_threshold, cases[i].gc);
		ck_assert_str_eq(t->torch.conf, "");
		clv_trace_free(t);
	}
	struct clv_trace *t = import_ok("{'device_traces':[],'allocator_settings':{'PYTORCH_ALLOC_CONF':'a:b'}}");
	ck_assert_str_eq(t->torch.conf, "a:b");
	clv_trace_free(t);
	t = import_ok("{'device_traces':[],'probe':{'cap_mib':3}}");
	ck_assert(!t->torch.present && !t->torch.has_probe && t->torch.cap_mib == 0);
	clv_trace_free(t);
}
END_TEST

START_TEST(harmless_gaps)
{
	/* no stream, no time, None for both, negative time, odd frames; a stream handle above 2^63 in both notations */
	struct clv_trace *t =
		import_ok("{'device_traces':[[{'action':'alloc','addr':512,'size':8},"
			  "{'action':'alloc','addr':1024,'size':8,'stream':null,'time_us':null,'frames':null},"
			  "{'action':'alloc','addr':1536,'size':8,'stream':0,'time_us':-5,'frames':'x'},"
			  "{'action':'alloc','addr':2048,'size':8,'frames':['a','b']},"
			  "{'action':'alloc','addr':2560,'size':8,'stream':-16,'frames':[{'filename':null}]},"
			  "{'action':'alloc','addr':3072,'size':8,'stream':'$int:18446744073709551600','frames':"
			  "[{'filename':'f','line':-1,'name':5}]},"
			  "{'action':'oom','size':8},"
			  "{'action':'snapshot'},{'action':'xyz'}]]}");
	const struct clv_history *h = &t->histories[0];
	ck_assert_uint_eq(h->event_count, 9);
	ck_assert_uint_eq(h->alloc_count, 6);
	ck_assert(!h->has_state);
	for (uint32_t i = 0; i < 4; i++) {
		ck_assert_uint_eq(t->streams[h->events[i].stream], 0);
		ck_assert_uint_eq(h->events[i].time_us, 0);
		ck_assert_uint_eq(h->events[i].stack, CLV_NO_STACK);
	}
	ck_assert_uint_eq(t->streams[h->events[4].stream], UINT64_MAX - 15);
	ck_assert_uint_eq(h->events[4].stream, h->events[5].stream);
	ck_assert_uint_eq(t->stack_count, 3);
	ck_assert_uint_eq(t->stack_frames[t->stacks[2].first].line, 0);
	ck_assert_str_eq(t->strings[t->stack_frames[t->stacks[1].first].file], "");
	ck_assert_str_eq(t->strings[t->stack_frames[t->stacks[2].first].function], "");
	clv_trace_free(t);
}
END_TEST

START_TEST(several_devices)
{
	struct clv_trace *t =
		import_ok("{'device_traces':[[],[" EV("alloc", "512", "8") "," EV("alloc", "1024", "8") "],[],[" EV(
			"alloc", "512",
			"9") "]],"
			     "'segments':[" SEG("4", "4096", "512", BLOCK("4096", "512", "inactive")) "," SEG(
				     "1", "0", "2048",
				     BLOCK("0", "512", "inactive") "," BLOCK("512", "1536", "active_allocated")) "]}");
	ck_assert_uint_eq(t->history_count, 3);
	ck_assert_int_eq(t->histories[0].device, 1);
	ck_assert_int_eq(t->histories[1].device, 3);
	ck_assert_int_eq(t->histories[2].device, 4);
	ck_assert_uint_eq(t->histories[0].event_count, 2);
	ck_assert_uint_eq(t->histories[0].segment_count, 1);
	ck_assert_uint_eq(t->histories[1].event_count, 1);
	ck_assert_uint_eq(t->histories[1].events[0].size, 9);
	ck_assert_uint_eq(t->histories[2].event_count, 0);
	ck_assert_uint_eq(t->histories[2].segment_count, 1);
	ck_assert_ptr_eq(clv_trace_select(t, -1, &err), &t->histories[0]);
	ck_assert_ptr_null(clv_trace_select(t, 4, &err));
	clv_trace_free(t);

	/* one history for two devices, through the memo: both have it */
	t = import_ok("{'x':[" EV("alloc", "512", "8") "],'device_traces':[{'$ref':'x'},[],{'$ref':'x'}]}");
	ck_assert_uint_eq(t->history_count, 2);
	ck_assert_uint_eq(t->histories[0].event_count, 1);
	ck_assert_uint_eq(t->histories[1].event_count, 1);
	clv_trace_free(t);
	/* devices in another order than their events */
	t = import_ok("{'x':[" EV("alloc", "512", "8") "],'y':[" EV(
		"alloc", "512", "9") "],"
				     "'device_traces':[{'$ref':'y'},{'$ref':'x'}]}");
	ck_assert_uint_eq(t->histories[0].events[0].size, 9);
	ck_assert_uint_eq(t->histories[1].events[0].size, 8);
	clv_trace_free(t);
}
END_TEST

START_TEST(parts)
{
	struct clv_trace *t = import_ok("{'device_traces':[],'segments':[]}");
	ck_assert_uint_eq(t->history_count, 0);
	clv_trace_free(t);
	t = import_ok("{'device_traces':[[],[]]}");
	ck_assert_uint_eq(t->history_count, 0);
	clv_trace_free(t);
	/* a state alone, also as torch.cuda.memory_snapshot() gives it */
	static const char *const states[] = {
		"{'segments':[" SEG("0", "512", "512", BLOCK("512", "512", "active_allocated")) "]}",
		"[" SEG("0", "512", "512", BLOCK("512", "512", "active_allocated")) "]"};
	for (size_t i = 0; i < CLV_ARRAY_LEN(states); i++) {
		t = import_ok(states[i]);
		ck_assert_uint_eq(t->history_count, 1);
		ck_assert(t->histories[0].has_state);
		ck_assert_uint_eq(t->histories[0].initial_count, 1);
		err.text[0] = '\0';
		ck_assert_ptr_null(clv_trace_select(t, -1, &err));
		ck_assert_msg(strstr(err.text, "`cleave report`") != NULL, "%s", err.text);
		clv_trace_free(t);
	}
	/* segments that are not in 'segments' are no part of the state */
	t = import_ok(
		"{'other':[" SEG("0", "512", "512", BLOCK("512", "512", "active_allocated")) "],'device_traces':[[" EV(
			"alloc", "512", "8") "]]}");
	ck_assert_uint_eq(t->histories[0].segment_count, 0);
	clv_trace_free(t);
	t = import_ok("{'other':[" SEG("0", "512", "512", BLOCK("512", "512", "active_allocated")) "],'segments':[" SEG(
		"0", "1024", "512", BLOCK("1024", "512", "inactive")) "]}");
	ck_assert_uint_eq(t->histories[0].segment_count, 1);
	ck_assert_uint_eq(t->histories[0].segments[0].addr, 1024);
	clv_trace_free(t);
	/* blocks of old files have no address: they follow each other */
	t = import_ok("[{'address':512,'total_size':1024,'blocks':[{'size':512,'state':'active_awaiting_free'},"
		      "{'size':512,'state':'inactive'}]}]");
	ck_assert_uint_eq(t->histories[0].blocks[1].addr, 1024);
	ck_assert_uint_eq(t->histories[0].blocks[0].state, CLV_BLOCK_PENDING_FREE);
	ck_assert_uint_eq(t->histories[0].initial[0].size, 512);
	clv_trace_free(t);
	/* pool ids as a list, and many of them */
	t = import_ok(
		"[{'address':512,'total_size':512,'segment_pool_id':[1,0],'blocks':[{'size':512,'state':'inactive'}]},"
		"{'address':1024,'total_size':512,'segment_pool_id':[0,1],'blocks':[{'size':512,'state':'inactive'}]},"
		"{'address':1536,'total_size':512,'segment_pool_id':[1,0],'blocks':[{'size':512,'state':'inactive'}]}]");
	ck_assert_uint_eq(t->histories[0].pool_count, 3);
	ck_assert_uint_eq(t->histories[0].segments[0].pool, t->histories[0].segments[2].pool);
	ck_assert_uint_ne(t->histories[0].segments[0].pool, t->histories[0].segments[1].pool);
	clv_trace_free(t);
}
END_TEST

#define SET(text) "{'device_traces':[],'allocator_settings':" text "}"

START_TEST(refusals)
{
	static const struct {
		const char *json, *part;
	} cases[] = {
		{SET("5"), "'allocator_settings' is no dict"},
		{SET("['max_split_size']"), "'allocator_settings' is no dict"},
		{SET("{'PYTORCH_CUDA_ALLOC_CONF':5}"), "'PYTORCH_CUDA_ALLOC_CONF' is no text"},
		{SET("{'PYTORCH_ALLOC_CONF':['a']}"), "'PYTORCH_ALLOC_CONF' is no text"},
		{SET("{'max_split_size':'x'}"), "'max_split_size' is no integer of 64 bits"},
		{SET("{'max_split_size':1.5}"), "'max_split_size' is no integer of 64 bits"},
		{SET("{'garbage_collection_threshold':'x'}"), "'garbage_collection_threshold' is no finite number"},
		{SET("{'expandable_segments':'False'}"), "'expandable_segments' is no boolean"},
		{SET("{'expandable_segments':-1}"), "'expandable_segments' is no boolean"},
		{SET("{'roundup_power2_divisions':5}"), "'roundup_power2_divisions' is no dict"},
		{SET("{'roundup_power2_divisions':{'4':'x'}}"), "'roundup_power2_divisions' is no table of numbers"},
		{"[{'address':512,'total_size':0,'blocks':[],'is_expandable':'False'}]",
		 "'is_expandable' is neither true nor false"},
		{"[{'address':512,'total_size':0,'blocks':[],'is_expandable':0.5}]",
		 "'is_expandable' is neither true nor false"},
		{"[" SEG("0", "512", "512", "{'size':512,'requested_size':513,'state':'active_allocated'}") "]",
		 "a block in use of 512 bytes, of which 513 were requested"},
		{"5", "holds no dict"},
		{"null", "holds no dict"},
		{"'x'", "holds no dict"},
		{"{}", "neither 'device_traces' nor 'segments'"},
		{"{'device_traces':null,'segments':null}", "neither 'device_traces' nor 'segments'"},
		{"[5]", "is no segment"},
		{"{'device_traces':5}", "'device_traces' is no list"},
		{"{'device_traces':{'0':[]}}", "'device_traces' is no list"},
		{"{'device_traces':[5]}", "no list of events"},
		{"{'device_traces':[{'a':1}]}", "no list of events"},
		{"{'segments':5}", "'segments' is no list"},
		{"{'segments':[{'address':512}]}", "is no segment"},
		{TRACE("5"), "event 0 of a history is no event"},
		{TRACE(EV("alloc", "512", "8") ",{'addr':512,'size':8}"), "event 1 of a history is no event"},
		{TRACE("{'action':5,'addr':512,'size':8}"), "'action' is no text"},
		{TRACE("{'action':'alloc','size':8}"), "alloc without 'addr'"},
		{TRACE("{'action':'alloc','addr':null,'size':8}"), "alloc without 'addr'"},
		{TRACE("{'action':'alloc','addr':512}"), "alloc without 'size'"},
		{TRACE("{'action':'free_requested','size':8}"), "free_requested without 'addr'"},
		{TRACE("{'action':'free_completed','size':8}"), "free_completed without 'addr'"},
		{TRACE("{'action':'segment_alloc','size':8}"), "segment_alloc without 'addr'"},
		{TRACE("{'action':'segment_free','addr':8}"), "segment_free without 'size'"},
		{TRACE("{'action':'segment_map','addr':8}"), "segment_map without 'size'"},
		{TRACE("{'action':'segment_unmap','size':8}"), "segment_unmap without 'addr'"},
		{TRACE("{'action':'oom'}"), "oom without 'size'"},
		{TRACE(EV("alloc", "'x'", "8")), "'addr' is no integer"},
		{TRACE(EV("alloc", "1.5", "8")), "'addr' is no integer"},
		{TRACE(EV("alloc", "true", "8")), "'addr' is no integer"},
		{TRACE(EV("alloc", "512", "-8")), "'size' is -8, which no size can be"},
		{TRACE(EV("alloc", "-512", "8")), "'addr' is -512, which no address can be"},
		{TRACE(EV("alloc", "512", "'$int:9223372036854775808'")), "'size' is no integer below 2^63"},
		{TRACE(EV("alloc", "'$int:18446744073709551615'", "8")), "'addr' is no integer below 2^63"},
		{TRACE(EV("alloc", "512", "-9223372036854775808")), "which no size can be"},
		{TRACE(EV("alloc", "9223372036854775807", "8")), "ends beyond 2^63"},
		{TRACE("{'action':'oom','device_free':-1,'size':8}"), "'device_free' is -1"},
		{TRACE("{'action':'alloc','addr':512,'size':8,'stream':'x'}"), "'stream' is no integer"},
		{TRACE(EV("alloc", "512", "8") "," EV("alloc", "512", "8")), "device 0, event 1: 0x200 is allocated"},
		{"[" SEG("0", "512", "512", "") "]", "make 0 of its 512 bytes"},
		{"[{'address':512,'total_size':512,'blocks':null}]", "blocks of a segment are no list"},
		{"[{'address':512,'total_size':512,'blocks':[5]}]", "is no block with a state"},
		{"[{'address':512,'total_size':512,'blocks':[{'size':512}]}]", "is no block with a state"},
		{"[{'address':512,'total_size':512,'blocks':[{'state':'inactive'}]}]", "a block without 'size'"},
		{"[" SEG("0", "512", "512", BLOCK("512", "512", "liquid")) "]", "unknown state"},
		{"[" SEG("0", "512", "512", "{'size':512,'state':5}") "]", "unknown state"},
		{"[" SEG("0", "512", "512", BLOCK("512", "1024", "inactive")) "]", "does not fit"},
		{"[" SEG("0", "512", "1024", BLOCK("512", "512", "inactive")) "]", "make 512 of its 1024 bytes"},
		{"[" SEG("0", "512", "1024", BLOCK("512", "512", "inactive") "," BLOCK("1536", "512", "inactive")) "]",
		 "block 1 does not fit"},
		{"[{'total_size':512,'blocks':[]}]", "a segment without 'address'"},
		{"[{'address':512,'blocks':[]}]", "a segment without 'total_size'"},
		{"[{'address':9223372036854775807,'total_size':1,'blocks':[]}]", "ends beyond 2^63"},
		{"[{'address':512,'total_size':-1,'blocks':[]}]", "'total_size' is -1"},
		{"[{'address':512,'total_size':0,'blocks':[],'segment_type':'medium'}]", "neither small nor large"},
		{"[{'address':512,'total_size':0,'blocks':[],'segment_pool_id':5}]", "no pair of integers"},
		{"[{'address':512,'total_size':0,'blocks':[],'device':-1}]", "no device number"},
		{"[{'address':512,'total_size':0,'blocks':[],'device':65536}]", "no device number"},
		{"[{'address':512,'total_size':0,'blocks':[],'stream':1.5}]", "'stream' is no integer"},
		{"[" SEG("0", "512", "1024", BLOCK("512", "1024", "inactive")) "," SEG(
			 "0", "1024", "512", BLOCK("1024", "512", "inactive")) "]",
		 "overlaps"},
		{"{'segments':[" SEG("0", "512", "512",
				     BLOCK("512", "512", "inactive")) "],'x':1,'device_traces':[['y']]}",
		 "event 0 of a history is no event"},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++)
		import_refused(cases[i].json, cases[i].part);
}
END_TEST

#define PUT(f, bytes) fwrite(bytes, 1, sizeof(bytes) - 1, f)
#define TEXT1(n, text) "X" n "\0\0\0" text
#define STATE TEXT1("\5", "state") TEXT1("\10", "inactive")

static void import_stream_refused(FILE *f, char **data, size_t *size, const char *part)
{
	fclose(f);
	ck_assert_msg(!import_bytes(*data, *size), "accepted: %s", part);
	ck_assert_msg(strncmp(err.text, "s: offset ", 10) == 0 && strstr(err.text, part), "%s, not %s", err.text, part);
	free(*data);
}

/* A reference takes two bytes, so without bounds a small file could ask for any amount of time or memory. */
START_TEST(used_again_and_again)
{
	enum { ITEMS = 3000, USES = 3000 };
	char *data;
	size_t size;
	/* a dict of many keys, in a list many times */
	FILE *f = open_memstream(&data, &size);
	PUT(f, "\x80\2}(" TEXT1("\1", "x") "](}q\1(");
	for (int i = 0; i < ITEMS; i++)
		PUT(f, "K\5N");
	PUT(f, "u");
	for (int i = 0; i < USES; i++)
		PUT(f, "h\1");
	PUT(f, "eu.");
	import_stream_refused(f, &data, &size, "used again so often");
	/* the history of one device is that of many */
	f = open_memstream(&data, &size);
	PUT(f, "\x80\2}(" TEXT1("\15", "device_traces") "](]q\1(");
	for (int i = 0; i < ITEMS; i++)
		PUT(f, "}(" TEXT1("\6", "action") TEXT1("\10", "snapshot") "u");
	PUT(f, "e");
	for (int i = 0; i < USES; i++)
		PUT(f, "h\1");
	PUT(f, "eu.");
	import_stream_refused(f, &data, &size, "one list of events many times");
	/* the blocks of one segment are those of many */
	f = open_memstream(&data, &size);
	PUT(f, "\x80\2](]q\1(");
	for (int i = 0; i < ITEMS; i++)
		PUT(f, "}(" STATE TEXT1("\4", "size") "K\0u");
	PUT(f, "eh\1"
	       "00");
	for (int i = 0; i < USES; i++)
		PUT(f, "}(" TEXT1("\7", "address") "K\0" TEXT1("\12", "total_size") "K\0" TEXT1("\6", "blocks") "h\1u");
	PUT(f, "e.");
	import_stream_refused(f, &data, &size, "one list of blocks belongs to many segments");
}
END_TEST

/* An importer must not go through gigabytes for the end of a line that no file of its kind has. */
START_TEST(lines_without_end)
{
	char *zeros = calloc(1, 2 << 20);
	memcpy(zeros, "\x80\2I", 3);
	ck_assert_ptr_null(import_bytes(zeros, 2 << 20));
	ck_assert_str_eq(err.text, "s: offset 2: not a valid pickle: INT is no number");
	free(zeros);
}
END_TEST

/* A segment without blocks, in a snapshot without any. */
START_TEST(no_blocks_at_all)
{
	struct clv_trace *t = import_ok("{'segments':[{'address':512,'total_size':0,'blocks':[]}],"
					"'device_traces':[[{'action':'snapshot'}]]}");
	ck_assert_uint_eq(t->histories[0].segment_count, 1);
	ck_assert_uint_eq(t->histories[0].block_record_count, 0);
	clv_trace_free(t);
}
END_TEST

START_TEST(offsets)
{
	/* where the dict begins that is refused */
	struct pickle_writer w = pickle_of(TRACE("{'action':'alloc','addr':512}"), PICKLE_CPP);
	size_t at = w.size;
	for (size_t i = 0; i + 1 < w.size; i++)
		if (w.data[i] == '}' && w.data[i + 1] == '(')
			at = i; /* the last dict */
	ck_assert_ptr_null(import_bytes(w.data, w.size));
	char expected[80];
	snprintf(expected, sizeof(expected), "s: offset %zu: alloc without 'size'", at);
	ck_assert_str_eq(err.text, expected);
	free(w.data);
	/* and of an event that contradicts an earlier one, also on another device than the first */
	w = pickle_of("{'device_traces':[[" EV("alloc", "1024", "8") "],[" EV("alloc", "512",
									      "8") "," EV("alloc", "512", "8") "]]}",
		      PICKLE_CPP);
	for (size_t i = 0; i + 1 < w.size; i++)
		if (w.data[i] == '}' && w.data[i + 1] == '(')
			at = i;
	ck_assert_ptr_null(import_bytes(w.data, w.size));
	snprintf(expected, sizeof(expected), "s: offset %zu: device 1, event 1: 0x200 is allocated", at);
	ck_assert_msg(strncmp(err.text, expected, strlen(expected)) == 0, "%s, not %s", err.text, expected);
	free(w.data);
}
END_TEST

START_TEST(other_files)
{
	static const struct {
		const char *data;
		size_t size;
		const char *part;
	} cases[] = {
		{"", 0, "s: the file is empty"},
		{"\x1f\x8b\x08\0", 4, "gzip"},
		{"\x28\xb5\x2f\xfd\0", 5, "zstd"},
		{"\xfd"
		 "7zXZ\0",
		 6, "xz"},
		{"PK\x03\x04....", 8, "torch.save()"},
		{"{\"traceEvents\": []}", 19, "JSON"},
		{"[1, 2]", 6, "JSON"},
		{"(dp0\nS'segments'\n.", 18, "protocol 0 or 1"},
		{"}q\0(U\x08segmentsq\1", 14, "protocol 0 or 1"},
		{"\x80\x01}.", 4, "protocol 1; protocols 2 to 5"},
		{"\x80\x06}.", 4, "protocol 6; protocols 2 to 5"},
		{"\x7f"
		 "ELF",
		 4, "not a known trace"},
		{"hello\n", 6, "not a known trace"},
	};
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		ck_assert_ptr_null(import_bytes(cases[i].data, cases[i].size));
		ck_assert_msg(strstr(err.text, cases[i].part) != NULL, "%s: %s", cases[i].part, err.text);
	}
}
END_TEST

START_TEST(paths)
{
	char dir[] = "/tmp/cleave-import-XXXXXX", path[64];
	ck_assert_ptr_nonnull(mkdtemp(dir));
	static const struct {
		const char *name, *part;
	} cases[] = {{"missing", "No such file"},
		     {"fifo", "not a regular file"},
		     {".", "a directory"},
		     {"empty", "is empty"}};
	snprintf(path, sizeof(path), "%s/fifo", dir);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	snprintf(path, sizeof(path), "%s/empty", dir);
	fclose(fopen(path, "w"));
	for (size_t i = 0; i < CLV_ARRAY_LEN(cases); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, cases[i].name);
		err.text[0] = '\0';
		ck_assert_ptr_null(clv_trace_import(path, &err));
		ck_assert_msg(strncmp(err.text, path, strlen(path)) == 0 && strstr(err.text, cases[i].part), "%s",
			      err.text);
	}
	/* a good one */
	struct pickle_writer w = pickle_of(snapshot_full, PICKLE_PYTHON);
	snprintf(path, sizeof(path), "%s/good", dir);
	FILE *f = fopen(path, "w");
	ck_assert_uint_eq(fwrite(w.data, 1, w.size, f), w.size);
	fclose(f);
	free(w.data);
	err.text[0] = '\0';
	struct clv_trace *t = clv_trace_import(path, &err);
	ck_assert_msg(t != NULL, "%s", err.text);
	ck_assert_str_eq(t->file, path);
	clv_trace_free(t);
	if (geteuid() != 0) {
		ck_assert_int_eq(chmod(path, 0), 0);
		ck_assert_ptr_null(clv_trace_import(path, &err));
		ck_assert_msg(strstr(err.text, "Permission denied") != NULL, "%s", err.text);
	}
	unlink(path);
	snprintf(path, sizeof(path), "%s/fifo", dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/empty", dir);
	unlink(path);
	rmdir(dir);
}
END_TEST

START_TEST(cut_anywhere)
{
	for (enum pickle_style s = 0; s < PICKLE_STYLES; s++) {
		struct pickle_writer w = pickle_of(snapshot_full, s);
		for (size_t n = 1; n < w.size; n++) {
			ck_assert_msg(import_bytes(w.data, n) == NULL, "style %d, %zu of %zu bytes accepted", (int)s, n,
				      w.size);
			ck_assert_msg(strncmp(err.text, "s: offset ", 10) == 0, "%s", err.text);
		}
		free(w.data);
	}
}
END_TEST

/* Damage may or may not show; what is returned must be a valid trace (import_bytes checks it). */
START_TEST(damaged_anywhere)
{
	struct clv_rng rng = {.state = 5};
	for (enum pickle_style s = 0; s < PICKLE_STYLES; s++) {
		struct pickle_writer w = pickle_of(snapshot_full, s);
		uint8_t *data = malloc(w.size);
		for (int round = 0; round < 12000; round++) {
			memcpy(data, w.data, w.size);
			for (uint64_t n = clv_rng_range(&rng, 1, 4); n-- > 0;)
				data[clv_rng_range(&rng, 1, w.size - 1)] = (uint8_t)clv_rng_next(&rng);
			clv_trace_free(import_bytes(data, w.size));
		}
		free(data);
		free(w.data);
	}
}
END_TEST

START_TEST(out_of_memory)
{
	for (enum pickle_style s = 0; s < PICKLE_STYLES; s++) {
		struct pickle_writer w = pickle_of(snapshot_full, s);
		uint64_t n = 1;
		for (;; n++) {
			clv_mem_fail_after(n);
			struct clv_trace *t = import_bytes(w.data, w.size);
			clv_mem_fail_after(0);
			clv_trace_free(t);
			if (t)
				break;
			ck_assert_str_eq(err.text, "s: out of host memory");
		}
		ck_assert_uint_gt(n, 30);
		free(w.data);
	}
	/* also on the way to saying where a contradiction is: then the sentence may lack the place, never the reason */
	struct pickle_writer w = pickle_of(TRACE(EV("alloc", "512", "8") "," EV("alloc", "512", "8")), PICKLE_PYTHON);
	bool memory = true;
	for (uint64_t n = 1; memory; n++) {
		clv_mem_fail_after(n);
		ck_assert_ptr_null(import_bytes(w.data, w.size));
		clv_mem_fail_after(0);
		memory = strstr(err.text, "out of host memory") != NULL;
		ck_assert_msg(memory || strstr(err.text, "is allocated"), "%s", err.text);
	}
	free(w.data);
}
END_TEST

/* Histories beyond the size of a batch, in the way of each writer; sizes and order must come through. */
START_TEST(long_histories)
{
	enum { EVENTS = 2500 };
	char *json = malloc(EVENTS * 100), *p = json;
	p += sprintf(p, "{'device_traces':[[");
	for (int i = 0; i < EVENTS; i++)
		p += sprintf(p,
			     "%s"
			     "{'action':'alloc','addr':%d,'size':%d,'stream':0,'time_us':%d}",
			     i ? "," : "", 512 * (i + 1), i + 1, i);
	sprintf(p, "]]}");
	struct clv_trace *t = import_ok(json);
	const struct clv_history *h = &t->histories[0];
	ck_assert_uint_eq(h->event_count, EVENTS);
	for (uint32_t i = 0; i < EVENTS; i++)
		ck_assert(h->events[i].addr == 512u * (i + 1) && h->events[i].size == i + 1 &&
			  h->events[i].time_us == i);
	clv_trace_free(t);
	free(json);
}
END_TEST

/* Pages of a mapped file are given back while it is read. The first event's texts, on the first page, are needed at the
 * end. */
START_TEST(mapped_files)
{
	enum { EVENTS = 400000 };
	static const char head[] = "\x80\x02}(X\x0d\0\0\0device_traces](](";
	static const char first[] =
		"}(X\x06\0\0\0actionq\0X\x05\0\0\0allocq\1X\x04\0\0\0addrq\2J\0\0\0\x40X\x04\0\0\0sizeq\3K\x09"
		"X\x06\0\0\0framesq\4](}(X\x08\0\0\0filenameX\x04\0\0\0a.pyX\x04\0\0\0nameX\x03\0\0\0runueu";
	static const char tail[] = "eeu.";
	FILE *f = tmpfile();
	ck_assert_ptr_nonnull(f);
	fwrite(head, 1, sizeof(head) - 1, f);
	fwrite(first, 1, sizeof(first) - 1, f);
	for (uint32_t i = 1; i < EVENTS; i++) {
		uint8_t e[] = "}(h\0h\1h\2J....h\3K\x08X\x0f\0\0\0unknown.unknownX\x0f\0\0\0unknown.unknownu";
		uint32_t addr = i * 512;
		memcpy(e + 9, &addr, 4);
		fwrite(e, 1, sizeof(e) - 1, f);
	}
	fwrite(tail, 1, sizeof(tail) - 1, f);
	ck_assert_int_eq(fflush(f), 0);
	struct stat st;
	ck_assert_int_eq(fstat(fileno(f), &st), 0);
	ck_assert_int_gt(st.st_size, 20 << 20);
	void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fileno(f), 0);
	ck_assert(map != MAP_FAILED);
	struct clv_input in = {.name = "s", .data = map, .size = (size_t)st.st_size, .mapped = true};
	err.text[0] = '\0';
	struct clv_trace *t = clv_import_memory(&in, &err);
	ck_assert_msg(t != NULL, "%s", err.text);
	in.mapped = false;
	struct clv_trace *u = clv_import_memory(&in, &err);
	ck_assert_msg(u != NULL, "%s", err.text);
	const char *wrong = trace_wrong(t), *difference = trace_difference(t, u);
	ck_assert_msg(!wrong && !difference, "%s%s", wrong ? wrong : "", difference ? difference : "");
	ck_assert_uint_eq(t->histories[0].event_count, EVENTS);
	ck_assert_uint_eq(t->histories[0].events[EVENTS - 1].addr, (EVENTS - 1) * 512);
	ck_assert_str_eq(t->strings[t->stack_frames[0].file], "a.py");
	ck_assert_str_eq(t->strings[t->stack_frames[0].function], "run");
	clv_trace_free(t);
	clv_trace_free(u);
	munmap(map, (size_t)st.st_size);
	fclose(f);
}
END_TEST

CHECK_MAIN("torch_import", every_key, settings, harmless_gaps, several_devices, parts, refusals, used_again_and_again,
	   lines_without_end, no_blocks_at_all, offsets, other_files, paths, cut_anywhere, damaged_anywhere,
	   out_of_memory, long_histories, mapped_files)
