"""Users log in: by password and by certificate, at any replica, agents and operators too."""
import shutil
import ssl

import pytest

from harness.cluster import Cluster
from harness.http1 import Http
from harness.places import BIN
from harness.program import run
from harness.rpc import Refused, pb
from harness.waiting import ProgramError, eventually


AGENT = {"agent": ("readwrite", "/tenure/")}


@pytest.fixture
def password(tmp_path):
    path = tmp_path / "password"
    path.write_text("agent\n")
    return path


# One endpoint: a connection to another one would log in.
@pytest.fixture(params=["tenure-core", "etcd"])
def one_endpoint(request):
    if request.param == "etcd":
        return request.getfixturevalue("etcd")
    return request.getfixturevalue("new_cluster")(1)


@pytest.fixture
def users(shared, ports):
    """A replica for all tests of a worker."""
    return shared("users", lambda folder: Cluster(folder, ports, 1).with_users(**AGENT))


@pytest.fixture
def hasty(new_cluster):
    """A login ends after a second."""
    return new_cluster(1, "--auth-token-ttl=1s").with_users(**AGENT)


@pytest.fixture
def core(request):
    own = [name for name in ("one_endpoint", "users", "hasty") if name in request.fixturenames]
    return request.getfixturevalue(own[0])


@pytest.fixture
def root(users):
    return users.as_user("root", "root")


def reads(core, token, key=b"/tenure/k", **options):
    with core.rpc(token=token, **options) as rpc:
        return rpc.call("etcdserverpb.KV/Range", pb.RangeRequest(key=key))


def log_in(core, **options):
    with core.rpc(**options) as rpc:
        return rpc.call("etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest(
            name="agent", password="agent")).token


def refused(core, *words):
    """What etcdctl says of a command that is refused."""
    with pytest.raises(ProgramError) as error:
        core.etcdctl(*words)
    return error.value.err


def test_agents_that_joined_without_authentication_log_in_when_it_is_switched_on(
        one_endpoint, agents, password):
    agent, other = (agents(name, PasswordFile=password, User="agent", TTL="6s")
                    for name in ("h1", "h2"))
    eventually(lambda: {"h1", "h2"} == set(other.nodes()))

    one_endpoint.with_users(**AGENT)

    # A renewal, and then a write and a watch.
    renewed = agent.properties()["LastRenewalUSec"]
    eventually(lambda: agent.holds() and agent.properties()["LastRenewalUSec"] > renewed)
    agent.ctl("set-tags", "since=then")
    eventually(lambda: other.node("h1").tags == {"since": "then"})


def test_a_login_is_good_at_each_replica_and_where_one_has_just_started(cluster):
    first, second, third = cluster.with_users(**AGENT).replicas.values()
    third.kill()
    token = log_in(cluster, at=first)
    third.start()
    for replica in second, third:
        reads(cluster, token, at=replica)
        with pytest.raises(Refused, match="permission denied"):
            reads(cluster, token, key=b"k", at=replica)


def has_ended(core, token):
    try:
        reads(core, token)
    except Refused as refused:
        return refused.details == "etcdserver: invalid auth token"


def test_a_login_ends_after_its_time_and_its_agent_logs_in_again(hasty, agents, password):
    agent = agents("h1", PasswordFile=password, User="agent")
    lease, token = agent.status().lease_id, log_in(hasty)  # younger than the agent's
    eventually(lambda: has_ended(hasty, token))
    agent.ctl("set-tags", "since=then")
    eventually(lambda: agent.node("h1").tags == {"since": "then"})
    assert agent.holds() and agent.status().lease_id == lease  # A17


def test_an_agent_with_a_wrong_password_says_so_and_joins_nothing(root, agents, password):
    password.write_text("wrong\n")
    agent = agents("h2", held=False, PasswordFile=password, User="agent")
    agent.log_has("refuses the login of user agent: etcdserver: authentication failed")
    assert root.get(agent.key) is None


def test_a_place_is_renewed_and_revoked_by_who_granted_it_and_by_root_alone(users, root):
    root.etcdctl("user", "add", "other:other")
    root.etcdctl("user", "grant-role", "other", "agent")
    agent, other = users.as_user("agent", "agent"), users.as_user("other", "other")
    place = agent.grant(600)
    renew = "lease", "keep-alive", "--once", f"{place:x}"
    other.etcdctl(*renew)  # a lease without keys is anybody's

    agent.put("/tenure/default/nodes/h9", "v", lease=place)

    for user in agent, root:
        user.etcdctl(*renew)
    for words in renew, ("lease", "revoke", f"{place:x}"):
        assert "permission denied" in refused(other, *words)
    agent.revoke(place)


def test_the_replica_that_is_asked_decides_who_owns_a_lease(cluster):
    strict, loose, _ = cluster.replicas.values()
    loose.kill()
    loose.command.append("--lease-owners=none")
    loose.start()
    cluster.with_users(other=("readwrite", "/tenure/"), **AGENT)
    agent, other = (cluster.as_user(name, name) for name in ("agent", "other"))
    place = agent.grant(600)
    agent.put("/tenure/default/nodes/h9", "v", lease=place)

    revoke = "lease", "revoke", f"{place:x}"
    with pytest.raises(ProgramError, match="permission denied"):
        other.etcdctl(*revoke, at=strict)
    other.etcdctl(*revoke, at=loose)

    assert cluster.as_user("root", "root").get("/tenure/default/nodes/h9", at=strict) is None


def test_users_and_their_leases_are_restored_from_a_snapshot(new_cluster, tmp_path):  # A17
    core = new_cluster(1).with_users(**AGENT)
    agent, root = core.as_user("agent", "agent"), core.as_user("root", "root")
    agent.put("/tenure/ends", "v", lease=agent.grant(5))
    agent.put("/tenure/stays", "v", lease=agent.grant(600))
    root.ctl("core", "snapshot", "save", tmp_path / "snapshot")
    replica = core.replicas["a"]
    replica.stop()
    shutil.rmtree(replica.data)

    run(BIN / "tenure-core", "--restore", tmp_path / "snapshot", *replica.identity)
    replica.start()

    # A lease expires with authentication on, and after a restore.
    eventually(lambda: [kv.key for kv in agent.range("/tenure/")] == ["/tenure/stays"])
    assert "user name is empty" in refused(core, "get", "k")
    root.etcdctl("auth", "disable")
    assert core.get("/tenure/stays")


@pytest.mark.parametrize("options, sentence", [
    ([], "user name is empty"), (["--user=agent:agent"], "permission denied"),
    (["--user=root", "--password-file=/none"], "cannot read a password from .*/none: No such file"),
    (["--user=root"], "no terminal to ask for the password of root")])
def test_an_operator_who_does_not_log_in_learns_why(users, tmp_path, options, sentence):
    with pytest.raises(ProgramError, match=sentence):
        users.ctl(*options, "core", "snapshot", "save", tmp_path / "snapshot")


def test_an_operator_logs_in_by_a_file(users, password, tmp_path):
    password.write_text("root")
    users.ctl("--user=root", f"--password-file={password}", "core", "snapshot", "save",
              tmp_path / "snapshot")


def test_a_user_without_a_password_file_is_refused():
    with pytest.raises(ProgramError, match="PasswordFile= is missing"):
        run(BIN / "tenured", "-t", "--user", "x")


# ---- by certificate ----

@pytest.fixture
def shown(new_cluster, authority):
    """shown("agent"): the core, as who shows the certificate of that name."""
    core = new_cluster(1, authority=authority).with_users(**AGENT)
    return lambda name, *more: core.shown(*authority.certificate(name).for_etcdctl, *more)


def test_who_shows_a_certificate_is_the_user_of_its_name(shown):
    shown("root").put("k", "v")
    shown("agent").put("/tenure/x", "v")
    assert "permission denied" in refused(shown("agent"), "get", "k")
    assert "permission denied" in refused(shown("nobody"), "get", "/tenure/x")
    assert shown("nobody", "--user=agent:agent").get("/tenure/x").value == "v"
    assert "invalid user ID" in refused(shown("nobody", "--user=root:x"), "get", "k")


def test_a_certificate_or_a_token_says_who_asks_by_json(shown):
    def by_json(name):
        core = shown(name)
        ca, cert, key = (option.split("=")[1] for option in core.credentials)
        tls = ssl.create_default_context(cafile=ca)
        tls.load_cert_chain(cert, key)
        return lambda path, key, **headers: Http(core.endpoints, tls).ask(
            "POST", f"/v3/kv/{path}", {"key": key}, **headers)

    agent, nobody, own = by_json("agent"), by_json("nobody"), shown("agent").endpoints
    token = log_in(shown("agent"))
    assert agent("put", b"/tenure/x").status == 200
    assert agent("range", b"k").json()["error"] == "etcdserver: permission denied"
    assert nobody("range", b"/tenure/x").status == 403
    assert nobody("range", b"/tenure/x", Authorization=token).status == 200
    for bad in f"Bearer {token}", token.upper(), "x", "x" * 7000:
        assert nobody("range", b"/tenure/x", Authorization=bad).status == 401
    assert agent("range", b"/tenure/x", Authorization="").status == 401
    assert nobody("range", b"/tenure/x", Authorization="x" * 60000).status == 431
    # A browser shows the agent's certificate to whatever page asks it to.
    assert agent("put", b"/tenure/x", Origin="https://example.org").status == 403
    assert agent("put", b"/tenure/x", Origin=own).status == 200
