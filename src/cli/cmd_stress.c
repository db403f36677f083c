/* SPDX-License-Identifier: MIT */
#include "cli.h"

int clv_cmd_stress(int argc, char **argv)
{
	return clv_cli_refuse("stress", "not built yet");
}
