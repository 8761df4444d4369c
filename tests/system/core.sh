#!/usr/bin/env bash
# tenure-core with real clients: Debian's etcdctl on every replica, restarts, damage, garbage, TLS.
# usage: BIN=build/release/bin DIR=build/core-test tests/system/core.sh
. "$(dirname "$0")/lib.sh"

read -r c1 c2 c3 p1 p2 p3 < <(free_ports 6)
CLIENT=("$c1" "$c2" "$c3") PEER=("$p1" "$p2" "$p3") CORE=()
CLUSTER=n1=http://127.0.0.1:$p1,n2=http://127.0.0.1:$p2,n3=http://127.0.0.1:$p3

start_core() { # number from 0
	start_replica "n$(($1 + 1))" "${CLIENT[$1]}" "${PEER[$1]}" --initial-cluster "$CLUSTER"
	CORE[$1]=$PID
}
at() { local i=$1; shift; timeout 10 etcdctl --endpoints "127.0.0.1:${CLIENT[$i]}" "$@"; }
all_answer() { for i in 0 1 2; do at $i get x || return 1; done; }

for i in 0 1 2; do start_core $i; done
until_ok 15 all_answer && ok "three replicas serve" || not_ok "three replicas serve"

for i in 0 1 2; do # every replica, the leader and the others
	j=$(((i + 1) % 3))
	is "put at replica $i" "$(at $i put k$i v$i)" OK
	is "get at another one sees it" "$(at $j get k$i --print-value-only)" "v$i"
	at $i put p$i/a 1 >/dev/null; at $i put p$i/b 2 >/dev/null
	is "get --prefix" "$(at $j get p$i/ --prefix | tr '\n' ' ')" "p$i/a 1 p$i/b 2 "
	is "del --prefix" "$(at $j del p$i/ --prefix)" 2
	is "del again" "$(at $i del p$i/ --prefix)" 0
	L=$(at $i lease grant 100 | awk '{print $2}')
	is "put under a lease" "$(at $j put --lease="$L" leased$i v)" OK
	has "timetolive at another one" "$(at $j lease timetolive "$L" --keys)" "granted with TTL\(100s\), remaining\((9[0-9]|100)s\), attached keys\(\[leased$i\]\)"
	has "keep-alive --once" "$(at $i lease keep-alive --once "$L")" "keepalived with TTL\(100\)"
	has "lease list" "$(at $j lease list)" "$L"
	is "revoke" "$(at $j lease revoke "$L")" "lease $L revoked"
	is "after the revocation the lease's key is gone" "$(at $i get leased$i)" ""
	has "timetolive of a lease that is gone" "$(at $j lease timetolive "$L")" "already expired"
	has "revoke of a lease that is gone" "$(at $j lease revoke "$L" 2>&1)" "requested lease not found"
	is "txn, the compare holds" "$(printf 'value("k%s") = "v%s"\n\nput t%s yes\n\nput t%s no\n\n' $i $i $i $i | at $j txn | head -n1)" SUCCESS
	is "txn, it does not" "$(printf 'value("k%s") = "x"\n\nput t%s no\n\nget t%s\n\n' $i $i $i | at $i txn | tr '\n' ' ')" "FAILURE  t$i yes "
done

# Watches: from a past revision, on one replica, of changes made at another.
R=$(at 0 get k0 -w json | jq .header.revision)
start watch etcdctl --endpoints "127.0.0.1:$c2" watch w --prefix --rev "$((R + 1))"
at 0 put w1 a >/dev/null; at 1 put w2 b >/dev/null; at 2 del w1 >/dev/null
watched() { tr '\n' ' ' <"$DIR/watch.log"; }
until_ok 10 eval '[[ $(watched) == *"DELETE w1  " ]]'
is "watch from a revision on" "$(watched)" "PUT w1 a PUT w2 b DELETE w1  "

has "endpoint status --cluster" "$(at 0 endpoint status --cluster -w table | grep -c "http://127.0.0.1")" "^3$"
is "one leader" "$(at 0 endpoint status --cluster -w json | jq '[.[].Status.leader] | unique | length')" 1
has "member list" "$(at 0 member list)" "n2, http://127.0.0.1:$p2, http://127.0.0.1:$c2"
has "endpoint health" "$(at 2 endpoint health 2>&1)" "is healthy"
has "a revision that is not there yet" "$(at 0 get k0 --rev 100000 2>&1)" "required revision is a future revision"
at 0 compact "$R" >/dev/null
has "a revision that is compacted" "$(at 1 get k0 --rev 1 2>&1)" "required revision has been compacted"

# A49: all leases, with what etcd's list does not tell.
L=$(at 0 lease grant 100 | awk '{print $2}'); at 1 put --lease="$L" a49 v >/dev/null
has "A49: leases with TTL, time left and keys" "$("$BIN/tenurectl" --endpoints="http://127.0.0.1:$c2" core leases)" "^0*$L +100\.000s +(9[0-9]\.[0-9]+|100\.000)s +1 "
is "A49: the same as JSON" "$("$BIN/tenurectl" --endpoints="http://127.0.0.1:$c3" --json=short core leases | jq -r --arg l "$L" '.[] | select(.id | endswith($l)) | "\(.ttl_ms) \(.keys)"')" "100000 1"
S=$(at 0 lease grant 60 | awk '{print $2}'); T=$(at 1 lease grant 300 | awk '{print $2}')
is "leases are listed by when they end" "$(at 2 lease list | tail -n +2 | tr '\n' ' ')" "$S $L $T "
for l in "$L" "$S" "$T"; do at 2 lease revoke "$l" >/dev/null; done

# A42: while others read as much as they can, a short lease is kept and an event is delivered. Where etcdctl needs a second to begin, it is longer.
at 0 put big "$(head -c 100000 /dev/zero | tr '\0' x)" >/dev/null
for TTL in 1 2 4 8; do
	: >"$DIR/a42.log"
	L=$(at 0 lease grant $TTL | awk '{print $2}')
	start a42 etcdctl --endpoints "127.0.0.1:$c1" lease keep-alive "$L"; KEEP=$PID
	until_ok 5 grep -q keepalived "$DIR/a42.log" && [ "$(at 0 put --lease="$L" a42 v)" = OK ] && break
	kill "$KEEP" 2>/dev/null; wait "$KEEP" 2>/dev/null
done
HOGS=()
for i in 0 1 2; do for n in 1 2; do # who renews gets a processor first; it is the core that is tested
	start "hog$i$n" nice sh -c "while :; do etcdctl --endpoints 127.0.0.1:${CLIENT[$i]} get '' --prefix --limit 200; done >/dev/null"; HOGS+=("$PID")
done; done
start a42w etcdctl --endpoints "127.0.0.1:$c2" watch a42 --prefix
RENEWED=$(grep -c keepalived "$DIR/a42.log")
until_ok $((20 * TTL)) sh -c "[ \$(grep -c keepalived '$DIR/a42.log') -ge $((RENEWED + 12)) ]"
at 1 put a42x told >/dev/null
if until_ok 5 grep -q told "$DIR/a42w.log"; then ok "A42: an event is delivered beside readers"; else not_ok "A42: an event is delivered beside readers"; fi
is "A42: a lease of $TTL s is kept beside readers" "$(at 2 get a42 --print-value-only)" v
kill "$KEEP" "${HOGS[@]}" 2>/dev/null

# A lease that is not renewed is gone soon after its TTL on every replica, and not before: the leader's log has the time.
since() { echo $((($(date -d "$2" +%s%3N) - $(date -d "$1" +%s%3N) + 86400000) % 86400000)); } # from one time of a day to the next, in ms
BEFORE=$(date +%T.%3N); L=$(at 0 lease grant 5 | awk '{print $2}'); AFTER=$(date +%T.%3N)
is "a key under a lease of 5 s" "$(at 0 put --lease="$L" dying v)" OK
gone() { local got; got=$(at 2 get dying) && [ -z "$got" ]; }
until_ok 20 gone || not_ok "a lease of 5 s: its key is gone" "$(at 2 get dying)"
ENDED=$(sed -n "s/ .*Lease 0*$L expired.*//p" "$DIR"/n?.log | head -n 1)
EARLY=$(since "$BEFORE" "${ENDED:-00:00}") LATE=$(since "$AFTER" "${ENDED:-00:00}")
if [ "$EARLY" -ge 5000 ] && [ "$LATE" -le 8000 ]; then ok "a lease of 5 s expired $LATE ms after its grant"; else not_ok "a lease of 5 s" "granted between $BEFORE and $AFTER, expired at $ENDED"; fi
has "A48: the leader's log says which, and why" "$(cat "$DIR"/n?.log)" "Lease 0*$L expired with 1 key\(s\): it was not renewed in time"

# A44: bad input. The others must not notice: a counter goes on all the while.
counts() { timeout 25 etcdctl --command-timeout 15s --endpoints "127.0.0.1:${CLIENT[1]}" put counter x; } # beside puts of 1.4 MB
(while :; do counts || echo BROKEN; done >"$DIR/counter.log" 2>&1) & COUNTER=$!; PIDS+=($COUNTER)
for port in "$c1" "$p1"; do
	printf 'GET / HTTP/1.0\r\n\r\n' | timeout 5 bash -c "cat >/dev/tcp/127.0.0.1/$port; cat </dev/null" 2>/dev/null
	head -c 100000 /dev/urandom | timeout 5 bash -c "cat >/dev/tcp/127.0.0.1/$port" 2>/dev/null
	# Garbage ends its connection: the read comes back before the limit.
	if timeout 5 bash -c "exec 3<>/dev/tcp/127.0.0.1/$port; printf 'garbage garbage garbage garbage' >&3; cat <&3 >/dev/null"; then
		ok "garbage on port $port: the connection ends"; else not_ok "garbage on port $port" "the connection stays"; fi
done
# Half a greeting and silence is ended too, in its time.
if timeout 40 bash -c "exec 3<>/dev/tcp/127.0.0.1/$p1; printf 'TENPEER1abc' >&3; cat <&3 >/dev/null"; then
	ok "half a greeting and silence on the peer port: the connection ends"; else not_ok "half a greeting on the peer port"; fi
if timeout 40 bash -c "exec 3<>/dev/tcp/127.0.0.1/$c1; printf 'PRI * HTTP/2.0\r\n' >&3; cat <&3 >/dev/null"; then
	ok "half a preface and silence on the client port: the connection ends"; else not_ok "half a preface on the client port"; fi
has "half a request and silence on the client port: the call ends" "$(python3 "$(dirname "$0")/half_request.py" "$c1" 25)" "ended"
/usr/bin/python3 "$(dirname "$0")/deep.py" "127.0.0.1:$c1" >"$DIR/deep.log" 2>&1
while read -r line; do if [[ $line == ok* ]]; then ok "${line#ok }"; else not_ok "a message that is too much" "$line"; fi; done <"$DIR/deep.log"
has "messages that are too much, all of them" "$(wc -l <"$DIR/deep.log")" "^10$"
head -c 2097152 /dev/zero | tr '\0' x >"$DIR/big"
has "a request of 2 MiB" "$(at 0 put big <"$DIR/big" 2>&1)" "request is too large|message larger than max"
head -c 1400000 /dev/zero | tr '\0' x >"$DIR/fits"
is "a request of 1.4 MB" "$(at 0 put big <"$DIR/fits")" OK

# The quota: what would go past it is refused, not what comes after it; all that raced with it too.
read -r q1 q2 < <(free_ports 2)
start_replica quota "$q1" "$q2" --quota-backend-bytes 10000000; QUOTA=$PID
full() { timeout 20 etcdctl --command-timeout 15s --endpoints "127.0.0.1:$q1" "$@"; }
until_ok 10 full get x || not_ok "a replica with a quota serves"
PUTS=()
for n in 1 2 3 4 5 6 7 8 9 10 11 12; do full put big$n <"$DIR/fits" >"$DIR/put$n" 2>&1 & PUTS+=("$!"); done
wait "${PUTS[@]}"
is "as many as fit are taken" "$(grep -lx OK "$DIR"/put{1..12} | wc -l)" 7
is "the others are refused" "$(grep -l "mvcc: database space exceeded" "$DIR"/put{1..12} | wc -l)" 5
has "the quota's alarm is raised" "$(full alarm list)" "alarm:NOSPACE"
full del big --prefix >"$DIR/quota-del"; full compact "$(full get x -w json | jq .header.revision)" >>"$DIR/quota-del"; full alarm disarm >>"$DIR/quota-del"
is "a put, compacted and disarmed" "$(full put big <"$DIR/fits")" OK
kill "$QUOTA"
kill $COUNTER 2>/dev/null; wait $COUNTER 2>/dev/null
if [ "$(grep -c OK "$DIR/counter.log")" -gt 20 ] && ! grep -q BROKEN "$DIR/counter.log"; then
	ok "nobody else noticed ($(grep -c OK "$DIR/counter.log") puts meanwhile)"; else not_ok "others noticed" "$(tail -n 3 "$DIR/counter.log")"; fi
for i in 0 1 2; do kill -0 "${CORE[$i]}" 2>/dev/null || not_ok "replica $i died"; done

# A replica that was away, and comes back while nobody can tell it what is now, does not take what it missed for new.
kill -9 "${CORE[2]}"; wait "${CORE[2]}" 2>/dev/null
at 0 put missed/a old >/dev/null; at 1 put missed/b old >/dev/null
kill -STOP "${CORE[0]}" "${CORE[1]}"
start_core 2
until_ok 10 timeout 1 etcdctl --endpoints "127.0.0.1:$c3" get --consistency=s k0
messages
start now /usr/bin/python3 "$(dirname "$0")/from_now.py" "$DIR/pb" "127.0.0.1:$c3"; NOW=$PID
until_ok 10 grep -q asked "$DIR/now.log"
kill -CONT "${CORE[0]}" "${CORE[1]}"
until_ok 15 all_answer
until_ok 10 grep -q "created 1" "$DIR/now.log"
at 0 put missed/c new >/dev/null
until_ok 10 grep -q missed/c "$DIR/now.log"
is "a watch from now on, asked of a replica that lags" "$(tr '\n' ' ' <"$DIR/now.log")" "asked created 0 created 1 event missed/c "
kill "$NOW"

# kill -9 of all, and back: keys, leases, revisions.
L=$(at 0 lease grant 300 | awk '{print $2}')
at 1 put --lease="$L" kept v >/dev/null
R=$(at 0 get kept -w json | jq .header.revision)
for i in 0 1 2; do kill -9 "${CORE[$i]}"; wait "${CORE[$i]}" 2>/dev/null; done
for i in 0 1 2; do start_core $i; done
until_ok 15 all_answer
is "after kill -9 of all: the revision" "$(at 1 get kept -w json | jq .header.revision)" "$R"
is "after kill -9 of all: a key" "$(at 2 get kept --print-value-only)" v
has "after kill -9 of all: its lease" "$(at 0 lease timetolive "$L" --keys)" "remaining\((2[0-9][0-9]|300)s\), attached keys\(\[kept\]\)"

# One that missed a lot catches up from a snapshot: more than what the others keep.
kill -9 "${CORE[2]}"; wait "${CORE[2]}" 2>/dev/null

# An older copy of its directory is put back: its leader tells it so, it stops, and is not started again.
start_n3() { OUT=$(timeout 60 "$BIN/tenure-core" --name n3 --data-dir "$DIR/n3" --listen-client-urls "http://127.0.0.1:$c3" --listen-peer-urls "http://127.0.0.1:$p3" --initial-cluster "$CLUSTER" 2>&1); CODE=$?; }
cp -a "$DIR/n3" "$DIR/n3.old"
start_core 2; until_ok 15 all_answer
for i in 1 2 3; do at 0 put since "$i" >/dev/null; done
until_ok 10 at 2 get since
kill -9 "${CORE[2]}"; wait "${CORE[2]}" 2>/dev/null
mv "$DIR/n3" "$DIR/n3.true"; mv "$DIR/n3.old" "$DIR/n3"
start_n3
is "a replica with an older copy of its directory stops" $CODE 1
has "and the log says why it stops" "$OUT" "the leader has this member's acknowledgement up to [0-9]+: .* an older copy"
start_n3
has "and the reason is one for which it is not started again" "$OUT" "it lacks entries that this member had acknowledged, up to [0-9]+"
is "the others go on" "$(at 0 get since --print-value-only)" 3
rm -rf "$DIR/n3"; mv "$DIR/n3.true" "$DIR/n3"

# A log whose newest file was moved, or cut to nothing, is not taken for a shorter one.
LOG=$(ls "$DIR"/n3/log-* | tail -n1)
mv "$LOG" "$DIR/moved"; start_n3
is "a log without its newest file is refused" $CODE 1
has "the missing file of the log is named" "$OUT" "$(basename "$LOG") is damaged .*missing"
ln -s "$DIR/moved" "$LOG"; start_n3; rm "$LOG"
has "a link in its place is refused" "$OUT" "$(basename "$LOG") is damaged .*not a regular file"
: >"$LOG"; start_n3; mv "$DIR/moved" "$LOG"
has "an empty file in its place is refused" "$OUT" "$(basename "$LOG") is damaged .*was longer"

# Damage: one byte, well within the synced part.
LOG=$(ls "$DIR"/n3/log-* | head -n1)
BYTE=$(od -An -tu1 -j300 -N1 "$LOG" | tr -d ' ')
printf "\\$(printf %o $((BYTE ^ 255)))" | dd of="$LOG" bs=1 seek=300 conv=notrunc 2>/dev/null
start_n3
is "a damaged log is refused" $CODE 1
has "the damaged place in the log is named" "$OUT" "$(basename "$LOG") is damaged at byte [0-9]+"
OUT=$(timeout 60 "$BIN/tenure-core" --name n1 --data-dir "$DIR/n2" --listen-client-urls "http://127.0.0.1:$c3" \
	--listen-peer-urls "http://127.0.0.1:$p3" --initial-cluster "$CLUSTER" 2>&1)
has "a data directory in use is refused" "$OUT" "Another process uses the data directory"

# Settings that cannot be.
has "an unknown option" "$("$BIN/tenure-core" --nmae x 2>&1)" "unknown option '--nmae'"
has "a name that is not in the cluster" "$("$BIN/tenure-core" --name x --initial-cluster "$CLUSTER" 2>&1)" "does not name this replica"
printf '[Core]\nName=n1\n\n[Clients]\nListenClientURL=x\n' >"$DIR/bad.conf"
has "a wrong line in the configuration" "$("$BIN/tenure-core" --config-file "$DIR/bad.conf" 2>&1)" "bad.conf:5: unknown key 'ListenClientURL' in \[Clients\]"
"$BIN/tenure-core" -t --name n1 >"$DIR/a.conf" && "$BIN/tenure-core" -t --config-file "$DIR/a.conf" >"$DIR/b.conf"
is "printed settings, read again, print the same" "$(cat "$DIR/a.conf")" "$(cat "$DIR/b.conf")"
for i in 0 1; do kill "${CORE[$i]}"; wait "${CORE[$i]}"; is "SIGTERM ends replica $i with 0" $? 0; done

# Mutual TLS on both kinds of ports: a client without a certificate is refused.
make_certificates
read -r c1 c2 c3 p1 p2 p3 < <(free_ports 6)
SECURE=s1=https://127.0.0.1:$p1,s2=https://127.0.0.1:$p2,s3=https://127.0.0.1:$p3
for n in 1 2 3; do
	c=c$n p=p$n
	start "s$n" "$BIN/tenure-core" --name s$n --data-dir "$DIR/s$n" --listen-client-urls "https://127.0.0.1:${!c}" --listen-peer-urls "https://127.0.0.1:${!p}" \
		--initial-cluster "$SECURE" --cert-file "$DIR/cert.pem" --key-file "$DIR/key.pem" --trusted-ca-file "$DIR/ca.pem" --client-cert-auth \
		--peer-cert-file "$DIR/cert.pem" --peer-key-file "$DIR/key.pem" --peer-trusted-ca-file "$DIR/ca.pem" --peer-client-cert-auth
done
tls() { timeout 20 etcdctl --command-timeout 15s --endpoints "https://127.0.0.1:$c2" --cacert "$DIR/ca.pem" "$@"; }
until_ok 15 tls --cert "$DIR/cert.pem" --key "$DIR/key.pem" put secret v
is "TLS: put and get" "$(tls --cert "$DIR/cert.pem" --key "$DIR/key.pem" get secret --print-value-only)" v
if tls get secret >/dev/null 2>&1; then not_ok "TLS: a client without a certificate" "it got in"; else ok "TLS: a client without a certificate is refused"; fi
if timeout 5 etcdctl --endpoints "127.0.0.1:$c2" get secret >/dev/null 2>&1; then not_ok "TLS: a plaintext client" "it got in"; else ok "TLS: a plaintext client is refused"; fi
# A client that comes back resumes its TLS session; one that the CAs do not trust any more does not.
resume() { start "$1" python3 "$(dirname "$0")/resume.py" "$c2" "$DIR/$2/ca.pem" "$DIR/$2/cert.pem" "$DIR/$2/key.pem" "$DIR/$1.go" "$DIR/ca.pem"; RESUME=$PID; }
sums() { grep -E "^$2" "$DIR/$1.log" | tr '\n' ';'; }
mkdir "$DIR/first" && cp "$DIR"/*.pem "$DIR/first"
resume resume first
until_ok 10 grep -q "TLS 1.3" "$DIR/resume.log"
is "TLS: a session is resumed with its client's certificate" "$(sums resume TLS)" "TLS 1.2: new, resumed;TLS 1.3: new, resumed;"
# Certificates are renewed under their names, here by a new CA and keys of another kind, without a restart.
mkdir "$DIR/old" && cp "$DIR"/*.pem "$DIR/old"
hup() { for n in 1 2 3; do kill -HUP "$(pgrep -f "$DIR/s$n ")"; done; }
log_has() { for n in 1 2 3; do grep -q "$1" "$DIR/s$n.log" || return 1; done; }
echo nonsense >"$DIR/key.pem"; hup
until_ok 5 log_has "The certificates in use remain unchanged" && ok "SIGHUP with a key that is none changes nothing" || not_ok "SIGHUP with a key that is none"
has "SIGHUP with an invalid key: the log names the file" "$(cat "$DIR/s1.log")" "cannot use the key '$DIR/key.pem'"
is "clients of the old CA are still trusted" "$(tls --cert "$DIR/cert.pem" --key "$DIR/old/key.pem" get secret --print-value-only)" v
make_certificates ec ec_paramgen_curve:prime256v1; hup
until_ok 5 log_has "The certificates were reloaded" && ok "SIGHUP: certificates are read again" || not_ok "SIGHUP: certificates are read again" "$(tail -n 2 "$DIR/s1.log")"
is "a new client gets in" "$(tls --cert "$DIR/cert.pem" --key "$DIR/key.pem" get secret --print-value-only)" v
if tls --cert "$DIR/old/cert.pem" --key "$DIR/old/key.pem" get secret >/dev/null 2>&1; then not_ok "one of the old CA" "it got in"; else ok "one of the old CA does not"; fi
touch "$DIR/resume.go"; wait "$RESUME"
has "a TLS session of a client of the old CA is not resumed" "$(sums resume then)" "then TLS 1.2: refused .*;then TLS 1.3: refused .*;"
resume same .; until_ok 10 grep -q "TLS 1.3" "$DIR/same.log"
: >"$DIR/s2.log"; kill -HUP "$(pgrep -f "$DIR/s2 ")"; until_ok 5 grep -q "were reloaded" "$DIR/s2.log"
touch "$DIR/same.go"; wait "$RESUME"
is "a reload ends sessions, not clients" "$(sums same then)" "then TLS 1.2: new;then TLS 1.3: new;"
has "the server shows the new one" "$(openssl s_client -connect "127.0.0.1:$c2" -CAfile "$DIR/ca.pem" -cert "$DIR/cert.pem" -key "$DIR/key.pem" </dev/null 2>&1)" "id-ecPublicKey|EC, 256 bit|Peer signature type: ECDSA"
pid=$(pgrep -f "$DIR/s3 "); kill "$pid"; wait "$pid"
start s3 "$BIN/tenure-core" --name s3 --data-dir "$DIR/s3" --listen-client-urls "https://127.0.0.1:$c3" --listen-peer-urls "https://127.0.0.1:$p3" \
	--initial-cluster "$SECURE" --cert-file "$DIR/cert.pem" --key-file "$DIR/key.pem" --trusted-ca-file "$DIR/ca.pem" --client-cert-auth \
	--peer-cert-file "$DIR/cert.pem" --peer-key-file "$DIR/key.pem" --peer-trusted-ca-file "$DIR/ca.pem" --peer-client-cert-auth
c2=$c3; until_ok 10 tls --cert "$DIR/cert.pem" --key "$DIR/key.pem" put secret w && ok "a replica that comes back talks to the others" || not_ok "a replica that comes back" "$(tail -n 2 "$DIR/s3.log")"

# ---- the manual page has every option ----
MAN=$(cd "$(dirname "$0")/../.." && pwd)/agent/tenure-core/tenure-core.8
for flag in $("$BIN/tenure-core" --help | sed -nE 's/^  (-., |    )?(--[a-z-]+).*/\2/p' | grep -vxE -- '--(help|version)' | sort -u); do
	grep -q -- "Fl -${flag#--}" "$MAN" || MISSING="${MISSING:-} $flag"
done
is "tenure-core(8) has every option" "${MISSING:-}" ""
finish
