#!/usr/bin/env bash
# The recipes of tenured(8), as they are shipped, on real systemd hosts: a singleton, a virtual address, a PostgreSQL primary.
# usage: BIN=build/release/bin DIR=build/recipes tests/system/recipes.sh [all]   (root; a PostgreSQL server, 15 or later, for the last one)
# all: also what takes a minute and more of PostgreSQL.
. "$(dirname "$0")/hosts_lib.sh"
EXAMPLES=$ROOT/conf/examples
DBS=(h2 h3 h4)
root_of() { echo "/proc/$(rig_init "$1")/root"; }
all_but() { local h; for h in h1 h2 h3 h4; do [ "$h" = "$1" ] || echo "$h"; done; }
# The one of the hosts on which a command succeeds; fails with none, and with two.
where() { local h at=(); for h in $WHERE; do ! on "$h" "$@" >/dev/null 2>&1 || at+=("$h"); done; [ ${#at[@]} = 1 ] && echo "${at[0]}"; }
since_ms() { echo $((($(now_us) - $1) / 1000)); }

# ---- a singleton ----
for h in h1 h2 h3 h4; do
	cp "$EXAMPLES/scheduler.service" "$(root_of $h)/etc/systemd/system/"
	printf '#!/bin/sh\nexec sleep infinity\n' >"$(root_of $h)/usr/bin/scheduler"; chmod 755 "$(root_of $h)/usr/bin/scheduler"
	on $h sh -c 'systemctl daemon-reload; systemctl enable -q --now scheduler'
done
WHERE="h1 h2 h3 h4"
schedules() { where pgrep -xf 'sleep infinity'; }
until_ok 10 schedules && ok "a singleton runs on one host of four" || not_ok "a singleton" "$(for h in $WHERE; do on $h systemctl is-active scheduler; done)"
at=$(schedules); t=$(now_us); on "$at" systemctl stop scheduler
WHERE=$(all_but "$at"); until_ok 10 schedules && ok "stopped there, it runs on another one $(since_ms "$t") ms later" || not_ok "the singleton moves"
for h in h1 h2 h3 h4; do on $h systemctl disable -q --now scheduler; done
is "stopped everywhere, none has failed" "$(for h in h1 h2 h3 h4; do on $h systemctl is-failed scheduler; done | sort -u)" inactive

# ---- a virtual address ----
for h in h2 h3 h4; do
	install -D -m 755 "$EXAMPLES/vip" "$(root_of $h)/usr/local/sbin/vip"
	for u in vip vip-address; do sed 's|192.0.2.10/24|10.77.0.200/24|g' "$EXAMPLES/$u.service" >"$(root_of $h)/etc/systemd/system/$u.service"; done
	on $h sh -c 'systemctl daemon-reload; systemctl enable -q --now vip'
done
WHERE="h2 h3 h4"
has_vip() { where sh -c 'ip -o address show | grep -q 10.77.0.200/'; }
# h1's packets go to the host that has it: its port refuses, which its neighbour table remembers.
answers() { on h1 timeout 1 bash -c ': >/dev/tcp/10.77.0.200/9' 2>/dev/null; [ "$(on h1 ip neigh show 10.77.0.200 | grep -oE '02:77[0-9a-f:]*')" = "02:77:00:00:00:0${1#h}" ]; }
until_ok 10 has_vip && until_ok 5 answers "$(has_vip)" && ok "a virtual address is on one host, and answers" || not_ok "a virtual address" "$(on h2 journalctl -u vip -o cat --no-pager | tail -n 3)"
at=$(has_vip); rig cut "$at" silent; t=$(now_us)
WHERE=$(all_but "$at"); until_ok 10 has_vip && moved=$(since_ms "$t") && until_ok 5 answers "$(has_vip)" && ok "its host is cut off: on another one $moved ms later, and answers" || not_ok "a virtual address moves" "$(on h1 ip neigh)"
is "the host that was cut off has it no more" "$(on "$at" ip -o address show | grep -c 10.77.0.200/)" 0
rig heal; until_ok 20 all_there || not_ok "it comes back"
WHERE="h2 h3 h4"; until_ok 10 has_vip && ok "and it is on one host still" || not_ok "two have the address"
# All of it is killed at the kernel, for PID 1 stands still; once that goes on the address is taken away, though vip cannot.
at=$(has_vip); kill -STOP "$(rig_init "$at")"; rig cut "$at" silent
WHERE=$(all_but "$at"); until_ok 10 has_vip && ok "its host is cut off, with PID 1 standing still: another one has it" || not_ok "a virtual address moves while PID 1 stands still"
kill -CONT "$(rig_init "$at")"; rig heal
without() { ! on "$1" ip -o address show | grep -q 10.77.0.200/; }
until_ok 20 without "$at" && ok "and it goes there" || not_ok "two have the address, for PID 1 stood still"
until_ok 20 held "$at"
WHERE="h2 h3 h4"
at=$(has_vip); on "$at" systemctl kill -s KILL vip
WHERE=$(all_but "$at"); until_ok 10 has_vip && ok "what holds the address is killed: another host has it" || not_ok "what holds the address is killed"
WHERE="h2 h3 h4"; has_vip >/dev/null && ok "one" || not_ok "two have the address"
for h in h2 h3 h4; do on $h systemctl disable -q --now vip; done
is "stopped everywhere, nobody has it" "$(for h in h2 h3 h4; do on $h ip -o address show; done | grep -c 10.77.0.200/)" 0

# ---- a PostgreSQL primary ----
V=$(ls /usr/lib/postgresql 2>/dev/null | sort -n | tail -n 1)
if ! [ "${V:-0}" -ge 15 ] || ! [ -x "/usr/lib/postgresql/$V/bin/postgres" ]; then skip "a PostgreSQL primary" "no PostgreSQL 15 or later here (package postgresql)"; finish; exit; fi
PG=/etc/postgresql/$V/tenure PGDATA=/var/lib/postgresql/$V/tenure UNIT=tenure-postgresql@$V-tenure
SOURCE='host=10.77.0.2,10.77.0.3,10.77.0.4 port=5433 user=postgres target_session_attrs=read-write connect_timeout=2'
settings() { # HOST
	cat >>"$(root_of "$1")$PG/postgresql.conf" <<END
listen_addresses = '*'
primary_conninfo = '$SOURCE application_name=$1'
shared_buffers = 16MB
wal_retrieve_retry_interval = 200ms
wal_receiver_timeout = 5s
wal_keep_size = 256MB
synchronous_standby_names = '2 (*)'
END
	printf 'local all all trust\nhost all all 10.77.0.0/24 trust\nhost replication all 10.77.0.0/24 trust\n' >"$(root_of "$1")$PG/pg_hba.conf"
}
lead() {
	install -D -m 755 "$EXAMPLES/postgresql/tenure-postgresql" "$(root_of "$1")/usr/local/sbin/tenure-postgresql"
	install -D -m 644 "$EXAMPLES/postgresql/postgresql@.conf" "$(root_of "$1")/etc/systemd/system/postgresql@$V-tenure.service.d/tenure.conf"
	install -m 644 "$EXAMPLES/postgresql/"tenure-postgresql*@.service "$(root_of "$1")/etc/systemd/system/"
	printf 'SOURCE="%s dbname=postgres"\nETCDCTL_ENDPOINTS=http://10.77.0.1:2379,http://10.77.0.2:2379,http://10.77.0.3:2379\n' "$SOURCE" >"$(root_of "$1")/etc/default/tenure-postgresql"
	on "$1" sh -c "systemctl daemon-reload; systemctl enable -q --now --no-block $UNIT"
}
for h in "${DBS[@]}"; do on $h pg_createcluster -p 5433 --start-conf manual $V tenure -- --data-checksums >"$DIR/$h.initdb" 2>&1 || not_ok "pg_createcluster on $h" "$(tail -n 2 "$DIR/$h.initdb")"; settings $h; done
lead h2
db() { on h1 timeout 10 psql -XAtq "$SOURCE dbname=postgres" -c "$1"; }
primary() { on h1 tenurectl services postgresql --json=short | jq -er 'if length == 1 then .[0].Node else error end'; }
until_ok 60 primary && is "the first one leads" "$(primary)" h2 || not_ok "the first one leads" "$(on h2 journalctl -u 'tenure-postgresql@*' -u 'postgresql@*' -o cat --no-pager | tail -n 5)"
for h in h3 h4; do on $h sh -c "rm -rf $PGDATA && runuser -u postgres -- pg_basebackup -D $PGDATA -d '$SOURCE' -c fast" >"$DIR/$h.basebackup" 2>&1; lead $h; done
local_sql() { on "$1" runuser -u postgres -- psql -XAtq -p 5433 -c "$2"; }
# Standbys with all data; one that cannot keep up streams from time to time.
standbys() { [ "$(local_sql "$(primary)" "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND flush_lsn = pg_current_wal_flush_lsn()")" = "$1" ]; }
until_ok 60 standbys 2 && ok "two others follow it" || not_ok "two others follow it" "$(tail -n 2 "$DIR/h3.basebackup")"
db 'CREATE TABLE t (n bigint PRIMARY KEY)'

# Writes down what was acknowledged, to whomever is primary; and of what was not, why, in /run/writer.err of h1.
cat >"$DIR/writer.sh" <<END
n=\$1
while [ ! -e /run/stop ]; do
	timeout 8 psql -XAtq "$SOURCE dbname=postgres" -c "INSERT INTO t VALUES (\$n)" >/dev/null 2>/run/writer.last
	code=\$?
	case \$code in 0) echo "\$n \$(date +%s%N)" ;; *) echo "\$(date +%T) \$n exit \$code: \$(tr '\\n' ' ' </run/writer.last)" >>/run/writer.err ;; esac
	n=\$((n + 1))
done
END
cp "$DIR/writer.sh" "$(root_of h1)/run/writer.sh"
why_not() { tail -n 3 "$(root_of h1)/run/writer.err"; on h1 pgrep -af 'writer.sh|psql'; on "$(primary)" runuser -u postgres -- psql -XAtq -p 5433 -c "SELECT state, sync_state, sent_lsn, flush_lsn FROM pg_stat_replication; SELECT state, wait_event, query FROM pg_stat_activity WHERE backend_type = 'client backend'"; }
start acked env RIG="$NAME" "$RIG" exec h1 sh /run/writer.sh 1
acked() { wc -l <"$DIR/acked.log"; }
grows() { [ "$(acked)" -gt $(($1 + 3)) ]; }
until_ok 60 grows 0 || not_ok "writes" "$(why_not 2>&1)"
who_is_primary() { local h n=0; for h in "${DBS[@]}"; do [ "$(on $h runuser -u postgres -- psql -XAtq -p 5433 -c 'SELECT pg_is_in_recovery()' 2>/dev/null)" != f ] || n=$((n + 1)); done; echo $n; }
moved_from() { local p; p=$(primary) && [ "$p" != "$1" ]; }
# fail WHAT COMMAND...: of the host that is primary; another one leads, and the old one follows it after MEND.
fail() {
	local what=$1 old t n
	shift
	old=$(primary); t=$(now_us); n=$(acked)
	"$@" "$old"
	until_ok 60 moved_from "$old" || { not_ok "$what: another one leads" "$(on h1 tenurectl services)"; return; }
	ok "$what: another one leads $(since_ms "$t") ms later"
	is "$what: one is primary" "$(who_is_primary)" 1
	$MEND "$old" >/dev/null 2>&1
	until_ok 60 standbys 2 && ok "$what: the old one follows it" || not_ok "$what: the old one follows" "$(on "$old" journalctl -u 'postgresql@*' -u 'tenure-postgresql@*' -o cat --no-pager | tail -n 8)"
	n=$(acked); until_ok 60 grows "$n" && ok "$what: writes go on" || not_ok "$what: writes go on" "$(why_not 2>&1)"
}
cut_off() { rig cut "$1" silent; }
heal() { rig heal; }
power() { rig kill "$1"; }
boot() { rig start "$1"; }
give_up() { on "$1" systemctl restart --no-block $UNIT; }
# Who of the standbys is to be ahead, so that the core has its majority with it and the primary OLD down; and who behind, next to lead.
roles() { ahead=h4 behind=h3; case $1 in h3) behind=h2 ;; h4) ahead=h3 behind=h2 ;; esac; }
all_ask() { [ "$(etcd get --prefix postgresql- --keys-only | grep -c .)" = 3 ]; }
is_ahead() {
	local lsn
	lsn=$(local_sql "$ahead" 'SELECT pg_last_wal_receive_lsn()') &&
		[ "$(local_sql "$behind" "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver) AND '$lsn' > greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())")" = t ]
}
# The primary loses power, and the others given too, while one standby has what the other one, which is next to lead, has not.
outrun() { # OLD [HOST...]
	local h
	roles "$1"
	on "$ahead" systemctl restart $UNIT; until_ok 60 all_ask || not_ok "all ask for the lock" "$(etcd get --prefix postgresql- --keys-only)"
	local_sql "$behind" "ALTER SYSTEM SET primary_conninfo = ''"; local_sql "$behind" 'SELECT pg_reload_conf()' >/dev/null
	until_ok 60 is_ahead || not_ok "$ahead is ahead of $behind" "$(why_not 2>&1)"
	wound=$(wound_back)
	for h in "$@"; do rig kill "$h"; done
	local_sql "$behind" 'ALTER SYSTEM RESET primary_conninfo'; local_sql "$behind" 'SELECT pg_reload_conf()' >/dev/null
	t=$(now_us)
}
wound_back() { rig journal "$ahead" -u "postgresql@$V-tenure" -o cat --no-pager | grep -c 'winding back'; }
again() { [ "$(wound_back)" -gt "$wound" ]; }
# The first one to ask leads; if that is not $behind after all, no replica has to be rewound.
settled() { [ "$(primary)" = "$ahead" ] || again; }
boot_after_it() { until_ok 60 settled; boot "$1"; }
outrun_and_down() { roles "$1"; outrun "$1" "$ahead"; }
boot_both() { boot "$ahead"; boot "$1"; }
# It comes back while there is no primary, and becomes primary again.
boot_alone() {
	local h others=() u="postgresql@$V-tenure"
	for h in "${DBS[@]}"; do [ "$h" = "$1" ] || others+=("$h"); done
	for h in "${others[@]}"; do on "$h" systemctl stop $UNIT; done
	boot "$1"
	until_ok 60 on "$1" sh -c "journalctl -b -u $u -o cat --no-pager | grep -q 'pg_rewind: error'"
	for h in "${others[@]}"; do on "$h" systemctl start --no-block $UNIT; done
}
# Clusters that had something to wind back, so far.
rewound() { for h in "${DBS[@]}"; do rig journal $h -u "postgresql@$V-tenure" -o cat --no-pager; done | grep -c 'pg_rewind: rewinding from'; }
# A planned switchover, to a host that is not the next in line.
planned() {
	roles "$1"; to=$behind; [ "$(etcd get --prefix "postgresql-$V-tenure/" --sort-by CREATE --keys-only | grep . | sed -n 2p)" != "postgresql-$V-tenure/$(printf %x $((16#$(lease "$to"))))" ] || to=$ahead
	wound=$(rewound)
	on h1 tenurectl switchover "postgresql-$V-tenure" "$to" >"$DIR/switchover.log" 2>&1 || not_ok "a planned switchover" "$(cat "$DIR/switchover.log")"
	cat "$DIR/switchover.log"
}
until_ok 60 all_ask
MEND=true fail "it is switched over" planned
is "the one that was named leads" "$(primary)" "$to"
is "no replica had to be rewound, because the primary had sent everything" "$(rewound)" "$wound"
until_ok 60 all_ask || not_ok "the former primary waits again" "$(etcd get --prefix postgresql- --keys-only)"
MEND=heal fail "its host is cut off" cut_off
MEND=boot fail "its host loses power" power
MEND=true fail "its lock is given back" give_up
MEND=boot_after_it fail "it loses power, and a standby is ahead" outrun
is "the standby that was ahead was wound back, or leads" "$(settled; echo $?)" 0
if [ "${1:-}" = all ]; then
	MEND=boot_both fail "it loses power, and the standby that is ahead too" outrun_and_down
	is "the standby that was ahead was rewound, or leads" "$(settled; echo $?)" 0
	MEND=boot_alone fail "it comes back while nobody is primary" power
fi
touch "$(root_of h1)/run/stop"
lost=$(comm -23 <(cut -d' ' -f1 "$DIR/acked.log" | sort) <(db 'SELECT n FROM t' | sort) | wc -l)
is "none of $(acked) acknowledged writes is lost" "$lost" 0
has "the timeline is in the core" "$(etcd get /postgresql/tenure/timeline --print-value-only)" '^[4-9]|[1-9][0-9]$'
for h in h1 h2 h3 h4; do rig journal $h -o short-precise --no-pager >"$DIR/journal.$h" 2>/dev/null; done
finish
