"""Hosts with the Debian packages of an earlier release, and what must not notice that an operator
upgrades them: places, bound units, a lock, programs, watches, writes."""
import contextlib
import json
import re
import shutil

from .authority import Authority
from .debian import finish, within
from .keys import Keys, events
from .packaged import Bare, Installable
from .program import run
from .values import json_lines
from .waiting import eventually, eventually_is

CORE = ["tenure-core", "tenurectl"]
AGENT = ["libtenure0", "python3-tenure", "tenurectl", "tenured"]
# What an upgrade of a package restarts, if it runs, and what it leaves alone.
RESTARTED = {"tenure-core": ["tenure-core"],
             "tenured": ["tenure-guard", "tenure-reboot", "tenured"]}
UNTOUCHED = ["tenure-held.target", "tenure-held.slice", "tenured-metrics.socket", "bound.service"]
_SERVICES = sum(RESTARTED.values(), ["tenured-metrics"])
_STARTED = "MESSAGE_ID=39f53479d3a045ac8e11786248231fbf"  # SD_MESSAGE_UNIT_STARTED
_ENOUGH = "/run/enough"  # ends what runs on a host for a test

_WRITER = f"""n=0
until [ -e {_ENOUGH} ]; do
	n=$((n + 1)) key=$(printf w/%06d $n)
	etcdctl --endpoints="$1" put "$key" "$n" >/dev/null 2>&1 && echo "did $key" || echo "? $key"
done"""
_HOLDER = f"echo began; until [ -e {_ENOUGH} ]; do sleep 0.1; done"


class Operated(Installable):
    """Has the packages that a core host needs, or those of an agent's."""

    @property
    def packages(self):
        return CORE if self.number <= 3 else AGENT

    @property
    def client_url(self):
        return f"http://{self.address}:2379"

    def ctl(self, *words):
        """On a core host there is no agent, so tenurectl is told where the core is."""
        at = [f"--endpoints={self.client_url}"] if self.packages is CORE else []
        return super().ctl(*at, *words)

    # ---- what the operator does ----

    def edit(self, **sections):
        """Adds lines to sections of the settings."""
        text = self.settings.read_text()
        for name, lines in sections.items():
            assert f"[{name}]\n" in text
            text = text.replace(f"[{name}]\n", f"[{name}]\n{lines}\n")
        self.settings.write_text(text)

    @property
    def settings(self):
        name = "tenure-core" if self.packages is CORE else "tenured"
        return self.root / f"etc/tenure/{name}.conf"

    def install(self, version, packages=None, *options):
        """By apt, packages of a folder of the builds."""
        return self._apt(*options, *[f"/build/{self.rig.package(version, name)}"
                                     for name in packages or self.packages])

    # ---- what is seen of it ----

    def starts(self):
        """How often each service has been started since the host booted."""
        self.on("journalctl", "--sync")
        lines = self._journalctl("-b", "-o", "json", "--output-fields=UNIT", _STARTED).splitlines()
        units = [json.loads(line).get("UNIT") for line in lines]
        return {unit: units.count(f"{unit}.service") for unit in _SERVICES}

    def untouched(self):
        return {unit: [self.show(unit, what) for what in
                       ("ActiveState", "ActiveEnterTimestampMonotonic", "MainPID")]
                for unit in UNTOUCHED}, self.states(*_SERVICES), self.settings.read_text()

    def leftovers(self):
        """Of dpkg: what is half done, and settings beside those of the operator."""
        return self.on("sh", "-c", "dpkg --audit; find /etc /usr/bin /usr/lib -name '*.dpkg-*'")

    def purge(self):
        super().purge()
        self.on("sh", "-c", f"rm -rf /etc/tenure/*.pem /etc/tenure/*.key {_ENOUGH}; "
                "rmdir --ignore-fail-on-non-empty /etc/tenure 2>/dev/null || true")


class Fleet(Keys, Bare):
    """h1 to h3 with a replica of the core each, and h4 to h8 with an agent each: none of them has
    our packages yet. @release: what they have first."""

    def __init__(self, folder, ttl, builds, release):
        self.release = release
        shutil.copytree(release.packages(builds.debian), builds.folder / str(release),
                        dirs_exist_ok=True)
        super().__init__(folder, ttl, builds, 8, Operated)
        hosts = [*self.hosts.values()]
        self.cores, self.agents = hosts[:3], hosts[3:]
        self._compile()

    def package(self, version, name):
        """Its path in the folder of the builds."""
        path, = (self.builds.folder / str(version)).glob(f"{name}_*.deb")
        return path.relative_to(self.builds.folder)

    def _compile(self):
        """The release's own examples, as whoever has its packages does it."""
        folder = self.builds.folder / "examples"
        folder.mkdir(exist_ok=True)
        for name in "libtenure0", "libtenure-dev":
            run("dpkg-deb", "-x", self.builds.folder / self.package(self.release, name), folder)
        for name in "worker", "watch", "members":
            finish(folder / f"{name}.log", *within(
                self.builds.debian.builds, folder, "sh", "-ec",
                'cd /srv; exec gcc -o $0 usr/share/doc/libtenure-dev/examples/$0.c '
                '-I usr/include -L usr/lib/*/ -ltenure', name))

    def found(self):
        """Installs the release, and sets all up as its manual says."""
        for host in self.hosts.values():
            host.install(self.release)
        authority = Authority(self.scratch)
        members = ",".join(f"{host.name}=https://{host.address}:2380" for host in self.cores)
        for host in self.cores:
            signed = authority.certificate(host.name, san=f"IP:{host.address}")
            for file in signed.cert, signed.key, signed.authority:
                shutil.copy(file, host.root / "etc/tenure")
            host.on("chown", "tenure-core", f"/etc/tenure/{host.name}.key")
            host.edit(Core=f"Name={host.name}", Clients=f"ListenClientURLs={host.client_url}",
                      Peers=f"ListenPeerURLs=https://{host.address}:2380\n"
                            f"PeerCertFile=/etc/tenure/{host.name}.pem\n"
                            f"PeerKeyFile=/etc/tenure/{host.name}.key\n"
                            "PeerTrustedCAFile=/etc/tenure/ca.pem\n"
                            f"InitialCluster={members}")
        for host in self.cores:
            host.systemctl("enable", "-q", "--now", "--no-block", "tenure-core")
        for host in self.agents:
            host.edit(Agent=f"Endpoints={self.endpoints}\nTTL={self.ttl}")
            host.systemctl("enable", "-q", "--now", "tenured", "tenured-metrics.socket")
        names = {host.name for host in self.agents}
        for host in self.agents:
            eventually(lambda host=host: set(host.nodes()) == names and host.is_active("bound"))

    # ---- what the hosts say of the core ----

    @property
    def endpoints(self):
        return ",".join(host.client_url for host in self.cores)

    def etcdctl(self, *words, at=None, stdin=""):
        return self.h8.on("etcdctl", "--endpoints", at.client_url if at else self.endpoints,
                          *self._LIMITS, *words, stdin=stdin)

    def upgraded(self, at):
        """The names of the replicas that a core host knows to have another release."""
        listed = json.loads(at.ctl("--json=short", "core", "members"))
        return {said["name"] for said in listed if said["version"] not in ("", str(self.release))}

    def cluster_version(self, at):
        return json.loads(at.ctl("--json=short", "core", "upgrade"))["cluster_version"]

    def tidy(self):
        """Agents leave before their core is gone."""
        for host in reversed(self.hosts.values()):
            host.tidy()


class Life:
    """What goes on meanwhile, on the agents' hosts."""

    def __init__(self, fleet):
        self.fleet, self.changes, self.etcdctls = fleet, [], []
        h4, h5, h6, _, h8 = fleet.agents
        self.holder = h4.start("tenurectl", "lock", "duty", "--", "sh", "-c", _HOLDER)
        eventually(self.holder.lines)
        self.next = h5.start("tenurectl", "lock", "duty", "--", "true")
        self.worker = h5.start("/build/examples/worker")
        self.watch = h6.start("/build/examples/watch", "w/")
        self.members = h6.start("/build/examples/members")
        eventually(lambda: self.watch.lines() and self._has(self.members, "synced"))
        self.observers = [host.watch() for host in fleet.agents]
        self.starts = [host.starts()["tenured"] for host in fleet.agents]
        self.writer = h8.start("sh", "-c", _WRITER, "sh", fleet.endpoints)
        self.goes_on()

    @staticmethod
    def _has(program, pattern):
        return re.findall(f"^{pattern}", program.text(), re.M)

    def _seen(self):
        """The changes that the etcdctls have told: revision and key."""
        return [(event.revision, event.key) for etcdctl in self.etcdctls for event in
                events(json_lines(line for line in etcdctl.lines() if line[:1] == "{"))]

    def _watch_by_etcdctl(self):
        """When a leader of 0.1.0 stops, there may be none for a while; etcdctl ends then."""
        if self.etcdctls and self.etcdctls[-1].is_running:
            return
        if self.etcdctls:
            self.etcdctls[-1].wait()
        begin = max(self._seen(), default=(0, ""))[0] + 1
        self.etcdctls.append(self.fleet.h7.start(
            "etcdctl", "--endpoints", self.fleet.endpoints, "-w", "json", "watch", "--prefix", "w/",
            f"--rev={begin}"))

    def goes_on(self):
        """Everybody has work done, and hears of others'."""
        self._watch_by_etcdctl()
        before = self._progress()
        eventually(lambda: all(now > then + 2 for now, then in zip(self._progress(), before)))
        before = self.fleet.h8.nodes()["h8"].revision
        self.fleet.h8.ctl("set-tags", f"number={len(self.changes)}")
        self.changes_after(self.fleet.h8, before)

    def changes_after(self, host, revision):
        """Everybody hears that what the host publishes about itself has changed since then."""
        changed = eventually(lambda: host.nodes()[host.name].revision > revision
                             and host.nodes()[host.name].revision)
        self.changes.append((host.name, changed))
        for watch in self.observers:
            eventually(lambda watch=watch: changed in [e.revision for e in watch.events()])

    def _progress(self):
        return (len(self._has(self.writer, "did")), len(self._has(self.worker, "did")),
                len(self._has(self.watch, "put")), len(self._seen()))

    def end(self):
        for host in self.fleet.agents:
            host.on("touch", _ENOUGH)
        self.worker.kill()
        assert (self.holder.wait(), self.next.wait(), self.writer.wait()) == (0, 0, 0)
        self.judge_writes()
        self.judge_programs()
        self.judge_observers()
        # The worker had the old library until now, and the next one has the new.
        again = self.fleet.h5.start("/build/examples/worker")
        eventually(lambda: self._has(again, "did"))

    def judge_writes(self):
        """What was acknowledged is there, once; and who watches has been told all, once."""
        written = self.fleet.range("w/")
        done, unknown = (set(self._has(self.writer, f"{word} (.*)")) for word in ("did", r"\?"))
        assert done <= {kv.key for kv in written} <= done | unknown
        assert {kv.version for kv in written} == {1}
        changes = sorted((kv.mod_revision, kv.key) for kv in written)
        eventually_is(changes, self._seen)
        eventually_is(changes, lambda: [
            (int(revision), key) for key, revision in
            self._has(self.watch, r"put (.*) = .* at revision (\d+)")])

    def judge_programs(self):
        """The worker has had its lock all the time, and nobody was told to have left."""
        numbers = [int(number) for number in self._has(self.worker, r"did (\d+)")]
        assert numbers == [*range(1, len(numbers) + 1)]
        assert len(self._has(self.worker, "my turn")) == 1
        unknown = self._has(self.worker, "worker: not done: It may have happened")
        assert len(self.worker.lines()) == 1 + len(numbers) + len(unknown)
        written = self.fleet.get("/jobs/done").version
        assert len(numbers) <= written <= len(numbers) + len(unknown) + 1  # it was killed
        assert sorted(self._has(self.members, "(?!synced).+")) == [
            f"joined {host.name} {host.address}" for host in self.fleet.agents]

    def judge_observers(self):
        """Each change was reported once, and nothing else. A new agent tells the programs of its own
        host of all nodes, as they are by then."""
        for host, watch, starts in zip(self.fleet.agents, self.observers, self.starts):
            told, joined = ([(event.name, event.revision) for event in watch.events()
                             if event.event == kind] for kind in ("NodeChanged", "NodeJoined"))
            assert len(joined) == len(self.fleet.agents) * (host.starts()["tenured"] - starts)
            assert {event.event for event in watch.events()} <= {
                "NodeChanged", "NodeJoined", "LeaseHeld"}
            assert told == [change for change in self.changes
                            if change in told or change not in joined]


@contextlib.contextmanager
def unnoticed(host, life, packages=None):
    """What an operator does to this host meanwhile to the packages restarts each of their services
    that runs, once, and changes nothing else; and nobody hears of it."""
    packages = packages or host.packages
    leases = {agent.name: agent.lease for agent in host.rig.agents}
    starts, untouched = host.starts(), host.untouched()
    restarted = {unit for package in packages for unit in RESTARTED.get(package, [])}
    revision = "tenured" in packages and host.nodes()[host.name].revision
    yield
    if revision:
        life.changes_after(host, revision)  # it publishes its version
    life.goes_on()
    assert {agent.name: agent.lease for agent in host.rig.agents} == leases
    assert host.starts() == {unit: n + (unit in restarted) for unit, n in starts.items()}
    assert host.untouched() == untouched
    assert host.leftovers() == ""
