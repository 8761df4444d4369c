#!/usr/bin/env bash
# gateway_faults.py on three replicas.
# usage: BIN=build/release/bin DIR=build/gateway-faults tests/system/gateway_faults.sh
. "$(dirname "$0")/lib.sh"
messages
exec timeout 200 /usr/bin/python3 "$SYSTEM/gateway_faults.py" --bin "$BIN" --dir "$DIR" --pb "$DIR/pb" --ports "$(free_ports 8 | tr ' ' ,)"
