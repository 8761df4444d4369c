#!/usr/bin/python3
"""What a learner answers, by gRPC and by JSON: prints a line for each call, for members.sh to compare with what a real etcd's learner answers.

usage: learner.py PB HOST:PORT
"""
import json
import os
import sys
import urllib.error
import urllib.request

import grpc

import channels

sys.path.insert(0, sys.argv[1])
import rpc_pb2 as pb  # noqa: E402

channel = channels.to(sys.argv[2])
P = "/etcdserverpb."


def outcome(call):
    try:
        call()
        return "ok"
    except grpc.RpcError as e:
        return f"{e.code().name}: {e.details()}"


def one(what, path, m):
    f = channel.unary_unary(path, request_serializer=lambda x: x.SerializeToString(), response_deserializer=lambda b: b)
    print(f"{what}: {outcome(lambda: f(m, timeout=10))}")


def by_json(path, body):
    try:
        with urllib.request.urlopen(f"http://{sys.argv[2]}{path}", json.dumps(body).encode(), 10) as r:
            said = f"{r.status} ok"
    except urllib.error.HTTPError as e:
        said = f"{e.code} {e.headers['Content-Type']} {e.read().decode().strip()}"
    print(f"{path} {body}: {said}")


def stream(what, path, m):
    f = channel.stream_stream(path, request_serializer=lambda x: x.SerializeToString(), response_deserializer=lambda b: b)
    print(f"{what}: {outcome(lambda: next(f(iter([m]), timeout=10)))}")


one("status", P + "Maintenance/Status", pb.StatusRequest())
one("a serializable read", P + "KV/Range", pb.RangeRequest(key=b"a", serializable=True))
one("a read", P + "KV/Range", pb.RangeRequest(key=b"a"))
one("a serializable read in a txn", P + "KV/Txn", pb.TxnRequest(success=[
    pb.RequestOp(request_range=pb.RangeRequest(key=b"a", serializable=True))]))
one("a put", P + "KV/Put", pb.PutRequest(key=b"a"))
one("a grant", P + "Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=10))
one("the members", P + "Cluster/MemberList", pb.MemberListRequest())
one("a promotion", P + "Cluster/MemberPromote", pb.MemberPromoteRequest(ID=1))
one("the alarms", P + "Maintenance/Alarm", pb.AlarmRequest())
one("the hash", P + "Maintenance/HashKV", pb.HashKVRequest())
one("users", P + "Auth/UserList", pb.AuthUserListRequest())
one("health", "/grpc.health.v1.Health/Check", pb.HealthCheckRequest())
one("a lock", "/v3lockpb.Lock/Lock", pb.LockRequest(name=b"a"))
stream("a watch", P + "Watch/Watch", pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"a")))
stream("a renewal", P + "Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest(ID=1))
stream("a snapshot", P + "Maintenance/Snapshot", pb.SnapshotRequest())
stream("an election", "/v3electionpb.Election/Observe", pb.LeaderRequest(name=b"a"))
for path, body in (("maintenance/status", {}), ("kv/range", {"key": "YQ==", "serializable": True}), ("kv/range", {"key": "YQ=="}), ("kv/put", {"key": "YQ=="}),
                   ("kv/txn", {}), ("lease/grant", {"TTL": 10}), ("cluster/member/list", {}), ("auth/authenticate", {"name": "a"}),
                   ("watch", {"create_request": {"key": "YQ=="}}), ("lease/keepalive", {"ID": 1}), ("maintenance/snapshot", {}),
                   ("election/observe", {"name": "YQ=="})):
    by_json("/v3/" + path, body)

# The streams are open still: Debian's grpc waits for them at exit, now and then for good.
sys.stdout.flush()
os._exit(0)
