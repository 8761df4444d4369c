"""A place is in one core: what another one says, or this one with other data, is about another."""
import shutil

import pytest
from harness.cluster import Cluster
from harness.etcd import Etcd
from harness.program import run
from harness.waiting import eventually, eventually_is


@pytest.fixture(params=["tenure-core", "etcd"])
def engine(request, new_cluster):
    """A server that is alone, and that the test may hurt."""
    if request.param == "etcd":
        core = request.getfixturevalue("etcd")
        core.server, core.another = core, Etcd
    else:
        core = new_cluster(1)
        core.server = core.replicas["a"]
        core.another = lambda folder, ports: Cluster(folder, ports, 1)
    return core


def write(core, n, key="elsewhere"):
    for i in range(n):
        core.put(key, str(i))


def become_empty(core, tmp_path):
    """It has the same name: only that it knows less tells it from the one before."""
    core.server.kill()
    shutil.rmtree(core.server.data)
    core.server.start()


def become_another(core, tmp_path):
    """One that knows more."""
    core.server.kill()
    shutil.rmtree(core.server.data)
    core.server.command += ["--initial-cluster-token", "another"]
    core.server.start()
    write(eventually(lambda: core.range("nothing/") == [] and core), 60)


def become_what_it_was(core, tmp_path):
    """Restored from a snapshot, which the caller has made."""
    server = core.server
    server.kill()
    shutil.rmtree(server.data)
    if isinstance(core, Etcd):
        peer = server.command[server.command.index("--initial-advertise-peer-urls") + 1]
        run("etcdctl", "snapshot", "restore", tmp_path / "snapshot", "--name", "etcd",
            "--data-dir", server.data, "--initial-cluster", f"etcd={peer}",
            "--initial-advertise-peer-urls", peer)
    else:
        run(*server.command, "--restore", tmp_path / "snapshot")
    server.start()


@pytest.mark.parametrize("change", [become_empty, become_another, become_what_it_was])
def test_hosts_join_again_when_their_core_is_another(change, agents, engine, tmp_path):
    agent, other = agents("h1"), agents("h2")
    eventually(lambda: set(agent.nodes()) == {"h1", "h2"})
    lease, others = agent.status().lease_id, agent.key.removesuffix("h1")
    engine.etcdctl("snapshot", "save", tmp_path / "snapshot")
    write(engine, 20, others + "before")
    eventually(lambda: "before" in agent.nodes())

    change(engine, tmp_path)

    eventually(lambda: agent.holds_another(lease))
    assert engine.get(agent.key).lease == agent.status().lease_id
    engine.put(others + "after", "{}")
    for host in agent, other:
        eventually(lambda: set(host.nodes()) == {"h1", "h2", "after"})


def test_the_word_of_another_core_is_not_about_this_place(agents, engine, tmp_path, ports):
    (tmp_path / "foreign").mkdir()
    agent = agents("h1")
    lease, nodes = agent.status().lease_id, agent.key.removesuffix("h1")
    foreign = engine.another(tmp_path / "foreign", ports)
    write(foreign, 30, nodes + "stranger")  # its revision is the larger one
    agent.write_settings(Endpoints=f"{engine.endpoints},{foreign.endpoints}")
    agent.restart()

    engine.server.kill()
    agent.log_has("another cluster")
    engine.server.start()

    agent.ctl("set-tags", "later=yes")
    eventually_is([("h1", {"later": "yes"})],
                  lambda: [(node.name, node.tags) for node in agent.nodes().values()])
    assert foreign.get(agent.key) is None
    # A restart goes on with the same core, whichever answers first.
    agent.write_settings(Endpoints=f"{foreign.endpoints},{engine.endpoints}")
    agent.restart()
    assert agent.status().lease_id == lease
    assert "lost its place" not in agent.log_text()
