#!/usr/bin/env python3
"""A client with a certificate that comes again: its TLS session is resumed, until the server's certificates are read again.

usage: resume.py PORT CA CERT KEY GO NEW-CA
Prints for TLS 1.2 and 1.3 what became of a session; when the file GO is there, what becomes of it then, on a server that
may show a certificate of NEW-CA.
"""
import os
import socket
import ssl
import sys
import time

port, ca, cert, key, go, new_ca = sys.argv[1:]


def context(version):
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    c.minimum_version = c.maximum_version = version
    c.check_hostname = False
    c.load_verify_locations(ca)
    c.load_cert_chain(cert, key)
    return c


def connect(c, session):
    """Returns what became of it, and the session that there is then."""
    try:
        with socket.create_connection(("127.0.0.1", int(port)), timeout=5) as raw, c.wrap_socket(raw, session=session) as s:
            # Whom the server takes for a client of HTTP/2 has its settings, and before them its tickets: only then TLS 1.3
            # has a session, and has accepted us.
            s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            if not s.recv(1):
                return "closed", None
            return "resumed" if s.session_reused else "new", s.session
    except OSError as e:
        return f"refused ({getattr(e, 'reason', None) or e})", None


kept = []
for name, version in (("1.2", ssl.TLSVersion.TLSv1_2), ("1.3", ssl.TLSVersion.TLSv1_3)):
    c = context(version)
    first, session = connect(c, None)
    second, again = connect(c, session)
    print(f"TLS {name}: {first}, {second}", flush=True)
    kept.append((name, c, session or again))
while not os.path.exists(go):
    time.sleep(0.05)
for name, c, session in kept:
    c.load_verify_locations(new_ca)
    print(f"then TLS {name}: {connect(c, session)[0]}", flush=True)
