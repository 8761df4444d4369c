#!/usr/bin/env bash
# Clients take every descriptor that a replica has for them, and it leads on: its log begins new files, snapshots are taken, another
# replica comes back to it, all with what is kept aside; it does not turn in a circle meanwhile, and takes connections when there are any.
# usage: BIN=build/release/bin DIR=build/descriptors-test tests/system/descriptors.sh
. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)

A=http://127.0.0.1
read -r c1 c2 c3 p1 p2 p3 < <(free_ports 6)
INITIAL="a=$A:$p1,b=$A:$p2,c=$A:$p3"
OTHERS="127.0.0.1:$c2,127.0.0.1:$c3"
declare -A PID_OF
replica() { # NAME CLIENT-PORT PEER-PORT
	start_replica "$@" --initial-cluster "$INITIAL" --snapshot-count 100 --election-timeout 3000 # a busy machine is no reason for an election
	PID_OF[$1]=$PID
}
etc() { timeout 10 etcdctl --endpoints "$@"; }
ctl() { "$BIN/tenurectl" --endpoints="$A:$c1,$A:$c2,$A:$c3" core "$@"; }
a_leads() { ctl --json=short members | truly 'any(.[]; .name == "a" and .role == "leader")' || { ctl move-leader a; false; }; }
term() { etc "127.0.0.1:$c2" endpoint status -w json | jq '.[0].Status.raftTerm'; }
fds() { find "/proc/${PID_OF[a]}/fd" -type l | wc -l; }
newest() { find "$DIR/a" -name "$1*" | sort | tail -n 1; }
# Is the newest file of that kind another one?
moved_on() { [ "$(newest "$1")" != "$2" ]; }
write() { # KEY BYTES, by the others
	head -c "$2" /dev/zero | tr '\0' x | etc "$OTHERS" put "$1"
}
ticks() { awk '{print $14 + $15}' "/proc/${PID_OF[a]}/stat"; }

mkdir -p "$DIR"/{a,b,c}
replica a "$c1" "$p1" && replica b "$c2" "$p2" && replica c "$c3" "$p3"
until_ok 30 etc "127.0.0.1:$c1" put k v || { not_ok "three replicas serve"; finish; exit 1; }
if until_ok 30 a_leads; then ok "a leads"; else not_ok "a leads" "$(ctl members)"; fi
# The kernel would make its table larger as clients come, and hold the loop for 15 to 180 ms each time.
SIZE=$(awk '/^FDSize/{print $2}' "/proc/${PID_OF[a]}/status")
if [ "$SIZE" -ge 1024 ]; then ok "its table of descriptors has its size before clients come ($SIZE)"; else
	not_ok "its table of descriptors has its size before clients come" "$SIZE"; fi
kept_aside() { [ "$(find "$DIR/a" -name 'spare-*' | wc -l)" = 3 ]; }
until_ok 20 kept_aside

# ---- ten descriptors are left for clients: those that were are kept aside ----
BEFORE=$(fds) TERM_BEFORE=$(term)
LIMIT=$((BEFORE + 256 + 10))
prlimit --pid "${PID_OF[a]}" --nofile="$LIMIT:$LIMIT" || { not_ok "a limit for a live process"; finish; exit 1; }
start take /usr/bin/python3 "$HERE/take_all.py" "$c1" 600
TAKER=$PID
if until_ok 10 grep -q "Cannot take more connections on port $c1" "$DIR/a.log"; then ok "clients have taken all there is"; else
	not_ok "clients have taken all there is" "$(fds) of $LIMIT; $(tail -n 2 "$DIR/a.log")"; fi

SPENT=$(ticks) SINCE=$(date +%s%N)
SNAPSHOT=$(newest snapshot-0)
export -f etc write && export OTHERS
seq 150 | xargs -P 4 -I{} bash -c 'write small{} 10' >"$DIR/small.log" 2>&1
if until_ok 20 moved_on snapshot-0 "$SNAPSHOT"; then ok "a snapshot is taken"; else not_ok "a snapshot is taken" "$(ls "$DIR/a"; tail -n 2 "$DIR/a.log")"; fi
LOG=$(newest log-)
for i in $(seq 12); do write large 1000000 >/dev/null || break; done
is "large writes are taken" "$i" 12
if until_ok 20 moved_on log- "$LOG"; then ok "the log goes on in its next file"; else not_ok "the log goes on in its next file" "$(ls "$DIR/a"; tail -n 2 "$DIR/a.log")"; fi

# ---- another replica comes back, and without the third those two are the majority ----
kill -9 "${PID_OF[c]}"
wait "${PID_OF[c]}" 2>/dev/null
replica c "$c3" "$p3"
if until_ok 20 etc "127.0.0.1:$c3" get k; then ok "one that was restarted is linked again"; else not_ok "one that was restarted is linked again" "$(tail -n 2 "$DIR/c.log")"; fi
is "there was no election" "$(term)" "$TERM_BEFORE"
kill -9 "${PID_OF[b]}"
if until_ok 10 etc "127.0.0.1:$c3" put k of-c; then ok "an honest client of another replica is served"; else not_ok "an honest client of another replica is served"; fi
is "that client reads what it wrote" "$(etc "127.0.0.1:$c3" get k --print-value-only)" of-c

# A circle takes all of a processor, or its share of a busy one; the writes above take 2 to 6 %.
PERCENT=$((($(ticks) - SPENT) * 1000000000 * 100 / $(getconf CLK_TCK) / ($(date +%s%N) - SINCE)))
if [ "$PERCENT" -lt 20 ]; then ok "it does not turn in a circle meanwhile"; else not_ok "it does not turn in a circle meanwhile" "$PERCENT % of a processor"; fi
echo "# $PERCENT % of a processor; $(fds) descriptors of $LIMIT, $BEFORE before"
if kill -0 "$TAKER" && [ "$(fds)" -ge $((BEFORE + 5)) ]; then ok "clients still have all there is"; else not_ok "clients still have all there is" "$(fds)"; fi
kill "$TAKER"
if until_ok 10 etc "127.0.0.1:$c1" put k of-a; then ok "when they have gone, others are taken"; else not_ok "when they have gone, others are taken" "$(fds); $(tail -n 2 "$DIR/a.log")"; fi
if kill -0 "${PID_OF[a]}"; then ok "and it is the same process"; else not_ok "and it is the same process" "$(tail -n 3 "$DIR/a.log")"; fi
finish
