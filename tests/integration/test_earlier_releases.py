"""What programs of earlier releases have written is read with the same meaning."""
import json
import random

import pytest

from harness.earlier import RELEASES, Release, token_of
from harness.places import BIN
from harness.portrait import portrait
from harness.random_calls import wander
from harness.restarts import Crowd, Restarts
from harness.rpc import pb
from harness.waiting import eventually_is


@pytest.fixture(params=RELEASES)
def release(request):
    return Release(request.param)


def as_json(said):
    return json.loads(json.dumps(said))


def test_a_replica_holds_what_that_of_an_earlier_release_held(release, tmp_path, ports):
    core = release.core(tmp_path, ports)
    with core.rpc(token=token_of(core)) as rpc:
        said = as_json(portrait(rpc))
    assert said == release.portrait


def test_it_still_does_after_a_write_a_snapshot_and_a_restart(release, tmp_path, ports):
    core = release.core(tmp_path, ports)
    alone = core.replicas["a"]
    with core.rpc(token=token_of(core)) as rpc:
        before = portrait(rpc)
        put = rpc.call("etcdserverpb.KV/Put", pb.PutRequest(key=b"new", value=b"v"))
        rpc.call("etcdserverpb.Maintenance/Defragment", pb.DefragmentRequest())
    alone.kill()
    alone.start()
    with core.rpc(token=token_of(core)) as rpc:
        after = portrait(rpc)
    assert put.header.revision == before["revision"] + 1 == after["revision"]
    assert before["history"].items() <= after["history"].items()
    for part in "leases", "users", "roles", "authentication", "members", "alarms":
        assert after[part] == before[part]


def test_a_snapshot_of_an_earlier_release_is_restored(release, tmp_path, ports, new_cluster):
    core = new_cluster(1, restore=release.folder / "snapshot").as_user("root", "root")
    with core.rpc(token=token_of(core)) as rpc:
        said = as_json(portrait(rpc))
    for part in "revision", "hash", "keys", "users", "roles", "leases":
        assert said[part] == release.portrait[part]


@pytest.mark.night("builds the programs of each release")
def test_replicas_are_upgraded_and_downgraded_one_after_the_other(release, cluster, agent):
    earlier, present = release.programs() / "tenure-core", BIN / "tenure-core"
    crowd, lease = Crowd(cluster), agent.status().lease_id
    watch = cluster.watch("w/", 1)

    for program in earlier, present, earlier, present:
        crowd.restart_each(program)

    crowd.end()
    changes = [(kv.mod_revision, kv.key) for kv in cluster.range("w/")]
    eventually_is(sorted(changes), lambda: [(e.revision, e.key) for e in watch.events()])
    assert agent.status().lease_id == lease


@pytest.mark.night("builds the programs of each release")
def test_replicas_of_two_releases_hold_the_same(release, cluster, seed):
    earlier, r, revision = release.programs() / "tenure-core", random.Random(seed), 1
    for replica in cluster.running:
        cluster.ctl("core", "move-leader", replica.name)
        for at in cluster.running:
            with cluster.rpc(at=at) as rpc:
                revision = wander(rpc, r, 50, revision)
        assert Restarts(cluster).restart(replica, earlier) == 0

        portraits = []
        for at in cluster.running:
            with cluster.rpc(at=at) as rpc:
                portraits.append(portrait(rpc))
        assert portraits[0] == portraits[1] == portraits[2]
