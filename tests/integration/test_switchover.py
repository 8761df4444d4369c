"""`tenurectl switchover`, and libtenure's: who is named has the lock next, nobody gets in between,
no two act at once, and what does not work changes nothing."""
import json
import re
import signal

import pytest

from harness.duty import Duty
from harness.places import BIN
from harness.program import Daemon, run
from harness.waiting import ProgramError, eventually, eventually_is


class Line:
    """Hosts who have come for the lock in the order of their names; the first runs its command,
    and the others wait. A host is an index: line[1]."""

    def __init__(self, agents, duty, hows, **settings):
        self.duty, self.core, self.lock = duty, duty.core, duty.lock
        self.hosts, self.holders = [], []
        for n, how in enumerate(hows, 1):
            self.hosts.append(agents(f"h{n}", **settings))
            join = duty.wait if self.holders else duty.begin
            self.holders.append(join(self.hosts[-1], how))

    def __getitem__(self, n):
        return self.holders[n]

    def ask(self, *words, by=-1):
        """What tenurectl switchover prints."""
        return self.hosts[by].ctl("switchover", self.lock, *words)

    def refusal(self, *words):
        with pytest.raises(ProgramError) as refusal:
            self.ask(*words)
        return refusal.value

    def begin(self, *words):
        return self.hosts[-1].background("switchover", self.lock, *words)

    def request(self):
        return self.core.get(f"{self.lock}.switchover")

    def keys(self):
        return [(kv.key, kv.create_revision) for kv in self.core.range(self.lock)]


@pytest.fixture
def line(agents, duty):
    """line("", "slow") makes two hosts; see Duty.wait()."""
    return lambda *hows, **settings: Line(agents, duty, hows, **settings)


# ---- who is next ----

def test_the_host_that_is_named_has_the_lock_next_and_the_one_before_it_waits_again(engine, line):
    at = line("", "", "")

    said = at.ask("h3")

    assert re.fullmatch(rf"h1 held '{at.lock}' and stopped within [0-9.]+ ms; h3 has it [0-9.]+ ms "
                        r"later \(token [0-9]+\)\.\n", said)
    assert at[0].wait() == 123 and at[0].has_been_told()
    assert "to be handed over to h3; ending the command" in at[0].log_text()
    assert "was handed over to h3" in at[0].log_text()
    assert eventually(lambda: at[2].tokens)[0] > at[0].tokens[0]
    third = f"{at.lock}/{at.hosts[2].status().lease_id:x}"
    eventually(lambda: len(at.duty.line()) == 2)
    assert at.duty.line()[0] == third and at[1].tokens == []
    assert at.request() is None


def test_without_a_name_the_first_that_waits_has_the_lock_next(line):
    at = line("", "", "")

    said = json.loads(at.ask("--json=short"))

    assert at[0].wait() == 123
    assert (said["lock"], said["from"], said["to"]) == (at.lock, "h1", "h2")
    assert said["stop_usec"] >= 0 and said["pause_usec"] >= 0
    assert eventually(lambda: at[1].tokens) == [said["token"]]
    assert at[2].tokens == []


def test_a_switchover_to_the_holder_is_done_already(line):
    at = line("")

    assert at.ask("h1") == f"h1 holds the lock '{at.lock}' already.\n"
    assert at[0].is_running and not at[0].has_been_told()


def test_no_two_hosts_act_at_once_however_often_the_lock_is_handed_over(engine, line):
    at = line("", "", "")
    tokens = []

    for turn in range(12):
        holder, target = turn % 3, (turn + 1) % 3
        at.ask(f"h{target + 1}")
        assert at[holder].wait() == 123
        tokens += eventually(lambda: at[target].tokens)  # fails if another command still runs
        at.holders[holder] = at.duty.wait(at.hosts[holder])

    assert tokens == sorted(set(tokens))


# ---- what is refused ----

@pytest.mark.parametrize("words, status, said", [
    (["h1"], 2, "Nobody holds the lock"), (["h9"], 2, "Nobody holds the lock"),
    (["h1", "--wait=0"], 1, "1 ms to a day"), (["h1", "h2"], 1, "switchover needs NAME [NODE]")])
def test_a_lock_that_nobody_holds_cannot_be_handed_over(agent, duty, words, status, said):
    with pytest.raises(ProgramError) as refusal:
        agent.ctl("switchover", duty.lock, *words)

    assert refusal.value.status == status and said in refusal.value.err
    assert duty.line() == []


@pytest.mark.parametrize("words, said", [
    ([], "Nobody waits for the lock"), (["h2"], "h2 does not wait for the lock"),
    (["h9"], "No node and no session is named 'h9'")])
def test_only_who_waits_can_be_next(line, agents, words, said):
    at = line("")
    agents("h2")
    eventually(lambda: len(at.hosts[0].nodes()) == 2)
    before = at.keys()

    refusal = at.refusal(*words)

    assert refusal.status == 2 and said in refusal.err
    assert at.keys() == before and not at[0].has_been_told()


def test_a_program_of_etcd_that_waits_before_the_target_is_not_passed_over(line):
    at = line("")
    at.core.put(f"{at.lock}/1", "")  # as etcdctl waits; it would not notice
    at.hosts.append(at.hosts[0])
    before = at.keys()

    refusal = at.refusal()

    assert refusal.status == 2
    assert at.keys() == before


def test_a_program_of_etcd_that_holds_a_lock_cannot_be_asked_for_it(agent, shared_cluster, duty):
    shared_cluster.put(f"{duty.lock}/1", "")
    duty.wait(agent)

    with pytest.raises(ProgramError) as refusal:
        agent.ctl("switchover", duty.lock, "h1")

    assert refusal.value.status == 2
    assert "held by a program that cannot be asked" in refusal.value.err


def test_a_second_switchover_is_refused_and_the_request_goes_with_who_has_asked(line):
    at = line("", "")
    at[0].freeze()  # it does not answer
    first = at.begin("h2", "--wait=60s")
    eventually(at.request)

    refusal = at.refusal("h2")
    assert refusal.status == 2
    assert re.search(r"A switchover of '.*' to h2 is under way, which \S+ asked for", refusal.err)

    first.kill()
    eventually_is(None, at.request)
    at[0].thaw()
    assert not at[0].has_been_told() and at[1].tokens == []


def test_a_holder_that_does_not_answer_keeps_the_lock(line):
    at = line("", "")
    before = at.keys()
    at[0].freeze()

    refusal = at.refusal("h2", "--wait=1s")

    assert refusal.status == 1
    assert f"h1 holds the lock '{at.lock}' and does not answer" in refusal.err
    assert at.keys() == before
    at[0].thaw()


# ---- what fails on the way ----

def test_the_holder_goes_on_if_the_target_goes_while_the_command_stops(engine, line):
    at = line("slow", "", "")
    asked = at.begin("h3")
    eventually(at[0].has_been_told)

    at[2].signal(signal.SIGTERM)
    assert at[2].wait() == -signal.SIGTERM
    at.duty.let_end()

    assert asked.wait() == 2
    assert f"h3 no longer waits; the lock '{at.lock}' stays with h1" in asked.log_text()
    eventually(lambda: len(at[0].tokens) == 2)  # its command runs again
    assert at[0].tokens[0] == at[0].tokens[1] and at[1].tokens == []
    assert "it stays here" in at[0].log_text()


def test_a_command_that_does_not_stop_is_killed_when_its_time_is_over(line):
    at = line("deaf", "")

    said = json.loads(at.ask("h2", "--wait=1s", "--json=short"))

    assert said["stop_usec"] >= 1_000_000  # it had its time
    assert eventually(lambda: at[1].tokens) == [said["token"]]
    assert at[0].wait() == 123


def test_the_target_and_not_the_next_in_line_gets_the_lock_of_a_frozen_host(engine, line, agents):
    at = line("deaf", "", "", TTL="5s")
    at.hosts[0].freeze()
    at[0].freeze()  # the keeper goes on, and ends the command before the place ends

    said = json.loads(at.ask("h3", "--json=short"))

    assert said["to"] == "h3"
    assert eventually(lambda: at[2].tokens)[0] == said["token"] and at[1].tokens == []
    at.hosts[0].thaw()
    at[0].thaw()
    assert at[0].wait() == 123


def test_a_switchover_goes_on_when_the_leader_of_the_core_is_killed(cluster, line):
    at = line("slow", "")
    asked = at.begin("h2", "--wait=60s")
    eventually(at[0].has_been_told)

    cluster.leader().kill()
    at.duty.let_end()

    assert asked.wait() == 0 and at[0].wait() == 123
    assert eventually(lambda: at[1].tokens)[0] > at[0].tokens[0]


def replica_of(agent, cluster):
    endpoint = eventually(lambda: agent.status().core_endpoint)
    return next(r for r in cluster.replicas.values() if r.client_url == endpoint)


def test_who_waits_and_who_holds_outlives_the_replica_that_it_has_asked(cluster, line):
    at = line("", "")
    first = replica_of(at.hosts[1], cluster)
    first.kill()
    eventually(lambda: replica_of(at.hosts[1], cluster) is not first)

    at[0].signal(signal.SIGTERM)

    eventually(lambda: at[1].tokens)
    first.start()
    eventually(lambda: cluster.put("again", "", at=first))
    second = replica_of(at.hosts[1], cluster)
    second.kill()
    eventually(lambda: replica_of(at.hosts[1], cluster) is not second)
    at[1].signal(signal.SIGTERM)
    assert at[0].wait() == at[1].wait() == 5
    assert at.duty.line() == []  # it was given back


def test_a_line_outlives_a_power_failure_of_the_whole_core(cluster, line):
    at = line("", "")

    for replica in cluster.replicas.values():
        replica.kill()
    for replica in cluster.replicas.values():
        replica.start()
    eventually(lambda: cluster.put("again", ""))

    at[0].signal(signal.SIGTERM)
    assert at[0].wait() == 5
    eventually(lambda: at[1].tokens)


# ---- libtenure ----

# Waits for a lock, and says what it hears. While it has the lock it has a file locked as well, and
# ends with an error if another one still has. Asked, it hands the lock over at once, or once
# somebody opens a pipe, or never: then it loses the lock at a deadline, which a program that locks
# files has to look at itself, so it locks none.
SESSION = """
import fcntl, os, sys, tenure
name, lock_name, path, when = sys.argv[1:]
alone, login = open(path, "a"), {"user": name, "password": name} if "USERS" in os.environ else {}
with tenure.Tie(hold=60, name=name, **login) as tie:
    lock = tie.lock_begin(lock_name, name)
    for event in tie:
        print(event.type.name, event.reason, flush=True)
        if event.type == tenure.Type.LOCKED:
            if when != "never":
                fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
            print("token", lock.token, flush=True)
            if when == "never":
                try:
                    lock.hand_over()
                except tenure.Error as error:
                    print(error, flush=True)
        if event.type == tenure.Type.ASKED and when == "never":
            print("earlier than the place:", lock.deadline < tie.deadline, flush=True)
        if event.type == tenure.Type.UNLOCKED:
            fcntl.flock(alone, fcntl.LOCK_UN)
        if event.type == tenure.Type.ASKED and when != "never":
            if when == "later":
                open(path + ".may-end").read()
            fcntl.flock(alone, fcntl.LOCK_UN)
            try:
                lock.hand_over()
            except tenure.Error as error:
                print(error, flush=True)
"""


class Sessions:
    """Sessions that wait for the duty's lock. Their names begin with that of the lock."""

    def __init__(self, duty, program):
        self.duty, self.program, self.lock, self.joined = duty, program, duty.lock, {}

    def name(self, short):
        return f"{self.lock}.{short}"

    def join(self, short, when="at once", **environment):
        n = len(self.duty.line())
        self.joined[short] = self.program.python(
            SESSION, self.name(short), self.lock, self.duty.file, when,
            TENURE_ENDPOINTS=self.duty.core.endpoints, **environment)
        eventually(lambda: len(self.duty.line()) > n)
        return self.joined[short]

    def ask(self, to, *options, by=run):
        return by(BIN / "tenurectl", f"--endpoints={self.duty.core.endpoints}", "switchover",
                  "--json=short", *options, self.lock, self.name(to))

    def has(self, short):
        """The token, once it has had the lock."""
        return eventually(lambda: tokens(self.joined[short]))[-1]

    def hears(self, short, kind, reason=""):
        line = f"{kind} {reason}"
        eventually(lambda: [said for said in self.joined[short].lines() if said.startswith(line)])

    def line(self):
        """Who has the lock, and who waits."""
        values = {kv.key: kv.value for kv in self.duty.core.range(f"{self.lock}/")}
        return [values[key].removeprefix(self.lock + ".") for key in self.duty.line()]


def tokens(session):
    return [int(line.split()[1]) for line in session.lines() if line.startswith("token ")]


@pytest.fixture
def sessions(duty, program):
    return Sessions(duty, program)


def test_no_two_sessions_act_at_once_however_often_the_lock_is_handed_over(engine, sessions):
    for name in "abc":
        sessions.join(name)

    for target in "bcabcabca":
        had = len(tokens(sessions.joined[target]))
        said = json.loads(sessions.ask(target))
        eventually(lambda: len(tokens(sessions.joined[target])) > had)
        assert sessions.has(target) == said["token"]
        eventually(lambda: len(sessions.line()) == 3)  # who had it waits again


def test_a_session_holds_the_lock_until_it_has_handed_it_over_to_who_was_named(
        engine, sessions, program):
    for name in "abc":
        sessions.join(name, "later")
    first = sessions.has("a")
    asks = program.python("import sys, tenure\nwith tenure.Tie() as tie:\n"
                          "    s = tie.switchover(*sys.argv[1:])\n"
                          "    print(s.source, s.to, s.token)",
                          sessions.lock, sessions.name("c"), TENURE_ENDPOINTS=engine.endpoints)
    sessions.hears("a", "ASKED", sessions.name("c"))
    # Whoever was passed over waits behind it, at once.
    eventually_is(["a", "c", "b"], sessions.line)
    assert tokens(sessions.joined["c"]) == []

    sessions.duty.let_end()

    sessions.hears("a", "UNLOCKED", f"handed over to {sessions.name('c')}")
    assert sessions.has("c") > first and tokens(sessions.joined["b"]) == []
    assert asks.wait() == 0
    assert asks.lines() == [f"{sessions.name('a')} {sessions.name('c')} {sessions.has('c')}"]
    eventually_is(["c", "b", "a"], sessions.line)


def test_a_session_that_does_not_answer_loses_the_lock_when_its_time_is_over(engine, sessions):
    holder = sessions.join("a", "never")
    sessions.join("b")
    eventually(lambda: "nobody has asked for the lock" in holder.text())  # to be handed over yet

    said = json.loads(sessions.ask("b", "--wait=1s"))

    assert said["stop_usec"] >= 1_000_000
    assert "earlier than the place: True" in holder.lines()
    assert sessions.has("b") == said["token"]
    sessions.hears("a", "UNLOCKED", f"the time to hand it over to {sessions.name('b')} has passed")


def test_a_session_keeps_the_lock_and_its_token_if_the_target_dies(shared_cluster, sessions):
    sessions.join("a", "later")
    target = sessions.join("b")
    asked = sessions.ask("b", "--wait=60s", by=lambda *command: Daemon(
        target.log.with_name("asked.log"), *command).start())
    sessions.hears("a", "ASKED")

    target.kill()
    shared_cluster.delete(sessions.duty.line()[-1])
    assert asked.wait() == 2
    sessions.duty.let_end()

    eventually(lambda: len(tokens(sessions.joined["a"])) == 2)
    assert len(set(tokens(sessions.joined["a"]))) == 1


def test_a_program_hears_why_its_switchover_has_failed(shared_cluster, sessions, program):
    sessions.join("a")
    sessions.has("a")

    asks = program.python("import sys, tenure\nwith tenure.Tie() as tie:\n"
                          "    tie.switchover(sys.argv[1], 'nobody')",
                          sessions.lock, TENURE_ENDPOINTS=shared_cluster.endpoints)

    assert asks.wait() == 1
    assert "No node and no session is named 'nobody'" in asks.log_text()


def test_who_may_write_the_keys_of_the_lock_may_hand_it_over(
        new_cluster, tmp_path, program):
    core = new_cluster(1)
    sessions = Sessions(Duty(tmp_path, core, "duty"), program)
    for words in (
            ["user", "add", "root:root"], ["user", "grant-role", "root", "root"],
            ["role", "add", "r"],
            ["role", "grant-permission", "r", "--prefix=true", "readwrite", "/tenure/"],
            ["role", "grant-permission", "r", "--prefix=true", "readwrite", f"{sessions.lock}/"],
            ["role", "grant-permission", "r", "readwrite", f"{sessions.lock}.switchover"],
            *(["user", "add", f"{sessions.name(n)}:{sessions.name(n)}"] for n in "ab"),
            *(["user", "grant-role", sessions.name(n), "r"] for n in "ab"), ["auth", "enable"]):
        core.etcdctl(*words)
    sessions.duty.core = core.as_user("root", "root")
    for name in "ab":
        sessions.join(name, USERS="yes")
    sessions.has("a")

    said = json.loads(sessions.ask("b", f"--user={sessions.name('a')}:{sessions.name('a')}"))

    assert sessions.has("b") == said["token"]
