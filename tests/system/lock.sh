#!/usr/bin/env bash
# tenurectl lock: nothing of a command runs once another host may have the lock, whatever becomes of the agent, the bus,
# tenurectl and the terminal; and what is held is not given up for less.
# usage: BIN=build/release/bin DIR=build/lock-test tests/system/lock.sh
. "$(dirname "$0")/lib.sh"
HERE=$(dirname "$0")

read -r c p < <(free_ports 2)
TTL_MS=4000
BUS=unix:abstract=tenure-lock-test-$$
cat >"$DIR/bus.conf" <<END
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>$BUS</listen><policy context="default">
<allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>
END
bus() { start bus dbus-daemon --config-file="$DIR/bus.conf" --nofork --nopidfile; BUSPID=$PID; }
bus
start_replica core "$c" "$p"; CORE=$PID
mkdir "$DIR/run"
printf '[Agent]\nEndpoints=http://127.0.0.1:%s\nNodeName=web1\nNodeId=0123456789abcdef0123456789abcdef\nTTL=%sms\nServicesPath=%s\n' "$c" $TTL_MS "$DIR/none" >"$DIR/agent.conf"
agent() { start agent env RUNTIME_DIRECTORY="$DIR/run" DBUS_SYSTEM_BUS_ADDRESS="$BUS" "$BIN/tenured" -c "$DIR/agent.conf"; AGENT=$PID; }
ctl() { timeout 20 "$BIN/tenurectl" --bus="$BUS" "$@"; }
ctl_forever() { exec "$BIN/tenurectl" --bus="$BUS" "$@"; }
etcd() { etcdctl --endpoints "127.0.0.1:$c" "$@"; }
lease() { ctl status --json=short | jq -r .LeaseId; }
until_ok 10 busctl --address="$BUS" list
agent; until_ok 10 ctl status || not_ok "the agent holds its place" "$(tail -n 2 "$DIR/agent.log")"

# What must not run twice: says all the time that it does, and so does a child of it in a session of its own that listens to nobody.
cat >"$DIR/busy" <<'END'
#!/bin/bash
# busy NAME [ignore]: a file for each of two processes, with the time at which it ran last, in microseconds.
tick() { trap '' TERM HUP INT; while :; do echo "${EPOCHREALTIME/./}" >"$1.new" && mv "$1.new" "$1"; read -rt 0.01 <>"$1.fifo"; done; }
mkfifo "$1.a.fifo" "$1.b.fifo"
export -f tick
setsid -f bash -c 'setsid bash -c "tick \"\$1\"" _ "$1.b" & disown' _ "$1" >/dev/null 2>&1 </dev/null
[ "${2:-}" = ignore ] || trap 'echo told; exit 5' TERM
[ "${2:-}" != ignore ] || trap '' TERM
while :; do echo "${EPOCHREALTIME/./}" >"$1.a.new" && mv "$1.a.new" "$1.a"; read -rt 0.01 <>"$1.a.fifo"; done
END
chmod 755 "$DIR/busy"
last_ran() { cat "$1.a" "$1.b" | sort -n | tail -n 1; }
now_us() { echo "${EPOCHREALTIME/./}"; }
runs_since() { [ "$(cat "$1.a" 2>/dev/null || echo 0)" -gt "$2" ] && [ "$(cat "$1.b" 2>/dev/null || echo 0)" -gt "$2" ]; }
still() { local t; t=$(now_us); until_ok 8 runs_since "$1" "$t"; } # both of its processes run
at() { start "$1" ctl_forever lock job -- "$DIR/busy" "$DIR/$1" "${@:2}"; LOCKER=$PID; until_ok 10 still "$DIR/$1" || not_ok "$1: it runs" "$(cat "$DIR/$1.log")"; }
# next NAME: another holder, who waits for the lock and writes down when it has it.
next() { start "next.$1" timeout 60 etcdctl --endpoints "127.0.0.1:$c" lock --ttl 60 job -- sh -c "date +%s%6N >'$DIR/next.$1.at'"; NEXT=$PID; until_ok 5 waiters 2; }
waiters() { [ "$(etcd get job/ --prefix --keys-only | grep -c job)" = "$1" ]; }
# before NAME WHAT: of NAME nothing ran any more when the next one began.
before() {
	until_ok 20 test -s "$DIR/next.$1.at" || { not_ok "$2" "nobody else ever has the lock"; return; }
	local ran got; ran=$(last_ran "$DIR/$1") got=$(cat "$DIR/next.$1.at")
	if [ "$ran" -lt "$got" ]; then ok "$2: it had stopped $(((got - ran) / 1000)) ms before the next one began"; else not_ok "$2" "it ran for $(((ran - got) / 1000)) ms beside the next one"; fi
	wait $NEXT
}
# How $LOCKER ended; if it does not end, it and its processes are killed.
gone() { ! grep -q '^State:.[^Z]' /proc/$LOCKER/status 2>/dev/null; }
status() { until_ok 10 gone || { not_ok "$1: tenurectl lock ends"; kill -9 $LOCKER; pkill -9 -f "(tick .*|busy) $DIR/"; }; wait $LOCKER 2>/dev/null; }
none_left() { ! pgrep -f "tick .* $1.b" >/dev/null && ! pgrep -f "busy $1( |$)" >/dev/null; }
all_ended() { if until_ok 10 none_left "$DIR/$1"; then ok "$2"; else not_ok "$2" "$(pgrep -fa "$DIR/$1" | head -n 2)"; pkill -9 -f "tick .* $DIR/$1.b"; fi; }
back() { etcd del --prefix job/ >/dev/null; kill -0 $AGENT 2>/dev/null || agent; until_ok 15 ctl status || not_ok "the place is held again" "$(tail -n 2 "$DIR/agent.log")"; }

# Of processes that have ended, in a group of our own where we may make one: other tests run beside this one, and may leave some.
here_in() { echo "$(findmnt -rn -t cgroup2 -o TARGET | head -n 1)$(sed -n 's/^0:://p' /proc/self/cgroup)"; }
AROUND=$(here_in); OWN=$AROUND/lock-test-$$
if mkdir "$OWN" 2>/dev/null; then
	echo $$ >"$OWN/cgroup.procs"
	trap 'cleanup; echo $$ >"$AROUND/cgroup.procs"; rmdir "$OWN"' EXIT
fi
lock_groups() {
	local g
	for g in "$(here_in)"/tenure-lock-*; do
		[ ! -d "$g" ] || [ -d "/proc/${g##*-}" ] || echo "$g" # kill -0 tells nothing of another user's
	done
	echo
}
GROUPS_BEFORE=$(lock_groups)

# ---- nobody renews any more ----
for how in ends ignore; do
	at "dead-$how" $how; next "dead-$how"; kill -9 $AGENT; wait $AGENT 2>/dev/null
	status "the agent dies for good ($how): the exit status says that the place is lost"; is "the agent dies for good ($how): the exit status says that the place is lost" $? 123
	before "dead-$how" "the agent dies for good ($how)"; all_ended "dead-$how" "and nothing of it is left"
	back
done
at deaf ignore; next deaf; kill -STOP $BUSPID; kill -9 $AGENT; wait $AGENT 2>/dev/null
status "the agent dies, and the bus hangs: lost"; is "the agent dies, and the bus hangs: lost" $? 123
before deaf "the agent dies, and the bus hangs"; kill -CONT $BUSPID; back
at silent ignore; next silent; kill -STOP $CORE; until_ok 10 gone; kill -CONT $CORE
status "the core is silent: lost"; is "the core is silent: lost" $? 123
before silent "the core is silent"; back
at told; kill -STOP $CORE; until_ok 10 grep -q told "$DIR/told.log" && ok "it is told first, by SIGTERM" || not_ok "it is told first" "$(cat "$DIR/told.log")"; kill -CONT $CORE
status "a command that ends after SIGTERM: the exit status says lost"; is "and may end as it likes: lost" $? 123; all_ended told "nothing of it is left"; back
at revoked ignore; next revoked; etcd lease revoke "$(lease)" >/dev/null; t=$(now_us)
status "the lease is revoked: lost"; is "the lease is revoked: lost" $? 123
all_ended revoked "and ended at once"; ms=$((($(last_ran "$DIR/revoked") - t) / 1000)); [ $ms -lt $((TTL_MS * 3 / 4)) ] && ok "with the next renewal: $ms ms after" || not_ok "ended $ms ms after"
wait $NEXT; back

# ---- what is no loss ----
kept() { # WHAT COMMAND...: it runs on, for longer than what was known then lasts, and the lease is the same
	local l; l=$(lease); "${@:2}"
	local since=$(($(now_us) + TTL_MS * 2000))
	until_ok 15 runs_since "$DIR/kept" $since && ok "$1: it runs on" || not_ok "$1: it runs on" "$(cat "$DIR/kept.log")"
	KEPT=$l
}
at kept
kept "the bus is restarted" eval 'kill -9 $BUSPID; wait $BUSPID 2>/dev/null; bus'
until_ok 10 ctl status; is "and the place is the same" "$(lease)" "$KEPT"
kept "the bus hangs" kill -STOP $BUSPID; kill -CONT $BUSPID
kept "the bus is gone" eval 'kill -9 $BUSPID; wait $BUSPID 2>/dev/null'; bus; until_ok 10 ctl status
kept "the agent is restarted" eval 'kill -USR1 $AGENT; wait $AGENT; agent; until_ok 10 ctl status'
kept "the agent is killed, and comes back" eval 'kill -9 $AGENT; wait $AGENT 2>/dev/null; agent; until_ok 10 ctl status'
kill $LOCKER; status "and the command ends with its own exit status"; is "and it is ended as it was before: its own exit status" $? 5
all_ended kept "with its child in another session"

# ---- the place is given back ----
at left ignore; next left; t=$(now_us); ctl leave; is "tenurectl leave" $? 0
status "leave: its exit status says that the place is lost"; is "leave: its exit status says that the place is lost" $? 123
before left "leave waits for it"; all_ended left "nothing of it is left"; ctl join; until_ok 10 ctl status; back
at leaves; t=$(now_us); ctl status; start_ms=$((($(now_us) - t) / 1000))
t=$(now_us); ctl leave; ms=$((($(now_us) - t) / 1000)); status leave
[ $ms -lt $((TTL_MS / 2 + 2 * start_ms)) ] && ok "what ends when told delays leave by $ms ms" || not_ok "leave takes $ms ms though the command ends when told"
ctl join; until_ok 10 ctl status; back

# ---- tenurectl and its keeper ----
keeper() { pgrep -P $LOCKER | head -n 1; }
at orphan; kill -9 $LOCKER; wait $LOCKER 2>/dev/null; all_ended orphan "tenurectl is killed: nothing of the command is left"; ctl unlock job
at kept2; kill -9 "$(keeper)"; status "the keeper is killed: exit status of an internal error"; is "its keeper is killed: an error of ours" $? 125; all_ended kept2 "and nothing of the command is left"; ctl unlock job
at stopped ignore; next stopped; kill -STOP "$(keeper)" $LOCKER; kill -9 $AGENT; wait $AGENT 2>/dev/null; kill -CONT $LOCKER
status "the keeper is stopped and the agent dies: the exit status says lost"; is "somebody stops the keeper, and the agent dies: lost" $? 123; before stopped "somebody stops the keeper, and the agent dies"; back
at asleep ignore; next asleep; kill -STOP $LOCKER; kill -9 $AGENT; wait $AGENT 2>/dev/null
before asleep "tenurectl is stopped, and the agent dies"; kill -CONT $LOCKER; status "continued"; back
# Its messages go to a pipe that nobody reads.
mkfifo "$DIR/full"; exec 7<>"$DIR/full"; dd if=/dev/zero bs=4096 count=1000 >&7 oflag=nonblock 2>/dev/null
mute() { exec "$BIN/tenurectl" --bus="$BUS" lock job -- sh -c "exec 2>/dev/null; exec '$DIR/busy' '$DIR/mute' ignore" 2>&7; }
start mute mute; LOCKER=$PID; until_ok 10 still "$DIR/mute"; next mute; kill -9 $AGENT; wait $AGENT 2>/dev/null; before mute "nobody reads what tenurectl says"; exec 7>&-
status "it"; back
# A command that forks as fast as it can.
forks() { exec "$BIN/tenurectl" --bus="$BUS" lock job -- bash -c 'f() { date +%s%6N >'"'$DIR/forks.new'"'.$$ && mv '"'$DIR/forks.new'"'.$$ '"'$DIR/forks.a'"'; setsid bash -c "$(declare -f f); f" </dev/null >/dev/null 2>&1 & exit; }; f'; }
start forks forks; wait $PID; is "a command that leaves a fork bomb behind: all of it is ended, and the status is the command's" $? 0
t=$(now_us); until_ok 5 test -s "$DIR/forks.a"; [ "$(cat "$DIR/forks.a")" -lt "$t" ] && ok "and is gone" || not_ok "it still forks"

# ---- exit statuses ----
is "the command's own" "$(ctl lock job -- sh -c 'exit 7'; echo $?)" 7
is "a command that is not there" "$(ctl lock job -- /nonexistent 2>/dev/null; echo $?)" 127
is "a command that cannot be run" "$(ctl lock job -- / 2>/dev/null; echo $?)" 126
is "etcdctl has the lock" "$(start held etcdctl --endpoints "127.0.0.1:$c" lock job -- "${UNTIL_THERE[@]}" "$DIR/held-goes"; until_ok 5 waiters 1; ctl --wait=0 lock job -- true 2>/dev/null; echo $?)" 124
touch "$DIR/held-goes"
until_ok 10 waiters 0
is "no bus" "$("$BIN/tenurectl" --bus=unix:abstract=nobody-$$ lock job -- true 2>/dev/null; echo $?)" 125
is "an option that is none" "$(ctl lock --bogus job -- true 2>/dev/null; echo $?)" 125
is "the signal that ended it" "$(BIN="$BIN" BUS="$BUS" /usr/bin/python3 -c 'import os, subprocess; print(subprocess.run([os.environ["BIN"] + "/tenurectl", "--bus=" + os.environ["BUS"], "lock", "job", "--", "sh", "-c", "kill -TERM $$"]).returncode)')" -15
is "all processes get SIGTERM at once, as from systemd" "$(/usr/bin/python3 "$HERE/end_all.py" 60 "$BIN/tenurectl" --bus="$BUS")" -15
is "the command has the signal mask that tenurectl started with" "$(ctl lock job -- grep -E 'Sig(Blk|Ign)' /proc/self/status | tr -d '\n')" "$(timeout 20 grep -E 'Sig(Blk|Ign)' /proc/self/status | tr -d '\n')"

# ---- while it waits ----
at waits; start before bash -c "sleep 0.3 & exec '$BIN/tenurectl' --bus='$BUS' lock job -- true"; W=$PID; sleep 0.6
kill $LOCKER; wait $LOCKER 2>/dev/null; wait $W; is "a child from before exec ends: it waits on, and runs" $? 0
start held2 etcdctl --endpoints "127.0.0.1:$c" lock job -- sleep 30; HELD=$PID; until_ok 5 waiters 1
kill $AGENT; wait $AGENT; agent_ttl() { start agent env RUNTIME_DIRECTORY="$DIR/run" DBUS_SYSTEM_BUS_ADDRESS="$BUS" "$BIN/tenured" -c "$DIR/agent.conf" --ttl=60s; AGENT=$PID; }
agent_ttl; until_ok 10 ctl status || not_ok "a place for longer" "$(tail -n 2 "$DIR/agent.log")"
start impatient ctl_forever lock job -- true; LOCKER=$PID; until_ok 5 waiters 2; kill -STOP $CORE
kill -TERM $LOCKER; sleep 0.5; kill -TERM $LOCKER; until_ok 2 gone && ok "told twice to end, it does not wait for a core" || not_ok "told twice to end, it waits for a core"
kill -CONT $CORE; wait $LOCKER; is "told twice to end: by that signal" $? 143
has "told twice to end: what that leaves behind" "$(cat "$DIR/impatient.log")" "the request for the lock 'job' could not be given back"
ctl unlock job; kill $HELD; wait $HELD 2>/dev/null; until_ok 10 waiters 0

# ---- a terminal ----
if /usr/bin/python3 "$HERE/terminal.py" "$(printf %q "$BIN/tenurectl") --bus=$BUS" "$DIR" >"$DIR/terminal.log" 2>&1; then :; else echo "not ok terminal.py" >>"$DIR/terminal.log"; fi
while read -r line; do case $line in "ok "*) ok "${line#ok }" ;; "not ok "*) not_ok "${line#not ok }" "$(tail -n 3 "$DIR/terminal.log" | tr '\n' ' ')" ;; esac; done <"$DIR/terminal.log"

is "no control group is left behind" "$(lock_groups | grep -vxF -e '' -e "$GROUPS_BEFORE" | wc -l)" 0
kill $AGENT; wait $AGENT

# ---- what we reach the core with is wrong, and will be ----
make_certificates ec ec_paramgen_curve:prime256v1
read -r s sp < <(free_ports 2)
start tls-core "$BIN/tenure-core" --name y --data-dir "$DIR/tls" --listen-client-urls "https://127.0.0.1:$s" --listen-peer-urls "http://127.0.0.1:$sp" --cert-file "$DIR/cert.pem" --key-file "$DIR/key.pem"
rm -rf "$DIR/run"; mkdir "$DIR/run"
start tls-agent env RUNTIME_DIRECTORY="$DIR/run" DBUS_SYSTEM_BUS_ADDRESS="$BUS" "$BIN/tenured" -c "$DIR/agent.conf" --endpoints "https://127.0.0.1:$s" --trusted-ca-file "$DIR/ca.pem"; AGENT=$PID
until_ok 10 ctl status || not_ok "an agent over TLS" "$(tail -n 2 "$DIR/tls-agent.log")"
is "a lock on https:// with the core's CA" "$(ctl lock job --cacert="$DIR/ca.pem" -- true; echo $?)" 0
out=$(ctl lock job -- true 2>&1); is "a lock on https:// without the CA: an error soon" $? 125
has "a lock on https:// without the CA: the error says why" "$out" "no lease core answers at https://.*: .*(certificate|verif|trust|CA)"
kill $AGENT; wait $AGENT
finish
