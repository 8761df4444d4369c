"""Calls and watches of programs, while replicas are killed and frozen, with users and with TLS."""
import errno

import pytest
from harness.rpc import pb
from harness.tie import Tie, TieError
from harness.users import guard
from harness.waiting import eventually, eventually_is


@pytest.mark.parametrize("example, libraries", [
    ("watch", []), ("ev", ["-lev"]), ("sd-event", ["-lsystemd"])])
def test_an_example_with_a_loop_of_its_own_prints_each_change_once(
        example, libraries, engine, prefix, program):
    example = program.compile(f"conf/examples/libtenure/{example}.c", *libraries)
    watcher = program.start(example, prefix, TENURE_ENDPOINTS=engine.endpoints)
    eventually(watcher.lines)
    key = prefix + "k"

    first, second = engine.put(key, "1"), engine.put(key, "2")
    with engine.rpc() as rpc:
        deletion = rpc.call("etcdserverpb.KV/DeleteRange", pb.DeleteRangeRequest(key=key.encode()))

    eventually_is([f"put {key} = 1 at revision {first}", f"put {key} = 2 at revision {second}",
                   f"deleted {key} at revision {deletion.header.revision}"],
                  lambda: watcher.lines()[1:])


# Threads share the tie, so that many puts are under way at a time.
WRITER = """
import errno, sys, tenure, threading
tie = tenure.Tie()
def write(thread):
    for n in range(50):
        key = f"{sys.argv[1]}{thread}/{n}"
        try:
            said = f"did {key} {tie.put(key, key, timeout=60)}"
        except tenure.Error as error:
            said = "doubt" if error.errno == errno.EREMOTEIO else f"failed: {error}"
        sys.stdout.write(said + "\\n")
threads = [threading.Thread(target=write, args=(n,)) for n in range(20)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_each_put_is_there_or_in_doubt_and_watched_once_whoever_is_killed(
        cluster, ties, prefix, program):
    tie, said = ties(), []
    tie.watch(prefix, prefix=True, revision=cluster.put("begun", "") + 1)

    def write_and_kill(*replicas):
        seen = len(tie.events())
        writer = program.python(WRITER, f"{prefix}{seen}/", TENURE_ENDPOINTS=cluster.endpoints)
        eventually(lambda: len(tie.events()) > seen)
        for replica in replicas:
            replica.kill()
        if len(replicas) == 3:
            for replica in replicas:
                replica.start()
        assert writer.wait() == 0
        said.extend(writer.lines())

    for replica in [cluster.leader(), *cluster.replicas.values()]:
        write_and_kill(replica)
        replica.start()
        eventually(lambda: cluster.get("begun", at=replica))
    cluster.etcdctl("compact", str(tie.events()[-1].revision))
    write_and_kill(*cluster.replicas.values())

    last = cluster.put(prefix + "last", "")
    eventually(lambda: tie.events()[-1].revision == last)
    there = {key.key: key for key in cluster.range(prefix)}
    assert [line for line in said if line.startswith("failed")] == []
    assert {line.split()[1]: int(line.split()[2]) for line in said if line.startswith("did ")} \
        .items() <= {key: kv.mod_revision for key, kv in there.items()}.items()
    assert all(key.version == 1 for key in there.values())
    assert [event.revision for event in tie.events()] == sorted(
        key.mod_revision for key in there.values())


def test_calls_continue_while_any_one_replica_is_frozen(cluster, ties):
    tie = ties()
    tie.put("k", "v", timeout=60)
    for replica in cluster.replicas.values():
        replica.freeze()
        for _ in range(3):
            assert tie.get("k", timeout=60).value == b"v"
        replica.thaw()
        cluster.leader()


def test_a_watch_of_what_was_compacted_ends_and_says_so(engine, ties, prefix):
    engine.etcdctl("compact", str(engine.put(prefix + "k", "")))
    tie = ties()

    tie.watch(prefix, prefix=True, revision=1)

    ended = tie.hears("WATCH_ENDED")
    assert ended.error == -errno.ENODATA
    assert "compacted" in ended.reason


def test_a_tie_has_a_thousand_watches(engine, ties, prefix):
    tie = ties()
    from_here = engine.put(prefix + "begun", "") + 1
    watches = [tie.watch(f"{prefix}{n}", revision=from_here) for n in range(1000)]

    for n in range(0, 1000, 50):
        tie.put(f"{prefix}{n}", str(n))

    eventually(lambda: len(tie.events()) == 20)
    assert {event.kv.value: event.watch for event in tie.events()} == {
        str(n).encode(): watches[n] for n in range(0, 1000, 50)}


# ---- users, TLS ----

def test_a_program_logs_in(cluster, ties):
    guard(cluster, ann=["--prefix app/"])
    tie = ties(user="ann", password="ann")
    tie.watch("app/", prefix=True)
    lease = tie.lease_grant(60, name="app")
    tie.put("app/leased", "v", lease="app")
    assert tie.lease_look("app", keys=True).keys == [b"app/leased"]
    assert tie.lease_renew(lease.id).ttl == 60
    tie.lease_revoke("app")
    # The watch may not stand yet.
    eventually(lambda: tie.put("app/k", "v", timeout=60) and "PUT" in tie.told())


@pytest.mark.parametrize("who, why", [
    (dict(user="ann", password="wrong"), "ann.*authentication failed"),
    (dict(), "user name is empty")])
def test_a_program_that_is_nobody_is_refused_and_its_watches_end(who, why, cluster, ties):
    guard(cluster, ann=["--prefix app/"])
    tie = ties(**who)
    with pytest.raises(TieError, match=why) as refusal:
        tie.put("app/k", "v", timeout=60)
    assert refusal.value.errno == errno.EACCES

    tie.watch("app/", prefix=True)

    assert tie.hears("WATCH_ENDED").error == -errno.EACCES


def test_a_program_shows_its_certificate(new_cluster, authority, tmp_path):
    core = new_cluster(1, authority=authority)
    shown = {"endpoints": core.endpoints, "ca": str(core.client.authority)}
    stranger = Tie(tmp_path, {}, hold=60, **shown)
    tie = Tie(tmp_path, {}, cert=str(core.client.cert), key=str(core.client.key), **shown)

    assert tie.put("k", "v", timeout=60)

    def is_told_why():
        with pytest.raises(TieError, match=core.endpoints):
            stranger.held(timeout=0)
        return True

    eventually(is_told_why)


# ---- leases ----

def test_a_lease_is_granted_used_renewed_and_revoked_by_its_id(engine, ties, prefix):
    tie = ties()
    lease = tie.lease_grant(60)
    tie.put(prefix + "k", "v", lease=lease.id)

    assert tie.lease_renew(lease.id).ttl == 60
    found = tie.lease_look(lease.id, keys=True)
    assert (found.id, found.ttl <= 60, found.name) == (lease.id, True, "")
    assert found.keys == [f"{prefix}k".encode()]
    tie.lease_revoke(lease.id)

    assert engine.get(prefix + "k") is None
    with pytest.raises(TieError) as gone:
        tie.lease_look(lease.id)
    assert gone.value.errno == errno.ENOENT


def test_a_lease_is_used_by_its_name(shared_cluster, ties, prefix):
    tie = ties()
    lease = tie.lease_grant(60, name="jobs")
    tie.put(prefix + "k", "v", lease="jobs")

    with pytest.raises(TieError, match="lease already exists with that name") as used:
        tie.lease_grant(60, name="jobs")
    assert used.value.errno == errno.EEXIST
    assert tie.lease_renew("jobs").id == lease.id
    assert tie.lease_look("jobs", keys=True).keys == [f"{prefix}k".encode()]
    assert tie.lease_look(lease.id).name == "jobs"
    tie.lease_revoke("jobs")

    with pytest.raises(TieError, match="no lease") as gone:
        tie.put(prefix + "k", "v", lease="jobs")
    assert gone.value.errno == errno.ENOENT


def test_an_etcd_has_no_names_for_leases(etcd, ties):
    tie = ties()
    for call in (lambda: tie.lease_grant(60, name="jobs"), lambda: tie.lease_renew("jobs"),
                 lambda: tie.put("k", "v", lease="jobs"), lambda: tie.lease_look("jobs"),
                 lambda: tie.lease_revoke("jobs")):
        with pytest.raises(TieError, match="Leases have no names .* is an etcd") as refusal:
            call()
        assert refusal.value.errno == errno.EOPNOTSUPP
    assert etcd.get("k") is None
