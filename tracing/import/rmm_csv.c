/* SPDX-License-Identifier: MIT
 *
 * Reads the CSV logs of RMM's logging_resource_adaptor: a header that names the columns, in any order, then one line
 * an action. What a log does not say: a device (0 is taken), and when memory is complete for other streams, so a
 * `free` is a FREE_COMPLETED on its stream. `allocate failure` is an OOM.
 */
#include "import.h"

#include "../link.h"
#include "../memory.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MAX_COLUMNS 64
#define MAX_LINE ((size_t)1 << 20) /* what has a longer line is no log: it need not be read to its end */
#define DAY_US ((uint64_t)86400 * 1000000)
#define SLOW_US ((uint64_t)60 * 1000000) /* a thread is not this late */

enum column { COL_TIME, COL_ACTION, COL_POINTER, COL_SIZE, COL_STREAM, COL_COUNT };

struct cell {
	const char *text;
	size_t len;
};

struct log {
	const struct clv_input *in;
	struct clv_error *err;
	struct clv_trace *trace;
	struct clv_history *history;
	size_t event_cap;
	size_t pos, line_at; /* where reading goes on; where the line began */
	uint64_t line;       /* from 1 */
	bool complete;       /* the line ended in a newline */
	bool no_memory;      /* out of host memory */
	bool too_long;       /* a line of more than MAX_LINE bytes: nothing is read beyond */
	struct cell header;
	int place[COL_COUNT]; /* column in the file, or -1 */
	int cells_needed;
	uint64_t day, last_time; /* of times without a date */
	uint32_t seek;           /* second reading: the event whose line is wanted */
};

static bool refuse(struct log *l, const char *what, struct cell value)
{
	char text[48];
	size_t n = clv_min_u64(value.len, sizeof(text) - 1);
	for (size_t i = 0; i < n; i++)
		text[i] = value.text[i] >= ' ' && value.text[i] < 127 ? value.text[i] : '?';
	text[n] = '\0';
	return clv_error_at(l->err, l->in->name, l->line_at, "line %llu: %s%s%s%s", (unsigned long long)l->line, what,
			    value.text ? ": '" : "", text, value.text ? "'" : "");
}

static bool no_memory(struct log *l)
{
	l->no_memory = true;
	return clv_error_set(l->err, "%s: out of host memory", l->in->name);
}

static struct cell trim(const char *from, const char *to)
{
	while (from < to && (*from == ' ' || *from == '\t'))
		from++;
	while (from < to && (to[-1] == ' ' || to[-1] == '\t' || to[-1] == '\r'))
		to--;
	return (struct cell){from, (size_t)(to - from)};
}

static bool is(struct cell c, const char *text)
{
	return c.len == strlen(text) && strncasecmp(c.text, text, c.len) == 0;
}

/* The next line that is not blank. false at the end, and at a line that is too long. */
static bool next_line(struct log *l, struct cell *line)
{
	while (l->pos < l->in->size) {
		const char *from = (const char *)l->in->data + l->pos;
		size_t left = l->in->size - l->pos;
		const char *end = memchr(from, '\n', clv_min_u64(left, MAX_LINE + 1));
		l->complete = end != NULL;
		l->line_at = l->pos;
		l->line++;
		l->too_long = !end && left > MAX_LINE;
		if (l->too_long)
			return false;
		if (!end)
			end = from + left;
		l->pos += (size_t)(end - from) + (l->complete ? 1 : 0);
		*line = trim(from, end);
		if (line->len)
			return true;
	}
	return false;
}

/* Cuts a line at its commas; returns the number of cells, at most `max` of which are stored. */
static int split(struct cell line, struct cell *cells, int max)
{
	const char *from = line.text, *end = line.text + line.len;
	for (int n = 0;; n++) {
		const char *comma = memchr(from, ',', (size_t)(end - from));
		if (n < max)
			cells[n] = trim(from, comma ? comma : end);
		if (!comma)
			return n + 1;
		from = comma + 1;
	}
}

static bool read_header(struct log *l)
{
	static const char *const names[COL_COUNT] = {"time", "action", "pointer", "size", "stream"};
	struct cell cells[MAX_COLUMNS];
	if (l->in->size >= 3 && memcmp(l->in->data, "\xef\xbb\xbf", 3) == 0)
		l->pos = 3; /* a byte order mark */
	for (int c = 0; c < COL_COUNT; c++)
		l->place[c] = -1;
	bool found = next_line(l, &l->header);
	int n = found ? split(l->header, cells, MAX_COLUMNS) : 0;
	for (int i = 0; i < n && i < MAX_COLUMNS; i++)
		for (int c = 0; c < COL_COUNT; c++)
			if (l->place[c] < 0 && is(cells[i], names[c])) {
				l->place[c] = i;
				if (c != COL_TIME && c != COL_STREAM && i >= l->cells_needed)
					l->cells_needed = i + 1;
			}
	if (l->place[COL_ACTION] < 0 && l->place[COL_POINTER] < 0)
		return clv_error_at(
			l->err, l->in->name, 0,
			"not a known trace: neither a PyTorch snapshot pickle, nor a .clv file, nor an RMM CSV log, whose "
			"first line is Thread,Time,Action,Pointer,Size,Stream");
	for (int c = 0; c < COL_COUNT; c++)
		if (l->place[c] < 0 && c != COL_TIME && c != COL_STREAM)
			return refuse(l, "the header of this log has no such column",
				      (struct cell){names[c], strlen(names[c])});
	return true;
}

/* Digits of a base into a number of 64 bits; the whole cell must be digits, and at least one. */
static bool parse_digits(struct cell c, unsigned base, uint64_t *out)
{
	uint64_t v = 0;
	for (size_t i = 0; i < c.len; i++) {
		char ch = c.text[i];
		unsigned d = ch >= '0' && ch <= '9'   ? (unsigned)(ch - '0')
			     : ch >= 'a' && ch <= 'f' ? (unsigned)(ch - 'a') + 10
			     : ch >= 'A' && ch <= 'F' ? (unsigned)(ch - 'A') + 10
						      : 99;
		if (d >= base || __builtin_mul_overflow(v, (uint64_t)base, &v) ||
		    __builtin_add_overflow(v, (uint64_t)d, &v))
			return false;
	}
	*out = v;
	return c.len > 0;
}

/* "0x7f...", "(nil)", "nullptr", "0" or nothing. */
static bool parse_pointer(struct cell c, uint64_t *out)
{
	*out = 0;
	if (c.len == 0 || is(c, "(nil)") || is(c, "nullptr") || is(c, "0"))
		return true;
	return c.len > 2 && c.text[0] == '0' && (c.text[1] == 'x' || c.text[1] == 'X') &&
	       parse_digits((struct cell){c.text + 2, c.len - 2}, 16, out);
}

/* A stream is logged as a pointer or as a number. */
static bool parse_stream(struct cell c, uint64_t *out)
{
	return parse_pointer(c, out) || parse_digits(c, 10, out);
}

/* Takes digits off the front: at least `min`, at most `max` of them. */
static bool take_digits(struct cell *c, size_t min, size_t max, uint64_t *out)
{
	size_t n = 0;
	*out = 0;
	for (; n < c->len && n < max && c->text[n] >= '0' && c->text[n] <= '9'; n++)
		*out = *out * 10 + (uint64_t)(c->text[n] - '0');
	c->text += n;
	c->len -= n;
	return n >= min;
}

static bool take_char(struct cell *c, const char *any)
{
	if (!c->len || !c->text[0] || !strchr(any, c->text[0]))
		return false;
	c->text++;
	c->len--;
	return true;
}

/* Days since 1970-01-01 in the Gregorian calendar. Source: Howard Hinnant, "chrono-Compatible Low-Level Date
 * Algorithms". */
static int64_t days_from_civil(int64_t y, int64_t m, int64_t d)
{
	y -= m <= 2;
	int64_t era = y / 400, yoe = y - era * 400;
	int64_t doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
	return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

/* "[YYYY-MM-DD ]HH:MM:SS[.fraction]" in microseconds since some midnight. Times without a date go on after midnight. */
static bool parse_time(struct log *l, struct cell c, uint64_t *out)
{
	uint64_t year, month, day, h, m, s, us = 0, date = 0;
	bool dated = c.len > 4 && (c.text[4] == '-' || c.text[4] == '/');
	*out = l->last_time;
	if (c.len == 0)
		return true;
	if (dated) {
		if (!take_digits(&c, 4, 4, &year) || !take_char(&c, "-/") || !take_digits(&c, 1, 2, &month) ||
		    !take_char(&c, "-/") || !take_digits(&c, 1, 2, &day) || !take_char(&c, " T") || year < 1970 ||
		    month < 1 || month > 12 || day < 1 || day > 31)
			return false;
		date = (uint64_t)days_from_civil((int64_t)year, (int64_t)month, (int64_t)day) * DAY_US;
	}
	if (!take_digits(&c, 1, 2, &h) || !take_char(&c, ":") || !take_digits(&c, 2, 2, &m) || !take_char(&c, ":") ||
	    !take_digits(&c, 2, 2, &s) || h > 23 || m > 59 || s > 60)
		return false;
	if (take_char(&c, ".:")) {
		uint64_t scale = 100000;
		if (!c.len)
			return false;
		for (; c.len && c.text[0] >= '0' && c.text[0] <= '9'; c.text++, c.len--, scale /= 10)
			us += (uint64_t)(c.text[0] - '0') * scale;
	}
	take_char(&c, "Z");
	if (c.len)
		return false;
	uint64_t t = ((h * 60 + m) * 60 + s) * 1000000 + us;
	if (!dated) {
		/* Lines of several threads may be a little out of order; more than half a day back is the next day,
		 * and a line from just before midnight may come after it. */
		t += l->day;
		if (t + DAY_US / 2 < l->last_time) {
			l->day += DAY_US;
			t += DAY_US;
		} else if (l->day && t > l->last_time + DAY_US / 2 && t - DAY_US + SLOW_US > l->last_time) {
			t -= DAY_US;
		}
	}
	*out = date + t;
	l->last_time = *out;
	return true;
}

static struct cell cell_at(const struct log *l, const struct cell *cells, int count, enum column c)
{
	return l->place[c] >= 0 && l->place[c] < count ? cells[l->place[c]] : (struct cell){NULL, 0};
}

static bool add_event(struct log *l, struct clv_event_record e, uint64_t stream)
{
	struct clv_history *h = l->history;
	if (h->event_count >= UINT32_MAX - 1)
		return refuse(l, "more events than can be counted", (struct cell){NULL, 0});
	if (!clv_mem_reserve(&h->events, &l->event_cap, h->event_count + 1u, sizeof(*h->events)))
		return no_memory(l);
	e.block = CLV_NO_BLOCK;
	e.stream = clv_trace_stream(l->trace, stream);
	if (e.stream == UINT32_MAX)
		return no_memory(l);
	h->events[h->event_count++] = e;
	return true;
}

static bool read_row(struct log *l, struct cell line)
{
	struct cell cells[MAX_COLUMNS];
	struct clv_event_record e = {0};
	uint64_t stream;
	int count = split(line, cells, MAX_COLUMNS);
	if (count < l->cells_needed)
		return refuse(l, "too few columns", line);
	struct cell action = cell_at(l, cells, count, COL_ACTION), pointer = cell_at(l, cells, count, COL_POINTER);
	struct cell size = cell_at(l, cells, count, COL_SIZE);
	if (is(action, "allocate"))
		e.action = CLV_ACTION_ALLOC;
	else if (is(action, "free"))
		e.action = CLV_ACTION_FREE_COMPLETED;
	else if (is(action, "allocate failure"))
		e.action = CLV_ACTION_OOM;
	else
		return refuse(l, "an unknown action", action);
	if (!parse_pointer(pointer, &e.addr) || e.addr > INT64_MAX)
		return refuse(l, "no pointer", pointer);
	if (!parse_digits(size, 10, &e.size))
		return refuse(l, "no size", size);
	if (e.size > INT64_MAX || e.addr + e.size > INT64_MAX)
		return refuse(l, "a size that no device has", size);
	if (!parse_stream(cell_at(l, cells, count, COL_STREAM), &stream))
		return refuse(l, "no stream", cell_at(l, cells, count, COL_STREAM));
	if (!parse_time(l, cell_at(l, cells, count, COL_TIME), &e.time_us))
		return refuse(l, "no time", cell_at(l, cells, count, COL_TIME));
	if (e.action == CLV_ACTION_ALLOC && e.addr == 0 && e.size)
		return refuse(l, "an allocation without a pointer", pointer);
	if (e.action == CLV_ACTION_FREE_COMPLETED && e.addr == 0)
		return true; /* freeing nothing */
	if (e.action == CLV_ACTION_OOM)
		e.addr = 0; /* what the device had free was not logged */
	return add_event(l, e, stream);
}

static bool read_log(struct log *l)
{
	struct cell line, header;
	size_t released = 0;
	if (!read_header(l))
		return false;
	header = l->header;
	while (next_line(l, &line)) {
		if (line.len == header.len && memcmp(line.text, header.text, line.len) == 0)
			continue; /* logs that were put together */
		struct clv_error err, *outer = l->err;
		err.text[0] = '\0'; /* and no more of it: there may be millions of lines */
		uint32_t before = l->history->event_count;
		l->err = &err;
		bool ok = read_row(l, line);
		l->err = outer;
		if (ok && before == l->seek && l->history->event_count > before)
			return true;
		clv_input_release(l->in, l->line_at, &released);
		if (ok)
			continue;
		/* A process that was killed leaves half a line. */
		if (l->complete || l->no_memory || before == 0)
			return clv_error_set(l->err, "%s", err.text);
		char text[96];
		int n = snprintf(text, sizeof(text), "the last line, %llu, is not complete and was left out",
				 (unsigned long long)l->line);
		l->trace->note = clv_mem_strndup(text, (size_t)n);
		return l->trace->note || no_memory(l);
	}
	return !l->too_long || refuse(l, "a line of more than 1 MiB", (struct cell){NULL, 0});
}

static bool log_init(struct log *l, const struct clv_input *in, struct clv_error *err)
{
	*l = (struct log){.in = in, .err = err, .seek = CLV_NO_EVENT};
	l->trace = clv_mem_zalloc(1, sizeof(*l->trace));
	if (!l->trace)
		return no_memory(l);
	l->trace->format = CLV_FORMAT_RMM;
	l->trace->torch.max_split_size = -1;
	l->trace->file = clv_mem_strndup(in->name, strlen(in->name));
	l->trace->torch.conf = clv_mem_strndup("", 0);
	l->trace->stacks = clv_mem_zalloc(1, sizeof(*l->trace->stacks));
	l->trace->histories = clv_mem_zalloc(1, sizeof(*l->trace->histories));
	if (!l->trace->file || !l->trace->torch.conf || !l->trace->stacks || !l->trace->histories)
		return no_memory(l);
	l->trace->stack_count = 1;
	l->trace->history_count = 1;
	l->history = l->trace->histories;
	return true;
}

/* Reads the log again up to the event that contradicts what was before, to say where it is. */
static void refuse_event(const struct clv_input *in, uint32_t event, const char *why, struct clv_error *err)
{
	struct log l;
	if (log_init(&l, in, err)) {
		l.seek = event;
		if (read_log(&l))
			clv_error_at(err, in->name, l.line_at, "line %llu: %s", (unsigned long long)l.line, why);
	}
	clv_trace_free(l.trace);
}

struct clv_trace *clv_import_rmm(const struct clv_input *in, struct clv_error *err)
{
	struct log l;
	struct clv_error why = {{0}};
	uint32_t event = CLV_NO_EVENT;
	bool ok = log_init(&l, in, err) && read_log(&l);
	if (ok && l.history->event_count == 0) {
		l.trace->history_count = 0; /* an empty history owns nothing */
		return l.trace;
	}
	if (ok && !clv_history_link_at(l.trace, l.history, &event, &why)) {
		ok = false;
		if (event == CLV_NO_EVENT)
			clv_error_set(err, "%s", why.text);
	}
	if (ok)
		return l.trace;
	clv_trace_free(l.trace);
	if (event != CLV_NO_EVENT)
		refuse_event(in, event, why.text, err);
	return NULL;
}
