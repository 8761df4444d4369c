"""Leaving is not failing: the others are told at once, why, and after what is bound has stopped."""
import pytest
from harness.program import ProgramError
from harness.waiting import eventually

SOFT_REBOOT = "[Unit]\nConflicts=tenured.service\nAfter=tenured.service\n"


def soft_reboot(h4):
    """As systemd 254 and later have it: all services end, the kernel stays. Here it is made up."""
    h4.on("sh", "-c", "cat >/run/systemd/system/soft-reboot.target", stdin=SOFT_REBOOT)
    h4.systemctl("daemon-reload")
    h4.systemctl("--no-block", "start", "soft-reboot.target")


def start(h4, _):
    h4.systemctl("start", "tenured")


def boot_by_itself(h4, init):
    """Nobody enters it before that: a call to a systemd that has ended is not answered, and who waits
    for it holds up the shutdown."""
    eventually(lambda: h4.init not in (None, init))


def boot(h4, _):
    eventually(h4.is_off)
    h4.boot()


def wake(h4, _):
    assert not h4.is_active("tenure-held.target")
    h4.wake()


@pytest.mark.parametrize("leave, reason, come_back", [
    (lambda h4: h4.systemctl("stop", "tenured"), "left", start),
    (lambda h4: h4.ctl("leave"), "left", lambda h4, _: h4.ctl("join")),
    (lambda h4: h4.start("systemctl", "reboot"), "reboot", boot_by_itself),
    (soft_reboot, "reboot", start),
    (lambda h4: h4.start("systemctl", "poweroff"), "shutdown", boot),
    (lambda h4: h4.sleep(), "suspend", wake),
], ids=["stop", "leave", "reboot", "soft-reboot", "poweroff", "suspend"])
def test_others_learn_why_a_host_leaves_once_what_is_bound_has_stopped(hosts, leave, reason,
                                                                          come_back):
    h1, h4 = hosts.h1, hosts.h4
    incarnation, watch = h1.nodes()["h4"].incarnation, h1.watch()
    init = h4.init

    leave(h4)

    left = watch.departure("h4")
    if left.reason != reason:  # its own journal says why it could not say that
        assert left.reason == "left"
        assert "has not answered in time whether the host shuts down" in h4.journal()
    if h4.init == init:  # what it said last went with the host otherwise
        assert h4.had_stopped(left)
    come_back(h4, init)
    eventually(h4.is_back)
    assert h1.nodes()["h4"].incarnation != incarnation
    if h4.init != init:
        assert h4.waited_at_boot()


def test_a_host_that_left_keeps_bound_units_down_and_systemctl_says_why(hosts):
    h4 = hosts.h4
    h4.ctl("leave")

    for unit in "tenure-held.target", "only-one":
        with pytest.raises(ProgramError):
            h4.systemctl("start", unit)
        assert not h4.is_active(unit)

    with pytest.raises(ProgramError) as shown:
        h4.systemctl("status", "--no-pager", "tenure-held.target")
    assert "AssertPathExists=/run/tenure/held was not met" in shown.value.out
    h4.ctl("join")


def test_leaving_is_not_for_everybody(hosts):
    with pytest.raises(ProgramError, match="cannot leave: (only root may|polkit asks for auth)"):
        hosts.h4.on("setpriv", "--reuid", "nobody", "tenurectl", "leave")


def test_a_host_that_slept_holds_the_inhibitor_of_the_next_sleep(hosts):
    h4 = hosts.h4
    h4.sleep()
    h4.wake()
    eventually(h4.is_back)
    assert "tenured" in h4.on("systemd-inhibit", "--list", "--no-pager", "--no-legend")
