"""An operator upgrades the packages of an earlier release, on hosts that run and are used."""
import re

import pytest
from harness.upgrades import Life, unnoticed
from harness.waiting import eventually_is

PRESENT = "1"  # the folder of the builds


def upgrade(fleet, host, life):
    """h6 package by package, the others at once."""
    for packages in [[name] for name in host.packages] if host is fleet.h6 else [host.packages]:
        with unnoticed(host, life, packages):
            host.install(PRESENT, packages)


def upgrade_cores(fleet, life):
    upgraded = set()
    for host in fleet.cores:
        upgrade(fleet, host, life)
        upgraded.add(host.name)
        eventually_is(upgraded, lambda host=host: fleet.upgraded(host))
        if host is not fleet.cores[-1]:
            in_the_way = set(re.findall("h[1-3]", host.refusal("core", "upgrade", "--finish")[0]))
            assert in_the_way and not in_the_way & upgraded
        assert fleet.cluster_version(host) == "0.1"


def upgrade_agents(fleet, life):
    for host in fleet.agents:
        upgrade(fleet, host, life)


@pytest.mark.parametrize("steps", [(upgrade_cores, upgrade_agents),
                                   (upgrade_agents, upgrade_cores)],
                         ids=["cores first", "agents first"])
def test_nobody_notices_that_an_operator_upgrades_all_hosts(fleet, steps):
    life = Life(fleet)
    for step in steps:
        step(fleet, life)
    for host in fleet.h2, fleet.h5:  # the way back, and once more
        with unnoticed(host, life):
            host.install(fleet.release, host.packages, "--allow-downgrades")
        upgrade(fleet, host, life)

    said = fleet.h1.ctl("core", "upgrade", "--finish")

    assert said.startswith("The cluster version is 0.2.")
    life.goes_on()
    life.end()
