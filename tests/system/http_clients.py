#!/usr/bin/python3
"""Clients that speak HTTP/1.1 slowly, wrongly or too much, at a replica, while an honest one asks beside them.

usage: http_clients.py PORT PID        of the replica
"""
import collections
import os
import resource
import select
import socket
import sys
import threading
import time

import h2raw

PORT, PID = int(sys.argv[1]), int(sys.argv[2])
QUIET = bool(os.environ.get("QUIET"))  # nothing else runs here: how long something took is judged, too
RENEW = b'POST /v3/lease/grant HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{"TTL":10}'
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


def report(ok, what, why=""):
    print(f"ok {what}" if ok else f"not ok {what}: {why}", flush=True)


def connect():
    s = socket.create_connection(("127.0.0.1", PORT), 10)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def rss():
    with open(f"/proc/{PID}/status") as f:
        return next(int(line.split()[1]) // 1024 for line in f if line.startswith("VmRSS"))


def whole(data):
    """How many bytes the first answer in @data has; none while it is not all there."""
    head = data.find(b"\r\n\r\n")
    if head < 0:
        return None
    at = head + 4
    length = [int(line.split(b":")[1]) for line in data[:head].split(b"\r\n") if line.lower().startswith(b"content-length:")]
    if length:
        return at + length[0] if len(data) >= at + length[0] else None
    while True:  # in chunks
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        n = int(data[at:end], 16)
        at = end + 2 + n + 2
        if len(data) < at:
            return None
        if n == 0:
            return at


def whole_answers(s, n, most=30):
    """Reads @n whole answers."""
    data, got, end = b"", [], time.monotonic() + most
    while len(got) < n and time.monotonic() < end:
        if size := whole(data):
            got.append(data[:size])
            data = data[size:]
            continue
        s.settimeout(max(end - time.monotonic(), 0.01))
        try:
            new = s.recv(1 << 16)
        except OSError:
            break
        if not new:
            break
        data += new
    return got


def answers(s, n, most=30):
    """Reads @n whole answers; returns their status lines."""
    return [a[:a.find(b"\r\n")].decode() for a in whole_answers(s, n, most)]


def ended(socks, most):
    """How many of them the replica ended within so many seconds."""
    left, end = set(socks), time.monotonic() + most
    while left and time.monotonic() < end:
        for s in select.select(list(left), [], [], 0.2)[0]:
            try:
                data = s.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                left.discard(s)
    return len(socks) - len(left)


class Honest(threading.Thread):
    """Grants a lease each 20 ms; remembers the slowest answer and what went wrong."""

    def __init__(self):
        super().__init__(daemon=True)
        self.slowest, self.n, self.wrong, self.go_on = 0, 0, [], True
        self.start()

    def run(self):
        s = connect()
        while self.go_on:
            began = time.monotonic()
            s.sendall(RENEW)
            got = answers(s, 1)
            self.slowest, self.n = max(self.slowest, time.monotonic() - began), self.n + 1
            if got != ["HTTP/1.1 200 OK"]:
                self.wrong.append(got)
                s = connect()
            time.sleep(0.02)


def beside(what, attack, bound=3.0, memory=128):
    """On a quiet machine the slowest takes 0.1 s; without limits memory grows by 500 MiB and more."""
    honest, before = Honest(), rss()
    attack()
    grown = rss() - before
    honest.go_on = False
    honest.join()
    print(f"    {what}: {honest.n} grants beside it, the slowest {honest.slowest * 1000:.0f} ms; {grown} MiB", flush=True)
    report(honest.n > 0 and not honest.wrong, f"{what}: honest ones are served", honest.wrong[:2])
    if QUIET:
        report(honest.slowest < bound, f"{what}: and soon", f"{honest.slowest:.2f} s of {bound:.2f}")
    report(grown < memory, f"{what}: memory stays", f"{grown} MiB more")


# ---- many requests on one connection ----
s, n = connect(), 0
for _ in range(10000):
    s.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
    n += answers(s, 1) == ["HTTP/1.1 200 OK"]
report(n == 10000, "10,000 requests on one connection", f"{n} were answered")
s.close()


def once(request, n, has):
    """Sends it, and that there is no more, as `nc -N` does; whether all is answered, with @has in it, and the connection ended."""
    s = connect()
    s.sendall(request * n)
    s.shutdown(socket.SHUT_WR)
    got = whole_answers(s, n, 10)
    ok = len(got) == n and all(a.startswith(b"HTTP/1.1 200 OK\r\n") and has in a for a in got) and s.recv(1) == b""
    s.close()
    return ok


PUT = b'POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n{"key":"YQ=="}'
KEEPALIVE = b'POST /v3/lease/keepalive HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{"ID":"7"}'
SNAPSHOT = b"POST /v3/maintenance/snapshot HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
for what, request, n, has in (("a put", PUT, 1, b'"header"'), ("a keep-alive", KEEPALIVE, 1, b'"ID":"7"'), ("a snapshot", SNAPSHOT, 1, b'"blob":"'),
                              ("/health", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", 1, b"true"),
                              ("20 pages of metrics", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 20, b"etcd_server_has_leader")):
    good = sum(once(request, n, has) for _ in range(50))
    report(good == 50, f"{what}, from one who sends no more", f"{good} of 50 were answered")
s = connect()
s.sendall(b'POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: 33\r\n\r\n{"create_request":{"key":"dw=="}}')
s.shutdown(socket.SHUT_WR)
report(ended([s], 10) == 1, "a watch ends with who has gone")
s.close()


def flood():
    """Requests without a look at an answer, then all answers."""
    socks = [connect() for _ in range(20)]
    for s in socks:
        s.setblocking(False)
    sent, end = dict.fromkeys(socks, 0), time.monotonic() + 3
    chunk = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n" * 100
    while time.monotonic() < end:
        for s in select.select([], socks, [], 0.1)[1]:
            sent[s] += s.send(chunk[sent[s] % len(chunk):])
    one = socks[0]
    whole = sent[one] // 34
    got = answers(one, min(whole, 5000))
    report(len(got) == min(whole, 5000) and set(got) == {"HTTP/1.1 200 OK"}, "pipelined requests are answered, each in its turn", f"{len(got)} of {whole}")
    for s in socks:
        s.close()


beside("pipelined floods", flood)


def slow():
    """A byte a second, of the head, of a body or of what is around a chunk; and nothing at all."""
    head = b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
    heads, bodies, silent, chunks = ([connect() for _ in range(250)] for _ in range(4))
    for s in bodies:
        s.sendall(head)
    for s in chunks:
        s.sendall(b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;")
    began = time.monotonic()
    for i in range(25):
        for socks, byte in ((heads, head[i:i + 1]), (bodies, b" " if i else b"{"), (chunks, b"x")):
            for s in socks:
                try:
                    s.send(byte)
                except OSError:
                    pass
        time.sleep(1)
    socks = heads + bodies + silent + chunks
    gone = ended(socks, 15)
    report(gone == 1000, "who does not send a request in time is ended", f"{gone} of 1000 after {time.monotonic() - began:.0f} s")
    for s in socks:
        s.close()


beside("1000 who send a byte a second, or none", slow)


def endless():
    """Bodies and headers that never end, as fast as they are taken."""
    starts = [b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", b"GET /version HTTP/1.1\r\nHost: x\r\nX-Long: ",
              b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 1500000\r\n\r\n{", b"POST /v3/watch HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
              b"GET /" + b"x" * 70000]
    mores = [b"1000\r\n" + b" " * 4096 + b"\r\n", b"x" * 4096, b'"a":{"b":[' * 100, b"1000\r\n" + b"{}" * 2048 + b"\r\n", b"x" * 4096]
    kinds, end = {}, time.monotonic() + 6
    for i, start in enumerate(starts):
        for _ in range(40):
            s = connect()
            s.sendall(start)
            s.setblocking(False)
            kinds[s] = i
    closed = 0
    while kinds and time.monotonic() < end:
        for s in select.select([], list(kinds), [], 0.1)[1]:
            try:
                s.send(mores[kinds[s]])
            except BlockingIOError:
                pass
            except OSError:
                closed += 1
                del kinds[s]
                s.close()
    for s in kinds:
        s.close()
    print(f"    {closed} of {40 * len(starts)} were ended meanwhile")


beside("requests without an end", endless)


def unread():
    """Large answers that nobody reads."""
    socks = []
    for _ in range(200):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", PORT))
        s.sendall(b'POST /v3/kv/range HTTP/1.1\r\nHost: x\r\nContent-Length: 18\r\n\r\n{"key":"bGFyZ2U="}')
        socks.append(s)
    time.sleep(3)
    for s in socks:
        s.close()


beside("200 large answers that nobody reads", unread)

# ---- large requests ----
VALUE = b"A" * 1900000
LARGE = b'{"key":"bGFyZ2U=","value":"%s"}' % VALUE


def post(path, body):
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path, len(body)) + body


CHUNKED = b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(LARGE) + LARGE + b"\r\n0\r\n\r\n"
SIZED = post(b"/v3/kv/put", LARGE)
GRPC = 1500000


def put_by_grpc():
    """A connection that has begun a large put by gRPC."""
    s = h2raw.connect(PORT)
    s.sendall(h2raw.frame(h2raw.HEADERS, h2raw.END_HEADERS, 1, h2raw.headers(b"/etcdserverpb.KV/Put")) +
              h2raw.frame(h2raw.DATA, 0, 1, b"\0" + GRPC.to_bytes(4, "big")))
    return s


class Sender:
    """Sends as much of a large request as is taken, but for its last bytes."""

    def __init__(self, kind):
        self.s = put_by_grpc() if kind == "gRPC" else connect()
        self.rest, self.window, self.data = (None, (1 << 14) - 5, b"") if kind == "gRPC" else (memoryview(SIZED if kind == "sized" else CHUNKED)[:-100], 0, b"")
        self.sent = 0
        self.s.setblocking(False)

    def go_on(self):
        """Returns False once it has been ended."""
        try:
            if self.rest is not None:
                n = self.s.send(self.rest[:1 << 16]) if self.rest else 0
                self.rest, self.sent = self.rest[n:], self.sent + n
                return True
            while True:
                try:
                    got = self.s.recv(1 << 16)
                except BlockingIOError:
                    break
                if not got:
                    return False
                frames, self.data = h2raw.frames(self.data + got)
                self.window += sum(int.from_bytes(p, "big") for k, _, stream, p in frames if k == h2raw.WINDOW and stream == 1)
            n = min(self.window, GRPC - 100 - self.sent)
            if n > 0:
                self.s.setblocking(True)
                self.s.sendall(b"".join(h2raw.frame(h2raw.DATA, 0, 1, bytes(min(1 << 14, n - at))) for at in range(0, n, 1 << 14)))
                self.s.setblocking(False)
                self.window, self.sent = self.window - n, self.sent + n
            return True
        except BlockingIOError:
            return True
        except OSError:
            return False


def halves(kind):
    """Each of 500 connections brings most of a large request: together thrice what --max-client-bytes allows, and six times the address's part."""
    senders, peak, before, end = [Sender(kind) for _ in range(500)], 0, rss(), time.monotonic() + 5
    while time.monotonic() < end:
        senders = [x for x in senders if x.go_on()]
        peak = max(peak, rss() - before)
    taken = sum(x.sent for x in senders) >> 20
    print(f"    {kind}: {taken} MiB were taken, at most {peak} MiB held")
    report(peak < 200, f"half requests, {kind}: no more is held than --max-client-bytes allows an address", f"{peak} MiB")
    for x in senders:
        x.s.close()


def at_once(request, n):
    """What so many of them that are sent at the same time are answered."""
    got = []

    def one():
        s = connect()
        try:
            s.settimeout(60)
            s.sendall(request)
            got.extend(answers(s, 1, 60) or ["no answer"])
        except OSError as e:
            got.append(str(e))
        s.close()

    threads = [threading.Thread(target=one) for _ in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return sorted(got)


def crowd_of(what, request, n=60):
    """So many whole ones at the same time, more than there is room for: all are taken in, and answered."""
    late = ("HTTP/1.1 429 Too Many Requests", "HTTP/1.1 503 Service Unavailable", "HTTP/1.1 504 Gateway Timeout")
    for _ in range(3):
        got = collections.Counter(at_once(request, n))
        # A busy disk cannot take what all of them bring: some, or once all, are told so.
        told = sum(got[g] for g in late)
        if got["HTTP/1.1 200 OK"] or told < n:
            break
    report(got["HTTP/1.1 200 OK"] > 0 and got["HTTP/1.1 200 OK"] + told == n, f"{n} large puts at once, {what}: each is answered", str(got))


for kind in ("sized", "chunked", "gRPC"):
    beside(f"half requests, {kind}", lambda: halves(kind), 2.0, 200)
for kind, request in (("sized", SIZED), ("chunked", CHUNKED)):
    crowd_of(kind, request)
# What is not written needs nothing but room.
got = collections.Counter(at_once(post(b"/v3/kv/range", b'{"key":"%s","serializable":true}' % VALUE), 60))
report(got["HTTP/1.1 200 OK"] == 60, "60 large ranges at once: each has its room", str(got))
print("done")
