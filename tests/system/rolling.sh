#!/usr/bin/env bash
# rolling.py on three replicas.
# usage: BIN=build/release/bin DIR=build/rolling tests/system/rolling.sh
. "$(dirname "$0")/lib.sh"
messages
exec timeout 200 /usr/bin/python3 "$(dirname "$0")/rolling.py" --bin "$BIN" --dir "$DIR" --pb "$DIR/pb" --ports "$(free_ports 6 | tr ' ' ,)"
