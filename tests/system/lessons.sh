#!/usr/bin/env bash
# lessons.py on three replicas.
# usage: BIN=build/release/bin DIR=build/lessons tests/system/lessons.sh
. "$(dirname "$0")/lib.sh"
messages
exec /usr/bin/python3 "$(dirname "$0")/lessons.py" --bin "$BIN" --dir "$DIR" --pb "$DIR/pb" --ports "$(free_ports 8 | tr ' ' ,)"
