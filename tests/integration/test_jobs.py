"""`tenurectl lock` and `work` as jobs of somebody's: signals at each stage of their lives, messages
that nobody reads, descriptors that are closed, and a terminal that goes away."""
import os
import signal

import pytest

from harness.duty import Holder
from harness.places import BIN
from harness.program import Daemon, run
from harness.terminal import Terminal
from harness.waiting import ProgramError, eventually

TERM, KILL = signal.SIGTERM, signal.SIGKILL
PASSED_ON = [TERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
             signal.SIGALRM, signal.SIGXCPU, signal.SIGPWR, signal.SIGRTMIN]
NO_END = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGWINCH, signal.SIGCONT, signal.SIGURG,
          signal.SIGSTOP, signal.SIGCONT]

# Says which signal it gets, and ends; or, if it is slow, when somebody writes into a pipe.
TOLD = r"""
trap "" PIPE XFSZ
for s in TERM INT HUP QUIT USR1 USR2 ALRM XCPU PWR RTMIN; do
	trap "echo got-$s; [ $1 = slow ] || exit 7" $s
done
echo ready
if [ $1 = slow ]; then exec 8<>"$2"; until read -rt 0.1 -u 8; do :; done; exit 9; fi
while :; do sleep 36000 & wait; done
"""


class Job(Holder):
    """A lock whose command is TOLD."""

    ends_by = KILL

    def __init__(self, agent, lock, how="quick", *options):
        fifo, log = agent.folder / f"{lock}.end", agent.folder / f"{lock}.log"
        if not fifo.exists():
            os.mkfifo(fifo)
        self.fifo = fifo
        for old in log, log.with_suffix(".out"):
            old.unlink(missing_ok=True)
        super().__init__(log, *options, BIN / "tenurectl", f"--bus={agent.bus.address}", "lock",
                         lock, "--", "bash", "-c", TOLD, "told", how, fifo,
                         out=log.with_suffix(".out"))
        self.start()
        eventually(lambda: "ready" in self.lines())

    def hears(self, number):
        eventually(lambda: "got-" + number.name.removeprefix("SIG") in self.lines())

    def may_end(self):
        with open(self.fifo, "w") as pipe:
            pipe.write("\n")


to_process_or_group = pytest.mark.parametrize("send", [os.kill, os.killpg])


def send_all(send, program, numbers):
    for number in numbers:
        program.expect_death_by(number)
        send(program.pid, number)


# ---- while it waits for the lock ----

@to_process_or_group
def test_who_waits_ends_by_each_signal_that_ends_programs_and_withdraws_its_request(
        agent, shared_cluster, duty, send):
    shared_cluster.put(f"{duty.lock}/1", "")
    for number in *PASSED_ON, KILL:
        waits = duty.wait(agent)
        send_all(send, waits, [number])
        assert waits.wait() == -number
        eventually(lambda: len(duty.line()) == 1)


@to_process_or_group
def test_who_waits_waits_on_after_signals_that_end_nobody(agent, shared_cluster, duty, send):
    shared_cluster.put(f"{duty.lock}/1", "")
    waits = duty.wait(agent)

    send_all(send, waits, NO_END)
    shared_cluster.delete(f"{duty.lock}/1")

    eventually(lambda: waits.tokens)


def test_who_was_stopped_when_it_got_the_lock_runs_once_it_is_continued(
        agent, shared_cluster, duty):
    shared_cluster.put(f"{duty.lock}/1", "")
    waits = duty.wait(agent)

    waits.freeze()
    shared_cluster.delete(f"{duty.lock}/1")
    waits.thaw()

    eventually(lambda: waits.tokens)


# ---- while the command runs ----

@to_process_or_group
def test_signals_are_passed_on_to_the_command_whose_end_is_ours(agent, duty, send):
    for number in PASSED_ON:
        job = Job(agent, duty.lock)
        send_all(send, job, [*NO_END, number])
        assert job.wait() == 7
        # One that is sent to the group comes to the command twice, if it still runs.
        assert set(job.lines()[1:]) == {"got-" + number.name.removeprefix("SIG")}
        assert duty.line() == []


def test_a_command_that_is_ending_may_take_its_time_and_hears_more_signals(agent, duty):
    job = Job(agent, duty.lock, "slow")

    for number in PASSED_ON:
        job.signal(number)
        job.hears(number)
    job.may_end()

    assert job.wait() == 9


def test_who_gives_the_lock_back_to_a_silent_core_waits_no_longer_when_told(agents, proxy, duty):
    agent = agents("h1", Endpoints=proxy.endpoints)
    job = Job(agent, duty.lock, "slow")

    proxy.freeze()
    job.may_end()
    eventually(lambda: job.signal(TERM) or not job.is_running)

    assert job.wait() in (0, 9)  # the command's
    assert "could not be given back" in job.log_text()


@pytest.mark.parametrize("number", [TERM, signal.SIGINT])
def test_work_that_waits_for_its_list_of_tasks_ends_by_signals(tmp_path, number):
    os.mkfifo(tmp_path / "list")
    work = Daemon(tmp_path / "work.log", BIN / "tenurectl", "--endpoints=http://127.0.0.1:1",
                  "--cluster=c", "work", "g", f"--tasks=@{tmp_path}/list", "--", "true").start()
    eventually(lambda: "partner" in open(f"/proc/{work.pid}/wchan").read())  # it is in open(2)

    work.signal(number)

    assert work.wait() == -number


# ---- what a process inherits ----

def test_signals_that_are_ignored_from_the_beginning_stay_ignored(agent, duty):
    job = Job(agent, duty.lock, "quick", "env", "--ignore-signal=HUP,INT,RTMIN")

    for number in signal.SIGHUP, signal.SIGINT, signal.SIGRTMIN:
        os.killpg(job.pid, number)
    job.signal(TERM)

    assert (job.wait(), job.lines()) == (7, ["ready", "got-TERM"])


def test_a_command_that_ends_is_noticed_although_sigchld_is_ignored(agent, duty):
    lock = ["env", "--ignore-signal=CHLD", BIN / "tenurectl", f"--bus={agent.bus.address}", "lock",
            duty.lock, "--"]

    with pytest.raises(ProgramError) as end:
        run(*lock, "sh", "-c", "sleep 0 & exit 7")
    said = run(*lock, "grep", "SigIgn", "/proc/self/status")

    assert end.value.status == 7
    ignored = int(said.split()[1], 16)
    assert ignored & 1 << signal.SIGCHLD - 1  # as the command finds it, too
    assert duty.line() == []


def work_runs_again(tmp_path, core, request, *wrapped):
    """A work whose commands end at once, and about which there is much to say."""
    work = Daemon(tmp_path / "work.log", *wrapped, BIN / "tenurectl",
                  f"--endpoints={core.endpoints}", "--cluster=" + request.node.name[:50], "work",
                  "g", "--tasks=2", "--ttl=60s", "--", "sh", "-c", "echo run; exit 1",
                  out=tmp_path / "work.out").start()
    eventually(lambda: len(work.lines()) >= 6)
    assert work.stop() == 0


def test_work_runs_its_commands_again_although_sigchld_is_ignored(
        tmp_path, shared_cluster, request):
    work_runs_again(tmp_path, shared_cluster, request, "env", "--ignore-signal=CHLD")


# ---- nobody reads what it says ----

WITH_STDERR = "sh", "-c", 'exec "$@" 2>>"$0"'
LIMITED = "prlimit", "--fsize=8192", "--"


@pytest.fixture
def full(tmp_path):
    """A file as large as LIMITED lets it become."""
    (tmp_path / "full").write_text("x" * 8192)
    return tmp_path / "full"


@pytest.fixture
def broken(tmp_path):
    """A pipe from which nobody reads any more, once .close() was called."""
    os.mkfifo(tmp_path / "broken")
    return tmp_path / "broken", os.open(tmp_path / "broken", os.O_RDONLY | os.O_NONBLOCK)


def test_a_lock_is_handed_over_by_who_can_say_nothing(agents, duty, broken):
    path, reader = broken
    agent, other = agents("h1"), agents("h2")
    holder = duty.begin(agent, stderr=path)
    following = duty.wait(other)
    os.close(reader)

    other.ctl("switchover", duty.lock, "h2")

    assert holder.wait() == 123 and holder.has_been_told()
    eventually(lambda: following.tokens)


def test_the_command_of_who_can_say_nothing_gets_sigpipe_as_ever(agent, duty):
    command = agent.background("lock", duty.lock, "--", "sh", "-c", "kill -PIPE $$; exit 3 #")
    command.expect_death_by(signal.SIGPIPE)

    assert command.wait() == -signal.SIGPIPE


def test_work_runs_its_commands_again_although_its_messages_go_nowhere(
        tmp_path, shared_cluster, request, full):
    work_runs_again(tmp_path, shared_cluster, request, *LIMITED, *WITH_STDERR, full)


# ---- what is closed ----

def test_what_is_closed_to_lock_is_closed_to_its_command(agent, duty, tmp_path):
    said = tmp_path / "said"
    closed = Daemon(tmp_path / "closed.log", "sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh",
                    BIN / "tenurectl", f"--bus={agent.bus.address}", "lock", duty.lock, "--",
                    "bash", "-c", "for f in 0 1 2; do [ ! -e /proc/$$/fd/$f ] || o=$o$f; done; "
                    'echo "open: $o" >"$0"', said).start()

    assert closed.wait() == 0
    assert said.read_text() == "open: \n"


def test_no_socket_comes_in_the_place_of_what_is_closed(agent, tmp_path):
    closed = Daemon(tmp_path / "closed.log", "sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh",
                    BIN / "tenurectl", f"--bus={agent.bus.address}", "watch").start()

    eventually(lambda: closed.pid in agent.bus.subscribers("org.tenure.Membership1.Manager"))

    assert {os.readlink(f"/proc/{closed.pid}/fd/{n}") for n in range(3)} == {"/dev/null"}


# ---- a terminal ----

@pytest.fixture
def terminal(agent, duty, tmp_path):
    """A shell in which $ctl is tenurectl."""
    return Terminal(tmp_path, ctl=f"{BIN}/tenurectl --bus={agent.bus.address}")


@pytest.mark.parametrize("key, number", [("\x03", signal.SIGINT), ("\x1c", signal.SIGQUIT)])
def test_a_key_ends_who_waits_for_a_lock(terminal, shared_cluster, duty, key, number):
    shared_cluster.put(f"{duty.lock}/1", "")
    terminal.run(f"$ctl lock {duty.lock} -- true")
    eventually(lambda: len(duty.line()) == 2)

    terminal.type(key)

    assert terminal.status() == 128 + number
    eventually(lambda: len(duty.line()) == 1)


def test_who_was_stopped_while_its_turn_came_runs_in_the_foreground(
        terminal, shared_cluster, duty):
    shared_cluster.put(f"{duty.lock}/1", "")
    terminal.run(f"$ctl lock {duty.lock} -- sh -c 'echo r''an'")
    eventually(lambda: len(duty.line()) == 2)
    terminal.type("\x1a")
    terminal.expect("Stopped")
    shared_cluster.delete(f"{duty.lock}/1")

    terminal.run("fg")

    terminal.expect("ran")
    eventually(lambda: duty.line() == [])


def begin_work(terminal, agent, core):
    """Returns a look at its tasks."""
    terminal.run("$ctl work g --tasks=2 -- sh -c 'trap \"\" HUP; echo be''gun; exec sleep 36000'")
    terminal.expect("begun")
    return lambda: core.range(agent.key.replace("nodes/h1", "work/g/tasks/"))


@pytest.mark.parametrize("key", ["\x03", "\x1c"])
def test_a_key_ends_work_which_gives_its_tasks_back(terminal, agent, shared_cluster, key):
    tasks = begin_work(terminal, agent, shared_cluster)

    terminal.type(key)

    assert terminal.status() == 0 and tasks() == []


def test_a_terminal_that_goes_away_ends_work(terminal, agent, shared_cluster):
    tasks = begin_work(terminal, agent, shared_cluster)
    assert tasks()

    terminal.close()

    eventually(lambda: tasks() == [])


# ---- another replica ----

def test_a_lock_is_kept_and_given_back_though_the_bus_and_the_replica_have_gone(
        cluster, agent, duty):
    used = next(replica for replica in cluster.replicas.values()
                if replica.client_url == agent.status().core_endpoint)
    runs, waits = duty.begin(agent), duty.other("waits")
    cluster.put(f"{waits.lock}/1", "")
    next_one = waits.wait(agent)

    agent.bus.kill()
    agent.bus.start()
    eventually(agent.holds)
    used.kill()
    eventually(lambda: agent.status().core_endpoint not in ("", used.client_url))

    runs.signal(TERM)
    assert (runs.wait(), runs.log_text()) == (5, "") and duty.line() == []
    cluster.delete(f"{waits.lock}/1")
    eventually(lambda: next_one.tokens)
