"""What a host that keeps its place lives through: nobody hears of it, and what is bound runs on."""
import os

import pytest
from harness.waiting import eventually, eventually_is


def stop_in_its_tracks(h4):
    h4.signal("tenured", "STOP")
    eventually(lambda: h4.show("tenured", "NRestarts") != "0")  # which the watchdog has done


def upgrade_in_place(h4):
    h4.on("cp", "/usr/bin/tenured", "/usr/bin/new")
    h4.on("mv", "/usr/bin/new", "/usr/bin/tenured")
    h4.systemctl("daemon-reload")
    h4.systemctl("try-restart", "tenured")


def fill_run_and_restart(h4):
    h4.on("mount", "-o", "remount,size=8M", "/run")
    h4.on("sh", "-c", "dd if=/dev/zero of=/run/full bs=64k 2>/dev/null || true")
    h4.systemctl("restart", "tenured")
    h4.on("rm", "/run/full")
    h4.on("mount", "-o", "remount,size=20%", "/run")


@pytest.mark.parametrize("happens", [
    lambda h4: h4.systemctl("restart", "tenured"),
    lambda h4: h4.systemctl("reload", "tenured"),
    lambda h4: h4.signal("tenured", "KILL"),
    stop_in_its_tracks,
    lambda h4: h4.systemctl("restart", "dbus"),
    lambda h4: h4.systemctl("daemon-reexec"),
    upgrade_in_place,
    fill_run_and_restart,
], ids=["restart", "reload", "kill", "stop in its tracks", "another bus", "daemon-reexec",
        "upgrade", "run is full"])
def test_what_a_place_survives_is_not_announced_and_bound_units_run_on(hosts, happens):
    h1, h4 = hosts.h1, hosts.h4
    lease, bound, watch = h4.lease, h4.show("only-one", "MainPID"), h1.watch()

    happens(h4)

    eventually(h4.holds)
    assert (h4.lease, h4.show("only-one", "MainPID")) == (lease, bound)
    assert h4.told_so_far(watch) == []


def is_frozen(host, service):
    return "frozen 1" in (host.group(service) / "cgroup.events").read_text()


@pytest.mark.parametrize("unit", ["tenured", "tenure-guard"])
def test_a_restart_thaws_what_an_earlier_run_has_frozen_and_nothing_else(hosts, unit):
    """As a unit whose disk somebody takes a snapshot of, and one that a guard froze that was then
    killed."""
    h4 = hosts.h4
    ours = h4.group("only-one")
    for theirs in True, False:
        if theirs:
            h4.systemctl("freeze", "only-one")
        else:
            os.setxattr(ours, "user.tenure.frozen", b"1")
            (ours / "cgroup.freeze").write_text("1")
        eventually(lambda: is_frozen(h4, "only-one"))

        h4.systemctl("restart", unit)
        h4.renews()

        if theirs:
            assert is_frozen(h4, "only-one")
            h4.systemctl("thaw", "only-one")
        eventually(lambda: not is_frozen(h4, "only-one"))


def test_a_bus_that_returns_has_the_agent_again(hosts):
    h4 = hosts.h4
    h4.systemctl("restart", "dbus")

    eventually_is("held", lambda: h4.properties()["State"])
    assert h4.systemctl("service-log-level", "tenured").strip() == "debug"


def test_a_replica_that_is_killed_again_and_again_is_started_again(hosts, only_core):
    h3 = hosts.h3
    for _ in range(7):
        before = eventually(lambda: int(h3.show("tenure-core", "MainPID")))
        h3.signal("tenure-core", "KILL")
        eventually(lambda: h3.is_active("tenure-core")
                   and int(h3.show("tenure-core", "MainPID")) != before)


def test_a_host_that_is_starved_reports_it_unless_that_is_switched_off(hosts, only_core):
    h1, h4 = hosts.h1, hosts.h4

    def degraded():
        return "pressure" in h1.ctl("--json=short", "nodes", "h4")

    h4.configure("reload", DegradedCPUPressure="1")
    loops = [h4.start("sh", "-c", "while :; do :; done") for _ in range(4)]
    eventually(degraded)

    h4.configure("reload", DegradedCPUPressure="0")
    eventually(lambda: not degraded())
    for loop in loops:
        loop.kill()
