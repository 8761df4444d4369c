"""Clients that mean harm, one kind after the other, against the leader of three replicas (or one alone), then against a
follower, each in turn, while honest ones renew a lease and write at each replica. Tells of each attack how late the latest renewal and write were answered,
whether the leader changed, and how large the replica grew; what depends on speed is measured without an attacker, too.

usage: hostile.py --bin DIR --dir DIR --pb DIR [--replicas 3] [--tls CA,CERT,KEY] [--seconds 4] [--quiet] [--report] [ATTACK...]
--quiet: this machine has nothing else to do: no answer may come 50 ms late. --report: numbers only, nothing fails.
"""
import argparse
import multiprocessing
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import grpc

from h2raw import GOAWAY, WINDOW, Raw, call, connect, frame, frames, settings, tls_context

ap = argparse.ArgumentParser()
ap.add_argument("--bin", required=True)
ap.add_argument("--dir", required=True)
ap.add_argument("--pb", required=True)
ap.add_argument("--replicas", type=int, default=3)
ap.add_argument("--tls")
ap.add_argument("--seconds", type=float, default=4)
ap.add_argument("--quiet", action="store_true")
ap.add_argument("--report", action="store_true")
ap.add_argument("--at-leader", action="store_true", help="attack no follower")
ap.add_argument("--memory", type=int, default=384, help="MiB that a replica may have")
ap.add_argument("--connections", type=int, default=500, help="of one address")
ap.add_argument("--unread", help="only the crowds that read nothing of what has this in its name")
ap.add_argument("attacks", nargs="*")
args = ap.parse_args()
sys.path.insert(0, args.pb)
import rpc_pb2 as pb  # noqa: E402
import attacks  # noqa: E402
import ports as reserved  # noqa: E402
import tls_raw  # noqa: E402
import unread  # noqa: E402

KV, LEASE, WATCH, AUTH, MAINTENANCE = (f"/etcdserverpb.{s}/" for s in ("KV", "Lease", "Watch", "Auth", "Maintenance"))
PASSED, FAILED = 0, 0
TLS = args.tls.split(",") if args.tls else None
SCHEME = "https" if TLS else "http"


def report(ok, what, why=""):
    global PASSED, FAILED
    PASSED, FAILED = PASSED + bool(ok), FAILED + (not ok)
    print(f"ok {what}" if ok else f"not ok {what}: {why}", flush=True)


def channel_to(port):
    return attacks.channel_to("127.0.0.1", port, TLS)


def die_with_parent():
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


# ---- the replicas ----

class Cluster:
    def __init__(self, n=args.replicas, name="n", more=()):
        self.n = n
        ports = reserved.reserve(2 * n, os.getpid())
        self.client, self.peer = ports[:n], ports[n:]
        peer = self.peer
        cluster = ",".join(f"{name}{i}=http://127.0.0.1:{p}" for i, p in enumerate(peer))
        self.process = []
        for i in range(n):
            cmd = [f"{args.bin}/tenure-core", "--name", f"{name}{i}", "--data-dir", f"{args.dir}/{name}{i}", "--initial-cluster", cluster,
                   "--listen-client-urls", f"{SCHEME}://127.0.0.1:{self.client[i]}", "--listen-peer-urls", f"http://127.0.0.1:{peer[i]}"]
            if "--max-connections" in subprocess.run([cmd[0], "--help"], capture_output=True, text=True).stdout:
                cmd += ["--max-connections-per-address", str(args.connections)]
            if TLS:
                cmd += ["--cert-file", TLS[1], "--key-file", TLS[2]]
            self.process.append(subprocess.Popen(cmd + list(more), stdout=open(f"{args.dir}/{name}{i}.log", "a"), stderr=subprocess.STDOUT,
                                                 preexec_fn=die_with_parent))

    def channel(self, i):
        return channel_to(self.client[i])

    def status(self, i, timeout=5):
        with self.channel(i) as c:
            return ask(c, MAINTENANCE + "Status", pb.StatusRequest(), pb.StatusResponse, timeout)

    def leader(self):
        end = time.monotonic() + 15
        while time.monotonic() < end:
            for i in range(self.n):
                try:
                    st = self.status(i, 1)
                    if st.leader and st.leader == st.header.member_id:
                        return i, st.header.raft_term
                except grpc.RpcError:
                    pass
            time.sleep(0.05)
        sys.exit("no leader after 15 s")

    def rss(self, i):
        try:
            with open(f"/proc/{self.process[i].pid}/status") as f:
                return next(int(line.split()[1]) // 1024 for line in f if line.startswith("VmRSS"))
        except (OSError, StopIteration):
            return -1

    def cpu(self, i):
        try:
            with open(f"/proc/{self.process[i].pid}/stat") as f:
                v = f.read().rsplit(")", 1)[1].split()
            return (int(v[11]) + int(v[12])) / os.sysconf("SC_CLK_TCK")
        except OSError:
            return 0

    def alive(self):
        return all(p.poll() is None for p in self.process)

    def stop(self):
        for p in self.process:
            p.send_signal(signal.SIGTERM)
        for p in self.process:
            try:
                p.wait(10)
            except subprocess.TimeoutExpired:
                p.kill()


def ask(channel, path, m, answer, timeout=5, **kw):
    return channel.unary_unary(path, request_serializer=lambda x: x.SerializeToString(), response_deserializer=answer.FromString)(
        m, timeout=timeout, **kw)


# ---- honest clients: in a process of their own, so that they measure the replica and not this program ----

class Honest:
    """Renews a lease and puts a key each 20 ms at every replica; how long each answer took goes into a pipe."""

    def __init__(self, cluster, token=None):
        self.ours, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("spawn").Process(target=be_honest, args=(cluster.client, token, theirs), daemon=True)
        self.process.start()
        if not self.ours.poll(30) or self.ours.recv() != "ready":
            sys.exit("the honest clients did not start")

    def take(self):
        self.ours.send("take")
        return self.ours.recv()

    def stop(self):
        self.process.kill()


class HonestProcess:
    def __init__(self, ports, token):
        self.ports, self.token = ports, token
        self.took = {"renewal": [0.0], "put": [0.0]}
        self.began, self.errors, self.lock = {}, [], threading.Lock()

    def run(self, pipe):
        die_with_parent()
        for i in range(len(self.ports)):
            threading.Thread(target=self.renew, args=(i,), daemon=True).start()
            threading.Thread(target=self.put, args=(i,), daemon=True).start()
        end = time.monotonic() + 20
        while len(self.began) < 2 * len(self.ports) and time.monotonic() < end:
            time.sleep(0.02)
        pipe.send("ready" if len(self.began) == 2 * len(self.ports) else self.errors)
        while pipe.recv() == "take":
            with self.lock:
                now = time.monotonic()
                for (what, _), at in self.began.items():  # one that waits still counts
                    self.took[what].append(now - at)
                pipe.send((self.took, self.errors))
                self.took, self.errors = {"renewal": [0.0], "put": [0.0]}, []


    def measure(self, what, i, call_):
        while True:
            with self.lock:
                self.began[what, i] = time.monotonic()
            try:
                call_()
            except Exception as e:  # noqa: BLE001: whatever it is, it is reported
                with self.lock:
                    self.errors.append(f"{what} at n{i}: {getattr(e, 'details', lambda: e)()}")
                time.sleep(0.1)
            with self.lock:
                now = time.monotonic()
                self.took[what].append(now - self.began[what, i])
                self.began[what, i] = now
            time.sleep(0.02)
            with self.lock:
                self.began[what, i] = time.monotonic()

    def meta(self):
        return [("token", self.token)] if self.token else None

    def renew(self, i):
        channel = channel_to(self.ports[i])
        lease = ask(channel, LEASE + "LeaseGrant", pb.LeaseGrantRequest(TTL=10), pb.LeaseGrantResponse, 15, metadata=self.meta()).ID
        go, box = threading.Semaphore(0), {}

        def requests():
            while True:
                go.acquire()
                yield pb.LeaseKeepAliveRequest(ID=lease)

        def once():
            if "stream" not in box:
                box["stream"] = channel.stream_stream(LEASE + "LeaseKeepAlive", request_serializer=lambda x: x.SerializeToString(),
                                                      response_deserializer=pb.LeaseKeepAliveResponse.FromString)(requests(), metadata=self.meta())
            go.release()
            try:
                ttl = next(box["stream"]).TTL
            except Exception:
                del box["stream"]
                raise
            if ttl <= 0:
                raise RuntimeError("the lease is gone")

        self.measure("renewal", i, once)

    def put(self, i):
        channel = channel_to(self.ports[i])
        self.measure("put", i, lambda: ask(channel, KV + "Put", pb.PutRequest(key=b"honest/%d" % i, value=b"v" * 100), pb.PutResponse, 15,
                                           metadata=self.meta()))


def be_honest(ports, token, pipe):
    HonestProcess(ports, token).run(pipe)


# ---- attacks: each in a process of its own, until it is ended ----

def run_attack(name, port, pipe):
    die_with_parent()
    pipe.send("ready")
    attacks.attack(name, "127.0.0.1", port, TLS, there=lambda: pipe.send("there"))


def start_attack(name, port):
    ours, theirs = multiprocessing.Pipe()
    attacker = multiprocessing.get_context("spawn").Process(target=run_attack, args=(name, port, theirs), daemon=True)
    attacker.start()
    ours.recv()
    return attacker, ours


def under(cluster, honest, name, seconds, at):
    """Runs one attack, at that replica; returns what the honest clients saw, and what the replica took."""
    attacker = None
    began, peak = time.monotonic(), 0
    if name:
        attacker, pipe = start_attack(name, cluster.client[at])
        began = time.monotonic()
    honest.take()
    cpu = cluster.cpu(at)
    there = name != "watches"
    end = began + (seconds if there else 180)
    while time.monotonic() < end:
        peak = max(peak, cluster.rss(at))
        if not there and pipe.poll():  # they are all made: and now what is written beside them
            there, end = True, time.monotonic() + seconds
        time.sleep(0.05)
    took, errors = honest.take()
    cpu = 100 * (cluster.cpu(at) - cpu) / (time.monotonic() - began)
    if attacker:
        attacker.kill()
        attacker.join()
    if not there:
        errors = [*errors, f"after {end - began:.0f} s it was not at its height"]
    return {k: max(v) * 1000 for k, v in took.items()}, {k: len(v) for k, v in took.items()}, errors, peak, cpu


def fill(cluster, leader):
    with cluster.channel(leader) as c:
        for i in range(16):
            ask(c, KV + "Put", pb.PutRequest(key=b"big/%d" % i, value=b"x" * 65536), pb.PutResponse)
        for i in range(99):
            ask(c, KV + "Txn", pb.TxnRequest(success=[pb.RequestOp(request_put=pb.PutRequest(key=b"many/%d/%d" % (i, j), value=b"%d" % (j * 7919 % 101)))
                                                      for j in range(100)]), pb.TxnResponse)


def enable_auth(cluster, leader):
    with cluster.channel(leader) as c:
        ask(c, AUTH + "UserAdd", pb.AuthUserAddRequest(name="root", password="r"), pb.AuthUserAddResponse)
        ask(c, AUTH + "RoleAdd", pb.AuthRoleAddRequest(name="root"), pb.AuthRoleAddResponse)
        ask(c, AUTH + "UserGrantRole", pb.AuthUserGrantRoleRequest(user="root", role="root"), pb.AuthUserGrantRoleResponse)
        ask(c, AUTH + "AuthEnable", pb.AuthEnableRequest(), pb.AuthEnableResponse)
        return log_in(c, 5)


def log_in(channel, timeout):
    return ask(channel, AUTH + "Authenticate", pb.AuthenticateRequest(name="root", password="r"), pb.AuthenticateResponse, timeout).token


def check_logins(cluster, leader):
    """While somebody guesses passwords without end, others log in."""
    attacker, _ = start_attack("logins", cluster.client[leader])
    worst, errors = 0.0, []
    time.sleep(0.5)  # its first guesses are on their way
    with cluster.channel(leader) as c:
        for _ in range(10):
            began = time.monotonic()
            try:
                log_in(c, 5)
            except grpc.RpcError as e:
                errors.append(e.details())
            worst = max(worst, time.monotonic() - began)
    attacker.kill()
    attacker.join()
    print(f"    10 logins beside it: the slowest {worst * 1000:.0f} ms, refused: {len(errors)}")
    if not args.report:
        report(not errors, "others log in while one guesses without end", errors[:1])


def check_fast(cluster, leader):
    """A client that is merely fast, and more so than we are: 20,000 renewals on one stream before it reads an answer."""
    n, got, why = 20000, 0, ""
    with cluster.channel(leader) as c:
        lease = ask(c, LEASE + "LeaseGrant", pb.LeaseGrantRequest(TTL=30), pb.LeaseGrantResponse).ID
        answers = c.stream_stream(LEASE + "LeaseKeepAlive", request_serializer=lambda x: x.SerializeToString(),
                                  response_deserializer=pb.LeaseKeepAliveResponse.FromString)(
            iter([pb.LeaseKeepAliveRequest(ID=lease)] * n), timeout=60)
        try:
            for a in answers:
                got += a.TTL == 30
        except grpc.RpcError as e:
            why = e.details()
    print(f"    {n} renewals at once: {got} answered {why}")
    if not args.report:
        report(got == n, "who renews fast is read more slowly, not refused", f"{got} of {n}: {why}")


def check_connections(cluster, leader):
    """More connections than one address may have: the last ones get ENHANCE_YOUR_CALM, where that reaches them; the first stay."""
    socks, calm, ended = [], 0, 0
    for _ in range(args.connections + 20):
        try:
            socks.append(connect(cluster.client[leader]))
        except OSError:
            ended += 1
    end = time.monotonic() + 10
    open_, got = set(socks), {s: b"" for s in socks}
    while ended < 20 and time.monotonic() < end:
        for s in select.select(list(open_), [], [], 0.1)[0]:
            try:
                data = s.recv(65536)
            except OSError:
                data = b""
            got[s] += data
            if not data:
                open_.discard(s)
                ended += 1
                calm += any(kind == GOAWAY and body[4:8] == b"\0\0\0\x0b" for kind, _, _, body in frames(got[s])[0])
    print(f"    {args.connections + 20} connections: {ended} ended, {calm} of them with ENHANCE_YOUR_CALM")
    for s in socks:
        s.close()
    if not args.report:
        report(ended >= 20 and calm > 0, "connections beyond the limit of an address are refused", f"{ended} were, {calm} with a reason")
        report(socks[0] in open_ and len(open_) > args.connections // 2, "those within it stay")


def keeps_all_it_can(port, pipe):
    """One address with all the watches and observers that it is given: of large keys, so that it does not take long."""
    die_with_parent()
    channel, created, refused, n = channel_to(port), 0, 0, 2200

    def requests():
        for i in range(n):
            yield pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"%06d" % i + b"x" * (256 << 10)))
        time.sleep(1000)  # a stream that ends is closed

    watches = channel.stream_stream(WATCH + "Watch", request_serializer=lambda x: x.SerializeToString(),
                                    response_deserializer=pb.WatchResponse.FromString)(requests())
    while created + refused < n:
        m = next(watches)
        created, refused = created + (not m.canceled), refused + m.canceled
    observers = [channel.unary_stream("/v3electionpb.Election/Observe", request_serializer=lambda x: x.SerializeToString(),
                                      response_deserializer=pb.LeaderResponse.FromString)(pb.LeaderRequest(name=b"%06d" % i + b"y" * (1400 << 10)))
                 for i in range(250)]
    end = time.monotonic() + 20
    while not all(o.done() for o in observers) and time.monotonic() < end:
        time.sleep(0.05)
    pipe.send((created, refused, sum(o.done() for o in observers)))
    time.sleep(1000)


def check_kept(cluster, leader):
    """One address keeps all the watches and observers it can: another one still gets what an honest client has, and the replica has a bound."""
    before, port = cluster.rss(leader), cluster.client[leader]
    ours, theirs = multiprocessing.Pipe()
    greedy = multiprocessing.get_context("spawn").Process(target=keeps_all_it_can, args=(port, theirs), daemon=True)
    greedy.start()
    answered = ours.recv() if ours.poll(60) else ()
    grown = cluster.rss(leader) - before
    print(f"    watches of one address that were made, and refused, and observers that were refused: {answered}; {grown} MiB for it")
    honest, n = Raw(port, "127.0.0.2"), 200000
    put = pb.PutRequest(key=b"election/1", value=b"first").SerializeToString()
    honest.answers(honest.begin(KV.encode() + b"Put", put), 1)
    seen = honest.answers(honest.begin(b"/v3electionpb.Election/Observe", pb.LeaderRequest(name=b"election").SerializeToString()), 1)
    stream = honest.begin(WATCH.encode() + b"Watch")
    for first in range(0, n, 1000):
        honest.more(stream, *(pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"mine/%d" % i)).SerializeToString()
                              for i in range(first, first + 1000)))
        honest.answers(stream, first + 1000 - 2000, 20)
    made = sum(not pb.WatchResponse.FromString(a).canceled for a in honest.answers(stream, n))
    both = cluster.rss(leader) - before
    print(f"    beside it, of another: {len(seen)} observer answered, {made} watches made; {both} MiB for both")
    honest.s.close()
    greedy.kill()
    greedy.join()
    end = time.monotonic() + 10
    while cluster.status(leader).client_bytes > 1 << 20 and time.monotonic() < end:
        time.sleep(0.05)
    left = cluster.status(leader).client_bytes
    if not args.report:
        report(answered and min(answered) > 0, "a client with too many watches or observers is refused", str(answered))
        report(len(seen) == 1 and made == n, f"another address has its observer, and {n} watches", f"{len(seen)}, {made}")
        report(grown <= args.memory // 2 and both <= args.memory, "what they keep has a bound", f"{grown} and {both} MiB")
        report(left <= 1 << 20, "and goes with them", f"{left} bytes")


def deaf(port, body, n):
    """Opens all windows, asks for @n ranges and reads nothing of them."""
    s = connect(port, tls_context(TLS[0]) if TLS else None, receive=4096, hello=settings((4, 0x7fffffff)) + frame(WINDOW, 0, 0, b"\x7f\0\0\0"))
    s.sendall(b"".join(call(1 + 2 * i, b"/etcdserverpb.KV/Range", body.SerializeToString()) for i in range(n)))
    return s


def check_who_waits(c):
    """200 who do not read ask for more than there may be held, and one who reads slowly. They may pause for as long as they like
    while there is room for the others."""
    slow = deaf(c.client[0], pb.RangeRequest(key=b"big/", range_end=b"big0"), 5)
    got, stop = [0], threading.Event()

    def read():
        while not stop.wait(0.02):
            try:
                n = len(slow.recv(1 << 14))
            except OSError:
                n = 0
            if n == 0:
                got[0] = -1
                return
            got[0] += n

    reader = threading.Thread(target=read)
    reader.start()
    while not got[0]:
        time.sleep(0.01)
    others = [deaf(c.client[0], pb.RangeRequest(key=b"big/%03d" % i), 2) for i in range(200)]
    took, right, held, end = 0, True, 0, time.monotonic() + 8
    with c.channel(0) as ch:
        while right and time.monotonic() < end:
            began = time.monotonic()
            kvs = ask(ch, KV + "Range", pb.RangeRequest(key=b"big/", range_end=b"big0", limit=16), pb.RangeResponse, 60).kvs
            took, right = max(took, time.monotonic() - began), sum(len(kv.value) for kv in kvs) == 4 << 20
            held = max(held, ask(ch, MAINTENANCE + "Status", pb.StatusRequest(), pb.StatusResponse).client_bytes)
            time.sleep(0.02)
    stop.set()
    reader.join()
    for s in [slow, *others]:
        s.close()
    print(f"    200 who do not read: {held >> 20} MiB held; one who reads slowly: {max(got[0], 0) >> 10} KiB so far; 4 MiB for "
          f"another one: {took:.2f} s")
    if not args.report:
        report(held <= 20 << 20, "who does not read has no more held for him than there may be", f"{held >> 20} MiB")
        report(right, "and takes no room from others")
        report(got[0] > 0, "who reads slowly goes on")


def check_large_answer():
    """An answer of four times what all clients may hold, to one who reads it, while others ask for as much and do not."""
    c = Cluster(1, "large", ["--max-client-bytes", str(16 << 20)])
    readers, why, got, took = [], "", 0, 0
    try:
        c.leader()
        with c.channel(0) as ch:
            for i in range(256):
                ask(ch, KV + "Put", pb.PutRequest(key=b"big/%03d" % i, value=b"x" * (1 << 18)), pb.PutResponse)
            body = pb.RangeRequest(key=b"big/", range_end=b"big0")
            base, stop = c.rss(0), threading.Event()
            for _ in range(40):
                readers.append(deaf(c.client[0], body, 50))
            peak = [0]

            def look():
                while not stop.wait(0.02):
                    peak[0] = max(peak[0], c.rss(0))

            watcher = threading.Thread(target=look)
            watcher.start()
            try:
                for _ in range(5):
                    began = time.monotonic()
                    got = sum(len(kv.value) for kv in ask(ch, KV + "Range", body, pb.RangeResponse, 60).kvs)
                    took = max(took, time.monotonic() - began)
                    if got != 64 << 20:
                        break
            except grpc.RpcError as e:
                got, why = 0, e.details()
            stop.set()
            watcher.join()
        for s in readers:
            s.close()
        check_who_waits(c)
    finally:
        c.stop()
    print(f"    64 MiB read beside 40 who ask for as much and do not read: {got >> 20} MiB {why}, the slowest {took:.1f} s; "
          f"{peak[0] - base} MiB more than before")
    if not args.report:
        report(got == 64 << 20, "who reads a large answer has it, whatever others hold", why)
        report(peak[0] - base <= args.memory // 2, "and it is not held for him", f"{peak[0] - base} MiB")


def check_renegotiation(cluster, leader):
    """Who asks for another handshake in TLS 1.2, a thousand times in one breath, is ended before any is answered."""
    got, end = 0, time.monotonic() + 10
    client = tls_raw.Client("127.0.0.1", cluster.client[leader])
    client.socket.sendall(b"".join(client.record(tls_raw.HANDSHAKE, b"\1\0\0\0") for _ in range(1000)))
    client.socket.settimeout(1)
    open_ = True
    while open_ and time.monotonic() < end:
        try:
            data = client.socket.recv(1 << 16)
            got, open_ = got + len(data), bool(data)
        except socket.timeout:
            pass
        except OSError:
            open_ = False
    client.close()
    print(f"    1000 times another handshake: {'open' if open_ else 'ended'}, {got} bytes came back")
    if not args.report:
        report(not open_ and got < 10000, "who asks for another handshake is ended", f"{got} bytes came back")


def check_strangers(cluster, leader):
    """Connections to the port of the replicas that say nothing: a few are kept, and the links of the replicas are."""
    socks = []
    for _ in range(300):
        socks.append(socket.create_connection(("127.0.0.1", cluster.peer[leader]), 10))
    ended, open_, end = 0, set(socks), time.monotonic() + 3
    while ended < 200 and time.monotonic() < end:
        for s in select.select(list(open_), [], [], 0.1)[0]:
            open_.discard(s)
            ended += 1
    for s in socks:
        s.close()
    print(f"    300 strangers at the port of the replicas: {ended} ended at once")
    if not args.report:
        report(ended >= 200, "strangers at the port of the replicas are few", f"{ended} of 300 were sent away")


def check_leaderless(cluster, leader):
    """Reads without end at a replica that has lost its leader: each is refused in its time, and they are no more than a bound."""
    at = (leader + 1) % args.replicas
    others = [p for i, p in enumerate(cluster.process) if i != at]
    with cluster.channel(at) as c:  # a replica that nobody has read from since its start has nothing to say without a leader
        ask(c, KV + "Range", pb.RangeRequest(key=b"many/0/0"), pb.RangeResponse)
    for p in others:
        p.send_signal(signal.SIGSTOP)
    attacker, _ = start_attack("reads", cluster.client[at])
    peak, worst, end = 0, 0.0, time.monotonic() + 6
    with cluster.channel(at) as c:
        while time.monotonic() < end:
            began = time.monotonic()
            ask(c, KV + "Range", pb.RangeRequest(key=b"many/0/0", serializable=True), pb.RangeResponse)
            worst, peak = max(worst, time.monotonic() - began), max(peak, cluster.rss(at))
            time.sleep(0.05)
    for p in others:
        p.send_signal(signal.SIGCONT)
    cluster.leader()
    began, why = time.monotonic(), ""
    with cluster.channel(at) as c:  # and those that pile up still stand behind nobody
        try:
            ask(c, KV + "Range", pb.RangeRequest(key=b"many/0/0"), pb.RangeResponse)
        except grpc.RpcError as e:
            why = e.details()
    took = time.monotonic() - began
    attacker.kill()
    attacker.join()
    print(f"    reads without a leader: {peak} MiB, a serializable one beside them {worst * 1000:.0f} ms, the first with a leader {took * 1000:.0f} ms {why}")
    if not args.report:
        report(peak <= args.memory, f"reads that wait for a leader: no more than {args.memory} MiB", f"{peak} MiB")
        report(worst < 2, "serializable ones are answered meanwhile", f"after {worst:.2f} s")
        report(not why and took < 10, "and all are once there is one", f"{why} after {took:.2f} s")


def follows(attack):
    """Whether it is tried at a follower, too. Watches take a while, and are the same at each; logins go on to the leader."""
    return args.replicas > 1 and not args.at_leader and attack not in ("watches", "logins")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    there_are = attacks.ALL + (attacks.COST_TLS if TLS else [])
    names = args.attacks or there_are
    unknown = [a for a in names if a not in there_are]
    if unknown:
        sys.exit(f"no such attack: {unknown}; there are: {' '.join(there_are)}")
    if args.unread is not None:
        unread.check(Cluster, Honest, ask, None if args.report else report, kinds=[k for k in unread.KINDS if args.unread in k])
        print(f"{PASSED} passed, {FAILED} failed, 0 skipped")
        return FAILED != 0
    cluster = Cluster()
    try:
        leader, term = cluster.leader()
        fill(cluster, leader)
        honest = Honest(cluster)
        quiet, _, errors, base, cpu = under(cluster, honest, None, args.seconds, leader)
        quiet = {k: max(v, 5) for k, v in quiet.items()}
        print(f"{'attack':34} {'renewal':>9} {'put':>9} {'MiB':>6} {'CPU %':>6}")
        print(f"{'none':34} {quiet['renewal']:7.1f}ms {quiet['put']:7.1f}ms {base:6} {cpu:6.0f}", flush=True)
        if not args.attacks:
            check_fast(cluster, leader)
            if not TLS:
                check_kept(cluster, leader)
            if TLS:
                check_renegotiation(cluster, leader)
            else:
                check_connections(cluster, leader)
            if args.replicas > 1:
                check_strangers(cluster, leader)
                honest.stop()  # who is without a leader for seconds is not served
                check_leaderless(cluster, leader)
                leader, term = cluster.leader()
                honest = Honest(cluster)
            check_large_answer()
            if not TLS:
                # A sanitizer takes memory and time of its own.
                sanitized = args.memory > ap.get_default("memory")
                unread.check(Cluster, Honest, ask, None if args.report else report, args.memory if sanitized else 256,
                             list(unread.KINDS)[1:4:2] if sanitized else list(unread.KINDS)[::1 if args.seconds >= 1 else 2],
                             min(unread.SECONDS, 4 * args.seconds), slow=4.0 if sanitized else 1.0)
        for n_attack, (name, at_leader) in enumerate((a, b) for a in names for b in (True, False) if b or follows(a)):
            if name == "logins":
                honest.stop()
                honest = Honest(cluster, enable_auth(cluster, leader))
            bound = max(500, 10 * quiet["renewal"])
            at, was = leader if at_leader else (leader + 1 + n_attack // 2 % (args.replicas - 1)) % args.replicas, term
            # Where a renewal takes long, some must have the time to be made.
            took, n, errors, peak, cpu = under(cluster, honest, name, max(args.seconds, min(3 * bound / 1000, 4)) if bound > 500 else args.seconds, at)
            figures = f"{took['renewal']:7.1f}ms {took['put']:7.1f}ms {peak:6} {cpu:6.0f}"
            if not cluster.alive():
                print(f"not ok {name}: a replica ended")
                return 1
            leader, term = cluster.leader()
            if not at_leader:
                name += ", a follower"
            print(f"{name:34} {figures}", flush=True)
            if args.report:
                if term != was or errors:
                    print(f"    term {was} -> {term}; errors: {len(errors)} {errors[:2]}")
            else:
                report(term == was, f"{name}: the leader stays", f"term {was} became {term}")
                report(not errors, f"{name}: honest clients see no error", errors[:2])
                report(n["renewal"] > 5, f"{name}: renewals go on", f"{n['renewal']} came")
                if args.quiet:
                    late = {k: took[k] - quiet[k] for k in took}
                    report(late["renewal"] <= 50, f"{name}: no renewal is late by more than 50 ms", f"{late['renewal']:.0f} ms")
                else:
                    report(took["renewal"] <= bound, f"{name}: no renewal takes longer than {bound:.0f} ms", f"{took['renewal']:.0f} ms")
                report(peak <= args.memory, f"{name}: no more than {args.memory} MiB", f"{peak} MiB")
            if name == "logins":
                check_logins(cluster, leader)
        honest.stop()
        st = cluster.status(leader)
        print(f"    the longest turn of the leader's loop, lately: {st.longest_turn_us / 1000:.1f} ms; {st.clients} connections, "
              f"{st.client_bytes} bytes held for them")
    finally:
        cluster.stop()
    if not args.report:
        print(f"{PASSED} passed, {FAILED} failed, 0 skipped")
    return FAILED != 0


if __name__ == "__main__":
    sys.exit(main())
