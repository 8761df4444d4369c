#!/usr/bin/env bash
# many.py, with what it needs around it.
# usage: BIN=build/release/bin DIR=build/many [CONNECTIONS=6000] tests/system/many.sh
. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
messages
make_certificates
exec /usr/bin/python3 "$HERE/many.py" --bin "$(realpath "$BIN")" --dir "$(realpath "$DIR")" --pb "$DIR/pb" --ports "$(free_ports 7 | tr ' ' ,)"
