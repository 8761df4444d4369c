"""Locks by the command line."""
import pytest

from harness.waiting import ProgramError, eventually


def runs(agent, lock):
    """A command that runs with the lock."""
    command = agent.background("lock", lock, "--", "sh", "-c", "echo runs; exec sleep 3600 #")
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
