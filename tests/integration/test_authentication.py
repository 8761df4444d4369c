"""Users log in: by password and by certificate, at any replica, agents and operators too."""
import base64
import http.client
import json
import shutil
import ssl

import pytest

from harness.places import BIN
from harness.program import run
from harness.rpc import Refused, pb
from harness.waiting import PATIENCE, ProgramError, eventually

SETTINGS = dict(User="agent", TTL="6s")


@pytest.fixture
def password(tmp_path):
    path = tmp_path / "password"
    path.write_text("secret\n")
    return path


def switch_on_authentication(core):
    for words in (("user", "add", "root:root"), ("user", "grant-role", "root", "root"),
                  ("role", "add", "agents"),
                  ("role", "grant-permission", "agents", "readwrite", "/tenure/", "--prefix"),
                  ("user", "add", "agent:secret"), ("user", "grant-role", "agent", "agents"),
                  ("auth", "enable")):
        core.etcdctl(*words)
    return core


# One endpoint: a connection to another one would log in.
@pytest.fixture(params=["tenure-core", "etcd"])
def one_endpoint(request):
    if request.param == "etcd":
        return request.getfixturevalue("etcd")
    return request.getfixturevalue("new_cluster")(1)


@pytest.fixture
def core(request):
    own = [name for name in ("one_endpoint", "users", "hasty") if name in request.fixturenames]
    return request.getfixturevalue(own[0])


def test_agents_that_joined_without_authentication_log_in_when_it_is_switched_on(
        one_endpoint, agents, password):
    agent, other = (agents(name, PasswordFile=password, **SETTINGS) for name in ("h1", "h2"))
    eventually(lambda: {"h1", "h2"} == set(other.nodes()))

    switch_on_authentication(one_endpoint)

    # A renewal, and then a write and a watch.
    renewed = agent.properties()["LastRenewalUSec"]
    eventually(lambda: agent.holds() and agent.properties()["LastRenewalUSec"] > renewed)
    agent.ctl("set-tags", "since=then")
    eventually(lambda: other.node("h1").tags == {"since": "then"})


@pytest.fixture
def users(shared, ports):
    """Three replicas for all tests of a worker, with the users root and agent."""
    from harness.cluster import Cluster
    return shared("users", lambda folder: switch_on_authentication(Cluster(folder, ports)))


@pytest.fixture
def hasty(new_cluster):
    """The same alone, and a login ends after a second."""
    return switch_on_authentication(new_cluster(1, "--auth-token-ttl=1s"))


@pytest.fixture
def agents_user(users):
    return users.as_user("agent", "secret")


@pytest.fixture
def root(users):
    return users.as_user("root", "root")


def log_in(core, name="agent", password="secret", **options):
    with core.rpc(**options) as rpc:
        request = pb.AuthenticateRequest(name=name, password=password)
        return rpc.call("etcdserverpb.Auth/Authenticate", request).token


def reads(core, token, key=b"/tenure/k", **options):
    with core.rpc(token=token, **options) as rpc:
        return rpc.call("etcdserverpb.KV/Range", pb.RangeRequest(key=key))


def refused(core, *words):
    """What etcdctl says of a command that is refused."""
    with pytest.raises(ProgramError) as error:
        core.etcdctl(*words)
    return error.value.err


def test_users_are_the_same_at_each_replica(users, agents_user, root):
    for replica in users.replicas.values():
        endpoint = f"--endpoints={replica.client_url}"
        agents_user.put("/tenure/k", replica.name, at=replica)
        assert root.get("/tenure/k", at=replica).value == replica.name
        assert "permission denied" in refused(agents_user, endpoint, "put", "k", "v")
        assert "user name is empty" in refused(users, endpoint, "get", "/tenure/k")
        assert "invalid user ID or password" in refused(users.as_user("agent", "wrong"),
                                                        endpoint, "get", "/tenure/k")


def test_a_login_is_good_at_each_replica_and_where_one_has_just_started(cluster):
    first, second, third = switch_on_authentication(cluster).replicas.values()
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


def test_an_agent_with_a_wrong_password_says_so_and_joins_nothing(users, agents, root, tmp_path):
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong\n")

    agent = agents("h2", held=False, PasswordFile=wrong, User="agent")

    eventually(lambda: "refuses the login of user agent: etcdserver: authentication failed"
               in agent.log_text())
    assert root.get(agent.key) is None


def test_a_place_is_renewed_and_revoked_by_who_granted_it_and_by_root_alone(
        users, agents_user, root):
    root.etcdctl("user", "add", "other:other")
    root.etcdctl("user", "grant-role", "other", "agents")
    other, place = users.as_user("other", "other"), agents_user.grant(600)
    renew = "lease", "keep-alive", "--once", f"{place:x}"
    other.etcdctl(*renew)  # a lease without keys is anybody's

    agents_user.put("/tenure/default/nodes/h9", "v", lease=place)

    agents_user.etcdctl(*renew)
    root.etcdctl(*renew)
    assert "permission denied" in refused(other, *renew)
    assert "permission denied" in refused(other, "lease", "revoke", f"{place:x}")
    agents_user.revoke(place)


def test_users_and_their_leases_come_back_from_a_snapshot(new_cluster, tmp_path):  # A17
    core = switch_on_authentication(new_cluster(1))
    agent, root, replica = core.as_user("agent", "secret"), core.as_user("root", "root"), \
        core.replicas["a"]
    agent.put("/tenure/ends", "v", lease=agent.grant(5))
    agent.put("/tenure/stays", "v", lease=agent.grant(600))
    root.ctl("core", "snapshot", "save", tmp_path / "snapshot")
    replica.stop()
    shutil.rmtree(replica.data)

    run(BIN / "tenure-core", "--restore", tmp_path / "snapshot", "--name", "a", "--data-dir",
        replica.data, "--initial-cluster", f"a={replica.peer_url}",
        "--listen-peer-urls", replica.peer_url)
    replica.start()

    # A lease expires with authentication on, and after a restore.
    eventually(lambda: [kv.key for kv in agent.range("/tenure/")] == ["/tenure/stays"])
    assert "user name is empty" in refused(core, "get", "k")
    root.etcdctl("auth", "disable")
    assert core.get("/tenure/stays")


@pytest.mark.parametrize("options, sentence", [
    ([], "user name is empty"), (["--user=agent:secret"], "permission denied"),
    (["--user=root", "--password-file=/none"],
     "cannot read a password from .*/none: No such file"),
    (["--user=root"], "no terminal to ask for the password of root")])
def test_an_operator_who_does_not_log_in_is_told_why(users, tmp_path, options, sentence):
    with pytest.raises(ProgramError, match=sentence):
        users.ctl(*options, "core", "snapshot", "save", tmp_path / "snapshot")


def test_an_operator_logs_in_by_a_file(users, tmp_path):
    (tmp_path / "root").write_text("root")
    users.ctl("--user=root", f"--password-file={tmp_path / 'root'}", "core", "snapshot", "save",
              tmp_path / "snapshot")


def test_a_user_without_a_password_file_is_refused():
    with pytest.raises(ProgramError, match="PasswordFile= is missing"):
        run(BIN / "tenured", "-t", "--user", "x")


# ---- by certificate ----

@pytest.fixture
def shown(new_cluster, authority):
    """shown("ann"): the core, as who shows the certificate of that name."""
    core = new_cluster(1, authority=authority)
    certificates = {name: authority.certificate(name) for name in ("root", "ann", "nobody")}
    for words in (("user", "add", "root", "--no-password"), ("user", "grant-role", "root", "root"),
                  ("role", "add", "app"),
                  ("role", "grant-permission", "app", "readwrite", "app/", "--prefix"),
                  ("user", "add", "ann:ann"), ("user", "grant-role", "ann", "app"),
                  ("put", "k", "v"), ("auth", "enable")):
        core.etcdctl(*words)
    return lambda name, *more: core.shown(*certificates[name].for_etcdctl, *more)


def test_who_shows_a_certificate_is_the_user_of_its_name(shown):
    assert shown("root").get("k").value == "v"
    shown("ann").put("app/x", "v")
    assert "permission denied" in refused(shown("ann"), "get", "k")
    assert "permission denied" in refused(shown("nobody"), "get", "app/x")
    assert shown("nobody", "--user=ann:ann").get("app/x").value == "v"
    assert "invalid user ID" in refused(shown("nobody", "--user=root:x"), "get", "k")


def by_json(core, path, body, **headers):
    """The status, and what is said or the error."""
    authority, cert, key = (option.split("=")[1] for option in core.credentials)
    context = ssl.create_default_context(cafile=authority)
    context.load_cert_chain(cert, key)
    connection = http.client.HTTPSConnection(core.endpoints.removeprefix("https://"),
                                             timeout=PATIENCE, context=context)
    connection.request("POST", f"/v3/{path}", json.dumps(body), headers)
    answer = connection.getresponse()
    said = answer.read().decode()
    return answer.status, json.loads(said) if said.startswith("{") else said


def of(key):
    return {"key": base64.b64encode(key.encode()).decode()}


def test_a_certificate_or_a_token_says_who_asks_by_json(shown):
    ann, nobody = shown("ann"), shown("nobody")
    token = by_json(nobody, "auth/authenticate", {"name": "ann", "password": "ann"})[1]["token"]
    own = ann.endpoints

    assert by_json(ann, "kv/put", of("app/json"))[0] == 200
    assert by_json(ann, "kv/range", of("k"))[1]["error"] == "etcdserver: permission denied"
    assert by_json(nobody, "kv/range", of("app/json"))[0] == 403
    assert by_json(nobody, "kv/range", of("app/json"), Authorization=token)[0] == 200
    for bad in f"Bearer {token}", token.upper(), "x", "x" * 7000:
        assert by_json(nobody, "kv/range", of("app/json"), Authorization=bad)[0] == 401
    assert by_json(ann, "kv/range", of("app/json"), Authorization="")[0] == 401
    assert by_json(nobody, "kv/range", of("app/json"), Authorization="x" * 60000)[0] == 431
    # A browser shows ann's certificate to whatever page asks it to.
    assert by_json(ann, "kv/put", of("app/json"), Origin="https://example.org")[0] == 403
    assert by_json(ann, "kv/put", of("app/json"), Origin=own)[0] == 200
