"""What is around an agent and does not decide about its place: a journal and a DNS that hang, a
bus that is restarted, people who let it leave, ask for it, and change its target."""
import contextlib
import re

import pytest
from harness.places import TOP
from harness.waiting import ProgramError, eventually, eventually_is

pytestmark = pytest.mark.usefixtures("only_core")

OTHER_TARGET = "[Unit]\nAssertPathExists=/run/tenure/held\nAfter=tenured.service\n"


def start_there(host, program, *arguments):
    """A program of tests/harness, which runs on that host until it is killed or the test ends."""
    (host.root / "run" / program).write_text((TOP / "tests/harness" / program).read_text())
    return host.start("python3", f"/run/{program}", *arguments)


def kill(h4):
    before = h4.show("tenured", "MainPID")
    h4.signal("tenured", "KILL")
    eventually(lambda: h4.show("tenured", "MainPID") not in (before, "0"))


def lose_power_and_boot(h4):
    h4.power_off()
    h4.boot()


# ---- the journal ----

@contextlib.contextmanager
def hanging_journal(h4):
    """With all its sockets full."""
    h4.signal("systemd-journald", "STOP")
    filler = start_there(h4, "fill_journal.py")
    eventually(lambda: "full" in filler.text())
    yield
    filler.kill()
    h4.signal("systemd-journald", "CONT")
    h4.on("journalctl", "--sync")  # it has room again


def is_on_the_bus(h4):
    """Asks the bus alone. While it is to start somebody it writes to the journal, and waits."""
    return h4.bus.call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus",
                       "NameHasOwner", "s", "org.tenure.Membership1") == [True]


def test_no_message_waits_for_a_journal_that_hangs_and_those_that_are_missing_are_counted(hosts):
    h4 = hosts.h4
    lease, watch = h4.lease, hosts.h1.watch()

    with hanging_journal(h4):
        kill(h4)
        eventually(lambda: is_on_the_bus(h4))
        eventually(h4.holds)
        assert h4.lease == lease
        assert h4.told_so_far(watch) == []

    h4.configure("reload", ReadyAfter="10min")  # which it has to say
    h4.said(r"\d+ log messages are missing here")


def test_what_is_bound_stops_in_time_although_the_journal_hangs(brief_hosts, machine):
    h4, watch = brief_hosts.h4, brief_hosts.h1.watch()

    with machine.watched(), hanging_journal(h4):
        h4.cut()
        left = watch.departure("h4")
        assert left.reason == "expired"
        assert h4.had_stopped(left)


# ---- DNS ----

@pytest.fixture
def resolver(hosts):
    """resolver(text): what h4 has in its resolv.conf until the test is over."""
    hosts.h4.on("cp", "/etc/resolv.conf", "/run/")
    yield lambda text: hosts.h4.on("sh", "-c", "cat >/etc/resolv.conf", stdin=text)
    hosts.h4.on("cp", "/run/resolv.conf", "/etc/")


def test_a_restart_does_not_wait_for_a_dns_that_says_nothing(hosts, resolver):
    h4 = hosts.h4
    resolver("nameserver 10.77.0.200\noptions timeout:30 attempts:5\n")  # longer than we wait
    h4.configure("restart", Endpoints=f"http://nowhere.test:2379,{hosts.endpoints}")
    eventually(h4.holds)
    lease, watch = h4.lease, hosts.h1.watch()

    h4.systemctl("restart", "tenured")

    eventually(h4.holds)
    assert h4.lease == lease
    assert h4.told_so_far(watch) == []


def test_endpoints_are_those_that_dns_names_when_the_agent_asks(hosts, resolver):
    h1, h4 = hosts.h1, hosts.h4
    names = h1.root / "run/names"
    names.write_text("")
    dns = start_there(h1, "dns.py", h1.address, "tenure.test", "/run/names")
    eventually(lambda: "ready" in dns.text())
    resolver(f"nameserver {h1.address}\n")
    h4.systemctl("stop", "tenured")

    h4.configure("start", "--no-block", Endpoints="srv://tenure.test")
    h4.said("No SRV record _etcd-client._tcp.tenure.test was found")

    names.write_text("h2 10.77.0.2\n")
    eventually(h4.holds)
    lease = h4.lease
    assert h4.status().core_endpoint == "http://h2.tenure.test:2379"

    names.write_text("h1 10.77.0.1\nh3 10.77.0.3\n")
    kill(h4)
    h4.said("the core's endpoints: http://h1.tenure.test:2379,http://h3.tenure.test:2379")
    eventually(h4.holds)
    assert h4.lease == lease
    assert re.fullmatch("http://h[13].tenure.test:2379", h4.status().core_endpoint)


# ---- the bus ----

def test_a_host_that_slept_joins_again_although_the_bus_was_restarted_meanwhile(hosts):
    h4 = hosts.h4
    h4.sleep()
    assert h4.status().state == "left"

    h4.systemctl("restart", "dbus", "systemd-logind")
    h4.wake()

    eventually(h4.is_back)


def test_who_asks_on_the_bus_starts_an_agent_that_was_stopped_but_not_one_that_is_disabled(hosts):
    h4, watch = hosts.h4, hosts.h1.watch()
    h4.systemctl("enable", "--quiet", "tenured")
    h4.systemctl("stop", "tenured")
    h4.ctl_whatever("nodes")
    eventually(h4.is_back)

    h4.systemctl("disable", "--quiet", "--now", "tenured")
    with pytest.raises(ProgramError):
        h4.ctl("nodes")
    assert h4.show("tenured", "ActiveState") == "inactive"

    h4.systemctl("enable", "--quiet", "--now", "tenured")
    eventually(h4.is_back)
    assert watch.told_of("h4") == ["NodeLeft left", "NodeJoined"] * 2
    h4.on("rm", "/etc/systemd/system/dbus-org.tenure.Membership1.service")
    h4.systemctl("daemon-reload")


# ---- people ----

@pytest.mark.parametrize("how_long, happens", [
    ([], kill),
    ([], lambda h4: h4.systemctl("restart", "tenured")),
    ([], lambda h4: h4.stop_and_start()),
    (["--persistent"], lose_power_and_boot),
], ids=["killed", "restarted", "stopped and started", "persistently, and booted"])
def test_a_host_that_left_stays_out_until_join_whatever_becomes_of_it(hosts, how_long, happens):
    h4, watch = hosts.h4, hosts.h1.watch()
    h4.ctl("leave", *how_long)

    happens(h4)

    eventually_is("left", lambda: h4.status().state)
    assert [h4.show(unit, "ActiveState") for unit in ("tenured", "tenure-held.target")] == \
        ["active", "inactive"]
    assert ("also after the next boot" if how_long else "until the next boot") in \
        h4.ctl_whatever("status")
    h4.ctl("join")
    eventually(h4.is_back)
    assert watch.told_of("h4") == ["NodeLeft left", "NodeJoined"]


def test_another_target_takes_the_place_of_one_that_is_up_only_after_a_stop(hosts):
    h4 = hosts.h4

    def are_up():
        return [unit for unit in ("tenure-held.target", "only-one", "other-held.target")
                if h4.is_active(unit)]

    h4.on("sh", "-c", "cat >/run/systemd/system/other-held.target", stdin=OTHER_TARGET)
    h4.systemctl("daemon-reload")
    lease = h4.lease

    h4.configure("reload", LogLevel="debug\n[Fencing]\nHeldTarget=other-held.target\n[Agent]")
    h4.said("HeldTarget= has changed; not while this place is held")
    h4.systemctl("restart", "tenured")
    h4.said("HeldTarget=other-held.target is deferred")
    eventually(h4.holds)
    assert (h4.lease, are_up()) == (lease, ["tenure-held.target", "only-one"])

    h4.stop_and_start()
    eventually_is(["other-held.target"], are_up)


# ---- transient units ----

def test_a_unit_is_found_where_it_is_and_not_where_one_of_its_name_was(hosts):
    h4 = hosts.h4

    for slice in "system.slice", "user.slice":  # which are there: nothing else is new
        h4.on("systemd-run", "--quiet", "--unit=again", f"--slice={slice}",
              "--property=BindsTo=tenure-held.target", "--property=After=tenure-held.target",
              "sleep", "infinity")
        eventually_is([f"/{slice}/again.service"], lambda: re.findall(
            "^again.service (.*)", (h4.root / "run/tenure/bound").read_text(), re.M))
        h4.systemctl("stop", "again")
        eventually_is("not-found", lambda: h4.show("again", "LoadState"))


# ---- no core ----

def test_a_boot_without_a_core_ends_and_bound_units_start_once_there_is_a_place(hosts):
    h4 = hosts.h4
    h4.configure("reload", Endpoints="http://10.77.0.99:2379", ReadyAfter="1s")

    lose_power_and_boot(h4)
    assert (h4.status().state, h4.show("only-one", "ActiveState")) == ("joining", "inactive")

    h4.configure("restart", Endpoints=hosts.endpoints)
    eventually(h4.is_back)
