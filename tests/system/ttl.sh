#!/usr/bin/env bash
# tenurectl ttl advise: what the agent tells of a core that was stopped for a known time, of a place that was lost, after a restart,
# and of hours that went before.
# usage: BIN=build/release/bin DIR=build/ttl-test tests/system/ttl.sh
. "$(dirname "$0")/lib.sh"
ENGINE=core
read -r a ap < <(free_ports 2)
. "$(dirname "$0")/agents_lib.sh"
core core "$a" "$ap"; CORE=$PID; serves "$a"

advice() { ctl "$1" ttl advise --json=short; }
figure() { advice "$1" | jq -r ".$2"; }
# between WHAT GOT LEAST MOST
between() { if [ "$2" -ge "$3" ] && [ "$2" -lt "$4" ]; then ok "$1: $2"; else not_ok "$1" "got $2, wanted $3 or more, and less than $4"; fi; }

agent h1 TTL=10s; H1=$PID
until_ok 10 held h1 || not_ok "h1 holds its place"
has "before the first renewal there is nothing to go by" "$(ctl h1 ttl advise)" "^No renewal was acknowledged yet, so nothing can be recommended\.$"
agent h2 TTL=10s; H2=$PID
n_renewals h1 1 || not_ok "h1 renews"
has "after one there is too little" "$(ctl h1 ttl advise)" "^That is too little to recommend a TTL; it takes an hour and 100 renewals at least\.$"
is "too little evidence: no TTL is recommended" "$(figure h1 RecommendedUSec)" 0
is "what is in use" "$(figure h1 TTLUSec)" 10000000
is "it is in the table" "$(ctl h1 ttl advise --no-legend | grep -c '^ *10 s .*  in use$')" 1
between "a renewal takes what a renewal takes" "$(figure h1 StallMaxUSec)" 1 5000000

# ---- the core is stopped for 7 s, right after a renewal: the next one is due 5 s after that ----
L=$(lease h1)
n_renewals h1 1; kill -STOP "$CORE"; until_ok 7 false; kill -CONT "$CORE"; n_renewals h1 1 || not_ok "h1 renews again"
is "the place was held all the time" "$(lease h1)" "$L"
between "the gap is in it" "$(figure h1 GapMaxUSec)" 7000000 10000000
between "and how long the renewal that was due had to wait" "$(figure h1 StallMaxUSec)" 2000000 5000000
between "a TTL of 1 s would not have held: minutes" "$(advice h1 | jq '.TTLs[] | select(.TTLUSec == 1000000) | .MinutesTooLong')" 1 9
is "one of 30 s would" "$(advice h1 | jq '.TTLs[] | select(.TTLUSec == 30000000) | .MinutesTooLong')" 0
has "for a person, too" "$(ctl h1 ttl advise)" "^ *1 s +[0-9.]+ ms +no, not in [0-9]+ min +-"
between "the shortest that would have held is between" "$(figure h1 LeastUSec)" 4500000 12000000
is "on D-Bus" "$(busctl --address="unix:abstract=tenure-agents-$$-h1" --json=short call org.tenure.Membership1 /org/tenure/Membership1 org.tenure.Membership1.Manager AdviseTTL | jq -r '.type + " " + .data[0].TTLUSec.type')" "a{sv}a(txu) t"

# ---- over a restart ----
gap=$(figure h1 GapMaxUSec) n=$(figure h1 Renewals)
kill -USR1 "$H1"; wait "$H1"; agent h1 TTL=10s; H1=$PID; until_ok 10 held h1
is "a restart keeps it" "$(figure h1 GapMaxUSec)" "$gap"
[ "$(figure h1 Renewals)" -ge "$n" ] && ok "and the renewals" || not_ok "and the renewals" "$(figure h1 Renewals), and $n before"

# ---- a place that is lost ----
agent h3 TTL=2s; H3=$PID; until_ok 10 held h3; n_renewals h3 1; L=$(lease h3)
lost() { [ "$(state h3)" = joining ]; }
kill -STOP "$CORE"; until_ok 10 lost || not_ok "h3 loses its place"
between "a stall that ended in a loss goes on" "$(figure h3 StallMaxUSec)" 900000 60000000
until_ok 1 false; kill -CONT "$CORE"; until_ok 15 holds_again h3 "$L" || not_ok "h3 holds a place again"
between "it is counted" "$(figure h3 Losses)" 1 4
between "so is the jeopardy before" "$(figure h3 Jeopardies)" 1 9
between "with the time until the core answered" "$(figure h3 StallMaxUSec)" 1900000 60000000
losses=$(figure h1 Losses); L=$(lease h1); E lease revoke "$L" >/dev/null; until_ok 15 holds_again h1 "$L" || not_ok "h1 holds a place again"
is "one that was revoked says nothing of TTLs" "$(figure h1 Losses)" "$losses"

# ---- three hours before, as an earlier run has left them; and what is no such thing ----
# A line for each minute, its place in the file by its number; how many is printed.
cat >"$DIR/seed.py" <<'END'
import sys, time
now, n = int(time.clock_gettime(time.CLOCK_BOOTTIME)) // 60 + 1, 0
with open(sys.argv[1], "wb") as f:
    for m in range(max(now - 180, 1), now):
        f.seek(m % 1440 * 128)
        f.write(f"{m} n=12 trips=24000 trip=3000 late=200 stall={1800000 if m == now - 90 else 3000} gap=5003000 0 0 0 ;".ljust(127).encode() + b"\n")
        n += 1
print(n)
END
minutes=$(/usr/bin/python3 "$DIR/seed.py" "$DIR/seed")
n_renewals h2 1; kill -USR1 "$H2"; wait "$H2"; cp "$DIR/seed" "$DIR/h2/run/renewals"
agent h2 TTL=10s; H2=$PID; until_ok 10 held h2
if [ "$minutes" -ge 100 ]; then
	is "an hour and more is enough" "$(figure h2 RecommendedUSec)" 10000000
	has "and says what to set" "$(ctl h2 ttl advise)" "^Recommended: TTL=10s\. The shortest that would have held: 4\.[0-9]+ s\.$"
	[ "$(figure h2 Minutes)" -ge "$minutes" ] && ok "of $minutes minutes" || not_ok "of $minutes minutes" "$(figure h2 Minutes)"
else
	skip "three hours before" "this machine runs for $minutes minutes"
fi
kill -USR1 "$H2"; wait "$H2"; head -c 20000 /dev/urandom >"$DIR/h2/run/renewals"
agent h2 TTL=10s; H2=$PID; until_ok 10 held h2 && ok "a file that is none of ours does no harm" || not_ok "a file that is none of ours does no harm" "$(tail -n 2 "$DIR/h2.log")"
is "and says nothing" "$(figure h2 RecommendedUSec)" 0
is "ttl alone is refused" "$(ctl h2 ttl >/dev/null 2>"$DIR/said"; echo $?)" 1
kill "$H1" "$H2" "$H3"; finish
