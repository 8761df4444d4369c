"""Connections whose end is announced, as proxies do, while calls are open on them."""
import pytest

from harness.proxy import Proxy
from harness.waiting import eventually, eventually_is


def test_an_agent_publishes_beside_a_connection_that_takes_no_more_calls(agents, proxy):
    agent, other = agents("h1", Endpoints=proxy.endpoints), agents("h2")
    lease = agent.status().lease_id
    eventually(agent.nodes)

    proxy.say_goaway()
    agent.background("register", "web", "Port=80")

    eventually_is(["web"], lambda: [service.name for service in other.services()])
    assert agent.status().lease_id == lease
    assert proxy.count("connection") == 2


@pytest.mark.parametrize("turns_away", [Proxy.refuse_connections, Proxy.reset_connections])
def test_an_agent_keeps_its_place_while_there_is_only_a_connection_that_takes_no_more_calls(
        agents, proxy, turns_away):
    agent, other = agents("h1", Endpoints=proxy.endpoints, TTL="6s"), agents("h2")
    lease, watch = agent.status().lease_id, other.watch()
    granted = agent.properties()["LastRenewalUSec"]
    eventually(lambda: agent.properties()["LastRenewalUSec"] > granted)

    turns_away(proxy)
    proxy.say_goaway()
    left = agent.properties()["DeadlineUSec"]
    other.background("register", "web", "Port=80")

    def was_renewed_after(instant):
        told = agent.properties()
        assert told["LeaseId"] == lease
        return told["LastRenewalUSec"] > instant

    eventually(lambda: was_renewed_after(left))  # a TTL and more behind the GOAWAY
    eventually(lambda: "web" in [service.name for service in agent.services()])
    other.background("register", "later", "Port=81")
    eventually(lambda: "later" in [event.name for event in watch.events()])
    assert "NodeLeft" not in [event.event for event in watch.events()]
    assert proxy.count("connection") == 1


def test_a_program_continues_beside_a_connection_that_takes_no_more_calls(
        shared_cluster, proxy, prefix, program):
    writer = program.python("""
import sys, tenure
with tenure.Tie() as tie:
    watch = tie.watch(sys.argv[1], prefix=True)

    def told_of(key):
        while (event := tie.wait()).type != tenure.Type.PUT or event.kv.key != key.encode():
            print(event.type.name)

    tie.put(sys.argv[1] + "a", "1")
    told_of(sys.argv[1] + "a")
    told_of(sys.argv[1] + "go")
    tie.put(sys.argv[1] + "b", "2")
    told_of(sys.argv[1] + "b")
    print("done")
""", prefix, TENURE_ENDPOINTS=proxy.endpoints)
    eventually(lambda: shared_cluster.get(prefix + "a"))

    proxy.say_goaway()
    shared_cluster.put(prefix + "go", "1")

    assert writer.wait() == 0
    assert writer.lines() == ["done"]
    assert shared_cluster.get(prefix + "b").value == "2"


def test_a_watch_that_is_confirmed_after_goaway_reports_what_its_program_puts(
        shared_cluster, proxy, prefix, program):
    writer = program.python("""
import sys, tenure
key = sys.argv[1]

def told_of(tie, key):
    while (event := tie.wait()).type != tenure.Type.PUT or event.kv.key != key.encode():
        pass

with tenure.Tie() as tie, tenure.Tie(endpoints=sys.argv[2]) as other:
    other.watch(key + "go", revision=tie.put(key + "begun", "1"))
    told_of(other, key + "go")
    watch = tie.watch(key + "own")
    tie.put(key + "own", "1")
    told_of(tie, key + "own")
    print("done")
""", prefix, shared_cluster.endpoints, TENURE_ENDPOINTS=proxy.endpoints)
    eventually(lambda: shared_cluster.get(prefix + "begun"))

    proxy.hold_answers()
    shared_cluster.put(prefix + "go", "1")
    eventually(lambda: shared_cluster.get(prefix + "own"))
    proxy.say_goaway()

    assert writer.wait() == 0
    assert writer.lines() == ["done"]


def test_a_change_under_way_is_not_in_doubt_when_its_connection_takes_no_more_calls(
        new_cluster, tmp_path, ports, prefix, program):
    core = new_cluster(1)
    proxy, replica = Proxy(tmp_path, ports, core), core.leader()
    writer = program.python("""
import itertools, sys, tenure
with tenure.Tie() as tie:
    for n in itertools.count():
        tie.put(sys.argv[1], str(n))  # raises if the outcome is not known
""", prefix + "k", TENURE_ENDPOINTS=proxy.endpoints)
    eventually(lambda: core.get(prefix + "k"))

    replica.freeze()  # a put is under way
    proxy.say_goaway()
    replica.thaw()

    revision = core.get(prefix + "k").mod_revision
    eventually(lambda: core.get(prefix + "k").mod_revision > revision + 10)
    assert proxy.count("connection") == 2
    assert writer.is_running
    writer.kill()
    proxy.kill()


def test_a_program_keeps_its_lock_while_there_is_only_a_connection_that_takes_no_more_calls(
        shared_cluster, proxy, prefix, program):
    locker = program.python("""
import sys, tenure, time
with tenure.Tie(hold=6) as tie, tie.held().lock(sys.argv[1]) as lock:
    time.sleep(3600)
""", prefix + "lock", TENURE_ENDPOINTS=proxy.endpoints)
    [key] = eventually(lambda: shared_cluster.range(prefix + "lock/"))
    shared_cluster.wait_for_renewal(key.lease)
    proxy.refuse_connections()
    proxy.say_goaway()

    for _ in range(3):  # each follows the one before by half of the 6 s
        shared_cluster.wait_for_renewal(key.lease)
    assert shared_cluster.range(prefix + "lock/") == [key]
    assert locker.is_running
