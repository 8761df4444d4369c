"""A host that lost its place knows it first: what is bound has stopped when the others are told."""

import pytest
from harness.waiting import eventually

DOWN_IN_TIME = r"tenure-held.target is down after \d+ ms, \d+ ms before the deadline"


def stop_the_agent_and_cut(h4):
    h4.signal("tenured", "STOP")
    h4.cut()


def kill_the_agent_for_good(h4):
    h4.configure("kill", "-s", "KILL", TTL="nonsense")


def check_told_after_the_stop(hosts, happens, says):
    """@says: the unit of h4 that writes to the journal that it was in time; None: none does."""
    watch = hosts.h1.watch()
    happens(hosts.h4)
    left = watch.departure("h4")
    assert left.reason == "expired"
    assert hosts.h4.had_stopped(left)
    if says:
        hosts.h4.said(DOWN_IN_TIME, says)


@pytest.mark.parametrize("happens, says", [
    (lambda h4: h4.cut(), "tenured"),
    (lambda h4: h4.cut("silent"), "tenured"),
    (lambda h4: h4.hears_nothing(), "tenured"),
    (stop_the_agent_and_cut, None),
    (kill_the_agent_for_good, "tenure-guard"),
], ids=["cable pulled", "network drops all", "nothing comes in", "agent stopped, cable pulled",
        "agent does not come back"])
def test_what_is_bound_has_stopped_before_the_loss_is_announced(brief_hosts, machine, happens, says):
    with machine.watched():
        check_told_after_the_stop(brief_hosts, happens, says)
        if says == "tenured":
            brief_hosts.h4.said("Node h4 lost its place: ")


def test_a_host_that_was_frozen_stops_what_is_bound_at_once_when_it_continues(brief_hosts):
    h1, h4 = brief_hosts.h1, brief_hosts.h4
    watch = h1.watch()

    h4.freeze()
    assert watch.departure("h4").reason == "expired"
    h4.thaw()

    h4.said("Node h4 lost its place: ")
    h4.said("tenure-held.target is down")


def test_a_host_without_power_has_expired_and_joins_when_it_boots(brief_hosts):
    h1, h4 = brief_hosts.h1, brief_hosts.h4
    watch = h1.watch()

    h4.power_off()
    assert watch.departure("h4").reason == "expired"

    h4.boot()
    eventually(h4.is_back)
    assert h4.waited_at_boot()


@pytest.mark.parametrize("dead", ["h3", "h2"])
def test_a_host_with_a_replica_dies_and_hosts_that_watched_there_are_notified(brief_hosts, dead):
    """h1 and h4 watch at some replica, which may be that one."""
    watches = [brief_hosts.h1.watch(), brief_hosts.h4.watch()]

    brief_hosts.hosts[dead].power_off()

    assert [watch.departure(dead).reason for watch in watches] == ["expired", "expired"]
    brief_hosts.hosts[dead].boot()


# ---- no loss ----

def test_a_cable_that_is_back_in_time_is_used_on_new_connections(brief_hosts):
    """In time by some ten seconds: how late is in time, and how soon it is used, the worlds say."""
    h1, h4 = brief_hosts.h1, brief_hosts.h4
    h4.configure(TTL="24s")
    eventually(h4.is_back)
    lease, watch = h4.lease, h1.watch()

    h4.cut()
    h4.said("Cannot reach the core")  # it has tried to renew
    brief_hosts.heal()

    h4.said(r"The network has changed\.\n(.*\n)*Connected to the core")
    h4.renews(1)
    assert (h4.lease, h4.told_so_far(watch)) == (lease, [])


@pytest.mark.parametrize("worse", [
    lambda h4: h4.loses(30),
    lambda h4: h4.on("tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", "64kbit",
                     "burst", "2kb", "latency", "400ms"),
], ids=["30 % lost", "64 kbit/s"])
def test_a_bad_link_costs_no_place(brief_hosts, machine, worse):
    h1, h4 = brief_hosts.h1, brief_hosts.h4
    h4.configure(TTL="6s")
    eventually(h4.is_back)
    lease, watch = h4.lease, h1.watch()

    with machine.watched():
        worse(h4)
        h4.renews(4)
        brief_hosts.heal()
        h4.on("sh", "-c", "tc qdisc del dev eth0 root 2>/dev/null || true")
        assert (h4.lease, h4.told_so_far(watch)) == (lease, [])
