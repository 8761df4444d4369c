"""`tenurectl lock`: nothing of a command runs beside the next holder, whatever becomes of the
agent, the bus, tenurectl and the terminal; and no less than a lost place ends it."""
import os
import pathlib
import re
import signal
import time

import pytest

from harness.agent import Agent
from harness.places import BIN
from harness.program import Daemon, run
from harness.terminal import Terminal
from harness.waiting import ProgramError, eventually

TERM = signal.SIGTERM


# ---- when the place is lost ----

@pytest.mark.parametrize("bus_hangs", [False, True])
def test_nothing_of_a_dead_agents_commands_runs_beside_the_next_holders(
        agents, duty, tmp_path, bus_hangs):
    agent, other = agents("h1", TTL="4s"), agents("h2")
    full = full_pipe(tmp_path)
    duties = {way: duty.other(way) for way in ("heeds", "deaf", "asleep", "unwatched", "unread")}
    held = {way: duties[way].begin(agent, "" if way == "heeds" else "deaf",
                                   stderr=full if way == "unread" else None) for way in duties}
    following = [each.wait(other) for each in duties.values()]
    held["asleep"].freeze()
    os.kill(held["unwatched"].keeper, signal.SIGSTOP)

    if bus_hangs:
        agent.bus.freeze()
    agent.kill()

    for holder in following:  # who sees whether it is alone
        eventually(lambda: holder.tokens)
    held["asleep"].thaw()
    os.read(full.fd, 4096)
    assert {way: holder.wait() for way, holder in held.items()} == dict.fromkeys(held, 123)
    assert held["heeds"].has_been_told()
    agent.bus.thaw()


def full_pipe(folder):
    """A path that takes nothing more until somebody reads from .fd."""
    path = type("Pipe", (type(folder),), {})(folder / "full")
    os.mkfifo(path)
    path.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    try:
        while os.write(path.fd, bytes(4096)):
            pass
    except BlockingIOError:
        return path


def test_a_command_is_told_and_then_killed_before_a_silent_cores_lease_ends(agents, proxy, duty):
    agent, other = agents("h1", TTL="4s", Endpoints=proxy.endpoints), agents("h2")
    held = duty.begin(agent)
    following = duty.wait(other)

    proxy.freeze()

    eventually(lambda: following.tokens)
    proxy.thaw()
    assert held.has_been_told() and held.wait() == 123


def test_a_command_ends_when_its_hosts_lease_is_revoked(agent, core, duty):
    held = duty.begin(agent, "deaf")

    core.revoke(agent.status().lease_id)

    assert held.wait() == 123
    duty.ends()


def test_a_host_that_leaves_ends_its_commands_first(agents, duty):
    agent, other = agents("h1"), agents("h2")
    held = duty.begin(agent)
    following = duty.wait(other)

    agent.ctl("leave")

    assert held.has_been_told() and held.wait() == 123
    eventually(lambda: following.tokens)


# ---- what is no loss ----

def test_a_command_runs_on_while_the_bus_is_away_and_the_agent_restarts(agents, duty):
    faults = {"bus gone": lambda agent: agent.bus.kill(),
              "bus hangs": lambda agent: agent.bus.freeze(),
              "agent killed": lambda agent: (agent.kill(), agent.start()),
              "agent restarted": lambda agent: (agent.signal(signal.SIGUSR1), agent.wait(),
                                                agent.start())}
    hosts = {fault: agents(f"h{n}", TTL="10s") for n, fault in enumerate(faults)}
    held = {fault: duty.other(agent.name).begin(agent) for fault, agent in hosts.items()}
    leases = {fault: agent.status().lease_id for fault, agent in hosts.items()}
    for fault, agent in hosts.items():
        faults[fault](agent)

    # Beyond what the keepers knew when that came.
    deadline = boot_usec() + 10_000_000
    eventually(lambda: boot_usec() > deadline)

    hosts["bus gone"].bus.start()
    hosts["bus hangs"].bus.thaw()
    for fault, holder in held.items():
        holder.signal(TERM)
        assert (fault, holder.wait()) == (fault, 5)  # as it chose when told, and not 123
        eventually(hosts[fault].holds)
        assert hosts[fault].status().lease_id == leases[fault]


def boot_usec():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


# ---- tenurectl and its keeper ----

@pytest.mark.parametrize("whom, status", [("tenurectl", -signal.SIGKILL), ("its keeper", 125)])
def test_nothing_of_a_command_is_left_when_what_supervises_it_is_killed(
        agent, duty, whom, status):
    held = duty.begin(agent, "deaf")
    held.expect_death_by(signal.SIGKILL)

    os.kill(held.pid if whom == "tenurectl" else held.keeper, signal.SIGKILL)

    assert held.wait() == status
    duty.ends()
    agent.ctl("unlock", duty.lock)
    assert duty.line() == []


def test_processes_that_a_command_leaves_behind_end_as_fast_as_they_may_fork(agent, duty, tmp_path):
    hop = tmp_path / "hop"
    hop.write_text('#!/bin/sh\nexec setsid -f "$0"\n')
    hop.chmod(0o755)

    agent.ctl("lock", duty.lock, "--", "sh", "-c", 'exec 9>"$0"; flock 9; "$1"', duty.file, hop)

    duty.ends()


def test_no_control_group_is_left_behind(agent, duty):
    held = duty.begin(agent)

    held.signal(TERM)

    assert held.wait() == 5
    # os.walk() does not mind that others, too, end theirs meanwhile.
    groups = {name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names}
    assert f"tenure-lock-{held.pid}" not in groups


# ---- exit statuses ----

def status_of(ctl, *words):
    with pytest.raises(ProgramError) as failure:
        ctl(*words)
    return failure.value.status


@pytest.mark.parametrize("words, status", [
    (["--", "sh", "-c", "exit 7"], 7), (["--", "/nonexistent"], 127), (["--", "/"], 126),
    (["--bogus", "--", "true"], 125)])
def test_the_exit_status_says_what_became_of_the_command(agent, duty, words, status):
    assert status_of(agent.ctl, "lock", duty.lock, *words) == status


def test_the_exit_status_says_that_the_lock_was_not_to_be_had_in_time(agent, shared_cluster, duty):
    shared_cluster.put(f"{duty.lock}/1", "")  # as etcdctl has it

    assert status_of(agent.ctl, "lock", "--wait=0", duty.lock, "--", "true") == 124


def test_a_lock_needs_a_bus(duty):
    ctl = BIN / "tenurectl", "--bus=unix:abstract=tenure-tests-have-no-such-bus"

    assert status_of(run, *ctl, "lock", duty.lock, "--", "true") == 125


def test_tenurectl_ends_by_the_signal_that_ended_the_command(agent, duty):
    command = agent.background("lock", duty.lock, "--", "sh", "-c", "kill -TERM $$ #")
    command.expect_death_by(TERM)

    assert command.wait() == -TERM


def test_a_service_manager_ends_all_processes_at_once_and_sees_sigterm(agent, duty):
    for _ in range(20):  # they learn of it in any order
        command = agent.background("lock", duty.lock, "--", "sleep", "36000")
        eventually(lambda: "sleep" in map(name_of, below(command.pid)))
        command.expect_death_by(TERM)
        for pid in [command.pid, *below(command.pid)]:
            try:
                os.kill(pid, TERM)
            except ProcessLookupError:  # the others have ended it
                pass
        assert (command.wait(), command.log_text()) == (-TERM, "")


def below(pid):
    """All processes that descend from it."""
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [each for child in map(int, children) for each in (child, *below(child))]


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def test_a_command_has_the_signal_mask_that_tenurectl_started_with(agent, duty):
    look = "grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"

    assert agent.ctl("lock", duty.lock, "--", *look) == run(*look)


# ---- while it waits ----

def test_a_child_from_before_exec_that_ends_disturbs_nobody(agent, shared_cluster, duty, tmp_path):
    shared_cluster.put(f"{duty.lock}/1", "")
    waits = Daemon(tmp_path / "waits.log", "sh", "-c", 'sleep 36000 & exec "$@"', "sh",
                   BIN / "tenurectl", f"--bus={agent.bus.address}", "lock", duty.lock, "--",
                   "echo", "runs").start()
    eventually(lambda: len(duty.line()) == 2)

    child, = below(waits.pid)
    os.kill(child, TERM)
    eventually(lambda: "State:\tZ" in pathlib.Path(f"/proc/{child}/status").read_text())

    shared_cluster.delete(f"{duty.lock}/1")
    assert waits.wait() == 0
    assert waits.lines() == ["runs"]


def test_who_is_told_twice_to_end_waits_for_no_core_and_says_what_is_left(
        agents, shared_cluster, proxy, duty):
    agent = agents("h1", Endpoints=proxy.endpoints)
    shared_cluster.put(f"{duty.lock}/1", "")
    waits = duty.wait(agent)

    proxy.freeze()
    eventually(lambda: waits.signal(TERM) or not waits.is_running)

    assert waits.wait() == -TERM
    assert f"the request for the lock '{duty.lock}' could not be given back" in waits.log_text()


# ---- a terminal ----

@pytest.fixture
def terminal(agent, tmp_path):
    """A shell, in which $lock runs a command with this test's lock."""
    return Terminal(tmp_path, lock=f"{BIN}/tenurectl --bus={agent.bus.address} "
                                   f"lock terminal-{os.getpid()} --")


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
    terminal.expect("Stopped")
    terminal.expect(terminal.PROMPT)
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


# ---- TLS ----

def test_a_lock_on_a_core_with_tls_needs_its_authority(tmp_path, new_cluster, authority):
    core = new_cluster(1, authority=authority)
    shown = core.client
    agent = Agent(tmp_path, core, certificate=shown)

    agent.ctl("lock", "job", *shown.for_etcdctl, "--", "true")
    with pytest.raises(ProgramError) as refusal:
        agent.ctl("lock", "job", "--", "true")

    assert refusal.value.status == 125
    assert re.search("no lease core answers at https://.*: .*(certificate|verif|trust|CA)",
                     refusal.value.err)
