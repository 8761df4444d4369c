#!/usr/bin/env bash
# tenurectl lock and work as jobs of somebody's: signals at each stage of their lives, a standard error that nobody reads,
# descriptors that are closed, and a terminal that goes away.
# usage: BIN=build/release/bin DIR=build/job-test tests/system/job.sh
. "$(dirname "$0")/lib.sh"
ENGINE=core
read -r a ap < <(free_ports 2)
. "$(dirname "$0")/agents_lib.sh"
core core "$a" "$ap"; CORE=$PID; serves "$a"
# A place that outlives a core that is stopped for a moment.
agent h1 TTL=30s; agent h2 TTL=30s
until_ok 10 held h1 || not_ok "h1 holds its place"; until_ok 10 held h2 || not_ok "h2 holds its place"
# It lets everybody take a lock that is called allowed.
start polkit "$(dirname "$BIN")/tests/system/bus_load" "unix:abstract=tenure-agents-$$-h1" polkit; until_ok 10 grep -q ready "$DIR/polkit.log" || not_ok "polkit's stand-in runs"
if /usr/bin/python3 "$(dirname "$0")/job.py" "$BIN" "unix:abstract=tenure-agents-$$-h1" "unix:abstract=tenure-agents-$$-h2" "$CORE" "$a" "$DIR" >"$DIR/job.log" 2>&1; then :; else echo "not ok job.py" >>"$DIR/job.log"; fi
while read -r line; do case $line in "ok "*) ok "${line#ok }" ;; "skipped "*) line=${line#skipped }; skip "${line%%: *}" "${line#*: }" ;; "not ok "*) not_ok "${line#not ok }" "$(tail -n 3 "$DIR/job.log" | tr '\n' ' ')" ;; esac; done <"$DIR/job.log"

# The bus is restarted, and then the replica that the agent used is gone for good: the agent moves to another one.
read -r r1 r2 r3 q1 q2 q3 < <(free_ports 6)
REPLICAS=()
for i in 1 2 3; do
	r=r$i q=q$i
	start_replica "r$i" "${!r}" "${!q}" --initial-cluster "r1=http://127.0.0.1:$q1,r2=http://127.0.0.1:$q2,r3=http://127.0.0.1:$q3"
	REPLICAS+=("$PID")
done
serves "$r1"
a=$r1
agent h3 TTL=30s "Endpoints=http://127.0.0.1:$r2,http://127.0.0.1:$r3"
until_ok 10 held h3 || not_ok "h3 holds its place"
endpoint() { ctl h3 status --json=short | jq -r .CoreEndpoint; }
used=$(endpoint) others=()
for r in $r1 $r2 $r3; do [ "$used" = "http://127.0.0.1:$r" ] || others+=("127.0.0.1:$r"); done
O() { timeout 5 etcdctl --endpoints "${others[0]},${others[1]}" "$@"; }
n_requests() { [ "$(O get "$1/" --prefix --keys-only | grep -c .)" = "$2" ]; }
forever() { exec "$BIN/tenurectl" --bus="unix:abstract=tenure-agents-$$-h3" "$@"; }
start runs forever lock runs -- "${UNTIL_THERE[@]}" "$DIR/go"; RUNS=$PID
start holder etcdctl --endpoints "${others[0]}" lock waits -- "${UNTIL_THERE[@]}" "$DIR/go.holder"; HOLDER=$PID; until_ok 5 n_requests waits 1
start waits forever lock waits -- echo ran; WAITS=$PID
until_ok 10 n_requests runs 1; until_ok 10 n_requests waits 2 || not_ok "one has its lock, and another one waits"
end "$(pgrep -f -- "--config-file=$DIR/h3/bus.conf")"; start bus.h3 dbus-daemon --config-file="$DIR/h3/bus.conf" --nofork --nopidfile
until_ok 10 held h3 || not_ok "the agent is back on the bus"
for i in 1 2 3; do r=r$i; [ "$used" != "http://127.0.0.1:${!r}" ] || end "${REPLICAS[i - 1]}"; done
moved() { local e; e=$(endpoint); [ -n "$e" ] && [ "$e" != "$used" ]; }
until_ok 10 moved || not_ok "the agent moves to another replica"
touch "$DIR/go"; until_ok 20 n_requests runs 0 && ok "the bus is restarted, and the agent has moved: the lock is given back" || not_ok "the lock is given back" "$(cat "$DIR/runs.log")"
wait "$RUNS"; is "and nothing is said" "$? $(cat "$DIR/runs.log")" "0 "
touch "$DIR/go.holder"; wait "$HOLDER"; until_ok 10 grep -q ran "$DIR/waits.log" && ok "and one that waits gets its lock" || not_ok "and one that waits gets its lock" "$(cat "$DIR/waits.log")"
kill -9 "$WAITS" 2>/dev/null; wait "$WAITS" 2>/dev/null
finish
