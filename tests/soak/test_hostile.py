"""Clients that mean harm, beside honest ones. These judge time: run them alone, with -n 0."""
import math
import select
import socket
import statistics
import time

import pytest

from harness.h2 import DATA, END_STREAM, HEADERS, call, connect, frames
from harness.rpc import pb
from harness.waiting import eventually

from soak import attacks, tls_raw
from soak.attacks import BIG, RANGE, WIDE, received
from soak.bed import SLOW, Bed, Memory, certificate_of, port, processor

MEMORY = 384 if SLOW == 1 else 2048  # MiB that a replica may have
# Watches take a while, and are the same at each replica.
CASES = [(attack, *case) for attack in attacks.PLAIN for case in (
    ("leader", "plain"), ("follower", "plain"), ("leader", "tls"))
    if (attack, case[0]) != ("watches", "follower")]
CASES += [(attack, "leader", "tls") for attack in attacks.OF_TLS]
READ = pb.RangeRequest(key=b"many/0/0")
in_both = pytest.mark.parametrize("bed", ["plain", "tls"], indirect=True)


class Hostile(Bed):
    quiet = None

    def __init__(self, folder, ports, tls):
        super().__init__(folder, ports, 3, "--max-connections-per-address=500", tls=tls)
        self.put(*(b"big/%d" % i for i in range(16)), size=65536)
        self.core.put_all([(f"many/{i}/{j}", str(j * 7919 % 101))
                           for i in range(99) for j in range(100)])

    def measure(self, replica, seconds, attack=None):
        """What the honest clients see beside an attack, and a line that tells it."""
        memory, attacker = Memory(replica.pid), attack and self.attack(attack, replica)
        self.honest.take()
        began, spent = time.monotonic(), processor(replica.pid)
        time.sleep(seconds)
        seen = self.honest.take()
        spent = (processor(replica.pid) - spent) / (time.monotonic() - began)
        if attack:
            attacker.kill()
        told = [f"{kind} {max(seen[kind]) * 1000:.1f} ms" for kind in ("renewal", "put")]
        told += [f"{memory.most} MiB, {spent * 100:.0f} % of a processor"]
        return {**seen, "memory": memory.most, "told": ", ".join(told)}

    def judge(self, attack, replica, seconds, tell):
        if not self.quiet:
            self.quiet = self.measure(replica, 2)
            tell(f"without an attack: {self.quiet['told']}")
        term = self.status(replica).header.raft_term
        most = SLOW * max(.5, 10 * max(self.quiet["renewal"]))
        # Where a renewal takes long, some must have the time to be made.
        seen = self.measure(replica, max(seconds, min(3 * most, 4) if most > .5 else 0), attack)
        tell(seen["told"])
        assert self.status(replica).header.raft_term == term, "there is another leader"
        assert not seen["errors"] and len(seen["renewal"]) > 5 and max(seen["renewal"]) <= most
        assert seen["memory"] <= MEMORY


@pytest.fixture
def bed(request, shared, ports):
    """A core, without TLS or with it, on which all attacks are tried."""
    return shared(f"hostile-{request.param}", lambda folder: Hostile(
        folder, ports, request.param == "tls").be_honest())


@pytest.fixture(params=["plain", "tls"])
def own_bed(request, tmp_path, ports):
    return Hostile(tmp_path, ports, request.param == "tls")


@pytest.fixture
def share(seconds):
    """Of each attack."""
    return max(.5, seconds / len(CASES))


@pytest.mark.parametrize("attack, at, bed", CASES, indirect=["bed"])
def test_honest_clients_are_served_beside(bed, attack, at, share, tell):
    leader = bed.core.leader()
    others = [replica for replica in bed.core.running if replica is not leader]
    bed.judge(attack, leader if at == "leader" else others[len(attack) % 2], share, tell)


def test_others_log_in_while_one_guesses_passwords(own_bed, share, tell):
    leader = own_bed.core.leader()
    for name, request in (("UserAdd", pb.AuthUserAddRequest(name="root", password="r")),
                          ("RoleAdd", pb.AuthRoleAddRequest(name="root")),
                          ("UserGrantRole", pb.AuthUserGrantRoleRequest(user="root", role="root")),
                          ("AuthEnable", pb.AuthEnableRequest())):
        own_bed.call(f"etcdserverpb.Auth/{name}", request)

    def log_in():
        return own_bed.call("etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest(
            name="root", password="r"), leader).token

    own_bed.be_honest(token=log_in()).judge("logins", leader, share, tell)

    own_bed.attack("logins", leader)
    began = time.monotonic()
    for _ in range(10):
        log_in()
    tell(f"10 logins beside it took {time.monotonic() - began:.2f} s")


@in_both
def test_a_client_that_renews_fast_is_read_more_slowly_and_not_refused(bed):
    """A client that is merely fast: 20,000 renewals on one stream before it reads an answer."""
    with bed.core.rpc(bed.core.leader()) as rpc:
        lease = rpc.call("etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=30)).ID
        stream = rpc.stream("etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest)
        for _ in range(20000):
            stream.send(pb.LeaseKeepAliveRequest(ID=lease))
        assert {stream.next().TTL for _ in range(20000)} == {30}


@in_both
def test_strangers_at_the_port_of_the_replicas_are_few(bed, tell):
    address = "127.0.0.1", port(bed.core.leader().peer_url)
    open_ = {socket.create_connection(address, 10) for _ in range(300)}

    def most_are_gone():
        for s in select.select([*open_], [], [], 0)[0]:
            open_.discard(s)  # nothing is said to them
            s.close()
        return len(open_) <= 100

    eventually(most_are_gone, 3 * SLOW)
    for s in open_:
        s.close()


@pytest.mark.parametrize("bed", ["tls"], indirect=True)
def test_a_client_that_requests_another_handshake_is_disconnected(bed):
    client = tls_raw.ByHand(("127.0.0.1", port(bed.core.leader().client_url)),
                            certificate_of(bed.files))
    client.socket.sendall(client.handshakes(1000))
    assert sum(map(len, iter(lambda: received(client.socket), b""))) < 10000
    client.close()


def test_reads_that_wait_for_a_leader_have_a_bound(own_bed, tell):
    leader = own_bed.core.leader()
    alone, *others = sorted(own_bed.core.running, key=lambda replica: replica is leader)
    # A replica that nobody has read from since its start has nothing to say without a leader.
    own_bed.call("etcdserverpb.KV/Range", READ, alone)
    for replica in others:
        replica.freeze()
    attacker, memory, slowest = own_bed.attack("reads", alone), Memory(alone.pid), 0

    end = time.monotonic() + 6
    while (began := time.monotonic()) < end:
        own_bed.call("etcdserverpb.KV/Range", pb.RangeRequest(key=b"k", serializable=True), alone)
        slowest = max(slowest, time.monotonic() - began)
        time.sleep(.05)
    for replica in others:
        replica.thaw()
    own_bed.core.leader()
    began = time.monotonic()
    own_bed.call("etcdserverpb.KV/Range", READ, alone)  # those that pile up stand behind nobody
    took = time.monotonic() - began
    attacker.kill()

    tell(f"{memory.most} MiB, a serializable one {slowest * 1000:.0f} ms, the first with a leader "
         f"{took * 1000:.0f} ms")
    assert memory.most <= MEMORY and slowest < 2 and took < 10


# ---- answers that nobody reads ----

@pytest.fixture(params=["plain", "tls"])
def small(request, tmp_path, ports):
    """Holds 16 MiB for all clients, and has 64 MiB below big/."""
    bed = Bed(tmp_path, ports, 1, f"--max-client-bytes={16 << 20}", tls=request.param == "tls")
    bed.put(*(b"big/%03d" % i for i in range(256)), size=1 << 18)
    return bed


def deaf(bed, n, request=BIG):
    """Opens all windows, asks for @n ranges and reads nothing of them."""
    s = connect(port(bed.core.running[0].client_url),
                bed.files and attacks.tls_context(certificate_of(bed.files)), receive=4096,
                hello=WIDE)
    s.sendall(b"".join(call(1 + 2 * i, RANGE, request.SerializeToString()) for i in range(n)))
    return s


def read_big(bed, limit=0):
    """The size of what is below big/, and how long it takes to read it."""
    began = time.monotonic()
    kvs = bed.call("etcdserverpb.KV/Range", pb.RangeRequest(
        key=b"big/", range_end=b"big0", limit=limit)).kvs
    return sum(len(kv.value) for kv in kvs), time.monotonic() - began


def test_a_client_that_reads_a_large_answer_gets_it_whatever_others_hold(small, tell):
    memory = Memory(small.core.leader().pid)
    others = [deaf(small, 50) for _ in range(40)]

    sizes, took = zip(*[read_big(small) for _ in range(5)])

    tell(f"{memory.grown} MiB more than before, the slowest of 5 {max(took):.1f} s")
    assert {*sizes} == {64 << 20} and memory.grown <= MEMORY // 2
    for s in others:
        s.close()


def test_clients_that_do_not_read_take_no_room_from_others_and_slow_readers_continue(small, tell):
    slow, got, seen = deaf(small, 5), 0, []
    others = [deaf(small, 2, pb.RangeRequest(key=b"big/%03d" % i)) for i in range(200)]
    end = time.monotonic() + 8
    while time.monotonic() < end:
        got += len(slow.recv(1 << 14))
        size, took = read_big(small, 16)
        seen.append((small.status(None).client_bytes, took))
        assert size == 4 << 20

    held, took = map(max, zip(*seen))
    tell(f"{held >> 20} MiB held, {got >> 10} KiB read slowly, 4 MiB read in {took:.2f} s")
    assert held <= 20 << 20 and slow.recv(1 << 14)
    for s in slow, *others:
        s.close()


# ---- crowds of 1,000 connections that each ask for 1.4 MB and read nothing of it ----

# Seconds in which the slowest answer is there, on a machine that may be busy. At the crowd's
# address, where those who renew and put are, too, one shares its turns.
ELSEWHERE, BESIDE = 5, 25
# Seconds for a range without a crowd. Where that takes longer, so may all else, by the same factor.
QUICK, SLOWEST = .05, 10
SIZE = 1400 << 10
# Leases: what hangs on each, as (how many keys, of what length). The name of that of snapshots is
# held while what hangs on it is encoded.
ATTACHED = {"keys of a lease": (1, 250, 2000), "large keys of a lease": (2, 1, SIZE),
            "many keys of a lease": (3, 700, 2000), "snapshots": (4, 1, SIZE)}
TXN = attacks.TXN, pb.TxnRequest(success=[attacks.RANGE_ALL])


def fetch(at, source, path, request, most):
    """In how many seconds a whole answer comes, if not after @most. A refusal is no answer."""
    began, kinds, rest, data = time.monotonic(), set(), b"", b"x"
    try:
        with connect(at, source=source, hello=WIDE) as s:
            s.sendall(call(1, path, request.SerializeToString()))
            while data and time.monotonic() < began + most:
                s.settimeout(max(began + most - time.monotonic(), .01))
                data = s.recv(1 << 18)
                new, rest = frames(rest + data)
                kinds |= {(kind, kind == HEADERS and flags & END_STREAM) for kind, flags, *_ in new}
                if {(DATA, False), (HEADERS, END_STREAM)} <= kinds:
                    return time.monotonic() - began
    except OSError:
        pass
    return math.inf


@pytest.mark.parametrize("crowd", [*attacks.CROWDS] if SLOW == 1 else [
    "ranges of one key", "transactions"])
def test_honest_clients_are_served_beside_a_crowd_that_does_not_read(
        tmp_path, ports, crowd, share, tell):
    bed = Bed(tmp_path, ports, 1, "--max-connections-per-address=2000")
    bed.put(*(b"unread/%02d" % i for i in range(20)), size=SIZE // 20)
    bed.put(b"unread-one", b"unread-election/1", size=SIZE)
    lease, n, length = ATTACHED.get(crowd, (0, 0, 0))
    for i, name in [(lease, b"")] if lease else [(100 + i, b"%03d" % i + b"n" * 1000)
                                                 for i in range(600) if crowd == "leases"]:
        bed.call("etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest(ID=i, TTL=3600, name=name))
    bed.put(*(b"attached/%03d/" % i + b"k" * length for i in range(n)), size=0, lease=lease)
    replica = bed.be_honest().core.leader()
    at, memory = port(replica.client_url), Memory(replica.pid)
    alone = statistics.median(fetch(at, "127.0.0.2", RANGE, attacks.ALL, 20) for _ in range(5))
    slow = min(SLOWEST, max(SLOW, alone / QUICK))

    many = bed.attack(crowd, replica)
    asked = {"range": (ELSEWHERE, "127.0.0.2", RANGE, attacks.ALL),
             "transaction": (ELSEWHERE, "127.0.0.2", *TXN),
             "the same": (ELSEWHERE, "127.0.0.2", *attacks.CROWDS[crowd]),
             "range at its address": (BESIDE, "127.0.0.1", RANGE, attacks.ALL),
             "transaction at its address": (BESIDE, "127.0.0.1", *TXN)}
    took, end = dict.fromkeys(asked, 0), time.monotonic() + min(8, 4 * share)
    while time.monotonic() < end:
        for name, (most, *what) in asked.items():
            took[name] = max(took[name], fetch(at, *what, slow * most + 5))
    many.kill()
    seen = bed.honest.take()

    took |= {kind: max(seen[kind]) for kind in ("renewal", "put")}
    tell(f"{memory.grown} MiB, " + ", ".join(f"{name} {s:.2f} s" for name, s in took.items())
         + f", x {slow:.1f}")
    assert memory.grown <= (256 if SLOW == 1 else MEMORY)
    assert not seen["errors"]
    assert [name for name, s in took.items() if s > slow * asked.get(name, [ELSEWHERE])[0]] == []
