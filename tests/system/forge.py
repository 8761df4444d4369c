#!/usr/bin/env python3
"""Says to a replica's peer port that it is a member, with whatever certificate, and shows what became of it.

usage: forge.py ADDRESS PORT CLUSTER MEMBER [CA CERT KEY]      greets as that member, and sends a frame that is none
       forge.py ADDRESS PORT --join URL [CA CERT KEY]          asks which member has that URL
Prints "closed", "no port", "removed N" (that it is no member as of entry N), or the answer; whether the frame was looked at is
in the replica's log. CLUSTER and MEMBER are hexadecimal.
"""
import socket
import ssl
import struct
import sys

address, port = sys.argv[1], int(sys.argv[2])
join = sys.argv[3] == "--join"
files = sys.argv[5:]
try:
    s = socket.create_connection((address, port), timeout=10)
    if files:
        c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        c.check_hostname = False
        c.load_verify_locations(files[0])
        if len(files) > 1:
            c.load_cert_chain(files[1], files[2])
        s = c.wrap_socket(s)
    if join:
        url = sys.argv[4].encode()
        s.sendall(b"TENJOIN1" + struct.pack("<QQ", len(url), 0) + url)
        answer = b""
        while part := s.recv(4096):
            answer += part
        print("no answer" if len(answer) < 20 else "it is %016x" % struct.unpack("<IQQ", answer[:20])[2])
        sys.exit()
    s.sendall(b"TENPEER1" + struct.pack("<QQ", int(sys.argv[3], 16), int(sys.argv[4], 16)))
    # A ping of term 0, which is nobody's; then garbage: who hears us ends the link because of it, and says so.
    s.sendall(struct.pack("<IBQQ", 17, 2, 0, 0) + struct.pack("<IB", 1, 0))
    answer = b""
    while part := s.recv(4096):
        answer += part
        if len(answer) >= 13:
            break
    print("removed %d" % struct.unpack("<Q", answer[5:13]) if len(answer) >= 13 else "closed")
except ConnectionRefusedError:
    print("no port")
except (ssl.SSLError, OSError) as e:
    print(f"closed ({getattr(e, 'reason', None) or e})")
