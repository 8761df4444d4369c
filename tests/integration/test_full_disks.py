"""A core all of whose disks are full at once. Each replica has a small file system of its own."""
import os

import pytest
from harness.namespaces import namespaces
from harness.program import Daemon, run
from harness.rpc import Refused, pb
from harness.waiting import ProgramError, eventually, eventually_is

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="mounts file systems, so needs root")
NO_SPACE = "etcdserver: mvcc: database space exceeded"


@pytest.fixture
def core(tmp_path, new_cluster):
    """Its replicas have 80 MB each, and have what they keep aside for a full disk."""
    with namespaces("mnt"):
        for name in "abc":
            (tmp_path / f"{name}.data").mkdir()
            run("mount", "-t", "tmpfs", "-o", "size=80m", "none", tmp_path / f"{name}.data")
        core = new_cluster(3, "--snapshot-count=400")
        for replica in core.running:
            eventually(lambda: len([*replica.data.glob("spare-*")]) >= 3
                       and (replica.data / "snapshot.room").exists())
        yield core


def fill(core, *replicas):
    """Until one of the replicas raises the alarm; the others may still have something of
    what they keep aside. Returns how many puts of 100 kB the core has taken on full disks."""
    for replica in replicas or core.running:
        with open(replica.data / "filler", "wb", buffering=0) as filler, \
                pytest.raises(OSError, match="No space"):
            while True:
                filler.write(bytes(65536))
    with core.rpc() as rpc, pytest.raises(Refused, match=NO_SPACE):
        for n in range(2000):
            rpc.call("etcdserverpb.KV/Put", pb.PutRequest(key=b"big/%d" % n, value=bytes(100_000)))
    eventually(lambda: alarms(core))
    return n


def alarms(core):
    return core.etcdctl("alarm", "list").count("alarm:NOSPACE")


def full(core):
    """The replicas that have said so."""
    return [replica for replica in core.running if replica.said("warning The disk is full")]


def test_what_grows_is_refused_and_the_rest_continues(core):
    core.put("first", "v")

    assert fill(core) > 20  # what was kept aside

    assert full(core)
    with pytest.raises(ProgramError, match=NO_SPACE):
        core.grant(60)
    assert core.get("first").value == "v"
    assert core.delete("first") == 1


def test_leases_are_renewed_and_expire_though_all_disks_are_full(core, tmp_path):
    held, dies = (core.grant(15) for _ in range(2))
    keepers = [Daemon(tmp_path / f"{lease}.log", "etcdctl", "--endpoints", core.endpoints, "lease",
                      "keep-alive", f"{lease:x}").start() for lease in (held, dies)]
    core.put("held", "v", lease=held)
    core.put("dies", "v", lease=dies)

    fill(core)
    keepers[1].kill()

    eventually(lambda: not core.get("dies"))
    assert core.get("held")  # whose lease is as long


def test_a_replica_starts_again_on_its_full_disk(core):
    fill(core)
    b = core.replicas["b"]

    b.kill()
    b.start()

    eventually(lambda: core.get("big/0", "--keys-only", at=b))
    with pytest.raises(ProgramError, match=NO_SPACE):
        core.put("more", "x" * 100_000, at=b)


def test_with_room_again_writes_are_taken_without_an_operator_and_nothing_is_lost(core):
    taken = fill(core)

    for replica in core.running:
        (replica.data / "filler").unlink()

    eventually(lambda: core.put("more", "v"))
    eventually_is(0, lambda: alarms(core))
    assert all(replica.said("The disk has room again") for replica in full(core))
    assert {f"big/{n}" for n in range(taken)} <= set(
        core.etcdctl("get", "big/", "--prefix", "--keys-only").split())


def test_the_alarm_of_a_replica_that_died_with_its_disk_full_goes_with_its_removal(core):
    c = core.replicas["c"]
    fill(core, c)
    c.kill()
    core.leader()
    with pytest.raises(ProgramError, match=NO_SPACE):
        core.put("more", "v")

    core.ctl("core", "remove", "c")

    eventually(lambda: core.put("more", "v"))
    assert alarms(core) == 0
