#!/usr/bin/env bash
# tenurectl lease, by ids and by names: on three replicas of tenure-core with an agent and with users, and on a real etcd where
# there is one.
# usage: BIN=build/release/bin DIR=build/leases-test tests/system/leases.sh
. "$(dirname "$0")/lib.sh"
wants_plain
read -r c1 c2 c3 p1 p2 p3 e ep < <(free_ports 8)
A=http://127.0.0.1
INITIAL="n1=$A:$p1,n2=$A:$p2,n3=$A:$p3"
for n in 1 2 3; do
	c=c$n p=p$n
	start_replica "n$n" "${!c}" "${!p}" --initial-cluster "$INITIAL"
	CORE[n]=$PID
done
E() { timeout 5 etcdctl --endpoints "127.0.0.1:$c1" "$@"; }
until_ok 20 E put x y || { not_ok "three replicas serve"; finish; exit 1; }
export TENURE_ENDPOINTS=$A:$c1,$A:$c2,$A:$c3
L() { timeout 20 "$BIN/tenurectl" lease "$@" 2>&1; }
at() { local c=c$1; shift; timeout 20 "$BIN/tenurectl" --endpoints="$A:${!c}" lease "$@" 2>&1; }

# ---- by name ----
has "grant" "$(L grant 60 jobs)" '^lease [0-9a-f]{16} granted with TTL\(60s\), name\(jobs\)$'
has "a used name is refused, at any replica" "$(at 2 grant 500ms jobs)" "^tenurectl: etcdserver: lease already exists with that name\.$"
ID=$(L list --json=short | jq -r '.[] | select(.name == "jobs") | .id')
E put --lease="$ID" jobs/b 1 >/dev/null; E put --lease="$ID" jobs/a 1 >/dev/null
has "list: id, TTL, time left, keys, name" "$(at 3 list)" "^$ID +60\.000s +(60\.000|[45][0-9]\.[0-9]+)s +2  jobs$"
has "ttl by name" "$(at 2 ttl jobs)" "^lease $ID granted with TTL\(60s\), remaining\(([45][0-9]\.[0-9]+|59|60)s\), name\(jobs\)$"
has "ttl by id, with keys" "$(L ttl "$ID" --keys)" "^lease $ID granted with .*, name\(jobs\), attached keys\(\[jobs/a jobs/b\]\)$"
is "ttl as JSON" "$(L ttl jobs --keys --json=short | jq -c '[.id, .name, .ttl_ms, .left_ms > 40000, .keys]')" "[\"$ID\",\"jobs\",60000,true,[\"jobs/a\",\"jobs/b\"]]"
is "keep-alive --once by name, at another replica" "$(at 3 keep-alive jobs --once)" "lease $ID keepalived with TTL(60s), name(jobs)"
is "keep-alive --once by id" "$(at 3 keepalive "0x$ID" --once)" "lease $ID keepalived with TTL(60s)"
is "revoke by name" "$(at 2 revoke jobs)" "lease jobs revoked"
is "the keys of the revoked lease are gone" "$(E get jobs/ --prefix --keys-only | grep -c .)" 0
is "revoke of a name that no lease has" "$(L revoke jobs)" "tenurectl: there is no lease with the name 'jobs'."
is "ttl of a name that no lease has" "$(L ttl jobs)" "tenurectl: there is no lease with the name 'jobs'."
is "keep-alive: nobody has it" "$(L keep-alive jobs)" "tenurectl: there is no lease with the name 'jobs'."
is "revoke: an id that is gone" "$(L revoke "$ID")" "tenurectl: there is no lease $ID: it has ended, or was revoked."
L revoke jobs >/dev/null; is "revoke of an unknown id is an error" $? 1
has "grant without a name" "$(L grant 90)" '^lease [0-9a-f]{16} granted with TTL\(90s\)$'
has "no time to live" "$(L grant soon)" "a time such as 500ms, 10s or 60, not 'soon'"
has "too long a name" "$(L grant 5 "$(printf 'x%.0s' {1..1025})")" "a lease's name has 1 to 1024 bytes"
L grant 60 name=x >/dev/null; has "a name that looks like an id" "$(L ttl name=name=x)" "name\(name=x\)"
at 1 grant 60 "$(printf 'a\033[2Jb')" >/dev/null
has "a name says nothing to a terminal" "$(L list)" 'a\\x1b\[2Jb$'
is "control characters of a name are escaped by revoke" "$(L revoke "$(printf 'a\033[2Jb')")" 'lease a\x1b[2Jb revoked'
at 1 grant 60 "$(printf 's\355\240\200u\364\220\200\200o\340\200\257')" >/dev/null # half a pair; beyond Unicode; in too many bytes
is "JSON of names is valid UTF-8" "$(L list --json=short | /usr/bin/python3 -c 'import json, sys; print([l["name"] for l in json.loads(sys.stdin.buffer.read().decode()) if l["name"][:1] == "s"][0])')" 's\xed\xa0\x80u\xf4\x90\x80\x80o\xe0\x80\xaf'
has "usage" "$(L grant)" "^usage: tenurectl .*lease COMMAND"

# ---- keep-alive until it is interrupted, whichever replica answers; and after it ----
L grant 10 kept >/dev/null
start kept env --default-signal=INT "$BIN/tenurectl" lease keep-alive kept; KEPT=$PID # in the background a shell has it ignored
until_ok 10 grep -q keepalived "$DIR/kept.log"
kill -STOP "${CORE[1]}" # the first endpoint says nothing
N=$(grep -c keepalived "$DIR/kept.log")
more() { [ "$(grep -c keepalived "$DIR/kept.log")" -ge $((N + 4)) ]; }
until_ok 40 more && ok "keep-alive goes on elsewhere when a replica is frozen" || not_ok "keep-alive goes on elsewhere" "$(tail -n 3 "$DIR/kept.log")"
kill -CONT "${CORE[1]}"
is "the lease still lives" "$(at 2 ttl kept --json=short | jq -r .name)" kept
kill -INT "$KEPT"; wait "$KEPT" 2>/dev/null; is "an interrupt ends it" $? 130
until_ok 30 sh -c "'$BIN/tenurectl' lease ttl kept 2>&1 | grep -q 'there is no lease with the name'" && ok "and then the lease" || not_ok "and then the lease" "$(L ttl kept)"
start gone "$BIN/tenurectl" lease keep-alive short; wait "$PID"; is "keep-alive of nobody's name fails" $? 1
L grant 9 short >/dev/null; start gone "$BIN/tenurectl" lease keep-alive short; GONE=$PID
until_ok 10 grep -q keepalived "$DIR/gone.log"; L revoke short >/dev/null; L grant 60 short >/dev/null
is "keep-alive by name renews who has it then" "$(L keep-alive short --once --json=short | jq -r .name)" short
L revoke short >/dev/null
until_ok 30 sh -c "! kill -0 $GONE 2>/dev/null"; has "revoked under it: told" "$(cat "$DIR/gone.log")" "there is no lease with the name 'short'"

# ---- the name of a node ----
dbus_conf=$DIR/bus.conf BUS=unix:path=$PLAIN/bus.socket
cat >"$dbus_conf" <<END
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>$BUS</listen><auth>EXTERNAL</auth><policy context="default">
<allow user="*"/><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>
END
start bus dbus-daemon --config-file="$dbus_conf" --nofork --nopidfile
until_ok 5 busctl --address="$BUS" list
mkdir "$DIR/run" "$DIR/run2"
agent() { # NAME RUNTIME-DIRECTORY
	printf '[Agent]\nEndpoints=%s\nNodeName=web1\nNodeId=0123456789abcdef0123456789abcdef\nTTL=10s\n' "$A:$c2" >"$DIR/agent.conf"
	start "$1" env DBUS_SYSTEM_BUS_ADDRESS="$BUS" RUNTIME_DIRECTORY="$2" "$BIN/tenured" -c "$DIR/agent.conf"; AGENT=$PID
}
agent agent "$DIR/run"
lease_of() { E get /tenure/default/nodes/web1 -w fields | awk '/^"Lease"/ {print $3}' | xargs -r printf '%016x\n'; }
named() { [ "$(L list --json=short | jq -r '.[] | select(.name == "web1") | .id')" = "$(lease_of)" ] && [ -n "$(lease_of)" ]; }
until_ok 15 named && ok "a host's lease has the name of its node" || not_ok "a host's lease has the name of its node" "$(L list)"
FIRST=$(lease_of)
has "ttl NODE" "$(at 3 ttl web1 --keys)" "^lease $FIRST granted with TTL\(10s\), .*name\(web1\), attached keys\(\[/tenure/default/nodes/web1"
has "a node's name cannot be granted to another lease" "$(L grant 60 web1)" "lease already exists with that name"
kill -9 "$AGENT"; wait "$AGENT" 2>/dev/null; agent agent2 "$DIR/run2" # another life, which takes the place over
again() { named && [ "$(lease_of)" != "$FIRST" ]; }
until_ok 20 again && ok "and the next life's lease has it with the place" || not_ok "and the next life's lease has it with the place" "$FIRST, $(lease_of): $(L list)"
kill "$AGENT"; wait "$AGENT" 2>/dev/null

# ---- users: a name shows and permits what the id does ----
R() { timeout 20 "$BIN/tenurectl" --user="$1" lease "${@:2}" 2>&1; }
L grant 600 secret >/dev/null; S=$(L ttl secret --json=short | jq -r .id)
E put --lease="$S" app/secret v >/dev/null
E user add root:toor >/dev/null; E user grant-role root root >/dev/null
E role add other >/dev/null; E role grant-permission other readwrite other/ --prefix >/dev/null
E user add eve:eve >/dev/null; E user grant-role eve other >/dev/null
E role add app >/dev/null; E role grant-permission app readwrite app/ --prefix >/dev/null
E user add ann:ann >/dev/null; E user grant-role ann app >/dev/null
E auth enable >/dev/null
for what in "ttl secret" "ttl secret --keys" "ttl $S --keys" "keep-alive secret --once" "revoke secret" "revoke $S"; do
	# shellcheck disable=SC2086
	has "eve: lease ${what/$S/ID}: denied" "$(R eve:eve $what)" "^tenurectl: etcdserver: permission denied\.$"
done
is "eve: the lease's name is not in her list" "$(R eve:eve list --json=short | jq -r '.[] | select(.name == "secret") | .name')" ""
is "eve: its id tells no name" "$(R eve:eve ttl "$S" --json=short | jq -r .name)" ""
is "ann: ttl" "$(R ann:ann ttl secret --json=short | jq -r .id)" "$S"
has "ann: keep-alive" "$(R ann:ann keep-alive secret --once)" "^lease $S keepalived"
has "ann: revoke" "$(R ann:ann revoke secret)" "^lease secret revoked$"
is "a password is asked for once, by a command of several calls, too" "$(timeout 20 "$BIN/tenurectl" --user=root --password-file=<(echo toor) core members --no-legend 2>&1 | grep -c "$A")" 3
has "ttl without a login" "$(L ttl secret)" "user name is empty"

# ---- a real etcd has no names ----
if command -v etcd >/dev/null; then
	start_etcd etcd "$e" "$ep"
	export TENURE_ENDPOINTS=$A:$e
	until_ok 20 L list
	no="^tenurectl: leases have no names in the core at $A:$e, which is an etcd; use the lease's id\.$"
	for what in "grant 60 jobs" "ttl jobs" "keep-alive jobs" "revoke jobs"; do
		# shellcheck disable=SC2086
		has "etcd: lease $what" "$(L $what)" "$no"
	done
	has "etcd: no lease was granted" "$(L list)" "^0 leases"
	has "etcd: grant" "$(L grant 60)" '^lease [0-9a-f]{16} granted with TTL\(60s\)$'
	ID=$(L list --json=short | jq -r '.[0].id')
	has "etcd: list" "$(L list)" "^$ID +- +- +-"
	has "etcd: ttl" "$(L ttl "$ID" --keys)" "^lease $ID granted with TTL\(60s\), remaining\(([45][0-9]|60)s\), attached keys\(\[\]\)$"
	is "etcd: keep-alive" "$(L keep-alive "$ID" --once)" "lease $ID keepalived with TTL(60s)"
	is "etcd: revoke" "$(L revoke "$ID")" "lease $ID revoked"
	has "etcd: the revoked lease is gone" "$(L ttl "$ID")" "there is no lease $ID"
else
	skip "leases on a real etcd" "no etcd here"
fi
finish
