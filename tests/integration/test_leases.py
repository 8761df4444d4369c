"""tenurectl lease, by ids and by names."""
import json
import signal

import pytest

from harness.places import BIN
from harness.program import Daemon, run
from harness.users import guard
from harness.waiting import ProgramError, eventually


class Leases:
    """@core: whose leases; @at: the replica that is asked, instead of any."""

    def __init__(self, core, at=None):
        endpoints = at.client_url if at else core.endpoints
        self._ctl = BIN / "tenurectl", f"--endpoints={endpoints}", *core.credentials, "lease"

    def __call__(self, *words):
        return run(*self._ctl, *words).rstrip("\n")

    def keep(self, folder, name):
        """Until it is interrupted."""
        keeper = Daemon(folder / "keeper.log", *self._ctl, "keep-alive", name).start()
        eventually(lambda: keeper.said("keepalived"))
        return keeper

    def refusal(self, *words):
        with pytest.raises(ProgramError) as refused:
            self(*words)
        assert refused.value.status == 1
        return refused.value.err.rstrip("\n")

    def list(self):
        """By name."""
        return {said["name"]: said for said in json.loads(self("list", "--json=short"))}


@pytest.fixture
def leases(shared_cluster):
    return Leases(shared_cluster)


@pytest.fixture
def name(prefix, leases):
    """Of a lease of 600 s."""
    name = f"{prefix}jobs"
    said = leases("grant", "600", name)
    yield name
    assert said == f"lease {said.split()[1]} granted with TTL(600s), name({name})"


def no_lease(name):
    return f"tenurectl: there is no lease with the name '{name}'."


def test_a_lease_is_found_renewed_and_revoked_by_its_name_at_any_replica(
        shared_cluster, leases, name, prefix):
    a, b, c = (Leases(shared_cluster, at) for at in shared_cluster.running)
    lease = leases.list()[name]["id"]
    for key in "ba":
        shared_cluster.put(prefix + key, "v", lease=int(lease, 16))

    assert "lease already exists with that name" in b.refusal("grant", "500ms", name)
    said = json.loads(c("ttl", name, "--keys", "--json=short"))
    assert (said["id"], said["ttl_ms"], said["keys"]) == (
        lease, 600_000, [prefix + "a", prefix + "b"])
    assert f"attached keys([{prefix}a {prefix}b])" in c("ttl", lease, "--keys")
    assert b("keep-alive", name, "--once") == (
        f"lease {lease} keepalived with TTL(600s), name({name})")
    assert json.loads(b("keep-alive", name, "--once", "--json=short"))["name"] == name
    assert f"lease {lease} granted with TTL(600s)" in c("ttl", name)
    assert b("keepalive", f"0x{lease}", "--once") == f"lease {lease} keepalived with TTL(600s)"
    assert a("revoke", name) == f"lease {name} revoked"
    assert shared_cluster.range(prefix) == []


@pytest.mark.parametrize("command", ["revoke", "ttl", "keep-alive"])
def test_a_name_or_id_that_no_lease_has_is_an_error(leases, command):
    assert leases.refusal(command, "nobody's") == no_lease("nobody's")
    assert "there is no lease 0000000000000abc" in leases.refusal(command, "0000000000000abc")


@pytest.mark.parametrize("words, sentence", [
    (["soon"], "TTL must be a time from 1ms to 876000h such as 500ms or 10s, not 'soon'"),
    (["5", "x" * 1025], "a lease's name has 1 to 1024 bytes"),
    ([], "lease grant needs TTL [NAME]"),
])
def test_a_grant_with_wrong_words_is_refused(leases, words, sentence):
    assert sentence in leases.refusal("grant", *words)


def test_names_say_nothing_to_a_terminal_and_are_valid_json(leases, prefix):
    odd = f"{prefix}name=a\033[2Jb\udced\udca0\udc80"  # half a pair of surrogates
    leases("grant", "600", odd)
    assert "a\\x1b[2Jb" in leases("list")
    assert f"{prefix}name=a\\x1b[2Jb\\xed\\xa0\\x80" in leases.list()
    assert f"lease {prefix}name=a\\x1b[2Jb" in leases("revoke", f"name={odd}")


def test_a_lease_is_kept_while_a_replica_is_frozen_until_an_interrupt(cluster, tmp_path):
    Leases(cluster)("grant", "6", "kept")
    keeper = Leases(cluster).keep(tmp_path, "kept")
    first = cluster.replicas["a"]
    first.freeze()  # the first endpoint says nothing
    seen = len(keeper.lines())
    eventually(lambda: len(keeper.lines()) >= seen + 3)
    first.thaw()

    keeper.signal(signal.SIGINT)

    assert keeper.wait() == -signal.SIGINT
    eventually(lambda: "kept" not in Leases(cluster).list())


def test_keep_alive_ends_when_its_lease_is_revoked(leases, prefix, tmp_path):
    leases("grant", "9", prefix + "short")
    keeper = leases.keep(tmp_path, prefix + "short")
    leases("revoke", prefix + "short")
    assert keeper.wait() == 1
    assert no_lease(prefix + "short") in keeper.log_text()


def test_the_lease_of_a_place_has_the_name_of_its_node_in_the_next_life_as_well(cluster, agents):
    agent, leases = agents("web1", Cluster="default"), Leases(cluster)

    def is_named():
        return int(leases.list()["web1"]["id"], 16) == agent.status().lease_id

    assert is_named()
    assert f"attached keys([{agent.key}" in leases("ttl", "web1", "--keys")
    assert "lease already exists with that name" in leases.refusal("grant", "60", "web1")
    first = agent.status().lease_id

    agent.boot()

    eventually(lambda: agent.holds() and agent.status().lease_id != first and is_named())


def test_a_name_shows_and_permits_what_the_id_does(cluster):
    Leases(cluster)("grant", "600", "secret")
    lease = Leases(cluster).list()["secret"]["id"]
    cluster.put("app/secret", "v", lease=int(lease, 16))
    guard(cluster, eve=["--prefix other/"], ann=["--prefix app/"])
    eve, ann = (Leases(cluster.as_user(user, user)) for user in ("eve", "ann"))

    for words in (["ttl", "secret"], ["ttl", "secret", "--keys"], ["ttl", lease, "--keys"],
                  ["keep-alive", "secret", "--once"], ["revoke", "secret"], ["revoke", lease]):
        assert eve.refusal(*words) == "tenurectl: etcdserver: permission denied."
    assert "secret" not in eve.list()
    assert json.loads(eve("ttl", lease, "--json=short"))["name"] == ""
    assert "user name is empty" in Leases(cluster).refusal("ttl", "secret")
    assert ann("keep-alive", "secret", "--once").startswith(f"lease {lease} keepalived")
    assert ann("revoke", "secret") == "lease secret revoked"


def test_the_password_may_be_in_a_file(cluster, tmp_path):
    guard(cluster)
    (tmp_path / "password").write_text("root\n")
    root = cluster.shown("--user=root", f"--password-file={tmp_path / 'password'}")
    assert len(root.ctl("core", "members", "--no-legend").splitlines()) == 3


def test_leases_of_an_etcd_have_no_names(etcd):
    leases = Leases(etcd)
    for words in (["grant", "60", "jobs"], ["ttl", "jobs"], ["keep-alive", "jobs"],
                  ["revoke", "jobs"]):
        assert leases.refusal(*words) == (
            f"tenurectl: leases have no names in the core at {etcd.endpoints}, which is an etcd; "
            "use the lease's id.")
    assert "0 leases" in leases("list")

    lease = leases("grant", "600").split()[1]

    assert lease in leases("list")
    assert "attached keys([])" in leases("ttl", lease, "--keys")
    assert leases("keep-alive", lease, "--once") == f"lease {lease} keepalived with TTL(600s)"
    assert leases("revoke", lease) == f"lease {lease} revoked"
    assert f"there is no lease {lease}" in leases.refusal("ttl", lease)
