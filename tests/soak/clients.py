"""Honest clients of the storm: they write, read, compare and set, hold leases and locks, and watch.
After a line on standard input they begin no more leases and locks, after a second one they end, and
what they saw goes into a file.

usage: python3 -m soak.clients '{"seed": 1, "file": "seen", "urls": ["http://..."]}'
"""
import json
import os
import pickle
import random
import sys
import threading
import time

from harness.rpc import Refused, Rpc, pb

from soak.history import Event, Hold, Lease, Op

TTL = 2.0
KEYS = [f"k{i}" for i in range(6)]
stop, calm = threading.Event(), threading.Event()
ops, leases, holds, died, watchers = [], [], [], {}, []


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Client:
    """Calls any replica."""

    def __init__(self, urls, who):
        self.random, self.rpcs = random.Random(who), [Rpc(url) for url in urls]

    def call(self, path, request, timeout=2.0):
        return self.random.choice(self.rpcs).call(f"etcdserverpb.{path}", request, timeout=timeout)

    def lock(self, name, request, timeout=2.0):
        return self.random.choice(self.rpcs).call(f"v3lockpb.Lock/{name}", request, timeout=timeout)

    def renew(self, lease):
        return next(self.random.choice(self.rpcs).answers(
            "etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest(ID=lease), timeout=1.0),
            pb.LeaseKeepAliveResponse(TTL=-1)).TTL

    def grant(self):
        """A lease and when it was asked for; None when nobody answered."""
        sent = now()
        try:
            return self.call("Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=int(TTL))).ID, sent
        except Refused:
            return None, 0


def events(rpc, first, seconds):
    """Of all keys, as they come, for so long."""
    stream = rpc.stream("etcdserverpb.Watch/Watch", pb.WatchRequest, timeout=seconds)
    stream.send(pb.WatchRequest(create_request=pb.WatchCreateRequest(
        key=b"\0", range_end=b"\0", start_revision=first)))
    try:
        while True:
            for e in stream.next().events:
                yield Event(e.kv.mod_revision, e.kv.key.decode(),
                            e.kv.value.decode() if e.type == 0 else None)
    except Refused:
        stream.close()


def write(c, n):
    count = 0
    while not stop.is_set():
        count += 1
        op = Op(c.random.choices(("put", "get", "cas"), (4, 3, 3))[0], c.random.choice(KEYS),
                f"{n}.{count}", now(), 0, None)
        key, put = op.key.encode(), pb.PutRequest(key=op.key.encode(), value=op.value.encode())
        try:
            if op.kind == "put":
                op.revision, op.ok = c.call("KV/Put", put).header.revision, True
            elif op.kind == "get":
                op.value, op.ok = None, False
                said = c.call("KV/Range", pb.RangeRequest(key=key))
                op.ok, op.revision = True, said.header.revision
                for kv in said.kvs:
                    op.mod, op.value = kv.mod_revision, kv.value.decode()
            else:
                seen = c.call("KV/Range", pb.RangeRequest(key=key, serializable=True)).kvs
                op.begin = now()
                said = c.call("KV/Txn", pb.TxnRequest(
                    compare=[pb.Compare(target=2, key=key,
                                        mod_revision=seen[0].mod_revision if seen else 0)],
                    success=[pb.RequestOp(request_put=put)]))
                op.ok, op.revision = said.succeeded, said.succeeded and said.header.revision
        except Refused:
            pass
        op.end = now()
        ops.append(op)
        time.sleep(c.random.choice((0, .01, .05)))


def hold(c, n):
    """Grants, hangs a key on it, renews for a while, and lets it die."""
    count = 0
    while not stop.is_set():
        count += 1
        lease, sent = c.grant()
        if lease is None:
            time.sleep(.1)
            continue
        le = Lease(f"lease/{n}.{count}", TTL, sent, answered=now())
        try:
            c.call("KV/Put", pb.PutRequest(key=le.key.encode(), lease=lease))
        except Refused:
            continue  # it may be there or not: not followed
        leases.append(le)
        until = now() + c.random.choice((0, 2, 5, 8))
        while now() < until and not calm.is_set() and not le.reported_gone:
            sent = now()
            try:
                ttl = c.renew(lease)
                if ttl > 0:
                    le.renewed, le.late, le.answered, le.unknown = sent, sent, now(), False
                elif ttl == 0:
                    le.reported_gone = now()
            except Refused:
                le.unknown = True
            time.sleep(c.random.choice((.05, .3, .9)))
        end = now() + 3 * TTL
        while le.key not in died and now() < end and not stop.is_set():
            time.sleep(.02)


def lock(c, n):
    def keep(lease, renewed, over):
        while not over.wait(.3):
            sent = now()
            try:
                if c.renew(lease) <= 0:
                    return
                renewed.append(sent)
            except Refused:
                pass

    while not calm.is_set():
        lease, sent = c.grant()
        if lease is None:
            continue
        over, renewed = threading.Event(), [sent]
        begin(keep, lease, renewed, over)
        try:
            key = c.lock("Lock", pb.LockRequest(name=b"lock", lease=lease), 4).key
            since = now()
            time.sleep(c.random.choice((0, .02, .1, .5)))
            end = min(now(), renewed[-1] + TTL)
            if since < end:  # else it came when the lease may have been over already
                holds.append(Hold(f"{n}:{lease:x}", since, end))
            c.lock("Unlock", pb.UnlockRequest(key=key))
        except Refused:
            pass
        over.set()


def watch(c, _):
    """Everything from the beginning, on one replica after the other, resumed where it ended."""
    seen = []
    watchers.append(seen)
    while not stop.is_set():
        for event in events(c.random.choice(c.rpcs), seen[-1].revision + 1 if seen else 2,
                            c.random.choice((3, 8))):
            seen.append(event)
            if event.value is None:
                died.setdefault(event.key, now())


def begin(work, *given):
    thread = threading.Thread(target=work, args=given, daemon=True)
    thread.start()
    return thread


def main(seed, file, urls):
    threads = [begin(work, Client(urls, f"{seed} {work.__name__} {n}"), n) for work, many in (
        (watch, 2), (write, 5), (hold, 4), (lock, 3)) for n in range(many)]
    for event in calm, stop:
        sys.stdin.readline()
        event.set()
    for thread in threads:
        thread.join(12)
    # Leases go on to end while one replica after the other is asked: all tell what was up to here.
    rpcs, histories = [Rpc(url) for url in urls], []
    upto = rpcs[0].call("etcdserverpb.KV/Put", pb.PutRequest(key=b"last")).header.revision
    for rpc in rpcs:
        histories.append([])
        for event in events(rpc, 2, 20):
            histories[-1].append(event)
            if event.revision == upto:
                break
    hashes = [rpc.call("etcdserverpb.Maintenance/HashKV", pb.HashKVRequest(revision=upto)).hash
              for rpc in rpcs]
    with open(file, "wb") as f:
        pickle.dump({"ops": ops, "leases": leases, "holds": holds, "died": died, "hashes": hashes,
                     "watchers": watchers, "histories": histories, "upto": upto}, f)
    # A channel that is collected at the interpreter's end waits for a thread that has gone by then.
    os._exit(0)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
