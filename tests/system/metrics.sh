#!/usr/bin/env bash
# /metrics of three replicas: what Prometheus' own tools say of the page, of the rules and of the dashboard; its names beside a real
# etcd's; and numbers that move as they should.
# usage: BIN=build/release/bin DIR=build/metrics-test tests/system/metrics.sh
. "$(dirname "$0")/lib.sh"
CONF=$SYSTEM/../../conf
read -r c1 c2 c3 p1 p2 p3 e ep w < <(free_ports 9)
A=http://127.0.0.1
INITIAL="n1=$A:$p1,n2=$A:$p2,n3=$A:$p3"
for n in 1 2 3; do
	c=c$n p=p$n
	start_replica "n$n" "${!c}" "${!p}" --initial-cluster "$INITIAL"
	CORE[n]=$PID
done
E() { timeout 5 etcdctl --endpoints "127.0.0.1:$c1" "$@"; }
port() { local c=c$1; echo "${!c}"; }
scrape() { curl -sS -m 5 "${@:2}" "$A:$(port "$1")/metrics"; }
# value REPLICA SAMPLE: the figure of the sample that is called exactly so, labels included; and the sum of all of a name.
value() { scrape "$1" | awk -v name="$2" 'index($0, name " ") == 1 {print $NF}'; }
total() { scrape "$1" | awk -v name="$2" '$1 == name || index($1, name "{") == 1 {n += $NF} END {print n + 0}'; }
at_least() { awk -v v="$(total "$1" "$2")" -v want="$3" 'BEGIN {exit !(v >= want)}'; }
each_at_least() { local n; for n in 1 2 3; do at_least "$n" "$1" "$2" || return 1; done; }
shows() { [ "$(value "$1" "$2")" = "$3" ]; }
names() { sed -E '/^#/d; s/[{ ].*//; s/_(bucket|sum|count)$//' | sort -u; }
leader() { local n; for n in 1 2 3; do [ -n "${CORE[n]}" ] && shows "$n" etcd_server_is_leader 1 && echo "$n" && return; done; return 1; }
until_ok 20 E put x y || { not_ok "three replicas serve"; finish; exit 1; }
until_ok 10 leader || { not_ok "one of them leads" "$(scrape 1 | head -n 3)"; finish; exit 1; }
L=$(leader)
timeout 5 etcdctl --endpoints "127.0.0.1:$(port "$L")" get x >/dev/null # there are times of calls once there are calls

# ---- what the tools say ----
lint() { scrape "$1" | promtool check metrics 2>&1; }
for n in 1 2 3; do is "replica $n: promtool finds nothing to say about the page" "$(lint "$n"; echo $?)" 0; done
type_of() { scrape "$L" -o /dev/null -w '%{content_type}' "$@"; }
is "the older text is what is not asked for" "$(type_of)" "text/plain; version=0.0.4; charset=utf-8"
is "OpenMetrics is what is" "$(type_of -H 'Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5')" "application/openmetrics-text; version=1.0.0; charset=utf-8"
while read -r wanted accept; do
	has "Accept: $accept" "$(type_of -H "Accept: $accept")" "^$wanted;"
done <<-END
	text/plain */*
	application/openmetrics-text application/openmetrics-text
	application/openmetrics-text application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1
	application/openmetrics-text application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2
	text/plain application/openmetrics-text;q=0,text/plain
	text/plain text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.1
	text/plain application/openmetrics-text;version=9.0.0,text/plain;q=0.1
END
open_metrics() { scrape "$1" -H 'Accept: application/openmetrics-text;version=1.0.0'; }
is "a strict reader takes it" "$(open_metrics "$L" | /usr/bin/python3 -c 'import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read
print(len(list(read(sys.stdin.read()))) > 90)' 2>&1)" True
is "OpenMetrics has the same names" "$(diff <(open_metrics "$L" | names) <(scrape "$L" | names))" ""
is "promtool takes the rules" "$(promtool check rules "$CONF/prometheus/tenure.rules.yml" >"$DIR/rules" 2>&1; echo $?)" 0
is "each rule passes its test" "$(promtool test rules "$SYSTEM/metrics_rules.yml" >"$DIR/rules.test" 2>&1; echo $?)" 0
alerts() { sed -n 's/^ *- alert: //p' "$CONF/prometheus/tenure.rules.yml" | sort; }
is "each alert has a test in which it calls" "$(awk '/alertname:/ {a = $2} /exp_labels/ {print a}' "$SYSTEM/metrics_rules.yml" | sort -u)" "$(alerts)"

# ---- names ----
# What the rules and the dashboard name is on the leader's page, but for what there is only when something is wrong, or was renewed.
wanted() {
	{ grep -v '^ *#' "$CONF/prometheus/tenure.rules.yml"; jq -r '.panels[].targets[]?.expr' "$CONF/grafana/tenure-core.json"; } |
		grep -oE '\b(etcd|grpc|process|tenure)_[a-z_]+' | grep -vE '^(grpc_(code|method|service|type))$' | sed -E 's/_(bucket|sum|count)$//' | sort -u
}
is "the rules and the dashboard name what there is" "$(comm -23 <(wanted) <(scrape "$L" | sed -n 's/^# HELP \([^ ]*\).*/\1/p' | sort -u))" ""
is "rules and dashboard name at least 40 metrics" "$([ "$(wanted | wc -l)" -ge 40 ]; echo $?)" 0
# etcd's own alerts and dashboard (contrib/mixin), and what operators' lists name besides.
for name in etcd_server_has_leader etcd_server_is_leader etcd_server_leader_changes_seen_total etcd_server_heartbeat_send_failures_total etcd_server_proposals_committed_total \
	etcd_server_proposals_applied_total etcd_server_proposals_pending etcd_server_proposals_failed_total etcd_server_slow_apply_total etcd_server_slow_read_indexes_total \
	etcd_server_quota_backend_bytes etcd_server_version etcd_server_id etcd_cluster_version etcd_server_health_success etcd_server_health_failures \
	etcd_disk_wal_fsync_duration_seconds etcd_disk_backend_commit_duration_seconds etcd_mvcc_db_total_size_in_bytes etcd_mvcc_db_total_size_in_use_in_bytes \
	etcd_network_peer_round_trip_time_seconds etcd_network_peer_sent_bytes_total etcd_network_peer_received_bytes_total etcd_network_peer_sent_failures_total \
	etcd_network_active_peers etcd_network_client_grpc_sent_bytes_total etcd_network_client_grpc_received_bytes_total grpc_server_started_total grpc_server_handled_total \
	grpc_server_handling_seconds etcd_debugging_lease_granted_total etcd_debugging_lease_revoked_total etcd_debugging_lease_renewed_total etcd_debugging_lease_ttl_total \
	etcd_debugging_server_lease_expired_total etcd_debugging_mvcc_keys_total etcd_debugging_mvcc_watcher_total etcd_debugging_mvcc_slow_watcher_total \
	etcd_debugging_mvcc_watch_stream_total etcd_debugging_mvcc_events_total etcd_debugging_mvcc_db_total_size_in_bytes process_resident_memory_bytes \
	process_open_fds process_max_fds process_cpu_seconds_total process_start_time_seconds; do
	echo "$name"
done | sort >"$DIR/common"
is "each name of etcd's that dashboards use is there" "$(comm -23 "$DIR/common" <(scrape "$L" | names))" ""

if command -v etcd >/dev/null; then
	start_etcd etcd "$e" "$ep" --metrics extensive
	until_ok 20 curl -sf -o "$DIR/etcd.page" "$A:$e/metrics" || not_ok "an etcd to compare with"
	until_ok 10 timeout 5 etcdctl --endpoints "127.0.0.1:$e" put x y || not_ok "it serves"
	curl -s "$A:$e/metrics" >"$DIR/etcd.page"
	scrape "$L" >"$DIR/page"
	# What is of Go's runtime, of bbolt, of its snapshots by HTTP or of API v2, and has nothing here that it could mean.
	is "only metrics of etcd's own implementation are missing" "$(comm -23 <(names <"$DIR/etcd.page") <(names <"$DIR/page") | grep -vE \
		'^(go_|promhttp_|etcd_server_go_version$|etcd_debugging_(store|disk_backend|mvcc_(db|index)_compaction|mvcc_pending_events|snap_save_marshalling)|etcd_disk_backend_(defrag|snapshot)|etcd_disk_defrag|etcd_mvcc_(db_open_read|hash)|etcd_snap_(db_)?fsync|etcd_server_(client_requests|learner_promote)|etcd_grpc_proxy|etcd_network_(snapshot|server_stream))')" ""
	bounds() { sed -nE "s/^$2_bucket\{(.*,)?le=\"([^\"]*)\"\}.*/\2/p" "$1" | sort -u; }
	for name in etcd_disk_wal_fsync_duration_seconds etcd_disk_backend_commit_duration_seconds etcd_debugging_lease_ttl_total grpc_server_handling_seconds; do
		is "the buckets of $name are etcd's" "$(bounds "$DIR/page" "$name")" "$(bounds "$DIR/etcd.page" "$name")"
	done
	labels() { sed -nE "s/^$2\{([^}]*)\}.*/\1/p" "$1" | head -n 1 | grep -oE '[A-Za-z_]+=' | sort | tr -d '\n'; }
	for name in grpc_server_started_total grpc_server_handled_total etcd_server_version etcd_server_id etcd_cluster_version; do
		is "the labels of $name are etcd's" "$(labels "$DIR/page" "$name")" "$(labels "$DIR/etcd.page" "$name")"
	done
else
	skip "names beside a real etcd's" "no etcd here"
fi

# ---- what moves ----
until_ok 10 each_at_least etcd_mvcc_put_total 1 || not_ok "the first put counts, at each replica" "$(for n in 1 2 3; do value $n etcd_mvcc_put_total; done)"
puts=$(value "$L" etcd_mvcc_put_total) syncs=$(value "$L" etcd_disk_wal_fsync_duration_seconds_count)
for i in 1 2 3; do E put "k$i" v >/dev/null; done
is "a put counts, at each replica" "$(until_ok 10 each_at_least etcd_mvcc_put_total $((puts + 3)); echo $?)" 0
is "a put counts syncs of the log" "$(at_least "$L" etcd_disk_wal_fsync_duration_seconds_count $((syncs + 1)); echo $?)" 0
is "calls are counted by method" "$(until_ok 5 at_least 1 'grpc_server_handled_total' 4; value 1 'grpc_server_handled_total{grpc_code="OK",grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"}')" 4
E put "" v >/dev/null 2>&1; E lease revoke 77 >/dev/null 2>&1
is "failed calls are counted by status" "$(value 1 'grpc_server_handled_total{grpc_code="NotFound",grpc_method="LeaseRevoke",grpc_service="etcdserverpb.Lease",grpc_type="unary"}')" 1

L=$(leader); granted=$(value "$L" etcd_debugging_lease_granted_total)
ID=$(E lease grant 1 | awk '{print $2}')
is "a grant counts, at each replica" "$(until_ok 10 each_at_least etcd_debugging_lease_granted_total $((granted + 1)); echo $?)" 0
is "a grant's TTL is counted" "$(value "$L" 'etcd_debugging_lease_ttl_total_bucket{le="1"}')" 1
is "an expiry counts, at each replica" "$(until_ok 10 each_at_least etcd_debugging_server_lease_expired_total 1; echo $?)" 0
is "an expiry's lateness is counted" "$(value "$L" tenure_lease_expiry_lateness_seconds_count)" 1
KEPT=$(E lease grant 10 | awk '{print $2}')
start kept timeout 600 etcdctl --endpoints "127.0.0.1:$c2" lease keep-alive "$KEPT"; KEEPER=$PID
is "renewals count, at each replica" "$(until_ok 20 each_at_least etcd_debugging_lease_renewed_total 2; echo $?)" 0
is "renewals: their batches, and the TTL that was left, are counted where they came" "$(until_ok 10 at_least 2 tenure_lease_renewal_batch_size_count 2 && at_least 2 tenure_lease_renewal_left_ratio_count 2; echo $?)" 0
LOOPED=$(E lease grant 60 | awk '{print $2}')
loop_at() { # REPLICA: renews that lease 200 times on one connection, and prints the answers' TTLs
	local port=c$1 urls=() i
	for ((i = 0; i < 200; i++)); do urls+=("http://127.0.0.1:${!port}/v3/lease/keepalive"); done
	curl -s -m 30 -d "{\"ID\":\"$((16#$LOOPED))\"}" "${urls[@]}" | jq -r .result.TTL | sort | uniq -c | awk '{print $1, $2}'
}
for i in 1 2 3; do
	is "a lease that is renewed in a loop, at replica $i" "$(loop_at $i)" "200 60"
	is "... does not need an entry each time" "$(value "$i" tenure_lease_renewals_covered_total | awk '{print ($1 > 50 && $1 < 200)}')" 1
done
is "... and does not have more left than its TTL" "$(E lease timetolive "$LOOPED" -w json | jq '.ttl <= 60 and .ttl >= 30 and ."granted-ttl" == 60')" true
is "the nearest deadline is within that TTL" "$(value "$L" tenure_lease_next_deadline_seconds | awk '{print ($1 > 0 && $1 <= 10)}')" 1

watches=$(value 3 etcd_debugging_mvcc_watcher_total)
start watch timeout 60 etcdctl --endpoints "127.0.0.1:$c3" watch w; W=$PID
is "a watch counts where it is" "$(until_ok 10 shows 3 etcd_debugging_mvcc_watcher_total $((watches + 1)); echo $?)" 0
E put w 1 >/dev/null
is "an event of a watch is counted" "$(until_ok 10 at_least 3 etcd_debugging_mvcc_events_total 1; echo $?)" 0
kill "$W"; wait "$W" 2>/dev/null
is "a watch counts until it is gone" "$(until_ok 10 shows 3 etcd_debugging_mvcc_watcher_total "$watches"; echo $?)" 0

# Of the process, as etcdctl check datascale and everybody reads it.
rss=$(awk '/VmRSS/ {print $2 * 1024}' "/proc/${CORE[L]}/status")
is "the resident memory agrees with /proc" "$(value "$L" process_resident_memory_bytes | awk -v rss="$rss" '{print ($1 > rss / 2 && $1 < rss * 2)}')" 1
fds=$(find "/proc/${CORE[L]}/fd" -mindepth 1 | wc -l)
is "the number of descriptors agrees with /proc" "$(value "$L" process_open_fds | awk -v n="$fds" '{print ($1 >= n - 4 && $1 <= n + 4)}')" 1
is "the start time is a moment ago" "$(value "$L" process_start_time_seconds | awk -v now="$(date +%s)" '{print (now - $1 > -2 && now - $1 < 600)}')" 1

# ---- a Prometheus ----
cat >"$DIR/prometheus.yml" <<END
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [$CONF/prometheus/tenure.rules.yml]
scrape_configs: [{job_name: core, static_configs: [{targets: ['127.0.0.1:$c1', '127.0.0.1:$c2', '127.0.0.1:$c3']}]}]
END
start prometheus prometheus --config.file="$DIR/prometheus.yml" --storage.tsdb.path="$DIR/prometheus.d" --web.listen-address="127.0.0.1:$w"
ask() { curl -s -m 5 "$A:$w/api/v1/query" --data-urlencode "query=$1" | jq -r '.data.result[]?.value[1]' | sort | tr '\n' ' '; }
says() { [ "$(ask "$1")" = "$2" ]; }
is "a Prometheus reads all three" "$(until_ok 20 says 'up{job="core"}' '1 1 1 '; ask 'up{job="core"}')" "1 1 1 "
is "Prometheus sees one leader" "$(until_ok 10 says 'sum(etcd_server_is_leader)' '1 '; ask 'sum(etcd_server_is_leader)')" "1 "
is "the recording rules have values" "$(until_ok 20 says 'count(tenure:log_sync_seconds:p99)' '3 '; ask 'count(tenure:log_sync_seconds:p99)')" "3 "
is "no alert fires" "$(ask 'count(ALERTS{alertstate="firing"})')" ""

# ---- a leader that is gone ----
kill "$KEEPER"; wait "$KEEPER" 2>/dev/null
E lease revoke "$KEPT" >/dev/null; E lease revoke "$LOOPED" >/dev/null # what ends while one replica is away would count at its return
L=$(leader); syncs=$(value "$L" etcd_disk_wal_fsync_duration_seconds_count); E put last v >/dev/null
until_ok 10 at_least "$L" etcd_disk_wal_fsync_duration_seconds_count $((syncs + 1)) # and what its own disk does not have yet
OTHER=$((L % 3 + 1))
changes=$(value "$OTHER" etcd_server_leader_changes_seen_total)
kill -9 "${CORE[L]}"; wait "${CORE[L]}" 2>/dev/null; CORE[L]=
until_ok 20 leader || not_ok "another one leads"
is "a change of the leader counts" "$(until_ok 10 at_least "$OTHER" etcd_server_leader_changes_seen_total $((changes + 1)); echo $?)" 0
is "a replica that is gone counts as not linked" "$(until_ok 10 sh -c "curl -s '$A:$(port "$OTHER")/metrics' | grep '^etcd_network_active_peers' | grep -c ' 0$' | grep -qx 1"; scrape "$OTHER" | grep '^etcd_network_active_peers' | grep -c ' 0$')" 1
is "frames for a replica that is gone count as failed" "$(until_ok 10 at_least "$(leader)" etcd_network_peer_sent_failures_total 1; echo $?)" 0
is "the others are measured" "$(until_ok 10 at_least "$(leader)" etcd_network_peer_round_trip_time_seconds_count 1; echo $?)" 0
is "the time in which nobody led is not counted against leases" "$(at_least "$(leader)" tenure_lease_outage_seconds_total 0.001; echo $?)" 0

# ---- a replica that starts again ----
# Its log has been counted before: applied again, it would look like new calls, and its expiries like late ones.
c=c$L p=p$L
start_replica "n$L" "${!c}" "${!p}" --initial-cluster "$INITIAL"
CORE[L]=$PID
caught_up() { curl -sf -m 5 "$A:$(port "$L")/readyz" && [ "$(value "$L" etcd_server_proposals_applied_total)" -ge "$(value "$OTHER" etcd_server_proposals_committed_total)" ]; }
is "it has caught up" "$(until_ok 20 caught_up >"$DIR/caught"; echo $?)" 0
for name in etcd_mvcc_put_total etcd_debugging_lease_granted_total etcd_debugging_lease_revoked_total etcd_debugging_server_lease_expired_total etcd_debugging_lease_ttl_total_count tenure_lease_expiry_lateness_seconds_count; do
	is "it counts from 0: $name" "$(value "$L" "$name")" 0
done
is "what there is, is counted" "$(value "$L" etcd_debugging_mvcc_keys_total)" "$(value "$OTHER" etcd_debugging_mvcc_keys_total)"
timeout 5 etcdctl --endpoints "127.0.0.1:$(port "$L")" put again v >/dev/null
is "and what happens from now on" "$(until_ok 10 shows "$L" etcd_mvcc_put_total 1; echo $?)" 0
is "promtool finds nothing to say" "$(lint "$L"; echo $?)" 0
is "nothing is negative, or no number, or there twice" "$(scrape "$L" | awk '!/^#/ && (tolower($NF) == "nan" || $NF < 0 || seen[$0 = substr($0, 1, length($0) - length($NF))]++)')" ""
finish
