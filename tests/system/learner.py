#!/usr/bin/python3
"""What a learner answers: prints a line for each call, for members.sh to compare with what a real etcd's learner answers.

usage: learner.py PB HOST:PORT
"""
import os
import sys

import grpc

sys.path.insert(0, sys.argv[1])
import rpc_pb2 as pb  # noqa: E402

channel = grpc.insecure_channel(sys.argv[2])
P = "/etcdserverpb."


def told(call):
    try:
        call()
        return "ok"
    except grpc.RpcError as e:
        return f"{e.code().name}: {e.details()}"


def one(what, path, m):
    f = channel.unary_unary(path, request_serializer=lambda x: x.SerializeToString(), response_deserializer=lambda b: b)
    print(f"{what}: {told(lambda: f(m, timeout=10))}")


def stream(what, path, m):
    f = channel.stream_stream(path, request_serializer=lambda x: x.SerializeToString(), response_deserializer=lambda b: b)
    print(f"{what}: {told(lambda: next(f(iter([m]), timeout=10)))}")


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

# The streams are open still: Debian's grpc waits for them at exit, now and then for good.
sys.stdout.flush()
os._exit(0)
