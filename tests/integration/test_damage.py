"""Replicas whose data are not what they left: each says what is wrong, and does not start."""
import shutil

import pytest

from harness.places import BIN
from harness.program import run
from harness.rpc import pb
from harness.waiting import ProgramError, eventually, eventually_is


def remove(log, aside):
    log.rename(aside)


def replace_by_a_link(log, aside):
    log.rename(aside)
    log.symlink_to(aside)


def empty(log, aside):
    log.write_bytes(b"")


def flip_a_byte(log, aside):
    data = bytearray(log.read_bytes())
    data[300] ^= 255
    log.write_bytes(data)


@pytest.mark.parametrize("damage, sentence", [
    (remove, "is damaged .*missing"),
    (replace_by_a_link, "is damaged .*not a regular file"),
    (empty, "is damaged .*was longer"),
    (flip_a_byte, "is damaged at byte [0-9]+"),
])
def test_a_damaged_log_is_named_and_refused(new_cluster, tmp_path, damage, sentence):
    cluster = new_cluster(1)
    alone = cluster.leader()
    cluster.put("k", "acknowledged")
    alone.kill()
    log = max(alone.data.glob("log-*"))

    damage(log, tmp_path / "aside")

    alone.start()
    assert alone.wait() == 1
    assert alone.said(f"{log.name} {sentence}")


def test_an_older_copy_of_a_data_directory_is_refused_permanently(cluster):
    c = cluster.replicas["c"]
    older, true = c.data.with_suffix(".old"), c.data.with_suffix(".true")
    c.kill()
    shutil.copytree(c.data, older)
    c.start()
    revision = eventually(lambda: cluster.put("k", "since"))
    eventually_is(revision, lambda: cluster.get("k", at=c).mod_revision)
    # By then the leader has what c acknowledged: it comes on the same link as c's next question.
    assert cluster.get("k", at=c).mod_revision == revision
    c.kill()

    c.data.rename(true)
    older.rename(c.data)

    c.start()
    assert c.wait() == 1
    assert c.said("the leader has this member's acknowledgement up to [0-9]+: .* an older copy")
    c.start()
    assert c.wait() == 1
    assert c.said("it lacks entries that this member had acknowledged, up to [0-9]+")
    assert eventually(lambda: cluster.get("k")).value == "since"


def test_a_data_directory_in_use_is_refused(shared_cluster):
    a, b = shared_cluster.replicas["a"], shared_cluster.replicas["b"]
    with pytest.raises(ProgramError, match="Another process uses the data directory"):
        run(BIN / "tenure-core", "--name", "a", "--data-dir", b.data, "--initial-cluster",
            f"a={a.peer_url}", "--listen-peer-urls", a.peer_url)


def test_a_replica_that_was_away_takes_nothing_that_it_missed_for_new(cluster):
    a, b, c = cluster.replicas.values()
    c.kill()
    eventually(lambda: cluster.put("missed/a", "old"))
    a.freeze()
    b.freeze()
    c.start()

    with cluster.rpc(at=c) as rpc:
        rpc.call("etcdserverpb.Maintenance/Status", pb.StatusRequest())
        watch = rpc.stream("etcdserverpb.Watch/Watch", pb.WatchRequest)
        for request in (pb.WatchCreateRequest(key=b"missed/", range_end=b"missed0"),
                        pb.WatchCreateRequest(key=b"past", start_revision=1)):
            watch.send(pb.WatchRequest(create_request=request))
        eventually(lambda: c.metric("etcd_debugging_mvcc_watch_stream_total"))
        a.thaw()
        b.thaw()

        assert [(answer.created, answer.watch_id) for answer in (watch.next(), watch.next())] == [
            (True, 0), (True, 1)]
        eventually(lambda: cluster.put("missed/c", "new", at=a))
        assert [event.kv.key for event in watch.next().events] == [b"missed/c"]
