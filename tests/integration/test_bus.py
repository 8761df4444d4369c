"""What one caller on the bus asks costs the agent, and those who ask beside it, little."""
import itertools
import os
import time

import pytest
from gi.repository import GLib
from harness.agent import MANAGER, NAME, PATH
from harness.bus import Bus
from harness.dbus import BUS, Connection
from harness.waiting import ProgramError, eventually, eventually_is

other_user = pytest.mark.skipif(os.getuid() != 0, reason="becomes another user, so needs root")


def refusal(agent, *words, **options):
    """What is said against it; "" if nothing is."""
    try:
        agent.call(*words, **options)
    except ProgramError as error:
        return error.err
    return ""


TENANCY, TURN = ("OpenTenancy",), ("OpenTurn", "ay", "1", str(ord("x")))


def hoard(agent, method):
    """A program that reads none of the descriptors that it asks for, and has all that there are."""
    hoarder, name = Connection(agent.bus), [b"x"] if method == TURN else []

    def has_all():
        hoarder.send(NAME, PATH, MANAGER, *method[:2], *name)
        return "16 calls of this user" in refusal(agent, *method)

    eventually(has_all)
    return hoarder


@pytest.mark.parametrize("method", [TENANCY, TURN])
def test_who_does_not_read_descriptors_gets_no_more_and_others_are_served(agent, method):
    hoarder = hoard(agent, method)
    assert agent.holds()
    hoarder.close()
    eventually(lambda: refusal(agent, *method) == "")


def test_a_new_caller_gets_a_descriptor_although_it_waits_for_many_lists(agent):
    with Connection(agent.bus) as caller:
        agent.freeze()
        lists = [caller.send(NAME, PATH, MANAGER, "ListNodes") for _ in range(20)]
        opened = caller.send(NAME, PATH, MANAGER, "OpenTenancy")
        caller.call(*BUS, "GetId")  # so the bus has handled what came before
        agent.thaw()

        for answer in caller.answers([*lists, opened]):
            answer.to_gerror()


def test_calls_are_dropped_while_the_bus_takes_no_answers(agents, tmp_path):
    # It takes no more of the agent while so much of it waits for those who do not read.
    bus = Bus(tmp_path, "narrow", max_incoming_bytes=65536, max_replies_per_connection=50000)
    agent, reader = agents("h1", bus=bus), Connection(bus)

    def ask():
        return reader.send(NAME, "/", "org.freedesktop.DBus.Introspectable", "Introspect")

    asked = [ask() for _ in range(15_000)]
    agent.log_has("Calls are dropped until they are read.")

    answered = {0}
    while max(answered) <= asked[-1]:  # until a later one is
        ask()
        answered.add(reader.receive().get_reply_serial())

    assert not answered >= set(asked)
    reader.close()
    assert agent.holds()


def test_a_bus_that_hangs_while_the_log_level_is_set_costs_no_place(agents, tmp_path):
    bus = Bus(tmp_path, "hangs")
    agent = agents("h1", bus=bus, TTL="10s")  # less than sd-bus would wait for an answer
    lease, caller = agent.status().lease_id, Connection(bus)
    agent.freeze()
    caller.send(NAME, "/org/freedesktop/LogControl1", "org.freedesktop.DBus.Properties", "Set",
                "ssv", "org.freedesktop.LogControl1", "LogLevel", GLib.Variant("s", "info"))
    caller.call(*BUS, "GetId")  # so the bus has handled what came before
    bus.freeze()

    agent.thaw()

    agent.log_has("The log level is info now.")
    bus.thaw()
    assert agent.status().lease_id == lease


@other_user
def test_the_log_level_is_not_for_everybody(agent):
    with Connection(agent.bus, user=65534) as nobody, pytest.raises(GLib.Error, match="Denied"):
        nobody.call(NAME, "/org/freedesktop/LogControl1", "org.freedesktop.DBus.Properties", "Set",
                    "ssv", "org.freedesktop.LogControl1", "LogLevel", GLib.Variant("s", "err"))


def test_a_lock_waits_while_others_of_its_user_have_all_the_descriptors(agent):
    hoarder = hoard(agent, TURN)
    command = agent.background("lock", "bus-busy", "--", "true")
    eventually(lambda: f'"pid":{command.pid},' in agent.bus.busctl("list"))
    hoarder.close()
    assert command.wait() == 0


@pytest.mark.parametrize("name", [b"", b"a" * 901, b"/tenure/default/nodes", b"a\0b"])
def test_no_turn_is_given_for_a_name_that_no_lock_can_have(agent, name):
    said = refusal(agent, "OpenTurn", "ay", str(len(name)), *map(str, name))
    assert "A lock cannot have that name" in said


def test_a_program_takes_as_many_turns_for_locks_as_it_likes(agent, ties):
    tie = ties(hold="agent", bus=agent.bus)  # on one connection, which reads each descriptor
    locks = [tie.lock_begin(f"bus-turn-{n}") for n in range(20)]
    eventually(lambda: all(lock.held() for lock in locks))


def test_a_program_has_more_services_than_the_bus_allows_the_agent_matches(agents, tmp_path):
    agent = agents("h1", bus=Bus(tmp_path, "narrow", max_match_rules_per_connection=10))
    with Connection(agent.bus) as program:
        program.answers([program.send(NAME, PATH, MANAGER, "RegisterService", "ssa{sv}", "web",
                                      str(n), {}) for n in range(30)])
        eventually(lambda: len(agent.services()) == 30)

    eventually_is([], agent.services)


def test_a_program_keeps_its_service_while_the_bus_hangs(agents, tmp_path):
    bus = Bus(tmp_path, "hangs")
    agent = agents("h1", bus=bus, environment={"SYSTEMD_BUS_TIMEOUT": "200ms"})
    with Connection(bus) as program:
        def register(name):
            return program.send(NAME, PATH, MANAGER, "RegisterService", "ssa{sv}", name, "", {})

        program.answers([register("first")])
        agent.freeze()
        later = register("later")
        program.call(*BUS, "GetId")  # so the bus has handled what came before
        bus.freeze()
        agent.thaw()
        agent.log_has("Service later on h1 is available")
        time.sleep(0.5)  # the agent gives up asking whether the program is there
        bus.thaw()
        program.answers([later])
        assert sorted(service.name for service in agent.services()) == ["first", "later"]


def test_a_call_is_answered_although_the_bus_hung(agents, tmp_path):
    bus = Bus(tmp_path, "hangs")
    agent = agents("h1", bus=bus, environment={"SYSTEMD_BUS_TIMEOUT": "200ms"})
    with Connection(bus) as other, Connection(bus) as caller:
        other.send(NAME, PATH, MANAGER, "WaitForRevision", "xt", 2**63 - 1, 3_600_000_000)
        agent.ctl("nodes")
        agent.freeze()
        call = caller.send(NAME, PATH, MANAGER, "ListNodes")
        caller.call(*BUS, "GetId")  # so the bus has handled what came before
        bus.freeze()
        agent.thaw()
        time.sleep(0.5)  # the agent gives up asking whose call it is
        bus.thaw()
        caller.answers([call])[-1].to_gerror()


MANY = ["130"] + ["a", "1"] * 130
LONG = "x" * 100_000


@pytest.mark.parametrize("words, path, sentence", [
    (["GetNode", "s", "h1"], "/a" * 2000, "at most 2048 bytes"),
    (["GetNodes", "ou", "/a" * 2000, "1"], PATH, "at most 2048 bytes"),
    (["GetNode", "s", LONG], PATH, "No node"),
    (["GetService", "sss", LONG, "h1", ""], PATH, "letters, digits"),
    (["UnregisterService", "ss", LONG, ""], PATH, "letters, digits"),
    (["SetTags", "a{ss}", *MANY], PATH, "at most 511 bytes"),
    (["RegisterService", "ssa{sv}", "web", "", "1", "Tags", "a{ss}", *MANY], PATH, "511 bytes"),
    (["RegisterService", "ssa{sv}", "web", "", "4", *["Port", "q", "80"] * 4], PATH, "each once"),
    (["RegisterService", "ssa{sv}", "web", "", "1", "Address", "s", "a\nSERVICE\t:1.1\tx"], PATH,
     "Address is a host"),
    (["SetTags", "a{ss}", "1", "a", "b\nSERVICE\t:1.1\tx"], PATH, "letters, digits")],
    ids=itertools.count())
def test_what_is_too_long_too_much_or_two_lines_is_refused_and_not_repeated(agent, words, path, sentence):
    said = refusal(agent, *words, path=path)
    assert sentence in said and len(said) < 2000
    assert agent.services() == []
