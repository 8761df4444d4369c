"""tenurectl wait: until a node or a service is there, or gone."""
import json
import re

from harness.places import BIN
from harness.program import Daemon
from harness.waiting import eventually


def begun(agent, *words):
    """A tenurectl wait that has looked once, and found that it has to wait."""
    wait = agent.background("--json=short", "wait", *words)
    eventually(lambda: wait.pid in agent.bus.subscribers(
        "org.freedesktop.DBus.Properties"))
    return wait


def ended(wait):
    assert wait.wait() == 0
    return json.loads(wait.out.read_text())


def test_a_node_is_waited_for_until_it_joins_and_until_it_is_gone(agents):
    agent = agents("h1")
    assert re.fullmatch(r"The node h1 holds a place; waited 0\.\d{3} s\.\n",
                        agent.ctl("wait", "node", "h1"))
    assert agent.ctl("wait", "node", "h2", "--gone", "--wait=0")

    joins = begun(agent, "node", "h2")
    other = agents("h2")
    said = ended(joins)
    assert (said["node"], said["gone"]) == ("h2", False) and said["waited_usec"] > 0

    leaves = begun(agent, "node", "--gone", "h2")
    other.ctl("leave")
    assert ended(leaves)["gone"] is True


def test_a_node_that_joins_anew_at_once_was_gone_in_between(agents):
    agent, other = agents("h1"), agents("h2")
    agent.node("h2")
    leaves = begun(agent, "node", "--gone", "h2")

    other.boot()

    assert ended(leaves)["node"] == "h2"


def test_a_service_is_there_with_its_first_provider_and_gone_with_the_last(agent):
    early = begun(agent, "service", "web")
    first = agent.background("register", "web/a")
    assert ended(early)["service"] == "web"
    agent.background("register", "web2")  # of another name that begins alike
    second = agent.background("register", "web/b")
    eventually(lambda: len(agent.services()) == 3)
    gone = begun(agent, "service", "web", "--gone")

    first.kill()
    eventually(lambda: len(agent.services()) == 2)
    assert gone.is_running
    second.kill()

    assert ended(gone)["gone"] is True


def test_an_agent_that_is_not_there_yet_or_is_restarted_is_waited_for(bus, agents):
    wait = Daemon(bus.log.with_name("wait.log"), BIN / "tenurectl", f"--bus={bus.address}", "wait",
                  "node", "h2").start()
    eventually(lambda: "no agent answers on this bus; waiting for it" in wait.log_text())
    agent = agents("h1", bus=bus)
    agent.restart()
    eventually(lambda: "the agent is gone; waiting for it" in wait.log_text())

    agents("h2")

    assert wait.wait() == 0


def test_what_is_not_so_in_time_has_a_status_of_its_own(agent):
    assert agent.refusal("wait", "node", "h9", "--wait=10ms") == (
        "the node h9 still holds no place after 0.01 s.", 2)
    assert agent.refusal("wait", "node", "h1", "--gone", "--wait=0") == (
        "the node h1 still holds a place after 0 s.", 2)
    assert agent.refusal("wait", "service", "web", "--wait=0") == (
        "the service web still has no provider after 0 s.", 2)
    assert agent.refusal("wait", "node", "a'b", "--wait=0")[1] == 1
    agent.kill()
    said, status = agent.refusal("wait", "node", "h1", "--wait=10ms")
    assert status == 2 and "it is not known whether the node h1 holds a place" in said


def test_an_agent_that_follows_no_core_does_not_say_that_a_node_is_gone(agents):
    agent = agents("h1", held=False, Endpoints="http://127.0.0.1:1")
    eventually(lambda: agent.status().state == "joining")

    for words in ["node", "h2"], ["service", "web"]:
        said, status = agent.refusal("wait", *words, "--gone", "--wait=0")
        assert status == 2 and said.startswith("after 0 s it is not known whether the ")
