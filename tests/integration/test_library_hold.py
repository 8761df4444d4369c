"""When a program may act: by a lease of its own, or by the place of its host."""
import errno
import glob
import json
import os
import signal

import pytest
from harness.tie import TieError
from harness.waiting import eventually, eventually_is


# ---- a lease of its own ----

def test_the_key_of_a_session_says_who_has_it_and_outlasts_that_programs_death(engine, ties):
    tie = ties(hold=60, name="session")

    key, lease = engine.get("/tenure/default/sessions/session"), tie.lease()

    said = json.loads(key.value)
    assert key.lease == lease
    assert (said["name"], said["tags"]["pid"]) == ("session", str(tie.pid))
    tie.kill()
    assert engine.lease(lease).keys == [key.key]  # it lasts as long as it was granted for


def test_a_session_has_one_holder_and_the_next_one_gets_it_when_it_is_given_back(engine, ties):
    first = ties(hold=60, name="taken")
    first.register("cache", port=11211, tags={"role": "primary"})
    eventually(lambda: engine.get("/tenure/default/services/cache/taken"))

    second = ties(hold=60, name="taken", held=False)

    lost = second.hears("LOST")
    assert "the session 'taken' is held by another program" in lost.reason
    assert f"pid={first.pid}" in lost.reason
    assert not second.may_act()
    first.leave()
    assert not first.may_act()
    assert "given back" in first.hears("LOST").reason
    second.hears("HELD")
    assert engine.get("/tenure/default/services/cache/taken") is None


def test_a_program_whose_core_says_nothing_loses_its_lease_by_itself(cluster, ties):
    tie = ties(hold=2)
    assert tie.deadline() <= tie.clock() + 2

    for replica in cluster.replicas.values():
        replica.freeze()
    tie.hears("JEOPARDY")
    tie.hears("LOST")
    assert not tie.may_act()
    for replica in cluster.replicas.values():
        replica.thaw()

    tie.hears("HELD")
    assert tie.may_act()


def test_a_program_that_was_stopped_beyond_its_ttl_may_not_act_when_it_continues(
        engine, ties, prefix):
    tie = ties(hold=2, name="stopped")
    tie.freeze()
    ties(hold=600, name="stopped")  # so that it does not get its name back

    may_act = tie.begin("may_act")
    written = tie.begin("put_held", prefix + "k", "late")
    tie.thaw()

    assert not may_act()
    with pytest.raises(TieError) as late:
        written()
    assert late.value.errno == errno.ESTALE
    assert engine.get(prefix + "k") is None


def test_a_write_that_was_decided_on_before_another_one_had_the_place_is_refused(
        engine, ties, prefix):
    first, second = ties(hold=600, name="place"), ties(hold=600, name="place", held=False)
    second.hears("LOST")
    written = first.begin_put_held_and_stop(prefix + "k", "late")
    first.waits_stopped()

    engine.revoke(engine.get("/tenure/default/sessions/place").lease)
    second.hears("HELD")
    second.put_held(prefix + "k", "of the next")
    first.thaw()

    with pytest.raises(TieError, match="Refused.* that guarded it .*nothing was changed"):
        written()
    assert engine.get(prefix + "k").value == "of the next"


# ---- the place of its host ----

@pytest.fixture(params=["memory", "a file"])
def new_agent(request, agents, bus):
    """Makes the host h1. Its programs read its page in memory that cannot shrink, which they map,
    or in a file, which lasts longer than the agent."""
    return lambda **options: agents("h1", bus=bus, keeps=request.param == "a file", **options)


@pytest.fixture
def agent(new_agent):
    return new_agent()


def sockets(program):
    """The inodes of its TCP connections."""
    links = [os.readlink(fd) for fd in glob.glob(f"/proc/{program.pid}/fd/*")]
    own = {link[len("socket:["):-1] for link in links if link.startswith("socket:[")}
    return own & {line.split()[9] for line in open("/proc/net/tcp")}


def test_a_program_waits_for_the_bus_and_for_the_agent(bus, new_agent, ties):
    bus.kill()
    tie = ties(hold="agent", bus=bus, held=False)
    with pytest.raises(TieError, match="cannot connect to the system bus"):
        tie.held(timeout=0)

    bus.start()
    agent = new_agent(held=False)

    tie.hears("HELD")
    assert tie.may_act()
    assert tie.lease() == agent.status().lease_id
    assert sockets(tie) == set()  # what needs only the agent connects to no core


def test_a_service_of_a_program_lasts_beyond_the_bus(agent, bus, shared_cluster, ties):
    tie = ties(hold="agent", bus=bus)
    key = agent.key.replace("nodes", "services/cache")
    tie.register("cache", port=11211, tags={"role": "primary"})
    first = json.loads(eventually(lambda: shared_cluster.get(key)).value)
    assert (first["port"], first["tags"]) == (11211, {"role": "primary"})

    bus.kill()
    bus.start()
    eventually_is(["cache"], lambda: [service.name for service in agent.services()])
    tie.unregister("cache")

    eventually(lambda: shared_cluster.get(key) is None)
    assert "LOST" not in tie.told()


@pytest.mark.parametrize("goes", ["freeze", "kill"])
def test_a_program_whose_agent_does_nothing_loses_the_place_at_its_deadline(
        goes, new_agent, bus, ties):
    agent = new_agent(TTL="2s")
    tie = ties(hold="agent", bus=bus)

    getattr(agent, goes)()
    assert tie.deadline() <= tie.clock() + 2

    tie.hears("JEOPARDY")
    assert "no renewal" in tie.hears("LOST").reason
    assert not tie.may_act()
    agent.thaw() if goes == "freeze" else agent.start()
    tie.hears("HELD")


def test_a_page_in_memory_ends_with_the_agent(agents, bus, ties):
    agent = agents("h1", bus=bus, keeps=False)
    tie = ties(hold="agent", bus=bus)
    tie.hears("HELD")

    agent.crash()

    tie.hears("LOST")
    tie.hears("HELD")
    assert tie.lease() == agent.status().lease_id


@pytest.mark.parametrize("is_there", [True, False])
def test_a_program_may_act_on_while_an_agent_with_a_file_is_killed_and_returns(
        is_there, agents, bus, ties):
    agent = agents("h1", bus=bus)
    tie = ties(hold="agent", bus=bus)
    lease, deadline = tie.lease(), tie.deadline()

    agent.kill()
    if not is_there:
        agent.page.unlink()
    agent.start()

    eventually(lambda: tie.deadline() > deadline)
    assert (tie.lease(), "LOST" in tie.told()) == (lease, False)


def test_a_program_may_not_act_by_a_page_that_is_cut_off(agents, bus, ties):
    agent = agents("h1", bus=bus, TTL="6s")
    tie = ties(hold="agent", bus=bus)
    tie.hears("HELD")

    agent.freeze()  # it would write the page again
    agent.page.write_bytes(b"")
    assert not tie.may_act()
    agent.thaw()

    assert "cannot be read" in tie.hears("LOST").reason
    tie.hears("HELD")


def test_an_agent_that_leaves_waits_for_the_program_that_has_not_taken_the_event_yet(
        agent, bus, shared_cluster, ties):
    told, busy = ties(hold="agent", bus=bus), ties(hold="agent", bus=bus)

    busy.freeze()
    agent.signal(signal.SIGTERM)
    assert "gives its place back" in told.hears("LOST").reason
    assert shared_cluster.get(agent.key)
    busy.thaw()

    assert "gives its place back" in busy.hears("LOST").reason
    assert not busy.may_act()
    assert agent.wait() == 0
    assert shared_cluster.get(agent.key) is None


def test_a_program_that_leaves_does_not_give_the_place_of_its_host_back(
        agent, bus, shared_cluster, ties):
    tie = ties(hold="agent", bus=bus)
    tie.leave()
    assert "given back" in tie.hears("LOST").reason
    assert not tie.may_act()
    assert shared_cluster.get(agent.key)
