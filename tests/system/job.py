#!/usr/bin/env python3
"""What supervises the commands of tenurectl lock and work: when it cannot see them, and when there are many. The rest is
in tests/integration/test_jobs.py.

usage: job.py BIN BUS CORE-PID PORT DIR; prints a line "ok ..." or "not ok ..." for each.
"""
import os, re, resource, select, shlex, signal, subprocess, sys, time

BIN, BUS, CORE, PORT, DIR = sys.argv[1:6]
QUOTED = shlex.quote(BIN + "/tenurectl")  # for a shell
TERM, KILL = signal.SIGTERM, signal.SIGKILL
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

    def __init__(self, *words, by=(BIN + "/tenurectl",)):
        Job.n += 1
        self.mark, self.path = f"job.{os.getpid()}.{Job.n}", f"{DIR}/job.{Job.n}"
        words = [w.replace("GO", shlex.quote(self.path + ".go")) for w in words]
        with open(self.path + ".out", "w") as out:
            self.p = subprocess.Popen([*by, "--bus=" + BUS, *words], env={**os.environ, "JOB_MARK": self.mark},
                                      start_new_session=True, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

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

    def send(self, signo):
        try:
            os.kill(self.p.pid, signo)
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

    def ends(self, what, status, lock="job", rest=True):
        r = self.end()
        gone = until(lambda: not self.left(), 5)
        there = until(lambda: requests(lock) == 0, 5)
        case(what, r == status and gone and there and rest,
             f"{r} and not {status}, left {self.left()}, {requests(lock)} request(s), said {self.out()!r}")


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
