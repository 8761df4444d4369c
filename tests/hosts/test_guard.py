"""The guard runs beside the agent, outlasts it, and is not missed for long."""
import pytest
from harness.program import ProgramError
from harness.waiting import eventually, eventually_is

GUARD = "tenure-guard"
OTHER_TARGET = "[Unit]\nAssertPathExists=/run/tenure/held\nAfter=tenured.service\n"


def pid_of_guard(host):
    return host.show(GUARD, "MainPID")


def kill_both(h4):
    h4.on("kill", "-KILL", h4.show("tenured", "MainPID"), pid_of_guard(h4))


def restart_it_while_the_agent_is_restarted(h4):
    """As after an upgrade, or a crash."""
    h4.on("sh", "-c", "systemctl kill -s KILL tenured; systemctl restart tenure-guard")


@pytest.mark.parametrize("happens, another", [
    (lambda h4: h4.systemctl("restart", "tenured"), False),
    (lambda h4: h4.signal("tenured", "KILL"), False),
    (lambda h4: h4.signal(GUARD, "KILL"), True),
    (lambda h4: h4.on("kill", "-TERM", pid_of_guard(h4)), True),
    (lambda h4: h4.signal(GUARD, "STOP"), True),  # its watchdog ends it
    (kill_both, True),
    (restart_it_while_the_agent_is_restarted, True),
], ids=["agent restarted", "agent killed", "killed", "ended", "stopped in its tracks",
        "both killed", "restarted with the agent"])
def test_a_guard_outlasts_its_agent_and_another_one_begins_where_it_ends(hosts, happens, another):
    h4 = hosts.h4
    guard, bound = pid_of_guard(h4), h4.show("only-one", "MainPID")

    happens(h4)

    eventually(lambda: h4.is_active(GUARD) and (pid_of_guard(h4) != guard) == another)
    eventually(h4.holds)
    h4.renews(1)
    assert h4.show("only-one", "MainPID") == bound


def test_a_guard_that_fails_while_the_agent_is_restarted_stops_nothing(hosts, part):
    h4 = hosts.h4
    part("tenured", "RestartSec=3s")
    guard, bound = pid_of_guard(h4), h4.show("only-one", "MainPID")

    h4.signal("tenured", "KILL")
    eventually_is("auto-restart", lambda: h4.show("tenured", "SubState"))
    h4.signal(GUARD, "ABRT")

    eventually(h4.holds)
    eventually(lambda: h4.is_active(GUARD) and pid_of_guard(h4) != guard)
    h4.renews(1)
    assert h4.show("only-one", "MainPID") == bound


@pytest.fixture
def other_target(hosts):
    """Another HeldTarget= of h4, which nothing is bound to."""
    h4, name = hosts.h4, "other-held.target"
    h4.on("sh", "-c", f"cat >/run/systemd/system/{name}", stdin=OTHER_TARGET)
    h4.systemctl("daemon-reload")
    h4.configure(HeldTarget=name)
    eventually(lambda: h4.is_active(name))
    yield name
    h4.systemctl("start", "tenured")
    eventually(h4.holds)
    h4.configure(HeldTarget=None)


def stop_both_for_good(h4, part):
    for unit in "tenured", GUARD:
        part(unit, "ExecStart=\nExecStart=/bin/false")
    kill_both(h4)


def test_a_guard_that_cannot_start_where_no_agent_can_stops_what_is_bound(hosts, part):
    stop_both_for_good(hosts.h4, part)

    eventually_is("inactive", lambda: hosts.h4.show("only-one", "ActiveState"))


def test_it_stops_the_target_of_the_settings(hosts, part, other_target):
    stop_both_for_good(hosts.h4, part)

    eventually_is("inactive", lambda: hosts.h4.show(other_target, "ActiveState"))
    for unit in "tenured", GUARD:
        part(unit, "")


def test_a_guard_fences_by_the_settings_of_its_agents_command_line(hosts, part):
    h4 = hosts.h4
    part("tenured", "ExecStart=\nExecStart=/usr/bin/tenured --fence-lead=5s")
    h4.systemctl("restart", "tenured")
    eventually(h4.is_back)
    part("tenured", "ExecStart=\nExecStart=/bin/false")

    h4.signal("tenured", "KILL")

    h4.said(r"is down after \d+ ms, [2-4]\d{3} ms before the deadline", GUARD)


def test_a_guard_stops_and_starts_with_its_agent(hosts):
    h4 = hosts.h4
    h4.systemctl("stop", "tenured")
    eventually_is("inactive", lambda: h4.show(GUARD, "ActiveState"))

    h4.systemctl("start", "tenured")

    eventually(h4.holds)
    assert h4.is_active(GUARD)


def test_a_reload_of_the_agent_reaches_its_guard(hosts):
    hosts.h4.configure("reload", LogLevel="loud")

    hosts.h4.said("LogLevel.* Continuing with the earlier settings", GUARD)


def test_tenurectl_check_says_that_no_guard_is_up(hosts):
    h4 = hosts.h4
    h4.systemctl("stop", GUARD)
    eventually(lambda: "tenure-guard.service is not up" in h4.ctl_whatever("check"))

    h4.systemctl("start", GUARD)
    eventually(lambda: "tenure-guard.service is not up" not in h4.ctl_whatever("check"))


def test_a_second_guard_ends_at_once_and_leaves_the_first_its_socket(hosts):
    h4 = hosts.h4
    with pytest.raises(ProgramError, match="Another guard is already running") as second:
        h4.on("timeout", "10", "/usr/bin/tenured", "--guard")

    assert second.value.status == 1
    h4.on("python3", "-c", "import socket; "
          "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).connect('/run/tenure/guard')")
