#!/usr/bin/env bash
# The same calls to Debian's real etcd and to tenure-core: answers, errors and events must be alike, but for what
# is random (ids), time-dependent (remaining TTL) or the engine's own (terms, versions).
# usage: BIN=build/release/bin DIR=build/same-test [SEED=n] tests/system/same.sh; SEED: the random calls once more
. "$(dirname "$0")/lib.sh"
ROOT=$(cd "$(dirname "$0")/../.." && pwd)

wants_etcd "differential test"
# engines NAME: one of each, fresh; $tc and $ec are their ports for clients.
engines() {
	read -r tc tp ec ep < <(free_ports 4)
	start_replica "tenure$1" "$tc" "$tp"
	start_etcd "etcd$1" "$ec" "$ep"
	until_ok 20 timeout 2 etcdctl --endpoints "127.0.0.1:$tc" get x && until_ok 20 timeout 2 etcdctl --endpoints "127.0.0.1:$ec" get x ||
		{ not_ok "both engines serve"; finish; exit 1; }
}
engines ""

# What is not to be compared, taken out. Errors lose the time, the caller and the target that etcdctl prints with them.
clean() {
	sed -E 's/"(cluster_id|member_id|raft_term)":[0-9]+,?//g; s/^\{"level".*"error":"/error: "/; s/remaining\([0-9]+s\)/remaining/; /^Error: (context|rpc)/d'
}
both() { # WHAT, then etcdctl's arguments; standard input, if any, goes to both
	local what=$1 in t e
	shift
	in=$(if [ -t 0 ] || [ "${INPUT:-}" = "" ]; then :; else printf '%b' "$INPUT"; fi)
	t=$(printf '%s\n' "$in" | timeout 10 etcdctl --endpoints "127.0.0.1:$tc" "$@" 2>&1 | clean)
	e=$(printf '%s\n' "$in" | timeout 10 etcdctl --endpoints "127.0.0.1:$ec" "$@" 2>&1 | clean)
	if [ "$t" = "$e" ]; then ok "$what"; else not_ok "$what" "tenure-core says '$t', etcd says '$e'"; fi
}

J="-w json"
for i in 1 2 3 4 5; do both "put k$i" put k$i v$i $J; done
both "put with the value before" put k1 again --prev-kv $J
both "get one" get k1 $J
both "get what is not there" get nothing $J
both "get all" get "" --prefix $J
both "get from a key on" get k3 --from-key $J
both "get a range" get k2 k4 $J
both "get an empty range" get k4 k2 $J
both "limit" get k --prefix --limit 2 $J
both "keys only" get k --prefix --keys-only $J
both "count only" get k --prefix --write-out fields --count-only
for order in ASCEND DESCEND; do for by in KEY VERSION CREATE MODIFY VALUE; do both "sort by $by $order" get k --prefix --order $order --sort-by $by $J; done; done
both "sort with a limit" get k --prefix --order DESCEND --sort-by MODIFY --limit 2 $J
both "a past revision" get k1 --rev 2 $J
both "a past revision, all" get k --prefix --rev 4 $J
both "a future revision" get k1 --rev 1000
both "serializable" get k1 --consistency=s $J
both "del with what was there" del k5 --prev-kv $J
both "del nothing" del k5 $J
both "del a range" del k3 k5 $J
both "deleted, seen in the past" get k3 --rev 5 $J
both "no key" put ""
both "a put on a lease that is not there" put --lease=123456 k v
both "ignore-value where there is no key" put --ignore-value newkey
both "ignore-value" put --ignore-value k1 $J
both "ignore-lease where there is no key" put --ignore-lease newkey v
both "revoke a lease that is not there" lease revoke 123456
both "timetolive of a lease that is not there" lease timetolive 123456
INPUT='value("k1") = "again"\n\nput t1 yes\nget k1\ndel k2\n\nput t1 no\n\n' both "txn that holds" txn $J
INPUT='value("k1") = "again"\nversion("k1") > "0"\n\nput t1 yes\n\nput t1 no\nget t1\n\n' both "txn with two compares" txn $J
INPUT='create("gone") = "0"\nmod("k1") > "2"\n\nput t2 yes\n\n\n' both "txn on a key that is absent" txn $J
INPUT='value("gone") = ""\n\nput t3 yes\n\nget t2\n\n' both "txn: the value of an absent key" txn $J
INPUT='mod("k1") > "0"\n\nget k1\n\n\n' both "txn that only reads" txn $J
INPUT='\nput d 1\nput d 2\n\n\n' both "txn that puts a key twice" txn
INPUT='\nput d 1\ndel d\n\n\n' both "txn that puts and deletes a key" txn
INPUT='\nput d 1\nput --lease=123456 e 2\n\n\n' both "txn with a lease that is not there changes nothing" txn
both "it did not" get d $J
both "grant with an id" lease list $J

# A lease with keys, on both, by the same id: only the raw API lets us choose one, so compare what follows from it.
for p in $tc $ec; do
	L=$(etcdctl --endpoints "127.0.0.1:$p" lease grant 60 | awk '{print $2}')
	etcdctl --endpoints "127.0.0.1:$p" put --lease="$L" l1 a >/dev/null
	etcdctl --endpoints "127.0.0.1:$p" put --lease="$L" l2 b >/dev/null
	etcdctl --endpoints "127.0.0.1:$p" put l2 c >/dev/null # detaches
	etcdctl --endpoints "127.0.0.1:$p" lease timetolive "$L" --keys | sed -E "s/$L/L/; s/remaining\([0-9]+s\)/remaining/" >"$DIR/ttl.$p"
	etcdctl --endpoints "127.0.0.1:$p" lease revoke "$L" >/dev/null
	etcdctl --endpoints "127.0.0.1:$p" lease timetolive "$L" | sed "s/$L/L/" >>"$DIR/ttl.$p"
done
is "a lease's keys, attached and detached" "$(cat "$DIR/ttl.$tc")" "$(cat "$DIR/ttl.$ec")"
both "what a revoked lease left" get l --prefix $J

# Everything that ever happened, as a watch from the first revision tells it.
for p in $tc $ec; do
	start "watch.$p" etcdctl --endpoints "127.0.0.1:$p" watch "" --prefix --rev 1 --prev-kv
	etcdctl --endpoints "127.0.0.1:$p" put the end >/dev/null
done
for p in $tc $ec; do until_ok 10 grep -q "^end" "$DIR/watch.$p.log"; done
is "the whole history as a watch tells it ($(wc -l <"$DIR/watch.$ec.log") lines)" "$(cat "$DIR/watch.$tc.log")" "$(cat "$DIR/watch.$ec.log")"
both "compact" compact 8
both "compact again" compact 8
both "compact the future" compact 100000
both "get what is compacted" get k1 --rev 3
both "the revision of the compaction is there" get k1 --rev 8 $J
for p in $tc $ec; do timeout 20 etcdctl --endpoints "127.0.0.1:$p" watch k1 --rev 2 2>&1 | clean >"$DIR/compacted.$p"; done
is "a watch on what is compacted" "$(cat "$DIR/compacted.$tc")" "$(cat "$DIR/compacted.$ec")"
head -c 1700000 /dev/zero | tr '\0' x >"$DIR/big"
for p in $tc $ec; do timeout 10 etcdctl --endpoints "127.0.0.1:$p" put big <"$DIR/big" 2>&1 | clean | grep -o 'etcdserver: .*' >"$DIR/big.$p"; done
is "a request that is too large" "$(cat "$DIR/big.$tc")" "$(cat "$DIR/big.$ec")"
both "nothing else changed" get "" --prefix $J

# The raw API: random histories, and every service's cases; then users, and what they may. Each on fresh engines: above,
# the servers chose the id of a lease, each its own, and a read of the past would still find it on a key.
messages
for what in api auth; do
	engines -$what
	timeout 300 /usr/bin/python3 "$ROOT/tests/system/$what.py" --pb "$DIR/pb" --tenure "127.0.0.1:$tc" --etcd "127.0.0.1:$ec" ${SEED:+--seed "$SEED"} >"$DIR/$what.log" 2>&1
	while read -r line; do case $line in "ok "*) ok "$what: ${line#ok }" ;; "not ok "*) not_ok "$what: ${line#not ok }" "see $DIR/$what.log" ;; esac done < <(grep -E '^(not )?ok ' "$DIR/$what.log")
	grep -qE '^[0-9]+ passed, ' "$DIR/$what.log" || not_ok "$what.py came to its end" "$(tail -n 3 "$DIR/$what.log")"
done

# Clients of others, unchanged, on a core of their own.
read -r cc cp < <(free_ports 2)
start_replica clients "$cc" "$cp"
until_ok 20 timeout 2 etcdctl --endpoints "127.0.0.1:$cc" get x
is "python3-etcd3" "$(timeout 60 /usr/bin/python3 "$ROOT/tests/system/client_python.py" "$cc" 2>&1 | tail -n 1)" "done"
if command -v npm >/dev/null; then
	mkdir -p "$DIR/npm" && (cd "$DIR/npm" && timeout 120 npm install --silent --no-fund --no-audit etcd3@1.1.2 >npm.log 2>&1)
	if [ -d "$DIR/npm/node_modules/etcd3" ]; then
		is "npm's etcd3" "$(cd "$DIR/npm" && timeout 60 env NODE_PATH="$DIR/npm/node_modules" node "$ROOT/tests/system/client_node.js" "$cc" 2>&1 | tee "$DIR/node.log" | tail -n 1)" "done"
	else skip "npm's etcd3" "the registry does not answer: $(tail -n 1 "$DIR/npm/npm.log")"; fi
else skip "npm's etcd3" "no npm here"; fi

# The agent on a real etcd: only the endpoints differ.
if "${FLEET:-true}" --bin "$BIN" --dir "$DIR/fleet" --endpoints "http://127.0.0.1:$ec" --agents 3 cases >"$DIR/fleet.log" 2>&1; then
	ok "agents on a real etcd: $(grep -c '^ok' "$DIR/fleet.log") cases"; else not_ok "agents on a real etcd" "$(grep -v '^ok' "$DIR/fleet.log" | head -n 3)"; fi
finish
