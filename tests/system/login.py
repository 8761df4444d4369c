#!/usr/bin/python3
"""A login and what it is good for, by the raw API.

usage: login.py PB login PORT      logs in as ann, prints the token
       login.py PB TOKEN PORT      prints the value of app/1, or the error
"""
import sys

import grpc

sys.path.insert(0, sys.argv[1])
import rpc_pb2 as pb  # noqa: E402


def call(path, request, reply, token=None):
    f = grpc.insecure_channel("127.0.0.1:" + sys.argv[3]).unary_unary(
        path, request_serializer=lambda m: m.SerializeToString(), response_deserializer=reply.FromString)
    try:
        return f(request, timeout=5, metadata=(("token", token),) if token else ())
    except grpc.RpcError as e:
        return e.details()


if sys.argv[2] == "login":
    r = call("/etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest(name="ann", password="ann"), pb.AuthenticateResponse)
    print(r if isinstance(r, str) else r.token)
else:
    r = call("/etcdserverpb.KV/Range", pb.RangeRequest(key=b"app/1"), pb.RangeResponse, sys.argv[2])
    print(r if isinstance(r, str) else r.kvs[0].value.decode())
