#!/usr/bin/env python3
"""A crowd in the core.

usage: crowd.py PORT nodes LETTER COUNT: puts that many nodes, LETTER00000 and so on, a hundred at once
       crowd.py PORT one-by-one LETTER COUNT
       crowd.py PORT services COUNT
       crowd.py PORT gone: all of them
"""
import sys

import etcd3

port, what, *args = sys.argv[1:]
core = etcd3.client(port=int(port))
RECORD = '{"id":"0123456789abcdef0123456789abcdef","incarnation":"%032d","ttl_ms":10000}'


def put(entries, at_once=100):
    for k in range(0, len(entries), at_once):
        core.transaction(compare=[], success=[core.transactions.put(*e) for e in entries[k:k + at_once]], failure=[])


def nodes(letter, count):
    return [("/tenure/default/nodes/%s%05d" % (letter, i), RECORD % i) for i in range(int(count))]


if what == "nodes":
    put(nodes(*args))
elif what == "one-by-one":
    put(nodes(*args), 1)
elif what == "services":
    put([("/tenure/default/services/crowd/m%05d" % i, '{"port":80}') for i in range(int(args[0]))])
else:
    for letter in "amn":
        core.delete_prefix("/tenure/default/nodes/" + letter)
    core.delete_prefix("/tenure/default/services/crowd/")
