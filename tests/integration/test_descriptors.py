"""Clients that take every descriptor that a replica has for them."""
import os
import re
import resource
import selectors
import socket
import threading
import time

import pytest
from harness.h2 import HELLO, settings
from harness.http1 import Http
from harness.rpc import pb
from harness.waiting import eventually

KEPT = 256  # for files and for other replicas, whatever clients do


def test_the_table_of_descriptors_has_its_size_before_clients_come(shared_cluster):
    """The kernel would make it larger as they come, and hold the loop meanwhile."""
    for replica in shared_cluster.running:
        status = dict(line.split(":", 1) for line in open(f"/proc/{replica.pid}/status"))
        assert int(status["FDSize"]) >= 1024


class Clients:
    """Each connects, asks for nothing, and comes again when it is turned away."""

    def __init__(self, port, n=600):
        self.port, self.selector, self.over = port, selectors.DefaultSelector(), False
        for _ in range(n):
            self.connect()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def connect(self):
        client = socket.socket()
        client.setblocking(False)
        client.bind(("127.0.0.9", 0))
        client.connect_ex(("127.0.0.1", self.port))
        self.selector.register(client, selectors.EVENT_WRITE)

    def serve(self):
        while not self.over:
            for key, events in self.selector.select(0.1):
                client = key.fileobj
                try:
                    if events & selectors.EVENT_WRITE:
                        client.send(HELLO + settings())  # who says nothing is soon ended
                        self.selector.modify(client, selectors.EVENT_READ)
                    elif not client.recv(65536):
                        raise OSError
                except OSError:
                    self.selector.unregister(client)
                    client.close()
                    self.connect()

    def leave(self):
        self.over = True
        self.thread.join()
        for key in [*self.selector.get_map().values()]:
            self.selector.unregister(key.fileobj)
            key.fileobj.close()


class Crowded:
    """A core to whose leader clients come who take all that it has for them: ten descriptors."""

    def __init__(self, core):
        self.core, self.leader = core, core.leader()
        self.other, self.third = (r for r in core.running if r is not self.leader)
        eventually(lambda: len([*self.leader.data.glob("spare-*")]) == 3)
        self.page = Http(self.leader.client_url)  # a connection from before
        self.turns()
        self.before = self.descriptors()
        most = self.before + KEPT + 10
        resource.prlimit(self.leader.pid, resource.RLIMIT_NOFILE, (most, most))
        self.clients = Clients(int(self.leader.client_url.rpartition(":")[2]))
        eventually(lambda: self.leader.said("Cannot take more connections on port"))

    def turns(self):
        """How many turns its loop has made."""
        return int(re.search(r"^tenure_loop_turn_seconds_count (\d+)",
                             self.page.get("/metrics").text, re.MULTILINE)[1])

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.leader.pid}/fd"))

    def newest(self, kind):
        return max((file.name for file in self.leader.data.glob(f"{kind}-0*")), default="")

    def write(self, n, size):
        """By another replica."""
        with self.core.rpc(at=self.other) as rpc:
            for _ in range(n):
                rpc.call("etcdserverpb.KV/Put", pb.PutRequest(key=b"k", value=bytes(size)))


@pytest.fixture
def crowded(new_cluster):
    # A busy machine is no reason for an election.
    crowded = Crowded(new_cluster(3, "--snapshot-count=100", "--election-timeout=3000"))
    yield crowded
    crowded.clients.leave()


def test_a_leader_without_descriptors_takes_snapshots_and_begins_new_log_files(crowded):
    snapshot, log = crowded.newest("snapshot"), crowded.newest("log")

    crowded.write(150, 10)
    eventually(lambda: crowded.newest("snapshot") > snapshot)
    crowded.write(12, 1_000_000)
    eventually(lambda: crowded.newest("log") > log)


def test_a_replica_that_restarts_is_linked_to_a_leader_without_descriptors(crowded):
    term = crowded.other.metric("tenure_raft_term")

    crowded.third.kill()
    crowded.third.start()
    eventually(lambda: crowded.core.put("k", "1", at=crowded.third))
    crowded.other.kill()  # now the two are the majority

    crowded.core.put("k", "2", at=crowded.third)
    assert crowded.core.get("k", at=crowded.third).value == "2"
    assert crowded.third.metric("tenure_raft_term") == term  # it leads on


def test_a_leader_without_descriptors_does_not_turn_in_a_circle(crowded):
    lease = crowded.core.grant(1, at=crowded.other)
    turns, began = crowded.turns(), time.monotonic()

    eventually(lambda: crowded.core.lease(lease, at=crowded.other).ttl == -1)

    # A circle makes thousands in each second; a slow machine makes no more of them.
    assert crowded.turns() - turns < 1000 * (time.monotonic() - began)


def test_clients_are_taken_again_when_others_have_gone(crowded):
    assert crowded.descriptors() > crowded.before + 5

    crowded.clients.leave()

    crowded.core.put("k", "v", at=crowded.leader)
