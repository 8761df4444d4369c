"""What programs of earlier releases have written: tests/compat/README.md."""
import fcntl
import json
import subprocess
import tarfile

import pytest

from .cluster import Cluster
from .debian import HOUR, finish, within
from .places import TOP
from .program import run
from .rpc import pb

FOLDER = TOP / "tests/compat"
RELEASES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


def token_of(core, user="root"):
    """Of a user whose password is its name."""
    with core.rpc() as rpc:
        return rpc.call("etcdserverpb.Auth/Authenticate",
                        pb.AuthenticateRequest(name=user, password=user)).token


class Release:
    """@version: as in RELEASES."""

    def __init__(self, version):
        self.folder = FOLDER / version

    @property
    def portrait(self):
        """What its core said of its data."""
        return json.loads((self.folder / "core.json").read_text())

    def __repr__(self):
        """In the name of a folder."""
        return self.folder.name

    def programs(self):
        """The folder of its programs, which are built of its commit: this takes minutes, once."""
        def build(tree):
            run("make", "-sC", tree, "-j2", "programs", patience=HOUR)

        return self._with("built", build) / "build/release/bin"

    def library(self):
        """The environment in which `import tenure` is that release's, and so is the library."""
        so = self.programs().parent / "so"
        return {"LD_LIBRARY_PATH": str(so),
                "PYTHONPATH": str(so.parents[2] / "lib/tenure/python")}

    def packages(self, debian):
        """The folder of its packages for that Debian, which are built of its commit, once."""
        name = "-".join(["build/packages", *filter(None, [debian.suite])])

        def build(tree):
            finish(tree / f"{name}.log", *within(debian.builds, tree, "env",
                                                 "DEB_BUILD_OPTIONS=nocheck", "make", "-C", "/srv",
                                                 "deb"))
            (tree / "build/deb").rename(tree / name)

        return self._with(name, build) / name

    def _with(self, name, build):
        """The tree of its commit, in which build() has made something of that name."""
        commit = (self.folder / "commit").read_text().strip()
        tree = TOP / "build/releases" / commit
        (tree / "build").mkdir(parents=True, exist_ok=True)
        with open(tree / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # other workers wait until it is there
            if not (tree / name).exists():
                archive = subprocess.run(["git", "-C", TOP, "archive", commit], capture_output=True)
                if archive.returncode != 0:
                    pytest.skip(f"commit {commit[:12]} is not in this checkout's history")
                subprocess.run(["tar", "-xC", tree], input=archive.stdout, check=True)
                build(tree)
                (tree / name).touch()
        return tree

    def core(self, folder, ports):
        """The present program with a copy of that core's data: one replica, a, with users."""
        return _Core(folder, ports, self)


class _Core(Cluster):
    credentials = ("--user=root:root",)

    def __init__(self, folder, ports, release):
        self._release = release
        super().__init__(folder, ports, 1)

    def new_replica(self, name):
        replica = super().new_replica(name)
        if name == "a":
            # The data say where other replicas reach it; alone, it does not listen there.
            replica.peer_url, = self._release.portrait["members"][0]["peerURLs"]
            with tarfile.open(self._release.folder / "core.tar.gz") as tar:
                tar.extractall(self.folder / "unpacked")
            (self.folder / "unpacked" / "data").rename(replica.data)
        return replica
