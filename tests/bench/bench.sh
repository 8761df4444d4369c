#!/usr/bin/env bash
# tenure-core and Debian's etcd side by side: three replicas each on one machine and disk, the same client, in turns.
# Medians of five. usage: bench.sh BIN DIR LOAD
set -u
BIN=$1 DIR=$2 LOAD=$3
. "$(dirname "$0")/../system/lib.sh"
ROUNDS=${ROUNDS:-5}

read -r a1 a2 a3 b1 b2 b3 c1 c2 c3 d1 d2 d3 < <(free_ports 12)
T=http://127.0.0.1:$a1,http://127.0.0.1:$a2,http://127.0.0.1:$a3
E=http://127.0.0.1:$c1,http://127.0.0.1:$c2,http://127.0.0.1:$c3
declare -A CPU
for n in 1 2 3; do
	a=a$n b=b$n c=c$n d=d$n
	start "t$n" "$BIN/tenure-core" --name n$n --data-dir "$DIR/t$n" --listen-client-urls "http://127.0.0.1:${!a}" --listen-peer-urls "http://127.0.0.1:${!b}" \
		--initial-cluster "n1=http://127.0.0.1:$b1,n2=http://127.0.0.1:$b2,n3=http://127.0.0.1:$b3"
	TP[$n]=$PID
	start "e$n" etcd --name n$n --data-dir "$DIR/e$n" --listen-client-urls "http://127.0.0.1:${!c}" --advertise-client-urls "http://127.0.0.1:${!c}" \
		--listen-peer-urls "http://127.0.0.1:${!d}" --initial-advertise-peer-urls "http://127.0.0.1:${!d}" \
		--initial-cluster "n1=http://127.0.0.1:$d1,n2=http://127.0.0.1:$d2,n3=http://127.0.0.1:$d3"
	EP[$n]=$PID
done
until_ok 20 timeout 2 etcdctl --endpoints "127.0.0.1:$a1" put warm up && until_ok 20 timeout 2 etcdctl --endpoints "127.0.0.1:$c1" put warm up || { echo "they do not start" >&2; exit 1; }

cpu() { local p t=0; for p in "$@"; do t=$((t + $(awk '{print $14 + $15}' /proc/"$p"/stat))); done; echo $t; }
rss() { local p t=0; for p in "$@"; do t=$((t + $(awk '/VmRSS/{print $2}' /proc/"$p"/status))); done; echo $t; }
median() { sort -n | awk '{v[NR]=$1} END{print v[int((NR+1)/2)]}'; }

row() { # TITLE what connections outstanding total
	local i out; : >"$DIR/t"; : >"$DIR/e"
	for ((i = 0; i < ROUNDS; i++)); do
		for side in t e; do
			[ $side = t ] && { eps=$T; pids=("${TP[@]}"); } || { eps=$E; pids=("${EP[@]}"); }
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
echo "| what | tenure-core/s | etcd/s | ratio | p50 ms | etcd's | ratio | CPU of the three, ratio |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
row "one client's put of 256 B" put 1 1 ${N1:-1000}
row "puts of 256 B, 100 connections x 10" put 100 10 ${N2:-20000}
row "grants, 100 connections x 10" grant 100 10 ${N3:-10000}
row "ranges of one key, linearizable, 100 x 10" range 100 10 ${N4:-20000}
row "keep-alives, 1,000 streams x 8" keepalive 1000 8 ${N5:-64000}
echo "memory of the three after it, MiB: tenure-core $(($(rss "${TP[@]}") / 1024)), etcd $(($(rss "${EP[@]}") / 1024))"
