#!/usr/bin/env bash
# liar.py, with what it needs around it: an agent and a core that lies to it.
# usage: BIN=build/release/bin DIR=build/liar tests/system/liar.sh [liar.py's options and cases...]
. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
messages
export AGAIN="BIN=$BIN DIR=$DIR $0" # what a failure says how to run it again
exec /usr/bin/python3 "$HERE/liar.py" --bin "$(realpath "$BIN")" --dir "$(realpath "$DIR")" --pb "$DIR/pb" "$@"
