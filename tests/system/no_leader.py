#!/usr/bin/python3
"""A watch and a keep-alive stream that ask for a leader, on a replica that loses its own; and a watch that does not ask.
usage: no_leader.py PB-DIR HOST:PORT
"""
import queue
import sys
import threading

import grpc

import channels

sys.path.insert(0, sys.argv[1])
import rpc_pb2 as pb  # noqa: E402

channel = channels.to(sys.argv[2])


def stream(path, reply, first, metadata):
    out, ends = queue.Queue(), queue.Queue()
    out.put(first)
    answers = channel.stream_stream(path, request_serializer=lambda m: m.SerializeToString(),
                                    response_deserializer=reply.FromString)(iter(out.get, None), metadata=metadata)
    first_answer = next(answers)

    def read():
        try:
            for _ in answers:
                pass
            ends.put("ended")
        except grpc.RpcError as e:
            ends.put(f"{e.code().name}: {e.details()}")

    threading.Thread(target=read, daemon=True).start()
    return first_answer, ends


create = pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"x"))
asks = [stream("/etcdserverpb.Watch/Watch", pb.WatchResponse, create, [("hasleader", "true")])[1],
        stream("/etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveResponse, pb.LeaseKeepAliveRequest(ID=1), [("hasleader", "true")])[1]]
silent = stream("/etcdserverpb.Watch/Watch", pb.WatchResponse, create, [])[1]
print("open", flush=True)
print(*[e.get(timeout=20) for e in asks], sep="\n")
print("the other goes on" if silent.empty() else silent.get())
