"""The core that liar.py and liar_program.py have lie: as much of one as they need, in memory, and the lies that fit all of its clients.
Import it once the messages of the API are in sys.path."""
import contextlib
import copy
import os
import random
import socket
import struct
import threading
import time
from collections import deque
from concurrent import futures

import grpc
import rpc_pb2 as pb

class Core:
    """As much of a core as an agent needs, in memory. lie(method, request, answer, core) may change each answer: returns what is
    sent, a list of answers, or None for silence; or raises Refuse."""

    def __init__(self):
        self.lock = threading.Condition()
        self.cluster, self.revision, self.next_lease = 0xC0, 1, 100
        self.keys, self.leases, self.events = {}, {}, []
        self.lie = None
        self.lied = None  # lied(method, honest, sent) hears of what was sent instead
        self.calls = {}
        self.opened = {"Watch": 0, "LeaseKeepAlive": 0, "Cache": 0}
        self.names, self.holders = {}, {}  # of leases; of cache leases: (stream, id): [range, until, what recalls it]
        self.waits = 0  # writes that wait for them
        self.over = False
        self.tokens = None  # that are good: until when; None: nobody has to log in

    def header(self):
        return pb.ResponseHeader(cluster_id=self.cluster, member_id=1, revision=self.revision, raft_term=1)

    def put(self, key, value, lease=0):
        old = self.keys.get(key)
        kv = pb.KeyValue(key=key, value=value, lease=lease, mod_revision=self.revision,
                         create_revision=old.create_revision if old else self.revision, version=old.version + 1 if old else 1)
        self.keys[key] = kv
        self.events.append(pb.Event(type=pb.Event.PUT, kv=kv))

    def delete(self, key):
        if self.keys.pop(key, None):
            self.events.append(pb.Event(type=pb.Event.DELETE, kv=pb.KeyValue(key=key, mod_revision=self.revision)))

    def drop(self, lease):
        if self.leases.pop(lease, None):
            self.revision += 1
            for key in [k for k, v in self.keys.items() if v.lease == lease]:
                self.delete(key)

    def expire(self):
        with self.lock:
            for lease in [i for i, (ttl, at) in self.leases.items() if time.monotonic() > at + ttl]:
                self.drop(lease)
            self.lock.notify_all()

    def at(self, revision):
        """The keys as they were at @revision; 0: as they are."""
        if not 0 < revision < self.revision:
            return self.keys
        keys = {k: v for k, v in self.keys.items() if v.mod_revision <= revision}
        later = {e.kv.key for e in self.events if e.kv.mod_revision > revision}
        for e in self.events:
            if e.kv.key in later and e.kv.mod_revision <= revision:
                keys.pop(e.kv.key, None)
                if e.type == pb.Event.PUT:
                    keys[e.kv.key] = e.kv
        return keys

    def range(self, q):
        keys = self.at(q.revision)
        found = sorted(k for k in keys if k == q.key or q.range_end and q.key <= k and (k < q.range_end or q.range_end == b"\0"))
        if q.max_create_revision:
            found = [k for k in found if keys[k].create_revision <= q.max_create_revision]
        if q.sort_target == pb.RangeRequest.CREATE:
            found.sort(key=lambda k: keys[k].create_revision, reverse=q.sort_order == pb.RangeRequest.DESCEND)
        a = pb.RangeResponse(header=self.header(), count=len(found), more=bool(q.limit) and len(found) > q.limit)
        if not q.count_only:
            a.kvs.extend(keys[k] for k in (found[:q.limit] if q.limit else found))
        return a

    # ---- the methods

    def LeaseGrant(self, q):
        ttl = q.ttl_ms / 1000 or q.TTL
        if q.name:
            if self.names.get(q.name) in self.leases:
                raise Refuse(grpc.StatusCode.FAILED_PRECONDITION, "etcdserver: lease name already exists")
            self.names[q.name] = self.next_lease + 1
        self.next_lease += 1
        self.leases[self.next_lease] = (ttl, time.monotonic())
        return pb.LeaseGrantResponse(header=self.header(), ID=self.next_lease, TTL=int(ttl + .999), ttl_ms=int(ttl * 1000))

    def id_of(self, q):
        return self.names.get(q.name, 0) if q.name else q.ID

    def LeaseRevoke(self, q):
        if q.name and self.id_of(q) not in self.leases:
            raise Refuse(grpc.StatusCode.NOT_FOUND, "etcdserver: requested lease not found")
        self.drop(self.id_of(q))
        return pb.LeaseRevokeResponse(header=self.header())

    def LeaseTimeToLive(self, q):
        ttl, at = self.leases.get(self.id_of(q), (0, 0))
        left = int((at + ttl - time.monotonic()) * 1000) if ttl else -1000
        return pb.LeaseTimeToLiveResponse(header=self.header(), ID=self.id_of(q), TTL=left // 1000, ttl_ms=left, grantedTTL=int(ttl), granted_ttl_ms=int(ttl * 1000),
                                          keys=[k for k, v in self.keys.items() if q.keys and v.lease == self.id_of(q) != 0], name=q.name)

    def LeaseKeepAlive(self, q):
        lease = self.id_of(q)
        ttl = self.leases.get(lease, (0, 0))[0]
        if ttl:
            self.leases[lease] = (ttl, time.monotonic())
        return pb.LeaseKeepAliveResponse(header=self.header(), ID=lease, TTL=int(ttl + .999), ttl_ms=int(ttl * 1000), name=q.name)

    def Range(self, q):
        return self.range(q)

    def Put(self, q):
        lease = self.names.get(q.lease_name, -1) if q.lease_name else q.lease
        if lease and lease not in self.leases:
            raise Refuse(grpc.StatusCode.NOT_FOUND, "etcdserver: requested lease not found")
        self.revision += 1
        self.put(q.key, q.value, lease)
        return pb.PutResponse(header=self.header())

    def delete_range(self, q):
        found = [k for k in self.keys if k == q.key or q.range_end and q.key <= k and (k < q.range_end or q.range_end == b"\0")]
        for k in found:
            self.delete(k)
        return len(found)

    def DeleteRange(self, q):
        self.revision += 1
        n = self.delete_range(q)
        if n == 0:
            self.revision -= 1
        return pb.DeleteRangeResponse(header=self.header(), deleted=n)

    def is_so(self, c):
        kv = self.keys.get(c.key, pb.KeyValue())
        got, wanted = {pb.Compare.MOD: (kv.mod_revision, c.mod_revision), pb.Compare.LEASE: (kv.lease, c.lease), pb.Compare.VERSION: (kv.version, c.version),
                       pb.Compare.VALUE: (kv.value, c.value), pb.Compare.CREATE: (kv.create_revision, c.create_revision)}[c.target]
        return {pb.Compare.EQUAL: got == wanted, pb.Compare.GREATER: got > wanted, pb.Compare.LESS: got < wanted, pb.Compare.NOT_EQUAL: got != wanted}[c.result]

    def chosen(self, q):
        return q.success if all(self.is_so(c) for c in q.compare) else q.failure

    def changes(self, q):
        return any(o.HasField("request_put") or o.HasField("request_delete_range") or o.HasField("request_txn") and self.changes(o.request_txn)
                   for o in self.chosen(q))

    def lacks_lease(self, q):
        return any(o.HasField("request_put") and o.request_put.lease not in self.leases and o.request_put.lease
                   or o.HasField("request_txn") and self.lacks_lease(o.request_txn) for o in self.chosen(q))

    def apply(self, q):
        ops = self.chosen(q)
        a = pb.TxnResponse(succeeded=all(self.is_so(c) for c in q.compare))
        for o in ops:
            r = a.responses.add()
            if o.HasField("request_put"):
                self.put(o.request_put.key, o.request_put.value, o.request_put.lease)
                r.response_put.SetInParent()
            elif o.HasField("request_delete_range"):
                r.response_delete_range.deleted = self.delete_range(o.request_delete_range)
            elif o.HasField("request_txn"):
                r.response_txn.CopyFrom(self.apply(o.request_txn))
            else:
                r.response_range.CopyFrom(self.range(o.request_range))
        return a

    def Txn(self, q):
        if self.lacks_lease(q):
            raise Refuse(grpc.StatusCode.NOT_FOUND, "etcdserver: requested lease not found")
        if self.changes(q):
            self.revision += 1
        a = self.apply(q)
        a.header.CopyFrom(self.header())
        return a

    def Status(self, q):
        return pb.StatusResponse(header=self.header(), version="0.1.0", leader=1, clients=1)

    def Authenticate(self, q):
        token = f"{q.name}.{len(self.tokens)}"
        self.tokens[token] = time.monotonic() + self.token_s
        return pb.AuthenticateResponse(header=self.header(), token=token)

    # ---- and how they are called

    def check(self, method, context):
        if self.tokens is None or method == "Authenticate":
            return
        if self.tokens.get(dict(context.invocation_metadata()).get("token"), 0) < time.monotonic():
            raise Refuse(grpc.StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token")

    def answers(self, method, q, honest):
        """What goes to the client for @honest, as a list."""
        self.calls[method] = self.calls.get(method, 0) + 1
        lie = self.lie
        if not lie:
            return [honest]
        a = lie(method, q, copy.deepcopy(honest), self)
        sent = [] if a is None else a if isinstance(a, list) else [a]
        if self.lied:
            self.lied(method, honest, sent)
        return sent

    def unary(self, method, q, context):
        try:
            with self.lock:
                self.check(method, context)
                out = self.answers(method, q, getattr(self, method)(q))
                self.lock.notify_all()
            if out:
                return out[0]
            while not self.over and context.is_active():
                time.sleep(0.02)
            return b""
        except Refuse as e:
            context.abort(*e.args)

    def keep_alive(self, requests, context):
        self.opened["LeaseKeepAlive"] += 1
        number = self.opened["LeaseKeepAlive"]
        try:
            for q in requests:
                with self.lock:
                    self.check("LeaseKeepAlive", context)
                    self.stream = number
                    out = self.answers("LeaseKeepAlive", q, self.LeaseKeepAlive(q))
                yield from out
        except Refuse as e:
            context.abort(*e.args)

    def read_on(self, requests, context):
        """What comes on a stream, in line, and whether the client is gone."""
        pending, closed = deque(), threading.Event()
        context.add_callback(closed.set)

        def read():
            try:
                for q in requests:
                    with self.lock:
                        pending.append(q)
                        self.lock.notify_all()
            except Exception:
                pass
        threading.Thread(target=read, daemon=True).start()
        return pending, closed

    def watch(self, requests, context):
        self.opened["Watch"] += 1
        pending, closed = self.read_on(requests, context)
        there, last = {}, None  # id: [what was asked, from which revision, how many events have been looked at]
        try:
            while not closed.is_set() and not self.over:
                out = []
                with self.lock:
                    self.check("Watch", context)
                    while pending:
                        q = pending.popleft()
                        last = last or q
                        if q.HasField("create_request"):
                            c = q.create_request
                            i = c.watch_id or next(n for n in range(1 << 20) if n not in there)
                            there[i] = [c, c.start_revision or self.revision + 1, 0]
                            out += self.answers("Watch", q, pb.WatchResponse(header=self.header(), created=True, watch_id=i))
                        elif q.HasField("cancel_request"):
                            if there.pop(q.cancel_request.watch_id, None):
                                out += self.answers("Watch", q, pb.WatchResponse(header=self.header(), canceled=True, watch_id=q.cancel_request.watch_id))
                        else:
                            out += self.answers("Watch", q, pb.WatchResponse(header=self.header(), watch_id=-1))
                    for i, w in there.items():
                        c, begin, n = w
                        fresh = [e for e in self.events[n:] if e.kv.mod_revision >= begin and
                                 (e.kv.key == c.key or c.range_end and c.key <= e.kv.key and (e.kv.key < c.range_end or c.range_end == b"\0"))]
                        w[2] = len(self.events)
                        if fresh:
                            out += self.answers("Watch", last, pb.WatchResponse(header=self.header(), watch_id=i, events=fresh))
                    if not out:
                        self.lock.wait(0.05)
                yield from out
        except Refuse as e:
            context.abort(*e.args)

    def held(self, key):
        """Who was promised that @key does not change, and has not given that back."""
        now = time.monotonic()
        return [h for h, (q, until, _) in self.holders.items() if now < until and (key == q.key or q.range_end and q.key <= key < q.range_end)]

    def write(self, key, value):
        """A write that waits for all who have it cached."""
        with self.lock:
            self.waits += 1
            told = set()
            while held := self.held(key):
                for h in held:
                    if h not in told:
                        told.add(h)
                        self.holders[h][2]()
                self.lock.wait(0.02)
            self.waits -= 1
            self.revision += 1
            self.put(key, value)
            self.lock.notify_all()

    def cache(self, requests, context):
        self.opened["Cache"] += 1
        stream, recalls = self.opened["Cache"], deque()
        pending, closed = self.read_on(requests, context)
        try:
            while not closed.is_set() and not self.over:
                out = []
                with self.lock:
                    self.check("Cache", context)
                    while pending:
                        q = pending.popleft()
                        if q.release:
                            self.holders.pop((stream, q.id), None)
                            self.lock.notify_all()
                            continue
                        term = 0 if self.waits else min(q.term_ms, 3000)
                        r = self.range(pb.RangeRequest(key=q.key, range_end=q.range_end))
                        if term:
                            self.holders[stream, q.id] = [q, time.monotonic() + term / 1000, lambda i=q.id: (recalls.append(i), self.lock.notify_all())]
                        out += self.answers("Cache", q, pb.CacheResponse(header=self.header(), id=q.id, term_ms=term, kvs=r.kvs))
                    while recalls:
                        i = recalls.popleft()
                        out += self.answers("Cache", None, pb.CacheResponse(header=self.header(), id=i, recall=True))
                    if not out:
                        self.lock.wait(0.05)
                yield from out
        except Refuse as e:
            context.abort(*e.args)


class Refuse(Exception):
    pass


def encoded(m):
    return m if isinstance(m, bytes) else m.SerializeToString()


def serve(core, port=0):
    s = grpc.server(futures.ThreadPoolExecutor(64), options=[("grpc.so_reuseport", 0), ("grpc.max_send_message_length", -1)])
    services = {"etcdserverpb.Lease": (["LeaseGrant", "LeaseRevoke", "LeaseTimeToLive"], {"LeaseKeepAlive": core.keep_alive}),
                "etcdserverpb.KV": (["Range", "Put", "DeleteRange", "Txn"], {}), "etcdserverpb.Auth": (["Authenticate"], {}),
                "etcdserverpb.Maintenance": (["Status"], {}), "etcdserverpb.Watch": ([], {"Watch": core.watch}), "tenurepb.Cache": ([], {"Cache": core.cache})}
    for service, (unary, streams) in services.items():
        h = {m: grpc.unary_unary_rpc_method_handler(lambda q, c, m=m: core.unary(m, q, c), getattr(pb, m + "Request").FromString, encoded) for m in unary}
        h.update({m: grpc.stream_stream_rpc_method_handler(f, getattr(pb, m + "Request").FromString, encoded) for m, f in streams.items()})
        s.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, h),))
    port = s.add_insecure_port(f"127.0.0.1:{port}")
    s.start()
    return s, port


class Wire:
    """Between an agent and a core: passes on what comes, or lies on the level below messages. lie(back) is called for each connection
    while there is one, instead of passing on: back(bytes) sends to the agent."""

    def __init__(self, to):
        self.to, self.lie, self.over, self.pairs = to, None, False, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.accepted = self.listener.getsockname()[1], 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.over:
            try:
                s = self.listener.accept()[0]
            except OSError:
                return
            self.accepted += 1
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(s, self.lie), daemon=True).start()

    def serve(self, s, lie):
        try:
            if lie:
                def back(data):
                    s.sendall(data)
                    if self.lie is not lie:
                        raise ConnectionError
                lie(back)
            else:
                with socket.create_connection(("127.0.0.1", self.to)) as core:
                    self.pairs.append((s, core))
                    threading.Thread(target=self.pump, args=(s, core), daemon=True).start()
                    self.pump(core, s)
        except OSError:
            pass
        finally:
            s.close()

    @staticmethod
    def pump(a, b):
        try:
            while data := a.recv(65536):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def begin(self, lie):
        self.lie = lie
        self.cut()

    def cut(self):
        for pair in self.pairs:
            for s in pair:
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)
        self.pairs = []


def until(seconds, what):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.02)
    return False


def lies(agent_core, change, *methods):
    """change(answer, core) on the answers of those methods, of all if none."""
    def lie(method, q, a, core):
        return change(a, core) if not methods or method in methods else a
    with agent_core.lock:
        agent_core.lie = lie


def refusing(code, text):
    def change(a, core):
        raise Refuse(code, text)
    return change


def lose(core):
    """The place goes, so that the agent asks for another one."""
    with core.lock:
        for lease in list(core.leases):
            core.drop(lease)
        core.lock.notify_all()


def without_header(a, core):
    a.ClearField("header")
    return a


def other(field, value):
    def change(a, core):
        if a.HasField("header"):
            setattr(a.header, field, value)
        return a
    return change


def keep_alive_says(seconds, ms):
    def change(a, core):
        a.TTL, a.ttl_ms = seconds, ms
        return a
    return change


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


HEADERS, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = 1, 3, 4, 5, 6, 7, 8, 9
HELLO = frame(SETTINGS) + frame(SETTINGS, 1)


ON_WIRE = {}  # cases, and what each may take


def on_wire(what, first, more=None, pause=0.0, cpu=.5, memory=256):
    """Bytes instead of a core: some, then more of them without end."""
    def lie(back):
        back(first() if callable(first) else first)
        while True:
            if more is not None:
                back(more() if callable(more) else more)
            if pause:
                time.sleep(pause)

    def f(core, agent):
        core.wire.begin(lie if more is not None or pause else lambda back: back(first() if callable(first) else first))
        return lambda: f"{core.wire.accepted} connections" if core.wire.accepted > 30 else None
    f.__doc__ = what
    ON_WIRE["wire_" + what.replace(" ", "_").replace(",", "")] = f, {"cpu": cpu, "memory": memory}


on_wire("closed at once", b"")
on_wire("silence", b"", pause=.05)
on_wire("garbage", lambda: os.urandom(1000))
on_wire("http 1", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789", pause=.05)
on_wire("a hello and silence", HELLO, pause=.05)
on_wire("goodbye at once", HELLO + frame(GOAWAY, payload=bytes(8)), pause=.05)
on_wire("a byte at a time", b"", HELLO[:1], pause=.01)
on_wire("every stream reset", HELLO, b"".join(frame(RST, 0, n, struct.pack(">I", 7)) for n in range(1, 40, 2)), pause=.01)
on_wire("answers without an end", HELLO, lambda: frame(0, 0, 1, bytes(16000)), pause=.001, cpu=1)
on_wire("headers without end", HELLO + frame(HEADERS, 0, 1, b"\x88"), frame(CONTINUATION, 0, 1, b"\x00\x04name\x7f\x81\x7e" + b"v" * 253) * 20, pause=.001, cpu=1)
on_wire("pings without end", HELLO, frame(PING, payload=bytes(8)) * 50, pause=.001, cpu=1)
on_wire("settings without end", HELLO, frame(SETTINGS) * 50, pause=.001, cpu=1)
on_wire("empty frames without end", HELLO, frame(0, 0, 1) * 100, pause=.001, cpu=1)
on_wire("no window", frame(SETTINGS, payload=struct.pack(">HI", 4, 0)) + frame(SETTINGS, 1), pause=.05)
on_wire("pushes", HELLO, frame(PUSH, 4, 1, struct.pack(">I", 2) + b"\x82\x86\x84"), pause=.01)
on_wire("messages of 2 GiB", HELLO + frame(HEADERS, 4, 1, b"\x88\x5f\x10application/grpc"), frame(0, 0, 1, b"\0\x7f\xff\xff\xff" + bytes(16000)), pause=.001, cpu=1)
on_wire("a compressed message", HELLO + frame(HEADERS, 4, 1, b"\x88") + frame(0, 0, 1, b"\1\0\0\0\1x"), pause=.05)
on_wire("a status that is none", HELLO + frame(HEADERS, 5, 1, b"\x88\x00\x0bgrpc-status\x02-5\x00\x0cgrpc-message\x04%zz%"), pause=.05)


def random_lies(r, core):
    """Changes of all kinds, each for a part of the answers."""
    share, what = r.random(), [r.randrange(12) for _ in range(4)]

    def lie(method, q, a, core):
        if r.random() > share:
            return a
        k = r.choice(what)
        if k == 0:
            return None if method in ("LeaseKeepAlive", "Watch") else a
        if k == 1 and method in ("LeaseKeepAlive", "Watch"):
            return [a] * r.randrange(5)
        if k == 2:
            raise Refuse(r.choice(list(grpc.StatusCode)[1:]), "x" * r.randrange(300))
        if k == 3:
            raw = bytearray(a.SerializeToString())
            for _ in range(r.randrange(1, 8)):
                if raw:
                    raw[r.randrange(len(raw))] = r.randrange(256)
            return bytes(raw)
        if k == 4:
            raw = a.SerializeToString()
            return raw[:r.randrange(len(raw) + 1)]
        fields = [f for f in a.DESCRIPTOR.fields]
        if k < 8 and fields:
            a.ClearField(r.choice(fields).name)
        elif k < 10 and a.HasField("header"):
            f = r.choice(["cluster_id", "revision", "member_id"])
            setattr(a.header, f, r.choice([0, 1, r.randrange(1 << 62), core.revision - 1 if core.revision > 1 else 1]))
        else:
            for f in fields:
                if f.cpp_type == f.CPPTYPE_INT64 and f.label != f.LABEL_REPEATED and r.random() < .5:
                    setattr(a, f.name, r.choice([0, -1, 1, (1 << 63) - 1, -(1 << 63), r.randrange(1 << 40)]))
        return a
    with core.lock:
        core.lie = lie


