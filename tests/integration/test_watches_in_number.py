"""Watches of a replica, many and of all kinds, beside a model: each gets every event that it asked
for, once and in order (I6)."""
import collections
import contextlib
import itertools
import random
import threading

import pytest
from harness.pair import method, put
from harness.rpc import pb

STREAMS, WATCHES, TXNS, KEYS = 24, 40, 700, 80


def key(i):
    return b"k%02d" % i


class Model:
    """The one writer, who knows from the answers what happened at which revision."""

    def __init__(self, r, rpc):
        self.r, self.rpc, self.now = r, rpc, {}
        self.history = []  # of (revision, key, value or None, value before)

    def write(self):
        operations, happened = [], []
        for i in self.r.sample(range(KEYS), self.r.choice([1, 1, 1, 2, 5])):
            if key(i) in self.now and self.r.random() < .3:
                operations.append(pb.RequestOp(request_delete_range={"key": key(i)}))
                happened.append((key(i), None, self.now.pop(key(i))))
            else:
                value = b"%d" % len(self.history) + b"." * self.r.choice([0, 0, 0, 100, 20000])
                operations.append(put(key(i), value))
                happened.append((key(i), value, self.now.get(key(i))))
                self.now[key(i)] = value
        revision = self.rpc.call(*method("KV/Txn", {"success": operations})).header.revision
        self.history += [(revision, *what) for what in happened]
        return revision


class Wish:
    """What a watch asks for."""

    def __init__(self, r, revision):
        begin, end = key(r.randrange(KEYS)), b""
        kind = r.randrange(4)
        if kind == 1:
            end = key(r.randrange(int(begin[1:]) + 1, KEYS + 1))
        elif kind == 2:
            begin, end = r.choice([(b"k", b"l"), (b"k1", b"k2"), (b"k", b"k5")])
        elif kind == 3:
            end = b"\0"
        self.asked = dict(
            key=begin, range_end=end, prev_kv=r.random() < .3, fragment=r.random() < .2,
            filters=r.choice([[], [], [0], [1]]),
            start_revision=r.choice([0, 0, max(1, revision - r.randrange(40)),
                                     r.randrange(1, revision + 1),
                                     revision + r.randrange(1, 20)]))

    def expected(self, history, created):
        """@created: the answer that says that the watch is there."""
        begin, end = self.asked["key"], self.asked["range_end"]
        start = self.asked["start_revision"] or created.header.revision + 1
        return [(revision, key, value, before if self.asked["prev_kv"] else None)
                for revision, key, value, before in history
                if revision >= start and (1 if value is None else 0) not in self.asked["filters"]
                and (key == begin if not end else key >= begin and (end == b"\0" or key < end))]


def told(event):
    return (event.kv.mod_revision, event.kv.key,
            event.kv.value if event.type == pb.Event.PUT else None,
            event.prev_kv.value if event.HasField("prev_kv") else None)


class Reader:
    """A stream of watches. When all are made, no more is read until @may_read is set."""

    def __init__(self, rpc, may_read):
        made = itertools.count(1)

        def between(answer):
            if answer.created and next(made) == WATCHES:
                may_read.wait()

        self.stream = rpc.stream("etcdserverpb.Watch/Watch", pb.WatchRequest, between=between)
        self.wishes, self.created, self.events = [], [], collections.defaultdict(list)

    def ask(self, wish):
        self.wishes.append(wish)
        self.stream.send(pb.WatchRequest(create_request=wish.asked))

    def take(self):
        """The next answer, unless it is a watch or has events."""
        answer = self.stream.next()
        self.created += [answer] if answer.created else []
        self.events[answer.watch_id].extend(map(told, answer.events))
        return None if answer.created or answer.events else answer

    def read(self, history):
        """What each watch was told, beside what it should have been told."""
        while len(self.created) < len(self.wishes):
            self.take()
        told_up_to = 0
        while told_up_to < history[-1][0]:  # progress says that nothing else came before
            self.stream.send(pb.WatchRequest(progress_request={}))
            while not (progress := self.take()):
                pass
            told_up_to = progress.header.revision
        return [(wish, self.events[created.watch_id], wish.expected(history, created))
                for wish, created in zip(self.wishes, self.created)]


@pytest.fixture
def core(new_cluster):
    return new_cluster(1, "--watch-progress-notify-interval=200ms")


@pytest.fixture
def connect(core):
    """A connection of its own, each time."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(core.rpc())


def test_each_of_many_watches_gets_all_that_it_asked_for_once_and_in_order(connect, seed):
    r, all_is_written, at_once = random.Random(seed), threading.Event(), threading.Event()
    at_once.set()
    readers = [Reader(connect(), at_once if n % 3 else all_is_written) for n in range(STREAMS)]
    model = Model(r, connect())
    revision, turns = model.write(), r.sample(readers * WATCHES, STREAMS * WATCHES)
    for n in range(TXNS):
        # They come while the first two thirds are written.
        while len(turns) > (1 - 1.5 * n / TXNS) * STREAMS * WATCHES and turns:
            turns.pop().ask(Wish(r, revision))
        revision = model.write()
    all_is_written.set()

    n_events = 0
    for reader in readers:
        for wish, got, expected in reader.read(model.history):
            assert got == expected, wish.asked
            n_events += len(got)
    assert n_events > 10000


def test_a_stream_has_as_many_watches_as_its_client_likes(connect):
    rpc, n, ids = connect(), 20000, {}
    stream = rpc.stream("etcdserverpb.Watch/Watch", pb.WatchRequest)
    for i in range(n):  # every other one by an id of the client's
        stream.send(pb.WatchRequest(create_request=dict(
            key=b"n/%d" % i, watch_id=2 * i + 1 if i % 2 else 0)))
    for i in range(n):
        answer = stream.next()
        assert answer.created and not answer.canceled
        ids[answer.watch_id] = i
    assert len(ids) == n

    for i in 0, 1, n - 1:
        rpc.call(*method("KV/Put", dict(key=b"n/%d" % i)))
        assert ids[stream.next().watch_id] == i
    stream.send(pb.WatchRequest(cancel_request=dict(watch_id=3)))
    canceled = stream.next()
    assert canceled.canceled and canceled.watch_id == 3


def test_a_watch_with_progress_notifications_learns_that_nothing_has_happened(connect):
    rpc = connect()
    stream = rpc.stream("etcdserverpb.Watch/Watch", pb.WatchRequest)
    stream.send(pb.WatchRequest(create_request=dict(key=b"p", progress_notify=True)))
    stream.send(pb.WatchRequest(create_request=dict(key=b"p")))
    asked, other = stream.next().watch_id, stream.next().watch_id
    assert asked != other
    revision = rpc.call(*method("KV/Put", dict(key=b"q"))).header.revision

    told = [stream.next() for _ in range(2)]
    while told[-1].header.revision < revision:
        told.append(stream.next())

    assert {answer.watch_id for answer in told} == {asked}
    assert not any(answer.events for answer in told)


def test_a_compaction_cancels_a_watch_from_before_it_and_no_other(connect):
    rpc = connect()
    put = lambda: rpc.call(*method("KV/Put", dict(key=b"k"))).header.revision  # noqa: E731
    first = put()
    ahead, behind = (rpc.stream("etcdserverpb.Watch/Watch", pb.WatchRequest) for _ in range(2))
    ahead.send(pb.WatchRequest(create_request=dict(key=b"k", start_revision=first)))
    assert ahead.next().created and ahead.next().events
    last = put()
    rpc.call(*method("KV/Compact", dict(revision=last)))

    behind.send(pb.WatchRequest(create_request=dict(key=b"k", start_revision=first)))

    answer = behind.next()
    assert (answer if answer.canceled else behind.next()).compact_revision == last
    revisions = [ahead.next().events[0].kv.mod_revision]
    last = put()
    assert revisions + [ahead.next().events[0].kv.mod_revision] == [last - 1, last]


def test_observers_learn_of_their_election_and_the_last_value_reaches_each(connect):
    rpc, names = connect(), [b"one", b"two", b"three"]
    rpc.call(*method("Lease/LeaseGrant", dict(ID=7, TTL=600)))
    leaders = {name: rpc.call(*method("Election/Campaign", dict(
        name=name, lease=7, value=b"first"))).leader for name in names}
    observers = [(name, rpc.answers(*method("Election/Observe", dict(name=name))))
                 for name in names for _ in range(30)]
    for name, observer in observers:
        assert next(observer).kv.key == leaders[name].key

    for i in range(20):
        for name in names:
            value = b"last" if i == 19 else b"%d" % i
            rpc.call(*method("Election/Proclaim", dict(leader=leaders[name], value=value)))

    for name, observer in observers:
        seen = [next(observer).kv]
        while seen[-1].value != b"last":
            seen.append(next(observer).kv)
        revisions = [kv.mod_revision for kv in seen]
        assert revisions == sorted(set(revisions))
        assert {kv.key for kv in seen} == {leaders[name].key}
