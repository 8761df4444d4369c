"""Replicas of the core come and go while clients are served."""
import pytest

from harness.places import BIN
from harness.program import run
from harness.waiting import ProgramError, eventually, eventually_is


def test_a_learner_catches_up_and_is_promoted(cluster):
    before = cluster.put("k", "before")

    learner = cluster.add_learner("d")

    eventually_is(before, lambda: cluster.get("k", "--consistency=s", at=learner).mod_revision)
    assert cluster.members()["d"].role == "learner"
    eventually(lambda: cluster.ctl("core", "promote", "d"))  # refused until it is in sync
    assert cluster.members()["d"].role == "voter"
    assert cluster.get("k", at=learner).value == "before"


def test_a_leader_that_is_removed_stops_by_itself_and_loses_nothing(cluster):
    cluster.put("k", "acknowledged")
    leader = cluster.leader()

    cluster.ctl("core", "remove", leader.name)

    assert leader.wait() == 0
    assert cluster.get("k").value == "acknowledged"
    assert set(cluster.members()) == {"a", "b", "c"} - {leader.name}
    cluster.put("k", "after")


@pytest.mark.parametrize("through_itself", [True, False])
def test_the_removed_one_of_two_is_told_and_the_other_serves(new_cluster, through_itself):
    cluster = new_cluster(2)
    leader = cluster.leader()
    removed = next(r for r in cluster.replicas.values() if r is not leader)
    asked = removed if through_itself else leader

    eventually(lambda: run(BIN / "tenurectl", f"--endpoints={asked.client_url}", "core",
                           "remove", removed.name))  # not before it has answered for a while

    assert removed.wait() == 0
    assert set(cluster.members()) == {leader.name}
    cluster.put("k", "after")
    assert cluster.get("k").value == "after"


def test_what_was_acknowledged_survives_the_death_of_all_replicas(cluster):
    revision = cluster.put("k", "acknowledged")

    for replica in cluster.replicas.values():
        replica.kill()
    for replica in cluster.replicas.values():
        replica.start()

    found = eventually(lambda: cluster.get("k"))
    assert (found.value, found.mod_revision) == ("acknowledged", revision)


def test_five_replicas_serve_while_two_are_dead(new_cluster):
    cluster = new_cluster(5)
    cluster.put("k", "before")

    cluster.leader().kill()
    cluster.leader().kill()

    eventually(lambda: cluster.put("k", "after"))
    assert {cluster.get("k", at=replica).value for replica in cluster.running} == {"after"}


@pytest.mark.parametrize("size, tolerated", [(2, 0), (4, 1), (7, 3)])
def test_other_numbers_of_replicas_tolerate_the_failure_of_a_minority(new_cluster, size, tolerated):
    cluster = new_cluster(size)
    replicas = [*cluster.replicas.values()]
    last = replicas[-1]
    warning = f"{size} replicas tolerate no more failures than {size - 1}: run an odd number"
    assert (warning in last.log_text()) == (size % 2 == 0)

    for replica in replicas[:tolerated]:
        replica.kill()
    eventually(lambda: cluster.put("k", "with the others", at=last))

    replicas[tolerated].kill()
    with pytest.raises(ProgramError):
        cluster.shown("--command-timeout=1s").put("k", "never", at=last)


def test_a_replica_alone_leads_itself_and_keeps_its_keys_when_it_restarts(new_cluster):
    cluster = new_cluster(1)
    alone = cluster.leader()
    revision = cluster.put("k", "1")

    assert alone.stop() == 0
    alone.start()

    assert eventually(lambda: cluster.get("k")).mod_revision == revision


@pytest.mark.parametrize("url, reason", [
    ("nonsense", "given member URLs are invalid"),
    ("https://", "given member URLs are invalid"),
])
def test_a_member_with_a_bad_url_is_refused(shared_cluster, url, reason):
    with pytest.raises(ProgramError, match=reason):
        shared_cluster.ctl("core", "add", url)
    assert set(shared_cluster.members()) == {"a", "b", "c"}
