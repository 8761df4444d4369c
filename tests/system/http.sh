#!/usr/bin/env bash
# HTTP/1.1 on the client port: what probes and curl read, plain and with TLS, beside gRPC; and clients that are slow or greedy.
# usage: BIN=build/release/bin DIR=build/http tests/system/http.sh
. "$(dirname "$0")/lib.sh"

read -r c1 c2 c3 p1 p2 p3 c4 p4 c5 m5 < <(free_ports 10)
CLIENT=("$c1" "$c2" "$c3") PEER=("$p1" "$p2" "$p3") CORE=()
CLUSTER=n1=http://127.0.0.1:$p1,n2=http://127.0.0.1:$p2,n3=http://127.0.0.1:$p3

start_core() { # number from 0
	start_replica "n$(($1 + 1))" "${CLIENT[$1]}" "${PEER[$1]}" --initial-cluster "$CLUSTER"
	CORE[$1]=$PID
}
# get PATH [CURL'S OPTIONS...]: the body, then the status.
get() { local p=$1; shift; curl -s -m 10 -w ' %{http_code}' "$@" "http://127.0.0.1:$c1$p" | tr -d '\r'; }
post() { local p=$1 body=$2; shift 2; get "$p" -d "$body" "$@"; }
etcd() { timeout 10 etcdctl --endpoints "127.0.0.1:$c1" "$@"; }

for i in 0 1 2; do start_core $i; done
ready() { local p; for p in "${CLIENT[@]}"; do curl -sf -m 5 "http://127.0.0.1:$p/readyz" || return 1; done; }
until_ok 20 ready && ok "three replicas are ready" || not_ok "three replicas are ready"

# ---- what probes read ----
has "/version" "$(get /version)" '^\{"etcdserver":"3\.5\.[0-9]+","etcdcluster":"3\.5\.0","tenure":"[^"]+"\} 200$'
is "as gRPC's Status says it" "$(etcd endpoint status -w json | jq -r '.[0].Status.version')" "$(curl -s "http://127.0.0.1:$c1/version" | jq -r .etcdserver)"
is "/health" "$(get /health)" '{"health":"true","reason":""} 200'
is "/livez" "$(get /livez)" $'ok\n 200'
is "/livez?verbose" "$(get '/livez?verbose')" $'[+]serializable_read ok\nok\n 200'
is "/readyz?verbose" "$(get '/readyz?verbose')" $'[+]data_corruption ok\n[+]serializable_read ok\n[+]linearizable_read ok\n[+]non_learner ok\nok\n 200'
is "/readyz?exclude=" "$(get '/readyz?exclude=non_learner&verbose')" $'[+]data_corruption ok\n[+]serializable_read ok\n[+]linearizable_read ok\nok\n 200'
is "/readyz/linearizable_read" "$(get '/readyz/linearizable_read')" $'ok\n 200'
is "no such check" "$(get /readyz/nothing)" $'404 page not found\n 404'
is "no such page" "$(get /nothing)" $'404 page not found\n 404'
is "HEAD has no body" "$(curl -s -m 10 -I "http://127.0.0.1:$c1/health" -o "$DIR/head" -w '%{http_code} %{size_download} '; grep -ci '^content-length: 29' <"$DIR/head")" "200 0 1"
has "PUT is not allowed" "$(get /health -X PUT)" "405$"
has "an answer has a Date" "$(get /health -i)" 'Date: [A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT'

etcd alarm list >/dev/null
is "three requests use one connection" "$(curl -s -m 10 -o /dev/null -o /dev/null -o /dev/null -w '%{num_connects}' "http://127.0.0.1:$c1/health" "http://127.0.0.1:$c1/version" "http://127.0.0.1:$c1/v3/none")" 100
is "HTTP/1.0" "$(get /livez -0)" $'ok\n 200'

# ---- calls ----
is "a put" "$(post /v3/kv/put '{"key":"Zm9v","value":"YmFy"}' | jq -r .header.revision 2>/dev/null)" 2
is "a range" "$(curl -s -d '{"key":"Zm9v"}' "http://127.0.0.1:$c2/v3/kv/range" | jq -c '.kvs[0] | [.key, .value, .version, .mod_revision]')" '["Zm9v","YmFy","1","2"]'
is "the same below /v3beta and /v3alpha" "$(for v in v3beta v3alpha; do curl -s -d '{"key":"Zm9v"}' "http://127.0.0.1:$c2/$v/kv/range" | jq -r .count; done | tr '\n' ' ')" "1 1 "
is "no such lease" "$(post /v3/lease/revoke '{"ID":"77"}')" '{"error":"etcdserver: requested lease not found","message":"etcdserver: requested lease not found","code":5} 404'
is "no such method" "$(post /v3/kv/nothing '{}')" $'Not Found\n 404'
has "a GET of one" "$(get /v3/kv/range)" '405$'
start watch curl -sN -m 60 -d '{"create_request":{"key":"dw=="}}' "http://127.0.0.1:$c1/v3/watch"
until_ok 10 grep -q created "$DIR/watch.log"
etcd put w 1 >/dev/null; etcd del w >/dev/null
until_ok 10 grep -q DELETE "$DIR/watch.log"
is "a watch is a line for each answer" "$(jq -rc '.result | [.created, (.events // [] | map([.type, .kv.key, .kv.value]))]' <"$DIR/watch.log" | tr '\n' ' ')" '[true,[]] [null,[[null,"dw==","MQ=="]]] [null,[["DELETE","dw==",null]]] '
LEASE=$(curl -s -m 10 -d '{"TTL":"100"}' "http://127.0.0.1:$c1/v3/lease/grant" | jq -r .ID)
has "keep-alives, two in one body" "$(curl -s -m 10 -d "{\"ID\":\"$LEASE\"}{\"ID\":\"$LEASE\"}" "http://127.0.0.1:$c3/v3/lease/keepalive" | jq -r .result.TTL | tr '\n' ' ')" '^100 100 $'
# An answer that is larger than one slice.
head -c 1000000 /dev/urandom >"$DIR/large"
etcd put large <"$DIR/large" >/dev/null
is "a large value" "$(curl -s -m 10 -d '{"key":"bGFyZ2U="}' "http://127.0.0.1:$c1/v3/kv/range" | jq -r '.kvs[0].value' | base64 -d | sha256sum)" "$(etcd get large --print-value-only | head -c 1000000 | sha256sum)"
jq -Rsc '{key: "bGFyZ2Uy", value: .}' < <(base64 -w0 "$DIR/large") >"$DIR/body"
is "a large value with Expect: 100-continue" "$(curl -s -m 10 -H 'Expect: 100-continue' -d "@$DIR/body" "http://127.0.0.1:$c1/v3/kv/put" -w '%{http_code}' -o /dev/null)" 200
has "a value that is too large" "$(head -c 3000000 /dev/zero | base64 -w0 | sed 's/^/{"key":"YQ==","value":"/;s/$/"}/' | curl -s -m 10 -d @- "http://127.0.0.1:$c1/v3/kv/put" -w ' %{http_code}')" 'request is too large.* 400$'

# ---- users ----
for c in "user add root:r" "user add ann:ann" "role add r" "role grant-permission r readwrite foo" "user grant-role root root" "user grant-role ann r" "auth enable"; do etcd $c >>"$DIR/auth.log" 2>&1; done
TOKEN=$(curl -s -d '{"name":"ann","password":"ann"}' "http://127.0.0.1:$c1/v3/auth/authenticate" | jq -r .token)
is "a range without a login" "$(post /v3/kv/range '{"key":"Zm9v"}')" '{"error":"etcdserver: user name is empty","message":"etcdserver: user name is empty","code":3} 400'
is "a range with a login" "$(curl -s -m 10 -H "Authorization: $TOKEN" -d '{"key":"Zm9v"}' "http://127.0.0.1:$c1/v3/kv/range" | jq -r .count)" 1
has "a range of a key that the user may not read" "$(post /v3/kv/range '{"key":"YQ=="}' -H "Authorization: $TOKEN")" 'permission denied.* 403$'
has "probes need none" "$(get /readyz)" '200$'
is "the token of one request is not the next one's" "$(curl -s -m 10 -H "Authorization: $TOKEN" -d '{"key":"Zm9v"}' "http://127.0.0.1:$c1/v3/kv/range" -o /dev/null -w '%{http_code} ' --next -s -d '{"key":"Zm9v"}' "http://127.0.0.1:$c1/v3/kv/range" -o /dev/null -w '%{http_code}')" "200 400"
etcd --user root:r auth disable >>"$DIR/auth.log" 2>&1

# cases WHAT PROGRAM...: counts the cases of a program in Python, which says "done" when it comes to its end.
cases() {
	local what=$1 program=$2 log=$DIR/$2.log
	shift 2
	PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 "$SYSTEM/$program" "$@" | tee "$log"
	PASSED=$((PASSED + $(grep -c '^ok' "$log"))) FAILED=$((FAILED + $(grep -c '^not ok' "$log")))
	grep -q '^done$' "$log" && ok "$what, to the end" || not_ok "$what, to the end" "$(tail -n 3 "$log")"
}

# ---- slow and greedy clients ----
messages
cases "slow and greedy clients" http_clients.py "$c1" "${CORE[0]}"
is "gRPC works on the same port" "$(etcd get foo --print-value-only)" bar

# ---- more connections than there may be ----
start_replica few "$c5" "$p4" --listen-metrics-urls "http://127.0.0.1:$m5" --max-connections-per-address 20 --max-connections 60
FEW=$PID
until_ok 20 curl -sf -m 5 "http://127.0.0.1:$m5/readyz"
cases "more connections than there may be" http_limits.py "$c5" "$m5" 20 "$FEW"
is "TLS where there is none" "$(curl -sk -m 10 "https://127.0.0.1:$c5/version"; echo $?)" 35
until_ok 5 grep -q "Refused client 127.0.0.1:[0-9]*: it speaks TLS, and this port is one without (http://)" "$DIR/few.log" && ok "is logged" || not_ok "is logged" "$(tail -n 2 "$DIR/few.log")"
kill "$FEW" && wait "$FEW"

# ---- without a majority ----
for i in 1 2; do kill -STOP "${CORE[$i]}"; done
leaderless() { [ "$(curl -s -m 10 -o /dev/null -w '%{http_code}' "http://127.0.0.1:$c1/health")" = 503 ]; }
until_ok 20 leaderless
has "/health tells" "$(get /health)" '^\{"health":"false","reason":"(RAFT NO LEADER|RANGE ERROR:etcdserver: .*)"\} 503$'
is "/health?serializable=true" "$(get '/health?serializable=true')" '{"health":"true","reason":""} 200'
has "/readyz tells" "$(get /readyz | tr '\n' ' ')" '\[-\]linearizable_read failed: etcdserver: .* 503$'
is "/livez does not" "$(get /livez)" $'ok\n 200'
for i in 1 2; do kill -CONT "${CORE[$i]}"; done
until_ok 20 curl -sf -m 5 "http://127.0.0.1:$c1/readyz" && ok "and ready again" || not_ok "and ready again"

# ---- TLS: HTTP/2, HTTP/1.1, and no ALPN at all ----
make_certificates
start tls "$BIN/tenure-core" --name t --data-dir "$DIR/t" --listen-client-urls "https://127.0.0.1:$c4" --listen-peer-urls "http://127.0.0.1:$p4" --initial-cluster "t=http://127.0.0.1:$p4" \
	--cert-file "$DIR/cert.pem" --key-file "$DIR/key.pem" --etcd-version 3.4.31
tls() { curl -s -m 10 --cacert "$DIR/ca.pem" "$@" "https://127.0.0.1:$c4/version"; }
until_ok 20 tls -f --http1.1 && ok "TLS, ALPN http/1.1" || not_ok "TLS, ALPN http/1.1" "$(tls -v 2>&1 | tail -n 3)"
has "without ALPN, and --etcd-version" "$(tls --no-alpn)" '^\{"etcdserver":"3\.4\.31","etcdcluster":"3\.4\.0"'
# HTTP/1.0 knows where an answer ends by the end of the connection, which TLS has to vouch for (close_notify).
curl -s -m 10 --cacert "$DIR/ca.pem" -d "@$DIR/body" "https://127.0.0.1:$c4/v3/kv/put" -o /dev/null
cat >"$DIR/whole.py" <<'PY'
import json, socket, ssl, sys
c = ssl.create_default_context(cafile=sys.argv[2])
c.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
s = c.wrap_socket(socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10), server_hostname="127.0.0.1", suppress_ragged_eofs=False)
s.sendall(b'POST /v3/kv/range HTTP/1.0\r\nContent-Length: 18\r\n\r\n{"key":"bGFyZ2Uy"}')
got = b"".join(iter(lambda: s.recv(1 << 16), b""))
head, body = got.split(b"\r\n\r\n", 1)
assert b"ength" not in head, head
print(json.loads(body)["kvs"][0]["value"])
PY
is "an answer without a length" "$(/usr/bin/python3 "$DIR/whole.py" "$c4" "$DIR/ca.pem" | base64 -d | sha256sum)" "$(sha256sum <"$DIR/large")"
alpn() { openssl s_client -connect "127.0.0.1:$c4" -CAfile "$DIR/ca.pem" "$@" </dev/null 2>&1 | grep -oE '^ALPN protocol: .*|^No ALPN|alert no application protocol' | head -n 1; }
is "ALPN, as it is offered" "$(for a in h2 http/1.1 http/1.0 h2,http/1.1 http/1.1,h2 foo,h2 foo; do alpn -alpn "$a"; done | sed 's/.*: //' | tr '\n' ' '; alpn)" \
	"h2 http/1.1 http/1.0 http/1.1 http/1.1 h2 alert no application protocol No ALPN"
is "no TLS where there is TLS" "$(curl -s -m 10 -w ' %{http_code}' "http://127.0.0.1:$c4/version")" $'this port speaks TLS: use https://\n 400'
is "no TLS, and a body" "$(head -c 20000 /dev/zero | curl -s -m 10 -o /dev/null -w '%{http_code}' --data-binary @- "http://127.0.0.1:$c4/v3/kv/put")" 400
has "no TLS, by gRPC" "$(timeout 10 etcdctl --dial-timeout 1s --command-timeout 1s --endpoints "http://127.0.0.1:$c4" get a 2>&1)" "deadline exceeded"
has "the first of them is logged" "$(grep "Refused client" "$DIR/tls.log" | head -n 1)" "Refused client 127.0.0.1:[0-9]+: no application protocol; 1 ended like this"
is "gRPC on the same port" "$(timeout 10 etcdctl --endpoints "https://127.0.0.1:$c4" --cacert "$DIR/ca.pem" put a b)" OK
has "a version that is none" "$("$BIN/tenure-core" --etcd-version 3.5.0-rc.1 -t 2>&1)" "etcd-version must be three numbers such as 3\.[0-9.]+, not '3\.5\.0-rc\.1'"
finish
