"""Debian's real etcd and tenure-core side by side: what is called on both is compared.

For api.py and auth.py, which are run with --pb DIR --tenure HOST:PORT --etcd HOST:PORT [--seed N]; --pb: where protoc
put rpc_pb2.py, made of lib/wire/rpc.proto. What is random (lease ids made by the server), an engine's own (ids, terms)
or a matter of time (remaining TTL) is taken out; everything else counts, the revision in each header too.
"""
import argparse
import queue
import sys
import threading
import time

import grpc

import channels

ap = argparse.ArgumentParser()
ap.add_argument("--pb", required=True)
ap.add_argument("--tenure", required=True)
ap.add_argument("--etcd", required=True)
ap.add_argument("--seed", type=int, default=int(time.time()))
args = ap.parse_args()
sys.path.insert(0, args.pb)
import rpc_pb2 as pb  # noqa: E402

PASSED, FAILED = 0, 0
WAIT = 10


def report(ok, what, why=""):
    global PASSED, FAILED
    if ok:
        PASSED += 1
        print(f"ok {what}")
    else:
        FAILED += 1
        print(f"not ok {what}\n    {why}")


class Engine:
    def __init__(self, target):
        self.channel = channels.to(target)
        self.token = None

    def metadata(self):
        return (("token", self.token),) if self.token else ()

    def call(self, path, request, reply, timeout=WAIT):
        f = self.channel.unary_unary(path, request_serializer=lambda m: m.SerializeToString(),
                                     response_deserializer=reply.FromString)
        try:
            return f(request, timeout=timeout, metadata=self.metadata())
        except grpc.RpcError as e:
            return f"{e.code().name}: {e.details()}"

    def future(self, path, request, reply, timeout=WAIT):
        f = self.channel.unary_unary(path, request_serializer=lambda m: m.SerializeToString(),
                                     response_deserializer=reply.FromString)
        return f.future(request, timeout=timeout, metadata=self.metadata())

    def stream_out(self, path, request, reply):
        f = self.channel.unary_stream(path, request_serializer=lambda m: m.SerializeToString(),
                                      response_deserializer=reply.FromString)
        return f(request, timeout=WAIT, metadata=self.metadata())


class Stream:
    """A stream in both directions, read by a thread."""

    def __init__(self, engine, path, reply):
        self.out, self.into = queue.Queue(), queue.Queue()
        f = engine.channel.stream_stream(path, request_serializer=lambda m: m.SerializeToString(),
                                         response_deserializer=reply.FromString)
        self.answers = f(iter(self.out.get, None), metadata=engine.metadata())
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            for m in self.answers:
                self.into.put(m)
            self.into.put("end")
        except grpc.RpcError as e:
            self.into.put(f"{e.code().name}: {e.details()}")

    def send(self, m):
        self.out.put(m)

    def next(self, timeout=WAIT):
        try:
            return self.into.get(timeout=timeout)
        except queue.Empty:
            return "nothing came"

    def close(self):
        self.out.put(None)
        self.answers.cancel()


ENGINES = {"tenure": Engine(args.tenure), "etcd": Engine(args.etcd)}


def clean(m):
    if isinstance(m, str):
        return m
    c = type(m)()
    c.CopyFrom(m)
    scrub(c)
    return str(c) or f"({type(m).__name__}: empty)"


def scrub(m):
    for field, value in list(m.ListFields()):
        if field.name == "header":
            value.ClearField("cluster_id"), value.ClearField("member_id"), value.ClearField("raft_term")
        if field.number > 9000:
            m.ClearField(field.name)
        elif field.message_type and field.label == field.LABEL_REPEATED:
            for v in value:
                scrub(v)
        elif field.message_type:
            scrub(value)


def both(what, path, request, reply, forget=()):
    """One call on both; returns the two raw answers."""
    raw = {n: e.call(path, request, reply) for n, e in ENGINES.items()}
    shown = {}
    for n, r in raw.items():
        if not isinstance(r, str):
            r2 = type(r)()
            r2.CopyFrom(r)
            for f in forget:
                r2.ClearField(f)
            shown[n] = clean(r2)
        else:
            shown[n] = r
    if what is not None:
        report(shown["tenure"] == shown["etcd"], what, f"tenure: {shown['tenure']!r}\n    etcd:   {shown['etcd']!r}")
    return raw, shown["tenure"] == shown["etcd"], shown


KV = "/etcdserverpb.KV/"
LEASE = "/etcdserverpb.Lease/"


def watch(m, s):
    for x in s.values():
        x.send(m)


def next_events(s, what, n_events, in_order=True):
    """Collects @n_events events from each and compares them, with their revisions; how they are cut into responses is
    the engine's affair, and the order between the watches of a stream is nobody's promise."""
    got = {}
    for n, x in s.items():
        events = []
        while len(events) < n_events:
            m = x.next()
            if isinstance(m, str):
                events.append(m)
                break
            if m.canceled or m.created:
                events.append(clean(m))
            events += [(m.watch_id, str(e)) for e in m.events]
        got[n] = events if in_order else sorted(events, key=str)
    report(got["tenure"] == got["etcd"], what, f"tenure: {got['tenure']}\n    etcd:   {got['etcd']}")


def next_same(s, what, forget=()):
    got = {}
    for n, x in s.items():
        m = x.next()
        if not isinstance(m, str):
            for f in forget:
                m.ClearField(f)
        got[n] = clean(m)
    report(got["tenure"] == got["etcd"], what, f"tenure: {got['tenure']!r}\n    etcd:   {got['etcd']!r}")


def create(**k):
    return pb.WatchRequest(create_request=pb.WatchCreateRequest(**k))


def finish():
    print(f"{PASSED} passed, {FAILED} failed, 0 skipped")
    sys.exit(1 if FAILED else 0)
