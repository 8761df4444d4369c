#!/usr/bin/python3
"""How other lease systems failed (tests/LESSONS.md), tried on three real replicas: the rows that want a cluster under load, or one
whose leader dies.

usage: lessons.py --bin DIR --dir DIR --pb DIR --ports P1,...,P8
"""
import contextlib
import hashlib
import http.client
import queue
import re
import threading
import time
import urllib.request

import grpc

from cluster import KV, LEASE, MAINTENANCE, PORTS, KeepAlive, Replica, args, finish, leader, members, pb, report, until_they_answer, wait_for
from h2raw import Raw
from holder import Holder

CLIENT, PEER = PORTS[:4], PORTS[4:]  # the fourth joins later


def replica(i):
    return Replica(i, CLIENT[i], PEER[i], members(PEER[:max(3, i + 1)]), "--initial-cluster-state", "new" if i < 3 else "existing")


def renewals_share_entries(rs):
    each, rounds = 300, 5
    asks = [[pb.LeaseKeepAliveRequest(ID=r.grant(20)).SerializeToString() for _ in range(each)] for r in rs]
    # By hand, some in a write, so that how fast this program is matters little.
    raw = [Raw(int(r.client)) for r in rs]
    streams = [c.begin((LEASE + "LeaseKeepAlive").encode(), a[0]) for c, a in zip(raw, asks)]
    for c, s in zip(raw, streams):
        c.answers(s, 1)
    before = rs[0].status().raftIndex
    for n in range(rounds):
        time.sleep(2.6)  # a crowd that paces itself: who renews in the first eighth of its term waits for the disk only
        for first in range(0, each, 3):
            for c, s, a in zip(raw, streams, asks):
                c.more(s, *a[first:first + 3])
        answered = [c.answers(s, 1 + (n + 1) * each) for c, s in zip(raw, streams)]
    entries, renewals = rs[0].status().raftIndex - before, rounds * len(rs) * each
    renewed = sum(pb.LeaseKeepAliveResponse.FromString(m).TTL > 0 for of in answered for m in of[1:])
    report(renewed == renewals and entries * 10 <= renewals,
           f"A4 A33 A34: {renewals} renewals at three replicas took less than a tenth as many entries", f"{entries} entries, {renewed} renewed")
    print(f"    {entries} entries")
    for c in raw:
        c.s.close()


def grants_are_there_to_be_renewed(rs):
    bad = 0
    for n in range(60):
        k = KeepAlive(rs[(n + 1) % 3])
        bad += k.renew(rs[n % 3].grant(60)) != 60
        k.end()
    report(bad == 0, "A22: a keep-alive at another replica right after the grant finds the lease, 60 times", f"{bad} did not")


def revoked_is_revoked(rs):
    late = lied = 0
    for n in range(60):
        a, b = rs[n % 3], rs[(n + 1) % 3]
        lease = a.grant(60)
        a.put(b"a23", lease=lease)
        k = KeepAlive(b)
        gone = a.future(LEASE + "LeaseRevoke", pb.LeaseRevokeRequest(ID=lease), pb.LeaseRevokeResponse)
        # While it goes: a renewal that is granted comes before the revoke, so that its key is there at its revision.
        while not gone.done():
            k.send(lease)
            m = k.answers.get(timeout=10)
            if m.TTL > 0:
                at = b.call(KV + "Range", pb.RangeRequest(key=b"a23", revision=m.header.revision), pb.RangeResponse)
                lied += at.count == 0
        gone.result()
        late += k.renew(lease) != 0 or b.count(b"a23") != 0
        k.end()
    report(late == 0, "A23: what is revoked is never renewed again, 60 times", f"{late} were")
    report(lied == 0, "A24: no renewal between the end of the keys and the end of the lease", f"{lied} were")


def renewed(k, lease):
    try:
        return k.renew(lease) > 0
    except queue.Empty:  # no answer
        return False


def busy(rs, stop, counts, i):
    """As many puts as go, 200 outstanding."""
    window, value = [], b"x" * 4096
    while not stop.is_set():
        window.append(rs[i % 3].future(KV + "Put", pb.PutRequest(key=b"busy/%d" % i, value=value), pb.PutResponse))
        if len(window) < 200:
            continue
        try:
            window.pop(0).result()
            counts[i] += 1
        except grpc.RpcError:  # too late, or at a replica that has just been killed
            pass
    for f in window:
        f.cancel()


def lease_time(rs):
    """The clock of leases, in seconds, as the replica has it that knows it best."""
    pages = []
    for r in rs:
        try:
            pages.append(urllib.request.urlopen(f"http://127.0.0.1:{r.client}/metrics", timeout=20).read().decode())
        except (OSError, http.client.HTTPException):  # it has been killed
            pass
    return max((float(x) for p in pages for x in re.findall(r"^tenure_lease_time_seconds (\S+)", p, re.M)), default=0.0)


@contextlib.contextmanager
def a_lease_is_kept(rs, what, lead=None):
    """Meanwhile, though it has 2 s only; and the leader, if given, goes on to lead."""
    term, holder = lead and lead.status().raftTerm, Holder(args.pb, rs[1].client)
    lease = rs[0].grant(2)
    holder.hold(lease)
    rs[0].put(b"kept", lease=lease)
    try:
        yield
        there = rs[2].count(b"kept") == 1
    finally:
        holder.end()
    after = lead and lead.status().raftTerm
    report(not holder.lost and there and after == term, f"{what}: a lease of 2 s is kept" + (", and the leader" if lead else ""),
           f"{holder.lost} renewals found it gone, or had no answer; the slowest took {holder.slowest:.2f} s; "
           f"terms {term}, {after}")
    print(f"    slowest renewal {holder.slowest:.3f} s")


def writers_delay_nothing(rs):
    stop, counts = threading.Event(), [0] * 4
    threads = [threading.Thread(target=busy, args=(rs, stop, counts, i)) for i in range(4)]
    for t in threads:
        t.start()
    with a_lease_is_kept(rs, "A5: beside writers that write all they can"):
        time.sleep(5)
    k = KeepAlive(rs[1])
    lease = rs[1].grant(2)
    rs[1].put(b"a6", lease=lease)
    renewed(k, lease)
    t, asked, began = time.monotonic(), 0, lease_time(rs)
    while time.monotonic() < t + 90:
        before = time.monotonic()
        there = rs[2].count(b"a6")
        asked = max(asked, time.monotonic() - before)
        if not there:
            break
        time.sleep(.01)
    took = time.monotonic() - t
    counted, asked = lease_time(rs) - began, max(asked, time.monotonic() - t - took)
    # Where to ask for it takes long, so does to end it: the machine is busy. Time in which nobody could have renewed it does not count.
    report(1.8 < took < 90 and counted < 2.5 + 4 * asked, "A6: a lease of 2 s that nobody renews ends in time beside them",
           f"after {took:.2f} s, {counted:.2f} of which count; to ask took {asked:.2f} s at the most")
    stop.set()
    for t in threads:
        t.join()
    report(min(counts) > 0, "they wrote meanwhile", counts)
    k.end()


def save(replica):
    parts = replica.channel.unary_stream(MAINTENANCE + "Snapshot", request_serializer=lambda m: m.SerializeToString(),
                                         response_deserializer=pb.SnapshotResponse.FromString)(pb.SnapshotRequest(), timeout=60)
    return b"".join(m.blob for m in parts)


def joined(replica, index):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            s = replica.status()
            if s.raftAppliedIndex >= index:
                return s
        except grpc.RpcError:
            pass
        time.sleep(.1)
    return None


def promoted(lead, member, end=30):
    """Once it is in sync, which takes a while."""
    end += time.monotonic()
    while time.monotonic() < end:
        try:
            lead.call("/etcdserverpb.Cluster/MemberPromote", pb.MemberPromoteRequest(ID=member), pb.MemberPromoteResponse)
            return True
        except grpc.RpcError:
            time.sleep(.1)
    return False


def a_large_state_goes_unnoticed(rs):
    """What writers_delay_nothing() left is written to disks, brought to a new replica, streamed, hashed and compacted."""
    lead = leader(rs)
    before = lead.status()
    # It is refused until all members have been heard for a while.
    wait_for(lambda: lead.call("/etcdserverpb.Cluster/MemberAdd",
                               pb.MemberAddRequest(peerURLs=["http://127.0.0.1:" + PEER[3]], isLearner=True), pb.MemberAddResponse), 30, "a new member")
    joins = None
    try:
        with a_lease_is_kept(rs, "while it comes", lead):
            joins = replica(3)
            s = joined(joins, before.raftIndex)
            report(s and s.dbSize > before.dbSize // 3, f"a state of {before.dbSize >> 20} MiB, log and all, comes to a new replica", s)
        with a_lease_is_kept(rs, "while it streams", lead):
            file = save(lead)
            report(hashlib.sha256(file[:-32]).digest() == file[-32:] and len(file) > 64 << 20, "its snapshot streams, and its checksum is right", len(file))
        member = joins.status().header.member_id
        report(promoted(lead, member), "it is promoted: a learner answers no more than reads of its own")
        with a_lease_is_kept(rs, "while it is hashed", lead):
            hashes = {(h.hash, h.compact_revision) for h in (
                r.call(MAINTENANCE + "HashKV", pb.HashKVRequest(revision=before.header.revision), pb.HashKVResponse, 60) for r in [*rs, joins])}
            report(len(hashes) == 1, "HashKV is the same on all four", hashes)
        with a_lease_is_kept(rs, "while it is compacted", lead):
            at = rs[2].call(KV + "Range", pb.RangeRequest(key=b"busy/0", keys_only=True), pb.RangeResponse)
            rs[2].call(KV + "Compact", pb.CompactionRequest(revision=at.header.revision), pb.CompactionResponse)
            try:
                old = rs[0].call(KV + "Range", pb.RangeRequest(key=b"busy/0", revision=at.header.revision - 1), pb.RangeResponse)
            except grpc.RpcError as e:
                old = e.details()
            report(old == "etcdserver: mvcc: required revision has been compacted" and rs[1].count(b"busy/0") == 1,
                   "all of it is compacted, and what is newest stays", old)
        # Refused while one of the others was not heard for a moment, as on a busy machine.
        wait_for(lambda: lead.call("/etcdserverpb.Cluster/MemberRemove", pb.MemberRemoveRequest(ID=member), pb.MemberRemoveResponse), 20, "n4 is removed")
    finally:
        if joins:
            joins.kill()


def a_leader_change_refills_nothing(rs):
    lease, unrenewed = rs[0].grant(300), rs[1].grant(4)
    rs[0].put(b"a7", lease=unrenewed)
    # The time in which nobody leads counts against no lease: judged by what has counted.
    born, began, odd, gone = time.monotonic(), lease_time(rs), [], []

    def watch():
        while time.monotonic() < born + 60:
            for r in rs:
                try:
                    if r.call(KV + "Range", pb.RangeRequest(key=b"a7"), pb.RangeResponse, 1).count == 0:
                        return gone.append((lease_time(rs) - began, time.monotonic() - born))
                except grpc.RpcError:
                    pass
            time.sleep(.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    time.sleep(2)  # so that a refill would show
    for _ in range(2):
        was = leader(rs)
        was.kill()
        others = [r for r in rs if r is not was]
        until_they_answer(others)
        for r in others:
            counted = lease_time(others) - began
            m = r.ttl(lease)
            if m.grantedTTL != 300 or not 300 - counted - 5 <= m.TTL <= 300 - counted + 1:
                odd.append((counted, m))
            m = r.ttl(unrenewed)
            if not -1 <= m.TTL <= 3:
                odd.append(m)
        was.start()
        until_they_answer(rs)
    report(not odd, "A25 A26: after a leader change the time that is left is what it was", odd)
    watcher.join()
    counted, took = gone[0] if gone else (99, 99)
    report(3.5 <= counted <= 5.5, f"A7 A8: nor does a leader change refill the time of a lease: of {took:.1f} s {counted:.1f} counted against its 4", f"{counted:.2f} s")


def without_a_majority(rs):
    was = leader(rs)
    others = [r for r in rs if r is not was]
    for r in others:
        r.kill()
    codes = set()
    for path, request, reply in ((KV + "Put", pb.PutRequest(key=b"a47"), pb.PutResponse),
                                 (KV + "Range", pb.RangeRequest(key=b"a47"), pb.RangeResponse),
                                 (LEASE + "LeaseGrant", pb.LeaseGrantRequest(TTL=5), pb.LeaseGrantResponse)):
        try:
            was.call(path, request, reply, 20)
            codes.add("done")
        except grpc.RpcError as e:
            codes.add(e.code().name)
    report(codes <= {"UNAVAILABLE", "DEADLINE_EXCEEDED"} and "UNAVAILABLE" in codes,
           "A47: what passes by itself is UNAVAILABLE, which clients try again", codes)
    for r in others:
        r.start()
    leader(rs)


replicas = [replica(i) for i in range(3)]
try:
    until_they_answer(replicas)
    renewals_share_entries(replicas)
    grants_are_there_to_be_renewed(replicas)
    revoked_is_revoked(replicas)
    writers_delay_nothing(replicas)
    a_large_state_goes_unnoticed(replicas)
    a_leader_change_refills_nothing(replicas)
    without_a_majority(replicas)
finally:
    for r in replicas:
        r.kill()
finish()
