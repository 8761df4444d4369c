#!/usr/bin/python3
"""A core that lies to a real agent: answers late, twice, wrong, or not at all, and is good again afterwards.

usage: liar.py --bin DIR --dir DIR --pb DIR [--random N] [--seed N] [CASE...]

Whatever it gets as an answer, the agent lives, believes in its place no longer than was said, is not busy with it, says so in a few
sentences, and holds a place again soon after the core is good. Cases by name; none: all, then N random ones.
"""
import argparse
import contextlib
import copy
import os
import random
import re
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from concurrent import futures

import grpc

ap = argparse.ArgumentParser()
ap.add_argument("--bin", required=True)
ap.add_argument("--dir", required=True)
ap.add_argument("--pb", required=True)
ap.add_argument("--random", type=int, default=10)
ap.add_argument("--seed", type=int, default=int(time.time()))
ap.add_argument("cases", nargs="*")
args = ap.parse_args()
sys.path.insert(0, args.pb)
import rpc_pb2 as pb  # noqa: E402

TTL = 2.0
BACK = 60  # s within which it holds again, on a busy machine
PREFIX = b"/tenure/default/"
PASSED = FAILED = 0


def report(ok, what, why=""):
    global PASSED, FAILED
    PASSED, FAILED = PASSED + ok, FAILED + (not ok)
    print(("ok " if ok else "not ok ") + what + ("" if ok else f"\n    {why}"), flush=True)


class Core:
    """As much of a core as an agent needs, in memory. lie(method, request, answer, core) may change each answer: returns what is
    sent, a list of answers, or None for silence; or raises Refuse."""

    def __init__(self):
        self.lock = threading.Condition()
        self.cluster, self.revision, self.next_lease = 0xC0, 1, 100
        self.keys, self.leases, self.events = {}, {}, []
        self.lie = None
        self.calls = {}
        self.opened = {"Watch": 0, "LeaseKeepAlive": 0}
        self.over = False
        self.tokens = None  # that are good: until when; None: nobody has to log in

    def header(self):
        return pb.ResponseHeader(cluster_id=self.cluster, member_id=1, revision=self.revision, raft_term=1)

    def put(self, key, value, lease=0):
        old = self.keys.get(key)
        kv = pb.KeyValue(key=key, value=value, lease=lease, mod_revision=self.revision,
                         create_revision=old.create_revision if old else self.revision, version=old.version + 1 if old else 1)
        self.keys[key] = kv
        self.events.append(pb.Event(type=pb.Event.PUT, kv=kv))

    def delete(self, key):
        if self.keys.pop(key, None):
            self.events.append(pb.Event(type=pb.Event.DELETE, kv=pb.KeyValue(key=key, mod_revision=self.revision)))

    def drop(self, lease):
        if self.leases.pop(lease, None):
            self.revision += 1
            for key in [k for k, v in self.keys.items() if v.lease == lease]:
                self.delete(key)

    def expire(self):
        with self.lock:
            for lease in [i for i, (ttl, at) in self.leases.items() if time.monotonic() > at + ttl]:
                self.drop(lease)
            self.lock.notify_all()

    def at(self, revision):
        """The keys as they were at @revision; 0: as they are."""
        if not 0 < revision < self.revision:
            return self.keys
        keys = {k: v for k, v in self.keys.items() if v.mod_revision <= revision}
        later = {e.kv.key for e in self.events if e.kv.mod_revision > revision}
        for e in self.events:
            if e.kv.key in later and e.kv.mod_revision <= revision:
                keys.pop(e.kv.key, None)
                if e.type == pb.Event.PUT:
                    keys[e.kv.key] = e.kv
        return keys

    def range(self, q):
        keys = self.at(q.revision)
        found = sorted(k for k in keys if k == q.key or q.range_end and q.key <= k < q.range_end)
        a = pb.RangeResponse(header=self.header(), count=len(found), more=bool(q.limit) and len(found) > q.limit)
        if not q.count_only:
            a.kvs.extend(keys[k] for k in (found[:q.limit] if q.limit else found))
        return a

    # ---- the methods

    def LeaseGrant(self, q):
        ttl = q.ttl_ms / 1000 or q.TTL
        self.next_lease += 1
        self.leases[self.next_lease] = (ttl, time.monotonic())
        return pb.LeaseGrantResponse(header=self.header(), ID=self.next_lease, TTL=int(ttl + .999), ttl_ms=int(ttl * 1000))

    def LeaseRevoke(self, q):
        self.drop(q.ID)
        return pb.LeaseRevokeResponse(header=self.header())

    def LeaseTimeToLive(self, q):
        ttl, at = self.leases.get(q.ID, (0, 0))
        left = int((at + ttl - time.monotonic()) * 1000) if ttl else -1000
        return pb.LeaseTimeToLiveResponse(header=self.header(), ID=q.ID, TTL=left // 1000, ttl_ms=left, grantedTTL=int(ttl), granted_ttl_ms=int(ttl * 1000))

    def LeaseKeepAlive(self, q):
        ttl = self.leases.get(q.ID, (0, 0))[0]
        if ttl:
            self.leases[q.ID] = (ttl, time.monotonic())
        return pb.LeaseKeepAliveResponse(header=self.header(), ID=q.ID, TTL=int(ttl + .999), ttl_ms=int(ttl * 1000))

    def Range(self, q):
        return self.range(q)

    def Put(self, q):
        self.revision += 1
        self.put(q.key, q.value, q.lease)
        return pb.PutResponse(header=self.header())

    def Txn(self, q):
        def is_so(c):
            kv = self.keys.get(c.key, pb.KeyValue())
            if c.target == pb.Compare.MOD:
                return kv.mod_revision == c.mod_revision
            return kv.lease == c.lease if c.target == pb.Compare.LEASE else kv.create_revision == c.create_revision
        yes = all(is_so(c) for c in q.compare)
        ops = q.success if yes else q.failure
        if any(o.HasField("request_put") and o.request_put.lease not in self.leases for o in ops):
            raise Refuse(grpc.StatusCode.NOT_FOUND, "etcdserver: requested lease not found")
        a = pb.TxnResponse(succeeded=yes)
        if any(not o.HasField("request_range") for o in ops):
            self.revision += 1
        for o in ops:
            r = a.responses.add()
            if o.HasField("request_put"):
                self.put(o.request_put.key, o.request_put.value, o.request_put.lease)
                r.response_put.SetInParent()
            elif o.HasField("request_delete_range"):
                self.delete(o.request_delete_range.key)
                r.response_delete_range.SetInParent()
            else:
                r.response_range.CopyFrom(self.range(o.request_range))
        a.header.CopyFrom(self.header())
        return a

    def Authenticate(self, q):
        token = f"{q.name}.{len(self.tokens)}"
        self.tokens[token] = time.monotonic() + self.token_s
        return pb.AuthenticateResponse(header=self.header(), token=token)

    # ---- and how they are called

    def check(self, method, context):
        if self.tokens is None or method == "Authenticate":
            return
        if self.tokens.get(dict(context.invocation_metadata()).get("token"), 0) < time.monotonic():
            raise Refuse(grpc.StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token")

    def answers(self, method, q, honest):
        """What goes to the client for @honest, as a list."""
        self.calls[method] = self.calls.get(method, 0) + 1
        lie = self.lie
        if not lie:
            return [honest]
        a = lie(method, q, copy.deepcopy(honest), self)
        return [] if a is None else a if isinstance(a, list) else [a]

    def unary(self, method, q, context):
        try:
            with self.lock:
                self.check(method, context)
                out = self.answers(method, q, getattr(self, method)(q))
                self.lock.notify_all()
            if out:
                return out[0]
            while not self.over and context.is_active():
                time.sleep(0.02)
            return b""
        except Refuse as e:
            context.abort(*e.args)

    def keep_alive(self, requests, context):
        self.opened["LeaseKeepAlive"] += 1
        number = self.opened["LeaseKeepAlive"]
        try:
            for q in requests:
                with self.lock:
                    self.check("LeaseKeepAlive", context)
                    self.stream = number
                    out = self.answers("LeaseKeepAlive", q, self.LeaseKeepAlive(q))
                yield from out
        except Refuse as e:
            context.abort(*e.args)

    def watch(self, requests, context):
        self.opened["Watch"] += 1
        first = next(requests)
        begin = first.create_request.start_revision
        closed = threading.Event()
        context.add_callback(closed.set)
        asked = [0]

        def read():
            try:
                for _ in requests:
                    asked[0] += 1
            except Exception:
                pass
        threading.Thread(target=read, daemon=True).start()
        try:
            with self.lock:
                self.check("Watch", context)
                yield from self.answers("Watch", first, pb.WatchResponse(header=self.header(), created=True))
                seen = 0
                while not closed.is_set() and not self.over:
                    fresh = [e for e in self.events[seen:] if e.kv.mod_revision >= begin]
                    seen = len(self.events)
                    if fresh:
                        yield from self.answers("Watch", first, pb.WatchResponse(header=self.header(), events=fresh))
                    elif asked[0]:
                        asked[0] -= 1
                        yield from self.answers("Watch", first, pb.WatchResponse(header=self.header()))
                    self.lock.wait(0.05)
        except Refuse as e:
            context.abort(*e.args)


class Refuse(Exception):
    pass


def encoded(m):
    return m if isinstance(m, bytes) else m.SerializeToString()


def serve(core, port=0):
    s = grpc.server(futures.ThreadPoolExecutor(64), options=[("grpc.so_reuseport", 0), ("grpc.max_send_message_length", -1)])
    for service, methods in {"Lease": ["LeaseGrant", "LeaseRevoke", "LeaseTimeToLive"], "KV": ["Range", "Put", "Txn"], "Auth": ["Authenticate"]}.items():
        h = {m: grpc.unary_unary_rpc_method_handler(lambda q, c, m=m: core.unary(m, q, c), getattr(pb, m + "Request").FromString, encoded)
             for m in methods}
        if service == "Lease":
            h["LeaseKeepAlive"] = grpc.stream_stream_rpc_method_handler(core.keep_alive, pb.LeaseKeepAliveRequest.FromString, encoded)
        s.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("etcdserverpb." + service, h),))
    s.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("etcdserverpb.Watch", {
        "Watch": grpc.stream_stream_rpc_method_handler(core.watch, pb.WatchRequest.FromString, encoded)}),))
    port = s.add_insecure_port(f"127.0.0.1:{port}")
    s.start()
    return s, port


class Wire:
    """Between an agent and a core: passes on what comes, or lies on the level below messages. lie(back) is called for each connection
    while there is one, instead of passing on: back(bytes) sends to the agent."""

    def __init__(self, to):
        self.to, self.lie, self.over, self.pairs = to, None, False, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.accepted = self.listener.getsockname()[1], 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.over:
            try:
                s = self.listener.accept()[0]
            except OSError:
                return
            self.accepted += 1
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(s, self.lie), daemon=True).start()

    def serve(self, s, lie):
        try:
            if lie:
                def back(data):
                    s.sendall(data)
                    if self.lie is not lie:
                        raise ConnectionError
                lie(back)
            else:
                with socket.create_connection(("127.0.0.1", self.to)) as core:
                    self.pairs.append((s, core))
                    threading.Thread(target=self.pump, args=(s, core), daemon=True).start()
                    self.pump(core, s)
        except OSError:
            pass
        finally:
            s.close()

    @staticmethod
    def pump(a, b):
        try:
            while data := a.recv(65536):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def begin(self, lie):
        self.lie = lie
        self.cut()

    def cut(self):
        for pair in self.pairs:
            for s in pair:
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)
        self.pairs = []


class Agent:
    def __init__(self, name, port, level, login=False, run=None, ttl=TTL):
        self.log, self.port = os.path.join(args.dir, f"{name}.log"), port
        env = dict(os.environ, DBUS_SYSTEM_BUS_ADDRESS="unix:path=/nonexistent/bus")
        env.pop("RUNTIME_DIRECTORY", None)
        if run:
            env["RUNTIME_DIRECTORY"] = run
        for k in ("NOTIFY_SOCKET", "STATE_DIRECTORY", "INVOCATION_ID", "JOURNAL_STREAM"):
            env.pop(k, None)
        if login:
            with open(os.path.join(args.dir, "password"), "w") as f:
                f.write("secret")
        more = ["--user", "u", "--password-file", os.path.join(args.dir, "password")] if login else []
        self.p = subprocess.Popen([f"{args.bin}/tenured", "--endpoints", f"http://127.0.0.1:{port}", "--node-name", "liar", "--node-id", "0" * 32,
                                   "--ttl", f"{int(ttl * 1000)}ms", "--services-path", args.dir, "--log-level", level] + more,
                                  stdout=open(self.log, "w"), stderr=subprocess.STDOUT, env=env)

    def text(self):
        return open(self.log, errors="replace").read()

    def lines(self):
        return len(self.text().splitlines())

    def holds(self):
        """By what it has said last."""
        said = re.findall(r"(holds its place|lost its place|Left\.)", self.text())
        return bool(said) and said[-1] == "holds its place"

    def cpu(self):
        f = open(f"/proc/{self.p.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(f[11]) + int(f[12])) / os.sysconf("SC_CLK_TCK")

    def rss(self):
        return int(open(f"/proc/{self.p.pid}/statm").read().split()[1]) * 4096

    def end(self):
        if self.p.poll() is None:
            self.p.terminate()
            try:
                self.p.wait(10)
            except subprocess.TimeoutExpired:
                self.p.kill()
                self.p.wait()
        return self.p.returncode


def until(seconds, what):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.02)
    return False


CASES = {}


def case(f):
    CASES[f.__name__] = f
    return f


def run(name, f, seconds=3.0, cpu=0.5, lines=40, calls=60, memory=256, level="info", login=False, run_full=False, ttl=TTL):
    """The core is good; then lies as f(core, agent) says, for so long; then is good again."""
    core = Core()
    server, port = serve(core)
    if login:
        core.tokens, core.token_s = {}, 1e9
    over = threading.Event()

    def ticks():
        while not over.wait(0.05):
            core.expire()
    threading.Thread(target=ticks, daemon=True).start()
    full = None
    if run_full:  # a place file that takes nothing
        full = os.path.join(args.dir, "full")
        os.makedirs(full, exist_ok=True)
        os.mknod(os.path.join(full, "place"), 0o600 | stat.S_IFCHR, os.makedev(1, 7))
    core.wire = Wire(port)
    agent = Agent(name, core.wire.port, level, login, full, ttl)
    try:
        if not until(BACK, agent.holds):
            return report(False, name, "it never held: " + agent.text()[-400:])
        said, busy, before, asked = agent.lines(), agent.cpu(), agent.rss(), sum(core.calls.values())
        why = f(core, agent)
        end = time.monotonic() + seconds
        while time.monotonic() < end and agent.p.poll() is None:
            time.sleep(0.05)
        if agent.p.poll() is None:
            busy, said = agent.cpu() - busy, agent.lines() - said
            if callable(why):
                why = why()
            if busy > cpu * seconds:
                why = why or f"it was busy for {busy:.1f} s of {seconds:.0f}"
            if said > lines:
                why = why or f"it said {said} lines"
            asked = sum(core.calls.values()) - asked
            if asked > calls * seconds:
                why = why or f"it asked {asked} times: {core.calls}"
            if agent.rss() - before > memory << 20:
                why = why or f"it took {(agent.rss() - before) >> 20} MiB"
        core.wire.begin(None)
        with core.lock:
            core.lie = None
            core.cluster = 0xC0
            core.token_s = 1e9
        if not why and agent.p.poll() is None:
            def back():
                key = core.keys.get(PREFIX + b"nodes/liar")
                return agent.p.poll() is not None or agent.holds() and key is not None and key.lease in core.leases
            stays = [0, 0.0]

            def for_good():  # what was said before may cost it one more
                n = agent.text().count("lost its place")
                if n != stays[0] or not back():
                    stays[:] = [n, time.monotonic()]
                return time.monotonic() > stays[1] + 1.5 * TTL
            if not until(BACK, for_good):
                why = "it is not back though the core is good: " + agent.text()[-300:]
        if agent.p.poll() is not None:
            why = f"it ended ({agent.p.returncode}): " + agent.text()[-600:]
        code = agent.end()
        if not why and code != 0:
            why = f"it exits with {code}: " + agent.text()[-600:]
        if not why and "runtime error" in agent.text():
            why = re.search(r".*runtime error.*", agent.text()).group(0)
        report(not why, f"{name}: {(f.__doc__ or '').strip()}", why)
    finally:
        agent.end()
        core.over = True
        over.set()
        core.wire.over = True
        core.wire.listener.close()
        core.wire.cut()
        server.stop(0)


def lies(agent_core, change, *methods):
    """change(answer, core) on the answers of those methods, of all if none."""
    def lie(method, q, a, core):
        return change(a, core) if not methods or method in methods else a
    with agent_core.lock:
        agent_core.lie = lie


def refusing(code, text):
    def change(a, core):
        raise Refuse(code, text)
    return change


def lose(core):
    """The place goes, so that the agent asks for another one."""
    with core.lock:
        for lease in list(core.leases):
            core.drop(lease)
        core.lock.notify_all()


def without_header(a, core):
    a.ClearField("header")
    return a


@case
def no_header(core, agent):
    """answers without a header"""
    lies(core, without_header)
    lose(core)


def other(field, value):
    def change(a, core):
        if a.HasField("header"):
            setattr(a.header, field, value)
        return a
    return change


@case
def revision_0(core, agent):
    """the revision is 0"""
    lies(core, other("revision", 0))
    lose(core)


@case
def revision_negative(core, agent):
    """the revision is negative, and events have no key"""
    def change(a, core):
        other("revision", -5)(a, core)
        if isinstance(a, pb.WatchResponse):
            a.events.add()
            a.events.add(type=pb.Event.DELETE)
        return a
    lies(core, change)
    lose(core)


@case
def revision_huge(core, agent):
    """the revision is as high as can be"""
    lies(core, other("revision", (1 << 63) - 1))
    lose(core)


@case
def revision_flaps(core, agent):
    """the revision goes back and forth"""
    lies(core, lambda a, core: other("revision", random.choice([1, 2, core.revision, core.revision + 1000]))(a, core))


@case
def cluster_flaps(core, agent):
    """every answer is of another cluster"""
    lies(core, lambda a, core: other("cluster_id", random.choice([0xC0, 0xC1]))(a, core))

    def why():
        n = agent.text().count("is void")
        return "" if n <= 2 else f"it said {n} times that a core is another one"
    return why


@case
def another_history(core, agent):
    """it has nothing of what there was at any revision"""
    def lie(method, q, a, core):
        if method == "Range" and q.revision > 0:
            del a.kvs[:]
            a.count = 0
        return a
    with core.lock:
        core.lie = lie
    core.wire.cut()


@case
def nothing_to_read(core, agent):
    """renewals go on, and every range and watch is refused"""
    core.wire.cut()
    lies(core, refusing(grpc.StatusCode.PERMISSION_DENIED, "etcdserver: permission denied"), "Range", "Watch")


def keep_alive_says(seconds, ms):
    def change(a, core):
        a.TTL, a.ttl_ms = seconds, ms
        return a
    return change


@case
def ttl_huge(core, agent):
    """leases of 292 years and more"""
    n = [0]

    def change(a, core):
        n[0] += 1
        a.TTL, a.ttl_ms = random.choice([((1 << 63) - 1, 0), (9223372037, 0), (0, (1 << 63) - 1), (0, 9223372036855), (-1, -1), (18446744074, 0)])
        return a
    lies(core, change, "LeaseGrant", "LeaseKeepAlive", "LeaseTimeToLive")
    lose(core)


@case
def ttl_negative(core, agent):
    """a renewal is answered with TTL -1"""
    lies(core, keep_alive_says(-1, -1), "LeaseKeepAlive")


@case
def ttl_lowered(core, agent):
    """renewals say 1 s of what was granted for 2 s, and then nothing"""
    n = agent.text().count("lost its place")
    state = {"at": 0.0}

    def lie(method, q, a, core):
        if method != "LeaseKeepAlive":
            return a
        if state["at"] and time.monotonic() - state["at"] > TTL / 2 - .2:
            return None
        state["at"] = state["at"] or time.monotonic()
        a.TTL, a.ttl_ms = 1, 1000
        state["last"] = time.monotonic()
        return a
    with core.lock:
        core.lie = lie
    if not until(10, lambda: agent.text().count("lost its place") > n):
        return "it never gave up"
    late = time.monotonic() - state["last"]
    if late > 1.4:
        return f"it believed for {late:.1f} s in what was renewed for 1 s"


@case
def ttl_tiny(core, agent):
    """a lease of a millisecond"""
    lies(core, keep_alive_says(0, 1), "LeaseGrant")
    lose(core)


@case
def lease_gone_at_once(core, agent):
    """whatever was granted is not there when the key is put on it"""
    lies(core, refusing(grpc.StatusCode.NOT_FOUND, "etcdserver: requested lease not found"), "Txn")
    lose(core)


@case
def key_deleted_at_once(core, agent):
    """somebody deletes our key whenever it is there"""
    def lie(method, q, a, core):
        if method == "Txn" and PREFIX + b"nodes/liar" in core.keys:
            core.revision += 1
            core.delete(PREFIX + b"nodes/liar")
        return a
    with core.lock:
        core.lie = lie
    lose(core)


@case
def stream_stuck(core, agent):
    """the stream of renewals is stuck, and another one would not be"""
    until(BACK, lambda: core.opened["LeaseKeepAlive"] > 0)
    stuck, n = core.opened["LeaseKeepAlive"], agent.text().count("lost its place")

    def lie(method, q, a, core):
        return None if method == "LeaseKeepAlive" and core.stream == stuck else a
    with core.lock:
        core.lie = lie
    return lambda: "it lost its place" if agent.text().count("lost its place") > n else None


@case
def watch_never_created(core, agent):
    """a watch is asked for and nothing comes"""
    n = core.opened["Watch"]
    lies(core, lambda a, core: None, "Watch")
    with core.lock:
        core.cluster = 0xC1  # so that it asks anew
    return lambda: None if until(12, lambda: core.opened["Watch"] > n + 1) else "it waits for it for ever"


@case
def many_nodes(core, agent):
    """a cluster of 20,000 nodes, some of which have large values, is read in pieces"""
    largest = [0]

    def lie(method, q, a, core):
        if method == "Range":
            largest[0] = max(largest[0], a.ByteSize())
        return a
    with core.lock:
        core.revision += 1
        for i in range(20000):
            core.keys[PREFIX + b"nodes/n%d" % i] = pb.KeyValue(key=PREFIX + b"nodes/n%d" % i, value=b'{"id":"%d"}' % i, mod_revision=core.revision, create_revision=core.revision)
        for i in range(100):
            core.keys[PREFIX + b"nodes/z%d" % i] = pb.KeyValue(key=PREFIX + b"nodes/z%d" % i, value=b"x" * (1 << 20), mod_revision=core.revision, create_revision=core.revision)
        core.lie = lie
        core.cluster = 0xC1
    return lambda: None if until(BACK, lambda: agent.text().count(" joined.") >= 20100) else f"it knows {agent.text().count(' joined.')}; {largest[0]} bytes"


@case
def silent(core, agent):
    """it takes everything and answers nothing"""
    lies(core, lambda a, core: None)


@case
def renewals_unheard(core, agent):
    """renewals are swallowed for many lives of the place, on a connection that is fine"""
    lies(core, lambda a, core: None, "LeaseKeepAlive")
    return lambda: None


@case
def twice(core, agent):
    """every answer comes twice"""
    def lie(method, q, a, core):
        return [a, a]
    with core.lock:
        core.lie = lie


@case
def late(core, agent):
    """every answer takes most of the TTL"""
    def lie(method, q, a, core):
        core.lock.release()
        try:
            time.sleep(TTL * .8)
        finally:
            core.lock.acquire()
        return a
    with core.lock:
        core.lie = lie


@case
def refused(core, agent):
    """every call and stream ends with an error"""
    def lie(method, q, a, core):
        raise Refuse(random.choice([grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED,
                                    grpc.StatusCode.INTERNAL, grpc.StatusCode.NOT_FOUND]), "no \x1b[2J" + "x" * 500)
    with core.lock:
        core.lie = lie
    lose(core)


@case
def revoke_refused(core, agent):
    """the first words of who leaves are refused, and it gives its place back all the same"""
    n = {"Txn": 0, "LeaseRevoke": 0}

    def lie(method, q, a, core):
        if method in n:
            n[method] += 1
            if n[method] == 1:
                raise Refuse(grpc.StatusCode.UNAVAILABLE, "not now")
        return a
    with core.lock:
        before = dict(core.leases)  # what the refused call did is undone: it was not done
        core.lie = lie
        core.LeaseRevoke = lambda q: pb.LeaseRevokeResponse(header=core.header()) if n["LeaseRevoke"] == 0 else Core.LeaseRevoke(core, q)
    agent.p.terminate()
    agent.p.wait(10)
    with core.lock:
        left = PREFIX + b"nodes/liar" in core.keys
    agent.__init__("revoke_refused", agent.port, "info")
    until(BACK, agent.holds)
    return "its key is still there, of " + str(before) if left else None


@case
def run_is_full(core, agent):
    """what is kept for a restart cannot be written"""
    n = agent.text().count("Cannot keep the place")
    return None if n == 1 else f"announced {n} times at once"


@case
def login_refused(core, agent):
    """the user is gone, and comes back"""
    lies(core, refusing(grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID or password"), "Authenticate")
    with core.lock:
        core.tokens.clear()


@case
def tokens_end(core, agent):
    """a login is good for half a second"""
    n = agent.text().count("lost its place")
    with core.lock:
        core.tokens.clear()
        core.token_s = .5
    return lambda: "it lost its place" if agent.text().count("lost its place") > n else None


@case
def watch_canceled(core, agent):
    """a watch is canceled as soon as it is asked for"""
    def change(a, core):
        a.canceled, a.cancel_reason = True, "no"
        return a
    lies(core, change, "Watch")
    lose(core)


@case
def watch_compacted(core, agent):
    """a watch is created, and canceled: compacted"""
    def lie(method, q, a, core):
        return [a, pb.WatchResponse(header=core.header(), canceled=True, compact_revision=core.revision)] if method == "Watch" else a
    with core.lock:
        core.lie = lie
    lose(core)


@case
def watch_garbage(core, agent):
    """what comes on a watch cannot be read"""
    lies(core, lambda a, core: b"\xff\xff\xff\xff garbage", "Watch")
    lose(core)


@case
def garbage(core, agent):
    """no answer can be read"""
    lies(core, lambda a, core: os.urandom(random.randrange(1, 200)))


@case
def events_of_others(core, agent):
    """events of keys that nobody asked for, of odd names, and deleted twice"""
    def change(a, core):
        for key in b"", b"/", b"/tenure/default/nodes/", b"/tenure/default/nodes/\xff\xfe", b"/tenure/default/nodes/a/b", b"/tenure/other/nodes/liar", \
                b"/tenure/default/services/x", b"/tenure/default/services/x/y/z/w", b"/tenure/default/claims/", PREFIX + b"nodes/" + b"n" * 5000:
            a.events.add(kv=pb.KeyValue(key=key, value=b"{}", mod_revision=core.revision + 1))
            a.events.add(type=pb.Event.DELETE, kv=pb.KeyValue(key=key, mod_revision=core.revision + 1))
        return a
    lies(core, change, "Watch")
    lose(core)


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


HEADERS, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = 1, 3, 4, 5, 6, 7, 8, 9
HELLO = frame(SETTINGS) + frame(SETTINGS, 1)


def on_wire(what, first, more=None, pause=0.0, cpu=.5, memory=256):
    """Bytes instead of a core: some, then more of them without end."""
    def lie(back):
        back(first() if callable(first) else first)
        while True:
            if more is not None:
                back(more() if callable(more) else more)
            if pause:
                time.sleep(pause)

    def f(core, agent):
        core.wire.begin(lie if more is not None or pause else lambda back: back(first() if callable(first) else first))
        return lambda: f"{core.wire.accepted} connections" if core.wire.accepted > 30 else None
    f.__doc__ = what
    CASES["wire_" + what.replace(" ", "_").replace(",", "")] = f
    OF_ITS_OWN["wire_" + what.replace(" ", "_").replace(",", "")] = {"cpu": cpu, "memory": memory}


OF_ITS_OWN = {"stream_stuck": {"ttl": 8.0, "seconds": 9.0}, "run_is_full": {"run_full": True, "lines": 2}, "login_refused": {"login": True, "lines": 6}, "tokens_end": {"login": True, "lines": 6},
              "nothing_to_read": {"seconds": 6.0, "calls": 5}, "renewals_unheard": {"seconds": 8 * TTL, "lines": 80}, "odd_records": {"lines": 80}, "many_nodes": {"lines": 50000, "memory": 768, "level": "debug", "cpu": 1}}

on_wire("closed at once", b"")
on_wire("silence", b"", pause=.05)
on_wire("garbage", lambda: os.urandom(1000))
on_wire("http 1", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789", pause=.05)
on_wire("a hello and silence", HELLO, pause=.05)
on_wire("goodbye at once", HELLO + frame(GOAWAY, payload=bytes(8)), pause=.05)
on_wire("a byte at a time", b"", HELLO[:1], pause=.01)
on_wire("every stream reset", HELLO, b"".join(frame(RST, 0, n, struct.pack(">I", 7)) for n in range(1, 40, 2)), pause=.01)
on_wire("answers without an end", HELLO, lambda: frame(0, 0, 1, bytes(16000)), pause=.001, cpu=1)
on_wire("headers without end", HELLO + frame(HEADERS, 0, 1, b"\x88"), frame(CONTINUATION, 0, 1, b"\x00\x04name\x7f\x81\x7e" + b"v" * 253) * 20, pause=.001, cpu=1)
on_wire("pings without end", HELLO, frame(PING, payload=bytes(8)) * 50, pause=.001, cpu=1)
on_wire("settings without end", HELLO, frame(SETTINGS) * 50, pause=.001, cpu=1)
on_wire("empty frames without end", HELLO, frame(0, 0, 1) * 100, pause=.001, cpu=1)
on_wire("no window", frame(SETTINGS, payload=struct.pack(">HI", 4, 0)) + frame(SETTINGS, 1), pause=.05)
on_wire("pushes", HELLO, frame(PUSH, 4, 1, struct.pack(">I", 2) + b"\x82\x86\x84"), pause=.01)
on_wire("messages of 2 GiB", HELLO + frame(HEADERS, 4, 1, b"\x88\x5f\x10application/grpc"), frame(0, 0, 1, b"\0\x7f\xff\xff\xff" + bytes(16000)), pause=.001, cpu=1)
on_wire("a compressed message", HELLO + frame(HEADERS, 4, 1, b"\x88") + frame(0, 0, 1, b"\1\0\0\0\1x"), pause=.05)
on_wire("a status that is none", HELLO + frame(HEADERS, 5, 1, b"\x88\x00\x0bgrpc-status\x02-5\x00\x0cgrpc-message\x04%zz%"), pause=.05)


ODD_VALUES = [b"", b"null", b"[", b"{" * 5000, b"[" * 100000, b'{"id":' * 2000, b'{"id":1,"tags":[1,{}],"addresses":{"a":1},"ttl_ms":"x"}',
              b'{"id":"\xff\xfe\xc0","since":"\\u0000\\ud800","degraded":"\xed\xa0\x80"}', b'{"ttl_ms":1e999}', b'{"ttl_ms":99999999999999999999}',
              b'{"tags":{"a":"' + b"x" * 100000 + b'"}}', b'{"leaving":"' + b"y" * 1000 + b'"}', b"x" * (2 << 20)]


@case
def odd_records(core, agent):
    """nodes and services whose records make no sense"""
    with core.lock:
        core.revision += 1
        for i, v in enumerate(ODD_VALUES):
            core.put(PREFIX + b"nodes/odd%d" % i, v)
            core.put(PREFIX + b"services/s%d/liar" % i, v)
            core.put(PREFIX + b"services/s/odd%d/i" % i, v)
        core.lock.notify_all()
    lies(core, lambda a, core: a)
    lose(core)


@case
def own_key_odd(core, agent):
    """our own key holds what nobody wrote, under another lease"""
    with core.lock:
        core.revision += 1
        core.leases[7] = (2, time.monotonic())
        core.put(PREFIX + b"nodes/liar", b"{" * 100, 7)
        core.lock.notify_all()


@case
def many_claims(core, agent):
    """somebody claims our place a thousand times, of a thousand boots"""
    with core.lock:
        for i in range(1000):
            core.revision += 1
            core.put(PREFIX + b"claims/liar", b'{"id":"x","boot_id":"%d"}' % i)
        core.lock.notify_all()


@case
def busy_values(core, agent):
    """a record that changes a thousand times a second"""
    over = time.monotonic() + 3

    def change():
        i = 0
        while time.monotonic() < over:
            with core.lock:
                for _ in range(50):
                    i += 1
                    core.revision += 1
                    core.put(PREFIX + b"nodes/busy", b'{"id":"x","ttl_ms":%d}' % i)
                core.events = core.events[-100000:]
                core.lock.notify_all()
            time.sleep(.05)
    threading.Thread(target=change, daemon=True).start()


def random_lies(r, core):
    """Changes of all kinds, each for a part of the answers."""
    share, what = r.random(), [r.randrange(12) for _ in range(4)]

    def lie(method, q, a, core):
        if r.random() > share:
            return a
        k = r.choice(what)
        if k == 0:
            return None if method in ("LeaseKeepAlive", "Watch") else a
        if k == 1 and method in ("LeaseKeepAlive", "Watch"):
            return [a] * r.randrange(5)
        if k == 2:
            raise Refuse(r.choice(list(grpc.StatusCode)[1:]), "x" * r.randrange(300))
        if k == 3:
            raw = bytearray(a.SerializeToString())
            for _ in range(r.randrange(1, 8)):
                if raw:
                    raw[r.randrange(len(raw))] = r.randrange(256)
            return bytes(raw)
        if k == 4:
            raw = a.SerializeToString()
            return raw[:r.randrange(len(raw) + 1)]
        fields = [f for f in a.DESCRIPTOR.fields]
        if k < 8 and fields:
            a.ClearField(r.choice(fields).name)
        elif k < 10 and a.HasField("header"):
            f = r.choice(["cluster_id", "revision", "member_id"])
            setattr(a.header, f, r.choice([0, 1, r.randrange(1 << 62), core.revision - 1 if core.revision > 1 else 1]))
        else:
            for f in fields:
                if f.cpp_type == f.CPPTYPE_INT64 and f.label != f.LABEL_REPEATED and r.random() < .5:
                    setattr(a, f.name, r.choice([0, -1, 1, (1 << 63) - 1, -(1 << 63), r.randrange(1 << 40)]))
        return a
    with core.lock:
        core.lie = lie


def main():
    for name in args.cases:
        if name not in CASES:
            sys.exit(f"liar.py: no case '{name}'; there are: {' '.join(CASES)}")
    with futures.ThreadPoolExecutor(4) as pool:  # most of them wait most of the time
        done = [pool.submit(run, name, CASES[name], **OF_ITS_OWN.get(name, {})) for name in args.cases or CASES]
        for seed in range(args.seed, args.seed + (0 if args.cases else args.random)):
            def lie(core, agent, seed=seed):
                r = random.Random(seed)
                random_lies(r, core)
                if r.random() < .5:
                    lose(core)
            lie.__doc__ = f"lies of seed {seed}"
            done.append(pool.submit(run, f"random{seed}", lie, lines=100, calls=200))
        for d in done:
            d.result()
    print(f"{PASSED} passed, {FAILED} failed")
    return FAILED > 0


sys.exit(main())
