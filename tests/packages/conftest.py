"""Fixtures of tests of the Debian packages, and of what CI does. README.md has them in a table."""
import os
import shutil

import pytest
from harness import debian as debians
from harness.earlier import RELEASES, Release
from harness.packaged import Builds, Pair
from harness.rig import lasting
from harness.upgrades import Fleet


def pytest_addoption(parser):
    parser.addoption("--suite", default="", help="of Debian's, such as trixie, in whose trees this "
                     "happens; packages are otherwise those of this machine's Debian")
    parser.addoption("--steps", action="append", default=[], metavar="WORDS",
                     help="of CI's, only those whose names begin so, and what they need")


def pytest_itemcollected(item):
    item.add_marker(pytest.mark.timeout(2 * debians.HOUR))  # against hangs: it builds, and more


@pytest.fixture(scope="session")
def suite(request):
    if os.getuid() != 0:
        pytest.skip("needs root")
    return request.config.getoption("suite")


@pytest.fixture(scope="session")
def debian(suite):
    """What the packages are built, and installed, in."""
    return debians.of_suite(suite) if suite else debians.of_this_machine()


@pytest.fixture(scope="session")
def builds(request, debian, tmp_path_factory):
    """The packages, built."""
    folder = tmp_path_factory.mktemp("builds")
    yield Builds(folder, debian)
    if not request.session.testsfailed:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def versions(builds):
    """The packages, and those of the version after this one, of the first build."""
    builds.make_next_version()
    return builds


@pytest.fixture
def pair(shared, tmp_path, versions):
    """Two hosts, h1 and h2, that could have the packages; when the test is over, all of these are
    purged, and nothing may be left of them."""
    with lasting(shared, tmp_path, "30s", make=Pair, builds=versions) as pair:
        yield pair


@pytest.fixture
def installed(pair):
    """The pair with the packages of version 1, in their default state."""
    pair.install()
    return pair


@pytest.fixture
def joined(installed):
    """The pair with the packages; the agents hold their places in the core on h1, bound units run,
    and h2 has a core of its own as well, with its default settings."""
    installed.join()
    return installed


@pytest.fixture(params=RELEASES)
def fleet(request, shared, tmp_path, builds):
    """Three core hosts and five agents' with the packages of an earlier release, set up and running
    as its manual says."""
    with lasting(shared, tmp_path, "30s", make=Fleet, builds=builds,
                 release=Release(request.param)) as fleet:
        fleet.found()
        yield fleet
