"""Programs that use libtenure see who is there, and believe no stranger."""
import socket

import pytest
from harness.agent import MANAGER, NAME, PATH
from harness.bus import GONE
from harness.waiting import eventually, eventually_is


def test_a_program_in_c_learns_who_is_there_and_who_joins_and_leaves(agents, cluster, program):
    first = agents("h1", Cluster="default")
    address = first.node("h1").addresses[0]

    follower = program.c("conf/examples/libtenure/members.c", TENURE_ENDPOINTS=cluster.endpoints)
    synced = eventually(lambda: follower.lines()[1:2])[0]
    second = agents("h2", Cluster="default")
    second.ctl("leave")

    eventually_is([f"joined h1 {address}", synced, f"joined h2 {address}", "left h2: left"],
                  follower.lines)
    assert synced.startswith("synced at revision ")


def test_a_ring_moves_only_the_keys_that_a_node_gains_or_loses(new_cluster, program):
    core, keys, nodes = new_cluster(1), "abcdefghijklmnop", "/tenure/default/nodes/"
    for name in "r1", "r2":
        core.put(nodes + name, f'{{"name":"{name}"}}')
    ring = program.c("conf/examples/libtenure/ring.c", *keys, TENURE_ENDPOINTS=core.endpoints)

    def owners():
        return dict(line.split() for line in ring.lines())

    before = eventually(lambda: len(owners()) == len(keys) and owners())
    core.put(nodes + "r3", '{"name":"r3"}')
    eventually(lambda: "r3" in owners().values())
    core.delete(nodes + "r3")

    eventually_is(before, owners)
    assert set(before.values()) == {"r1", "r2"}
    assert all(line.endswith(" r3") or before[line[0]] == line[2:] for line in ring.lines())


def test_a_signal_of_a_stranger_leads_no_program_to_another_core(agents, ties):
    agent = agents("h1")
    tie = ties(follow=1, bus=agent.bus)
    tie.hears("SYNCED")
    with socket.create_server(("0.0.0.0", 0)) as stranger:
        stranger.setblocking(False)
        for n in range(1, 64):  # a program remembers many endpoints
            agent.bus.signal_to(
                tie.pid, PATH, "org.freedesktop.DBus.Properties", "PropertiesChanged",
                "sa{sv}as", MANAGER, "1", "CoreEndpoint", "s",
                f"http://127.0.0.{n}:{stranger.getsockname()[1]}", "0")

        agents("h2")
        assert tie.hears("NODE_JOINED").node.name == "h2"
        with pytest.raises(BlockingIOError):  # nobody has connected
            stranger.accept()


def test_a_service_is_registered_though_its_address_is_no_text(agent, ties):
    tie = ties(hold="agent", bus=agent.bus)
    tie.register("web", address=b"caf\xe9")

    eventually(agent.services)
    assert agent.properties(f"{PATH}/service/web/h1/_", f"{NAME}.Service")["Address"] == "caf?"


def test_a_program_does_not_register_again_because_a_stranger_says_that_the_agent_is_another(
        agent, ties):
    def names():
        return [service.name for service in agent.services()]

    tie = ties(hold="agent", bus=agent.bus)
    tie.register("first")
    eventually_is(["first"], names)
    agent.call("UnregisterService", "ss", "first", "")
    eventually_is([], names)
    name = agent.bus.name_of(tie.pid)
    agent.bus.signal_to(tie.pid, *GONE, NAME, name, name)

    tie.register("second")
    eventually(names)
    tie.register("last")  # it has heard that signal before it heard of the second one

    eventually(lambda: "last" in names())
    assert sorted(names()) == ["last", "second"]
