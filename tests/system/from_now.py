#!/usr/bin/python3
"""Watches missed/ from now on, and the key "past" from revision 1 on the same stream; prints what comes, until killed.
usage: from_now.py PB-DIR HOST:PORT
It does not ask for a leader, so that a replica without one takes it.
"""
import sys
import threading

import channels

sys.path.insert(0, sys.argv[1])
import rpc_pb2 as pb  # noqa: E402


def requests():
    yield pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"missed/", range_end=b"missed0"))
    yield pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"past", start_revision=1))
    print("asked", flush=True)
    threading.Event().wait()


for m in channels.to(sys.argv[2]).stream_stream(
        "/etcdserverpb.Watch/Watch", request_serializer=lambda m: m.SerializeToString(),
        response_deserializer=pb.WatchResponse.FromString)(requests()):
    if m.created:
        print(f"created {m.watch_id}", flush=True)
    for e in m.events:
        print(f"event {e.kv.key.decode()}", flush=True)
