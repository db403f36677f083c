/* SPDX-License-Identifier: MIT */
#include "args.h"
#include "cli.h"

#include "../heap/settings.h"

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
#define X(name, status, text) printf("  %d  %s\n", status, text);
	CLV_EXITS(X)
#undef X
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
	if (topic && strcmp(topic, "settings") == 0) {
		if (json)
			clv_settings_print_json(stdout);
		else
			clv_settings_print(stdout);
		return CLV_EXIT_DONE;
	}
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
