#!/usr/bin/env bash
# Users and what they may, on a cluster that runs: etcdctl, python3-etcd3, tenured and tenurectl log in, by password and by
# certificate; through restarts, and through a snapshot.
# usage: BIN=build/release/bin DIR=build/auth-test tests/system/auth.sh
. "$(dirname "$0")/lib.sh"

read -r c1 c2 c3 p1 p2 p3 < <(free_ports 6)
A=http://127.0.0.1
INITIAL="a=$A:$p1,b=$A:$p2,c=$A:$p3"
replica() { # NAME CLIENT-PORT PEER-PORT
	start_replica "$@" --initial-cluster "$INITIAL" --auth-token-ttl 3s
}
# at N USER:PASSWORD|- ...: etcdctl on replica N.
at() {
	local c=c$1 user=$2
	shift 2
	if [ "$user" = - ]; then timeout 10 etcdctl --endpoints "127.0.0.1:${!c}" "$@"; else timeout 10 etcdctl --endpoints "127.0.0.1:${!c}" --user "$user" "$@"; fi
}
replica a "$c1" "$p1"; PA=$PID
replica b "$c2" "$p2"; PB=$PID
replica c "$c3" "$p3"; PC=$PID
until_ok 10 at 1 - put k before || { not_ok "three replicas serve"; finish; exit 1; }

has "auth without root" "$(at 1 - auth enable 2>&1)" "root user does not exist"
at 1 - user add root:toor >/dev/null && at 2 - user grant-role root root >/dev/null
at 3 - role add app >/dev/null && at 1 - role grant-permission app readwrite app/ --prefix >/dev/null
at 2 - user add ann:ann >/dev/null && at 3 - user grant-role ann app >/dev/null
at 1 - role add agents >/dev/null && at 1 - role grant-permission agents readwrite /tenure/ --prefix >/dev/null
at 1 - user add agent:agent >/dev/null && at 1 - user grant-role agent agents >/dev/null
LEASE=$(at 1 - lease grant 600 | awk '{print $2}')
at 1 - put --lease="$LEASE" app/leased v >/dev/null
has "auth is on" "$(at 1 - auth enable)" "Authentication Enabled"

for n in 1 2 3; do
	has "replica $n: nobody reads" "$(at $n - get app/x 2>&1)" "user name is empty"
	is "replica $n: ann writes what is hers" "$(at $n ann:ann put app/$n v)" OK
	has "replica $n: ann writes nothing else" "$(at $n ann:ann put k v 2>&1)" "permission denied"
	is "replica $n: root reads all" "$(at $n root:toor get k --print-value-only)" before
	has "replica $n: a wrong password" "$(at $n ann:wrong get app/1 2>&1)" "invalid user ID or password"
done

# ---- a login goes with the client, from replica to replica, through a restart, and ends ----
messages
token() { /usr/bin/python3 "$(dirname "$0")/login.py" "$DIR/pb" "$@"; }
# Within one process: to start two may take longer than a token lasts.
is "a login at one replica is good at another" "$(token login "$c1" "$c2")" v
kill -9 "$PC"; wait "$PC" 2>/dev/null; replica c "$c3" "$p3"; PC=$PID
until_ok 10 at 3 ann:ann get app/1
is "permissions survive kill -9: a granted key" "$(at 3 ann:ann get app/1 --print-value-only)" v
has "permissions survive kill -9: a denied key" "$(at 3 ann:ann get k 2>&1)" "permission denied"
is "a fresh login is good at a replica that has just started" "$(token login "$c1" "$c3")" v
T=$(token login "$c1")
over() { [ "$(token "$T" "$c3")" = "etcdserver: invalid auth token" ]; }
if until_ok 10 over; then ok "a login ends after AuthTokenTTL"; else not_ok "a login ends after AuthTokenTTL" "$(token "$T" "$c3")"; fi

# ---- leases ----
# A host's place is renewed and revoked by the user that granted it, and by root; another lease by whoever may write its keys.
at 1 root:toor user add other:other >/dev/null && at 1 root:toor user grant-role other agents >/dev/null
PLACE=$(at 2 agent:agent lease grant 600 | awk '{print $2}')
has "a lease without keys is anybody's" "$(at 1 other:other lease keep-alive --once "$PLACE" 2>&1)" "keepalived"
at 3 agent:agent put --lease="$PLACE" /tenure/default/nodes/h1 v >/dev/null
for n in 1 2 3; do
	has "replica $n: a place is renewed by who granted it" "$(at $n agent:agent lease keep-alive --once "$PLACE" 2>&1)" "keepalived"
	has "replica $n: and by root" "$(at $n root:toor lease keep-alive --once "$PLACE" 2>&1)" "keepalived"
	has "replica $n: not by another agent" "$(at $n other:other lease keep-alive --once "$PLACE" 2>&1)" "permission denied"
	has "replica $n: who does not revoke it either" "$(at $n other:other lease revoke "$PLACE" 2>&1)" "permission denied"
done
has "the user that granted a lease may revoke it" "$(at 1 agent:agent lease revoke "$PLACE")" "revoked"

SHORT=$(at 2 ann:ann lease grant 5 | awk '{print $2}')
at 3 ann:ann put --lease="$SHORT" app/short v >/dev/null
gone() { local v; v=$(at 1 ann:ann get app/short) && [ -z "$v" ]; }
if until_ok 20 gone; then ok "A17: a lease expires with auth on"; else not_ok "A17: a lease expires with auth on"; fi

# ---- the agent and the operator ----
printf 'agent\n' >"$DIR/password"
printf 'wrong\n' >"$DIR/wrong"
EP=$A:$c1,$A:$c2,$A:$c3
agent() { start "$1" "$BIN/tenured" --endpoints "$EP" --node-name "$1" --node-id "$(printf "%032x" "$2")" --ttl 8s --user agent --password-file "$3" --log-level debug; }
agent host1 1 "$DIR/password"; PH=$PID
registered() { [ -n "$(at 1 root:toor get "/tenure/default/nodes/$1")" ]; }
if until_ok 10 registered host1; then ok "an agent logs in"; else not_ok "an agent logs in" "$(tail -n 3 "$DIR/host1.log")"; fi
agent host2 2 "$DIR/wrong"; PW=$PID
until_ok 10 grep -q "refuses the login of user agent" "$DIR/host2.log"
has "an agent with a wrong password says so" "$(cat "$DIR/host2.log")" "refuses the login of user agent: etcdserver: authentication failed"
if registered host2; then not_ok "and is not registered"; else ok "and is not registered"; fi
kill "$PW"
has "User= without PasswordFile=" "$("$BIN/tenured" -t --user x 2>&1)" "PasswordFile= is missing"
# Its login ends every three seconds; its lease does not.
R=$(at 1 root:toor get /tenure/default/nodes/host1 -w json | jq .kvs[0].create_revision)
for n in 1 2 3 4 5; do T=$(token login "$c1"); until_ok 10 over; done # it renews each four seconds
is "A17: an agent outlives its logins" "$(at 1 root:toor get /tenure/default/nodes/host1 -w json | jq .kvs[0].create_revision)" "$R"
ctl() { timeout 20 "$BIN/tenurectl" --endpoints="$EP" "$@"; }
has "tenurectl without a user" "$(ctl core move-leader a 2>&1)" "user name is empty"
has "tenurectl as one who may not" "$(ctl --user=ann:ann core snapshot save "$DIR/no.db" 2>&1)" "permission denied"
has "tenurectl as root" "$(ctl --user=root:toor core snapshot save "$DIR/all.db" 2>&1)" "all.db"
printf 'toor' >"$DIR/root"
has "tenurectl with a password file" "$(ctl --user=root --password-file="$DIR/root" core snapshot save "$DIR/all.db" 2>&1)" "all.db"
has "tenurectl with a file that is not there" "$(ctl --user=root --password-file="$DIR/none" core snapshot save "$DIR/x.db" 2>&1)" "cannot read a password from .*/none: No such file"
has "tenurectl without a terminal to ask at" "$(setsid -w "$BIN/tenurectl" --endpoints="$EP" --user=root core snapshot save "$DIR/x.db" 2>&1 </dev/null)" "no terminal to ask for the password of root"

# ---- from a snapshot: who may what is there, and leases end (A17) ----
SHORT=$(at 1 ann:ann lease grant 5 | awk '{print $2}')
at 1 ann:ann put --lease="$SHORT" app/dying v >/dev/null
ctl --user=root:toor core snapshot save "$DIR/last.db" >/dev/null
kill "$PH" "$PA" "$PB" "$PC"; wait "$PH" "$PA" "$PB" "$PC" 2>/dev/null
INITIAL="a=$A:$p1"
"$BIN/tenure-core" --restore "$DIR/last.db" --name a --data-dir "$DIR/restored" --initial-cluster "$INITIAL" --listen-peer-urls "$A:$p1" >"$DIR/restore.log" 2>&1
start restored "$BIN/tenure-core" --name a --data-dir "$DIR/restored" --listen-client-urls "$A:$c1" --listen-peer-urls "$A:$p1" --initial-cluster "$INITIAL"
if until_ok 10 at 1 ann:ann get app/1; then ok "a restored core knows its users"; else not_ok "a restored core knows its users" "$(at 1 ann:ann get app/1 2>&1)"; fi
has "a restored core asks for a login" "$(at 1 - get app/1 2>&1)" "user name is empty"
gone() { local v l; v=$(at 1 ann:ann get app/dying) && [ -z "$v" ] && l=$(at 1 root:toor lease list) && ! grep -q "$SHORT" <<<"$l"; }
if until_ok 20 gone; then ok "A17: a restored lease expires with auth on"; else not_ok "A17: a restored lease expires with auth on"; fi
is "a lease with time left keeps its key" "$(at 1 ann:ann get app/leased --print-value-only)" v
has "auth is switched off" "$(at 1 root:toor auth disable)" "Authentication Disabled"
is "everybody reads" "$(at 1 - get k --print-value-only)" before

# ---- by certificate ----
make_certificates
person() { # NAME: NAME.pem, NAME.key
	openssl req -newkey rsa:2048 -nodes -keyout "$DIR/$1.key" -out "$DIR/$1.req" -subj "/CN=$1" && openssl x509 -req -in "$DIR/$1.req" -CA "$DIR/ca.pem" -CAkey "$DIR/ca.key" -CAcreateserial -out "$DIR/$1.pem" -days 2
}
for who in root ann nobody; do person $who >>"$DIR/openssl.log" 2>&1; done
read -r c1 p1 < <(free_ports 2)
start tls "$BIN/tenure-core" --name t --data-dir "$DIR/t" --listen-client-urls "https://127.0.0.1:$c1" --listen-peer-urls "$A:$p1" \
	--cert-file "$DIR/cert.pem" --key-file "$DIR/key.pem" --trusted-ca-file "$DIR/ca.pem" --client-cert-auth
as() { local who=$1; shift; timeout 20 etcdctl --command-timeout 15s --endpoints "https://127.0.0.1:$c1" --cacert "$DIR/ca.pem" --cert "$DIR/$who.pem" --key "$DIR/$who.key" "$@"; }
until_ok 10 as root put k v
as root user add root --no-password >/dev/null && as root user grant-role root root >/dev/null
as root role add app >/dev/null && as root role grant-permission app readwrite app/ --prefix >/dev/null
as root user add ann:ann >/dev/null && as root user grant-role ann app >/dev/null
as root auth enable >/dev/null
is "root by certificate" "$(as root get k --print-value-only)" v
is "ann by certificate" "$(as ann put app/x v)" OK
has "ann by certificate, elsewhere" "$(as ann get k 2>&1)" "permission denied"
has "a certificate without a user" "$(as nobody get app/x 2>&1)" "permission denied"
is "a certificate without a user, and a login as ann" "$(as nobody --user ann:ann get app/x --print-value-only)" v
cat >"$DIR/with_etcd3.py" <<'PY'
import sys, etcd3
d, port = sys.argv[1:]
c = etcd3.client(host="127.0.0.1", port=int(port), ca_cert=d + "/ca.pem", cert_cert=d + "/nobody.pem", cert_key=d + "/nobody.key",
                 user="ann", password="ann", timeout=5)
c.put("app/py", "1")
assert c.get("app/py")[0] == b"1"
try:
    c.get("k")
    sys.exit("it read what it may not")
except Exception as e:
    assert "permission denied" in str(e).lower(), e
PY
is "python3-etcd3 logs in" "$(/usr/bin/python3 "$DIR/with_etcd3.py" "$DIR" "$c1" 2>&1)" ""
# The same by JSON.
json() { # NAME METHOD KEY CURL'S OPTIONS...: the answer's count, or error, and the status
	local who=$1 method=$2 key=$3
	shift 3
	curl -s -m 10 -w '\n%{http_code}' --cacert "$DIR/ca.pem" --cert "$DIR/$who.pem" --key "$DIR/$who.key" "$@" \
		-d "{\"key\":\"$(base64 <<<"$key" | tr -d '\n')\"}" "https://127.0.0.1:$c1/v3/kv/$method" | sed -E 's/.*"error":"([^"]*)".*/\1/; s/.*"header".*/done/' | tr '\n' ' '
}
is "ann by certificate, by JSON" "$(json ann put app/json)" "done 200"
is "ann by certificate, by JSON, on a key that she may not read" "$(json ann range k)" "etcdserver: permission denied 403"
is "a certificate without a user, by JSON" "$(json nobody range app/json)" "etcdserver: permission denied 403"
TOKEN=$(curl -s -m 10 --cacert "$DIR/ca.pem" --cert "$DIR/nobody.pem" --key "$DIR/nobody.key" -d '{"name":"ann","password":"ann"}' "https://127.0.0.1:$c1/v3/auth/authenticate" | jq -r .token)
is "a certificate without a user, and a token, by JSON" "$(json nobody range app/json -H "Authorization: $TOKEN")" "done 200"
is "a malformed token" "$(for h in "Bearer $TOKEN" "${TOKEN^^}" x "$(head -c 7000 /dev/zero | tr '\0' x)"; do json nobody range app/json -H "Authorization: $h"; done)" \
	"$(for _ in 1 2 3 4; do printf 'etcdserver: invalid auth token 401'; done)"
is "an empty token, with ann's certificate" "$(json ann range app/json -H "Authorization;")" "etcdserver: invalid auth token 401"
has "two Authorization headers" "$(json nobody range app/json -H "Authorization: $TOKEN" -H "Authorization: x")" "400$"
has "an Authorization header that is too long" "$(json nobody range app/json -H "Authorization: $(head -c 60000 /dev/zero | tr '\0' x)")" "431$"
has "ann's browser is refused for a page of another origin" "$(json ann put app/json -H "Origin: https://example.org")" "403$"
is "ann's browser is served for our own page" "$(json ann put app/json -H "Origin: https://127.0.0.1:$c1")" "done 200"
has "root has no password" "$(as nobody --user root:x get k 2>&1)" "invalid user ID or password"
finish
