#!/usr/bin/env bash
# Three replicas, each on a small file system of its own, and all of them fill at the same moment: what grows is refused, renewals, reads
# and expiry go on, nobody dies, and when there is room again writes are taken without an operator. And the alarm of one that dies with its
# disk full goes with its removal. Mounts need root.
# usage: BIN=build/release/bin DIR=build/full-test tests/system/full_disks.sh
if [ "${MOUNTS:-}" != ours ]; then
	if unshare -m mount -t tmpfs -o size=1m none /mnt 2>/dev/null; then MOUNTS=ours exec unshare -m "$0" "$@"; fi
	echo "skipped all disks full at once: needs root, and the right to mount file systems"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
fi
. "$(dirname "$0")/lib.sh"

SIZE=80m
A=http://127.0.0.1
read -r c1 c2 c3 p1 p2 p3 < <(free_ports 6)
INITIAL="a=$A:$p1,b=$A:$p2,c=$A:$p3"
EP="127.0.0.1:$c1,127.0.0.1:$c2,127.0.0.1:$c3"
declare -A PID_OF
replica() { # NAME CLIENT-PORT PEER-PORT
	start "$1" "$BIN/tenure-core" --name "$1" --data-dir "$DIR/disk-$1/data" --listen-client-urls "$A:$2" --listen-peer-urls "$A:$3" \
		--initial-cluster "$INITIAL" --snapshot-count 400
	PID_OF[$1]=$PID
}
etc() { timeout 10 etcdctl --endpoints "$EP" "$@"; }
there() { [ -n "$(etc get "$1" --print-value-only)" ]; }
gone() { local v; v=$(etc get "$1" --print-value-only) && [ -z "$v" ]; }
kept_aside() { [ "$(ls "$DIR"/disk-*/data | grep -c '^spare-')" -ge 9 ] && [ "$(ls "$DIR"/disk-*/data | grep -c '^snapshot.room$')" = 3 ]; }
full() { ! dd if=/dev/zero of="$DIR/disk-$1/more" bs=64k count=1 2>/dev/null; }
alarms() { etc alarm list | grep -c "alarm:NOSPACE"; }
alarms_are() { [ "$(alarms)" = "$1" ]; }
all_live() { for n in a b c; do kill -0 "${PID_OF[$n]}" || return 1; done; }
big() { head -c 100000 /dev/zero | tr '\0' "${1: -1}" | etc put "$1"; }

for n in a b c; do mkdir -p "$DIR/disk-$n" && mount -t tmpfs -o "size=$SIZE" none "$DIR/disk-$n" && mkdir "$DIR/disk-$n/data"; done
replica a "$c1" "$p1" && replica b "$c2" "$p2" && replica c "$c3" "$p3"
until_ok 10 etc put first v || { not_ok "three replicas serve"; finish; exit 1; }
if until_ok 20 kept_aside; then ok "each keeps files aside"; else not_ok "each keeps files aside" "$(ls "$DIR"/disk-*/data)"; fi

lease() { etc lease grant 8 | awk '{print $2}'; }
HELD=$(lease) && etc put --lease="$HELD" held v >/dev/null && start keep etcdctl --endpoints "$EP" lease keep-alive "$HELD"
DYING=$(lease) && etc put --lease="$DYING" dying v >/dev/null && start keep2 etcdctl --endpoints "$EP" lease keep-alive "$DYING"
KEEPER=$PID

# ---- all at once ----
for n in a b c; do dd if=/dev/zero of="$DIR/disk-$n/filler" bs=64k >/dev/null 2>&1 & FILLERS+=("$!"); done
wait "${FILLERS[@]}"
if full a && full b && full c; then ok "all disks are full"; else not_ok "all disks are full" "$(df -h "$DIR"/disk-*)"; fi
taken=0
while [ "$taken" -lt 600 ]; do
	said=$(big "k$taken" 2>&1) || break
	taken=$((taken + 1))
done
has "in the end a put is refused as by etcd" "$said" "etcdserver: mvcc: database space exceeded"
if [ "$taken" -gt 20 ]; then ok "there was room for $taken more of 100 kB"; else not_ok "there was room for more" "$taken"; fi
has "a grant is refused" "$(etc lease grant 60 2>&1)" "database space exceeded"
if until_ok 10 alarms_are 3; then ok "each has raised the alarm"; else not_ok "each has raised the alarm" "$(etc alarm list)"; fi
is "reads go on" "$(etc get first --print-value-only)" v
has "a delete goes on" "$(etc del first 2>&1)" "^1$"
kill -9 "$KEEPER"
if until_ok 30 gone dying; then ok "who is not renewed expires"; else not_ok "who is not renewed expires"; fi
if there held; then ok "who is renewed lives"; else not_ok "who is renewed lives" "$(cat "$DIR/keep.log")"; fi
if all_live; then ok "no replica has died"; else not_ok "no replica has died" "$(tail -n 3 "$DIR"/[abc].log)"; fi

# ---- a restart on a full disk ----
kill -9 "${PID_OF[b]}" && wait "${PID_OF[b]}" 2>/dev/null
replica b "$c2" "$p2"
if until_ok 15 timeout 5 etcdctl --endpoints "127.0.0.1:$c2" get held; then ok "one starts again on its full disk"; else
	not_ok "one starts again on its full disk" "$(tail -n 3 "$DIR/b.log")"; fi
has "and writes are still refused" "$(big more 2>&1)" "database space exceeded"

# ---- room again ----
rm "$DIR"/disk-*/filler
if until_ok 15 big again; then ok "with room again writes are taken, without an operator"; else
	not_ok "with room again writes are taken" "$(etc alarm list; big again 2>&1)"; fi
if until_ok 10 alarms_are 0; then ok "the alarms are gone"; else not_ok "the alarms are gone" "$(etc alarm list)"; fi
have=$(etc get k --prefix --keys-only | grep -c '^k')
if [ "$have" -ge "$taken" ]; then ok "nothing that was acknowledged is lost"; else not_ok "nothing that was acknowledged is lost" "$have of $taken"; fi
if there held; then ok "the lease that was renewed lives on"; else not_ok "the lease that was renewed lives on"; fi
if all_live; then ok "no replica has died until the end"; else not_ok "no replica has died until the end" "$(tail -n 3 "$DIR"/[abc].log)"; fi

# ---- one fills, and dies of something else ----
dd if=/dev/zero of="$DIR/disk-c/filler" bs=64k >/dev/null 2>&1
for _ in $(seq 600); do big again >/dev/null 2>&1 || break; done
if until_ok 10 alarms_are 1; then ok "one disk is full"; else not_ok "one disk is full" "$(etc alarm list)"; fi
kill -9 "${PID_OF[c]}"
EP="127.0.0.1:$c1,127.0.0.1:$c2"
has "the alarm of a member with a full disk stays" "$(until_ok 5 etc get k0 --keys-only; big again 2>&1)" "database space exceeded"
has "that member is removed" "$("$BIN/tenurectl" --endpoints="$A:$c1,$A:$c2" core remove c 2>&1)" "^Removed"
if until_ok 10 big again >/dev/null 2>&1; then ok "and its alarm with it"; else not_ok "and its alarm with it" "$(etc alarm list; big again 2>&1)"; fi
is "no alarm is left" "$(alarms)" 0
finish
