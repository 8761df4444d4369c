"""A place belongs to one life of one host in one core, and lasts as long as that."""
import os
import re
import signal
import stat

import pytest
from harness.pipes import full_pipe
from harness.places import BIN, TOP
from harness.program import run
from harness.waiting import eventually, eventually_is


def told(watch, name):
    """What was announced of that node, apart from changes."""
    return [(event.event + " " + event.reason).strip() for event in watch.events()
            if event.name == name and event.event != "NodeChanged"]


@pytest.fixture
def other(agents):
    """Another host. It hears of the agent of a test that names it after this one."""
    other = agents("h9")
    other.announced = other.watch()
    return other


# ---- over a restart ----

@pytest.mark.parametrize("killed", [False, True])
def test_a_restart_keeps_lease_services_and_tags_and_is_not_announced(other, agent, core, killed):
    agent.background("register", "queue", "Port=1")
    agent.ctl("set-tags", "kept=yes")
    eventually(lambda: other.services() and other.node("h1").tags)
    n, records = len(other.announced.events()), core.range(agent.key.removesuffix("nodes/h1"))

    agent.crash() if killed else agent.restart()
    eventually(lambda: agent.holds() and agent.services())

    assert core.range(agent.key.removesuffix("nodes/h1")) == records  # not even written again
    agent.ctl("set-tags", "later=yes")
    eventually(lambda: other.announced.events()[n:])
    assert {event.event for event in other.announced.events()[n:]} == {"NodeChanged"}


def test_a_service_is_removed_whose_program_has_ended_while_no_agent_ran(agent, core):
    caller = agent.background("register", "queue", "Port=1")
    eventually(agent.services)
    lease = agent.status().lease_id

    agent.kill()
    caller.kill()
    agent.start()

    eventually(lambda: core.range(agent.key.replace("nodes/h1", "services/")) == [])
    eventually(agent.holds)
    assert agent.status().lease_id == lease


def test_a_host_that_keeps_nothing_of_its_place_replaces_itself(other, agents):
    agent = agents("h1", environment={"RUNTIME_DIRECTORY": "", "STATE_DIRECTORY": ""})
    other.node("h1")

    agent.crash()

    eventually_is(["NodeJoined", "NodeLeft replaced", "NodeJoined"],
                  lambda: told(other.announced, "h1"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device that is always full")
def test_a_place_that_cannot_be_stored_is_held_and_the_log_says_so_once(agents, tmp_path):
    os.mknod(tmp_path / "place", 0o600 | stat.S_IFCHR, os.makedev(1, 7))
    agent = agents("h1", TTL="2s", environment={"RUNTIME_DIRECTORY": str(tmp_path)})
    agent.log_has("Cannot keep the place for a restart: No space left on device")

    for _ in range(2):
        renewed = agent.properties()["LastRenewalUSec"]
        eventually(lambda: agent.properties()["LastRenewalUSec"] != renewed)

    assert agent.log_text().count("Cannot keep the place") == 1
    assert agent.holds()


def test_another_name_waits_until_the_place_is_given_back(agent):
    lease = agent.status().lease_id
    agent.write_settings(NodeName="h7")

    agent.restart()
    assert "NodeName=h7 is deferred: the place is still held as 'h1'" in agent.log_text()
    assert (agent.status().node_name, agent.status().lease_id) == ("h1", lease)

    assert agent.stop() == 0
    agent.start()
    eventually(agent.holds)
    assert agent.status().node_name == "h7"


def test_a_damaged_file_is_no_place(agent):
    place = agent.folder / "run/place"
    agent.kill()
    place.write_text(place.read_text().replace("NODE=h1", "NODE=h2"))

    agent.start()

    agent.log_has("left is damaged")
    eventually(agent.holds)
    assert agent.status().node_name == "h1"


@pytest.mark.parametrize("with_a_copy", [False, True], ids=["removed", "replaced by a copy"])
def test_a_file_that_somebody_takes_away_is_back_with_the_next_renewal(agent, with_a_copy):
    place, lease = agent.folder / "run/place", agent.status().lease_id
    before = place.read_text()
    place.unlink()
    if with_a_copy:
        place.write_text(before)

    eventually(lambda: place.exists() and place.read_text() not in ("", before))

    agent.crash()
    eventually(agent.holds)
    assert agent.status().lease_id == lease


@pytest.mark.parametrize("how", [signal.SIGUSR1, signal.SIGKILL])
def test_an_agent_that_is_restarted_reports_what_happened_meanwhile(agents, how):
    agent, leaver, stayer = (agents(name) for name in ("h1", "h2", "h3"))
    stayer.background("register", "web", "Port=80")
    eventually(lambda: len(agent.nodes()) == 3 and agent.services())
    watch = agent.watch()

    agent.signal(how)
    agent.wait()
    leaver.stop()
    agent.start()

    assert "h3" in eventually(lambda: agent.ctl("nodes"))
    assert watch.departure("h2").reason == "left"
    eventually(agent.holds)
    assert set(agent.nodes()) == {"h1", "h3"} and agent.services()
    agent.ctl("set-tags", "settled=yes")
    eventually_is(["NodeLeft", "NodeChanged"],
                  lambda: [event.event for event in watch.events() if event.name])


@pytest.mark.parametrize("how", [signal.SIGUSR1, signal.SIGKILL])
def test_what_the_bus_has_not_taken_yet_is_announced_after_a_restart(agents, core, tmp_path, how):
    """Like the packaged unit, the agent has no capabilities: what the kernel takes is bounded."""
    program = tmp_path / "tenured"
    drop = "setpriv --bounding-set=-all --" if os.geteuid() == 0 else ""
    program.write_text(f'#!/bin/sh\nexec {drop} {BIN}/tenured "$@"\n')
    program.chmod(0o755)
    agent = agents("h1", program=program)
    folder = agent.key.removesuffix("h1")
    watch = agent.watch()

    agent.bus.freeze()
    core.put_all([(f"{folder}{'x' * 200}{n}", "{}") for n in range(4000)])
    agent.log_has(f"Node {'x' * 200}3999 joined")
    agent.signal(how)
    agent.wait()
    agent.bus.thaw()
    agent.start()

    eventually(agent.holds)
    eventually(lambda: {event.name for event in watch.events() if event.event == "NodeJoined"} >=
               set(agent.nodes()) - {"h1"} != set())


def test_an_agent_that_returns_too_late_knows_that_it_has_lost(agents, core):
    agent = agents("h1", TTL="2s")
    lease = agent.status().lease_id
    agent.kill()
    eventually(lambda: core.get(agent.key) is None)

    agent.start()

    eventually(lambda: agent.holds_another(lease))
    assert "lost its place: no renewal was acknowledged" in agent.log_text()
    assert "goes on holding its place" not in agent.log_text()


def test_a_stop_gives_the_place_back_and_leaves_none_to_resume(agent, core):
    assert agent.stop() == 0
    assert core.get(agent.key) is None
    assert (agent.folder / "run/place").read_text() == ""


def test_a_log_that_nobody_reads_holds_up_nobody(agent, tmp_path):
    lease = agent.status().lease_id
    agent.command = ["sh", "-c", 'exec "$@" 2<>"$0"', full_pipe(tmp_path)[0], *agent.command]

    agent.restart()

    agent.ctl("set-tags", "goes-on=yes")
    eventually(lambda: agent.node("h1").tags)
    assert agent.status().lease_id == lease


# ---- out on request ----

def test_who_leaves_persistently_stays_out_also_after_a_boot(agent):
    agent.ctl("leave", "--persistent")

    agent.boot()

    eventually(lambda: agent.properties()["Maintenance"] == "persistent")
    assert agent.status().state == "left"

    agent.ctl("join")
    agent.ctl("join")  # that is no mistake
    eventually(agent.holds)


def test_a_host_that_leaves_until_the_next_boot_learns_that_and_others_why_it_has_gone(other, agent, engine):
    other.node("h1")

    agent.ctl("leave")

    assert engine.get(agent.key) is None
    agent.ctl("leave")  # that is no mistake
    assert "Stays out: until the next boot" in agent.ctl_whatever("status")
    assert agent.stop() == 0
    agent.start()
    eventually(lambda: agent.properties()["Maintenance"] == "boot")
    agent.ctl("join")
    eventually_is(["NodeJoined", "NodeLeft left", "NodeJoined"],
                  lambda: told(other.announced, "h1"))


def test_who_cannot_write_that_it_stays_out_leaves_and_says_so(agent):
    state = agent.folder / "state"
    state.rename(agent.folder / "away")

    sentence, status = agent.refusal("leave", "--persistent")

    assert re.search("will join again at its next boot: .*No such file or directory", sentence)
    assert agent.status().state == "left"
    (agent.folder / "away").rename(state)


def test_who_cannot_forget_that_it_stays_out_joins_and_says_so(agent):
    agent.ctl("leave", "--persistent")
    order = agent.folder / "state/maintenance"
    order.unlink()
    order.mkdir()  # that is not removed like a file

    for _ in range(2):
        sentence, _ = agent.refusal("join")
        assert re.search("will stay out after its next boot: .*Is a directory", sentence)
        eventually(agent.holds)
    sentence, _ = agent.refusal("leave")
    assert re.search("will stay out after its next boot as well: .*Is a directory", sentence)

    order.rmdir()
    agent.ctl("join")
    agent.boot()
    eventually(agent.holds)


# ---- what ends it ----

def test_a_node_that_flaps_stays_out_until_somebody_lets_it_in(agents, core):
    agent = agents("h1", FlapLimit=2, FlapRest="1h")
    for _ in range(2):
        lease = agent.status().lease_id
        core.revoke(lease)
        eventually(lambda: agent.holds_another(lease) or "it stays out" in agent.log_text())

    agent.log_has("2 times by now, so it stays out for 3600 s")
    agent.signal(signal.SIGUSR1)
    agent.wait()
    agent.start()
    eventually(lambda: "because it flapped" in agent.ctl_whatever("status"))
    assert agent.status().state == "joining"

    agent.ctl("join")
    eventually(agent.holds)


def test_most_nodes_gone_at_once_is_a_mass_failure(agent, core):
    lease = core.grant(600)
    for n in range(5):
        core.put(agent.key.replace("h1", f"mass{n}"), '{"id":"i"}', lease=lease)
    eventually(lambda: len(agent.nodes()) == 6)
    assert not agent.properties()["MassFailure"]

    core.revoke(lease)

    eventually(lambda: agent.properties()["MassFailure"])
    assert "most nodes have gone at once" in agent.ctl("status")
    assert set(agent.nodes()) == {"h1"}


def test_a_silent_core_costs_the_place(agents, cluster):
    agent = agents("h1", TTL="3s")

    for replica in cluster.replicas.values():
        replica.freeze()

    agent.log_has("Node h1 lost its place")
    # A46: the exit status tells whether the host holds its place.
    assert agent.refusal("status")[1] == 2
    for replica in cluster.replicas.values():
        replica.thaw()
    eventually(agent.holds)


def test_a_wall_clock_that_is_set_by_days_costs_no_lease(new_cluster, agents, tmp_path):
    clock, library = tmp_path / "clock", tmp_path / "wrong_clock.so"
    run("gcc", "-shared", "-fPIC", "-o", library, TOP / "tests/harness/wrong_clock.c", "-ldl")
    clock.write_text("0")
    wrong = {"LD_PRELOAD": str(library), "WRONG_CLOCK": str(clock),
             "ASAN_OPTIONS": "verify_asan_link_order=0"}
    agent = agents("h1", Endpoints=new_cluster(1, **wrong).endpoints, TTL="4s", environment=wrong)
    lease = agent.status().lease_id

    for days in 3, -5, 400:
        clock.write_text(str(days * 86400))
        renewed = agent.properties()["LastRenewalUSec"]
        eventually(lambda: agent.properties()["LastRenewalUSec"] > renewed)

    assert agent.status().lease_id == lease


# ---- whose place it is ----

def test_a_host_whose_key_is_deleted_joins_again(other, agent, engine):
    other.node("h1")
    before = agent.node("h1")

    engine.delete(agent.key)

    eventually(lambda: agent.holds_another(before.lease_id))
    assert "Node h1 lost its place: its key was deleted" in agent.log_text()
    eventually_is(["NodeJoined", "NodeLeft expired", "NodeJoined"],
                  lambda: told(other.announced, "h1"))
    assert agent.node("h1").incarnation != before.incarnation


def test_a_host_whose_key_was_deleted_while_it_was_away_joins_again(agent, engine):
    lease = agent.status().lease_id
    agent.kill()
    engine.delete(agent.key)

    agent.start()

    eventually(lambda: agent.holds_another(lease))
    assert engine.get(agent.key).lease == agent.status().lease_id


def test_a_place_that_another_host_has_taken_is_lost_and_the_log_says_to_whom(agent, engine):
    lease = engine.grant(600)
    engine.put(agent.key, '{"id":"%s","boot_id":"b","incarnation":"x"}' % ("f" * 32), lease=lease)

    agent.log_has("Node h1 lost its place: another host has taken the place")
    agent.log_has("the name 'h1' is held by another node (id " + "f" * 32)
    engine.revoke(lease)

    eventually(agent.holds)


def test_a_name_that_is_taken_is_refused_and_its_holder_holds_on(agents):
    holder = agents("h1")
    second = agents("h2", NodeName="h1", held=False)
    second.log_has(f"the name 'h1' is held by another node (id {holder.settings['NodeId']}")
    assert holder.holds()


def test_an_agent_without_a_bus_holds_its_place_and_says_so(agents):
    agent = agents("h1", held=False, environment={"DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/none"})
    agent.log_has("Not on the system bus at unix:path=/none: ")
    agent.log_has("Node h1 holds its place")


def test_a_clone_gets_no_place_while_its_original_has_it(other, agents, engine):
    def twin(name):
        return agents(name, NodeName="h1", NodeId="1" * 32, held=False)

    refused = "the place of 'h1' is held by another host with the same node id"
    first = twin("first")
    eventually(first.holds)
    lease = first.status().lease_id
    other.node("h1")
    second = twin("second")

    second.log_has(refused)
    first.log_has("Another host claims to be node h1")
    second.crash()  # it was never the holder, and knows it
    eventually(lambda: second.log_text().count(refused) == 2)
    assert (first.status().lease_id, second.status().state) == (lease, "joining")
    assert refused in second.properties()["Trouble"] and first.properties()["Trouble"] == ""
    assert told(other.announced, "h1") == ["NodeJoined"]

    assert first.stop() == 0
    eventually(second.holds)
    first.start()
    first.log_has(refused)
    assert second.holds()


def test_an_earlier_boot_of_a_host_is_no_clone_of_it(other, agents, engine):
    agent = agents("h1")
    other.node("h1")
    lease = agent.status().lease_id
    agent.kill()
    # No host boots within a second; an etcd tells times in whole ones.
    eventually(lambda: engine.lease(lease).ttl <= 27)

    agent.boot()

    eventually_is(["NodeJoined", "NodeLeft rebooted", "NodeJoined"],
                  lambda: told(other.announced, "h1"))


def with_other_name(agent, engine):
    """It fails and boots with the name h7."""
    lease = agent.status().lease_id
    agent.kill()
    eventually(lambda: engine.lease(lease).ttl <= 27)  # as above
    agent.write_settings(NodeName="h7")
    agent.boot()


def test_a_host_that_boots_with_another_name_is_not_listed_twice(other, agents, engine):
    agent = agents("h1")
    agent.background("register", "queue", "Port=1")
    eventually(lambda: [service.node for service in other.services()] == ["h1"])

    with_other_name(agent, engine)

    eventually(agent.holds)
    assert engine.get(agent.key) is None
    eventually_is(["NodeJoined", "NodeLeft replaced"], lambda: told(other.announced, "h1"))
    eventually_is(["NodeJoined"], lambda: told(other.announced, "h7"))
    other.log_has("Node h1 left: replaced; its host is node h7.")
    eventually(lambda: [service.node for service in other.services()] == ["h7"])
    assert engine.get(agent.key.replace("nodes/", "services/queue/")) is None
    assert set(other.nodes()) == {"h7", "h9"}


def test_a_host_whose_new_name_is_held_gets_no_place_and_leaves_its_old_one(other, agents, engine):
    agents("h7")
    agent = agents("h1")

    with_other_name(agent, engine)

    agent.log_has("the name 'h7' is held by another node")
    assert engine.get(agent.key)


def test_a_node_id_that_another_host_has_is_refused_whatever_the_name(other, agents, engine):
    def twin(name):
        return agents(name, NodeId="1" * 32, held=False)

    first = twin("first")
    eventually(first.holds)
    lease = first.status().lease_id
    second = twin("second")

    second.log_has("this host's node id is that of node 'first'")
    first.log_has("Another host, second, has our node id")
    assert (first.status().lease_id, second.status().state) == (lease, "joining")
    assert "second" not in other.nodes()

    assert first.stop() == 0
    eventually(second.holds)
