"""What the agent serves on the bus, as its manual page has it."""
import os
import re

import pytest
from gi.repository import GLib
from harness.agent import MANAGER, NAME, PATH
from harness.bus import Bus
from harness.dbus import BUS, ERROR, MAY_ASK_THE_USER, Connection, Polkit, changes_of, values
from harness.places import BIN, TOP
from harness.program import run
from harness.waiting import ProgramError, eventually

NOBODY = 65534
MANUAL = TOP / "agent/tenured/org.tenure.Membership1.5"
LOG = "/org/freedesktop/LogControl1", "org.freedesktop.LogControl1"
other_user = pytest.mark.skipif(os.getuid() != 0, reason="becomes another user, so needs root")


@pytest.fixture
def host(agents, bus):
    """h1, which publishes a service web, and knows of it and of itself."""
    agent = agents("h1", bus=bus, Tags="zone=a")
    (agent.folder / "services.d/web.service-entry").write_text("[Service]\nPort=80\n")
    agent.reload()
    eventually(lambda: agent.nodes() and agent.services())
    return agent


@pytest.mark.parametrize("path, kind", [
    ("", "Manager"), ("/node/h1", "Node"), ("/service/web/h1/_", "Service")])
def test_the_manual_and_the_installed_introspection_have_what_is_served(host, path, kind):
    xml, = host.call("Introspect", path=PATH + path,
                     interface="org.freedesktop.DBus.Introspectable")

    served = re.search(f'<interface name="{NAME}.{kind}">.*?</interface>', xml, re.S)[0]
    names = set(re.findall(r'<(?:method|property|signal) name="(\w+)"', served))
    assert len(names) > 5
    assert {name for name in names if not re.search(rf"\b{name}\b", MANUAL.read_text())} == set()
    assert served in run(BIN / "tenured", f"--introspect={NAME}.{kind}")


def test_nodes_and_services_are_objects(host):
    node, service = f"{PATH}/node/h1", f"{PATH}/service/web/h1/_"

    assert host.call("ListNodes")[0][0][::3] == ["h1", node]
    assert host.call("GetNode", "s", "h1") == [node]
    assert host.call("ListServices")[0][0][::4] == ["web", service]
    assert host.call("GetService", "sss", "web", "h1", "") == [service]
    objects, = host.call("GetManagedObjects", interface="org.freedesktop.DBus.ObjectManager")
    assert objects[node][f"{NAME}.Node"]["Tags"] == {"zone": "a"}
    assert objects[service][f"{NAME}.Service"]["Port"] == 80


@pytest.mark.parametrize("key, before, after, path, what", [
    ("nodes/h2", "{}", '{"tags":{"zone":"b"}}', "/node/h2", ("Node", "Tags", {"zone": "b"})),
    ("services/db/h2", '{"port":80}', '{"port":81}', "/service/db/h2/_", ("Service", "Port", 81)),
], ids=["node", "service"])
def test_an_object_reports_that_its_properties_have_changed(agent, core, key, before, after, path,
                                                          what):
    top = agent.key.removesuffix("nodes/h1")
    seen = NAME, PATH, MANAGER, "WaitForRevision", "xt"
    core.put(f"{top}nodes/h2", "{}")
    with Connection(agent.bus) as caller:
        caller.call(*seen, core.put(top + key, before), 60_000_000)
        caller.call(*BUS, "AddMatch", "s",
                    f"type='signal',path='{PATH}{path}',member='PropertiesChanged'")
        *told, _ = caller.answers([caller.send(*seen, core.put(top + key, after), 60_000_000)])

    interface, name, value = what
    (said_of, changed, _), = map(values, told)
    assert (said_of, changed[name]) == (f"{NAME}.{interface}", value)


def test_the_ttl_that_is_asked_for_is_announced_while_there_is_no_place(agents):
    agent = agents("h1", held=False, Endpoints="http://127.0.0.1:1", TTL="6s")
    agent.log_has("On the system bus")

    with changes_of(agent, "TTLUSec") as until:
        agent.reload(TTL="5s")
        assert 5_000_000 in until(5_000_000)


@pytest.mark.parametrize("words, sentence", [
    (["GetNode", "s", "nobody"], "No node 'nobody' is in the cluster"),
    (["GetService", "sss", "web", "nobody", ""], "No service 'web' is on a node 'nobody'"),
    (["GetNodes", "ou", "/nothing", "2"], "'/nothing' is neither '/' nor the path of a node"),
    (["LeaveWithFlags", "t", "6"], "The only flag is 1"),
])
def test_a_call_that_cannot_be_answered_is_refused_with_a_sentence(agent, words, sentence):
    with pytest.raises(ProgramError, match=sentence):
        agent.call(*words)


def test_a_page_begins_behind_the_object_that_is_named(host, core):
    for name in "h2", "h3", "h4":
        core.put(host.key.replace("h1", name), "{}")
    eventually(lambda: len(host.nodes()) == 4)

    page, = host.call("GetNodes", "ou", f"{PATH}/node/h1", "2")

    assert [path for path, _ in page] == [f"{PATH}/node/h2", f"{PATH}/node/h3"]


def test_the_level_of_the_log_is_changed_on_the_bus(agent):
    def set_level(level):
        agent.call("Set", "ssv", LOG[1], "LogLevel", "s", level, path=LOG[0],
                   interface="org.freedesktop.DBus.Properties")

    set_level("notice")
    assert agent.properties(*LOG)["LogLevel"] == "notice"

    with pytest.raises(ProgramError, match="must be err, warning, notice, info or debug, not 'lou"):
        set_level("loud")


@other_user
def test_polkit_decides_about_programs_of_other_users(agents, bus):
    polkit = Polkit(bus)
    agents("h1", bus=bus)

    with Connection(bus, user=NOBODY) as nobody:
        def call(method, *values):
            return nobody.call(NAME, PATH, MANAGER, method, *values, flags=MAY_ASK_THE_USER)

        call("RegisterService", "ssa{sv}", "allowed", "", {})
        for words in (["RegisterService", "ssa{sv}", "other", "", {}], ["Leave"], ["Join"],
                      ["SetTags", "a{ss}", {"a": "b"}], ["OpenTurn", "ay", b"job"]):
            with pytest.raises(GLib.Error, match="polkit asks for authentication"):
                call(*words)

    node = {"node": "h1"}
    assert polkit.asked == [
        ("register-service", {**node, "service": "allowed"}, True),
        ("register-service", {**node, "service": "other"}, True), ("manage", node, True),
        ("manage", node, True), ("set-tags", node, True), ("lock", {**node, "lock": "job"}, True)]


@other_user
def test_polkit_asks_nobody_any_more_on_behalf_of_a_program_that_has_ended(agents, bus):
    polkit = Polkit(bus)
    agents("h1", bus=bus)
    with Connection(bus, user=NOBODY) as nobody:
        nobody.send(NAME, PATH, MANAGER, "RegisterService", "ssa{sv}", "later", "", {},
                    flags=MAY_ASK_THE_USER)
        eventually(lambda: polkit.open)

    eventually(lambda: not polkit.open)


@other_user
def test_other_users_can_send_the_agent_calls_and_nothing_else(agent, bus):
    with Connection(bus, user=NOBODY) as nobody:
        sent = [nobody.send_signal(NAME, PATH, interface, "Anything") for interface in (
            MANAGER, f"{NAME}.Node", f"{NAME}.Service", "org.freedesktop.DBus.Peer",
            "org.freedesktop.DBus.Introspectable", "org.freedesktop.DBus.ObjectManager")]
        said = nobody.answers([nobody.send(*BUS, "GetId")])

    assert {answer.get_reply_serial() for answer in said if answer.get_error_name() ==
            "org.freedesktop.DBus.Error.AccessDenied"} == set(sent)


# ---- who asks for all of ten thousand nodes ----

DEAR = [(PATH, MANAGER, "ListNodes"), (PATH, MANAGER, "ListServices"), (PATH, MANAGER, "Describe"),
        (f"{PATH}/node", "org.freedesktop.DBus.Introspectable", "Introspect"),
        (f"{PATH}/service", "org.freedesktop.DBus.Introspectable", "Introspect"),
        (PATH, MANAGER, "GetNodes", "ou", "/", 0), (PATH, MANAGER, "GetServices", "ou", "/", 0),
        (PATH, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")]
PING = PATH, "org.freedesktop.DBus.Peer", "Ping"
N_PINGS = 120  # a bus lets nobody wait for more than 128 answers


def crowd(core, agent, n):
    """That many nodes and services, m00000 and so on."""
    nodes, services = agent.key.removesuffix("h1"), agent.key.replace("nodes/h1", "services/crowd/")
    record = '{"id":"0123456789abcdef0123456789abcdef","ttl_ms":10000}'
    core.put_all([(f"{nodes}m{i:05}", record) for i in range(n)])
    core.put_all([(f"{services}m{i:05}", '{"port":80}') for i in range(n)])
    eventually(lambda: agent.properties()["NServices"] == n)


def test_a_call_that_costs_much_is_answered_whole_and_leaves_others_their_turns(agent, cluster):
    crowd(cluster, agent, 10_000)
    before = {}

    with Connection(agent.bus) as caller:
        # The agent knows who asks, as long as a call of his waits, and does not ask the bus.
        caller.send(NAME, PATH, MANAGER, "WaitForRevision", "xt", 2**63 - 1, 3_600_000_000)
        for call in DEAR:
            agent.freeze()
            costly = caller.send(NAME, *call)
            pings = [caller.send(NAME, *PING) for _ in range(N_PINGS)]
            caller.call(*BUS, "GetId")  # by now the bus has passed them on
            agent.thaw()
            came = [answer.get_reply_serial() for answer in caller.answers([costly, *pings])]
            before[call[0].rpartition("/")[2], call[2]] = came.index(costly)

    # What is answered in one turn of the agent's loop, or few, is before most of them.
    assert min(before.values()) >= N_PINGS / 2, before
    # And all of the crowd is listed.
    assert len(agent.nodes()) == 10_001
    objects, = agent.call("GetManagedObjects", interface="org.freedesktop.DBus.ObjectManager")
    assert len(objects) == 20_001
    for kind, child in ("node", "m00077"), ("service", "crowd/m00077/_"):
        xml, = agent.call("Introspect", path=f"{PATH}/{kind}",
                          interface="org.freedesktop.DBus.Introspectable")
        assert xml.count("<node name=") >= 10_000 and f'<node name="{child}"/>' in xml


def test_a_list_and_what_is_announced_after_it_are_whole(agent, cluster):
    crowd(cluster, agent, 10_000)
    with Connection(agent.bus) as caller:
        caller.call(*BUS, "AddMatch", "s", f"type='signal',interface='{MANAGER}'")
        agent.freeze()
        asked = caller.send(NAME, PATH, MANAGER, "ListNodes")
        cluster.put_all([(agent.key.replace("h1", f"a{i:04}"), "{}") for i in range(1_000)])
        waits = caller.send(NAME, PATH, MANAGER, "WaitForRevision", "xt",
                            cluster.put(agent.key.replace("h1", "last"), "{}"), 60_000_000)
        agent.thaw()
        came = caller.answers([asked, waits])

    known = set()
    for message in came:
        if message.get_reply_serial() == asked:
            known |= {name for name, *_ in values(message)[0]}
        elif message.get_member() == "NodeJoined":
            known.add(values(message)[0])
    assert {f"a{i:04}" for i in range(1_000)} | {"last", "h1"} <= known


@other_user
def test_a_user_may_have_so_many_calls_wait_and_others_may_wait_beside(
        agents, core, prefix, tmp_path):
    agent = agents("h1", bus=Bus(tmp_path, "wide", max_replies_per_connection=50_000))
    with Connection(agent.bus, user=NOBODY) as hostile:
        waits = [hostile.send(NAME, PATH, MANAGER, "WaitForRevision", "xt", 2**63 - 1,
                              3_600_000_000) for _ in range(1_000)]

        refused = [answer for answer in hostile.answers(waits[256:])
                   if answer.get_message_type() == ERROR]

        assert [answer.get_reply_serial() for answer in refused] == waits[256:]
        assert {answer.get_error_name() for answer in refused} == {
            "org.freedesktop.DBus.Error.LimitsExceeded"}
        agent.ctl("wait-revision", str(core.put(prefix + "k", "")), "60")
