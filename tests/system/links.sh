#!/usr/bin/env bash
# links.py on three replicas.
# usage: BIN=build/release/bin DIR=build/links tests/system/links.sh [plain|tls] [links.py's options...]
. "$(dirname "$0")/lib.sh"
how=${1:-plain}
shift
messages
tls_options "$how"
exec timeout 300 /usr/bin/python3 "$(dirname "$0")/links.py" --bin "$BIN" --dir "$DIR" --pb "$DIR/pb" --ports "$(free_ports 9 | tr ' ' ,)" "${TLS[@]}" "$@"
