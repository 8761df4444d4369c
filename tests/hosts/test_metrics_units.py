"""What the agent counts comes out by a socket and by a file, from units with few privileges."""
import pytest
from harness.waiting import ProgramError, eventually

pytestmark = pytest.mark.usefixtures("only_core")

# Half a request on each; prints how many of them have ended.
MANY_CONNECTIONS = """
import contextlib, socket, sys
opened = [socket.create_connection((sys.argv[1], 9479)) for _ in range(1000)]
ended = 0
for one in opened:
    with contextlib.suppress(OSError):
        one.send(b"GET /metr")
for one in opened:
    try:
        ended += one.recv(1) == b""
    except OSError:
        ended += 1
print(ended)
"""


def ask(host):
    """{name: value}"""
    said = host.on("curl", "-sS", "http://127.0.0.1:9479/metrics").splitlines()
    return {name.removeprefix("tenure_agent_"): float(value) for name, _, value in
            (line.rpartition(" ") for line in said if not line.startswith("#"))}


@pytest.fixture
def h4(hosts):
    """It answers at its port of metrics."""
    hosts.h4.systemctl("start", "tenured-metrics.socket")
    yield hosts.h4
    hosts.h4.systemctl("stop", "tenured-metrics.socket")


def test_the_socket_serves_the_metrics(h4):
    before = ask(h4)
    assert (before["up"], before["held"]) == (1, 1)

    h4.ctl("leave")
    h4.ctl("join")
    eventually(h4.is_back)

    after = ask(h4)
    assert after["fences_total"] == after["fence_seconds_count"] == before["fences_total"] + 1
    assert after["fences_late_total"] == before["fences_late_total"]


def test_the_timer_writes_the_file_for_node_exporter(hosts):
    h4 = hosts.h4
    h4.on("mkdir", "-p", "/var/lib/prometheus/node-exporter")
    h4.systemctl("start", "tenured-metrics-file.timer")

    eventually(lambda: "\ntenure_agent_up 1\n" in
               h4.on("cat", "/var/lib/prometheus/node-exporter/tenured.prom"))
    h4.systemctl("stop", "tenured-metrics-file.timer")


def test_a_thousand_connections_of_one_address_end_and_others_are_answered(hosts, h4):
    ended = hosts.h1.on("python3", "-c", MANY_CONNECTIONS, h4.address)

    assert int(ended) == 1000
    assert ask(h4)["up"] == 1
    life = h4.show("tenured-metrics", "InvocationID")
    said = h4.journal("tenured-metrics", f"_SYSTEMD_INVOCATION_ID={life}", "-p", "warning")
    assert said.count("\n") == 1
    assert "too many requests at a time; closed unanswered: " in said
    assert "the last one of 10.77.0.1" in said


def test_the_socket_answers_after_its_process_was_killed_and_until_it_is_stopped(h4):
    ask(h4)
    h4.signal("tenured-metrics.service", "KILL")
    assert eventually(lambda: ask(h4))["up"] == 1

    h4.systemctl("stop", "tenured-metrics.socket")
    with pytest.raises(ProgramError, match="status 7"):  # nothing listens
        ask(h4)
    assert not h4.is_active("tenured-metrics.service")
