"""Sends a gRPC request by hand: headers, a message that is announced longer than what comes, and silence. Tells what the server does.

usage: half_request.py PORT SECONDS
"""
import socket, struct, sys, time


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name, value):  # RFC 7541, 6.2.2: never in the table, no Huffman
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


headers = b"".join(literal(n, v) for n, v in [
    (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/etcdserverpb.KV/Put"), (b":authority", b"x"),
    (b"content-type", b"application/grpc"), (b"te", b"trailers")])
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 4, 1, headers) +
          frame(0, 0, 1, b"\0\0\0\0\x64" + b"only a part"))
end, got = time.monotonic() + float(sys.argv[2]), b""
while time.monotonic() < end:
    s.settimeout(max(0.1, end - time.monotonic()))
    try:
        more = s.recv(65536)
    except TimeoutError:
        break
    got += more
    at, ended = 0, not more
    while at + 9 <= len(got):
        n, kind, flags = int.from_bytes(got[at:at + 3], "big"), got[at + 3], got[at + 4]
        stream = int.from_bytes(got[at + 5:at + 9], "big")
        ended = ended or (stream == 1 and (kind == 3 or (kind == 1 and flags & 1)))
        at += 9 + n
    if ended:
        print("ended, with grpc-status" if b"grpc-status" in got else "ended")
        sys.exit(0)
print("still open")
sys.exit(1)
