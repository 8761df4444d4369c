"""Cores, agents, tools and programs with libtenure of two releases: those of h1 may be earlier ones,
and so may the core; what is on h2 is present."""
import functools
import itertools
import json
import re
from xml.etree import ElementTree

import pytest

from harness.agent import NAME, Agent
from harness.cluster import Cluster
from harness.earlier import RELEASES, Release
from harness.places import BIN
from harness.program import run
from harness.restarts import Restarts
from harness.waiting import ProgramError, eventually, eventually_is

pytestmark = pytest.mark.night("builds the programs of each release")


@pytest.fixture(params=RELEASES)
def release(request):
    return Release(request.param)


@pytest.fixture(params=["earlier", "upgraded", "finished"])
def core(request, release, shared, ports):
    """A replica that the earlier release has begun; with the present program, and with the
    upgrade finished. It lasts for all tests of a worker."""
    def make(folder):
        made = Cluster(folder, ports, 1, program=release.programs() / "tenure-core")
        if request.param != "earlier":
            Restarts(made).restart(made.replicas["a"], BIN / "tenure-core")
        if request.param == "finished":
            made.ctl("core", "upgrade", "--finish")
        return made

    return shared(f"{release.folder.name}-{request.param}", make)


@pytest.fixture(params=["earlier", "present"])
def tenured(request, release):
    return (release.programs() if request.param == "earlier" else BIN) / "tenured"


@pytest.fixture(params=["earlier", "present"])
def tools(request, release):
    """The folder of tenurectl, and the environment of libtenure."""
    if request.param == "earlier":
        return release.programs(), release.library()
    return BIN, {}


@pytest.fixture
def h1(agents, bus, tenured, tools):
    return agents("h1", bus=bus, program=tenured, tenurectl=tools[0] / "tenurectl")


@pytest.fixture
def h2(agents):
    return agents("h2")


def test_hosts_know_each_other_and_learn_of_each_other(h1, h2):
    both = h1, h2
    for host in both:
        eventually(lambda: set(host.nodes()) == {"h1", "h2"})
        host.ctl("set-tags", f"is={host.name}")
        host.background("register", "queue", "Port=1", "role=any")
    for host in both:
        eventually_is({"h1": {"is": "h1"}, "h2": {"is": "h2"}},
                      lambda: {node.name: node.tags for node in host.nodes().values()})
        eventually(lambda: len(host.services()) == 2)
    eventually(lambda: h1.nodes() == h2.nodes())
    assert h1.services() == h2.services()
    watches = [host.watch() for host in both]

    for host in both:
        host.ctl("leave", *["--reason=a new kernel"][:host is h2])  # 0.1.0 skips the note
        host.ctl("join")
        eventually(host.holds)

    for watch, host in itertools.product(watches, both):
        eventually_is(["NodeLeft left", "NodeJoined"], lambda: [
            told for told in watch.told_of(host.name) if told.startswith("Node")])


def test_a_lock_passes_from_one_to_the_other(h1, h2, duty):
    tokens, before = [], None
    for host, other in (h1, h2), (h2, h1), (h1, h2):
        holder = before or duty.begin(host)
        before = duty.wait(other)
        host.ctl("switchover", duty.lock)
        assert holder.wait() == 123 and holder.has_been_told()
        tokens += holder.tokens + eventually(lambda: before.tokens)
    assert tokens == sorted(tokens)


def test_programs_and_commands_share_locks_keys_and_services(h1, h2, tools, ties, duty, prefix):
    first = ties(hold="agent", bus=h1.bus, library=tools[1], follow=3)
    second = ties(hold="agent", bus=h2.bus, follow=3)
    own = ties(hold=60, name=duty.lock, library=tools[1])

    # The lock: a program of h1, a command of h2, a session, a program of h2.
    lock = first.lock_begin(duty.lock)
    tokens = [first.hears("LOCKED") and lock.token()]
    assert h1.refusal("--wait=300ms", "lock", duty.lock, "--", "true")[1] == 124
    command = duty.wait(h2)
    asked = h1.background("switchover", duty.lock)
    first.hears("ASKED")
    lock.hand_over()
    tokens += eventually(lambda: command.tokens)
    assert asked.wait() == 0
    lock.release()  # it stood in line again
    lock = own.lock_begin(duty.lock)
    h2.ctl("switchover", duty.lock)
    assert command.wait() == 123
    tokens += [own.hears("LOCKED") and lock.token()]
    last = second.lock_begin(duty.lock)
    lock.release()
    tokens += [second.hears("LOCKED") and last.token()]
    assert tokens == sorted(set(tokens))

    first.watch(prefix, prefix=True)
    h1.ctl("put", prefix + "k", "by h1", "--while-held")
    second.put_held(prefix + "k", "by a program")
    eventually_is([b"by h1", b"by a program"], lambda: [
        event.kv.value for event in first.events() if event.type == "PUT"])
    for tie, name in (first, "one"), (second, "two"):
        tie.register(name, port=11211, tags={"role": "primary"})
    for tie in first, second:
        eventually_is({"one", "two"}, lambda: {
            event.service.name for event in tie.events() if event.type == "SERVICE_ADDED"})
    assert set(first.nodes()) == {"h1", "h2"}


def test_a_session_has_one_holder_of_any_release(release, core, ties, duty):
    libraries = [release.library(), {}]
    for n, (one, two) in enumerate((libraries, libraries[::-1])):
        first = ties(hold=60, name=f"{duty.lock}{n}", library=one)
        second = ties(hold=60, name=f"{duty.lock}{n}", library=two, held=False)
        assert "is held by another program" in second.hears("LOST").reason
        first.leave()
        second.hears("HELD")
        assert second.may_act() and not first.may_act()


def test_programs_and_commands_divide_tasks(h1, h2, tools, ties, core):
    cluster, heard = h1.settings["Cluster"], [0, 0]
    words = f"--endpoints={core.endpoints}", f"--cluster={cluster}", "work", "g"
    ties = [ties(hold=60, name="p1", cluster=cluster, library=tools[1]),
            ties(hold=60, name="p2", cluster=cluster)]
    works = [tie.work("g", 24) for tie in ties]
    for host in h1, h2:
        host.background(*words, f"--name={host.name}", "--tasks=24", "--", "sleep", "36000")

    def members():
        for n, tie in enumerate(ties):
            events = tie.events()
            for event in events[heard[n]:]:
                if event.type == "TASK_END":
                    works[n].ended(event.task)
            heard[n] = len(events)
        return [task.get("member") for task in json.loads(h1.ctl("--json=short", *words))]

    eventually_is({"p1", "p2", "g:h1", "g:h2"}, lambda: set(members()))
    assert len(members()) == 24


def test_no_release_of_the_agent_costs_a_place_or_a_lock(
        release, h1, h2, tools, ties, duty, prefix):
    program, own = ties(hold="agent", bus=h1.bus, library=tools[1]), duty.other("own")
    program.register("cache", port=11211)
    lock = program.lock_begin(own.lock)
    program.hears("LOCKED")
    holder, lease, token = duty.begin(h1), h1.status().lease_id, lock.token()
    eventually(h2.services)
    watch = h2.watch()

    for n, built in enumerate([BIN, release.programs(), BIN, release.programs()]):
        renewed = h1.properties()["LastRenewalUSec"]
        h1.command[0] = built / "tenured"
        h1.crash() if n % 2 else h1.restart()
        eventually(lambda: h1.holds() and h1.properties()["LastRenewalUSec"] > renewed)
        for each, tool in itertools.product((duty, own), (BIN, release.programs())):
            with pytest.raises(ProgramError) as refused:
                run(tool / "tenurectl", h1.tenurectl[1], "--wait=100ms", "lock", each.lock, "--",
                    "true")
            assert refused.value.status == 124
        h1.ctl("put", prefix + "k", str(n), f"--lock={duty.lock}", "--while-held")
        eventually(program.may_act)
        program.put_held(prefix + "k", f"program {n}")

    assert h1.status().lease_id == lease and lock.held() and lock.token() == token
    assert len(holder.tokens) == 1 and not holder.has_been_told()
    assert {"LOST", "UNLOCKED"}.isdisjoint(program.told())
    h2.ctl("set-tags", "last=yes")
    eventually(lambda: watch.told_of("h2") == ["NodeChanged"])
    assert set(watch.told_of("h1")) <= {"NodeChanged"}  # its AgentVersion


def test_agents_log_in_at_the_core_of_another_release(release, tmp_path, ports):
    programs = [release.programs(), BIN]
    core = Cluster(tmp_path, ports, 1, program=programs[0] / "tenure-core")
    (tmp_path / "password").write_text("agent\n")
    login = dict(User="agent", PasswordFile=tmp_path / "password", TTL="12s")
    without = Agent(tmp_path, core, "h1", **login)
    core.with_users(agent=("readwrite", "/tenure/"))
    earlier = Agent(tmp_path, core, "h2", program=programs[0] / "tenured", **login)
    root = core.as_user("root", "root")

    for program in programs:
        Restarts(root).restart(core.replicas["a"], program / "tenure-core")
        for agent, other in (without, earlier), (earlier, without):
            agent.ctl("set-tags", f"at={program.parts[-3]}")
            root.wait_for_renewal(agent.status().lease_id)
            eventually(lambda: other.nodes()[agent.name].tags == {"at": program.parts[-3]})
    assert [agent.said("lost its place") for agent in (without, earlier)] == [None, None]


# ---- what each says ----

def members(tenured, kind):
    """Of the interface, with their types."""
    interface, = ElementTree.fromstring(run(tenured, f"--introspect={NAME}.{kind}")).iter(
        "interface")
    return {(each.tag, each.get("name"), each.get("type"), each.get("access"),
             *((arg.get("type"), arg.get("direction")) for arg in each.iter("arg")))
            for each in interface}


@pytest.mark.parametrize("kind", ["Manager", "Node", "Service"])
def test_an_agent_serves_what_earlier_ones_have_served(release, kind):
    earlier = members(release.programs() / "tenured", kind)
    assert len(earlier) > 5
    assert earlier - members(BIN / "tenured", kind) == set()


def names(said, path=()):
    """All names of members in the JSON, each with those above it; of maps with names of others'
    none."""
    if isinstance(said, list):
        return set().union(*(names(each, path) for each in said))
    if not isinstance(said, dict) or path and path[-1].lower() == "tags":
        return {path}
    return set().union(*(names(each, (*path, name)) for name, each in said.items()))


def test_any_tool_reads_what_any_agent_and_core_say(release, core, agents):
    """And has at least what the earlier one has of the earlier agent."""
    hosts = [agents("h1", program=release.programs() / "tenured"), agents("h2")]
    tools = [functools.partial(run, bin / "tenurectl", f"--bus={host.bus.address}")
             for host, bin in itertools.product(hosts, (release.programs(), BIN))]
    for host in hosts:
        host.background("register", "queue", "Port=1", "role=any")
        host.ctl("set-tags", "zone=a")
    for host in hosts:
        eventually(lambda: len(host.services()) == 2)
    lease, at = f"{hosts[0].status().lease_id:016x}", f"--endpoints={core.endpoints}"
    askers = [functools.partial(run, bin / "tenurectl", at) for bin in (release.programs(), BIN)]
    for programs, words in (
            *((tools, words) for words in (["status"], ["nodes"], ["services"], ["describe"],
                                           ["ttl", "advise"])),
            *((askers, words) for words in (["core", "members"], ["lease", "list"],
                                            ["lease", "ttl", lease]))):
        earliest, *others = (names(json.loads(program("--json=short", *words)))
                             for program in programs)
        assert len(earliest) > 1
        for said in others:
            assert earliest - said == set()
    for words in ["metrics"], ["top", "--once"]:
        earliest, *others = (set(re.findall(r"^(?:# TYPE )?(\w+)", tool(*words), re.M))
                             for tool in tools)
        assert len(earliest) > 2
        for said in others:
            assert earliest - said == set()


# ---- what differs on purpose: conf/debian/changelog ----

only_0_1_0 = pytest.mark.parametrize("release", ["0.1.0"], indirect=True)


def rename(agent, core, name, program):
    """Its host fails, and boots with that name and that agent."""
    before = agent.status().lease_id
    agent.kill()
    lease = core.lease(before)
    eventually(lambda: core.lease(before).ttl <= lease.ttl - 2)  # no host boots within a second
    agent.command[0] = program
    agent.write_settings(NodeName=name)
    agent.boot()
    eventually(agent.holds)


@only_0_1_0
def test_the_agent_of_a_renamed_host_takes_the_place_of_an_earlier_one_over(
        release, core, agents):
    earlier = release.programs() / "tenured"
    agent = agents("h1", program=earlier)
    others = agents("h2"), agents("h3", program=earlier)
    watches = [other.watch() for other in others]
    for other in others:
        other.node("h1")

    rename(agent, core, "h7", BIN / "tenured")

    assert core.get(agent.key) is None
    for watch, reason in zip(watches, ("replaced", "expired")):
        eventually_is(["NodeLeft " + reason], lambda: watch.told_of("h1"))
        eventually_is(["NodeJoined"], lambda: watch.told_of("h7"))

    lease = agent.status().lease_id
    agent.command[0] = earlier
    agent.restart()
    assert agent.status().lease_id == lease


@only_0_1_0
def test_a_host_that_an_earlier_agent_lists_twice_is_listed_once_by_the_present_one(
        release, core, agents):
    agent = agents("h1", TTL="10m", program=release.programs() / "tenured")
    other = agents("h2")
    rename(agent, core, "h7", agent.command[0])
    eventually_is({"h1", "h2", "h7"}, lambda: set(other.nodes()))

    rename(agent, core, "h1", BIN / "tenured")

    eventually_is({"h1", "h2"}, lambda: set(other.nodes()))


@only_0_1_0
def test_a_node_id_is_refused_by_the_present_agent_and_tolerated_by_an_earlier_one(
        release, core, agents):
    first = agents("h1", NodeId="1" * 32)
    second = agents("h2", NodeId="1" * 32, program=release.programs() / "tenured")
    first.log_has("Another host, h2, has our node id")
    third = agents("h3", NodeId="1" * 32, held=False)

    third.log_has("this host's node id is that of node 'h1'")
    assert first.holds() and second.holds()


@only_0_1_0
def test_a_present_agent_follows_a_core_that_was_forced_and_an_earlier_one_joins_it_again(
        release, tmp_path, ports):
    core = Cluster(tmp_path, ports, 3, program=release.programs() / "tenure-core")
    follows = Agent(tmp_path, core, "h1", TTL="20s")
    joins = Agent(tmp_path, core, "h2", TTL="20s", program=release.programs() / "tenured")
    leases = [host.status().lease_id for host in (follows, joins)]
    a = core.replicas["a"]
    eventually(lambda: core.get(joins.key, at=a))
    for replica in core.running:
        replica.kill()

    a.command[0] = str(BIN / "tenure-core")
    run(*a.command, "--force-new-cluster")
    a.start()

    core.replicas = {"a": a}
    eventually(lambda: joins.holds_another(leases[1]))
    eventually(follows.holds)
    assert follows.status().lease_id == leases[0]
    for host in follows, joins:
        eventually(lambda: set(host.nodes()) == {"h1", "h2"})
    assert not follows.said("lost its place")
