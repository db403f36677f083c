/* SPDX-License-Identifier: MIT
 *
 * args: the one parser of options, and the help that is printed from the same table. Owns no state between calls; one
 * thread (getopt's globals are used).
 */
#ifndef CLV_ARGS_H
#define CLV_ARGS_H

#include "../base/base.h"

/* What an option's value is, and the type that `into` points to. */
enum clv_arg_kind {
	CLV_ARG_FLAG,    /* bool; takes no value */
	CLV_ARG_TEXT,    /* const char *, not empty */
	CLV_ARG_TEXTS,   /* struct clv_arg_texts: may be given several times */
	CLV_ARG_SIZE,    /* uint64_t: bytes, as people write them; not 0, unless with `zero` */
	CLV_ARG_NUMBER,  /* uint64_t: digits, min <= value <= max */
	CLV_ARG_SECONDS, /* double: decimal digits, with a fraction or without; above 0, at most CLV_ARG_SECONDS_MAX */
};

#define CLV_ARG_TEXTS_MAX 64
#define CLV_ARG_SECONDS_MAX 1e9

struct clv_arg_texts {
	const char *items[CLV_ARG_TEXTS_MAX];
	size_t count;
};

struct clv_arg {
	const char *name; /* without the dashes */
	char letter;      /* of a short form, or 0 */
	enum clv_arg_kind kind;
	void *into;        /* keeps its value, the default, if the option is not given */
	const char *value; /* "SIZE", for the help; NULL for a flag */
	const char *help;  /* lines end in \n but the last; NULL: not listed */
	uint64_t min, max; /* of a NUMBER; max 0: UINT64_MAX */
	bool *given;       /* may be NULL */
	bool zero;         /* of a SIZE: 0 makes sense */
};

struct clv_args {
	const char *command;
	const char *operands; /* "TRACE", for the usage line; "" if there are none */
	const char *about;    /* a paragraph for the help */
	const struct clv_arg *options;
	size_t option_count;
	size_t operands_min, operands_max;
	bool command_follows; /* the operands are a command with options of its own: ours end at the first operand */
};

/* Parses argv[1..]; `--help` and `-h` are understood everywhere. Returns -1 if the command shall go on, its operands
 * being argv[*first .. argc-1]; else the exit status, after a sentence on stderr or the help on stdout. Options and
 * operands may be mixed, so argv is reordered (not with `command_follows`). */
int clv_args_parse(const struct clv_args *args, int argc, char **argv, int *first);

#endif
