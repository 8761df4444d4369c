#!/usr/bin/env bash
# tenurectl switchover, and libtenure's: the one that is named has the lock next, nobody gets in between, no two act at once, and
# what does not work changes nothing; on three replicas of tenure-core or on a real etcd (ENGINE=etcd).
# usage: BIN=build/release/bin DIR=build/switchover-test [ENGINE=etcd] [TIMES=200] tests/system/switchover.sh [CASE...]
. "$(dirname "$0")/lib.sh"
wants_plain
ENGINE=${ENGINE:-core}
CASES=${*:-named refused goes replicas deadline frozen ties times rights}
TIMES=${TIMES:-15}
SO=$(realpath "$BIN/../so") HERE=$(realpath "$(dirname "$0")") BIN=$(realpath "$BIN")
for p in tie acts; do
	gcc -std=gnu11 -Wall -Wextra -Werror -O1 -g -o "$DIR/$p" "$HERE/$p.c" -I"$HERE/../../lib/tenure" -L"$SO" -ltenure -Wl,-rpath,"$SO" || { not_ok "$p.c builds"; finish; exit 1; }
done

# ---- the core, and three hosts ----
if [ "$ENGINE" = etcd ]; then
	wants_etcd "switchovers on a real etcd"
	read -r c p < <(free_ports 2)
	URLS=http://127.0.0.1:$c
	start_etcd core "$c" "$p"
else
	read -r c1 c2 c3 p1 p2 p3 < <(free_ports 6)
	URLS=http://127.0.0.1:$c1,http://127.0.0.1:$c2,http://127.0.0.1:$c3
	declare -A REPLICA
	replica() {
		local cc=c$1 pp=p$1
		start_replica "core$1" "${!cc}" "${!pp}" --initial-cluster "core1=http://127.0.0.1:$p1,core2=http://127.0.0.1:$p2,core3=http://127.0.0.1:$p3"
		REPLICA[$1]=$PID
	}
	for i in 1 2 3; do replica $i; done
fi
E() { timeout 5 etcdctl --endpoints "$URLS" "$@"; }
until_ok 20 E put begin yes || { not_ok "the core serves" "$(tail -n 3 "$DIR"/core*.log)"; finish; exit 1; }
HOSTS="db1 db2 db3"
declare -A AGENT
bus_of() { echo "unix:path=$PLAIN/$1.bus"; }
agent() { start "agent.$1" env RUNTIME_DIRECTORY="$DIR/$1.run" DBUS_SYSTEM_BUS_ADDRESS="$(bus_of "$1")" "$BIN/tenured" -c "$DIR/$1.conf"; AGENT[$1]=$PID; }
for h in $HOSTS; do
	cat >"$DIR/$h.bus.conf" <<END
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>$(bus_of $h)</listen><auth>EXTERNAL</auth><policy context="default">
<allow user="*"/><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>
END
	start bus dbus-daemon --config-file="$DIR/$h.bus.conf" --nofork --nopidfile
	mkdir "$DIR/$h.run"
	printf '[Agent]\nEndpoints=%s\nNodeName=%s\nNodeId=%s\nTTL=5s\nServicesPath=%s\n' "$URLS" $h "$(printf %s $h | md5sum | cut -c1-32)" "$DIR/none" >"$DIR/$h.conf"
	until_ok 20 busctl --address="$(bus_of $h)" list
	agent $h
done
ctl() { timeout 40 "$BIN/tenurectl" --bus="$(bus_of "$1")" "${@:2}"; }
held() { ctl "$1" status; }
for h in $HOSTS; do until_ok 20 held $h || { not_ok "$h holds its place" "$(tail -n 2 "$DIR/agent.$h.log")"; finish; exit 1; }; done
switchover() { timeout 60 "$BIN/tenurectl" --endpoints="$URLS" switchover "$@" 2>&1; }

# ---- who acts ----
# contend HOST [SECONDS]: it asks for the lock `job`, and has it on record when it acts; $DIR/HOST.status is how tenurectl ended.
declare -A LOCKER
contender() { "$BIN/tenurectl" --bus="$(bus_of "$1")" lock job -- "$DIR/acts" command "$1" "$DIR/log" "${2:-0}"; echo $? >"$DIR/$1.status"; }
contend() { rm -f "$DIR/$1.status" "$DIR/log.$1"; : >"$DIR/lock.$1.log"; start "lock.$1" contender "$@"; LOCKER[$1]=$PID; }
acts() { local last; [ -s "$DIR/log.$1" ] && last=$(<"$DIR/log.$1") && sleep 0.02 && [ "$(<"$DIR/log.$1")" != "$last" ]; }
keys() { E get "$1/" --prefix --keys-only | grep -c "^$1/"; }
waiters() { [ "$(keys job)" = "$1" ]; }
# line HOST...: they come in this order, and the first acts.
line() {
	local n=0 h
	for h in "$@"; do contend "$h"; n=$((n + 1)); until_ok 20 waiters $n || not_ok "$h waits" "$(cat "$DIR/lock.$h.log")"; done
	until_ok 20 acts "$1" || not_ok "$1 acts" "$(cat "$DIR/lock.$1.log")"
}
request() { [ -n "$(E get job.switchover --keys-only)" ]; }
# The whole line goes.
tenurectl_of() { pgrep -P "${LOCKER[$1]}" -f 'tenurectl .*lock job' | head -n 1; }
clear_line() {
	local h p
	for h in $HOSTS; do
		[ -z "${LOCKER[$h]:-}" ] || { p=$(tenurectl_of $h); [ -z "$p" ] || kill -TERM "$p"; until_ok 20 test -s "$DIR/$h.status" || not_ok "$h ends" "$(cat "$DIR/lock.$h.log")"; }
		unset "LOCKER[$h]"
	done
	until_ok 20 waiters 0 || { not_ok "the line is cleared" "$(E get job/ --prefix)"; E del job/ --prefix >/dev/null; }
}
no_overlap() { # prints how many pairs of intervals overlap, how many tokens do not grow, and the pauses' median and largest, in µs
	sort -n -k2,2 "$1" | awk 'NR > 1 { if ($2 <= end) over++; if ($4 <= token) tokens++; print $2 - end > "'"$1.pauses"'" } { if ($3 > end) end = $3; token = $4 } END { print over + 0, tokens + 0 }'
	sort -n "$1.pauses" | awk '{ p[NR] = $1 } END { printf "p50 %.1f ms, p90 %.1f ms, max %.1f ms of %d\n", p[int((NR + 1) / 2)] / 1000, p[int(NR * 0.9 + 0.5)] / 1000, p[NR] / 1000, NR }'
	rm -f "$1.pauses"
}

# A machine that is too busy costs a host its place, and a lock with it, which is right and not what these cases are about; so
# does a renewal that came after the lead: the lock's command is told then.
places() { local h; for h in $HOSTS; do ctl "$h" status --json=short | jq -r .LeaseId; grep -c 'Renewals fail' "$DIR/agent.$h.log"; done; }
kept_places() { [ "$(places)" = "$PLACES" ] || { echo "a host has lost its place meanwhile, and its lock: this machine is too busy"; false; }; }

case_named() {
	: >"$DIR/log"
	line db1 db2 db3
	out=$(switchover job db3); r=$?
	is "named: exit status" $r 0
	has "named: prints who had the lock, who has it, and how long it took" "$out" "^db1 held 'job' and stopped within [0-9.]+ ms; db3 has it [0-9.]+ ms later \(token [0-9]+\)\.$"
	until_ok 20 acts db3 && ok "named: the one that was named acts" || not_ok "named: the one that was named acts" "$(cat "$DIR/lock.db3.log")"
	until_ok 20 test -s "$DIR/db1.status"; is "named: the former holder has ended" "$(cat "$DIR/db1.status")" 123
	has "named: the former holder's log says why" "$(cat "$DIR/lock.db1.log")" "to be handed over to db3; ending the command"
	has "named: the former holder's log says who has the lock" "$(cat "$DIR/lock.db1.log")" "was handed over to db3"
	is "named: the waiter in between has not acted" "$(test -e "$DIR/log.db2" && echo acted)" ""
	until_ok 20 waiters 2 && ok "named: and waits again, behind it" || not_ok "named: it waits again" "$(cat "$DIR/lock.db2.log")"
	is "named: the request is deleted" "$(E get job.switchover --keys-only)" ""
	# Without a name: whoever is next.
	contend db1; until_ok 20 waiters 3
	out=$(switchover job --json=short); is "next: exit status" $? 0
	is "next: the first of those who wait" "$(jq -r '[.lock, .from, .to, (.token > 0), (.pause_usec >= 0)] | join(" ")' <<<"$out")" "job db3 db2 true true"
	until_ok 20 acts db2 && ok "next: it acts" || not_ok "next: it acts"
	# Who has it already.
	out=$(switchover job db2); is "already: exit status" $? 0
	has "already: the error says so" "$out" "^db2 holds the lock 'job' already\.$"
	clear_line
	is "named: no two acted at once, and tokens grow" "$(no_overlap "$DIR/log" | head -n 1)" "0 0"
}

case_refused() {
	local before out
	# nothing WHAT STATUS PATTERN ARGUMENT...: it ends so, says why, and the line is as it was.
	nothing() {
		before=$(E get job --prefix -w json | jq -c '[.kvs[]? | [.key, .create_revision]]')
		out=$(switchover "${@:4}"); r=$?
		is "refused: $1: exit status" $r "$2"; has "refused: $1: why" "$out" "$3"
		is "refused: $1: nothing has changed" "$(E get job --prefix -w json | jq -c '[.kvs[]? | [.key, .create_revision]]')" "$before"
	}
	nothing "nobody holds it" 2 "Nobody holds the lock 'job'" job db1
	nothing "no such node" 2 "Nobody holds|No node and no session is named 'db9'" job db9
	nothing "no arguments" 1 "switchover needs NAME \[NODE\]"
	nothing "a time that is none" 1 "1 ms to a day" job db1 --wait=0
	line db1
	nothing "nobody waits" 2 "Nobody waits for the lock 'job'" job
	nothing "one that does not wait" 2 "db2 does not wait for the lock 'job'" job db2
	nothing "no such node" 2 "No node and no session is named 'db9'" job db9
	# An etcdctl that was passed over would not notice.
	start other timeout 60 etcdctl --endpoints "${URLS%%,*}" lock job -- sh -c 'echo "has it"; sleep 60'; OTHER=$PID; until_ok 20 waiters 2
	contend db3; until_ok 20 waiters 3
	nothing "an etcdctl in between" 2 "waits for the lock 'job' before db3, and would not notice" job db3
	# One that holds cannot be asked.
	p=$(tenurectl_of db1); kill -TERM "$p"; until_ok 20 grep -q 'has it' "$DIR/other.log" || not_ok "etcdctl has it"
	nothing "an etcdctl holds it" 2 "held by a program that cannot be asked" job db3
	kill -INT $OTHER; wait $OTHER 2>/dev/null
	until_ok 20 acts db3 || not_ok "refused: the next one acts" "$(cat "$DIR/lock.db3.log")"
	# Two at once: the second has to wait for the end of the first, which ends when whoever asked has died.
	contend db2; until_ok 20 waiters 2
	kill -STOP "$(tenurectl_of db3)"
	start first "$BIN/tenurectl" --endpoints="$URLS" switchover job db2 --wait=60s; FIRST=$PID
	until_ok 20 request || not_ok "refused: a request is there" "$(cat "$DIR/first.log")"
	nothing "another one is under way" 2 "A switchover of 'job' to db2 is under way, which [^ ]+ asked for" job db2
	kill -9 $FIRST; wait $FIRST 2>/dev/null
	no_request() { ! request; }
	until_ok 20 no_request && ok "refused: whoever asked has died, and the request with it" || not_ok "refused: a request stays"
	# A holder that does not answer keeps the lock.
	nothing "a holder that does not answer" 1 "db3 holds the lock 'job' and does not answer" job db2 --wait=1s
	is "refused: the request is withdrawn" "$(E get job.switchover --keys-only)" ""
	kill -CONT "$(tenurectl_of db3)"; clear_line
}

# The target goes while the holder stops: the lock stays, and the command runs again.
case_goes() {
	: >"$DIR/log"
	contend db1 6; until_ok 20 acts db1; contend db2; until_ok 20 waiters 2; contend db3; until_ok 20 waiters 3
	start goes switchover job db3; GOES=$PID
	until_ok 20 grep -q 'ending the command' "$DIR/lock.db1.log" || not_ok "goes: the holder is asked" "$(cat "$DIR/goes.log")"
	kill -TERM "$(tenurectl_of db3)"; unset "LOCKER[db3]"
	wait $GOES; is "goes: exit status" $? 2
	has "goes: why" "$(cat "$DIR/goes.log")" "db3 no longer waits; the lock 'job' stays with db1"
	until_ok 20 grep -q 'it stays here' "$DIR/lock.db1.log" && ok "goes: the holder keeps the lock" || not_ok "goes: the holder keeps the lock" "$(cat "$DIR/lock.db1.log")"
	until_ok 20 acts db1 && ok "goes: and its command runs again" || not_ok "goes: and its command runs again" "$(cat "$DIR/lock.db1.log")"
	is "goes: no other waiter had the lock" "$(cut -d' ' -f1 "$DIR/log" | sort -u | tr '\n' ' ')" "db1 "
	# In the middle of another one the leader goes.
	if [ "$ENGINE" = core ]; then
		until_ok 20 waiters 2
		PLACES=$(places); start leader switchover job db2; LEADER=$PID
		until_ok 20 eval '[ $(grep -c "ending the command" "$DIR/lock.db1.log") = 2 ]'
		has_leader() { l=$(leader_of "$c1" "$c2" "$c3"); }
		until_ok 10 has_leader
		kill -9 "${REPLICA[$l]}"; wait "${REPLICA[$l]}" 2>/dev/null
		wait $LEADER; r=$?
		if kept_places; then
			is "goes: the leader is killed meanwhile: exit status" $r 0
			until_ok 20 acts db2 && ok "goes: and the one that was named acts" || not_ok "goes: the one that was named acts" "$(cat "$DIR/leader.log" "$DIR/lock.db2.log")"
		fi
		replica "$l"
	fi
	clear_line
	is "goes: no two acted at once" "$(no_overlap "$DIR/log" | head -n 1 | cut -d' ' -f1)" 0
}

# Whichever replica dies, waiters keep waiting, and a lock can be given back.
case_replicas() {
	[ "$ENGINE" = core ] || return 0
	local i cc
	asked_by() { ctl "$1" status --json=short | jq -r .CoreEndpoint; }
	kill_asked() { # the replica that HOST's agent asks
		at=$(asked_by "$1")
		for i in 1 2 3; do cc=c$i; [ "$at" != "http://127.0.0.1:${!cc}" ] || break; done
		kill -9 "${REPLICA[$i]}"; wait "${REPLICA[$i]}" 2>/dev/null
		KILLED=$i
	}
	asks_another() { local now; now=$(asked_by "$1") && [ -n "$now" ] && [ "$now" != "$at" ]; }
	line db1 db2
	kill_asked db2; until_ok 20 asks_another db2
	kill -TERM "$(tenurectl_of db1)"; until_ok 20 test -s "$DIR/db1.status"; unset "LOCKER[db1]"
	until_ok 20 acts db2 && ok "replicas: a waiter whose replica has died has the lock next" || not_ok "replicas: a waiter whose replica has died" "$(cat "$DIR/lock.db2.log")"
	replica $KILLED
	until_ok 20 E put begin again; until_ok 20 held db2
	kill_asked db2; until_ok 20 asks_another db2
	kill -TERM "$(tenurectl_of db2)"; until_ok 20 test -s "$DIR/db2.status"; unset "LOCKER[db2]"
	until_ok 10 waiters 0 && ok "replicas: a lock is given back, though the replica that gave it has died" || not_ok "replicas: a lock is given back" "$(cat "$DIR/lock.db2.log")"
	replica $KILLED
	# All of them for a moment, which no lease notices.
	line db1 db2; PLACES=$(places)
	for i in 1 2 3; do kill -STOP "${REPLICA[$i]}"; done
	for i in 1 2 3; do kill -9 "${REPLICA[$i]}"; wait "${REPLICA[$i]}" 2>/dev/null; done
	for i in 1 2 3; do replica $i; done
	until_ok 20 E put begin once-more; for i in $HOSTS; do until_ok 20 held "$i"; done
	kept_places || { clear_line; return; }
	until_ok 20 waiters 2 || not_ok "replicas: both are still there" "$(E get job/ --prefix)"
	kill -TERM "$(tenurectl_of db1)"; until_ok 20 test -s "$DIR/db1.status"; unset "LOCKER[db1]"
	until_ok 20 acts db2 && ok "replicas: so has one whose core has begun again" || not_ok "replicas: so has one whose core has begun again" "$(cat "$DIR/lock.db2.log")"
	clear_line
}

# A command that ignores signals is killed when its time is over.
case_deadline() {
	: >"$DIR/log"
	contend db1 60; until_ok 20 acts db1; contend db2; until_ok 20 waiters 2
	out=$(switchover job db2 --wait=1s --json=short); is "deadline: exit status" $? 0
	ms=$(($(jq .stop_usec <<<"$out") / 1000))
	[ $ms -ge 1000 ] && [ $ms -lt 20000 ] && ok "deadline: a command that does not stop is killed after its second ($ms ms), not before" || not_ok "deadline: stopped after $ms ms"
	until_ok 20 acts db2 || not_ok "deadline: the next one acts" "$(cat "$DIR/lock.db2.log")"
	clear_line
	# It had no time to write its line down; its last act did.
	[ "$(<"$DIR/log.db1")" -lt "$(awk '$1 == "db2" { print $2; exit }' "$DIR/log")" ] && ok "deadline: and its last act was before the next one's first" || not_ok "deadline: two acted at once"
}

# The holder's host is frozen: its place ends, and the named target is next, not the one that has waited longer.
case_frozen() {
	: >"$DIR/log"
	line db1 db2 db3
	kill -STOP "${AGENT[db1]}" "$(tenurectl_of db1)" # the keeper goes on, and ends the command
	began=$(date +%s%3N)
	out=$(switchover job db3 --json=short); is "frozen: exit status" $? 0
	is "frozen: the one that was named has it" "$(jq -r .to <<<"$out")" db3
	until_ok 20 acts db3 && ok "frozen: it acts" || not_ok "frozen: it acts" "$(cat "$DIR/lock.db3.log")"
	is "frozen: the waiter in between has not acted" "$(test -e "$DIR/log.db2" && echo acted)" ""
	until_ok 20 waiters 2 && ok "frozen: and waits again" || not_ok "frozen: it waits again" "$(cat "$DIR/lock.db2.log")"
	[ $(($(date +%s%3N) - began)) -gt 1000 ] && ok "frozen: not before the place's end" || not_ok "frozen: before the place's end"
	last=$(<"$DIR/log.db1")
	kill -CONT "${AGENT[db1]}" "$(tenurectl_of db1)"
	until_ok 20 test -s "$DIR/db1.status"; is "frozen: the one that held it: its place was lost" "$(cat "$DIR/db1.status")" 123
	unset "LOCKER[db1]"; clear_line
	[ "$last" -lt "$(awk '$1 == "db3" { print $2; exit }' "$DIR/log")" ] && ok "frozen: its last act was before the next one's first" || not_ok "frozen: two acted at once"
	until_ok 20 held db1
}

# ---- libtenure ----
tie() {
	local name=$1
	rm -f "$DIR/$name.in"; mkfifo "$DIR/$name.in"; : >"$DIR/$name.out"
	TENURE_ENDPOINTS=$URLS "$DIR/tie" "own:5000:$name" <>"$DIR/$name.in" >>"$DIR/$name.out" 2>&1 &
	PIDS+=($!); TIE=$!
	until_ok 20 grep -q '^held' "$DIR/$name.out" || not_ok "$name holds" "$(cat "$DIR/$name.out")"
}
to() { echo "${*:2}" >"$DIR/$1.in"; }
hears() { until_ok "$2" grep -qE -- "$3" "$DIR/$1.out" && ok "$4" || not_ok "$4" "$(tail -n 5 "$DIR/$1.out" | tr '\n' '|')"; }
says() { : >"$DIR/$1.out"; to "$1" "$2"; until_ok 20 grep -q "^${2%% *}:" "$DIR/$1.out"; grep "^${2%% *}:" "$DIR/$1.out" | tail -n 1; }
case_ties() {
	local t1 t2 n=0 name
	for name in a b d; do tie $name; to $name lock roles $name; n=$((n + 1)); until_ok 20 eval "[ \$(keys roles) = $n ]" || not_ok "ties: $name waits" "$(cat "$DIR/$name.out")"; done
	hears a 20 '^locked' "ties: the first has it"
	t1=$(says a has)
	is "ties: tenure_hand_over() without a request is refused" "$(says a hand | grep -c 'nobody has asked')" 1
	: >"$DIR/a.out"; to d switch roles d 60000
	hears a 20 '^asked [0-9a-f]+ d ' "ties: it hears that it is asked, and by whom it is followed"
	has "ties: the holder still has the lock" "$(says a has)" "yes"
	left=$(says a left); left=${left#* }
	[ "$left" -gt 0 ] && [ "$left" -le 60000 ] && ok "ties: for as long as it has ($left ms)" || not_ok "ties: for as long as it has" "$left"
	first_of() { E get roles/ --prefix --sort-by=CREATE --print-value-only | tr '\n' ' '; }
	until_ok 20 eval '[ "$(first_of)" = "a d b " ]' && ok "ties: the one that was passed over waits behind it, at once" || not_ok "ties: the one that was passed over waits behind it" "$(first_of)"
	: >"$DIR/a.out"; to a hand
	hears a 20 '^unlocked [0-9a-f]+ handed over to d ' "ties: it hands the lock over"
	hears d 20 '^locked' "ties: the one that was named has it"
	hears d 20 '^switched: from a to d token' "ties: whoever asked hears of it"
	is "ties: the one in between has not had it" "$(grep -c '^locked' "$DIR/b.out")" 0
	t2=$(says d has); [ "${t2##* }" -gt "${t1##* }" ] && ok "ties: tokens grow" || not_ok "ties: tokens grow" "$t1, then $t2"
	until_ok 20 eval '[ "$(keys roles)" = 3 ]' && ok "ties: both wait again" || not_ok "ties: both wait again" "$(E get roles/ --prefix)"
	# One that does not answer has it until its time is over.
	: >"$DIR/d.out"; out=$(switchover roles a --wait=1s --json=short); is "ties: one that does not answer: exit status" $? 0
	ms=$(($(jq .stop_usec <<<"$out") / 1000)); [ $ms -ge 1000 ] && ok "ties: it had its second ($ms ms)" || not_ok "ties: it lost the lock after $ms ms"
	hears d 20 '^unlocked [0-9a-f]+ the time to hand it over to a has passed' "ties: and then it hears that it has it no more"
	has "ties: the holder no longer has the lock" "$(says d has)" "no 0"
	hears a 20 '^locked' "ties: the one that was named has it"
	# The target goes while the holder stops: TENURE_LOCKED, the same token.
	t1=$(says a has); : >"$DIR/a.out"; start gone switchover roles d --wait=20s; GONE=$PID
	hears a 20 '^asked' "ties: asked once more"
	kill -9 $TIE; until_ok 20 eval '[ "$(keys roles)" = 2 ]'
	wait $GONE; is "ties: the one that was named has died: exit status" $? 2
	to a hand; hears a 20 '^locked' "ties: it keeps the lock"
	is "ties: the holder keeps the lock with the same token" "$(says a has)" "$t1"
	# A program in a container, for example, can request a switchover as well, by a tie's call.
	: >"$DIR/b.out"; to b switch roles nobody 1000; hears b 20 "^put: No such file or directory No node and no session is named 'nobody'" "ties: an error says why"
	for n in a b; do to $n quit; done
}

# A user with exactly the permissions that the manual page names.
case_rights() {
	local name n=0 out
	E user add root:root >/dev/null; E role add root >/dev/null; E user grant-role root root >/dev/null
	E user add one:one >/dev/null; E role add one >/dev/null; E user grant-role one one >/dev/null
	E role grant-permission one --prefix=true readwrite /tenure/ >/dev/null; E role grant-permission one --prefix=true readwrite duty/ >/dev/null
	E role grant-permission one readwrite duty.switchover >/dev/null
	E auth enable >/dev/null || not_ok "rights: users are asked for" "$(E auth status)"
	waits() { [ "$(E --user root:root get duty/ --prefix --keys-only | grep -c '^duty/')" = "$1" ]; }
	for name in a b; do TIE_USER=one TIE_PASSWORD=one tie $name; to $name lock duty $name; n=$((n + 1)); until_ok 20 waits $n; done
	hears a 20 '^locked' "rights: one of them has it"
	start asks sh -c 'exec timeout 60 "$1" --endpoints="$2" --user=one:one switchover duty b --wait=20s --json=short >"$3" 2>&1' _ "$BIN/tenurectl" "$URLS" "$DIR/asks.out"
	hears a 20 '^asked' "rights: it is asked"
	to a hand; hears b 20 '^locked' "rights: the one that was named has it"
	wait "$PID"; is "rights: whoever asked: exit status" $? 0; out=$(<"$DIR/asks.out")
	ms=$(($(jq .stop_usec <<<"$out") / 1000)); [ $ms -lt 10000 ] && ok "rights: and hears of it at once ($ms ms)" || not_ok "rights: and hears of it only after $ms ms" "$out"
	for name in a b; do to $name quit; done
	E --user root:root auth disable >/dev/null
}

# Many times under load: never two at once.
case_times() {
	local i n h now want load
	local -A LOOP
	export TENURE_ENDPOINTS=$URLS
	: >"$DIR/log"
	start load "$DIR/acts" load; load=$PID
	loop() { while [ ! -e "$DIR/stop" ]; do "$BIN/tenurectl" --bus="$(bus_of "$1")" lock job -- "$DIR/acts" command "$1" "$DIR/log"; done; }
	rm -f "$DIR/stop"
	for h in $HOSTS; do start "loop.$h" loop $h; LOOP[$h]=$PID; done
	until_ok 20 waiters 3; now=
	# If a machine or a core stalls for seconds, a switchover fails, which is reported; the next one is independent of it.
	for ((i = n = 0; n < TIMES && i < TIMES + 5; i++)); do
		want=db$((i % 3 + 1)); [ "$want" != "$now" ] || want=db$(((i + 1) % 3 + 1))
		until_ok 20 waiters 3 || { echo "not all wait: $(E get job/ --prefix --keys-only)"; continue; }
		out=$(switchover job $want --json=short) || { echo "switchover $i to $want: $out"; continue; }
		now=$want n=$((n + 1)); [ "$(jq -r .to <<<"$out")" = $want ] || not_ok "times: switchover $i to $want" "$out"
		jq .pause_usec <<<"$out" >>"$DIR/told"
	done
	is "times: tenurectl lock: $TIMES switchovers" $n "$TIMES"
	is "times: load is there all the time" "$(kill -0 $load && echo yes)" yes
	touch "$DIR/stop"; kill $load; for h in $HOSTS; do kill -TERM "$(pgrep -P "${LOOP[$h]}")"; wait "${LOOP[$h]}"; done
	is "times: tenurectl lock: of $(wc -l <"$DIR/log") turns no two acted at once, and tokens grow" "$(no_overlap "$DIR/log" | head -n 1)" "0 0"
	echo "tenurectl lock: from the last act of one to the first act of the next: $(no_overlap "$DIR/log" | tail -n 1); as tenurectl tells: $(sort -n "$DIR/told" | awk '{p[NR]=$1} END {printf "p50 %.1f ms", p[int((NR+1)/2)]/1000}')"
	# libtenure's.
	: >"$DIR/tlog"
	start load "$DIR/acts" load; load=$PID
	for h in s1 s2 s3; do start "ties.$h" "$DIR/acts" tie role $h "$DIR/tlog"; LOOP[$h]=$PID; done
	until_ok 20 eval '[ "$(keys role)" = 3 ]'; now=
	for ((i = n = 0; n < TIMES && i < TIMES + 5; i++)); do
		want=s$((i % 3 + 1)); [ "$want" != "$now" ] || want=s$(((i + 1) % 3 + 1))
		until_ok 20 eval '[ "$(keys role)" = 3 ]'
		out=$(switchover role $want --json=short) || { echo "switchover $i to $want: $out"; continue; }
		now=$want n=$((n + 1))
	done
	is "times: libtenure: $TIMES switchovers" $n "$TIMES"
	kill $load; for h in s1 s2 s3; do kill "${LOOP[$h]}"; wait "${LOOP[$h]}"; done
	is "times: libtenure: of $(wc -l <"$DIR/tlog") turns no two acted at once, and tokens grow" "$(no_overlap "$DIR/tlog" | head -n 1)" "0 0"
	echo "libtenure: from the last act of one to the first act of the next: $(no_overlap "$DIR/tlog" | tail -n 1)"
}

for what in $CASES; do "case_$what"; done
finish
