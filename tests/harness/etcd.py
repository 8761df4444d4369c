"""Debian's etcd on loopback, alone or as several members."""
import shutil
import signal

from .keys import Keys, Replicas
from .places import ENVIRONMENT
from .ports import listens
from .program import Daemon
from .waiting import eventually


def is_installed():
    return shutil.which("etcd", path=ENVIRONMENT["PATH"]) is not None


def _command(member, others, *options, state="new"):
    """Of a @member, which has a name, .data and both URLs; @others are members, it among them."""
    return [str(word) for word in (
        "etcd", "--name", member.name, "--data-dir", member.data,
        "--listen-client-urls", member.client_url, "--advertise-client-urls", member.client_url,
        "--listen-peer-urls", member.peer_url, "--initial-advertise-peer-urls", member.peer_url,
        "--initial-cluster", ",".join(f"{other.name}={other.peer_url}" for other in others),
        "--initial-cluster-state", state, "--log-level", "error", *options)]


class Member(Daemon):
    ends_by = signal.SIGKILL  # its orderly end takes seconds

    def __init__(self, name, folder, ports):
        self.data, self.client_port = folder / f"{name}.data", ports.take()
        self.client_url = f"http://127.0.0.1:{self.client_port}"
        self.peer_url = f"http://127.0.0.1:{ports.take()}"
        super().__init__(folder / f"{name}.log")


class Etcd(Keys, Member):
    """Serves clients when it has been made."""

    def __init__(self, folder, ports, *options):
        self.folder = folder
        Member.__init__(self, "etcd", folder, ports)
        self.command = _command(self, [self], *options)
        self.start()
        eventually(lambda: listens(self.client_port))
        eventually(lambda: self.range("nothing/") == [])

    @property
    def endpoints(self):
        return self.client_url

    def rpc(self, **options):
        """A connection for calls of which etcdctl has none."""
        from .rpc import Rpc  # grpc takes a moment to load, and few tests need it
        return Rpc(self.client_url, **options)


class Etcds(Replicas):
    """Three members, with the calls of a Cluster."""

    def __init__(self, folder, ports):
        self.folder, self.ports = folder, ports
        self.replicas = {name: Member(f"etcd-{name}", folder, ports) for name in "abc"}
        for member in self.replicas.values():
            member.command = _command(member, self.replicas.values())
            member.start()
        for member in self.replicas.values():
            eventually(lambda: listens(member.client_port))
        eventually(lambda: self.range("nothing/") == [])

    def rpc(self, at):
        from .rpc import Rpc  # grpc takes a moment to load, and few tests need it
        return Rpc(at.client_url)

    def add_learner(self, name):
        learner = self.replicas[name] = Member(f"etcd-{name}", self.folder, self.ports)
        eventually(lambda: self.etcdctl("member", "add", learner.name, "--learner",
                                        "--peer-urls", learner.peer_url))
        learner.command = _command(learner, self.replicas.values(), state="existing")
        return learner.start()
