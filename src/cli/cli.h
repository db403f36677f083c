/* SPDX-License-Identifier: MIT
 *
 * cli: the commands of `cleave`. One process, one command, one thread; no state but the tables.
 *
 * A command gets argv with its own name in argv[0], prints its answer on stdout and everything else on stderr, and
 * returns an exit status of exit.h. Whether stdout could be written is checked by main() once, after the command.
 */
#ifndef CLV_CLI_H
#define CLV_CLI_H

#include "../base/base.h"
#include "exit.h"

struct clv_command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary; /* half a line for `cleave help` */
};

extern const struct clv_command clv_commands[];
extern const size_t clv_command_count;

/* NULL if there is none of this name. */
const struct clv_command *clv_command_find(const char *name);

int clv_cmd_run(int argc, char **argv);
int clv_cmd_replay(int argc, char **argv);
int clv_cmd_convert(int argc, char **argv);
int clv_cmd_stat(int argc, char **argv);
int clv_cmd_plan(int argc, char **argv);
int clv_cmd_pack(int argc, char **argv);
int clv_cmd_stress(int argc, char **argv);
int clv_cmd_bench(int argc, char **argv);
int clv_cmd_help(int argc, char **argv);
int clv_cmd_version(int argc, char **argv);

/* One sentence on stderr, "cleave COMMAND: ..."; returns CLV_EXIT_USAGE. `command` NULL: of the command line itself. */
int clv_cli_refuse(const char *command, const char *fmt, ...) CLV_PRINTF(2, 3);

/* Undoes what main() did to signals, for a program that takes the place of this one. */
void clv_cli_restore_signals(void);

#endif
