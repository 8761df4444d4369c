"""Programs that use libtenure, in C and in Python."""
from harness.waiting import eventually, eventually_is

MEMBERS = "conf/examples/libtenure/members.c"


def test_a_program_in_c_hears_who_is_there_and_who_joins_and_leaves(agents, cluster, program):
    first = agents("h1", Cluster="default")
    address = eventually(first.nodes)["h1"].addresses[0]

    follower = program.c(MEMBERS, TENURE_ENDPOINTS=cluster.endpoints)
    synced = eventually(lambda: follower.lines()[1:2])[0]
    second = agents("h2", Cluster="default")
    second.ctl("leave")

    eventually_is([f"joined h1 {address}", synced, f"joined h2 {address}", "left h2: left"],
                  follower.lines)
    assert synced.startswith("synced at revision ")


def test_a_program_finds_the_core_through_the_agent_of_its_host(agent, program):
    asked = program.python("""
import tenure
with tenure.Tie(hold="agent") as tie:
    tie.held()
    print(tie.may_act, tie.lease)
""", **agent.bus.environment_for_clients)

    assert asked.wait() == 0
    assert asked.lines() == [f"True {agent.status().lease_id}"]


def test_a_lock_has_one_holder_at_a_time_and_the_next_a_larger_token(engine, prefix, program):
    locker = program.python("""
import sys, tenure
with tenure.Tie(hold=60) as one, tenure.Tie(hold=60) as two:
    one.held(), two.held()
    with one.lock(sys.argv[1]) as lock:
        first = lock.token
        waits = two.lock_begin(sys.argv[1])
        while len(one.range(sys.argv[1], prefix=True)) < 2:
            two.wait(0.05)
        print("waits", waits.held)
    while not waits.held:
        two.wait(0.05)
    print("has it", waits.token > first)
    waits.release()
""", prefix + "lock", TENURE_ENDPOINTS=engine.endpoints)

    assert locker.wait() == 0
    assert locker.lines() == ["waits False", "has it True"]
    assert engine.range(prefix) == []


def test_a_session_that_is_killed_keeps_its_lease_and_its_key_goes_with_it(
        shared_cluster, prefix, program):
    session = program.python("""
import sys, tenure
with tenure.Tie(hold=600, name=sys.argv[1]) as tie:
    tie.held()
    print(tie.lease)
    while tie.may_act:
        tie.wait()
""", "killed", TENURE_ENDPOINTS=shared_cluster.endpoints)
    lease = int(eventually(session.lines)[0])

    session.kill()

    key = "/tenure/default/sessions/killed"
    assert shared_cluster.lease(lease).keys == [key]
    shared_cluster.revoke(lease)
    assert shared_cluster.get(key) is None
