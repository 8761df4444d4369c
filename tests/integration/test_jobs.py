"""`tenurectl lock` and `work` as jobs of somebody's: signals at each stage of their lives, messages
that nobody reads, descriptors that are closed, and a terminal that goes away."""
import os
import signal

import pytest

from harness.duty import Holder
from harness.pipes import unread_pipe
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
    """A lock whose command is TOLD. @wrapped: the words before that of tenurectl."""

    def __init__(self, agent, duty, how="quick", wrapped=()):
        log = agent.folder / f"job{duty.n}.log"
        duty.n += 1
        super().__init__(log, *wrapped, BIN / "tenurectl", f"--bus={agent.bus.address}", "lock",
                         duty.lock, "--", "bash", "-c", TOLD, "told", how, duty.may_end,
                         out=log.with_suffix(".out"))
        self.start()
        eventually(lambda: "ready" in self.lines())

    def hears(self, number):
        eventually(lambda: "got-" + number.name.removeprefix("SIG") in self.lines())


to_process_or_group = pytest.mark.parametrize("send", [os.kill, os.killpg])


def send_all(send, program, numbers):
    for number in numbers:
        program.expect_death_by(number)
        send(program.pid, number)


# ---- while it waits for the lock ----

@to_process_or_group
def test_who_waits_ends_by_each_signal_that_ends_programs_and_withdraws_its_request(
        agent, duty, send):
    duty.occupy()
    for number in *PASSED_ON, KILL:
        waits = duty.wait(agent)
        send_all(send, waits, [number])
        assert waits.wait() == -number
        eventually(lambda: len(duty.line()) == 1)


@to_process_or_group
def test_who_waits_waits_on_after_signals_that_end_nobody_and_runs_once_it_is_continued(
        agent, duty, send):
    duty.occupy()
    waits = duty.wait(agent)

    send_all(send, waits, NO_END)
    waits.freeze()
    duty.free()
    waits.thaw()

    eventually(lambda: waits.tokens)


# ---- while the command runs ----

@to_process_or_group
def test_signals_are_passed_on_to_the_command_whose_end_is_ours(agent, duty, send):
    for number in PASSED_ON:
        job = Job(agent, duty)
        send_all(send, job, [*NO_END, number])
        assert job.wait() == 7
        # One that is sent to the group comes to the command twice, if it still runs.
        assert set(job.lines()[1:]) == {"got-" + number.name.removeprefix("SIG")}
        assert duty.line() == []


def test_a_command_that_is_ending_may_take_its_time_and_gets_more_signals(agent, duty):
    job = Job(agent, duty, "slow")

    for number in PASSED_ON:
        job.signal(number)
        job.hears(number)
    duty.let_end()

    assert job.wait() == 9


def test_giving_the_lock_back_to_a_silent_core_ends_at_a_signal(agents, proxy, duty):
    job = Job(agents("h1", Endpoints=proxy.endpoints), duty, "slow")

    proxy.freeze()
    duty.let_end()
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


# ---- what a process inherits, and nobody reads ----

def test_signals_that_are_ignored_from_the_beginning_stay_ignored(agent, duty):
    job = Job(agent, duty, wrapped=["env", "--ignore-signal=HUP,INT,RTMIN"])

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


# A file that may become no larger takes what it says.
SAYS_NOTHING = "prlimit", "--fsize=8192", "--", "sh", "-c", (
    'head -c 8192 /dev/zero >full; exec "$0" "$@" 2>>full')


@pytest.mark.parametrize("wrapped", [("env", "--ignore-signal=CHLD"), SAYS_NOTHING],
                         ids=["without SIGCHLD", "without messages"])
def test_work_runs_its_commands_again(tmp_path, agent, wrapped):
    work = Daemon(tmp_path / "work.log", *wrapped, BIN / "tenurectl",
                  f"--bus={agent.bus.address}", "work", "g", "--tasks=2", "--", "sh", "-c",
                  "echo run; exit 1", out=tmp_path / "work.out").start()
    eventually(lambda: len(work.lines()) >= 6)
    assert work.stop() == 0


def test_a_lock_is_handed_over_by_who_can_say_nothing(agents, duty, tmp_path):
    path, reader = unread_pipe(tmp_path)
    agent, other = agents("h1"), agents("h2")
    holder = duty.begin(agent, stderr=path)
    following = duty.wait(other)
    os.close(reader)

    other.ctl("switchover", duty.lock, "h2")

    assert holder.wait() == 123 and holder.has_been_told()
    eventually(lambda: following.tokens)


def without_descriptors(agent, *words):
    return Daemon(agent.folder / "closed.log", "sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh",
                  BIN / "tenurectl", f"--bus={agent.bus.address}", *words).start()


def test_what_is_closed_to_lock_is_closed_to_its_command(agent, duty, tmp_path):
    said = tmp_path / "said"
    closed = without_descriptors(
        agent, "lock", duty.lock, "--", "bash", "-c",
        'for f in 0 1 2; do [ ! -e /proc/$$/fd/$f ] || o=$o$f; done; echo "open: $o" >"$0"', said)

    assert closed.wait() == 0
    assert said.read_text() == "open: \n"


def test_no_socket_comes_in_the_place_of_what_is_closed(agent):
    closed = without_descriptors(agent, "watch", "--event=NodeLeft")  # has nothing to write yet
    eventually(lambda: closed.pid in agent.bus.subscribers("org.tenure.Membership1.Manager"))
    assert {os.readlink(f"/proc/{closed.pid}/fd/{n}") for n in range(3)} == {"/dev/null"}


# ---- a terminal ----

@pytest.fixture
def terminal(agent, duty, tmp_path):
    """A shell, in which $ctl is tenurectl, and $lock runs a command with the duty's lock."""
    ctl = f"{BIN}/tenurectl --bus={agent.bus.address}"
    return Terminal(tmp_path, ctl=ctl, lock=f"{ctl} lock {duty.lock} --")


def test_a_command_in_the_foreground_reads_the_terminal(terminal):
    terminal.run("$lock sh -c 'read x; echo got-$x; exit 9'")
    terminal.type("word\n")
    terminal.expect("got-word")
    assert terminal.status() == 9


def test_interrupting_ends_the_command_and_the_shell_has_the_terminal_again(terminal):
    terminal.run("$lock cat")
    terminal.type("here\n")
    terminal.expect("(?s)here.*here")  # its echo, and the command's
    terminal.type("\x03")
    assert terminal.status() == 128 + signal.SIGINT


def test_a_command_is_stopped_and_continued_with_all_that_the_terminal_has(terminal, tmp_path):
    os.mkfifo(tmp_path / "never")
    terminal.run("$lock bash -c 'trap \"echo going\"\"-on\" CONT; echo be\"\"gun; "
                 f"while :; do read -t 0.1 <>{tmp_path}/never; done'")
    terminal.expect("begun")

    terminal.type("\x1a")
    terminal.expect("(?s)Stopped.*" + terminal.PROMPT)
    terminal.run("ps -eo pgid=,stat= | awk -v g=$(jobs -p) '$1 == g {print substr($2, 1, 1)}' "
                 "| sort -u | tr -d '\\n'; echo =states")
    terminal.expect("T+=states")

    terminal.run("fg")
    terminal.expect("going-on")
    terminal.type("\x03")
    terminal.expect(terminal.PROMPT)
    terminal.run("jobs; echo none-left")
    assert terminal.expect(r"^(.*)none-left")[1] == ""


def test_a_command_in_the_background_stops_when_it_reads_and_gets_the_terminal_by_fg(terminal):
    terminal.run("$lock sh -c 'read x; echo got-$x' &")
    terminal.expect(terminal.PROMPT)

    def stopped():
        terminal.run("jobs; echo lis''ted")
        return "Stopped" in terminal.expect(r"(?s).*?listed")[0]

    eventually(stopped)
    terminal.run("fg")
    terminal.type("late\n")
    terminal.expect("got-late")


def test_a_shell_that_was_killed_leaves_the_terminal_to_the_one_before_it(terminal):
    terminal.run("$lock bash --norc --noprofile --noediting -i")  # it takes the terminal for itself
    terminal.expect(terminal.PROMPT)

    terminal.run("stty -echo -icanon; kill -9 $$")
    terminal.expect(terminal.PROMPT)

    terminal.run("stty sane; cat")
    terminal.type("through\n\x04")
    terminal.expect("through")


@pytest.mark.parametrize("key, number", [("\x03", signal.SIGINT), ("\x1c", signal.SIGQUIT)])
def test_a_key_ends_who_waits_for_a_lock(terminal, duty, key, number):
    duty.occupy()
    terminal.run("$lock true")
    eventually(lambda: len(duty.line()) == 2)

    terminal.type(key)

    assert terminal.status() == 128 + number
    eventually(lambda: len(duty.line()) == 1)


def test_who_was_stopped_while_its_turn_came_runs_in_the_foreground(terminal, duty):
    duty.occupy()
    terminal.run("$lock sh -c 'echo r''an'")
    eventually(lambda: len(duty.line()) == 2)
    terminal.type("\x1a")
    terminal.expect("Stopped")
    duty.free()

    terminal.run("fg")

    terminal.expect("ran")
    eventually(lambda: duty.line() == [])


@pytest.mark.parametrize("key", ["\x03", "\x1c", None])
def test_a_key_or_the_end_of_its_terminal_ends_work_which_gives_its_tasks_back(
        terminal, agent, core, key):
    terminal.run("$ctl work g --tasks=2 -- sh -c 'trap \"\" HUP; echo be''gun; exec sleep 36000'")
    terminal.expect("begun")
    tasks = agent.key.replace("nodes/h1", "work/g/tasks/")
    assert core.range(tasks)

    if key:
        terminal.type(key)
        assert terminal.status() == 0
    else:
        terminal.close()

    eventually(lambda: core.range(tasks) == [])
