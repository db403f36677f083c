/* SPDX-License-Identifier: MIT
 *
 * run_command: which file a command is, and whether the program in it can load the preload library. Owns no state.
 */
#ifndef CLV_RUN_COMMAND_H
#define CLV_RUN_COMMAND_H

#include "../base/base.h"
#include "../base/error.h"

#include <limits.h>

/* The file that execvp would execute, with a slash in it. 0, or an exit status of exit.h with the reason. */
int clv_run_find(const char *command, char path[PATH_MAX], struct clv_error *why);

/* Whether the program in that file can load `library` when LD_PRELOAD is `preload`, in which the library is. A script is
 * followed to its interpreter, `env` to the program which it starts; the loader of the program is asked, but nothing of
 * the program is executed. false with the reason. */
bool clv_run_loads(const char *path, const char *library, const char *preload, struct clv_error *why);

/* Executes the file in place of this process, as execvp would: a text without #! goes to the shell. Returns only with the
 * error if that fails. */
int clv_run_execute(const char *path, char **argv);

#endif
