#!/usr/bin/env bash
# Members come and go while clients are served; a snapshot becomes another cluster. Each recipe of tenure-core(8), run.
# usage: BIN=build/release/bin DIR=build/members-test tests/system/members.sh
. "$(dirname "$0")/lib.sh"

read -r c1 c2 c3 c4 p1 p2 p3 p4 < <(free_ports 8)
A=http://127.0.0.1
INITIAL="a=$A:$p1,b=$A:$p2,c=$A:$p3"
etc() { local e=$1; shift; timeout 10 etcdctl --endpoints "$e" "$@"; }
ctl() { timeout 20 "$BIN/tenurectl" --endpoints="$EP" "$@"; }
role_is() { ctl --json=short core members | truly --arg n "$1" --arg r "$2" '.[] | select(.name == $n) | .role == $r'; }
listed() { ctl --json=short core members | truly --arg n "$1" 'any(.[]; .name == $n)'; }
# changes WHAT PATTERN COMMAND...: a busy machine may hold an election at any time, after which the leader has to hear of all first.
healthy() { OUT=$("$@" 2>&1); ! grep -q "unhealthy cluster" <<<"$OUT"; }
changes() {
	local what=$1 pattern=$2
	shift 2
	until_ok 20 healthy "$@"
	has "$what" "$OUT" "$pattern"
}
EP="$A:$c1,$A:$c2,$A:$c3"

for r in "a $c1 $p1" "b $c2 $p2" "c $c3 $p3"; do start_replica $r --initial-cluster "$INITIAL"; done
until_ok 10 etc "127.0.0.1:$c1" put k before || { not_ok "three replicas serve"; finish; exit 1; }
for n in a b c; do until_ok 5 listed $n; done
LEASE=$(etc "127.0.0.1:$c1" lease grant 600 | awk '{print $2}')
etc "127.0.0.1:$c1" put --lease="$LEASE" leased v >/dev/null
for i in $(seq 40); do echo "put n$i v"; done >"$DIR/puts"
while read -r _ k v; do etc "127.0.0.1:$c2" put "$k" "$v" >/dev/null; done <"$DIR/puts"

# ---- a replica more, as a learner first ----
changes "add a learner" "It is a learner" ctl core add "$A:$p4"
has "a URL that is there already" "$(ctl core add "$A:$p4" 2>&1)" "Peer URLs already exists"
has "a URL that is none" "$(ctl core add nonsense 2>&1)" "given member URLs are invalid"
changes "a second learner" "too many learner members" ctl core add "$A:9"
ID=$(ctl --json=short core members | jq -r '.[] | select(.role == "learner") | .id')
has "a learner that has not started is not promoted" "$(ctl core promote "$ID" 2>&1)" "in sync with leader"
start_replica d "$c4" "$p4" --initial-cluster "$INITIAL,d=$A:$p4" --initial-cluster-state existing
if until_ok 10 role_is d learner; then ok "it joins, and says its name"; else not_ok "it joins, and says its name" "$(ctl core members)"; fi
# A learner's own state, without the leader's word.
if until_ok 10 bash -c "[ \"\$(timeout 5 etcdctl --endpoints 127.0.0.1:$c4 get --consistency=s n40 --print-value-only)\" = v ]"; then
	ok "it has what was there"; else not_ok "it has what was there"; fi
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
messages
real_learner() { # a real etcd with a learner, which serves on the port in $RL
	local a b ap bp
	read -r a b ap bp < <(free_ports 4)
	RL=$b
	start_etcd etcd-a "$a" "$ap"
	until_ok 20 etc "127.0.0.1:$a" put k v
	until_ok 20 etc "127.0.0.1:$a" member add etcd-b --learner --peer-urls "$A:$bp"
	start_etcd etcd-b "$b" "$bp" --initial-cluster "etcd-a=$A:$ap,etcd-b=$A:$bp" --initial-cluster-state existing
	until_ok 20 etc "127.0.0.1:$b" get k --consistency=s
}
real_learner
answers() { timeout 60 /usr/bin/python3 "$ROOT/tests/system/learner.py" "$DIR/pb" "127.0.0.1:$1"; }
is "a learner answers what a real etcd's answers" "$(answers "$c4")" "$(answers "$RL")"
has "a learner refuses most calls" "$(answers "$c4" | grep -c "UNAVAILABLE: etcdserver: rpc not supported for learner")" "^15$"
health() { curl -s -m 20 -w ' %{http_code}' "$A:$1/health$2" | jq -r 'if type == "object" then .health else . end'; } # PORT QUERY
for q in "" "?exclude=NOSPACE" "?serializable=true"; do is "a learner's /health$q is a real etcd's" "$(health "$c4" "$q")" "$(health "$RL" "$q")"; done
is "a learner is not ready" "$(curl -s -m 20 "$A:$c4/readyz" -w '%{http_code}')" $'[+]data_corruption ok\n[+]serializable_read ok\n[+]linearizable_read ok\n[-]non_learner failed: not supported for learner\n\n503'
is "a learner is live" "$(curl -s -m 20 "$A:$c4/livez" -w '%{http_code}')" $'ok\n200'
EP="$A:$c4,$EP"
has "tenurectl goes on to a replica that answers" "$(ctl core members 2>&1)" "learner"
if until_ok 10 ctl core promote d; then ok "promoted"; else not_ok "promoted" "$(ctl core promote d 2>&1)"; fi
has "a voter cannot be promoted" "$(ctl core promote d 2>&1)" "can only promote a learner"
is "a promoted learner serves linearizable reads" "$(etc "127.0.0.1:$c4" get k --print-value-only)" before

# ---- one that goes, the leader at that ----
declare -A PORT=([a]=$c1 [b]=$c2 [c]=$c3 [d]=$c4)
remove_leader() {
	LEADER=$(ctl --json=short core members | jq -r '.[] | select(.role == "leader") | .name')
	# The new one stays, for what follows; an election on a busy machine may have chosen it.
	[ "$LEADER" != d ] || { ctl core move-leader a && LEADER=a; }
	ctl --endpoints="$A:${PORT[$LEADER]}" core remove "$LEADER"
}
changes "remove the leader, which says so itself" "^Removed" remove_leader
removed() { LEADER=$(basename "$(grep -l "was removed from the cluster" "$DIR"/[a-d].log)" .log) && [ -n "$LEADER" ]; }
if until_ok 10 removed; then ok "it stops by itself"; else not_ok "it stops by itself" "$(tail -qn 2 "$DIR"/[a-d].log)"; fi
EP="$A:${PORT[d]},$A:$c1,$A:$c2,$A:$c3"
LIVE=$(ctl --json=short core members | jq -r '.[].client_urls[0]' | paste -sd,)
EP=$LIVE
is "three are left" "$(ctl --json=short core members | jq length)" 3
if until_ok 10 etc "${LIVE//http:\/\//}" put k after; then ok "they go on"; else not_ok "they go on"; fi
is "the lease is there" "$(etc "${LIVE//http:\/\//}" lease timetolive "$LEASE" | grep -c granted)" 1
OTHER=$(ctl --json=short core members | jq -r '[.[] | select(.role == "voter")][0].name')
has "move the leader" "$(ctl core move-leader "$OTHER")" "is the leader now"
if until_ok 5 role_is "$OTHER" leader; then ok "it leads"; else not_ok "it leads" "$(ctl core members)"; fi
has "a member that is none" "$(ctl core remove nobody 2>&1)" "no member is named 'nobody'"

# ---- a restart finds who it is, whatever the flags of the beginning said ----
P=$(pgrep -f -- "--name d --data-dir $DIR/d " | head -n1)
kill -9 "$P"
until_ok 5 bash -c "! kill -0 $P"
# With another member's directory, or a copy of it, there would be two of that member. The options tell the members apart; the port does not.
cp -r "$DIR/d" "$DIR/d.copy"
for n in a b c; do [ "$n" = "$LEADER" ] || WRONG=$n; done
read -r wc wp < <(free_ports 2)
has "another member's data directory" "$(timeout 10 "$BIN/tenure-core" --name "$WRONG" --data-dir "$DIR/d.copy" --listen-client-urls "$A:$wc" \
	--listen-peer-urls "$A:$wp" --initial-cluster "$INITIAL,d=$A:$p4" --initial-cluster-state existing 2>&1)" "belongs to member 0*$ID at $A:$p4, but --initial-cluster puts $WRONG at "
start_replica d "$c4" "$p4" --initial-cluster "$INITIAL,d=$A:$p4" --initial-cluster-state existing
if until_ok 10 etc "127.0.0.1:$c4" get k; then ok "a replica that had joined starts again"; else not_ok "a replica that had joined starts again" "$(tail -n 2 "$DIR/d.log")"; fi

# ---- disaster: one replica is left, without a majority; its snapshot becomes a new cluster ----
HASHES=$(for e in ${LIVE//,/ }; do etc "${e#http://}" put hash "$e" >/dev/null; done
	for e in ${LIVE//,/ }; do until_ok 5 bash -c "[ \"\$(etcdctl --endpoints ${e#http://} get hash --print-value-only)\" = ${LIVE##*,} ]"; etc "${e#http://}" endpoint hashkv -w json | jq '.[0].HashKV.hash'; done)
is "HashKV is equal on all replicas" "$(sort -u <<<"$HASHES" | wc -l)" 1
SURVIVOR=d
start no_leader /usr/bin/python3 "$ROOT/tests/system/no_leader.py" "$DIR/pb" "127.0.0.1:$c4"
until_ok 10 grep -q open "$DIR/no_leader.log" || not_ok "streams that ask for a leader" "$(cat "$DIR/no_leader.log")"
for p in "${PIDS[@]}"; do is_ours "$p" && grep -qz -- "--name" "/proc/$p/cmdline" 2>/dev/null && ! tr '\0' ' ' <"/proc/$p/cmdline" | grep -q -- "--name $SURVIVOR " && kill -9 "$p"; done
EP="$A:$c4"
until_ok 20 grep -q "goes on" "$DIR/no_leader.log"
is "streams that asked for a leader end when there is none, and no others" "$(tail -n +2 "$DIR/no_leader.log" | tr '\n' ';')" \
	"UNAVAILABLE: etcdserver: no leader;UNAVAILABLE: etcdserver: no leader;the other goes on;"
has "a snapshot of the one that is left" "$(ctl core snapshot save "$DIR/snap" 2>&1)" "^Saved"
has "etcdctl's snapshot of it" "$(etc "127.0.0.1:$c4" snapshot save "$DIR/snap2" 2>&1)" "Snapshot saved"
for p in "${PIDS[@]}"; do is_ours "$p" && kill -9 "$p" 2>/dev/null; done
read -r n1 n2 n3 q1 q2 q3 < <(free_ports 6)
NEW="x=$A:$q1,y=$A:$q2,z=$A:$q3"
head -c 200 "$DIR/snap" >"$DIR/cut"
has "a snapshot that is damaged" "$("$BIN/tenure-core" --restore "$DIR/cut" --name x --data-dir "$DIR/x" --initial-cluster "$NEW" 2>&1)" "not a snapshot of a lease core, or it is damaged"
# Nothing is read of what is none, nor more than it says of itself: this one is larger than the memory that there is. (The
# sanitizers reserve more than that.)
little() { grep -q __asan_init "$BIN/tenure-core" || ulimit -v 4000000; timeout 20 "$@"; }
truncate -s 8G "$DIR/huge"
has "a file that is none, and huge" "$(little "$BIN/tenure-core" --restore "$DIR/huge" --name x --data-dir "$DIR/x" --initial-cluster "$NEW" 2>&1)" "huge is not a snapshot of a lease core"
cp "$DIR/snap" "$DIR/longer"; truncate -s 8G "$DIR/longer"
has "a snapshot file with data after its end is refused" "$(little "$BIN/tenure-core" --restore "$DIR/longer" --name x --data-dir "$DIR/x" --initial-cluster "$NEW" 2>&1)" "longer is not a snapshot of a lease core"
rm "$DIR/huge" "$DIR/longer"
has "a directory is none" "$("$BIN/tenure-core" --restore "$DIR" --name x --data-dir "$DIR/x" --initial-cluster "$NEW" 2>&1)" "Cannot read .*: Is a directory"
start_etcd etcd-s "$n1" "$q1"
until_ok 20 etc "127.0.0.1:$n1" snapshot save "$DIR/etcd.snap"
kill -9 "$PID"; wait "$PID" 2>/dev/null
has "a snapshot of a real etcd is refused" "$("$BIN/tenure-core" --restore "$DIR/etcd.snap" --name x --data-dir "$DIR/x" --initial-cluster "$NEW" 2>&1)" "it is an etcd snapshot; restore it with etcd"
mkfifo "$DIR/fifo"
has "a FIFO without a writer is refused" "$(timeout -s KILL 20 "$BIN/tenure-core" --restore "$DIR/fifo" --name x --data-dir "$DIR/x" --initial-cluster "$NEW" 2>&1)" "it is not a regular file"
for r in "x $n1 $q1" "y $n2 $q2" "z $n3 $q3"; do
	read -r name c p <<<"$r"
	out=$(env PATH="$BIN:$PATH" "$BIN/tenurectl" core snapshot restore "$DIR/snap" --name "$name" --data-dir "$DIR/$name" --listen-peer-urls "$A:$p" --initial-cluster "$NEW" --initial-cluster-token two 2>&1)
	has "restored into $name" "$out" "Restored revision"
	start_replica "$name" "$c" "$p" --initial-cluster "$NEW" --initial-cluster-token two
done
if until_ok 15 etc "127.0.0.1:$n1,127.0.0.1:$n2" put k again; then ok "the new cluster serves"; else not_ok "the new cluster serves" "$(tail -n 2 "$DIR/x.log")"; fi
until_ok 15 etc "127.0.0.1:$n3" get k # the put may be the other two's
is "the new cluster has the keys" "$(etc "127.0.0.1:$n2" get n40 --print-value-only)" v
is "the new cluster has the leases" "$(etc "127.0.0.1:$n3" lease timetolive "$LEASE" | grep -c granted)" 1
has "a directory that holds a replica" "$("$BIN/tenure-core" --restore "$DIR/snap2" --name x --data-dir "$DIR/d" --initial-cluster "$NEW" 2>&1)" "already holds a replica|another|belongs"

# ---- two of three are lost, and the one that is left was restarted: it goes on alone, then others join ----
read -r f1 f2 f3 g1 g2 g3 < <(free_ports 6)
INITIAL="f1=$A:$g1,f2=$A:$g2,f3=$A:$g3"
F=()
for r in "f1 $f1 $g1" "f2 $f2 $g2" "f3 $f3 $g3"; do start_replica $r --initial-cluster "$INITIAL"; F+=("$PID"); done
until_ok 10 etc "127.0.0.1:$f1" put k1 v
for i in $(seq 20); do etc "127.0.0.1:$f2" put "k$i" "v$i" >/dev/null; done
LEASE=$(etc "127.0.0.1:$f1" lease grant 600 | awk '{print $2}')
kill -9 "${F[@]}"; wait "${F[@]}" 2>/dev/null
rm -rf "$DIR/f2" "$DIR/f3"
EP="$A:$f1"
start_replica f1 "$f1" "$g1" --initial-cluster "$INITIAL"; ALONE=$PID
until_ok 10 ctl core members
has "a replica that was restarted alone gives no old snapshot" "$(ctl core snapshot save "$DIR/none" 2>&1)" "no leader|timed out|no answer in time"
has "a replica that was restarted alone gives no old value" "$(etc "127.0.0.1:$f1" get k5 --consistency=s 2>&1)" "no leader|timed out|deadline"
kill "$ALONE"; wait "$ALONE" 2>/dev/null
has "an empty directory has nobody to go on" "$("$BIN/tenure-core" --force-new-cluster --name f1 --data-dir "$DIR/nothing" --initial-cluster "$INITIAL" 2>&1)" "holds no replica"
has "--force-new-cluster: the replica continues alone" "$("$BIN/tenure-core" --force-new-cluster --name f1 --data-dir "$DIR/f1" --initial-cluster "$INITIAL" --listen-peer-urls "$A:$g1" 2>&1)" "is its only member now"
start_replica f1 "$f1" "$g1" --initial-cluster "$INITIAL"
if until_ok 10 etc "127.0.0.1:$f1" put after v; then ok "alone, it takes writes"; else not_ok "alone, it takes writes" "$(tail -n 2 "$DIR/f1.log")"; fi
is "alone, it has everything that it had acknowledged" "$(etc "127.0.0.1:$f1" get k20 --print-value-only)" v20
is "alone, it has the lease" "$(etc "127.0.0.1:$f1" lease timetolive "$LEASE" | grep -c granted)" 1
is "alone, it is the only member" "$(ctl --json=short core members | jq length)" 1
changes "another one is added" "It is a learner" ctl core add "$A:$g2"
start_replica f2 "$f2" "$g2" --initial-cluster "f1=$A:$g1,f2=$A:$g2" --initial-cluster-state existing
if until_ok 15 ctl core promote f2; then ok "and votes"; else not_ok "and votes" "$(ctl core promote f2 2>&1)"; fi
is "a new member gets the former keys" "$(etc "127.0.0.1:$f2" get k20 --print-value-only)" v20
finish
