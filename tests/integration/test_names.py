"""Endpoints that have names: of several addresses, some of them dead, and of a silent resolver."""
import itertools
import os

import pytest
from harness.network import Network
from harness.waiting import eventually

pytestmark = pytest.mark.skipif(os.getuid() != 0,
                                reason="has a network of its own, so needs root")


@pytest.fixture
def network(tmp_path):
    with Network(tmp_path) as network:
        yield network


@pytest.fixture
def cluster(network, new_cluster):
    return new_cluster(3)


def url(replica, name):
    return replica.client_url.replace("127.0.0.1", f"{name}.{Network.domain}")


@pytest.mark.parametrize("addresses", [
    ["fd00:78::99", "127.0.0.1"], [*Network.silent, "10.78.0.97", "fd00:78::97", "127.0.0.1"]],
    ids=["one is dead", "six are dead"])
def test_a_name_leads_to_that_of_its_addresses_which_answers(network, cluster, agents, addresses):
    network.names(h1=addresses)

    agents("h1", Endpoints=url(cluster.leader(), "h1"))  # holds its place


def test_replicas_and_the_agent_may_restart_while_the_resolver_is_silent(
        network, cluster, agents):
    network.names(a=["127.0.0.1"], b=["127.0.0.1"], c=["127.0.0.1"])
    agent = agents("h1", Endpoints=",".join(
        url(replica, name) for name, replica in cluster.replicas.items()))
    lease, numbers = agent.status().lease_id, itertools.count()

    def reaches_the_core():
        n = f"n={next(numbers)}"
        agent.background("set-tags", n)
        eventually(lambda: n.replace("=", '":"') in cluster.get(agent.key).value)
        return True

    for _ in range(2):  # it has been connected to each of them when the resolver goes
        for replica in cluster.replicas.values():
            replica.kill()
            assert reaches_the_core()
            replica.start()
            cluster.leader()
        network.resolver.freeze()
    agent.kill()
    agent.start()

    # It goes on at the address that has answered.
    eventually(agent.holds)
    assert reaches_the_core()
    assert agent.status().lease_id == lease
    assert "lost its place" not in agent.log_text()
