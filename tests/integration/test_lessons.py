"""How other lease systems failed (tests/LESSONS.md), tried on a core of three replicas: what wants
one whose leader dies, or that is under load."""
import contextlib
import hashlib
import itertools
import threading

import pytest
from harness.h2 import Raw
from harness.places import BIN
from harness.program import Daemon
from harness.rpc import pb
from harness.waiting import PATIENCE, ProgramError, eventually

KEEP_ALIVE = "etcdserverpb.Lease/LeaseKeepAlive"


class Client:
    """Of one replica."""

    def __init__(self, rpc):
        self.rpc = rpc

    def grant(self, ttl):
        return self.rpc.call("etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=ttl)).ID

    def put(self, key, lease):
        self.rpc.call("etcdserverpb.KV/Put", pb.PutRequest(key=key, lease=lease))

    def has(self, key, revision=0):
        return self.rpc.call("etcdserverpb.KV/Range",
                             pb.RangeRequest(key=key, revision=revision)).count == 1

    def renewals(self, lease):
        """A stream. Each call renews the lease; returns the answer."""
        stream = self.rpc.stream(KEEP_ALIVE, pb.LeaseKeepAliveRequest)

        def renew():
            stream.send(pb.LeaseKeepAliveRequest(ID=lease))
            return stream.next()

        return renew


@pytest.fixture
def pairs(shared_cluster):
    """Sixty times clients of two replicas."""
    with contextlib.ExitStack() as stack:
        clients = [Client(stack.enter_context(shared_cluster.rpc(at=replica)))
                   for replica in shared_cluster.running]
        yield [(clients[n % 3], clients[(n + 1) % 3]) for n in range(60)]


# A22
def test_a_lease_can_be_renewed_at_another_replica_right_after_its_grant(pairs):
    for granter, other in pairs:
        assert other.renewals(granter.grant(60))().TTL == 60


# A23, A24
def test_a_lease_is_renewed_until_it_is_revoked_and_then_never_again(pairs, prefix):
    key = prefix.encode()
    for granter, other in pairs:
        lease = granter.grant(60)
        granter.put(key, lease)
        renew = other.renewals(lease)

        gone = granter.rpc.future("etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeRequest(ID=lease))
        while not gone.done():  # a renewal that is granted comes before the end of the key
            answer = renew()
            assert answer.TTL == 0 or other.has(key, answer.header.revision)
        gone.result()

        assert renew().TTL == 0 and not other.has(key)


def kill_two_leaders(core):
    for _ in range(2):
        leader = core.leader()
        leader.kill()
        core.leader()
        leader.start()


def restart_all(core):
    for replica in core.running:
        replica.kill()
        replica.start()
    core.leader()


# A7, A8, A25, A26
@pytest.mark.parametrize("change", [kill_two_leaders, restart_all])
def test_a_leader_change_or_a_restart_refills_no_lease(cluster, change):
    long, first = cluster.grant(3000), cluster.grant(12)
    revision = cluster.put("k/first", "v", lease=first)
    eventually(lambda: cluster.lease(first).ttl <= 9)
    # It ends after the first one, unless both have their whole time again.
    cluster.put("k/second", "v", lease=cluster.grant(10))
    left = cluster.lease(long).ttl

    change(cluster)

    for replica in cluster.running:
        eventually(lambda: cluster.etcdctl("endpoint", "health", "-w=json", at=replica))
        lease = cluster.lease(long, at=replica)
        assert lease.granted == 3000 and left - 300 < lease.ttl <= left + 1  # rounded
    watch = cluster.watch("k/", revision)
    ended = eventually(lambda: len(ends := [event.key for event in watch.events()
                                            if event.type == "DELETE"]) == 2 and ends)
    assert ended == ["k/first", "k/second"]


# A47
def test_what_passes_by_itself_is_unavailable_which_clients_try_again(cluster):
    leader = cluster.leader()
    for replica in cluster.running:
        if replica is not leader:
            replica.kill()

    with cluster.rpc(at=leader) as rpc:
        calls = [rpc.future(f"etcdserverpb.{path}", request) for path, request in (
            ("KV/Put", pb.PutRequest(key=b"k")), ("KV/Range", pb.RangeRequest(key=b"k")),
            ("Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=5)))]
        assert [call.exception().code().name for call in calls] == 3 * ["UNAVAILABLE"]


# A4, A33, A34
def test_many_renewals_share_an_entry_of_the_log(cluster):
    each, rounds, clients = 300, 2, []
    for replica in cluster.running:
        with cluster.rpc(at=replica) as rpc:
            leases = [Client(rpc).grant(40) for _ in range(each)]
        raw = Raw(int(replica.client_url.rpartition(":")[2]))  # so that our speed matters little
        clients.append((raw, raw.begin(f"/{KEEP_ALIVE}".encode()), [
            pb.LeaseKeepAliveRequest(ID=lease).SerializeToString() for lease in leases]))
    leader = cluster.leader()
    before = leader.metric("etcd_server_proposals_committed_total")

    for n in range(rounds):
        # An eighth of its term after it was renewed a lease may wait for others.
        eventually(lambda: cluster.lease(leases[0]).ttl <= 34)
        for first in range(0, each, 3):
            for raw, stream, asks in clients:
                raw.more(stream, *asks[first:first + 3])
        for raw, stream, _ in clients:
            answers = raw.answers(stream, (n + 1) * each, PATIENCE)[n * each:]
            assert [pb.LeaseKeepAliveResponse.FromString(m).TTL for m in answers] == each * [40]

    entries = leader.metric("etcd_server_proposals_committed_total") - before
    assert entries * 10 < rounds * 3 * each


# ---- under load ----

night = pytest.mark.night("it keeps leases of 2 s, which others on the machine can make end")


@contextlib.contextmanager
def writers(core):
    """Four, which write all they can: 4 kB each time, 200 of them outstanding."""
    over = threading.Event()

    def write(key, replica):
        request, window = pb.PutRequest(key=key, value=bytes(4096)), []
        with core.rpc(at=replica) as rpc:
            while not over.is_set():
                window.append(rpc.future("etcdserverpb.KV/Put", request))
                if len(window) == 200:
                    window.pop(0).result()

    threads = [threading.Thread(target=write, args=(b"busy/%d" % n, replica))
               for n, replica in zip(range(4), itertools.cycle(core.running))]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


@contextlib.contextmanager
def a_lease_is_kept(core):
    """One of 2 s, by a tenurectl; and the leader leads on."""
    leader = core.leader()  # not a learner
    lease = core.grant(2, at=leader)
    keeper = Daemon(
        core.folder / f"{lease:x}.log", BIN / "tenurectl", f"--endpoints={leader.client_url}",
        "lease", "keep-alive", f"{lease:016x}").start()
    core.put("kept", "v", lease=lease, at=leader)
    term = leader.metric("tenure_raft_term")
    yield
    assert core.get("kept", at=leader) and keeper.is_running
    assert (core.leader(), leader.metric("tenure_raft_term")) == (leader, term)
    keeper.kill()


# A5, A6
@night
def test_beside_writers_a_lease_is_kept_and_one_that_nobody_renews_ends_in_time(cluster):
    late = "tenure_lease_expiry_lateness_seconds_"

    with writers(cluster), a_lease_is_kept(cluster):
        eventually(lambda: cluster.get("busy/3") and cluster.get("busy/3").version > 5000)
        unrenewed = cluster.grant(2)
        eventually(lambda: cluster.lease(unrenewed).ttl == -1)

    leader = cluster.leader()
    assert leader.metric(f"{late}sum") < .5 * leader.metric(f"{late}count")


@night
@pytest.mark.timeout(1800)
def test_a_lease_is_kept_while_a_large_state_is_sent_saved_hashed_and_compacted(
        cluster, tmp_path):
    def asked(replica, path, request):
        with cluster.rpc(at=replica) as rpc:
            return rpc.call(f"etcdserverpb.{path}", request)

    leader, snapshot = cluster.leader(), tmp_path / "snapshot"
    with writers(cluster):
        eventually(lambda: leader.metric("tenure_state_bytes") > 200 << 20, 10 * PATIENCE)
    before = asked(leader, "Maintenance/Status", pb.StatusRequest())

    with a_lease_is_kept(cluster):
        learner = cluster.add_learner("d")
        eventually(lambda: asked(learner, "Maintenance/Status", pb.StatusRequest())
                   .raftAppliedIndex >= before.raftIndex)
    cluster.promote("d")
    with a_lease_is_kept(cluster):
        cluster.ctl("core", "snapshot", "save", snapshot)
        saved = snapshot.read_bytes()
        assert hashlib.sha256(saved[:-32]).digest() == saved[-32:] and len(saved) > 64 << 20
    with a_lease_is_kept(cluster):
        assert len({asked(replica, "Maintenance/HashKV", pb.HashKVRequest(
            revision=before.header.revision)).hash for replica in cluster.running}) == 1
    with a_lease_is_kept(cluster):
        newest = cluster.revision()
        cluster.etcdctl("compact", newest)
        with pytest.raises(ProgramError, match="required revision has been compacted"):
            cluster.get("busy/0", f"--rev={newest - 1}")
        assert cluster.get("busy/0")
