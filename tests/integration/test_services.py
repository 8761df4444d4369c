"""Services of a host: published, found, and gone with whoever offered them."""
import json
import re

import pytest
from harness.agent import NAME, Service
from harness.bus import GONE
from harness.waiting import eventually, eventually_is


@pytest.fixture
def entry(agent):
    """Writes the file of a service, which the agent then reads."""
    def write(file, *lines):
        (agent.folder / f"services.d/{file}.service-entry").write_text(
            "".join(f"{line}\n" for line in ("[Service]", *lines)))
        agent.reload()

    return write


def published(agent):
    return [(service.name, service.port) for service in agent.services()]


def test_a_service_of_a_file_is_published_on_the_lease_of_its_host(agent, core, entry):
    entry("web", "Address=10.1.2.3", "Port=80", "Tags=proto=http")
    eventually_is([Service("web", "h1", "", 80, {"proto": "http"})], agent.services)
    record, = core.range(agent.key.replace("nodes/h1", "services/web/"))
    assert record.lease == agent.status().lease_id
    assert re.search(r"^web +h1 +- +[\d.]+:80 .* proto=http$", agent.ctl("services"), re.M)


def test_services_are_listed_with_where_they_are_and_by_node_and_tag(agents):
    agent, other = agents("h1", Addresses="192.0.2.1"), agents("h2", Addresses="2001:db8::2")
    agent.background("register", "web", "Port=80", "proto=http")
    other.background("register", "web", "Port=81", "proto=https")
    other.background("register", "mail", "Address=198.51.100.3")

    def listed(*words):
        said = json.loads(agent.ctl("--json=short", "services", *words))
        return {(each["Name"], each["Node"]): each["endpoint"] for each in said}

    eventually_is({("web", "h1"): "192.0.2.1:80", ("web", "h2"): "[2001:db8::2]:81",
                   ("mail", "h2"): "198.51.100.3"}, listed)
    assert set(listed("--node=h2,h3")) == {("web", "h2"), ("mail", "h2")}
    assert set(listed("--tag=proto")) == {("web", "h1"), ("web", "h2")}
    assert set(listed("web", "--tag=proto=https", "--node=h1,h2")) == {("web", "h2")}
    assert listed("web", "--tag=nope") == {}
    assert agent.refusal("services", "nope", "--tag=proto")[0] == "no such service: 'nope'."


def test_a_file_that_says_something_else_is_read_again_and_one_with_an_error_is_named(agent, entry):
    entry("web", "Port=80")
    eventually_is([("web", 80)], lambda: published(agent))

    entry("bad", "Port=x")
    entry("web", "Name=www", "Port=81")

    eventually_is([("www", 81)], lambda: published(agent))
    agent.log_has("services.d/bad.service-entry:2: Port= must be a whole number")


def test_of_two_files_of_one_service_the_first_counts(agent, entry):
    entry("www", "Port=82")
    eventually_is([("www", 82)], lambda: published(agent))
    entry("a", "Name=www", "Port=81")

    agent.log_has("www.service-entry: the service www is already published by a.service-entry")
    eventually_is([("www", 81)], lambda: published(agent))
    agent.restart()
    agent.ctl("set-tags", "settled=yes")
    eventually_is([("www", 81)], lambda: published(agent))


def test_files_are_listed_with_why_some_are_refused(agent, entry):
    folder = agent.folder / "services.d"

    def listed():
        said = agent.ctl_whatever("--json=short", "entries")
        return {each["File"].removeprefix(f"{folder}/").removesuffix(".service-entry"):
                (each["State"], each["Name"], each["Reason"].removeprefix(f"{folder}/"))
                for each in json.loads(said)}

    agent.background("register", "taken")
    eventually(agent.services)
    (folder / "hidden.service-entry").touch()
    entry("mail", "Port=25")
    entry("taken", "Unit=x.service")
    eventually_is({"mail": ("loaded", "mail", ""), "taken": ("waiting", "taken", (
        "a program has registered the service; the file counts once that program is gone"))}, listed)
    assert "2 file(s), 0 of them refused." in agent.ctl("entries")

    entry("bad", "Port=x")
    entry("mail", "Ports=25")
    entry("other", "Name=mail")
    eventually(lambda: len(listed()) == 4)
    told = listed()
    assert told["bad"][:2] == ("refused", "")
    assert told["bad"][2].startswith("bad.service-entry:2: Port= must be a whole number")
    assert told["mail"][:2] == ("outdated", "mail") and "Ports" in told["mail"][2]
    assert told["other"] == ("refused", "mail", (
        "the service mail is already published by mail.service-entry"))
    assert published(agent) == [("mail", 25), ("taken", 0)]
    assert agent.ctl_whatever("entries").endswith("4 file(s), 3 of them refused.\n")

    (folder / "bad.service-entry").unlink()
    agent.reload()
    eventually(lambda: "bad" not in listed())


def test_a_service_stays_as_it_is_when_its_file_gets_another_name(agent, entry):
    entry("web", "Name=www", "Port=80")
    entry("mail", "Name=smtp", "Port=25")
    before = eventually(lambda: len(agent.services()) == 2 and agent.services())
    watch = agent.watch()
    folder = agent.folder / "services.d"

    (folder / "web.service-entry").rename(folder / "x.service-entry")
    (folder / "mail.service-entry").rename(folder / "web.service-entry")  # two swap their names
    (folder / "x.service-entry").rename(folder / "mail.service-entry")
    agent.reload()
    agent.ctl("set-tags", "settled=yes")

    eventually_is(["NodeChanged"], lambda: [event.event for event in watch.events()])
    assert agent.services() == before
    assert not agent.said("already published")


def test_a_service_that_a_file_or_another_program_publishes_is_refused(agent, entry):
    entry("web", "Port=80")
    agent.background("register", "cache/a")
    eventually(lambda: len(agent.services()) == 2)

    for name, shown, owner in (("web", "'web'", "web.service-entry"),
                               ("cache/a", "'cache' a", "another program")):
        assert agent.refusal("register", name) == (
            f"cannot register: The service {shown} on this host is published by {owner}.", 1)


def test_a_file_waits_until_the_program_is_gone_that_was_there_before(agent, entry):
    program = agent.background("register", "web", "Port=81")
    eventually_is([("web", 81)], lambda: published(agent))

    entry("web", "Port=80")

    agent.log_has("web.service-entry: a program has registered the service web")
    assert published(agent) == [("web", 81)]
    agent.restart()
    eventually_is(["Registered."] * 2, program.lines)
    assert published(agent) == [("web", 81)]
    agent.reload()
    assert published(agent) == [("web", 81)]

    program.kill()
    eventually_is([("web", 80)], lambda: published(agent))
    agent.restart()
    assert published(agent) == [("web", 80)]
    assert "is published by web.service-entry" in agent.refusal("register", "web")[0]


@pytest.mark.parametrize("words, sentence", [
    (["a,b"], "letters, digits"),
    (["x", "Port=70000"], "Port= must be a whole number from 1 to 65535, not '70000'"),
])
def test_a_service_that_cannot_be_is_refused(agent, words, sentence):
    assert sentence in agent.refusal("register", *words)[0]


def test_a_tag_of_a_registered_service_keeps_its_long_name(agent):
    name = "k" * 300
    agent.background("register", "web", f"{name}=b", "Port=80")
    eventually_is([{name: "b"}], lambda: [service.tags for service in agent.services()])
    assert "at most 511 bytes" in agent.refusal("register", "mail", f"{name * 2}=b")[0]


def test_a_registered_service_goes_with_the_connection_of_its_caller(agent):
    watch = agent.watch()
    caller = agent.background("register", "cache/a", "Port=11211", "role=primary")
    eventually_is([Service("cache", "h1", "a", 11211, {"role": "primary"})], agent.services)

    caller.kill()
    eventually_is([], agent.services)
    agent.ctl("set-tags", "later=yes")

    eventually_is([("ServiceAdded", "cache", ""), ("ServiceRemoved", "cache", "stopped"),
                   ("NodeChanged", "h1", "")],
                  lambda: [(event.event, event.name, event.reason) for event in watch.events()])


def test_who_has_registered_a_service_does_so_again_when_the_agent_is_another_one(agent):
    caller = agent.background("register", "cache", "Port=11211")
    before = eventually(agent.services)
    # A stranger says that the agent has gone, which is not believed.
    agent.bus.signal_to(caller.pid, *GONE, NAME, agent.bus.name_of(agent.pid), "")

    agent.crash()

    eventually_is(["Registered."] * 2, caller.lines)
    eventually_is(before, agent.services)
    assert caller.log_text() == "tenurectl: the agent is gone; waiting for it.\n"


def test_tags_that_cannot_be_set_or_removed_are_refused(agents):
    agent = agents("h1", Tags=f"zone=a,long={'x' * 150}")

    agent.ctl("set-tags", "zone=b")
    for words in ["zone=c", f"more={'y' * 400}"], ["zone=c", "long="]:
        sentence, status = agent.refusal("set-tags", *words)
        assert re.search("at most 511 bytes in all|'long' is in the settings", sentence)
        assert status == 1
    agent.ctl("set-tags", "other=1")
    eventually_is({"zone": "b", "long": "x" * 150, "other": "1"}, lambda: agent.node("h1").tags)

    agent.ctl("set-tags", "zone=", "other=", "nothing=")
    eventually_is({"zone": "a", "long": "x" * 150}, lambda: agent.node("h1").tags)
