"""What must run once never runs twice: faults drawn at random, at random moments, on a host whose
clock is not the others', with a unit of each kind that is hard to stop. Each draw is a loss of the
place, and what is in the way of the fence meanwhile; `--draws N --seed N --ttl 1s` makes others."""
import contextlib
import os
import random
import signal
import struct
import time

import pytest
from harness.places import TOP
from harness.program import run
from harness.rig import Rig
from harness.waiting import eventually, eventually_is
from test_last_metre import (BOUND, IN_SLICE, joins, signal_agent, slow_generator,
                             systemd_goes_on_anew, systemd_stands_still)

KEY = "/tenure/default/nodes/h4"
FROZEN, DELETED = "every process is frozen", "the key is deleted"


# ---- what is bound: each has somebody in it who says that he runs (says.c) ----

def unit(service, more="", bound=BOUND):
    return (f"[Unit]\nStartLimitIntervalSec=0\n{bound}{more}\n[Service]\n{service}\n"
            "[Install]\nWantedBy=tenure-held.target\n")


def starter(command, more=""):
    """Starts what is bound by itself, and so in no unit of its own. A start while the place is not
    held would be refused; systemd 252 keeps a scope whose start was refused for good, hence the
    wait and a new name ($$) each time."""
    command = ("until systemctl is-active --quiet tenure-held.target; do sleep 0.1; done; "
               f"exec {command}").replace("$", "$$")
    return unit(f'Restart=always\nRestartSec=200ms\nExecStart=/bin/sh -c "{command}"\n{more}',
                bound="After=tenure-held.target")


BOUND_BY_OPTION = "BindsTo=tenure-held.target {0}After=tenure-held.target {0}TimeoutStopSec=2s"
UNITS = {
    # It takes longer to stop than there is, unless the host leaves on purpose.
    "slow.service": unit("ExecStart=/usr/bin/says slow stop 1500\nTimeoutStopSec=3s"),
    "stubborn.service": unit("ExecStart=/usr/bin/says stubborn ignore\nTimeoutStopSec=2s"),
    "leftover.service": unit(
        f"{IN_SLICE}\nKillMode=process\n"
        'ExecStart=/bin/sh -c "setsid /usr/bin/says leftover ignore & exec sleep infinity"'),
    "always.service": unit(
        f"{IN_SLICE}\nExecStart=/usr/bin/says always\nRestart=always\nRestartSec=10ms"),
    # A control group that is new is not frozen with the slice.
    "outside.service": unit("ExecStart=/usr/bin/says outside\nRestart=always\nRestartSec=10ms"),
    "each@.service": unit(f"{IN_SLICE}\nExecStart=/usr/bin/says each-%i"),
    "srv-held.mount": f"[Unit]\n{BOUND}[Mount]\nWhat=tmpfs\nWhere=/srv/held\nType=tmpfs\n"
                      "[Install]\nWantedBy=tenure-held.target\n",
    "mounted.service": unit("WorkingDirectory=/srv/held\nExecStart=/usr/bin/says mounted",
                            "RequiresMountsFor=/srv/held"),
    # As a program runs that a user has started.
    "a-user.service": starter(
        "systemd-run --quiet --scope --unit=a-user-$$ --uid=nobody --slice=user-65534.slice -p "
        f"{BOUND_BY_OPTION.format('-p ')} /usr/bin/says a-user"),
    # Its scope is systemd-machined's.
    "container.service": starter(
        "systemd-nspawn --quiet -M container-$$ -D /var/lib/ct --bind-ro=/usr --bind=/run/says "
        "--private-network --as-pid2 --resolv-conf=off --timezone=off --link-journal=no "
        f"--console=passive --property={BOUND_BY_OPTION.format('--property=')} "
        "/usr/bin/says container ignore", "KillMode=mixed\nTimeoutStopSec=2s"),
}
WHO = {"only-one", "slow", "stubborn", "leftover", "always", "outside", "each-a", "each-b",
       "mounted", "a-user", "container"}
ROOT_OF_CONTAINER = """
cd /var/lib && mkdir -p ct/usr ct/etc ct/run ct/tmp ct/proc ct/sys ct/dev ct/root /srv/held && cd ct
ln -s usr/bin usr/sbin usr/lib usr/lib64 . && echo ID=test >etc/os-release
mkdir -p -m 1777 /run/says"""


def hosts_that_are_hard_to_fence(folder, ttl, engine):
    rig = Rig(folder, ttl, engine, skew=True)
    h4 = rig.h4
    run("gcc", "-O1", "-o", h4.root / "usr/bin/says", TOP / "tests/hosts/says.c")
    run("gcc", "-shared", "-fPIC", "-o", h4.root / "usr/lib/wrong_clock.so",
        TOP / "tests/harness/wrong_clock.c", "-ldl")
    h4.on("sh", "-c", ROOT_OF_CONTAINER)
    for name, text in {
            **UNITS,
            "only-one.service.d/says.conf": "[Service]\nExecStart=\n"
                                            "ExecStart=/usr/bin/says only-one",
            "tenured.service.d/clock.conf":
                "[Service]\nEnvironment=LD_PRELOAD=/usr/lib/wrong_clock.so "
                "WRONG_CLOCK=/run/wrong_clock "
                "ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0"}.items():
        file = h4.root / "etc/systemd/system" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    h4.systemctl("enable", "--quiet", "each@a", "each@b", *(set(UNITS) - {"each@.service"}))
    h4.stop_and_start()
    all_run(h4)
    assert "container-" in h4.on("machinectl", "list", "--no-legend")
    return rig


def now():
    """In microseconds of the clock that all hosts share."""
    return int(time.time() * 1e6)


def lives(host):
    """(name, when it began, when it ran last) of everybody who was ever started."""
    for file in (host.root / "run/says").iterdir():
        data = file.read_bytes()
        if len(data) == 16:
            yield file.name.split(".")[0], *struct.unpack("qq", data)


def late(host, until, end):
    """Who had begun before @until and ran at @end, and for how many milliseconds after it."""
    return {name: (last - end) / 1000 for name, began, last in lives(host)
            if began < until and last >= end}


def all_run(host):
    since = now()
    eventually_is(set(), lambda: WHO - {name for name, _, last in lives(host) if last > since})


# ---- how the place is lost, and won back; moment() lets some time pass ----

def loss(*acts, back=lambda h4: None):
    @contextlib.contextmanager
    def way(h4, moment):
        asked = [act(h4, moment) for act in acts]
        yield
        h4.rig.heal()
        for program in filter(None, asked):
            program.wait()
        back(h4)

    return way


def cut(*how):
    return lambda h4, _: h4.cut(*how)


def agent_gets(number):
    return lambda h4, _: signal_agent(h4, number)


def asks(command):
    """systemd, again and again: while it executes itself anew it does not answer."""
    return lambda h4, _: h4.start("sh", "-c", f"until {command}; do sleep 0.1; done")


def edit(program):
    return lambda h4, *_: h4.on("sed", "-i", program, "/etc/tenure/tenured.conf")


def some_moment(_, moment):
    moment()


def start(h4):
    eventually(lambda: h4.systemctl("start", "--no-block", "tenured") == "")


def join(h4):
    eventually(lambda: h4.ctl("join") is not None)


LOSSES = {
    "the cable is pulled": loss(cut()),
    "the network drops all": loss(cut("silent")),
    "no endpoint answers": loss(cut("h1"), cut("h2"), cut("h3")),
    "the agent hangs, the network drops all": loss(agent_gets(signal.SIGSTOP), cut("silent")),
    "the agent dies, the cable is pulled": loss(agent_gets(signal.SIGKILL), cut()),
    "the agent does not come back": loss(edit("$anonsense"), agent_gets(signal.SIGKILL),
                                         back=edit("/nonsense/d")),
    "the agent restarts, the cable is pulled": loss(asks("systemctl restart tenured"), cut()),
    "the agent is stopped": loss(asks("systemctl stop tenured"), back=start),
    "the agent is stopped, the cable is pulled": loss(
        asks("systemctl stop tenured"), some_moment, cut(), back=start),
    "tenurectl leave": loss(lambda h4, _: h4.start("tenurectl", "leave"), back=join),
    "tenurectl leave, the cable is pulled": loss(
        lambda h4, _: h4.start("tenurectl", "leave"), some_moment, cut(), back=join),
    DELETED: loss(lambda h4, _: h4.rig.etcdctl("del", KEY) and None),
    FROZEN: loss(lambda h4, _: h4.freeze()),
}


# ---- what is in the way meanwhile ----

def nothing(_):
    return contextlib.nullcontext()


@contextlib.contextmanager
def systemd_anew(h4):
    os.kill(h4.init, signal.SIGTERM)  # says daemon-reexec to it, systemd(1)
    yield


@contextlib.contextmanager
def journal_hangs(h4):
    """With all its sockets full."""
    pid = int((h4.group("systemd-journald") / "cgroup.procs").read_text())
    (h4.root / "run/fill_journal.py").write_text(
        (TOP / "tests/harness/fill_journal.py").read_text())
    os.kill(pid, signal.SIGSTOP)
    filler = h4.start("python3", "/run/fill_journal.py")
    eventually(lambda: "full" in filler.text())
    yield
    filler.kill()
    os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def bus_is_stopped(h4):
    h4.systemctl("stop", "dbus.socket", "dbus.service")
    yield
    h4.systemctl("start", "dbus.socket", "dbus.service")


@contextlib.contextmanager
def bus_is_restarted(h4):
    restart = h4.start("systemctl", "restart", "dbus.service")
    yield
    restart.wait()


@contextlib.contextmanager
def all_is_started(h4):
    go_on = h4.root / "run/go-on"
    go_on.touch()
    loop = h4.start("sh", "-c", "while [ -e /run/go-on ]; do systemctl start --no-block slow "
                    "always only-one each@b mounted tenure-held.target; "
                    "systemctl restart --no-block each@a; sleep 0.05; done")
    yield
    go_on.unlink()
    loop.wait()


@contextlib.contextmanager
def clock_is_set(h4):
    """By days; and back."""
    (h4.root / "run/wrong_clock").write_text(str(random.randint(-1600000, 1600000)))
    yield
    (h4.root / "run/wrong_clock").write_text("0")


WAYS = {
    "nothing": nothing,
    "systemd stands still": systemd_stands_still,
    "systemd executes itself anew": systemd_anew,
    "systemd stands still, then executes itself anew": systemd_goes_on_anew,
    "a slow generator": slow_generator,
    "the journal hangs": journal_hangs,
    "the bus is stopped": bus_is_stopped,
    "the bus is restarted": bus_is_restarted,
    "all is started in a loop": all_is_started,
    "the clock is set": clock_is_set,
}


def fits(loss, way):
    """Who leaves waits until systemd says, on the bus, that all is down; and of a host that is
    frozen nobody does anything."""
    stands_still = "stands still" in way or way == "a slow generator"
    return not (
        loss == FROZEN and (stands_still or "bus" in way or "anew" in way)
        or loss in ("the agent is stopped", "tenurectl leave") and stands_still
        or "leave" in loss and "bus" in way)


def pytest_generate_tests(metafunc):
    if "fault" in metafunc.fixturenames:
        pairs = [(loss, way) for loss in LOSSES for way in WAYS if fits(loss, way)]
        seed = metafunc.config.getoption("seed")
        faults = [(draw, *random.Random(f"{seed} {draw}").choice(pairs))
                  for draw in range(metafunc.config.getoption("draws"))]
        metafunc.parametrize("fault", faults, ids=[
            f"{seed}.{draw}: {loss}; {way}" for draw, loss, way in faults])


@pytest.mark.night("it draws faults for as long as one likes")
def test_what_must_run_once_never_runs_twice(rigs, machine, pytestconfig, seed, fault,
                                             record_property):
    rig = rigs(pytestconfig.getoption("ttl"), hosts_that_are_hard_to_fence)
    h4, watch = rig.h4, rig.h1.watch()
    draw, loss, way = fault
    random.seed(f"{seed} {draw} moments")
    ttl = h4.status().ttl_usec / 1e6

    def moment():
        time.sleep(random.uniform(0, ttl / 2))

    with machine.watched():
        with contextlib.ExitStack() as lost:
            with contextlib.ExitStack() as hindered:
                begin = [lambda: lost.enter_context(LOSSES[loss](h4, moment)),
                         lambda: hindered.enter_context(WAYS[way](h4))]
                for enter in random.sample(begin, 2):
                    moment()
                    enter()
                left = until = watch.departure("h4").realtime_usec
                if loss == FROZEN:
                    moment()
                    until = now()
                    h4.thaw()
                elif loss != DELETED:
                    assert late(h4, until, left) == {}, "they ran twice"
            if loss not in (FROZEN, DELETED):
                eventually_is("inactive", lambda: h4.show("tenure-held.target", "ActiveState"))
                until = now()
        joined = joins(watch).realtime_usec
        eventually(h4.is_back)
        all_run(h4)
        # Nobody has begun again before the place was won back; and where nobody could stop them
        # before, they had stopped when the host joined again.
        end = joined if loss in (FROZEN, DELETED) else left
        assert late(h4, until, end) == {}, "they ran twice"
    last = max(last for _, began, last in lives(h4) if began < until)
    record_property("told", f"stopped {(left - last) / 1000:.0f} ms before the others were told")
