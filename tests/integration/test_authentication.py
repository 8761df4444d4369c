"""Authentication is switched on in a core whose clients are connected."""
import pytest

from harness.waiting import eventually

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


# One endpoint: a connection to another one would log in.
@pytest.fixture(params=["tenure-core", "etcd"])
def core(request):
    if request.param == "etcd":
        return request.getfixturevalue("etcd")
    return request.getfixturevalue("new_cluster")(1)


def test_agents_that_joined_without_authentication_log_in_when_it_is_switched_on(
        core, agents, password):
    agent, other = (agents(name, PasswordFile=password, **SETTINGS) for name in ("h1", "h2"))
    eventually(lambda: {"h1", "h2"} == set(other.nodes()))

    switch_on_authentication(core)

    # A renewal, and then a write and a watch.
    renewed = agent.properties()["LastRenewalUSec"]
    eventually(lambda: agent.holds() and agent.properties()["LastRenewalUSec"] > renewed)
    agent.ctl("set-tags", "since=then")
    eventually(lambda: other.nodes().get("h1") and other.nodes()["h1"].tags == {"since": "then"})
