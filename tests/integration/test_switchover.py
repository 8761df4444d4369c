"""`tenurectl switchover`, and libtenure's: who is named has the lock next, nobody gets in between,
no two act at once, and what does not work changes nothing."""
import json
import re
import signal

import pytest

from harness.tie import TieError
from harness.users import guard
from harness.waiting import eventually, eventually_is


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

    def ask(self, *words):
        """What tenurectl switchover prints."""
        return self.hosts[-1].ctl("switchover", self.lock, *words)

    def refusal(self, *words):
        return self.hosts[-1].refusal("switchover", self.lock, *words)

    def begin(self, *words):
        return self.hosts[-1].background("switchover", self.lock, *words)

    def begin_for_one_who_goes(self):
        """While the first one's command stops for the last one, that one goes."""
        asked = self.begin(f"h{len(self.hosts)}")
        eventually(self[0].has_been_told)
        self[-1].signal(signal.SIGTERM)
        assert self[-1].wait() == -signal.SIGTERM
        return asked

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
    assert re.search("(?s)to be handed over to h3; ending the command.*was handed over to h3",
                     at[0].log_text())
    assert eventually(lambda: at[2].tokens)[0] > at[0].tokens[0]
    third = f"{at.lock}/{at.hosts[2].status().lease_id:x}"
    eventually(lambda: len(at.duty.line()) == 2)
    assert at.duty.line()[0] == third and at[1].tokens == []
    assert at.request() is None


def test_without_a_name_the_first_that_waits_has_the_lock_next(line):
    at = line("", "", "")
    assert at.ask("h1") == f"h1 holds the lock '{at.lock}' already.\n"
    assert not at[0].has_been_told()

    said = json.loads(at.ask("--json=short"))

    assert at[0].wait() == 123
    assert (said["lock"], said["from"], said["to"]) == (at.lock, "h1", "h2")
    assert said["stop_usec"] >= 0 and said["pause_usec"] >= 0
    assert eventually(lambda: at[1].tokens) == [said["token"]]
    assert at[2].tokens == []


def test_no_two_hosts_act_at_once_however_often_the_lock_is_handed_over(engine, line):
    at = line("", "", "")
    tokens = []

    for turn in range(6):
        holder, target = turn % 3, (turn + 1) % 3
        at.ask(f"h{target + 1}")
        assert at[holder].wait() == 123
        tokens += eventually(lambda: at[target].tokens)  # fails if another command still runs
        at.holders[holder] = at.duty.wait(at.hosts[holder])

    assert tokens == sorted(set(tokens))


# ---- what is refused ----

@pytest.mark.parametrize("words, status, said", [
    (["h1"], 2, "Nobody holds the lock"), (["h9"], 2, "Nobody holds the lock"),
    (["h1", "--wait=0"], 1, "1 ms to a day"), (["h1", "h2"], 1, "switchover does not take")])
def test_a_lock_that_nobody_holds_cannot_be_handed_over(agent, duty, words, status, said):
    sentence, failed_with = agent.refusal("switchover", duty.lock, *words)
    assert failed_with == status and said in sentence
    assert duty.line() == []


def test_only_who_waits_can_be_next(line, agents):
    at = line("")
    agents("h2")
    eventually(lambda: len(at.hosts[0].nodes()) == 2)
    before = at.keys()

    for words, said in (([], "Nobody waits for the lock"), (["h2"], "h2 does not wait for"),
                        (["h9"], "No node and no session is named 'h9'")):
        sentence, status = at.refusal(*words)
        assert status == 2 and said in sentence
    assert at.keys() == before and not at[0].has_been_told()


def test_a_program_of_etcd_that_waits_before_the_target_is_not_passed_over(line):
    at = line("")
    at.duty.occupy()  # as etcdctl waits; it would not notice
    before = at.keys()

    assert at.refusal()[1] == 2 and at.keys() == before


def test_a_program_of_etcd_that_holds_a_lock_cannot_be_asked_for_it(agent, duty):
    duty.occupy()
    duty.wait(agent)
    sentence, status = agent.refusal("switchover", duty.lock, "h1")
    assert status == 2 and "held by a program that cannot be asked" in sentence


def test_a_second_switchover_is_refused_and_a_holder_that_does_not_answer_keeps_the_lock(line):
    at = line("", "")
    before = at.keys()
    at[0].freeze()
    first = at.begin("h2", "--wait=60s")
    eventually(at.request)

    sentence, status = at.refusal("h2")
    assert status == 2
    assert re.search(r"A switchover of '.*' to h2 is under way, which \S+ asked for", sentence)

    first.kill()
    eventually_is(None, at.request)  # it goes with who has asked
    sentence, status = at.refusal("h2", "--wait=1s")
    assert status == 1 and f"h1 holds the lock '{at.lock}' and does not answer" in sentence
    at[0].thaw()
    assert at.keys() == before and not at[0].has_been_told() and at[1].tokens == []


# ---- what fails on the way ----

def test_the_holder_continues_if_the_target_goes_while_the_command_stops(engine, line):
    at = line("slow", "", "")
    asked = at.begin_for_one_who_goes()
    at.duty.let_end()

    assert asked.wait() == 2
    assert f"h3 no longer waits; the lock '{at.lock}' stays with h1" in asked.log_text()
    eventually(lambda: len(at[0].tokens) == 2)  # its command runs again
    assert at[0].tokens[0] == at[0].tokens[1] and at[1].tokens == []
    assert "it stays here" in at[0].log_text()


def test_a_request_whose_target_has_gone_stops_the_command_once(engine, line):
    at = line("slow", "", "")
    asked = at.begin("h3")
    eventually(at[0].has_been_told)

    asked.kill()  # so that its request stays for as long as its lease does
    at[2].signal(signal.SIGTERM)
    assert at[2].wait() == -signal.SIGTERM
    at.duty.let_end()

    eventually(lambda: len(at[0].tokens) == 2)
    eventually_is(None, at.request)
    assert at[0].log_text().count("ending the command") == 1 and len(at[0].tokens) == 2


def test_the_next_may_be_asked_for_while_the_command_stops_for_a_target_that_has_gone(line):
    at = line("slow", "", "")
    assert at.begin_for_one_who_goes().wait() == 2
    eventually(lambda: len(at.duty.line()) == 2)  # h2 was passed over, and waits again

    second = at.begin("h2")
    eventually(at.request)
    at.duty.let_end()

    assert second.wait() == 0 and at[0].wait() == 123
    assert eventually(lambda: at[1].tokens)[0] > at[0].tokens[0]


def test_a_holder_that_continues_and_loses_its_key_at_once_runs_nothing(engine, line):
    at = line("slow", "")  # nobody waits: a deleted key would let that one begin at once
    asked = at.begin_for_one_who_goes()
    at.duty.let_end()

    eventually(lambda: "it stays here" in at[0].log_text())
    at.core.delete(at.duty.line()[0])

    assert at[0].wait() == 123 and asked.wait() == 2
    at.duty.ends()  # of its command nothing is left


def test_a_command_that_does_not_stop_is_killed_when_its_time_is_over(line):
    at = line("deaf", "")
    said = json.loads(at.ask("h2", "--wait=1s", "--json=short"))
    assert said["stop_usec"] >= 1_000_000  # it had its time
    assert eventually(lambda: at[1].tokens) == [said["token"]]
    assert at[0].wait() == 123


def test_the_target_and_not_the_next_in_line_gets_the_lock_of_a_frozen_host(engine, line):
    at = line("deaf", "", "", TTL="5s")
    at.hosts[0].freeze()
    at[0].freeze()  # the keeper goes on, and ends the command before the place ends

    said = json.loads(at.ask("h3", "--json=short"))

    assert said["to"] == "h3"
    assert eventually(lambda: at[2].tokens)[0] == said["token"] and at[1].tokens == []
    at.hosts[0].thaw()
    at[0].thaw()
    assert at[0].wait() == 123


def test_a_switchover_continues_when_the_leader_of_the_core_is_killed(cluster, line):
    at = line("slow", "")
    asked = at.begin("h2", "--wait=60s")
    eventually(at[0].has_been_told)

    cluster.leader().kill()
    at.duty.let_end()

    assert asked.wait() == 0 and at[0].wait() == 123
    assert eventually(lambda: at[1].tokens)[0] > at[0].tokens[0]


def test_who_waits_and_who_holds_outlives_the_replica_that_it_has_asked(cluster, line):
    at = line("", "")

    def kill_its_replica():
        used = eventually(lambda: at.hosts[1].status().core_endpoint)
        replica = next(r for r in cluster.running if r.client_url == used)
        replica.kill()
        eventually(lambda: at.hosts[1].status().core_endpoint not in ("", used))
        return replica

    first = kill_its_replica()
    at[0].signal(signal.SIGTERM)
    eventually(lambda: at[1].tokens)
    first.start()
    eventually(lambda: cluster.put("again", "", at=first))

    kill_its_replica()
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

@pytest.fixture
def sessions(ties, duty):
    """sessions("a", "b"): ties of these names, who have come for the lock in this order. The first
    one has it. Each knows the lock as .mine."""
    def come(*names, login=False):
        came = []
        for name in names:
            full = f"{duty.lock}.{name}"
            user = dict(user=full, password=full) if login else {}
            came.append(ties(hold=60, name=full, **user))
            came[-1].mine = came[-1].lock_begin(duty.lock, name)
            eventually(lambda: len(duty.line()) == len(came))
        came[0].hears("LOCKED")
        return came

    return come


def names_in(line):
    """Who has the lock, and who waits."""
    values = {kv.key: kv.value for kv in line.core.range(f"{line.lock}/")}
    return [values.get(key) for key in line.line()]


def test_a_session_holds_the_lock_until_it_has_handed_it_over_to_who_was_named(
        engine, sessions, ties, duty):
    a, b, c = sessions("a", "b", "c")
    first = a.mine.token()
    answer = ties().begin("switchover", duty.lock, f"{duty.lock}.c")
    assert a.hears("ASKED").reason == f"{duty.lock}.c"
    # Whoever was passed over waits behind it, at once.
    eventually_is(["a", "c", "b"], lambda: names_in(duty))
    assert not c.mine.held()

    a.mine.hand_over()

    assert a.hears("UNLOCKED").reason == f"handed over to {duty.lock}.c"
    c.hears("LOCKED")
    assert c.mine.token() > first and not b.mine.held()
    said = answer()
    assert (said.source, said.to, said.token) == (
        f"{duty.lock}.a", f"{duty.lock}.c", c.mine.token())
    eventually_is(["c", "b", "a"], lambda: names_in(duty))


def test_a_session_never_has_the_lock_before_it_was_handed_over_however_often_that_is(
        engine, sessions, ties, duty):
    line, asks, tokens = sessions("a", "b", "c"), ties(), []
    for turn in range(6):
        holder, target = line[turn % 3], line[(turn + 1) % 3]
        answer = asks.begin("switchover", duty.lock, f"{duty.lock}.{'abc'[(turn + 1) % 3]}")
        holder.hears("ASKED")
        assert not target.mine.held()
        holder.mine.hand_over()
        target.hears("LOCKED")
        tokens.append(answer().token)
        assert target.mine.token() == tokens[-1]
        eventually(lambda: len(duty.line()) == 3)  # who had it waits again

    assert tokens == sorted(set(tokens))


def test_a_session_that_does_not_answer_loses_the_lock_when_its_time_is_over(
        engine, sessions, ties, duty):
    a, b = sessions("a", "b")
    with pytest.raises(TieError, match="nobody has asked for the lock"):
        a.mine.hand_over()

    answer = ties().begin("switchover", duty.lock, f"{duty.lock}.b", within=1)

    a.hears("ASKED")
    assert a.mine.deadline() < a.deadline()
    b.hears("LOCKED")
    assert answer().token == b.mine.token()
    assert a.hears("UNLOCKED").reason == f"the time to hand it over to {duty.lock}.b has run out"


def test_a_session_keeps_the_lock_and_its_token_if_the_target_dies(
        shared_cluster, sessions, ties, duty):
    a, b = sessions("a", "b")
    token = a.mine.token()
    answer = ties().begin("switchover", duty.lock, f"{duty.lock}.b", within=60)
    a.hears("ASKED")

    b.kill()
    shared_cluster.delete(duty.line()[-1])
    with pytest.raises(TieError, match="no longer waits"):
        answer()
    a.mine.hand_over()

    a.hears("LOCKED")
    assert a.mine.token() == token


def test_a_program_learns_why_its_switchover_has_failed(shared_cluster, sessions, ties, duty):
    sessions("a")

    with pytest.raises(TieError, match="No node and no session is named 'nobody'"):
        ties().switchover(duty.lock, "nobody")


def test_who_may_write_the_keys_of_the_lock_may_hand_it_over(cluster, sessions, duty):
    users = f"{duty.lock}.a", f"{duty.lock}.b"
    may = ["--prefix /tenure/", f"--prefix {duty.lock}/", f"{duty.lock}.switchover"]
    duty.core = guard(cluster, **dict.fromkeys(users, may))
    a, b = sessions("a", "b", login=True)

    said = json.loads(cluster.as_user(users[0], users[0]).ctl(
        "switchover", "--json=short", "--wait=1s", duty.lock, users[1]))

    assert said["stop_usec"] >= 1_000_000  # nobody has handed it over
    b.hears("LOCKED")
    assert b.mine.token() == said["token"]
