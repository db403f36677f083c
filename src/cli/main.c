/* SPDX-License-Identifier: MIT */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const struct clv_command clv_commands[] = {
	{"run", clv_cmd_run, "run a program with Cleave under it"},
	{"replay", clv_cmd_replay, "put a recorded history to allocators and compare them"},
	{"convert", clv_cmd_convert, "write a trace in another format"},
	{"stat", clv_cmd_stat, "show the heap of a running process"},
	{"plan", clv_cmd_plan, "say what a model's experts need before they are loaded"},
	{"pack", clv_cmd_pack, "give buffers with known lifetimes offsets in one region"},
	{"stress", clv_cmd_stress, "random work on the heap, every byte checked"},
	{"bench", clv_cmd_bench, "measure the speed of import, replay and heap"},
	{"help", clv_cmd_help, "explain a command, or the settings"},
	{"version", clv_cmd_version, "print the version"},
};
const size_t clv_command_count = CLV_ARRAY_LEN(clv_commands);

const struct clv_command *clv_command_find(const char *name)
{
	for (size_t i = 0; i < clv_command_count; i++)
		if (strcmp(clv_commands[i].name, name) == 0)
			return &clv_commands[i];
	return NULL;
}

int clv_cli_refuse(const char *command, const char *fmt, ...)
{
	fprintf(stderr, command ? "cleave %s: " : "cleave: ", command);
	va_list ap;
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return CLV_EXIT_USAGE;
}

static int run(int argc, char **argv)
{
	if (argc < 2)
		return clv_cli_refuse(NULL, "no command is given; `cleave help` lists the commands");
	const char *name = argv[1];
	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		name = "help";
	else if (strcmp(name, "--version") == 0)
		name = "version";
	const struct clv_command *command = clv_command_find(name);
	if (!command)
		return clv_cli_refuse(NULL, "unknown %s '%s'; `cleave help` lists the commands",
				      name[0] == '-' ? "option" : "command", name);
	return command->run(argc - 1, argv + 1);
}

/* A standard stream that the caller closed would give its number to the next file opened, and what is printed would
 * go into that file. Such a number is taken here, opened the wrong way round, so that using it fails as it should. */
static void hold_standard_streams(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) == -1 && errno == EBADF)
			(void)!open("/dev/null", (fd == 0 ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
}

/* A reader that goes away is a write error like a full disk, and is told in the same way; so is a file that may not grow
 * further. */
static const int ignored_signals[] = {SIGPIPE, SIGXFSZ};
static struct sigaction found_actions[CLV_ARRAY_LEN(ignored_signals)];

static void ignore_signals(void)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	for (size_t i = 0; i < CLV_ARRAY_LEN(ignored_signals); i++)
		sigaction(ignored_signals[i], &ignore, &found_actions[i]);
}

void clv_cli_restore_signals(void)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(ignored_signals); i++)
		sigaction(ignored_signals[i], &found_actions[i], NULL);
}

int main(int argc, char **argv)
{
	hold_standard_streams();
	ignore_signals();
	int status = run(argc, argv);
	errno = 0;
	bool bad = ferror(stdout) != 0;
	if (fclose(stdout) != 0 || bad)
		return clv_cli_refuse(NULL, "standard output: %s", errno ? strerror(errno) : "write error");
	return status;
}
