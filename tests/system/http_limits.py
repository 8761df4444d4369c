#!/usr/bin/python3
"""More connections than one address may have, at a replica: what those beyond are told, and what they cost.

usage: http_limits.py PORT PROBE-PORT LIMIT PID        of the replica, which has places for three times LIMIT
"""
import os
import select
import socket
import sys
import time

from h2raw import GOAWAY, HELLO, frames, settings

PORT, PROBES, LIMIT, PID = map(int, sys.argv[1:])
GET = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n"
MANY = 300


def report(ok, what, why=""):
    print(f"ok {what}" if ok else f"not ok {what}: {why}", flush=True)


def connect(port=PORT, source="127.0.0.1"):
    s = socket.create_connection(("127.0.0.1", port), 10, (source, 0))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def until_end(s):
    """All that comes, and whether the end was one without an error."""
    got = b""
    try:
        while data := s.recv(1 << 16):
            got += data
        return got, True
    except OSError:
        return got, False


def asked(request, *more):
    s = connect()
    s.sendall(request)
    for m in more:
        try:
            s.sendall(m)
        except OSError:  # it has been told already
            break
    return until_end(s)


def is_answered(s, path=b"/livez"):
    if s is None:
        return False
    s.sendall(GET % path)
    return s.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


def served(port=PORT, path=b"/livez", source="127.0.0.1"):
    """A connection that was answered, or None."""
    s = connect(port, source)
    if is_answered(s, path):
        return s
    s.close()
    return None


def served_within(seconds, source="127.0.0.1"):
    end = time.monotonic() + seconds
    while not (s := served(source=source)) and time.monotonic() < end:
        pass
    return s


def descriptors():
    return len(os.listdir(f"/proc/{PID}/fd"))


before = descriptors()
held = [served() for _ in range(LIMIT)]
report(all(held), "as many connections as an address may have")
for what, request in (("a GET", [GET % b"/version"]), ("a GET, a byte after the other", [bytes([b]) for b in b"GET"]),
                      ("a put", [b'POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n', b'{"key":"YQ=="}'])):
    got, clean = asked(*request)
    report(got.startswith(b"HTTP/1.1 503 ") and got.endswith(b"\r\n\r\ntoo many connections\n") and b"\r\nConnection: close\r\n" in got,
           f"one more that sends {what} is told", str(got))
s = connect()
s.sendall(GET % b"/version")
s.shutdown(socket.SHUT_WR)
got, clean = until_end(s)
report(got.startswith(b"HTTP/1.1 503 ") and clean, "so is one who sends no more", str(got))
got, _ = asked(HELLO + settings())
report(any(kind == GOAWAY and body[4:8] == b"\0\0\0\x0b" for kind, _, _, body in frames(got)[0]), "by HTTP/2, with ENHANCE_YOUR_CALM", str(got))
s = connect()
began = time.monotonic()
got, clean = until_end(s)
report(got == b"" and clean and time.monotonic() - began < 5, "one that says nothing is closed", f"{got} after {time.monotonic() - began:.1f} s")

silent = [connect() for _ in range(MANY)]
grown = descriptors() - before - LIMIT
report(grown <= 80, "few of those that say nothing have a descriptor", f"{grown} of {MANY}")
report(served(PROBES, b"/readyz") is not None, "probes are answered meanwhile")
# They are taken in the order in which they came: once this one is told, none of the others waits to take a place that is free.
got, clean = asked(GET % b"/version")
report(got.startswith(b"HTTP/1.1 503 "), "one more is told, behind all of them", str(got))
held.pop().close()
again = served_within(5)
report(again, "and they take nobody's place: there is one where one has gone")
end = time.monotonic() + 10
left = set(silent)
while left and time.monotonic() < end:
    for s in select.select(list(left), [], [], .2)[0]:
        until_end(s)
        left.discard(s)
report(not left, "all of them are closed", f"{len(left)} are not")

# Who takes all places and asks for nothing keeps nobody out for long; such connections would be closed after 10 s by themselves.
for s in held + [again]:
    s.close()
for what, begin in (("nothing", b""), ("half a request", b"GET /v"), ("half of HTTP/2's greeting", HELLO[:10]), ("HTTP/2's greeting", HELLO)):
    asked_once = [served_within(5) for _ in range(5)]
    silent = [connect() for _ in range(LIMIT - 5)]
    for s in silent:
        s.sendall(begin)
    one = served_within(5)
    report(one, f"where all of an address's say {what}, one makes room")
    report(all(is_answered(s) for s in asked_once), "which is none that has asked for something")
    for s in [*asked_once, *silent, one]:
        if s:
            s.close()
kept = [served_within(5, f"127.0.0.{i}") for i in range(2, 7)]
silent = [connect(source=f"127.0.0.{2 + i % 5}") for i in range(3 * LIMIT - 5)]
one = served_within(5, "127.0.0.9")
report(one and all(is_answered(s) for s in kept), "the same of many addresses, which take all places that there are")
print("done")
