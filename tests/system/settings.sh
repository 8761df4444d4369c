#!/usr/bin/env bash
# tenure-core in etcd's place: etcd's environment, options, file and unit; its TLS; sockets; clusters of any size; and the
# way from an etcd to a core and back.
# usage: BIN=build/release/bin DIR=build/settings-test tests/system/settings.sh [values unit tls sockets sizes moving]...
. "$(dirname "$0")/lib.sh"
wants_plain
. "$(dirname "$0")/authority_lib.sh"

BIN=$(cd "$BIN" && pwd)
CORE=$BIN/tenure-core CTL=$BIN/tenurectl A=http://127.0.0.1
cd "$DIR" || exit 1
ctl() { timeout 10 etcdctl "$@" 2>&1; } # etcdctl, with what it says
said() { tail -n 4 "$1.log"; }

# ---- what is taken for what, without a process that stays ----
# got PATTERN ARGUMENT...: lines of the settings in force.
got() { env -i "${ENV[@]}" "$CORE" -t "${@:2}" 2>err | grep -E "^($1)=" | paste -sd' '; cat err; }
ENV=()
# refuses WANTED ARGUMENT...: a sentence, and no process.
refuses() { has "refused: ${ENV[*]} ${*:2}" "$(env -i "${ENV[@]}" timeout 5 "$CORE" "${@:2}" 2>&1; echo "rc $?")" "^tenure-core: .*$1"; }

values() {
	local k all missing section key page was
	# Options, as etcd has them: one dash or two, bare numbers that are milliseconds, Go's durations and booleans.
	while read -r wanted args; do
		# shellcheck disable=SC2086
		is "$args" "$(got "${wanted%%=*}" $args)" "$wanted"
	done <<-END
		HeartbeatInterval=100ms --heartbeat-interval=100 --election-timeout 1000
		ElectionTimeout=1500ms -heartbeat-interval 100 -election-timeout 1.5s
		MinTTL=2s --election-timeout 1000
		MinTTL=1s --election-timeout 400
		AutoCompactionRetention=30m --auto-compaction-retention=30m
		AutoCompactionMode=revision --auto-compaction-mode=revision --auto-compaction-retention=1000
		WatchProgressNotifyInterval=90min --watch-progress-notify-interval=1h30m
		AuthTokenTTL=5min --auth-token-ttl 300
		StrictReconfigCheck=no --strict-reconfig-check=F
		ClientCertAuth=yes --client-cert-auth --trusted-ca-file=x
		QuotaBackendBytes=2147483648 --quota-backend-bytes=0
		MaxRequestBytes=100 --max-request-bytes=100
		ListenClientURLs=http://127.0.0.1:1,unix:///x --listen-client-urls=http://127.0.0.1:1 --listen-client-http-urls=unix:///x
		AdvertiseClientURLs=http://127.0.0.1:1 --listen-client-urls=http://127.0.0.1:1 --listen-client-http-urls=unix:///x
		LogLevel=warning --log-level=warn
		LogLevel=err --log-level=fatal
		TLSMinVersion=TLS1.3 --tls-min-version=TLS1.3
		PeerCertAllowedCN=a,b --peer-cert-allowed-cn=a,b
		InitialCluster=default=http://localhost:2380 --initial-cluster=default=http://localhost:2380 --initial-advertise-peer-urls=http://localhost:2380
		Name=x --force-new-cluster=false --name=x
		Name=n --proxy=off --enable-v2=false --auth-token=simple --discovery= --debug=false --unsafe-no-fsync=false --name n
	END

	# The environment; options go before it, and a file of ours knows none.
	ENV=(ETCD_NAME=e ETCD_HEARTBEAT_INTERVAL=70 ETCD_LISTEN_PEER_URLS= ETCD_UNSUPPORTED_ARCH=arm)
	is "the environment" "$(got 'Name|HeartbeatInterval|ListenPeerURLs')" "Name=e HeartbeatInterval=70ms ListenPeerURLs=http://127.0.0.1:2380"
	is "options go before it" "$(got 'Name|HeartbeatInterval' --name o)" "Name=o HeartbeatInterval=70ms"
	printf '[Core]\nName=f\n' >ours.conf
	has "a file of ours, without it" "$(got 'Name|HeartbeatInterval' --config-file ours.conf)" "^Name=f HeartbeatInterval=50ms"
	has "the ignored environment is logged" "$(got Name --config-file ours.conf)" "ETCD_NAME is ignored, since --config-file is given"
	is "options go before that" "$(got Name --config-file ours.conf --name o | head -n 1)" "Name=o"
	ENV=(ETCD_MAX_WALS=3 ETCD_TYPO=1 ETCD_PRE_VOTE=false)
	has "an option without effect says why" "$(got Name --wal-dir /w)" "^tenure-core: --wal-dir has no effect: the log is in --data-dir"
	has "a variable without effect says why" "$(got Name)" "ETCD_MAX_WALS has no effect: "
	has "an unknown variable of etcd's" "$(got Name)" "ETCD_TYPO in the environment is not a setting of etcd"
	ENV=(ETCD_HEARTBEAT_INTERVAL=fast) && refuses "ETCD_HEARTBEAT_INTERVAL must be a time from 10ms to 5s such as 500ms or 10s, not 'fast'"
	ENV=(ETCD_FORCE_NEW_CLUSTER=true) && refuses "run tenure-core --force-new-cluster once"
	ENV=(ETCD_EXPERIMENTAL_ENABLE_V2V3=/x) && refuses "ETCD_EXPERIMENTAL_ENABLE_V2V3 is not supported: the v2 API is gone"
	ENV=()

	# What will not come, each with what to do instead.
	refuses "--enable-v2=true is not supported: the v2 API is gone; use v3" --enable-v2
	refuses "--proxy=on is not supported: point clients at the replicas" --proxy on
	refuses "--discovery=http://x is not supported: there is no discovery service; name all replicas in --initial-cluster" --discovery http://x
	refuses "--discovery-srv=example.org is not supported: .*--initial-cluster" --discovery-srv=example.org
	refuses "use --watch-progress-notify-interval" --experimental-watch-progress-notify-interval=5s
	refuses "leave it out: " --experimental-initial-corrupt-check
	refuses "--unsafe-no-fsync=true is not supported: what is acknowledged is on disk" --unsafe-no-fsync
	refuses "--auth-token=jwt,.* is not supported" --auth-token=jwt,pub-key=x
	refuses "use --log-level=debug" --debug
	refuses "gateway is not supported" gateway start
	refuses "grpc-proxy is not supported" grpc-proxy
	refuses "--peer-client-cert-file=x is not supported: issue --peer-cert-file for clients and servers" --peer-client-cert-file x
	refuses "--election-timeout must be at least five times" --heartbeat-interval 300 --election-timeout 1000
	refuses "'TLS_RSA_WITH_RC4_128_SHA' is unknown or too weak" --cipher-suites TLS_RSA_WITH_RC4_128_SHA
	refuses "--tls-min-version is newer than --tls-max-version" --tls-min-version TLS1.3 --tls-max-version TLS1.2
	refuses "--client-crl-file needs --trusted-ca-file" --client-crl-file x
	refuses "not by sockets of a host" --listen-peer-urls unix:///x
	refuses "--name must be 1 to 127 bytes without commas and equals signs, not ''" --name=
	refuses "--name must be 1 to 127 bytes without commas and equals signs, not 'a,b'" --name a,b
	refuses "is not a URL of the form unix:///PATH, with a path of 107 bytes or less" --listen-client-urls "unix:///$(printf 'x%.0s' {1..120})"
	refuses "whoever reaches https://10.0.0.1:2380 can pretend to be a replica" --peer-auto-tls --listen-peer-urls https://10.0.0.1:2380
	refuses "unknown option '--heartbeat'" --heartbeat 1

	# Each setting of any etcd since 3.4 is known, here and in the manual page.
	all=$(etcd --help 2>&1 | grep -oE '^ +--[a-z0-9-]+' | tr -d ' '; sed -n '/^# SETTINGS/,/^# END/p' "$SYSTEM/settings.sh" | grep -oE -- '--[a-z0-9-]+')
	missing=$(for k in $(sort -u <<<"$all"); do "$CORE" "$k=" 2>&1 -t | grep -q "unknown option" && echo "$k"; done)
	is "every setting of etcd is known" "$missing" ""
	page=$(tr -d '\\' <"$SYSTEM/../../agent/tenure-core/tenure-core.8")
	missing=$(for k in $(sort -u <<<"$all" | grep -v experimental); do grep -qF -- "${k#--}" <<<"$page" || echo "$k"; done)
	is "every setting of etcd is in the manual page" "$missing" ""

	# Its file: keys at the top and in sections, lists, null, nanoseconds.
	sample
	is "a file of etcd's" "$(got 'Name|HeartbeatInterval|ElectionTimeout|AutoCompactionRetention|WatchProgressNotifyInterval|ClientCertAuth|PeerCertAllowedCN|TLSMinVersion|CipherSuites' --config-file etcd.conf.yml | head -n 1)" \
		"Name=n1 HeartbeatInterval=100ms ElectionTimeout=1s AutoCompactionRetention=1 WatchProgressNotifyInterval=5min ClientCertAuth=yes PeerCertAllowedCN=a,b CipherSuites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 TLSMinVersion=TLS1.2"
	has "stands alone" "$(ENV=(ETCD_NAME=e); got Name --config-file etcd.conf.yml --name o)" "Name=n1"
	has "ignored options are logged" "$(got Name --config-file etcd.conf.yml --name o)" "The options of the command line are ignored, as by etcd, because there is a file of settings"
	is "a file of etcd's, named by the environment" "$(ENV=(ETCD_CONFIG_FILE=etcd.conf.yml); got Name | head -n 1)" "Name=n1"
	cp etcd.conf.yml unnamed && is "a file of etcd's, recognized by its content" "$(got Name --config-file unnamed | head -n 1)" "Name=n1"
	printf 'name: x\nheartbeat-intervall: 3\n' >typo.yml && refuses "typo.yml:2: unknown setting 'heartbeat-intervall'" --config-file typo.yml
	printf 'name: x\n\nelection-timeout: soon\n' >bad.yml && refuses "bad.yml:3: election-timeout must be a time .*, not 'soon'" --config-file bad.yml
	printf 'peer-transport-security:\n  client-cert-file: x\n' >peer.yml && refuses "peer.yml:2: peer-transport-security.client-cert-file=x is not supported" --config-file peer.yml
	printf 'enable-v2: true\n' >v2.yml && refuses "v2.yml:1: enable-v2=true is not supported: the v2 API is gone" --config-file v2.yml
	printf 'name: [x\n' >torn.yml && refuses "torn.yml:2: " --config-file torn.yml
	refuses "none.yml: cannot read: No such file" --config-file none.yml
	is "the settings in force, read again" "$("$CORE" -t --config-file etcd.conf.yml 2>/dev/null >a.conf; "$CORE" -t --config-file a.conf | cmp a.conf - && echo same)" same
}

# With the keys of the sample that etcd ships.
sample() {
	cat >etcd.conf.yml <<-END
		# This is the configuration file for the etcd server.
		name: 'n1'
		data-dir: $DIR/yml
		wal-dir:
		snapshot-count: 10000
		heartbeat-interval: 100
		election-timeout: 1000
		quota-backend-bytes: 0
		listen-peer-urls: $A:${1:-2380}
		listen-client-urls: $A:${2:-2379}
		max-snapshots: 5
		max-wals: 5
		cors:
		initial-advertise-peer-urls: $A:${1:-2380}
		advertise-client-urls: $A:${2:-2379}
		discovery:
		discovery-fallback: 'proxy'
		discovery-proxy:
		discovery-srv:
		initial-cluster: n1=$A:${1:-2380}
		initial-cluster-token: 'etcd-cluster'
		initial-cluster-state: 'new'
		strict-reconfig-check: false
		enable-pprof: true
		proxy: 'off'
		proxy-failure-wait: 5000
		proxy-refresh-interval: 30000
		proxy-dial-timeout: 1000
		proxy-write-timeout: 5000
		proxy-read-timeout: 0
		watch-progress-notify-interval: 300000000000
		client-transport-security:
		  cert-file:
		  key-file:
		  client-cert-auth: true
		  trusted-ca-file: $DIR/ca.pem
		  auto-tls: false
		peer-transport-security:
		  cert-file:
		  key-file:
		  client-cert-auth: false
		  allowed-cn: [a, b]
		  auto-tls: false
		socket-options:
		  reuse-address: true
		self-signed-cert-validity: 1
		log-level: debug
		logger: zap
		log-outputs: [stderr]
		force-new-cluster: false
		auto-compaction-mode: periodic
		auto-compaction-retention: "1"
		cipher-suites: [
		  TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		  TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
		]
		tls-min-version: 'TLS1.2'
		tls-max-version: 'TLS1.3'
	END
}

# ---- a unit file of etcd's ----
# Debian's: its command line and its environment, as its unit gives them, on ports of our own.
unit() {
	local p c m e ep host named line unit_file=/lib/systemd/system/etcd.service
	read -r p c < <(free_ports 2)
	mkdir -p var/etcd
	line=$(sed -n 's/^ExecStart=//p' "$unit_file")
	mapfile -t ENV < <(sed -n 's/^Environment=//p' "$unit_file" | grep -v '^DAEMON_ARGS=' | sed "s|%H|$(hostname)|; s|/var/lib|$DIR/var|")
	is "Debian's unit is the one that this test knows" "$line ${#ENV[@]}" '/usr/bin/etcd $DAEMON_ARGS 2'
	start unit env -i "${ENV[@]}" ETCD_LISTEN_CLIENT_URLS="$A:$c" ETCD_ADVERTISE_CLIENT_URLS="$A:$c" ETCD_LISTEN_PEER_URLS="http://localhost:$p" NOTIFY_SOCKET="$PLAIN/notify" "$CORE"
	if until_ok 10 ctl --endpoints "127.0.0.1:$c" put k v; then ok "Debian's unit, with the program's name changed"; else not_ok "Debian's unit" "$(said unit)"; fi
	is "Debian's unit: the member has the host's name" "$(ctl --endpoints "127.0.0.1:$c" member list -w json | jq -r '.members[0].name')" "$(hostname)"
	is "Debian's unit: the data is in the unit's directory" "$(compgen -G "$DIR/var/etcd/default/log-*" >/dev/null && echo yes)" yes
	kill "$PID" && wait "$PID"

	# A port for probes alone, as kubeadm has it.
	read -r m < <(free_ports 1)
	start probes "$CORE" --data-dir probes --listen-client-urls "$A:$c" --listen-peer-urls "$A:$p" --listen-metrics-urls "$A:$m,unix://$PLAIN/m.sock" --listen-client-http-urls "unix://$PLAIN/h.sock" --max-connections 100
	if until_ok 10 curl -sf "$A:$m/health"; then ok "--listen-metrics-urls"; else not_ok "--listen-metrics-urls" "$(said probes)"; fi
	is "how it is" "$(curl -s "$A:$m/readyz")" ok
	has "--listen-metrics-urls: /metrics" "$(curl -s "$A:$m/metrics")" "^etcd_server_has_leader 1"
	is "--listen-metrics-urls: a socket" "$(curl -s --unix-socket "$PLAIN/m.sock" http://x/livez)" ok
	is "--listen-metrics-urls: other paths are not served" "$(curl -s -o /dev/null -w '%{http_code}' "$A:$m/version") $(curl -s -o /dev/null -w '%{http_code}' -d '{"key":"aw=="}' "$A:$m/v3/kv/range")" "404 404"
	has "--listen-metrics-urls: gRPC is not served" "$(timeout 10 etcdctl --dial-timeout 3s --command-timeout 3s --endpoints "127.0.0.1:$m" get k 2>&1)" "deadline|Error"
	# Who takes all of its places leaves those of clients.
	is "--listen-metrics-urls: it has connection slots of its own" "$(/usr/bin/python3 -c '
import http.client, socket, sys
probes, client = (int(p) for p in sys.argv[1:])
asked, n = [socket.create_connection(("127.0.0.1", probes), 10) for _ in range(300)], 0
for s in asked:
    try:
        s.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        n += s.recv(100).startswith(b"HTTP/1.1 200 ")
    except OSError:
        pass
c = http.client.HTTPConnection("127.0.0.1", client, timeout=10)
c.request("GET", "/livez")
print(240 <= n <= 256, c.getresponse().status)' "$m" "$c" 2>&1)" "True 200"
	has "--listen-client-http-urls" "$(curl -s --unix-socket "$PLAIN/h.sock" -d '{"key":"aw=="}' http://x/v3/kv/range)" '"revision":"1"'
	kill "$PID" && wait "$PID"

	# Names by which it is asked, as etcd takes them; by TLS, by gRPC and at a port for probes every one is good.
	read -r e ep < <(free_ports 2)
	start named "$CORE" --data-dir named --listen-client-urls "$A:$c,https://127.0.0.1:$m" --listen-peer-urls "$A:$p" --listen-metrics-urls "unix://$PLAIN/m.sock" --auto-tls --host-whitelist core.example,::1
	named=$PID
	until_ok 10 curl -sf -o here "$A:$c/health" -H 'Host: core.example' || not_ok "--host-whitelist" "$(said named)"
	by_name() { curl -s -o "$1.said" -w '%{http_code}' -m 5 -H "Host: $2" "${@:3}"; }
	is "a page that gave its name our address is refused" "$(by_name 421 evil.example:2379 -H 'Origin: http://evil.example:2379' -d '{"key":"aw=="}' "$A:$c/v3/kv/range")$(cat 421.said)" \
		"421Misdirected Request: this name is not in --host-whitelist"
	is "with TLS, with gRPC and on a port for probes any host name is accepted" "$(by_name tls evil.example -k "https://127.0.0.1:$m/health") $(by_name probe evil.example --unix-socket "$PLAIN/m.sock" http://x/livez) $(ctl --endpoints "127.0.0.1:$c" put k v)" "200 200 OK"
	if command -v etcd >/dev/null; then
		start_etcd rebound "$e" "$ep" --host-whitelist core.example,::1
		until_ok 20 curl -sf -o here "$A:$e/health" -H 'Host: core.example' || not_ok "an etcd with --host-whitelist" "$(said rebound)"
		for host in core.example core.example:2379 core.example.:1 x.core.example core.example:1:2 ::1 '[::1]' '[::1]:2379' 127.0.0.1 '*'; do
			is "--host-whitelist and Host: $host" "$(by_name ours "$host" "$A:$c/version")" "$(by_name etcds "$host" "$A:$e/version")"
		done
		kill "$PID" && wait "$PID"
	else
		skip "--host-whitelist beside etcd's" "no etcd here"
	fi
	kill "$named" && wait "$named"

	# A data directory of etcd's is not overwritten.
	mkdir -p old/member/wal
	has "etcd's own data is left alone" "$(timeout 5 "$CORE" --data-dir "$DIR/old" --listen-client-urls "$A:$c" 2>&1; echo "rc $?")" "contains data of etcd .*give another --data-dir, and copy the keys"
	is "no file is created beside etcd's data" "$(find old -type f)" ""

	# Its file, for a process that stays.
	sample "$p" "$c"
	sed -i '/client-transport-security/,/auto-tls/d' etcd.conf.yml
	start yml env -i ETCD_NAME=ignored "$CORE" --config-file etcd.conf.yml
	if until_ok 10 ctl --endpoints "127.0.0.1:$c" put k v; then ok "a file of etcd's starts a replica"; else not_ok "a file of etcd's starts a replica" "$(said yml)"; fi
	has "settings without effect are logged" "$(cat yml.log)" "max-wals has no effect"
	kill "$PID" && wait "$PID"

	# Requests may be small.
	start small "$CORE" --data-dir small --listen-client-urls "$A:$c" --listen-peer-urls "$A:$p" --max-request-bytes 100
	if until_ok 10 ctl --endpoints "127.0.0.1:$c" put k v; then ok "a small request"; else not_ok "a small request" "$(said small)"; fi
	has "a larger one than --max-request-bytes" "$(ctl --endpoints "127.0.0.1:$c" put k "$(printf '%200s' x)")" "request is too large"
	kill "$PID" && wait "$PID"
}

# ---- TLS ----
# as CERTIFICATE COMMAND...: etcdctl with that certificate.
as() { timeout 10 etcdctl --endpoints "https://127.0.0.1:$c" --cacert ca.pem --cert "$1.pem" --key "$1.key" "${@:2}" 2>&1; }
secure() { # OPTION...: a replica with TLS for its clients
	rm -rf tls tls.log
	start tls "$CORE" --data-dir tls --listen-client-urls "https://127.0.0.1:$c" --listen-peer-urls "$A:$p" --cert-file server.pem --key-file server.key \
		--trusted-ca-file ca.pem --client-cert-auth "$@"
}
over() { kill "$PID" && wait "$PID"; }
takes() { if until_ok 10 as "$2" put k v; then ok "$1"; else not_ok "$1" "$(as "$2" put k v; said tls)"; fi; }
takes_not() { has "$1" "$(timeout 10 etcdctl --dial-timeout 3s --command-timeout 3s --endpoints "https://127.0.0.1:$c" --cacert ca.pem --cert "$2.pem" --key "$2.key" put k v 2>&1)" "context deadline exceeded|bad certificate|revoked|handshake"; }
logs() { grep -q "Refused client 127\.0\.0\.1:[0-9]*: $1" tls.log; } # since the start of this replica
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$c") 2>/dev/null; }
shakes() { openssl s_client -connect "127.0.0.1:$c" -CAfile ca.pem -cert good.pem -key good.key "$@" </dev/null 2>&1 | grep -oE "^ *(New, (TLSv1.[23], Cipher is .*|\(NONE\).*))" | tr -d ' '; }

tls() {
	local c p f
	read -r c p f < <(free_ports 3)
	authority ca
	certificate server /CN=server IP:127.0.0.1
	certificate good "/CN=good one" DNS:web1.example.org
	certificate bad /CN=bad DNS:web2.example.org

	# Revoked clients; the list may be out of date, but must be of the CA that signed.
	revoke ca crl.pem bad
	secure --client-crl-file crl.pem
	takes "a client that nobody has revoked" good
	takes_not "one whose certificate is revoked" bad
	until_ok 5 logs "certificate revoked" && ok "which is logged" || not_ok "which is logged" "$(said tls)"
	revoke ca crl.pem good && kill -HUP "$PID"
	until_ok 5 grep -q "certificates were reloaded" tls.log
	takes_not "one that is revoked later, from the reload on" good
	takes "and the other is not any more" bad
	over
	EXPIRES=20200101000000Z revoke ca crl.pem bad
	secure --client-crl-file crl.pem
	takes "an old list keeps nobody out" good
	takes_not "whom it does not name" bad
	over
	revoke ca crl.pem bad && openssl crl -in crl.pem -outform DER -out crl.der
	secure --client-crl-file crl.der
	takes "a list in DER" good
	takes_not "revokes as well" bad
	over
	SINCE=20400101000000Z EXPIRES=20410101000000Z revoke ca crl.pem bad
	secure --client-crl-file crl.pem
	takes "a list of tomorrow keeps nobody out" good
	takes_not "whom it does not name, either" bad
	over
	authority ca2
	revoke ca2 crl2.pem
	secure --client-crl-file crl2.pem
	until_ok 10 listens
	takes_not "a list of another CA keeps all out" good
	until_ok 5 logs "there is no revocation list of the CA that signed its certificate" && ok "and it is said why" || not_ok "and it is said why" "$(said tls)"
	over
	has "no list" "$(timeout 5 "$CORE" --data-dir none --listen-client-urls "https://127.0.0.1:$c" --cert-file server.pem --key-file server.key --trusted-ca-file ca.pem --client-crl-file server.key 2>&1)" \
		"cannot use the certificate revocation list 'server.key': no start line\."
	has "no file" "$(timeout 5 "$CORE" --data-dir none --listen-client-urls "https://127.0.0.1:$c" --cert-file nowhere.pem --key-file server.key 2>&1)" "cannot use the certificate 'nowhere.pem': No such file or directory\."

	# Who is let in.
	secure --client-cert-allowed-hostname web1.example.org,web9.example.org
	takes "a client whose host is allowed" good
	takes_not "one of another host" bad
	until_ok 5 logs "its certificate has none of the names, or hosts, that are allowed" && ok "nor without a word" || not_ok "nor without a word" "$(said tls)"
	over
	secure --client-cert-allowed-cn "someone,good one"
	takes "a client whose name is allowed" good
	takes_not "one of another name" bad
	over

	# Which TLS.
	secure --cipher-suites TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305
	takes "a cipher suite by Go's name" good
	is "the given cipher suite is used with TLS 1.2" "$(shakes -tls1_2)" "New,TLSv1.2,CipherisECDHE-ECDSA-CHACHA20-POLY1305"
	has "there is no other" "$(shakes -tls1_2 -cipher ECDHE-ECDSA-AES128-GCM-SHA256)" "NONE"
	has "the cipher suites of TLS 1.3 are the default ones" "$(shakes -tls1_3)" "TLSv1.3"
	over
	secure --tls-min-version TLS1.3
	takes "TLS 1.3 and nothing older" good
	has "1.2 is refused" "$(shakes -tls1_2)" "NONE"
	over
	secure --tls-max-version TLS1.2
	takes "TLS 1.2 and nothing newer" good
	has "1.3 is refused" "$(shakes -tls1_3)" "NONE"
	over

	# Self-signed certificates.
	start auto "$CORE" --data-dir auto --listen-client-urls "https://127.0.0.1:$c" --listen-peer-urls "$A:$p" --auto-tls
	if until_ok 10 ctl --endpoints "https://127.0.0.1:$c" --insecure-transport=false --insecure-skip-tls-verify put k v; then ok "--auto-tls"; else not_ok "--auto-tls" "$(said auto)"; fi
	has "--auto-tls: the certificate is for the advertised host" "$(openssl s_client -connect "127.0.0.1:$c" </dev/null 2>/dev/null | openssl x509 -noout -ext subjectAltName)" "IP Address:127.0.0.1"
	has "--auto-tls: a client with a CA does not trust it" "$(ctl --dial-timeout 3s --command-timeout 3s --endpoints "https://127.0.0.1:$c" --cacert ca.pem get k)" "authority|deadline"
	over
	peers_auto
}

# Replicas with certificates that each makes itself: what goes between them cannot be read.
peers_auto() {
	local i ports cluster pids=()
	mapfile -t ports < <(free_ports 6 | tr ' ' '\n')
	cluster=a0=https://127.0.0.1:${ports[0]},a1=https://127.0.0.1:${ports[1]},a2=https://127.0.0.1:${ports[2]}
	for i in 0 1 2; do
		start "a$i" "$CORE" --name "a$i" --data-dir "a$i.d" --listen-client-urls "$A:${ports[3 + i]}" --listen-peer-urls "https://127.0.0.1:${ports[i]}" \
			--initial-cluster "$cluster" --peer-auto-tls
		pids+=("$PID")
	done
	if until_ok 20 ctl --endpoints "127.0.0.1:${ports[5]}" put k v; then ok "--peer-auto-tls"; else not_ok "--peer-auto-tls" "$(said a0)"; fi
	is "the certificate is one of its own" "$(openssl s_client -connect "127.0.0.1:${ports[0]}" </dev/null 2>/dev/null | openssl x509 -noout -subject -issuer | paste -sd' ')" "subject=O = tenure issuer=O = tenure"
	kill "${pids[@]}"; wait "${pids[@]}"
}

# ---- sockets of a host ----
sockets() {
	local c p s=$PLAIN/core.sock
	read -r c p < <(free_ports 2)
	make_certificates
	certificate local /CN=local IP:127.0.0.1,DNS:localhost
	start unix "$CORE" --data-dir unix --listen-client-urls "$A:$c,unix://$s,unixs://$PLAIN/tls.sock" --listen-peer-urls "$A:$p" --cert-file local.pem --key-file local.key \
		--log-level debug
	CORE_PID=$PID
	if until_ok 10 ctl --endpoints "unix://$s" put k v; then ok "etcdctl by a socket"; else not_ok "etcdctl by a socket" "$(said unix)"; fi
	is "etcdctl by TCP at the same time" "$(ctl --endpoints "127.0.0.1:$c" get k --print-value-only)" v
	has "tenurectl" "$("$CTL" --endpoints "unix://$s" core members --no-legend 2>&1)" "default +leader"
	has "as gRPC writes it" "$("$CTL" --endpoints "unix:$s" core members --no-legend 2>&1)" "default +leader"
	has "tenurectl by a socket with TLS" "$("$CTL" --endpoints "unixs://$PLAIN/tls.sock" --cacert ca.pem core members --no-legend 2>&1)" "default +leader"
	has "the certificate of a socket is checked for localhost" "$(openssl s_client -unix "$PLAIN/tls.sock" -CAfile ca.pem -verify_hostname localhost -verify_return_error </dev/null 2>&1)" "Verify return code: 0"
	has "libtenure" "$(timeout 10 "$CTL" --endpoints "unix://$s" cache --once k 2>&1)" "k.*v"
	has "the clients there are processes" "$(cat unix.log)" "Client unix:[0-9]+ is gone"
	kill -9 "$CORE_PID"; wait "$CORE_PID" 2>/dev/null
	is "a killed replica leaves its socket behind" "$([ -S "$s" ] && echo there)" there
	start unix "$CORE" --data-dir unix --listen-client-urls "unix://$s" --listen-peer-urls "$A:$p"; CORE_PID=$PID
	if until_ok 10 ctl --endpoints "unix://$s" get k; then ok "the next one takes its place"; else not_ok "the next one takes its place" "$(said unix)"; fi
	has "a socket that is in use is not replaced" "$(timeout 5 "$CORE" --data-dir unix2 --listen-client-urls "unix://$s" 2>&1)" "cannot listen for clients on unix://.*: Address already in use"
	has "another file is not replaced by a socket" "$(echo kept >"$PLAIN/file"; timeout 5 "$CORE" --data-dir unix2 --listen-client-urls "unix://$PLAIN/file" 2>&1)" "/file: File exists\.$"
	is "that file stays as it was" "$(cat "$PLAIN/file")" kept
	is "the replica still answers on its socket" "$(ctl --endpoints "unix://$s" get k --print-value-only)" v
	kill "$CORE_PID"; wait "$CORE_PID"
	is "a replica that stops removes its socket" "$([ -e "$s" ] && echo there)" ""
}
# ---- clusters of 2, 4 and 7 ----
# form N: replicas 1 to N, in CLIENTS and PIDS_OF.
form() {
	local n ports i
	n=$1 CLIENTS=() PIDS_OF=()
	mapfile -t ports < <(free_ports $((2 * n)) | tr ' ' '\n')
	CLUSTER=$(for ((i = 0; i < n; i++)); do printf '%s' "${i:+}$([ $i = 0 ] || echo ,)r$i=$A:${ports[i]}"; done)
	for ((i = 0; i < n; i++)); do
		CLIENTS[i]=127.0.0.1:${ports[n + i]}
		start "of$n.$i" env ETCD_NAME="r$i" ETCD_DATA_DIR="$DIR/of$n.$i" ETCD_LISTEN_CLIENT_URLS="http://${CLIENTS[i]}" ETCD_ADVERTISE_CLIENT_URLS="http://${CLIENTS[i]}" \
			ETCD_LISTEN_PEER_URLS="$A:${ports[i]}" ETCD_INITIAL_ADVERTISE_PEER_URLS="$A:${ports[i]}" ETCD_INITIAL_CLUSTER="$CLUSTER" ETCD_INITIAL_CLUSTER_STATE=new \
			ETCD_INITIAL_CLUSTER_TOKEN=etcd-cluster "$CORE"
		PIDS_OF[i]=$PID
	done
}
survive() { # N TOLERATED
	local n=$1 may=$2 i last=$(($1 - 1))
	form "$n"
	if until_ok 20 ctl --endpoints "${CLIENTS[last]}" put k "$n"; then ok "$n replicas form a cluster"; else not_ok "$n replicas form a cluster" "$(said "of$n.0")"; fi
	is "the cluster has $n members" "$(ctl --endpoints "${CLIENTS[0]}" member list -w json | jq '.members | length')" "$n"
	[ $((n % 2)) = 1 ] || has "an even number is remarked on" "$(cat "of$n.0.log")" "$n replicas tolerate no more failures than $((n - 1)): run an odd number"
	for ((i = 0; i < may; i++)); do kill -9 "${PIDS_OF[i]}"; wait "${PIDS_OF[i]}" 2>/dev/null; done
	if until_ok 20 ctl --endpoints "${CLIENTS[last]}" put k "after $may"; then ok "$n survive $may"; else not_ok "$n survive $may" "$(said "of$n.$last")"; fi
	kill -9 "${PIDS_OF[may]}"; wait "${PIDS_OF[may]}" 2>/dev/null
	has "$n do not survive $((may + 1))" "$(timeout 10 etcdctl --command-timeout 1500ms --endpoints "${CLIENTS[last]}" put k never 2>&1)" "Error|timed out|no leader|deadline"
	for ((i = may + 1; i < n; i++)); do kill "${PIDS_OF[i]}"; wait "${PIDS_OF[i]}"; done
}
sizes() {
	local i eight
	survive 2 0
	survive 4 1
	survive 7 3
	eight=$(for i in 1 2 3 4 5 6 7 8; do printf '%s' "$([ $i = 1 ] || echo ,)r$i=$A:$i"; done)
	refuses "a new cluster has 7 replicas at most" --name r1 --initial-cluster "$eight"
	is "8 where one is being replaced" "$(got Name --name r1 --initial-cluster "$eight" --initial-cluster-state existing | head -n 1)" Name=r1
}

# ---- from an etcd, and back ----
mirror() { # NAME FROM TO: copies the keys, and goes on with what changes
	start "$1" etcdctl --endpoints "$2" make-mirror "$3"
	MIRROR=$PID
}
same() { [ "$(ctl --endpoints "$1" get "" --prefix --sort-by=key)" = "$(ctl --endpoints "$2" get "" --prefix --sort-by=key)" ]; }
moving() {
	local e ep c p b bp lease id
	read -r e ep c p b bp < <(free_ports 6)
	start_etcd etcd "$e" "$ep"
	start core "$CORE" --data-dir core --listen-client-urls "$A:$c" --listen-peer-urls "$A:$p"
	start_etcd back "$b" "$bp"
	E=127.0.0.1:$e C=127.0.0.1:$c B=127.0.0.1:$b
	until_ok 15 ctl --endpoints "$E" put first v && until_ok 15 ctl --endpoints "$C" get x && until_ok 15 ctl --endpoints "$B" get x
	for ((i = 0; i < 300; i++)); do printf 'put key%03d value%d\n' "$i" "$i"; done >puts
	for ((i = 0; i < 3; i++)); do { echo; sed -n "$((i * 100 + 1)),$((i * 100 + 100))p" puts; printf '\n\n\n'; } | timeout 20 etcdctl --endpoints "$E" txn >/dev/null; done
	is "an etcd with keys" "$(ctl --endpoints "$E" get "" --prefix --keys-only | grep -c .)" 301
	lease=$(ctl --endpoints "$E" lease grant 600 | grep -oE '[0-9a-f]{16}')
	ctl --endpoints "$E" put --lease="$lease" locks/held x >/dev/null

	mirror there "$E" "$C"
	if until_ok 20 same "$E" "$C"; then ok "make-mirror copies every key to the core"; else not_ok "make-mirror copies every key to the core" "$(said there; ctl --endpoints "$C" get "" --prefix --count-only -w fields)"; fi
	ctl --endpoints "$E" put key000 changed >/dev/null; ctl --endpoints "$E" del key001 >/dev/null
	if until_ok 10 same "$E" "$C"; then ok "and goes on with what changes"; else not_ok "and goes on with what changes" "$(said there)"; fi
	kill "$MIRROR"; wait "$MIRROR" 2>/dev/null
	# The recipe's loop: a key with a lease came without it, and would stay for ever.
	for id in $(ctl --endpoints "$E" lease list | grep -E '^[0-9a-f]+$'); do
		ctl --endpoints "$E" lease timetolive "$id" --keys | grep -o 'attached keys(.*)' | sed 's/^attached keys(\[//; s/\])$//' | tr ' ' '\n'
	done >leased
	is "keys of leases are known" "$(cat leased)" locks/held
	while read -r k; do ctl --endpoints "$C" del "$k" >/dev/null; done <leased
	lease=$(ctl --endpoints "$C" lease grant 600 | grep -oE '[0-9a-f]{16}')
	ctl --endpoints "$C" put --lease="$lease" locks/held x >/dev/null
	if same "$E" "$C"; then ok "whose holders put them again, at the core"; else not_ok "whose holders put them again, at the core"; fi
	has "the keys are on their leases" "$(ctl --endpoints "$C" lease timetolive "$lease" --keys)" "locks/held"

	mirror again "$C" "$B"
	if until_ok 20 same "$C" "$B"; then ok "and back to an etcd"; else not_ok "and back to an etcd" "$(said again)"; fi
	ctl --endpoints "$C" put key002 changed >/dev/null
	if until_ok 10 same "$C" "$B"; then ok "with what changes there"; else not_ok "with what changes there" "$(said again)"; fi
	kill "$MIRROR"; wait "$MIRROR" 2>/dev/null

	# What etcdctl makes of our snapshot, small and large.
	ctl --endpoints "$C" snapshot save snap.db >/dev/null
	is "etcdctl snapshot status of ours ends with a sentence" "$(ctl snapshot status snap.db)" "Error: invalid database"
	for ((i = 0; i < 4; i++)); do head -c 1000000 /dev/urandom | base64 -w 0 | timeout 10 etcdctl --endpoints "$C" put "large$i" >/dev/null; done
	ctl --endpoints "$C" snapshot save large.db >/dev/null
	is "etcdctl snapshot status of a large one" "$(ctl snapshot status large.db)" "Error: invalid database"
}

# Settings that Debian's etcd does not have yet: of 3.5, 3.6 and 3.7.
# SETTINGS
: <<'END'
--bootstrap-defrag-threshold-megabytes --client-cert-file --client-key-file --compact-hash-check-time --compaction-batch-limit
--compaction-sleep-interval --corrupt-check-time --discovery-cacert --discovery-cert --discovery-dial-timeout
--discovery-endpoints --discovery-insecure-skip-tls-verify --discovery-insecure-transport --discovery-keepalive-time
--discovery-keepalive-timeout --discovery-key --discovery-password --discovery-request-timeout --discovery-token
--discovery-user --distributed-tracing-address --distributed-tracing-instance-id --distributed-tracing-sampling-rate
--distributed-tracing-service-name --downgrade-check-time --enable-distributed-tracing --enable-grpc-gateway
--enable-log-rotation --experimental-bootstrap-defrag-threshold-megabytes --experimental-compact-hash-check-enabled
--experimental-compact-hash-check-time --experimental-compaction-sleep-interval --experimental-distributed-tracing-address
--experimental-distributed-tracing-instance-id --experimental-distributed-tracing-sampling-rate
--experimental-distributed-tracing-service-name --experimental-downgrade-check-time
--experimental-enable-distributed-tracing --experimental-enable-lease-checkpoint-persist --experimental-max-learners
--experimental-memory-mlock --experimental-snapshot-catchup-entries --experimental-stop-grpc-service-on-defrag
--experimental-txn-mode-write-with-shared-buffer --experimental-warning-unary-request-duration --feature-gates
--log-format --log-rotation-config-json --max-learners --memory-mlock --next-cluster-version-compatible
--peer-client-cert-file --peer-client-key-file --peer-skip-client-san-verification --raft-read-timeout
--raft-write-timeout --self-signed-cert-validity --snapshot-catchup-entries --socket-reuse-address --socket-reuse-port
--tls-max-version --tls-min-version --unsafe-no-fsync --v2-deprecation --warning-apply-duration
--warning-unary-request-duration --watch-progress-notify-interval --client-cert-allowed-hostname --listen-client-http-urls
END
# END

for part in "${@:-values unit tls sockets sizes moving}"; do
	for p in $part; do echo "== $p"; "$p"; done
done

finish
