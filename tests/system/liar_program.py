#!/usr/bin/python3
"""A core that lies to a program of libtenure's (lied_to.c), and is good again afterwards.

usage: liar_program.py --program FILE --dir DIR --pb DIR [--random N] [--seed N] [CASE...]

Whatever it gets as an answer, the program lives, believes in its lease and in what it has cached no longer than it may, is not busy
with it, does not grow, and has all of it again soon after the core is good. Cases by name; none: all, then N random ones; "random": those alone.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import threading
import time
import warnings

import grpc
from google.protobuf.message import DecodeError

ap = argparse.ArgumentParser()
ap.add_argument("--program", required=True)
ap.add_argument("--dir", required=True)
ap.add_argument("--pb", required=True)
ap.add_argument("--random", type=int, default=10)
ap.add_argument("--seed", type=int, default=int(time.time()))
ap.add_argument("cases", nargs="*")
args = ap.parse_args()
sys.path.insert(0, args.pb)
import rpc_pb2 as pb  # noqa: E402
from liar_core import ON_WIRE, Refuse, Wire, keep_alive_says, lies, lose, other, refusing, until, without_header  # noqa: E402
from liar_stage import CASES, OF_ITS_OWN, Cost, Process, be_good, busily, case, main, report, stage  # noqa: E402

warnings.simplefilter("error", RuntimeWarning)  # of a message that protobuf reads only in part
TTL = 2.0
TERM = 3.0  # the longest that libtenure asks for
HUGE = (1 << 63) - 1
BACK = 60  # s within which it has all of it again, on a busy machine


class Program(Process):
    def __init__(self, name, port):
        self.log = os.path.join(args.dir, f"{name}.log")
        self.lock = threading.Lock()
        self.p = subprocess.Popen([args.program, str(int(TTL * 1000))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(self.log, "w"),
                                  env=dict(os.environ, TENURE_ENDPOINTS=f"http://127.0.0.1:{port}"))
        self.slowest = 0.0

    def believes(self):
        with self.lock:
            begin = time.monotonic()
            try:
                self.p.stdin.write(b"?\n")
                self.p.stdin.flush()
                line = self.p.stdout.readline()
            except OSError:
                line = b""
            self.slowest = max(self.slowest, time.monotonic() - begin)
        return json.loads(line) if line else None

    def end(self):
        return super().end(self.p.stdin.close, 20)


def missing(core, b):
    """What it does not have, or has wrong, though the core is good."""
    with core.lock:
        w, c = (core.keys.get(k, pb.KeyValue()).value.decode() for k in (b"w/k", b"c/k"))
        locks = {k: v for k, v in core.keys.items() if k.startswith(b"lock/x/")}
        held = b["lease"] in core.leases
    out = []
    if not b["acts"] or not held:
        out.append(f"no lease ({b['lease']:x})")
    if not b["watching"] or b["seen"] != w:
        out.append(f"it has seen '{b['seen']}' and not '{w}'")
    if b["one"] != w:
        out.append(f"of one key it has seen '{b['one']}' and not '{w}'")
    for k in "cached", "all_cached":
        if b[k] != c:
            out.append(f"{k}: '{b[k]}' and not '{c}'")
    if not b["locked"] or not any(v.create_revision == b["token"] for v in locks.values()):
        with core.lock:
            out.append(f"no lock, with token {b['token']} of lease {b['lease']:x}; in line are " + ", ".join(
                f"{k.decode(errors='replace')} of {v.create_revision}, whose lease {'has ' + str(round(core.leases[v.lease][0])) + ' s' if v.lease in core.leases else 'is gone'}"
                for k, v in sorted(locks.items(), key=lambda x: x[1].create_revision)))
    if b["tasks"] != 10:
        with core.lock:
            out.append(f"{b['tasks']} tasks, by lease {b['lease']:x}; in the core are " + ", ".join(
                f"{k.rsplit(b'/', 1)[1].decode()} of lease {v.lease:x}, which {'has ' + str(round(core.leases[v.lease][0])) + ' s' if v.lease in core.leases else 'is gone'}"
                for k, v in sorted(core.keys.items()) if b"/tasks/" in k))
    return out


class Misled:
    """Up to which revision the program may have missed changes of w/k, or heard of them wrongly, because it was told what could be true:
    nobody can know better before the key changes again. What contradicts itself is no excuse, nor a revision far ahead of the core's."""

    def __init__(self, core):
        self.up_to = 0
        core.lied = self.lied

    def lied(self, method, honest, sent):
        if method not in ("Range", "Watch"):
            return
        at = honest.header.revision
        says = any(kv.key == b"w/k" for kv in (honest.kvs if method == "Range" else [e.kv for e in honest.events]))
        told = [p for p in (self.read(honest, s) for s in sent) if p]
        for p in told:
            if p.header.revision < at + 50:
                self.up_to = max(self.up_to, p.header.revision)
        if says and (told if sent else method == "Watch") and any(p != honest for p in told or [None]):
            self.up_to = max(self.up_to, at)

    @staticmethod
    def read(honest, s):
        """What a program reads, or None: it cannot be true."""
        try:
            p = type(honest).FromString(s) if isinstance(s, bytes) else s
        except (DecodeError, RuntimeWarning):
            return None
        if not 0 < p.header.revision < HUGE or p.header.cluster_id not in (0, honest.header.cluster_id):
            return None
        return None if hasattr(p, "kvs") and not p.more and p.count > len(p.kvs) else p


def run(name, f, seconds=3.0, cpu=0.6, calls=150, turns=2000, memory=64, ttl=TTL, cut=True, misled=False):
    """The core is good; then lies as f(core, program) says, for so long; then is good again, on other connections or (cut=False) on
    the same ones. It may say that a lease is for so long (ttl), and what nobody can know to be wrong (misled)."""
    with stage() as core:
        with core.lock:
            core.revision += 10
            core.put(b"w/k", b"w0")
            core.put(b"c/k", b"c0")
        program = Program(name, core.wire.port)
        n = [0]
        left = ["?"]
        excuse = Misled(core)

        def write():
            n[0] += 1
            core.write(b"w/k", b"w%d" % n[0])

        def has_all(change=True):
            b = program.believes()
            if b is None:
                return True
            with core.lock:
                w = core.keys[b"w/k"]
            wrong = misled and b["seen"] != w.value.decode() and w.mod_revision <= excuse.up_to
            if change and (wrong or b["one"] != w.value.decode()):
                write()
                time.sleep(.2)
                b = program.believes()
            left[0] = b and missing(core, b)
            return not left[0]
        try:
            if not until(BACK, has_all):
                return report(False, name, f"it never had all: {left[0]} {program.text()[-400:]}")
            at, cost = program.believes(), Cost(program, core)
            why = f(core, program)
            end = time.monotonic() + seconds
            late = None
            while time.monotonic() < end and not program.is_over():
                b = program.believes()
                if b and b["left_us"] > ttl * 1e6:
                    late = f"it believes that it has its lease of {ttl} s for {b['left_us'] / 1e6:.1f} s"
                time.sleep(0.05)
            if not program.is_over():
                much = cost.too_much(cpu, calls, memory)
                b = program.believes()
                if callable(why):
                    why = why()
                why = why or late or much
                if b and b["turns"] - at["turns"] > turns * seconds:
                    why = why or f"it was woken up {b['turns'] - at['turns']} times"
            if cut:
                core.wire.begin(None)
            be_good(core)
            if not why and not program.is_over():
                stays = [0.0]

                def for_good():  # what was said before may cost it one more
                    if not has_all():
                        stays[0] = 0.0
                    stays[0] = stays[0] or time.monotonic()
                    return time.monotonic() > stays[0] + 1.2 * TTL
                back = until(BACK, has_all)
                write()  # which a watch that is deaf does not report
                if not back or not until(BACK, for_good):
                    why = f"it has not all again though the core is good: {left[0]} {program.text()[-300:]}"
            if program.is_over():
                why = f"it ended ({program.p.returncode}): " + program.text()[-1500:]
            code = program.end()
            if not why and code != 0:
                why = f"it exits with {code}: " + program.text()[-1500:]
            if not why and program.text():
                why = program.text()[:800]
            return report(not why, f"{name}: {(f.__doc__ or '').strip()}", why)
        finally:
            program.p.kill()
            program.end()


# ---- headers

def simple(name, doc, change, *methods, drop=True, cut=False):
    def f(core, program):
        lies(core, change, *methods)
        if drop:
            lose(core)
        if cut:
            core.wire.cut()
    f.__doc__ = doc
    CASES[name] = f


simple("honest", "nothing is wrong, but that its lease ends", lambda a, core: a)
simple("no_header", "answers without a header", without_header)
simple("revision_0", "the revision is 0", other("revision", 0))
simple("revision_negative", "the revision is negative", other("revision", -5))
simple("revision_huge", "the revision is as high as can be", other("revision", HUGE))
simple("revision_almost_huge", "the revision is one less", other("revision", HUGE - 1), cut=True)
simple("revision_flaps", "the revision goes back and forth",
       lambda a, core: other("revision", random.choice([1, 2, core.revision, core.revision + 1000]))(a, core), drop=False, cut=True)
simple("cluster_flaps", "every answer is of another cluster", lambda a, core: other("cluster_id", random.choice([0xC0, 0xC1]))(a, core), drop=False)
simple("garbage", "no answer can be read", lambda a, core: os.urandom(random.randrange(1, 200)))
simple("empty", "all answers are empty", lambda a, core: type(a)(header=core.header()), cut=True)
simple("silent", "it takes everything and answers nothing", lambda a, core: None)
simple("refused", "every call and stream ends with an error", lambda a, core: refusing(random.choice(
    [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INTERNAL, grpc.StatusCode.NOT_FOUND,
     grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE]), "no \x1b[2J" + "x" * 500)(a, core))
simple("twice", "every answer comes twice", lambda a, core: [a, a], drop=False)
simple("twice_anew", "every answer comes twice, to a new session", lambda a, core: [a, a], cut=True)


# ---- leases

def ttl_huge(a, core):
    a.TTL, a.ttl_ms = random.choice([(HUGE, 0), (9223372037, 0), (0, HUGE), (0, 9223372036855), (-1, -1), (-HUGE - 1, 0), (-HUGE - 1, -HUGE - 1), (18446744074, 0)])
    return a


simple("ttl_huge", "leases of 292 years and more", ttl_huge, "LeaseGrant", "LeaseKeepAlive", "LeaseTimeToLive")
simple("ttl_negative", "a renewal is answered with TTL -1", keep_alive_says(-1, -1), "LeaseKeepAlive", drop=False)
simple("ttl_tiny", "a lease of a millisecond", keep_alive_says(0, 1), "LeaseGrant")


def other_id(a, core):
    a.ID = random.choice([0, -1, 1, HUGE, -HUGE - 1, a.ID + 1])
    return a


simple("lease_ids", "grants and renewals of other leases", other_id, "LeaseGrant", "LeaseKeepAlive", "LeaseTimeToLive")


@case
def renewals_unheard(core, program):
    """renewals are swallowed: the lease is believed in no longer than it was said"""
    with core.lock:
        core.lie = lambda method, q, a, core: None if method in ("LeaseKeepAlive", "LeaseGrant") else a
    begin = time.monotonic()
    asked = begin
    while (program.believes() or {"acts": False})["acts"]:
        if asked > begin + TTL + .1:  # judged by when it was asked: the answer may have to wait for a processor
            return f"it believes for {asked - begin:.1f} s in a lease of {TTL} s"
        time.sleep(.02)
        asked = time.monotonic()


# ---- answers to calls

@case
def ranges_of_others(core, program):
    """ranges, and transactions, answer with what nobody asked for"""
    def lie(method, q, a, core):
        if method == "Range":
            for key in b"", b"/", b"x" * 5000, b"lock/x/zz", b"/tenure/default/work/g/tasks/", b"/tenure/default/work/g/members/\xff":
                a.kvs.add(key=key, value=b"{}", mod_revision=HUGE, create_revision=HUGE, version=-1, lease=-1)
        if method == "Txn":
            for r in a.responses:
                r.response_range.kvs.add(key=b"", mod_revision=-1, create_revision=-1)
        return a
    with core.lock:
        core.lie = lie
    lose(core)


@case
def ranges_lack_keys(core, program):
    """ranges answer without the keys that they count, to who begins to watch"""
    left = [6]  # watches that end as they begin, so that the program reads anew

    def lie(method, q, a, core):
        if method == "Range":
            del a.kvs[:]
        elif method == "Watch" and a.created and left[0]:
            left[0] -= 1
            return [a, pb.WatchResponse(header=a.header, watch_id=a.watch_id, canceled=True, compact_revision=core.revision)]
        return a
    with core.lock:
        core.lie = lie
    core.wire.cut()


@case
def nobody_is_first(core, program):
    """somebody who is not there is first in the line for the lock"""
    def lie(method, q, a, core):
        if method == "Txn" and a.succeeded and a.responses and q.success[0].request_range.key == b"lock/x/":
            a.responses[0].response_range.kvs.add(key=b"lock/x/zz", create_revision=1, mod_revision=1)
        return a
    with core.lock:
        core.lie = lie
    lose(core)


@case
def nobody_shares(core, program):
    """a member of the group that is not there"""
    def lie(method, q, a, core):
        if method == "Range" and q.key == b"/tenure/default/work/g/":
            a.kvs.add(key=q.key + b"members/x", value=b'{"weight":100,"tasks":10}', lease=5, create_revision=1, mod_revision=1)
            a.count += 1
        return a
    with core.lock:
        core.lie = lie
    lose(core)


@case
def txn_shapes(core, program):
    """transactions answer with more or fewer operations, of other kinds, and other outcomes"""
    def change(a, core):
        k = random.randrange(6)
        if k == 0:
            del a.responses[:]
        elif k == 1:
            for _ in range(200):
                a.responses.add().response_txn.responses.add().response_range.kvs.add(key=b"k")
        elif k == 2:
            a.succeeded = not a.succeeded
        elif k == 3:
            for r in a.responses:
                r.response_put.SetInParent()
        elif k == 4:
            for r in a.responses:
                r.Clear()
        return a
    lies(core, change, "Txn")
    lose(core)


@case
def huge_answers(core, program):
    """each range is answered with 64 MiB"""
    def change(a, core):
        a.kvs.add(key=b"big", value=bytes(64 << 20), mod_revision=1, create_revision=1)
        return a
    lies(core, change, "Range")
    core.wire.cut()


@case
def puts_twice(core, program):
    """each change is made twice"""
    def lie(method, q, a, core):
        if method in ("Put", "Txn", "LeaseGrant"):
            try:
                return getattr(core, method)(q)
            except Refuse:
                pass
        return a
    with core.lock:
        core.lie = lie
    lose(core)


# ---- watches

def watch_case(name, doc, change, **kw):
    simple(name, doc, change, "Watch", **kw)


def events_of_others(a, core):
    for key in b"", b"/", b"w/k/x", b"/tenure/default/work/g/tasks/\xff", b"/tenure/default/work/g/members/a/b", b"lock/x/1", b"/tenure/default/nodes/a/b":
        a.events.add(kv=pb.KeyValue(key=key, value=b"{}", mod_revision=core.revision))
        a.events.add(type=pb.Event.DELETE, kv=pb.KeyValue(key=key, mod_revision=core.revision))
    a.events.add()
    a.events.add(type=pb.Event.DELETE)
    return a


watch_case("watch_events_of_others", "events of keys that nobody asked for, and of none", events_of_others)


def watch_ids(a, core):
    a.watch_id = random.choice([0, -1, -2, 1, 2, 3, 4, 5, 1000, HUGE, -HUGE - 1])
    return a


watch_case("watch_ids", "what comes is of other watches, or of none", watch_ids, cut=True)


def without_id(a, core):
    if a.created:
        a.watch_id = 0
    return a


watch_case("watch_without_id", "watches are confirmed, and it is not said which", without_id, cut=True)


def twins(a, core):
    return [pb.WatchResponse(header=a.header, watch_id=7, created=True), a, pb.WatchResponse(header=a.header, watch_id=7, created=True)]


watch_case("watch_twins", "watches are created that nobody asked for, all of one number", twins, cut=True)
watch_case("watch_canceled", "a watch is canceled as soon as it is asked for",
           lambda a, core: pb.WatchResponse(header=a.header, watch_id=a.watch_id, created=a.created, canceled=True, cancel_reason="no"), cut=True)
watch_case("watch_canceled_dumbly", "a watch is canceled without a reason",
           lambda a, core: [a, pb.WatchResponse(header=a.header, watch_id=a.watch_id, canceled=True)], cut=True)
watch_case("watch_compacted", "a watch is created, and canceled: compacted",
           lambda a, core: [a, pb.WatchResponse(header=a.header, watch_id=a.watch_id, canceled=True, compact_revision=core.revision)], cut=True)
watch_case("watch_never", "a watch is asked for and nothing comes", lambda a, core: None, cut=True)


def backwards(a, core):
    events = list(a.events)
    del a.events[:]
    a.events.extend(reversed(events))
    for e in events:
        e = a.events.add(kv=e.kv)
        e.kv.mod_revision = random.choice([0, -1, 1, e.kv.mod_revision - 1, HUGE])
    return a


watch_case("watch_backwards", "events out of order, and of odd revisions", backwards)


def fragments(a, core):
    a.fragment = True
    return a


watch_case("watch_fragments", "fragments that never end", fragments)


def future(a, core):
    return [a, pb.WatchResponse(header=pb.ResponseHeader(cluster_id=core.cluster, member_id=1, revision=core.revision + (1 << 40)), watch_id=-1)]


watch_case("watch_future", "progress of the future", future)
watch_case("watch_future_stays", "progress of the future, and a good core on the same connections", future)


def without_tasks(a, core):
    events = [e for e in a.events if b"/tasks/" not in e.kv.key]
    del a.events[:]
    a.events.extend(events)
    return a


watch_case("watch_without_tasks", "a watch that keeps to itself what becomes of tasks", without_tasks)


@case
def tasks_taken_in_secret(core, program):
    """takes of tasks are answered as if another member had been first, and the watch keeps to itself that none was"""
    def lie(method, q, a, core):
        if method == "Watch":
            return without_tasks(a, core)
        if method == "Txn":
            for r in a.responses:
                if r.HasField("response_txn"):
                    r.response_txn.succeeded = False
        return a
    with core.lock:
        core.lie = lie
    lose(core)


@case
def watch_flood(core, program):
    """a watch of whose events there is no end"""
    def change(core):
        for _ in range(50):
            core.revision += 1
            core.put(b"w/busy", b"x" * 1000)
    busily(change)(core)


# ---- caches

def cache_case(name, doc, change, **kw):
    simple(name, doc, change, "Cache", drop=False, **kw)


def term(value):
    def change(a, core):
        a.term_ms = value() if callable(value) else value
        return a
    return change


@case
def cache_terms(core, program):
    """promises of absurd lengths: what was cached is believed for 3 s at most"""
    lies(core, term(lambda: random.choice([-1, HUGE, 1 << 32, 3001, -HUGE - 1, 86400000])), "Cache")
    core.wire.cut()
    with core.lock:
        core.holders.clear()
    time.sleep(TERM + .2)
    core.write(b"c/k", b"after")
    b = program.believes()
    if b and (b["cached"] == "c0" or b["all_cached"] == "c0"):
        return f"it reads what was written over: {b}"


OF_ITS_OWN["cache_terms"] = {"seconds": 1.0}


@case
def cache_unheard(core, program):
    """no more is promised, nor recalled: what was cached is believed for 3 s at most"""
    lies(core, lambda a, core: None, "Cache")
    time.sleep(TERM + .2)
    with core.lock:
        core.holders.clear()
    core.write(b"c/k", b"after")
    b = program.believes()
    if b and (b["cached"] == "c0" or b["all_cached"] == "c0"):
        return f"it reads what was written over: {b}"


cache_case("cache_zero", "each term is 0", term(0), cut=True)
cache_case("cache_millisecond", "each term is of a millisecond", term(1), cut=True)


def cache_ids(a, core):
    a.id = random.choice([0, -1, 1, 2, 3, 4, HUGE])
    return a


cache_case("cache_ids", "promises of other ranges", cache_ids, cut=True)


def unchanged(a, core):
    del a.kvs[:]
    a.unchanged = True
    return a


cache_case("cache_unchanged", "nothing has ever changed", unchanged, cut=True)
cache_case("cache_recalls", "each promise is recalled at once, before and after it",
           lambda a, core: [pb.CacheResponse(header=a.header, id=a.id, recall=True), a, pb.CacheResponse(header=a.header, id=a.id, recall=True)], cut=True)
cache_case("cache_errors", "ranges are refused for many reasons",
           lambda a, core: pb.CacheResponse(header=a.header, id=a.id, error="no", code=random.choice([1, 3, 5, 7, 8, 14, 16, 99, -1])), cut=True)
cache_case("cache_unsolicited", "answers come that nobody asked for", lambda a, core: [a, a, a], cut=True)


def backwards_keys(a, core):
    for i in range(1000, 0, -1):
        a.kvs.add(key=b"c/%04d" % i, value=b"x", mod_revision=i)
    a.kvs.add(key=b"")
    a.kvs.add(key=b"c/k", value=b"\0" * 100)
    return a


cache_case("cache_unsorted", "what is cached is in no order, and there twice", backwards_keys, cut=True)


def loose(n):
    """The stream of a method ends after so many bytes of what the core sends: at each byte, one after the other."""
    def f(core, program):
        at = [0]
        pump = Wire.pump

        def short(a, b):
            limit, sent = at[0], 0
            at[0] += n
            try:
                while data := a.recv(65536):
                    if a.getpeername()[1] == core.wire.to:  # from the core
                        data = data[:max(0, limit - sent)]
                        sent += len(data)
                        b.sendall(data)
                        if sent >= limit:
                            break
                    else:
                        b.sendall(data)
                for s in a, b:
                    s.shutdown(2)
            except OSError:
                pass
        core.wire.pump = short
        core.wire.cut()
        return lambda: setattr(core.wire, "pump", pump)
    f.__doc__ = f"connections end after 0, {n}, {2 * n} and so on bytes"
    return f


CASES["ends_at_each_byte"] = loose(1)
CASES["ends_later"] = loose(37)
OF_ITS_OWN["ends_at_each_byte"] = OF_ITS_OWN["ends_later"] = {"seconds": 8.0}
OF_ITS_OWN["ttl_huge"] = {"ttl": 86400.0}  # the longest that there is
OF_ITS_OWN["watch_future_stays"] = OF_ITS_OWN["watch_without_tasks"] = OF_ITS_OWN["tasks_taken_in_secret"] = {"cut": False}
OF_ITS_OWN["watch_flood"] = {"cpu": 1.0}
OF_ITS_OWN["huge_answers"] = {"memory": 400, "cpu": 1.5}
for name, (f, own) in ON_WIRE.items():
    CASES[name], OF_ITS_OWN[name] = f, dict(own, turns=20000)


sys.exit(main(run, args, cuts=True, seeds=[1795806832], calls=400, ttl=86400.0, misled=True))
