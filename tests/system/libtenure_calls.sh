#!/usr/bin/env bash
# libtenure's calls and watches on three replicas, as programs make them (libtenure_calls.c): a leader that is killed under
# puts, watches through kills, a compaction and a restart of all, frozen replicas, logins, TLS.
# usage: BIN=build/release/bin DIR=build/libtenure-calls-test [ENGINE=etcd] tests/system/libtenure_calls.sh [PART...]
. "$(dirname "$0")/lib.sh"
ENGINE=${ENGINE:-core}
PARTS=${*:-examples leases named many slow puts watch frozen login tls}
TOP=$(cd "$(dirname "$0")/../.." && pwd)
[ "$ENGINE" = core ] || wants_etcd "calls on a real etcd"
read -r c1 c2 c3 p1 p2 p3 < <(free_ports 6)
A=http://127.0.0.1
INITIAL="n1=$A:$p1,n2=$A:$p2,n3=$A:$p3"
RPID=(0 0 0 0)

# As `make install` would have it: the header, and the library by its soname.
SO=$(cd "$BIN/../so" && pwd)
compile() { gcc -std=gnu11 -g -O1 -Wall -Wextra -Werror -I "$TOP/lib/tenure" -o "$DIR/$1" "$2" -L "$SO" -ltenure "${@:3}" >"$DIR/$1.cc.log" 2>&1 || { not_ok "$1 compiles" "$(head -n 3 "$DIR/$1.cc.log")"; finish; exit 1; }; }
export LD_LIBRARY_PATH=$SO TENURE_ENDPOINTS=$A:$c1,$A:$c2,$A:$c3
compile calls "$TOP/tests/system/libtenure_calls.c"

NO_SYNC=()
[ "$ENGINE" = core ] || ! etcd --help 2>&1 | grep -q unsafe-no-fsync || NO_SYNC=(--unsafe-no-fsync)
replica() { # N: begins, or goes on
	local c=c$1 p=p$1
	if [ "$ENGINE" = etcd ]; then
		start_etcd "n$1" "${!c}" "${!p}" --initial-cluster "$INITIAL" "${NO_SYNC[@]}"
	else
		start_replica "n$1" "${!c}" "${!p}" --initial-cluster "$INITIAL"
	fi
	RPID[$1]=$PID
}
killed() { kill -9 "${RPID[$1]}"; wait "${RPID[$1]}" 2>/dev/null; }
E() { timeout 5 etcdctl --endpoints "127.0.0.1:$c1,127.0.0.1:$c2,127.0.0.1:$c3" "$@"; }
has_leader() { L=$(leader_of "$c1" "$c2" "$c3"); }
said() { grep -qE "^($2)" "$DIR/$1.log"; }
lines() { grep -cE "^$2" "$DIR/$1.log"; }
grew() { [ "$(lines "$1" "$2")" -gt "$3" ]; }
run() { timeout 120 "$DIR/calls" "$@" >"$DIR/$1.log" 2>&1; }
# ends NAME PID SECONDS: the program in the background has ended, well.
ends() { until_ok "$3" eval "! kill -0 $2" && wait "$2" && ! said "$1" FAIL && ok "$1: to its end" || not_ok "$1: to its end" "$(tail -n 2 "$DIR/$1.log")"; }
tail_of() { tail -n "${2:-1}" "$DIR/$1.log"; }

for n in 1 2 3; do replica $n; done
until_ok 30 E put ready yes && until_ok 10 has_leader || { not_ok "three replicas serve"; finish; exit 1; }

# ---- the examples that are shipped ----
part_examples() {
	local o=$TOP/conf/examples/libtenure
	compile watch "$o/watch.c"; compile ev "$o/ev.c" -lev; compile sd-event "$o/sd-event.c" -lsystemd
	for e in watch ev sd-event; do
		start "example-$e" "$DIR/$e" ex/; local pid=$PID
		until_ok 10 said "example-$e" "watching" || not_ok "example $e: begins" "$(tail_of "example-$e")"
		E put ex/a 1 >/dev/null; E put ex/a 2 >/dev/null; E del ex/a >/dev/null
		until_ok 10 said "example-$e" "deleted"
		is "example $e: each change once" "$(grep -v '^watching' "$DIR/example-$e.log" | sed 's/ at revision.*//' | tr '\n' ',')" "put ex/a = 1,put ex/a = 2,deleted ex/a,"
		kill "$pid"; wait "$pid" 2>/dev/null
	done
}

part_leases() {
	run leases || not_ok "leases" "$(tail_of leases)"
	is "leases: granted, used, renewed, revoked" "$(head -n 6 "$DIR/leases.log" | tr '\n' ',')" "granted 60000,put 0,renewed 0 60000,revoked 0,then -2,keys 0,"
	if [ "$ENGINE" = etcd ]; then is "leases: names are refused where there are none" "$(tail_of leases 2 | tr '\n' ',')" "named -95,found -95 1,"
	else is "leases: by name" "$(tail_of leases 2 | tr '\n' ',')" "named 0,found 0 1,"; fi
}

part_named() {
	run named || not_ok "named" "$(tail_of named)"
	local said; said=$(grep -v '^ ' "$DIR/named.log" | tr '\n' ',')
	if [ "$ENGINE" = etcd ]; then
		is "names: an etcd is asked nothing by a name" "$said" "granted -95,again -95,put -95,txn -95,renewed -95 1,keys -95,revoked -95,late -95,left 0,"
		is "names: each error says why" "$(grep -c 'Leases have no names in the core at .*, which is an etcd' "$DIR/named.log")" 8
	else
		is "names: grant, attach, renew, look up, revoke" "$said" "granted 0,again -17,put 0,txn 0,renewed 0 1,keys 0 n/a n/b,name 0 jobs,revoked 0,late -2,left 0,"
		has "names: one that is used is refused" "$(cat "$DIR/named.log")" "lease already exists with that name"
		has "names: one that nobody has, too" "$(cat "$DIR/named.log")" "no lease has that name"
	fi
}

part_many() {
	run many; has "10,000 calls and 1,000 watches at a time" "$(tail_of many)" "^acknowledged 10000 events 10000 in"
	local kib; kib=$(tail_of many | sed 's/.*, \([0-9]*\) KiB/\1/')
	[ "${kib:-999999}" -lt 80000 ] && ok "and they take $kib KiB" || not_ok "what they take" "$(tail_of many)"
}

part_slow() {
	run slow 10000
	if [ "$ENGINE" = etcd ] && grep -q "It may have happened" "$DIR/slow.log"; then
		skip "a watcher that takes nothing, and then all" "the etcd ended the connection, and with it the calls under way"
		return
	fi
	is "a watcher that takes nothing, and then all" "$(tail_of slow)" "took 10000"
	has "the program tells how much the library held meanwhile" "$(grep holds "$DIR/slow.log")" "^holds"
}

# ---- replicas that are killed under puts, the leader first: one of them has the connection ----
part_puts() {
	until_ok 10 has_leader
	start puts "$DIR/calls" puts 60000; local pid=$PID n before
	until_ok 30 said puts "answered"
	for n in "$L" $((L % 3 + 1)) $(((L + 1) % 3 + 1)); do
		before=$(lines puts answered); killed "$n"
		until_ok 20 eval "grew puts answered $before || said puts failed" || not_ok "puts: they go on without replica $n" "$(tail_of puts)"
		replica "$n"; until_ok 20 timeout 2 etcdctl --endpoints "127.0.0.1:$(eval echo "\$c$n")" get ready
		kill -0 "$pid" 2>/dev/null || break
	done
	ends puts "$pid" 60
	is "puts: each is there, or in doubt" "$(tail_of puts)" "failed 0 lost 0 wrong 0"
	echo "# $(tail_of puts 2 | head -n 1)"
	until_ok 20 has_leader
}

# ---- watches through all that ----
part_watch() {
	until_ok 10 has_leader
	start watch "$DIR/calls" watch 10000; local pid=$PID n rev
	until_ok 20 said watch seen; killed "$L"; n=$(lines watch seen)
	until_ok 30 grew watch seen "$n" || not_ok "watch: goes on after a leader was killed"
	replica "$L"; n=$(lines watch seen); until_ok 20 grew watch seen "$n"
	rev=$(grep seen "$DIR/watch.log" | tail -n 1 | awk '{print $2}')
	E compact "$rev" >/dev/null && ok "watch: compacted up to what was seen, revision $rev" || not_ok "watch: compacts"
	for n in 1 2 3; do kill -9 "${RPID[$n]}"; done; for n in 1 2 3; do wait "${RPID[$n]}" 2>/dev/null; done
	for n in 1 2 3; do replica $n; done
	n=$(lines watch seen)
	until_ok 30 grew watch seen "$n" || not_ok "watch: goes on after all were restarted" "$(tail_of watch)"
	until_ok 120 said watch "written|FAIL"
	ends watch "$pid" 40
	is "watch: each change once, in order, none missing" "$(tail_of watch)" "failed 0 missing 0 twice 0 others 0"
	echo "# $(tail_of watch 2 | head -n 1)"
	run old; is "watch: a compacted revision is reported" "$(tail_of old)" "ended -61 compacted"
}

# ---- frozen replicas: their connections stay ----
part_frozen() {
	local n pid before
	until_ok 10 has_leader
	start gets "$DIR/calls" gets; pid=$PID
	until_ok 10 said gets "answered 40"
	for n in 1 2 3; do
		kill -STOP "${RPID[$n]}"; before=$(lines gets answered)
		until_ok 8 grew gets answered $((before + 5)) || not_ok "frozen: calls go on while replica $n is" "$(tail_of gets)"
		kill -CONT "${RPID[$n]}"; until_ok 10 has_leader
	done
	kill -TERM "$pid"; ends gets "$pid" 10
	local slowest; slowest=$(tail_of gets | awk '{print $2}')
	[ "${slowest:-99999}" -lt 6000 ] && ok "frozen: the slowest of $(lines gets answered)0 reads or more took $slowest ms" || not_ok "frozen: no read takes long" "$(tail_of gets)"
}

# ---- users ----
part_login() {
	E user add root:toor >/dev/null; E user grant-role root root >/dev/null; E role add app >/dev/null
	E role grant-permission app readwrite app/ --prefix >/dev/null; E user add ann:ann >/dev/null; E user grant-role ann app >/dev/null
	E auth enable >/dev/null || not_ok "login: auth is on"
	USER_IS=ann PASSWORD=ann run login; is "login: a user with the permission" "$(tail_of login)" "put 0 after a moment: "
	USER_IS=ann PASSWORD=wrong run login; has "login: a wrong password" "$(head -n 1 "$DIR/login.log")" "^put -13 after a moment: .*ann.*(invalid user ID or password|authentication failed)"
	is "login: a wrong password ends watches" "$(tail_of login)" "watch -13"
	run login; has "login: a put without a user" "$(head -n 1 "$DIR/login.log")" "^put -13 after a moment: .*user name is empty"
	is "login: a watch without a user" "$(tail_of login)" "watch -13"
	USER_IS=root PASSWORD=toor run leases; is "login: root" "$(head -n 1 "$DIR/leases.log")" "granted 60000"
	E --user root:toor auth disable >/dev/null
}

# ---- TLS: one core of its own ----
part_tls() {
	make_certificates
	local c p; read -r c p < <(free_ports 2)
	if [ "$ENGINE" = etcd ]; then
		start tls env ETCD_UNSUPPORTED_ARCH= etcd --name t --data-dir "$DIR/tls.d" --listen-client-urls "https://127.0.0.1:$c" --advertise-client-urls "https://127.0.0.1:$c" --listen-peer-urls "$A:$p" \
			--initial-advertise-peer-urls "$A:$p" --initial-cluster "t=$A:$p" --trusted-ca-file "$DIR/ca.pem" --cert-file "$DIR/cert.pem" --key-file "$DIR/key.pem" --client-cert-auth
	else
		start tls "$BIN/tenure-core" --name t --data-dir "$DIR/tls.d" --listen-client-urls "https://127.0.0.1:$c" --listen-peer-urls "$A:$p" --trusted-ca-file "$DIR/ca.pem" --cert-file "$DIR/cert.pem" --key-file "$DIR/key.pem" --client-cert-auth
	fi
	until_ok 20 timeout 2 etcdctl --endpoints "https://127.0.0.1:$c" --cacert "$DIR/ca.pem" --cert "$DIR/cert.pem" --key "$DIR/key.pem" get x || not_ok "tls: serves" "$(tail_of tls)"
	TENURE_ENDPOINTS=https://127.0.0.1:$c CA=$DIR/ca.pem CERT=$DIR/cert.pem KEY=$DIR/key.pem run login
	is "tls: with our certificate" "$(tail_of login)" "put 0 after a moment: "
	TENURE_ENDPOINTS=https://127.0.0.1:$c CA=$DIR/ca.pem run login
	has "tls: without one, for as long as calls are tried" "$(head -n 1 "$DIR/login.log")" "^put -110 after long: .*https://127.0.0.1:$c"
}

for part in $PARTS; do "part_$part"; done
finish
