"""Ten members share a thousand tasks on real hosts, while members are killed, frozen and leave, and
hosts are cut off, frozen and lose their power. The core's leader is left alone."""
import collections
import contextlib
import ctypes
import functools
import itertools
import json
import pathlib
import random
import struct
import time

import pytest
from harness.keys import events
from harness.places import TOP
from harness.program import run
from harness.rig import lasting
from harness.waiting import ProgramError, eventually

TASKS, TTL = 1000, 3000  # ms
LATE = TTL + 1000        # ms; for which a task may be at nobody
SLACK = 1.1              # times as many moves as are necessary
MEMBERS, OWNED = (f"/tenure/default/work/g/{what}/" for what in ("members", "tasks"))
SETTLES = 1.0            # s for which nobody joins, before those who have joined get their tasks
RECORD = struct.Struct("40sqqq")
Run = collections.namedtuple("Run", "begin last token member")  # microseconds since the boot


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class Member:
    def __init__(self, number, host):
        self.name, self.host, self.lives = f"m{number}", host, 0

    @property
    def unit(self):
        return f"{self.name}-{self.lives}"

    def begin(self):
        self.lives += 1
        self.host.on("systemd-run", "-q", "--collect", f"--unit={self.unit}",
                     f"--setenv=TENURE_ENDPOINTS={self.host.rig.endpoints}", "/usr/bin/work_member", "g", self.name,
                     TTL, TASKS, 100, f"/var/work/{self.name}.{self.lives}")

    def signal(self, name):
        with contextlib.suppress(ProgramError):  # it has lost its host's power
            self.host.signal(self.unit, name)

    def has_ended(self):
        return not self.host.is_active(self.unit)


class Group:
    def __init__(self, rig, draw, program):
        self.rig, self.draw = rig, draw
        for host in rig.hosts.values():
            run("install", program, host.root / "usr/bin/work_member")
            (host.root / "var/work").mkdir()
        self.members = [Member(n + 1, rig.hosts[name]) for n, name in enumerate(
            ["h1", "h1", "h2", "h2", "h3", "h3", "h4", "h4", "h4", "h4"])]
        self._watch = rig.h1.start(
            "sh", "-c", 'etcdctl --endpoints http://10.77.0.1:2379 watch --prefix "$0" --rev 1 '
            '-w json | while read -r line; do echo "$(date +%s.%N) $line"; done', MEMBERS)
        for member in self.members:
            member.begin()

    def changes(self):
        """(when, event) for each change of a member."""
        return [(float(at), event) for at, _, said in (
            line.partition(" ") for line in self._watch.lines())
                for event in events([json.loads(said)])]

    def is_calm(self):
        """All are there, and each task stays where it is, for longer than members settle."""
        before = self.rig.range(OWNED)
        if len(before) != TASKS or len(self.rig.range(MEMBERS)) != len(self.members):
            return False
        time.sleep(1.5 * SETTLES)
        return before == self.rig.range(OWNED)

    def between(self, least, most):
        time.sleep(self.draw.uniform(least, most))

    def other_host(self):
        """Not the leader's, and not h1, at which the rest listens."""
        rig = self.rig
        return self.draw.choice(
            [rig.h4, *(host for host in (rig.h2, rig.h3) if not host.leads())])

    # ---- what happens ----

    def member_killed(self):
        member = self.draw.choice(self.members)
        member.signal("KILL")
        eventually(member.has_ended)
        self.between(0, 8)
        member.begin()

    def member_frozen(self):
        member = self.draw.choice(self.members)
        member.signal("STOP")
        self.between(1, 10)
        member.signal("CONT")

    def member_left(self):
        member = self.draw.choice(self.members)
        member.signal("TERM")
        eventually(member.has_ended)
        self.between(1, 4)
        member.begin()

    def host_frozen(self):
        host = self.other_host()
        host.freeze()
        self.between(1, 8)
        host.thaw()

    def host_cut_off(self):
        self.other_host().cut(*self.draw.choice([[], ["silent"]]))
        self.between(1, 8)
        self.rig.heal()

    def power_lost(self):
        self.rig.h4.power_off()
        self.between(1, 6)
        self.rig.h4.boot()
        for member in self.members:
            if member.host is self.rig.h4:
                member.begin()

    def something_happens(self):
        kind = self.draw.choice([self.member_killed, self.member_killed, self.member_frozen,
                                 self.member_left, self.host_frozen, self.host_cut_off,
                                 self.power_lost])
        kind()
        self.between(2, 6)
        return kind.__name__

    # ---- what they wrote down ----

    def end(self):
        """{task: its runs, in order}"""
        for member in self.members:
            member.signal("TERM")
        for member in self.members:
            eventually(member.has_ended)
        runs = {str(n + 1): [] for n in range(TASKS)}
        folders = [host.root / "var/work" for host in self.rig.hosts.values()]
        for file in itertools.chain(*map(pathlib.Path.iterdir, folders)):
            for task, token, begin, last in RECORD.iter_unpack(file.read_bytes()):
                if not begin:
                    break
                runs[task.rstrip(b"\0").decode()].append(
                    Run(begin, last, token, file.name.partition(".")[0]))
        return {task: sorted(had) for task, had in runs.items()}


def pairs(runs):
    return [(task, one, two) for task, had in runs.items() for one, two in itertools.pairwise(had)]


def conflicts(runs):
    """Who had a task while another one still did, or by a token that is not a later one."""
    return [f"task {task}: {one}, {two}" for task, one, two in pairs(runs)
            if two.begin <= one.last or two.token < one.token
            or (two.token == one.token and two.member != one.member)]


def gaps(runs, begin, end):
    """For how many microseconds nobody had a task, the longest last."""
    return sorted([two.begin - one.last for _, one, two in pairs(runs) if begin <= two.begin <= end]
                  + [max(end - had[-1].last, 0) for had in runs.values()])


class Necessary:
    """How many moves the changes of members make necessary: tasks of one that goes move at once;
    those of one that joins once nobody has joined for a while."""

    def __init__(self, rendezvous):
        self._hash = rendezvous
        self.members, self.has, self.moves, self._settles = {}, {}, 0, None

    def _move(self, tasks):
        for task in tasks:
            best = min(self.members, key=lambda member: self._hash(task, member)
                       / self.members[member])
            self.moves += self.has.get(task) not in (None, best)
            self.has[task] = best

    def settle(self, at=float("inf")):
        if self._settles and at >= self._settles:
            self._settles = None
            self._move([str(n + 1) for n in range(TASKS)])

    def change(self, at, event):
        self.settle(at)
        name = event.key.removeprefix(MEMBERS)
        if event.type == "PUT" and name not in self.members:
            self.members[name] = json.loads(event.value)["weight"]
            self._settles = at + SETTLES
        elif event.type == "DELETE" and self.members.pop(name, None):
            self._move([task for task, member in self.has.items() if member == name])


@pytest.fixture(scope="module")
def rendezvous(tmp_path_factory):
    """rendezvous(task, member): the hash by which members divide their tasks."""
    library = tmp_path_factory.mktemp("hash") / "rendezvous.so"
    run("gcc", "-shared", "-fPIC", "-O1", "-I", TOP / "lib", "-o", library,
        TOP / "lib/member/rendezvous.c")
    c = ctypes.CDLL(str(library))
    for function in c.rendezvous_hash, c.rendezvous_log:
        function.restype = ctypes.c_uint64
    c.rendezvous_log.argtypes = [ctypes.c_uint64] * 2
    name_hash = functools.cache(lambda name: c.rendezvous_hash(name.encode()))
    return functools.cache(lambda task, member: c.rendezvous_log(name_hash(task),
                                                                 name_hash(member)))


def test_no_task_is_ever_at_two_members_and_none_at_nobody_for_long(
        shared, tmp_path, program, rendezvous, seconds, seed, tell):
    with lasting(shared, tmp_path, "2s") as rig:
        group = Group(rig, random.Random(seed), program.compile("tests/soak/work_member.c"))
        eventually(group.is_calm, patience=120)
        revision, began, happened = rig.revision(), now(), collections.Counter()

        while now() < began + seconds * 1e6:
            happened[group.something_happens()] += 1
        eventually(group.is_calm, patience=120)
        ended, changed = now(), group.changes()
        runs = group.end()

        necessary = Necessary(rendezvous)
        for at, event in changed:
            if event.revision <= revision:
                necessary.change(at, event)
        necessary.settle()
        necessary.moves = 0
        for at, event in changed:
            if event.revision > revision:
                necessary.change(at, event)
        necessary.settle()
        moves = sum(one.member != two.member for _, one, two in pairs(runs)
                    if began <= two.begin <= ended)
        without = gaps(runs, began, ended)
        tell(f"{dict(happened)}; {moves} moves, {necessary.moves} were necessary; nobody had a "
             f"task for {without[len(without) // 2] / 1e3:.0f} ms in the middle, "
             f"{without[-1] / 1e3:.0f} ms at most")
        assert conflicts(runs)[:3] == []
        assert all(runs.values()), "a task that nobody ever had"
        assert without[-1] <= LATE * 1000
        assert moves <= necessary.moves * SLACK
