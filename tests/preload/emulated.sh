#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# emulated.sh PRELOAD FOLDER LIBCUDA_FOLDER
#
# The preload library of another architecture under its programs, in an emulator: those without CUDA print the same with it
# and without, and so do those with CUDA, over the test double of its library, whose memory is then Cleave's. LD_PRELOAD is
# set for the emulated program, not for the emulator; the programs of this machine that it starts cannot load the library,
# and say so on stderr.
set -euo pipefail
folder=$2 cuda=$3
# LD_PRELOAD cannot say a path with spaces.
links=$(mktemp -d)
trap 'rm -rf -- "$links"' EXIT
ln -s -- "$(realpath -- "$1")" "$folder/libother.so" "$links" # Meson names what it built from where it built
preload=$links/${1##*/} other=$links/libother.so
emulator=()
eval "emulator=($MESON_EXE_WRAPPER)" # Meson quotes it for a shell

fail() {
	printf '%s\n' "$*" >&2
	exit 1
}

differ() {
	diff <(printf '%s\n' "$plain") <(printf '%s\n' "$same") >&2 || true
	fail "this changes with the library: $1"
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
opened=$(grep -F -- "\"$preload\"" <<<"$maps" | grep -v 'errno=') || true
[ -n "$opened" ] || fail "the library is not loaded"

for name in quiet quiet-throw; do
	arguments=()
	if [ "$name" = quiet ]; then
		arguments=("$folder/libquiet-chain1.so")
	fi
	if [ ! -x "$folder/$name" ]; then
		continue # no C++ compiler
	fi
	# alone, and before another library that replaces dlsym, which thereby breaks RTLD_NEXT for others also without us
	for beside in '' ":$other"; do
		with=${beside#:}
		plain=$(run "$folder/$name" "${arguments[@]}")
		with=$preload$beside
		same=$(run "$folder/$name" "${arguments[@]}")
		[ "$same" = "$plain" ] || differ "$name with $with"
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

export LD_LIBRARY_PATH=$cuda CLEAVE_CONF=stats:on
said=$links/said
for name in gpu-pool gpu-plain gpu-threads gpu-fork; do
	for way in linked dlsym proc; do
		with=
		plain=$(run "$folder/$name" "$way")
		with=$preload
		same=$(run "$folder/$name" "$way" 2>"$said")
		[ "$same" = "$plain" ] || differ "$name $way: $(cat -- "$said")"
		[[ $plain = *'exit status 0' ]] || fail "$name $way fails: $plain"
		grep -q '[1-9][0-9,]* allocations' "$said" || fail "$name $way was not served: $(cat -- "$said")"
	done
done
