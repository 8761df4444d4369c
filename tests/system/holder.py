"""Holds a lease by a process of its own, so that nothing else that a test does delays a renewal."""
import select
import subprocess
import sys
import time

from h2raw import Raw

EVERY, TICK = 0.3, 0.05  # seconds between two renewals, and between two looks at the clock


class Holder:
    """From hold() to end() it renews a lease at @port. Then `lost` is how many renewals found it gone or had no answer, `slowest` how long
    the slowest took, and `stall` the longest that the process had to wait for a processor, in seconds."""

    def __init__(self, pb, port):
        self.process = subprocess.Popen([sys.executable, __file__, pb, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()  # now it is ready

    def hold(self, lease):
        print(lease, file=self.process.stdin, flush=True)

    def end(self):
        said = self.process.communicate(timeout=60)[0].split()
        self.lost, self.slowest, self.stall = int(said[0]), float(said[1]), float(said[2])


def main(pb, port):
    sys.path.insert(0, pb)
    from rpc_pb2 import LeaseKeepAliveRequest, LeaseKeepAliveResponse
    client = Raw(int(port))
    print("ready", flush=True)
    ask = LeaseKeepAliveRequest(ID=int(sys.stdin.readline())).SerializeToString()
    sent, lost, slowest, stall, over = 0, 0, 0.0, 0.0, False
    stream = client.begin(b"/etcdserverpb.Lease/LeaseKeepAlive")
    while not over:
        began = time.monotonic()
        client.more(stream, ask)
        sent += 1
        got = client.answers(stream, sent, 10)
        answered = time.monotonic()
        slowest = max(slowest, answered - began)
        lost += len(got) < sent or LeaseKeepAliveResponse.FromString(got[sent - 1]).TTL == 0
        while not over and time.monotonic() < answered + EVERY:
            rests = time.monotonic()
            over = bool(select.select([sys.stdin], [], [], TICK)[0])
            stall = max(stall, time.monotonic() - rests - TICK)
    print(lost, slowest, stall)


if __name__ == "__main__":
    main(*sys.argv[1:])
