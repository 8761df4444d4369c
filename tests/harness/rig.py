"""Hosts with a systemd of their own each, on one machine: tests/hosts/rig.sh makes them."""
import contextlib
import glob
import itertools
import json
import os
import pathlib
import re
import shutil
import signal

import pytest

from . import ledger
from .agent import MANAGER, SECTIONS, Asked, Watch
from .bus import Calls
from .keys import Keys
from .places import BIN, ENVIRONMENT, TOP
from .program import Daemon, run
from .waiting import eventually

TOOL = TOP / "tests/hosts/rig.sh"
_numbers = itertools.count()
_BUS = {"DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/run/dbus/system_bus_socket"}
_FIELDS = "MESSAGE,UNIT,_SYSTEMD_UNIT"
_DYING = signal.SIGTERM, signal.SIGKILL  # what a host that goes down sends to all that runs on it
# One that waits for a path needs one of the inotify instances that all hosts share, and a container
# loads no module.
_MAY_FAIL = re.compile(r"systemd-(ask-password-\w+\.path|modules-load\.service)")


def why_not():
    """Why this machine and this user cannot have hosts; "" if they can."""
    if os.getuid() != 0:
        return "needs root"
    if not shutil.which("systemd-nspawn", path=ENVIRONMENT["PATH"]):
        return "systemd-nspawn is not installed (as root: apt install systemd-container)"
    return "" if "cgroup2" in pathlib.Path("/proc/mounts").read_text() else "no cgroup2 is mounted"


def wait_for_room(n):
    """A host needs seven inotify instances, of which a user has 128: others' hosts may go."""
    most = int(pathlib.Path("/proc/sys/fs/inotify/max_user_instances").read_text())

    def there_is_room():
        taken = 0
        for descriptor in glob.iglob("/proc/[0-9]*/fd/*"):
            try:
                taken += os.readlink(descriptor) == "anon_inode:inotify"
            except OSError:
                pass
        return taken + 7 * n + 2 <= most or None

    eventually(there_is_room, patience=240)


class _OnHost:
    def _judge_end(self):
        """A host that loses its power takes its programs along."""


class _Program(_OnHost, Daemon):
    pass


class _Watch(_OnHost, Watch):
    pass


class _Bus(Calls):
    def __init__(self, host):
        self.host = host

    def busctl(self, *words):
        return self.host.on("busctl", "--json=short", *words)


class Host(Asked):
    """A host of a rig, as it is once it has been booted and its agent holds its place. What is
    bound to its place says all the time that it runs: last_ran()."""

    def __init__(self, rig, name):
        self.rig, self.name, self.number = rig, name, int(name[1:])
        self.address, self.bus = f"10.77.0.{self.number}", _Bus(self)
        self.log = rig.folder / f"{name}.journal"
        self._group = rig.group / name / "payload"
        self._settings = self._lent_at = None

    def lend(self):
        """To a test, which is not to find what its agent and its systemd have said before."""
        shown = self._journalctl("-n", "1", "--show-cursor")
        self._lent_at = re.search("-- cursor: (.*)", shown)[1]

    # ---- what runs on it ----

    @property
    def init(self):
        """The process id of its systemd, from outside; None while it is off."""
        try:
            pids = (self._group / "init.scope/cgroup.procs").read_text().split()
        except OSError:
            return None
        return int(pids[0]) if pids else None

    @property
    def root(self):
        return pathlib.Path(f"/proc/{self.init}/root")

    def _entered(self, words):
        assert self.init, f"{self.name} is off"
        return ["nsenter", "-t", self.init, "-a", "--", *words]

    def on(self, *words, **more):
        """Runs a command on it, and returns what it prints. @more: as of run()."""
        return run(*self._entered(words), may_die_of=_DYING, **_BUS, **more)

    def _lasting(self, words):
        """Killing nsenter kills the program, too."""
        return self._entered(["setpriv", "--pdeathsig", "KILL", "--", *words])

    def start(self, *words):
        """A program on it that runs until the test ends."""
        program = words[0].rsplit("/", 1)[-1]
        log = self.rig.scratch / f"{self.name}.{program}{next(_numbers)}.log"
        return _Program(log, *self._lasting(words), **_BUS).start()

    def ctl(self, *words):
        return self.on("tenurectl", *words)

    def systemctl(self, *words):
        return self.on("systemctl", *words)

    def show(self, unit, what):
        """A property of a unit, as systemctl shows it."""
        return self.systemctl("show", "-P", what, unit).strip()

    def is_active(self, unit):
        return self.show(unit, "ActiveState") == "active"

    def group(self, service):
        """The control group of a service that is in no slice of its own."""
        return self._group / f"system.slice/{service}.service"

    def signal(self, unit, name):
        """As systemctl kill: all processes of the unit get it."""
        self.systemctl("kill", "-s", name, unit)

    def watch(self):
        """What its agent announces from now on."""
        before = self.bus.subscribers(MANAGER)
        log = self.rig.scratch / f"{self.name}.watch{next(_numbers)}.log"
        watch = _Watch(log, *self._lasting(["tenurectl", "--json=short", "watch"]),
                      out=log.with_suffix(".out"), **_BUS).start()
        eventually(lambda: self.bus.subscribers(MANAGER) - before)
        return watch

    def told_so_far(self, watch):
        """What that watch, on another host, has told of this one: a change is made that comes last,
        and is waited for."""
        last = str(next(_numbers))
        self.ctl("set-tags", f"last={last}")
        changed = eventually(lambda: self.nodes()[self.name].tags.get("last") == last
                             and self.nodes()[self.name].revision)
        eventually(lambda: changed in [event.revision for event in watch.events()])
        told = watch.told_of(self.name)
        assert told.pop() == "NodeChanged"
        return told

    def _journalctl(self, *options):
        return self.rig.tool("journal", self.name, "-q", "--no-pager", *options)

    def journal(self, unit="tenured", *options):
        """The messages, also of a host that is off."""
        return self._journalctl("-u", unit, "-o", "cat", *options)

    def _messages(self, unit):
        """What this boot's journal has of it since the test began. journalctl is not asked for the
        unit: after a cursor it skips one entry of those that fit, even if the cursor's does not."""
        since = [f"--after-cursor={self._lent_at}"] if self._lent_at else []
        name = unit if "." in unit else f"{unit}.service"
        lines = self._journalctl("-b", "-o", "json", f"--output-fields={_FIELDS}", *since)
        return "\n".join(str(entry["MESSAGE"]) for entry in map(json.loads, lines.splitlines())
                         if name in (entry.get("UNIT"), entry.get("_SYSTEMD_UNIT")))

    def said(self, pattern, unit="tenured"):
        """Waits until a message of this test, and of this boot, fits the regular expression."""
        def look():
            messages = self._messages(unit)
            found = re.search(pattern, messages)
            assert found, f"{unit} of {self.name} says {messages[-300:]!r}"
            return found

        return eventually(look)

    def last_ran(self, what="only-one"):
        """When it said so last, in microseconds of the clock that all hosts share; 0: never."""
        texts = [file.read_text() for file in self.root.glob(f"run/{what}.[01]")]
        return max((int(text) for text in texts if re.fullmatch(r"\d{16}\n", text)), default=0)

    def had_stopped(self, event):
        """What is bound to the place ran, and no more when the others were told that."""
        return 0 < self.last_ran() < event.realtime_usec

    def waited_at_boot(self):
        """What multi-user.target wants has waited for the place, without an error."""
        return not re.search("Dependency failed for only-one|asserts failed|"
                             "only-one.*(cancel|result)",
                             self.on("journalctl", "-b", "-o", "cat", "--no-pager"))

    def leads(self):
        """Its replica is the core's leader."""
        said, = json.loads(self.rig.etcdctl("endpoint", "status", "-w", "json", at=self))
        return said["Status"]["leader"] == said["Status"]["header"]["member_id"]

    def processes(self):
        """The ids of all its processes, from outside."""
        return [pid for file in self._group.rglob("cgroup.procs")
                for pid in file.read_text().split()]

    # ---- its place ----

    @property
    def lease(self):
        return self.status().lease_id

    def last_renewal(self):
        """In microseconds since the machine was booted."""
        return self.properties()["LastRenewalUSec"]

    def renews(self, times=2):
        """Waits until it has renewed so often."""
        for _ in range(times):
            before = self.last_renewal()
            eventually(lambda: self.last_renewal() > before)

    def is_back(self):
        """Everybody knows everybody, and what is bound to its place runs."""
        names = set(self.rig.hosts)
        return self.is_active("only-one") and all(
            set(host.nodes()) == names for host in self.rig.hosts.values())

    def configure(self, *words, **settings):
        """Changes its settings, and stops and starts the agent; or what @words ask of systemctl in
        place of that. The end of the test has them as they were."""
        file = self.root / "etc/tenure/tenured.conf"
        text = file.read_text()
        self._settings = self._settings or text
        for name, given in settings.items():
            text = re.sub(rf"^{name}=.*\n", "", text, flags=re.M)
            if given is not None:
                text += f"[{SECTIONS.get(name, 'Agent')}]\n{name}={given}\n"
        file.write_text(text)
        if words:
            self.systemctl(*words, "tenured")
        else:
            self.stop_and_start()

    def stop_and_start(self):
        """The agent: it leaves, and joins again."""
        self.systemctl("stop", "tenured")
        self.systemctl("start", "tenured")

    # ---- what happens to it ----

    def cut(self, *how):
        """Its cable is pulled. "silent": the network drops what it sends and gets."""
        self.rig.tool("cut", self.name, *how)

    def hears_nothing(self):
        """What it sends arrives."""
        for other in self.rig.hosts.values():
            if other is not self:
                self.rig.tool("cut", other.name, self.name, "oneway")

    def loses(self, percent):
        self.rig.tool("loss", self.name, percent)

    def freeze(self):
        """All its processes stand still."""
        self.rig.tool("freeze", self.name)

    def thaw(self):
        (self._group / "cgroup.freeze").write_text("0")

    def power_off(self):
        """A power failure."""
        self.rig.tool("kill", self.name)

    def boot(self):
        if not self.init:
            self.rig.tool("kill", self.name, fails=True)  # what is left of one that shut down
        self.rig.tool("start", self.name)

    def is_off(self):
        return self.init is None

    def sleep(self):
        """systemctl suspend; it sleeps when this returns."""
        self.systemctl("suspend")
        eventually((self.root / "run/asleep").exists)

    def wake(self):
        (self.root / "run/asleep").unlink()

    def tidy(self):
        """After a test: as it was before."""
        if self._settings:
            (self.root / "etc/tenure/tenured.conf").write_text(self._settings)
            self._settings = None
            self.stop_and_start()

    # ---- for the ledger: a host is a program that lasts ----

    pid = None

    @property
    def is_running(self):
        return self.init is not None

    def log_text(self):
        return self.rig.tool("journal", self.name, "-q", "-n", "60", "-o", "short-precise",
                             "--no-pager", "-u", "ten*", fails=True)

    def ask_to_end(self):
        pass

    def end(self):
        pass

    def failed_units(self):
        lines = self.systemctl("--failed", "--legend=no", "--plain").splitlines()
        return [line for line in lines if not _MAY_FAIL.match(line)]

    def judge(self):
        if self.init:
            for line in self.failed_units():
                ledger.complain(f"{self.name}: {line}")


class Booted(Daemon):
    """Hosts, h1 and so on, which have been booted when it has been made. @prepare: the script that
    makes the disk of each. @environment: the script's, and rig.sh's."""

    ends_by = signal.SIGKILL

    def __init__(self, folder, size, prepare, kind=Host, **environment):
        self.folder = self.scratch = folder
        self.number = f"tenure-{os.getpid()}-{next(_numbers)}"
        groups = run("findmnt", "-rn", "-t", "cgroup2", "-o", "TARGET").split("\n")[0]
        self.group = pathlib.Path(groups, self.number)
        self._environment = {"RIG": self.number, "STATE": str(folder / "rig"),
                             "PREP": str(prepare), **environment}
        super().__init__(folder / "rig.log", "bash", TOOL, "supervise", **self._environment)
        wait_for_room(size)
        Daemon.start(self)
        self.tool("boot", size)
        self.hosts = {f"h{n}": kind(self, f"h{n}") for n in range(1, size + 1)}
        vars(self).update(self.hosts)
        for host in self.hosts.values():
            ledger.enter(host)

    def tool(self, *words, fails=False):
        try:
            return run("bash", TOOL, *words, **self._environment)
        except Exception:
            if not fails:
                raise
            return ""

    def heal(self):
        """Whatever was cut is whole again."""
        self.tool("heal")

    def tidy(self):
        """After a test: as it was before."""
        self.heal()
        for host in self.hosts.values():
            host.tidy()

    def end(self):
        self.expect_death_by(signal.SIGKILL)
        self.tool("down", fails=True)
        Daemon.end(self)


class Rig(Keys, Booted):
    """Four hosts, three with a replica of the core, which know each other when it has been made;
    with the calls of a core. @engine: core or etcd. @skew: each has a CLOCK_BOOTTIME of its own."""

    def __init__(self, folder, ttl, engine="core", *, size=4, replicas=3, degraded=0,
                 skew=False):
        stage = folder / "stage"
        run("make", "-C", TOP, "-s", "--no-print-directory", f"MODE={BIN.parent.name}", "install",
            f"DESTDIR={stage}")
        super().__init__(
            folder, size, TOP / "tests/hosts/prepare.sh", STAGE=str(stage), TTL=ttl,
            CORES=str(replicas), ENGINE=engine, DEGRADED=str(degraded), SKEW="1" if skew else "")
        eventually(self.h4.is_back)

    endpoints = ",".join(f"http://10.77.0.{n}:2379" for n in (1, 2, 3))

    def etcdctl(self, *words, at=None, stdin=""):
        return self.h1.on("env", "ETCDCTL_API=3", "etcdctl", "--endpoints",
                          f"{(at or self.h1).address}:2379", *self._LIMITS, *words, stdin=stdin)

    def tidy(self):
        super().tidy()
        eventually(self.h4.is_back)


@contextlib.contextmanager
def lasting(shared, scratch, ttl, *, make=Rig, **more):
    """Hosts that outlast a test that passes, and are then as they were. @shared: the fixture;
    @make: of a folder, @ttl and @more."""
    if why := why_not():
        pytest.skip(f"hosts with a systemd of their own: {why}")
    rig = shared(f"{make.__name__}-{ttl}-{more}", lambda folder: make(folder, ttl, **more))
    rig.scratch = scratch
    for host in rig.hosts.values():
        host.lend()
    yield rig
    if ledger.failed():
        rig.end()
        return
    try:
        rig.tidy()
    except BaseException:
        rig.end()
        raise
