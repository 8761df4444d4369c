"""A replica whose disk fails or is full, or that is killed, at each of its calls in turn
(bad_disk.c): a lone one in its first start, in a later one, and in a restore, and a follower that
installs a snapshot. It ends with a sentence that names the file, or goes on; and with a good disk
it has all that was acknowledged."""
import base64
import errno
import http.client
import itertools
import re
import shutil
import signal

import pytest
from harness.http1 import Http
from harness.places import BIN, TOP
from harness.program import run
from harness.waiting import eventually

pytestmark = [pytest.mark.night("it takes long for what it adds"), pytest.mark.timeout(1800)]
KILLED = -signal.SIGKILL
HOWS = {"an error": errno.EIO, "a full disk": f"{errno.ENOSPC}+", "a kill": "kill"}
OLD = {b"k0": b"again", b"k24": b"v24"}


class Replica:
    """@process: the replica, whose disk can be made to fail."""

    def __init__(self, folder, process):
        self.folder, self.process = folder, process
        self.data, self.log = process.data, folder / "calls"
        self.library = folder / "bad_disk.so"
        self.commands = {"start": process.command}
        run("gcc", "-shared", "-fPIC", "-o", self.library, TOP / "tests/integration/bad_disk.c",
            "-ldl")

    def grow(self, core):
        """Alone in its core, to a snapshot, a log behind it, and files that are kept aside."""
        core.put_all([(f"k{n}", f"v{n}") for n in range(130)])
        while not [*self.data.glob("snapshot-0*")]:
            assert self.put(b"f", b"more")
        core.put("k0", "again")
        core.ctl("core", "snapshot", "save", self.folder / "snapshot")
        self.process.kill()
        shutil.copytree(self.data, self.folder / "grown")
        self.process.options = []
        self.process.configure([self.process])
        self.commands = {"start": self.process.command, "restore": [
            str(BIN / "tenure-core"), *map(str, self.process.identity), "--restore",
            str(self.folder / "snapshot")]}

    def reset(self, copy=None):
        shutil.rmtree(self.data, ignore_errors=True)
        if copy:
            shutil.copytree(self.folder / copy, self.data)

    def begin(self, command, call=None, how=None):
        """Returns whether it serves: otherwise it has ended."""
        self.launch(command, call, how)
        eventually(lambda: not self.process.is_running or "serves clients" in self.said())
        return self.process.is_running

    def launch(self, command, call=None, how=None, **more):
        self.log.unlink(missing_ok=True)
        self.process.command = self.commands[command]
        self.process.environment = call and {
            "LD_PRELOAD": self.library, "BAD_DISK": self.data, "BAD_DISK_CALL": str(call),
            "BAD_DISK_HOW": str(how), "BAD_DISK_LOG": self.log, **more} or {}
        self.before = len(self.process.log_text())
        self.process.start()
        self.process.expect_death_by(signal.SIGKILL)

    def said(self):
        return self.process.log_text()[self.before:]

    def calls(self):
        """Of the disk, up to the one that failed."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def put(self, key, value):
        """Whether that was acknowledged."""
        try:
            Http(self.process.client_url).post("/v3/kv/put", key=key, value=value)
        except (AssertionError, OSError, http.client.HTTPException):
            return False
        return True

    def get(self, key, **how):
        said = Http(self.process.client_url).post("/v3/kv/range", key=key, **how)
        return base64.b64decode(said["kvs"][0]["value"]) if "kvs" in said else None


@pytest.fixture
def replica(tmp_path, new_cluster):
    core = new_cluster(1, "--snapshot-count=100")
    replica = Replica(tmp_path, core.leader())
    replica.grow(core)
    return replica


def is_clear(status, said, data):
    """An end that says what was wrong with which file."""
    error = re.search(r" err(?:or)? .*", said)
    return status > 0 and error and (
        str(data) in error[0] or re.search(r"\b(meta|log-|snapshot|spare-|wip-)", error[0]))


def meet(replica, command, copy, how, call):
    """The call fails. Returns what was acknowledged, or None if there is no such call."""
    replica.reset(copy)
    there, good_end = {}, 0
    if replica.begin(command, call, HOWS[how]):
        new = b"%d" % call
        there = {b"new": new} if replica.put(b"new", new) else {}
        if len(replica.calls()) < call:
            replica.process.stop()  # which may have some more
        else:
            replica.process.kill()
            good_end = KILLED
    status = replica.process.wait()
    if len(replica.calls()) < call:
        assert status == 0
        return None
    if how == "a kill":
        assert status == KILLED
    elif status != good_end:
        assert is_clear(status, replica.said(), replica.data), replica.said()
    if command == "restore" and status != 0:
        assert not replica.begin("restore") and replica.process.wait() == 0
    return there


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("command, copy, kept", [
    ("start", None, {}), ("start", "grown", OLD), ("restore", None, OLD)],
    ids=["first start", "later start", "restore"])
def test_whatever_call_of_the_disk_fails_nothing_acknowledged_is_lost(
        replica, command, copy, kept, how):
    assert meet(replica, command, copy, how, 1 << 30) is None
    calls = replica.calls()
    for call in itertools.count(1):
        # Zeroes are written in pieces: the first and the last of many alike stand for all.
        if 1 < call < len(calls) and calls[call - 2] == calls[call - 1] == calls[call]:
            continue

        there = meet(replica, command, copy, how, call)

        if there is None:
            break
        assert replica.begin("start"), f"{calls[call - 1:call]}: {replica.said()}"
        there = {**kept, **there}
        assert {key: replica.get(key) for key in there} == there, calls[call - 1:call]
        replica.process.kill()
    assert call > 10


class Follower(Replica):
    """Of three, of which the others go so far ahead that it has to install a snapshot."""

    def __init__(self, folder, core):
        leader = core.leader()
        super().__init__(folder, next(r for r in core.running if r is not leader))
        self.ahead, self.newest = Replica(folder, leader), 0
        self.process.kill()

    def fall_behind(self):
        """Of the log, no more than a megabyte is kept behind a snapshot that was ordered."""
        self.newest += 1
        assert self.ahead.put(b"large", bytes(1_100_000))
        ahead = Http(self.ahead.process.client_url)
        put = ahead.post("/v3/kv/put", key=b"newest", value=b"%d" % self.newest)
        ahead.post("/v3/kv/compaction", revision=int(put["header"]["revision"]))
        ahead.post("/v3/maintenance/defragment")

    def is_in_sync(self):
        try:
            return self.get(b"newest", serializable=True) == b"%d" % self.newest
        except (AssertionError, OSError, http.client.HTTPException):
            return False

    def catch_up(self, call=None, how=None):
        """Returns whether it came to that call, which fails; the first write is the first call,
        since the start, which has a test of its own, makes as many as there are files."""
        self.launch("start", call, how, BAD_DISK_FROM="pwrite")
        eventually(lambda: not self.process.is_running or self.is_in_sync()
                   or "The disk is full" in self.said())
        return len(self.calls()) >= call if call else self.process.is_running


@pytest.mark.parametrize("how", HOWS)
def test_a_follower_whose_disk_fails_while_it_installs_a_snapshot_catches_up(
        tmp_path, new_cluster, how):
    follower = Follower(tmp_path, new_cluster(3))
    for call in itertools.count(1):
        follower.fall_behind()
        is_met = follower.catch_up(call, HOWS[how])
        if follower.process.is_running:
            follower.process.kill()
        status = follower.process.wait()  # it may have ended just before it was killed
        assert status == KILLED or is_clear(status, follower.said(), follower.data), (
            follower.said())
        if not is_met:
            break
        last = follower.calls()[-1]
        assert follower.catch_up(), f"{last}: {follower.said()}"
        follower.process.kill()
    assert call > 5
