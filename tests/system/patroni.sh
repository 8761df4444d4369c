#!/usr/bin/env bash
# Debian's patroni with its driver etcd3 on tenure-core (ENGINE=etcd: on a real etcd), as conf/examples/patroni has it, on real
# systemd hosts: three databases, with synchronous standbys, and what happens to them; nothing that was acknowledged is lost.
# usage: BIN=build/release/bin DIR=build/patroni tests/system/patroni.sh [all]        (root; patroni, and PostgreSQL 15 or later)
# all: also what takes a minute and more.
. "$(dirname "$0")/hosts_lib.sh"
HOW=${1:-some} EXAMPLES=$ROOT/conf/examples/patroni DBS=(h2 h3 h4)
V=$(ls /usr/lib/postgresql 2>/dev/null | sort -n | tail -n 1)
if ! command -v patroni >/dev/null || ! [ "${V:-0}" -ge 15 ]; then skip "patroni" "no patroni and PostgreSQL 15 or later here (packages patroni, postgresql)"; finish; exit; fi
root_of() { echo "/proc/$(rig_init "$1")/root"; }
since_ms() { echo $((($(now_us) - $1) / 1000)); }
address() { echo "10.77.0.${1#h}"; }
SOURCE='host=10.77.0.2,10.77.0.3,10.77.0.4 port=5434 user=postgres target_session_attrs=read-write connect_timeout=2'

# The example, with what differs from host to host, and times that make a test short.
settle() { # HOST
	local root
	root=$(root_of "$1")
	install -D -m 644 "$EXAMPLES/tenure.conf" "$root/etc/systemd/system/patroni.service.d/tenure.conf"
	sed -e "s/db1/$1/; s/192\.0\.2\.11:5432/$(address "$1"):5434/; s/192\.0\.2\.11/$(address "$1")/; s/192\.0\.2\.0/10.77.0.0/; s/192\.0\.2\./10.77.0./g" \
		-e 's/ttl: 30/ttl: 8/; s/loop_wait: 10/loop_wait: 1/; s/retry_timeout: 10/retry_timeout: 3/' \
		-e "s|/postgresql/15/|/postgresql/$V/|; s/scram-sha-256/trust/; s/local all all peer/local all all trust/" \
		-e 's/use_slots: true/use_slots: true\n      parameters: {shared_buffers: 16MB, wal_keep_size: 256MB}/' "$EXAMPLES/patroni.yml" >"$root/etc/patroni/config.yml"
	chmod 644 "$root/etc/patroni/config.yml"
}
run() { on "$1" sh -c 'systemctl daemon-reload; systemctl enable -q patroni; systemctl start --no-block patroni'; }
# h1 has no database, and nothing happens to it: it is asked.
ctl() { on h1 timeout 20 runuser -u postgres -- patronictl -c /etc/patroni/config.yml "$@"; }
members() { ctl list -f json 2>/dev/null; }
# The leader, where there is one and it runs.
leader() { members | jq -er 'map(select((.Role == "Leader" or .Role == "Master") and .State == "running")) | if length == 1 then .[0].Member else error end' 2>/dev/null; }
# PostgreSQL knows which standby is synchronous before Patroni has recorded it; until then Patroni lets none take over.
synchronous() { members | jq -er 'map(select(.Role == "Sync Standby")) | .[0].Member'; }
# Standbys that stream, one of them synchronous.
settled() {
	local l
	synchronous && l=$(leader) && [ "$(local_sql "$l" "SELECT count(*) FILTER (WHERE state = 'streaming') || ' ' || count(*) FILTER (WHERE sync_state = 'sync') FROM pg_stat_replication")" = "${1:-2} 1" ]
}
local_sql() { on h1 timeout 5 psql -XAtq "host=$(address "$1") port=5434 user=postgres dbname=postgres connect_timeout=2" -c "$2" 2>/dev/null; }
why() { members; on "${1:-h2}" journalctl -u patroni -o cat --no-pager | tail -n 12; }

is "the etcd that Patroni finds" "$(on h2 curl -s "http://10.77.0.1:2379/version" | jq -r '.etcdcluster | test("^3\\.[0-9]+\\.0$")')" true
for h in h1 "${DBS[@]}"; do settle $h; done
t=$(now_us); run h2
until_ok 60 leader && ok "the first host makes the database, and leads, after $(since_ms "$t") ms" || not_ok "bootstrap" "$(why)"
for h in h3 h4; do run $h; done
until_ok 90 settled && ok "two others copy it and follow, one of them synchronous" || { not_ok "two others follow" "$(why h3)"; finish; exit; }

db() { on h1 timeout 10 psql -XAtq "$SOURCE dbname=postgres" -c "$1"; }
db 'CREATE TABLE t (n bigint PRIMARY KEY)'
cat >"$(root_of h1)/run/writer.sh" <<END
n=\$1
while [ ! -e /run/stop ]; do
	timeout 3 psql -XAtq "$SOURCE dbname=postgres" -c "INSERT INTO t VALUES (\$n)" >/dev/null 2>&1 && echo "\$n \$(date +%s%N)"
	n=\$((n + 1))
done
END
start acked env RIG="$NAME" "$RIG" exec h1 sh /run/writer.sh 1
acked() { wc -l <"$DIR/acked.log"; }
grows() { [ "$(acked)" -gt $(($1 + 3)) ]; }
until_ok 30 grows 0 && ok "writes are acknowledged" || not_ok "writes"
# The longest time without an acknowledged write since line N, in ms.
pause_since() { tail -n "+$1" "$DIR/acked.log" | awk 'NR > 1 && $2 - last > most { most = $2 - last } { last = $2 } END { printf "%d", most / 1e6 }'; }
moved_from() { local l; l=$(leader) && [ "$l" != "$1" ]; }
primaries() { local h n=0; for h in "${DBS[@]}"; do [ "$(local_sql $h 'SELECT pg_is_in_recovery()')" != f ] || n=$((n + 1)); done; echo $n; }

# fail WHAT BREAK MEND: of the host that leads; another one does, and the old one follows it after MEND.
fail() {
	local what=$1 old n t
	old=$(leader) && n=$(acked) && t=$(now_us)
	$2 "$old"
	until_ok 120 moved_from "$old" && until_ok 60 grows "$n" && ok "$what: another one leads after $(since_ms "$t") ms; $(pause_since "$n") ms without a write" || not_ok "$what: another one leads" "$(why h3)"
	is "$what: one is primary" "$(primaries)" 1
	$3 "$old"
	until_ok 90 settled && ok "$what: the old one follows it" || not_ok "$what: the old one follows" "$(why "$old")"
}
cut_off() { rig cut "$1" silent; }
heal() { rig heal; }
freeze() { rig freeze "$1"; }
power() { rig kill "$1"; }
boot() { rig start "$1"; }
nothing() { :; }

old=$(leader) to=$(synchronous) n=$(acked) t=$(now_us)
ctl switchover main --master "$old" --candidate "$to" --force >"$DIR/switchover.log" 2>&1
until_ok 30 moved_from "$old" && until_ok 30 grows "$n" && is "a switchover goes where it is asked to, after $(since_ms "$t") ms; $(pause_since "$n") ms without a write" "$(leader)" "$to" || not_ok "a switchover" "$(tail -n 3 "$DIR/switchover.log")"
until_ok 60 settled || not_ok "settled after the switchover" "$(why "$old")"
fail "its host loses power" power boot
if [ "$HOW" = all ]; then
	fail "its host is cut off" cut_off heal
	fail "its host is frozen" freeze thaw
fi

# The core's own failures, which Patroni has to survive: its leader, and then all of it.
old=$(leader) n=$(acked)
core_leader() { local i id; id=$(etcd endpoint status -w json | jq -r '.[0].Status.leader'); for i in 1 2 3; do [ "$(on h1 env ETCDCTL_API=3 etcdctl --endpoints "10.77.0.$i:2379" endpoint status -w json 2>/dev/null | jq -r '.[0].Status.header.member_id')" != "$id" ] || echo "h$i"; done; }
UNIT=tenure-core; [ "$ENGINE" = core ] || UNIT=real-etcd
l=$(core_leader); on "$l" systemctl kill -s KILL $UNIT; on "$l" systemctl start $UNIT
until_ok 30 grows "$n" && is "the core's leader is killed: the primary stays" "$(leader)" "$old" || not_ok "the core's leader is killed" "$(why "$old")"
n=$(acked)
for h in h1 h2 h3; do on $h systemctl kill -s KILL $UNIT; done
for h in h1 h2 h3; do on $h systemctl start --no-block $UNIT; done
until_ok 60 settled && until_ok 60 grows "$n" && ok "all replicas of the core are killed: writes go on, $(pause_since "$n") ms without one" || not_ok "all replicas of the core are killed" "$(why)"

touch "$(root_of h1)/run/stop"
gone() { ! on h1 pgrep -f writer.sh; }
until_ok 20 gone
until_ok 60 settled || not_ok "settled in the end" "$(why)"
db 'SELECT n FROM t ORDER BY n' >"$DIR/there"
is "none of $(acked) acknowledged writes is lost" "$(cut -d' ' -f1 "$DIR/acked.log" | sort | comm -23 - <(sort "$DIR/there") | wc -l)" 0
finish
