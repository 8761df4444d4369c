"""A core as etcdctl and tenurectl see it."""
import contextlib
import json
import re
import threading

import pytest

from harness.rpc import pb
from harness.waiting import ProgramError, eventually


@pytest.mark.parametrize("asked, other", ["ab", "bc", "ca"])
def test_what_one_replica_has_accepted_each_other_one_returns(shared_cluster, prefix, asked, other):
    asked, other = (shared_cluster.replicas[name] for name in (asked, other))

    lease = shared_cluster.grant(600, at=asked)
    shared_cluster.put(prefix + "k", asked.name, lease=lease, at=other)

    assert shared_cluster.get(prefix + "k", at=asked).lease == lease
    assert "keepalived with TTL(600)" in shared_cluster.etcdctl(
        "lease", "keep-alive", "--once", f"{lease:x}", at=other)
    shared_cluster.revoke(lease, at=other)
    assert shared_cluster.get(prefix + "k", at=asked) is None
    with pytest.raises(ProgramError, match="requested lease not found"):
        shared_cluster.revoke(lease, at=asked)


def test_revisions_that_are_not_kept_are_refused(cluster):
    old, now = cluster.put("k", "1"), cluster.put("k", "2")
    cluster.etcdctl("compact", now)

    for revision, sentence in ((old, "has been compacted"), (now + 1, "is a future revision")):
        with pytest.raises(ProgramError, match=f"required revision {sentence}"):
            cluster.get("k", f"--rev={revision}")


def test_etcdctl_sees_three_healthy_members_and_one_leader(shared_cluster):
    members = shared_cluster.etcdctl("member", "list")
    for replica in shared_cluster.replicas.values():
        assert f"{replica.name}, {replica.peer_url}, {replica.client_url}" in members
        shared_cluster.etcdctl("endpoint", "health", at=replica)
    statuses = json.loads(shared_cluster.etcdctl("endpoint", "status", "--cluster", "-w", "json",
                                                 at=shared_cluster.replicas["a"]))
    assert len(statuses) == 3
    assert len({said["Status"]["leader"] for said in statuses}) == 1


# ---- leases ----

# A49: etcd's list has ids alone.
def test_the_list_of_leases_has_ttls_times_and_keys_by_when_they_end(shared_cluster, prefix):
    middle, first, last = (shared_cluster.grant(ttl) for ttl in (1000, 600, 3000))
    shared_cluster.put(prefix + "k", "v", lease=middle)

    leases = json.loads(shared_cluster.ctl("--json=short", "core", "leases"))
    listed = {int(said["id"], 16): said for said in leases}
    ours = [lease for lease in listed if lease in (first, middle, last)]

    assert ours == [first, middle, last]
    assert (listed[middle]["ttl_ms"], listed[middle]["keys"]) == (1_000_000, 1)
    assert 0 < listed[middle]["left_ms"] <= 1_000_000
    assert re.search(rf"^0*{middle:x} +1000\.000s +[0-9.]+s +1 ",
                     shared_cluster.ctl("core", "leases"), re.MULTILINE)


# A48: the log of the leader has it.
def test_the_log_says_which_lease_has_expired_and_why(shared_cluster, prefix):
    lease = shared_cluster.grant(1)
    with contextlib.suppress(ProgramError):  # gone already
        shared_cluster.put(prefix + "k", "v", lease=lease)

    said = rf"Lease 0*{lease:x} expired with [01] key\(s\): it was not renewed in time"
    eventually(lambda: any(replica.said(said) for replica in shared_cluster.running))
    assert shared_cluster.get(prefix + "k") is None


# A42: each connection gets a bounded share of the one loop.
def test_renewals_and_events_come_while_others_read_as_much_as_they_can(shared_cluster, prefix):
    key = prefix.encode()
    read = threading.Event()
    done = threading.Event()

    def read_on(replica):
        with shared_cluster.rpc(at=replica) as rpc:
            while not done.is_set():
                rpc.call("etcdserverpb.KV/Range", pb.RangeRequest(key=key + b"big"))
                read.set()

    with shared_cluster.rpc() as rpc:
        rpc.call("etcdserverpb.KV/Put", pb.PutRequest(key=key + b"big", value=bytes(1_000_000)))
        readers = [threading.Thread(target=read_on, args=[replica])
                   for replica in shared_cluster.running for _ in range(2)]
        lease = shared_cluster.grant(30)
        renewals = rpc.stream("etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest)
        watch = rpc.stream("etcdserverpb.Watch/Watch", pb.WatchRequest)
        watch.send(pb.WatchRequest(create_request=pb.WatchCreateRequest(key=key + b"k")))
        assert watch.next().created
        for reader in readers:
            reader.start()
        try:
            for n in range(12):
                read.clear()
                renewals.send(pb.LeaseKeepAliveRequest(ID=lease))
                assert renewals.next().TTL == 30
                shared_cluster.put(prefix + "k", str(n))
                assert watch.next().events[0].kv.value == b"%d" % n
                assert eventually(read.is_set)  # the readers still read
        finally:
            done.set()
            for reader in readers:
                reader.join()


# ---- the quota ----

def test_what_would_go_past_the_quota_is_refused_until_there_is_room_again(new_cluster):
    cluster = new_cluster(1, "--quota-backend-bytes=10000000")
    big = bytes(1_400_000)

    with cluster.rpc() as rpc:
        puts = [rpc.future("etcdserverpb.KV/Put", pb.PutRequest(key=b"big%d" % n, value=big))
                for n in range(12)]
        refusals = [refusal.details() for put in puts if (refusal := put.exception())]
        assert refusals == ["etcdserver: mvcc: database space exceeded"] * 5
        assert "alarm:NOSPACE" in cluster.etcdctl("alarm", "list")

        cluster.delete("big", "--prefix")
        cluster.etcdctl("compact", cluster.revision())
        cluster.etcdctl("alarm", "disarm")
        rpc.call("etcdserverpb.KV/Put", pb.PutRequest(key=b"again", value=big))
