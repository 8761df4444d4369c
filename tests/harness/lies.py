"""Lies that fit all clients of a core. tell(liar, *lie) tells one: a lie and what happens then."""
import os
import random
import struct
import time

import grpc

from . import h2
from .h2 import frame
from .liar import Liar, Refuse
from .rpc import pb

HUGE = (1 << 63) - 1
LEAST = -HUGE - 1
LENGTHS = [(HUGE, 0), (9223372037, 0), (0, HUGE), (0, 9223372036855), (-1, -1), (18446744074, 0),
           (LEAST, 0), (LEAST, LEAST)]
REASONS = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.PERMISSION_DENIED,
           grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INTERNAL, grpc.StatusCode.NOT_FOUND,
           grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE]


def tell(liar, lie, *then):
    liar.lie = lie
    for happens in then:
        happens(liar)


def changing(change, *methods):
    """What those methods answer, or all if none is named, is what change() makes of it."""
    def lie(call):
        answer = call.ask()
        return change(answer) if not methods or call.method in methods else answer
    return lie


def saying(*methods, **fields):
    """Like changing(), by fields of the answer: values, or functions of the answer."""
    def change(answer):
        for name, value in fields.items():
            setattr(answer, name, value(answer) if callable(value) else value)
        return answer
    return changing(change, *methods)


def in_header(field, value):
    def change(answer):
        if answer.HasField("header"):
            setattr(answer.header, field, value(answer) if callable(value) else value)
        return answer
    return changing(change)


def refusing(reason, text, *methods):
    def change(answer):
        raise Refuse(reason() if callable(reason) else reason, text)
    return changing(change, *methods)


def without_header(answer):
    answer.ClearField("header")
    return answer


def one_of(*values):
    return lambda answer: random.choice(values)


def lasts_for_ever(answer):
    answer.TTL, answer.ttl_ms = random.choice(LENGTHS)
    return answer


def and_ends(**how):
    """What comes on a watch, and then its end."""
    return changing(lambda answer: [answer, pb.WatchResponse(
        header=answer.header, watch_id=answer.watch_id, canceled=True,
        **{name: value(answer) for name, value in how.items()})], "Watch")


def negative_and_nothing(answer):
    if answer.HasField("header"):
        answer.header.revision = -5
    for kind in (pb.Event.PUT, pb.Event.DELETE) if isinstance(answer, pb.WatchResponse) else ():
        answer.events.add(type=kind)
    return answer


def with_others(answer):
    """Events of keys that nobody asked for, of odd names, and deleted twice."""
    for key in (b"", b"/", b"lock/x/1", b"w/k/x", b"/tenure/other/nodes/h1", *(
            b"/tenure/default/" + key for key in (
                b"nodes/", b"nodes/\xff\xfe", b"nodes/a/b", b"nodes/" + b"n" * 5000, b"claims/",
                b"services/x", b"services/x/y/z/w", b"work/g/tasks/\xff",
                b"work/g/members/a/b"))):
        kv = pb.KeyValue(key=key, value=b"{}", mod_revision=answer.header.revision)
        answer.events.add(kv=kv)
        answer.events.add(type=pb.Event.DELETE, kv=kv)
    return answer


LOSE, CUT = Liar.lose, Liar.cut
ORDERS = "no\nMAINPID=1\nWATCHDOG=trigger\nSTOPPING=1\n"
LIES = {
    "answers without a header": (changing(without_header), LOSE),
    "the revision is 0": (in_header("revision", 0), LOSE),
    "a negative revision and events without a key": (changing(negative_and_nothing), LOSE),
    "the revision is as high as can be": (in_header("revision", HUGE), LOSE),
    "the revision goes back and forth": (in_header("revision", lambda answer: random.choice(
        [1, 2, answer.header.revision, answer.header.revision + 1000])), CUT),
    "every answer is of another cluster": (
        in_header("cluster_id", one_of(0xC0, 0xC1)),),
    "leases of 292 years and more": (
        changing(lasts_for_ever, "LeaseGrant", "LeaseKeepAlive", "LeaseTimeToLive"), LOSE),
    "renewals have a negative TTL": (saying("LeaseKeepAlive", TTL=-1, ttl_ms=-1),),
    "leases of a millisecond": (saying("LeaseGrant", TTL=0, ttl_ms=1), LOSE),
    "all is taken and nothing is answered": (changing(lambda answer: None),),
    "every answer comes twice": (changing(lambda answer: [answer, answer]),),
    "no answer can be read": (changing(lambda answer: os.urandom(random.randrange(1, 200))),),
    "every call and stream is refused": (
        refusing(lambda: random.choice(REASONS), "no \x1b[2J" + "x" * 500), LOSE),
    "refusals with orders to systemd": (
        refusing(lambda: random.choice(REASONS), ORDERS), LOSE),
    "a watch is canceled as it begins": (
        saying("Watch", canceled=True, cancel_reason="no"), LOSE, CUT),
    "events of other keys": (changing(with_others, "Watch"), LOSE),
    "what comes on a watch cannot be read": (
        changing(lambda answer: b"\xff\xff\xff\xff garbage", "Watch"), LOSE),
    "a watch begins and is compacted": (
        and_ends(compact_revision=lambda answer: answer.header.revision), LOSE, CUT),
}

# ---- bytes ----

HELLO = frame(h2.SETTINGS, 0, 0) + frame(h2.SETTINGS, h2.ACK, 0)
RESPONSE = frame(h2.HEADERS, h2.END_HEADERS, 1, b"\x88")  # 200
PUSH = 5

# What each connection begins with, what follows without end, and after which pauses.
BYTES = {
    "silence": (b"",),
    "http 1": (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789",),
    "a hello and silence": (HELLO,),
    "goodbye at once": (HELLO + frame(h2.GOAWAY, 0, 0, bytes(8)),),
    "a byte at a time": (b"", HELLO[:1], .01),
    "every stream reset": (HELLO, b"".join(
        frame(h2.RST, 0, n, struct.pack(">I", 7)) for n in range(1, 40, 2)), .01),
    "answers without an end": (HELLO, frame(h2.DATA, 0, 1, bytes(16000)), .001),
    "headers without an end": (HELLO + frame(h2.HEADERS, 0, 1, b"\x88"), 20 * frame(
        h2.CONTINUATION, 0, 1, h2.literal(b"name", b"\x7e" + b"v" * 253)), .001),
    "pings without an end": (HELLO, 50 * frame(h2.PING, 0, 0, bytes(8)), .001),
    "settings without an end": (HELLO, 50 * frame(h2.SETTINGS, 0, 0), .001),
    "empty frames without an end": (HELLO, 100 * frame(h2.DATA, 0, 1), .001),
    "no window": (h2.settings((4, 0)) + HELLO[9:],),
    "pushes": (HELLO, frame(PUSH, h2.END_HEADERS, 1, struct.pack(">I", 2) + b"\x82\x86\x84"), .01),
    "messages of 2 GiB": (
        HELLO + frame(h2.HEADERS, h2.END_HEADERS, 1, b"\x88\x5f\x10application/grpc"),
        frame(h2.DATA, 0, 1, b"\0\x7f\xff\xff\xff" + bytes(16000)), .001),
    "a compressed message": (HELLO + RESPONSE + frame(h2.DATA, 0, 1, b"\1\0\0\0\1x"),),
    "a status that is none": (HELLO + frame(
        h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 1, b"\x88" + h2.literal(b"grpc-status", b"-5")
        + h2.literal(b"grpc-message", b"%zz%")),),
    "a refusal that is no text": (HELLO + frame(
        h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 1, b"\x88" + h2.literal(b"grpc-status", b"14")
        + h2.literal(b"grpc-message", b"%0AMAINPID=1%0A%FF%C3")),),
}


def saying_bytes(first, more=b"", pause=0):
    def talk(connection):
        connection.sendall(first)
        while more:
            connection.sendall(more)
            time.sleep(pause)
        while connection.recv(1 << 16):
            pass
    return talk


TALKS = {"closed at once": lambda connection: None,
         "garbage": lambda connection: connection.sendall(os.urandom(1000)),
         **{name: saying_bytes(*how) for name, how in BYTES.items()}}


# ---- mixes ----

def mix(seed):
    """Changes of all kinds, each for a part of the answers. Which answers it meets is not drawn,
    since clients ask when they like."""
    r = random.Random(seed)
    share, kinds = r.random(), [r.randrange(12) for _ in range(4)]

    def lie(call):
        answer = call.ask()
        if r.random() > share:
            return answer
        kind, is_stream = r.choice(kinds), call.request is None
        if kind == 0 and is_stream:
            return None
        if kind == 1 and is_stream:
            return [answer] * r.randrange(5)
        if kind == 2:
            raise Refuse(r.choice(list(grpc.StatusCode)[1:]), "x" * r.randrange(300))
        if kind in (3, 4):
            return damaged(r, kind == 4, answer.SerializeToString())
        fields = answer.DESCRIPTOR.fields
        if kind < 8:
            answer.ClearField(r.choice(fields).name)
        elif kind < 10 and answer.HasField("header"):
            setattr(answer.header, r.choice(["cluster_id", "revision", "member_id"]), r.choice(
                [0, 1, r.randrange(1 << 62), max(answer.header.revision - 1, 1)]))
        else:
            for field in fields:
                if field.cpp_type == field.CPPTYPE_INT64 and r.random() < .5 and \
                        field.label != field.LABEL_REPEATED:
                    setattr(answer, field.name, r.choice(
                        [0, -1, 1, HUGE, LEAST, r.randrange(1 << 40)]))
        return answer

    return (lie, *(happens for happens in (LOSE, CUT) if r.random() < .5))


def damaged(r, is_cut_off, message):
    if is_cut_off or not message:
        return message[:r.randrange(len(message) + 1)]
    message = bytearray(message)
    for _ in range(r.randrange(1, 8)):
        message[r.randrange(len(message))] = r.randrange(256)
    return bytes(message)
