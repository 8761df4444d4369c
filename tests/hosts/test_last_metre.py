"""The last metre: whatever systemd, or who uses it, is doing, what is bound to the place has
stopped when the others are told that it is free, nothing joins before, and the fence works
afterwards, as the next test sees. tenured(8) has a table of it."""
import contextlib
import os
import re
import signal
import threading
import time

import pytest
from harness import ledger
from harness.program import ProgramError
from harness.waiting import eventually, eventually_is

pytestmark = pytest.mark.night("it holds places of 2 s, and takes long")

BOUND = "BindsTo=tenure-held.target\nAfter=tenure-held.target\n"
IN_SLICE = "Slice=tenure-held.slice"
IGNORES_TERM = "ExecStart=/usr/bin/only-one %p TERM"
LEAD = 0.5  # seconds; at the TTL of these hosts


@pytest.fixture
def put(brief_hosts):
    """put(h4, "web.service", text): a unit or a part of one, until the test is over."""
    made = []

    def write(host, name, text):
        file = host.root / "run/systemd/system" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        made.append((host, file))
        host.systemctl("daemon-reload")

    yield write
    if ledger.failed():  # so the hosts end
        return
    for host in {host for host, _ in made}:
        files = [file for owner, file in made if owner is host]
        units = [file.name for file in files if file.suffix != ".conf"]
        host.on("sh", "-c", 'systemctl stop "$@"; systemctl reset-failed "$@" || true', "-", *units)
        for file in files:
            file.unlink(missing_ok=True)  # a reboot takes them along
        host.systemctl("daemon-reload")


@pytest.fixture
def bound(put):
    """bound(h4, "plain", "Restart=always"): a unit bound to the place, which the agent knows, and
    which says all the time that it runs, by its own name or by that of @says; with these lines in
    [Service], and @unit in [Unit]."""
    def start(host, name, *service, unit=BOUND, says=None):
        for old in host.root.glob(f"run/{says or name}*.[01]"):
            old.unlink()
        put(host, f"{name}.service", "\n".join([
            "[Unit]\nStartLimitIntervalSec=0", unit, "[Service]",
            *([] if "ExecStart=" in "".join(service) else ["ExecStart=/usr/bin/only-one %p"]),
            *service, ""]))
        host.systemctl("start", name)
        eventually(lambda: host.last_ran(says or name))
        eventually(lambda: f"\n{name}.service " in "\n" + bound_units(host))

    return start


def bound_units(host):
    """As systemd has told its agent."""
    return (host.root / "run/tenure/bound").read_text()


def ran_on(host, left, *names):
    """Which of these ran when the others knew already, and for how many milliseconds."""
    late = {name: (host.last_ran(name) - left.realtime_usec) / 1000 for name in names}
    return {name: ms for name, ms in late.items() if ms >= 0}


def joins(watch):
    """Waits until h4 has joined after that."""
    return eventually(lambda: next((event for event in watch.events() if event.event ==
                                    "NodeJoined" and event.name == "h4"), None))


def agents(host):
    """Its agents' process ids, from outside."""
    try:
        pids = (host.group("tenured") / "cgroup.procs").read_text().split()
        return {int(pid) for pid in pids
                if open(f"/proc/{pid}/cmdline").read().startswith("/usr/bin/tenured")}
    except OSError:  # it goes, or is not there yet
        return set()


def signal_agent(host, number):
    """Without asking systemd."""
    for pid in agents(host):
        os.kill(pid, number)


# ---- what is in the way: until the context is left ----

@contextlib.contextmanager
def systemd_stands_still(host):
    init = host.init
    os.kill(init, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(init, signal.SIGCONT)


@contextlib.contextmanager
def systemd_goes_on_anew(host):
    """It has lost the stop then, and starts again what has ended, by Restart=."""
    with systemd_stands_still(host):
        os.kill(host.init, signal.SIGTERM)  # says daemon-reexec to it, systemd(1)
        yield


@contextlib.contextmanager
def agent_hangs_too(host):
    with systemd_stands_still(host):
        signal_agent(host, signal.SIGSTOP)
        yield


@contextlib.contextmanager
def agent_dies_too(host):
    with systemd_stands_still(host):
        signal_agent(host, signal.SIGKILL)
        yield


@contextlib.contextmanager
def next_agent_is_told_nothing(host):
    """systemd stands still before it could tell a new agent what is bound."""
    old = agents(host)
    signal_agent(host, signal.SIGKILL)
    while not agents(host) - old:
        pass
    with systemd_stands_still(host):
        yield


@contextlib.contextmanager
def slow_generator(host):
    """systemd does nothing but wait for it, in a daemon-reload."""
    file, now = host.root / "run/systemd/system-generators/slow", host.root / "run/slow.now"
    file.parent.mkdir(exist_ok=True)
    file.write_text("#!/bin/sh\n: >/run/slow.now\n"
                    "while [ -e /run/slow.now ]; do sleep 0.02; done\n")
    file.chmod(0o755)
    reload = host.start("systemctl", "daemon-reload")
    eventually(now.exists)
    try:
        yield
    finally:
        file.unlink()
        now.unlink()
    assert reload.wait() == 0


@contextlib.contextmanager
def starts(host):
    """All is started, again and again."""
    go_on = host.root / "run/go-on"
    go_on.touch()
    loop = host.start("sh", "-c", "while [ -e /run/go-on ]; do systemctl start --no-block plain "
                      "inside only-one tenure-held.target; sleep 0.01; done")
    yield
    go_on.unlink()
    loop.wait()


def reexec_before_the_stop(seconds):
    """systemd loses requests that it has not carried out."""
    @contextlib.contextmanager
    def way(host):
        host.renews(1)
        left = (host.properties()["DeadlineUSec"] / 1e6
                - time.clock_gettime(time.CLOCK_BOOTTIME) - LEAD - seconds)
        timer = threading.Timer(left, os.kill, (host.init, signal.SIGTERM))
        timer.start()
        yield
        timer.join()

    return way


@pytest.mark.parametrize("in_the_way", [
    starts, systemd_stands_still, systemd_goes_on_anew, agent_hangs_too, agent_dies_too,
    next_agent_is_told_nothing, slow_generator,
    *map(reexec_before_the_stop, (0.02, 0.06, 0.12)),
], ids=["starts", "systemd stands still", "systemd goes on anew", "agent hangs too",
        "agent dies too", "next agent is told nothing", "slow generator", "reexec 20 ms before",
        "reexec 60 ms before", "reexec 120 ms before"])
def test_what_is_bound_has_stopped_whatever_systemd_is_doing(brief_hosts, machine, bound,
                                                             in_the_way):
    h4 = brief_hosts.h4
    bound(h4, "plain", "Restart=always\nRestartSec=0")
    bound(h4, "inside", IN_SLICE, "KillMode=process", unit="")
    bound(h4, "slow", IGNORES_TERM, "TimeoutStopSec=10s")
    watch = brief_hosts.h1.watch()

    with machine.watched():
        with in_the_way(h4):
            h4.cut()
            left = watch.departure("h4")
            assert ran_on(h4, left, "plain", "inside", "slow", "only-one") == {}
        eventually_is("inactive", lambda: h4.show("tenure-held.target", "ActiveState"))
        brief_hosts.heal()
        eventually(h4.is_back)
        assert ran_on(h4, left, "plain", "inside", "slow") == {}, "nothing starts them again"


def test_an_agent_that_systemd_does_not_answer_joins_only_once_all_is_down(brief_hosts):
    h4, watch = brief_hosts.h4, brief_hosts.h1.watch()

    with systemd_stands_still(h4):
        h4.cut()
        watch.departure("h4")
        h4.said("tenure-held.target is still up at the deadline")
        h4.said("has not answered for 4000 ms")  # it is asked less and less often
        brief_hosts.heal()
        eventually(lambda: h4.status().synced)
        goes_on = time.time() * 1e6

    assert joins(watch).realtime_usec > goes_on


@pytest.mark.parametrize("tampers", [
    "rm /run/tenure/held /run/tenure/place",
    "chmod 0 /run/tenure/held /run/tenure/place",
    "chown 65534 /run/tenure/held /run/tenure/place",
    "rm /run/tenure/held; : >/run/tenure/held; cp /run/tenure/place /run/p; "
    "mv /run/p /run/tenure/place",
], ids=["rm", "chmod", "chown", "others in place"])
def test_tampering_with_the_guards_files_stops_nothing_and_not_the_guard(
        brief_hosts, machine, bound, tampers):
    h4 = brief_hosts.h4
    h4.configure(TTL="12s")  # for an agent that is restarted meanwhile
    eventually(h4.is_back)
    bound(h4, "plain", "Restart=always")
    watch, before = brief_hosts.h1.watch(), h4.show("only-one", "MainPID")

    for then in lambda: h4.signal("tenured", "KILL"), lambda: None:
        h4.on("sh", "-c", tampers)
        h4.renews()  # which the agent notes for the next one
        then()
        eventually(h4.holds)
        h4.renews()
        assert h4.show("only-one", "MainPID") == before

    with machine.watched(), agent_hangs_too(h4):
        h4.cut()
        assert ran_on(h4, watch.departure("h4"), "plain", "only-one") == {}


def test_a_guard_brings_all_down_where_an_agent_hangs_permanently(brief_hosts, put, bound):
    h4 = brief_hosts.h4
    put(h4, "tenured.service.d/no-watchdog.conf", "[Service]\nWatchdogSec=0\n")
    h4.configure("restart")
    eventually(h4.is_back)
    bound(h4, "plain", "Restart=always")
    watch = brief_hosts.h1.watch()

    h4.signal("tenured", "STOP")

    assert ran_on(h4, watch.departure("h4"), "plain", "only-one") == {}
    eventually(lambda: not any((h4.root / "run/tenure" / name).exists()
                               for name in ("held", "stopping")))
    h4.signal("tenured", "KILL")


@pytest.mark.parametrize("takes", ["60s", "500ms"])
def test_an_agent_killed_while_it_waits_to_stop_leaves_the_rest_to_its_guard(brief_hosts, put,
                                                                             bound, takes):
    h4 = brief_hosts.h4
    put(h4, "tenure-guard.service.d/short.conf", "[Service]\nTimeoutStopSec=1s\n")
    h4.configure(TTL="8s")
    eventually(h4.is_back)
    bound(h4, "slow", IGNORES_TERM, f"TimeoutStopSec={takes}")
    watch, starts = brief_hosts.h1.watch(), h4.journal("tenure-held.target").count("Reached")

    h4.on("sh", "-c", "systemctl stop --no-block tenured; until [ -e /run/tenure/stopping ]; do "
          "sleep 0.01; done; systemctl kill -s KILL tenured")

    assert ran_on(h4, watch.departure("h4"), "slow", "only-one") == {}
    eventually_is("inactive", lambda: h4.show("tenure-guard", "ActiveState"))
    assert h4.journal("tenure-held.target").count("Reached") == starts


def freeze_for_too_long(h4, watch):
    h4.freeze()
    watch.departure("h4")
    h4.thaw()


@pytest.mark.parametrize("lose", [
    freeze_for_too_long,
    lambda h4, _: h4.rig.etcdctl("del", "/tenure/default/nodes/h4"),
], ids=["frozen", "key deleted"])
def test_a_host_that_has_no_place_any_more_gives_nobody_the_time_to_stop(brief_hosts, bound, lose):
    h4 = brief_hosts.h4
    bound(h4, "stubborn", IGNORES_TERM, "TimeoutStopSec=infinity")
    watch = brief_hosts.h1.watch()

    lose(h4, watch)

    assert h4.last_ran("stubborn") < joins(watch).realtime_usec


@pytest.mark.parametrize("leave", [
    lambda h4: h4.cut(),
    lambda h4: h4.systemctl("stop", "tenured"),
], ids=["cut", "stop"])
def test_whatever_is_left_of_a_unit_or_hangs_in_its_clean_up_counts(brief_hosts, machine, bound,
                                                                    leave):
    h4 = brief_hosts.h4
    background = "ExecStart=/bin/sh -c 'setsid /usr/bin/only-one %p TERM & exec sleep infinity'"
    clean_up = "ExecStopPost=/usr/bin/only-one %p-post TERM\nTimeoutStopSec=2s"
    bound(h4, "parent", background, "KillMode=process")
    bound(h4, "unordered", unit="BindsTo=tenure-held.target")
    bound(h4, "child", IGNORES_TERM, "TimeoutStopSec=2s", unit="Requires=only-one.service")
    bound(h4, "after", clean_up)
    bound(h4, "late", IGNORES_TERM, IN_SLICE, clean_up, unit="")
    watch = brief_hosts.h1.watch()

    with machine.watched():
        leave(h4)
        assert ran_on(h4, watch.departure("h4"), "parent", "unordered", "child", "after",
                      "after-post", "late", "late-post", "only-one") == {}
    h4.systemctl("start", "tenured")


def test_a_main_process_outside_of_its_units_control_group_is_found(brief_hosts, machine, bound):
    """As a session manager moves it, for su(1) and PAMName=: systemd stops that process alone."""
    h4 = brief_hosts.h4
    move = ("busctl --quiet call org.freedesktop.systemd1 /org/freedesktop/systemd1 "
            "org.freedesktop.systemd1.Manager StartTransientUnit 'ssa(sv)a(sa(sv))' aside.scope "
            "fail 1 PIDs au 1 $$$$ 0 && exec /usr/bin/only-one aside TERM")
    bound(h4, "aside", f'ExecStart=/bin/sh -c "{move}"', IN_SLICE, "TimeoutStopSec=20s")
    watch = brief_hosts.h1.watch()
    eventually(lambda: "/aside.scope\n" in bound_units(h4))
    assert "aside.service has its main process in" in h4.ctl_whatever("check")

    with machine.watched():
        h4.cut()
        assert ran_on(h4, watch.departure("h4"), "aside", "only-one") == {}


def mount(where, kind, more=""):
    return (f"[Unit]\n{BOUND}[Mount]\nWhat={kind}\nWhere=/srv/{where}\nType={kind}\n{more}\n")


def test_a_host_leaves_only_once_a_bound_mount_is_unmounted(brief_hosts, put):
    h4 = brief_hosts.h4
    put(h4, "srv-busy.mount", mount("busy", "tmpfs"))
    h4.systemctl("start", "srv-busy.mount")
    h4.on("systemd-run", "--quiet", "--unit=user", "sh", "-c", "cd /srv/busy && sleep infinity")
    eventually(lambda: "/srv/busy" in h4.on("sh", "-c", "ls -l /proc/[0-9]*/cwd 2>/dev/null || :"))
    watch = brief_hosts.h1.watch()

    stop = h4.start("systemctl", "stop", "tenured")
    h4.said("Failed unmounting", "srv-busy.mount")
    h4.renews()
    h4.on("findmnt", "/srv/busy")
    free = time.time() * 1e6
    h4.systemctl("stop", "user")

    assert watch.departure("h4").realtime_usec > free
    with pytest.raises(ProgramError):
        h4.on("findmnt", "/srv/busy")
    assert stop.wait() == 0
    h4.systemctl("start", "tenured")


def test_what_unmounts_is_not_killed(brief_hosts, put, bound):
    h4 = brief_hosts.h4
    umount = h4.root / "sbin/umount.ramfs"
    umount.write_text('#!/bin/sh\nsleep 0.3; exec umount -i "$1"\n')
    umount.chmod(0o755)
    for where, slice in ("outside", ""), ("within", IN_SLICE):
        put(h4, f"srv-{where}.mount", mount(where, "ramfs", slice))
        bound(h4, f"user-{where}", f"WorkingDirectory=/srv/{where}", slice,
              unit=f"{BOUND}RequiresMountsFor=/srv/{where}")
    watch = brief_hosts.h1.watch()

    h4.freeze()
    watch.departure("h4")
    h4.thaw()

    joins(watch)
    for unit in "srv-outside.mount", "srv-within.mount":
        h4.said(f"Unmounted {unit}", unit)


def test_a_host_with_fence_action_reboot_is_gone_although_systemd_stands_still(brief_hosts,
                                                                               machine, bound):
    h4 = brief_hosts.h4
    h4.configure("reload", FenceAction="reboot")
    undying = "../var/undying"  # which a reboot leaves
    bound(h4, "undying", f"ExecStart=/usr/bin/only-one {undying} TERM\nTimeoutStopSec=90s",
          says=undying)
    watch, init = brief_hosts.h1.watch(), h4.init

    with machine.watched():
        os.kill(init, signal.SIGSTOP)
        h4.cut()
        left = watch.departure("h4")
        eventually(lambda: h4.init not in (init, None))
        brief_hosts.heal()
        eventually(h4.is_back)
        assert ran_on(h4, left, undying) == {}


def test_a_unit_may_take_longer_to_stop_than_the_agent(brief_hosts, put, bound):
    h4 = brief_hosts.h4
    put(h4, "tenured.service.d/short.conf", "[Service]\nTimeoutStopSec=3s\n")
    bound(h4, "slow", IGNORES_TERM, IN_SLICE, "TimeoutStopSec=8s", unit="")
    watch, began = brief_hosts.h1.watch(), time.time() * 1e6

    h4.systemctl("stop", "tenured")

    left = watch.departure("h4")
    assert left.reason == "left"
    assert ran_on(h4, left, "slow", "only-one") == {}
    assert h4.last_ran("slow") > began + 6e6, "it was ended before its time"
    h4.systemctl("start", "tenured")


def test_a_renewal_that_comes_late_thaws_what_was_frozen(brief_hosts, machine, bound):
    h4 = brief_hosts.h4
    h4.configure(TTL="96s", FenceLead="24s")
    eventually(h4.is_back)
    for name in "late", "loose":
        bound(h4, name, IGNORES_TERM, "ExecStopPost=/usr/bin/only-one %p-post TERM",
              "TimeoutStopSec=28s")
    watch = brief_hosts.h1.watch()
    posts = "late-post", "loose-post"

    with machine.watched():
        h4.cut()
        eventually(lambda: all(map(h4.last_ran, posts)), patience=120)
        unit = h4.root / "run/systemd/system/loose.service"
        unit.write_text(unit.read_text().replace(BOUND, ""))
        with slow_generator(h4):
            eventually(lambda: all("frozen 1" in (h4.group(name) / "cgroup.events").read_text()
                                   for name in ("late", "loose")))
            frozen = list(map(h4.last_ran, posts))
        brief_hosts.heal()
        eventually(lambda: all(h4.last_ran(post) > before for post, before in zip(posts, frozen)))
        eventually(h4.holds)
        assert h4.told_so_far(watch) == []
    for name in "late", "loose":
        h4.signal(name, "KILL")


def test_tenurectl_check_names_what_cannot_be_fenced_in_time_and_how_to_mend_that(brief_hosts,
                                                                                  bound):
    h4 = brief_hosts.h4
    bound(h4, "loose", "TimeoutStopSec=infinity", unit="BindsTo=tenure-held.target")
    bound(h4, "inside", "TimeoutStopSec=100ms", IN_SLICE, unit="")

    with pytest.raises(ProgramError) as checked:
        h4.ctl("check")

    assert checked.value.status == 1
    said = checked.value.out
    for sentence in [
            "loose.service is not ordered after tenure-held.target",
            "loose.service is not in tenure-held.slice: .* set Slice=tenure-held.slice",
            "loose.service may take for ever to stop .*killed after 250 ms",
            "With a TTL of 2000 ms the stop begins 500 ms before the deadline, .* "
            "FenceLead=250ms or less, or TTL=8000ms or more"]:
        assert re.search(sentence, said)
    assert "inside.service" not in said
    h4.said("loose.service is not ordered after")
    assert h4.journal().count("loose.service is not ordered after") == 1
