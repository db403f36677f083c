/* SPDX-License-Identifier: MIT */
#include "args.h"
#include "cli.h"

#include "../heap/settings.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static void print_overview(void)
{
	printf("cleave: a GPU memory allocator that does not run out of memory because memory is cut up.\n\n"
	       "Usage: cleave COMMAND [ARGUMENT]...\n\nCommands:\n");
	for (size_t i = 0; i < clv_command_count; i++)
		printf("  %-10s%s\n", clv_commands[i].name, clv_commands[i].summary);
	printf("\n`cleave help COMMAND` explains a command, `cleave help settings` lists the settings of the library.\n"
	       "\nExit status:\n");
#define X(name, status, text) printf("  %-3d  %s\n", status, text);
	CLV_EXITS(X)
#undef X
}

static const char *const readers[] = {[CLV_READER_HEAP] = "heap", [CLV_READER_PRELOAD] = "preload"};

/* The settings of one reader. Further lines of an explanation stand under the first. */
static void print_group(enum clv_setting_reader reader, const char *title)
{
	size_t count;
	const struct clv_setting *table = clv_settings_table(&count);
	printf("\n%s\n", title);
	for (size_t i = 0; i < count; i++) {
		if (table[i].reader != reader)
			continue;
		printf("  %-18s", table[i].key);
		for (const char *c = table[i].help; *c; c++)
			if (*c == '\n')
				printf("\n%20s", "");
			else
				putchar(*c);
		if (table[i].initial[0])
			printf(" (default: %s)", table[i].initial);
		putchar('\n');
	}
}

static int print_settings(bool as_json)
{
	size_t count;
	const struct clv_setting *table = clv_settings_table(&count);
	if (!as_json) {
		printf("CLEAVE_CONF=key:value,... for a program, `--policy cleave:key:value,...` for a replay.\n");
		print_group(CLV_READER_HEAP, "Of the heap, for programs and replays:");
		print_group(CLV_READER_PRELOAD, "Of a program that runs under Cleave (`cleave run`), not for replays:");
		return CLV_EXIT_DONE;
	}
	json_t *list = json_array();
	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, json_pack("{s:s,s:s,s:s,s:s,s:s}", "key", table[i].key, "reader",
						      readers[table[i].reader], "kind", table[i].kind, "default",
						      table[i].initial, "help", table[i].help));
	json_t *document = json_pack("{s:o}", "settings", list);
	if (!document)
		return clv_cli_refuse("help", "out of host memory");
	/* Whether it could be written is main()'s question. */
	json_dumpf(document, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(document);
	return CLV_EXIT_DONE;
}

int clv_cmd_help(int argc, char **argv)
{
	bool json = false;
	const struct clv_arg options[] = {{.name = "json",
					   .kind = CLV_ARG_FLAG,
					   .into = &json,
					   .help = "of `settings`: print one JSON document"}};
	const struct clv_args args = {.command = "help",
				      .operands = "[COMMAND|settings]",
				      .about = "Explains a command, or lists the settings of the library.",
				      .options = options,
				      .option_count = CLV_ARRAY_LEN(options),
				      .operands_max = 1};
	int first;
	int status = clv_args_parse(&args, argc, argv, &first);
	if (status >= 0)
		return status;
	const char *topic = first < argc ? argv[first] : NULL;
	if (topic && strcmp(topic, "settings") == 0)
		return print_settings(json);
	if (json)
		return clv_cli_refuse("help", "--json goes with `settings` only");
	if (!topic) {
		print_overview();
		return CLV_EXIT_DONE;
	}
	const struct clv_command *command = clv_command_find(topic);
	if (!command)
		return clv_cli_refuse("help", "there is no command '%s'; `cleave help` lists the commands", topic);
	char name[32], help[] = "--help";
	snprintf(name, sizeof(name), "%s", command->name);
	char *help_argv[] = {name, help, NULL};
	return command->run(2, help_argv);
}

int clv_cmd_version(int argc, char **argv)
{
	const struct clv_args args = {.command = "version", .operands = "", .about = "Prints the version."};
	int first;
	int status = clv_args_parse(&args, argc, argv, &first);
	if (status >= 0)
		return status;
	printf("cleave %s\n", CLV_VERSION);
	return CLV_EXIT_DONE;
}
