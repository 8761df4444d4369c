#!/usr/bin/python3
"""A core that lies to a real agent: answers late, twice, wrong, or not at all, and is good again afterwards.

usage: liar.py --bin DIR --dir DIR --pb DIR [--random N] [--seed N] [CASE...]

Whatever it gets as an answer, the agent lives, believes in its place no longer than was said, is not busy with it, says so in a few
sentences, and holds a place again soon after the core is good. Cases by name; none: all, then N random ones.
"""
import argparse
import os
import random
import re
import stat
import subprocess
import sys
import time

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
from liar_core import ON_WIRE, Core, Refuse, keep_alive_says, lies, lose, other, refusing, until, without_header  # noqa: E402
from liar_stage import CASES, OF_ITS_OWN, Cost, Process, be_good, busily, case, main, report, skip, stage  # noqa: E402

TTL = 2.0
BACK = 60  # s within which it holds again, on a busy machine
PREFIX = b"/tenure/default/"


class Agent(Process):
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

    def lines(self):
        return len(self.text().splitlines())

    def holds(self):
        """By what it has said last."""
        said = re.findall(r"(holds its place|lost its place|Left\.)", self.text())
        return bool(said) and said[-1] == "holds its place"

    def end(self):
        return super().end(self.p.terminate, 10)


def run(name, f, seconds=3.0, cpu=0.5, lines=40, calls=60, memory=256, level="info", login=False, run_full=False, ttl=TTL):
    """The core is good; then lies as f(core, agent) says, for so long; then is good again."""
    full = None
    if run_full and os.geteuid() != 0:
        return skip(name, "only root can make a device that is always full")
    if run_full:  # a place file that takes nothing
        full = os.path.join(args.dir, "full")
        os.makedirs(full, exist_ok=True)
        os.mknod(os.path.join(full, "place"), 0o600 | stat.S_IFCHR, os.makedev(1, 7))
    with stage() as core:
        if login:
            core.tokens, core.token_s = {}, 1e9
        agent = Agent(name, core.wire.port, level, login, full, ttl)
        try:
            if not until(BACK, agent.holds):
                return report(False, name, "it never held: " + agent.text()[-400:])
            said, cost = agent.lines(), Cost(agent, core)
            why = f(core, agent)
            end = time.monotonic() + seconds
            while time.monotonic() < end and not agent.is_over():
                time.sleep(0.05)
            if not agent.is_over():
                said = agent.lines() - said
                much = cost.too_much(cpu, calls, memory)
                if callable(why):
                    why = why()
                why = why or much
                if said > lines:
                    why = why or f"it said {said} lines"
            core.wire.begin(None)
            be_good(core)
            if not why and not agent.is_over():
                def back():
                    key = core.keys.get(PREFIX + b"nodes/liar")
                    return agent.is_over() or agent.holds() and key is not None and key.lease in core.leases
                stays = [0, 0.0]

                def for_good():  # what was said before may cost it one more
                    n = agent.text().count("lost its place")
                    if n != stays[0] or not back():
                        stays[:] = [n, time.monotonic()]
                    return time.monotonic() > stays[1] + 1.5 * TTL
                if not until(BACK, for_good):
                    why = "it is not back though the core is good: " + agent.text()[-300:]
            if agent.is_over():
                why = f"it ended ({agent.p.returncode}): " + agent.text()[-600:]
            code = agent.end()
            if not why and code != 0:
                why = f"it exits with {code}: " + agent.text()[-600:]
            if not why and "runtime error" in agent.text():
                why = re.search(r".*runtime error.*", agent.text()).group(0)
            return report(not why, f"{name}: {(f.__doc__ or '').strip()}", why)
        finally:
            agent.end()


@case
def no_header(core, agent):
    """answers without a header"""
    lies(core, without_header)
    lose(core)


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
    """renewals say 2 s of what was granted for 10 s, and then nothing"""
    n = agent.text().count("lost its place")
    state = {"at": 0.0, "last": 0.0}

    def lie(method, q, a, core):
        if method != "LeaseKeepAlive":
            return a
        if state["at"] and time.monotonic() - state["at"] > TTL / 2 - .2:
            return None
        state["at"] = state["at"] or time.monotonic()
        a.TTL, a.ttl_ms = 2, 2000
        state["last"] = time.monotonic()
        return a
    with core.lock:
        core.lie = lie
    if not until(30, lambda: agent.text().count("lost its place") > n):
        return "it never gave up"
    late = time.monotonic() - state["last"]
    if late > 5:
        return f"it believed for {late:.1f} s in what was renewed for 2 s"


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
    """the stream of renewals is stuck, and another one would not be"""  # which it opens when an eighth of the TTL is left
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
    return lambda: None if until(2 * BACK, lambda: core.opened["Watch"] > n + 1) else "it waits for it for ever"


@case
def watch_of_the_future(core, agent):
    """a watch reports an event of a later revision than the core is at: what comes next is not taken for known"""
    def ahead(a, core):
        for e in a.events:
            e.kv.mod_revision += 5
        return a
    lies(core, ahead, "Watch")
    core.write(PREFIX + b"nodes/first", b'{"id":"1"}')
    if not until(BACK, lambda: "Node first joined" in agent.text()):  # as of then, or by reading everything again
        return "it does not see the first node"
    be_good(core)
    core.write(PREFIX + b"nodes/second", b'{"id":"2"}')
    if not until(BACK, lambda: "Node second joined" in agent.text()):
        return "it does not see the second node"


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
    return lambda: None if until(4 * BACK, lambda: agent.text().count(" joined.") >= 20100) else f"it knows {agent.text().count(' joined.')}; {largest[0]} bytes"


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


def leaves_refused(core, agent):
    """It leaves, and the first words are refused. Is its key still there; which leases were; had it no time to ask again."""
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
    began = time.monotonic()
    agent.p.terminate()
    agent.p.wait(10)
    took = time.monotonic() - began
    with core.lock:
        # It has a second for all that: a slow machine may take one for what was refused.
        return PREFIX + b"nodes/liar" in core.keys, before, n["LeaseRevoke"] < 2 and took >= 1


@case
def revoke_refused(core, agent):
    """the first words of who leaves are refused, and it gives its place back all the same"""
    for _ in range(3):
        left, before, late = leaves_refused(core, agent)
        agent.__init__("revoke_refused", agent.port, "info")
        until(BACK, agent.holds)
        if not (left and late):
            break
    return "its key is still there, of " + str(before) if left else None


@case
def run_is_full(core, agent):
    """what is kept for a restart cannot be written"""
    until(BACK, lambda: "Cannot keep the place" in agent.text())  # right after it has said that it holds its place
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
    """a login is good for three seconds, and a renewal comes each ten"""
    n = agent.text().count("lost its place")
    with core.lock:
        core.tokens.clear()
        core.token_s = 3
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
            a.events.add(kv=pb.KeyValue(key=key, value=b"{}", mod_revision=core.revision))
            a.events.add(type=pb.Event.DELETE, kv=pb.KeyValue(key=key, mod_revision=core.revision))
        return a
    lies(core, change, "Watch")
    lose(core)


OF_ITS_OWN.update({"ttl_lowered": {"ttl": 10.0}, "revoke_refused": {"ttl": 20.0}, "stream_stuck": {"ttl": 20.0, "seconds": 21.0}, "run_is_full": {"run_full": True, "lines": 6}, "login_refused": {"login": True, "lines": 6}, "tokens_end": {"login": True, "ttl": 20.0, "seconds": 21.0, "lines": 6},
                   "nothing_to_read": {"seconds": 6.0, "calls": 5}, "renewals_unheard": {"seconds": 8 * TTL, "lines": 80}, "odd_records": {"lines": 80}, "watch_of_the_future": {"lines": 400, "level": "debug"}, "many_nodes": {"lines": 50000, "memory": 768, "level": "debug", "cpu": 1}})
for name, (f, own) in ON_WIRE.items():
    CASES[name], OF_ITS_OWN[name] = f, own

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
    n = iter(range(1, 1 << 40))

    def change(core):
        for _ in range(50):
            core.revision += 1
            core.put(PREFIX + b"nodes/busy", b'{"id":"x","ttl_ms":%d}' % next(n))
        core.events = core.events[-100000:]
    busily(change)(core)


sys.exit(main(run, args, lines=100, calls=200))
