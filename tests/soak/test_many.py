"""Thousands of clients at once, at three replicas, beside honest ones at the leader. These judge
time: run them with -n 0, alone."""
import itertools
import resource
import select
import socket
import ssl
import time

import pytest

from harness.h2 import DATA, HELLO, call, connect, frames, literal
from harness.rpc import pb
from harness.waiting import PATIENCE, eventually, eventually_is

from soak.attacks import LEASE, RANGE, WATCH, WIDE, begun, create, received, sent, tls_context
from soak.bed import SLOW, Bed, Memory, certificate_of, port, processor

LATE = 2  # s; a renewal, on two cores with other tests on them, where each took 400 ms
OPTIONS = "--max-connections=18000", f"--max-client-bytes={128 << 20}", "--election-timeout=3000"
FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
MANY = min(6000, FILES - 1000)


class Many(Bed):
    def __init__(self, folder, ports):
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
        super().__init__(folder, ports, 3, *OPTIONS)
        self.leader = self.core.leader()
        self.be_honest(self.leader)
        self.term = self.status(self.leader).header.raft_term
        self.at = port(self.leader.client_url)

    def is_calm(self, what, tell):
        took, status = self.honest.take()["renewal"], self.status(self.leader)
        tell(f"{what}: the slowest of {len(took)} renewals {max(took) * 1000:.0f} ms, the longest "
             f"turn of the leader's loop {status.longest_turn_us / 1000:.1f} ms")
        assert max(took) < LATE
        assert status.header.raft_term == self.term, "there is another leader"


class Crowd:
    """Clients by hand, at all of these ports in turn. @hello: what each says first."""

    def __init__(self, n, *ports, hello=HELLO + WIDE, receive=None):
        self.poll, self.clients, self.rest = select.epoll(), {}, {}
        for i in range(n):
            s = socket.socket()
            if receive:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
            s.setblocking(False)
            s.bind((f"127.0.7.{1 + i % 39}", 0))
            s.connect_ex(("127.0.0.1", ports[i % len(ports)]))
            self.clients[s.fileno()] = s, i
            self.poll.register(s, select.EPOLLOUT)
        there, end = set(), time.monotonic() + PATIENCE
        while len(there) < n and time.monotonic() < end:
            for fd, _ in self.poll.poll(1, n):
                if fd not in there:
                    there.add(fd)
                    self.clients[fd][0].send(hello)  # an error if it has been refused
                    self.poll.modify(fd, select.EPOLLIN)
        assert len(there) == n

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.poll.close()
        for s, _ in self.clients.values():
            s.close()

    def send(self, said):
        """To all in one breath: the same, or what this makes of its number."""
        for s, i in self.clients.values():
            try:
                s.send(said(i) if callable(said) else said)
            except OSError:
                pass

    def take(self, wanted):
        """(whose, message) of all that come, until so many have."""
        got, end = [], time.monotonic() + PATIENCE
        while len(got) < wanted and time.monotonic() < end:
            for fd, _ in self.poll.poll(.1, len(self.clients)):
                s, i = self.clients[fd]
                data = received(s)
                if not data:
                    self.poll.unregister(fd)
                new, self.rest[fd] = frames(self.rest.get(fd, b"") + data)
                got += [(i, body[5:]) for kind, _, _, body in new if kind == DATA and body]
        return got


def asked(stream, path, request):
    """A stream that wants a leader, and its first request."""
    return begun(path, stream, literal(b"hasleader", b"true")) + sent(request, stream)


def read(stream, key):
    return call(stream, RANGE, pb.RangeRequest(key=key, serializable=True).SerializeToString())


@pytest.fixture
def many(shared, ports):
    return shared("many", lambda folder: Many(folder, ports))


@pytest.fixture
def rounds(seconds):
    """One, and more for as long as each of the tests may take."""
    end = time.monotonic() + seconds / 5
    return itertools.takewhile(lambda n: not n or time.monotonic() < end, itertools.count())


def test_thousands_are_notified_of_an_event_and_move_when_their_replica_dies(many, rounds, tell):
    places = [port(replica.client_url) for replica in many.core.replicas.values()]
    dies = next(n for n, at in enumerate(places) if at != many.at)

    def streams(i):
        return asked(3, LEASE + b"LeaseKeepAlive", pb.LeaseKeepAliveRequest(
            ID=leases[i])) + asked(5, WATCH, create(b"event"))

    for _ in rounds:
        with Crowd(MANY, *places) as crowd:
            crowd.send(call(1, LEASE + b"LeaseGrant",
                            pb.LeaseGrantRequest(TTL=600).SerializeToString()))
            leases = {i: pb.LeaseGrantResponse.FromString(said).ID for i, said in crowd.take(MANY)}
            assert len({*leases.values()}) == MANY
            crowd.send(streams)
            assert len(crowd.take(2 * MANY)) == 2 * MANY
            many.is_calm(f"{MANY} come, and get a lease and a watch each", tell)

            began = time.monotonic()
            many.put(b"event")
            assert len(crowd.take(MANY)) == MANY
            many.is_calm(f"one event to all in {time.monotonic() - began:.1f} s, this reader "
                         "included", tell)

            dead, movers = [*many.core.replicas.values()][dies], range(dies, MANY, 3)
            dead.kill()
            with Crowd(len(movers), *(at for at in places if at != places[dies])) as moved:
                moved.send(lambda i: streams(movers[i]))
                assert len(moved.take(2 * len(movers))) == 2 * len(movers)
                many.is_calm(f"{len(movers)} come from one that died", tell)
        dead.start()
        eventually_is({*many.core.replicas}, lambda: {*many.core.members()})
        eventually(lambda: many.core.get("event", at=dead))


def test_thousands_who_send_and_leave_in_one_instant_delay_nobody(many, rounds, tell):
    for _ in rounds:
        with Crowd(MANY, many.at) as crowd:
            many.leader.freeze()  # not for so long that it would be deposed
            crowd.send(read(1, b"event"))
            many.leader.thaw()
            assert len(crowd.take(MANY)) == MANY
            many.is_calm(f"{MANY} send in one instant", tell)
        eventually(lambda: many.status(many.leader).clients < MANY // 2)
        many.is_calm("they are gone in one instant", tell)


def test_what_is_kept_for_thousands_of_calls_goes_with_their_connection(many, rounds, tell):
    before = many.status(many.leader)
    made = [asked(1 + 2 * i, WATCH, create(b"%d" % i)) for i in range(8000)]
    for _ in rounds:
        with Crowd(4, many.at) as crowd:
            for s, _ in crowd.clients.values():
                s.setblocking(True)
            for first in range(0, 8000, 500):
                crowd.send(b"".join(made[first:first + 500]))
                assert len(crowd.take(4 * 500)) == 4 * 500
            many.is_calm("4 make 8,000 watches each, of a stream of their own", tell)
            many.leader.freeze()
        many.leader.thaw()
        many.put(b"0")  # to watches of those who are gone

        def is_as_before():
            now = many.status(many.leader)
            return (now.clients <= before.clients
                    and now.client_bytes <= before.client_bytes + (1 << 20))

        eventually(is_as_before)
        many.is_calm("they are gone in one instant", tell)


def test_thousands_who_read_nothing_delay_nobody(many, rounds, tell):
    many.put(b"large", size=12000)
    for _ in rounds:
        with Crowd(MANY, many.at, receive=4096) as crowd:
            crowd.send(b"".join(read(1 + 2 * i, b"large") for i in range(20)))
            eventually(lambda: many.status(many.leader).client_bytes > 40 << 20)
            many.honest.take()
            began, spent = time.monotonic(), processor(many.leader.pid)
            time.sleep(4)
            spent = (processor(many.leader.pid) - spent) / (time.monotonic() - began)
            many.is_calm(f"{MANY} read nothing, at {spent * 100:.0f} % of a processor", tell)


def test_a_handshake_costs_what_is_documented_whatever_the_client_sends(
        tmp_path, ports, rounds, tell):
    bed = Bed(tmp_path, ports, 1, tls=True)
    replica = bed.core.leader()
    at, context, n = port(replica.client_url), tls_context(certificate_of(bed.files)), MANY // 3
    out = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="127.0.0.1").do_handshake()
    hello, memory = out.read(), Memory(replica.pid)
    claim = (b"\x16\x03\x01\x00\x80\x01" + (131000).to_bytes(3, "big") + b"\x03\x03"
             + b"x" * 122)
    for _ in rounds:
        for what, said in (("the first bytes of a huge hello", claim),
                           ("half a hello", hello[:-100]), ("a hello, and nothing more", hello)):
            with Crowd(n, at, hello=said):
                connect(at, context).close()  # an honest one is served beside them
                spent = -1  # until all of them have been heard: what it does then is nothing
                while processor(replica.pid) - spent > .01:
                    spent = processor(replica.pid)
                    time.sleep(.1)
                each = (memory.now - memory.before) * 1024 / n
                tell(f"{n} say {what}: {each:.0f} KiB each")
                assert each < 100 * min(SLOW, 3)
    with socket.create_connection(("127.0.0.1", at), 10) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in hello:  # nothing is wrong with that
            s.send(bytes([byte]))
        assert s.recv(5)[:1] == b"\x16"
