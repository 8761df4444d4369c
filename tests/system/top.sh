#!/usr/bin/env bash
# tenurectl top: on a terminal (tests/system/top.py) and as tables, on three replicas of tenure-core or on a real etcd (ENGINE=etcd).
# usage: BIN=build/release/bin DIR=build/top-test [ENGINE=etcd] tests/system/top.sh
. "$(dirname "$0")/lib.sh"
wants_plain
ENGINE=${ENGINE:-core}
BIN=$(realpath "$BIN")
if [ "$ENGINE" = etcd ]; then
	wants_etcd "top on a real etcd"
	read -r c1 p1 < <(free_ports 2)
	URLS=http://127.0.0.1:$c1
	REPLICAS=1
else
	read -r c1 c2 c3 p1 p2 p3 < <(free_ports 6)
	URLS=http://127.0.0.1:$c1,http://127.0.0.1:$c2,http://127.0.0.1:$c3
	REPLICAS="1 2 3"
fi
declare -A PID_OF
replica() { # N
	if [ "$ENGINE" = etcd ]; then
		start_etcd x1 "$c1" "$p1"
	else
		local cc=c$1 pp=p$1
		start_replica "x$1" "${!cc}" "${!pp}" --initial-cluster "x1=http://127.0.0.1:$p1,x2=http://127.0.0.1:$p2,x3=http://127.0.0.1:$p3"
	fi
	PID_OF[core$1]=$PID
}
for i in $REPLICAS; do replica "$i"; done
E() { timeout 5 etcdctl --endpoints "$URLS" "$@"; }
until_ok 20 E put begin yes || { not_ok "the core serves" "$(tail -n 3 "$DIR"/core*.log)"; finish; exit 1; }
is "before anybody is there" "$(timeout 20 "$BIN/tenurectl" --bus=unix:path=/nonexistent --endpoints="$URLS" top --once 2>&1 | grep -cE ' 0 node\(s\); 0 service\(s\); revision [1-9]|^Core: . of . replica\(s\) answer')" 2
bus_of() { echo "unix:path=$PLAIN/$1.bus"; }
agent() {
	start "agent.$1" env RUNTIME_DIRECTORY="$DIR/$1.run" DBUS_SYSTEM_BUS_ADDRESS="$(bus_of "$1")" "$BIN/tenured" -c "$DIR/$1.conf"
	PID_OF[$1]=$PID
}
ctl() { timeout 20 "$BIN/tenurectl" --bus="$(bus_of "$1")" "${@:2}"; }
held() { ctl "$1" status; }
for h in db1 db2 db3; do
	cat >"$DIR/$h.bus.conf" <<END
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>$(bus_of $h)</listen><auth>EXTERNAL</auth><policy context="default">
<allow user="*"/><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>
END
	start bus dbus-daemon --config-file="$DIR/$h.bus.conf" --nofork --nopidfile
	mkdir "$DIR/$h.run"
	printf '[Agent]\nEndpoints=%s\nNodeName=%s\nNodeId=%s\nTTL=3s\nTags=zone=%s\nServicesPath=%s\n' "$URLS" $h "$(printf %s $h | md5sum | cut -c1-32)" "z-$h" "$DIR/none" >"$DIR/$h.conf"
	until_ok 20 busctl --address="$(bus_of $h)" list
	agent $h
done
for h in db1 db2 db3; do until_ok 20 held $h || { not_ok "$h holds its place" "$(tail -n 2 "$DIR/agent.$h.log")"; finish; exit 1; }; done
top() { timeout 20 "$BIN/tenurectl" --bus="$(bus_of db1)" top "$@"; }

# ---- as tables ----
nobody() { timeout 20 "$BIN/tenurectl" --bus=unix:path=/nonexistent "$@"; }
nobody --endpoints=http://127.0.0.1:1 top >"$DIR/none.out" 2>&1 &
NONE=$!
out=$(top)
is "to a pipe: one table" "$(grep -c '^NODE ' <<<"$out") $(grep -cE '^db[123] +held ' <<<"$out")" "1 3"
is "output to a pipe has no escape sequences" "$(grep -c $'\x1b' <<<"$out")" 0
is "the columns of tenurectl top" "$(grep '^NODE ' <<<"$out" | xargs)" "NODE STATE LEFT TTL AGE ADDRESS ZONE SERVICES NOTES"
has "a member's row" "$(grep '^db2 ' <<<"$out")" '^db2 +held +[0-9.]+s +3s +[0-9]+s +[^ ]+ +z-db2 +- +zone=z-db2$'
is "sorted and filtered, for a script" "$(top --once --no-legend --sort=-node --filter='db !db2' | awk '{ print $1, NF }' | xargs)" "db3 9 db1 9"
is "as often as it is asked for" "$(top --iterations=3 --interval=100ms | grep -c '^NODE ')" 3
is "tenurectl top without an agent" "$(nobody --endpoints="$URLS" top | grep -cE '^db[123] +held|^No agent on this host$')" 4
out=$(timeout 60 valgrind -q --leak-check=full --error-exitcode=9 "$BIN/tenurectl" --bus="$(bus_of db1)" top --iterations=2 2>&1 >"$DIR/valgrind.out")
is "valgrind has nothing to say" "$? $out $(grep -c '^NODE ' "$DIR/valgrind.out")" "0  2"
has "a column that there is not" "$(top --sort=color 2>&1)" '^tenurectl: --sort must be node, state, '
is "an unknown column is an error" "$(top --sort=color >/dev/null 2>&1; echo $?)" 1
has "a time that is none" "$(top --interval=1ms 2>&1)" '^tenurectl: --interval must be a time from 100ms to 1h'

# ---- on a terminal ----
happen() {
	case $1 in
	register) start register "$BIN/tenurectl" --bus="$(bus_of db1)" register web Port=80 ;;
	lock) start "lock$3" "$BIN/tenurectl" --bus="$(bus_of "$2")" lock job -- sleep 60 ;;
	kill) kill -9 "${PID_OF[$2]}" ;;
	agent) agent "$2" ;;
	stop) kill -9 "${PID_OF[core$2]}" ;;
	replica) replica "$2" ;;
	core-down) for i in $REPLICAS; do kill -9 "${PID_OF[core$i]}"; done ;;
	core-up) for i in $REPLICAS; do replica "$i"; done ;;
	esac
}
# What the terminal's test asks for is done here, where the processes are.
mkfifo "$DIR/asks" "$DIR/done"
cat >"$DIR/hook" <<END
#!/bin/sh
echo "\$*" >"$DIR/asks" && read x <"$DIR/done"
END
chmod +x "$DIR/hook"
{
	/usr/bin/python3 "$SYSTEM/top.py" "$BIN/tenurectl" "$(bus_of db1)" "$URLS" "$DIR/hook" "$ENGINE" >"$DIR/top.out" 2>&1 || echo "not ok the terminal's test ends well" >>"$DIR/top.out"
	echo end >"$DIR/asks"
} &
TERMINAL=$!
PIDS+=("$TERMINAL")
exec 3<>"$DIR/asks" 4<>"$DIR/done"
while read -r -u 3 -a words && [ "${words[0]}" != end ]; do
	happen "${words[@]}"
	echo >&4
done
wait "$TERMINAL"
while read -r line; do
	case $line in "ok "*) ok "${line#ok }" ;; "not ok "*) not_ok "${line#not ok }" ;; *) echo "    $line" ;; esac
done <"$DIR/top.out"

# ---- who may see it ----
if [ "$ENGINE" = core ]; then
	{ E user add root:secret && E user grant-role root root && E auth enable; } >/dev/null 2>&1
	is "with users: a user who may read sees all nodes" "$(nobody --endpoints="$URLS" --user=root:secret top --once | grep -cE '^db[123] +held +[0-9.]+s')" 3
	t=${EPOCHREALTIME/./}; nobody --version >/dev/null; start_ms=$(((${EPOCHREALTIME/./} - t) / 1000))
	t=${EPOCHREALTIME/./}; out=$(nobody --endpoints="$URLS" top --once 2>&1); code=$? took=$(((${EPOCHREALTIME/./} - t) / 1000))
	is "others do not" "$code $(grep -c 'held' <<<"$out")" "1 0"
	[ $took -lt $((4000 + 2 * start_ms)) ] && ok "and need not wait for that as for a core that does not answer" || not_ok "and need not wait for that" "$took ms"
	has "with users: others get the reason" "$out" '^tenurectl: no lease core answers: .*(user|permission|denied|authentic|log)'
fi
wait $NONE
is "no core: an error" $? 1
has "no core: the error says so" "$(cat "$DIR/none.out")" '^tenurectl: no lease core answers'
finish
