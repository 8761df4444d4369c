#!/usr/bin/env bash
# Cache leases on three replicas, as programs have them: nobody reads what is stale, whoever is stopped, killed or cut off; and a
# write waits for nobody longer than a term.
# usage: BIN=build/release/bin DIR=build/libtenure-cache [ENGINE=etcd] tests/system/libtenure_cache.sh [SECONDS]
. "$(dirname "$0")/lib.sh"
ENGINE=${ENGINE:-core} SECONDS_LONG=${1:-12} TERM_MS=3000
TOP=$(cd "$(dirname "$0")/../.." && pwd)
SO=$(cd "$BIN/../so" && pwd)
read -r c1 c2 c3 p1 p2 p3 < <(free_ports 6)
A=http://127.0.0.1
export LD_LIBRARY_PATH=$SO
gcc -std=gnu11 -g -O1 -Wall -Wextra -Werror -I "$TOP/lib/tenure" -o "$DIR/cache" "$TOP/tests/system/libtenure_cache.c" -L "$SO" -ltenure >"$DIR/cc.log" 2>&1 || { not_ok "the program compiles" "$(head -n 3 "$DIR/cc.log")"; finish; exit 1; }
lines() { grep -c "^$2" "$DIR/$1.log"; }
more() { [ "$(lines "$1" "$2")" -gt "$3" ]; }

if [ "$ENGINE" = etcd ]; then
	wants_etcd "caches on a real etcd"
	start_etcd etcd "$c1" "$p1"
	start lone env TENURE_ENDPOINTS="$A:$c1" "$DIR/cache" hold k
	has "tenurectl cache says so, too" "$(timeout 10 "$BIN/tenurectl" --endpoints="$A:$c1" cache k 2>&1)" "tenurectl: the core gives no cache leases: it is an etcd"
	until_ok 20 more lone 'uncached .*etcd.*: -95$' 0 && ok "an etcd has no cache leases, which is said" || not_ok "an etcd has no cache leases" "$(tail -n 2 "$DIR/lone.log")"
	finish
	exit
fi

RPID=(0 0 0 0)
replica() { # N: begins, or goes on
	local c=c$1 p=p$1
	start_replica "n$1" "${!c}" "${!p}" --initial-cluster "n1=$A:$p1,n2=$A:$p2,n3=$A:$p3"
	RPID[$1]=$PID
}
for n in 1 2 3; do replica $n; done
E() { timeout 5 etcdctl --endpoints "127.0.0.1:$c1,127.0.0.1:$c2,127.0.0.1:$c3" "$@"; }
until_ok 30 E put k 0 || { not_ok "three replicas serve"; finish; exit 1; }
HPID=(0 0 0 0)
holder() { # N: of replica N first
	local c=c$1
	start "h$1" env TENURE_ENDPOINTS="$A:${!c},$A:$c1,$A:$c2,$A:$c3" "$DIR/cache" hold k
	HPID[$1]=$PID
}
all_good() { for n in 1 2 3; do [ "$(grep -E '^(cached|uncached)' "$DIR/h$n.log" | tail -n 1 | cut -d' ' -f1)" = cached ] || return 1; done; }
writes() { # NAME FROM TO
	timeout 60 env TENURE_ENDPOINTS="$A:$c2,$A:$c1,$A:$c3" "$DIR/cache" write k "$2" "$3" >"$DIR/$1.log" 2>&1
}
took() { awk '$1 == "wrote" {print ($4 - $3) / 1000}' "$DIR/$1.log" | sort -n | awk '{v[NR] = $1} END {printf "%.1f %.1f\n", v[int((NR + 1) / 2)], v[NR]}'; }

writes none 1 50; read -r m x < <(took none); ok "a write that nobody caches takes $m ms, $x at the most"
holder 1; until_ok 10 more h1 cached 0 && ok "a key is cached" || not_ok "a key is cached" "$(tail -n 2 "$DIR/h1.log")"
holder 2; holder 3; until_ok 10 all_good || not_ok "by three programs" "$(tail -qn 1 "$DIR"/h?.log)"
writes three 51 100; read -r m x < <(took three)
is "writes go on beside three who cache it" "$(lines three wrote)" 50
ok "they take $m ms, $x at the most"
until_ok 10 all_good && ok "and it is cached again" || not_ok "it is cached again" "$(tail -qn 1 "$DIR"/h?.log)"

# Of one stream few requests are under way at a time: the others do not wait for a heartbeat each time, nor what is given back behind them.
read -r c4 p4 < <(free_ports 2)
start_replica lone "$c4" "$p4"; LPID=$PID
until_ok 20 etcdctl --endpoints "127.0.0.1:$c4" put m0 0 || not_ok "a replica alone serves"
begun=$(date +%s%N)
start many env TENURE_ENDPOINTS="$A:$c4" "$DIR/cache" many m 400; MPID=$PID
until_ok 10 more many 'all 400' 0 || not_ok "a program caches 200 keys twice" "$(tail -n 2 "$DIR/many.log")"
ms=$((($(date +%s%N) - begun) / 1000000))
# A heartbeat for each would be 20 s and more.
if [ $ms -le 8000 ]; then ok "a program caches 200 keys twice within $ms ms"; else not_ok "a program caches 200 keys twice" "$ms ms"; fi
kill "$MPID" "$LPID"; wait "$MPID" "$LPID" 2>/dev/null

# Who is stopped holds a write up for the rest of its term, and reads nothing of it afterwards.
kill -STOP "${HPID[1]}"
writes stopped 101 101; read -r m x < <(took stopped)
if [ "$(lines stopped wrote)" = 1 ] && [ "${m%.*}" -ge 500 ] && [ "${m%.*}" -le $((TERM_MS + 1500)) ]; then ok "a holder that is stopped holds a write up for $m ms, the rest of its term"; else not_ok "a holder is stopped" "$m ms; $(tail -n 1 "$DIR/stopped.log")"; fi
writes after 102 111; read -r m x < <(took after)
# A term that each had to wait for would be in the middle of them, too; one may be late for other reasons.
if [ "${m%.*}" -le $((TERM_MS / 2)) ]; then ok "and those after that wait for no term: $m ms, $x at the most"; else not_ok "later writes wait, too" "$m ms"; fi
kill -CONT "${HPID[1]}"; until_ok 20 all_good && ok "it goes on, and caches it again" || not_ok "it goes on" "$(tail -qn 1 "$DIR"/h?.log)"
# The same for a holder that was killed: there is nobody to recall from.
kill -9 "${HPID[3]}"; wait "${HPID[3]}" 2>/dev/null
writes killed 112 112; read -r m x < <(took killed)
if [ "$(lines killed wrote)" = 1 ] && [ "${m%.*}" -le $((TERM_MS + 1500)) ]; then ok "a holder that is killed holds a write up for $m ms"; else not_ok "a holder is killed" "$m ms; $(tail -n 1 "$DIR/killed.log")"; fi
mv "$DIR/h3.log" "$DIR/h3-killed.log"; holder 3; until_ok 20 all_good

# The same from a shell: an interrupted tenurectl cache has given its term back, and no write waits for it.
for n in 1 2 3; do kill "${HPID[$n]}"; wait "${HPID[$n]}" 2>/dev/null; mv "$DIR/h$n.log" "$DIR/h$n-ended.log"; done
ctl_cache() { exec "$BIN/tenurectl" --endpoints="$A:$c1,$A:$c2,$A:$c3" cache "$@"; }
start ctl ctl_cache k --json=short; CPID=$PID
shows() { grep -q "\"event\":\"Cached\".*\"value\":\"$1\"" "$DIR/ctl.log"; }
until_ok 20 shows 112 && ok "tenurectl cache shows what there is" || not_ok "tenurectl cache" "$(cat "$DIR/ctl.log")"
writes shown 113 113
until_ok 10 shows 113 && ok "and what it has become" || not_ok "tenurectl cache: what it has become" "$(cat "$DIR/ctl.log")"
is "in between the program is told why the cache cannot be read" "$(grep '^{' "$DIR/ctl.log" | jq -r 'select(.event == "Uncached").reason' | tail -n 1)" "a write waits"
kill $CPID; wait $CPID; is "interrupted: exit status" $? 0
writes ctl-ended 114 114; read -r m x < <(took ctl-ended)
if [ "${m%.*}" -lt 1000 ]; then ok "and no write waits for it: $m ms"; else not_ok "a write waits for what was interrupted" "$m ms"; fi
# Whose output nobody reads hears a signal all the same; whose reader goes says so, and gives back what it has.
for i in $(seq 80); do E put "many/$i" "$(printf '%01000d' "$i")" >/dev/null; done
mkfifo "$DIR/unread"; exec 6<>"$DIR/unread"
(exec "$BIN/tenurectl" --endpoints="$A:$c1" cache many/ --prefix) >&6 2>"$DIR/unread.err" & CPID=$!; PIDS+=("$CPID")
until_ok 10 sh -c "[ \"\$(awk '/^wchar/ {print \$2}' /proc/$CPID/io)\" -ge 60000 ]" || not_ok "it writes what a pipe takes" "$(cat "/proc/$CPID/io")"
kill "$CPID"; until_ok 5 sh -c "! kill -0 $CPID 2>/dev/null" && ok "a signal ends it while nobody reads" || { not_ok "a signal ends it while nobody reads"; kill -9 "$CPID"; }
wait "$CPID" 2>/dev/null; exec 6<&-
(exec "$BIN/tenurectl" --endpoints="$A:$c1" cache k 2>"$DIR/gone.err"; ) | head -n 1 >"$DIR/gone.out" & GONE=$!; PIDS+=("$GONE")
until_ok 10 test -s "$DIR/gone.out"; E put k 114 >/dev/null; wait "$GONE"
until_ok 5 grep -q "cannot write to standard output: Broken pipe" "$DIR/gone.err" && ok "whose reader has gone says so" || not_ok "whose reader has gone says so" "$(cat "$DIR/gone.err")"
has "tenurectl cache --once" "$(timeout 10 "$BIN/tenurectl" --endpoints="$A:$c1" cache --prefix k --once)" "cached, as of revision [0-9]+: 1 key\(s\)"
for n in 1 2 3; do holder $n; done; until_ok 20 all_good

# All at once: the replicas that gave the terms are killed and frozen, the holders stopped, while one writes.
: >"$DIR/storm.log"
start storm timeout 100 env TENURE_ENDPOINTS="$A:$c2,$A:$c1,$A:$c3" "$DIR/cache" write k 200 1000000; WPID=$PID
end=$((SECONDS + SECONDS_LONG)) i=0
while [ $SECONDS -lt $end ]; do
	n=$((i % 3 + 1)) before=$(lines storm wrote); i=$((i + 1))
	case $((i % 4)) in
	0) kill -STOP "${HPID[$n]}"; until_ok 6 more storm wrote $((before + 3)); kill -CONT "${HPID[$n]}" ;;
	1) kill -9 "${RPID[$n]}"; wait "${RPID[$n]}" 2>/dev/null; until_ok 6 more storm wrote $((before + 3)); replica $n ;;
	2) kill -STOP "${RPID[$n]}"; until_ok 6 more storm wrote $((before + 3)); kill -CONT "${RPID[$n]}" ;;
	3) until_ok 6 all_good; until_ok 6 more storm wrote $((before + 20)) ;;
	esac
done
until_ok 10 more storm wrote "$(($(lines storm wrote) + 10))" && ok "$(lines storm wrote) writes through $i faults, $(lines storm doubt) in doubt" || not_ok "writes go on" "$(tail -n 2 "$DIR/storm.log")"
kill "$WPID"; wait "$WPID" 2>/dev/null
for n in 1 2 3; do kill "${HPID[$n]}"; wait "${HPID[$n]}" 2>/dev/null; done
cat "$DIR"/{none,three,stopped,after,killed,shown,ctl-ended,storm}.log >"$DIR/writes"
cat "$DIR"/h?.log "$DIR"/h?-ended.log "$DIR/h3-killed.log" >"$DIR/reads"
# A read that began after a write was acknowledged finds that, or a later one; or one that is in doubt, which may have come through
# after it.
stale=$(awk 'FNR == NR {if ($1 == "wrote") {n[++k] = $2; acked[k] = $4} else if ($1 == "doubt") doubt[$2] = 1; next}
	$1 == "had" && !($2 in doubt) {for (i = 1; i <= k && n[i] <= $2; i++); if (i <= k && $3 > acked[i]) print $0 " but " n[i] " was acknowledged at " acked[i]}' "$DIR/writes" "$DIR/reads")
reads=$(awk '$1 == "had" {s += $4} END {print s + 0}' "$DIR/reads")
if [ -z "$stale" ] && [ "$reads" -gt 100000 ]; then ok "none of $reads reads was stale"; else not_ok "stale reads, of $reads" "$(head -n 3 <<<"$stale")"; fi
finish
