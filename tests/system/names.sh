#!/usr/bin/env bash
# Endpoints with names: several addresses, some of them dead; and a DNS that does not answer while replicas restart.
# usage: BIN=build/release/bin DIR=build/names-test tests/system/names.sh   (root: it has a network and a resolv.conf of its own)
if [ "${NAMES_INSIDE:-}" = "" ]; then
	. "$(dirname "$0")/lib.sh"
	[ "$(id -u)" = 0 ] || { skip "endpoints that have names" "needs root"; finish; exit; }
	NAMES_INSIDE=1 exec unshare --net --mount --propagation private "$0"
fi
. "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
ip link set lo up
ip link add live type veth peer name nobody && ip link set live up && ip link set nobody up
for i in 1 2 3; do ip address add "10.78.0.$i/24" dev live; done
ip -6 address add fd00:78::1/64 dev live nodad
ip address add 10.78.0.53/24 dev live
# Addresses without an answer: there is no host at the other end of the link.
DEAD4=10.78.0.99 DEAD6=fd00:78::99
printf 'nameserver 10.78.0.53\n' >"$DIR/resolv.conf" && mount --bind "$DIR/resolv.conf" /etc/resolv.conf
printf 'hosts: dns\n' >"$DIR/nsswitch.conf" && mount --bind "$DIR/nsswitch.conf" /etc/nsswitch.conf
names() { printf '%s\n' "$@" >"$DIR/hosts.new"; mv "$DIR/hosts.new" "$DIR/hosts"; }
names "h1 10.78.0.1" "h2 10.78.0.2" "h3 10.78.0.3"
dns() { start dns /usr/bin/python3 "$HERE/dns.py" 10.78.0.53 tenure.test "$DIR/hosts"; DNS=$PID; until_ok 5 getent ahosts h1.tenure.test; }
dns || not_ok "a DNS"

cluster=h1=http://10.78.0.1:2380,h2=http://10.78.0.2:2380,h3=http://10.78.0.3:2380
replica() {
	start "core$1" "$BIN/tenure-core" --name "h$1" --data-dir "$DIR/core$1" --listen-client-urls "http://10.78.0.$1:2379,http://[fd00:78::1]:237$1" \
		--listen-peer-urls "http://10.78.0.$1:2380" --allow-plaintext-peers --initial-cluster "$cluster"
	CORES[$1]=$PID
}
CORES=()
for i in 1 2 3; do replica $i; done
serves() { timeout 2 etcdctl --endpoints "10.78.0.$1:2379" get x; }
for i in 1 2 3; do until_ok 20 serves $i || not_ok "replica $i serves"; done

BUS=unix:abstract=tenure-names-$$
printf '<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>%s</listen><policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>' "$BUS" >"$DIR/bus.conf"
start bus dbus-daemon --config-file="$DIR/bus.conf" --nofork --nopidfile
until_ok 5 busctl --address="$BUS" list
agent() { # ENDPOINTS [OPTION...]
	mkdir -p "$DIR/run"
	start agent env DBUS_SYSTEM_BUS_ADDRESS="$BUS" RUNTIME_DIRECTORY="$DIR/run" "$BIN/tenured" -c /dev/null --node-name web1 --node-id 0123456789abcdef0123456789abcdef \
		--ttl 10s --log-level debug --endpoints "$@"
	AGENT=$PID
}
ctl() { timeout 10 "$BIN/tenurectl" --bus="$BUS" "$@"; }
lease() { ctl status --json=short | jq -r .LeaseId; }
renewed() { ctl status --json=short | jq -r .LastRenewalUSec; }
renewed_since() { local r; r=$(renewed); [ "${r:-0}" -gt "$1" ]; }
n_renewals() { local r; for _ in $(seq "$1"); do r=$(renewed); until_ok 15 renewed_since "$r" || return 1; done; }
end() { kill "$1"; wait "$1" 2>/dev/null; }

# All addresses of a name are tried, whatever comes first.
names "h1 $DEAD6" "h1 10.78.0.1"
agent http://h1.tenure.test:2379
until_ok 10 ctl status && ok "a dead AAAA beside a live A: it joins" || not_ok "a dead AAAA beside a live A: it joins" "$(tail -n 2 "$DIR/agent.log")"
end "$AGENT"
names "h1 $DEAD4" "h1 fd00:78::98" "h1 fd00:78::97" "h1 fd00:78::96" "h1 10.78.0.98" "h1 $DEAD6" "h1 10.78.0.1"
agent http://h1.tenure.test:2379
until_ok 10 ctl status && ok "seven addresses, the living one anywhere: it joins" || not_ok "seven addresses: it joins" "$(tail -n 2 "$DIR/agent.log")"
end "$AGENT"

# DNS does not answer while the replicas restart, one after the other; nothing refuses, as if its host were gone.
names "h1 10.78.0.1" "h2 10.78.0.2" "h3 10.78.0.3"
agent http://h1.tenure.test:2379,http://h2.tenure.test:2379,http://h3.tenure.test:2379
until_ok 10 ctl status || not_ok "it joins, by names"
# It has been connected to each of them.
for i in 1 2 3; do
	end "${CORES[$i]}"; n_renewals 1; replica $i; until_ok 20 serves $i
done
L=$(lease) N=$(grep -c "lost its place" "$DIR/agent.log")
[ -n "$L" ] || not_ok "it holds a lease"
kill -STOP "$DNS"
for round in 1 2; do for i in 1 2 3; do
	end "${CORES[$i]}"; replica $i; until_ok 20 serves $i || not_ok "replica $i is back"
	n_renewals 1 || break 2
done; done
is "DNS is silent: the lease is kept, though replicas restart" "$(lease)" "$L"
is "DNS is silent: and the place" "$(grep -c "lost its place" "$DIR/agent.log")" "$N"
# A restart of the agent goes on at the address that answered.
kill -9 "$AGENT"; wait "$AGENT" 2>/dev/null; agent http://h1.tenure.test:2379,http://h2.tenure.test:2379,http://h3.tenure.test:2379
until_ok 10 ctl status; n_renewals 1
is "DNS is silent: nor does a restart of the agent lose it" "$(lease)" "$L"
kill -CONT "$DNS"; n_renewals 1; is "DNS is back" "$(lease)" "$L"
end "$AGENT"
finish
