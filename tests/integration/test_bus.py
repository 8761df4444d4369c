"""What one caller on the bus asks costs the agent, and those who ask beside it, little."""
import pytest

from harness.agent import MANAGER, NAME, PATH
from harness.bus import Bus
from harness.dbus import Connection
from harness.waiting import ProgramError, eventually

def call(agent, method, *arguments, path=PATH):
    return agent.bus.call(NAME, path, MANAGER, method, *arguments)


def refusal(agent, *words, **options):
    """What is said against it; "" if nothing is."""
    try:
        call(agent, *words, **options)
    except ProgramError as error:
        return error.err
    return ""


TENANCY, TURN = ("OpenTenancy",), ("OpenTurn", "ay", "1", str(ord("x")))


def hoard(agent, method):
    """A program that reads none of the descriptors that it asks for, and has all that there are."""
    hoarder, values = Connection(agent.bus), [b"x"] if method[1:] else []

    def has_all():
        hoarder.send(NAME, PATH, MANAGER, *method[:2], *values)
        return "16 calls of this user" in refusal(agent, *method)

    eventually(has_all)
    return hoarder


@pytest.mark.parametrize("method", [TENANCY, TURN])
def test_who_does_not_read_descriptors_gets_no_more_and_others_are_served(agent, method):
    hoarder = hoard(agent, method)

    assert agent.holds()

    hoarder.close()
    eventually(lambda: refusal(agent, *method) == "")


def test_calls_are_dropped_while_the_bus_takes_no_answers(agents, tmp_path):
    # It takes no more of the agent while so much of it waits for those who do not read.
    bus = Bus(tmp_path, "narrow", max_incoming_bytes=65536, max_replies_per_connection=50000)
    agent, reader = agents("h1", bus=bus), Connection(bus)

    def ask():
        return reader.send(NAME, "/", "org.freedesktop.DBus.Introspectable", "Introspect")

    asked = [ask() for _ in range(15_000)]
    agent.log_has("Calls are dropped until it does.")

    answered = {0}
    while max(answered) <= asked[-1]:  # until a later one is
        ask()
        answered.add(reader.receive().fields.get("reply_to", 0))

    assert not answered >= set(asked)
    reader.close()
    assert agent.holds()


def test_a_lock_waits_while_others_of_its_user_have_all_the_descriptors(agent):
    hoarder = hoard(agent, TURN)
    command = agent.background("lock", "bus-busy", "--", "true")
    eventually(lambda: f'"pid":{command.pid},' in agent.bus.busctl("list"))

    hoarder.close()

    assert command.wait() == 0


def test_a_program_that_reads_its_descriptors_gets_as_many_as_it_asks_for(agent):
    for _ in range(40):
        call(agent, "OpenTenancy")


@pytest.mark.parametrize("name", [b"", b"a" * 901, b"/tenure/default/nodes", b"a\0b"])
def test_no_turn_is_given_for_a_name_that_no_lock_can_have(agent, name):
    said = refusal(agent, "OpenTurn", "ay", str(len(name)), *map(str, name))

    assert "A lock cannot have that name" in said


def test_a_program_takes_as_many_turns_for_locks_as_it_likes(agent, program):
    taker = program.python("""
import tenure
with tenure.Tie(hold="agent") as tie:  # on one connection, which reads each descriptor
    tie.held()
    for n in range(20):
        with tie.lock(f"bus-turn-{n}"):
            pass
print("done")
""", **agent.bus.environment_for_clients)

    assert taker.wait() == 0
    assert taker.lines() == ["done"]


def test_a_path_that_no_object_has_is_refused_before_it_is_looked_up(agent):
    assert "at most 2048 bytes" in refusal(agent, "GetNode", "s", "h1", path="/a" * 2000)
    assert "at most 2048 bytes" in refusal(agent, "GetNodes", "ou", "/a" * 2000, "1")


def test_a_name_that_nothing_has_is_not_repeated(agent):
    long = "x" * 100_000
    for words in (("GetNode", "s", long), ("GetService", "sss", long, "h1", ""),
                  ("UnregisterService", "ss", long, "")):
        assert len(refusal(agent, *words)) in range(1, 2000)


def test_tags_and_properties_are_read_up_to_the_first_that_has_no_room(agent):
    many = ["130"] + ["a", "1"] * 130
    assert "at most 511 bytes" in refusal(agent, "SetTags", "a{ss}", *many)
    assert "at most 511 bytes" in refusal(agent, "RegisterService", "ssa{sv}", "web", "", "1",
                                          "Tags", "a{ss}", *many)
    assert "each once" in refusal(agent, "RegisterService", "ssa{sv}", "web", "", "4",
                                  *["Port", "q", "80"] * 4)
    assert agent.services() == []
