"""What supervises the commands of `tenurectl lock` and `work`: when somebody is in its way, when
it cannot see what it supervises, and when there are many."""
import os
import pathlib
import resource
import shlex
import signal
import subprocess
import time

import pytest
from harness.dbus import Polkit
from harness.library import sanitizers
from harness.places import BIN
from harness.program import Daemon
from harness.waiting import eventually

TERM, KILL, EXITING = signal.SIGTERM, signal.SIGKILL, 4  # the last is PF_EXITING
FOR_EVER = "sh", "-c", "echo ready; exec sleep 36000"
NOBODY = "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"
MOUNTS = "unshare", "-m", "--propagation", "private", "sh", "-c"

root = pytest.mark.skipif(os.geteuid() != 0, reason="has namespaces of its own, so needs root")


class Job(Daemon):
    """A tenurectl. @by: what starts it; @keys: where its lock or its tasks are in the core."""

    def __init__(self, core, folder, keys, *words, by=(BIN / "tenurectl",)):
        self.core, self.keys, self.mark = core, keys, f"JOB={folder}"
        super().__init__(folder / "job.log", *by, *words, JOB=str(folder),
                         ASAN_OPTIONS="detect_leaks=0")  # which needs a process of its own
        self.start()

    def processes(self, name=None):
        """Of all that it has started, itself among them: those with this name."""
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if (self.mark.encode() in (process / "environ").read_bytes().split(b"\0")
                        and name in (None, (process / "comm").read_text().strip())):
                    found.append(int(process.name))
            except OSError:  # it has ended
                pass
        return found

    def runs(self, name="sleep", n=1):
        return eventually(lambda: len(found := self.processes(name)) == n and found)

    @property
    def keeper(self):
        children = pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return int(children.read_text().split()[0])

    def ends(self):
        """It leaves nothing behind. Returns its exit status."""
        status = self.wait()
        eventually(lambda: not self.processes())
        # What was given back is gone; what was lost goes with its lease.
        eventually(lambda: self.core.range(self.keys) == [])
        return status

    def stop(self):
        self.signal(TERM)
        return self.ends()


@pytest.fixture
def work(core, duty, tmp_path):
    """Starts a member of a group, which has all the tasks."""
    def begin(*command, tasks=1, ttl="60s", **more):
        return Job(core, tmp_path, f"/tenure/{duty.lock}/work/g/tasks/", "work", "g",
                   f"--cluster={duty.lock}", f"--endpoints={core.endpoints}",
                   f"--tasks={tasks}", f"--ttl={ttl}", "--grace=1s", "--", *command, **more)

    return begin


@pytest.fixture
def lock(core, agent, duty, tmp_path):
    """Starts a command with a lock."""
    def begin(*command, name=duty.lock, **more):
        return Job(core, tmp_path, f"{name}/", f"--bus={agent.bus.address}", "lock",
                   name, "--", *command, **more)

    return begin


def apart(text, *user):
    """With mounts of its own, which the text makes. Everybody can reach a tenurectl there, and a
    sleep that nobody but root can read."""
    text = (f"mount -t tmpfs none /mnt && cp {shlex.quote(str(BIN))}/tenurectl /mnt && "
            f"cp $(command -v sleep) /mnt/hidden && chmod 711 /mnt/hidden && {text} && exec \"$@\"")
    return {"by": (*MOUNTS, text, "sh", *user, "/mnt/tenurectl")}


# ---- somebody is in its way ----

def test_a_keeper_that_is_stopped_is_continued(work):
    job = work("sleep", "36000")
    job.runs()

    os.kill(job.keeper, signal.SIGSTOP)

    status = pathlib.Path(f"/proc/{job.keeper}/status")
    eventually(lambda: "State:\tT" not in status.read_text())
    assert job.stop() == 0


def test_a_keeper_without_descriptors_ends_its_command(work):
    job = work("sleep", "36000")
    job.runs()

    resource.prlimit(job.keeper, resource.RLIMIT_NOFILE, (3, 3))

    assert job.stop() == 0


# ---- what it cannot see ----

@root
def test_a_command_that_nobody_may_look_at_is_ended(work):
    job = work("/mnt/hidden", "36000", **apart("mount -t proc -o hidepid=2 proc /proc", *NOBODY))
    job.runs("hidden")

    assert job.stop() == 0


@root
def test_without_proc_work_runs_nothing_that_it_could_not_end(work):
    if sanitizers()[0]:
        pytest.skip("a sanitizer itself needs /proc")
    job = work("sleep", "36000", **apart("umount -l /proc"))
    eventually(lambda: job.said("cannot read /proc"))

    assert job.processes("sleep") == []
    assert job.stop() == 0


@root
def test_a_command_that_unmounts_proc_gets_its_signals_all_the_same(lock):
    job = lock("sh", "-c", "umount -l /proc; echo ready; exec sleep 36000", **apart("true"))
    eventually(lambda: job.said("ready"))

    assert job.stop() == -TERM


@root
@pytest.mark.parametrize("offset", [5, -1])  # less than the TTL
def test_no_deadline_is_read_by_another_clock(lock, offset):
    job = lock("true", by=("unshare", "-T", "--boottime", offset, "--monotonic", offset,
                           BIN / "tenurectl"))

    assert job.ends() == 125
    assert job.said("another clock")


@root
@pytest.mark.parametrize("most", [1, 2])
def test_where_no_further_process_may_run_the_command_does_not(lock, bus, most):
    Polkit(bus)

    job = lock("true", name="allowed", **apart("true", *NOBODY, "prlimit", f"--nproc={most}"))

    assert job.ends() == 125
    assert job.text() == "tenurectl: cannot run the command: Resource temporarily unavailable.\n"


@root
def test_without_dev_null_no_socket_comes_in_the_place_of_what_is_closed(lock, tmp_path):
    job = lock("sh", "-c", 'echo ready >"$0"; exec sleep 36000', tmp_path / "said", by=(
        *MOUNTS, 'mount -t tmpfs none /dev && exec "$@" <&- >&- 2>&-', "sh", BIN / "tenurectl"))
    job.runs()

    assert {os.readlink(f"/proc/{job.pid}/fd/{n}") for n in range(3)} == {"/"}
    assert job.stop() == -TERM


@root
def test_without_dev_null_a_command_of_work_reads_nothing(work):
    job = work("sh", "-c", "cat; echo ready; exec sleep 36000",
               **apart("mount -t tmpfs none /dev && exec </etc/passwd"))
    eventually(lambda: job.said("ready"))

    assert "root" not in job.text()
    assert job.stop() == 0


@root
def test_as_process_1_it_waits_for_orphans_and_names_the_signal_that_ended_its_command(lock):
    job = lock(*FOR_EVER, by=("unshare", "-pf", "--mount-proc", BIN / "tenurectl"))
    eventually(lambda: job.said("ready"))
    first = job.keeper  # which is process 1
    children = pathlib.Path(f"/proc/{first}/task/{first}/children")

    subprocess.run(["nsenter", "-t", str(first), "-p", "sh", "-c",
                    "for i in 1 2 3; do setsid -f true; done"], check=True)
    eventually(lambda: len(children.read_text().split()) == 1)
    os.kill(first, TERM)

    assert job.ends() == 128 + TERM


# ---- many ----

def deadline(job):
    """That of its commands, in ns of CLOCK_BOOTTIME, as it shows it to their keepers
    (lib/member/tenancy.c); 0: none yet."""
    for shown in pathlib.Path(f"/proc/{job.pid}/fd").iterdir():
        try:
            if os.readlink(shown).startswith("/memfd:tenancy"):
                return int.from_bytes(shown.read_bytes()[24:32], "little")
        except FileNotFoundError:  # it was closed meanwhile
            pass
    return 0


def may_run_on(pid):
    """What has got SIGKILL only exits."""
    process = pathlib.Path(f"/proc/{pid}")
    try:
        status = dict(line.split(":\t", 1) for line in
                      (process / "status").read_text().splitlines())
        flags = int((process / "stat").read_text().rsplit(")", 1)[1].split()[6])
    except OSError:
        return False
    return not flags & EXITING and not any(
        int(status[pending], 16) & 1 << KILL - 1 for pending in ("SigPnd", "ShdPnd"))


N, EACH = 300, 3_000_000  # ns by which the deadline is earlier for each command


def test_the_more_commands_there_are_the_earlier_they_must_end(work):
    job = work("sleep", "36000", tasks=N, ttl="100s")  # renewed after 50 s
    first = eventually(lambda: deadline(job))

    eventually(lambda: deadline(job) < first - N // 2 * EACH)

    assert job.stop() == 0


@pytest.mark.night("it judges whether 300 processes are killed within a second")
def test_however_many_commands_there_are_they_are_killed_before_their_deadline(cluster, work):
    job = work("sh", "-c", "trap '' TERM; exec sleep 36000", tasks=N, ttl="8s")
    commands = job.runs(n=N)

    for replica in cluster.running:
        replica.freeze()
    ends = [0]  # of the lease; an answer may still have been under way

    def is_almost_over():
        ends.append(deadline(job) + min(N * EACH, 2 * 10**9))
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) > max(ends) - 200_000_000

    eventually(is_almost_over)
    late = [pid for pid in commands if may_run_on(pid)]
    for replica in cluster.running:
        replica.thaw()

    assert late == []
    assert job.stop() == 0
