#!/usr/bin/env bash
# Many watches of all kinds, on streams that are read and streams that are not: each gets its events.
# usage: BIN=build/release/bin DIR=build/watches-test [SEED=n] tests/system/watches.sh
. "$(dirname "$0")/lib.sh"
ROOT=$(cd "$(dirname "$0")/../.." && pwd)

messages
read -r c p < <(free_ports 2)
start_replica core "$c" "$p" --watch-progress-notify-interval 200ms
until_ok 20 timeout 2 etcdctl --endpoints "127.0.0.1:$c" get x || { not_ok "the core serves"; finish; exit 1; }
timeout 600 /usr/bin/python3 "$ROOT/tests/system/watches.py" --pb "$DIR/pb" --core "127.0.0.1:$c" ${SEED:+--seed "$SEED"} >"$DIR/watches.log" 2>&1
while read -r line; do case $line in "ok "*) ok "${line#ok }" ;; "not ok "*) not_ok "${line#not ok }" "see $DIR/watches.log" ;; esac done < <(grep -E '^(not )?ok ' "$DIR/watches.log")
grep -qE '^[0-9]+ passed, ' "$DIR/watches.log" || not_ok "watches.py came to its end" "$(tail -n 3 "$DIR/watches.log")"
finish
