"""Replicas that are restarted one after the other, and clients that must not suffer by it."""
import collections
import itertools
import threading

from .pair import method
from .rpc import Refused, pb
from .waiting import eventually

WRITERS, HOLDERS = 4, 2  # at each replica


class Restarts:
    """How many have begun, and how many are over, of each replica."""

    def __init__(self, core):
        self.core, self.begun, self.over = core, collections.Counter(), collections.Counter()

    def restart(self, replica, program=None):
        """@program: another tenure-core. Returns the exit status."""
        self.begun[replica] += 1
        status = replica.stop()
        replica.command[0] = str(program or replica.command[0])
        replica.start()
        eventually(lambda: self.core.put("back", "v", at=replica))
        self.over[replica] += 1
        return status


class Client:
    """Acts at one replica until @over is set. It may get UNAVAILABLE, and tries again, if
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


class Crowd:
    """Clients at each replica of @core, until end()."""

    def __init__(self, core):
        self.core, self.restarts, self._over = core, Restarts(core), threading.Event()
        self.writers, self.holders = (
            [kind(core, replica, self.restarts, self._over) for replica in core.running
             for _ in range(n)] for kind, n in ((Writer, WRITERS), (Holder, HOLDERS)))
        self.clients = self.writers + self.holders

    def restart_each(self, program=None):
        """Not before each client has gone on since the last restart."""
        to_do = [*self.core.running]
        while to_do:
            done = [len(client.done) for client in self.clients]
            eventually(lambda: all(len(c.done) > n + 10 for c, n in zip(self.clients, done)))
            replica = self.core.leader()  # first, so at least two leaders go
            replica = replica if replica in to_do else to_do[0]
            to_do.remove(replica)
            assert self.restarts.restart(replica, program) == 0

    def end(self):
        """What was acknowledged is there, once; each lease is; and no client got an error for
        another reason than the restart of its replica."""
        self._over.set()
        for client in self.clients:
            client.thread.join()
        assert [client.errors for client in self.clients if client.errors] == []
        acknowledged = set().union(*(writer.done for writer in self.writers))
        unknown = set().union(*(writer.unknown for writer in self.writers))
        written = {kv.key: kv.version for kv in self.core.range("w/")}
        assert acknowledged <= written.keys() <= acknowledged | unknown
        assert set(written.values()) == {1}
        assert {kv.key for kv in self.core.range("held/")} == {
            f"held/{holder.lease}" for holder in self.holders}
