"""Which changes of members are refused: by tenure-core and by etcd in the same words."""
import re

import pytest

from harness import etcd as etcds
from harness.cluster import Cluster, Replica
from harness.waiting import ProgramError, eventually

EXISTS, UNHEALTHY = "etcdserver: Peer URLs already exists", "etcdserver: unhealthy cluster"
UNSTARTED = "etcdserver: re-configuration failed due to not enough started members"
TOO_MANY = "etcdserver: too many learner members in cluster"


@pytest.fixture(params=["tenure-core", "etcd"])
def three(request, tmp_path, ports):
    """Of either engine, ready for changes of members."""
    if request.param == "etcd":
        request.getfixturevalue("wants_etcd")
    core = (etcds.Etcds if request.param == "etcd" else Cluster)(tmp_path, ports)
    probe = new_urls(core, 1)
    eventually(lambda: done(core, "add", "probe", "--learner", *probe) == "done")
    assert done(core, "remove", member(core, probe)) == "done"
    return core


def new_urls(core, n):
    urls = (f"http://127.0.0.1:{core.ports.take()}" for _ in range(n))
    return ["--peer-urls", ",".join(urls)]


def member(core, urls):
    """The id of the member at these URLs."""
    return f"{core.member_ids()[urls[1].split(',')[0]]:x}"


def at(replica):
    return ["--peer-urls", replica.peer_url]


def done(core, *words):
    """What became of a change: "done", or the sentence of a refusal."""
    before = core.member_ids()

    def ask():
        try:
            core.etcdctl("member", *words, at=core.running[0])
            return "done"
        except ProgramError as error:
            said = re.search(r"etcdserver: [^\"\n]*", error.err)
            if said and "timed out" not in said[0]:
                return said[0]
            return core.member_ids() != before and "done"  # only the answer came too late

    return eventually(ask)


def test_urls_that_others_have_and_a_second_learner_are_refused(three):
    urls, others = new_urls(three, 2), new_urls(three, 2)
    b = member(three, at(three.replicas["b"]))
    assert done(three, "add", "x", "--learner", *urls) == "done"
    x = member(three, urls)

    assert done(three, "add", "y", "--peer-urls", urls[1].split(",")[1]) == EXISTS
    assert done(three, "add", "y", *at(three.replicas["b"])) == EXISTS
    assert done(three, "add", "y", "--learner", *others) == TOO_MANY
    assert done(three, "promote", x) == (
        "etcdserver: can only promote a learner member which is in sync with leader")
    assert done(three, "promote", b) == "etcdserver: can only promote a learner member"
    assert done(three, "update", x, *others) == "done"
    assert set(others[1].split(",")) < set(three.member_ids())
    assert done(three, "update", b, others[0], others[1].split(",")[0]) == EXISTS
    assert done(three, "remove", x) == "done"


def test_no_member_that_is_up_is_removed_or_added_while_another_one_is_down(three):
    a, b, c = (at(replica) for replica in three.replicas.values())
    urls, others = new_urls(three, 1), new_urls(three, 1)
    three.replicas["c"].kill()
    eventually(lambda: three.put("k", "v"))

    def is_noticed():
        outcome = done(three, "add", "y", "--learner", *urls)
        if outcome == "done":
            eventually(lambda: done(three, "remove", member(three, urls)) == "done")
        return outcome == UNHEALTHY

    eventually(is_noticed)
    for words, outcome in ((["add", "y", *urls], UNHEALTHY), (["remove", b], UNHEALTHY),
                           (["remove", a], UNHEALTHY), (["remove", c], "done"),
                           (["add", "y", *urls], "done"), (["add", "z", *others], UNSTARTED),
                           (["remove", b], UNSTARTED), (["remove", urls], "done")):
        if words[0] == "remove":
            words = ["remove", member(three, words[1])]
        assert done(three, *words) == outcome, words
    assert three.put("k", "more")


# ---- changes that are made ----

def test_without_the_strict_check_a_change_that_costs_the_majority_is_made(new_cluster):
    core = new_cluster(1, "--strict-reconfig-check=no")
    assert done(core, "add", "y", *new_urls(core, 1)) == "done"
    assert len(core.member_ids()) == 2


def test_a_second_voter_costs_nothing_before_it_has_started_and_serves_once_it_has(new_cluster):
    core = new_cluster(1)
    core.put("k", "before")
    b = core.new_replica("b")
    # Nobody listens at the first URL: it is called at the one that answers.
    assert done(core, "add", "b", "--peer-urls", f"http://127.0.0.1:1,{b.peer_url}") == "done"
    assert len(core.member_ids()) == 3
    assert core.put("k", "alone")
    assert "voter" in core.ctl("core", "members").splitlines()[2]

    b.configure(core.replicas.values(), "existing")
    b.command[b.command.index("--initial-cluster") + 1] += ",b=http://127.0.0.1:1"
    b.start()
    eventually(lambda: core.put("k", "both", at=b))
    assert core.get("k", at=core.replicas["a"]).value == "both"

    def is_needed():
        b.freeze()
        try:
            core.put("k", "without the majority", at=core.replicas["a"])
        except ProgramError:
            return True
        finally:
            b.thaw()
        return False

    eventually(is_needed)  # it serves a moment before the leader counts it


def test_a_replica_that_lags_accepts_a_leader_that_it_does_not_know(new_cluster):
    core = new_cluster(3, "--strict-reconfig-check=no")
    c = core.replicas["c"]
    c.kill()
    d = core.add_learner("d")
    core.promote("d")
    eventually(lambda: core.ctl("core", "move-leader", "d"))
    core.put("k", "told by d", at=d)
    c.start()
    assert eventually(lambda: core.get("k", at=c)).value == "told by d"
    assert c.said(f"Refused a link from member 0*{core.members()['d'].id:x}")
    assert core.leader() is d


def test_a_replica_that_finds_no_leader_says_what_it_knows_of_why(tmp_path, ports):
    a, b, c = (Replica(name, tmp_path, ports.take(), ports.take()) for name in "abc")
    a.configure([a, b, c])
    a.start()
    eventually(lambda: a.said("No leader for 10 s: of the 3 voters that this replica knows, "
                              "it can reach 1 .* an election needs 2"))
