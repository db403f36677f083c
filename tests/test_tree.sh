#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# test_tree.sh CHECK ROOT [ARGUMENT]...
#
# Checks of the source itself:
#   license             every source file names its license where tools look for it
#   length              no source file is longer than 800 lines
#   scripts             the shell scripts pass shellcheck
#   spelling            no misspelled words
#   calls NM ARCHIVE... the libraries do not end the process or write to its stdout
#   allocator NM LIB... the libraries neither call the host program's allocator nor functions whose result it has to free
#   headers CC CXX      public headers compile alone as C and C++ without a warning, our own as C (CXX may be empty)
#
# Exits 0 if the check holds, 1 with what is wrong, 77 if the program that checks is not installed.
set -euo pipefail

check=$1
if [ "$check" != calls ] && [ "$check" != allocator ]; then # which are given paths from where they are started
	cd -- "$2"
fi
shift 2
bad=0

wrong() {
	printf '%s\n' "$*" >&2
	bad=1
}

# Files of the tree whose names match, by path. Not by git, so that an unpacked archive is checked as well; what lies in
# hidden folders and build folders at the top is not of the tree.
files() {
	local patterns=(-false) name
	for name in "$@"; do
		patterns+=(-o -name "$name")
	done
	find . -type d \( -path './.[!.]*' -o -path './build*' \) ! -path ./.ci -prune -o \
		-type f \( "${patterns[@]}" \) -print | LC_ALL=C sort
}

shell_scripts() {
	local file
	files '*' | while IFS= read -r file; do
		case $(head -c 64 -- "$file" | tr -d '\0' | head -n 1) in
		'#!'*bash | '#!'*/sh) printf '%s\n' "$file" ;;
		esac
	done
	files '*.sh'
}

require() {
	if ! command -v "$1" >/dev/null; then
		echo "$1 is not installed"
		exit 77
	fi
}

license() {
	local file seen=0
	while IFS= read -r file; do
		seen=$((seen + 1))
		case $file in
		*.[ch]) head -n 1 -- "$file" | grep -q '^/\* SPDX-License-Identifier: MIT' ;;
		*) head -n 2 -- "$file" | grep -q '^# SPDX-License-Identifier: MIT$' ;;
		esac || wrong "$file: no SPDX-License-Identifier in the first line (of scripts: the second)"
	done < <(files '*.[ch]' '*.py'; shell_scripts)
	[ "$seen" -gt 0 ] || wrong "no source file found"
}

length() {
	local file lines
	while IFS= read -r file; do
		lines=$(wc -l <"$file")
		[ "$lines" -le 800 ] || wrong "$file: $lines lines, more than 800"
	done < <(files '*.[ch]' '*.py'; shell_scripts)
}

# undefined FORBIDDEN NM LIBRARY...: what the libraries need from elsewhere, in shared ones with its version.
undefined() {
	local forbidden=$1 nm=$2 library symbols seen=
	shift 2
	for library in "$@"; do
		symbols=$("$nm" -A -P -u "$library") || { wrong "$library: $nm failed"; continue; }
		seen+=$symbols
		if grep -E ": ($forbidden)(@[^ ]*)? " <<<"$symbols" >&2; then
			wrong "$library: library code must not call these"
		fi
	done
	[ -n "$seen" ] || wrong "no undefined symbol anywhere: are these the libraries?"
}

calls() {
	# What printf becomes when the compiler fortifies or simplifies it is named as well.
	undefined 'abort|_?exit|_Exit|quick_exit|v?printf|__v?printf_chk|puts|putchar|stdout' "$@"
}

allocator() {
	local family='malloc|calloc|realloc|reallocarray|free|memalign|aligned_alloc|posix_memalign|p?valloc|malloc_usable_size'
	local results='(__)?strn?dup|wcsdup|(__)?v?asprintf(_chk)?|getline|(__)?getdelim|getpass|get_current_dir_name'
	local files='open_w?memstream|fmemopen|fopen(64)?|fdopen|popen|(fd)?opendir|scandir(at)?(64)?|glob(64)?|ftw(64)?|nftw(64)?'
	undefined "$family|$results|$files|canonicalize_file_name|(__)?realpath(_chk)?|setenv|putenv|regcomp|_Zn[wa].*|_Zd[la].*" "$@"
}

# compile_header LANGUAGE HEADER COMPILER... : twice in one unit, so that its guard is tried too.
compile_header() {
	local language=$1 header=$2
	shift 2
	printf '#include "%s"\n#include "%s"\n' "$header" "$header" |
		"$@" -x "$language" -fsyntax-only -Wall -Wextra -Werror -Wno-unused-function -Iinclude -I. - >&2 || wrong "$header: not as $language"
}

headers() {
	local cc cxx header standard
	read -r -a cc <<<"$1"
	read -r -a cxx <<<"$2"
	for header in include/cleave/*.h; do
		for standard in c99 c17; do
			compile_header c "$header" "${cc[@]}" "-std=$standard" -pedantic
		done
		if [ ${#cxx[@]} -gt 0 ]; then
			for standard in c++11 c++20; do
				compile_header c++ "$header" "${cxx[@]}" "-std=$standard" -pedantic
			done
		fi
	done
	# Macros are only compiled where they are used.
	"${cc[@]}" -x c -std=c99 -pedantic -fsyntax-only -Wall -Wextra -Werror -Iinclude tests/header_user.c >&2 ||
		wrong "tests/header_user.c: not as c"
	if [ ${#cxx[@]} -gt 0 ]; then
		"${cxx[@]}" -x c++ -std=c++11 -pedantic -fsyntax-only -Wall -Wextra -Werror -Iinclude tests/header_user.c >&2 ||
			wrong "tests/header_user.c: not as c++"
	else
		echo "no C++ compiler: headers were compiled as C only"
	fi
	while IFS= read -r header; do
		compile_header c "$header" "${cc[@]}" -std=gnu11 -Wno-unused-parameter
	done < <(files '*.h')
}

case $check in
license) license ;;
length) length ;;
calls) calls "$@" ;;
allocator) allocator "$@" ;;
headers) headers "$@" ;;
scripts)
	require shellcheck
	shell_scripts | sort -u | xargs -d '\n' shellcheck || bad=1
	;;
spelling)
	require codespell
	files '*.[ch]' '*.py' '*.md' '*.sh' meson.build meson_options.txt | xargs -d '\n' codespell || bad=1
	shell_scripts | xargs -d '\n' codespell || bad=1
	;;
*)
	echo "unknown check '$check'" >&2
	exit 2
	;;
esac
exit "$bad"
