"""An agent holds its host's place, and other hosts hear what becomes of it."""
import json
import os

import pytest
from harness.agent import MANAGER, NAME, PATH
from harness.bus import DAEMON, GONE
from harness.waiting import eventually


def test_an_agent_holds_its_place_by_a_lease_and_is_listed(agent, core):
    status, record = agent.status(), core.get(agent.key)

    assert status.state == "held" and status.synced
    assert record.lease == status.lease_id
    assert (core.lease(status.lease_id).granted, core.lease(status.lease_id).keys) == (
        30, [agent.key])
    node, = agent.nodes().values()
    assert (node.name, node.lease_id) == ("h1", status.lease_id)
    assert node.join_revision == record.create_revision


def test_the_bus_has_what_tenurectl_shows(agent):
    status = agent.status()

    told = agent.properties()

    assert (told["State"], told["LeaseId"]) == ("held", status.lease_id)
    assert (told["NodeName"], told["Cluster"]) == (status.node_name, status.cluster)
    assert told["TTLUSec"] == 30_000_000
    assert 0 < told["LastRenewalUSec"] < told["DeadlineUSec"]
    assert told["DeadlineUSec"] <= told["LastRenewalUSec"] + told["TTLUSec"]


def test_a_host_that_dies_is_reported_as_expired(agents):
    agent, other = agents("h1", TTL="2s"), agents("h2")
    other.node("h1")
    watch = other.watch()

    agent.kill()

    left = eventually(watch.events)[-1]
    assert (left.event, left.name, left.reason) == ("NodeLeft", "h1", "expired")
    assert set(other.nodes()) == {"h2"}


def test_an_agent_outlives_the_leader_of_its_core(cluster, agent):
    lease = agent.status().lease_id

    cluster.leader().kill()
    cluster.leader()

    revision = eventually(lambda: cluster.put("after", "1"))
    agent.ctl("wait-revision", str(revision), "60")  # it follows the new leader
    assert (agent.status().state, agent.status().lease_id) == ("held", lease)


def test_a_record_with_invalid_text_is_listed_and_no_agent_leaves_the_bus(agent, core):
    bad, lease = os.fsdecode(b"\xf9\x80\x80\x80"), core.grant(300)
    core.put(agent.key.replace("h1", "ghost"), '{"name":"ghost","id":"%s","incarnation":"%s",'
             '"os_release":"%s","addresses":["%s"],"tags":{"a":"%s"}}' % ((bad,) * 5), lease=lease)
    core.put(agent.key.replace("nodes/h1", "services/web/ghost"),
             '{"address":"%s","unit":"%s","state":"%s","tags":{"a":"%s"}}' % ((bad,) * 4),
             lease=lease)
    eventually(agent.services)

    described, = agent.call("Describe")

    ghost = agent.node("ghost")
    assert (ghost.id, ghost.addresses, ghost.tags) == ("????", ["????"], {"a": "????"})
    assert [service.tags for service in agent.services()] == [{"a": "????"}]
    assert json.loads(described)["nodes"][0]["os_release"] == "????"
    assert not agent.said("Not on the system bus")


@pytest.mark.parametrize("target", ["boots", "/proc/self/mem"])  # it is a loop; EIO
def test_a_list_of_boots_that_cannot_be_read_is_not_overwritten(agent, target):
    boots = agent.folder / "state/boots"
    agent.kill()
    boots.unlink()
    boots.symlink_to(target)

    agent.start()
    eventually(agent.holds)

    assert boots.is_symlink()
    assert f"{boots}: cannot read or write it" in agent.log_text()


# ---- what strangers say ----

def first_change(agent, watch):
    """The name of the first event, when the tags have been set."""
    agent.ctl("set-tags", "real=yes")
    return eventually(watch.events)[0].event


def test_a_watch_shows_only_what_the_agent_has_reported_and_does_not_take_it_for_gone(agent):
    watch = agent.watch()
    agent.bus.signal_to(watch.pid, *GONE, NAME, agent.bus.name_of(agent.pid), "")
    agent.bus.signal_to(watch.pid, PATH, MANAGER, "NodeLeft", "sssx", "h1", "id", "expired", "1")
    assert first_change(agent, watch) == "NodeChanged"
    assert watch.log_text() == ""


def test_a_caller_has_not_gone_because_a_stranger_says_so(agent, core, prefix):
    assert agent.pid not in agent.bus.subscribers(DAEMON)
    waits = agent.background("wait-revision", str(core.put(prefix + "k", "") + 9))
    eventually(lambda: agent.pid in agent.bus.subscribers(DAEMON))  # it has got the call
    server = agent.background("register", "cache", "Port=11211")
    eventually(agent.services)
    watch = agent.watch()

    for caller in waits, server:
        name = agent.bus.name_of(caller.pid)
        agent.bus.signal_to(agent.pid, *GONE, name, name, "")

    assert first_change(agent, watch) == "NodeChanged"  # and no ServiceRemoved
    eventually(lambda: core.put(prefix + "k", "") and not waits.is_running)
    assert waits.wait() == 0
