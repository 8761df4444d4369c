#!/usr/bin/env bash
# What it costs a host to be a member and do nothing else, and how soon the others hear of its death: tenured, serf, corosync
# and a ZooKeeper client, five hosts each, in network namespaces of their own. Measured on the fifth.
# usage: BIN=build/release/bin DIR=build/idle tests/bench/idle.sh [SECONDS]   (root; installs serf, corosync, zookeeper)
set -u
SECONDS_IDLE=${1:-60} N=5
case $BIN in /*) ;; *) BIN=$PWD/$BIN ;; esac
case $DIR in /*) ;; *) DIR=$PWD/$DIR ;; esac
rm -rf "$DIR" && mkdir -p "$DIR"
P=tenure-idle-$$
PIDS=()

ns() { local i=$1; shift; ip netns exec "$P-$i" "$@"; }
# start I NAME COMMAND...: on host I; the pid is in $PID.
start() { local i=$1 name=$2; shift 2; ip netns exec "$P-$i" "$@" >>"$DIR/$name.log" 2>&1 & PID=$!; PIDS+=("$PID"); }
end_all() { for p in "${PIDS[@]:-}"; do [ -z "$p" ] || { disown "$p"; kill -9 "$p"; } 2>/dev/null; done; PIDS=(); sleep 0.5; }
down() { end_all; for i in $(seq $N); do ip netns del "$P-$i" 2>/dev/null; done; ip netns del "$P-sw" 2>/dev/null; }
trap down EXIT
up() {
	ip netns add "$P-sw" && ip -n "$P-sw" link add br0 type bridge && ip -n "$P-sw" link set br0 up
	for i in $(seq $N); do
		ip netns add "$P-$i"
		ip link add eth0 netns "$P-$i" type veth peer name "v$i" netns "$P-sw"
		ip -n "$P-sw" link set "v$i" master br0 up
		ip -n "$P-$i" link set lo up; ip -n "$P-$i" link set eth0 up; ip -n "$P-$i" address add "10.88.0.$i/24" dev eth0
	done
}
until_ok() { local end=$(($(date +%s) + $1)); shift; until "$@" >/dev/null 2>&1; do [ "$(date +%s)" -lt "$end" ] || return 1; sleep 0.02; done; }

# All threads of a process: wake-ups, nanoseconds of processor time; and bytes of its host's link.
ran() { awk '{s += $1} END {print s}' /proc/"$1"/task/*/schedstat; }
wakeups() { cat /proc/"$1"/task/*/status | awk '/^voluntary_ctxt/ {n += $2} END {print n}'; }
octets() { ns "$N" cat /sys/class/net/eth0/statistics/rx_bytes /sys/class/net/eth0/statistics/tx_bytes | paste -sd+ | bc; }
measure() { # NAME PID DETECTION
	local w c o r
	sleep 10
	w=$(wakeups "$2") c=$(ran "$2") o=$(octets)
	sleep "$SECONDS_IDLE"
	r=$(awk '/VmRSS/ {print $2}' "/proc/$2/status")
	printf '| %s | %.1f | %.0f | %.1f | %.1f |' "$1" "$(bc -l <<<"$r / 1024")" "$(bc -l <<<"($(wakeups "$2") - $w) * 60 / $SECONDS_IDLE")" \
		"$(bc -l <<<"($(ran "$2") - $c) / 1000000000 * 86400 / $SECONDS_IDLE")" \
		"$(bc -l <<<"($(octets) - $o) * 86400 / $SECONDS_IDLE / 1048576")"
}
# death PID COMMAND...: from the end of host N, its link first, to when COMMAND succeeds on another; in seconds.
death() {
	local pid=$1 t
	shift
	t=$(date +%s%N)
	ip -n "$P-$N" link set eth0 down; kill -9 "$pid"
	until_ok 60 "$@" || { echo " - |"; return; }
	printf ' %.1f |\n' "$(bc -l <<<"($(date +%s%N) - $t) / 1000000000")"
}

echo "| member | RSS, MB | wake-ups a minute | processor s a day | MB on the wire a day | death reported after, s |"
echo "| --- | --- | --- | --- | --- | --- |"

tenure() { # TTL
	local peers= ends= bus=unix:abstract=$P-bus
	up
	for i in 1 2 3; do peers+=${peers:+,}n$i=http://10.88.0.$i:2380 ends+=${ends:+,}http://10.88.0.$i:2379; done
	for i in 1 2 3; do start $i "core$i" "$BIN/tenure-core" --name n$i --data-dir "$DIR/core$1-$i" --listen-client-urls http://10.88.0.$i:2379 --listen-peer-urls http://10.88.0.$i:2380 --allow-plaintext-peers --initial-cluster "$peers"; done
	printf '<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">\n<busconfig><type>session</type><listen>%s</listen><policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>' "$bus" >"$DIR/bus.conf"
	start 1 bus dbus-daemon --config-file="$DIR/bus.conf" --nofork --nopidfile
	for i in $(seq $N); do
		b=$bus; case $i in 1) ;; $N) start $i bus$i dbus-daemon --config-file="$DIR/bus.conf" --nofork --nopidfile ;; *) b=unix:path=/nonexistent ;; esac
		start $i "agent$i" env DBUS_SYSTEM_BUS_ADDRESS="$b" "$BIN/tenured" -c /dev/null --endpoints "$ends" --ttl "$1" --node-name h$i --node-id "$(printf %032d $i)"
	done
	local pid=; find_pid() { for p in $(pgrep -P "$PID") $PID; do [ "$(cat /proc/"$p"/comm)" = tenured ] && pid=$p; done; [ -n "$pid" ]; }
	until_ok 5 find_pid
	there() { [ "$(ns 1 "$BIN/tenurectl" --bus="$bus" nodes --no-legend | wc -l)" = "$1" ]; }
	until_ok 20 there $N || { echo "tenured: not all there" >&2; down; return; }
	measure "tenured, TTL $1" "$pid"
	death "$pid" there $((N - 1))
	down
}

serf_() {
	up
	for i in $(seq $N); do start $i "serf$i" serf agent -node h$i -bind 10.88.0.$i:7946 -rpc-addr 127.0.0.1:7373 -profile lan $([ $i = 1 ] || echo -join 10.88.0.1 -retry-join 10.88.0.1); [ $i = 1 ] && sleep 1; done
	local pid=$PID
	there() { [ "$(ns 1 serf members -status alive | wc -l)" = "$1" ]; }
	until_ok 20 there $N || { echo "serf: not all there" >&2; down; return; }
	measure "serf, lan" "$pid"
	death "$pid" there $((N - 1))
	down
}

corosync_() {
	up
	for i in $(seq $N); do
		d=$DIR/corosync$i; mkdir -p "$d/etc" "$d/var" "$d/run" "$d/shm"
		{
			printf 'totem {\n version: 2\n cluster_name: idle\n transport: udpu\n}\nlogging {\n to_stderr: yes\n}\nquorum {\n provider: corosync_votequorum\n}\nnodelist {\n'
			for k in $(seq $N); do printf ' node {\n  ring0_addr: 10.88.0.%s\n  nodeid: %s\n  name: h%s\n }\n' $k $k $k; done
			echo "}"
		} >"$d/etc/corosync.conf"
		# Its sockets, its shared memory and its state are at fixed places.
		start $i "corosync$i" unshare -m sh -c "mount --bind '$d/etc' /etc/corosync; mount --bind '$d/var' /var/lib/corosync; mount --bind '$d/run' /run; mount -t tmpfs tmpfs /dev/shm; exec corosync -f -c /etc/corosync/corosync.conf"
	done
	local pid=$PID
	there() { [ "$(nsenter -t "${PIDS[0]}" -m -n corosync-quorumtool -s 2>/dev/null | awk '/^Nodes:/ {print $2}')" = "$1" ]; }
	until_ok 30 there $N || { echo "corosync: not all there" >&2; tail -n 3 "$DIR/corosync1.log" >&2; down; return; }
	measure "corosync, udpu" "$pid"
	death "$pid" there $((N - 1))
	down
}

zookeeper_() {
	up
	for i in 1 2 3; do
		mkdir -p "$DIR/zk$i"; echo $i >"$DIR/zk$i/myid"
		{ printf 'tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=%s\nclientPort=2181\nadmin.enableServer=false\n' "$DIR/zk$i"; for k in 1 2 3; do echo "server.$k=10.88.0.$k:2888:3888"; done; } >"$DIR/zk$i/zoo.cfg"
		start $i "zk$i" java -Xmx256m -cp "/usr/share/java/*:/etc/zookeeper/conf" org.apache.zookeeper.server.quorum.QuorumPeerMain "$DIR/zk$i/zoo.cfg"
	done
	cat >"$DIR/member.py" <<'END'
import sys, time
from kazoo.client import KazooClient
k = KazooClient(hosts="10.88.0.1:2181,10.88.0.2:2181,10.88.0.3:2181", timeout=10)
k.start(timeout=60)
k.ensure_path("/nodes")
k.create("/nodes/" + sys.argv[1], b"", ephemeral=True)
@k.ChildrenWatch("/nodes")
def report(children):
    open(sys.argv[2], "w").write(str(len(children)))
while True: time.sleep(3600)
END
	for i in $(seq $N); do start $i "member$i" /usr/bin/python3 "$DIR/member.py" h$i "$DIR/seen$i"; done
	local pid=$PID
	there() { [ "$(cat "$DIR/seen1")" = "$1" ]; }
	until_ok 60 there $N || { echo "zookeeper: not all there" >&2; tail -n 2 "$DIR/zk1.log" "$DIR/member1.log" >&2; down; return; }
	measure "ZooKeeper client (kazoo), session 10 s" "$pid"
	death "$pid" there $((N - 1))
	down
}

# ONLY=tenure leaves the others out.
tenure 10s
tenure 2s
[ "${ONLY:-}" != tenure ] || exit 0
command -v serf >/dev/null && serf_ || echo "| serf | not installed |"
command -v corosync >/dev/null && corosync_ || echo "| corosync | not installed |"
[ -e /usr/share/java/zookeeper.jar ] && zookeeper_ || echo "| ZooKeeper | not installed |"
