#!/usr/bin/python3
"""The raw API, call by call, on Debian's real etcd and on tenure-core: answers, errors and events must be alike.

usage: api.py, as pair.py says
"""
import random
import threading
import time

import grpc

from calls import a_delete, a_put, a_range, a_txn, lease_churn
from pair import (ENGINES, KV, LEASE, WAIT, Stream, args, both, clean, create, finish, next_events, next_same, pb,
                  report, watch)


# ---- a random history: the same operations on both, each answer compared ----

def random_history(r, n):
    rev, compacted, different, kinds = 1, 0, 0, {}
    for i in range(n):
        p = r.random()
        if p < .3:
            path, m, reply = "Put", a_put(r), pb.PutResponse
        elif p < .4:
            path, m, reply = "DeleteRange", a_delete(r), pb.DeleteRangeResponse
        elif p < .7:
            path, m, reply = "Range", a_range(r, rev), pb.RangeResponse
        elif p < .97:
            path, m, reply = "Txn", a_txn(r, rev), pb.TxnResponse
        else:
            path, m, reply = "Compact", pb.CompactionRequest(revision=r.randrange(max(1, compacted - 1), rev + 2)), pb.CompactionResponse
        raw, same, shown = both(None, KV + path, m, reply)
        kinds[path] = kinds.get(path, 0) + 1
        if not same:
            different += 1
            if different < 4:
                report(False, f"random call {i} of seed {args.seed}: {path}",
                       f"{m}\n    tenure: {shown['tenure']!r}\n    etcd:   {shown['etcd']!r}")
        a = raw["etcd"]
        if not isinstance(a, str):
            rev = max(rev, a.header.revision)
            if path == "Compact":
                compacted = max(compacted, m.revision)
        if r.random() < .04:
            lease_churn(r)
    report(different == 0, f"{n} random calls of seed {args.seed} ({', '.join(f'{v} {k}' for k, v in sorted(kinds.items()))})",
           f"{different} answered differently")


# ---- leases ----

def leases():  # A16: list, TTL and grant answer from one state; A35: one that is gone does not end the others' stream
    L = lambda what, m, req, rep, **k: both(f"lease: {what}", LEASE + m, req, rep, **k)  # noqa: E731
    L("grant", "LeaseGrant", pb.LeaseGrantRequest(ID=77, TTL=100), pb.LeaseGrantResponse)
    L("grant, taken", "LeaseGrant", pb.LeaseGrantRequest(ID=77, TTL=100), pb.LeaseGrantResponse)
    L("grant, too long", "LeaseGrant", pb.LeaseGrantRequest(ID=78, TTL=9000000001), pb.LeaseGrantResponse)
    L("grant, id by the server", "LeaseGrant", pb.LeaseGrantRequest(TTL=100), pb.LeaseGrantResponse, forget=["ID"])
    both(None, KV + "Put", pb.PutRequest(key=b"on77", value=b"1", lease=77), pb.PutResponse)
    L("time to live, with keys", "LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=77, keys=True), pb.LeaseTimeToLiveResponse, forget=["TTL"])
    L("time to live, gone", "LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=1234567), pb.LeaseTimeToLiveResponse)
    s = {n: Stream(e, LEASE + "LeaseKeepAlive", pb.LeaseKeepAliveResponse) for n, e in ENGINES.items()}
    for lease in (77, 1234567, 77):
        for x in s.values():
            x.send(pb.LeaseKeepAliveRequest(ID=lease))
        a, b = clean(s["tenure"].next()), clean(s["etcd"].next())
        report(a == b, f"lease: keep-alive of {lease}", f"{a!r} {b!r}")
    for x in s.values():
        x.close()
    L("revoke", "LeaseRevoke", pb.LeaseRevokeRequest(ID=77), pb.LeaseRevokeResponse)
    L("revoke, gone", "LeaseRevoke", pb.LeaseRevokeRequest(ID=77), pb.LeaseRevokeResponse)
    both("lease: its key went with it", KV + "Range", pb.RangeRequest(key=b"on77"), pb.RangeResponse)


def many_keys():
    """A45: a lease with very many keys goes at one revision, with all of them."""
    both(None, LEASE + "LeaseGrant", pb.LeaseGrantRequest(ID=79, TTL=600), pb.LeaseGrantResponse)
    for i in range(200):
        both(None, KV + "Txn", pb.TxnRequest(success=[pb.RequestOp(request_put=pb.PutRequest(key=b"many/%d/%d" % (i, k), lease=79))
                                                      for k in range(100)]), pb.TxnResponse)
    count = pb.RangeRequest(key=b"many/", range_end=b"many0", count_only=True)
    both("lease: A45: 20,000 keys on one", KV + "Range", count, pb.RangeResponse)
    both("lease: A45: revoked", LEASE + "LeaseRevoke", pb.LeaseRevokeRequest(ID=79), pb.LeaseRevokeResponse)
    both("lease: A45: all went at one revision", KV + "Range", count, pb.RangeResponse)


# ---- watches ----

def watches():
    put = lambda k, v=b"v": both(None, KV + "Put", pb.PutRequest(key=k, value=v), pb.PutResponse)  # noqa: E731
    s = {n: Stream(e, "/etcdserverpb.Watch/Watch", pb.WatchResponse) for n, e in ENGINES.items()}
    first = put(b"w1")[0]["etcd"].header.revision
    watch(create(key=b"w", range_end=b"x"), s), next_same(s, "watch: created")
    watch(create(key=b"w1", prev_kv=True, watch_id=7), s), next_same(s, "watch: created with an id of ours")
    watch(create(key=b"w1", watch_id=7), s), next_same(s, "watch: an id that is taken")
    watch(create(key=b"w", range_end=b"x", filters=[pb.WatchCreateRequest.NOPUT], start_revision=first), s)
    next_same(s, "watch: created with a filter, from the past")
    for end in (b"w", b"w1"):
        watch(create(key=b"w1", range_end=end, watch_id=8), s), next_same(s, "watch: a range that is empty")
    watch(create(key=b"w1", range_end=b"w", watch_id=7), s), next_same(s, "watch: an empty range, and an id that is taken")
    put(b"w1", b"new"), next_events(s, "watch: a put, seen by two", 2, in_order=False)
    both(None, KV + "DeleteRange", pb.DeleteRangeRequest(key=b"w1"), pb.DeleteRangeResponse)
    next_events(s, "watch: a deletion, seen by three, with what was there", 3, in_order=False)
    watch(pb.WatchRequest(cancel_request=pb.WatchCancelRequest(watch_id=7)), s), next_same(s, "watch: canceled")
    watch(pb.WatchRequest(progress_request=pb.WatchProgressRequest()), s), next_same(s, "watch: progress, asked for")
    both(None, KV + "Txn", pb.TxnRequest(success=[pb.RequestOp(request_put=pb.PutRequest(key=b"w%d" % i, value=b"t")) for i in range(5)]), pb.TxnResponse)
    next_events(s, "watch: a txn's events at one revision", 5)
    watch(create(key=b"w1", start_revision=first), s), next_same(s, "watch: created from the past")
    next_events(s, "watch: all that happened since", 4)
    now = put(b"other")[0]["etcd"].header.revision
    watch(create(key=b"future", start_revision=now + 2), s), next_same(s, "watch: created for the future")
    put(b"future", b"too early"), put(b"future", b"in time"), next_events(s, "watch: begins where it said", 1)
    both(None, KV + "Compact", pb.CompactionRequest(revision=now), pb.CompactionResponse)
    watch(create(key=b"w1", start_revision=first), s)
    next_same(s, "watch: from what is compacted, created")
    # etcd tells no reason and no revision of its own here.
    next_same(s, "watch: and canceled, with the revision", forget=["header", "cancel_reason"])
    watch(create(key=b"", range_end=b"\0"), s), next_same(s, "watch: everything")
    put(b"any"), next_events(s, "watch: everything, an event", 1)
    for x in s.values():
        x.out.put(None)  # as curl does, whose request is all there before it reads
    for i in range(3):
        put(b"any"), next_events(s, "watch: goes on when its client has said all it will", 1)
    for x in s.values():
        x.close()
    # Fragments: a revision of 2 MiB, in parts that the client can take.
    s = {n: Stream(e, "/etcdserverpb.Watch/Watch", pb.WatchResponse) for n, e in ENGINES.items()}
    watch(create(key=b"f", range_end=b"g", fragment=True), s), next_same(s, "watch: created, with fragments")
    for i in range(4):
        both(None, KV + "Put", pb.PutRequest(key=b"f%d" % i, value=b"z" * 900000, lease=0), pb.PutResponse)
    both(None, KV + "DeleteRange", pb.DeleteRangeRequest(key=b"f", range_end=b"g"), pb.DeleteRangeResponse)
    next_events(s, "watch: large events", 8)
    for x in s.values():
        x.close()


# ---- locks and elections ----

LOCK, ELECTION = "/v3lockpb.Lock/", "/v3electionpb.Election/"


def locks():
    for lease in (501, 502, 503):
        both(None, LEASE + "LeaseGrant", pb.LeaseGrantRequest(ID=lease, TTL=300), pb.LeaseGrantResponse)
    both("lock: free", LOCK + "Lock", pb.LockRequest(name=b"l", lease=501), pb.LockResponse)
    # Ours writes the key again, so that who claimed it before, and gives up late, does not take it away; etcd does not.
    both("lock: again, by its holder", LOCK + "Lock", pb.LockRequest(name=b"l", lease=501), pb.LockResponse, forget=["header"])
    ENGINES["etcd"].call(KV + "Put", pb.PutRequest(key=b"l/1f5", lease=501), pb.PutResponse)
    # etcd loses the code on the way: it answers UNKNOWN.
    raw, _, _ = both(None, LOCK + "Lock", pb.LockRequest(name=b"l", lease=999), pb.LockResponse)
    report(raw["tenure"].split(": ", 1)[1] == raw["etcd"].split(": ", 1)[1], "lock: on a lease that is not there", str(raw))
    second, third = {}, {}
    for n, e in ENGINES.items():
        second[n] = e.future(LOCK + "Lock", pb.LockRequest(name=b"l", lease=502), pb.LockResponse)
        until(lambda: count(e, b"l/", b"l0") == 2)
        third[n] = e.future(LOCK + "Lock", pb.LockRequest(name=b"l", lease=503), pb.LockResponse)
        until(lambda: count(e, b"l/", b"l0") == 3)
    report(not any(f.done() for f in [*second.values(), *third.values()]), "lock: taken, so others wait")
    for n in ENGINES:
        third[n].cancel()
    for n, e in ENGINES.items():
        report(until(lambda: count(e, b"l/", b"l0") == 2), f"lock: who gives up leaves nothing behind ({n})")
    both("unlock", LOCK + "Unlock", pb.UnlockRequest(key=b"l/1f5"), pb.UnlockResponse)
    a, b = [clean(second[n].result()) for n in ("tenure", "etcd")]
    report(a == b, "lock: the next one has it", f"{a!r} {b!r}")
    # A38: a waiter whose lease goes does not get it.
    third = {n: e.future(LOCK + "Lock", pb.LockRequest(name=b"l", lease=503), pb.LockResponse) for n, e in ENGINES.items()}
    for e in ENGINES.values():
        until(lambda: count(e, b"l/", b"l0") == 2)
    both(None, LEASE + "LeaseRevoke", pb.LeaseRevokeRequest(ID=503), pb.LeaseRevokeResponse)
    both(None, LOCK + "Unlock", pb.UnlockRequest(key=b"l/1f6"), pb.UnlockResponse)
    errors = {}
    for n, f in third.items():
        try:
            errors[n] = clean(f.result())
        except grpc.RpcError as e:
            errors[n] = e.code().name
    # etcd 3.4 tells it that it has the lock.
    report(errors["tenure"] == "UNKNOWN", "lock: a waiter whose lease went is refused (A38)", str(errors))
    both("unlock of nothing", LOCK + "Unlock", pb.UnlockRequest(key=b"l/none"), pb.UnlockResponse)

    both("election: no leader yet", ELECTION + "Leader", pb.LeaderRequest(name=b"e"), pb.LeaderResponse)
    observers = {n: e.stream_out(ELECTION + "Observe", pb.LeaderRequest(name=b"e"), pb.LeaderResponse) for n, e in ENGINES.items()}
    time.sleep(.3)  # an observer that is late sees less; nothing tells that it looks
    raw, _, _ = both("election: campaign", ELECTION + "Campaign", pb.CampaignRequest(name=b"e", lease=501, value=b"one"), pb.CampaignResponse)
    leader = raw["etcd"].leader
    both("election: the leader", ELECTION + "Leader", pb.LeaderRequest(name=b"e"), pb.LeaderResponse)
    both("election: proclaim", ELECTION + "Proclaim", pb.ProclaimRequest(leader=leader, value=b"two"), pb.ProclaimResponse)
    wrong = pb.LeaderKey(name=b"e", key=leader.key, rev=1, lease=501)
    both("election: proclaim by who is not", ELECTION + "Proclaim", pb.ProclaimRequest(leader=wrong, value=b"no"), pb.ProclaimResponse)
    both("election: campaign again, with another value", ELECTION + "Campaign", pb.CampaignRequest(name=b"e", lease=501, value=b"three"), pb.CampaignResponse, forget=["header"])
    second = {n: e.future(ELECTION + "Campaign", pb.CampaignRequest(name=b"e", lease=502, value=b"next"), pb.CampaignResponse) for n, e in ENGINES.items()}
    for e in ENGINES.values():
        until(lambda: count(e, b"e/", b"e0") == 2)
    both("election: resign", ELECTION + "Resign", pb.ResignRequest(leader=leader), pb.ResignResponse)
    a, b = [second[n].result().leader for n in ("tenure", "etcd")]
    report(a == b, "election: the next one leads", f"{a!r} {b!r}")
    seen = {}
    for n, o in observers.items():
        seen[n] = []
        for m in o:
            seen[n].append(m.kv.value)
            if m.kv.value == b"next":
                break
        o.cancel()
    report(seen["tenure"] == seen["etcd"], "election: what an observer saw", str(seen))
    both("election: resign of nobody", ELECTION + "Resign", pb.ResignRequest(leader=leader), pb.ResignResponse)


def count(e, key_, end_):
    r = e.call(KV + "Range", pb.RangeRequest(key=key_, range_end=end_, count_only=True), pb.RangeResponse)
    return -1 if isinstance(r, str) else r.count


def until(check, timeout=WAIT):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(.01)
    return False


# ---- maintenance and cluster ----

MAINT, CLUSTER = "/etcdserverpb.Maintenance/", "/etcdserverpb.Cluster/"


def streamed():
    """RangeStream is of a later etcd: what it brings must be what Range brings."""
    e = ENGINES["tenure"]
    for i in range(30):
        e.call(KV + "Put", pb.PutRequest(key=b"stream/%02d" % i, value=b"s" * 50000), pb.PutResponse)
    q = pb.RangeRequest(key=b"stream/", range_end=b"stream0", limit=25)
    whole, parts = e.call(KV + "Range", q, pb.RangeResponse), list(e.stream_out(KV + "RangeStream", q, pb.RangeStreamResponse))
    kvs = [kv for p in parts for kv in p.range_response.kvs]
    last = parts[-1].range_response
    report(len(parts) > 3 and kvs == list(whole.kvs) and (last.count, last.more) == (whole.count, whole.more) == (30, True),
           "range stream: the same in parts", f"{len(parts)} parts, {len(kvs)} keys")
    both(None, KV + "DeleteRange", pb.DeleteRangeRequest(key=b"stream/", range_end=b"stream0"), pb.DeleteRangeResponse)


def maintenance():
    raw, _, _ = both(None, MAINT + "Status", pb.StatusRequest(), pb.StatusResponse)
    t = raw["tenure"]
    report(t.leader == t.header.member_id and t.raftIndex >= t.raftAppliedIndex > 0 and t.dbSize > 0 and not t.errors, "status", str(t))
    both("alarms: none", MAINT + "Alarm", pb.AlarmRequest(action=0, alarm=0), pb.AlarmResponse, forget=["header"])
    both("alarms: raised", MAINT + "Alarm", pb.AlarmRequest(action=1, memberID=5, alarm=1), pb.AlarmResponse, forget=["header"])
    both("alarms: told", MAINT + "Alarm", pb.AlarmRequest(action=0, alarm=0), pb.AlarmResponse, forget=["header"])
    both("alarms: a put is refused", KV + "Put", pb.PutRequest(key=b"q", value=b"1"), pb.PutResponse)
    both("alarms: a grant is refused", LEASE + "LeaseGrant", pb.LeaseGrantRequest(ID=91, TTL=50), pb.LeaseGrantResponse)
    both("alarms: a txn that puts is refused", KV + "Txn", pb.TxnRequest(success=[pb.RequestOp(request_put=pb.PutRequest(key=b"q"))]), pb.TxnResponse)
    both("alarms: a deletion is not", KV + "DeleteRange", pb.DeleteRangeRequest(key=b"q"), pb.DeleteRangeResponse)
    both("alarms: a read is not", KV + "Range", pb.RangeRequest(key=b"q"), pb.RangeResponse)
    both("alarms: disarmed", MAINT + "Alarm", pb.AlarmRequest(action=2, memberID=5, alarm=1), pb.AlarmResponse, forget=["header"])
    both("alarms: a put is taken again", KV + "Put", pb.PutRequest(key=b"q", value=b"1"), pb.PutResponse)
    both("defragment", MAINT + "Defragment", pb.DefragmentRequest(), pb.DefragmentResponse, forget=["header"])
    both("hash: of the future", MAINT + "HashKV", pb.HashKVRequest(revision=1 << 40), pb.HashKVResponse)
    both("move leader to nobody", MAINT + "MoveLeader", pb.MoveLeaderRequest(targetID=1), pb.MoveLeaderResponse)
    both("members: remove who is none", CLUSTER + "MemberRemove", pb.MemberRemoveRequest(ID=1), pb.MemberRemoveResponse)
    both("members: promote who is none", CLUSTER + "MemberPromote", pb.MemberPromoteRequest(ID=1), pb.MemberPromoteResponse)
    both("members: update who is none", CLUSTER + "MemberUpdate", pb.MemberUpdateRequest(ID=1, peerURLs=["http://127.0.0.1:1"]), pb.MemberUpdateResponse)
    blob = b"".join(m.blob for m in ENGINES["tenure"].stream_out(MAINT + "Snapshot", pb.SnapshotRequest(), pb.SnapshotResponse))
    report(blob.startswith(b"TENSNAP1") and len(blob) > 100, "snapshot", f"{len(blob)} bytes")


def lock_twice():
    """A claim that was given up takes nothing from its holder who came back meanwhile, by another connection, and wrote to the key.

    etcd deletes the key whoever has it by now, and with it the lock.
    """
    e = ENGINES["tenure"]
    for lease in (511, 512):
        e.call(LEASE + "LeaseGrant", pb.LeaseGrantRequest(ID=lease, TTL=300), pb.LeaseGrantResponse)
    e.call(LOCK + "Lock", pb.LockRequest(name=b"twice", lease=511), pb.LockResponse)
    first = e.future(LOCK + "Lock", pb.LockRequest(name=b"twice", lease=512), pb.LockResponse)
    until(lambda: count(e, b"twice/", b"twice0") == 2)
    e.call(KV + "Put", pb.PutRequest(key=b"twice/200", value=b"me", lease=512), pb.PutResponse)
    again = e.future(LOCK + "Lock", pb.LockRequest(name=b"twice", lease=512), pb.LockResponse)
    first.cancel()
    third = e.future(LOCK + "Lock", pb.LockRequest(name=b"gate", lease=511), pb.LockResponse)  # the cancelling is through
    third.result()
    e.call(LOCK + "Unlock", pb.UnlockRequest(key=b"twice/1ff"), pb.UnlockResponse)
    report(again.result().key == b"twice/200", "lock: who comes back has its turn")
    report(not until(lambda: count(e, b"twice/", b"twice0") == 0, 1), "lock: and keeps it, when its first claim is given up")


def wait_without_lease():
    """To wait for a lock without a lease of one's own, for longer than the lease lasts that is made for it. The last
    case: with an etcd the key, and so the revision, does not wait as long."""
    began, waiters = time.monotonic(), {}
    both(None, LEASE + "LeaseGrant", pb.LeaseGrantRequest(ID=531, TTL=300), pb.LeaseGrantResponse)
    both("lock: the first of two", LOCK + "Lock", pb.LockRequest(name=b"long", lease=531), pb.LockResponse, forget=["header"])
    for n, e in ENGINES.items():
        waiters[n] = e.future(LOCK + "Lock", pb.LockRequest(name=b"long"), pb.LockResponse, timeout=120)
        until(lambda: count(e, b"long/", b"long0") == 2)
    time.sleep(max(0., began + 63 - time.monotonic()))  # what is tested is that time goes by
    report(not any(f.done() for f in waiters.values()), "lock: who brings no lease waits for more than a minute")
    both(None, LOCK + "Unlock", pb.UnlockRequest(key=b"long/213"), pb.UnlockResponse)
    got = {}
    for n, f in waiters.items():
        try:
            got[n] = f.result().key
        except grpc.RpcError as x:
            got[n] = x
    report(all(isinstance(k, bytes) for k in got.values()), "lock: and has it then", str(got))
    # With an etcd 3.4 its key is gone by now, and others may have the lock too.
    r = ENGINES["tenure"].call(KV + "Range", pb.RangeRequest(key=b"long/", range_end=b"long0"), pb.RangeResponse)
    report([k.key for k in r.kvs] == [got["tenure"]], "lock: with its key", str(r))


def limits():
    many = pb.TxnRequest(success=[pb.RequestOp(request_put=pb.PutRequest(key=b"t%d" % i, value=b"")) for i in range(129)])
    both("limits: 129 operations", KV + "Txn", many, pb.TxnResponse)
    del many.success[128]
    both("limits: 128 operations", KV + "Txn", many, pb.TxnResponse)
    both("limits: no key", KV + "DeleteRange", pb.DeleteRangeRequest(), pb.DeleteRangeResponse)
    # These two end the process of an etcd 3.4.
    for what, path, m, reply, want in (
            ("a sort that is none", "Range", pb.RangeRequest(key=b"a", sort_order=1, sort_target=99), pb.RangeResponse, "etcdserver: invalid sort option"),
            ("an operation that is none", "Txn", pb.TxnRequest(success=[pb.RequestOp()]), pb.TxnResponse, "etcdserver: key not found")):
        r = ENGINES["tenure"].call(KV + path, m, reply)
        report(r == f"INVALID_ARGUMENT: {want}", f"limits: {what}", str(r))


random_history(random.Random(args.seed), 3000)
leases()
many_keys()
watches()
locks()
limits()
maintenance()
streamed()
lock_twice()
wait_without_lease()
finish()
