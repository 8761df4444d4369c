"""Which member a replica is stands in its data directory. The settings that found a cluster or
join one count for an empty directory; they must not contradict one that is there."""
import re

import pytest
from harness.cluster import Cluster
from harness.program import run
from harness.waiting import eventually


def contents(directory):
    """Without the files that are only room for what may come."""
    return {file.name: file.read_bytes() for file in directory.iterdir()
            if not file.name.startswith(("spare-", "wip-", "snapshot.room"))}


def refuses(replica, pattern):
    """It does not start, says why, and has written nothing."""
    before, known = contents(replica.data), replica.log_text()
    assert replica.start().wait() == 1
    said = replica.log_text()[len(known):]
    assert re.search(pattern, said), said
    assert contents(replica.data) == before


def starts(replica, warnings):
    """It starts and warns that often of the list."""
    known = replica.log_text()
    replica.start()
    eventually(lambda: "serves clients" in replica.log_text()[len(known):])
    said = replica.log_text()[len(known):]
    assert said.count("which is used only for an empty directory") == warnings


def with_words(replica, **words):
    """Sets these options of its command: for None, leaves it out."""
    for option, value in words.items():
        option = "--" + option.replace("_", "-")
        if option in replica.command:
            at = replica.command.index(option)
            del replica.command[at:at + 2]
        if value is not None:
            replica.command += [option, value]


def listed(*replicas, **urls):
    return ",".join([f"{r.name}={r.peer_url}" for r in replicas]
                    + [f"{name}={url}" for name, url in urls.items()])


def move(cluster, replica, url):
    """Its URL for the others; where it listens is its own matter."""
    member = f"{cluster.members()[replica.name].id:x}"
    eventually(lambda: cluster.etcdctl("member", "update", member, f"--peer-urls={url}"))


# ---- what is not needed ----

def test_a_joined_member_starts_again_without_the_settings_with_which_it_joined(cluster):
    d = cluster.add_learner("d")
    cluster.promote("d")
    for setting in "initial_cluster_state", "initial_cluster":
        d.kill()
        with_words(d, **{setting: None})
        starts(d, warnings=0)
    eventually(lambda: cluster.put("k", "by d", at=d))


@pytest.mark.parametrize("size", [1, 3])
def test_a_directory_needs_no_initial_setting(new_cluster, size):
    cluster = new_cluster(size, "--allow-plaintext-peers")
    cluster.put("k", "before")
    for replica in cluster.replicas.values():
        replica.kill()
        with_words(replica, initial_cluster=None, initial_cluster_state=None,
                   listen_peer_urls=replica.peer_url.replace("127.0.0.1", "0.0.0.0"))
        starts(replica, warnings=0)
    assert eventually(lambda: cluster.get("k")).value == "before"


def test_a_core_that_is_forced_without_a_list_keeps_its_peer_url(cluster):
    a = cluster.replicas["a"]
    for replica in cluster.replicas.values():
        replica.kill()
    with_words(a, initial_cluster=None, initial_cluster_state=None, listen_peer_urls=None)
    run(*a.command, "--force-new-cluster")
    starts(a, warnings=0)
    eventually(lambda: cluster.put("k", "after", at=a))
    assert a.peer_url in cluster.etcdctl("member", "list", at=a)


def test_a_member_that_ended_before_its_first_entry_still_needs_the_list(cluster, ports):
    d = cluster.new_replica("d")
    eventually(lambda: cluster.ctl("core", "add", d.peer_url))
    d.configure(cluster.replicas.values(), "existing")
    with_words(d, listen_peer_urls=f"http://127.0.0.1:{ports.take()}")  # where no member calls
    starts(d, warnings=0)
    d.kill()
    with_words(d, listen_peer_urls=d.peer_url, initial_cluster=None, initial_cluster_state=None)
    refuses(d, "--initial-cluster must name the other members, which know its id")
    with_words(d, initial_cluster=listed(*cluster.replicas.values()))
    starts(d, warnings=0)
    cluster.promote("d")


# ---- what is refused ----

@pytest.fixture
def another_core(tmp_path, ports):
    """In directories of its own."""
    folder = tmp_path / "another"
    folder.mkdir()
    return lambda size, **more: Cluster(folder, ports, size, **more)


@pytest.mark.parametrize("size, state", [(1, "new"), (1, "existing"), (3, "existing")])
def test_the_directory_of_another_cluster_is_refused(cluster, another_core, size, state):
    a, other = cluster.replicas["a"], another_core(size).replicas["a"]
    a.kill()
    other.kill()
    a.data.rename(a.data.with_suffix(".aside"))
    other.data.rename(a.data)
    with_words(a, initial_cluster_state=state)
    for flag in [], ["--force-new-cluster"]:
        a.command += flag
        refuses(a, f"--initial-cluster names none of its members, such as {other.peer_url}; ")


@pytest.mark.parametrize("words", [
    {}, {"initial_cluster_state": "existing"},
    {"initial_cluster": None, "initial_cluster_state": None}])
def test_the_directory_of_another_member_is_refused(cluster, words):
    a, b = cluster.replicas["a"], cluster.replicas["b"]
    a.kill()
    b.kill()
    b.data.rename(b.data.with_suffix(".aside"))
    a.data.rename(b.data)
    with_words(b, **words)
    refuses(b, f"belongs to member [0-9a-f]+ at {a.peer_url}, "
               f"but the settings put b at {b.peer_url}, which is member [0-9a-f]+; ")


@pytest.mark.parametrize("gone", ["moved", "removed"])
def test_the_directory_of_another_member_is_refused_where_one_was(cluster, ports, gone):
    a, b = cluster.replicas["a"], cluster.replicas["b"]
    if gone == "moved":
        move(cluster, b, f"http://127.0.0.1:{ports.take()}")
    else:
        eventually(lambda: cluster.ctl("core", "remove", "b"))
        b.wait()
    eventually(lambda: cluster.put("k", "later", at=a))  # so that it knows
    a.kill()
    if b.is_running:
        b.kill()
    b.data.rename(b.data.with_suffix(".aside"))
    a.data.rename(b.data)
    refuses(b, f"belongs to member [0-9a-f]+ at {a.peer_url}, ")


@pytest.mark.parametrize("made", ["founded", "restored"])
def test_a_core_that_began_alone_by_mistake_is_refused_with_the_list(
        new_cluster, another_core, tmp_path, made):
    core = new_cluster(1)
    core.put("k", "v")
    if made == "restored":
        core.ctl("core", "snapshot", "save", tmp_path / "snapshot")
        core = another_core(1, restore=tmp_path / "snapshot")
    a = core.replicas["a"]
    a.kill()
    with_words(a, initial_cluster=listed(a, b="http://127.0.0.1:1", c="http://127.0.0.1:2"))
    refuses(a, "began with this member alone, but --initial-cluster names others; ")


@pytest.mark.parametrize("made", ["founded", "restored"])
def test_the_directory_of_a_cluster_with_another_token_is_refused(
        cluster, another_core, tmp_path, made):
    if made == "restored":
        cluster.ctl("core", "snapshot", "save", tmp_path / "snapshot")
        cluster = another_core(3, restore=tmp_path / "snapshot")
    a = cluster.replicas["a"]
    a.kill()
    with_words(a, initial_cluster_token="another")
    refuses(a, "with another --initial-cluster-token; ")


# ---- what is one warning ----

def test_settings_that_name_a_former_url_are_one_warning(cluster, ports):
    a = cluster.replicas["a"]
    elsewhere = f"http://127.0.0.1:{ports.take()}"
    move(cluster, a, elsewhere)
    a.kill()
    with_words(a, listen_peer_urls=elsewhere)
    a.start()
    eventually(lambda: cluster.put("k", "from elsewhere", at=a))
    a.kill()
    starts(a, warnings=1)
    a.kill()
    with_words(a, initial_cluster=listed(cluster.replicas["b"], cluster.replicas["c"],
                                         a=elsewhere))
    starts(a, warnings=0)


def test_a_lone_core_that_has_moved_starts_with_its_former_url_and_its_new_one(new_cluster, ports):
    core = new_cluster(1)
    a, elsewhere = core.replicas["a"], f"http://127.0.0.1:{ports.take()}"
    move(core, a, elsewhere)
    a.kill()
    starts(a, warnings=1)
    a.kill()
    with_words(a, initial_cluster=listed(a=elsewhere), listen_peer_urls=elsewhere)
    starts(a, warnings=0)
    eventually(lambda: core.put("k", "v"))


def test_a_changed_list_or_token_is_one_warning(cluster):
    a, b, c = cluster.replicas.values()
    eventually(lambda: cluster.ctl("core", "remove", "c"))
    assert c.wait() == 0
    eventually(lambda: cluster.put("k", "later", at=a))  # so that it knows
    for words, warnings in (({}, 1), ({"initial_cluster": listed(a, b)}, 0),
                            ({"initial_cluster_token": "another"}, 0),
                            ({"initial_cluster": listed(a, b, d="http://127.0.0.1:1")}, 1)):
        a.kill()
        with_words(a, **words)
        starts(a, warnings)
    eventually(lambda: cluster.put("k", "both"))


def test_a_core_that_shrank_to_its_first_member_starts_with_the_list_of_all(new_cluster):
    core = new_cluster(1)
    a = core.replicas["a"]
    b = core.add_learner("b")
    core.promote("b")
    eventually(lambda: core.ctl("core", "move-leader", "a"))
    eventually(lambda: core.ctl("core", "remove", "b"))
    assert b.wait() == 0
    a.kill()
    with_words(a, initial_cluster=listed(a, b))
    starts(a, warnings=1)
    core.put("k", "v")
