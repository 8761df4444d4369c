#!/usr/bin/env bash
# Makes a host of the rig one of ours, once, before its first boot. The rig calls it: prepare.sh hI I ROOT; in the
# environment: STAGE, what `make install` put together; CORES, how many hosts have a replica; ENGINE, core or etcd; TTL; DEGRADED, a DegradedPressure=.
set -eu
host=$1 i=$2 root=$3
cp -a "$STAGE/." "$root/"
systemd-sysusers --root="$root" >/dev/null 2>&1
enable() { mkdir -p "$root/etc/systemd/system/$2.wants"; ln -sf "/usr/lib/systemd/system/$1" "$root/etc/systemd/system/$2.wants/$1"; }

peers= clients=
for n in $(seq "$CORES"); do
	peers+=${peers:+,}h$n=http://10.77.0.$n:2380
	clients+=${clients:+,}http://10.77.0.$n:2379
done
if [ "$i" -le "$CORES" ] && [ "$ENGINE" = etcd ]; then
	cat >"$root/usr/lib/systemd/system/real-etcd.service" <<END
[Service]
Type=notify
TimeoutStartSec=infinity
ExecStart=/usr/bin/etcd --name $host --data-dir /var/lib/real-etcd --listen-client-urls http://10.77.0.$i:2379 --advertise-client-urls http://10.77.0.$i:2379 \
	--listen-peer-urls http://10.77.0.$i:2380 --initial-advertise-peer-urls http://10.77.0.$i:2380 --initial-cluster $peers
END
	enable real-etcd.service multi-user.target
elif [ "$i" -le "$CORES" ]; then
	printf '[Core]\nName=%s\n[Clients]\nListenClientURLs=http://10.77.0.%s:2379\n[Peers]\nListenPeerURLs=http://10.77.0.%s:2380\nAllowPlaintextPeers=yes\nInitialCluster=%s\n' \
		"$host" "$i" "$i" "$peers" >"$root/etc/tenure/tenure-core.conf"
	enable tenure-core.service multi-user.target
fi
# What a busy machine does to it is told to the others, too; most tests count what these hear.
printf '[Agent]\nEndpoints=%s\nTTL=%s\nLogLevel=debug\nDegradedPressure=%s\n' "$clients" "$TTL" "${DEGRADED:-0}" >"$root/etc/tenure/tenured.conf"
enable tenured.service multi-user.target

# A sanitized program cannot look for leaks from within a hardened unit; the other tests do.
mkdir -p "$root/etc/systemd/system.conf.d"
printf '[Manager]\nDefaultEnvironment=ASAN_OPTIONS=detect_leaks=0\n' >"$root/etc/systemd/system.conf.d/sanitizers.conf"

# What must not run on two hosts: says all the time that it does, on the clock that all hosts share; in one file after the other,
# since it may be stopped while it has emptied one. only-one [NAME [SIGNAL-TO-IGNORE...]]
cat >"$root/usr/bin/only-one" <<'END'
#!/bin/bash
name=${1:-only-one}
for signal in "${@:2}"; do trap '' "$signal"; done
mkfifo "/run/$name.$$" && exec 3<>"/run/$name.$$" && rm "/run/$name.$$"
i=0
while :; do echo "${EPOCHREALTIME/./}" >"/run/$name.$((i = 1 - i))"; read -rt 0.005 -u 3; done
END
chmod 755 "$root/usr/bin/only-one"
cat >"$root/usr/lib/systemd/system/only-one.service" <<'END'
[Unit]
BindsTo=tenure-held.target
After=tenure-held.target
StartLimitIntervalSec=0
[Service]
ExecStart=/usr/bin/only-one
END
enable only-one.service tenure-held.target
enable only-one.service multi-user.target # at boot it waits for the place

# A service that others find.
printf '[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/sleep infinity\nExecReload=/bin/true\n' >"$root/usr/lib/systemd/system/web.service"
mkdir -p "$root/etc/tenure/services.d"
printf '[Service]\nUnit=web.service\nPort=80\n' >"$root/etc/tenure/services.d/web.service-entry"
