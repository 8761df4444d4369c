#!/usr/bin/python3
"""A rolling restart under load: each of three replicas is ended with SIGTERM and started again, twice, while clients write at
each and hold leases.

usage: rolling.py --bin DIR --dir DIR --pb DIR --ports P1,...,P6
Who is at another replica sees no error, whoever leads. Who is at the one that goes is told UNAVAILABLE at most, from the
moment that it is asked to end until it serves again. No lease is lost, and what was acknowledged is there once.
"""
import itertools
import signal
import threading
import time

import grpc

from cluster import LEASE, PORTS, Replica, finish, leader, members, pb, report, until_they_answer, wait_for

CLIENT, PEER = PORTS[:3], PORTS[3:]
TTL, HOLDERS, WRITERS, ROUNDS = 3, 6, 12, 2
LIMIT = 6.0  # for one answer; a change of the leader takes much less, a busy machine adds to it


class Writer:
    """Puts numbered keys at one replica."""

    def __init__(self, w):
        self.w, self.r = w, replicas[w % 3]
        self.acknowledged, self.unknown, self.errors, self.slowest = set(), set(), [], 0.0

    def run(self):
        for n in itertools.count():
            if over.is_set():
                break
            key, began = b"w/%d/%06d" % (self.w, n), time.monotonic()
            away = self.r in going
            try:
                self.r.put(key)
                self.acknowledged.add(key)
            except grpc.RpcError as e:
                self.unknown.add(key)
                if e.code() != grpc.StatusCode.UNAVAILABLE or not (away or self.r in going):
                    self.errors.append(f"at n{self.r.i}: {e.code().name}: {e.details()}")
                over.wait(.05)
            if not away and self.r not in going:
                self.slowest = max(self.slowest, time.monotonic() - began)


class Holder:
    """Renews a lease at one replica, or at the next one that answers."""

    def __init__(self, h):
        self.h, self.key = h, b"held/%d" % h
        self.lease, self.renewals, self.lost = replicas[h % 3].grant(TTL), 0, 0
        replicas[h % 3].put(self.key, lease=self.lease)

    def run(self):
        while not over.wait(.3):
            while not any(self.renew(replicas[(self.h + n) % 3]) for n in range(3)):
                over.wait(.02)

    def renew(self, r):
        try:
            m = next(r.channel.stream_stream(
                LEASE + "LeaseKeepAlive", request_serializer=lambda m: m.SerializeToString(),
                response_deserializer=pb.LeaseKeepAliveResponse.FromString)(iter([pb.LeaseKeepAliveRequest(ID=self.lease)]), timeout=1))
        except grpc.RpcError:
            return False
        self.renewals += 1
        self.lost += m.TTL <= 0
        return True


def restart(r):
    """Returns how it ended."""
    going.add(r)
    r.process.send_signal(signal.SIGTERM)
    code = r.process.wait(15)
    r.start()
    wait_for(lambda: r.put(b"back"), 20, f"n{r.i}")  # by the channel that the clients at it have
    going.discard(r)
    return code


def rolling_restart():
    holders, writers = [Holder(h) for h in range(HOLDERS)], [Writer(w) for w in range(WRITERS)]
    threads = [threading.Thread(target=c.run, daemon=True) for c in holders + writers]
    for t in threads:
        t.start()
    codes = []
    for _ in range(ROUNDS):
        to_do = list(replicas)
        while to_do:  # the leader first: so it is one at least twice
            at = [len(w.acknowledged) for w in writers]
            wait_for(lambda: all(len(w.acknowledged) > n + 20 for w, n in zip(writers, at)), 20, "writers")
            r = leader(replicas)
            r = r if r in to_do else to_do[0]
            to_do.remove(r)
            codes.append(restart(r))
    held = {kv.key: kv.version for kv in replicas[0].below(b"held/")}
    over.set()
    for t in threads:
        t.join()
    report(not any(codes), f"{len(codes)} restarts, mostly of the leader: each ends with 0", codes)
    acknowledged, unknown = set().union(*(w.acknowledged for w in writers)), set().union(*(w.unknown for w in writers))
    errors = [e for w in writers for e in w.errors]
    report(not errors, f"beside {len(acknowledged)} puts none fails but {len(unknown)} at the replica that goes, which may be tried again",
           f"{len(errors)}: {errors[:3]}")
    slowest = max(w.slowest for w in writers)
    report(slowest < LIMIT, f"the slowest put at another one takes {slowest:.2f} s", f"{slowest:.2f} s")
    there = {kv.key: kv.version for kv in leader(replicas).below(b"w/")}
    report(acknowledged <= there.keys() <= acknowledged | unknown, "what was acknowledged is there, and nothing that nobody put",
           f"{len(acknowledged - there.keys())} are lost, {len(there.keys() - acknowledged - unknown)} strange")
    report(set(there.values()) == {1}, "each is there once", set(there.values()))
    report(not any(h.lost for h in holders) and held == {h.key: 1 for h in holders},
           f"no lease of {TTL} s is lost, with {sum(h.renewals for h in holders)} renewals", f"{[h.lost for h in holders]}, {held}")


over, going = threading.Event(), set()
replicas = [Replica(i, CLIENT[i], PEER[i], members(PEER)) for i in range(3)]
try:
    until_they_answer(replicas)
    rolling_restart()
finally:
    for r in replicas:
        r.kill()
finish()
