"""Keys that programs read from caches, and tenurectl cache."""
import errno
import fcntl
import json
import os
import struct
import termios
import time

import pytest
from harness.pipes import unread_pipe
from harness.places import BIN
from harness.program import Daemon, run
from harness.tie import TieError
from harness.waiting import ProgramError, eventually, eventually_is


class Writer:
    """Writes numbers, and keeps when each was acknowledged."""

    def __init__(self, tie, key):
        self.tie, self.key = tie, key
        self.n, self.acknowledged, self.doubtful = 0, {}, set()

    def write(self):
        self.n += 1
        try:
            self.tie.put(self.key, str(self.n), timeout=60)
            self.acknowledged[self.n] = time.clock_gettime(time.CLOCK_BOOTTIME) * 1e6
        except TieError as error:
            assert error.errno == errno.EREMOTEIO
            self.doubtful.add(self.n)  # it may still be done, after a later one

    def is_stale(self, read):
        """@read: a line of cache_reader's. It began after a later write was acknowledged."""
        _, value, began = read.split()
        return int(value) not in self.doubtful and any(
            n > int(value) and at < int(began) for n, at in self.acknowledged.items())


def test_no_read_from_a_cache_is_stale_whoever_is_frozen_or_killed(cluster, ties, program):
    writer = Writer(ties(), "k")
    writer.write()
    reads = program.compile("tests/integration/cache_reader.c")
    readers = [program.start(reads, "k", TENURE_ENDPOINTS=cluster.endpoints) for _ in range(3)]

    def all_have_the_last_one():
        for _ in range(3):
            writer.write()
        last = f"cached {cluster.get('k').value}"
        for reader in readers:
            eventually(lambda: last in reader.lines())

    all_have_the_last_one()
    for frozen in readers[0], cluster.leader():
        frozen.freeze()
        writer.write()
        frozen.thaw()
    leader = cluster.leader()
    leader.kill()
    writer.write()
    leader.start()
    all_have_the_last_one()

    for reader in readers:
        assert reader.stop() == 0
        found = [line for line in reader.lines() if line.startswith("had")]
        assert found and not [line for line in found if writer.is_stale(line)]


# ---- tenurectl cache ----

def cache(core, folder, *words, out=None):
    """A tenurectl cache that runs until it is ended."""
    return Daemon(folder / "cache.log", BIN / "tenurectl", f"--endpoints={core.endpoints}",
                  "--json=short", "cache", *words, out=out or folder / "cache.out").start()


def test_tenurectl_shows_what_is_cached_and_why_it_is_not(shared_cluster, tmp_path, prefix):
    shared_cluster.put(prefix + "k", "1")
    shown = cache(shared_cluster, tmp_path, prefix + "k")

    def told():
        return [said["keys"][0]["value"] if said["event"] == "Cached" else said["reason"]
                for said in map(json.loads, shown.lines())]

    eventually_is(["1"], told)
    shared_cluster.put(prefix + "k", "2")

    eventually_is(["1", "a write waits", "2"], told)
    assert shown.stop() == 0
    assert "cached, as of revision" in shared_cluster.ctl("cache", "--prefix", prefix, "--once")


def unread(pipe):
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]


def test_a_signal_ends_tenurectl_while_nobody_reads_what_it_writes(
        shared_cluster, tmp_path, prefix):
    path, reader = unread_pipe(tmp_path)
    for n in range(2):
        shared_cluster.put(f"{prefix}{n}", "x" * 60000)

    shown = cache(shared_cluster, tmp_path, prefix, "--prefix", out=path)
    eventually(lambda: unread(reader) > 60000)

    assert shown.stop() == 0


def test_tenurectl_says_that_nobody_reads_any_more(shared_cluster, tmp_path, prefix):
    path, reader = unread_pipe(tmp_path)
    shared_cluster.put(prefix + "k", "1")
    shown = cache(shared_cluster, tmp_path, prefix + "k", out=path)
    eventually(lambda: unread(reader))

    os.close(reader)
    shared_cluster.put(prefix + "k", "2")

    assert shown.wait() == 1
    assert "cannot write to standard output: Broken pipe" in shown.log_text()


def test_tenurectl_says_that_an_etcd_has_no_caches(etcd):
    with pytest.raises(ProgramError, match="the core gives no cache leases: it is an etcd"):
        run(BIN / "tenurectl", f"--endpoints={etcd.endpoints}", "cache", "k")
