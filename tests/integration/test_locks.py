"""Locks by the command line, and by the place of the host."""
import os
import re
import signal

import pytest

from harness.program import Daemon
from harness.waiting import ProgramError, eventually

NOBODY = 65534
other_user = pytest.mark.skipif(os.getuid() != 0, reason="becomes another user, so needs root")


def runs(agent, lock, *options):
    """A command that runs with the lock."""
    command = agent.background(*options, "lock", lock, "--",
                               "sh", "-c", "echo runs; exec sleep 3600 #")
    eventually(lambda: command.lines() == ["runs"])
    return command


def refused(ctl, *words):
    with pytest.raises(ProgramError) as refusal:
        ctl(*words)
    return refusal.value


def test_a_command_ends_when_the_key_of_its_lock_is_deleted(agent, engine):
    command = runs(agent, "locks-deleted")

    engine.delete("locks-deleted/", "--prefix")

    assert command.wait() == 123
    assert command.log_text() == ("tenurectl: the key of the lock 'locks-deleted' was deleted; "
                                  "killing the command.\n")


def test_a_command_ends_when_the_key_of_its_lock_is_deleted_while_no_core_is_reached(
        agent, cluster, proxy):
    command = runs(agent, "locks-away", f"--endpoints={proxy.endpoints}")

    proxy.kill()
    cluster.delete("locks-away/", "--prefix")
    now = cluster.put("locks-later", "")
    cluster.etcdctl("compact", str(now))  # the deletion is in no watch any more
    proxy.start()

    assert command.wait() == 123
    assert "the key of the lock 'locks-away' was deleted" in command.log_text()


def test_the_name_of_a_lock_cannot_control_the_terminal(agent, shared_cluster):
    command = runs(agent, "locks-\x1b[2J")

    shared_cluster.delete("locks-\x1b[2J/", "--prefix")

    assert command.wait() == 123
    assert command.log_text() == (r"tenurectl: the key of the lock 'locks-\x1b[2J' was deleted; "
                                  "killing the command.\n")


@pytest.mark.parametrize("name, problem", [
    ("", "has 1 to 900 bytes"),
    ("a" * 901, "has 1 to 900 bytes"),
    ("/tenure/default/nodes", "does not begin with /tenure/, where nodes and services are"),
    ("db/main", "has no slash: locks of names such as db and db/main would wait for each other"),
])
def test_a_name_that_no_lock_can_have_is_refused(agent, name, problem):
    refusal = refused(agent.ctl, "lock", name, "--", "true")

    assert refusal.status == 125
    assert refusal.err == f"tenurectl: the name of a lock {problem}; '{name}' is not one.\n"


def test_options_behind_the_command_are_the_commands(agent):
    assert agent.ctl("lock", "locks-options", "--wait=60s", "echo", "--once", "--json=short",
                     "--version") == "--once --json=short --version\n"


def test_a_switchover_leaves_the_keys_of_other_locks_alone(agents, shared_cluster):
    holder, other, target = agents("h1"), agents("h2"), agents("h3")
    held = runs(holder, "locks-db")
    key, lease = f"locks-db/main/{other.status().lease_id:x}", other.status().lease_id
    shared_cluster.put(key, "", lease=lease)
    waits = target.background("lock", "locks-db", "--", "true")
    eventually(lambda: len(shared_cluster.range("locks-db/")) == 3)

    refusal = refused(holder.ctl, "switchover", "locks-db", "h3")
    assert refusal.status == 2
    assert f"The key {key} is in the line for the lock 'locks-db'" in refusal.err
    assert shared_cluster.delete(key) == 1

    holder.ctl("switchover", "locks-db", "h3")
    assert held.wait() == 123 and waits.wait() == 0


@other_user
def test_a_program_that_may_not_use_the_place_hears_that_it_gets_no_lock(agent, program):
    asked = program.python(f"""
import os, tenure
os.setuid({NOBODY})
with tenure.Tie(hold="agent") as tie:
    tie.held()
    lock = tie.lock_begin("locks-refused")
    while (event := tie.wait()).lock is not lock:
        pass
    print(event.type.name, event.reason)
""", **agent.bus.environment_for_clients)

    assert asked.wait() == 0
    assert asked.lines() == ["UNLOCKED the agent gives this program no turn for locks: only root "
                             "may do this where polkit does not run"]


def test_a_turn_lasts_when_the_agent_is_restarted(agent):
    command = runs(agent, "locks-restart")
    agent.kill()
    agent.start()
    eventually(agent.holds)

    refusal = refused(agent.ctl, "unlock", "locks-restart")

    assert refusal.status == 124
    assert "a command on this host has the lock 'locks-restart'" in refusal.err
    assert command.is_running
    command.kill()


def test_one_command_of_a_host_has_a_lock_at_a_time(agent):
    command = runs(agent, "locks-one")

    refusal = refused(agent.ctl, "lock", "--wait=1ms", "locks-one", "--", "true")

    assert refusal.status == 124
    assert refusal.err == "tenurectl: somebody else has the lock 'locks-one'.\n"
    assert command.is_running
    command.kill()


def test_who_waits_for_a_turn_hears_at_once_that_it_is_free(agent):
    first = runs(agent, "locks-turn")
    second = agent.background("lock", "locks-turn", "--", "echo", "next")
    third = agent.background("lock", "locks-turn", "--", "echo", "last")

    first.kill()

    assert second.wait() == third.wait() == 0
    assert second.lines() == ["next"] and third.lines() == ["last"]


def test_a_command_can_keep_no_turn_but_those_that_share_its_file(agent):
    command = agent.background(
        "lock", "locks-mine", "--", "/usr/bin/python3", "-c", """
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

    assert agent.ctl("lock", "locks-other", "--", "echo", "runs") == "runs\n"
    command.kill()


def test_a_command_gets_the_place_of_its_lock_in_the_order_and_its_status_comes_through(agent):
    said = agent.ctl("lock", "locks-env", "--", "sh", "-c",
                     'echo "$TENURE_LOCK_KEY $TENURE_LOCK_REVISION"')

    assert re.fullmatch(r"locks-env/[0-9a-f]+ [1-9]\d*\n", said)
    assert agent.refusal("lock", "locks-env", "--", "sh", "-c", "exit 7")[1] == 7


def test_a_command_that_cannot_be_run_gives_its_lock_back(agent, shared_cluster):
    sentence, status = agent.refusal("lock", "locks-none", "--", "/nonexistent")

    assert (sentence, status) == ("cannot run /nonexistent: No such file or directory.", 127)
    assert shared_cluster.range("locks-none/") == []


def test_tenurectl_ends_by_the_signal_that_ended_its_command(agent):
    command = agent.background("lock", "locks-signal", "--", "sh", "-c", "kill -TERM $$")
    command.expect_death_by(signal.SIGTERM)

    assert command.wait() == -signal.SIGTERM


def test_sigterm_ends_the_command_and_gives_the_lock_back(agent, shared_cluster):
    command = runs(agent, "locks-term")

    assert command.stop() == -signal.SIGTERM

    assert shared_cluster.range("locks-term/") == []


def test_a_lock_that_etcdctl_has_is_waited_for(agent, engine, tmp_path):
    os.mkfifo(tmp_path / "ends")
    other = Daemon(tmp_path / "etcdctl.log", "etcdctl", "--endpoints", engine.endpoints, "lock",
                   "locks-etcdctl", "--", "sh", "-c", f"read line <{tmp_path}/ends").start()
    eventually(lambda: engine.range("locks-etcdctl/"))
    assert agent.refusal("--wait=1ms", "lock", "locks-etcdctl", "--", "echo", "mine")[1] == 124
    waits = agent.background("lock", "locks-etcdctl", "--", "echo", "mine")
    eventually(lambda: len(engine.range("locks-etcdctl/")) == 2)
    assert waits.lines() == []

    (tmp_path / "ends").write_text("\n")

    assert other.wait() == 0
    assert waits.wait() == 0
    assert waits.lines() == ["mine"]


def test_who_is_ended_while_it_waits_leaves_nothing_behind(agents, shared_cluster):
    runs(agents("h1"), "locks-left")
    waits = agents("h2").background("lock", "locks-left", "--", "true")
    eventually(lambda: len(shared_cluster.range("locks-left/")) == 2)

    assert waits.stop() == -signal.SIGTERM

    assert len(shared_cluster.range("locks-left/")) == 1


def test_a_lock_whose_tenurectl_was_killed_stays_until_it_is_given_back(agents, shared_cluster):
    agent = agents("h1")
    command = runs(agent, "locks-killed")
    next_one = agents("h2").background("lock", "locks-killed", "--", "echo", "next")
    eventually(lambda: len(shared_cluster.range("locks-killed/")) == 2)

    command.kill()
    eventually(lambda: agent.ctl("unlock", "locks-killed") == "")  # once its command is dead

    assert next_one.wait() == 0
    assert next_one.lines() == ["next"]
