"""What tenurectl tells of a host and its cluster, to people and to programs."""
import json
import platform

import pytest
from harness.agent import MANAGER
from harness.places import BIN
from harness.program import run
from harness.waiting import ProgramError, eventually, eventually_is


def test_without_an_agent_it_says_so(bus):
    with pytest.raises(ProgramError) as refused:
        run(BIN / "tenurectl", f"--bus={bus.address}", "status")
    assert "is tenured running?" in refused.value.err


def test_status_and_nodes_are_for_people_too(agent):
    eventually(agent.nodes)

    status = dict(line.split(":", 1) for line in agent.ctl().splitlines() if ":" in line)

    stripped = {name.strip(): said.strip() for name, said in status.items()}
    assert stripped["Node"] == f"h1 ({agent.settings['NodeId']})"
    assert stripped["State"].startswith("held") and "TTL 30 s, ends in " in agent.ctl()
    assert agent.ctl("nodes", "--no-legend").split()[::2][:2] == ["h1", "30"]
    # A46: the exit status tells that there is no such node.
    assert agent.refusal("nodes", "nobody")[1] == 1


def test_nodes_are_listed_by_state_tag_and_zone(agents, core):
    agent = agents("h1", Tags="zone=a,rack=7")
    agents("h2", Tags="zone=b")

    def listed(*words):
        return {line.split()[0]: line.split()[5:7] for line in
                agent.ctl("nodes", "--no-legend", *words).splitlines()}

    eventually_is({"h1": ["held", "a"], "h2": ["held", "b"]}, listed)
    assert set(listed("--zone=b,c")) == set(listed("--tag=zone=b")) == {"h2"}
    assert set(listed("--tag=rack,zone=a", "--state=held")) == {"h1"}
    assert set(listed(f"--tag={'x' * 5000}")) == set(listed(f"--zone=b,{'x' * 5000}")) - {"h2"}
    assert listed("h1", "--state=leaving,degraded") == {}

    for name, more in ("h3", {"leaving": "shutdown"}), ("h4", {"degraded": "memory pressure"}):
        core.put(agent.key[:-2] + name, json.dumps({"id": name, "incarnation": name, **more}))
    eventually_is({"h3": ["leaving", "-"], "h4": ["degraded", "-"]},
                  lambda: listed("--state=leaving,degraded"))


def test_describe_has_everything_that_the_agent_knows(agent):
    eventually(agent.nodes)

    known = json.loads(agent.ctl("describe"))

    assert (known["state"], known["node"], known["nodes"][0]["name"]) == ("held", "h1", "h1")
    assert known["nodes"][0]["os_release"] == platform.freedesktop_os_release()["PRETTY_NAME"]
    assert known["netlink"]["dumps"] >= 1 and known["netlink"]["overflows"] == 0


def test_tags_are_set_and_removed_and_those_of_the_settings_return(agents, core):
    agent = agents("h1", Tags="zone=a")
    eventually(agent.nodes)

    agent.ctl("set-tags", "rack=7", "zone=b")
    eventually(lambda: agent.node("h1").tags == {"rack": "7", "zone": "b"})
    # A39: a put that does not name the lease would detach the key from it.
    assert core.get(agent.key).lease == agent.status().lease_id

    agent.ctl("set-tags", "zone=")
    eventually(lambda: agent.node("h1").tags == {"rack": "7", "zone": "a"})
    assert "Tags' names are letters, digits" in agent.refusal("set-tags", "a b=1")[0]


def test_a_revision_is_waited_for_also_if_it_is_of_a_change_elsewhere(agent, core, prefix):
    revision = core.put(prefix + "k", "")

    assert int(agent.ctl("wait-revision", str(revision), "60")) >= revision
    assert (f"Revision {revision + 10**6} has not been reached"
            in agent.refusal("wait-revision", str(revision + 10**6), "0.01")[0])


def test_why_a_host_is_ordered_to_leave_is_told_on_all_hosts(agents, core):
    agent, other = agents("h1"), agents("h2")
    agent.node("h2")
    known = agent.status().revision

    other.ctl("leave", "--reason=new kernel, höher")

    other.log_has("Leaving until tenurectl join: new kernel, höher.")
    agent.log_has("Node h2 left: left (new kernel, höher).")
    since = agent.background("--json=short", "watch", f"--since={known}", "--event=NodeLeft")
    left, = map(json.loads, eventually(since.lines))
    assert (left["reason"], left["note"]) == ("left", "new kernel, höher")
    other.ctl("join")
    eventually(other.holds)
    assert "leaving" not in core.get(other.key).value
    other.ctl("leave")
    agent.log_has("Node h2 left: left.")


@pytest.mark.parametrize("note", ["two\nlines", "x" * 128, "\udcff", "\x1b[31mred"])
def test_a_reason_that_is_no_line_of_text_is_refused(agent, note):
    assert agent.refusal("leave", f"--reason={note}") == (
        "--reason must be one line of UTF-8, of at most 127 bytes.", 1)
    if note != "\udcff":  # which no bus passes on
        with pytest.raises(ProgramError, match="The note must be one line of UTF-8"):
            agent.call("LeaveWithNote", "ts", "0", note)
    assert agent.holds()


def test_watch_is_for_people_too_and_waits_for_an_agent_that_is_gone(agent, core):
    eventually(agent.nodes)
    watch = agent.background("watch")
    eventually(lambda: watch.pid in agent.bus.subscribers(MANAGER))

    service = agent.background("register", "cache/a", "Port=11211")
    eventually(agent.services)
    service.kill()
    core.revoke(agent.status().lease_id)
    eventually(lambda: "this host lost its place: " in watch.text())
    eventually(agent.holds)
    agent.kill()
    agent.start()

    eventually(lambda: "tenurectl: the agent is back." in watch.log_text())
    for text in "service cache a on h1 is available", "service cache a on h1 is gone: stopped":
        assert text in watch.text()


def test_output_that_cannot_be_written_is_an_error(agent):
    with pytest.raises(ProgramError) as refused:
        run("sh", "-c", 'exec "$@" >/dev/full', "sh", BIN / "tenurectl",
            f"--bus={agent.bus.address}", "nodes")
    assert refused.value.status == 1
    assert refused.value.err == (
        "tenurectl: cannot write to standard output: No space left on device.\n")


def test_memory_is_locked_where_the_limit_allows_it(agent):
    try:
        run("prlimit", "--memlock=unlimited", "true")
    except ProgramError:
        pytest.skip("the limit cannot be raised here")
    if BIN.parts[-2] in ("asan", "tsan"):
        pytest.skip("a sanitizer's memory is too large to be locked")
    agent.command = ["prlimit", "--memlock=unlimited", *agent.command]

    agent.restart()

    with open(f"/proc/{agent.pid}/status") as file:
        locked, = [line.split()[1] for line in file if line.startswith("VmLck:")]
    assert int(locked) > 0
