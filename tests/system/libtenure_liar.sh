#!/usr/bin/env bash
# liar_program.py, with what it needs around it: a program of libtenure's and a core that lies to it.
# usage: BIN=build/release/bin DIR=build/libtenure-liar tests/system/libtenure_liar.sh [liar_program.py's options and cases...]
. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
SO=$(realpath "$BIN/../so")
SANITIZED=()
if nm -D "$SO/libtenure.so.0" | grep -q __asan_init; then SANITIZED=(-fsanitize=address,undefined); fi
gcc -std=gnu11 -g -O1 -Wall -Wextra -Werror "${SANITIZED[@]}" -I"$HERE/../../lib/tenure" -o "$DIR/lied_to" "$HERE/lied_to.c" -L"$SO" -ltenure -Wl,-rpath,"$SO" || exit 1
messages
export AGAIN="BIN=$BIN DIR=$DIR $0" # what a failure says how to run it again
exec /usr/bin/python3 "$HERE/liar_program.py" --program "$(realpath "$DIR")/lied_to" --dir "$(realpath "$DIR")" --pb "$DIR/pb" "$@"
