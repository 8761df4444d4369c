#!/usr/bin/env python3
"""tenurectl lock and work as jobs: signals at each stage, a standard error that nobody reads, descriptors that are
closed, a terminal that goes.

usage: job.py BIN BUS-1 BUS-2 CORE-PID PORT DIR; prints a line "ok ..." or "not ok ..." for each.
"""
import os, pty, re, resource, select, shlex, signal, subprocess, sys, time

BIN, BUS, BUS2, CORE, PORT, DIR = sys.argv[1:7]
QUOTED = shlex.quote(BIN + "/tenurectl")  # for a shell
TERM, KILL = signal.SIGTERM, signal.SIGKILL
PASSED_ON = TERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU, signal.SIGPWR, signal.SIGRTMIN
NO_END = signal.SIGPIPE, signal.SIGXFSZ, signal.SIGWINCH, signal.SIGCONT, signal.SIGURG
for s in signal.SIGINT, signal.SIGQUIT:  # a shell that began us with & ignores them
    signal.signal(s, signal.SIG_DFL)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it


def case(what, good, why=""):
    print(("ok " if good else "not ok ") + what, "" if good else f"({why})", flush=True)


def until(f, seconds=10):
    end = time.monotonic() + seconds
    while not f() and time.monotonic() < end:
        select.select([], [], [], 0.01)
    return f()


def requests(lock="job"):
    """Who has the lock, and who waits for it."""
    said = subprocess.run(["etcdctl", "--endpoints", "127.0.0.1:" + PORT, "get", lock + "/", "--prefix", "--keys-only"],
                          capture_output=True, text=True, timeout=10).stdout
    return len(said.split())


class Job:
    """A tenurectl in a session of its own, and all that it starts, known by a mark in the environment."""
    n = 0

    def __init__(self, *words, bus=BUS, stderr=None, before=None, by=(BIN + "/tenurectl",)):
        Job.n += 1
        self.mark, self.path = f"job.{os.getpid()}.{Job.n}", f"{DIR}/job.{Job.n}"
        os.mkfifo(self.path + ".never")
        as_word = lambda path, w: path if w.startswith("--") else shlex.quote(path)  # a shell reads what is no option
        words = [w.replace("NEVER", as_word(self.path + ".never", w)).replace("GO", as_word(self.path + ".go", w)) for w in words]
        with open(self.path + ".out", "w") as out:
            self.p = subprocess.Popen([*by, "--bus=" + bus, *words], env={**os.environ, "JOB_MARK": self.mark},
                                      start_new_session=True, stdin=subprocess.DEVNULL, stdout=out,
                                      stderr=out if stderr is None else stderr, preexec_fn=before)

    def out(self):
        return open(self.path + ".out").read()

    def says(self, text, seconds=10):
        return until(lambda: text in self.out(), seconds)

    def left(self):
        n = []
        for p in filter(str.isdigit, os.listdir("/proc")):
            try:
                if f"JOB_MARK={self.mark}".encode() in open(f"/proc/{p}/environ", "rb").read().split(b"\0"):
                    n.append(int(p))
            except OSError:
                pass
        return n

    def send(self, signo, to="process", times=1):
        for _ in range(times):
            try:
                (os.killpg if to == "group" else os.kill)(self.p.pid, signo)
            except ProcessLookupError:  # who waits for its end says so
                pass

    def end(self, seconds=15):
        """Its exit status, as of Popen."""
        if not until(lambda: self.p.poll() is not None, seconds):
            for p in self.left():
                os.kill(p, KILL)
            self.p.wait()
            return "does not end"
        return self.p.returncode

    def ends(self, what, status, lock="job", left=0, rest=True):
        r = self.end()
        gone = until(lambda: not self.left(), 5)
        there = until(lambda: requests(lock) == left, 5)
        case(what, r == status and gone and there and rest,
             f"{r} and not {status}, left {self.left()}, {requests(lock)} request(s), said {self.out()!r}")


def unlock():
    subprocess.run([BIN + "/tenurectl", "--bus=" + BUS, "unlock", "job"], timeout=20)


# Says which signal it got, and ends by itself.
TOLD = "for s in TERM INT HUP QUIT USR1 USR2 ALRM XCPU PWR RTMIN; do trap \"echo got-$s; exit 7\" $s; done; echo ready; while :; do read -rt 0.05 <>NEVER; done"
# Goes on until it may end, whatever it is told.
SLOW = "for s in TERM INT HUP QUIT USR1 USR2 ALRM XCPU PWR RTMIN; do trap \"echo got-$s\" $s; done; echo ready; until [ -e GO ]; do read -rt 0.05 <>NEVER; done; exit 9"

# ---- while it waits for the lock ----
holder = Job("lock", "job", "--", "sleep", "1000", bus=BUS2)
until(lambda: requests() == 1)
for to in "process", "group":
    for s in (*PASSED_ON, KILL):
        j = Job("lock", "job", "--", "true")
        until(lambda: requests() == 2)
        j.send(s, to, 3)
        j.ends(f"waiting, {s.name} to the {to}: ends by it, and its request is withdrawn", -s, left=1)
    j = Job("lock", "job", "--", "true")
    until(lambda: requests() == 2)
    for s in NO_END + (signal.SIGSTOP, signal.SIGCONT):
        j.send(s, to, 3)
    case(f"waiting, what ends nobody, to the {to}: it waits on", not until(lambda: j.p.poll() is not None, 0.3) and requests() == 2, j.out())
    j.send(TERM)
    j.ends("until SIGTERM", -TERM, left=1)
# Stopped, it gets the lock; and goes on.
j = Job("lock", "job", "--", "sh", "-c", "echo ran; exit 5")
until(lambda: requests() == 2)
j.send(signal.SIGSTOP)
holder.send(TERM)
holder.end()
until(lambda: requests() == 1)
j.send(signal.SIGCONT)
j.ends("it gets the lock while it is stopped, and runs once it is continued", 5, rest=j.says("ran"))

# ---- while the command runs ----
for to in "process", "group":
    for s in PASSED_ON:
        j = Job("lock", "job", "--", "bash", "-c", TOLD)
        j.says("ready")
        j.send(s, to, 3)
        j.ends(f"running, {s.name} to the {to}: the command's own end", 7, rest=j.says("got-" + s.name[3:]))
    j = Job("lock", "job", "--", "bash", "-c", "trap '' PIPE XFSZ; " + TOLD)
    j.says("ready")
    for s in NO_END + (signal.SIGSTOP, signal.SIGCONT):
        j.send(s, to, 3)
    case(f"running, what ends nobody, to the {to}: it runs on", not until(lambda: j.p.poll() is not None, 0.3), j.out())
    j.send(TERM)
    j.ends("until SIGTERM", 7)
j = Job("lock", "job", "--", "sh", "-c", "echo ready; exec sleep 1000")
j.says("ready")
j.send(TERM)
j.ends("a command that knows nothing of signals: ends by it", -TERM)

# ---- what a process inherits ----
j = Job("lock", "job", "--", "sh", "-c", "echo ready; exec sleep 1000", before=lambda: signal.alarm(10))
j.ends("an alarm that was set before it began ends the command, and the lock is given back", -signal.SIGALRM, rest=j.says("ready"))
j = Job("work", "g", "--tasks=2", "--ttl=2s", "--", "sh", "-c", "echo ready; exec sleep 1000", before=lambda: signal.alarm(12))
j.ends("and work, which gives its tasks back", 0, lock="/tenure/default/work/g/tasks", rest=j.says("ready"))
ignores = lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)
ignored = 1 << (signal.SIGCHLD - 1)
began = time.monotonic()
j = Job("lock", "job", "--", "sh", "-c", "sleep 0 & exit 7", before=ignores)
j.end()
took = time.monotonic() - began
j.ends("SIGCHLD is ignored: lock ends as its command did", 7)
case("and when it did", took < 12, f"{took:.1f} s")
j = Job("lock", "job", "--", "grep", "SigIgn", "/proc/self/status", before=ignores)
j.end()
said = re.search(r"SigIgn:\s*(\w+)", j.out())
case("and the command finds it ignored", said and int(said[1], 16) & ignored, j.out())
j = Job("work", "g", "--tasks=2", "--ttl=2s", "--", "sh", "-c", "echo run; exit 1", before=ignores)
case("SIGCHLD is ignored: work runs its commands again", until(lambda: j.out().count("run") >= 6), j.out())
j.send(TERM)
j.ends("until SIGTERM", 0, lock="/tenure/default/work/g/tasks")

# What is ignored when it begins, as by nohup(1) and by a shell for what runs with &, stays ignored: a blocked signal is not.
holder = Job("lock", "job", "--", "sleep", "1000", bus=BUS2)
until(lambda: requests() == 1)
deaf = lambda: [signal.signal(s, signal.SIG_IGN) for s in (signal.SIGHUP, signal.SIGINT, signal.SIGRTMIN)]
j = Job("lock", "job", "--", "true", before=deaf)
until(lambda: requests() == 2)
for s in signal.SIGHUP, signal.SIGINT, signal.SIGRTMIN:
    j.send(s, "group", 3)
case("ignored signals while it waits: it waits on", not until(lambda: j.p.poll() is not None, 0.3) and requests() == 2, j.p.poll())
j.send(TERM)
j.ends("until SIGTERM", -TERM, left=1)
holder.send(TERM)
holder.end()
j = Job("work", "g", "--tasks=1", "--ttl=2s", "--", "sh", "-c", "echo ready; exec sleep 1000", before=deaf)
j.says("ready")
j.send(signal.SIGINT, times=3)
case("and while work runs: it runs on", not until(lambda: j.p.poll() is not None, 0.3), j.p.poll())
j.send(TERM)
j.ends("until SIGTERM", 0, lock="/tenure/default/work/g/tasks")

# ---- what supervises a command, and what it cannot look at ----
def keepers(j):
    return [int(p) for p in open(f"/proc/{j.p.pid}/task/{j.p.pid}/children").read().split()]


def runs(j, name):
    try:
        return [p for p in j.left() if open(f"/proc/{p}/comm").read().strip() == name]
    except OSError:
        return []


WORK = "work", "g", "--tasks=1", "--ttl=2s", "--grace=1s", "--cluster=default", "--endpoints=http://127.0.0.1:" + PORT, "--"
TASKS = "/tenure/default/work/g/tasks"
j = Job(*WORK, "sleep", "1000")
until(lambda: runs(j, "sleep"))
state = lambda p: re.search(r"State:\t(\w)", open(f"/proc/{p}/status").read())[1]
k = keepers(j)[0]
os.kill(k, signal.SIGSTOP)
case("somebody stops what supervises a command of work: it is continued", until(lambda: state(k) != "T", 5), state(k))
resource.prlimit(keepers(j)[0], resource.RLIMIT_NOFILE, (3, 3))
j.send(TERM)
j.ends("no descriptor is left: the command is told all the same", 0, lock=TASKS)


def apart(text, *words, user=()):
    """A job behind mounts of its own, which TEXT makes; BIN is at /mnt there."""
    text = f"mount -t tmpfs none /mnt && cp {QUOTED} /mnt && cp $(command -v sleep) /mnt/hidden && chmod 711 /mnt/* && " + text
    return Job(*words, by=("unshare", "-m", "--propagation", "private", "sh", "-c", text + ' && exec "$@"', "_", *user, "/mnt/tenurectl"))


if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"]).returncode:
    print("skipped processes that cannot be looked at: needs root, and mount namespaces", flush=True)
else:
    j = apart("chmod 755 /mnt/tenurectl && mount -t proc -o hidepid=2 proc /proc", *WORK, "/mnt/hidden", "1000", user=("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"))
    runs_at_all = until(lambda: runs(j, "hidden"))
    j.send(TERM)
    j.ends("hidepid=2, and a program that may not be read: it is ended", 0, lock=TASKS, rest=runs_at_all)
    j = apart("umount -l /proc", *WORK, "sleep", "1000")
    case("no /proc: work runs nothing that it could not end", j.says("cannot read /proc") and not runs(j, "sleep"), j.out())
    j.send(TERM)
    j.ends("until SIGTERM", 0, lock=TASKS)
    j = apart("true", "lock", "job", "--", "sh", "-c", "umount -l /proc; echo ready; exec sleep 1000")
    j.says("ready")
    j.send(TERM)
    j.ends("the command unmounts /proc: it is told all the same", -TERM)
    # Clocks that differ by less than the TTL.
    for offset in 5, -1:
        j = Job("lock", "job", "--", "true", by=("unshare", "-T", "--boottime", str(offset), "--monotonic", str(offset), BIN + "/tenurectl"))
        j.ends(f"a time namespace {offset} s ahead: no deadline is read in it", 125, rest="another clock" in j.out() or j.says("another clock"))
    for most, why in (1, "cannot run the command: Resource temporarily unavailable"), (2, "cannot run the command: Resource temporarily unavailable"):
        j = apart("chmod 755 /mnt/tenurectl", "lock", "allowed", "--", "true", user=("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "prlimit", f"--nproc={most}"))
        j.ends(f"{most} process(es) at most: no command can run", 125)
        case("and it says so, and nothing else", j.out() == f"tenurectl: {why}.\n", j.out())
    # Without /dev/null nothing of ours comes in the place of what is closed.
    j = Job("lock", "job", "--", "sh", "-c", "echo ready >GO; exec sleep 1000", by=("unshare", "-m", "--propagation", "private", "sh", "-c", 'mount -t tmpfs none /dev && exec "$@" <&- >&- 2>&-', "_", BIN + "/tenurectl"))
    until(lambda: os.path.exists(j.path + ".go"))
    fds = [os.readlink(f"/proc/{j.p.pid}/fd/{n}") for n in range(3)]
    case("no /dev/null: no socket comes in the place of what is closed", fds == ["/", "/", "/"], fds)
    j.send(TERM)
    j.ends("and it ends", -TERM)
    j = apart("mount -t tmpfs none /dev && exec </etc/passwd", *WORK, "sh", "-c", "cat; echo ready; exec sleep 1000")
    case("no /dev/null: a command of work reads nothing", j.says("ready") and "root" not in j.out(), j.out())
    j.send(TERM)
    j.ends("and it ends", 0, lock=TASKS)

    # Process 1 of a container, which has children that it did not start, and which no signal ends.
    j = Job("lock", "job", "--", "sh", "-c", "echo ready; exec sleep 1000", by=("unshare", "-pf", "--mount-proc", BIN + "/tenurectl"))
    j.says("ready")
    one = keepers(j)[0]
    subprocess.run(["nsenter", "-t", str(one), "-p", "sh", "-c", "for i in 1 2 3; do setsid -f true; done"])
    children = lambda: open(f"/proc/{one}/task/{one}/children").read().split()
    case("process 1 waits for orphans", until(lambda: len(children()) == 1, 5), children())
    os.kill(one, TERM)
    j.ends("and its status names the signal that ended its command", 128 + TERM)

# ---- while the command takes its time to end ----
for s in PASSED_ON[1:]:
    j = Job("lock", "job", "--", "bash", "-c", SLOW)
    j.says("ready")
    j.send(TERM)
    j.says("got-TERM")
    j.send(s, "process", 3)
    told = j.says("got-" + s.name[3:])
    open(j.path + ".go", "w").close()
    j.ends(f"ending, {s.name}: passed on, and it may take its time", 9, rest=told)
j = Job("lock", "job", "--", "bash", "-c", SLOW)
j.says("ready")
j.send(TERM)
j.says("got-TERM")
j.send(KILL)
j.ends("ending, tenurectl is killed: nothing of the command is left", -KILL, left=1)
unlock()

# ---- while it gives the lock back, to a core that does not answer ----
for s in (*PASSED_ON, KILL):
    j = Job("lock", "job", "--", "sh", "-c", "echo ready; until [ -e GO ]; do sleep 0.05; done")
    j.says("ready")
    os.kill(int(CORE), signal.SIGSTOP)
    open(j.path + ".go", "w").close()
    until(lambda: len(j.left()) == 1)  # nothing but tenurectl
    # One that comes before it has begun to give it back is the one that ended the command.
    until(lambda: j.send(s) or j.p.poll() is not None, 5)
    r = j.end(1)
    os.kill(int(CORE), signal.SIGCONT)
    said = s == KILL or "could not be given back" in j.out()
    case(f"giving back, {s.name}: it waits no longer, and says what it leaves behind", r == (-KILL if s == KILL else 0) and said, f"{r}: {j.out()!r}")
    unlock()
    until(lambda: requests() == 0)

# ---- while it waits for its list of tasks ----
for s in TERM, signal.SIGINT:
    j = Job("work", "g", "--tasks=@NEVER", "--", "true")
    until(lambda: "partner" in open(f"/proc/{j.p.pid}/wchan").read())  # in open(2)
    j.send(s)
    j.ends(f"a list of tasks that does not come, {s.name}: ends by it", -s, lock="/tenure/default/work/g/tasks")

# ---- nobody reads what it says ----
def hand_over(j, what):
    n = Job("lock", "job", "--", "true", bus=BUS2)
    until(lambda: requests() == 2)
    r = subprocess.run(["timeout", "20", BIN + "/tenurectl", "--bus=" + BUS, "switchover", "job", "h2"], capture_output=True, text=True)
    case(f"{what}: the command is told, not killed", r.returncode == 0 and j.says("got-TERM", 1), r.stderr + j.out())
    j.ends("and it hands the lock over", 123)
    n.ends("to who was named", 0)


def broken():
    r, w = os.pipe()
    os.close(r)
    return w


w = broken()
j = Job("lock", "job", "--", "bash", "-c", "exec 2>/dev/null; " + TOLD, stderr=w)
j.says("ready")
hand_over(j, "nobody reads what lock says, and it is handed over")
j = Job("lock", "job", "--", "sh", "-c", "kill -PIPE $$; exit 3", stderr=w)
j.ends("the command gets SIGPIPE as ever", -signal.SIGPIPE)
j = Job("work", "g", "--tasks=2", "--ttl=2s", "--", "sh", "-c", "echo run; exit 1", stderr=w)
case("nobody reads what work says of commands that end: they are run again", until(lambda: j.out().count("run") >= 6, 10) and j.p.poll() is None, f"{j.p.poll()}: {j.out()!r}")
j.send(TERM)
j.ends("until SIGTERM", 0, lock="/tenure/default/work/g/tasks")
os.close(w)


def limited():
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))


with open(DIR + "/full", "w") as f:  # as large as it may become
    f.write("x" * 8191 + "\n")
with open(DIR + "/full", "a") as f:
    j = Job("work", "g", "--tasks=2", "--ttl=2s", "--", "sh", "-c", "echo run; exit 1", stderr=f, before=limited)
    case("what work says goes to a file that must not grow: commands are run again", until(lambda: j.out().count("run") >= 6), f"{j.p.poll()}: {j.out()!r}")
    j.send(TERM)
    j.ends("until SIGTERM", 0, lock="/tenure/default/work/g/tasks")
    j = Job("lock", "job", "--", "bash", "-c", TOLD, stderr=f, before=limited)
    j.says("ready")
    hand_over(j, "what lock says, too, and it is handed over")

# ---- many at a time ----
EACH = .003  # seconds by which the commands' deadline is earlier for each of them


def deadline():
    """That of the commands, in seconds of CLOCK_BOOTTIME: as tenurectl shows it to their supervisors (lib/member/tenancy.c)."""
    fds = f"/proc/{j.p.pid}/fd"
    for fd in os.listdir(fds):
        try:
            if os.readlink(f"{fds}/{fd}").startswith("/memfd:tenancy"):
                return int.from_bytes(open(f"{fds}/{fd}", "rb").read()[24:32], "little") / 1e9
        except FileNotFoundError:  # others come and go
            pass
    return 0


def boot():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


EXITING = 4  # PF_EXITING, in /proc/PID/stat


def runs(pid):
    """Whether it may run on: what has got SIGKILL only exits."""
    try:
        status = dict(line.split(":\t", 1) for line in open(f"/proc/{pid}/status").read().splitlines())
        flags = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[6])
    except OSError:
        return False
    return not flags & EXITING and not any(int(status[s], 16) & 1 << (KILL - 1) for s in ("SigPnd", "ShdPnd"))


# The lease is granted before they begin, and no renewal comes in these 20 seconds.
N, TTL = 300, 50
j = Job("work", "many", f"--tasks={N}", f"--ttl={TTL}s", "--", "sh", "-c", "echo run; exec sleep 1000")
until(lambda: deadline() > 0, 20)
first = deadline()
case("the more tasks have begun, the earlier their commands must end", until(lambda: deadline() < first - .5 * N * EACH, 20),
     f"{deadline() - first:.2f} s later")
j.send(TERM)
j.ends("and all end by SIGTERM", 0, lock="/tenure/default/work/many/tasks")
N, TTL = 300, 8
j = Job("work", "many", f"--tasks={N}", f"--ttl={TTL}s", "--", "sh", "-c", "trap '' TERM; echo run; exec sleep 1000")
case(f"{N} tasks run", until(lambda: j.out().count("run") == N, 180), j.out().count("run"))


def is_sleep(pid):
    try:
        return open(f"/proc/{pid}/comm").read() == "sleep\n"
    except OSError:
        return False


def sleepers():
    return [p for p in j.left() if is_sleep(p)]


until(lambda: len(sleepers()) == N, 120)  # each has said so before it is one
tasks = sleepers()
os.kill(int(CORE), signal.SIGSTOP)
until(lambda: False, .1)  # an answer that was on its way has come
ends_at = deadline() + min(N * EACH, TTL / 4)
until(lambda: boot() > ends_at - .1, 60)
left = [p for p in tasks if runs(p)]
os.kill(int(CORE), signal.SIGCONT)
case("no renewal is acknowledged any more, and they ignore SIGTERM: all have been killed before the deadline", len(tasks) == N and not left,
     f"{len(left)} of {len(tasks)} not")
j.send(TERM)
j.ends("and tenurectl by SIGTERM", 0, lock="/tenure/default/work/many/tasks")


# ---- what is closed ----
def closed(*words):
    """The status, and what its three descriptors were to the command."""
    path = f"{DIR}/closed"
    text = f"exec <&- >&- 2>&-; JOB_PATH={shlex.quote(path)} exec {QUOTED} --bus={BUS} " + " ".join(words)
    r = subprocess.run(["sh", "-c", text], timeout=30).returncode
    return r, open(path).read() if os.path.exists(path) else None


LOOK = """bash -c 'for f in 0 1 2; do [ -e /proc/$$/fd/$f ] && n="$n $f:$(readlink /proc/$$/fd/$f)"; done; echo "open:$n" >"$JOB_PATH"'"""
r = closed("lock", "job", "--", LOOK)
case("what was closed to lock is closed to its command", r == (0, "open:\n"), r)
case("and what cannot be said is an error", closed("nodes")[0] == 1)
files = subprocess.run(["sh", "-c", f"exec {QUOTED} --bus={BUS} watch <&- >&- 2>&- & P=$!; n=0; until [ \"$(readlink /proc/$P/fd/2)\" = /dev/null ] || [ $((n += 1)) -gt 200 ]; do sleep 0.05; done; ls -l /proc/$P/fd; kill $P; wait $P"],
                       capture_output=True, text=True, timeout=20).stdout
case("and no socket comes in its place", re.search(r" 0 -> /dev/null\n(.*\n)?.* 1 -> /dev/null", files) is not None and re.search(r" 2 -> /dev/null", files) is not None, files)


# ---- a terminal ----
class Shell:
    def __init__(self):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(PS1="ready> ", HISTFILE="/dev/null", TERM="dumb", JOB_MARK=f"shell.{os.getppid()}")
            os.execvp("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])
        self.seen = ""
        self.expect("ready> ")

    def expect(self, pattern, seconds=10):
        end = time.monotonic() + seconds
        while True:
            m = re.search(pattern, self.seen)
            if m:
                self.seen = self.seen[m.end():]
                return True
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                return False
            try:
                self.seen += os.read(self.fd, 4096).decode(errors="replace")
            except OSError:
                return False

    def say(self, text):
        os.write(self.fd, text.encode())


T = f"{QUOTED} --bus={BUS} "
holder = Job("lock", "job", "--", "sleep", "1000", bus=BUS2)
until(lambda: requests() == 1)
t = Shell()
for key, name, status in ("\x03", "^C", 130), ("\x1c", "^\\", 131):
    t.say(T + "lock job -- true\n")
    until(lambda: requests() == 2)
    t.say(key)
    back = t.expect("ready> ")
    t.say("echo st-$?\n")
    case(f"waiting for a lock, {name} ends it", back and t.expect(rf"st-{status}\b") and until(lambda: requests() == 1), t.seen)
    t.expect("ready> ")
t.say(T + "lock job -- sh -c 'echo r''an'\n")
until(lambda: requests() == 2)
t.say("\x1a")
case("^Z stops it", t.expect("Stopped") and t.expect("ready> "), t.seen)
holder.send(TERM)
holder.end()
t.say("fg\n")
case("fg, and it runs, since its turn has come", t.expect(r"\nran") and t.expect("ready> ") and until(lambda: requests() == 0), t.seen)
for key, name in ("\x03", "^C"), ("\x1c", "^\\"):
    t.say(T + "work g --tasks=2 --ttl=2s -- sh -c 'echo be''gun; exec sleep 1000'\n")
    t.expect("begun")
    t.say(key)
    back = t.expect("ready> ")
    t.say("echo st-$?\n")
    case(f"{name} ends work, and it gives its tasks back", back and t.expect(r"st-0\b") and requests("/tenure/default/work/g/tasks") == 0, t.seen)
    t.expect("ready> ")
os.kill(t.pid, signal.SIGHUP)
os.close(t.fd)
os.waitpid(t.pid, 0)
t = Shell()
t.say(T + "work g --tasks=2 --ttl=2s -- sh -c 'trap \"\" HUP; echo be''gun; exec sleep 1000'\n")
t.expect("begun")
os.close(t.fd)
os.waitpid(t.pid, 0)
here = lambda: subprocess.run(["pgrep", "-f", f"bus={BUS} work g"], capture_output=True, text=True).stdout.split()
case("a terminal that is closed ends work, whoever tells it first", until(lambda: not here(), 8), here())
for p in here():
    os.kill(int(p), KILL)
