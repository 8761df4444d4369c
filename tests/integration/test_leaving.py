"""Connections whose end is announced, as proxies do, while calls are open on them."""
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


def test_a_program_goes_on_beside_a_connection_that_takes_no_more_calls(
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
