"""Honest clients: at each replica one that renews a lease and one that puts a key, each 20 ms. For
each line on standard input this process says how long the answers took since the last one: so it
measures the replicas, and not the test.

usage: python3 -m soak.honest '{"urls": ["http://..."], "files": null, "token": null}'
"""
import collections
import json
import sys
import threading
import time

from harness.rpc import Rpc, pb

from soak.bed import certificate_of

took, errors = {"renewal": collections.deque(), "put": collections.deque()}, collections.deque()
since, served = {}, set()  # since: of what waits for its answer


def renewals(rpc, _):
    lease = rpc.call("etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=10)).ID
    stream = rpc.stream("etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest)
    while True:
        stream.send(pb.LeaseKeepAliveRequest(ID=lease))
        if stream.next().TTL <= 0:
            raise RuntimeError("the lease is gone")
        yield


def puts(rpc, n):
    while True:
        yield rpc.call("etcdserverpb.KV/Put", pb.PutRequest(key=b"honest/%d" % n, value=b"v" * 100))


def measure(kind, begin, rpc, n):
    while True:
        calls = begin(rpc, n)
        try:
            while True:
                since[kind, n] = time.monotonic()
                next(calls)
                took[kind].append(time.monotonic() - since.pop((kind, n)))
                served.add((kind, n))
                time.sleep(0.02)
        except Exception as error:  # whatever it is, it is reported
            errors.append(f"{kind} at replica {n}: {error}")
            time.sleep(0.02)


def taken(seen):
    return [seen.popleft() for _ in range(len(seen))]


def main(urls, files, token):
    for n, url in enumerate(urls):
        rpc = Rpc(url, certificate=certificate_of(files), token=token)
        for kind, begin in ("renewal", renewals), ("put", puts):
            threading.Thread(target=measure, args=(kind, begin, rpc, n), daemon=True).start()
    while len(served) < 2 * len(urls):
        time.sleep(0.02)
    for _ in sys.stdin:
        seen = {kind: taken(took[kind]) for kind in took}
        for (kind, _), began in [*since.items()]:  # what waits counts, too
            seen[kind].append(time.monotonic() - began)
        print(json.dumps({**seen, "errors": taken(errors)}), flush=True)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
