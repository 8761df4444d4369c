"""D-Bus message by message, for what busctl cannot show: what is answered when, and to whom."""
import itertools
import os
import socket
import struct
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

CALL, RETURN, ERROR, SIGNAL = 1, 2, 3, 4
MAY_ASK_THE_USER = 4
BUS = "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus"
_FIXED = {"y": "B", "b": "I", "q": "H", "i": "i", "u": "I", "x": "q", "t": "Q", "h": "I"}
_FIELDS = {1: ("path", "o"), 2: ("interface", "s"), 3: ("member", "s"), 4: ("error", "s"),
           5: ("reply_to", "u"), 6: ("destination", "s"), 7: ("sender", "s"), 8: ("signature", "g")}


def _first(types):
    """The first complete type of a signature, and the rest."""
    if types[0] == "a":
        one, rest = _first(types[1:])
        return "a" + one, rest
    depth = 0
    for n, sign in enumerate(types):
        depth += (sign in "({") - (sign in ")}")
        if depth == 0:
            return types[:n + 1], types[n + 1:]


def _alignment(kind):
    return {"y": 1, "g": 1, "v": 1, "q": 2, "(": 8, "{": 8, "x": 8, "t": 8}.get(kind[0], 4)


def _write(data, types, values):
    for value in values:
        kind, types = _first(types)
        data += bytes(-len(data) % _alignment(kind))
        if kind[0] in _FIXED:
            data += struct.pack("<" + _FIXED[kind[0]], value)
        elif kind[0] in "sog":
            text = value.encode()
            data += struct.pack("<B" if kind == "g" else "<I", len(text)) + text + b"\0"
        elif kind[0] == "a":
            body = data + bytes(4)
            body += bytes(-len(body) % _alignment(kind[1:]))
            start = len(body)
            for each in value.items() if kind[1] == "{" else value:
                body = _write(body, kind[1:], [each])
            data = (body[:len(data)] + struct.pack("<I", len(body) - start)
                    + body[len(data) + 4:])
        elif kind[0] == "v":
            data = _write(_write(data, "g", [value[0]]), value[0], [value[1]])
        else:
            data = _write(data, kind[1:-1], value)
    return data


def _read(data, at, types):
    """The values of these types from there on, and where they end."""
    values = []
    while types:
        kind, types = _first(types)
        at += -at % _alignment(kind)
        if kind[0] in _FIXED:
            value, = struct.unpack_from("<" + _FIXED[kind[0]], data, at)
            at += struct.calcsize("<" + _FIXED[kind[0]])
        elif kind[0] in "sog":
            size, = struct.unpack_from("<B" if kind == "g" else "<I", data, at)
            at += 1 if kind == "g" else 4
            value, at = data[at:at + size].decode(), at + size + 1
        elif kind[0] == "a":
            size, = struct.unpack_from("<I", data, at)
            at += 4 + -(at + 4) % _alignment(kind[1:])
            value, end = [], at + size
            while at < end:
                one, at = _read(data, at, kind[1:])
                value += one
            value = dict(value) if kind[1] == "{" else value
        elif kind[0] == "v":
            (inner,), at = _read(data, at, "g")
            (value,), at = _read(data, at, inner)
        else:
            value, at = _read(data, at, kind[1:-1])
        values.append(value)
    return values, at


@dataclass
class Message:
    kind: int
    flags: int
    serial: int
    body: bytes
    fields: dict = field(default_factory=dict)

    def values(self):
        return _read(self.body, 0, self.fields.get("signature", ""))[0]


@contextmanager
def _effective(user):
    before = os.geteuid()
    os.seteuid(before if user is None else user)
    try:
        yield
    finally:
        os.seteuid(before)


class Connection:
    """@user: the id of whose connection it is, for root."""

    def __init__(self, bus, user=None):
        self._serials = itertools.count(1)
        self._socket = socket.socket(socket.AF_UNIX)
        with _effective(user):  # the bus asks the kernel for that of connect()
            self._socket.connect("\0" + bus.address.removeprefix("unix:abstract="))
            self._socket.sendall(b"\0AUTH EXTERNAL " + str(os.geteuid()).encode().hex().encode()
                                 + b"\r\n")
            self._in = self._socket.makefile("rb")
            assert self._in.readline().startswith(b"OK")
            self._socket.sendall(b"NEGOTIATE_UNIX_FD\r\n")
            assert self._in.readline().startswith(b"AGREE")
        self._socket.sendall(b"BEGIN\r\n")
        self.name, = self.call(*BUS, "Hello")

    def _send(self, kind, flags, fields, types="", *values):
        serial, body = next(self._serials), _write(b"", types, values)
        fields = [(code, (_FIELDS[code][1], given)) for code, given in fields.items() if given]
        if types:
            fields.append((8, ("g", types)))
        head = _write(b"", "yyyyuua(yv)", [ord("l"), kind, flags, 1, len(body), serial, fields])
        self._socket.sendall(head + bytes(-len(head) % 8) + body)
        return serial

    def send(self, to, path, interface, method, types="", *values, flags=0):
        """Returns the call's number, by which its answer is known."""
        return self._send(CALL, flags, {1: path, 2: interface, 3: method, 6: to}, types, *values)

    def answer(self, call, types, *values):
        self._send(RETURN, 0, {5: call.serial, 6: call.fields["sender"]}, types, *values)

    def receive(self):
        """The next message."""
        head = self._in.read(16)
        if len(head) < 16:
            raise EOFError
        kind, flags, size, serial, n_fields = struct.unpack("<xBBxIII", head)
        head += self._in.read(n_fields + -n_fields % 8)
        fields, _ = _read(head[:16 + n_fields], 12, "a(yv)")
        return Message(kind, flags, serial, self._in.read(size), {
            _FIELDS[code][0]: given for code, given in fields[0] if code in _FIELDS})

    def answers(self, serials):
        """Waits for the answers to these calls, and returns what has come with them, in order."""
        missing, came = set(serials), []
        while missing:
            came.append(self.receive())
            missing.discard(came[-1].fields.get("reply_to"))
        return came

    def call(self, *words, **options):
        """The values that the method returns, or a Refused."""
        *_, answer = self.answers([self.send(*words, **options)])
        if answer.kind == ERROR:
            raise Refused(answer)
        return answer.values()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._in.close()
        self._socket.close()


class Refused(Exception):
    def __init__(self, answer):
        super().__init__(f"{answer.fields['error']}: {answer.values()[0]}")


class Polkit:
    """Stands in for polkit: allows what concerns a service or a lock "allowed". .asked has
    (action, details, whether the user may be asked)."""

    def __init__(self, bus):
        self.asked, self._bus = [], Connection(bus)
        self._bus.call(*BUS, "RequestName", "su", "org.freedesktop.PolicyKit1", 0)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with suppress(EOFError, OSError):  # the bus has ended
            while True:
                call = self._bus.receive()
                if call.kind == CALL:
                    _, action, details, flags, _ = call.values()
                    self.asked.append((action.rpartition(".")[2], details, flags == 1))
                    may = "allowed" in (details.get("service"), details.get("lock"))
                    self._bus.answer(call, "(bba{ss})", (may, not may, {}))
