"""Programs that use libtenure, in C and in Python."""
import socket

import pytest
from harness.agent import MANAGER, NAME, PATH
from harness.bus import GONE
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


def test_a_ring_moves_only_the_keys_that_a_node_gains_or_loses(new_cluster, program):
    """conf/examples/libtenure/ring.c"""
    core, keys = new_cluster(1), "abcdefghijklmnop"
    for name in "r1", "r2":
        core.put(f"/tenure/default/nodes/{name}", f'{{"name":"{name}"}}')
    ring = program.c("conf/examples/libtenure/ring.c", *keys, TENURE_ENDPOINTS=core.endpoints)

    def owners():
        return dict(line.split() for line in ring.lines())

    before = eventually(lambda: len(owners()) == len(keys) and owners())
    core.put("/tenure/default/nodes/r3", '{"name":"r3"}')
    eventually(lambda: "r3" in owners().values())
    core.delete("/tenure/default/nodes/r3")

    eventually_is(before, owners)
    assert set(before.values()) == {"r1", "r2"}
    assert all(line.endswith(" r3") or before[line[0]] == line[2:] for line in ring.lines())


def test_a_program_finds_the_core_through_the_agent_of_its_host(agent, program):
    asked = program.python("""
import tenure
with tenure.Tie(hold="agent") as tie:
    tie.held()
    print(tie.may_act, tie.lease)
""", **agent.bus.environment_for_clients)

    assert asked.wait() == 0
    assert asked.lines() == [f"True {agent.status().lease_id}"]


def test_a_signal_of_a_stranger_leads_no_program_to_another_core(agents, program):
    agent = agents("h1")
    follower = program.python("""
import tenure
with tenure.Tie(follow=tenure.NODES) as tie:
    for event in tie:
        print(event.node.name if event.node else "synced")
""", **agent.bus.environment_for_clients)
    eventually(lambda: "synced" in follower.lines())
    with socket.create_server(("0.0.0.0", 0)) as stranger:
        stranger.setblocking(False)
        for n in range(1, 64):  # a program remembers many endpoints
            agent.bus.signal_to(
                follower.pid, PATH, "org.freedesktop.DBus.Properties", "PropertiesChanged",
                "sa{sv}as", MANAGER, "1", "CoreEndpoint", "s",
                f"http://127.0.0.{n}:{stranger.getsockname()[1]}", "0")

        agents("h2")
        eventually(lambda: "h2" in follower.lines())
        with pytest.raises(BlockingIOError):  # nobody has connected
            stranger.accept()
    follower.kill()


def test_a_program_does_not_register_again_because_a_stranger_says_that_the_agent_is_another(
        agent, shared_cluster, prefix, program):
    server = program.python("""
import sys, tenure
with tenure.Tie(hold="agent") as tie:
    tie.held().register("first")
    tie.watch(sys.argv[1])
    while tie.wait().type != tenure.Type.PUT:
        pass
    tie.register("last")
    while tie.wait():
        pass
""", prefix + "k", **agent.bus.environment_for_clients)
    eventually_is(["first"], lambda: [service.name for service in agent.services()])
    agent.bus.call(NAME, PATH, MANAGER, "UnregisterService", "ss", "first", "")
    eventually_is([], agent.services)
    name = agent.bus.name_of(server.pid)
    agent.bus.signal_to(server.pid, *GONE, NAME, name, name)

    eventually(lambda: shared_cluster.put(prefix + "k", "") and agent.services())

    assert [service.name for service in agent.services()] == ["last"]


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


def test_the_lease_of_a_lock_is_renewed_while_the_program_works(shared_cluster, prefix, program):
    program.python("""
import sys, tenure, time
with tenure.Tie(hold=6) as tie, tie.held().lock(sys.argv[1]) as lock:
    print(tie.lease)
    time.sleep(3600)
""", prefix + "lock", TENURE_ENDPOINTS=shared_cluster.endpoints)
    [key] = eventually(lambda: shared_cluster.range(prefix + "lock/"))
    shared_cluster.wait_for_renewal(key.lease)


def test_a_with_statement_whose_lock_was_lost_raises_at_its_end(shared_cluster, prefix, program):
    locker = program.python("""
import sys, tenure, time
try:
    with tenure.Tie(hold=600) as tie, tie.held().lock(sys.argv[1]) as lock:
        print(tie.lease)
        while lock.held:
            time.sleep(0.01)
        print("stops")
except tenure.Lost as lost:
    print(lost.strerror)
""", prefix + "lock", TENURE_ENDPOINTS=shared_cluster.endpoints)
    lease = int(eventually(locker.lines)[0])

    shared_cluster.revoke(lease)

    assert locker.wait() == 0
    assert locker.lines()[1:] == [
        "stops", f"the lock '{prefix}lock' was lost before its with statement ended; "
        "somebody else may have had it meanwhile"]


def test_a_with_statement_that_hands_its_lock_over_raises_nothing_at_its_end(
        shared_cluster, prefix, program):
    locker = program.python("""
import sys, tenure
with tenure.Tie(hold=600) as one, tenure.Tie(hold=600, name=sys.argv[2]) as two:
    one.held(), two.held()
    with one.lock(sys.argv[1]) as lock:
        waits = two.lock_begin(sys.argv[1])
        print("runs")
        while one.wait().type != tenure.Type.ASKED:
            pass
        lock.hand_over()
        while not waits.held:
            two.wait()
        print("held", lock.held)
    print("ended")
    waits.release()
""", prefix + "lock", "next", TENURE_ENDPOINTS=shared_cluster.endpoints)
    eventually(locker.lines)
    eventually(lambda: len(shared_cluster.range(prefix + "lock/")) == 2)

    shared_cluster.ctl("switchover", prefix + "lock", "next")

    assert locker.wait() == 0
    assert locker.lines() == ["runs", "held False", "ended"]


def test_a_program_that_has_the_descriptor_gets_its_events(shared_cluster, prefix, program):
    loop = program.python("""
import asyncio, sys, tenure, threading, time
async def main():
    tie, last = tenure.Tie(hold=600).held(), asyncio.Event()
    def ready():
        tie.dispatch()
        while (event := tie.pop()):
            if event.type == tenure.Type.PUT:
                print(event.kv.value.decode())
                if event.kv.value == b"last":
                    last.set()
    tie.watch(sys.argv[1])
    asyncio.get_running_loop().add_reader(tie, ready)
    while "tenure" in [thread.name for thread in threading.enumerate()]:
        time.sleep(0.01)  # it would take what comes for the reader
    print("ready")
    await last.wait()
asyncio.run(main())
""", prefix + "k", TENURE_ENDPOINTS=shared_cluster.endpoints)
    eventually(loop.lines)
    # The watch may not stand yet.
    eventually(lambda: shared_cluster.put(prefix + "k", "first") and "first" in loop.lines())

    for value in *map(str, range(10)), "last":
        shared_cluster.put(prefix + "k", value)
        eventually(lambda: value in loop.lines())

    assert loop.wait() == 0


def test_a_child_does_not_wait_for_the_turn_of_a_thread_that_it_does_not_have(
        shared_cluster, program):
    forks = program.python("""
import os, tenure, threading, time
tie, taken = tenure.Tie(hold=600).held(), threading.Event()
def busy():
    with tie._turn:  # as the module's thread, while it dispatches
        taken.set()
        time.sleep(0.2)
threading.Thread(target=busy).start()
taken.wait()
if (child := os.fork()) == 0:
    tie.close()
    os._exit(0)
print("child", os.waitpid(child, 0)[1])
tie.close()
""", TENURE_ENDPOINTS=shared_cluster.endpoints)

    assert forks.wait() == 0
    assert forks.lines() == ["child 0"]
