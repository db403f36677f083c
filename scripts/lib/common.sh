# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# What every script here shares. The script that sources this file has set `root`, the absolute path of the tree.

# Progress and complaints go to stderr: stdout belongs to results.
say() {
	printf '%s\n' "$*" >&2
}

# Exit status 2: the script was called wrongly, or cannot do its work here.
die() {
	say "$(basename -- "$0"): $*"
	exit 2
}

# have NAME: is it a program that can be run?
have() {
	command -v -- "$1" >/dev/null 2>&1
}

# usage: prints the comment that opens the calling script, from its synopsis on.
usage() {
	sed -n '/^# scripts/,/^[^#]/{ /^#/!d; s/^# \{0,1\}//; p; }' "$0"
}

# quietly LOG COMMAND...: runs a command with its output in LOG, which is shown only if the command fails.
quietly() {
	local log=$1 status=0
	shift
	"$@" >"$log" 2>&1 </dev/null || status=$?
	if [ "$status" -ne 0 ]; then
		cat -- "$log" >&2
	fi
	return "$status"
}
