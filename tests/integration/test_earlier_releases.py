"""What programs of earlier releases have written is read with the same meaning."""
import contextlib
import json
import os
import random
import shutil
import socket
import struct

import pytest

from harness.earlier import RELEASES, Release, token_of
from harness.places import BIN
from harness.portrait import portrait
from harness.program import Daemon, run
from harness.random_calls import wander
from harness.restarts import Crowd, Restarts
from harness.rpc import pb
from harness.waiting import ProgramError, eventually, eventually_is


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
    core = new_cluster(1, restore=(release.folder / "snapshot", "--bump-revision=0"))
    core = core.as_user("root", "root")
    with core.rpc(token=token_of(core)) as rpc:
        said = as_json(portrait(rpc))
    for part in "revision", "hash", "keys", "users", "roles", "leases":
        assert said[part] == release.portrait[part]


# ---- turns of the programs of a host ----

def name_hash(name):
    """lib/base/hash.h"""
    h, mask = 0xcbf29ce484222325, (1 << 64) - 1
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001b3 & mask
    for factor in 0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53:
        h = (h ^ h >> 33) * factor & mask
    return h ^ h >> 33


@contextlib.contextmanager
def acting_as(user):
    os.seteuid(os.getuid() if user is None else user)
    try:
        yield
    finally:
        os.seteuid(os.getuid())


@contextlib.contextmanager
def turn_of_0_1_0(agent, name, user=None):
    """The turn for a lock as a program of that release takes it."""
    address = f"\0tenure-lock-{agent.status().lease_id:016x}-{name_hash(name):016x}"
    with socket.socket(socket.AF_UNIX) as turn:
        turn.bind(address)
        with acting_as(user):
            turn.listen()  # the kernel notes who does this
        yield


def test_no_command_runs_beside_one_of_release_0_1_0(agent, duty):
    with turn_of_0_1_0(agent, duty.lock):
        assert agent.refusal("--wait=300ms", "lock", duty.lock, "--", "true")[1] == 124
        assert agent.refusal("unlock", duty.lock)[1] == 124
        waits = agent.background("lock", duty.lock, "--", "true")
    assert waits.wait() == 0


def test_none_of_release_0_1_0_runs_beside_a_command(agent, duty):
    held = duty.begin(agent)
    with pytest.raises(OSError, match="Address already in use"), turn_of_0_1_0(agent, duty.lock):
        pass
    held.kill()
    duty.ends()
    with turn_of_0_1_0(agent, duty.lock):
        pass


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to act as another user")
def test_another_user_keeps_no_command_waiting(agent, duty):
    with turn_of_0_1_0(agent, duty.lock, user=65534):
        duty.begin(agent)


@pytest.mark.night("builds the programs of each release")
def test_commands_of_two_releases_keep_each_other_waiting(release, agent, duty):
    earlier = release.programs() / "tenurectl", f"--bus={agent.bus.address}"
    held = Daemon(agent.log.with_name("earlier.log"), *earlier, "lock", duty.lock, "--", "sleep",
                  "36000").start()
    eventually(duty.line)
    assert agent.refusal("--wait=300ms", "lock", duty.lock, "--", "true")[1] == 124
    held.stop()
    eventually_is([], duty.line)
    duty.begin(agent)
    with pytest.raises(ProgramError) as refused:
        run(*earlier, "--wait=300ms", "lock", duty.lock, "--", "true")
    assert refused.value.status == 124


@pytest.mark.night("builds the programs of each release")
def test_a_command_takes_turns_at_an_agent_of_an_earlier_release(release, agent, duty):
    agent.command[0] = release.programs() / "tenured"
    agent.restart()
    duty.begin(agent)
    assert agent.refusal("--wait=300ms", "lock", duty.lock, "--", "true")[1] == 124


@pytest.fixture
def cluster(new_cluster, release):
    """Three replicas that the earlier release has begun."""
    return new_cluster(3, program=release.programs() / "tenure-core")


@pytest.mark.night("builds the programs of each release")
def test_replicas_are_upgraded_and_downgraded_one_after_the_other(release, cluster, agent):
    earlier, present = release.programs() / "tenure-core", BIN / "tenure-core"
    crowd, lease = Crowd(cluster), agent.status().lease_id
    watches = [cluster.watch("w/", 1)]

    for program in present, earlier, present:
        crowd.restart_each(program)
        # When a leader of 0.1.0 stops, there may be none for a while; etcdctl ends then.
        if not watches[-1].is_running:
            watches[-1].wait()
            watches.append(cluster.watch("w/", watches[-1].events()[-1].revision + 1))
    eventually(lambda: cluster.ctl("core", "upgrade", "--finish"))
    crowd.restart_each(present)

    crowd.end()
    changes = [(kv.mod_revision, kv.key) for kv in cluster.range("w/")]
    eventually_is(sorted(changes),
                  lambda: [(e.revision, e.key) for w in watches for e in w.events()])
    assert agent.status().lease_id == lease

    back = cluster.running[0]  # for which it is too late
    assert back.stop() == 0
    back.command[0] = str(earlier)
    assert back.start().wait() == 1
    assert back.said("meta has format 2, which this version of tenure-core does not know")


def ask_to_be_replaced(replica, at):
    """As the replica does that has lost its disk: lib/consensus/join.h. Returns the answer."""
    words = replica.peer_url.encode(), replica.name.encode()
    with socket.create_connection(("127.0.0.1", int(at.peer_url.rpartition(":")[2]))) as link:
        link.sendall(b"TENREPL1" + struct.pack("<QQ", *map(len, words)) + b"".join(words))
        return b"".join(iter(lambda: link.recv(4096), b""))[4:].decode()


@pytest.mark.night("builds the programs of each release")
def test_no_member_is_replaced_before_the_upgrade_is_finished(cluster):
    """A leader of release 0.1.0 does not know the request, and would end the link of who sent it."""
    a = cluster.leader()
    b, c = (r for r in cluster.running if r is not a)
    restarts = Restarts(cluster)
    b.command.append("--replace-lost-disk=yes")
    restarts.restart(b, BIN / "tenure-core")
    eventually(lambda: cluster.put("precious", "acknowledged"))
    members = cluster.members()
    c.kill()
    for leader in a, b:
        eventually(lambda: cluster.ctl("core", "move-leader", leader.name))
        for at, sentence in ((a, "is an etcd, or runs release 0.1.0, and cannot replace a member"),
                             (b, "the cluster version is 0.1, at which no member is replaced")):
            with pytest.raises(ProgramError, match=sentence):
                run(BIN / "tenurectl", f"--endpoints={at.client_url}", "core", "replace", c.name)
        assert ask_to_be_replaced(c, a) == ""
        assert ask_to_be_replaced(c, b).startswith("no directory is recorded for the member")
    assert {name: m.id for name, m in cluster.members().items()} == {
        name: m.id for name, m in members.items()}
    c.start()
    for replica in cluster.running:
        eventually(lambda: cluster.get("precious", at=replica).value == "acknowledged")
        assert "malformed" not in replica.log_text()

    for replica in a, c:
        restarts.restart(replica, BIN / "tenure-core")
    eventually(lambda: cluster.ctl("core", "upgrade", "--finish"))
    c.kill()
    shutil.rmtree(c.data)
    c.start()
    run(BIN / "tenurectl", f"--endpoints={a.client_url}", "core", "replace", c.name)
    assert cluster.get("precious", at=c).value == "acknowledged"


@pytest.mark.night("builds the programs of each release")
def test_an_upgrade_is_not_finished_while_the_leader_is_of_an_earlier_release(cluster):
    follower = next(r for r in cluster.running if r is not cluster.leader())
    Restarts(cluster).restart(follower, BIN / "tenure-core")
    with pytest.raises(ProgramError, match="the leader, [abc], knows no cluster version"):
        cluster.ctl("core", "upgrade", "--finish")


@pytest.mark.night("builds the programs of each release")
def test_replicas_of_two_releases_hold_the_same(release, cluster, seed):
    r, revision = random.Random(seed), 1
    for replica in cluster.running:
        cluster.ctl("core", "move-leader", replica.name)
        for at in cluster.running:
            with cluster.rpc(at=at) as rpc:
                revision = wander(rpc, r, 50, revision)
        assert Restarts(cluster).restart(replica, BIN / "tenure-core") == 0

        portraits = []
        for at in cluster.running:
            with cluster.rpc(at=at) as rpc:
                portraits.append(portrait(rpc))
        assert portraits[0] == portraits[1] == portraits[2]
