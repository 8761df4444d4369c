#!/usr/bin/python3
"""A DNS server for one domain: usage: dns.py ADDRESS DOMAIN FILE. FILE has a line for each host that has a replica now, NAME ADDRESS;
a name may have several lines, and an address of
either family; it is read for every question. SRV _etcd-client._tcp.DOMAIN names them all, port 2379; A and AAAA NAME.DOMAIN have the addresses."""
import socket
import struct
import sys

ADDRESS, DOMAIN, FILE = sys.argv[1:]
SRV, A, AAAA = 33, 1, 28


def name(text):
    return b"".join(bytes([len(x)]) + x.encode() for x in text.split(".")) + b"\0"


def answers(question, kind):
    hosts = [line.split() for line in open(FILE) if line.strip()]
    if kind == SRV and question == "_etcd-client._tcp." + DOMAIN:
        return [struct.pack(">HHH", 0, 10, 2379) + name(f"{h}.{DOMAIN}") for h in sorted({h for h, _ in hosts})]
    if kind in (A, AAAA):
        family = socket.AF_INET if kind == A else socket.AF_INET6
        return [socket.inet_pton(family, a) for h, a in hosts if question == f"{h}.{DOMAIN}" and (":" in a) == (kind == AAAA)]
    return []


s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((ADDRESS, 53))
print("ready", flush=True)
while True:
    q, who = s.recvfrom(512)
    at, parts = 12, []
    while q[at]:
        parts.append(q[at + 1:at + 1 + q[at]].decode().lower())
        at += 1 + q[at]
    kind = struct.unpack(">H", q[at + 1:at + 3])[0]
    rr = answers(".".join(parts), kind)
    known = ".".join(parts).endswith(DOMAIN)
    head = q[:2] + struct.pack(">HHHHH", 0x8580 if rr or kind not in (SRV,) or not known else 0x8583, 1, len(rr), 0, 0)
    s.sendto(head + q[12:at + 5] + b"".join(b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 1, len(x)) + x for x in rr), who)
