"""Three real replicas, and what clients call of them: for tests that are run with --bin DIR --dir DIR --pb DIR
--ports P1,... (which are the test's to give out) [--tls CA,CERT,KEY].
"""
import argparse
import queue
import subprocess
import sys
import threading
import time

import grpc

ap = argparse.ArgumentParser()
for name in ("bin", "dir", "pb", "ports"):
    ap.add_argument("--" + name, required=True)
ap.add_argument("--tls")
args = ap.parse_args()
sys.path.insert(0, args.pb)
import rpc_pb2 as pb  # noqa: E402, F401: others have it from here

PORTS = args.ports.split(",")
TLS = args.tls.split(",") if args.tls else None
KV, LEASE, MAINTENANCE = "/etcdserverpb.KV/", "/etcdserverpb.Lease/", "/etcdserverpb.Maintenance/"
PASSED = FAILED = 0


def report(ok, what, why=""):
    global PASSED, FAILED
    PASSED, FAILED = PASSED + bool(ok), FAILED + (not ok)
    print(f"ok {what}" if ok else f"not ok {what}: {why}", flush=True)


def finish():
    print(f"{PASSED} passed, {FAILED} failed, 0 skipped")
    sys.exit(FAILED > 0)


def wait_for(what, seconds=20, who=""):
    """Until what() is true; returns what it said."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if said := what():
                return said
        except grpc.RpcError:
            pass
        time.sleep(.01)
    raise SystemExit(f"waited {seconds} s in vain{' for ' if who else ''}{who}")


class Replica:
    def __init__(self, i, client, peer, cluster, *options):
        self.i, self.client, self.options = i, client, options
        self.urls = ["--listen-client-urls", "http://127.0.0.1:" + client, "--listen-peer-urls", url(peer), "--initial-cluster", cluster]
        self.channel = grpc.insecure_channel("127.0.0.1:" + client, options=[("grpc.max_reconnect_backoff_ms", 200)])
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [f"{args.bin}/tenure-core", "--name", f"n{self.i}", "--data-dir", f"{args.dir}/n{self.i}", *self.urls, *self.options],
            stdout=open(f"{args.dir}/n{self.i}.log", "ab"), stderr=subprocess.STDOUT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def future(self, path, request, reply, timeout=10, connects=False):
        return self.channel.unary_unary(path, request_serializer=lambda m: m.SerializeToString(),
                                        response_deserializer=reply.FromString).future(request, timeout=timeout, wait_for_ready=connects)

    def call(self, path, request, reply, timeout=10, connects=False):
        """connects: waits until there is a connection. Without it Debian's grpc looks only after 10 s whether a replica that was gone
        is there again, however often one asks."""
        return self.future(path, request, reply, timeout, connects).result()

    def grant(self, ttl):
        return self.call(LEASE + "LeaseGrant", pb.LeaseGrantRequest(TTL=ttl), pb.LeaseGrantResponse).ID

    def ttl(self, lease, connects=False):
        return self.call(LEASE + "LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=lease), pb.LeaseTimeToLiveResponse, connects=connects)

    def put(self, key, value=b"v", lease=0):
        return self.call(KV + "Put", pb.PutRequest(key=key, value=value, lease=lease), pb.PutResponse)

    def count(self, key):
        return self.call(KV + "Range", pb.RangeRequest(key=key), pb.RangeResponse).count

    def below(self, prefix):
        """All keys that begin with it, without their values."""
        end = prefix[:-1] + bytes([prefix[-1] + 1])
        return self.call(KV + "Range", pb.RangeRequest(key=prefix, range_end=end, keys_only=True), pb.RangeResponse).kvs

    def revoke(self, lease):
        self.call(LEASE + "LeaseRevoke", pb.LeaseRevokeRequest(ID=lease), pb.LeaseRevokeResponse)

    def status(self):
        return self.call(MAINTENANCE + "Status", pb.StatusRequest(), pb.StatusResponse, 10)


def url(port):
    return f"{'https' if TLS else 'http'}://127.0.0.1:{port}"


def members(peers):
    return ",".join(f"n{i}={url(p)}" for i, p in enumerate(peers))


class KeepAlive:
    """One stream: answers are matched with requests by the lease."""

    def __init__(self, replica):
        self.requests, self.answers = queue.Queue(), queue.Queue()
        self.stream = replica.channel.stream_stream(
            LEASE + "LeaseKeepAlive", request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=pb.LeaseKeepAliveResponse.FromString)(iter(self.requests.get, None))
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            for m in self.stream:
                self.answers.put(m)
        except grpc.RpcError:
            pass

    def send(self, lease):
        self.requests.put(pb.LeaseKeepAliveRequest(ID=lease))

    def renew(self, lease):
        self.send(lease)
        return self.answers.get(timeout=10).TTL

    def end(self):
        self.requests.put(None)
        self.stream.cancel()


def until_they_answer(replicas):
    for r in replicas:
        wait_for(lambda: r.ttl(1, connects=True), 30, f"n{r.i}")


def leader(replicas, seconds=20):
    def leads(r):
        try:
            s = r.status()
            return s.leader and s.leader == s.header.member_id
        except grpc.RpcError:
            return False

    return wait_for(lambda: next(filter(leads, replicas), None), seconds, "a leader")
