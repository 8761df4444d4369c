"""The same calls to tenure-core and to Debian's etcd, by gRPC and by JSON, which must answer
alike."""
import random

import pytest
from harness.pair import alike, method, put
from harness.random_calls import Calls
from harness.rpc import Refused, pb
from harness.waiting import eventually, eventually_is


TIMES = {"Lease/LeaseTimeToLive": ["TTL"]}  # which pass between one engine's answer and the other's


@pytest.fixture(params=["gRPC", "JSON"])
def calls(request, pair):
    """The pair, by either transport."""
    with pair.by(request.param) as calls:
        yield calls


def test_2000_random_calls_have_the_same_answers_and_leave_the_same_history(fresh_pair, draw):
    calls, ways = Calls(random.Random(draw)), [fresh_pair, fresh_pair.by("JSON")]
    fresh_pair.call("KV/Compact", revision=1)
    for n in range(2000):
        name, request = calls.any(put=29, delete=10, range=29, txn=26, compact=2, lease=4)
        answer = ways[n % 2].ask(name, TIMES.get(name, ()), request=request)
        if not isinstance(answer, Refused):
            calls.revision = max(calls.revision, answer.header.revision)
            if name == "KV/Compact":
                calls.compacted = request.revision

    history = fresh_pair.watch(key=b"\0", range_end=b"\0", start_revision=calls.compacted + 1,
                               prev_kv=True)
    fresh_pair.put(b"the end")
    history.events(until=b"the end")


@pytest.mark.parametrize("name, fields, sentence", [
    ("KV/Put", dict(key=b""), "key is not provided"),
    ("KV/DeleteRange", {}, "key is not provided"),
    ("KV/Put", dict(key=b"k", lease=123456), "requested lease not found"),
    ("KV/Put", dict(key=b"none", ignore_value=True), "key not found"),
    ("KV/Put", dict(key=b"none", ignore_lease=True), "key not found"),
    ("KV/Put", dict(key=b"k", value=b"x" * 1700000), "request is too large"),
    ("KV/Range", dict(key=b"k", revision=1 << 40), "required revision is a future revision"),
    ("KV/Compact", dict(revision=1 << 40), "required revision is a future revision"),
    ("KV/Txn", dict(success=[put(b"d"), put(b"d")]), "duplicate key given"),
    ("KV/Txn", dict(success=[put(b"d"), pb.RequestOp(request_delete_range=dict(key=b"d"))]),
     "duplicate key given"),
    ("KV/Txn", dict(success=[put(b"d"), put(b"e", lease=123456)]), "requested lease not found"),
    ("KV/Txn", dict(success=[put(b"%d" % i) for i in range(129)]), "too many operations"),
    ("Lease/LeaseGrant", dict(ID=78, TTL=9000000001), "too large lease TTL"),
    ("Lease/LeaseRevoke", dict(ID=123456), "requested lease not found"),
    ("Maintenance/MoveLeader", dict(targetID=1), "bad leader transferee"),
    ("Cluster/MemberAdd", {}, "given member URLs are invalid"),
    ("Cluster/MemberAdd", dict(peerURLs=["x"]), "given member URLs are invalid"),
    ("Cluster/MemberAdd", dict(peerURLs=["https://"]), "given member URLs are invalid"),
    ("Cluster/MemberRemove", dict(ID=1), "member not found"),
    ("Cluster/MemberPromote", dict(ID=1), "member not found"),
    ("Cluster/MemberUpdate", dict(ID=1, peerURLs=["http://127.0.0.1:1"]), "member not found"),
    ("Cluster/MemberUpdate", dict(ID=1, peerURLs=["x"]), "member not found"),
    ("Cluster/MemberUpdate", dict(ID=1), "member not found"),
    ("Election/Leader", dict(name=b"none"), "election: no leader"),
    ("Election/Proclaim", {}, '"leader" field must be provided'),
    ("Election/Resign", {}, '"leader" field must be provided'),
], ids=range(26))
def test_what_etcd_refuses_is_refused_in_its_words_and_changes_nothing(
        calls, name, fields, sentence):
    with pytest.raises(Refused, match=sentence):
        calls.call(name, **fields)
    assert calls.call("KV/Range", key=b"d").count == 0


def test_a_transaction_may_have_128_operations(calls):
    calls.call("KV/Txn", success=[put(b"t%d" % i) for i in range(128)])


def test_what_is_compacted_cannot_be_read_and_what_is_newer_can(calls):
    old, new = calls.put(b"compacted"), calls.put(b"compacted", b"again")
    calls.call("KV/Compact", revision=new)
    for revision in old, new:
        calls.ask("KV/Compact", revision=revision)
        calls.ask("KV/Range", key=b"compacted", revision=revision)


def test_a_revision_below_zero_is_compacted_where_a_transaction_reads_it(calls):
    def read(revision):
        return pb.RequestOp(request_range=pb.RangeRequest(key=b"below", revision=revision))

    calls.put(b"below")
    calls.call("KV/Range", key=b"below", revision=-2)
    for operations in [read(-2)], [read(-2), put(b"below")], [put(b"below", lease=9), read(-2)]:
        nested = [pb.RequestOp(request_txn=pb.TxnRequest(success=operations))]
        for branch in "success", "failure":
            calls.ask("KV/Txn", **{branch: operations})
            calls.ask("KV/Txn", **{branch: nested})


def test_a_comparison_of_an_unknown_target_finds_both_sides_equal(calls):
    calls.put(b"both")
    for result in range(5):
        for compared in {}, dict(version=-9), dict(value=b"v"), dict(lease=3):
            for keys in dict(key=b"both"), dict(key=b"none"), dict(key=b"b", range_end=b"c"):
                compare = pb.Compare(target=5, result=result, **compared, **keys)
                calls.call("KV/Txn", compare=[compare], success=[put(b"both")])
                calls.call("KV/Txn", compare=[compare], success=[pb.RequestOp(
                    request_range=pb.RangeRequest(key=b"both"))])


def test_revision_0_is_compacted_once_before_any_other(fresh_pair):
    fresh_pair.put(b"k")
    fresh_pair.call("KV/Compact", revision=0)
    fresh_pair.call("KV/Compact", revision=1)
    with pytest.raises(Refused, match="required revision has been compacted"):
        fresh_pair.call("KV/Compact", revision=0)


# ---- leases ----

def test_a_lease_is_listed_renewed_and_revoked_with_its_keys(pair, calls):  # A16, A35
    calls.call("Lease/LeaseGrant", ID=77, TTL=600)
    calls.call("Lease/LeaseGrant", ["ID"], TTL=600)
    calls.put(b"leased/1", lease=77)
    calls.put(b"leased/2", lease=77)
    calls.put(b"leased/2")  # without the lease from now on
    calls.call("Lease/LeaseTimeToLive", ["TTL"], ID=77, keys=True)
    with pytest.raises(Refused):
        calls.call("Lease/LeaseGrant", ID=77, TTL=600)

    renewals = pair.stream("Lease/LeaseKeepAlive")
    for lease, ttl in (77, 600), (1234567, 0), (77, 600):
        renewals.send(pb.LeaseKeepAliveRequest(ID=lease))
        assert renewals.next().TTL == ttl

    calls.call("Lease/LeaseRevoke", ID=77)
    assert calls.call("Lease/LeaseTimeToLive", ID=77).TTL == -1
    kvs = calls.call("KV/Range", key=b"leased/", range_end=b"leased0").kvs
    assert [kv.key for kv in kvs] == [b"leased/2"]


def test_a_lease_goes_at_one_revision_with_20000_keys(pair):  # A45
    pair.call("Lease/LeaseGrant", ID=79, TTL=600)
    for i in range(200):
        pair.call("KV/Txn", success=[put(b"many/%d/%d" % (i, k), lease=79) for k in range(100)])
    revision = pair.put(b"last")
    assert pair.call("Lease/LeaseRevoke", ID=79).header.revision == revision + 1
    assert pair.counts(b"many/") == [0, 0]


# ---- watches ----

def test_watches_of_one_stream_get_what_they_asked_for(pair):  # A40, A41
    first = pair.put(b"w1")
    watch = pair.watch(key=b"w", range_end=b"x")
    assert watch.create(key=b"w1", prev_kv=True, watch_id=7).watch_id == 7
    watch.create(key=b"w1", watch_id=7)  # an id that is taken
    for end, id in (b"w", 8), (b"w1", 8), (b"w", 7):  # ranges that are empty
        watch.create(key=b"w1", range_end=end, watch_id=id)
    watch.create(key=b"w", range_end=b"x", start_revision=first,
                 filters=[pb.WatchCreateRequest.NOPUT])

    pair.put(b"w1", b"new")
    watch.events(2, in_order=False)
    pair.call("KV/DeleteRange", key=b"w1")
    watch.events(3, in_order=False)
    watch.send(pb.WatchRequest(cancel_request=dict(watch_id=7)))
    assert watch.next().canceled
    watch.send(pb.WatchRequest(progress_request={}))
    watch.next()
    pair.call("KV/Txn", success=[put(b"w%d" % i) for i in range(5)])
    watch.events(5)


def test_an_event_has_the_value_from_before_its_transaction(pair):
    operations = [put(b"prev", b"in it"), pb.RequestOp(request_delete_range=dict(key=b"prev"))]
    # In one transaction they would collide.
    apart = [pb.RequestOp(request_txn=pb.TxnRequest(success=[each])) for each in operations]
    watch = pair.watch(key=b"prev", prev_kv=True)
    pair.call("KV/Txn", success=apart)
    pair.put(b"prev", b"before it")
    pair.call("KV/Txn", success=apart)
    pair.call("KV/Txn", success=[operations[1]])
    assert "before it" in watch.events(5)[-1][1]


def test_a_watch_begins_at_a_revision_of_the_past_or_of_the_future(pair):
    first = [pair.put(b"past", value) for value in (b"1", b"2", b"3")][0]
    past = pair.watch(key=b"past", start_revision=first)
    future = pair.watch(key=b"future", start_revision=pair.put(b"past", b"4") + 2)
    past.events(4)
    pair.put(b"future", b"too early")
    pair.put(b"future", b"in time")
    assert "in time" in future.events(1)[0][1]


def test_a_watch_from_before_the_compaction_is_canceled_with_its_revision(pair):
    first, now = pair.put(b"gone"), pair.put(b"gone")
    pair.call("KV/Compact", revision=now)
    for revision in first, -5:
        watch = pair.watch(key=b"gone", start_revision=revision)
        # etcd tells no reason and no revision of its own here.
        assert watch.next(forget=["header", "cancel_reason"]).compact_revision == now


def test_watches_continue_when_their_client_has_closed_its_side(pair):
    watch = pair.watch(key=b"", range_end=b"\0")
    watch.say_all()
    for _ in range(3):
        pair.put(b"any")
        watch.events(1)


def test_a_revision_of_many_megabytes_comes_in_fragments(pair):
    watch = pair.watch(key=b"f", range_end=b"g", fragment=True)
    for i in range(4):
        pair.put(b"f%d" % i, b"z" * 900000)
    pair.call("KV/DeleteRange", key=b"f", range_end=b"g")
    watch.events(8)


def test_a_range_in_parts_is_the_range(shared_cluster, prefix):
    """RangeStream is of a later etcd than Debian's."""
    begin, end = (prefix + "/").encode(), (prefix + "0").encode()
    with shared_cluster.rpc() as rpc:
        for i in range(30):
            rpc.call(*method("KV/Put", dict(key=begin + b"%02d" % i, value=b"s" * 50000)))
        path, asked = method("KV/Range", dict(key=begin, range_end=end, limit=25))
        whole = rpc.call(path, asked)
        parts = [part.range_response for part in rpc.answers(
            path + "Stream", asked, reply=pb.RangeStreamResponse)]
    assert len(parts) > 3
    assert [kv for part in parts for kv in part.kvs] == list(whole.kvs)
    assert (parts[-1].count, parts[-1].more) == (whole.count, whole.more) == (30, True)


# ---- locks ----

@pytest.fixture
def leases(pair):
    """501 to 503, which go with the test."""
    for lease in 501, 502, 503:
        pair.call("Lease/LeaseGrant", ID=lease, TTL=600)
    yield
    for lease in 501, 502, 503:
        pair.ask("Lease/LeaseRevoke", ID=lease)


def waiting(pair, name, n, service="Lock/Lock", /, **fields):
    """Calls that wait, when @n claims are there."""
    futures = pair.futures(service, name=name, **fields)
    eventually_is([n, n], lambda: pair.counts(name + b"/"))
    return futures


def both(futures):
    # When they look is an engine's affair, and so is the revision that their headers have.
    return alike([future.result() for future in futures], ["header"])


def test_a_lock_is_granted_to_the_next_waiter(pair, calls, leases):
    held = calls.call("Lock/Lock", name=b"next", lease=501).key
    second = waiting(pair, b"next", 2, lease=502)
    given_up = waiting(pair, b"next", 3, lease=503)
    assert not any(future.done() for future in second + given_up)

    for future in given_up:
        future.cancel()
    eventually_is([2, 2], lambda: pair.counts(b"next/"))
    calls.call("Lock/Unlock", key=held)

    assert both(second).key == b"next/1f6"


def test_a_lock_of_a_lease_or_key_that_is_not_there(calls):
    calls.call("Lock/Unlock", key=b"l/none")
    # etcd loses the code on the way: it answers UNKNOWN.
    ours, etcds = [calls.on(connection, "Lock/Lock", name=b"l", lease=999)
                   for connection in calls.connections]
    assert ours.details == etcds.details == "etcdserver: requested lease not found"


def test_its_holder_may_take_a_lock_again(pair, leases):
    # The core writes the key again, so that an earlier claim, given up late, does not delete it.
    pair.call("Lock/Lock", name=b"again", lease=501)
    pair.call("Lock/Lock", ["header"], name=b"again", lease=501)
    pair.etcd.call(*method("KV/Put", dict(key=b"again/1f5", lease=501)))


@pytest.mark.parametrize("first_goes_first", [True, False])
def test_two_claims_of_one_lease_that_are_given_up_leave_no_key(pair, leases, first_goes_first):
    held = pair.call("Lock/Lock", name=b"twice", lease=501).key
    first = waiting(pair, b"twice", 2, lease=502)
    second = pair.futures("Lock/Lock", name=b"twice", lease=502)
    eventually_is(2, lambda: pair.ours("KV/Range", key=b"twice/1f6").kvs[0].version)
    pair.etcd.call(*method("KV/Put", dict(key=b"twice/1f6", lease=502)))

    for futures in (first, second) if first_goes_first else (second, first):
        for future in futures:
            future.cancel()

    eventually_is([1, 1], lambda: pair.counts(b"twice/"))
    pair.call("Lock/Unlock", key=held)


@pytest.mark.parametrize("service", ["Lock/Lock", "Election/Campaign"])
def test_a_waiter_whose_lease_ends_gets_an_error_at_once_and_does_not_hold(fresh_pair, service):  # A38
    for lease in 1, 2:
        fresh_pair.call("Lease/LeaseGrant", ID=lease, TTL=600)
    fresh_pair.call(service, name=b"n", lease=1)
    ours, etcds = waiting(fresh_pair, b"n", 2, service, lease=2)

    fresh_pair.call("Lease/LeaseRevoke", ID=2)
    assert (ours.code().name, ours.details()) == ("UNKNOWN", "mutex: session is expired")
    assert not etcds.done()
    fresh_pair.call("KV/DeleteRange", key=b"n/1")

    # An etcd 3.4 says that it holds, by a key that is gone. A 3.5 refuses the lock, in our words.
    assert b"n/2" in etcds.result().SerializeToString()
    assert fresh_pair.counts(b"n/") == [0, 0]


def test_an_election_has_one_leader_after_the_other(pair, calls, leases):
    leader = calls.call("Election/Campaign", name=b"e", lease=501, value=b"one").leader
    observers = pair.answers("Election/Observe", name=b"e")
    assert [next(observer).kv.value for observer in observers] == [b"one"] * 2

    assert calls.call("Election/Leader", name=b"e").kv.value == b"one"
    calls.call("Election/Proclaim", leader=leader, value=b"two")
    stranger = dict(name=b"e", key=leader.key, rev=1, lease=501)
    with pytest.raises(Refused, match="not leader"):
        calls.call("Election/Proclaim", leader=stranger, value=b"no")
    calls.call("Election/Campaign", ["header"], name=b"e", lease=501, value=b"three")
    following = waiting(pair, b"e", 2, "Election/Campaign", lease=502, value=b"next")
    calls.call("Election/Resign", leader=leader)

    assert both(following).leader.lease == 502
    calls.call("Election/Resign", leader=leader)  # of who leads no more
    for observer in observers:
        assert [next(observer).kv.value for _ in range(3)] == [b"two", b"three", b"next"]
        observer.close()


# ---- maintenance ----

def test_an_alarm_stops_what_would_take_room_until_it_is_disarmed(calls):
    def alarm(action, **fields):
        return calls.call("Maintenance/Alarm", ["header"], action=action, **fields).alarms

    assert not alarm("GET")
    alarm("ACTIVATE", memberID=0, alarm="NOSPACE")
    assert [told.memberID for told in alarm("GET")] == [0]
    for name, fields in (("KV/Put", dict(key=b"q")), ("Lease/LeaseGrant", dict(ID=91, TTL=50)),
                         ("KV/Txn", dict(success=[put(b"q")]))):
        with pytest.raises(Refused, match="database space exceeded"):
            calls.call(name, **fields)
    calls.call("KV/DeleteRange", key=b"q")
    calls.call("KV/Range", key=b"q")
    alarm("DEACTIVATE", memberID=0, alarm="NOSPACE")
    calls.put(b"q")


def test_an_alarm_about_corruption_stops_writes_and_neither_reads_nor_renewals(fresh_pair):
    pair = fresh_pair
    pair.call("Lease/LeaseGrant", ID=61, TTL=600)
    pair.call("Lease/LeaseGrant", ID=62, TTL=2)
    pair.put(b"k", lease=62)
    alarm = dict(memberID=5, alarm="CORRUPT")
    pair.call("Maintenance/Alarm", ["header"], action="ACTIVATE", **alarm)

    for name, fields in (
            ("KV/Put", dict(key=b"q")), ("KV/DeleteRange", dict(key=b"k")),
            ("KV/Txn", dict(success=[put(b"q")])), ("KV/Compact", dict(revision=2)),
            ("Lease/LeaseGrant", dict(ID=63, TTL=50)), ("Lease/LeaseRevoke", dict(ID=61)),
            ("Lease/LeaseRevoke", dict(ID=64))):
        with pytest.raises(Refused, match="DATA_LOSS: etcdserver: corrupt cluster"):
            pair.call(name, **fields)
    for connection in pair.connections:  # etcd loses the code on the way
        for name, fields in (("Lock/Lock", dict(name=b"l", lease=61)),
                             ("Election/Campaign", dict(name=b"e", lease=61)),
                             ("Lock/Unlock", dict(key=b"k"))):
            assert pair.on(connection, name, **fields).details == "etcdserver: corrupt cluster"
    pair.call("KV/Txn", ["header"], success=[pb.RequestOp(request_range=dict(key=b"q"))])
    pair.call("Lease/LeaseTimeToLive", ["TTL"], ID=61)
    renewals = pair.stream("Lease/LeaseKeepAlive")
    renewals.send(pb.LeaseKeepAliveRequest(ID=61))
    assert renewals.next().TTL == 600

    # Ours still tells who is dead; an etcd does not.
    eventually_is([0, 1], lambda: pair.counts(b"k"))
    pair.call("Maintenance/Alarm", ["header"], action="DEACTIVATE", **alarm)
    eventually_is([0, 0], lambda: pair.counts(b"k"))
    pair.call("Lease/LeaseRevoke", ["header"], ID=61)


def test_a_replica_reports_how_it_is_and_sends_a_snapshot(pair, calls):
    calls.call("Maintenance/Defragment", ["header"])
    calls.call("Maintenance/Hash", ["header", "hash"])
    with pytest.raises(Refused, match="required revision is a future revision"):
        pair.call("Maintenance/HashKV", revision=1 << 40)  # not by JSON of an etcd 3.4
    said = calls.ours("Maintenance/Status")
    assert said.leader == said.header.member_id
    assert said.raftIndex >= said.raftAppliedIndex > 0 and said.dbSize > 0 and not said.errors
    snapshot, _ = calls.answers("Maintenance/Snapshot")
    assert b"".join(part.blob for part in snapshot).startswith(b"TENSNAP1")
