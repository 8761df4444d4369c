"""Replicas of the core come and go while clients are served."""
import json

import pytest

from harness.places import BIN
from harness.program import run
from harness.rpc import Refused, pb
from harness.waiting import ProgramError, eventually, eventually_is


def test_a_learner_catches_up_and_is_promoted(cluster):
    before = cluster.put("k", "before")
    learner = cluster.add_learner("d")
    eventually_is(before, lambda: cluster.get("k", "--consistency=s", at=learner).mod_revision)
    assert cluster.members()["d"].role == "learner"
    cluster.promote("d")
    assert cluster.members()["d"].role == "voter"
    assert cluster.get("k", at=learner).value == "before"


def test_a_replica_that_stops_before_its_first_entry_joins_at_its_next_start(cluster, ports):
    d = cluster.new_replica("d")
    eventually(lambda: cluster.ctl("core", "add", d.peer_url))
    d.configure(cluster.replicas.values(), "existing")
    right, elsewhere = d.command, f"http://127.0.0.1:{ports.take()}"
    at = right.index("--listen-peer-urls") + 1
    d.command = [*right[:at], elsewhere, *right[at + 1:]]  # where no member calls
    d.start()
    eventually(lambda: d.said("serves clients"))
    d.kill()
    d.command = right
    d.start()
    cluster.promote("d")


def test_a_leader_that_is_removed_stops_by_itself_and_loses_nothing(cluster):
    cluster.put("k", "acknowledged")
    leader = cluster.leader()
    cluster.ctl("core", "remove", leader.name)
    assert leader.wait() == 0
    assert cluster.get("k").value == "acknowledged"
    assert set(cluster.members()) == {"a", "b", "c"} - {leader.name}
    cluster.put("k", "after")


@pytest.mark.parametrize("through_itself", [True, False])
def test_the_removed_one_of_two_stops_and_the_other_serves(new_cluster, through_itself):
    cluster = new_cluster(2)
    leader = cluster.leader()
    removed = next(r for r in cluster.replicas.values() if r is not leader)
    asked = removed if through_itself else leader
    eventually(lambda: run(BIN / "tenurectl", f"--endpoints={asked.client_url}", "core",
                           "remove", removed.name))  # not before it has answered for a while
    assert removed.wait() == 0
    assert set(cluster.members()) == {leader.name}
    cluster.put("k", "after")


@pytest.mark.parametrize("size", [1, 3])
def test_what_was_acknowledged_survives_the_death_of_all_replicas(new_cluster, size):
    cluster = new_cluster(size)
    lease = cluster.grant(600)
    revision = cluster.put("k", "acknowledged", lease=lease)
    for replica in cluster.replicas.values():
        replica.kill()
    for replica in cluster.replicas.values():
        replica.start()
    found = eventually(lambda: cluster.get("k"))
    assert (found.value, found.mod_revision) == ("acknowledged", revision)
    assert cluster.lease(lease).keys == ["k"]


@pytest.mark.parametrize("size, tolerated", [(2, 0), (4, 1), (5, 2), (7, 3)])
def test_a_minority_may_be_dead_and_no_more(new_cluster, size, tolerated):
    cluster = new_cluster(size)
    replicas = [*cluster.replicas.values()]
    last = replicas[-1]
    warning = f"{size} replicas tolerate no more failures than {size - 1}: run an odd number"
    assert (warning in last.log_text()) == (size % 2 == 0)

    for replica in replicas[:tolerated]:
        replica.kill()
    eventually(lambda: cluster.put("k", "with the others", at=last))

    replicas[tolerated].kill()
    with pytest.raises(ProgramError):
        cluster.shown("--command-timeout=1s").put("k", "never", at=last)


# ---- the leader ----

def test_the_leader_is_moved_to_a_member_by_its_name(cluster):
    other = next(replica for replica in cluster.running if replica is not cluster.leader())
    for change, of, sentence in (("move-leader", "nobody", "no member is named 'nobody'"),
                                 ("add", "nonsense", "given member URLs are invalid")):
        with pytest.raises(ProgramError, match=sentence):
            cluster.ctl("core", change, of)
    assert "is the leader now" in cluster.ctl("core", "move-leader", other.name)
    assert cluster.leader() is other


def test_an_empty_name_is_that_of_no_member(cluster, ports):
    """As of a variable that a script has forgotten to set; a member that was added and has not
    started has none yet."""
    eventually(lambda: cluster.ctl("core", "add", f"http://127.0.0.1:{ports.take()}"))
    for change in "promote", "replace", "move-leader", "remove":
        with pytest.raises(ProgramError, match=f"core {change}: MEMBER is empty"):
            cluster.ctl("core", change, "")
    assert len(cluster.members()) == 4


def test_an_id_is_taken_as_etcdctl_prints_it(new_cluster, ports):
    """Without leading zeros. Ids are random, and one in sixteen has some."""
    cluster = new_cluster(1)
    url = f"http://127.0.0.1:{ports.take()}"
    with cluster.rpc() as rpc:
        for _ in range(300):
            added = rpc.call("etcdserverpb.Cluster/MemberAdd",
                             pb.MemberAddRequest(peerURLs=[url], isLearner=True)).member.ID
            if added < 1 << 60:
                break
            rpc.call("etcdserverpb.Cluster/MemberRemove", pb.MemberRemoveRequest(ID=added))
    assert f"Removed {added:016x}" in cluster.ctl("core", "remove", f"{added:x}")


def test_a_leader_is_moved_when_the_other_leads_and_not_before(cluster):
    def ask(at, to):
        with cluster.rpc(at) as rpc:
            rpc.call("etcdserverpb.Maintenance/MoveLeader",
                     pb.MoveLeaderRequest(targetID=int(ids[to.name].id)))
            return rpc.call("etcdserverpb.Maintenance/Status", pb.StatusRequest()).leader

    ids, (one, other, _) = cluster.members(), cluster.replicas.values()
    cluster.ctl("core", "move-leader", one.name)
    for _ in range(5):
        assert ask(one, other) == ids[other.name].id
        assert ask(other, one) == ids[one.name].id

    other.freeze()
    with pytest.raises(Refused, match="request timed out, leader transfer took too long"):
        ask(one, other)
    assert cluster.leader() is one
    other.thaw()


def test_streams_that_ask_for_a_leader_end_when_there_is_none_and_no_others(cluster):
    alone, *others = cluster.replicas.values()
    watch = pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"k"))
    with cluster.rpc(at=alone) as rpc:
        asks = [("hasleader", "true")]
        streams = [rpc.stream("etcdserverpb.Watch/Watch", pb.WatchRequest, asks),
                   rpc.stream("etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest, asks),
                   rpc.stream("etcdserverpb.Watch/Watch", pb.WatchRequest)]
        for stream, request in zip(streams, (watch, pb.LeaseKeepAliveRequest(ID=1), watch)):
            stream.send(request)
            stream.next()

        for replica in others:
            replica.kill()

        *asked, silent = streams
        for stream in asked:
            with pytest.raises(Refused, match="UNAVAILABLE: etcdserver: no leader"):
                stream.next()
        for replica in others:
            replica.start()
        eventually(lambda: cluster.put("k", "again"))
        assert silent.next().events[0].kv.value == b"again"


# ---- data ----

def test_all_replicas_have_the_same_hash(shared_cluster, prefix):
    revision = shared_cluster.put(prefix + "k", "v")
    hashes = set()
    for replica in shared_cluster.running:
        shared_cluster.get(prefix + "k", at=replica)  # so that it is not behind
        said = shared_cluster.etcdctl("endpoint", "hashkv", f"--rev={revision}", "-w", "json",
                                      at=replica)
        hashes.add(json.loads(said)[0]["HashKV"]["hash"])
    assert len(hashes) == 1
