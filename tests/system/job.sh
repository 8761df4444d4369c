#!/usr/bin/env bash
# What supervises the commands of tenurectl lock and work: when it is stopped, cannot see them, or has many to end in time.
# usage: BIN=build/release/bin DIR=build/job-test tests/system/job.sh
. "$(dirname "$0")/lib.sh"
read -r a ap < <(free_ports 2)
start_replica core "$a" "$ap"; CORE=$PID
until_ok 20 timeout 2 etcdctl --endpoints "127.0.0.1:$a" get x || not_ok "the core at port $a serves"

# The host h1: an agent, a bus, a boot and directories of its own, and a place that outlives a core that is stopped for a moment.
BUS=unix:abstract=tenure-job-$$ HOST=$DIR/h1
mkdir -p "$HOST/run" "$HOST/state"
printf '<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>%s</listen><policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/><allow user="*"/></policy></busconfig>' "$BUS" >"$HOST/bus.conf"
start bus dbus-daemon --config-file="$HOST/bus.conf" --nofork --nopidfile
until_ok 5 busctl --address="$BUS" list
printf '[Agent]\nEndpoints=http://127.0.0.1:%s\nTTL=30s\nLogLevel=debug\nNodeName=h1\nNodeId=%s\nServicesPath=%s\n' "$a" "$(md5sum <<<h1 | cut -d' ' -f1)" "$HOST/services.d" >"$HOST/agent.conf"
start h1 env DBUS_SYSTEM_BUS_ADDRESS="$BUS" RUNTIME_DIRECTORY="$HOST/run" STATE_DIRECTORY="$HOST/state" TENURE_BOOT_ID="$(tr -d - </proc/sys/kernel/random/uuid)" "$BIN/tenured" -c "$HOST/agent.conf"
until_ok 10 timeout 10 "$BIN/tenurectl" --bus="$BUS" status || not_ok "h1 holds its place"
# It lets everybody take a lock that is called allowed.
start polkit "$(dirname "$BIN")/tests/system/bus_load" "$BUS" polkit; until_ok 10 grep -q ready "$DIR/polkit.log" || not_ok "polkit's stand-in runs"
if /usr/bin/python3 "$(dirname "$0")/job.py" "$BIN" "$BUS" "$CORE" "$a" "$DIR" >"$DIR/job.log" 2>&1; then :; else echo "not ok job.py" >>"$DIR/job.log"; fi
while read -r line; do case $line in "ok "*) ok "${line#ok }" ;; "skipped "*) line=${line#skipped }; skip "${line%%: *}" "${line#*: }" ;; "not ok "*) not_ok "${line#not ok }" "$(tail -n 3 "$DIR/job.log" | tr '\n' ' ')" ;; esac; done <"$DIR/job.log"
finish
