#!/usr/bin/python3
"""A link that breaks with proposals in it, many times, while leader and term stay: each is answered as soon as there is a link again,
and done once.

usage: links.py --bin DIR --dir DIR --pb DIR --ports P1,...,P9 [--tls CA,CERT,KEY]
The URLs of the members are those of relays of ours, which pass on what comes. That of the leader at times does not: it keeps what a
follower sends to itself, or half of a chunk, or passes it all on, and then cuts that link, by RST or by FIN, while clients put numbered
keys and renew a lease at that follower. What the leader sends is never cut, or its followers would stand against it.
"""
import itertools
import os
import socket
import struct
import threading
import time

import grpc

from cluster import PORTS, TLS, KeepAlive, Replica, finish, leader, members, report, until_they_answer, wait_for

CLIENT, LISTEN, MEET = PORTS[:3], PORTS[3:6], PORTS[6:]
LIMIT = 6.0  # a proposal that nobody sent again is not answered within the 10 s of a client
HELD = .25  # so long the leader's word is held back: much shorter than an election timeout, 3 s here
ENOUGH = 1500  # bytes: less than one put, more than what else goes there at once
STABLE = 1.2  # a link that held so long is made again at once
ROUNDS = 12 if TLS else 36
GREETING, PROPOSE = 24, 6


class Link:
    """A connection of one replica to another, by way of us."""

    def __init__(self, relay, theirs):
        self.relay, self.theirs, self.lock = relay, theirs, threading.Lock()
        self.ours = socket.create_connection(("127.0.0.1", relay.to))
        for s in (self.theirs, self.ours):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.began, self.up, self.seen, self.mode, self.who = time.monotonic(), True, 0, "pass", None
        self.when_enough = lambda: None
        self.frames = Frames(relay.proposals)
        threading.Thread(target=self.pump, args=(self.theirs, self.ours, self.outward), daemon=True).start()
        threading.Thread(target=self.pump, args=(self.ours, self.theirs, self.theirs.sendall), daemon=True).start()

    def is_of(self, replica):
        self.who = self.who or caller(self.theirs)
        return self.up and self.who is replica

    def outward(self, data):
        """What the caller sends."""
        self.relay.open.wait()
        with self.lock:
            goes = {"pass": len(data), "keep": 0, "half": len(data) // 2}[self.mode]
            if self.mode == "half":
                self.mode = "keep"
            if not TLS:
                self.frames.add(data, goes)
            if self.seen + len(data) >= ENOUGH:
                self.when_enough()
            self.ours.sendall(data[:goes])
            self.seen += len(data)

    def pump(self, source, sink, through):
        try:
            while data := source.recv(1 << 16):
                through(data)
            if self.up:
                sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        self.up = False

    def begin(self, mode, when_enough):
        with self.lock:
            self.seen, self.mode, self.when_enough = 0, mode, when_enough

    def cut(self, how):
        with self.lock:
            self.mode, self.up, self.when_enough = "keep", False, lambda: None
        for s in (self.theirs, self.ours):
            try:
                if how == "RST":
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    s.shutdown(socket.SHUT_RD)  # wakes who reads it: the last that lets go of it resets it
                    s.close()
                else:
                    s.shutdown(socket.SHUT_WR)
            except OSError:
                pass


class Frames:
    """Which proposals were in the bytes of a link without TLS, and which of them went on whole."""

    def __init__(self, proposals):
        self.proposals, self.buffer, self.at, self.gone = proposals, b"", 0, 0

    def add(self, data, goes):
        self.buffer += data
        self.gone += goes
        if self.at == 0 and len(self.buffer) >= GREETING:
            self.take(GREETING)
        while self.at and len(self.buffer) >= 4 and len(self.buffer) >= 4 + (n := int.from_bytes(self.buffer[:4], "little")):
            frame = self.buffer[4:4 + n]
            self.take(4 + n)
            if frame[0] == PROPOSE:
                came = self.proposals.setdefault(frame[1:25], [0, 0])  # by term, life and number
                came[0] += 1
                came[1] += self.at <= self.gone

    def take(self, n):
        self.buffer, self.at = self.buffer[n:], self.at + n


def caller(s):
    """The replica whose socket is at the other end: no name is told before TLS."""
    ends = [f"0100007F:{port:04X}" for port in (s.getpeername()[1], s.getsockname()[1])]
    with open("/proc/net/tcp") as f:
        inodes = [line.split()[9] for line in f if line.split()[1:3] == ends]
    for r in replicas:
        for fd in os.listdir(f"/proc/{r.process.pid}/fd"):
            try:
                if os.readlink(f"/proc/{r.process.pid}/fd/{fd}") in [f"socket:[{i}]" for i in inodes]:
                    return r
            except OSError:
                pass  # it is closed already
    return None


class Relay:
    def __init__(self, meet, to):
        self.to, self.links, self.proposals, self.open = int(to), [], {}, threading.Event()
        self.open.set()
        self.listener = socket.create_server(("127.0.0.1", int(meet)))
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            theirs, _ = self.listener.accept()
            try:
                self.links.append(Link(self, theirs))
            except OSError:  # nobody is there yet
                theirs.close()

    def link_of(self, r):
        return next((k for k in reversed(self.links) if k.is_of(r)), None)


class Clients:
    def __init__(self, follower):
        self.f, self.took, self.errors, self.over, self.last = follower, [], [], threading.Event(), {}
        self.lease = follower.grant(60)
        self.threads = [threading.Thread(target=self.put, args=(i,), daemon=True) for i in range(4)] + [threading.Thread(target=self.renew, daemon=True)]
        for t in self.threads:
            t.start()

    def put(self, i):
        for n in itertools.count():
            if self.over.is_set():
                break
            self.measure(lambda: self.f.put(b"k/%d/%06d" % (i, n), b"x" * 2000))
            self.last[i] = n

    def renew(self):
        k = KeepAlive(self.f)
        while not self.over.is_set():
            self.measure(lambda: k.renew(self.lease))
        k.end()

    def measure(self, what):
        began = time.monotonic()
        try:
            what()
        except Exception as e:  # noqa: BLE001: whatever it is, it is told
            self.errors.append(e.details() if isinstance(e, grpc.RpcError) else repr(e))
        self.took.append(time.monotonic() - began)

    def go_on(self, n=10):
        at = len(self.took)
        wait_for(lambda: len(self.took) > at + n, LIMIT, "answers")

    def end(self):
        self.over.set()
        for t in self.threads:
            t.join()


def cut(clients, to_leader, to_follower, what, how):
    clients.go_on()
    link = wait_for(lambda: to_leader.link_of(clients.f), 10, "a link")
    if what == "pass":  # it has all arrived, and comes again before the leader's word of it
        wait_for(lambda: time.monotonic() > link.began + STABLE)
    link.begin(what, to_follower.open.clear if what == "pass" else lambda: None)
    wait_for(lambda: link.seen >= ENOUGH, 10, "proposals on the link")
    link.cut(how)
    if what == "pass":
        end = time.monotonic() + HELD
        while time.monotonic() < end and not ((again := to_leader.link_of(clients.f)) and again.seen >= ENOUGH):
            time.sleep(.002)
        to_follower.open.set()


def broken_links():
    lead = leader(replicas)
    term = lead.status().raftTerm
    clients = Clients(next(r for r in replicas if r is not lead))
    kinds = itertools.cycle(itertools.product(("keep", "half", "pass"), ("RST", "FIN")))
    try:
        for what, how in itertools.islice(kinds, ROUNDS):
            cut(clients, relays[lead.i], relays[clients.f.i], what, how)
        clients.go_on()
    except SystemExit as e:
        return report(False, f"after {len(clients.took)} puts and renewals the follower goes on", f"{e}; errors: {set(clients.errors)}")
    clients.end()
    said = f"of {len(clients.took)} puts and renewals beside {ROUNDS} links that broke"
    report(not clients.errors, f"{said} none fails", f"{len(clients.errors)}, {set(clients.errors)}")
    report(max(clients.took) < LIMIT, f"the slowest takes {max(clients.took):.2f} s", f"{max(clients.took):.2f} s")
    st = lead.status()
    report(st.leader == st.header.member_id and st.raftTerm == term, "the leader stays", f"term {term} became {st.raftTerm}")
    kvs = lead.below(b"k/")
    wanted = {b"k/%d/%06d" % (i, n) for i, last in clients.last.items() for n in range(last + 1)}
    report({kv.key for kv in kvs} == wanted, f"none of {len(wanted)} puts is lost", f"{len(kvs)} are there")
    twice = [kv.key for kv in kvs if kv.version != 1]
    report(not twice, "each is applied once", f"{len(twice)} are not: {twice[:3]}")
    if not TLS:  # else this test would have tried nothing
        again = [p for p in relays[lead.i].proposals.values() if p[0] > 1]
        lost, double = sum(p[1] < p[0] for p in again), sum(p[1] > 1 for p in again)
        report(lost >= ROUNDS // 2, f"{lost} proposals were lost on their way and came again")
        report(double >= ROUNDS // 6, f"{double} came twice")


peers = ["--peer-cert-file", TLS[1], "--peer-key-file", TLS[2], "--peer-trusted-ca-file", TLS[0]] if TLS else []
replicas = []
relays = [Relay(m, p) for m, p in zip(MEET, LISTEN)]
for at in range(3):
    replicas.append(Replica(at, CLIENT[at], LISTEN[at], members(MEET), "--initial-advertise-peer-urls", members(MEET[at:at + 1])[3:], "--election-timeout", "3000", *peers))
try:
    until_they_answer(replicas)
    broken_links()
finally:
    for r in replicas:
        r.kill()
finish()
