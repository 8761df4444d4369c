"""What one caller on the bus asks costs the agent, and those who ask beside it, little."""
import signal

import pytest

from harness.agent import MANAGER, NAME, PATH
from harness.bus import Bus
from harness.waiting import ProgramError, eventually

# Calls a method many times, with an array of bytes if there is a text, and reads no answer. In
# D-Bus's own words, since a library would read.
CALLS = """
import os, select, signal, socket, struct, sys, time
address, *target, text, times = sys.argv[1:]

def field(code, kind, text):
    return struct.pack("<BB2sI", code, 1, kind + b"\\0", len(text)) + text.encode() + b"\\0"

def call(serial, to, path, interface, member, text=""):
    fields = b""
    for each in (1, b"o", path), (6, b"s", to), (2, b"s", interface), (3, b"s", member):
        fields += bytes(-len(fields) % 8) + field(*each)
    if text:
        fields += bytes(-len(fields) % 8) + struct.pack("<BB2sB3s", 8, 1, b"g\\0", 2, b"ay\\0")
    body = struct.pack("<I", len(text)) + text.encode() if text else b""
    head = struct.pack("<cBBBIII", b"l", 1, 0, 1, len(body), serial, len(fields)) + fields
    return head + bytes(-len(head) % 8) + body

bus = socket.socket(socket.AF_UNIX)
bus.connect("\\0" + address.removeprefix("unix:abstract="))
for line in "\\0AUTH EXTERNAL " + str(os.getuid()).encode().hex(), "NEGOTIATE_UNIX_FD":
    bus.sendall(line.encode() + b"\\r\\n")
    bus.recv(4096)
bus.sendall(b"BEGIN\\r\\n" + call(1, *["org.freedesktop.DBus", "/org/freedesktop/DBus",
                                   "org.freedesktop.DBus", "Hello"]))
for i in range(int(times)):
    bus.sendall(call(i + 2, *target, text))
"""

HOARDER = CALLS + """
while True:  # what another call of this user had at that moment, too
    time.sleep(0.1)
    i += 1
    bus.sendall(call(i + 2, *target, text))
"""


# Reads, once it gets SIGUSR1, until something that it has called meanwhile is answered. Prints
# whether all that it had called before was answered, too.
LATE_READER = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
""" + CALLS + """
def read(n):
    data = b""
    while len(data) < n:
        data += bus.recv(n - len(data))
    return data

signal.sigwait([signal.SIGUSR1])
answered, bus_waits = set(), select.poll()
bus_waits.register(bus, select.POLLIN)
while not answered or max(answered) < int(times) + 2:
    if not bus_waits.poll(10):
        i += 1
        bus.sendall(call(i + 2, *target, text))
        continue
    head = read(16)
    body, fields = struct.unpack("<4xI4xI", head)
    fields = read(fields + -fields % 8)
    read(body)
    at = fields.find(b"\\x05\\x01u\\0")
    if at >= 0:
        answered.add(struct.unpack_from("<I", fields, at + 4)[0])
print(answered >= set(range(2, int(times) + 2)))
"""


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


def hoard(agent, program, method):
    """A program that reads none of the descriptors that it asks for, and has all that there are."""
    hoarder = program.python(HOARDER, agent.bus.address, NAME, PATH, MANAGER, method[0],
                             "x" if method[1:] else "", "100")
    eventually(lambda: "16 calls of this user" in refusal(agent, *method))
    return hoarder


@pytest.mark.parametrize("method", [TENANCY, TURN])
def test_who_does_not_read_descriptors_gets_no_more_and_others_are_served(agent, program, method):
    hoarder = hoard(agent, program, method)

    assert agent.holds()

    hoarder.kill()
    eventually(lambda: refusal(agent, *method) == "")


def test_calls_are_dropped_while_the_bus_takes_no_answers(agents, tmp_path, program):
    # It takes no more of the agent while so much of it waits for those who do not read.
    bus = Bus(tmp_path, "narrow", max_incoming_bytes=65536, max_replies_per_connection=50000)
    agent = agents("h1", bus=bus)
    reader = program.python(LATE_READER, bus.address, NAME, "/",
                            "org.freedesktop.DBus.Introspectable", "Introspect", "", "15000")
    eventually(lambda: "Calls are dropped until it does." in agent.log_text())

    reader.process.send_signal(signal.SIGUSR1)

    assert reader.wait() == 0
    assert reader.lines() == ["False"]
    assert agent.holds()


def test_a_lock_waits_while_others_of_its_user_have_all_the_descriptors(agent, program):
    hoarder = hoard(agent, program, TURN)
    command = agent.background("lock", "bus-busy", "--", "true")
    eventually(lambda: f'"pid":{command.pid},' in agent.bus.busctl("list"))

    hoarder.kill()

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
