#!/usr/bin/python3
"""Three replicas as real processes, each in a network namespace and on a small file system of its own, under faults.

usage: storm.py --bin DIR --dir DIR --pb DIR [--seconds N] [--seed N] [--only KIND,...] [--slow-sync LIB]
Wants a network and mount namespace of its own: unshare -nm --propagation private. Faults, drawn from the seed: links cut,
cut one way, lossy or slow; SIGSTOP; the freezer; kill -9 of one or of all; full disks; slow fsync. Hostile clients
attack one replica after the other (attacks.py), and honest ones write, read, compare and set, hold leases and locks, and
watch. history.py judges what they saw; then everything is healed and leases must end in time, watches have every event
once, and the replicas agree.
"""
import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback

import grpc

import channels
import history
from history import Event, Hold, Lease, Op

ap = argparse.ArgumentParser()
ap.add_argument("--bin", required=True)
ap.add_argument("--dir", required=True)
ap.add_argument("--pb", required=True)
ap.add_argument("--seconds", type=float, default=60)
ap.add_argument("--seed", type=int, default=int(time.time()))
ap.add_argument("--only", default="")
ap.add_argument("--slow-sync", help="a library whose fdatasync() sleeps for what $SLOW_SYNC says; not with sanitizers")
args = ap.parse_args()
sys.path.insert(0, args.pb)
import rpc_pb2 as pb  # noqa: E402
import attacks  # noqa: E402

HOSTILE, ATTACK = "10.99.0.251", 8  # seconds
N, TTL, CALM = 3, 2.0, 6.0
KEYS = [f"k{i}" for i in range(6)]
KV, LEASE = "/etcdserverpb.KV/", "/etcdserverpb.Lease/"
# Of I2: what no call got through for so long is an outage; so much more is excused for each, for those who try again; and so
# late may a lease end beyond that.
OUTAGE, RETRY, SLACK = .06, .15, .1
random_faults = random.Random(args.seed)
PASSED = FAILED = 0


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def report(ok, what, why=()):
    global PASSED, FAILED
    PASSED, FAILED = PASSED + bool(ok), FAILED + (not ok)
    print(f"{'ok' if ok else 'not ok'} {what}")
    for line in [] if ok else list(why)[:5]:
        print(f"    {line}")
    sys.stdout.flush()


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


# ---- the replicas ----

class Replica:
    def __init__(self, i):
        self.i, self.ns, self.ip = i, f"storm{os.getpid()}-{i}", f"10.99.0.{i + 1}"
        self.link, self.dir = f"storm{i}", f"{args.dir}/n{i}"
        self.freezer = f"/sys/fs/cgroup/freezer/{self.ns}"
        self.sync = f"{args.dir}/sync{i}"
        self.process, self.starts = None, 0
        run("ip", "netns", "add", self.ns)
        run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.ns)
        run("ip", "link", "set", self.link, "master", "br0", "up")
        run("ip", "-n", self.ns, "addr", "add", f"{self.ip}/24", "dev", "eth0")
        run("ip", "-n", self.ns, "link", "set", "eth0", "up")
        run("ip", "-n", self.ns, "link", "set", "lo", "up")
        os.makedirs(self.dir)
        run("mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", self.dir)
        open(self.sync, "w").close()
        if os.path.isdir("/sys/fs/cgroup/freezer"):
            os.makedirs(self.freezer, exist_ok=True)

    def start(self):
        cluster = ",".join(f"n{i}=http://10.99.0.{i + 1}:2380" for i in range(N))
        env = dict(os.environ)
        if args.slow_sync:
            env.update(LD_PRELOAD=args.slow_sync, SLOW_SYNC=self.sync)
        self.starts += 1
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", self.ns, f"{args.bin}/tenure-core", "--name", f"n{self.i}", "--data-dir", f"{self.dir}/data",
             "--listen-client-urls", f"http://{self.ip}:2379", "--listen-peer-urls", f"http://{self.ip}:2380",
             "--initial-cluster", cluster, "--allow-plaintext-peers", "--snapshot-count", "100"],
            stdout=open(f"{args.dir}/n{self.i}.log", "ab"), stderr=subprocess.STDOUT, env=env)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def freeze(self, state):
        with open(f"{self.freezer}/tasks", "w") as f:
            f.write(str(self.process.pid))
        with open(f"{self.freezer}/freezer.state", "w") as f:
            f.write(state)

    def slow(self, ms):
        with open(self.sync, "w") as f:
            f.write(str(ms))

    def end(self):
        if self.process and self.process.poll() is None:
            if os.path.isdir(self.freezer):
                self.freeze("THAWED")
            self.process.send_signal(signal.SIGCONT)
            self.kill()
        subprocess.run(["umount", self.dir])
        subprocess.run(["ip", "netns", "del", self.ns])
        if os.path.isdir(self.freezer):
            os.rmdir(self.freezer)


def set_up():
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "br0", "type", "bridge")
    run("ip", "addr", "add", "10.99.0.250/24", "dev", "br0")
    run("ip", "addr", "add", f"{HOSTILE}/24", "dev", "br0")
    run("ip", "link", "set", "br0", "up")
    run("nft", "add table bridge storm")
    for hook in ("input", "forward", "output"):
        run("nft", f"add chain bridge storm {hook} {{ type filter hook {hook} priority 0; }}")
    return [Replica(i) for i in range(N)]


def rules(*texts):
    for hook in ("input", "forward", "output"):
        run("nft", f"flush chain bridge storm {hook}")
    for t in texts:
        run("nft", f"add rule bridge storm {t}")


# ---- faults: each a pair, to cause and to heal ----

class Faults:
    def __init__(self, replicas):
        self.r, self.counts, self.ended, self.nets = replicas, {}, [], {}
        self.lock = threading.Lock()

    def network(self, key, *texts):
        """The rules of all faults of the network that are under way."""
        with self.lock:
            self.nets[key] = texts
            rules(*[t for texts in self.nets.values() for t in texts])

    def cut(self, r):
        link = f'"{r.link}"'
        return (lambda: self.network(("cut", r.i), f"input iifname {link} drop", f"forward iifname {link} drop",
                                     f"forward oifname {link} drop", f"output oifname {link} drop")), lambda: self.network(("cut", r.i))

    def cut_from_peers(self, r):
        link = f'"{r.link}"'
        return (lambda: self.network(("peers", r.i), f"forward iifname {link} drop", f"forward oifname {link} drop")), lambda: self.network(("peers", r.i))

    def one_way(self, r):
        link, hook = f'"{r.link}"', random_faults.choice(("iifname", "oifname"))
        return (lambda: self.network(("one way", r.i), f"forward {hook} {link} drop")), lambda: self.network(("one way", r.i))

    def lossy(self, r):
        link, lost = f'"{r.link}"', random_faults.choice((5, 20, 40))
        return (lambda: self.network(("lossy", r.i), f"forward iifname {link} numgen random mod 100 < {lost} drop",
                                     f"input iifname {link} numgen random mod 100 < {lost} drop")), lambda: self.network(("lossy", r.i))

    def slow_link(self, r):
        return (lambda: run("tc", "qdisc", "replace", "dev", r.link, "root", "tbf", "rate", "200kbit", "burst", "4kb", "latency", "400ms"),
                lambda: run("tc", "qdisc", "del", "dev", r.link, "root"))

    def stopped(self, r):
        return lambda: r.process.send_signal(signal.SIGSTOP), lambda: r.process.send_signal(signal.SIGCONT)

    def frozen(self, r):
        return lambda: r.freeze("FROZEN"), lambda: r.freeze("THAWED")

    def killed(self, r):
        return r.kill, r.start

    def all_killed(self, _):
        return lambda: [r.kill() for r in self.r if r.process.poll() is None], lambda: [r.start() for r in self.r if r.process.poll() is not None]

    def disk_full(self, r):
        def fill():
            with open(f"{r.dir}/fill", "wb", buffering=0) as f:
                for size in (1 << 16, 1 << 12):
                    try:
                        while f.write(bytes(size)) == size:
                            pass
                    except OSError:
                        pass

        def free():
            os.unlink(f"{r.dir}/fill")
        return fill, free

    def slow_disk(self, r):
        ms = random_faults.choice((50, 300, 1000))
        return lambda: r.slow(ms), lambda: r.slow(0)

    def kinds(self):
        kinds = [self.cut, self.cut_from_peers, self.one_way, self.lossy, self.slow_link, self.stopped, self.killed, self.killed, self.all_killed, self.disk_full]
        if os.path.isdir("/sys/fs/cgroup/freezer"):
            kinds.append(self.frozen)
        if args.slow_sync:
            kinds.append(self.slow_disk)
        return [k for k in kinds if not args.only or k.__name__ in args.only.split(",")]

    def storm(self, until):
        """One to three at a time, on replicas of their own; then a moment of peace, mostly."""
        kinds = self.kinds()
        while now() < until:
            some = random_faults.sample(self.r, random_faults.choice((1, 1, 1, 2, 2, 3)))
            under_way = []
            for r in some:
                kind = random_faults.choice(kinds)
                if kind == self.all_killed and len(some) > 1:
                    continue
                if r.process.poll() is not None:
                    continue
                cause, heal = kind(r)
                cause()
                under_way.append(heal)
                self.counts[kind.__name__] = self.counts.get(kind.__name__, 0) + 1
                time.sleep(random_faults.choice((0, 0, .1, .3)))
            time.sleep(random_faults.choice((.1, .5, 1, 1.5, 2.5)))
            random_faults.shuffle(under_way)
            for heal in under_way:
                heal()
                time.sleep(random_faults.choice((0, .05, .3)))
            for r in self.r:  # those that we ended were started again
                if r.process.poll() is not None:
                    self.ended.append(f"replica {r.i} ended with {r.process.returncode}: see {args.dir}/n{r.i}.log")
                    r.start()
            time.sleep(random_faults.choice((.1, .3, 1, 2)))


# ---- hostile clients ----

class Hostile:
    """One attack after the other, of an address of its own that may have its share and no more: on one replica, then on another."""

    def __init__(self, replicas):
        self.r, self.random, self.stop = replicas, random.Random(args.seed + 1), threading.Event()
        self.n, self.thread = 0, threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.stop.is_set():
            command = ["setpriv", "--pdeathsig", "KILL", "/usr/bin/python3", attacks.__file__, args.pb,
                       f"{self.random.choice(self.r).ip}:2379", HOSTILE, self.random.choice(attacks.MILD)]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=open(f"{args.dir}/attacks.log", "ab")) as p:
                self.stop.wait(ATTACK)
                p.kill()
            self.n += 1

    def end(self):
        self.stop.set()
        self.thread.join()


# ---- clients ----

class Client:
    """Calls any replica. Times are of CLOCK_BOOTTIME."""

    def __init__(self, replicas, seed):
        self.random = random.Random(seed)
        options = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.min_reconnect_backoff_ms", 300), ("grpc.max_reconnect_backoff_ms", 300)]
        self.channels = [channels.polled(f"{r.ip}:2379", options) for r in replicas]

    def call(self, path, request, reply, timeout=2.0, at=None):
        c = self.channels[at if at is not None else self.random.randrange(N)]
        f = c.unary_unary(path, request_serializer=lambda m: m.SerializeToString(), response_deserializer=reply.FromString)
        return f(request, timeout=timeout)

    def renew(self, lease, timeout=1.0):
        c = self.random.choice(self.channels)
        f = c.stream_stream(LEASE + "LeaseKeepAlive", request_serializer=lambda m: m.SerializeToString(),
                            response_deserializer=pb.LeaseKeepAliveResponse.FromString)
        for m in f(iter([pb.LeaseKeepAliveRequest(ID=lease)]), timeout=timeout):
            return m.TTL
        return None


class Storm:
    def __init__(self, replicas):
        self.r, self.ops, self.leases, self.holds, self.died = replicas, [], [], [], {}
        self.stop, self.calm = threading.Event(), threading.Event()
        self.threads, self.watchers = [], []

    def begin(self, fn, *a):
        t = threading.Thread(target=fn, args=a, daemon=True)
        t.start()
        self.threads.append(t)

    def writer(self, n):
        c = Client(self.r, f"{args.seed} writer {n}")
        count = 0
        while not self.stop.is_set():
            count += 1
            k, v, p = c.random.choice(KEYS), f"{n}.{count}", c.random.random()
            begin = now()
            op = Op("put", k, v, begin, 0, None)
            try:
                if p < .4:
                    op.revision = c.call(KV + "Put", pb.PutRequest(key=k.encode(), value=v.encode()), pb.PutResponse).header.revision
                    op.ok = True
                elif p < .7:
                    op.kind, op.value, op.ok = "get", None, False
                    m = c.call(KV + "Range", pb.RangeRequest(key=k.encode()), pb.RangeResponse)
                    op.ok, op.revision = True, m.header.revision
                    if m.kvs:
                        op.mod, op.value = m.kvs[0].mod_revision, m.kvs[0].value.decode()
                else:
                    op.kind = "cas"
                    m = c.call(KV + "Range", pb.RangeRequest(key=k.encode(), serializable=True), pb.RangeResponse)
                    expect = m.kvs[0].mod_revision if m.kvs else 0
                    begin = op.begin = now()
                    m = c.call(KV + "Txn", pb.TxnRequest(
                        compare=[pb.Compare(target=2, key=k.encode(), mod_revision=expect)],
                        success=[pb.RequestOp(request_put=pb.PutRequest(key=k.encode(), value=v.encode()))]), pb.TxnResponse)
                    op.ok, op.revision = (True, m.header.revision) if m.succeeded else (False, 0)
            except grpc.RpcError:
                pass
            op.end = now()
            self.ops.append(op)
            time.sleep(c.random.choice((0, .01, .05)))

    def grant(self, c):
        """A lease and when it was asked for; None when nobody answered."""
        sent = now()
        try:
            return c.call(LEASE + "LeaseGrant", pb.LeaseGrantRequest(TTL=int(TTL)), pb.LeaseGrantResponse).ID, sent
        except grpc.RpcError:
            return None, 0

    def holder(self, n):
        """Grants, hangs a key on it, renews for a while, and lets it die."""
        c = Client(self.r, f"{args.seed} holder {n}")
        count = 0
        while not self.stop.is_set():
            count += 1
            lease, sent = self.grant(c)
            if lease is None:
                time.sleep(.1)
                continue
            le = Lease(f"lease/{n}.{count}", TTL, sent, answered=now())
            try:
                c.call(KV + "Put", pb.PutRequest(key=le.key.encode(), lease=lease), pb.PutResponse)
            except grpc.RpcError:
                continue  # it may be there or not: not followed
            self.leases.append(le)
            until = now() + c.random.choice((0, 2, 5, 8))
            while now() < until and not self.calm.is_set():
                sent = now()
                try:
                    ttl = c.renew(lease)
                    if ttl:
                        le.renewed, le.late, le.answered, le.unknown = sent, sent, now(), False
                    elif ttl == 0:
                        le.reported_gone = now()
                        break
                except grpc.RpcError:
                    le.unknown = True
                time.sleep(c.random.choice((.05, .3, .9)))
            end = now() + 3 * TTL
            while le.key not in self.died and now() < end and not self.stop.is_set():
                time.sleep(.02)

    def locker(self, n):
        c = Client(self.r, f"{args.seed} locker {n}")
        while not self.stop.is_set() and not self.calm.is_set():
            lease, renewed = self.grant(c)
            if lease is None:
                continue
            over = threading.Event()

            def keep(le=lease, box=[renewed]):  # noqa: B006: one each
                while not over.wait(.3):
                    sent = now()
                    try:
                        if c.renew(le):
                            box[0] = sent
                        else:
                            return
                    except grpc.RpcError:
                        pass
            box = keep.__defaults__[1]
            threading.Thread(target=keep, daemon=True).start()
            try:
                key = c.call("/v3lockpb.Lock/Lock", pb.LockRequest(name=b"lock", lease=lease), pb.LockResponse, timeout=4).key
                begin = now()
                time.sleep(c.random.choice((0, .02, .1, .5)))
                end = min(now(), box[0] + TTL)
                if begin < end:  # else it came when the lease may have been over already
                    self.holds.append(Hold(f"{n}:{lease:x}", begin, end))
                c.call("/v3lockpb.Lock/Unlock", pb.UnlockRequest(key=key), pb.UnlockResponse)
            except grpc.RpcError:
                pass
            over.set()

    def watcher(self, n):
        """Everything from the beginning, on one replica after the other, resumed where it ended."""
        c = Client(self.r, f"{args.seed} watcher {n}")
        seen = []
        self.watchers.append(seen)
        while not self.stop.is_set():
            at = c.random.randrange(N)
            f = c.channels[at].stream_stream("/etcdserverpb.Watch/Watch", request_serializer=lambda m: m.SerializeToString(),
                                             response_deserializer=pb.WatchResponse.FromString)
            first = seen[-1].revision + 1 if seen else 2

            def ask():
                yield pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"\0", range_end=b"\0", start_revision=first))
                self.stop.wait(c.random.choice((3, 8)))  # then somewhere else
            try:
                for m in f(ask(), timeout=10):
                    for e in m.events:
                        seen.append(Event(e.kv.mod_revision, e.kv.key.decode(), e.kv.value.decode() if e.type == 0 else None))
                        if e.type == 1:
                            self.died.setdefault(e.kv.key.decode(), now())
            except grpc.RpcError:
                time.sleep(.05)


def whole_history(c, at, upto):
    """All events up to that revision, from one replica: leases go on to end while one after the other is asked."""
    f = c.channels[at].stream_stream("/etcdserverpb.Watch/Watch", request_serializer=lambda m: m.SerializeToString(),
                                     response_deserializer=pb.WatchResponse.FromString)
    end = threading.Event()

    def ask():
        yield pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"\0", range_end=b"\0", start_revision=2))
        end.wait(20)
    events = []
    for m in f(ask(), timeout=20):
        events += [Event(e.kv.mod_revision, e.kv.key.decode(), e.kv.value.decode() if e.type == 0 else None) for e in m.events]
        if events and events[-1].revision >= upto:
            end.set()
            break
    return [e for e in events if e.revision <= upto]


def wait_for(what, seconds=20):
    end = now() + seconds
    while now() < end:
        try:
            if what():
                return True
        except grpc.RpcError:
            pass
        time.sleep(.05)
    return False


def main():
    history.self_test()
    replicas = set_up()
    try:
        storm(replicas)
    finally:
        for r in replicas:
            r.end()
    print(f"{PASSED} passed, {FAILED} failed, 0 skipped")


def storm(replicas):
    for r in replicas:
        r.start()
    c = Client(replicas, 0)
    put = lambda: c.call(KV + "Put", pb.PutRequest(key=b"first", value=b"1"), pb.PutResponse)  # noqa: E731
    if not wait_for(lambda: all(c.call(KV + "Range", pb.RangeRequest(key=b"first"), pb.RangeResponse, at=i).header for i in range(N))):
        return report(False, "three replicas serve")
    put()
    s, faults, hostile = Storm(replicas), Faults(replicas), Hostile(replicas)
    for i in range(2):
        s.begin(s.watcher, i)
    for i in range(5):
        s.begin(s.writer, i)
    for i in range(4):
        s.begin(s.holder, i)
    for i in range(3):
        s.begin(s.locker, i)
    faults.storm(now() + args.seconds)
    hostile.end()
    # Everything is whole again: what has no holder must be gone in time.
    healed = now()
    s.calm.set()
    report(not faults.ended, "no replica ended by itself", faults.ended)
    report(wait_for(put, 15), f"a leader is there {now() - healed:.1f} s after the last fault")
    time.sleep(CALM)
    last = [le for le in s.leases if le.renewed > healed]
    s.stop.set()
    for t in s.threads:
        t.join(12)
    upto = put().header.revision
    histories = [whole_history(c, i, upto) for i in range(N)]
    report(histories[0] == histories[1] == histories[2], f"I4: the replicas tell one story of {len(histories[0])} events",
           [w for i in (1, 2) for w in history.check_watch(histories[i], histories[0])])
    events = histories[0]
    hashes = [c.call("/etcdserverpb.Maintenance/HashKV", pb.HashKVRequest(revision=upto), pb.HashKVResponse, at=i).hash for i in range(N)]
    report(len(set(hashes)) == 1, "I4: and have one hash", [str(hashes)])
    done = [o for o in s.ops if o.ok]
    wrong = history.check_ops(s.ops, [e for e in events if e.key in KEYS])
    report(not wrong and len(done) > args.seconds * 5,
           f"I5, I8: {len(s.ops)} calls, {len(done)} acknowledged, {sum(o.ok is None for o in s.ops)} nobody knows of, are linearizable", wrong)
    for i, seen in enumerate(s.watchers):
        upto_seen = seen[-1].revision if seen else 0
        wrong = history.check_watch(seen, [e for e in events if e.revision <= upto_seen])
        report(not wrong and upto_seen > upto - 50, f"I6: watcher {i} got all of {len(seen)} events once, in order", wrong)
    wrong = history.check_leases(s.leases, s.died)
    n_died = sum(le.key in s.died for le in s.leases)
    report(not wrong and n_died > 3, f"I1, I7: of {len(s.leases)} leases {n_died} died, none before its time", wrong)
    late = [(s.died.get(le.key, 1e9) - le.renewed - TTL, le.key) for le in s.leases
            if le.renewed < healed + CALM - TTL - 1]
    undead = [f"{k}: {'still there' if x > 1e6 else f'{x:.3f} s late'}" for x, k in late if x > args.seconds]
    report(not undead, "I2: none is left over", undead)
    wrong, beyond = history.check_undead(s.leases, s.died, s.ops, events, OUTAGE, RETRY, SLACK)
    report(not wrong and len(beyond) > 3,
           f"I2: of {len(beyond)} none outlived its time by more than {max(beyond, default=0):.3f} s, outages aside", wrong)
    calm = sorted(s.died[le.key] - le.renewed - TTL for le in last if le.key in s.died)
    print("   in the calm they died " + ", ".join(f"{x * 1000:.1f}" for x in calm) + " ms after their time")
    wrong = history.check_holds(s.holds)
    report(not wrong and len(s.holds) > 5, f"locks: {len(s.holds)} times held, by one at a time", wrong)
    for r in replicas:
        if subprocess.run(["grep", "-qE", "ERROR: AddressSanitizer|runtime error:|Assertion|core dumped", f"{args.dir}/n{r.i}.log"]).returncode == 0:
            report(False, f"replica {r.i} complained", [f"see {args.dir}/n{r.i}.log"])
    print(f"   seed {args.seed}, {args.seconds:.0f} s: " + ", ".join(f"{v} {k.replace('_', ' ')}" for k, v in sorted(faults.counts.items())) +
          f"; {hostile.n} attacks; {sum(r.starts for r in replicas)} starts")


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        FAILED += 1
    if FAILED:  # how late something may be is for a machine to say that was not crowded
        print(f"found by seed {args.seed}: run it again: {os.environ.get('AGAIN', 'storm.sh')} {args.seconds:.0f} {args.seed}", flush=True)
    channels.end(1 if FAILED else 0)
