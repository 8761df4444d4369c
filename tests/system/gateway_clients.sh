#!/usr/bin/env bash
# Who comes by HTTP and expects an etcd at 127.0.0.1:2379, in a network namespace of its own: python3-etcd3gw's own tests, and what
# etcdctl reads from /metrics.
# usage: BIN=build/release/bin DIR=build/gateway-clients tests/system/gateway_clients.sh [in]
if [ "${1:-}" != in ]; then
	if unshare -n true 2>/dev/null; then exec unshare -n "$0" in; fi
	echo "skipped who expects an etcd at its usual port: needs root, and network namespaces"
	echo "0 passed, 0 failed, 1 skipped"
	exit
fi
. "$(dirname "$0")/lib.sh"
ip link set lo up
start core "$BIN/tenure-core" --data-dir "$DIR/core"
until_ok 15 etcdctl put warm up || not_ok "a replica" "$(tail -n 2 "$DIR/core.log")"

timeout 120 /usr/bin/python3 -m testtools.run etcd3gw.tests.test_client etcd3gw.tests.test_etcd3gw >"$DIR/etcd3gw.log" 2>&1
has "python3-etcd3gw's own tests" "$(tail -n 2 "$DIR/etcd3gw.log" | tr '\n' ' ')" '^Ran (2[0-9]|[3-9][0-9]) tests in [0-9.]+s OK'
is "none of python3-etcd3gw's tests was skipped" "$(grep -c 'skip' "$DIR/etcd3gw.log")" 0
has "etcdctl check datascale" "$(timeout 60 etcdctl check datascale --load=s 2>&1 | tail -n 1)" 'PASS: Approximate system memory used : [0-9.]+ MB'
has "etcdctl endpoint status as JSON" "$(etcdctl --write-out=json endpoint status)" '"version":"3\.[0-9.]+","dbSize":[0-9]+,"leader":[0-9]+'
finish
