"""Calls by JSON at each of three replicas, while one is moved, frozen, killed or removed."""
import http.client
import json
import threading

import pytest
from harness.http1 import Http, JsonStream
from harness.waiting import eventually, eventually_is

STATUS = {3: 400, 5: 404, 8: 429, 9: 412, 14: 503}  # of the codes that may come
UNAVAILABLE = {"grpc_code": 14, "http_code": 503, "http_status": "Service Unavailable"}


@pytest.fixture
def cluster(new_cluster):
    """Takes a snapshot, and drops what it has, all the time."""
    return new_cluster(3, "--snapshot-count=100")


def watch(replica, prefix=b"k/", **headers):
    stream = JsonStream(replica.client_url, "/v3/watch", {"create_request": {
        "key": prefix, "range_end": prefix[:-1] + b"0"}}, **headers)
    assert stream.next()["result"]["created"]
    return stream


def is_well_formed(answer):
    """A success, or an error in etcd's words with the status that belongs to its code; of each
    line of a stream, too."""
    for said in map(json.loads, answer.body.splitlines()):
        error = said.get("error")
        if isinstance(error, dict):
            right = STATUS[error["grpc_code"]] == error["http_code"]
        elif error:
            right = (STATUS[said["code"]] == answer.status and said["message"] == error
                     and error.startswith("etcdserver: "))
        else:
            right = answer.status == 200
        if not right:
            return False
    return True


class Caller(threading.Thread):
    """Calls at one replica, one after the other, until the test ends it or the connection
    breaks."""

    def __init__(self, replica, lease):
        super().__init__(daemon=True)
        self.replica, self.lease, self.ended = replica, lease, False
        self.put, self.wrong, self.broken = [], [], False
        self.start()

    def calls(self, key):
        name, lease = self.replica.name.encode(), self.lease
        yield "kv/put", {"key": key}
        yield "kv/txn", {"success": [{"request_put": {"key": key}},
                                     {"request_range": {"key": key}}]}
        yield "kv/range", {"key": key}
        yield "lease/keepalive", {"ID": lease}
        yield "lease/grant", {"TTL": "60"}
        yield "lock/lock", {"name": b"l" + name, "lease": lease}
        yield "election/campaign", {"name": b"e" + name, "lease": lease, "value": b"x"}
        yield "election/leader", {"name": b"e" + name}
        yield "cluster/member/list", {}
        yield "maintenance/status", {}
        yield "maintenance/snapshot", {}

    def run(self):
        n, connection = 0, Http(self.replica.client_url)
        while True:
            n += 1
            key = b"k/%s/%d" % (self.replica.name.encode(), n)
            for path, body in self.calls(key):
                if self.ended:
                    return
                try:
                    answer = connection.ask("POST", f"/v3/{path}", body)
                except (OSError, http.client.HTTPException):
                    self.broken = True
                    return
                if not is_well_formed(answer):
                    self.wrong.append((path, answer))
                elif path == "kv/put" and answer.status == 200:
                    self.put.append(key)

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
    watches = [watch(replica) for replica in others]
    lease = cluster.grant(600)
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
    put = {key.decode() for caller in callers for key in caller.put}
    kept = cluster.range("k/", at=leader)
    assert put <= {kv.key for kv in kept}
    for stream in watches:  # they go on, without a gap
        revisions = [0]
        while revisions[-1] < max(kv.mod_revision for kv in kept):
            revisions += [int(event["kv"]["mod_revision"])
                          for event in stream.next()["result"].get("events", [])]
        assert sorted(set(revisions)) == revisions
        assert len(revisions) - 1 >= sum(kv.version for kv in kept)


def test_without_a_leader_every_call_is_told(cluster):
    alone, *others = cluster.replicas.values()
    lease = cluster.grant(600)
    wants_leader = watch(alone, **{"Grpc-Metadata-hasleader": "true"})
    patient = watch(alone)
    for other in others:
        other.freeze()

    assert wants_leader.next()["error"] == {**UNAVAILABLE, "message": "etcdserver: no leader"}
    assert wants_leader.next() is None
    calls = [Http(alone.client_url) for _ in range(7)]
    for call, (path, body) in zip(calls, (
            ("kv/put", {"key": b"x"}), ("kv/range", {"key": b"x"}), ("kv/txn", {}),
            ("lease/keepalive", {"ID": lease}), ("lease/grant", {"TTL": 5}),
            ("lock/lock", {"name": b"x"}), ("election/leader", {"name": b"x"}))):
        call.begin("POST", f"/v3/{path}", body)
    for call in calls:
        answer = call.finish()
        assert answer.status == 503 and is_well_formed(answer)
    Http(alone.client_url).post("/v3/kv/range", key=b"x", serializable=True)

    for other in others:
        other.thaw()
    eventually(lambda: cluster.put("k/x", "1"))
    assert patient.next()["result"]["events"]


def test_who_waits_at_a_replica_that_is_removed_is_told(cluster):
    leader = cluster.leader()
    goes = next(replica for replica in cluster.replicas.values() if replica is not leader)
    stream, waits, asks = watch(goes), Http(goes.client_url), Http(leader.client_url)
    asks.post("/v3/lock/lock", name=b"held", lease=cluster.grant(600))
    waits.begin("POST", "/v3/lock/lock", {"name": b"held"})
    eventually_is(2, lambda: len(cluster.range("held/")))

    removal = {"ID": cluster.members()[goes.name].id}
    eventually(lambda: asks.ask("POST", "/v3/cluster/member/remove", removal).status == 200)

    stopped = "etcdserver: server stopped"
    assert stream.next()["error"] == {**UNAVAILABLE, "message": stopped}
    assert stream.next() is None
    answer = waits.finish()
    assert answer.status == 503
    assert answer.json() == {"error": stopped, "message": stopped, "code": 14}
    goes.wait()
