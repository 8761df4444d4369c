"""HTTP/2 by hand, for what no client library would send: frames as bytes, headers as literals
(RFC 9113, RFC 7541)."""
import select
import socket
import ssl
import struct
import time

DATA, HEADERS, PRIORITY, RST, SETTINGS = 0, 1, 2, 3, 4
PING, GOAWAY, WINDOW, CONTINUATION = 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK, PRIORITIZED = 1, 4, 1, 0x20
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, payload=b""):
    return (struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream)
            + payload)


def number(first, bits, n):  # RFC 7541, 5.1
    top = (1 << bits) - 1
    if n < top:
        return bytes([first | n])
    out, n = [first | top], n - top
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + [n])


def literal(name, value, first=0):  # 6.2: 0: never in the table; 0x40: into it. No Huffman
    return bytes([first]) + number(0, 7, len(name)) + name + number(0, 7, len(value)) + value


def headers(path, more=()):
    return b"".join(literal(n, v) for n, v in [
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x"),
        (b"content-type", b"application/grpc"), (b"te", b"trailers"), *more])


def message(body):
    return b"\0" + struct.pack(">I", len(body)) + body


def call(stream, path, body, end=True):
    """A unary call, whole; or the beginning of a stream."""
    return (frame(HEADERS, END_HEADERS, stream, headers(path)) +
            frame(DATA, END_STREAM if end else 0, stream, message(body)))


def settings(*pairs):
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", k, v) for k, v in pairs))


def connect(port, tls=None, host="127.0.0.1", source=None, receive=None, hello=settings(),
            preface=HELLO):
    """Says hello, or something else than HTTP/2 (@preface). @tls: an ssl context; @receive: how
    little the kernel keeps for us."""
    s = socket.socket()
    if receive:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    if source:
        s.bind((source, 0))
    s.settimeout(10)
    s.connect((host, port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls:
        s = tls.wrap_socket(s, server_hostname=host)
    s.sendall(preface + hello)
    return s


def tls_context(ca):
    c = ssl.create_default_context(cafile=ca)
    c.set_alpn_protocols(["h2"])
    return c


def frames(data):
    """(type, flags, stream, payload) of what is whole in @data, and the rest of it."""
    at, out = 0, []
    while at + 9 <= len(data):
        n = int.from_bytes(data[at:at + 3], "big")
        if at + 9 + n > len(data):
            break
        stream = int.from_bytes(data[at + 5:at + 9], "big") & 0x7fffffff
        out.append((data[at + 3], data[at + 4], stream, data[at + 9:at + 9 + n]))
        at += 9 + n
    return out, data[at:]


class Raw:
    """A client by hand, maybe at another address: a few streams, small messages."""

    def __init__(self, port, source=None):
        wide = settings((4, 0x7fffffff)) + frame(WINDOW, 0, 0, b"\x7f\0\0\0")
        self.s = connect(port, source=source, hello=wide)
        self.data, self.rest, self.got, self.last = b"", {}, {}, -1

    def begin(self, path, *bodies):
        self.last += 2
        self.s.sendall(frame(HEADERS, END_HEADERS, self.last, headers(path)))
        self.more(self.last, *bodies)
        return self.last

    def more(self, stream, *bodies):
        self.s.sendall(b"".join(frame(DATA, 0, stream, message(b)) for b in bodies))

    def answers(self, stream, n, timeout=20):
        """What came on @stream, once there are @n messages or @timeout is over."""
        end = time.monotonic() + timeout
        while len(self.got.get(stream, [])) < n and time.monotonic() < end:
            if not select.select([self.s], [], [], 0.2)[0]:
                continue
            new, self.data = frames(self.data + self.s.recv(1 << 20))
            for kind, flags, at, body in new:
                if kind == DATA:
                    b = self.rest.get(at, b"") + body
                    while len(b) >= 5 and len(b) >= 5 + int.from_bytes(b[1:5], "big"):
                        size = 5 + int.from_bytes(b[1:5], "big")
                        self.got.setdefault(at, []).append(b[5:size])
                        b = b[size:]
                    self.rest[at] = b
        return self.got.get(stream, [])
