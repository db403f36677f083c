#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# test_driver_facts.sh PROGRAM LIBRARY RECORDED
#
# What the test double of libcuda.so.1 answers must be what a real driver answered, as recorded. Exits 0 if so, 1 with the
# differences ("-" real, "+" double), 77 if nothing is recorded.
set -euo pipefail

if [ ! -e "$3" ]; then
	echo "$3 is not there"
	exit 77
fi
# In a cross build Meson names the emulator, quoted for a shell.
emulator=()
eval "emulator=(${MESON_EXE_WRAPPER-})"
"${emulator[@]}" "$1" "$2" | diff -u -- "$3" -
