"""Each replica is restarted in turn while clients write at each and hold leases."""
import collections
import itertools
import threading

from harness.pair import method
from harness.rpc import Refused, pb
from harness.waiting import eventually

WRITERS, HOLDERS, ROUNDS = 4, 2, 2  # writers and holders at each replica


class Restarts:
    """How many have begun, and how many are over, of each replica."""

    def __init__(self, core):
        self.core, self.begun, self.over = core, collections.Counter(), collections.Counter()

    def restart(self, replica):
        """Returns the exit status."""
        self.begun[replica] += 1
        status = replica.stop()
        replica.start()
        eventually(lambda: self.core.put("back", "v", at=replica))
        self.over[replica] += 1
        return status


class Client:
    """Acts at one replica until @over is set. It may be told UNAVAILABLE, and tries again, if
    @restarts of that replica were under way in the meantime."""

    def __init__(self, core, replica, restarts, over):
        self.rpc, self.replica = core.rpc(at=replica), replica
        self.restarts, self.over = restarts, over
        self.done, self.unknown, self.errors = set(), set(), []
        self.prepare()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def prepare(self):
        pass

    def run(self):
        numbers = itertools.count()
        while not self.over.is_set():
            over = self.restarts.over[self.replica]
            try:
                self.act(next(numbers))
            except Refused as refused:
                if refused.code != "UNAVAILABLE" or self.restarts.begun[self.replica] == over:
                    self.errors.append(refused)


class Writer(Client):
    def act(self, n):
        key = f"w/{id(self)}/{n:06}"
        try:
            self.rpc.call(*method("KV/Put", dict(key=key.encode())))
            self.done.add(key)
        except Refused:
            self.unknown.add(key)
            raise


class Holder(Client):
    def prepare(self):
        self.lease = self.rpc.call(*method("Lease/LeaseGrant", dict(TTL=30))).ID
        self.rpc.call(*method("KV/Put", dict(key=b"held/%d" % self.lease, lease=self.lease)))

    def act(self, n):
        renewals = self.rpc.stream("etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest)
        renewals.send(pb.LeaseKeepAliveRequest(ID=self.lease))
        answer = renewals.next()
        renewals.close()
        if answer:
            assert answer.TTL > 0, "the lease is lost"
            self.done.add(n)


def test_only_clients_of_the_replica_that_restarts_are_told_errors(cluster):
    restarts, over = Restarts(cluster), threading.Event()
    writers, holders = ([kind(cluster, replica, restarts, over) for replica in cluster.running
                         for _ in range(n)] for kind, n in ((Writer, WRITERS), (Holder, HOLDERS)))
    clients = writers + holders

    for _ in range(ROUNDS):
        to_do = [*cluster.running]
        while to_do:
            done = [len(client.done) for client in clients]
            eventually(lambda: all(len(c.done) > n + 10 for c, n in zip(clients, done)))
            replica = cluster.leader()  # first, so at least two leaders go
            replica = replica if replica in to_do else to_do[0]
            to_do.remove(replica)
            assert restarts.restart(replica) == 0
    over.set()
    for client in clients:
        client.thread.join()

    assert [client.errors for client in clients if client.errors] == []
    acknowledged = set().union(*(writer.done for writer in writers))
    unknown = set().union(*(writer.unknown for writer in writers))
    written = {kv.key: kv.version for kv in cluster.range("w/")}
    assert acknowledged <= written.keys() <= acknowledged | unknown
    assert set(written.values()) == {1}
    assert {kv.key for kv in cluster.range("held/")} == {f"held/{h.lease}" for h in holders}
