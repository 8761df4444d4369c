#!/usr/bin/env bash
# The gateway, asked by HTTP and JSON like Debian's real etcd beside it: every path, errors and streams (gateway.py).
# usage: BIN=build/release/bin DIR=build/gateway-test [SEED=n] [TEXTS=n] tests/system/gateway.sh
. "$(dirname "$0")/lib.sh"

wants_etcd "differential test of the gateway"
read -r tc tp ec ep < <(free_ports 4)
start_replica tenure "$tc" "$tp"
start_etcd etcd "$ec" "$ep"
until_ok 20 timeout 2 etcdctl --endpoints "127.0.0.1:$tc" get x && until_ok 20 timeout 2 etcdctl --endpoints "127.0.0.1:$ec" get x ||
	{ not_ok "both engines serve"; finish; exit 1; }

AGAIN="BIN=$BIN DIR=$DIR $0" /usr/bin/python3 "$SYSTEM/gateway.py" --tenure "127.0.0.1:$tc" --etcd "127.0.0.1:$ec" ${SEED:+--seed "$SEED"} ${TEXTS:+--texts "$TEXTS"} >"$DIR/gateway.out" 2>&1 || true
grep -vE '^[0-9]+ passed' "$DIR/gateway.out"
PASSED=$((PASSED + $(grep -c '^ok ' "$DIR/gateway.out")))
FAILED=$((FAILED + $(grep -c '^not ok ' "$DIR/gateway.out")))
grep -qE '^[0-9]+ passed' "$DIR/gateway.out" || not_ok "gateway.py came to its end"
finish
