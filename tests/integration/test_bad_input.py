"""What no well-meaning client sends ends its connection or gets an error, and nobody else notices.

A44: frames and messages have bounds.
"""
import itertools
import random
import socket

import pytest

from harness.rpc import Refused, pb
from harness.waiting import PATIENCE

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.fixture(autouse=True)
def honest(shared_cluster, prefix):
    """Others are served afterwards, by replicas that have not restarted."""
    pids = [replica.pid for replica in shared_cluster.replicas.values()]
    yield
    for replica in shared_cluster.replicas.values():
        shared_cluster.put(prefix + "honest", "served", at=replica)
    assert [replica.pid for replica in shared_cluster.running] == pids


def say(port, said):
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    connection.sendall(said)
    return connection


def rest(connection):
    """What comes until the other side ends the connection."""
    with connection:
        try:
            return b"".join(iter(lambda: connection.recv(65536), b""))
        except ConnectionResetError:
            return b""


def port(replica, kind):
    return int(getattr(replica, f"{kind}_url").rsplit(":", 1)[1])


@pytest.mark.parametrize("kind", ["client", "peer"])
@pytest.mark.parametrize("said", [b"GET / HTTP/1.0\r\n\r\n", b"garbage " * 4,
                                  random.Random(44).randbytes(100_000)],
                         ids=["HTTP/1.0", "garbage", "random bytes"])
def test_garbage_ends_its_connection(shared_cluster, kind, said):
    try:
        rest(say(port(shared_cluster.leader(), kind), said))
    except BrokenPipeError:
        pass  # ended before all had been said


def frame(kind, flags, stream, payload):
    return (len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
            + payload)


def literal(name, value):  # RFC 7541, 6.2.2
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def half_a_put():
    headers = {b":method": b"POST", b":scheme": b"http", b":path": b"/etcdserverpb.KV/Put",
               b":authority": b"x", b"content-type": b"application/grpc", b"te": b"trailers"}
    return (PREFACE + frame(4, 0, 0, b"")
            + frame(1, 4, 1, b"".join(literal(*header) for header in headers.items()))
            + frame(0, 0, 1, b"\0\0\0\0\x64" + b"only a part"))


def until_its_end(connection, stream):
    """Reads frames until one ends the stream: by RST_STREAM, or with END_STREAM."""
    read = connection.makefile("rb").read
    while head := read(9):
        payload = read(int.from_bytes(head[:3], "big"))
        kind, flags, number = head[3], head[4], int.from_bytes(head[5:], "big")
        if number == stream and (kind == 3 or kind == 1 and flags & 1):
            return payload
    raise AssertionError("the connection has ended, not the stream")


def test_whoever_begins_and_says_no_more_is_ended(shared_cluster):
    replica = shared_cluster.leader()
    greeting = say(port(replica, "peer"), b"TENPEER1abc")
    preface = say(port(replica, "client"), PREFACE[:16])
    call = say(port(replica, "client"), half_a_put())

    rest(greeting)
    rest(preface)
    until_its_end(call, 1)


# ---- messages that are more than they seem ----

def varint(n):
    low = bytes([n & 127 | (128 if n > 127 else 0)])
    return low + varint(n >> 7) if n > 127 else low


def field(number, payload=b""):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def nested(numbers, limit):
    """A message in a message in a message, by these fields in turn, from the inside out."""
    parts, size = [], 0
    while size < limit:
        for number in reversed(numbers):
            parts.append(varint(number << 3 | 2) + varint(size))
            size += len(parts[-1])
    return b"".join(reversed(parts))


def puts(widths, keys=None):
    """Transactions in transactions, so many in each, and puts of new keys in the innermost."""
    keys = keys or itertools.count()
    width, *inner = widths
    return b"".join(field(2, field(4, puts(inner, keys)) if inner
                          else field(2, field(1, b"%x" % next(keys)))) for _ in range(width))


def unknown(n):
    return b"\xf8\x7f\x01" * n


TXN, WATCH = "etcdserverpb.KV/Txn", "etcdserverpb.Watch/Watch"
MANY = "INVALID_ARGUMENT: etcdserver: too many operations in txn request"
BIG = "INVALID_ARGUMENT: etcdserver: request is too large"


@pytest.mark.parametrize("path, message, sentence", [
    pytest.param(path, message, sentence, id=name) for name, path, message, sentence in (
        ("nested transactions", TXN, nested([2, 4], 74_000), MANY),
        ("deeply nested transactions", TXN, nested([3, 4], 1_400_000), MANY),
        ("many puts in nested transactions", TXN, puts([40, 33, 25]), MANY),
        ("empty compares", TXN, field(1) * 200_000, MANY),
        ("one merged permission", "etcdserverpb.Auth/RoleGrantPermission",
         field(2, field(2, b"k")) * 100_000, "INTERNAL: grpc: the message does not parse"),
        ("unknown fields of a put", "etcdserverpb.KV/Put", field(1, b"k") + unknown(200_000), BIG),
        ("unknown fields of a watch", WATCH, unknown(200_000), BIG),
        ("unknown fields of a renewal", "etcdserverpb.Lease/LeaseKeepAlive", unknown(200_000),
         BIG),
        ("a value of 2 MiB", "etcdserverpb.KV/Put", field(1, b"k") + field(5, bytes(1 << 21)),
         BIG))])
def test_a_message_that_is_too_much_is_refused(shared_cluster, path, message, sentence):
    with shared_cluster.rpc() as rpc, pytest.raises(Refused) as refused:
        rpc.send_bytes(path, message)
    assert str(refused.value) == sentence


def test_128_nested_transactions_are_taken_as_by_etcd(shared_cluster):
    nest = puts([1])
    for _ in range(127):
        nest = field(2, field(4, nest))
    with shared_cluster.rpc() as rpc:
        assert len(rpc.send_bytes(TXN, nest)) == 1


def test_a_value_of_1_4_megabytes_is_taken(shared_cluster, prefix):
    with shared_cluster.rpc() as rpc:
        rpc.call("etcdserverpb.KV/Put", pb.PutRequest(key=prefix.encode(), value=bytes(1_400_000)))
        rpc.call("etcdserverpb.KV/DeleteRange", pb.DeleteRangeRequest(key=prefix.encode()))


def test_requests_that_are_larger_than_the_window_follow_each_other_on_one_stream(shared_cluster):
    with shared_cluster.rpc() as rpc:
        stream = rpc.stream(WATCH, pb.WatchRequest)
        for n, size in enumerate([20_000, 16_380, 100_000, 1_400_000, 20_000]):
            stream.send(pb.WatchRequest(create_request=pb.WatchCreateRequest(
                key=b"%07d" % n + bytes(size))))
        assert [stream.next().watch_id for _ in range(5)] == [0, 1, 2, 3, 4]
