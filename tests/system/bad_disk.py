#!/usr/bin/env python3
"""A lone replica whose disk fails, or which is killed, at each call in turn: in its first start, in a later one, while it serves,
and in --restore. It ends by no signal of its own and with a sentence that names the directory or a file of it, or it goes on; and
with a disk that works again it has all that it had acknowledged.
usage: bad_disk.py BIN DIR BAD_DISK.so [PHASE...]"""
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import ports

BIN, DIR, SO = (os.path.abspath(a) for a in sys.argv[1:4])
PHASES = sys.argv[4:] or ["first", "later", "restore"]
PORT, PEER_PORT = ports.reserve(2, os.getpid())
URL = f"http://127.0.0.1:{PORT}"
DATA = f"{DIR}/data"
OPTIONS = ["--name", "x", "--data-dir", DATA, "--listen-client-urls", URL, "--listen-peer-urls", f"http://127.0.0.1:{PEER_PORT}"]
failed, runs = [], 0


def etc(*args, **kw):
    return subprocess.run(["etcdctl", "--endpoints", f"127.0.0.1:{PORT}", "--command-timeout=3s", "--dial-timeout=1s", *args],
                          capture_output=True, text=True, env={**os.environ, "ETCDCTL_API": "3"}, **kw)


def etc_again(*args, **kw):
    """Until it succeeds, for 30 s: on a busy machine one call may not be heard in time."""
    end = time.monotonic() + 30
    while (r := etc(*args, **kw)).returncode != 0 and time.monotonic() < end:
        pass
    return r


def surely(*args, **kw):
    r = etc_again(*args, **kw)
    if r.returncode != 0:
        raise SystemExit(f"etcdctl {args[0]}: {r.stderr}")


class Core:
    def __init__(self, options=(), call=None, how=""):
        env = dict(os.environ)
        self.log = f"{DIR}/core.log"
        if os.path.exists(f"{DIR}/calls"):
            os.unlink(f"{DIR}/calls")
        if call:
            env.update(LD_PRELOAD=SO, BAD_DISK=DATA, BAD_DISK_CALL=str(call), BAD_DISK_HOW=how, BAD_DISK_LOG=f"{DIR}/calls")
        with open(self.log, "w") as f:
            self.p = subprocess.Popen([f"{BIN}/tenure-core", *OPTIONS, *options], stdout=f, stderr=f, env=env)

    def said(self):
        with open(self.log) as f:
            return f.read()

    def calls(self):
        try:
            with open(f"{DIR}/calls") as f:
                return f.read().splitlines()
        except FileNotFoundError:
            return []

    def settled(self):
        """Waits until it serves, or has ended; says whether it serves."""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if self.p.poll() is not None:
                return False
            if "serves clients" in self.said():
                return True
            time.sleep(0.005)
        self.end()
        return False

    def end(self, sig=signal.SIGKILL):
        if self.p.poll() is None:
            self.p.send_signal(sig)
        return self.p.wait(20)


def wrong(what, core, calls):
    failed.append(what)
    print(f"not ok {what} (at: {calls[-1] if calls else '?'}): {core.said().strip()}", flush=True)


def ended_well(what, core, how, calls):
    """It ended by itself: as it was told to, or with one clear sentence."""
    rc = core.p.wait(20)
    if how.startswith("kill"):
        if rc != -signal.SIGKILL:
            wrong(f"{what}: ends with {rc}", core, calls)
        return
    lines = [line for line in core.said().splitlines() if " err " in line or " error " in line]
    if rc < 0:
        wrong(f"{what}: ends by signal {-rc}", core, calls)
    elif rc == 0:
        wrong(f"{what}: an error ends in success", core, calls)
    elif not lines or not all(DATA in line or re.search(r"\b(meta|log-|snapshot|spare-|wip-)", line) for line in lines[:1]):
        wrong(f"{what}: does not say what and where", core, calls)


def look(what, calls, must):
    """With a disk that works, it has what it had acknowledged."""
    core = Core()
    if not core.settled():
        return wrong(f"{what}: does not start again", core, calls)
    for key, value in must.items():
        got = etc_again("get", key, "--print-value-only")
        if got.stdout.strip() != value:
            wrong(f"{what}: {key} is '{got.stdout.strip()}{got.stderr.strip()}', was acknowledged as '{value}'", core, calls)
    core.end()


def fresh(copy=None):
    shutil.rmtree(DATA, ignore_errors=True)
    if copy:
        shutil.copytree(copy, DATA)


HOWS = {"EIO": str(errno.EIO), "ENOSPC from there on": f"{errno.ENOSPC}+", "killed": "kill"}


def in_turn(phase, prepare, options, must):
    global runs
    for name, how in HOWS.items():
        prepare()
        core = Core(options, 1 << 30, how)
        core.p.wait(30) if options else core.settled() and etc("put", "new", "0")
        all_calls = core.calls()
        core.end()
        k = 0
        while True:
            k += 1
            # Zeroes are written in pieces: the first and the last of many alike stand for all.
            while 1 < k < len(all_calls) and all_calls[k - 2] == all_calls[k - 1] == all_calls[k]:
                k += 1
            prepare()
            core = Core(options, k, how)
            what = f"{phase}, {name} at call {k}"
            keys = dict(must)
            if options:
                core.p.wait(30)
                calls = core.calls()
            elif core.settled():
                if etc("put", "new", str(k)).returncode == 0:
                    keys["new"] = str(k)
                calls = core.calls()
            else:
                calls = core.calls()
            if len(calls) < k:
                rc = core.end(signal.SIGTERM)
                if rc != 0 and len(calls) < k and core.calls() == calls:
                    wrong(f"{what}: nothing failed, and it ends with {rc}", core, calls)
                break
            runs += 1
            if core.p.poll() is None:
                core.end()
            else:
                ended_well(what, core, how, calls)
            yield what, calls, keys, core


def phase_first():
    for what, calls, keys, _ in in_turn("first start", fresh, [], {}):
        look(what, calls, keys)


def grown():
    """A directory with a snapshot, a log behind it, and segments that are not needed any more."""
    fresh()
    core = Core(["--snapshot-count", "100"])
    if not core.settled():
        raise SystemExit(f"does not start: {core.said()}")
    # 13 of 10 in one transaction each are 130 keys, and 110 entries more a snapshot.
    for i in range(0, 130, 10):
        surely("txn", input="\n" + "".join(f"put k{j} v{j}\n" for j in range(i, i + 10)) + "\n\n")
    while not any(f.startswith("snapshot-") for f in os.listdir(DATA)):
        subprocess.run(["bash","-c",f"for i in $(seq 8); do etcdctl --endpoints 127.0.0.1:{PORT} put f $i & done; wait"],capture_output=True)
    surely("put", "k0", "v0")
    surely("put", "k24", "v24")
    surely("snapshot", "save", f"{DIR}/snap")
    core.end()
    shutil.rmtree(f"{DIR}/grown", ignore_errors=True)
    shutil.copytree(DATA, f"{DIR}/grown")


def phase_later():
    grown()
    for what, calls, keys, _ in in_turn("later start", lambda: fresh(f"{DIR}/grown"), [], {"k0": "v0", "k24": "v24"}):
        look(what, calls, keys)


def phase_restore():
    grown()
    again = ["--restore", f"{DIR}/snap"]
    for what, calls, keys, core in in_turn("restore", fresh, again, {"k0": "v0", "k24": "v24"}):
        if core.p.returncode == 0:
            look(what, calls, keys)
            continue
        # A start before it is done again is refused, or is that of a new replica; it never serves a part.
        second = Core(again)
        if second.p.wait(30) != 0:
            wrong(f"{what}: not to be done again", second, calls)
        else:
            look(what, calls, keys)


for name in PHASES:
    n = len(failed), runs
    globals()[f"phase_{name}"]()
    if runs - n[1] < 20:
        failed.append(name)
        print(f"not ok {name}: {runs - n[1]} faults are too few: does {SO} see its calls?", flush=True)
    if len(failed) == n[0]:
        print(f"ok {name}: {runs - n[1]} faults", flush=True)
print(f"{runs} runs, {len(failed)} wrong")
sys.exit(bool(failed))
