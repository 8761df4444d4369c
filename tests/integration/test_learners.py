"""What a learner answers: of tenure-core and of etcd the same."""
import http.client
import json

import pytest

from harness import etcd as etcds
from harness.places import BIN
from harness.program import run
from harness.rpc import Refused, Rpc, pb
from harness.waiting import PATIENCE, eventually

NOT_SUPPORTED = "UNAVAILABLE: etcdserver: rpc not supported for learner"
SERIALIZABLE = pb.RangeRequest(key=b"k", serializable=True)
CALLS = {
    "etcdserverpb.Maintenance/Status": pb.StatusRequest(),
    "etcdserverpb.KV/Range": SERIALIZABLE,
    "etcdserverpb.KV/Txn": pb.TxnRequest(success=[pb.RequestOp(request_range=SERIALIZABLE)]),
    "etcdserverpb.KV/Put": pb.PutRequest(key=b"k"),
    "etcdserverpb.Lease/LeaseGrant": pb.LeaseGrantRequest(TTL=10),
    "etcdserverpb.Cluster/MemberList": pb.MemberListRequest(),
    "etcdserverpb.Cluster/MemberPromote": pb.MemberPromoteRequest(ID=1),
    "etcdserverpb.Maintenance/Alarm": pb.AlarmRequest(),
    "etcdserverpb.Maintenance/HashKV": pb.HashKVRequest(),
    "etcdserverpb.Auth/UserList": pb.AuthUserListRequest(),
    "etcdserverpb.Watch/Watch": pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"k")),
    "etcdserverpb.Lease/LeaseKeepAlive": pb.LeaseKeepAliveRequest(ID=1),
    "etcdserverpb.Maintenance/Snapshot": pb.SnapshotRequest(),
    "grpc.health.v1.Health/Check": pb.HealthCheckRequest(),
    "v3lockpb.Lock/Lock": pb.LockRequest(name=b"k"),
    "v3electionpb.Election/Observe": pb.LeaderRequest(name=b"k"),
}
# An etcd 3.4 does not send its snapshot; a 3.5 does.
SERVED = {"tenure-core": {"etcdserverpb.Maintenance/Status", "etcdserverpb.KV/Range",
                          "etcdserverpb.Maintenance/Snapshot"},
          "etcd": {"etcdserverpb.Maintenance/Status", "etcdserverpb.KV/Range"}}
JSON = {
    "kv/range": {"key": "aw==", "serializable": True}, "kv/put": {"key": "aw=="},
    "maintenance/status": {}, "lease/grant": {"TTL": 10}, "lease/keepalive": {"ID": 1},
    "cluster/member/list": {}, "auth/authenticate": {"name": "a"},
    "watch": {"create_request": {"key": "aw=="}}, "election/observe": {"name": "aw=="},
}


def learner_of(core):
    """One that has what the voters have."""
    core.put("k", "v")
    learner = core.add_learner("d")
    eventually(lambda: core.get("k", "--consistency=s", at=learner))
    return learner


@pytest.fixture(params=["tenure-core", "etcd"])
def learner(request, tmp_path, ports):
    if request.param == "tenure-core":
        return learner_of(request.getfixturevalue("cluster"))
    if not etcds.is_installed():
        pytest.skip("etcd is not installed (as root: apt install etcd-server)")
    return learner_of(etcds.Etcds(tmp_path, ports))


def outcome(rpc, path, request):
    try:
        next(rpc.answers(path, request))
        return "served"
    except Refused as refused:
        return str(refused)


def ask(replica, path, body=None):
    connection = http.client.HTTPConnection(replica.client_url.removeprefix("http://"),
                                            timeout=PATIENCE)
    connection.request("GET" if body is None else "POST", path,
                       None if body is None else json.dumps(body))
    answer = connection.getresponse()
    return answer.status, answer.read().decode().strip()


def test_a_learner_serves_only_its_own_state(request, learner):
    with Rpc(learner.client_url) as rpc:
        answers = {path: outcome(rpc, path, request) for path, request in CALLS.items()}
        with pytest.raises(Refused, match=NOT_SUPPORTED):
            rpc.call("etcdserverpb.KV/Range", pb.RangeRequest(key=b"k"))
    assert {path for path, said in answers.items() if said == "served"} == SERVED[
        request.node.callspec.params["learner"]]
    assert {said for said in answers.values() if said != "served"} == {NOT_SUPPORTED}

    said = {path: ask(learner, f"/v3/{path}", body) for path, body in JSON.items()}
    assert [path for path, (status, _) in said.items() if status == 200] == [
        "kv/range", "maintenance/status"]
    assert {status for status, _ in said.values()} == {200, 503}
    assert all(NOT_SUPPORTED.partition(": ")[2] in text
               for status, text in said.values() if status == 503)

    for query in ("", "?exclude=NOSPACE", "?serializable=true"):
        status, text = ask(learner, f"/health{query}")
        assert (status, json.loads(text)["health"]) == (200, "true")


def test_a_learner_is_live_and_not_ready_and_tenurectl_continues_to_another_replica(cluster):
    learner = learner_of(cluster)
    assert ask(learner, "/livez") == (200, "ok")
    status, said = ask(learner, "/readyz")
    assert (status, said.splitlines()[-1]) == (
        503, "[-]non_learner failed: not supported for learner")
    assert " learner" in run(BIN / "tenurectl", f"--endpoints={learner.client_url},"
                             + cluster.leader().client_url, "core", "members")
