# Shared by the tests on real systemd hosts: four of them, three with a replica of the core, booted and joined when this
# returns. h4 is the one that things happen to, h1 the one that listens. Source it; the caller has set BIN and DIR, and may set
# TTL: 2s, or as many s or ms.
# shellcheck shell=bash disable=SC2034
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
RIG=$ROOT/tests/hosts/rig.sh

. "$(dirname "${BASH_SOURCE[0]}")/hosts_can.sh"
hosts_can 4

case $BIN in /*) ;; *) BIN=$PWD/$BIN ;; esac
case $DIR in /*) ;; *) DIR=$PWD/$DIR ;; esac
export TTL=${TTL:-2s} CORES=3 ENGINE=${ENGINE:-core} STAGE=$DIR/stage PREP=$ROOT/tests/hosts/prepare.sh STATE=$DIR/rig NAME=tenure-hosts-$$
case $TTL in *ms) TTL_MS=${TTL%ms} ;; *) TTL_MS=$((${TTL%s} * 1000)) ;; esac
# How late the engine may be: ours must keep I2; etcd 3.4 checks every 500 ms, and counts a TTL from the arrival of a renewal.
# How much later than it should be, at the most, a busy machine reports a death; `make fence` and the bench measure it.
LATE_MS=1000; [ "$ENGINE" = core ] || LATE_MS=1500
rig() { env RIG="$NAME" "$RIG" "$@"; }
on() { rig exec "$@"; }
down() { rig down >/dev/null 2>&1; cleanup; }
trap down EXIT
make -C "$ROOT" -s --no-print-directory MODE="$(basename "$(dirname "$BIN")")" install DESTDIR="$STAGE" >"$DIR/install.log" 2>&1 || { not_ok "make install" "$(tail -n 3 "$DIR/install.log")"; finish; exit 1; }
rig up 4 >"$DIR/up.log" 2>&1 || { skip "systemd hosts" "they do not boot here: $(tail -n 1 "$DIR/up.log")"; finish; exit; }

held() { on "$1" tenurectl status >/dev/null 2>&1; }
lease() { on "$1" tenurectl status --json=short | jq -r .LeaseId; }
prop() { on "$1" systemctl show -P "$3" "$2"; }
all_there() { for h in h1 h2 h3 h4; do [ "$(on $h tenurectl nodes --no-legend 2>/dev/null | grep -c "^h")" = 4 ] || return 1; done; }
runs() { on "$1" systemctl is-active --quiet only-one; }
until_ok 20 all_there && ok "four hosts boot, and each knows all" || { not_ok "four hosts boot" "$(on h4 journalctl -u tenured -o cat --no-pager | tail -n 3)"; finish; exit 1; }
until_ok 5 runs h4 && ok "what is bound to tenure-held.target runs" || not_ok "only-one.service"
has "systemctl status is for people" "$(prop h4 tenured StatusText)" "Holding lease [0-9a-f]{16} as h4 in cluster default of 4 nodes"

# The events that h1 gets, with their times.
watch() { start "watch.$1" env RIG="$NAME" "$RIG" exec "$1" tenurectl watch --json=short; }
watch h1; watch h2; watch h4
etcd() { on h1 env ETCDCTL_API=3 etcdctl --endpoints 10.77.0.1:2379 "$@"; }
hears() { etcd put /tenure/default/nodes/probe '{}' >/dev/null; grep -q probe "$DIR/watch.$1.log"; }
until_ok 5 hears h1 && until_ok 5 hears h4 || not_ok "tenurectl watch"
etcd del /tenure/default/nodes/probe >/dev/null

# The times that count, in microseconds of the wall clock that all hosts share: when only-one.service last ran on h4, and when
# h1 was told that h4 had left.
last_run() { cat "/proc/$(rig_init h4)"/root/run/only-one.[01] 2>/dev/null | sort -n | tail -n 1; }
rig_init() { local p; { read -r p <"$CG/$1/payload/init.scope/cgroup.procs"; } 2>/dev/null; echo "$p"; }
CG=$(findmnt -rn -t cgroup2 -o TARGET | head -n 1)/$NAME
times_of_h4() { grep -c '"name":"h4"' "$DIR/watch.h1.log"; } # how often h1 has heard of it
reported_left() { tail -n "+$1" "$DIR/watch.h1.log" | grep '^{' | jq -r 'select(.event == "NodeLeft" and .name == "h4") | "\(.realtime_usec) \(.reason)"' | head -n 1; }
has_left() { tail -n "+$1" "$DIR/watch.h1.log" | grep -q '"NodeLeft","name":"h4"' && [ -n "$(reported_left "$1")" ]; }
# Lets it go on, here and now: `rig thaw` would count in what is measured from that moment on.
thaw() { echo 0 >"$CG/$1/payload/cgroup.freeze"; }
back() { until_ok 60 all_there && until_ok 10 runs h4 || not_ok "$1: it comes back" "$(on h4 journalctl -u tenured -o cat --no-pager 2>/dev/null | tail -n 3)"; }
lines() { wc -l <"$DIR/watch.h1.log" | awk '{print $1 + 1}'; }
# Until that host has renewed twice more.
renewal() { on "$1" busctl get-property org.tenure.Membership1 /org/tenure/Membership1 org.tenure.Membership1.Manager LastRenewalUSec 2>/dev/null | cut -d' ' -f2; }
renewed_after() { local r; r=$(renewal "$1"); [ "${r:-0}" -gt "$2" ]; }
sleep_until_renewed() { local r; r=$(renewal "$1"); until_ok 8 renewed_after "$1" "${r:-0}"; r=$(renewal "$1"); until_ok 8 renewed_after "$1" "${r:-0}"; }
now_us() { echo "${EPOCHREALTIME/./}"; }

# Units that failed, of all hosts. One that waits for a path needs one of the 128 inotify instances (fs.inotify.max_user_instances)
# that all hosts share, another checkout's too.
failed_units() { for h in h1 h2 h3 h4; do on $h systemctl --failed --no-legend --plain; done | grep -v '^systemd-ask-password-[a-z]*\.path'; }
