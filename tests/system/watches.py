#!/usr/bin/python3
"""Watches of a replica, against a model: each gets every event that it asked for, once, in order (I6).

usage: watches.py --pb DIR --core HOST:PORT [--seed N]
One writer makes random transactions, and knows from their answers what happened at which revision. Watches of all
kinds come while it writes: of one key, of ranges, from now on, from the past and for the future, with filters and
without; some streams are not read until all has been written, so that their watches fall behind.
"""
import argparse
import queue
import random
import sys
import threading
import time

import grpc

import channels

ap = argparse.ArgumentParser()
ap.add_argument("--pb", required=True)
ap.add_argument("--core", required=True)
ap.add_argument("--seed", type=int, default=int(time.time()))
args = ap.parse_args()
sys.path.insert(0, args.pb)
import rpc_pb2 as pb  # noqa: E402

STREAMS, WATCHES, TXNS, KEYS, WAIT = 24, 40, 1500, 80, 60
PASSED, FAILED = 0, 0


def report(ok, what, why=""):
    global PASSED, FAILED
    PASSED, FAILED = PASSED + bool(ok), FAILED + (not ok)
    print(f"ok {what}" if ok else f"not ok {what} (seed {args.seed})\n    {why}")


def key(i):
    return b"k%02d" % i


def unary(channel, path, reply):
    return channel.unary_unary(path, request_serializer=lambda m: m.SerializeToString(), response_deserializer=reply.FromString)


class Stream:
    """A stream of watches. What comes is kept by watch; nothing is read while `gate` is closed."""

    def __init__(self, gate=None):
        self.channel = channels.to(args.core, [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)])
        self.out, self.lock, self.gate = queue.Queue(), threading.Condition(), gate
        self.created, self.events, self.progress, self.ended, self.canceled = [], {}, [], None, {}
        f = self.channel.stream_stream("/etcdserverpb.Watch/Watch", request_serializer=lambda m: m.SerializeToString(),
                                       response_deserializer=pb.WatchResponse.FromString)
        self.answers = f(iter(self.out.get, None))
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            for m in self.answers:
                with self.lock:
                    if m.created:
                        self.created.append(m)
                    elif m.canceled:
                        self.canceled[m.watch_id] = m
                    elif m.events:
                        self.events.setdefault(m.watch_id, []).extend(m.events)
                    else:
                        self.progress.append(m)
                    self.lock.notify_all()
                if self.gate and len(self.created) == self.gate[0]:
                    self.gate[1].wait()
        except grpc.RpcError as e:
            with self.lock:
                self.ended = f"{e.code().name}: {e.details()}"
                self.lock.notify_all()

    def create(self, **k):
        self.out.put(pb.WatchRequest(create_request=pb.WatchCreateRequest(**k)))

    def wait(self, check, until=None):
        with self.lock:
            return self.lock.wait_for(lambda: check(self) or self.ended, WAIT if until is None else max(0, until - time.monotonic())) and not self.ended

    def close(self):
        self.out.put(None)
        self.answers.cancel()
        self.channel.close()


class Model:
    """The one writer, and all that it has seen happen: (revision, key, value or None, value before)."""

    def __init__(self, r):
        self.r, self.now, self.history = r, {}, []
        self.channel = channels.to(args.core)
        self.txn = unary(self.channel, "/etcdserverpb.KV/Txn", pb.TxnResponse)

    def write(self):
        ops, happened = [], []
        for i in self.r.sample(range(KEYS), self.r.choice([1, 1, 1, 2, 5])):
            k = key(i)
            if k in self.now and self.r.random() < .3:
                ops.append(pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=k)))
                happened.append((k, None, self.now.pop(k)))
            else:
                v = b"%d" % len(self.history) + b"." * self.r.choice([0, 0, 0, 100, 20000])
                ops.append(pb.RequestOp(request_put=pb.PutRequest(key=k, value=v)))
                happened.append((k, v, self.now.get(k)))
                self.now[k] = v
        revision = self.txn(pb.TxnRequest(success=ops), timeout=WAIT).header.revision
        self.history += [(revision, *h) for h in happened]
        return revision


class Wish:
    """What one watch asked for, and from where on it holds."""

    def __init__(self, r, revision):
        self.key, self.end = key(r.randrange(KEYS)), b""
        kind = r.randrange(4)
        if kind == 1:
            self.end = key(r.randrange(int(self.key[1:]) + 1, KEYS + 1))
        elif kind == 2:
            self.key, self.end = r.choice([(b"k", b"l"), (b"k1", b"k2"), (b"k", b"k5")])
        elif kind == 3:
            self.end = b"\0"
        self.prev_kv, self.fragment = r.random() < .3, r.random() < .2
        self.filters = [[], [], [0], [1]][r.randrange(4)]
        self.start = r.choice([0, 0, max(1, revision - r.randrange(40)), r.randrange(1, revision + 1), revision + r.randrange(1, 20)])

    def ask(self):
        return dict(key=self.key, range_end=self.end, prev_kv=self.prev_kv, fragment=self.fragment, filters=self.filters, start_revision=self.start)

    def wants(self, k):
        return k == self.key if not self.end else k >= self.key and (self.end == b"\0" or k < self.end)

    def expected(self, history):
        return [(rev, k, v, before if self.prev_kv else None) for rev, k, v, before in history
                if rev >= self.start and self.wants(k) and (1 if v is None else 0) not in self.filters]


def delivered(events):
    return [(e.kv.mod_revision, e.kv.key, e.kv.value if e.type == pb.Event.PUT else None, e.prev_kv.value if e.HasField("prev_kv") else None)
            for e in events]


def random_watches():
    r = random.Random(args.seed)
    model, written = Model(r), threading.Event()
    # Every third stream is not read before all is written.
    streams = [Stream((WATCHES, written) if i % 3 == 0 else None) for i in range(STREAMS)]
    wishes = {s: [] for s in streams}
    revision = model.write()
    turns = [s for s in streams for _ in range(WATCHES)]
    r.shuffle(turns)
    for t in range(TXNS):
        for _ in range(len(turns) * 2 // TXNS + 1 if t < TXNS * 2 // 3 else len(turns)):
            if turns:
                s = turns.pop()
                w = Wish(r, revision)
                wishes[s].append(w)
                s.create(**w.ask())
        revision = model.write()
    written.set()
    wrong, n, until = [], 0, time.monotonic() + 4 * WAIT  # 600,000 events, read by Python on a busy machine
    for i, s in enumerate(streams):
        if not s.wait(lambda s: len(s.created) == WATCHES, until):
            wrong.append(f"stream {i}: {len(s.created)} watches made, {s.ended}")
            continue
        for w, c in zip(wishes[s], s.created):
            w.start = w.start or c.header.revision + 1
            want = w.expected(model.history)
            s.wait(lambda s: len(s.events.get(c.watch_id, [])) >= len(want), until)
            n += len(want)
        # Delivered after all else: nothing comes twice or late.
        before = len(s.progress)
        s.out.put(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))
        if not s.wait(lambda s: len(s.progress) > before, until) or s.progress[-1].header.revision < revision:
            wrong.append(f"stream {i}: no progress, {s.ended}")
        for w, c in zip(wishes[s], s.created):
            have, want = delivered(s.events.get(c.watch_id, [])), w.expected(model.history)
            if have != want:
                at = next((j for j, (a, b) in enumerate(zip(have, want)) if a != b), min(len(have), len(want)))
                wrong.append(f"stream {i} watch {c.watch_id} {w.ask()}: {len(have)} events for {len(want)}, other from the {at}th on: "
                             f"{str(have[at:at + 1])[:200]} for {str(want[at:at + 1])[:200]}")
    report(not wrong and n > 10000, f"{STREAMS * WATCHES} watches of {STREAMS} streams got {n} events of {TXNS} writes, each once and in order",
           f"{len(wrong)} wrong: " + "\n    ".join(wrong[:5]))
    for s in streams:
        s.close()
    return revision


def in_number(revision):
    """As many on one stream as a client likes, by ids of theirs and ours."""
    s, n = Stream(), 20000
    for i in range(n):
        s.create(key=b"n/%d" % i, watch_id=2 * i + 1 if i % 2 else 0)
    made = s.wait(lambda s: len(s.created) == n)
    report(made and not any(m.canceled for m in s.created) and len({m.watch_id for m in s.created}) == n, f"{n} watches on one stream",
           f"{len(s.created)} made, {s.ended}")
    put = unary(s.channel, "/etcdserverpb.KV/Put", pb.PutResponse)
    for i in (0, 1, n - 1):
        put(pb.PutRequest(key=b"n/%d" % i, value=b"v"), timeout=WAIT)
    ids = {s.created[i].watch_id for i in (0, 1, n - 1)}
    report(s.wait(lambda s: len(s.events) == 3) and set(s.events) == ids, "each gets the event of its own key", f"{set(s.events)} for {ids}")
    s.out.put(pb.WatchRequest(cancel_request=pb.WatchCancelRequest(watch_id=s.created[1].watch_id)))
    report(s.wait(lambda s: s.created[1].watch_id in s.canceled), "one of them is canceled")
    s.close()


def progress():
    """Who asked for it hears that nothing happened; it never says more than the watch was told."""
    s = Stream()
    s.create(key=b"p", progress_notify=True)
    s.create(key=b"p")
    ok = s.wait(lambda s: len(s.progress) >= 3)
    report(ok and all(m.watch_id == s.created[0].watch_id for m in s.progress), "progress is sent at the interval that is set, to watches that asked for it",
           f"{s.progress} {s.ended}")
    put = unary(s.channel, "/etcdserverpb.KV/Put", pb.PutResponse)
    at = put(pb.PutRequest(key=b"q"), timeout=WAIT).header.revision
    report(s.wait(lambda s: s.progress[-1].header.revision >= at), "with the revision up to which there is nothing")
    s.close()


def compacted():
    """A watch that falls behind a compaction gets an error; others go on."""
    r = random.Random(args.seed + 1)
    model, written = Model(r), threading.Event()
    revision = model.write()
    behind, ahead = Stream(), Stream()
    compact = unary(model.channel, "/etcdserverpb.KV/Compact", pb.CompactionResponse)
    ahead.create(key=b"k", range_end=b"l")
    ahead.wait(lambda s: len(s.created) == 1)
    for _ in range(50):
        revision = model.write()
    compact(pb.CompactionRequest(revision=revision), timeout=WAIT)
    behind.create(key=b"k", range_end=b"l", start_revision=revision - 10)
    ok = behind.wait(lambda s: s.canceled)
    report(ok and behind.canceled[0].compact_revision == revision, "a watch from before the compaction learns where it was", f"{behind.canceled}")
    revision = model.write()
    ok = ahead.wait(lambda s: s.events.get(0, [None])[-1] and s.events[0][-1].kv.mod_revision == revision)
    report(ok and not ahead.canceled, "one that was up to date goes on", f"{ahead.canceled}")
    behind.close(), ahead.close()
    written.set()


def observers():
    """Who looks at an election is told of its leaders, not of others; the last word reaches everybody."""
    channel = channels.to(args.core)
    grant = unary(channel, "/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantResponse)
    campaign = unary(channel, "/v3electionpb.Election/Campaign", pb.CampaignResponse)
    proclaim = unary(channel, "/v3electionpb.Election/Proclaim", pb.ProclaimResponse)
    observe = channel.unary_stream("/v3electionpb.Election/Observe", request_serializer=lambda m: m.SerializeToString(),
                                   response_deserializer=pb.LeaderResponse.FromString)
    grant(pb.LeaseGrantRequest(ID=7, TTL=600), timeout=WAIT)
    names, wrong = [b"one", b"two", b"three"], []
    leaders = {n: campaign(pb.CampaignRequest(name=n, lease=7, value=b"first"), timeout=WAIT).leader for n in names}
    streams = [(n, observe(pb.LeaderRequest(name=n), timeout=WAIT)) for n in names for _ in range(30)]
    firsts = [next(s) for _, s in streams]  # everybody looks now
    for i in range(20):
        for n in names:
            proclaim(pb.ProclaimRequest(leader=leaders[n], value=n + b" last" if i == 19 else b"%d" % i), timeout=WAIT)
    for (n, s), first in zip(streams, firsts):
        seen = [first.kv]
        try:
            while seen[-1].value != n + b" last":
                seen.append(next(s).kv)
        except grpc.RpcError as e:
            wrong.append(f"{n}: {len(seen)} seen, {e.code().name}")
        revisions = [kv.mod_revision for kv in seen]
        if revisions != sorted(set(revisions)) or any(kv.key != leaders[n].key for kv in seen):
            wrong.append(f"{n}: {revisions} {seen[-1].key}")
        s.cancel()
    report(not wrong, f"{len(streams)} observers of {len(names)} elections", "\n    ".join(wrong[:5]))
    channel.close()


last = random_watches()
observers()
in_number(last)
progress()
compacted()
print(f"{PASSED} passed, {FAILED} failed, 0 skipped")
sys.stdout.flush()
sys.exit(1 if FAILED else 0)
