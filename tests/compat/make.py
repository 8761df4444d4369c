#!/usr/bin/python3
"""Keeps what the programs of a release write, as files for the tests of later ones.

usage: BIN=.../build/release/bin tests/compat/make.py

The programs in BIN, and the tests beside them, are those of the release, as is this tree. README.md
says what is in the folder that this makes."""
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from harness import ledger  # noqa: E402
from harness.agent import Agent  # noqa: E402
from harness.cluster import Cluster  # noqa: E402
from harness.earlier import token_of  # noqa: E402
from harness.places import BIN, TOP  # noqa: E402
from harness.ports import Ports  # noqa: E402
from harness.portrait import portrait  # noqa: E402
from harness.program import run  # noqa: E402
from harness.random_calls import YEARS, wander  # noqa: E402
from harness.rpc import pb  # noqa: E402
from harness.waiting import eventually  # noqa: E402


def call(rpc, path, request):
    return rpc.call(f"etcdserverpb.{path}", request)


def leases(rpc):
    """With names and without, with many keys, and some that were renewed."""
    named = call(rpc, "Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=YEARS, name=b"a name"))
    call(rpc, "Lease/LeaseGrant", pb.LeaseGrantRequest(ttl_ms=YEARS * 1000 + 1, ID=2000))
    call(rpc, "KV/Put", pb.PutRequest(key=b"by name", lease=-1, lease_name=b"a name"))
    for n in range(40):
        call(rpc, "KV/Put", pb.PutRequest(key=b"attached/%d" % n, lease=2000))
    stream = rpc.stream("etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest)
    for id in named.ID, 2000:
        stream.send(pb.LeaseKeepAliveRequest(ID=id))
        stream.next()


def users(rpc):
    for role in "root", "readers", "writers":
        call(rpc, "Auth/RoleAdd", pb.AuthRoleAddRequest(name=role))
    for role, kind in ("readers", pb.Permission.READ), ("writers", pb.Permission.READWRITE):
        for key, end in (b"b", b"b0"), (b"zz", b""), (b"\xfe", b"\0"):
            call(rpc, "Auth/RoleGrantPermission", pb.AuthRoleGrantPermissionRequest(
                name=role, perm=pb.Permission(permType=kind, key=key, range_end=end)))
    for user, role in ("root", "root"), ("ann", "readers"), ("bob", "writers"):
        call(rpc, "Auth/UserAdd", pb.AuthUserAddRequest(name=user, password=user))
        call(rpc, "Auth/UserGrantRole", pb.AuthUserGrantRoleRequest(user=user, role=role))
    call(rpc, "Auth/UserAdd", pb.AuthUserAddRequest(
        name="carl", options=pb.UserAddOptions(no_password=True)))
    call(rpc, "Auth/AuthEnable", pb.AuthEnableRequest())


def change_members(core):
    """One joins and is removed again."""
    learner = core.add_learner("b")
    eventually(lambda: "b" in core.members())
    core.ctl("core", "remove", "b")
    learner.kill()
    del core.replicas["b"]


def make(folder, ports, to):
    core = Cluster(folder, ports, 1)
    alone, r = core.replicas["a"], random.Random(1)
    with core.rpc() as rpc:
        wander(rpc, r, 200)
        leases(rpc)
        call(rpc, "KV/Compact", pb.CompactionRequest(revision=50))
        rpc.call("v3lockpb.Lock/Lock", pb.LockRequest(name=b"locked", lease=2000))
    agent = Agent(folder, core, TTL="10h")
    shutil.copy(agent.folder / "run/place", to / "place")
    agent.kill()
    change_members(core)
    with core.rpc() as rpc:
        call(rpc, "Maintenance/Defragment", pb.DefragmentRequest())
        eventually(lambda: any(alone.data.glob("snapshot-*")))
        wander(rpc, r, 30)  # these are in the log behind the snapshot
        users(rpc)
    with core.rpc(token=token_of(core)) as rpc:
        wander(rpc, r, 30)
    core.as_user("root", "root").ctl("core", "snapshot", "save", to / "snapshot")
    alone.kill()
    with tarfile.open(to / "core.tar.gz", "w:gz") as tar:
        tar.add(alone.data, "data")
    alone.start()  # what it says after a start is what others are to say
    with core.rpc(token=token_of(core)) as rpc:
        (to / "core.json").write_text(json.dumps(portrait(rpc), indent=1, sort_keys=True) + "\n")
    alone.stop()


def forms(to):
    """What bytes consist of, and samples of them."""
    lines = (TOP / "lib/BYTES").read_text().splitlines()[1:]
    (to / "bytes").write_text("".join(line.split(" ", 1)[1] + "\n" for line in lines))
    subprocess.run([BIN.parent / "tests/unit/unit",
                    "what_leaves_a_process_has_the_bytes_of_each_release"], cwd=TOP, check=True,
                   env={**os.environ, "SAMPLES": str(to / "samples")})


def main():
    to = TESTS / "compat" / run("make", "-sC", TOP, "version").strip()
    to.mkdir()
    (to / "commit").write_text(run("git", "-C", TOP, "rev-parse", "HEAD"))
    forms(to)
    ledger.begin()
    with tempfile.TemporaryDirectory() as folder:
        make(pathlib.Path(folder), Ports(), to)
    for complaint in ledger.settle():
        sys.exit(complaint)


main()
