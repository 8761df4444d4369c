"""An agent holds its host's place, and other hosts hear what becomes of it."""
import json
import os

import pytest
from harness.agent import MANAGER, NAME, PATH
from harness.bus import DAEMON, GONE
from harness.waiting import eventually, eventually_is


def test_an_agent_holds_its_place_by_a_lease_and_is_listed(agent, core):
    status = agent.status()
    record = core.get(agent.key)

    assert status.state == "held" and status.synced
    assert record.lease == status.lease_id
    assert (core.lease(status.lease_id).granted, core.lease(status.lease_id).keys) == (
        30, [agent.key])
    node, = eventually(agent.nodes).values()
    assert (node.name, node.lease_id) == ("h1", status.lease_id)
    assert node.join_revision == record.create_revision


def test_the_bus_tells_what_tenurectl_tells(agent):
    status = agent.status()

    told = agent.properties()

    assert (told["State"], told["LeaseId"]) == ("held", status.lease_id)
    assert (told["NodeName"], told["Cluster"]) == (status.node_name, status.cluster)
    assert told["TTLUSec"] == 30_000_000
    assert 0 < told["LastRenewalUSec"] < told["DeadlineUSec"]
    assert told["DeadlineUSec"] <= told["LastRenewalUSec"] + told["TTLUSec"]


def test_a_record_with_invalid_text_is_listed_and_no_agent_leaves_the_bus(agent, core):
    bad, lease = os.fsdecode(b"\xf9\x80\x80\x80"), core.grant(300)
    core.put(agent.key.replace("h1", "ghost"), '{"name":"ghost","id":"%s","incarnation":"%s",'
             '"os_release":"%s","addresses":["%s"],"tags":{"a":"%s"}}' % ((bad,) * 5), lease=lease)
    core.put(agent.key.replace("nodes/h1", "services/web/ghost"),
             '{"address":"%s","unit":"%s","state":"%s","tags":{"a":"%s"}}' % ((bad,) * 4), lease=lease)
    eventually(agent.services)

    described, = agent.bus.call(NAME, PATH, MANAGER, "Describe")

    ghost = agent.node("ghost")
    assert (ghost.id, ghost.addresses, ghost.tags) == ("????", ["????"], {"a": "????"})
    assert [service.tags for service in agent.services()] == [{"a": "????"}]
    assert json.loads(described)["nodes"][0]["os_release"] == "????"
    assert "Not on the system bus" not in "".join(agent.lines())


def test_an_agent_that_is_killed_and_restarted_keeps_its_lease_and_nobody_hears_of_it(agents):
    agent, other = agents("h1"), agents("h2")
    eventually(lambda: {"h1", "h2"} == set(other.nodes()))
    watch, lease = other.watch(), agent.status().lease_id

    agent.kill()
    agent.start()
    eventually(agent.holds)
    assert agent.status().lease_id == lease

    # The next event is one that came after that.
    agent.ctl("set-tags", "restarted=yes")
    first = eventually(watch.events)[0]
    assert (first.event, first.name) == ("NodeChanged", "h1")
    assert other.node("h1").tags == {"restarted": "yes"}


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


def test_a_watch_does_not_take_the_agent_for_gone_because_a_stranger_says_so(agent):
    watch = agent.watch()
    agent.bus.signal_to(watch.pid, *GONE, NAME, agent.bus.name_of(agent.pid), "")

    agent.ctl("set-tags", "real=yes")

    first = eventually(watch.events)[0]
    assert (first.event, first.name) == ("NodeChanged", "h1")
    assert watch.log_text() == ""


def test_a_call_does_not_end_because_a_stranger_says_that_its_caller_has_gone(
        agent, core, prefix):
    assert agent.pid not in agent.bus.subscribers(DAEMON)
    caller = agent.background("wait-revision", str(core.put(prefix + "k", "") + 1))
    eventually(lambda: agent.pid in agent.bus.subscribers(DAEMON))  # it has got the call
    name = agent.bus.name_of(caller.pid)
    agent.bus.signal_to(agent.pid, *GONE, name, name, "")

    agent.ctl("set-tags", "later=yes")

    assert caller.wait() == 0


def test_a_watch_shows_only_what_the_agent_has_said(agent):
    watch = agent.watch()
    agent.bus.signal_to(watch.pid, PATH, MANAGER, "NodeLeft", "sssx", "h1", "id", "expired", "1")

    agent.ctl("set-tags", "real=yes")

    first = eventually(watch.events)[0]
    assert (first.event, first.name) == ("NodeChanged", "h1")


def test_a_host_that_leaves_is_reported_with_that_reason_and_stays_out_until_it_joins(agents):
    agent, other = agents("h1"), agents("h2")
    eventually(lambda: {"h1", "h2"} == set(other.nodes()))
    watch = other.watch()

    agent.ctl("leave")
    assert agent.status().state == "left"
    agent.kill()
    agent.start()
    eventually(lambda: agent.properties()["Maintenance"] == "boot")
    assert agent.status().state == "left"

    agent.ctl("join")
    eventually(agent.holds)
    eventually_is([("NodeLeft", "h1", "left"), ("NodeJoined", "h1", "")], lambda: [
        (event.event, event.name, event.reason) for event in watch.events()
        if event.event != "NodeChanged"])


def test_a_host_that_dies_is_reported_as_expired(agents):
    agent, other = agents("h1", TTL="2s"), agents("h2")
    eventually(lambda: {"h1", "h2"} == set(other.nodes()))
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


def test_agents_hold_places_on_an_etcd(etcd, agents):
    first = agents("h1")
    eventually(lambda: set(first.nodes()) == {"h1"})
    watch = first.watch()

    second = agents("h2")
    second.ctl("leave")

    eventually_is([("NodeJoined", ""), ("NodeLeft", "left")], lambda: [
        (event.event, event.reason) for event in watch.events() if event.name == "h2"
        and event.event != "NodeChanged"])
    assert etcd.get(first.key).lease == first.status().lease_id
    assert etcd.get(second.key) is None
