"""Sends what nests without end, or unpacks to far more than it is, to every kind of call that takes a message, and asks after each whether the replica still serves.

usage: deep.py ADDRESS
"""
import sys
import threading

import grpc


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def nested(tags, limit):
    """A message in a message in a message, up to @limit bytes: from the inside out, with lengths that fit."""
    parts, n, i = [], 0, len(tags) - 1
    while n < limit:
        head = varint(tags[i % len(tags)] << 3 | 2) + varint(n)
        parts.append(head)
        n, i = n + len(head), i - 1
    while i % len(tags) != len(tags) - 1:  # ends where a whole message begins
        head = varint(tags[i % len(tags)] << 3 | 2) + varint(n)
        parts.append(head)
        n, i = n + len(head), i - 1
    return b"".join(reversed(parts))


def puts(widths, key=iter(range(1 << 30))):
    """Transactions in transactions, so many in each, and puts of different keys in the innermost."""
    ops = [field(2, field(1, b"%x" % next(key))) if len(widths) == 1 else field(4, puts(widths[1:])) for _ in range(widths[0])]
    return b"".join(field(2, op) for op in ops)


channel = grpc.insecure_channel(sys.argv[1], options=[("grpc.max_send_message_length", -1)])


def call(path, message, timeout=5.0):
    try:
        channel.unary_unary(path, request_serializer=None, response_deserializer=None)(message, timeout=timeout, wait_for_ready=True)
        return "OK"
    except grpc.RpcError as e:
        return f"{e.code().name}: {e.details()}"


def stream(path, message):
    try:
        for _ in channel.stream_stream(path, request_serializer=None, response_deserializer=None)(iter([message]), timeout=5.0, wait_for_ready=True):
            pass
        return "OK"
    except grpc.RpcError as e:
        return f"{e.code().name}: {e.details()}"


put = field(1, b"k")
wide = b"".join([field(1, b"")] * 200000)
unknown = put + b"\xf8\x7f\x01" * 200000
big = "INVALID_ARGUMENT: etcdserver: request is too large"
malformed = "INTERNAL: grpc: the message does not parse"
many = "INVALID_ARGUMENT: etcdserver: too many operations in txn request"
deep = puts([1])
for _ in range(127):
    deep = field(2, field(4, deep))
cases = [
    # success(RequestOp) -> request_txn -> success -> ...
    ("a nested transaction of 74 KB", call, "/etcdserverpb.KV/Txn", nested([2, 4], 74000), many),
    ("a nested transaction of 1.4 MB", call, "/etcdserverpb.KV/Txn", nested([3, 4], 1400000), many),
    ("200,000 empty compares", call, "/etcdserverpb.KV/Txn", wide, many),
    ("200,000 fields that nobody knows", call, "/etcdserverpb.KV/Put", unknown, big),
    ("one permission, merged 100,000 times", call, "/etcdserverpb.Auth/RoleGrantPermission", field(2, field(2, b"k")) * 100000, malformed),
    ("200,000 fields that nobody knows, to a watch", stream, "/etcdserverpb.Watch/Watch", b"\xf8\x7f\x01" * 200000, big),
    ("the same to a keep-alive", stream, "/etcdserverpb.Lease/LeaseKeepAlive", b"\xf8\x7f\x01" * 200000, big),
    ("33,000 puts in nested transactions", call, "/etcdserverpb.KV/Txn", puts([40, 33, 25]), many),
    ("128 nested transactions, as etcd takes them", call, "/etcdserverpb.KV/Txn", deep, "OK"),
]
failed = 0
for name, how, path, message, wanted in cases:
    answer = how(path, message)
    alive = call("/etcdserverpb.KV/Put", put + field(2, b"v"))
    good = answer == wanted and alive == "OK"
    failed += not good
    print(f"{'ok' if good else 'not ok'} {name} ({len(message)} bytes): {answer}; afterwards: {alive}", flush=True)
# Messages that are not too much, one after the other on one stream: each larger than the window that a call begins with.
got, held = 0, threading.Event()


def requests():
    for size in (20000, 16380, 100000, 1400000, 20000):
        yield field(1, field(1, b"%07d" % size + b"x" * size))
    held.wait(30)  # an end would end the watches


try:
    for _ in channel.stream_stream("/etcdserverpb.Watch/Watch", request_serializer=None, response_deserializer=None)(requests(), timeout=30, wait_for_ready=True):
        got += 1
        if got == 5:
            break
except grpc.RpcError as e:
    print("   ", e.code().name, e.details())
held.set()
failed += got != 5
print(f"{'ok' if got == 5 else 'not ok'} five watches with large keys on one stream: {got} made", flush=True)
sys.exit(failed > 0)
