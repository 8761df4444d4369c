"""What the agent counts: printed, as a file for node_exporter, and as the answer to a request."""
import os
import re
import shutil
import socket
import urllib.error
import urllib.request

import pytest
from harness.places import BIN
from harness.ports import listens
from harness.program import Daemon, run
from harness.waiting import PATIENCE, ProgramError, eventually

promtool = pytest.mark.skipif(not shutil.which("promtool"),
                              reason="promtool is not installed (as root: apt install prometheus)")


def metrics(text):
    """{name with its labels: value}"""
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name.removeprefix("tenure_agent_"): float(value) for name, _, value in lines}


def counted(agent):
    return metrics(agent.ctl("metrics"))


@pytest.fixture
def serve(agent, tmp_path, ports):
    """Has systemd listen for tenurectl metrics --http: serve("--accept", "--inetd") with a process
    for each connection, as tenured-metrics@.service is started. Gives the port."""
    def listen(*options):
        port = ports.take()
        listen.daemon = Daemon(
            tmp_path / "http.log", "systemd-socket-activate", *options, "-l", f"127.0.0.1:{port}",
            "-E", "DBUS_SYSTEM_BUS_ADDRESS", BIN / "tenurectl", "metrics", "--http",
            **agent.bus.environment_for_clients).start()
        eventually(lambda: listens(port))
        return port

    return listen


def ask(port, path="/metrics", **more):
    """(status, type, text) of the answer."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", **more)
    try:
        answer = urllib.request.urlopen(request, timeout=PATIENCE)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return answer.status, answer.headers["Content-Type"], answer.read().decode()


@promtool
def test_promtool_finds_nothing_wrong_with_the_text(agent):
    assert run("promtool", "check", "metrics", stdin=agent.ctl("metrics")) == ""


def test_each_heartbeat_has_a_round_trip_and_a_margin(agents):
    agent = agents("h1", TTL="3s")  # so that heartbeats come soon; it may be lost meanwhile
    now = eventually(lambda: (said := counted(agent))["heartbeats_acknowledged_total"] and said)
    n = now["heartbeats_acknowledged_total"]
    for name in "round_trip_seconds", "renewal_margin_seconds":
        assert now[f"{name}_count"] == now[f'{name}_bucket{{le="+Inf"}}'] == n
    assert now['renewal_margin_seconds_bucket{le="5"}'] == n  # none is longer than the TTL
    assert 0 < now["renewal_margin_seconds_sum"] <= n * 3


def test_a_place_that_is_held_is_counted(agent):
    eventually(agent.nodes)
    now = counted(agent)
    version = run(BIN / "tenurectl", "--version").split()[-1]
    assert now[f'info{{version="{version}",cluster="{agent.settings["Cluster"]}",'
               'node="h1"}'] == 1
    for name, n in dict(up=1, held=1, places_total=1, nodes=1, losses_total=0).items():
        assert now[name] == n
    assert now['state{state="held"}'] == 1 and 0 < now["margin_seconds"] <= 30


def test_a_place_that_is_lost_and_taken_again_is_counted(agents, cluster):
    agent = agents("h1", TTL="3s")
    before = counted(agent)

    for replica in cluster.replicas.values():
        replica.freeze()
    eventually(lambda: counted(agent)["losses_total"] > before["losses_total"])
    now = counted(agent)
    assert now["jeopardies_total"] > before["jeopardies_total"]
    assert (now["held"], now["margin_seconds"]) == (0, 0)

    for replica in cluster.replicas.values():
        replica.thaw()
    eventually(lambda: counted(agent)["places_total"] > before["places_total"])


# ---- a request ----

@pytest.mark.parametrize("path, more, status", [
    ("/metrics", {}, 200),
    ("/metrics?x=y", {}, 200),
    ("/metrics", {"method": "HEAD"}, 200),
    ("/", {}, 404),
    ("/metrics", {"data": b"x=y"}, 405),
    ("/metrics", {"headers": {"X": "x" * 20_000}}, 431),
])
def test_a_request_gets_the_metrics_or_the_status_that_is_due(serve, path, more, status):
    got, kind, text = ask(serve("--accept", "--inetd"), path, **more)
    assert got == status
    if status == 200:
        assert kind == "text/plain; version=0.0.4; charset=utf-8"
        assert (metrics(text).get("up") == 1) == (more == {})


@pytest.mark.parametrize("line", ["hello", "GET/metrics HTTP/1.1", "GET /metrics"])
def test_what_is_no_request_is_refused(agent, line):
    assert agent.ctl("metrics", "--http", stdin=line + "\r\n\r\n").startswith(
        "HTTP/1.1 400 Bad Request\n")


def test_an_address_may_have_four_requests_at_a_time_and_not_for_ever(serve):
    port, crowd = serve(), []
    assert [ask(port)[0] for _ in range(6)] == [200] * 6  # by one process
    serve.daemon.freeze()
    for n in range(30):  # of three addresses
        crowd.append(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE,
                                              source_address=(f"127.0.0.{n % 3 + 2}", 0)))
        crowd[-1].send(b"GET /metr")

    serve.daemon.thaw()

    assert ask(port)[0] == 200  # another address
    for client in crowd:  # 12 after 5 s, the others at once, before they were read
        try:
            assert client.recv(1) == b""
        except ConnectionResetError:
            pass
    assert serve.daemon.log_text().count(
        "<4>tenurectl: too many requests at a time; closed unanswered: 1, the last one of ") == 1


# ---- a file ----

def test_a_file_is_written_at_once_and_may_be_read_by_all(agent, tmp_path):
    file = tmp_path / "out/tenured.prom"
    assert agent.refusal("metrics", f"--output={file}")[0].startswith(
        f"cannot write {file}: No such file")
    file.parent.mkdir()
    agent.ctl("metrics", f"--output={file}")
    assert metrics(file.read_text())["up"] == 1
    assert file.stat().st_mode & 0o777 == 0o644
    assert list(file.parent.iterdir()) == [file]  # nothing temporary is left


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("other"), os.mkfifo],
                         ids=["link", "pipe"])
def test_nothing_is_written_over_what_is_no_file(agent, shared_cluster, tmp_path, make):
    path = tmp_path / "odd"
    make(path)
    before = path.lstat()
    sentence = f"cannot write {path}: it exists, and is not a regular file"
    assert agent.refusal("metrics", f"--output={path}")[0].startswith(sentence)
    with pytest.raises(ProgramError, match=re.escape(sentence)):
        shared_cluster.ctl("core", "snapshot", "save", path)
    assert path.lstat() == before


def test_without_an_agent_everything_says_so(agent, serve, tmp_path):
    port = serve("--accept", "--inetd")
    agent.kill()

    with pytest.raises(ProgramError) as down:
        agent.ctl("metrics")
    assert metrics(down.value.out) == {"up": 0}
    agent.ctl("metrics", f"--output={tmp_path / 'x.prom'}")
    assert metrics((tmp_path / "x.prom").read_text()) == {"up": 0}
    assert metrics(ask(port)[2]) == {"up": 0}
