/* SPDX-License-Identifier: MIT */
#include "cli.h"

int clv_cmd_convert(int argc, char **argv)
{
	return clv_cli_refuse("convert", "not built yet");
}
