"""A member is its id and its data directory. A host whose disk was lost, replaced or restored starts
as the same member, with unchanged settings, and counts for nothing: what it had acknowledged is not
on that disk."""
import json
import re
import shutil

import pytest
from harness.cluster import Replica
from harness.http1 import Http
from harness.lies import changing
from harness.notifications import Notifications
from harness.places import BIN
from harness.program import Daemon, run
from harness.rpc import pb
from harness.terminal import Terminal
from harness.waiting import ProgramError, eventually


def lose_disk(replica):
    replica.kill()
    shutil.rmtree(replica.data)


def set_state(replica, state):
    replica.command[replica.command.index("--initial-cluster-state") + 1] = state


@pytest.mark.parametrize("state", ["new", "existing"])
def test_a_member_whose_disk_is_lost_elects_nobody(cluster, state):
    a = cluster.leader()
    b, c = (r for r in cluster.replicas.values() if r is not a)
    id = cluster.members()[b.name].id
    c.kill()
    cluster.put("precious", "acknowledged", at=a)
    a.kill()
    lose_disk(b)
    set_state(b, state)

    c.start()
    b.start()
    eventually(lambda: f"if its disk is lost: tenurectl core replace {id:016x}," in b.log_text())
    a.start()

    eventually(lambda: cluster.put("later", "y", at=c))
    for replica in a, c:
        assert cluster.get("precious", at=replica)


def test_of_two_processes_with_one_directory_the_second_stops(cluster, tmp_path, ports):
    c = cluster.replicas["c"]
    c.stop()
    double = Replica("double", tmp_path, ports.take(), ports.take())
    shutil.copytree(c.data, double.data)
    moved = {c.client_url: double.client_url, str(c.data): str(double.data)}
    double.command = [moved.get(word, word) for word in c.command]
    double.command[double.command.index("--listen-peer-urls") + 1] = double.peer_url
    c.start()
    eventually(lambda: cluster.put("k", "before", at=c))

    double.start()
    assert double.wait() == 1
    assert double.said("another process runs as this member, with the same data directory")
    assert any(r.said("another process runs with the same data directory, or a copy of it")
               for r in cluster.replicas.values())
    eventually(lambda: cluster.put("k", "after", at=c))


# ---- the ways out ----

def followers(cluster):
    leader = cluster.leader()
    return leader, *(r for r in cluster.replicas.values() if r is not leader)


def replacing(cluster, at, name):
    """The command, which runs until the replica is back."""
    command = Daemon(cluster.folder / "replacing.log", BIN / "tenurectl",
                     f"--endpoints={at.client_url}", "core", "replace", name)
    return command.start()


def is_voter_again(cluster, name, former):
    member = cluster.members().get(name)
    return member and member.role == "voter" and member.id != former and member


@pytest.mark.parametrize("state", ["new", "existing"])
@pytest.mark.parametrize("started_first", [True, False])
def test_a_member_whose_disk_is_lost_is_replaced_by_one_command(cluster, state, started_first):
    a, b, _ = followers(cluster)
    cluster.put("precious", "acknowledged", at=a)
    former = cluster.members()[b.name].id
    lose_disk(b)
    set_state(b, state)
    whom = b.name
    if started_first:  # it says itself what to do
        b.start()
        whom = eventually(lambda: re.search(r"tenurectl core replace (\w+)", b.log_text()))[1]
    command = replacing(cluster, a, whom)
    if not started_first:
        eventually(lambda: "systemctl start tenure-core" in command.log_text())
        b.start()
    for i in range(100):
        cluster.put("k", f"{i}", at=a)

    assert command.wait() == 0, command.log_text()
    assert "has caught up, and is a voter." in command.log_text()
    assert is_voter_again(cluster, b.name, former)
    assert cluster.get("precious", at=b).value == "acknowledged"
    b.kill()
    b.start()
    eventually(lambda: cluster.get("precious", at=b))


def test_a_member_of_a_cluster_that_has_grown_is_told_how_to_join_it_again(new_cluster):
    cluster = new_cluster(1)
    a, b = *cluster.replicas.values(), cluster.add_learner("b")
    eventually(lambda: cluster.members().get("b"))
    lose_disk(b)
    set_state(b, "new")  # then it would begin a cluster of two

    b.start()

    for replica in a, b:
        eventually(lambda: replica.said("needs an empty data directory and "
                                        "--initial-cluster-state=existing"))
    lose_disk(b)
    set_state(b, "existing")
    b.start()
    command = replacing(cluster, a, b.name)
    assert command.wait() == 0, command.log_text()


def test_a_replacement_goes_on_when_its_command_is_run_again(cluster):
    a, b, c = followers(cluster)
    lose_disk(b)
    command = BIN / "tenurectl", f"--endpoints={a.client_url}", "core", "replace"
    for n in 1, 2:
        cut_short = replacing(cluster, a, b.name)
        eventually(lambda: cut_short.log_text().count("systemctl start tenure-core") == n)
        cut_short.kill()
    assert f"No member is named '{b.name}' now" in cut_short.log_text()
    assert "takes the place of a member that was replaced already" in cut_short.log_text()
    b.start()
    said = json.loads(run(*command, b.name, "--json=short"))
    assert (said["name"], said["role"]) == (b.name, "voter")

    for name, sentence in (("nobody", "no member is named 'nobody'"),
                           (c.name, "the member answers; only one that does not is replaced"),
                           (a.name, "the member answers; only one that does not is replaced")):
        with pytest.raises(ProgramError, match=sentence):
            run(*command, name)


def test_the_command_continues_when_the_leader_dies_meanwhile(cluster):
    a, b, c = followers(cluster)
    lose_disk(b)
    command = replacing(cluster, c, b.name)
    eventually(lambda: "systemctl start tenure-core" in command.log_text())
    a.kill()
    eventually(lambda: "No leader in term" in c.log_text().split("is replaced by member")[1])
    a.start()
    b.start()
    assert command.wait() == 0, command.log_text()
    assert cluster.members()[b.name].role == "voter"


def test_no_member_is_replaced_while_too_few_others_live_or_there_is_a_learner(new_cluster):
    cluster = new_cluster(3)
    a, b, c = followers(cluster)
    eventually(lambda: cluster.ctl("core", "add", "http://127.0.0.1:9"))
    lose_disk(b)
    c.kill()
    with pytest.raises(ProgramError, match="timed out|unhealthy cluster|no leader"):
        run(BIN / "tenurectl", f"--endpoints={a.client_url}", "core", "replace", b.name)
    c.start()
    eventually(lambda: cluster.put("k", "v", at=c))
    assert b.name in cluster.members()
    with pytest.raises(ProgramError, match="there is a learner, which has to be promoted or removed"):
        run(BIN / "tenurectl", f"--endpoints={a.client_url}", "core", "replace", b.name)


@pytest.mark.parametrize("state", ["new", "existing"])
def test_a_lost_disk_is_replaced_by_itself(new_cluster, state):
    cluster = new_cluster(3, "--replace-lost-disk=yes")
    a, b, c = followers(cluster)
    cluster.put("precious", "acknowledged", at=a)
    former = cluster.members()[b.name].id
    lose_disk(b)
    set_state(b, state)
    b.start()
    for i in range(100):
        cluster.put("k", f"{i}", at=a)
    again = eventually(lambda: is_voter_again(cluster, b.name, former))
    assert cluster.get("precious", at=b).value == "acknowledged"
    for replica in a, c:
        assert f"is replaced by member {again.id:016x}" in replica.log_text()
        assert f"{again.id:016x}" in replica.log_text().split("has caught up, and is a voter now")[0]

    lose_disk(b)
    b.start()
    eventually(lambda: "it was replaced less than ten minutes ago" in b.log_text())
    assert cluster.members()[b.name].id == again.id
    run(BIN / "tenurectl", f"--endpoints={a.client_url}", "core", "replace", b.name)
    assert is_voter_again(cluster, b.name, again.id)
    assert cluster.get("precious", at=b).value == "acknowledged"


def test_who_asks_to_be_replaced_is_refused_by_members_where_the_setting_is_off(cluster):
    """Without TLS, anybody may be the one who asks."""
    a, b, _ = followers(cluster)
    former = cluster.members()[b.name].id
    lose_disk(b)
    b.command.append("--replace-lost-disk=yes")
    b.start()
    eventually(lambda: "was asked to replace this member: ReplaceLostDisk= is off at that member; "
               "an operator may do it (tenurectl core replace)" in b.log_text())
    assert cluster.members()[b.name].id == former
    run(BIN / "tenurectl", f"--endpoints={a.client_url}", "core", "replace", b.name)
    assert is_voter_again(cluster, b.name, former)


def test_the_disks_of_all_members_are_lost_one_after_the_other(new_cluster):
    """The last one knows nobody by the id that the others have now."""
    cluster = new_cluster(3, "--replace-lost-disk=yes")
    for lost in followers(cluster):
        former = cluster.members()[lost.name].id
        lose_disk(lost)
        lost.start()
        eventually(lambda: is_voter_again(cluster, lost.name, former))
        eventually(lambda: cluster.put("k", lost.name, at=lost))


def test_a_member_that_lives_is_not_replaced_by_an_empty_directory(new_cluster):
    cluster = new_cluster(3, "--replace-lost-disk=yes")
    a, b, _ = followers(cluster)
    former = cluster.members()[b.name].id
    twin = cluster.new_replica("twin")
    twin.configure([r for r in cluster.replicas.values() if r is not twin], "existing")
    twin.command = [str(word).replace(str(b.data), str(twin.data)) for word in b.command]
    set_state(twin, "existing")
    twin.start()
    eventually(lambda: "with the directory that it has" in twin.log_text())
    assert cluster.members()[b.name].id == former
    assert cluster.get("k", at=b) is None


# ---- what the command says ----

def catches_up(liar):
    """A lie: a member without a name, which is 7 entries behind, was put in another one's place."""
    def change(answer):
        if isinstance(answer, pb.MemberListResponse):
            answer.members[0].clientURLs[:] = [liar.endpoints]
            answer.members.add(ID=5, peerURLs=["http://127.0.0.1:9"])
        else:
            answer.member_versions.add(ID=5, replaces=True, linked=True, behind=7)
        return answer
    return changing(change, "MemberList", "Status")


def test_progress_is_for_a_terminal_and_gives_way_to_errors(liar, tmp_path):
    liar.lie = catches_up(liar)
    command = f"{BIN}/tenurectl --endpoints={liar.endpoints} core replace b"
    terminal = Terminal(tmp_path)
    terminal.run(f"NO_COLOR=1 {command}")
    terminal.expect("It has started, and is catching up\\.\r\n7 entries behind")
    to_file = Daemon(tmp_path / "file.log", *command.split()).start()
    eventually(lambda: to_file.said("is catching up"))
    liar.lie = None
    terminal.expect("^(\r\x1b\\[K(7 entries behind)?)+tenurectl: 0000000000000005 was removed meanwhile")
    assert to_file.wait() == 1
    assert not re.search("[\r\x1b]|behind", to_file.log_text())


@pytest.mark.usefixtures("wants_etcd")
def test_an_etcd_replaces_no_member_and_the_command_names_the_steps(etcd):
    with pytest.raises(ProgramError) as refused:
        run(BIN / "tenurectl", f"--endpoints={etcd.endpoints}", "core", "replace", "etcd")
    first, *steps = refused.value.err.splitlines()
    assert first == ("tenurectl: the replica that was asked is an etcd, or runs release 0.1.0, and "
                     "cannot replace a member in one step. Use these steps:")
    assert [step.split()[:3] for step in steps if "tenurectl" in step] == [
        ["tenurectl", "core", step] for step in ("remove", "add", "promote")]


# ---- while it waits ----

def test_a_replica_reports_whom_it_waits_for_and_what_to_do(cluster):
    a, b, c = followers(cluster)
    for replica in b, c, a:
        replica.kill()
    shutil.rmtree(b.data)
    systemd = Notifications()
    b.environment.update(systemd.environment)
    b.start()
    eventually(lambda: b.log_text().count("serves clients") == 2)
    said = "waits for member "
    eventually(lambda: said in Http(b.client_url).get("/readyz?verbose").text)
    assert said in Http(b.client_url).get("/health").json()["reason"]
    listed = run(BIN / "tenurectl", f"--endpoints={b.client_url}", "core", "members")
    assert "The replica that was asked reports: this replica waits for member" in listed
    eventually(lambda: re.search(r"STATUS=Waiting for [abc] to start \([0-9a-f]{16}\)", systemd.text()))

    a.start()
    c.start()
    eventually(lambda: re.search(r"STATUS=Joining: .* replace [0-9a-f]{16}", systemd.text()))
    eventually(lambda: f"run: tenurectl core replace {b.name}" in run(
        BIN / "tenurectl", f"--endpoints={a.client_url}", "core", "members"))
    systemd.close()
