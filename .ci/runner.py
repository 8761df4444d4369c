"""Runs steps side by side, in the order of their table, and tells what became of them."""
import ctypes
import fcntl
import fnmatch
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

OUT = "build/test"
CLOSING = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$")
FAILING = re.compile(r"^(?!ok )(not ok|  File \"|"
                     r".*(FAILED|ERROR: |error:|WARNING: |run it again|a defect, ))")
SKIPPED = re.compile(r"^(skipped|SKIPPED) ")
SANITIZERS = ["ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "runtime error:",
              "WARNING: ThreadSanitizer"]
# What a step gets of the environment of whoever started us: the rest could change its verdict.
KEPT = re.compile(r"^(PATH|HOME|USER|LOGNAME|TERM|TMPDIR|CI|LLVM_PROFILE_FILE|SSL_CERT_FILE|"
                  r"(?i:[a-z]+_proxy|npm_config_.*))$")
ENVIRONMENT = {
    "WERROR": "-Werror",
    "PYTHONFAULTHANDLER": "1",  # SIGABRT asks a Python where it is
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1",
}
STARTS_PROGRAMS = re.compile(r"(^| )tests/run |/fleet ")
SAY_EVERY = 60  # s without a line, after which the steps that run are named
ROOM = 4 << 30  # bytes; what the steps that run at once write stays below


@dataclass(frozen=True)
class Step:
    """A command, and when it runs.

    command  words, without a shell; NAME=VALUE before the first is its environment. {tree} is the
             build's name, {dir} a directory of its own, which it also gets as DIR; BIN is the
             programs'. {seed}, also in SEED, is what random numbers begin with; {seconds} is how
             long a step of `fill` goes on.
    level    the smallest that has it; no level has one that is built "as needed"
    why      why a step of `nightly` is not one of `test`
    tree     the build that it needs; None: none
    weight   how many of the steps that run at once it counts as; ALONE: all
    limit    after so many seconds it hangs
    fill     what a night does with the time that is left, again and again
    """
    name: str
    command: str
    level: str
    why: str = ""
    tree: str = "release"
    weight: int = 1
    limit: int = 1800
    fill: bool = False

    @property
    def slug(self):
        return re.sub(r"[^A-Za-z0-9]+", "-", self.name).strip("-").lower()


ALONE = 1000


@dataclass
class Run:
    """A step that runs, or did."""
    step: Step
    directory: str
    log: str
    seed: int
    process: subprocess.Popen = None
    began: float = 0.0
    seconds: float = 0.0
    processor: float = 0.0
    hangs: bool = False
    counts: list = field(default_factory=lambda: [0, 0, 0])


def clock(seconds):
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def scratch():
    """A directory for what steps write while they run: on memory if there is enough, since how fast
    a disk is that others use, too, is no verdict; with a short path and without a blank in it."""
    with open("/proc/meminfo") as f:
        available = int(re.search(r"MemAvailable:\s+(\d+) kB", f.read())[1]) << 10
    tried = []
    for base in ("/dev/shm", tempfile.gettempdir()):
        try:
            fs = os.statvfs(base)
        except OSError:
            continue
        free = fs.f_bavail * fs.f_frsize
        if base == "/dev/shm":
            free = min(free, available // 2)
        if not os.access(base, os.W_OK | os.X_OK):
            tried.append(f"{base} may not be written")
        elif fs.f_flag & os.ST_NOEXEC:
            tried.append(f"{base} is mounted noexec")
        elif " " in base or len(base) > 40:
            tried.append(f"the name {base} has a blank or more than 40 characters")
        elif free < ROOM:
            tried.append(f"{base} has {free >> 20} MiB of room")
        else:
            return tempfile.mkdtemp(prefix=f"tenure-{os.getuid()}-", dir=base)
    sys.exit(f"The tests need a directory with {ROOM >> 20} MiB of room: {'; '.join(tried)}; "
             "set TMPDIR to another one.")


def remove(directory):
    """With what is in it, unless something is still mounted there."""
    with open("/proc/self/mountinfo") as f:
        mounted = [line.split()[4] for line in f if line.split()[4].startswith(directory + "/")]
    if mounted:
        print(f"still mounted: {', '.join(mounted)}; {directory} stays")
        return
    subprocess.run(["rm", "-rf", "--one-file-system", directory], check=False)


class Runner:
    def __init__(self, steps, level, tree, patterns, hours, fresh):
        self.level, self.tree = level, tree
        self.began = self.spoke = time.monotonic()
        self.deadline = self.began + hours * 3600 if level == "nightly" and not patterns else None
        self.jobs = int(os.environ.get("JOBS") or self._jobs())
        self.steps = self._chosen(steps, patterns)
        self.fill = [s for s in steps if s.fill] if self.deadline else []
        self.night = Night(fresh) if self.deadline else None
        self.running, self.done, self.failures = {}, [], []
        self.n_filled = 0

    def _jobs(self):
        """Most steps of `test` wait more than they work; a night has the time for what is judged by
        it, which says little beside many others."""
        n = len(os.sched_getaffinity(0))
        return n if self.level == "nightly" else 3 * n

    def _chosen(self, steps, patterns):
        if patterns:
            chosen = [s for s in steps if any(fnmatch.fnmatch(s.name, p) for p in patterns)]
            if not chosen:
                sys.exit(f"No step has a name like {' or '.join(patterns)}; .ci/steps.py has them.")
        elif self.tree != "release":
            chosen = [s for s in steps if s.tree == "release" and s.level == self.level
                      and not s.fill and STARTS_PROGRAMS.search(s.command)]
        else:
            levels = ("check", "test") if self.level == "test" else (self.level,)
            chosen = [s for s in steps if s.level in levels and not s.fill]
        builds = {self._needs(s) for s in chosen}
        return [s for s in steps if s in chosen or s.name in builds]

    def _needs(self, step):
        """The name of the step that has to be over before."""
        if step.tree is None or step.name.startswith("build: "):
            return None
        return f"build: {self._tree(step)}"

    def _tree(self, step):
        return self.tree if step.tree == "release" else step.tree

    def _seed(self):
        """A change is not judged by another's luck: of `test` it is always the same."""
        given = os.environ.get("SEED")
        return int(given) if given else int(time.time()) if self.level == "nightly" else 1

    # ---- one step

    def _start(self, step):
        directory = os.path.join(self.scratch, step.slug)
        run = Run(step, directory, os.path.join(OUT, "logs", step.slug + ".log"), self._seed())
        remove(directory)
        os.mkdir(directory)
        # The programs' names are absolute: a test may go elsewhere.
        env = {k: v for k, v in os.environ.items() if KEPT.match(k)}
        env.update(ENVIRONMENT, DIR=directory, BIN=os.path.abspath(f"build/{self._tree(step)}/bin"),
                   SEED=str(run.seed))
        known = {"{tree}": self._tree(step), "{dir}": directory, "{seed}": str(run.seed),
                 "{seconds}": str(Night.FILL_SECONDS)}
        words = [re.sub(r"\{[a-z]+\}", lambda m: known[m[0]], w) for w in shlex.split(step.command)]
        with open(run.log, "wb") as log:
            # env(1) takes the NAME=VALUE before a command, and says what cannot be started.
            run.process = subprocess.Popen([".ci/anew", "env", *words], stdout=log, stderr=log,
                                           env=env, start_new_session=True)
        run.began = time.monotonic()
        self.running[run.process.pid] = run

    def _ended(self, run, code):
        run.seconds = time.monotonic() - run.began
        run.process.returncode = code
        self._end_all_of(run)
        with open(run.log, errors="replace") as f:
            lines = f.read().splitlines()
        closing = next((m for m in map(CLOSING.match, reversed(lines)) if m), None)
        if closing:
            run.counts = [int(n or 0) for n in closing.groups()]
            if code and not run.counts[1]:
                run.counts[1] = 1  # it died after its last word
        else:
            run.counts = [int(not code), int(bool(code)), 0]
        if run.hangs and not run.counts[1]:
            run.counts = [0, 1, 0]  # it may have ended well when it was told to
        complaints = self._complaints(run)
        run.counts[1] += len(complaints)
        self.done.append(run)
        failed = run.counts[1] > 0
        self._progress(f"{'FAILED' if failed else 'ok':6} {run.seconds:4.0f} s  {run.step.name}"
                       f"{f'  ({closing[0]})' if closing else ''}")
        for line in lines:
            if SKIPPED.match(line):
                print("    " + line)
        if failed:
            self._fail(run, lines, complaints, code)
        else:
            remove(run.directory)
        if self.night:
            self.night.note(run)

    def _fail(self, run, lines, complaints, code):
        """Tells why at once, and in short at the end; keeps what the step has written."""
        telling = complaints + [x for i, line in enumerate(lines) if FAILING.search(line)
                                for x in lines[i:i + 2]][:30]
        tail = lines[-15:]
        how = f"killed by signal {-code}" if code < 0 else f"ended with {code}"
        kept = os.path.join(OUT, "failed", run.step.slug)
        # What replicas and databases have written is large, and seldom tells why.
        subprocess.run(["find", run.directory, "-xdev", "-type", "f", "-size", "+1M", "!", "-name",
                        "*.log", "-delete"], check=False)
        subprocess.run(["rm", "-rf", kept], check=False)
        subprocess.run(["cp", "-ax", run.directory, kept], stderr=subprocess.DEVNULL, check=False)
        remove(run.directory)
        print(f"    it {how}; log: {run.log}; files: {kept}")
        print("\n".join("    " + line for line in telling + ["..."] + tail))
        self.failures.append((run, telling[:8] or tail[-5:]))

    def _complaints(self, run):
        """What a sanitizer found in a program that the step started is in that program's log."""
        if run.step.tree not in ("asan", "tsan"):
            return []
        grep = ["grep", "-rlIF", "--exclude=snapshot*", "--exclude=log-*"]
        found = subprocess.run(grep + [w for s in SANITIZERS for w in ("-e", s)]
                               + [run.log, run.directory], capture_output=True, text=True)
        return [f"ERROR: a sanitizer complains in {name}" for name in found.stdout.splitlines()]

    def _session_of(self, run):
        ps = subprocess.run(["ps", "-o", "pid=", "--sid", str(run.process.pid)],
                            capture_output=True, text=True)
        return [int(pid) for pid in ps.stdout.split()]

    def _end_all_of(self, run):
        for pid in self._session_of(run):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def _hangs(self, run):
        """Its log gets what its processes are doing, and it is ended."""
        run.hangs = True
        with open(run.log, "a") as log:
            print(f"ERROR: not over after {run.step.limit} s:", file=log, flush=True)
            subprocess.run(["ps", "--forest", "-o", "pid,ppid,stat,wchan:24,etimes,args", "--sid",
                            str(run.process.pid)], stdout=log, check=False)
        pids = self._session_of(run)
        for pid in pids:
            try:
                with open(f"/proc/{pid}/comm") as f:
                    python = f.read().startswith("python")
                os.kill(pid, signal.SIGABRT if python else signal.SIGTERM)
            except (FileNotFoundError, ProcessLookupError):
                pass

    # ---- all of them

    def _say(self, text):
        print(text, flush=True)
        self.spoke = time.monotonic()

    def _progress(self, text):
        n = f"{len(self.done):3}/{len(self.steps) + self.n_filled}"
        self._say(f"{self.level} {n}  {clock(time.monotonic() - self.began):>7}  {text}")

    def _next(self, waiting):
        """The first that may begin: what it needs is over, and there is room beside the others."""
        over = {r.step.name: r for r in self.done}
        load = sum(min(r.step.weight, self.jobs) for r in self.running.values())
        for step in waiting:
            needs = self._needs(step)
            if needs and (needs not in over or over[needs].counts[1]):
                continue
            if load and load + min(step.weight, self.jobs) > self.jobs:
                return None  # what is heavy is not overtaken for ever
            return step
        return None

    def _more(self, waiting):
        if self.deadline and time.monotonic() > self.deadline:
            waiting.clear()
        elif not waiting and self.fill and time.monotonic() + Night.FILL_SECONDS < self.deadline:
            if len(self.running) < self.jobs:
                waiting.append(self.night.next_fill(self.fill))
                self.n_filled += 1

    def _reap(self):
        """Waits a moment for a child; others' orphans come to us, too (prctl(2))."""
        pid, status, usage = os.wait3(os.WNOHANG) if self.running else (0, 0, None)
        if not pid:
            time.sleep(0.05)
            return
        run = self.running.pop(pid, None)
        if run:
            run.processor = usage.ru_utime + usage.ru_stime
            self._ended(run, os.waitstatus_to_exitcode(status))

    def _watch(self):
        now = time.monotonic()
        for run in self.running.values():
            late = now - run.began - run.step.limit
            if late > 0 and not run.hangs:
                self._hangs(run)
            if late > 30:
                self._end_all_of(run)
        if self.running and now > self.spoke + SAY_EVERY:
            names = ", ".join(r.step.name for r in self.running.values())
            self._progress(f"... {names}")

    def run(self):
        become_subreaper()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stopped)
        own_the_tree()
        subprocess.run(["rm", "-rf", OUT], check=False)
        for name in ("logs", "failed"):
            os.makedirs(os.path.join(OUT, name))
        self.scratch = scratch()
        waiting = [s for s in self.steps if not (self.night and self.night.has(s))]
        if self.night:
            self._say(self.night.told(len(self.steps) - len(waiting), len(self.steps)))
            self.steps = list(waiting)
        try:
            while True:
                self._more(waiting)
                while step := self._next(waiting):
                    waiting.remove(step)
                    self._start(step)
                if not self.running:
                    break  # what is left, if anything, needs a build that failed
                self._reap()
                self._watch()
        finally:
            for run in self.running.values():
                self._end_all_of(run)
            remove(self.scratch)
        for step in waiting:
            self._say(f"not run, since its build failed: {step.name}")
        return self._sum_up()

    def _sum_up(self):
        print("\nthe slowest:")
        for run in sorted(self.done, key=lambda r: -r.seconds)[:10]:
            print(f"  {run.seconds:4.0f} s, processor {run.processor:4.0f} s  {run.step.name}")
        for run, telling in self.failures:
            print(f"failed: {run.step.name}")
            print("\n".join("    " + line for line in telling))
            drawn = f"SEED={run.seed} " if self.level == "nightly" else ""
            if drawn and re.search(r"\bseed\b", "\n".join(telling)):
                print(f"    a defect, found by a seed that was drawn: {run.seed}, or as above")
            print(f"    again: {drawn}.ci/test {self.level} {shlex.quote(run.step.name)}")
        if self.night:
            print(self.night.summary(self.steps))
        usage = os.times()
        took = time.monotonic() - self.began
        print(f"{self.level}: {clock(took)}, processor time "
              f"{clock(usage.children_user + usage.children_system)}, {self.jobs} steps at once")
        counts = [sum(r.counts[i] for r in self.done) for i in range(3)]
        print("{} passed, {} failed, {} skipped".format(*counts), flush=True)
        return 1 if counts[1] or not self.done or self.night and self.night.red() else 0


class Night:
    """What has been run of the nightly steps since the last change of the tree, in a file, so that
    the next night goes on there."""
    FILL_SECONDS = 600
    FILE = "build/nightly.json"

    def __init__(self, fresh):
        head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
        change = subprocess.run(["git", "diff", "HEAD"], capture_output=True).stdout
        now = {"commit": head.stdout.strip(), "change": hashlib.sha256(change).hexdigest(),
               "steps": {}, "filled": 0}
        try:
            with open(self.FILE) as f:
                self.known = json.load(f)
        except (FileNotFoundError, json.JSONDecodeError):
            self.known = {"filled": 0}
        if fresh or any(self.known.get(k) != now[k] for k in ("commit", "change")):
            now["filled"] = self.known.get("filled", 0)
            self.known = now

    def has(self, step):
        """What was red stays red until the tree is another; builds are quick where they are."""
        return step.name in self.known["steps"] and not step.name.startswith("build: ")

    def note(self, run):
        if run.step.fill and not run.counts[1]:
            return
        self.known["steps"][run.step.name] = {"failed": run.counts[1], "seconds": run.seconds}
        self._save()

    def red(self):
        return [name for name, s in self.known["steps"].items() if s["failed"]]

    def next_fill(self, fill):
        step = fill[self.known["filled"] % len(fill)]
        self.known["filled"] += 1
        self._save()
        return step

    def _save(self):
        with open(self.FILE + ".new", "w") as f:
            json.dump(self.known, f, indent=1)
        os.rename(self.FILE + ".new", self.FILE)

    def told(self, n, of):
        where = self.known["commit"][:12] or "this tree"
        return f"nightly: goes on with {where}; {n} of {of} steps have run before" if n \
            else f"nightly: begins with {where}"

    def summary(self, steps):
        left = [s.name for s in steps if s.name not in self.known["steps"]]
        took = sum(s["seconds"] for s in self.known["steps"].values())
        text = f"nightly: {len(self.known['steps'])} steps on this commit, {clock(took)} one by one"
        if self.red():
            text += f"; red: {', '.join(self.red())}"
        if left:
            text += f"; {len(left)} are left: make nightly goes on with {left[0]}"
        return text


def own_the_tree():
    """Two runs in one tree would build and write the same files."""
    try:
        os.makedirs("build", exist_ok=True)
        lock = os.open("build/.tests-run", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # for as long as this process lives
    except PermissionError as e:
        sys.exit(f"The tests cannot write {e.filename}, which is another user's: clone the tree.")
    except BlockingIOError:
        sys.exit("Tests already run in this tree: wait until they are over, or clone it.")


def stopped(number, _frame):
    raise SystemExit(128 + number)


def become_subreaper():
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
