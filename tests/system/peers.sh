#!/usr/bin/env bash
# Who may speak as a member: certificates of the peers' authority that are not that member's, strangers, a port that need
# not be there, plaintext.
# usage: BIN=build/release/bin DIR=build/peers-test tests/system/peers.sh
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/authority_lib.sh"

FORGE=$(cd "$(dirname "$0")" && pwd)/forge.py
BIN=$(cd "$BIN" && pwd) DIR=$(cd "$DIR" && pwd)
HEARD="sent a malformed frame"
cd "$DIR" || exit 1
authority ca
for n in 1 2 3; do certificate m$n "/CN=core$n" "IP:127.77.0.$n" serverAuth,clientAuth; done
certificate agent "/O=x/CN=agent" IP:127.77.0.2 clientAuth
certificate other $'/CN=ev\nil' IP:127.77.0.9,DNS:other.example
certificate server /CN=server IP:127.77.0.2 serverAuth
for n in 1 2 3; do certificate c$n /CN=tenure DNS:cluster.example serverAuth,clientAuth; done

read -r c1 c2 c3 p1 p2 p3 l1 l2 < <(free_ports 8)
URL1=https://127.77.0.1:$p1 URL2=https://127.77.0.2:$p2 URL3=https://127.77.0.3:$p3
CLUSTER=n1=$URL1,n2=$URL2,n3=$URL3
replica() { # N CERTIFICATE OPTIONS...: a member of a cluster with TLS between its members
	local n=$1 cert=$2 c=c$1 url=URL$1
	shift 2
	start "n$n" "$BIN/tenure-core" --name "n$n" --data-dir "$DIR/n$n" --listen-client-urls "http://127.0.0.1:${!c}" --listen-peer-urls "${!url}" \
		--initial-cluster "$CLUSTER" --peer-cert-file "$DIR/$cert.pem" --peer-key-file "$DIR/$cert.key" --peer-trusted-ca-file "$DIR/ca.pem" "$@"
	PEERS+=("$PID")
}
at() { local c=c$1; shift; timeout 10 etcdctl --endpoints "127.0.0.1:${!c}" "$@"; }
over() { kill "${PEERS[@]}"; wait "${PEERS[@]}" 2>/dev/null; PEERS=(); rm -rf "$DIR"/n?; for n in 1 2 3; do : >"$DIR/n$n.log"; done; }
PEERS=()

# ---- the rule: a certificate is for the host of the member's peer URL ----
for n in 1 2 3; do replica $n m$n; done
if until_ok 15 at 1 put k v && until_ok 15 at 3 get k; then ok "members, each with its own certificate"; else not_ok "members, each with its own certificate" "$(tail -n 3 n1.log)"; fi
is "the expiry of a member's certificate is logged, and of its clients' there is none" "$(grep -oE "The certificate of --(peer-)?cert-file expires on 20[0-9-]+, (within a day|in 1 day|in 2 days): renew it" n1.log | sed 's/ expires on .*//')" "The certificate of --peer-cert-file"
ID=$(at 1 member list | grep -oE '^[0-9a-f]+' | head -n 1)
CID=$(grep -oE 'of cluster [0-9a-f]+' n1.log | tail -n 1 | cut -d' ' -f3)
id_of() { at 1 member list | grep ", n$1, " | grep -oE '^[0-9a-f]+'; }
M2=$(id_of 2) M3=$(id_of 3)
forge() { python3 "$FORGE" 127.77.0.1 "$p1" "$CID" "$1" ca.pem "$2.pem" "$2.key"; } # MEMBER CERTIFICATE
# refused WHAT MEMBER CERTIFICATE PATTERN: the replica says why, and does not look at what comes.
refused() {
	local was
	was=$(wc -l <n1.log)
	has "$1 is refused" "$(forge "$2" "$3")" "closed|removed"
	if until_ok 5 bash -c "tail -n +$((was + 1)) n1.log | grep -qE '$4'"; then ok "and it says why"; else not_ok "$1: and it says why" "$(tail -n +$((was + 1)) n1.log)"; fi
	if grep -q "$HEARD" n1.log; then not_ok "$1: nothing is heard"; else ok "nothing is heard"; fi
}
refused "an agent with a certificate for a member's host" "$M2" agent "CN=agent,O=x\) is not valid for a server"
refused "a certificate of the same authority for another host" "$M3" other 'CN=ev\\+0Ail\) is not for the host .*127.77.0.3'
refused "another member's certificate" "$M2" m3 "claims to be member 0*$M2 .*CN=core3"
refused "a stranger with a member's certificate" 123456 m2 "member 0000000000123456 .*not a member of the cluster"
has "a server's certificate does not call" "$(forge "$M2" server)" "closed"
has "a peer without a certificate is refused" "$(python3 "$FORGE" 127.77.0.1 "$p1" "$CID" "$M2" ca.pem)" "closed"
for why in "unsuitable certificate purpose" "peer did not return a certificate"; do
	until_ok 5 grep -q "Refused a link from 127[0-9.]*:[0-9]*: $why" n1.log && ok "as is said: $why" || not_ok "as is said: $why" "$(grep Refused n1.log | tail -n 3)"
done
is "no frame of a refused peer was handled" "$(grep -c "$HEARD" n1.log)" 0
is "a joining replica with another member's certificate is refused" "$(python3 "$FORGE" 127.77.0.1 "$p1" --join "$URL3" ca.pem m2.pem m2.key)" "no answer"
is "a joining replica with its own certificate gets its id" "$(python3 "$FORGE" 127.77.0.1 "$p1" --join "$URL3" ca.pem m3.pem m3.key)" "it is $(printf %016x $((16#$M3)))"
forge "$M2" m2 >/dev/null
if until_ok 5 grep -q "Ended the link from member 0*$M2 .*$HEARD" n1.log; then ok "a member with its own certificate is heard"; else not_ok "a member with its own certificate is heard" "$(tail -n 2 n1.log)"; fi
began=$SECONDS
for _ in $(seq 10); do forge "$M3" other >/dev/null; done
LOGGED=$(grep -c "claims to be member 0*$M3 .* is not for the host" n1.log)
[ "$LOGGED" -ge 1 ] && [ "$LOGGED" -le $((1 + (SECONDS - began) / 10)) ] && ok "a refusal is logged once in a while" || not_ok "a refusal is logged once in a while" "$LOGGED times in $((SECONDS - began)) s"
# Another program with another certificate at a member's URL: a replica that connects to it sends it nothing.
kill "${PEERS[2]}"; wait "${PEERS[2]}" 2>/dev/null
unset 'PEERS[2]'
replica 3 other
if until_ok 10 grep -qE "Refused the answer of member 0*$M3 at 127.77.0.3:$p3: its certificate \(CN=ev\\\\0Ail\) is not for the host" n1.log; then
	ok "one that answers in a member's place is refused"; else not_ok "one that answers in a member's place is refused" "$(tail -n 2 n1.log)"; fi
if timeout 3 etcdctl --endpoints "127.0.0.1:$c3" put k w >/dev/null 2>&1; then not_ok "it does not take part"; else ok "it does not take part"; fi
is "the others go on" "$(at 1 put k x)" OK
over

# ---- certificates of another shape ----
for n in 1 2 3; do replica $n c$n --peer-cert-allowed-cn tenure; done
if until_ok 15 at 1 put k v; then ok "PeerCertAllowedCN"; else not_ok "PeerCertAllowedCN" "$(tail -n 3 n1.log)"; fi
M2=$(id_of 2)
refused "another common name" "$M2" m2 "CN=core2\) is not PeerCertAllowedCN=tenure"
over
for n in 1 2 3; do replica $n c$n --peer-cert-allowed-hostname cluster.example; done
if until_ok 15 at 1 put k v; then ok "PeerCertAllowedHostname"; else not_ok "PeerCertAllowedHostname" "$(tail -n 3 n1.log)"; fi
refused "another host" "$M2" m2 "CN=core2\) is not for PeerCertAllowedHostname=cluster.example"
over
for n in 1 2 3; do replica $n c$n; done
until_ok 10 grep -q "Refused the answer of" n1.log || not_ok "it says so" "$(tail -n 2 n1.log)"
if timeout 3 etcdctl --endpoints "127.0.0.1:$c1" put k v >/dev/null 2>&1; then not_ok "without either, such certificates are none" "it serves"; else ok "without either, such certificates are none"; fi
over
authority ca2
revoke ca2 crl2.pem
for n in 1 2; do replica $n m$n --peer-crl-file crl2.pem; done
until_ok 10 grep -q "Refused the answer of member .*: there is no revocation list of the CA that signed its certificate" n1.log && ok "a list of another CA is named" || not_ok "a list of another CA is named" "$(tail -n 2 n1.log)"
over
has "PeerCertAllowedCN and PeerCertAllowedHostname at once" "$("$BIN/tenure-core" -t --peer-cert-allowed-cn a --peer-cert-allowed-hostname b 2>&1)" "choose one"

# ---- plaintext ----
has "plaintext beyond this machine" "$("$BIN/tenure-core" -t --listen-peer-urls http://10.0.0.1:2380 2>&1)" "AllowPlaintextPeers=yes"
has "plaintext beyond this machine, in --initial-cluster" "$("$BIN/tenure-core" -t --name a --initial-cluster a=http://10.0.0.1:2380,b=http://10.0.0.2:2380,c=http://10.0.0.3:2380 2>&1)" "initial-cluster: http://10.0.0.1:2380 .*AllowPlaintextPeers=yes"
has "plaintext beyond this machine, when allowed" "$("$BIN/tenure-core" -t --listen-peer-urls http://10.0.0.1:2380 --allow-plaintext-peers 2>&1)" "AllowPlaintextPeers=yes"
has "https:// without a certificate" "$("$BIN/tenure-core" -t --name a --initial-cluster a=https://10.0.0.1:2380 2>&1)" "needs --peer-cert-file"

# ---- alone: no port, until somebody is to join ----
start_replica lone "$l1" "$l2"
alone() { timeout 10 etcdctl --endpoints "127.0.0.1:$l1" "$@"; }
until_ok 10 alone put k v
CID=$(grep -oE 'of cluster [0-9a-f]+' lone.log | tail -n 1 | cut -d' ' -f3)
is "alone it has no peer port" "$(python3 "$FORGE" 127.0.0.1 "$l2" "$CID" "$ID")" "no port"
has "a member on another machine, in plaintext" "$(alone member add x --peer-urls http://10.0.0.9:2380 2>&1)" "AllowPlaintextPeers=yes"
has "a learner is added" "$(alone member add x --learner --peer-urls "http://127.0.0.1:$p1" 2>&1)" "added to cluster"
X=$(alone member list | grep unstarted | grep -oE '^[0-9a-f]+')
has "with a second member there is a peer port, for members only" "$(until_ok 5 bash -c "! python3 '$FORGE' 127.0.0.1 $l2 $CID 1 | grep 'no port'"; python3 "$FORGE" 127.0.0.1 "$l2" "$CID" 12345)" "removed [0-9]+"
if grep -q "$HEARD" lone.log; then not_ok "a stranger is not heard"; else ok "a stranger is not heard"; fi
has "a member is removed" "$(alone member remove "$X")" "removed from cluster"
has "for a while callers are still told that they are removed" "$(python3 "$FORGE" 127.0.0.1 "$l2" "$CID" 12345)" "removed [0-9]+"
has "a minute later the port is closed" "$(until_ok 180 bash -c "python3 '$FORGE' 127.0.0.1 $l2 $CID 1 | grep 'no port'" && echo closed)" "closed"
finish
