"""Debian's etcd, alone, on loopback."""
import shutil

from .keys import Keys
from .places import ENVIRONMENT
from .ports import listens
from .program import Daemon
from .waiting import eventually


def is_installed():
    return shutil.which("etcd", path=ENVIRONMENT["PATH"]) is not None


class Etcd(Keys, Daemon):
    """Serves clients when it has been made."""

    def __init__(self, folder, ports, *options):
        self.folder, self.data = folder, folder / "etcd.data"
        port = ports.take()
        self.client_url = f"http://127.0.0.1:{port}"
        peer_url = f"http://127.0.0.1:{ports.take()}"
        super().__init__(
            folder / "etcd.log", "etcd", "--name", "etcd", "--data-dir", self.data,
            "--listen-client-urls", self.client_url, "--advertise-client-urls", self.client_url,
            "--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url,
            "--initial-cluster", f"etcd={peer_url}", "--log-level", "error", *options)
        self.start()
        eventually(lambda: listens(port))
        eventually(lambda: self.range("nothing/") == [])

    @property
    def endpoints(self):
        return self.client_url

    def rpc(self, **options):
        """A connection for calls of which etcdctl has none."""
        from .rpc import Rpc  # grpc takes a moment to load, and few tests need it
        return Rpc(self.client_url, **options)
