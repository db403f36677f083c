#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# emulated.sh PRELOAD FOLDER
#
# The preload library of another architecture under its programs, in an emulator: a program without CUDA prints the same
# with it and without. LD_PRELOAD is set for the emulated program, not for the emulator; the programs of this machine that
# it starts cannot load the library, and say so on stderr.
set -euo pipefail
preload=$1 folder=$2 other=$2/libother.so
eval "emulator=($MESON_EXE_WRAPPER)" # Meson quotes it for a shell

fail() {
	printf '%s\n' "$*" >&2
	exit 1
}

# run PROGRAM ARGUMENT...: with the libraries in `with`; stdout, then the exit status
with=
run() {
	local status=0
	# Empty, LD_PRELOAD is as if unset.
	"${emulator[@]}" -E "LD_PRELOAD=$with" "$@" || status=$?
	printf 'exit status %d\n' "$status"
}

# All that follows would hold as well if nothing were preloaded.
maps=$("${emulator[@]}" -strace -E "LD_PRELOAD=$preload" "$folder/quiet" 2>&1 >/dev/null) || true
grep -F -- "\"$preload\"" <<<"$maps" | grep -q -v 'errno=' || fail "the library is not loaded"

for name in quiet quiet-throw; do
	arguments=()
	if [ "$name" = quiet ]; then
		arguments=("$folder/libquiet-chain1.so")
	fi
	if [ ! -x "$folder/$name" ]; then
		continue # no C++ compiler
	fi
	# alone, and beside another library that replaces dlsym (and thereby breaks RTLD_NEXT for others, also without us)
	for beside in '' "$other"; do
		with=$beside
		plain=$(run "$folder/$name" "${arguments[@]}")
		for with in "$preload${beside:+:$beside}" "${beside:+$beside:}$preload"; do
			same=$(run "$folder/$name" "${arguments[@]}")
			[ "$same" = "$plain" ] || fail "$name with $with prints
$same
and without us
$plain"
		done
		if [ "$name" = quiet ] && [ -z "$beside" ]; then
			# RTLD_NEXT, RTLD_DEFAULT and handles through the stub of dlsym
			for line in 'chain: 21' 'default cuMemAlloc_v2: none' "function of a driver's name: 41" 'exit status 5'; do
				grep -q -F -- "$line" <<<"$plain" || fail "no line '$line' in
$plain"
			done
		fi
	done
	printf '%s\n' "$plain"
done
