#!/usr/bin/python3
"""A login and what it is good for, by the raw API.

usage: login.py PB login PORT           logs in as ann, prints the token
       login.py PB login PORT OTHER     logs in, and prints what the token gets at once at another replica
       login.py PB TOKEN PORT           prints the value of app/1, or the error
"""
import sys

import grpc

import channels

sys.path.insert(0, sys.argv[1])
import rpc_pb2 as pb  # noqa: E402


def call(port, path, request, reply, token=None):
    f = channels.to("127.0.0.1:" + port).unary_unary(
        path, request_serializer=lambda m: m.SerializeToString(), response_deserializer=reply.FromString)
    try:
        return f(request, timeout=5, metadata=(("token", token),) if token else ())
    except grpc.RpcError as e:
        return e.details()


def get(port, token):
    r = call(port, "/etcdserverpb.KV/Range", pb.RangeRequest(key=b"app/1"), pb.RangeResponse, token)
    return r if isinstance(r, str) else r.kvs[0].value.decode()


port = sys.argv[3]
if sys.argv[2] == "login":
    r = call(port, "/etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest(name="ann", password="ann"), pb.AuthenticateResponse)
    if not isinstance(r, str) and len(sys.argv) > 4:
        print(get(sys.argv[4], r.token))
    else:
        print(r if isinstance(r, str) else r.token)
else:
    print(get(port, sys.argv[2]))
