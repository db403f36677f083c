/* SPDX-License-Identifier: MIT
 *
 * settings: the one table of what CLEAVE_CONF and the text after `cleave:` may say. Read-only once parsed; no lock, no
 * host memory.
 *
 * Each row says who reads it: HEAP rows hold wherever a heap is (a program, the API, a replay), PRELOAD rows only under a
 * program, so that elsewhere they are refused instead of doing nothing.
 */
#ifndef CLV_SETTINGS_H
#define CLV_SETTINGS_H

#include "reserve_text.h"

/* The values of `serve`, in the order of its words. */
enum clv_serve {
	CLV_SERVE_AUTO,
	CLV_SERVE_POOL,
	CLV_SERVE_ALL,
};

#define CLV_RESERVES_SET 64u

#define CLV_SETTING_FILE 192u /* characters of a file's name, with the 0 */

/* One `reserve` each, in the order in which they were said. */
struct clv_reserves_set {
	unsigned count;
	struct clv_reserve_text items[CLV_RESERVES_SET];
};

struct clv_settings {
	uint64_t limit; /* 0: none */
	uint64_t headroom;
	uint64_t frame_bytes; /* usual size of a frame for small requests */
	bool tight;           /* growth:tight */
	bool cache;           /* freed blocks are kept for the next request */
	struct clv_reserves_set reserves;

	bool off;
	uint8_t serve; /* enum clv_serve */
	bool free_now; /* free:now */
	bool graphs;
	bool ipc;
	bool pinned;
	uint64_t pinned_limit;
	bool any_driver; /* driver:any */
	bool report;
	bool stats;
	bool stat; /* `cleave stat` is answered */
	char metrics[CLV_SETTING_FILE]; /* pattern (base/file_name.h); "": none */
	uint64_t metrics_ms;
};

/* (who reads it, key, member, kind of value, words, default text, explanation): the table from which parser, help and
 * defaults are made. The words of a CHOICE stand for 0, 1, ...; WORD is a key without a value, absent by default. A RESERVATION
 * (reserve_text.h) may be said several times: each adds one. A FILE_NAME is a name in which %p and %r are replaced
 * (base/file_name.h), absent by default; SECONDS are a decimal number of them, kept in milliseconds. */
#define CLV_SETTINGS(X)                                                                                                \
	X(HEAP, growth, tight, CHOICE, "normal|tight", "normal",                                                       \
	  "normal: few calls of the driver; tight: the smallest frames, the least stranded memory, many calls")        \
	X(HEAP, limit, limit, SIZE, "", "0", "most bytes held on each device; 0: what the device gives")               \
	X(HEAP, headroom, headroom, SIZE, "", "0", "bytes of each device left to others when the heap grows")          \
	X(HEAP, frame, frame_bytes, SIZE, "", "16MiB",                                                                 \
	  "size of a frame bought for small requests; a power of two, at least 2MiB")                                  \
	X(HEAP, cache, cache, BOOL, "on|off", "on",                                                                    \
	  "on: threads keep freed small blocks for themselves, and the heap large ones of sizes that come back again\n"  \
	  "and again; off: they do not")                                                                               \
	X(HEAP, reserve, reserves, RESERVATION, "", "",                                                                \
	  "SIZE[*COUNT][+after=N][+uses=N][+idle=MS][+class][+hard][+device=N][+name=NAME]: holds memory for COUNT\n"   \
	  "requests of SIZE back, from the first request of 1 MiB or more, or of that size, on each device (device: on\n" \
	  "that one). after: so many requests of the size are served elsewhere first; class: for requests from half of\n" \
	  "SIZE to SIZE; hard: given up only if a request would fail even after waiting, and never to a trim. It ends\n" \
	  "after `uses` requests, or when none came for `idle` ms. May be said several times")                           \
	X(PRELOAD, off, off, WORD, "", "", "without a value: everything passes through, as if Cleave were not there")  \
	X(PRELOAD, serve, serve, CHOICE, "auto|pool|all", "auto",                                                      \
	  "pool: stream-ordered requests (cuMemAllocAsync); all: cuMemAlloc, too; auto: cuMemAlloc only in programs\n" \
	  "that make no stream-ordered request")                                                                       \
	X(PRELOAD, free, free_now, CHOICE, "wait|now", "wait",                                                         \
	  "of cuMemFree. wait: it waits for the device, as the driver's does; now: it does not, and the program promises\n" \
	  "that no work uses the memory any more")                                                                     \
	X(PRELOAD, graphs, graphs, BOOL, "on|off", "on",                                                               \
	  "requests while a graph is captured. on: served from memory that captures share; off: left to the driver")   \
	X(PRELOAD, ipc, ipc, BOOL, "on|off", "on",                                                                     \
	  "on: memory can be shared with other processes (cuIpc calls are answered); off: it cannot")                  \
	X(PRELOAD, pinned, pinned, BOOL, "on|off", "off",                                                              \
	  "on: page-locked host memory is served and kept for the next request; off: left to the driver")              \
	X(PRELOAD, pinned_limit, pinned_limit, SIZE, "", "1GiB",                                                       \
	  "most bytes of free page-locked host memory that pinned:on keeps; 0: none")                                  \
	X(PRELOAD, driver, any_driver, CHOICE, "tested|any", "tested",                                                 \
	  "tested: with a driver of a version that was not tested everything passes through; any: it does not")        \
	X(PRELOAD, report, report, BOOL, "on|off", "on", "on: a request that fails is explained on stderr; off: not")  \
	X(PRELOAD, stats, stats, BOOL, "on|off", "off", "on: statistics on stderr when the process ends")               \
	X(PRELOAD, stat, stat, BOOL, "on|off", "on", "on: `cleave stat` is answered, to the same user; off: it is not")  \
	X(PRELOAD, metrics, metrics, FILE_NAME, "", "",                                                                     \
	  "name of a file that is written again and again for Prometheus (textfile collector); %p in it is the\n"         \
	  "process id, %r the rank")                                                                                   \
	X(PRELOAD, metrics_interval, metrics_ms, SECONDS, "", "15", "seconds between two writings of `metrics`")

enum clv_setting_reader {
	CLV_READER_HEAP,
	CLV_READER_PRELOAD,
};

/* Starts from the defaults. false with the reason: an unknown key, a bad value, or a key that only the preload library
 * reads. The text is NULL or ends in 0. */
bool clv_settings_parse(struct clv_settings *s, const char *text, struct clv_error *err);

/* For a program, which no setting may stop: starts from the defaults and takes the keys of both readers. What is unknown or
 * bad is skipped, after warn(arg, sentence) if `warn` is given; all else holds. */
void clv_settings_parse_lenient(struct clv_settings *s, const char *text, void (*warn)(void *arg, const char *sentence),
				void *arg);

/* What differs from the defaults, as it is parsed: "key:value,...", "" if nothing does. Returns the length as snprintf does. */
size_t clv_settings_print(const struct clv_settings *s, char *buf, size_t len);

/* The table as text, for `cleave help settings`. */
struct clv_setting {
	enum clv_setting_reader reader;
	const char *key;
	const char *kind;    /* "CHOICE", "SIZE", "BOOL", "RESERVATION", "FILE_NAME", "SECONDS" or "WORD" */
	const char *words;   /* of a CHOICE or BOOL, with '|' between; else "" */
	const char *initial; /* the default; "" of what is absent then: a WORD, a RESERVATION, a FILE_NAME */
	const char *help;    /* lines end in \n but the last */
};
const struct clv_setting *clv_settings_table(size_t *count);

#endif
