"""A host: an agent, with a bus, a boot and directories of its own."""
import hashlib
import json
import shutil
import signal
import uuid
from dataclasses import dataclass

from .bus import Bus
from .places import BIN
from .program import Daemon, run
from .values import hexadecimal, json_lines, value
from .waiting import ProgramError, eventually

NAME, PATH = "org.tenure.Membership1", "/org/tenure/Membership1"
MANAGER = "org.tenure.Membership1.Manager"


@dataclass(frozen=True)
class Status:
    state: str
    node_name: str
    cluster: str
    core_endpoint: str
    synced: bool
    maintenance: str
    revision: int
    ttl_usec: int
    lease_id: int = hexadecimal()


@dataclass(frozen=True)
class Node:
    name: str
    id: str
    incarnation: str
    addresses: list
    tags: dict
    ttl_usec: int
    join_revision: int
    revision: int
    lease_id: int = hexadecimal()


@dataclass(frozen=True)
class Service:
    name: str
    node: str
    instance: str
    port: int
    tags: dict


@dataclass(frozen=True)
class Event:
    event: str  # the name of the signal: NodeJoined and so on
    name: str = ""
    node: str = ""
    reason: str = ""
    revision: int = 0
    realtime_usec: int = 0


class Watch(Daemon):
    def events(self):
        """What the agent has announced since the watch was made, in order."""
        return [value(Event, said) for said in json_lines(self.lines())
                if said["event"] != "Subscribed"]

    def told_of(self, node):
        """What was announced of that node and its services: "NodeLeft expired"."""
        return [f"{event.event} {event.reason}".strip() for event in self.events()
                if node in (event.node, event.name)]

    def departure(self, node):
        """Waits until that node has left."""
        return eventually(lambda: next((event for event in self.events() if event.event ==
                                        "NodeLeft" and event.name == node), None))


class Asked:
    """What has .ctl() and a .bus gets these calls by it."""

    def refusal(self, *words, **environment):
        """The sentence with which tenurectl refuses that, and its exit status."""
        try:
            said = self.ctl(*words, **environment)
        except ProgramError as error:
            return error.err.removeprefix("tenurectl: ").strip(), error.status
        raise AssertionError(f"it is not refused: {said}")

    def ctl_whatever(self, *words):
        """What tenurectl prints, whatever its exit status is."""
        try:
            return self.ctl(*words)
        except ProgramError as error:
            return error.out

    def call(self, method, *arguments, path=PATH, interface=MANAGER):
        return self.bus.call(NAME, path, interface, method, *arguments)

    def status(self):
        try:
            said = self.ctl("--json=short", "status")
        except ProgramError as error:
            if error.status != 2:  # which means: it does not hold its place
                raise
            said = error.out
        return value(Status, json.loads(said))

    def holds(self):
        return self.status().state == "held"

    def holds_another(self, lease):
        """It holds its place by another lease than that one."""
        status = self.status()
        return status.state == "held" and status.lease_id != lease

    def properties(self, path=PATH, interface=MANAGER):
        return self.bus.properties(NAME, path, interface)

    def nodes(self):
        listed = json.loads(self.ctl("--json=short", "nodes"))
        return {said["Name"]: value(Node, said) for said in listed}

    def node(self, name):
        """As soon as it is there: an agent that holds its place may not yet have heard of it."""
        return eventually(lambda: self.nodes().get(name))

    def services(self):
        return [value(Service, said) for said in json.loads(self.ctl("--json=short", "services"))]


# The settings that are not in [Agent].
SECTIONS = {"FlapLimit": "Steadiness", "FlapRest": "Steadiness", "FenceLead": "Fencing",
            "FenceAction": "Fencing", "HeldTarget": "Fencing", "TrustedCAFile": "TLS",
            "CertFile": "TLS", "KeyFile": "TLS"}


class Agent(Asked, Daemon):
    """Holds its place when it has been made, unless @held is False. @core: anything with
    endpoints. @certificate: what it shows to a core with TLS. @keeps: whether its page lasts, as a
    file in RUNTIME_DIRECTORY. @program, @tenurectl: others of these programs. @environment: further
    variables. @settings: as in tenured.conf(5)."""

    ends_by = signal.SIGUSR1  # at once: the place is of no interest any more

    def __init__(self, folder, core, name="h1", *, bus=None, held=True, certificate=None,
                 keeps=True, program=BIN / "tenured", tenurectl=BIN / "tenurectl",
                 environment=None, **settings):
        self.bus = bus or Bus(folder, f"bus.{name}")
        self.tenurectl = tenurectl, f"--bus={self.bus.address}"
        self.folder = folder / name
        for directory in "run", "state", "services.d":
            (self.folder / directory).mkdir(parents=True)
        # A long TTL, since a crowded machine may be slow: a test that waits for the end of a
        # place chooses a shorter one.
        self.settings = {
            "Endpoints": core.endpoints, "TTL": "30s", "NodeName": name, "LogLevel": "debug",
            "NodeId": hashlib.md5(str(self.folder).encode()).hexdigest(),
            "ServicesPath": self.folder / "services.d", **settings}
        if certificate:
            self.settings |= {"CertFile": certificate.cert, "KeyFile": certificate.key,
                              "TrustedCAFile": certificate.authority}
        self.configuration, self.page = self.folder / "tenured.conf", self.folder / "run/tenancy"
        self.write_settings()
        runtime = {"RUNTIME_DIRECTORY": str(self.page.parent)} if keeps else {}
        super().__init__(
            folder / f"{name}.log", program, "--config", self.configuration,
            **{**runtime, "TENURE_BOOT_ID": uuid.uuid4().hex,
               "STATE_DIRECTORY": str(self.folder / "state"),
               **self.bus.environment_for_clients, **(environment or {})})
        self.n_background = 0
        self.start()
        if held:
            eventually(self.holds)
            self.node(self.settings["NodeName"])

    def write_settings(self, **changed):
        self.settings.update(changed)
        new = self.configuration.with_suffix(".new")
        new.write_text("".join(f"[{SECTIONS.get(key, 'Agent')}]\n{key}={given}\n"
                               for key, given in self.settings.items()))
        new.replace(self.configuration)  # at once: it may be reading what was there before

    def reload(self, **changed):
        """It reads its settings again, these among them."""
        self.write_settings(**changed)
        self.signal(signal.SIGHUP)

    def crash(self):
        """It is killed and started again."""
        self.kill()
        self.start()

    def boot(self):
        """Its host fails, and boots."""
        self.kill()
        shutil.rmtree(self.folder / "run")
        (self.folder / "run").mkdir()
        self.environment["TENURE_BOOT_ID"] = uuid.uuid4().hex
        self.start()

    def restart(self):
        """As systemctl restart does it: it keeps its place."""
        self.signal(signal.SIGUSR1)
        assert self.wait() == 0
        self.start()
        eventually(self.holds)

    @property
    def key(self):
        """Of its record in the core."""
        return f"/tenure/{self.settings.get('Cluster', 'default')}/nodes/{self.name}"

    def ctl(self, *words, **environment):
        return run(*self.tenurectl, *words, **environment)

    def log_has(self, text):
        """Waits until the log has it."""
        __tracebackhide__ = True

        def look():
            assert text in self.log_text(), f"the log of {self.name} lacks {text!r}"
            return True

        eventually(look)

    def background(self, *words, kind=Daemon):
        """A tenurectl that runs until it is ended."""
        self.n_background += 1
        what = f"{words[-1].replace('/', '-')}{self.n_background}"
        log = self.log.with_name(f"{self.name}.{what}.log")
        return kind(log, *self.tenurectl, *words, out=log.with_suffix(".out")).start()

    def watch(self):
        """What is announced on this host's bus from now on."""
        watch = self.background("--json=short", "watch", kind=Watch)
        eventually(lambda: watch.pid in self.bus.subscribers(MANAGER))
        return watch
