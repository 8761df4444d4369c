"""Whoever owns a data directory may put anything there; other users of it are not misled."""
import os
import pathlib
import shutil
import tempfile

import pytest

from harness.places import BIN
from harness.program import run
from harness.waiting import ProgramError, eventually

NOBODY = 65534


@pytest.fixture
def snapshot(new_cluster, tmp_path):
    core, file = new_cluster(1), tmp_path / "snapshot"
    core.put("k", "chosen by anybody")
    core.ctl("core", "snapshot", "save", file)
    return file


@pytest.fixture
def restore(snapshot, ports):
    """Restores the snapshot into a directory."""
    peer = f"http://127.0.0.1:{ports.take()}"
    return lambda directory: run(
        BIN / "tenure-core", "--name", "a", "--data-dir", directory, "--restore", snapshot,
        "--initial-cluster", f"a={peer}", "--initial-advertise-peer-urls", peer,
        "--listen-peer-urls", peer)


@pytest.mark.parametrize("name, sentence", [
    ("lock", "The file lock in the data directory {} is a symbolic link, which is not followed; "
             "remove it."),
    ("snapshot.room", "Cannot write the snapshot into {}: Too many levels of symbolic links."),
])
def test_a_link_in_a_data_directory_is_not_followed(name, sentence, restore, tmp_path):
    directory, other = tmp_path / "data", tmp_path / "other"
    directory.mkdir()
    other.write_text("untouched")
    (directory / name).symlink_to(other)

    with pytest.raises(ProgramError) as refused:
        restore(directory)

    assert sentence.format(directory) in refused.value.err
    assert other.read_text() == "untouched"


def test_what_root_restores_belongs_to_the_owner_of_the_directory(restore):
    if os.geteuid() != 0:
        pytest.skip("only root can restore for another user")
    # pytest's own directories are closed to other users.
    place = pathlib.Path(tempfile.mkdtemp(prefix="tenure-restore-"))
    try:
        place.chmod(0o755)
        directory, secret = place / "data", place / "secret"
        directory.mkdir()
        os.chown(directory, NOBODY, NOBODY)
        secret.write_text("untouched")
        os.link(secret, directory / "snapshot.room")

        with pytest.raises(ProgramError):
            restore(directory)
        assert secret.read_text() == "untouched"

        (directory / "snapshot.room").unlink()
        restore(directory)
        assert {file.stat().st_uid for file in directory.iterdir()} == {NOBODY}
    finally:
        shutil.rmtree(place)


@pytest.mark.parametrize("options, by", [
    ([], 1_000_000_000),
    (["--bump-revision=1000", "--mark-compacted"], 1000),
], ids=["default", "chosen"])
def test_a_client_that_was_ahead_of_the_snapshot_is_refused(
        new_cluster, tmp_path, options, by):  # etcd#16028
    # Otherwise its watch would hear nothing until the new revisions had passed the old ones.
    lost, snapshot = new_cluster(1), tmp_path / "snapshot"
    lost.put("k", "chosen by anybody")
    lost.ctl("core", "snapshot", "save", snapshot)
    lost.replicas["a"].stop()
    shutil.rmtree(lost.replicas["a"].data)
    core = new_cluster(3, restore=(snapshot, *options))
    raised = core.revision()

    assert raised == 2 + by
    assert core.get("k").value == "chosen by anybody"
    for seen in 2, 3, raised - 1:
        with pytest.raises(ProgramError, match="required revision has been compacted"):
            core.etcdctl("watch", "k", f"--rev={seen}")
        with pytest.raises(ProgramError, match="required revision has been compacted"):
            core.get("k", f"--rev={seen}")

    watch = core.watch("k", raised)
    core.put("k", "later")
    eventually(lambda: [event.value for event in watch.events()] == ["later"])
    assert core.revision() == raised + 1
    assert len({core.etcdctl("endpoint", "hashkv", at=replica).split(",")[1]
                for replica in core.running}) == 1


def test_replicas_that_are_restored_from_two_snapshots_form_no_cluster(new_cluster, tmp_path):
    core = new_cluster(3)
    lost = core.cluster_id()
    for name in "first", "second":
        core.put("k", name)
        core.ctl("core", "snapshot", "save", tmp_path / name)

    def begin_with(replica, snapshot):
        replica.kill()
        shutil.rmtree(replica.data)
        run(BIN / "tenure-core", "--restore", tmp_path / snapshot, *replica.identity)
        replica.start()

    a, b, c = core.replicas.values()
    begin_with(a, "first")
    begin_with(b, "first")
    begin_with(c, "second")
    eventually(lambda: "it belongs to cluster " in a.log_text() + b.log_text())
    eventually(lambda: "it belongs to cluster " in c.log_text())
    begin_with(c, "first")

    eventually(lambda: core.put("k", "after", at=c))
    assert core.cluster_id() != lost


def test_revisions_and_history_are_restored_as_they_are_if_that_is_chosen(new_cluster, tmp_path):
    lost, snapshot = new_cluster(1), tmp_path / "snapshot"
    for value in "first", "second":
        lost.put("k", value)
    before = lost.revision()
    lost.ctl("core", "snapshot", "save", snapshot)
    lost.replicas["a"].stop()
    shutil.rmtree(lost.replicas["a"].data)
    core = new_cluster(1, restore=(snapshot, "--bump-revision=0"))

    assert core.revision() == before == 3
    assert "first" in core.etcdctl("get", "k", "--rev=2")


@pytest.mark.parametrize("words, sentence", [
    (["--bump-revision=5"], "--bump-revision goes with --restore"),
    (["--mark-compacted"], "--mark-compacted goes with --restore"),
    (["--restore=/s", "--bump-revision=0", "--mark-compacted"],
     "--bump-revision=0 keeps the history, which --mark-compacted drops; leave one of them out"),
    (["--restore=/s", "--bump-revision=x"], "--bump-revision must be a whole number from 0 to "
                                            "4611686018427387904, not 'x'"),
])
def test_a_revision_is_raised_by_a_number_when_a_snapshot_is_restored(words, sentence):
    with pytest.raises(ProgramError) as refused:
        run(BIN / "tenure-core", *words)
    assert refused.value.err == f"tenure-core: {sentence}.\n"
