"""What a replica says of itself at /metrics, and what is made of it: rules, alerts, a dashboard."""
import json
import os
import re
import shutil
from urllib.parse import quote

import pytest
from harness.etcd import Etcd
from harness.http1 import Http, JsonStream
from harness.places import ENVIRONMENT, TOP
from harness.ports import listens
from harness.program import Daemon, run
from harness.waiting import ProgramError, eventually, eventually_is

RULES = TOP / "conf/prometheus/tenure.rules.yml"
DASHBOARD = TOP / "conf/grafana/tenure-core.json"
TESTS_OF_RULES = TOP / "tests/integration/metrics_rules.yml"
OPEN_METRICS = "application/openmetrics-text"


def metric_of(sample):
    return re.sub(r"_(bucket|sum|count)$", "", re.match(r"\w+", sample)[0])


def names(page):
    return {metric_of(line) for line in page.splitlines() if not line.startswith("#")}


@pytest.fixture(scope="session")
def promtool():
    if not shutil.which("promtool", path=ENVIRONMENT["PATH"]):
        pytest.skip("promtool is not installed (as root: apt install prometheus)")
    # It takes seconds of a processor, and gets few of them on a busy machine.
    return lambda *words, **options: run("promtool", *words, patience=240, **options)


# ---- the page, the rules and the dashboard ----

def test_promtool_finds_nothing_to_say_about_the_page(shared_cluster, prefix, promtool):
    for replica in shared_cluster.running:
        shared_cluster.put(prefix, "x", at=replica)
        promtool("check", "metrics", stdin=replica.metrics().text)


@pytest.mark.parametrize("accept, given", [
    ("*/*", "text/plain"),
    (OPEN_METRICS, OPEN_METRICS),
    (f"{OPEN_METRICS};version=1.0.0,text/plain;version=0.0.4;q=0.5", OPEN_METRICS),
    (f"{OPEN_METRICS}; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", OPEN_METRICS),
    (f"{OPEN_METRICS};q=0,text/plain", "text/plain"),
    (f"text/plain;version=0.0.4;q=1,{OPEN_METRICS};version=1.0.0;q=0.1", "text/plain"),
    (f"{OPEN_METRICS};version=9.0.0,text/plain;q=0.1", "text/plain")])
def test_the_page_comes_in_the_format_that_is_asked_for(shared_cluster, accept, given):
    kind = {"text/plain": "text/plain; version=0.0.4; charset=utf-8",
            OPEN_METRICS: f"{OPEN_METRICS}; version=1.0.0; charset=utf-8"}[given]
    assert shared_cluster.running[0].metrics(Accept=accept).type == kind


def test_a_strict_reader_of_openmetrics_takes_the_page(shared_cluster):
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    page = shared_cluster.running[0].metrics(Accept=OPEN_METRICS).text
    assert len(list(parser.text_string_to_metric_families(page))) > 90
    assert names(page) == names(shared_cluster.running[0].metrics().text)


def test_each_rule_does_what_its_test_expects(promtool):
    promtool("check", "rules", RULES)
    promtool("test", "rules", TESTS_OF_RULES)
    alerts = set(re.findall(r"- alert: (\w+)", RULES.read_text()))
    assert alerts == set(re.findall(r"alertname: (\w+)\n +exp_alerts:\n +- exp_labels",
                                    TESTS_OF_RULES.read_text()))


def test_thresholds_of_quantiles_are_bounds_of_buckets(shared_cluster):
    """Within a bucket a quantile is a guess, and may be nearly twice what was observed."""
    page, rules = shared_cluster.leader().metrics().text, RULES.read_text()
    thresholds = re.findall(r"expr: (tenure:\w+:p99) > ([\d.]+)", rules)
    assert len(thresholds) == 3
    for record, threshold in thresholds:
        name = re.search(rf"record: {record}\n.*?(\w+_bucket)", rules, re.S)[1]
        assert float(threshold) in set(map(float, re.findall(
            rf'(?m)^{name}{{.*\ble="([^"]*)"', page))), record


def test_rules_and_dashboard_name_what_there_is(shared_cluster, prefix):
    rules = re.sub(r"(?m)^ *#.*", "", RULES.read_text())
    targets = [target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"]
               for target in panel.get("targets", [])]
    named = {metric_of(name) for name in re.findall(
        r"\b(?:etcd|grpc|process|tenure)_[a-z_]+", "\n".join([rules, *targets]))}
    named -= {"grpc_code", "grpc_method", "grpc_service", "grpc_type"}  # labels
    shared_cluster.put(prefix, "x", at=shared_cluster.leader())
    page = shared_cluster.leader().metrics().text
    assert len(named) >= 40 and named <= set(re.findall(r"(?m)^# HELP (\w+)", page))


# Of Go's runtime, of bbolt, of snapshots by HTTP or of API v2: nothing here that they could mean.
ONLY_ETCDS = ("go_|promhttp_|etcd_server_go_version$|etcd_debugging_(store|disk_backend|"
              "mvcc_(db|index)_compaction|mvcc_pending_events|snap_save_marshalling)|"
              "etcd_disk_backend_(defrag|snapshot)|etcd_disk_defrag|"
              "etcd_mvcc_(db_open_read|hash)|etcd_snap_(db_)?fsync|"
              "etcd_server_(client_requests|learner_promote)|etcd_grpc_proxy|"
              "etcd_network_(snapshot|server_stream)")


def test_metrics_have_the_names_buckets_and_labels_of_etcd(
        shared_cluster, tmp_path, ports, prefix, wants_etcd):
    etcd = Etcd(tmp_path, ports, "--metrics", "extensive")
    etcd.put("x", "y")
    leader = shared_cluster.leader()
    shared_cluster.put(prefix, "x", at=leader)
    ours, theirs = leader.metrics().text, Http(etcd.client_url).get("/metrics").text
    assert [name for name in names(theirs) - names(ours) if not re.match(ONLY_ETCDS, name)] == []
    # Of an etcd that is not alone.
    assert {f"etcd_network_{name}" for name in (
        "active_peers", "peer_received_bytes_total", "peer_round_trip_time_seconds",
        "peer_sent_bytes_total", "peer_sent_failures_total")} <= names(ours)

    def bounds(page, name):
        return set(re.findall(rf'(?m)^{name}_bucket{{.*\ble="([^"]*)"', page))

    for name in ("etcd_disk_wal_fsync_duration_seconds", "etcd_debugging_lease_ttl_total",
                 "etcd_disk_backend_commit_duration_seconds", "grpc_server_handling_seconds"):
        assert bounds(ours, name) == bounds(theirs, name) != set()

    def labels(page, name):
        return set(re.findall(r"(\w+)=", re.search(rf"(?m)^{name}{{(.*)}}", page)[1]))

    for name in ("grpc_server_started_total", "grpc_server_handled_total", "etcd_server_version",
                 "etcd_server_id", "etcd_cluster_version"):
        assert labels(ours, name) == labels(theirs, name) != set()


# ---- figures that move ----

def value(page, sample):
    """Of the sample, or of all that have its name and labels."""
    return sum(float(line.split()[-1]) for line in page.splitlines()
               if line.startswith((sample + " ", sample + "{")))


class Grows:
    """grows("name", 2, at=replica): it is more by at least so much than at the beginning, at each
    replica or one, at last."""

    def __init__(self, core):
        self.before = {replica: replica.metrics().text for replica in core.running}

    def by(self, sample, replica):
        return value(replica.metrics().text, sample) - value(self.before[replica], sample)

    def __call__(self, sample, by=1, at=None):
        for replica in [at] if at else self.before:
            eventually(lambda: self.by(sample, replica) >= by)


def handled(service, method, code):
    return (f'grpc_server_handled_total{{grpc_code="{code}",grpc_method="{method}",'
            f'grpc_service="etcdserverpb.{service}",grpc_type="unary"}}')


def test_what_clients_do_is_counted(shared_cluster, prefix):
    grows, at = Grows(shared_cluster), shared_cluster.running[0]
    for name in "abc":
        shared_cluster.put(prefix + name, "v", at=at)
    grows("etcd_mvcc_put_total", 3)
    grows("etcd_disk_wal_fsync_duration_seconds_count")
    grows(handled("KV", "Put", "OK"), 3, at)
    with pytest.raises(ProgramError):
        shared_cluster.etcdctl("lease", "revoke", "77", at=at)
    grows(handled("Lease", "LeaseRevoke", "NotFound"), 1, at)

    shared_cluster.grant(1)
    grows("etcd_debugging_lease_granted_total")
    grows('etcd_debugging_lease_ttl_total_bucket{le="1"}')
    grows("etcd_debugging_server_lease_expired_total")
    grows("tenure_lease_expiry_lateness_seconds_count", 1, shared_cluster.leader())


def test_renewals_are_counted_where_they_come_and_share_log_entries(shared_cluster):
    grows, lease = Grows(shared_cluster), shared_cluster.grant(60)
    for replica in shared_cluster.running:
        http = Http(replica.client_url)
        for _ in range(200):
            assert http.post("/v3/lease/keepalive", ID=lease)["result"]["TTL"] == "60"
        grows("tenure_lease_renewal_batch_size_count", 1, replica)
        grows("tenure_lease_renewal_left_ratio_count", 1, replica)
        # A renewal needs no entry of its own while the last one is young.
        assert 0 < grows.by("tenure_lease_renewals_covered_total", replica) < 200
    grows("etcd_debugging_lease_renewed_total", 2)
    assert 0 < shared_cluster.leader().metric("tenure_lease_next_deadline_seconds") <= 61
    assert shared_cluster.lease(lease).ttl <= 60


def test_a_watch_is_counted_where_it_is(shared_cluster, prefix):
    grows, at = Grows(shared_cluster), shared_cluster.running[2]
    stream = JsonStream(at.client_url, "/v3/watch", {"create_request": {"key": prefix.encode()}})
    assert stream.next()["result"]["created"]
    watchers = "etcd_debugging_mvcc_watcher_total"
    assert [grows.by(watchers, replica) for replica in shared_cluster.running] == [0, 0, 1]
    shared_cluster.put(prefix, "1")
    assert stream.next()["result"]["events"]
    grows("etcd_debugging_mvcc_events_total", 1, at)
    stream.close()
    eventually_is(0, lambda: grows.by(watchers, at))


def test_the_figures_of_the_process_are_those_of_the_kernel(shared_cluster):
    replica = shared_cluster.running[0]
    with open(f"/proc/{replica.pid}/statm") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert resident / 2 < replica.metric("process_resident_memory_bytes") < resident * 2
    descriptors = len(os.listdir(f"/proc/{replica.pid}/fd"))
    assert abs(replica.metric("process_open_fds") - descriptors) <= 4
    began = os.stat(f"/proc/{replica.pid}").st_ctime
    assert abs(replica.metric("process_start_time_seconds") - began) < 60


def test_a_prometheus_reads_all_and_calls_nobody(cluster, tmp_path, ports):
    if not shutil.which("prometheus", path=ENVIRONMENT["PATH"]):
        pytest.skip("prometheus is not installed (as root: apt install prometheus)")
    targets = [url.removeprefix("http://") for url in cluster.endpoints.split(",")]
    (tmp_path / "prometheus.yml").write_text(json.dumps({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "core", "static_configs": [{"targets": targets}]}]}))
    port = ports.take()
    Daemon(tmp_path / "prometheus.log", "prometheus", "--config.file=prometheus.yml",
           "--storage.tsdb.path=prometheus.d", f"--web.listen-address=127.0.0.1:{port}").start()
    eventually(lambda: listens(port))
    http = Http(f"http://127.0.0.1:{port}")

    def ask(query):
        answer = http.get("/api/v1/query?query=" + quote(query))
        assert answer.status == 200, answer.text
        return [sample["value"][1] for sample in answer.json()["data"]["result"]]

    eventually_is(["1"] * 3, lambda: ask('up{job="core"}'))
    eventually_is(["1"], lambda: ask("sum(etcd_server_is_leader)"))
    eventually_is(["3"], lambda: ask("count(tenure:log_sync_seconds:p99)"))
    assert ask('count(ALERTS{alertstate="firing"})') == []


# ---- a replica that goes, and comes again ----

def test_the_loss_of_a_leader_is_counted(cluster):
    grows, gone = Grows(cluster), cluster.leader()
    gone.kill()
    leader = eventually(lambda: (led := cluster.leader()).is_running and led)
    for replica in cluster.running:
        grows("etcd_server_leader_changes_seen_total", 1, replica)
        eventually(lambda: re.findall(r"(?m)^etcd_network_active_peers{.*} 0$",
                                      replica.metrics().text))
    grows("etcd_network_peer_sent_failures_total", 1, leader)
    grows("etcd_network_peer_round_trip_time_seconds_count", 1, leader)
    # The time in which nobody led is not counted against leases.
    eventually(lambda: leader.metric("tenure_lease_outage_seconds_total") > 0)


def test_a_replica_that_starts_again_counts_from_nothing(cluster):
    """Its log was counted before: applied again, it would look like new calls, late expiries."""
    again, other, _ = cluster.replicas.values()
    cluster.put("k", "v", lease=cluster.grant(600))
    cluster.revoke(cluster.grant(600))
    cluster.grant(1)
    eventually_is(1, lambda: again.metric("etcd_debugging_server_lease_expired_total"))

    again.kill()
    again.start()
    eventually(lambda: cluster.get("k", at=again))
    assert {again.metric(name) for name in (
        "etcd_mvcc_put_total", "etcd_debugging_lease_granted_total",
        "etcd_debugging_lease_revoked_total", "etcd_debugging_lease_ttl_total_count",
        "etcd_debugging_server_lease_expired_total",
        "tenure_lease_expiry_lateness_seconds_count")} == {0}
    assert again.metric("etcd_debugging_mvcc_keys_total") == 1
    cluster.put("k", "again", at=again)
    eventually_is(1, lambda: again.metric("etcd_mvcc_put_total"))
    samples = [line.rsplit(" ", 1) for line in again.metrics().text.splitlines()
               if not line.startswith("#")]
    assert len({name for name, _ in samples}) == len(samples)
    assert all(float(value) >= 0 for _, value in samples)  # NaN is not
