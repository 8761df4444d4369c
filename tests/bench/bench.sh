#!/usr/bin/env bash
# tenure-core and Debian's etcd side by side: three replicas each on one machine and disk, the same client, in turns.
# Medians of five. usage: bench.sh BIN DIR LOAD LEASES FLOOR CACHES; ONLY=memory|requests|http|caches|leases|failover runs a part; MATCH=regex only the rows of leases that match; ROUNDS, N_LEASES...: smaller or larger.
set -u
BIN=$1 DIR=$2 LOAD=$3 LEASES=$4 FLOOR=$5 CACHES=$6
. "$(dirname "$0")/lib.sh"
ROUNDS=${ROUNDS:-5}

read -r a1 a2 a3 b1 b2 b3 c1 c2 c3 d1 d2 d3 < <(free_ports 12)
T=http://127.0.0.1:$a1,http://127.0.0.1:$a2,http://127.0.0.1:$a3
E=http://127.0.0.1:$c1,http://127.0.0.1:$c2,http://127.0.0.1:$c3
DATA=$DIR # where the replicas write
PIN=()    # and where they run
declare -A TP EP TURL EURL
one() { # SIDE N: starts replica N of a side
	local n=$2 a=a$2 b=b$2 c=c$2 d=d$2
	if [ "$1" = t ]; then
		start "t$n" "${PIN[@]}" "$BIN/tenure-core" --name n$n --data-dir "$DATA/t$n" --listen-client-urls "http://127.0.0.1:${!a}" --listen-peer-urls "http://127.0.0.1:${!b}" \
			--initial-cluster "n1=http://127.0.0.1:$b1,n2=http://127.0.0.1:$b2,n3=http://127.0.0.1:$b3"
		TP[$n]=$PID TURL[$n]=127.0.0.1:${!a}
	else
		start "e$n" "${PIN[@]}" etcd --name n$n --data-dir "$DATA/e$n" --listen-client-urls "http://127.0.0.1:${!c}" --advertise-client-urls "http://127.0.0.1:${!c}" \
			--listen-peer-urls "http://127.0.0.1:${!d}" --initial-advertise-peer-urls "http://127.0.0.1:${!d}" --log-level error \
			--initial-cluster "n1=http://127.0.0.1:$d1,n2=http://127.0.0.1:$d2,n3=http://127.0.0.1:$d3"
		EP[$n]=$PID EURL[$n]=127.0.0.1:${!c}
	fi
}
all() { # all of both, as what is in $DATA has it
	local n
	for n in 1 2 3; do one t $n; one e $n; done
	until_ok 20 timeout 2 etcdctl --endpoints "127.0.0.1:$a1" put warm up && until_ok 20 timeout 2 etcdctl --endpoints "127.0.0.1:$c1" put warm up || { echo "they do not start" >&2; exit 1; }
}
all
elsewhere() { # DIRECTORY: new ones, which write there
	kill -9 "${TP[@]}" "${EP[@]}"
	wait "${TP[@]}" "${EP[@]}" 2>/dev/null
	DATA=$1
	mkdir -p "$DATA"
	all
}
urls() { [ "$1" = t ] && echo "$T" || echo "$E"; }
url() { [ "$1" = t ] && echo "${TURL[$2]}" || echo "${EURL[$2]}"; }
pid() { [ "$1" = t ] && echo "${TP[$2]}" || echo "${EP[$2]}"; }
leader() { # SIDE: the number of the replica that leads
	local n
	for n in 1 2 3; do
		timeout 2 etcdctl --endpoints "$(url "$1" $n)" endpoint status -w json 2>/dev/null | truly '.[0].Status | .leader == .header.member_id' && { echo $n; return; }
	done
	return 1
}

cpu() { local p t=0; for p in "$@"; do t=$((t + $(awk '{print $14 + $15}' /proc/"$p"/stat))); done; echo $t; }
rss() { local p t=0; for p in "$@"; do t=$((t + $(awk '/VmRSS/{print $2}' /proc/"$p"/status))); done; echo $t; }
median() { sort -n | awk '{v[NR]=$1} END{print v[int((NR+1)/2)]}'; }

follower() { local l; l=$(leader "$1") && echo $((l % 3 + 1)); } # SIDE: the number of one that does not lead

row() { # TITLE what connections outstanding total; AT=leader|follower: asks only there
	local i out; : >"$DIR/t"; : >"$DIR/e"
	for ((i = 0; i < ROUNDS; i++)); do
		for side in t e; do
			[ $side = t ] && { eps=$T; pids=("${TP[@]}"); } || { eps=$E; pids=("${EP[@]}"); }
			[ -z "${AT:-}" ] || eps=http://$(url $side "$($AT $side)")
			local before; before=$(cpu "${pids[@]}")
			out=$("$LOAD" "$eps" "$2" "$3" "$4" "$5") || echo "failed: $1 ($side)" >&2
			echo "$out $(($(cpu "${pids[@]}") - before))" >>"$DIR/$side"
		done
	done
	local tr er tl el tc ec
	tr=$(awk '{print $1}' "$DIR/t" | median) er=$(awk '{print $1}' "$DIR/e" | median)
	tl=$(awk '{print $2}' "$DIR/t" | median) el=$(awk '{print $2}' "$DIR/e" | median)
	tc=$(awk '{print $5}' "$DIR/t" | median) ec=$(awk '{print $5}' "$DIR/e" | median)
	awk -v n="$1" -v tr="$tr" -v er="$er" -v tl="$tl" -v el="$el" -v tc="$tc" -v ec="$ec" \
		'BEGIN{printf "| %s | %d | %d | %.1f x | %.3f | %.3f | %.2f x | %.2f x |\n", n, tr, er, tr/er, tl, el, tl/el, (tc+0.5)/(ec+0.5)}'
}
part() { [ -z "${ONLY:-}" ] || [ "$ONLY" = "$1" ]; }
# ---- leases ----

both() { # TITLE UNIT DIGITS FUNCTION ARGS...: FUNCTION SIDE ARGS prints a number; the median of the rounds of each
	local title=$1 unit=$2 digits=$3 f=$4 i side; shift 4
	[[ -z ${MATCH:-} || $title =~ $MATCH ]] || return 0
	: >"$DIR/t"; : >"$DIR/e"
	for ((i = 0; i < ${REPEAT:-$ROUNDS}; i++)); do for side in t e; do "$f" $side "$@" >>"$DIR/$side"; done; done
	awk -v n="$title" -v u="$unit" -v t="$(median <"$DIR/t")" -v e="$(median <"$DIR/e")" -v d="$digits" \
		'BEGIN{f="%." d "f"; printf "| %s | " f " %s | " f " %s | %.3f x |\n", n, t, u, e, u, e ? t/e : 0}'
}
held_cpu() { # SIDE LEASES CONNECTIONS TTL SECONDS: the leader's share of a core, in percent
	local l p before
	"$LEASES" "$(urls $1)" hold "$2" "$3" "$4" $(($5 + 8)) >"$DIR/hold.log" 2>&1 & local job=$!
	until_ok 120 grep -q held "$DIR/hold.log"
	l=$(leader $1) p=$(pid $1 "$l"); sleep 3
	before=$(cpu "$p"); sleep "$5"; awk -v a="$before" -v b="$(cpu "$p")" -v s="$5" 'BEGIN{print (b - a) / s}'
	wait $job
	grep -q "^lost 0 " "$DIR/hold.log" || echo "leases were lost ($1): $(cat "$DIR/hold.log")" >&2
}
floor_cpu() { "$FLOOR" 333 667 10 50; }
expire_all() { "$LEASES" "$(urls $1)" expire "$2" "$3" | tail -n1; }
late() { "$LEASES" "$(urls $1)" late "$2" "$3" | cut -d' ' -f"$4"; }
fanout() { "$LEASES" "$(urls $1)" fanout "$2" "$3" "$4" | cut -d' ' -f"$5"; }
per_lease() { # SIDE LEASES: bytes of the three replicas' memory for one lease with one key, each
	local p=("$(pid $1 1)" "$(pid $1 2)" "$(pid $1 3)") before
	before=$(rss "${p[@]}"); "$LEASES" "$(urls $1)" store "$2" 20 3600 >/dev/null; echo $((($(rss "${p[@]}") - before) * 1024 / 3 / $2))
}
per_connection() {
	local p=("$(pid $1 1)" "$(pid $1 2)" "$(pid $1 3)") before
	before=$(rss "${p[@]}"); "$LEASES" "$(urls $1)" connect "$2" 4 >"$DIR/connect.log" & local job=$!
	until_ok 60 grep -q held "$DIR/connect.log"; sleep 1
	echo $((($(rss "${p[@]}") - before) * 1024 / $2)); wait $job
}
# Memory first: what was freed once would be taken again unseen.
if part memory; then
	echo "| what | tenure-core | etcd | ratio |"; echo "| --- | --- | --- | --- |"
	REPEAT=1 both "memory per lease with one key, each replica" B 0 per_lease "${N_LEASES:-20000}"
	REPEAT=1 both "memory per connection with a lease, a keep-alive and a watch stream" B 0 per_connection 1000
	echo
fi
if part requests; then
echo "| what | tenure-core/s | etcd/s | ratio | p50 ms | etcd's | ratio | CPU of the three, ratio |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
row "one client's put of 256 B" put 1 1 ${N1:-1000}
row "puts of 256 B, 100 connections x 10" put 100 10 ${N2:-20000}
row "grants, 100 connections x 10" grant 100 10 ${N3:-10000}
row "ranges of one key, linearizable, 100 x 10" range 100 10 ${N4:-20000}
AT=leader row "the same, at the leader" range 100 10 ${N4:-20000}
AT=follower row "the same, at a follower" range 100 10 ${N4:-20000}
row "ranges of one key, serializable, 100 x 10" local 100 10 ${N4:-20000}
row "keep-alives, 1,000 streams x 8" keepalive 1000 8 ${N5:-64000}
# As etcd's own benchmark does it: each renews again as soon as it is answered.
row "keep-alives, one client, one at a time" keepalive 1 1 ${N1:-1000}
row "keep-alives, 100 clients, one at a time each" keepalive 100 1 ${N6:-20000}
row "puts of 256 B, the same" put 100 1 ${N6:-20000}
row "keep-alives, 1,000 clients, one at a time each" keepalive 1000 1 ${N5:-64000}
echo "memory of the three after it, MiB: tenure-core $(($(rss "${TP[@]}") / 1024)), etcd $(($(rss "${EP[@]}") / 1024))"
fi

# By HTTP/1.1, at the one that leads: JSON through the gateway, and what is scraped. The replicas have a core of their own, and the
# client, which needs as long for a request as they do, another.
declare -A LEADS # where the leader of a side is asked
http() { # SIDE PATH BODY REQUESTS CONNECTIONS: requests a second, and processor time of the three for each, in us
	local before out pids=("${TP[@]}")
	[ "$1" = t ] || pids=("${EP[@]}")
	printf '%s' "$3" >"$DIR/body"
	before=$(cpu "${pids[@]}")
	out=$(taskset -c 1 h2load --h1 -t 1 -n "$4" -c "$5" ${3:+-d "$DIR/body"} "http://${LEADS[$1]}$2" 2>/dev/null)
	grep -q "^status codes: $4 2xx" <<<"$out" || echo "failed: $2 ($1): $(grep '^status codes' <<<"$out")" >&2
	sed -nE 's|^finished in [^,]*, ([0-9.]+) req/s.*|\1|p' <<<"$out" | tr '\n' ' '
	echo $((($(cpu "${pids[@]}") - before) * 10000 / $4))
}
http_row() { # TITLE PATH BODY REQUESTS CONNECTIONS; BODY: of tenure-core, and after a tab of etcd where it differs
	local i
	: >"$DIR/t"; : >"$DIR/e"
	for ((i = 0; i < ROUNDS; i++)); do # some seconds each
		http t "$2" "${3%%$'\t'*}" $((6 * $4)) "$5" >>"$DIR/t"
		http e "$2" "${3##*$'\t'}" "$4" "$5" >>"$DIR/e"
	done
	awk -v n="$1" -v t="$(cut -d' ' -f1 "$DIR/t" | median)" -v e="$(cut -d' ' -f1 "$DIR/e" | median)" -v tc="$(cut -d' ' -f2 "$DIR/t" | median)" -v ec="$(cut -d' ' -f2 "$DIR/e" | median)" \
		'BEGIN{printf "| %s | %d | %d | %.1f x | %d | %d | %.2f x |\n", n, t, e, t / e, tc, ec, tc / ec}'
}
json_lease() { curl -s -m 5 -d '{"TTL":3600}' "http://${LEADS[$1]}/v3/lease/grant" | jq -r '"{\"ID\":\"\(.ID)\"}"'; }
if part http; then
	PIN=(taskset -c 0)
	elsewhere "$DIR/http-data"
	for side in t e; do LEADS[$side]=$(url $side "$(leader $side)"); done
	echo; echo "| by HTTP/1.1, at the leader | tenure-core/s | etcd/s | ratio | CPU of the three, us each | etcd's | ratio |"; echo "| --- | --- | --- | --- | --- | --- | --- |"
	value=$(head -c 192 /dev/zero | tr '\0' x) # 256 B, as base64
	http_row "JSON puts of 192 B, 100 connections" /v3/kv/put "{\"key\":\"Zm9v\",\"value\":\"$(base64 -w0 <<<"$value")\"}" "${N4:-20000}" 100
	http_row "JSON ranges of one key, 100 connections" /v3/kv/range '{"key":"Zm9v"}' "${N4:-20000}" 100
	http_row "JSON keep-alives, 100 connections" /v3/lease/keepalive "$(json_lease t)"$'\t'"$(json_lease e)" "${N4:-20000}" 100
	http_row "JSON keep-alives, 1,000 connections" /v3/lease/keepalive "$(json_lease t)"$'\t'"$(json_lease e)" "${N4:-20000}" 1000
	http_row "/health, 100 connections" /health "" "${N4:-20000}" 100
	http_row "/metrics, 10 connections" /metrics "" "${N7:-2000}" 10
	PIN=()
	elsewhere "$DIR/data"
fi

# An etcd has none.
if part caches; then
	echo; echo "| caches of tenure-core | p50 | p99 |"; echo "| --- | --- | --- |"
	echo "| a read from a cache | $("$CACHES" "$T" reads) ns | |"
	for n in 0 1 10 100 1000; do
		read -r p50 p99 < <("$CACHES" "$T" writes $n ${N_CACHED:-300})
		echo "| a write to a key that $n have cached | $p50 ms | $p99 ms |"
	done
	read -r p50 max < <("$CACHES" "$T" frozen 3)
	echo "| the same with one holder that does not answer (the longest) | $p50 ms | $max ms |"
fi

if part leases; then
	echo; echo "| what | tenure-core | etcd | ratio |"; echo "| --- | --- | --- | --- |"
	REPEAT=${ROUNDS_LONG:-3} both "10,000 leases, TTL 10 s, kept alive on 1,000 connections: leader's CPU, % of a core" "" 2 held_cpu 10000 1000 10 10
	# Of the 2,000 renewals a second a third comes to each replica; one that only answers them, for etcd as well as for us.
	REPEAT=${ROUNDS_LONG:-3} both "the floor: a server that only answers as many messages, gathered for 50 ms, % of a core" "" 2 floor_cpu
	REPEAT=${ROUNDS_LONG:-3} both "20,000 leases that expire in the same instant: first to last key gone" ms 1 expire_all 20000 "${EXPIRE_TTL:-8}"
	REPEAT=${ROUNDS_LONG:-3} both "one lease of many: key gone after TTL since its last renewal, p50 late" ms 2 late 300 2 1
	REPEAT=${ROUNDS_LONG:-3} both "the same, p99 late" ms 2 late 300 2 2
	both "one event to 1,000 watchers on 100 connections, p50" ms 3 fanout 1000 100 100 1
	both "the same, p99" ms 3 fanout 1000 100 100 2
	# The disk's part differs from second to second and is the larger one of ours: so also without it.
	if memory=$(mktemp -d /dev/shm/tenure-bench.XXXXXX); then
		trap 'cleanup; rm -rf "$memory"' EXIT
		elsewhere "$memory"
		both "one event to 1,000 watchers on 100 connections, all logs on tmpfs, p50" ms 3 fanout 1000 100 100 1
		both "the same, p99" ms 3 fanout 1000 100 100 2
		elsewhere "$DIR/again"
		rm -rf "$memory"
	fi
	[ -n "${MATCH:-}" ] && exit
	REPEAT=1
	: >"$DIR/t"; held_cpu t 100000 1000 10 10 >"$DIR/t"
	echo "| 100,000 leases, TTL 10 s, on 1,000 connections: leader's CPU, % of a core | $(cat "$DIR/t") | - | |"
	echo "| the same: memory of the leader | $(($(rss "$(pid t "$(leader t)")") / 1024)) MiB | - | |"
fi

# ---- when the leader goes too ----

gone() { # SIDE TTL CHANGES: ms until the key of a lease that is never renewed is gone, while so many leaders are killed
	local l n job began=0
	"$LEASES" "$(urls $1)" once "$2" >"$DIR/once.log" 2>&1 & job=$!
	until_ok 20 grep -q granted "$DIR/once.log"
	for ((n = 0; n < $3; n++)); do
		sleep 0.5
		until_ok 10 leader $1 && l=$(leader $1)
		kill -9 "$(pid $1 "$l")"; wait "$(pid $1 "$l")" 2>/dev/null
		[ "$n" -lt $(($3 - 1)) ] || [ "$3" -gt 1 ] && { sleep 0.2; one $1 "$l"; }
	done
	wait $job
	tail -n1 "$DIR/once.log"
	for n in 1 2 3; do kill -0 "$(pid $1 $n)" 2>/dev/null || one $1 $n; done
	until_ok 20 timeout 2 etcdctl --endpoints "$(url $1 1)" get warm
}
if part failover; then
	echo; echo "| what | tenure-core | etcd | ratio |"; echo "| --- | --- | --- | --- |"
	REPEAT=${ROUNDS_LONG:-3} both "TTL 5 s, node and leader die together: gone after the last renewal" ms 0 gone 5 1
	REPEAT=${ROUNDS_LONG:-3} both "TTL 10 s, five leader changes on the way, never renewed" ms 0 gone 10 5
fi
