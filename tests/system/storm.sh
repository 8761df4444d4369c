#!/usr/bin/env bash
# storm.py, where this machine lets a test make network namespaces of its own.
# usage: BIN=build/release/bin DIR=build/storm SLOW_SYNC=build/release/tests/system/slow_sync.so tests/system/storm.sh [SECONDS [SEED]]
# Without SLOW_SYNC (which does not work with sanitizers) fsync has its normal speed.
. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)

if [ "$(id -u)" -ne 0 ]; then skip "faults with real processes" "needs root, for network namespaces"; finish; exit; fi
if ! unshare -nm --propagation private sh -c 'ip link add br0 type bridge && nft add table bridge t && mount -t tmpfs tmpfs /mnt' >"$DIR/try.log" 2>&1; then
	skip "faults with real processes" "no network namespaces here: $(tail -n 1 "$DIR/try.log")"; finish; exit
fi
messages
[ -z "${SLOW_SYNC:-}" ] || preloaded "$SLOW_SYNC"
export AGAIN="BIN=$BIN DIR=$DIR ${SLOW_SYNC:+SLOW_SYNC=$SLOW_SYNC }$0"
unshare -nm --propagation private /usr/bin/python3 "$HERE/storm.py" --bin "$(realpath "$BIN")" --dir "$(realpath "$DIR")" --pb "$DIR/pb" \
	--seconds "${1:-60}" ${2:+--seed "$2"} ${SLOW_SYNC:+--slow-sync "$PRELOADED"}
