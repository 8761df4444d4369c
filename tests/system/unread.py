"""Crowds of 1,000 connections that each ask once for 1.4 MB, in one way or another, and read nothing of it, beside honest clients: at their
address, and at another. What the replica holds for them has a bound, and the honest ones are served. Of hostile.py."""
import math
import multiprocessing
import socket
import statistics
import time

import attacks
import rpc_pb2 as pb
from h2raw import DATA, END_STREAM, HEADERS, WINDOW, call, connect, frame, frames, settings

CROWD, SIZE = 1000, 1400 << 10
KV, LEASE, ELECTION = b"/etcdserverpb.KV/", b"/etcdserverpb.Lease/", b"/v3electionpb.Election/"
SECONDS = 8  # of each: time enough for those who do not read to be found out, too
# Seconds in which the slowest answer of each kind is there, on a machine that may be busy. At the crowd's address, where those who renew
# and put are, too, one shares its turns.
WITHIN = {"renewal": 5, "put": 5, "range": 5, "transaction": 5, "the same": 5, "range at its address": 25, "transaction at its address": 25}
# Seconds for a range without a crowd; where that takes longer, so may all else, by the same factor, and no more than SLOWEST.
QUICK, SLOWEST = 0.05, 10
ALL = pb.RangeRequest(key=b"unread/", range_end=b"unread0")
ONE = pb.RangeRequest(key=b"unread-one")
PUT = pb.RequestOp(request_put=pb.PutRequest(key=b"unread-put", value=b"x"))


def txn(*ops):
    return pb.TxnRequest(success=ops)


KINDS = {
    "ranges of 20 keys": (KV + b"Range", ALL),
    "ranges of one key": (KV + b"Range", ONE),
    "ranges in parts": (KV + b"RangeStream", ONE),
    "transactions": (KV + b"Txn", txn(pb.RequestOp(request_range=ONE))),
    "transactions that write": (KV + b"Txn", txn(pb.RequestOp(request_range=ALL), PUT)),
    "leaders of an election": (ELECTION + b"Leader", pb.LeaderRequest(name=b"unread-election")),
    "snapshots": (b"/etcdserverpb.Maintenance/Snapshot", pb.SnapshotRequest()),
    "keys of a lease": (LEASE + b"LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=1, keys=True)),
    "large keys of a lease": (LEASE + b"LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=2, keys=True)),
    "many keys of a lease": (LEASE + b"LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=3, keys=True)),
    "leases": (LEASE + b"LeaseLeases", pb.LeaseLeasesRequest()),
}


def run(port, path, body, pipe):
    attacks.attack("unread", "127.0.0.1", port, None, "127.0.0.1", there=lambda: pipe.send("there"), args=(path, body, CROWD))


def fetch(port, source, path, m, most):
    """Returns how many bytes of messages came, and in how many seconds; fewer if that takes more than @most."""
    began, got, rest = time.monotonic(), 0, b""
    try:
        s = connect(port, source=source, hello=settings((4, 0x7fffffff)) + frame(WINDOW, 0, 0, b"\x7f\0\0\0"))
        s.sendall(call(1, path, m.SerializeToString()))
        while time.monotonic() < began + most:
            s.settimeout(max(began + most - time.monotonic(), 0.01))
            data = s.recv(1 << 18)
            if not data:
                break
            new, rest = frames(rest + data)
            got += sum(len(body) for kind, _, _, body in new if kind == DATA)
            if any(kind == HEADERS and flags & END_STREAM for kind, flags, _, _ in new):
                break
        s.close()
    except (OSError, socket.timeout):
        pass
    return got, time.monotonic() - began


def fill(ask, channel, kind):
    def put(key, size, lease=0):
        ask(channel, KV.decode() + "Put", pb.PutRequest(key=key, value=b"x" * size, lease=lease), pb.PutResponse)

    def grant(i, name=b""):
        ask(channel, LEASE.decode() + "LeaseGrant", pb.LeaseGrantRequest(ID=i, TTL=3600, name=name), pb.LeaseGrantResponse)

    for i in range(20):
        put(b"unread/%02d" % i, SIZE // 20)
    put(b"unread-one", SIZE)
    put(b"unread-election/1", SIZE)
    attached = {"keys of a lease": (1, 250, 2000), "large keys of a lease": (2, 1, SIZE), "many keys of a lease": (3, 700, 2000),
                "snapshots": (4, 1, SIZE)}  # whose name is held while what hangs on it is encoded
    if kind in attached:
        lease, n, size = attached[kind]
        grant(lease)
        for i in range(n):
            put(b"attached/%d/%03d/" % (lease, i) + b"k" * size, 0, lease)
    for i in range(600 if kind == "leases" else 0):
        grant(100 + i, b"%03d" % i + b"n" * 1000)


def one(cluster, kind, honest, seconds, slow):
    """Returns what the replica grew by; of the honest ones what was slowest: in seconds, or infinite where it did not come; their errors;
    and how many times slower than a quick one this machine is: @slow, or more."""
    path, m = KINDS[kind]
    ours, theirs = multiprocessing.Pipe()
    before, port = cluster.rss(0), cluster.client[0]
    alone = [fetch(port, "127.0.0.2", KV + b"Range", ALL, 20) for _ in range(5)]
    slow = min(SLOWEST, max(slow, statistics.median(took for _, took in alone) / QUICK))
    if min(got for got, _ in alone) < SIZE:
        return -1, {}, ["nothing comes without a crowd, either"], slow
    crowd = multiprocessing.get_context("spawn").Process(target=run, args=(port, path, m.SerializeToString(), theirs), daemon=True)
    honest.take()
    crowd.start()
    if not ours.poll(60):
        return -1, {}, ["the crowd did not come"], slow
    look = (KV + b"Range", ALL, SIZE), (KV + b"Txn", txn(pb.RequestOp(request_range=ALL)), SIZE), (path, m, SIZE // 4)
    asks = {"range": ("127.0.0.2", *look[0]), "transaction": ("127.0.0.2", *look[1]), "the same": ("127.0.0.2", *look[2]),
            "range at its address": ("127.0.0.1", *look[0]), "transaction at its address": ("127.0.0.1", *look[1])}
    slowest, end, peak = dict.fromkeys(asks, 0), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for name, (source, *what, least) in asks.items():
            got, took = fetch(port, source, *what, slow * WITHIN[name] + 5)
            slowest[name] = max(slowest[name], took if got >= least else math.inf)
            peak = max(peak, cluster.rss(0))
    crowd.kill()
    crowd.join()
    took, errors = honest.take()
    slowest["renewal"], slowest["put"] = max(took["renewal"]), max(took["put"])
    return peak - before, slowest, errors, slow


def with_cluster(cluster_of, honest_of, ask, kind, name, seconds, slow):
    c = cluster_of(1, name, ["--max-connections-per-address", str(2 * CROWD)])
    try:
        c.leader()
        with c.channel(0) as channel:
            fill(ask, channel, kind)
        honest = honest_of(c)
        grown, slowest, errors, slow = one(c, kind, honest, seconds, slow)
        honest.stop()
    finally:
        c.stop()
    late = {k: round(v, 2) for k, v in slowest.items() if v > slow * WITHIN[k]}
    print(f"    {CROWD} unread, {kind}: {grown} MiB; " + ", ".join(f"{k} {v:.2f} s" for k, v in slowest.items()), f"x {slow:.1f}", errors[:2], flush=True)
    return grown, late, errors


def check(cluster_of, honest_of, ask, report, most=256, kinds=KINDS, seconds=SECONDS, slow=1.0):
    """@cluster_of, @honest_of: hostile.py's. @most: MiB that may be held. @slow: how many times slower than without sanitizers."""
    for n, kind in enumerate(kinds):
        grown, late, errors = with_cluster(cluster_of, honest_of, ask, kind, f"unread{n}", seconds, slow)
        if report:
            report(0 <= grown <= most, f"{CROWD} unread {kind}: no more is held than --max-client-bytes", f"{grown} MiB")
            report(not late and not errors, f"{CROWD} unread {kind}: honest clients are served beside them", f"{late} {errors[:2]}")
