/* SPDX-License-Identifier: MIT */
#include "cli.h"

int clv_cmd_bench(int argc, char **argv)
{
	return clv_cli_refuse("bench", "not built yet");
}
