#!/usr/bin/env bash
# A place belongs to one life of one host in one core: its key deleted by hand, taken by a clone, a core that was emptied or
# restored, an endpoint of another cluster.
# usage: BIN=build/release/bin DIR=build/identity-test [ENGINE=etcd] tests/system/identity.sh [CASE...]
. "$(dirname "$0")/lib.sh"
ENGINE=${ENGINE:-core}
CASES=${*:-deleted taken clone reboot foreign emptied restored}
ID=0123456789abcdef0123456789abcdef
read -r a ap b bp < <(free_ports 4)
LATE=0; [ "$ENGINE" = core ] || LATE=2 # seconds: etcd 3.4 looks for what has expired every 500 ms, and counts a TTL from when it hears

. "$(dirname "$0")/agents_lib.sh"

core core "$a" "$ap"; CORE=$PID
serves "$a"
agent h1; H1=$PID
until_ok 10 held h1 || not_ok "h1 joins"
watch h1

# ---- its own key ----
case_deleted() {
	agent h2 TTL=20s; until_ok 10 held h2; until_ok 5 sees h1 h2
	local l i n r
	l=$(lease h2) i=$(incarnation h2) n=$(size h2)
	E del /tenure/default/nodes/h2 >/dev/null
	until_ok 4 holds_again h2 "$l" && ok "deleted: it joins again, at once" || not_ok "deleted: it joins again" "$(tail -n 2 "$DIR/h2.log")"
	is "deleted: its place was lost" "$(since "$n" h2 "Node h2 lost its place: its key was deleted")" 1
	is "deleted: another lease" "$([ "$(lease h2)" != "$l" ] && echo yes)" yes
	r=$(incarnation h2); is "deleted: another life" "$([ -n "$r" ] && [ "$r" != "$i" ] && echo yes)" yes
	until_ok 5 sees h1 h2; is "deleted: the others agree" "$(heard h1 h2)" "NodeJoined,NodeLeft expired,NodeJoined,"
	# The same for a host that comes back after its key was deleted.
	l=$(lease h2); kill -9 "$PID"; wait "$PID" 2>/dev/null; E del /tenure/default/nodes/h2 >/dev/null
	agent h2 TTL=20s; until_ok 8 holds_again h2 "$l" && ok "deleted while it was away: it joins again" || not_ok "deleted while it was away" "$(lease h2) as before; $(tail -n 2 "$DIR/h2.log")"
	is "deleted while it was away: its key is there" "$(key_lease h2)" "$(lease h2)"
	ends "$PID"
}

case_taken() {
	agent h3; until_ok 10 held h3; until_ok 5 sees h1 h3
	local l n g
	n=$(size h3)
	g=$(E lease grant 5 | awk '{print $2}')
	E put --lease "$g" /tenure/default/nodes/h3 '{"id":"ffffffffffffffffffffffffffffffff","boot_id":"b","incarnation":"x"}' >/dev/null
	until_ok 4 sh -c "tail -c +$n '$DIR/h3.log' | grep -q 'Node h3 lost its place: another host has taken it'" && ok "taken: lost, at once" || not_ok "taken: lost at once" "$(state h3): $(tail -n 2 "$DIR/h3.log")"
	until_ok 6 sh -c "tail -c +$n '$DIR/h3.log' | grep -q \"the name 'h3' is held by another node\"" && ok "taken: and the log says by whom" || not_ok "taken: the log says by whom" "$(tail -n 2 "$DIR/h3.log")"
	until_ok $((12 + LATE)) held h3 && ok "taken: it holds again, once that one is gone" || not_ok "taken: it holds again" "$(tail -n 2 "$DIR/h3.log")"
	ends "$PID"
}

# ---- clones ----
# twin NAME OF: a host with the name and the id of another one, and a boot of its own.
twin() { agent "$1" "NodeName=$2" "NodeId=$(md5sum <<<"$2" | cut -d' ' -f1)" "${@:3}"; }

case_clone() {
	local first second l n
	agent h4 TTL=4s; first=$PID; until_ok 10 held h4; until_ok 5 sees h1 h4; l=$(lease h4)
	twin h4b h4 TTL=4s; second=$PID
	until_ok 5 grep -q "the place of 'h4' is held by another host with the same node id" "$DIR/h4b.log" && ok "clone: refused, and logged" || not_ok "clone: refused, and logged" "$(tail -n 2 "$DIR/h4b.log")"
	until_ok 5 grep -q "Another host claims to be node h4" "$DIR/h4.log" && ok "clone: the holder logs it" || not_ok "clone: the holder logs it" "$(tail -n 2 "$DIR/h4.log")"
	n_renewals h4 4; is "clone: the holder holds on" "$(lease h4)" "$l"
	is "clone: the clone gets no place" "$(state h4b)" joining
	is "clone: no host reports a change" "$(heard h1 h4)" "NodeJoined,"
	is "clone: each is logged once" "$(grep -c "claims to be node h4" "$DIR/h4.log") $(grep -c "warning.*held by another host with the same node id" "$DIR/h4b.log")" "1 1"
	# In the other order after a restart, with what each has kept: the clone has never been its holder.
	kill -9 "$second"; wait "$second" 2>/dev/null; n=$(size h4b); twin h4b h4 TTL=4s; second=$PID
	until_ok 5 sh -c "tail -c +$n '$DIR/h4b.log' | grep -q 'held by another host with the same node id'" && ok "clone: nor after a restart" || not_ok "clone: nor after a restart"
	kill -9 "$first"; wait "$first" 2>/dev/null
	until_ok $((10 + LATE)) held h4b && ok "clone: it holds once the holder is gone" || not_ok "clone: it holds once the holder is gone" "$(tail -n 2 "$DIR/h4b.log")"
	until_ok 5 sh -c "'$BIN/tenurectl' --bus=unix:abstract=tenure-agents-$$-h1 nodes --no-legend | grep -q '^h4 '"; is "clone: the others saw the holder expire in between" "$(heard h1 h4)" "NodeJoined,NodeLeft expired,NodeJoined,"
	# The host that is back was the holder, but its place is held by the other one.
	n=$(size h4); agent h4 TTL=4s; first=$PID; l=$(lease h4b)
	until_ok 5 sh -c "tail -c +$n '$DIR/h4.log' | grep -q 'held by another host with the same node id'" && ok "clone: the first one is refused now" || not_ok "clone: the first one is refused now" "$(tail -n 2 "$DIR/h4.log")"
	n_renewals h4b 3; is "clone: the clone keeps the place" "$(lease h4b)" "$l"
	ends "$first" "$second"
}

case_reboot() {
	local l
	agent h5 TTL=20s; until_ok 10 held h5; until_ok 5 sees h1 h5; l=$(lease h5)
	kill -9 "$PID"; wait "$PID" 2>/dev/null
	# No host boots within a second; an etcd tells times in whole ones.
	aged() { [ "$(E lease timetolive "$l" -w json | jq .ttl)" -le 17 ]; }; until_ok 10 aged || not_ok "reboot: its old lease ages"
	new_boot h5; agent h5 TTL=20s
	until_ok 8 holds_again h5 "$l" && ok "reboot: its own earlier boot is no clone" || not_ok "reboot: its own earlier boot is no clone" "$(tail -n 2 "$DIR/h5.log")"
	until_ok 5 sh -c "grep -q rebooted '$DIR/watch.h1.log'"; is "reboot: the others hear why, at once" "$(heard h1 h5)" "NodeJoined,NodeLeft rebooted,NodeJoined,"
	ends "$PID"
}

# ---- other cores ----
case_foreign() {
	local l n h i
	TOKEN=two core other "$b" "$bp"; OTHER=$PID; serves "$b"
	# That core has a higher revision than ours, and a node that does not exist here.
	for i in $(seq 30); do etcdctl --endpoints "127.0.0.1:$b" put /tenure/default/nodes/stranger '{"id":"s"}' >/dev/null; done
	kill -STOP "$OTHER"
	agent h6 "Endpoints=http://127.0.0.1:$a,http://127.0.0.1:$b" TTL=16s; h=$PID
	until_ok 10 held h6 || not_ok "h6 joins"
	kill -CONT "$OTHER"; l=$(lease h6) n=$(size h6)
	# Ours is silent when a renewal is due: it is asked of the other one, which knows of no such lease.
	n_renewals h6 1; kill -STOP "$CORE"
	until_ok 15 grep -q "another cluster" "$DIR/h6.log"; kill -CONT "$CORE"
	n_renewals h6 2
	is "foreign: its word ends no lease" "$(lease h6)" "$l"
	is "foreign: the place is not lost" "$(since "$n" h6 "lost its place")" 0
	is "foreign: the other cluster is logged once" "$(grep -c "http://127.0.0.1:$b.* another cluster" "$DIR/h6.log")" 1
	is "foreign: its nodes are none of ours" "$(sees h6 stranger; echo $?)" 1
	is "foreign: nothing of ours is there" "$(etcdctl --endpoints "127.0.0.1:$b" get /tenure/default/nodes/h6)" ""
	# A restart goes on with the same cluster, whoever answers first.
	kill -9 "$h"; wait "$h" 2>/dev/null; agent h6 "Endpoints=http://127.0.0.1:$b,http://127.0.0.1:$a" TTL=16s; h=$PID
	n_renewals h6 2; is "foreign: the lease is kept after a restart" "$(lease h6)" "$l"
	ends "$h"; end "$OTHER"
	is "foreign: leaving gives the place back where it is" "$(E get /tenure/default/nodes/h6)" ""
}

again_in_new_world() { # WHAT LEASE: h7 holds anew, knows its core and is known
	until_ok 8 holds_again h7 "$2" && ok "$1: it joins again" || not_ok "$1: it joins again" "$(state h7), $(tail -n 3 "$DIR/h7.log")"
	is "$1: its key is there" "$(key_lease h7)" "$(lease h7)"
	E put /tenure/default/nodes/after "{\"id\":\"$1\"}" >/dev/null
	until_ok 5 sees h7 after && ok "$1: it hears of others" || not_ok "$1: it hears of others" "Synced $(ctl h7 status --json=short | jq -c '[.Synced, .Revision]')"
	until_ok 8 sees h1 h7 && ok "$1: the others hear of it" || not_ok "$1: the others hear of it"
	is "$1: who was there before is not there" "$(sees h7 before; echo $?)" 1
	E del /tenure/default/nodes/after >/dev/null; until_ok 5 sh -c "! '$BIN/tenurectl' --bus=unix:abstract=tenure-agents-$$-h7 nodes --no-legend | grep -q after" && ok "$1: and of their end" || not_ok "$1: and of their end"
}

case_emptied() {
	local l h
	agent h7; h=$PID; until_ok 10 held h7; l=$(lease h7)
	for i in $(seq 50); do E put /tenure/default/nodes/before "{\"id\":\"$i\"}" >/dev/null; done; until_ok 5 sees h7 before
	# Of the same name: only that it knows less tells it from the one before.
	end "$CORE"; rm -rf "$DIR/core"; core core "$a" "$ap"; CORE=$PID; serves "$a"
	again_in_new_world "emptied" "$l"; l=$(lease h7)
	E put /tenure/default/nodes/before '{"id":"x"}' >/dev/null; until_ok 5 sees h7 before
	end "$CORE"; rm -rf "$DIR/core"; TOKEN=three core core "$a" "$ap"; CORE=$PID; serves "$a"
	for i in $(seq 80); do E put elsewhere "$i" >/dev/null; done
	again_in_new_world "emptied, under another id" "$l"
	ends "$h"
}

case_restored() {
	local l h
	agent h7; h=$PID; until_ok 10 held h7; l=$(lease h7)
	timeout 60 etcdctl --endpoints "127.0.0.1:$a" snapshot save "$DIR/snapshot" >"$DIR/save.log" 2>&1 || not_ok "restored: a snapshot" "$(tail -n 1 "$DIR/save.log")"
	for i in $(seq 50); do E put /tenure/default/nodes/before "{\"id\":\"$i\"}" >/dev/null; done; until_ok 5 sees h7 before
	end "$CORE"; rm -rf "$DIR/core"
	if [ "$ENGINE" = etcd ]; then
		etcdctl snapshot restore "$DIR/snapshot" --name x --data-dir "$DIR/core" --initial-cluster "x=http://127.0.0.1:$ap" --initial-advertise-peer-urls "http://127.0.0.1:$ap" --initial-cluster-token "${TOKEN:-one}" >"$DIR/restore.log" 2>&1
	else
		"$BIN/tenure-core" --restore "$DIR/snapshot" --name x --data-dir "$DIR/core" --listen-client-urls "http://127.0.0.1:$a" --listen-peer-urls "http://127.0.0.1:$ap" --initial-cluster-token "${TOKEN:-one}" >"$DIR/restore.log" 2>&1
	fi
	core core "$a" "$ap"; CORE=$PID; serves "$a"
	again_in_new_world "restored" "$l"
	ends "$h"
}

for c in $CASES; do "case_$c"; done
finish
