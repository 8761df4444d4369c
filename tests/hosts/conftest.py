"""Fixtures of tests on hosts with a systemd of their own each. README.md has them in a table."""
import contextlib

import pytest
from harness.rig import Rig, lasting
from harness.standstill import Probe
from harness.waiting import eventually


def pytest_addoption(parser):
    parser.addoption("--engine", choices=["core", "etcd"], default="core",
                     help="what the hosts' agents have their places in")
    parser.addoption("--ttl", default="2s", help="of the hosts that these happen to")


def pytest_collection_modifyitems(items):
    """A worker has four hosts at a time, and boots others when the TTL is to be another one."""
    items.sort(key=lambda item: "brief_hosts" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def engine_of_hosts(request):
    return request.config.getoption("engine")


@pytest.fixture(scope="session")
def booted():
    """The hosts that this worker has, as the only value."""
    return {}


@pytest.fixture
def rigs(shared, booted, engine_of_hosts, tmp_path):
    """Gives hosts with that TTL. They outlast a test that passes, and are as they were then."""
    with contextlib.ExitStack() as stack:
        def rig(ttl, make=Rig):
            for other in set(booted) - {(ttl, make)}:
                booted.pop(other).end()
            booted[ttl, make] = stack.enter_context(
                lasting(shared, tmp_path, ttl, make=make, engine=engine_of_hosts))
            return booted[ttl, make]

        yield rig


@pytest.fixture
def hosts(rigs):
    """Four hosts, h1 to h4, that hold their places however slow this machine is."""
    return rigs("30s")


@pytest.fixture
def part(hosts):
    """part("tenured", text): what h4's unit has in [Service] until the next part of it, or until the
    test is over."""
    h4, made = hosts.h4, {}

    def write(unit, text):
        directory = h4.root / f"run/systemd/system/{unit}.service.d"
        directory.mkdir(exist_ok=True)
        made[directory] = None
        (directory / "part.conf").write_text(f"[Service]\n{text}\n")
        h4.systemctl("daemon-reload")

    yield write
    for directory in made:
        (directory / "part.conf").unlink()
        directory.rmdir()
    h4.systemctl("daemon-reload")
    h4.systemctl("reset-failed")
    h4.systemctl("start", "tenured")
    eventually(h4.is_back)


@pytest.fixture
def brief_hosts(rigs):
    """Hosts with a TTL of 2 s, for tests of a place that is lost."""
    return rigs("2s")


@pytest.fixture
def only_core(engine_of_hosts):
    """The test does not depend on what the places are in, and so runs on the core only."""
    if engine_of_hosts != "core":
        pytest.skip("what the agent does is the same on an etcd")


@pytest.fixture
def machine(shared):
    """machine.watched(): where the machine's own standstill excuses a failure."""
    return shared("machine", Probe)
