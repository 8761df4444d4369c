# Agents without a systemd, each with a bus, a boot and a runtime directory of its own, and the core or the etcd that they
# are members of. Source it after lib.sh; $ENGINE is core or etcd, $a the port that agents are given.
# shellcheck shell=bash
core() { # NAME PORT PEER-PORT: a core of one replica; its pid is in $PID
	local how=start_replica
	[ "$ENGINE" = core ] || how=start_etcd
	$how "$@" --initial-cluster-token "${TOKEN:-one}"
}
end() { kill -9 "$1" 2>/dev/null; wait "$1" 2>/dev/null; }
E() { timeout 5 etcdctl --endpoints "127.0.0.1:$a" "$@"; }
serves() { until_ok 20 timeout 2 etcdctl --endpoints "127.0.0.1:$1" get x || not_ok "the core at port $1 serves"; }

# agent NAME [SETTING=VALUE...]: one with a bus, a boot and a runtime directory of its own, TTL 2 s; its pid is in $PID.
agent() {
	local n=$1 d=$DIR/$1 bus=unix:abstract=tenure-agents-$$-$1
	shift
	if [ ! -d "$d" ]; then
		mkdir -p "$d/run" "$d/state"
		printf '<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>%s</listen><policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/><allow user="*"/></policy></busconfig>' "$bus" >"$d/bus.conf"
		start "bus.$n" dbus-daemon --config-file="$d/bus.conf" --nofork --nopidfile
		new_boot "$n"
		until_ok 5 busctl --address="$bus" list
	fi
	printf '[Agent]\nEndpoints=http://127.0.0.1:%s\nTTL=2s\nLogLevel=debug\nNodeName=%s\nNodeId=%s\nServicesPath=%s\n' "$a" "$n" "$(md5sum <<<"$n" | cut -d' ' -f1)" "$d/services.d" >"$d/agent.conf"
	printf '%s\n' "$@" >>"$d/agent.conf"
	start "$n" env DBUS_SYSTEM_BUS_ADDRESS="$bus" RUNTIME_DIRECTORY="$d/run" STATE_DIRECTORY="$d/state" TENURE_BOOT_ID="$(cat "$d/boot")" "$BIN/tenured" -c "$d/agent.conf"
}
new_boot() { tr -d - </proc/sys/kernel/random/uuid >"$DIR/$1/boot"; rm -rf "$DIR/$1/run"; mkdir "$DIR/$1/run"; }
ctl() { local n=$1; shift; timeout 10 "$BIN/tenurectl" --bus="unix:abstract=tenure-agents-$$-$n" "$@"; }
held() { ctl "$1" status >/dev/null 2>&1; }
# By another lease than that one; in one answer, since between two it may lose the place and join again.
holds_again() { local l; l=$(ctl "$1" status --json=short | jq -r 'select(.State == "held") | .LeaseId') && [ -n "$l" ] && [ "$l" != "$2" ]; }
state() { ctl "$1" status --json=short | jq -r .State; }
lease() { ctl "$1" status --json=short | jq -r .LeaseId; }
sees() { ctl "$1" nodes --no-legend | awk '{print $1}' | grep -qx "$2"; }
incarnation() { E get "/tenure/default/nodes/$1" --print-value-only | jq -r .incarnation; }
key_lease() { printf '%016x\n' "$(E get "/tenure/default/nodes/$1" -w fields | awk '/"Lease"/ {print $3}')"; }
watch() { ctl_forever() { exec "$BIN/tenurectl" --bus="unix:abstract=tenure-agents-$$-$1" watch --json=short; }; start "watch.$1" ctl_forever "$1"; }
heard() { jq -r "select(.name == \"$2\" and .event != \"NodeChanged\") | .event + \" \" + (.reason // \"\")" "$DIR/watch.$1.log" 2>/dev/null | sed 's/ *$//' | tr '\n' ','; }
since() { tail -c "+$1" "$DIR/$2.log" | grep -c "$3"; }
size() { stat -c %s "$DIR/$1.log"; }
ends() { kill "$@" 2>/dev/null; for p in "$@"; do wait "$p" 2>/dev/null; done; }
renewed() { ctl "$1" status --json=short | jq -r .LastRenewalUSec; }
renewed_since() { local r; r=$(renewed "$1"); [ "${r:-0}" -gt "$2" ]; }
n_renewals() { local r; for _ in $(seq "$2"); do r=$(renewed "$1"); until_ok 15 renewed_since "$1" "$r" || return 1; done; }
