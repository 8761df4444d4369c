"""Holds a lease by a process of its own, so that nothing else that a test does delays a renewal."""
import select
import subprocess
import sys
import time

from h2raw import Raw

EVERY = 0.3  # seconds between two renewals


class Holder:
    """From hold() to end() it renews a lease at @port. Then `lost` is how many renewals found it gone or had no answer, and `slowest` how
    long the slowest took, in seconds."""

    def __init__(self, pb, port):
        self.process = subprocess.Popen([sys.executable, __file__, pb, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()  # now it is ready

    def hold(self, lease):
        print(lease, file=self.process.stdin, flush=True)

    def end(self):
        said = self.process.communicate(timeout=60)[0].split()
        self.lost, self.slowest = int(said[0]), float(said[1])


def main(pb, port):
    sys.path.insert(0, pb)
    from rpc_pb2 import LeaseKeepAliveRequest, LeaseKeepAliveResponse
    client = Raw(int(port))
    print("ready", flush=True)
    ask = LeaseKeepAliveRequest(ID=int(sys.stdin.readline())).SerializeToString()
    sent, lost, slowest = 0, 0, 0.0
    stream = client.begin(b"/etcdserverpb.Lease/LeaseKeepAlive")
    while True:
        began = time.monotonic()
        client.more(stream, ask)
        sent += 1
        got = client.answers(stream, sent, 10)
        slowest = max(slowest, time.monotonic() - began)
        lost += len(got) < sent or LeaseKeepAliveResponse.FromString(got[sent - 1]).TTL == 0
        if select.select([sys.stdin], [], [], EVERY)[0]:  # nobody wants it any more
            break
    print(lost, slowest)


if __name__ == "__main__":
    main(*sys.argv[1:])
