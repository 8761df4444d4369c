"""Calls by JSON at each of three replicas, while one is moved, frozen, killed or removed."""
import http.client
import threading

import pytest
from harness.http1 import Http, JsonStream
from harness.pair import method, put
from harness.rpc import Gateway, Refused
from harness.waiting import eventually, eventually_is

# Of the refusals that may come.
STATUS = {"INVALID_ARGUMENT": 400, "NOT_FOUND": 404, "RESOURCE_EXHAUSTED": 429,
          "FAILED_PRECONDITION": 412, "UNAVAILABLE": 503}


@pytest.fixture
def cluster(new_cluster):
    """Takes a snapshot, and drops what it has, all the time."""
    return new_cluster(3, "--snapshot-count=100")


def watch(replica, **headers):
    stream = JsonStream(replica.client_url, "/v3/watch", {"create_request": {
        "key": b"k/", "range_end": b"k0"}}, **headers)
    assert stream.next()["result"]["created"]
    return stream


class Caller(threading.Thread):
    """Calls at one replica, one after the other, until the test ends it or the connection
    breaks."""

    def __init__(self, replica, lease):
        super().__init__(daemon=True)
        self.at, self.lease, self.gateway = replica.name.encode(), lease, Gateway(
            replica.client_url)
        self.put, self.wrong, self.broken, self.ended = [], [], False, False
        self.start()

    def calls(self, key):
        lock, election = dict(name=b"l" + self.at), dict(name=b"e" + self.at)
        yield "KV/Put", dict(key=key)
        yield "KV/Txn", dict(success=[put(key), dict(request_range=dict(key=key))])
        yield "KV/Range", dict(key=key)
        yield "Lease/LeaseKeepAlive", dict(ID=self.lease)
        yield "Lease/LeaseGrant", dict(TTL=60)
        yield "Lock/Lock", dict(lease=self.lease, **lock)
        yield "Election/Campaign", dict(lease=self.lease, value=b"x", **election)
        yield "Election/Leader", election
        for name in "Cluster/MemberList", "Maintenance/Status", "Maintenance/Snapshot":
            yield name, {}

    def run(self):
        n = 0
        while not (self.ended or self.broken):
            n += 1
            key = b"k/%s/%d" % (self.at, n)
            for name, fields in self.calls(key):
                self.ask(name, fields)

    def ask(self, name, fields):
        try:
            list(self.gateway.answers(*method(name, fields)))
            self.put += [fields["key"]] if name == "KV/Put" else []
        except Refused as said:
            if said.status != STATUS[said.code] or not said.details.startswith("etcdserver: "):
                self.wrong.append((name, said))
        except (OSError, http.client.HTTPException):
            self.broken = True

    def end(self):
        self.ended = True
        self.join()


def move(cluster, leader, other):
    eventually(lambda: Http(cluster.leader().client_url).post(
        "/v3/maintenance/transfer-leadership", targetID=cluster.members()[other.name].id))


FAULTS = {"moved": (move, lambda leader: None),
          "frozen": (lambda _, leader, other: leader.freeze(), lambda leader: leader.thaw()),
          "killed": (lambda _, leader, other: leader.kill(), lambda leader: leader.start()),
          "stopped": (lambda _, leader, other: leader.stop(), lambda leader: leader.start())}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_call_is_answered_and_no_put_lost_while_the_leader_is(cluster, fault):
    leader = cluster.leader()
    others = [replica for replica in cluster.replicas.values() if replica is not leader]
    watches, lease = [watch(replica) for replica in others], cluster.grant(600)
    callers = [Caller(replica, lease) for replica in (leader, *others)]
    eventually(lambda: all(len(caller.put) > 2 for caller in callers))

    do, undo = FAULTS[fault]
    do(cluster, leader, others[0])
    before = [len(caller.put) for caller in callers[1:]]
    eventually(lambda: all(len(caller.put) > n + 5 for caller, n in zip(callers[1:], before)))
    undo(leader)
    eventually(lambda: cluster.put("after", "all", at=leader))
    for caller in callers:
        caller.end()

    assert [caller.wrong for caller in callers] == [[], [], []]
    assert not any(caller.broken for caller in callers[fault in ("killed", "stopped"):])
    kept = cluster.range("k/", at=leader)
    assert {key.decode() for caller in callers for key in caller.put} <= {kv.key for kv in kept}
    for stream in watches:  # they go on, without a gap
        revisions = [0]
        while revisions[-1] < max(kv.mod_revision for kv in kept):
            revisions += [int(event["kv"]["mod_revision"])
                          for event in stream.next()["result"].get("events", [])]
        assert sorted(set(revisions)) == revisions
        assert len(revisions) - 1 >= sum(kv.version for kv in kept)


def unavailable(message):
    return {"grpc_code": 14, "http_code": 503, "http_status": "Service Unavailable",
            "message": message}


def test_without_a_leader_a_replica_lives_and_every_call_gets_an_error(cluster):
    alone, *others = cluster.replicas.values()
    http = Http(alone.client_url)
    lease = cluster.grant(600)
    wants_leader = watch(alone, **{"Grpc-Metadata-hasleader": "true"})
    patient = watch(alone)
    for other in others:
        other.freeze()

    assert wants_leader.next()["error"] == unavailable("etcdserver: no leader")
    assert wants_leader.next() is None
    calls = [Http(alone.client_url) for _ in range(7)]
    for call, (path, body) in zip(calls, (
            ("kv/put", {"key": b"x"}), ("kv/range", {"key": b"x"}), ("kv/txn", {}),
            ("lease/keepalive", {"ID": lease}), ("lease/grant", {"TTL": 5}),
            ("lock/lock", {"name": b"x"}), ("election/leader", {"name": b"x"}))):
        call.begin("POST", f"/v3/{path}", body)
    for call in calls:
        answer = call.finish()
        assert answer.status == 503 and "etcdserver: " in answer.text
    http.post("/v3/kv/range", key=b"x", serializable=True)
    ill = http.get("/health")
    assert ill.json()["reason"].startswith(("RAFT NO LEADER", "RANGE ERROR:"))
    assert (ill.status, http.get("/health?serializable=true").status) == (503, 200)
    assert "[-]linearizable_read failed: etcdserver: " in http.get("/readyz").text
    assert http.get("/livez").text == "ok\n"

    for other in others:
        other.thaw()
    eventually(lambda: cluster.put("k/x", "1"))
    eventually_is(200, lambda: http.get("/readyz").status)
    assert patient.next()["result"]["events"]


def test_a_waiter_at_a_replica_that_is_removed_gets_an_error(cluster):
    leader = cluster.leader()
    goes = next(replica for replica in cluster.replicas.values() if replica is not leader)
    stream, waits, asks = watch(goes), Http(goes.client_url), Http(leader.client_url)
    asks.post("/v3/lock/lock", name=b"held", lease=cluster.grant(600))
    waits.begin("POST", "/v3/lock/lock", {"name": b"held"})
    eventually_is(2, lambda: len(cluster.range("held/")))

    removal = {"ID": cluster.members()[goes.name].id}
    eventually(lambda: asks.ask("POST", "/v3/cluster/member/remove", removal).status == 200)

    stopped = "etcdserver: server stopped"
    assert stream.next()["error"] == unavailable(stopped)
    assert stream.next() is None
    answer = waits.finish()
    assert answer.status == 503
    assert answer.json() == {"error": stopped, "message": stopped, "code": 14}
    goes.wait()
