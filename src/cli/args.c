/* SPDX-License-Identifier: MIT */
#include "args.h"

#include "../base/size_text.h"
#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS_MAX 32

/* getopt_long answers a long option with this plus its index, out of the way of every short one. */
#define LONG_BASE 256
#define HELP (LONG_BASE + OPTIONS_MAX)

/* " TRACE [OPTION]...", or " [OPTION]... -- COMMAND": what follows the name of the command. */
static const char *usage(const struct clv_args *a, char *buf, size_t len)
{
	const char *options = a->option_count ? " [OPTION]..." : "";
	snprintf(buf, len, "%s%s%s%s", a->command_follows ? options : "", a->operands[0] ? " " : "", a->operands,
		 a->command_follows ? "" : options);
	return buf;
}

static void print_help(const struct clv_args *a)
{
	char after[128];
	printf("Usage: cleave %s%s\n\n%s\n", a->command, usage(a, after, sizeof(after)), a->about);
	if (a->option_count)
		printf("\nOptions:\n");
	for (size_t i = 0; i < a->option_count; i++) {
		const struct clv_arg *o = &a->options[i];
		char left[64];
		if (!o->help)
			continue;
		int n = o->letter ? snprintf(left, sizeof(left), "-%c, --%s", o->letter, o->name)
				  : snprintf(left, sizeof(left), "--%s", o->name);
		if (o->value)
			snprintf(left + n, sizeof(left) - (size_t)n, " %s", o->value);
		printf("  %-20s", left);
		if (strlen(left) > 20)
			printf("\n%22s", "");
		for (const char *line = o->help; line;) {
			const char *end = strchr(line, '\n');
			printf("%s%.*s\n", line == o->help ? "  " : "                        ",
			       end ? (int)(end - line) : (int)strlen(line), line);
			line = end ? end + 1 : NULL;
		}
	}
}

/* `large`: it is a whole number, but 64 bits do not hold it. */
static bool number_parse(const char *text, uint64_t *out, bool *large)
{
	size_t digits = strspn(text, "0123456789");
	*large = false;
	if (!digits || text[digits])
		return false;
	errno = 0;
	*out = strtoull(text, NULL, 10);
	*large = errno == ERANGE;
	return !*large;
}

/* No sign, exponent, or name of a number that is none: what strtod() takes beyond "12.5" is not meant. */
static bool seconds_parse(const char *text, double *out)
{
	size_t digits = strspn(text, "0123456789"), end = digits;
	if (text[end] == '.') {
		size_t fraction = strspn(text + end + 1, "0123456789");
		digits += fraction;
		end += 1 + fraction;
	}
	*out = strtod(text, NULL);
	return digits && !text[end];
}

/* Returns -1, or the exit status of a refusal. */
static int take(const struct clv_args *a, const struct clv_arg *o, const char *value)
{
	uint64_t max = o->max ? o->max : UINT64_MAX, number = 0;
	bool large;
	if (o->given)
		*o->given = true;
	switch (o->kind) {
	case CLV_ARG_FLAG:
		*(bool *)o->into = true;
		break;
	case CLV_ARG_TEXT:
		if (!value[0])
			return clv_cli_refuse(a->command, "option --%s needs a value that is not empty", o->name);
		*(const char **)o->into = value;
		break;
	case CLV_ARG_TEXTS: {
		struct clv_arg_texts *texts = o->into;
		if (!value[0])
			return clv_cli_refuse(a->command, "option --%s needs a value that is not empty", o->name);
		if (texts->count == CLV_ARG_TEXTS_MAX)
			return clv_cli_refuse(a->command, "option --%s can be given %d times at most", o->name,
					      CLV_ARG_TEXTS_MAX);
		texts->items[texts->count++] = value;
		break;
	}
	case CLV_ARG_SIZE:
		if (clv_size_too_large(value))
			return clv_cli_refuse(a->command, "option --%s: %s is too large: sizes go to %" PRIu64, o->name,
					      value, UINT64_MAX);
		if (!clv_size_parse(value, &number))
			return clv_cli_refuse(
				a->command, "option --%s: '%s' is no size; sizes are written like 123, 20MiB or 1.5GiB, in powers of 1024",
				o->name, value);
		if (number == 0 && !o->zero)
			return clv_cli_refuse(a->command, "option --%s: a size of 0 makes no sense", o->name);
		*(uint64_t *)o->into = number;
		break;
	case CLV_ARG_NUMBER:
		if (!number_parse(value, &number, &large) && !large)
			return clv_cli_refuse(a->command, "option --%s: '%s' is no whole number", o->name, value);
		if (large)
			return clv_cli_refuse(a->command,
					      "option --%s: %s is too large: %" PRIu64 " to %" PRIu64 " are allowed",
					      o->name, value, o->min, max);
		if (number < o->min || number > max)
			return clv_cli_refuse(a->command,
					      "option --%s: %s is out of range: %" PRIu64 " to %" PRIu64 " are allowed",
					      o->name, value, o->min, max);
		*(uint64_t *)o->into = number;
		break;
	case CLV_ARG_SECONDS: {
		double seconds;
		if (!seconds_parse(value, &seconds))
			return clv_cli_refuse(a->command, "option --%s: '%s' is no number of seconds, such as 10 or 0.5",
					      o->name, value);
		if (!(seconds > 0 && seconds <= CLV_ARG_SECONDS_MAX))
			return clv_cli_refuse(a->command, "option --%s: %s is out of range: above 0, to %.0f are allowed",
					      o->name, value, CLV_ARG_SECONDS_MAX);
		*(double *)o->into = seconds;
		break;
	}
	}
	return -1;
}

/* What getopt did not like: `text` is the argument, `known` the option it belongs to if it is one of ours. */
static int refuse_option(const struct clv_args *a, const struct clv_arg *known, const char *text, int letter)
{
	if (known)
		return clv_cli_refuse(a->command, "option --%s takes no value", known->name);
	if (letter)
		return clv_cli_refuse(a->command, "unknown option '-%c'; `cleave help %s` lists the options", letter,
				      a->command);
	return clv_cli_refuse(a->command, "unknown option '%s'; `cleave help %s` lists the options", text, a->command);
}

static const struct clv_arg *option_of(const struct clv_args *a, int code)
{
	if (code >= LONG_BASE && code < LONG_BASE + (int)a->option_count)
		return &a->options[code - LONG_BASE];
	for (size_t i = 0; code > 0 && i < a->option_count; i++)
		if (a->options[i].letter == code)
			return &a->options[i];
	return NULL;
}

static int parse_options(const struct clv_args *a, int argc, char **argv)
{
	struct option longs[OPTIONS_MAX + 2] = {{0}};
	/* Without '+' operands may stand between options; ':' tells a missing value from an unknown option. */
	char shorts[2 * OPTIONS_MAX + 4] = "+:h", *s = shorts + 3;
	for (size_t i = 0; i < a->option_count; i++) {
		const struct clv_arg *o = &a->options[i];
		longs[i] = (struct option){o->name, o->kind == CLV_ARG_FLAG ? no_argument : required_argument, NULL,
					   LONG_BASE + (int)i};
		if (o->letter) {
			*s++ = o->letter;
			if (o->kind != CLV_ARG_FLAG)
				*s++ = ':';
		}
	}
	longs[a->option_count] = (struct option){"help", no_argument, NULL, HELP};

	opterr = 0;
	optind = 0; /* glibc: start anew */
	for (;;) {
		int code = getopt_long(argc, argv, shorts + !a->command_follows, longs, NULL);
		if (code == -1)
			return -1;
		if (code == 'h' || code == HELP) {
			print_help(a);
			return CLV_EXIT_DONE;
		}
		if (code == ':') {
			const struct clv_arg *o = option_of(a, optopt);
			return clv_cli_refuse(a->command, "option --%s needs a value%s%s", o ? o->name : "?",
					      o && o->value ? ": " : "", o && o->value ? o->value : "");
		}
		if (code == '?') {
			/* optopt: 0 for an unknown long option, a letter for a short one, else the code of a flag that
			 * was given a value */
			bool letter = optopt > 0 && optopt < LONG_BASE;
			return refuse_option(a, letter ? NULL : option_of(a, optopt), argv[optind - 1],
					     letter ? optopt : 0);
		}
		int status = take(a, option_of(a, code), optarg);
		if (status >= 0)
			return status;
	}
}

int clv_args_parse(const struct clv_args *args, int argc, char **argv, int *first)
{
	if (args->option_count > OPTIONS_MAX)
		return clv_cli_refuse(args->command, "more options than the parser holds");
	int status = parse_options(args, argc, argv);
	if (status >= 0)
		return status;
	size_t count = (size_t)(argc - optind);
	char line[128];
	if (count < args->operands_min)
		return clv_cli_refuse(args->command, "%s is missing; usage: cleave %s%s",
				      args->command_follows ? "COMMAND" : args->operands, args->command,
				      usage(args, line, sizeof(line)));
	if (count > args->operands_max)
		return clv_cli_refuse(args->command, "'%s' is one argument too many; usage: cleave %s%s",
				      argv[optind + (int)args->operands_max], args->command,
				      usage(args, line, sizeof(line)));
	*first = optind;
	return -1;
}
