"""What no well-meaning client sends ends its connection or gets an error, and nobody else notices.

A44: frames and messages have bounds.
"""
import itertools
import random
import socket

import pytest

from harness import h2
from harness.rpc import Refused, pb
from harness.waiting import PATIENCE


@pytest.fixture(autouse=True)
def honest(shared_cluster, prefix):
    """Others are served afterwards, by replicas that have not restarted."""
    pids = [replica.pid for replica in shared_cluster.replicas.values()]
    yield
    for replica in shared_cluster.replicas.values():
        shared_cluster.put(prefix + "honest", "served", at=replica)
    assert [replica.pid for replica in shared_cluster.running] == pids


def say(url, said):
    connection = socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), PATIENCE)
    connection.sendall(said)
    return connection


def until_its_end(connection):
    with connection:
        try:
            while connection.recv(65536):
                pass
        except ConnectionResetError:
            pass


@pytest.mark.parametrize("kind", ["client", "peer"])
@pytest.mark.parametrize("said", [b"GET / HTTP/1.0\r\n\r\n", b"garbage " * 4,
                                  random.Random(44).randbytes(100_000)],
                         ids=["HTTP/1.0", "garbage", "random bytes"])
def test_garbage_ends_its_connection(shared_cluster, kind, said):
    try:
        until_its_end(say(getattr(shared_cluster.leader(), f"{kind}_url"), said))
    except BrokenPipeError:
        pass  # ended before all had been said


HALF_A_PUT = (h2.HELLO + h2.settings()
              + h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.headers(b"/etcdserverpb.KV/Put"))
              + h2.frame(h2.DATA, 0, 1, b"\0\0\0\0\x64" + b"only a part"))


def test_a_client_that_sends_half_a_request_is_disconnected(shared_cluster):
    replica = shared_cluster.leader()
    greeting = say(replica.peer_url, b"TENPEER1abc")
    preface = say(replica.client_url, h2.HELLO[:16])
    call = say(replica.client_url, HALF_A_PUT)

    until_its_end(greeting)
    until_its_end(preface)
    said = b""
    while not any(stream == 1 and (kind == h2.RST or kind == h2.HEADERS and flags & h2.END_STREAM)
                  for kind, flags, stream, _ in h2.frames(said)[0]):
        more = call.recv(65536)
        assert more, "the connection has ended, not the stream"
        said += more
    call.close()


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


UNKNOWN = b"\xf8\x7f\x01" * 200_000
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
        ("unknown fields of a put", "etcdserverpb.KV/Put", field(1, b"k") + UNKNOWN, BIG),
        ("unknown fields of a watch", WATCH, UNKNOWN, BIG),
        ("unknown fields of a renewal", "etcdserverpb.Lease/LeaseKeepAlive", UNKNOWN, BIG),
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
