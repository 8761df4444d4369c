"""Names and reasons that somebody else has chosen are data: for shells, terminals and files."""
import json
import os
import re

import pytest

from harness.places import BIN, TOP
from harness.program import run
from harness.waiting import ProgramError, eventually

# Completes the words, the last of which is being typed, and prints what is offered.
COMPLETE = """
. "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"
_tenurectl tenurectl "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def complete(core, folder, *words):
    return run("bash", "-c", COMPLETE, "bash", TOP / "conf/completion/tenurectl", *words,
               cwd=folder, PATH=f"{BIN}:/usr/bin:/bin",
               TENURE_ENDPOINTS=core.endpoints).splitlines()


def test_completion_offers_a_name_in_quotes_and_runs_nothing_of_it(new_cluster, tmp_path):
    core = new_cluster(1)
    core.ctl("lease", "grant", "300", "$(touch${IFS}ran)")
    core.ctl("lease", "grant", "300", "two words; touch ran")

    offered = complete(core, tmp_path, "tenurectl", "lease", "revoke", "")

    assert not (tmp_path / "ran").exists()
    assert {r"\$\(touch\$\{IFS\}ran\)", r"two\ words\;\ touch\ ran"} < set(offered)
    assert complete(core, tmp_path, "tenurectl", "lease", "revoke", "tw") == [
        r"two\ words\;\ touch\ ran"]


def test_a_snapshot_can_be_read_by_its_owner_only(new_cluster, tmp_path):
    core, snapshot, other = new_cluster(1), tmp_path / "snapshot", tmp_path / "other"
    other.write_text("untouched")
    (tmp_path / "snapshot.part").symlink_to(other)
    before = os.umask(0o022)
    try:
        core.ctl("core", "snapshot", "save", snapshot)
    finally:
        os.umask(before)

    assert snapshot.stat().st_mode & 0o777 == 0o600
    assert other.read_text() == "untouched"


def test_a_reason_cannot_control_the_terminal(agent, shared_cluster, prefix):
    lock = prefix + "lock"
    shared_cluster.put(lock + ".switchover", r'{"to": "h1\u001b[2J", "by": "x\u009b2J\u202e", '
                       r'"key": "k", "created": 1, "within_ms": 1}')

    with pytest.raises(ProgramError) as refused:
        agent.ctl("switchover", lock, "h1")

    assert refused.value.err == (
        f"tenurectl: A switchover of '{lock}' to h1\\x1b[2J is under way, which "
        "x\\xc2\\x9b2J\\xe2\\x80\\xae asked for.\n")


@pytest.fixture
def rogue(agent, shared_cluster):
    """A client that may write to the core has chosen the text of records."""
    text = r'"a\u001b[2J\u009b31m\u202e\r\u007f"'
    shared_cluster.put(agent.key.replace("h1", "rogue"), '{"id":"i","os_release":%s,"since":%s,'
                       '"addresses":[%s]}' % (text, text, text))
    shared_cluster.put(agent.key.replace("nodes/h1", "services/odd/rogue"), '{"unit":%s}' % text)
    eventually(lambda: agent.services() and "rogue" in agent.nodes())
    return json.loads(text)


@pytest.mark.parametrize("words", [
    "nodes", "services", "nodes --json=pretty", "services --json=short", "describe", "top --once",
    "--endpoints={} cache --once --prefix {}"])
def test_a_record_cannot_control_the_terminal(agent, shared_cluster, rogue, words):
    below = agent.key.removesuffix("nodes/h1")
    shown = agent.ctl(*words.format(shared_cluster.endpoints, below).split())

    assert "rogue" in shown
    assert re.findall("[\0-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown) == []


def test_the_bytes_of_a_record_are_escaped_for_people_and_whole_in_json(agent, rogue):
    assert re.search(r"^rogue +a\\x1b\[2J\\xc2\\x9b31m\\xe2\\x80\\xae\\x0d\\x7f ",
                     agent.ctl("nodes", "rogue"), re.M)
    assert agent.node("rogue").addresses == [rogue]
