#!/usr/bin/env bash
# Real systemd hosts, TTL 1 s, that are starved for minutes: of processors, of memory, of their disks. Nobody may be reported dead.
# usage: BIN=build/release/bin DIR=build/starve SLOW_SYNC=slow_sync.so tests/system/starve.sh SECONDS [cpu|memory|disk]...   (root)
TTL=1s
export DEGRADED=60
. "$(dirname "$0")/hosts_lib.sh"
SECONDS_EACH=${1:-600}; shift
[ $# -gt 0 ] || set -- cpu memory disk
case $SLOW_SYNC in /*) ;; *) SLOW_SYNC=$PWD/$SLOW_SYNC ;; esac
STARVERS=()

lefts() { for h in h1 h2 h3 h4; do on $h journalctl -u tenured -o cat --no-pager | grep -cE 'Node h[1-4] left|lost its place'; done | paste -sd+ | bc; }
jeopardies() { for h in h1 h2 h3 h4; do on $h journalctl -u tenured -o cat --no-pager | grep -c 'Renewals fail'; done | paste -sd+ | bc; }
# The hosts that report themselves degraded, and the worst report.
worst() { for h in h1 h2 h3 h4; do on $h journalctl -u tenured -o cat --no-pager | grep -o 'degraded: .*'; done | sort -k 5n | tail -n 1; }
wait_out() { local end=$(($(date +%s) + SECONDS_EACH)) n=0; while [ "$(date +%s)" -lt $end ]; do read -rt 10 -u 9; n=$((n + 10)); printf '   %d of %d s, %d losses\n' $n "$SECONDS_EACH" $(($(lefts) - LEFT)) >&2; done; }
exec 9<> <(:)

begin_cpu() { for _ in 1 2 3 4; do nice -n -20 sh -c 'while :; do :; done' & STARVERS+=($!); done; }
end_cpu() { for p in "${STARVERS[@]}"; do kill -9 "$p"; wait "$p" 2>/dev/null; done; STARVERS=(); }

# Each host may have little more than it needs, and something in it wants more all the time: its own pages are taken, too.
MEMORY=$(findmnt -rn -t cgroup -o TARGET | grep '/memory$')
begin_memory() {
	for h in h1 h2 h3 h4; do
		mkdir "$MEMORY/$NAME-$h"
		echo $((64 << 20)) >"$MEMORY/$NAME-$h/memory.limit_in_bytes"
		find "$CG/$h/payload" -name cgroup.procs -exec cat {} + | while read -r p; do echo "$p" >"$MEMORY/$NAME-$h/cgroup.procs"; done 2>/dev/null
		echo 1 >/proc/sys/vm/drop_caches
		on $h sh -c 'systemctl try-restart tenure-core; systemctl restart tenured'; until_ok 10 all_there
	done
	LEFT=$(lefts)
	for h in h1 h2 h3 h4; do
		on $h systemd-run -q --unit hog /usr/bin/python3 -c '
import mmap
f = open("/var/tmp/hog", "wb+"); f.truncate(160 << 20); m = mmap.mmap(f.fileno(), 0)
while True:
    for i in range(0, len(m), 4096): m[i] = (m[i] + 1) & 255'
	done
}
end_memory() {
	for h in h1 h2 h3 h4; do
		printf '   %s: its limit was hit %s times\n' $h "$(cat "$MEMORY/$NAME-$h/memory.failcnt")"
		echo -1 >"$MEMORY/$NAME-$h/memory.limit_in_bytes"; on $h systemctl kill -s KILL hog; on $h rm -f /var/tmp/hog
		cat "$MEMORY/$NAME-$h/cgroup.procs" | while read -r p; do echo "$p" >"$MEMORY/cgroup.procs"; done 2>/dev/null
		rmdir "$MEMORY/$NAME-$h"
	done
}

# One replica's disk after the other stands still, for up to 0.9 s each time that something has to be on it; the next one only
# once nothing of the last one's stands still any more: two of three at a time are an outage, which TTL 1 s does not outlive.
begin_disk() {
	for h in h1 h2 h3; do
		cp "$SLOW_SYNC" "/proc/$(rig_init $h)/root/usr/lib/slow_sync.so"
		on $h sh -c 'mkdir -p /run/systemd/system/tenure-core.service.d; printf "[Service]\nEnvironment=LD_PRELOAD=/usr/lib/slow_sync.so SLOW_SYNC=/run/slow\n" >/run/systemd/system/tenure-core.service.d/slow.conf; echo 0 >/run/slow; systemctl daemon-reload; systemctl restart tenure-core'
		until_ok 10 all_there
	done
	LEFT=$(lefts)
	( while :; do for h in h1 h2 h3; do
		on $h sh -c "echo $((100 + RANDOM % 800)) >/run/slow"; sleep $((1 + RANDOM % 4)); on $h sh -c 'echo 0 >/run/slow'; sleep 1.$((RANDOM % 10))
	done; done ) & STARVERS+=($!)
}
end_disk() { end_cpu; for h in h1 h2 h3; do on $h sh -c 'echo 0 >/run/slow'; done; }

for what in "$@"; do
	until_ok 30 all_there || not_ok "$what: all are there before"
	if [ "$what" = memory ] && [ -z "$MEMORY" ]; then skip memory "no memory cgroup (v1) is mounted here"; continue; fi
	LEFT=$(lefts) JEOPARDIES=$(jeopardies)
	"begin_$what"
	wait_out
	"end_$what"
	lost=$(($(lefts) - LEFT))
	if [ $lost = 0 ]; then ok "$what, for $SECONDS_EACH s, TTL 1 s: nobody lost a place; $(($(jeopardies) - JEOPARDIES)) jeopardies, $(worst)"; else not_ok "$what, for $SECONDS_EACH s" "$lost words of a loss"; fi
done
for h in h1 h2 h3 h4; do rig journal $h -o short-precise --no-pager >"$DIR/journal.$h" 2>/dev/null; done
finish
