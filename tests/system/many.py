"""Thousands of clients at once: they come, send in one instant, get one event, lose a replica and come to the others, read nothing, begin
handshakes and do not go on, are gone in one instant; beside them one who renews a lease each 10 ms. Run by many.sh.

usage: many.py [cluster.py's]; CONNECTIONS=N: how many, 6000 unless told
"""
import multiprocessing
import os
import resource
import select
import signal
import socket
import ssl
import subprocess
import time

import cluster
from cluster import Replica, args, leader, members, pb, report, until_they_answer, wait_for
from h2raw import DATA, END_HEADERS, HEADERS, HELLO, WINDOW, call, connect, frame, frames, headers, message, settings

KV, LEASE, WATCH = b"/etcdserverpb.KV/", b"/etcdserverpb.Lease/", b"/etcdserverpb.Watch/"
SOURCES = [f"127.0.7.{i}" for i in range(1, 40)]
WIDE = settings((4, 0x7fffffff)) + frame(WINDOW, 0, 0, b"\x7f\0\0\0")
LATE = 2  # a renewal of the honest one, on two cores with other tests on them, where each took 400 ms; what is seen is printed


def put(stream, key, value=b"v" * 100):
    return call(stream, KV + b"Put", pb.PutRequest(key=key, value=value).SerializeToString())


def read(stream, key):
    return call(stream, KV + b"Range", pb.RangeRequest(key=key, serializable=True).SerializeToString())


def grant(stream):
    return call(stream, LEASE + b"LeaseGrant", pb.LeaseGrantRequest(TTL=600).SerializeToString())


def more(stream, m):
    return frame(DATA, 0, stream, message(m.SerializeToString()))


def begin(stream, path):
    return frame(HEADERS, END_HEADERS, stream, headers(path, [(b"hasleader", b"true")]))


class Crowd:
    """Clients by hand: @hello is what each says first, once it is there."""

    def __init__(self, n, ports, hello=HELLO + WIDE, receive=None, sources=SOURCES):
        self.poll, self.socks, self.rest, self.ended, self.there = select.epoll(), {}, {}, 0, set()
        self.number = {}
        for i in range(n):
            s = socket.socket()
            if receive:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
            s.setblocking(False)
            s.bind((sources[i % len(sources)], 0))
            s.connect_ex(("127.0.0.1", int(ports[i % len(ports)])))
            self.socks[s.fileno()], self.number[s.fileno()] = s, i
            self.poll.register(s, select.EPOLLOUT)
        end = time.monotonic() + 30
        while len(self.there) + self.ended < n and time.monotonic() < end:
            for fd, what in self.poll.poll(1, n):
                if what & (select.EPOLLHUP | select.EPOLLERR):
                    self.ended += 1
                    self.poll.unregister(fd)
                elif fd not in self.there:
                    self.there.add(fd)
                    self.socks[fd].send(hello)
                    self.poll.modify(fd, select.EPOLLIN)

    def send(self, what):
        """To all in one breath: the same, or what this makes of its number."""
        for fd, s in self.socks.items():
            try:
                s.send(what(self.number[fd]) if callable(what) else what)
            except OSError:
                pass

    def take(self, wanted, on=None, seconds=40):
        """Reads until so many messages have come; returns how many did. @on: is given each, with whose it is."""
        got, end = 0, time.monotonic() + seconds
        while got < wanted and time.monotonic() < end:
            for fd, _ in self.poll.poll(.1, len(self.socks)):
                try:
                    data = self.socks[fd].recv(1 << 16)
                except OSError:
                    data = b""
                if not data:
                    self.ended += 1
                    self.poll.unregister(fd)
                    continue
                new, self.rest[fd] = frames(self.rest.get(fd, b"") + data)
                for kind, _, _, body in new:
                    if kind == DATA and body:
                        got += 1
                        if on:
                            on(self.number[fd], body[5:])
        return got

    def close(self):
        self.poll.close()
        for s in self.socks.values():
            s.close()


def honest(pipe):
    """Renews a lease each 10 ms; how long it took at most since it was last asked."""
    _, port, lease = pipe.recv()
    s, worst, n = connect(port, source="127.0.8.1", hello=WIDE), 0.0, 0
    s.sendall(begin(1, LEASE + b"LeaseKeepAlive"))
    request, rest = more(1, pb.LeaseKeepAliveRequest(ID=lease)), b""
    while True:
        began, answered = time.monotonic(), False
        s.sendall(request)
        while not answered:
            new, rest = frames(rest + s.recv(1 << 16))
            answered = any(kind == DATA and body for kind, _, _, body in new)
        worst, n = max(worst, time.monotonic() - began), n + 1
        if pipe.poll(.01):
            pipe.recv()
            pipe.send((worst, n))
            worst, n = 0.0, 0


class Test:
    def __init__(self):
        self.pipe, theirs = multiprocessing.Pipe()
        self.honest = multiprocessing.get_context("fork").Process(target=honest, args=(theirs,), daemon=True)
        self.honest.start()  # before there are threads
        ports = args.ports.split(",")
        self.client, self.peer = ports[:3], ports[3:6]
        self.replicas = [Replica(i, self.client[i], self.peer[i], members(self.peer), "--max-connections", "18000", "--max-client-bytes", str(128 << 20), "--election-timeout", "3000")
                         for i in range(3)]
        until_they_answer(self.replicas)
        self.leader = leader(self.replicas)
        self.term = self.leader.status().header.raft_term
        self.pipe.send(("go", int(self.leader.client), self.leader.grant(600)))

    def calm(self, what):
        self.pipe.send("take")
        worst, n = self.pipe.recv()
        status = self.leader.status()
        print(f"    {what}: the slowest of {n} renewals {worst * 1000:.0f} ms; the leader's longest turn lately {status.longest_turn_us / 1000:.1f} ms", flush=True)
        report(n > 0 and worst < LATE, f"{what}: no renewal of the honest one takes longer than {LATE * 1000:.0f} ms", f"{worst * 1000:.0f} ms of {n}")
        report(status.header.raft_term == self.term, f"{what}: the leader stays", f"term {self.term} became {status.header.raft_term}")

    def at_once(self, crowd, what):
        """The leader hears of all that in one instant. Not for so long that it would be deposed."""
        self.leader.process.send_signal(signal.SIGSTOP)
        crowd.send(what)
        self.leader.process.send_signal(signal.SIGCONT)


def processor(process):
    with open(f"/proc/{process.pid}/schedstat") as f:
        return int(f.read().split()[0]) / 1e9


def rss(process):
    with open(f"/proc/{process.pid}/status") as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith("VmRSS"))


def three(t, n):
    crowd = Crowd(n, t.client)
    report(len(crowd.there) == n and not crowd.ended, f"{n} clients come at once, a third to each replica", f"{len(crowd.there)}, {crowd.ended} were ended")
    leases = {}
    crowd.send(grant(1))
    got = crowd.take(n, lambda i, body: leases.update({i: pb.LeaseGrantResponse.FromString(body).ID}))
    report(got == n and len(set(leases.values())) == n, "all grant a lease at once", f"{got} were answered")

    def streams(i):
        return (begin(3, LEASE + b"LeaseKeepAlive") + more(3, pb.LeaseKeepAliveRequest(ID=leases[i])) + begin(5, WATCH + b"Watch") +
                more(5, pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"event"))))

    crowd.send(streams)
    got = crowd.take(2 * n)
    report(got == 2 * n, "all renew it and watch a key at once", f"{got} answers of {2 * n}")
    t.calm("they come")
    began = time.monotonic()
    t.leader.put(b"event")
    got = crowd.take(n)
    took = time.monotonic() - began
    report(got == n, "all get one event", f"{got} were")
    t.calm(f"one event to all ({took * 1000:.0f} ms, this reader included)")
    return crowd, streams


def lone(t, n):
    """At the leader alone: they all send in one instant, so that it has them all before it."""
    crowd = Crowd(n, [t.leader.client])
    t.at_once(crowd, read(1, b"event"))
    got = crowd.take(n)
    report(got == n, f"{n} send in one instant, and all are answered", f"{got} were")
    t.calm("all send in one instant")
    crowd.close()
    wait_for(lambda: t.leader.status().clients < n // 2, 20, "the end of those who left")
    t.calm("all are gone in one instant")


def many_calls(t):
    """A few with 8,000 watches each, of a stream of their own, leave in one instant; what is kept for them goes, though not all at once."""
    before = t.leader.status()
    crowd = Crowd(4, [t.leader.client])
    watches = [begin(1 + 2 * i, WATCH + b"Watch") + more(1 + 2 * i, pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"%d" % i))) for i in range(8000)]
    for s in crowd.socks.values():
        s.setblocking(True)
    got = 0
    for first in range(0, 8000, 500):
        crowd.send(b"".join(watches[first:first + 500]))
        got += crowd.take(4 * 500)
    report(got == 4 * 8000, "four have 8,000 watches each, of a stream of their own", f"{got} were made")
    t.calm("they make them")
    t.leader.process.send_signal(signal.SIGSTOP)
    crowd.close()
    t.leader.process.send_signal(signal.SIGCONT)
    t.leader.put(b"0")  # to watches of those who are gone
    wait_for(lambda: (s := t.leader.status()).clients <= before.clients and s.client_bytes <= before.client_bytes + (1 << 20), 20, "the end of their calls")
    t.calm("they are gone in one instant")


def one_dies(t, crowd, streams, n):
    """A third of all comes to the two that are left."""
    dead = next(r for r in t.replicas if r is not t.leader)
    left = [r for r in t.replicas if r is not dead]
    mine = range(dead.i, n, 3)
    dead.kill()
    again = Crowd(len(mine), [r.client for r in left])
    again.send(lambda i: streams(mine[i]))
    got = again.take(2 * len(mine))
    report(got == 2 * len(mine), "a replica dies: its clients have their leases and watches at the other two", f"{got} answers of {2 * len(mine)}")
    t.calm("they come from one that died")
    again.close()
    crowd.close()
    dead.start()
    until_they_answer(t.replicas)


def unread(t, n):
    """They ask for more than may be held, and read nothing. What the replica spends on them is printed, and not judged."""
    t.leader.put(b"large", b"x" * 12000)
    crowd = Crowd(n, [t.leader.client], receive=4096)
    crowd.send(b"".join(read(1 + 2 * i, b"large") for i in range(20)))
    wait_for(lambda: t.leader.status().client_bytes > 40 << 20, 30, "what nobody reads")
    t.pipe.send("take")
    t.pipe.recv()
    shares = []
    while len(shares) < 8:
        began, spent = time.monotonic(), processor(t.leader.process)
        while time.monotonic() < began + .5:
            t.leader.put(b"beside")
            time.sleep(.02)
        shares.append((processor(t.leader.process) - spent) / (time.monotonic() - began))
    print(f"    {n} who read nothing: {' '.join(f'{s * 100:.0f}' for s in shares)} % of a processor, each half a second")
    t.calm("nobody reads")
    crowd.close()


def half_hellos(t, n, port):
    """TLS: one who begins a handshake costs what is documented, whatever he says will follow."""
    ca, cert, key = (f"{args.dir}/{f}.pem" for f in ("ca", "cert", "key"))
    p = subprocess.Popen([f"{args.bin}/tenure-core", "--name", "tls", "--data-dir", f"{args.dir}/tls", "--listen-client-urls", f"https://127.0.0.1:{port}",
                          "--cert-file", cert, "--key-file", key], stdout=open(f"{args.dir}/tls.log", "wb"), stderr=subprocess.STDOUT)
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(["h2"])
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    mine = context.wrap_bio(into, out, server_hostname="127.0.0.1")
    try:
        mine.do_handshake()
    except ssl.SSLWantReadError:
        pass
    hello = out.read()

    def answers():
        try:
            connect(port, tls=context).close()
            return True
        except OSError:
            return False

    wait_for(answers, 20, "one that speaks TLS")
    before = rss(p)
    claim = b"\x16\x03\x01\x00\x80\x01" + (131000).to_bytes(3, "big") + b"\x03\x03" + b"x" * 122
    for what, said in ("the first bytes of a huge hello", claim), ("half a hello", hello[:-100]), ("a hello, and nothing more", hello):
        crowd = Crowd(n, [port], said)
        report(answers(), "an honest handshake beside them")
        spent = -1  # until all of them have been heard: what it does then is nothing
        while processor(p) - spent > .01:
            spent = processor(p)
            time.sleep(.1)
        each = (rss(p) - before) * 1024 / n
        print(f"    {n} say {what}: {each:.0f} KiB each, {crowd.ended} were ended")
        report(each < 100 * (3 if "asan" in args.bin else 1), f"who says {what} costs less than 100 KiB", f"{each:.0f} KiB")
        crowd.close()
    s = socket.create_connection(("127.0.0.1", port), 10)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for b in hello:  # nothing is wrong with that
        s.send(bytes([b]))
    report(s.recv(5)[:1] == b"\x16", "a hello that comes byte by byte is answered")
    p.kill()
    p.wait()


def main():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    n = min(int(os.environ.get("CONNECTIONS", 6000)), hard - 1000)
    t = Test()
    try:
        crowd, streams = three(t, n)
        one_dies(t, crowd, streams, n)
        lone(t, n)
        many_calls(t)
        unread(t, n)
        half_hellos(t, min(n, 2000), int(args.ports.split(",")[6]))
    finally:
        t.honest.kill()
        for r in t.replicas:
            r.kill()
    cluster.finish()


if __name__ == "__main__":
    main()
