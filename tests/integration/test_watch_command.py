"""tenurectl watch: which changes it tells, from which revision on, and the command that it runs
for each."""
import json
import os
import signal

import pytest
from harness.agent import MANAGER, Watch
from harness.waiting import eventually, eventually_is


def watching(agent, *words, kind=Watch):
    watch = agent.background("--json=short", "watch", *words, kind=kind)
    eventually(lambda: watch.pid in agent.bus.subscribers(MANAGER))
    return watch


def told(watch):
    return [(event.event, event.name, event.reason) for event in watch.events()]


# ---- which ----

def test_only_the_named_events_of_the_named_nodes_and_services_are_told(agents):
    agent = agents("h1")
    by_event = watching(agent, "--event=NodeLeft,ServiceAdded")
    by_name = watching(agent, "h2", "web")
    other = agents("h2")
    eventually(lambda: agent.node("h2"))
    agent.background("register", "web")
    agent.background("register", "mail")
    other.background("register", "cache")
    eventually(lambda: len(agent.services()) == 3)
    other.ctl("leave")
    agent.ctl("set-tags", "later=yes")

    eventually(lambda: {("NodeLeft", "h2", "left"), ("ServiceAdded", "web", ""),
                        ("ServiceAdded", "mail", ""), ("ServiceAdded", "cache", "")}
               == set(told(by_event)))
    eventually(lambda: set(told(by_name)) == {
        ("NodeJoined", "h2", ""), ("ServiceAdded", "web", ""), ("ServiceAdded", "cache", ""),
        ("ServiceRemoved", "cache", "left"), ("NodeLeft", "h2", "left")})


@pytest.mark.parametrize("words, wrong, known", [
    (["watch", "--event=NodeLost"], "NodeLost", "NodeJoined,NodeLeft,"),
    (["watch", f"--event=NodeLeft,{'x' * 64}"], "x" * 64, "NodeJoined,"),
    (["nodes", "--state=held,dead"], "dead", "held,degraded,leaving")])
def test_a_word_that_an_option_does_not_know_is_refused(agent, words, wrong, known):
    sentence, status = agent.refusal(*words)
    option = words[1].partition("=")[0]
    assert status == 1 and sentence.startswith(f"{option} knows no '{wrong}', but {known}")


def test_a_watch_in_json_tells_from_when_on_it_misses_nothing(agent):
    watch = agent.background("--json=short", "watch", "--event=NodeChanged", "nobody", kind=Watch)
    first = json.loads(eventually(watch.lines)[0])
    assert watch.pid in agent.bus.subscribers(MANAGER)
    assert first.keys() == {"event", "realtime_usec"} and first["event"] == "Subscribed"


# ---- since ----

def test_what_has_happened_since_a_revision_is_told_as_it_was_then_and_what_follows(agents):
    agent, other = agents("h1"), agents("h2", TTL="2s")
    agent.node("h2")
    service = other.background("register", "web")
    eventually(agent.services)
    before = watching(agent)
    known = agent.status().revision
    other.kill()
    before.departure("h2")
    service.kill()
    since = watching(agent, f"--since={known}")

    eventually_is(told(before), lambda: told(since))
    assert told(since) == [("ServiceRemoved", "web", "expired"), ("NodeLeft", "h2", "expired")]
    assert [event.revision for event in since.events()] == [
        event.revision for event in before.events()]

    agent.ctl("set-tags", "later=yes")
    eventually(lambda: told(since)[-1] == ("NodeChanged", "h1", ""))
    assert len(told(since)) == 3
    sentence, status = agent.refusal("watch", f"--since={known + 10**9}")
    assert (sentence, status) == (f"the core has not reached revision {known + 10**9}.", 1)


def test_a_history_that_is_compacted_is_told_as_a_resync(agents, cluster):
    agent = agents("h1")
    known = agent.status().revision
    agent.ctl("set-tags", "a=b")
    eventually(lambda: agent.node("h1").tags)
    cluster.etcdctl("compact", str(agent.status().revision))

    since = watching(agent, f"--since={known - 1}", "--event=NodeChanged")

    first = eventually(since.events)[0]
    assert first.event == "Resync" and first.revision >= known
    assert first.reason == (f"the core's history no longer goes back to revision {known - 1}: what "
                            "changed since then is not known")
    agent.ctl("set-tags", "later=yes")
    eventually_is(["Resync", "NodeChanged"], lambda: [event.event for event in since.events()])


# ---- a command ----

RECORD = r"""
echo "$TENURE_EVENT $TENURE_NODE $TENURE_SERVICE $TENURE_INSTANCE $TENURE_REASON $TENURE_REVISION"
cat
"""


def test_a_command_is_run_for_each_event_with_the_event(agent):
    hook = watching(agent, "--event=ServiceAdded,ServiceRemoved", "web", "--", "sh", "-c", RECORD)

    service = agent.background("register", "web/a")
    eventually(lambda: len(hook.lines()) == 2)
    service.kill()
    added, its, removed, theirs = eventually(lambda: len(hook.lines()) == 4 and hook.lines())

    assert added.split() == ["ServiceAdded", "h1", "web", "a", str(json.loads(its)["revision"])]
    assert removed.split()[:5] == ["ServiceRemoved", "h1", "web", "a", "stopped"]
    assert json.loads(theirs)["reason"] == "stopped"
    assert hook.stop() == 0


def test_a_command_that_fails_is_told_of_and_the_next_one_is_run(agent):
    hook = watching(agent, "--event=NodeChanged", "--", "sh", "-c", "echo run; exit 3")
    for tag in "a=1", "a=2":
        agent.ctl("set-tags", tag)
        eventually(lambda: f"{tag[-1]}" == agent.node("h1").tags["a"])

    eventually_is(["run"] * 2, hook.lines)
    eventually(lambda: hook.log_text().count(
        '{"message":"the command for NodeChanged h1 ended with status 3"}') == 2)
    assert hook.stop() == 0


@pytest.mark.parametrize("command, status, why", [
    ("/nonexistent", 127, "No such file or directory"), ("/", 126, "Permission denied")])
def test_a_command_that_cannot_be_executed_ends_the_watch(agent, command, status, why):
    hook = watching(agent, "--event=NodeChanged", "--", command)
    agent.ctl("set-tags", "a=1")

    assert hook.wait() == status
    assert hook.log_text() == f'{{"message":"cannot run {command}: {why}"}}\n'


def test_a_signal_ends_the_watch_after_the_command_that_runs(agent, tmp_path):
    os.mkfifo(tmp_path / "go")
    hook = watching(agent, "--event=NodeChanged", "--", "sh", "-c",
                    f'echo begun; read word <{tmp_path}/go; echo $word')
    for tag in "a=1", "a=2":
        agent.ctl("set-tags", tag)
    eventually_is(["begun"], hook.lines)

    hook.signal(signal.SIGTERM)
    (tmp_path / "go").write_text("done\n")

    assert hook.wait() == 0
    assert hook.lines() == ["begun", "done"]
