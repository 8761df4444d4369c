"""`tenurectl put`: the core applies the write only while the host holds its place, or a lock."""
import base64
import json
import os
import signal

import pytest

from harness.agent import Agent
from harness.duty import children
from harness.places import BIN
from harness.program import run
from harness.users import guard
from harness.waiting import eventually


class LatePut:
    """Its guard is settled, and it waits for its value. @around: the words before it."""

    def __init__(self, agent, key, *guard, around=()):
        fifo = agent.folder / "value"
        os.mkfifo(fifo)
        self.put = agent.background(*around, "put", key, f"--file={fifo}", *guard)
        self._pipe = eventually(lambda: self._opened(fifo))

    def _opened(self, fifo):
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # ENXIO: nobody reads, which put does when its guard is settled
            return None

    def gets_its_value(self):
        os.write(self._pipe, b"late")
        os.close(self._pipe)

    def goes_on(self):
        """Its exit status, and what it said."""
        self.gets_its_value()
        return self.put.wait(), self.put.log_text()


# ---- what it takes ----

def test_a_key_is_written_while_the_place_is_held_and_the_revision_printed(agent, engine, prefix):
    said = agent.ctl("put", prefix + "k", "one", "--while-held")

    written = engine.get(prefix + "k")
    assert written.value == "one"
    assert said == f"Wrote '{written.key}' at revision {written.mod_revision}.\n"
    said = json.loads(agent.ctl("--json=short", "put", prefix + "k", "", "--while-held"))
    written = engine.get(prefix + "k")
    assert (said, written.value) == ({"key": written.key, "revision": written.mod_revision}, "")


def test_json_can_be_read_whatever_the_key_is(agent, shared_cluster, prefix):
    said = agent.ctl("--json=short", "put", os.fsdecode(b"\xff\x1b") + prefix, "x", "--while-held")
    assert json.loads(said)["key"] == r"\xff\x1b" + prefix


@pytest.mark.parametrize("source", ["a file", "standard input"])
def test_a_value_is_written_byte_by_byte(agent, shared_cluster, prefix, tmp_path, source):
    value = bytes(range(256)) * 400
    (tmp_path / "value").write_bytes(value)
    words = [f"--file={tmp_path}/value"] if source == "a file" else ["-"]

    run("sh", "-c", 'exec "$@" <"$0"', tmp_path / "value", BIN / "tenurectl",
        f"--bus={agent.bus.address}", "put", prefix + "k", *words, "--while-held")

    kv, = json.loads(shared_cluster.etcdctl("get", prefix + "k", "--write-out=json"))["kvs"]
    assert base64.b64decode(kv["value"]) == value


@pytest.mark.parametrize("words, environment, said", [
    (["k", "x"], {}, "put needs --while-held or --lock=NAME"),
    (["k", "x", "--file=/dev/null", "--while-held"], {}, "put needs KEY VALUE"),
    (["k", "--file=/none", "--while-held"], {}, "cannot read the value from /none: No such file"),
    (["k", "x", "--lock=" + "x" * 901], {}, "the name of a lock has 1 to 900 bytes"),
    (["k", "x", "--while-held"], {"TENURE_LOCK_KEY": "job"}, "$TENURE_LOCK_KEY is not NAME/LEASE"),
    (["k", "x", "--lock=job"], {"TENURE_LOCKS": "job"}, "$TENURE_LOCKS is not as tenurectl lock"),
    (["k", "x", "--lock=job"], {"TENURE_LOCK_KEY": "job/1", "TENURE_TOKEN": "x"},
     "$TENURE_TOKEN is not the token of $TENURE_LOCK_KEY"),
    (["k", "x", "--while-held", "--bus=unix:abstract=tenure-tests-have-none"], {},
     "cannot reach the bus at unix:abstract=tenure-tests-have-none: Connection refused.")])
def test_a_write_that_is_not_well_guarded_is_refused(agent, words, environment, said):
    sentence, status = agent.refusal("put", *words, **environment)
    assert status == 1 and said in sentence


# ---- with a lock ----

def test_a_host_writes_with_the_lock_that_it_has_and_with_no_other(agents, engine, prefix, duty):
    agent, other = agents("h1"), agents("h2")
    put = "put", prefix + "k", "x", f"--lock={duty.lock}"
    assert agent.refusal(*put) == (
        f"the lock '{duty.lock}' is held by nobody; nothing was written.", 124)
    duty.begin(other)
    sentence, status = agent.refusal(*put)
    assert status == 124 and f"the lock '{duty.lock}' is held by h2 since 2" in sentence
    assert engine.get(prefix + "k") is None

    other.ctl(*put)  # from outside of the command

    assert engine.get(prefix + "k").value == "x"


def test_the_token_of_a_lock_is_the_revision_in_which_its_key_was_created(
        agent, engine, duty, tmp_path):
    said = agent.ctl("lock", duty.lock, "--", "sh", "-c", 'echo "$TENURE_LOCK_KEY" '
                     '"$TENURE_TOKEN" "$TENURE_LOCK_REVISION"; exec etcdctl "$@"', "sh",
                     "--endpoints", engine.endpoints, "get", duty.lock, "--prefix", "-w", "json")

    first, answer = said.splitlines()
    kv, = json.loads(answer)["kvs"]
    assert first.split() == [base64.b64decode(kv["key"]).decode(),
                             *2 * [str(kv["create_revision"])]]


@pytest.mark.parametrize("around, within", [("lock", "work"), ("work", "lock"), ("outer", "lock")])
def test_a_task_or_a_lock_around_a_command_does_not_change_the_token_of_its_lock(
        agent, engine, prefix, duty, around, within):
    ctl = BIN / "tenurectl", f"--bus={agent.bus.address}"
    runs = {"lock": [*ctl, "lock", duty.lock, "--"], "outer": [*ctl, "lock", duty.lock + "o", "--"],
            "work": [*ctl, "work", "g", "--tasks=1", "--name=x", "--ttl=30s", "--"]}
    command = agent.background(*runs[around][2:], *runs[within], "sh", "-c",
                               '"$@" && echo "$TENURE_TASK"; exec sleep 36000', "sh", *ctl, "put",
                               prefix + "k", "inside", f"--lock={duty.lock}")

    eventually(lambda: len(command.lines()) == 2)

    assert command.lines()[1:] == ["1" if "work" in (around, within) else ""]
    assert engine.get(prefix + "k").value == "inside"
    command.kill()


@pytest.fixture
def left_behind(agent, duty):
    """The environment of a process that a command with a lock inside of another lock has left."""
    ctl = BIN / "tenurectl", f"--bus={agent.bus.address}"
    said = agent.ctl("lock", duty.lock + ".1", "--", *ctl, "lock", duty.lock, "--", "env")
    return dict(line.split("=", 1) for line in said.splitlines() if line.startswith("TENURE_"))


def test_a_command_knows_the_keys_and_tokens_of_all_its_locks(left_behind, duty):
    inner, outer = (each.split(":") for each in left_behind["TENURE_LOCKS"].split(",")[:2])

    for (_, length, key), lock in (inner, duty.lock), (outer, duty.lock + ".1"):
        assert (int(length), key.rsplit("/", 1)[0]) == (len(key), lock)
    assert int(outer[0]) < int(inner[0])


def test_a_process_that_a_command_has_left_behind_has_neither_of_its_locks(
        agent, engine, prefix, duty, left_behind):
    put = "put", prefix + "k", "x"
    agent.background("lock", duty.lock + ".1", "--", "sleep", "36000")  # another command's by now
    eventually(lambda: engine.range(duty.lock + ".1/"))
    for lock in duty.lock, duty.lock + ".1":
        assert agent.refusal(*put, f"--lock={lock}", **left_behind) == (
            f"the lock '{lock}' was given back or lost since; nothing was written.", 124)
    sentence, status = agent.refusal(*put, "--lock=other", **left_behind)  # is looked up
    assert status == 124 and "the lock 'other' is held by nobody" in sentence
    agent.ctl(*put, "--while-held", **left_behind)  # the place is the same
    assert engine.get(prefix + "k").version == 1


def test_a_process_that_was_left_behind_has_no_part_in_the_next_place(
        agent, engine, prefix, left_behind):
    renew_place(agent, engine)
    sentence, status = agent.refusal("put", prefix + "k", "x", "--while-held", **left_behind)
    assert status == 123
    assert "the place with which the lock was taken has ended; nothing was written" in sentence


# ---- too late ----

def renew_place(agent, engine):
    """Returns the lease that has ended."""
    lease = agent.status().lease_id
    engine.revoke(lease)
    eventually(lambda: agent.holds_another(lease))
    return lease


def test_a_write_is_in_time_however_long_its_value_takes(agent, engine, prefix):
    status, said = LatePut(agent, prefix + "k", "--while-held").goes_on()
    assert (status, said, engine.get(prefix + "k").value) == (0, "", "late")


def test_a_write_is_refused_if_the_host_holds_another_place_by_now(agent, engine, prefix):
    put = LatePut(agent, prefix + "k", "--while-held")
    lease = renew_place(agent, engine)
    assert put.goes_on() == (123, f"tenurectl: the core refused the write, because the lease "
                             f"{lease:016x} of this host's place has ended; nothing was written.\n")
    assert engine.get(prefix + "k") is None


def test_a_write_is_refused_if_the_command_has_the_lock_again_with_another_token(
        agent, engine, prefix, duty):
    first = duty.begin(agent)
    put = LatePut(agent, prefix + "k", f"--lock={duty.lock}")
    engine.delete(f"{duty.lock}/", "--prefix")
    assert first.wait() == 123
    duty.begin(agent)

    assert put.goes_on() == (124, f"tenurectl: the lock '{duty.lock}' was given back or lost "
                                  "since; nothing was written.\n")
    assert engine.get(prefix + "k") is None


def test_a_script_that_was_frozen_with_its_host_cannot_write_over_the_next_holder(
        agents, engine, prefix, duty):
    agent, other = agents("h1", TTL="3s"), agents("h2")
    late = LatePut(agent, prefix + "k", f"--lock={duty.lock}", "--json=off", around=[
        "lock", duty.lock, "--", BIN / "tenurectl", f"--bus={agent.bus.address}"])
    script = late.put
    keeper, = children(script.pid)
    frozen = [agent.pid, script.pid, keeper, *children(keeper)]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    put = "put", prefix + "k", "next", f"--lock={duty.lock}"
    other.ctl("lock", duty.lock, "--", BIN / "tenurectl", f"--bus={other.bus.address}", *put)

    late.gets_its_value()
    for pid in frozen[3:]:  # what would have killed it goes on last
        os.kill(pid, signal.SIGCONT)
    agent.thaw()
    eventually(lambda: "the core refused the write, because the lease" in script.log_text())
    os.kill(keeper, signal.SIGCONT)
    script.thaw()

    assert script.wait() == 123
    assert engine.get(prefix + "k").value == "next"


def test_a_write_whose_answer_is_lost_may_have_been_written(agent, shared_cluster, prefix, proxy):
    proxy.hold_answers()
    put = agent.background("put", prefix + "k", "x", f"--endpoints={proxy.endpoints}",
                           "--while-held")
    eventually(lambda: shared_cluster.get(prefix + "k"))

    proxy.kill()

    assert put.wait() == 1
    assert f"'{prefix}k' may or may not have been written; read it" in put.log_text()


# ---- users ----

def test_a_password_is_read_once_for_all_that_a_write_asks(new_cluster, tmp_path):
    core, password = new_cluster(1), tmp_path / "password"
    password.write_text("root\n")
    user, core = ["--user=root", f"--password-file={password}"], guard(core)
    agent = Agent(tmp_path, core, User="root", PasswordFile=password)
    holder = agent.background(*user, "lock", "job", "--", "sleep", "36000")
    eventually(lambda: core.range("job/"))

    run("bash", "-c", '"$0" "$@" --password-file=<(echo root)', BIN / "tenurectl",
        f"--bus={agent.bus.address}", "put", "k", "x", "--lock=job", "--user=root")

    assert core.get("k").value == "x"
    holder.kill()
