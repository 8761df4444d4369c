"""The majority of a core is lost, and survivors are forced to continue alone: each is another
core, which names its ancestor. Agents follow one; a core that hears of another one stops."""
import json
import re
import urllib.error
import urllib.request

from harness.places import BIN
from harness.program import run
from harness.rpc import Refused, pb
from harness.waiting import eventually


def force(*survivors):
    """Kill all replicas before. Returns the ids of the new cores."""
    ids = []
    for replica in survivors:
        replica.command.append("--force-new-cluster")
        assert replica.start().wait() == 0
        replica.command.pop()
        ids.append(re.search(r"of the new cluster ([0-9a-f]{16}) now", replica.log_text())[1])
        replica.start()
    return ids


def lose(cluster):
    for replica in cluster.replicas.values():
        replica.kill()


def refusal(cluster, replica, metadata=()):
    """With which sentence it refuses to read; None if it does not."""
    with cluster.rpc(at=replica) as rpc:
        try:
            next(rpc.answers("etcdserverpb.KV/Range", pb.RangeRequest(key=b"k"), metadata))
        except Refused as error:
            return str(error)
    return None


def has_stopped(cluster, replica, metadata=()):
    return "has stopped: another core" in (refusal(cluster, replica, metadata) or "")


def healthy(replica):
    try:
        with urllib.request.urlopen(f"{replica.client_url}/health", timeout=5) as answer:
            return json.load(answer)["health"] == "true"
    except OSError:  # an HTTPError and a refused connection are ones
        return False


def losses(*hosts):
    return [host.name for host in hosts if "lost its place" in host.log_text()]


def test_places_continue_in_the_only_survivor(cluster, agents):
    h1, h2 = agents("h1", TTL="20s"), agents("h2", TTL="20s")
    eventually(lambda: set(h1.nodes()) == {"h1", "h2"})
    leases = [host.status().lease_id for host in (h1, h2)]
    a = cluster.replicas["a"]
    eventually(lambda: cluster.get(h2.key, at=a))

    lose(cluster)
    [core] = force(a)

    for host in h1, h2:
        host.log_has(f"is a new cluster ({core}), which was forced to descend from ours")
    cluster.replicas = {"a": a}
    eventually(lambda: [cluster.get(host.key).lease for host in (h1, h2)] == leases)
    h1.ctl("set-tags", "later=yes")
    eventually(lambda: h2.nodes()["h1"].tags == {"later": "yes"})
    assert f"This is cluster {core}, which was forced to descend from" in cluster.ctl(
        "core", "members")
    [member] = json.loads(cluster.ctl("--json=short", "core", "members"))
    assert member["cluster"] == core and int(member["ancestor"], 16) not in (0, int(core, 16))
    # A restarted agent remembers which core is its own.
    h1.restart()
    eventually(lambda: h1.holds() and h1.status().lease_id == leases[0])
    assert losses(h1, h2) == []


def test_the_session_of_a_program_continues_in_the_only_survivor(cluster, ties, prefix):
    tie = ties(hold=20, name="session")
    a, lease = cluster.replicas["a"], tie.lease()
    eventually(lambda: cluster.get("/tenure/default/sessions/session", at=a))

    lose(cluster)
    before = tie.deadline()
    force(a)
    cluster.replicas = {"a": a}
    eventually(lambda: healthy(a))
    renewed = a.metric("etcd_debugging_lease_renewed_total")

    # The last answer of the former core may come late, and raises the deadline as well.
    eventually(lambda: a.metric("etcd_debugging_lease_renewed_total") > renewed)
    eventually(lambda: tie.deadline() > before)
    assert tie.may_act()
    assert tie.lease() == lease
    assert cluster.get("/tenure/default/sessions/session").lease == lease
    tie.put_held(prefix + "k", "v")
    assert cluster.get(prefix + "k").value == "v"
    tie.leave()
    assert "given back" in tie.hears("LOST").reason  # not lost before


def test_two_survivors_stop_once_agents_meet_both(cluster, agents):
    h1, h2 = agents("h1", TTL="20s"), agents("h2", TTL="20s")
    eventually(lambda: set(h1.nodes()) == {"h1", "h2"})
    a, b, c = cluster.replicas.values()
    for replica in a, b:
        eventually(lambda: cluster.get(h2.key, at=replica))
    lose(cluster)
    h1.write_settings(Endpoints=a.client_url)
    h2.write_settings(Endpoints=b.client_url)
    for host in h1, h2:
        host.restart()
    cores = force(a, b)
    for host, core in zip((h1, h2), cores):
        host.log_has(f"is a new cluster ({core}), which was forced to descend from ours")
    eventually(lambda: healthy(a) and healthy(b))

    h1.write_settings(Endpoints=f"{b.client_url},{a.client_url}")
    h2.write_settings(Endpoints=f"{a.client_url},{b.client_url}")
    for host in h1, h2:
        host.restart()

    for replica, other in (a, cores[1]), (b, cores[0]):
        eventually(lambda: has_stopped(cluster, replica))
        assert other in refusal(cluster, replica)
        assert not healthy(replica)
        assert replica.metric("tenure_core_stopped") == 1
        assert other in run(BIN / "tenurectl", "--endpoints", replica.client_url, "core",
                            "members")
        assert replica.log_text().count("has stopped: another core") == 1

    # Disarmed, it stops again when it meets a client of the other one.
    ancestor = re.search(r"which descends from ([0-9a-f]{16})", a.log_text())[1]
    for host in h1, h2:
        host.freeze()
    cluster.etcdctl("alarm", "disarm", at=a)
    eventually(lambda: not has_stopped(cluster, a))
    eventually(lambda: f"was disarmed: this core ({cores[0]}) serves again" in a.log_text())
    other = [("tenure-core", f"{cores[1]} {ancestor}")]
    eventually(lambda: has_stopped(cluster, a, other))
    for host in h1, h2:
        host.thaw()

    # tenure-core(8): keep one, end the other, wait for the agents, disarm.
    b.kill()
    for host in h1, h2:
        eventually(lambda: host.status().state not in ("held", "jeopardy"))
    cluster.replicas = {"a": a}
    cluster.etcdctl("alarm", "disarm")
    for host in h1, h2:
        eventually(host.holds)
    assert healthy(a)
    assert set(eventually(lambda: len(h1.nodes()) == 2 and h1.nodes())) == {"h1", "h2"}


def test_only_who_may_write_what_agents_write_can_stop_a_core(new_cluster):
    core = new_cluster(1).with_users(writer=("readwrite", "/tenure/"), other=("readwrite", "x/"),
                                     some=("readwrite", "/tenure/default/"))
    with core.rpc() as rpc:
        tokens = {name: rpc.call("etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest(
            name=name, password=name)).token for name in ("writer", "other", "some")}
        own = rpc.call("etcdserverpb.Maintenance/Status", pb.StatusRequest()).header.cluster_id

    def meet(token, *ids):
        """Says so and reads; returns why it may not."""
        with core.rpc(token=token) as rpc:
            try:
                next(rpc.answers("etcdserverpb.KV/Range", pb.RangeRequest(key=b"x/"),
                                 metadata=[("tenure-core", " ".join(f"{i:016x}" for i in ids))]))
            except Refused as error:
                return str(error)
        return ""

    for said in (0xaa, own + 1), (own, own), (0xaa,), (), (0, own):
        meet(tokens["writer"], *said)
    for token in None, tokens["other"], tokens["some"]:
        meet(token, 0xaa, own)
    meet(tokens["writer"], 0xaa, own)
    eventually(lambda: "has stopped: another core (00000000000000aa)" in meet(tokens["other"]))


def ancestor(cluster, at):
    with cluster.rpc(at=at) as rpc:
        return rpc.call("etcdserverpb.Maintenance/Status", pb.StatusRequest()).header.ancestor


def test_a_replica_that_joins_a_forced_core_knows_its_ancestor(cluster, new_cluster, tmp_path):
    """Also when the forced member is gone, after a restart, and not after a restore."""
    cluster.put("k", "v")
    a = cluster.replicas["a"]
    eventually(lambda: cluster.get("k", at=a))
    lose(cluster)
    force(a)
    cluster.replicas = {"a": a}
    eventually(lambda: cluster.get("k"))
    before = ancestor(cluster, a)
    assert before

    d = cluster.add_learner("d")
    cluster.promote("d")
    eventually(lambda: ancestor(cluster, d) == before)
    cluster.ctl("core", "snapshot", "save", tmp_path / "snapshot")
    cluster.ctl("core", "remove", "a")
    cluster.replicas = {"d": d}
    d.kill()
    d.start()
    eventually(lambda: cluster.get("k"))
    assert ancestor(cluster, d) == before

    # Forced again, it descends from the first heir.
    e = cluster.add_learner("e")
    cluster.promote("e")
    heir = cluster.rpc(at=d).call("etcdserverpb.Maintenance/Status",
                                  pb.StatusRequest()).header.cluster_id
    lose(cluster)
    force(d)
    cluster.replicas = {"d": d}
    eventually(lambda: cluster.get("k"))
    assert ancestor(cluster, d) == heir

    a.data.rename(tmp_path / "lost")
    restored = new_cluster(1, restore=tmp_path / "snapshot")
    assert restored.get("k").value == "v"
    assert ancestor(restored, restored.leader()) == 0
