"""Locks by the command line, and by the place of the host."""
import os

import pytest

from harness.program import Daemon
from harness.waiting import eventually

NOBODY = 65534
other_user = pytest.mark.skipif(os.getuid() != 0, reason="becomes another user, so needs root")


@pytest.mark.parametrize("name, problem", [
    ("a" * 901, "has 1 to 900 bytes"),
    ("/tenure/default/nodes", "does not begin with /tenure/, where nodes and services are"),
    ("db/main", "has no slash: locks of names such as db and db/main would wait for each other"),
], ids=["long", "nodes", "slash"])
def test_a_name_that_no_lock_can_have_is_refused(agent, name, problem):
    assert agent.refusal("lock", name, "--", "true") == (
        f"the name of a lock {problem}; '{name}' is not one.", 125)


def test_options_behind_the_command_are_the_commands(agent, duty):
    assert agent.ctl("lock", duty.lock, "--wait=60s", "echo", "--once", "--json=short",
                     "--version") == "--once --json=short --version\n"


def test_a_switchover_leaves_the_keys_of_other_locks_alone(agents, shared_cluster, duty):
    holder, other, target = agents("h1"), agents("h2"), agents("h3")
    held = duty.begin(holder)
    lease = other.status().lease_id
    key = f"{duty.lock}/main/{lease:x}"
    shared_cluster.put(key, "", lease=lease)
    waits = duty.wait(target)

    sentence, status = holder.refusal("switchover", duty.lock, "h3")
    assert status == 2 and f"The key {key} is in the line for the lock '{duty.lock}'" in sentence
    assert shared_cluster.delete(key) == 1

    holder.ctl("switchover", duty.lock, "h3")
    assert held.wait() == 123
    eventually(lambda: waits.tokens)


def test_a_lock_that_etcdctl_has_is_waited_for(agent, engine, duty, tmp_path):
    os.mkfifo(tmp_path / "ends")
    other = Daemon(tmp_path / "etcdctl.log", "etcdctl", "--endpoints", engine.endpoints, "lock",
                   duty.lock, "--", "sh", "-c", f"read line <{tmp_path}/ends").start()
    eventually(duty.line)
    for wait in "--wait=1ms", "--wait=0":
        assert agent.refusal(wait, "lock", duty.lock, "--", "echo", "mine")[1] == 124
    waits = duty.wait(agent)
    assert waits.lines() == []

    (tmp_path / "ends").write_text("\n")

    assert other.wait() == 0
    eventually(lambda: waits.tokens)


# ---- turns: one command of a host has a lock at a time ----

def test_a_command_waits_for_its_turn_also_when_the_agent_is_restarted(agent, duty):
    held = duty.begin(agent)
    agent.crash()
    eventually(agent.holds)

    sentence, status = agent.refusal("lock", "--wait=1ms", duty.lock, "--", "true")
    assert status == 124 and f"the lock '{duty.lock}' is held by h1 since 2" in sentence
    sentence, status = agent.refusal("unlock", duty.lock)
    assert status == 124
    assert f"a command on this host has the lock '{duty.lock}'" in sentence
    assert held.is_running


def test_a_program_that_waits_for_a_turn_learns_at_once_that_it_is_free(agent, duty):
    first = duty.begin(agent)
    second = agent.background("lock", duty.lock, "--", "echo", "next")
    third = agent.background("lock", duty.lock, "--", "echo", "last")

    first.kill()

    assert second.wait() == third.wait() == 0
    assert second.lines() == ["next"] and third.lines() == ["last"]


@other_user
def test_a_program_that_may_not_use_the_place_learns_that_it_gets_no_lock(agent, program):
    asked = program.python(f"""
import os, tenure
os.setuid({NOBODY})
with tenure.Tie(hold="agent") as tie:
    tie.held()
    lock = tie.lock_begin("refused")
    while (event := tie.wait()).lock is not lock:
        pass
    print(event.type.name, event.reason)
""", **agent.bus.environment_for_clients)

    assert asked.wait() == 0
    assert asked.lines() == ["UNLOCKED the agent gives this program no turn for locks: only root "
                             "may do this where polkit does not run"]


def test_a_command_can_keep_no_turn_but_those_that_share_its_file(agent, duty):
    command = agent.background(
        "lock", duty.lock, "--", "/usr/bin/python3", "-c", """
import fcntl, os, struct, time
for fd in map(int, os.listdir("/proc/self/fd")):
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0))
    except OSError:
        pass
print("has all that it can have", flush=True)
time.sleep(3600)
""", "has-all")
    eventually(command.lines)

    assert agent.ctl("lock", duty.lock + "-other", "--", "echo", "runs") == "runs\n"
    command.kill()
