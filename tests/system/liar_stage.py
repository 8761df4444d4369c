"""What liar.py and liar_program.py have in common: the process that is lied to, the core that lies, and the cases."""
import os
import random
import subprocess
import sys
import threading
import time
from concurrent import futures
from contextlib import contextmanager

from liar_core import Core, Wire, lose, random_lies, serve

CASES = {}
OF_ITS_OWN = {}  # arguments of run(), by case
PASSED = FAILED = SKIPPED = 0


def case(f):
    CASES[f.__name__] = f
    return f


def report(ok, what, why=""):
    global PASSED, FAILED
    PASSED, FAILED = PASSED + ok, FAILED + (not ok)
    print(("ok " if ok else "not ok ") + what + ("" if ok else f"\n    {why}"), flush=True)
    return ok


def skip(what, why):
    global SKIPPED
    SKIPPED += 1
    print(f"skipped {what}: {why}", flush=True)


class Process:
    """One that is lied to: `p`, which writes into the file `log`."""

    def text(self):
        return open(self.log, errors="replace").read()

    def cpu(self):
        f = open(f"/proc/{self.p.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(f[11]) + int(f[12])) / os.sysconf("SC_CLK_TCK")

    def rss(self):
        return int(open(f"/proc/{self.p.pid}/statm").read().split()[1]) * 4096

    def is_over(self):
        return self.p.poll() is not None

    def end(self, ask, within):
        """Ends it, which ask() asks for, and returns its exit status."""
        if not self.is_over():
            ask()
            try:
                self.p.wait(within)
            except subprocess.TimeoutExpired:
                self.p.kill()
                self.p.wait()
        return self.p.returncode


class Cost:
    """What a process takes, and asks of the core, from now on."""

    def __init__(self, process, core):
        self.process, self.core, self.began = process, core, time.monotonic()
        self.cpu, self.rss, self.asked = process.cpu(), process.rss(), sum(core.calls.values())

    def too_much(self, cpu, calls, memory):
        """A sentence, or None: processor seconds and calls are for each second since then, memory is in MiB."""
        seconds = time.monotonic() - self.began
        busy, asked, grown = self.process.cpu() - self.cpu, sum(self.core.calls.values()) - self.asked, self.process.rss() - self.rss
        if busy > cpu * seconds:
            return f"it was busy for {busy:.1f} s of {seconds:.0f}"
        if asked > calls * seconds:
            return f"it asked {asked} times: {self.core.calls}"
        if grown > memory << 20:
            return f"it took {grown >> 20} MiB"
        return None


@contextmanager
def stage():
    """A good core that serves and lets leases expire; `wire` is where to connect."""
    core = Core()
    server, port = serve(core)
    over = threading.Event()

    def ticks():
        while not over.wait(0.05):
            core.expire()
    threading.Thread(target=ticks, daemon=True).start()
    core.wire = Wire(port)
    try:
        yield core
    finally:
        core.over = True
        over.set()
        core.wire.over = True
        core.wire.listener.close()
        core.wire.cut()
        server.stop(0)


def be_good(core):
    with core.lock:
        core.lie = None
        core.cluster = 0xC0
        core.token_s = 1e9


def busily(change):
    """change(core) again and again for three seconds, some 20 times a second."""
    def start(core):
        over = time.monotonic() + 3

        def loop():
            while time.monotonic() < over:
                with core.lock:
                    change(core)
                    core.lock.notify_all()
                time.sleep(.05)
        threading.Thread(target=loop, daemon=True).start()
    return start


def lies_of(seed, cuts):
    """A case: what that seed draws."""
    def lie(core, process):
        r = random.Random(seed)
        random_lies(r, core)
        if r.random() < .5:
            lose(core)
        if cuts and r.random() < .5:
            core.wire.cut()
    lie.__doc__ = f"lies of seed {seed}"
    return lie


def main(run, args, cuts=False, seeds=(), **own):
    """The cases that were asked for, or all and then args.random random ones, or with the one word "random" those alone. A random one may
    also cut the connections (cuts); `own` are its arguments of run(). Those of `seeds` have found something once, and are cases like the others.
    What a seed finds is a defect, whatever the next seed says; which of the answers the lies meet is not drawn, so it may take more runs than one."""
    alone = args.cases == ["random"]
    for seed in seeds:
        CASES[f"random{seed}"], OF_ITS_OWN[f"random{seed}"] = lies_of(seed, cuts), own
    for name in [] if alone else args.cases:
        if name not in CASES:
            sys.exit(f"{os.path.basename(sys.argv[0])}: no case '{name}'; there are: {' '.join(CASES)}")
    again = os.environ.get("AGAIN", " ".join(sys.argv[:7]))  # up to the directories

    def drawn(seed):
        ok = False
        try:
            ok = run(f"random{seed}", lies_of(seed, cuts), **own)
        finally:
            if not ok:
                print(f"a defect, found by seed {seed}: run it again: {again} --seed {seed} --random 1 random", flush=True)
    with futures.ThreadPoolExecutor(4) as pool:  # most of them wait most of the time
        done = [pool.submit(run, name, CASES[name], **OF_ITS_OWN.get(name, {})) for name in ([] if alone else args.cases or CASES)]
        done += [pool.submit(drawn, seed) for seed in range(args.seed, args.seed + (args.random if alone or not args.cases else 0))]
        for d in done:
            d.result()
    print(f"{PASSED} passed, {FAILED} failed, {SKIPPED} skipped")
    return FAILED > 0
