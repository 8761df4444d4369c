"""A core with honest clients and attackers, and what a process takes."""
import dataclasses
import itertools
import json
import pathlib
import signal
import subprocess

from harness.authority import Authority, Certificate
from harness.cluster import Cluster
from harness.places import BIN, TOP
from harness.program import Daemon
from harness.rpc import pb
from harness.waiting import eventually

# A sanitizer takes memory and time of its own.
SLOW = 4 if {"asan", "tsan"} & {*BIN.parts} else 1
_numbers = itertools.count(1)


class Module(Daemon):
    """A module of this folder as a program. Its main() gets @given."""

    ends_by = signal.SIGKILL

    def __init__(self, folder, module, **given):
        super().__init__(folder / f"{module}{next(_numbers)}.log", "/usr/bin/python3", "-B", "-m",
                         f"soak.{module}", json.dumps(given, default=str),
                         PYTHONPATH=str(TOP / "tests"))

    def tell(self, line):
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()


class Honest(Module):
    """take() returns what has been seen since the last time: the seconds that each "renewal" and
    "put" took, and "errors"."""

    def take(self):
        self.tell("take")
        return json.loads(self.process.stdout.readline())


def attack(folder, name, url, **how):
    """A process that attacks from now on."""
    host, port = url.partition("://")[2].split(":")
    return Module(folder, "attacks", attack=name, host=host, port=int(port), **how).start()


def certificate_of(files):
    return files and Certificate(*map(pathlib.Path, files))


def port(url):
    return int(url.rsplit(":", 1)[1])


def processor(pid):
    """Seconds that its loop has run."""
    return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


class Memory:
    """.now and .most: how many MiB a process has, and had since this was made; .grown: more than
    it had then."""

    def __init__(self, pid):
        self._proc = pathlib.Path(f"/proc/{pid}")
        (self._proc / "clear_refs").write_text("5")  # proc(5): the peak begins anew
        self.before = self.now

    def _has(self, what):
        lines = (self._proc / "status").read_text().splitlines()
        return next(int(line.split()[1]) >> 10 for line in lines if line.startswith(what))

    now = property(lambda self: self._has("VmRSS"))
    most = property(lambda self: self._has("VmHWM"))
    grown = property(lambda self: self.most - self.before)


class Bed:
    """Of one replica or more, with TLS or without it."""

    def __init__(self, folder, ports, size=3, *options, tls=False):
        self.folder, authority = folder, Authority(folder) if tls else None
        self.core = Cluster(folder, ports, size, *options, authority=authority)
        self.files = dataclasses.astuple(self.core.certificate) if tls else None

    def be_honest(self, *replicas, token=None):
        """From now on honest clients are at these replicas; at all, if none is given."""
        urls = [replica.client_url for replica in replicas or self.core.running]
        self.honest = Honest(self.folder, "honest", urls=urls, files=self.files, token=token)
        self.honest.start(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.honest.take()  # they have begun
        return self

    def attack(self, name, replica):
        """One that is at its height."""
        process = attack(self.folder, name, replica.client_url, files=self.files)
        eventually(lambda: "there" in process.lines(), 180)
        return process

    def call(self, path, request, at=None):
        with self.core.rpc(at) as rpc:
            return rpc.call(path, request)

    def status(self, replica):
        return self.call("etcdserverpb.Maintenance/Status", pb.StatusRequest(), replica)

    def put(self, *keys, size=1, lease=0):
        with self.core.rpc() as rpc:
            for key in keys:
                rpc.call("etcdserverpb.KV/Put", pb.PutRequest(
                    key=key, value=b"x" * size, lease=lease))
