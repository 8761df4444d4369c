"""A link between replicas that breaks with proposals in it, while leader and term stay: each is
answered as soon as there is a link again, and done once."""
import itertools
import socket
import struct
import threading

import pytest
from harness.cluster import Cluster
from harness.pair import method
from harness.rpc import Refused, pb
from harness.waiting import eventually

ENOUGH = 1500  # bytes: less than one put, and more than what else goes to a leader at once
STABLE = 1.2   # seconds: a link that held so long is made again at once
HELD = .25     # seconds for which the leader's word is held back: much less than until elections


class Link:
    """A connection of one replica to another, by way of us."""

    def __init__(self, relay, theirs):
        self.relay, self.theirs = relay, theirs
        self.ours = socket.create_connection(("127.0.0.1", relay.to))
        self.mode, self.seen, self.lock = "pass", 0, threading.Lock()
        self.is_old = threading.Event()
        threading.Timer(STABLE, self.is_old.set).start()
        for source, sink, through in ((theirs, self.ours, self.outward),
                                      (self.ours, theirs, theirs.sendall)):
            threading.Thread(target=self.pump, args=(source, sink, through), daemon=True).start()

    def outward(self, data):
        """What the caller sends."""
        self.relay.is_open.wait()
        with self.lock:
            goes = {"pass": len(data), "keep": 0, "half": len(data) // 2}[self.mode]
            self.mode = "keep" if self.mode == "half" else self.mode
            self.ours.sendall(data[:goes])
            self.seen += len(data)
            if self.seen >= ENOUGH:
                self.relay.enough()

    def pump(self, source, sink, through):
        try:
            while data := source.recv(1 << 16):
                through(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        self.relay.links.discard(self)

    def cut(self, how):
        with self.lock:
            self.mode = "keep"
        self.relay.links.discard(self)
        for end in self.theirs, self.ours:
            try:
                if how == "RST":
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RD)  # wakes its reader, the last who lets go of it
                    end.close()
                else:
                    end.shutdown(socket.SHUT_WR)
            except OSError:
                pass


class Relay:
    """In front of a replica's port for other replicas."""

    def __init__(self, port, to):
        self.to, self.links, self.enough = to, set(), lambda: None
        self.is_open = threading.Event()
        self.is_open.set()
        self.listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            theirs, _ = self.listener.accept()
            try:
                self.links.add(Link(self, theirs))
            except OSError:  # nobody is there yet
                theirs.close()

    def begin(self, mode, enough):
        """From now on; enough() is called when a link has been sent ENOUGH bytes."""
        self.enough = enough
        for link in list(self.links):
            with link.lock:
                link.mode, link.seen = mode, 0

    def break_links(self, what, how, to_follower):
        """With proposals in them. What the leader sends is never cut, or its followers would stand
        for election; but if they have all arrived, it is held back until they come again."""
        links, lost = eventually(lambda: set(self.links)), threading.Event()
        if what == "pass":
            for link in links:
                link.is_old.wait()

        def enough():
            if what == "pass":
                to_follower.is_open.clear()
            lost.set()

        self.begin(what, enough)
        eventually(lost.is_set)
        again = threading.Event()
        self.begin("keep", again.set)
        for link in links:
            link.cut(how)
        if what == "pass":
            again.wait(HELD)
        self.enough = lambda: None
        to_follower.is_open.set()


class Relayed(Cluster):
    """The URLs of its members are those of relays."""

    def new_replica(self, name):
        replica = super().new_replica(name)
        listens, port = replica.peer_url, self.ports.take()
        scheme, _, own = listens.rpartition(":")
        replica.relay = Relay(port, int(own))
        replica.peer_url = f"{scheme}:{port}"
        replica.options += ["--listen-peer-urls", listens, "--initial-advertise-peer-urls",
                            replica.peer_url, "--election-timeout=6000"]
        return replica


class Clients:
    """Four that put numbered keys at one replica, and one that renews a lease there."""

    def __init__(self, rpc):
        self.rpc, self.answered, self.errors = rpc, [], []
        self.over = threading.Event()
        self.lease = rpc.call(*method("Lease/LeaseGrant", dict(TTL=600))).ID
        self.renewals = rpc.stream("etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest)
        self.threads = [threading.Thread(target=self.run, args=(act, i), daemon=True)
                        for i, act in enumerate([self.put] * 4 + [self.renew])]
        for thread in self.threads:
            thread.start()

    def run(self, act, i):
        try:
            for n in itertools.takewhile(lambda _: not self.over.is_set(), itertools.count()):
                self.answered.append(act(i, n))
        except (Refused, AssertionError) as error:
            self.errors.append(error)

    def put(self, i, n):
        key = b"k/%d/%06d" % (i, n)
        self.rpc.call(*method("KV/Put", dict(key=key, value=b"x" * 2000)))
        return key

    def renew(self, i, n):
        self.renewals.send(pb.LeaseKeepAliveRequest(ID=self.lease))
        assert self.renewals.next().TTL > 0

    def go_on(self):
        before = len(self.answered)
        eventually(lambda: self.errors or len(self.answered) > before + 10)
        assert not self.errors

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()
        assert not self.errors
        return {key for key in self.answered if key}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_proposals_in_a_link_that_breaks_are_done_once(tmp_path, ports, request, tls):
    core = Relayed(tmp_path, ports, authority=request.getfixturevalue("authority") if tls else None)
    leader = core.leader()
    follower = next(replica for replica in core.running if replica is not leader)
    with core.rpc(at=leader) as at_leader, core.rpc(at=follower) as rpc:
        term = at_leader.call(*method("Maintenance/Status", {})).raftTerm
        clients = Clients(rpc)
        for what, how in itertools.product(("keep", "half", "pass"), ("RST", "FIN")):
            clients.go_on()
            leader.relay.break_links(what, how, follower.relay)
        clients.go_on()
        acknowledged = clients.end()

        status = at_leader.call(*method("Maintenance/Status", {}))
        kvs = at_leader.call(*method("KV/Range", dict(key=b"k/", range_end=b"k0", keys_only=True)))
    assert (status.leader, status.raftTerm) == (status.header.member_id, term)
    assert {kv.key: kv.version for kv in kvs.kvs} == dict.fromkeys(acknowledged, 1)
