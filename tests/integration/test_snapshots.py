"""A snapshot becomes another core; what is no snapshot does not."""
import contextlib
import os
import urllib.parse

import pytest

from harness.liar import Wire
from harness.places import BIN
from harness.program import run
from harness.rpc import Refused, pb
from harness.waiting import ProgramError, eventually

KEYS = 40


@pytest.fixture
def snapshot(shared_cluster, tmp_path):
    file = tmp_path / "snapshot"
    assert shared_cluster.ctl("core", "snapshot", "save", file).startswith("Saved")
    return file


def restore(file, directory):
    return run(BIN / "tenure-core", "--restore", file, "--name", "a", "--data-dir", directory,
               "--initial-cluster", "a=http://127.0.0.1:1")


def test_a_snapshot_becomes_a_core_of_three_with_its_keys_and_leases(
        shared_cluster, new_cluster, prefix, tmp_path):
    lease = shared_cluster.grant(600)
    for n in range(KEYS):
        shared_cluster.put(f"{prefix}{n}", "v", lease=lease)
    shared_cluster.ctl("core", "snapshot", "save", tmp_path / "snapshot")

    core = new_cluster(3, restore=tmp_path / "snapshot")

    for replica in core.replicas.values():
        assert len(core.range(prefix, at=replica)) == KEYS
    assert len(core.lease(lease).keys) == KEYS
    core.put(prefix + "k", "again")


def test_a_replica_without_a_majority_still_gives_etcdctl_a_snapshot(
        cluster, new_cluster, tmp_path):
    for n in range(KEYS):
        cluster.put(f"k{n}", "v")
    alone, *others = cluster.replicas.values()
    cluster.get("k0", at=alone)  # it has heard of all that came before
    for replica in others:
        replica.kill()

    cluster.etcdctl("snapshot", "save", tmp_path / "snapshot", at=alone)

    alone.kill()
    alone.data.rename(tmp_path / "lost")
    assert len(new_cluster(1, restore=tmp_path / "snapshot").range("k")) == KEYS


def test_a_snapshot_may_take_longer_than_an_answer(new_cluster, tmp_path):
    """There are 10 s for an answer, and 5 for that to a PING, which waits behind the data."""
    core = new_cluster(1)
    for n in range(20):
        core.put(f"k{n}", "v" * 90_000)

    wire = Wire(urllib.parse.urlsplit(core.endpoints).port, rate=150_000)
    with contextlib.closing(wire):
        run(BIN / "tenurectl", f"--endpoints=http://127.0.0.1:{wire.port}", "core", "snapshot",
            "save", tmp_path / "snapshot")

    assert (tmp_path / "snapshot").stat().st_size > 1_800_000


LARGE = 8 << 30  # more than there is memory for


@pytest.mark.parametrize("damage, sentence", [
    (lambda file: os.truncate(file, 200), "is not a snapshot of a lease core, or it is damaged"),
    (lambda file: os.truncate(file, LARGE), "is not a snapshot of a lease core"),
    (lambda file: (os.truncate(file, 0), os.truncate(file, LARGE)),
     "is not a snapshot of a lease core"),
    (lambda file: (file.unlink(), file.mkdir()), "Cannot read .*: Is a directory"),
    (lambda file: (file.unlink(), os.mkfifo(file)), "it is not a regular file"),
], ids=["cut", "lengthened", "zeros", "directory", "fifo"])
def test_what_is_no_snapshot_is_not_restored(snapshot, tmp_path, damage, sentence):
    damage(snapshot)
    with pytest.raises(ProgramError, match=sentence):
        restore(snapshot, tmp_path / "data")


def test_a_snapshot_of_etcd_is_left_to_etcd(etcd, tmp_path):
    etcd.etcdctl("snapshot", "save", tmp_path / "snapshot")
    with pytest.raises(ProgramError, match="it is an etcd snapshot; restore it with etcd"):
        restore(tmp_path / "snapshot", tmp_path / "data")


def test_a_snapshot_is_not_restored_over_a_replica(snapshot, new_cluster):
    core = new_cluster(1)
    replica = core.leader()
    core.put("k", "kept")
    replica.stop()
    with pytest.raises(ProgramError, match="already holds a replica"):
        run(BIN / "tenure-core", "--restore", snapshot, *replica.identity)
    replica.start()
    assert eventually(lambda: core.get("k")).value == "kept"


# ---- without a snapshot: two of three are lost ----

def test_a_replica_that_was_restarted_without_a_majority_reports_nothing_old(cluster):
    cluster.put("k", "old")
    alone = cluster.replicas["a"]
    for replica in cluster.replicas.values():
        replica.kill()
    alone.start()

    with cluster.rpc(at=alone) as rpc:
        read = rpc.future("etcdserverpb.KV/Range", pb.RangeRequest(key=b"k", serializable=True))
        with pytest.raises(Refused, match="UNAVAILABLE: etcdserver: no leader"):
            next(rpc.answers("etcdserverpb.Maintenance/Snapshot", pb.SnapshotRequest()))
        assert read.exception().details() == "etcdserver: no leader"


def test_a_replica_that_lost_the_others_continues_alone_when_it_is_forced_to(cluster):
    lease = cluster.grant(600)
    cluster.put("k", "acknowledged", lease=lease)
    alone = cluster.replicas["a"]
    cluster.get("k", at=alone)  # it has heard of all that came before
    for replica in cluster.replicas.values():
        replica.kill()

    alone.command.append("--force-new-cluster")
    assert alone.start().wait() == 0
    alone.command.pop()
    alone.start()

    assert alone.said("is the only member of the new cluster")
    eventually(lambda: cluster.put("after", "v"))
    assert set(cluster.members()) == {"a"}
    assert cluster.lease(lease).keys == ["k"]
    cluster.replicas = {"a": alone}
    learner = cluster.add_learner("d")
    cluster.promote("d")
    assert cluster.get("k", at=learner).value == "acknowledged"


def cluster_id(core, at):
    with core.rpc(at=at) as rpc:
        return eventually(lambda: rpc.call("etcdserverpb.KV/Range",
                                           pb.RangeRequest(key=b"k"))).header


def test_two_replicas_that_are_forced_to_continue_alone_are_two_clusters(cluster):
    cluster.put("k", "acknowledged")
    before = cluster_id(cluster, cluster.replicas["a"]).cluster_id
    a, b, c = cluster.replicas.values()
    for replica in a, b, c:
        replica.kill()
    for replica in a, b:
        replica.command.append("--force-new-cluster")
        for said in "is the only member of the new cluster", "Nothing was changed":
            assert replica.start().wait() == 0
            assert replica.said(said)
        replica.command.pop()
        replica.start()

    headers = [cluster_id(cluster, replica) for replica in (a, b)]
    assert len({before, *[header.cluster_id for header in headers]}) == 3
    assert {header.ancestor for header in headers} == {before}
    c.start()
    cluster.replicas = {"a": a}
    cluster.add_learner("d")  # alone, it listens for nobody
    eventually(lambda: a.said("which was forced to descend from that one"))


def test_an_empty_directory_cannot_be_forced(tmp_path):
    with pytest.raises(ProgramError, match="holds no replica"):
        run(BIN / "tenure-core", "--force-new-cluster", "--data-dir", tmp_path / "nothing")


def test_a_replica_has_removed_its_log_when_it_reports_that_it_is_defragmented(new_cluster):
    with new_cluster(1).rpc() as rpc:
        def bytes_on_disk():
            return rpc.call("etcdserverpb.Maintenance/Status", pb.StatusRequest()).dbSize

        for _ in range(100):
            put = rpc.call("etcdserverpb.KV/Put", pb.PutRequest(key=b"k", value=bytes(200_000)))
        rpc.call("etcdserverpb.KV/Compact", pb.CompactionRequest(revision=put.header.revision))
        before = bytes_on_disk()
        rpc.call("etcdserverpb.Maintenance/Defragment", pb.DefragmentRequest())

        assert bytes_on_disk() < before / 2
