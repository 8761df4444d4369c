"""Services of a host: published, found, and gone with whoever offered them."""
import pytest
from harness.agent import NAME, Service
from harness.bus import GONE
from harness.waiting import ProgramError, eventually, eventually_is


def test_a_registered_service_goes_with_the_connection_of_its_caller(agent):
    eventually(lambda: agent.nodes())
    watch = agent.watch()
    caller = agent.background("register", "cache/a", "Port=11211", "role=primary")
    eventually_is([Service("cache", "h1", "a", 11211, {"role": "primary"})], agent.services)

    caller.kill()
    eventually_is([], agent.services)
    agent.ctl("set-tags", "later=yes")

    eventually_is([("ServiceAdded", "cache", ""), ("ServiceRemoved", "cache", "stopped"),
                   ("NodeChanged", "h1", "")],
                  lambda: [(event.event, event.name, event.reason) for event in watch.events()])


def test_a_registered_service_does_not_go_because_a_stranger_says_that_its_caller_has(agent):
    caller = agent.background("register", "cache", "Port=11211")
    eventually(agent.services)
    watch, name = agent.watch(), agent.bus.name_of(caller.pid)

    agent.bus.signal_to(agent.pid, *GONE, name, name, "")
    agent.ctl("set-tags", "later=yes")

    first = eventually(watch.events)[0]
    assert (first.event, first.name) == ("NodeChanged", "h1")


def test_who_registers_a_service_does_not_take_the_agent_for_gone_because_a_stranger_says_so(agent):
    caller = agent.background("register", "cache", "Port=11211")
    eventually(agent.services)
    agent.bus.signal_to(caller.pid, *GONE, NAME, agent.bus.name_of(agent.pid), "")

    agent.kill()
    agent.start()

    eventually_is(["Registered."] * 2, caller.lines)
    assert caller.log_text() == "tenurectl: the agent is gone; waiting for it.\n"


def test_a_service_that_is_registered_outlives_a_restart_of_the_agent(agent):
    caller = agent.background("register", "cache", "Port=11211")
    before = eventually(agent.services)

    agent.kill()
    agent.start()

    eventually_is(before, agent.services)
    assert caller.is_running


def test_a_sentence_of_the_agent_ends_once(agent):
    agent.background("register", "cache/a")
    eventually(agent.services)

    with pytest.raises(ProgramError) as refused:
        agent.ctl("register", "cache/a")

    assert refused.value.err == ("tenurectl: cannot register: The service 'cache' a on this host "
                                 "belongs to somebody else.\n")
