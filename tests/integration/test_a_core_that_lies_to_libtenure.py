"""Whatever a core says, a program that uses all of libtenure lives, believes in its lease and in
what it has cached no longer than it may, is not busy with it, and has all again once the core is
good."""
import itertools
import json
import random
import subprocess

import pytest

from harness.liar import Cost
from harness.library import Program
from harness.lies import (CUT, HUGE, LEAST, LIES, LOSE, TALKS, and_ends, changing, in_header, mix,
                          one_of, saying, tell)
from harness.program import Daemon
from harness.rpc import pb
from harness.waiting import eventually

TTL = 1000  # ms
GROUP = b"/tenure/default/work/g/"
TASKS = 10
numbers = itertools.count()


@pytest.fixture(scope="session")
def lied_to(tmp_path_factory):
    return Program(tmp_path_factory.mktemp("lied-to")).compile("tests/integration/lied_to.c")


class Believer(Daemon):
    """The program of lied_to.c, which has everything when it has been made."""

    def __init__(self, folder, command, liar):
        # A range of its own: a write to one whose holder has gone waits, and so do new holders.
        self.liar, self.values, self.cached = liar, itertools.count(), b"cached%d" % next(numbers)
        super().__init__(folder / "lied_to.log", command, TTL, self.cached.decode(),
                         TENURE_ENDPOINTS=liar.endpoints)
        liar.put((b"w/k", b"w"), (self.cached, b"c"))
        self.start(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        eventually(self.sees_a_change)

    def ask_to_end(self):
        self.process.stdin.close()

    def believes(self):
        self.process.stdin.write(b"?\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def has_all(self, missed=()):
        """@missed: watches that cannot know what they missed before the key is written again."""
        told, watched = self.believes(), self.liar.get(b"w/k").value.decode()
        cached = self.liar.get(self.cached).value.decode()
        tokens = [kv.create_revision for kv in self.liar.ask(
            pb.RangeRequest(key=b"lock/x/", range_end=b"lock/x0")).kvs]
        wanted = {"acts": 1, "watching": 1, "seen": watched, "one": watched, "cached": cached,
                  "all_cached": cached, "locked": 1, "tasks": TASKS}
        lacks = {name: told[name] for name in wanted.keys() - missed if told[name] != wanted[name]}
        assert not lacks, wanted
        assert self.liar.lives(told["lease"]) and told["token"] in tokens, (told, tokens)
        return told

    def sees_a_change(self):
        """It has all, also what is written now; `one` may not stand yet, so try this again."""
        eventually(lambda: self.has_all({"seen", "one"}))
        self.liar.put((b"w/k", b"w%d" % next(self.values)))
        return eventually(self.has_all, patience=10)

    def has_all_for_good(self):
        """What was told before may cost it one more lease."""
        return self.liar.renewed[self.sees_a_change()["lease"]] > 1

    def bears(self, lie, *, cut=True, cpu=.6, calls=150, memory=64, turns=2000, ttl=TTL,
              until=None, misled=False):
        """It is told a lie for longer than its lease lasts, and the truth again."""
        cost, before, beliefs = Cost(self, self.liar), self.believes()["turns"], []
        tell(self.liar, *lie)
        lease = self.liar.ask(pb.LeaseGrantRequest(ttl_ms=2 * TTL)).ID

        def is_over():
            beliefs.append(self.believes())
            return not self.liar.lives(lease) and (not until or until(beliefs[-1]))

        eventually(is_over)
        passed = cost.is_modest(cpu, calls, memory)
        assert max(told["left_us"] for told in beliefs) <= ttl * 1000
        assert beliefs[-1]["turns"] - before <= turns * passed
        self.liar.be_good(cut)
        if beliefs[-1]["left_us"] > TTL * 1000:
            return  # told that its lease lasts for a day, it does not notice that it has ended
        eventually(lambda: self.has_all({"seen", "one"} if misled else {"one"}))
        eventually(self.has_all_for_good)
        assert self.log_text() == ""


@pytest.fixture
def program(tmp_path, lied_to, liar, seed):
    random.seed(seed)
    return Believer(tmp_path, lied_to, liar)


# ---- what fits each client ----

@pytest.mark.parametrize("lie", LIES)
def test_a_program_outlives_a_lie(lie, program):
    program.bears(LIES[lie], ttl=86_400_000 if "292" in lie else TTL)


@pytest.mark.parametrize("talk", TALKS)
def test_a_program_outlives_bytes_that_no_core_sends(talk, program):
    endless = "without" in talk or "GiB" in talk
    program.bears((None, lambda liar: liar.talk(TALKS[talk])), cpu=1 if endless else .6,
                  turns=20_000)


def test_a_program_outlives_a_random_mix_of_lies(draw, program):
    program.bears(mix(draw), calls=400, ttl=86_400_000, misled=True)


def test_a_program_outlives_a_mix_of_lies_that_was_too_much_once(program):
    program.bears(mix(1795806832), calls=400, ttl=86_400_000, misled=True)


# ---- leases, calls, transactions ----

def made_twice(call):
    answer = call.ask()
    return call.ask() if call.method in ("Put", "Txn", "LeaseGrant") else answer


def of_others(call):
    answer = call.ask()
    if call.method == "Range":
        for key in (b"", b"/", b"x" * 5000, b"lock/x/zz", GROUP + b"tasks/",
                    GROUP + b"members/\xff"):
            answer.kvs.add(key=key, value=b"{}", mod_revision=HUGE, create_revision=HUGE,
                           version=-1, lease=-1)
    for response in answer.responses if call.method == "Txn" else ():
        response.response_range.kvs.add(key=b"", mod_revision=-1, create_revision=-1)
    return answer


def without_counted_keys():
    """Watches end as they begin, six times, so that the program reads anew."""
    left = itertools.repeat(True, 6)

    def lie(call):
        answer = call.ask()
        if call.method == "Range":
            del answer.kvs[:]
        elif call.method == "Watch" and answer.created and next(left, False):
            return [answer, pb.WatchResponse(
                header=answer.header, watch_id=answer.watch_id, canceled=True,
                compact_revision=answer.header.revision)]
        return answer
    return lie


def led_by_nobody(call):
    answer = call.ask()
    if call.method == "Txn" and answer.succeeded and answer.responses and \
            call.request.success[0].request_range.key == b"lock/x/":
        answer.responses[0].response_range.kvs.add(key=b"lock/x/zz", create_revision=1,
                                                   mod_revision=1)
    return answer


def shared_with_nobody(call):
    answer = call.ask()
    if call.method == "Range" and call.request.key == GROUP:
        answer.kvs.add(key=GROUP + b"members/x", value=b'{"weight":100,"tasks":10}', lease=5,
                       create_revision=1, mod_revision=1)
        answer.count += 1
    return answer


def of_other_shapes(answer):
    kind = random.randrange(6)
    if kind == 0:
        del answer.responses[:]
    elif kind == 1:
        for _ in range(200):
            answer.responses.add().response_txn.responses.add().response_range.kvs.add(key=b"k")
    elif kind == 2:
        answer.succeeded = not answer.succeeded
    for response in answer.responses if kind in (3, 4) else ():
        response.response_put.SetInParent() if kind == 3 else response.Clear()
    return answer


def huge(answer):
    answer.kvs.add(key=b"big", value=bytes(64 << 20), mod_revision=1, create_revision=1)
    return answer


# ---- watches ----

def between_twins(answer):
    twin = pb.WatchResponse(header=answer.header, watch_id=7, created=True)
    return [twin, answer, twin]


def backwards(answer):
    events = list(answer.events)
    del answer.events[:]
    answer.events.extend(reversed(events))
    for event in events:
        answer.events.add(kv=event.kv).kv.mod_revision = random.choice(
            [0, -1, 1, event.kv.mod_revision - 1, HUGE])
    return answer


def of_the_future(answer):
    ahead = pb.WatchResponse(header=answer.header, watch_id=-1)
    ahead.header.revision += 1 << 40
    return [answer, ahead]


def without_tasks(answer):
    events = [event for event in answer.events if b"/tasks/" not in event.kv.key]
    del answer.events[:]
    answer.events.extend(events)
    return answer


def taken_in_secret(call):
    """Takes of tasks are answered as if another member had been first, and the watch keeps to
    itself that none was."""
    answer = call.ask()
    if call.method == "Watch":
        return without_tasks(answer)
    for response in answer.responses if call.method == "Txn" else ():
        if response.HasField("response_txn"):
            response.response_txn.succeeded = False
    return answer


# ---- caches ----

def recalled(answer):
    recall = pb.CacheResponse(header=answer.header, id=answer.id, recall=True)
    return [recall, answer, recall]


def unchanged(answer):
    del answer.kvs[:]
    answer.unchanged = True
    return answer


def unsorted(answer):
    if not answer.kvs:
        return answer
    for n in range(1000, 0, -1):
        answer.kvs.add(key=answer.kvs[0].key + b"/%04d" % n, value=b"x", mod_revision=n)
    answer.kvs.add(key=b"")
    answer.kvs.add(key=answer.kvs[0].key, value=bytes(100))
    return answer


OTHER_LIES = {
    "nothing, but its lease ends": (None, LOSE),
    "the revision is one less than can be": (in_header("revision", HUGE - 1), LOSE, CUT),
    "all answers are empty": (
        changing(lambda answer: type(answer)(header=answer.header)), LOSE, CUT),
    "every answer comes twice to a new session": (*LIES["every answer comes twice"], CUT, LOSE),
    "grants and renewals of other leases": (saying(
        "LeaseGrant", "LeaseKeepAlive", "LeaseTimeToLive",
        ID=lambda answer: random.choice([0, -1, 1, HUGE, LEAST, answer.ID + 1])), LOSE),
    "each change is made twice": (made_twice, LOSE),
    "ranges and transactions answer what nobody asked for": (of_others, LOSE),
    "ranges lack the keys that they count": (without_counted_keys(), CUT),
    "nobody is first in the line for the lock": (led_by_nobody, LOSE),
    "a member that is not there shares the work": (shared_with_nobody, LOSE),
    "transactions have other shapes and outcomes": (changing(of_other_shapes, "Txn"), LOSE),
    "each range is answered with 64 MiB": (changing(huge, "Range"), CUT),
    "what comes is of other watches": (saying("Watch", watch_id=one_of(
        0, -1, -2, 1, 2, 3, 4, 5, 1000, HUGE, LEAST)), LOSE, CUT),
    "watches are confirmed without a number": (saying(
        "Watch", watch_id=lambda answer: 0 if answer.created else answer.watch_id), LOSE, CUT),
    "watches are created that nobody asked for": (changing(between_twins, "Watch"), LOSE, CUT),
    "a watch is canceled without a reason": (and_ends(), LOSE, CUT),
    "a watch is asked for and nothing comes": (changing(lambda answer: None, "Watch"), LOSE, CUT),
    "events come out of order and with odd revisions": (changing(backwards, "Watch"), LOSE),
    "fragments never end": (saying("Watch", fragment=True), LOSE),
    "progress of the future": (changing(of_the_future, "Watch"), LOSE),
    "each term of a cache is 0": (saying("Cache", term_ms=0), CUT),
    "each term of a cache is a millisecond": (saying("Cache", term_ms=1), CUT),
    "promises of other ranges": (saying("Cache", id=one_of(0, -1, 1, 2, 3, 4, HUGE)), CUT),
    "nothing that is cached has ever changed": (changing(unchanged, "Cache"), CUT),
    "each promise is recalled at once": (changing(recalled, "Cache"), CUT),
    "ranges are not cached for many reasons": (changing(lambda answer: pb.CacheResponse(
        header=answer.header, id=answer.id, error="no",
        code=random.choice([1, 3, 5, 7, 8, 14, 16, 99, -1])), "Cache"), CUT),
    "promises come three times": (changing(lambda answer: 3 * [answer], "Cache"), CUT),
    "what is cached is in no order": (changing(unsorted, "Cache"), CUT),
}
MORE = {"each range is answered with 64 MiB": {"memory": 400, "cpu": 1.5}}


@pytest.mark.parametrize("lie", OTHER_LIES)
def test_a_program_outlives_a_lie_about_what_it_asked_for(lie, program):
    program.bears(OTHER_LIES[lie], **MORE.get(lie, {}))


@pytest.mark.parametrize("lie", [
    changing(of_the_future, "Watch"), changing(without_tasks, "Watch"), taken_in_secret],
    ids=["progress of the future", "a watch without tasks", "tasks taken in secret"])
def test_a_program_finds_out_on_connections_that_stay(lie, program):
    program.bears((lie, LOSE), cut=False)


def test_a_program_outlives_a_watch_of_whose_events_there_is_no_end(program):
    def flood(liar):
        for _ in range(100):
            liar.put(*((b"w/busy%d" % n, bytes(1000)) for n in range(50)))

    program.bears((None, flood), cpu=1)


@pytest.mark.parametrize("step", [1, 37])
def test_a_program_outlives_connections_that_end_after_each_number_of_bytes(step, program, liar):
    limits = [0]

    def end(liar):
        liar.wire.limits = (limits.append(n) or n for n in itertools.count(0, step))
        liar.cut()

    program.bears((None, end), until=lambda told: limits[-1] > 20 * step)


# ---- what it may believe ----

def test_a_program_believes_in_its_lease_no_longer_than_the_core(program, liar):
    tell(liar, changing(lambda answer: None, "LeaseKeepAlive", "LeaseGrant"))
    liar.outlast(TTL)
    assert not program.believes()["acts"]


@pytest.mark.parametrize("term", [None, -1, 3001, 86_400_000, 1 << 32, HUGE, LEAST])
def test_a_program_reads_nothing_from_its_cache_that_was_written_over(
        term, tmp_path, lied_to, fresh_liar):
    # The core gives no more terms to a client that does not hear its recalls.
    liar, program, told = fresh_liar, Believer(tmp_path, lied_to, fresh_liar), []

    def lie(call):
        answer = call.ask()
        if call.method == "Cache" and answer.term_ms > 0:
            answer.term_ms = term or 0
            told.append(answer)
        silent = call.method == "Cache" and (term is None or answer.recall)
        return None if silent else answer

    tell(liar, lie, CUT)
    eventually(lambda: told)
    liar.put((program.cached, b"after"))  # when every promise has ended

    believed = program.believes()
    assert "c" not in (believed["cached"], believed["all_cached"])
