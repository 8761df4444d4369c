"""A lone replica whose disk fails or is full, or that is killed, at each of its calls in turn
(bad_disk.c): in its first start, in a later one, and in a restore. It ends with a sentence that
names the file, or goes on; and with a good disk it has all that it had acknowledged."""
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
    """Alone in its core, whose disk can be made to fail."""

    def __init__(self, folder, core):
        self.folder, self.process = folder, core.leader()
        self.data, self.log = self.process.data, folder / "calls"
        self.library = folder / "bad_disk.so"
        run("gcc", "-shared", "-fPIC", "-o", self.library, TOP / "tests/integration/bad_disk.c",
            "-ldl")
        self._grow(core)

    def _grow(self, core):
        """To a snapshot, a log behind it, and files that are kept aside."""
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
        self.log.unlink(missing_ok=True)
        self.process.command = self.commands[command]
        self.process.environment = call and {
            "LD_PRELOAD": self.library, "BAD_DISK": self.data, "BAD_DISK_CALL": str(call),
            "BAD_DISK_HOW": str(how), "BAD_DISK_LOG": self.log} or {}
        self.before = len(self.process.log_text())
        self.process.start()
        self.process.expect_death_by(signal.SIGKILL)
        eventually(lambda: not self.process.is_running or "serves clients" in self.said())
        return self.process.is_running

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

    def get(self, key):
        said = Http(self.process.client_url).post("/v3/kv/range", key=key)
        return base64.b64decode(said["kvs"][0]["value"]) if "kvs" in said else None


@pytest.fixture
def replica(tmp_path, new_cluster):
    return Replica(tmp_path, new_cluster(1, "--snapshot-count=100"))


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
