#!/usr/bin/env bash
# Which changes of the members are refused, beside a real etcd: one is down, some never started, URLs that are taken; and a
# replica alone that gets a second one.
# usage: BIN=build/release/bin DIR=build/changes-test tests/system/changes.sh
. "$(dirname "$0")/lib.sh"

A=http://127.0.0.1
read -r tc1 tc2 tc3 tp1 tp2 tp3 ec1 ec2 ec3 ep1 ep2 ep3 < <(free_ports 12)
read -r x1 x2 x3 x4 l1 l2 m1 m2 < <(free_ports 8)
etc() { local e=$1; shift; timeout 15 etcdctl --endpoints "127.0.0.1:$e" "$@" 2>&1; }
TC=n1=$A:$tp1,n2=$A:$tp2,n3=$A:$tp3 EC=n1=$A:$ep1,n2=$A:$ep2,n3=$A:$ep3
for n in 1 2 3; do
	c=tc$n p=tp$n
	start "t$n" "$BIN/tenure-core" --name n$n --data-dir "$DIR/t$n" --listen-client-urls "$A:${!c}" --listen-peer-urls "$A:${!p}" --initial-cluster "$TC"
	T[n]=$PID
	c=ec$n p=ep$n
	start "e$n" etcd --name n$n --data-dir "$DIR/e$n" --listen-client-urls "$A:${!c}" --advertise-client-urls "$A:${!c}" --listen-peer-urls "$A:${!p}" \
		--initial-advertise-peer-urls "$A:${!p}" --initial-cluster "$EC" --log-level error
	E[n]=$PID
done
# One whose others never come, for the end of this.
read -r lc lp < <(free_ports 2)
start nobody "$BIN/tenure-core" --name n1 --data-dir "$DIR/nobody" --listen-client-urls "$A:$lc" --listen-peer-urls "$A:$lp" \
	--initial-cluster "n1=$A:$lp,n2=$A:1,n3=$A:2"
for p in $tc1 $ec1; do until_ok 20 etc "$p" put k v || not_ok "three serve"; until_ok 20 bash -c "[ \$(etcdctl --endpoints 127.0.0.1:$p member list | grep -c ', n[123], ') = 3 ]"; done
id_of() { etc "$1" member list | grep "$2" | cut -d, -f1; } # PORT PATTERN
# Differences between the engines: ids (etcd omits leading zeros), ports, the layout of an error.
clean() { sed -E 's/.*"error":"(rpc error: )?([^"]*)".*/\2/; s/.*desc = //; s/^Error: //; s/(Member|cluster) +[0-9a-f]+/\1 ID/g; s/127\.0\.0\.1:[0-9]+/HOST/g; s/  +/ /g' | grep -E 'etcdserver|Member' | head -n 1; }
both() { # WHAT ETCDCTL-COMMAND..., with {pattern} for the id of that member
	local what=$1 t e
	shift
	t=$(etc "$tc1" "${@/#\{*\}/$(id_of "$tc1" "${ID:-nobody}")}" | clean)
	e=$(etc "$ec1" "${@/#\{*\}/$(id_of "$ec1" "${ID:-nobody}")}" | clean)
	if [ "$t" = "$e" ]; then ok "$what: $t"; else not_ok "$what" "tenure-core says '$t', etcd says '$e'"; fi
}
urls() { etc "$1" member list | grep unstarted | cut -d, -f4- | sed -E 's/, (true|false)$//' | tr -d ' ' | tr , '\n' | sort; } # after an update etcd has forgotten the learner, and the order
# Who was just started is not healthy yet, for etcd: until a learner is taken, which is taken away again.
until_ok 30 bash -c "etcdctl --endpoints 127.0.0.1:$ec1 member add probe --learner --peer-urls $A:$x4"
etc "$ec1" member remove "$(id_of "$ec1" unstarted)" >/dev/null

both "a learner at two URLs" member add x --learner --peer-urls "$A:$x2,$A:$x1"
is "they are listed" "$(urls "$tc1")" "$(urls "$ec1")"
both "another at one of them" member add y --peer-urls "$A:$x1"
both "a second learner" member add y --learner --peer-urls "$A:$x3"
ID=unstarted both "it moves to two others" member update {} --peer-urls "$A:$x4,$A:$x3"
is "a moved member is listed at its new URL" "$(urls "$tc1")" "$(urls "$ec1")"
ID=n2 both "a member moves to where another is" member update {} --peer-urls "$A:$x3"
ID=unstarted both "it is removed" member remove {}

kill -9 "${T[3]}" "${E[3]}"; wait "${T[3]}" "${E[3]}" 2>/dev/null
# Nobody has noticed yet: the first request must not be answered too early.
for p in $tc1 $ec1; do until_ok 20 bash -c "etcdctl --endpoints 127.0.0.1:$p member add y --learner --peer-urls $A:$x1 2>&1 | grep -q unhealthy || ! etcdctl --endpoints 127.0.0.1:$p member remove \$(etcdctl --endpoints 127.0.0.1:$p member list | grep unstarted | cut -d, -f1)"; done
for p in $tc1 $ec1; do until_ok 20 etc "$p" put k v || not_ok "two of three serve"; done # it may have led
both "one is down: a learner more" member add y --learner --peer-urls "$A:$x1"
both "one is down: a voter more" member add y --peer-urls "$A:$x1"
ID=n2 both "one is down: one that is up goes" member remove {}
ID=n1 both "one is down: who is asked goes" member remove {}
is "writes go on" "$(etc "$tc1" put k after)" OK
ID=n3 both "the one that is down goes" member remove {}
both "a voter more" member add y --peer-urls "$A:$x1"
both "one more while that has not started" member add z --peer-urls "$A:$x2"
ID=n2 both "one that is up goes while that has not started" member remove {}
ID=unstarted both "that goes" member remove {}
is "writes go on" "$(etc "$tc1" put k more)" OK

# Without the check: what cost the majority is taken.
start_replica lax "$m1" "$m2" --strict-reconfig-check=no
until_ok 10 etc "$m1" put k v
etc "$m1" member add y --peer-urls "$A:$x1" >/dev/null
has "StrictReconfigCheck=no" "$(etc "$m1" member list | grep -c .)" "^2$"

# A replica that lags does not know the leader: it asks the members that it knows.
read -r g1 g2 g3 g4 h1 h2 h3 h4 < <(free_ports 8)
G=g1=$A:$h1,g2=$A:$h2,g3=$A:$h3
lag() { # N OPTIONS...
	local n=$1 c=g$1 p=h$1
	shift
	start_replica "g$n" "${!c}" "${!p}" --strict-reconfig-check=no --initial-cluster "$@"
}
lag 1 "$G"; lag 2 "$G"; lag 3 "$G"; G3=$PID
for p in $g1 $g3; do until_ok 15 etc "$p" put k v || not_ok "three serve" "$(tail -n 2 "$DIR/g1.log")"; done
kill -9 "$G3"; wait "$G3" 2>/dev/null
until_ok 10 etc "$g1" put k v
etc "$g1" member add g4 --learner --peer-urls "$A:$h4" >/dev/null
lag 4 "$G,g4=$A:$h4" --initial-cluster-state existing
until_ok 20 etc "$g1" member promote "$(id_of "$g1" "$h4")" || not_ok "promoted" "$(etc "$g1" member list)"
M4=$(id_of "$g1" "$h4")
move() { local l; for l in $g1 $g2; do timeout 5 etcdctl --endpoints "127.0.0.1:$l" move-leader "$M4" && return; done; return 1; }
until_ok 20 move || not_ok "the new one leads"
until_ok 10 etc "$g4" put k told-by-4
lag 3 "$G"
if until_ok 15 bash -c "[ \"\$(etcdctl --endpoints 127.0.0.1:$g3 get k --consistency=s --print-value-only)\" = told-by-4 ]"; then
	ok "one that lags hears a leader that it did not know"; else not_ok "one that lags hears a leader that it did not know" "$(tail -n 2 "$DIR/g3.log")"; fi
has "it refused that leader first" "$(cat "$DIR/g3.log")" "Refused a link from member 0*$M4"
has "and that leader still leads" "$(etc "$g4" endpoint status -w json | jq '.[0].Status | .leader == .header.member_id')" true

# One that is alone gets a second one, which counts before it has started: the answer comes at once.
start lone "$BIN/tenure-core" --name a --data-dir "$DIR/lone" --listen-client-urls "$A:$l1" --listen-peer-urls "$A:$l2"
until_ok 10 etc "$l1" put k v
BEGAN=$(date +%s%N); etc "$l1" get k >/dev/null; ALONE=$((($(date +%s%N) - BEGAN) / 1000000)) # etcdctl's own time
BEGAN=$(date +%s%N)
has "alone: a voter is added" "$(etc "$l1" member add b --peer-urls "$A:1,$A:$x1")" "Member +[0-9a-f]+ added to cluster"
MS=$((($(date +%s%N) - BEGAN) / 1000000))
if [ $MS -lt $((4000 + 2 * ALONE)) ]; then ok "and answered at once ($MS ms)"; else not_ok "and answered at once" "after $MS ms"; fi
is "the new member is listed" "$(etc "$l1" member list | grep -c unstarted)" 1
start second "$BIN/tenure-core" --name b --data-dir "$DIR/second" --listen-client-urls "$A:$x2" --listen-peer-urls "$A:$x1" \
	--initial-cluster "a=$A:$l2,b=$A:$x1,b=$A:1" --initial-cluster-state existing
if until_ok 20 etc "$x2" put k both; then ok "once it has started, both serve; it is called at the URL that answers"; else not_ok "once it has started, both serve" "$(tail -n 3 "$DIR/second.log")"; fi
is "and both have the former keys" "$(etc "$l1" get k --print-value-only)" both
if until_ok 15 grep -q "No leader for 10 s: of the 3 voters that this replica knows, it can reach 1 .* an election needs 2" "$DIR/nobody.log"; then
	ok "who finds no leader says so, and what is known of why"
else not_ok "who finds no leader says so" "$(tail -n 2 "$DIR/nobody.log")"; fi
is "a replica with a leader logs nothing" "$(grep -c "No leader for" "$DIR"/t[12].log | grep -vc ':0$')" 0
finish
