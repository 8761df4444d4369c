#!/usr/bin/env bash
# tenurectl put: what is written only while the place, or a lock, is held; and what comes too late. Whoever judges is the core
# or the etcd (ENGINE=etcd).
# usage: BIN=build/release/bin DIR=build/put-test [ENGINE=etcd] tests/system/put.sh
. "$(dirname "$0")/lib.sh"
ENGINE=${ENGINE:-core}
[ "$ENGINE" = core ] || wants_etcd "tenurectl put on a real etcd"
read -r a ap relay < <(free_ports 3)
. "$(dirname "$0")/agents_lib.sh"
core core "$a" "$ap"; serves "$a"
agent h1 TTL=6s; H1=$PID; agent h2 TTL=6s # a place is to be lost only where this test means it
until_ok 10 held h1 || not_ok "h1 holds its place"; until_ok 10 held h2 || not_ok "h2 holds its place"

value() { E get "$1" --print-value-only; }
# put NODE ARGUMENT...: its exit status, and what it said in $DIR/said.
put() { ctl "$1" put "${@:2}" >"$DIR/said" 2>&1; echo $?; }
said() { cat "$DIR/said"; }

# ---- what it takes ----
is "a key that is written while the place is held" "$(put h1 /p/a one --while-held)" 0
has "put prints the revision" "$(said)" "^Written at revision $(E get /p/a -w fields | awk '/"ModRevision"/ {print $3}')\.$"
is "the core has the value" "$(value /p/a)" one
is "as JSON" "$(ctl h1 put /p/a two --while-held --json=short | jq -r '.key + " " + (.revision > 1 | tostring)')" "/p/a true"
is "as JSON, whatever the key is" "$(ctl h1 put "$(printf '/p/\377\033')" two --while-held --json=short | /usr/bin/python3 -c 'import json, sys; print(json.loads(sys.stdin.buffer.read().decode())["key"])')" '/p/\xff\x1b'
head -c 100000 /dev/urandom >"$DIR/bytes"
is "put from a file" "$(put h1 /p/file --file="$DIR/bytes" --while-held)" 0
is "byte by byte" "$(E get /p/file -w json | jq -r '.kvs[0].value' | base64 -d | md5sum)" "$(md5sum <"$DIR/bytes")"
is "put from standard input" "$(put h1 /p/in - --while-held <"$DIR/bytes")" 0
is "byte by byte, too" "$(E get /p/in -w json | jq -r '.kvs[0].value' | base64 -d | md5sum)" "$(md5sum <"$DIR/bytes")"
is "an empty value" "$(put h1 /p/in "" --while-held; E get /p/in -w json | jq -r '.kvs[0].value')" "0
null"
is "put without a guard is refused" "$(put h1 /p/a three)" 1; has "put without a guard says what is missing" "$(said)" "put needs --while-held or --lock=NAME"
is "a value and a file" "$(put h1 /p/a three --file=/dev/null --while-held)" 1; has "and says what put takes" "$(said)" "put needs KEY VALUE"
is "a file that is not there" "$(put h1 /p/a --file="$DIR/none" --while-held)" 1; has "the missing file is named" "$(said)" "cannot read the value from $DIR/none: No such file"
is "no agent" "$("$BIN/tenurectl" --bus=unix:abstract=nobody-$$ put /p/a x --while-held >"$DIR/said" 2>&1; echo $?)" 1
is "an environment that is not of tenurectl lock" "$(TENURE_LOCK_KEY=job put h1 /p/a x --while-held)" 1; has "and what is wrong with it" "$(said)" "TENURE_LOCK_KEY is not NAME/LEASE"
is "refused puts have written nothing" "$(value /p/a)" two

# ---- a lock ----
waits() { [ "$(E get job/ --prefix --keys-only | grep -c job)" = "$1" ]; }
locker() { local n=$1; shift; start "lock.$n" "$BIN/tenurectl" --bus="unix:abstract=tenure-agents-$$-$n" lock job -- "$@"; LOCKER=$PID; }
is "a lock that nobody has" "$(put h1 /p/a three --lock=job)" 124; has "a lock that nobody has: the error says so" "$(said)" "the lock 'job' is held by nobody; nothing was written"
locker h2 sleep 60; until_ok 5 waits 1
is "a lock that another host has" "$(put h1 /p/a three --lock=job)" 124; has "a lock that another host has: the error says so" "$(said)" "the lock 'job' is held by somebody else"
is "the host that has it, from outside of the command" "$(put h2 /p/a by-h2 --lock=job)" 0
is "and it is written" "$(value /p/a)" by-h2
kill "$LOCKER"; wait "$LOCKER" 2>/dev/null; until_ok 5 waits 0
is "put in the command of the lock" "$(ctl h1 lock job -- "$BIN/tenurectl" --bus="unix:abstract=tenure-agents-$$-h1" put /p/a in-lock --lock=job >/dev/null 2>&1; echo $?)" 0
is "it is written" "$(value /p/a)" in-lock
is "the token is the revision in which the key was created" "$(ctl h1 lock job -- sh -c 'echo "$TENURE_TOKEN $TENURE_LOCK_REVISION"; ETCDCTL_API=3 etcdctl --endpoints 127.0.0.1:'"$a"' get "$TENURE_LOCK_KEY" -w fields' | awk 'NR == 1 {t = $1; r = $2} /"CreateRevision"/ {print (t == $3 && r == $3)}')" 1

# ---- too late ----
# begin NAME NODE ARGUMENT...: a put whose guard is settled, and that waits for the rest of its value. A pipe takes less than what it is
# given, so it has begun to read by then.
begin() {
	local name=$1 node=$2
	shift 2
	mkfifo "$DIR/$name.in"
	# shellcheck disable=SC2016
	start "$name" sh -c 'exec "$0" "$@" <'"'$DIR/$name.in'" "$BIN/tenurectl" --bus="unix:abstract=tenure-agents-$$-$node" put "$@"; PUT=$PID
	exec 7>"$DIR/$name.in"
	timeout 10 head -c 200000 /dev/zero >&7 || not_ok "$name: it reads its value" "$(cat "$DIR/$name.log")"
}
# ends NAME WHAT STATUS TEXT: what comes of it once its value is there.
ended() {
	exec 7>&-
	wait "$PUT"; is "$2" $? "$3"
	has "$2: it says why" "$(cat "$DIR/$1.log")" "$4"
}
E put /p/late before >/dev/null
begin in-time h1 /p/in-time - --while-held; ended in-time "in time" 0 "Written at revision"
L=$(lease h1); begin revoked h1 /p/late - --while-held
E lease revoke "$L" >/dev/null; until_ok 10 holds_again h1 "$L" || not_ok "h1 holds a place again"
ended revoked "its lease has ended, and the host holds another place" 123 "the core refused the write, because the lease $L of this host's place has ended; nothing was written"
L=$(lease h1); begin frozen h1 /p/late - --while-held
kill -STOP $H1; until_ok 30 sh -c "! ETCDCTL_API=3 etcdctl --endpoints 127.0.0.1:$a get /tenure/default/nodes/h1 --print-value-only | grep -q ." || not_ok "the core gives the place up"
is "the place has expired meanwhile" "$(timeout 5 "$BIN/tenurectl" --bus="unix:abstract=tenure-agents-$$-h2" put /p/late by-h2 --while-held >/dev/null; echo $?)" 0
kill -CONT $H1
ended frozen "its agent was stopped beyond the TTL" 123 "the lease $L of this host's place has ended"
until_ok 10 holds_again h1 "$L" || not_ok "h1 holds a place again"
is "the next holder's value stays" "$(value /p/late)" by-h2

# The place is the same, and the lock is not.
locker h1 sleep 60; until_ok 5 waits 1; begin token h1 /p/late - --lock=job
E del --prefix job/ >/dev/null; kill "$LOCKER"; wait "$LOCKER" 2>/dev/null; locker h1 sleep 60 7>&-; until_ok 5 waits 1
ended token "the lock was lost, and the host has it again, with another token" 124 "the lock 'job' has been given up or lost since; nothing was written"
kill "$LOCKER"; wait "$LOCKER" 2>/dev/null; until_ok 5 waits 0

# A task below a lock has a token of its own in $TENURE_TOKEN; what is guarded by the lock goes by the lock's. Below a task it is the lock's.
cat >"$DIR/inner" <<END
#!/bin/sh
"$BIN/tenurectl" --bus=unix:abstract=tenure-agents-$$-h1 put /p/inner "\$1" --lock=job
echo "\$? \$TENURE_TOKEN \$TENURE_TASK" >"$DIR/\$1.end"
exec sleep 60
END
chmod 755 "$DIR/inner"
H=("$BIN/tenurectl" --bus="unix:abstract=tenure-agents-$$-h1")
locker h1 "${H[@]}" work g --tasks=1 --name=x --ttl=2s -- "$DIR/inner" in-work
until_ok 10 test -s "$DIR/in-work.end"; is "put in a task below a lock" "$(awk '{print $1, $3}' "$DIR/in-work.end")" "0 1"
kill "$LOCKER"; wait "$LOCKER" 2>/dev/null; until_ok 5 waits 0
start work.h1 "${H[@]}" work g --tasks=1 --name=y --ttl=2s -- "${H[@]}" lock job -- "$DIR/inner" in-both; WORK=$PID
until_ok 10 test -s "$DIR/in-both.end"; is "put in a lock below a task" "$(awk '{print $1, $3}' "$DIR/in-both.end")" "0 1"
kill "$WORK"; wait "$WORK" 2>/dev/null; until_ok 5 waits 0
start work.h1 "${H[@]}" lock outer -- "${H[@]}" lock job -- "$DIR/inner" in-locks; WORK=$PID
until_ok 10 test -s "$DIR/in-locks.end"; is "put in a lock below another one" "$(awk '{print $1}' "$DIR/in-locks.end")" 0
kill "$WORK"; wait "$WORK" 2>/dev/null; until_ok 5 waits 0

# What a command of the lock has left behind knows what it was left by.
ctl h1 lock job -- sh -c 'env | grep ^TENURE_' >"$DIR/env"
# shellcheck disable=SC2046 # one word a line
left() { env $(cat "$DIR/env") timeout 10 "$BIN/tenurectl" --bus="unix:abstract=tenure-agents-$$-h1" put /p/late late "$@" >"$DIR/said" 2>&1; echo $?; }
is "left behind by a command of the lock: not the lock's any more" "$(left --lock=job)" 124
is "left behind, with --while-held, and the place is the same" "$(left --while-held)" 0
E put /p/late by-h2 >/dev/null
L=$(lease h1); E lease revoke "$L" >/dev/null; until_ok 10 holds_again h1 "$L"
is "left behind, with another place: refused" "$(left --while-held)" 123; has "left behind, with another place: the error says why" "$(said)" "the place with which the lock was taken has ended; nothing was written"
is "left behind, with another place, and --lock: refused" "$(left --lock=job)" 123

# A command of a lock in another one knows both; the outer lock is another command's by now, which has a token of its own.
ctl h1 lock outer.1 -- "${H[@]}" lock job -- sh -c 'env | grep ^TENURE_' >"$DIR/env"
is "a lock in another one has the revisions and keys of both" "$(sed -n 's/^TENURE_LOCKS=//p' "$DIR/env" | tr , '\n' | awk -F: 'NF == 3 && length($3) == $2 {sub("/[0-9a-f]*$", "", $3); print $3} NR == 1 {r = $1} NR == 2 {print ($1 < r)}' | paste -sd' ')" "job outer.1 1"
start lock.outer "${H[@]}" lock outer.1 -- sleep 60; LOCKER=$PID
has_outer() { E get outer.1/ --prefix --keys-only | grep -q outer; }
until_ok 10 has_outer
is "left behind by a lock in another one: the outer one is another command's by now" "$(left --lock=outer.1)" 124
has "left behind by the outer lock: the error says why" "$(said)" "the lock 'outer.1' has been given up or lost since"
is "the inner one, too" "$(left --lock=job)" 124
is "a lock that was not in its environment" "$(left --lock=other)" 124; has "a lock that was not in its environment is looked up" "$(said)" "the lock 'other' is held by nobody"
is "a list of locks that is not of tenurectl lock" "$(TENURE_LOCKS=job put h1 /p/a x --lock=job)" 1; has "and what is wrong with it" "$(said)" "TENURE_LOCKS is not as tenurectl lock sets it"
is "a token that is none" "$(TENURE_LOCK_KEY=job/1 TENURE_TOKEN=x put h1 /p/a x --lock=job)" 1; has "an invalid token: the variable is named" "$(said)" "[$]TENURE_TOKEN is not the token of [$]TENURE_LOCK_KEY"
kill "$LOCKER"; wait "$LOCKER" 2>/dev/null
is "processes that were left behind have written nothing" "$(value /p/late)" by-h2

# A script under `tenurectl lock` is stopped in the middle of its put, its keeper with it, beyond the TTL: another host has the lock by
# then. What would have killed it goes on last.
mkfifo "$DIR/script.in"
cat >"$DIR/script" <<END
#!/bin/sh
"$BIN/tenurectl" --bus=unix:abstract=tenure-agents-$$-h1 put /p/late - --lock=job <"$DIR/script.in"
echo ended \$? >"$DIR/script.end"
END
chmod 755 "$DIR/script"; locker h1 "$DIR/script"
exec 7>"$DIR/script.in"; timeout 10 head -c 200000 /dev/zero >&7 || not_ok "the script reads its value" "$(cat "$DIR/lock.h1.log")"
below() { local p; for p in $(pgrep -P "$1"); do echo "$p"; below "$p"; done; }
KEEPER=$(pgrep -P "$LOCKER" | head -n 1) SCRIPT=$(below "$(pgrep -P "$LOCKER" | head -n 1)")
is "the keeper runs" "$(cat "/proc/$KEEPER/comm")" tenurectl
# shellcheck disable=SC2086 # a list of numbers
kill -STOP $H1 "$LOCKER" "$KEEPER" $SCRIPT
is "the next holder writes" "$(timeout 60 "$BIN/tenurectl" --bus="unix:abstract=tenure-agents-$$-h2" lock job -- "$BIN/tenurectl" --bus="unix:abstract=tenure-agents-$$-h2" put /p/late next --lock=job >/dev/null 2>"$DIR/said"; echo $?)" 0
exec 7>&-
# shellcheck disable=SC2086
kill -CONT $H1 $SCRIPT
until_ok 15 test -s "$DIR/script.end"
is "a script under a lock that was stopped beyond the TTL cannot write" "$(cat "$DIR/script.end")" "ended 123"
has "and the log says why" "$(cat "$DIR/lock.h1.log")" "the core refused the write, because the lease [0-9a-f]* of this host's place has ended"
is "the next holder's value stays" "$(value /p/late)" next
kill -CONT "$KEEPER" "$LOCKER"; wait "$LOCKER" 2>/dev/null

# ---- an answer that is lost: it says what it does not know ----
cat >"$DIR/relay.py" <<'END'
import select, socket, sys
listen, core, mark = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode()
server = socket.create_server(("127.0.0.1", listen))
print("listening", flush=True)
client, _ = server.accept()
to, seen = socket.create_connection(("127.0.0.1", core)), b""
while True:
    for s in select.select([client, to], [], [])[0]:
        data = s.recv(65536)
        if s is client:
            seen += data
            to.sendall(data)
            if mark in seen:
                to.recv(65536)  # the core has it
                sys.exit()
        else:
            client.sendall(data)
END
start relay /usr/bin/python3 "$DIR/relay.py" "$relay" "$a" /p/doubt; until_ok 5 grep -q listening "$DIR/relay.log"
until_ok 10 held h1
is "the connection breaks before the answer" "$(put h1 /p/doubt x --while-held --endpoints="http://127.0.0.1:$relay")" 1
has "put says that the value may have been written" "$(said)" "'/p/doubt' may or may not have been written"

# ---- users: the password is asked for once ----
E user add root:toor >/dev/null; E user grant-role root root >/dev/null; E auth enable >/dev/null
echo toor >"$DIR/password"; chmod 600 "$DIR/password"
agent h3 User=root PasswordFile="$DIR/password"; until_ok 10 held h3 || not_ok "h3 holds its place" "$(tail -n 2 "$DIR/h3.log")"
start lock.h3 "$BIN/tenurectl" --bus="unix:abstract=tenure-agents-$$-h3" --user=root --password-file="$DIR/password" lock job -- sleep 60
u() { timeout 5 etcdctl --user root:toor --endpoints "127.0.0.1:$a" get job/ --prefix --keys-only | grep -q job; }
until_ok 10 u || not_ok "h3 has the lock" "$(cat "$DIR/lock.h3.log")"
is "a write under a lock, of a user" "$(put h3 /p/user x --lock=job --user=root --password-file=<(echo toor))" 0
kill "$H1"; finish
