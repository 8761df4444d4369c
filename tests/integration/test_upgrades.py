"""A core that an earlier release has written goes on in its formats until somebody says so."""
import json

import pytest

from harness.earlier import RELEASES, Release
from harness.http1 import Http
from harness.waiting import ProgramError, eventually_is


@pytest.fixture
def core(tmp_path, ports):
    """One replica, with the data of release 0.1.0."""
    return Release(RELEASES[0]).core(tmp_path, ports)


def cluster_version(core):
    return json.loads(core.ctl("core", "upgrade", "--json=short"))["cluster_version"]


def test_an_upgrade_is_finished_on_request_and_permanently(core):
    alone = core.replicas["a"]
    assert cluster_version(core) == "0.1"
    member, last = core.ctl("core", "upgrade").splitlines()[1:]
    assert member.split()[1::2] == ["a", "0.2"] and member.endswith("up")
    assert last == "The cluster version is 0.1."
    alone.kill()
    alone.start()
    eventually_is("0.1", lambda: cluster_version(core))
    for _ in range(2):
        assert core.ctl("core", "upgrade", "--finish").startswith("The cluster version is 0.2.")
    alone.kill()
    alone.start()
    eventually_is("0.2", lambda: cluster_version(core))


def test_it_is_not_finished_while_the_version_of_a_member_is_not_known(core, ports):
    core.ctl("core", "add", f"http://127.0.0.1:{ports.take()}")
    with pytest.raises(ProgramError, match="has no link to the leader: its version is not known"):
        core.ctl("core", "upgrade", "--finish")
    assert cluster_version(core) == "0.1"
    learner, = (m for m in json.loads(core.ctl("core", "upgrade", "--json=short"))["members"]
                if m["name"] != "a")
    assert (learner["version"], learner["linked"]) == ("", False)


def test_members_are_listed_with_the_versions_of_their_programs(cluster):
    program = Http(cluster.running[0].client_url).get("/version").json()["tenure"]
    eventually_is([program] * 3, lambda: [
        m["version"] for m in json.loads(cluster.ctl("--json=short", "core", "members"))])
