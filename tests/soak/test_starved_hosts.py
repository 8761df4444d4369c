"""Hosts whose places have a TTL of 1 s are starved, and nobody may be reported dead."""
import contextlib
import pathlib
import random
import re
import time

import pytest
from harness.program import Daemon, run
from harness.rig import lasting
from harness.waiting import eventually

from soak.faults import SLOW_SYNC

MEMORY = pathlib.Path("/sys/fs/cgroup/memory")  # of cgroup v1, also where others are v2
SLOW = "[Service]\nEnvironment=LD_PRELOAD=/usr/lib/slow_sync.so SLOW_SYNC=/run/slow\n"


@pytest.fixture
def hosts(shared, tmp_path):
    with lasting(shared, tmp_path, "1s", degraded=60) as rig:
        yield rig


def said(hosts, pattern):
    """What agents say, so far."""
    return [found for host in hosts.hosts.values()
            for found in re.findall(pattern, host.journal("tenured", "-b"))]


@contextlib.contextmanager
def of_processors(hosts, _):
    loops = [Daemon(hosts.scratch / f"loop{n}.log", "nice", "-n", "-20", "sh", "-c",
                    "while :; do :; done").start() for n in range(4)]
    yield lambda: time.sleep(0.5)
    for loop in loops:
        loop.kill()


def move(pids, group):
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended, or is the kernel's
            (group / "cgroup.procs").write_text(str(pid))


def pages_out(group):
    return int(re.search(r"^pgpgout (\d+)", (group / "memory.stat").read_text(), re.M)[1])


@contextlib.contextmanager
def of_memory(hosts, _):
    """Every page that can be read again is taken from them, all the time."""
    if not (MEMORY / "memory.force_empty").exists():
        pytest.skip("no memory cgroup (v1) is mounted")
    groups = [MEMORY / f"{hosts.number}-{name}" for name in hosts.hosts]
    for host, group in zip(hosts.hosts.values(), groups):
        group.mkdir()
        move(host.processes(), group)
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("1")  # what it reads again is its own
        host.systemctl("try-restart", "tenure-core")
        host.systemctl("restart", "tenured")
        eventually(host.is_back)
    before = list(map(pages_out, groups))

    def take_all():
        for group in groups:
            with contextlib.suppress(OSError):  # some stay, always
                (group / "memory.force_empty").write_text("0")
        time.sleep(0.05)

    yield take_all
    assert all(after > was for after, was in zip(map(pages_out, groups), before))
    for group in groups:
        while pids := (group / "cgroup.procs").read_text().split():
            move(pids, MEMORY)
        group.rmdir()


@contextlib.contextmanager
def of_disks(hosts, draw):
    """One replica's after the other stands still each time that something has to be on it, and the
    next one when nothing of the last one's does any more: two at a time are an outage."""
    replicas = [hosts.h1, hosts.h2, hosts.h3]
    for host in replicas:
        run("install", SLOW_SYNC, host.root / "usr/lib/slow_sync.so")
        slow = host.root / "run/systemd/system/tenure-core.service.d/slow.conf"
        slow.parent.mkdir()
        slow.write_text(SLOW)
        (host.root / "run/slow").write_text("0")
        host.systemctl("daemon-reload")
        host.systemctl("restart", "tenure-core")
        eventually(host.is_back)

    def each_in_turn():
        for host in replicas:
            (host.root / "run/slow").write_text(str(draw.randint(100, 899)))
            time.sleep(draw.randint(1, 4))
            (host.root / "run/slow").write_text("0")
            time.sleep(draw.uniform(1, 2))

    yield each_in_turn


@pytest.mark.parametrize("starve", [of_processors, of_memory, of_disks])
def test_nobody_loses_a_place(hosts, seconds, seed, tell, starve):
    lost = r"Node h[1-4] left|lost its place"
    with starve(hosts, random.Random(seed)) as go_on:
        before, jeopardies = said(hosts, lost), len(said(hosts, "Renewals fail"))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            go_on()
        degraded = said(hosts, "This host is degraded: (.*)")
        tell(f"{len(said(hosts, 'Renewals fail')) - jeopardies} jeopardies; degraded: "
             f"{max(degraded, default='nobody')}")
        assert said(hosts, lost) == before
