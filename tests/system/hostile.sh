#!/usr/bin/env bash
# hostile.py, with what it needs around it.
# usage: BIN=build/release/bin DIR=build/hostile tests/system/hostile.sh [plain|tls] [hostile.py's options and attacks...]
. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
how=${1:-plain}
shift
messages
tls_options "$how"
exec /usr/bin/python3 "$HERE/hostile.py" --bin "$(realpath "$BIN")" --dir "$(realpath "$DIR")" --pb "$DIR/pb" "${TLS[@]}" "$@"
