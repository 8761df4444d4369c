"""Fixtures: what a test may ask for, by name. integration/README.md has them in a table."""
import re
import shutil
import uuid

import pytest

from harness import etcd as etcds
from harness import ledger
from harness.agent import Agent
from harness.authority import Authority
from harness.bus import Bus
from harness.cluster import Cluster
from harness.duty import Duty
from harness.library import Program
from harness.ports import Ports
from harness.proxy import Proxy
from harness.tie import Tie
from harness.waiting import eventually

pytest_plugins = ["harness.own_process", "harness.report"]


@pytest.fixture(autouse=True)
def programs(tmp_path):
    """Ends what the test has started, and fails the test if something was wrong with it."""
    ledger.begin()
    yield
    complaints = ledger.settle()
    if complaints:
        pytest.fail("\n".join(complaints), pytrace=False)
    elif not ledger.failed():
        shutil.rmtree(tmp_path, ignore_errors=True)  # a replica's data are 50 MB


def pytest_addoption(parser):
    parser.addoption("--seed", type=int, default=1, help="of what is drawn at random")
    parser.addoption("--night", action="store_true", help="runs what is marked night, too")
    parser.addoption("--seconds", type=float, default=60, help="how long a soak goes on")
    parser.addoption("--draws", type=int, default=2, help="how many, where each is a test")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("night") and "night" not in config.option.markexpr:
        config.hook.pytest_deselected(
            items=[item for item in items if item.get_closest_marker("night")])
        items[:] = [item for item in items if not item.get_closest_marker("night")]


def pytest_generate_tests(metafunc):
    """A test that names `draw` runs for each of so many seeds, which begin with --seed."""
    if "draw" in metafunc.fixturenames:
        seed, draws = map(metafunc.config.getoption, ("seed", "draws"))
        metafunc.parametrize("draw", range(seed, seed + draws))


@pytest.fixture
def seed(request):
    """Of what the test draws at random; another one by `tests/run --seed N`."""
    return request.config.getoption("seed")


@pytest.fixture
def seconds(request):
    """How long a soak goes on, by `tests/run --seconds N`."""
    return request.config.getoption("seconds")


@pytest.fixture(scope="session")
def ports():
    return Ports()


# ---- cores ----

@pytest.fixture
def new_cluster(tmp_path, ports):
    """Makes a core: new_cluster(1), new_cluster(3, "--auth-token-ttl=600"). One for each test."""
    return lambda size, *options, **more: Cluster(tmp_path, ports, size, *options, **more)


@pytest.fixture
def cluster(new_cluster):
    """A core of three replicas, which the test may hurt."""
    return new_cluster(3)


@pytest.fixture
def authority(tmp_path):
    """Signs certificates: new_cluster(3, authority=authority) has TLS on both its ports."""
    return Authority(tmp_path)


@pytest.fixture
def etcd(tmp_path, ports, wants_etcd):
    """An etcd, which the test may hurt."""
    return etcds.Etcd(tmp_path, ports)


@pytest.fixture(scope="session")
def wants_etcd():
    """The test is skipped without an etcd."""
    if not etcds.is_installed():
        pytest.skip("etcd is not installed (as root: apt install etcd-server)")


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """What lasts for all tests of a worker, and is made when a test first asks for it."""
    folders, engines = [], {}

    def engine(name, make):
        if name not in engines or not all(program.is_running for program in engines[name][1]):
            folders.append(tmp_path_factory.mktemp(name))
            with ledger.lasting() as started:
                engines[name] = make(folders[-1]), started
        made, started = engines[name]
        ledger.use(started)
        return made

    yield engine
    complaints = ledger.settle_session()
    if complaints:
        pytest.fail("\n".join(complaints), pytrace=False)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def shared_cluster(shared, ports):
    """A core of three replicas for tests that leave it as it is, and write below `prefix` only."""
    return shared("cluster", lambda folder: Cluster(folder, ports))


@pytest.fixture(params=["tenure-core", "etcd"])
def engine(request, shared, ports):
    """The test runs on the shared core, and then on a shared etcd."""
    if request.param == "tenure-core":
        return request.getfixturevalue("shared_cluster")
    request.getfixturevalue("wants_etcd")
    return shared("etcd", lambda folder: etcds.Etcd(folder, ports))


@pytest.fixture
def liar(shared, ports):
    """Lies on behalf of a core that lasts for all tests of a worker, and has no host or lease."""
    from harness.liar import Liar  # grpc takes a moment to load, and few tests need it
    liar = Liar(shared("core-of-liars", lambda folder: Cluster(folder, ports, 1)))
    liar.clear()
    yield liar
    liar.close()


@pytest.fixture
def fresh_liar(new_cluster):
    """A liar for a core of the test's own, whose history no other test reads."""
    from harness.liar import Liar
    liar = Liar(new_cluster(1))
    yield liar
    liar.close()


@pytest.fixture
def fresh_pair(new_cluster, etcd):
    """A core and an etcd, which are asked the same and must answer alike. Nobody has used them."""
    from harness.pair import Pair  # grpc takes a moment to load, and few tests need it
    with Pair(new_cluster(1), etcd) as pair:
        yield pair


@pytest.fixture
def shared_pair(shared, ports, wants_etcd):
    """shared_pair("name", prepare): a pair that lasts for all tests of a worker, each of which
    asks both for the same only. It was given to prepare() once."""
    from harness.pair import Pair
    pairs = []

    def pair(name, prepare=lambda pair: None):
        def make(folder):
            engines = Cluster(folder, ports, 1), etcds.Etcd(folder, ports)
            with Pair(*engines) as fresh:
                prepare(fresh)
            return engines
        pairs.append(Pair(*shared(name, make)))
        return pairs[-1]

    yield pair
    for made in pairs:
        made.close()
        if ledger.failed():  # the two may differ now: the next test gets another pair
            made.kill()


@pytest.fixture
def pair(shared_pair):
    return shared_pair("pair")


@pytest.fixture
def prefix(request):
    """For the keys of this test."""
    return f"{request.module.__name__}/{request.node.name}/"


# ---- hosts ----

@pytest.fixture
def core(request):
    """What the agents and programs of this test join: its own core or etcd, if it names one, and
    the shared core otherwise."""
    own = [name for name in ("cluster", "etcd", "engine") if name in request.fixturenames]
    return request.getfixturevalue(own[0] if own else "shared_cluster")


@pytest.fixture
def agents(tmp_path, core):
    """Makes hosts: agents("h2", TTL="3s") is an Agent with a bus of its own, which holds its
    place in a cluster of this test's own."""
    cluster = "t" + uuid.uuid4().hex[:12]

    def new(name, **options):
        return Agent(tmp_path, core, name, **{"Cluster": cluster, **options})

    return new


@pytest.fixture
def proxy(tmp_path, ports, core):
    """Passes calls on to `core`, and tells its clients to leave when the test says so."""
    return Proxy(tmp_path, ports, core)


@pytest.fixture
def bus(tmp_path):
    """A bus, with the project's policy."""
    return Bus(tmp_path)


@pytest.fixture
def agent(agents, bus):
    """The host h1, whose agent is on `bus` and holds its place."""
    return agents("h1", bus=bus)


@pytest.fixture
def duty(request, tmp_path, core):
    """What only one host may do at a time, with a lock of this test's own. duty.other("b") has
    another one."""
    return Duty(tmp_path, core, re.sub(r"\W+", "-", request.node.name)[:100])


@pytest.fixture
def program(tmp_path):
    """Compiles and runs programs that use libtenure."""
    return Program(tmp_path)


@pytest.fixture
def ties(tmp_path, core):
    """Makes ties, to `core` or by the agent that is on a bus: ties(hold=60, name="one") holds its
    lease when it has been made, and ties(hold="agent", bus=agent.bus) its place. @library: the
    environment of another libtenure."""
    def new(bus=None, held=True, library=None, **options):
        environment = bus.environment_for_clients if bus else {"TENURE_ENDPOINTS": core.endpoints}
        tie = Tie(tmp_path, {**environment, **(library or {})}, **options)
        if held and "hold" in options:
            eventually(tie.may_act)
        return tie

    return new
