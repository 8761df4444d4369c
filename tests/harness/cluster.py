"""A lease core of one or more replicas on loopback."""
import json
from dataclasses import dataclass

import pytest

from .http1 import Http
from .keys import Replicas
from .places import BIN, ENVIRONMENT
from .program import Daemon, run
from .values import hexadecimal, value
from .waiting import ProgramError, eventually, eventually_is


@dataclass(frozen=True)
class Member:
    name: str
    role: str  # "leader", "voter" or "learner"
    id: int = hexadecimal()


class Replica(Daemon):
    """@options: further words of its command. @certificate: if it has one, both ports want one.
    @program: another tenure-core."""

    def __init__(self, name, folder, client_port, peer_port, *options, certificate=None,
                 program=BIN / "tenure-core", **environment):
        self.program = program
        scheme = "https" if certificate else "http"
        self.client_url = f"{scheme}://127.0.0.1:{client_port}"
        peer_scheme = "https" if "--peer-auto-tls" in options else scheme
        self.peer_url = f"{peer_scheme}://127.0.0.1:{peer_port}"
        self.data = folder / f"{name}.data"
        self.options = [*options]
        for port in ("", "peer-") if certificate else ():
            self.options += [f"--{port}cert-file={certificate.cert}",
                             f"--{port}key-file={certificate.key}",
                             f"--{port}trusted-ca-file={certificate.authority}",
                             f"--{port}client-cert-auth"]
        super().__init__(folder / f"{name}.log", **environment)

    def configure(self, members, state="new"):
        """@members: every member from the beginning, this one among them."""
        self.identity = [
            "--name", self.name, "--data-dir", self.data, "--listen-peer-urls", self.peer_url,
            "--initial-cluster", ",".join(f"{m.name}={m.peer_url}" for m in members)]
        self.command = [str(word) for word in (
            self.program, *self.identity, "--listen-client-urls", self.client_url,
            "--initial-cluster-state", state, *self.options)]

    def metrics(self, **headers):
        """The page /metrics, of a replica without TLS."""
        return Http(self.client_url).get("/metrics", **headers)

    def metric(self, sample):
        """The value of a sample: the name of a metric, with labels as the page has them."""
        lines = self.metrics().text.splitlines()
        return float(next(line for line in lines if line.startswith(sample + " ")).split()[-1])


class Cluster(Replicas):
    """Serves clients when it has been made. Replicas are named a, b, c and so on. @options: of
    each replica; @authority: signs the .certificate that all replicas show, and .client's, who
    asks; @restore: the file of a snapshot, and perhaps options; @more: as of Replica, of each."""

    def __init__(self, folder, ports, size=3, *options, authority=None, restore=None, **more):
        self.folder, self.ports, self.replicas = folder, ports, {}
        self.client = authority and authority.certificate("client")
        self.certificate = authority and authority.certificate("replica")
        if authority:
            self.credentials = self.client.for_etcdctl
        self._made = options, {"certificate": self.certificate, **more}
        for name in "abcdefg"[:size]:
            self.new_replica(name)
        for replica in self.replicas.values():
            replica.configure(self.replicas.values())
            if restore:
                words = restore if isinstance(restore, tuple) else (restore,)
                run(BIN / "tenurectl", "core", "snapshot", "restore", *words, *replica.identity,
                    PATH=f"{BIN}:{ENVIRONMENT['PATH']}")
            replica.start()
        # Before that, a member is listed without its name.
        eventually_is(set(self.replicas), lambda: set(self.members()))
        self.leader()

    def new_replica(self, name):
        """One that the core has not been told of, and that has not been started."""
        options, more = self._made
        self.replicas[name] = Replica(name, self.folder, self.ports.take(), self.ports.take(),
                                      *options, **more)
        return self.replicas[name]

    def ctl(self, *words):
        """tenurectl, as far as it asks the core."""
        return run(BIN / "tenurectl", f"--endpoints={self.endpoints}", *self.credentials, *words)

    def rpc(self, at=None, **options):
        """A connection to one replica, for calls of which etcdctl has none."""
        from .rpc import Rpc  # grpc takes a moment to load, and few tests need it
        return Rpc((at or self.running[0]).client_url, certificate=self.client, **options)

    def members(self):
        listed = json.loads(self.ctl("--json=short", "core", "members"))
        return {said["name"]: value(Member, said) for said in listed}

    def leader(self):
        """The replica that leads, once one does."""
        return eventually(lambda: next((self.replicas[member.name] for member
                                        in self.members().values() if member.role == "leader"
                                        and member.name in self.replicas), None))

    def add_learner(self, name):
        """Told to the core first, then started, as tenure-core(8) says."""
        replica = self.new_replica(name)
        eventually(lambda: self.ctl("core", "add", replica.peer_url))  # not while one is away
        replica.configure(self.replicas.values(), "existing")
        return replica.start()

    def promote(self, name):
        """Makes a learner a voter. The core refuses that while it is not in sync, which is waited
        for; what is refused for another reason fails the test."""
        eventually(lambda: name in self.members())

        def is_promoted():
            try:
                self.ctl("core", "promote", name)
            except ProgramError as refused:
                if "which is in sync with leader" not in refused.err:
                    pytest.fail(str(refused))
                raise
            return True

        eventually(is_promoted)
