#!/usr/bin/env bash
# A disk that fails, or is full, at each call in turn, and a process that is killed there: see bad_disk.py.
# usage: BIN=build/release/bin DIR=build/bad-disk-test BAD_DISK=build/release/tests/system/bad_disk.so tests/system/bad_disk.sh [PHASE...]
. "$(dirname "$0")/lib.sh"
preloaded "$BAD_DISK"
/usr/bin/python3 "$(dirname "$0")/bad_disk.py" "$BIN" "$DIR" "$PRELOADED" "$@"
