"""`tenurectl lock`: nothing of a command runs beside the next holder, whatever becomes of the
agent, the bus, tenurectl and the core; and no less than a lost place or lock ends it."""
import os
import pathlib
import re
import signal
import time

import pytest

from harness.agent import Agent
from harness.duty import children
from harness.pipes import full_pipe
from harness.places import BIN
from harness.program import Daemon, run
from harness.waiting import eventually

TERM = signal.SIGTERM


# ---- when the place or the lock is lost ----

@pytest.mark.parametrize("bus_hangs", [False, True])
def test_nothing_of_a_dead_agents_commands_runs_beside_the_next_holders(
        agents, duty, tmp_path, bus_hangs):
    agent, other = agents("h1", TTL="4s"), agents("h2")
    full, reader = full_pipe(tmp_path)
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
    os.read(reader, 4096)
    assert {way: holder.wait() for way, holder in held.items()} == dict.fromkeys(held, 123)
    assert held["heeds"].has_been_told()
    agent.bus.thaw()


def test_a_command_gets_sigterm_and_then_sigkill_before_a_silent_cores_lease_ends(agents, proxy, duty):
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


def test_a_command_ends_when_the_key_of_its_lock_is_deleted(agent, engine, duty):
    duty.lock += "\x1b[2J"  # which must not control a terminal
    held = duty.begin(agent)

    engine.delete(f"{duty.lock}/", "--prefix")

    assert held.wait() == 123
    shown = duty.lock.replace("\x1b", r"\x1b")
    assert held.log_text() == (f"tenurectl: the key of the lock '{shown}' was deleted; "
                               "killing the command.\n")


def test_a_command_ends_when_the_key_of_its_lock_is_deleted_while_no_core_is_reached(
        agent, cluster, proxy, duty):
    held = duty.begin(agent, options=[f"--endpoints={proxy.endpoints}"])

    proxy.kill()
    cluster.delete(f"{duty.lock}/", "--prefix")
    cluster.etcdctl("compact", str(cluster.put("later", "")))  # the deletion is in no watch now
    proxy.start()

    assert held.wait() == 123
    assert held.said("the key of the lock '.*' was deleted")


# ---- what is no loss ----

def test_a_command_runs_on_while_the_bus_is_away_and_the_agent_restarts(agents, duty):
    faults = {"bus gone": lambda agent: agent.bus.kill(),
              "bus hangs": lambda agent: agent.bus.freeze(),
              "agent killed": lambda agent: agent.crash(),
              "agent restarted": lambda agent: agent.restart()}
    hosts = {fault: agents(f"h{n}", TTL="10s") for n, fault in enumerate(faults)}
    held = {fault: duty.other(agent.name).begin(agent) for fault, agent in hosts.items()}
    leases = {fault: agent.status().lease_id for fault, agent in hosts.items()}
    for fault, agent in hosts.items():
        faults[fault](agent)

    # Beyond what the keepers knew when that came.
    deadline = time.clock_gettime(time.CLOCK_BOOTTIME) + 10
    eventually(lambda: time.clock_gettime(time.CLOCK_BOOTTIME) > deadline)

    hosts["bus gone"].bus.start()
    hosts["bus hangs"].bus.thaw()
    for fault, holder in held.items():
        holder.signal(TERM)
        assert (fault, holder.wait()) == (fault, 5)  # as it chose when told, and not 123
        eventually(hosts[fault].holds)
        assert hosts[fault].status().lease_id == leases[fault]


# ---- tenurectl and its keeper ----

@pytest.mark.parametrize("whom, status", [("tenurectl", -signal.SIGKILL), ("its keeper", 125)])
def test_nothing_of_a_command_is_left_when_what_supervises_it_is_killed(agents, duty, whom, status):
    agent = agents("h1")
    held = duty.begin(agent, "deaf")
    following = duty.wait(agents("h2"))
    held.expect_death_by(signal.SIGKILL)

    os.kill(held.pid if whom == "tenurectl" else held.keeper, signal.SIGKILL)

    assert held.wait() == status
    if whom == "tenurectl":  # else that has given the lock back
        eventually(lambda: agent.ctl("unlock", duty.lock) == "")  # once its command is dead
    eventually(lambda: following.tokens)


def test_processes_that_a_command_leaves_behind_end_as_fast_as_they_may_fork(agent, duty, tmp_path):
    hop = tmp_path / "hop"
    hop.write_text('#!/bin/sh\nexec setsid -f "$0"\n')
    hop.chmod(0o755)
    agent.ctl("lock", duty.lock, "--", "sh", "-c", 'exec 9>"$0"; flock 9; "$1"', duty.file, hop)
    duty.ends()


def group_of(pid):
    """The folder of its control group in the unified hierarchy."""
    [own] = re.findall("^0::/(.*)", pathlib.Path(f"/proc/{pid}/cgroup").read_text(), re.M)
    mounts = re.findall("^\\S+ (\\S+) cgroup2 ", pathlib.Path("/proc/mounts").read_text(), re.M)
    return pathlib.Path(mounts[0], own) if mounts else None


def test_no_control_group_is_left_behind(agent, duty):
    held = duty.begin(agent)
    keeper = held.keeper
    group = group_of(children(keeper)[0])
    if not group or group.name != f"tenure-lock-{keeper}":
        assert os.geteuid() != 0 or not os.access(group_of(keeper) or "", os.W_OK)
        pytest.skip("no control group can be made below that of this process")
    (group / "of the command").mkdir()

    held.signal(TERM)

    assert held.wait() == 5
    assert not group.exists()


# ---- how it ends ----

@pytest.mark.parametrize("words, status, sentence", [
    (["--", "sh", "-c", "exit 7"], 7, ""),
    (["--", "/nonexistent"], 127, "cannot run /nonexistent: No such file or directory."),
    (["--", "/"], 126, "cannot run /: Permission denied."), (["--bogus", "--", "true"], 125, ""),
    (["--bus=unix:abstract=tenure-tests-have-no-such-bus", "--", "true"], 125, "")])
def test_the_exit_status_says_what_became_of_the_command(agent, duty, words, status, sentence):
    said, ended_with = agent.refusal("lock", duty.lock, *words)
    assert ended_with == status and sentence in said
    assert duty.line() == []


@pytest.mark.parametrize("name", ["TERM", "PIPE"])
def test_tenurectl_ends_by_the_signal_that_ended_the_command(agent, duty, name):
    command = agent.background("lock", duty.lock, "--", "sh", "-c", f"kill -{name} $$ #")
    command.expect_death_by(signal.Signals["SIG" + name])
    assert command.wait() == -signal.Signals["SIG" + name]


def below(pid):
    """All processes that descend from it."""
    return [each for child in children(pid) for each in (child, *below(child))]


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


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


def test_a_command_has_the_signal_mask_that_tenurectl_started_with(agent, duty):
    look = "grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"
    assert agent.ctl("lock", duty.lock, "--", *look) == run(*look)


# ---- while it waits ----

def test_a_child_from_before_exec_that_ends_disturbs_nobody(agent, duty, tmp_path):
    duty.occupy()
    waits = Daemon(tmp_path / "waits.log", "sh", "-c", 'sleep 36000 & exec "$@"', "sh",
                   BIN / "tenurectl", f"--bus={agent.bus.address}", "lock", duty.lock, "--",
                   "echo", "runs").start()
    eventually(lambda: len(duty.line()) == 2)

    child, = below(waits.pid)
    os.kill(child, TERM)
    eventually(lambda: "State:\tZ" in pathlib.Path(f"/proc/{child}/status").read_text())

    duty.free()
    assert waits.wait() == 0
    assert waits.lines() == ["runs"]


def test_a_second_signal_ends_the_wait_for_a_core_and_what_is_left_is_reported(agents, proxy, duty):
    agent = agents("h1", Endpoints=proxy.endpoints)
    duty.occupy()
    waits = duty.wait(agent)

    proxy.freeze()
    eventually(lambda: waits.signal(TERM) or not waits.is_running)

    assert waits.wait() == -TERM
    assert f"the request for the lock '{duty.lock}' could not be given back" in waits.log_text()


# ---- TLS ----

def test_a_lock_on_a_core_with_tls_needs_its_authority(tmp_path, new_cluster, authority):
    core = new_cluster(1, authority=authority)
    agent = Agent(tmp_path, core, certificate=core.client)

    agent.ctl("lock", "job", *core.client.for_etcdctl, "--", "true")

    said, status = agent.refusal("lock", "job", "--", "true")
    assert status == 125
    assert re.search("no lease core answers at https://.*: .*(certificate|verif|trust|CA)", said)
