"""The version, and make dist: the release's tarball."""
import os
import re
import subprocess
import tarfile

import pytest
from harness.places import BIN, TOP
from harness.program import run

VERSION = re.match(r"tenure \((.+)-", (TOP / "conf/debian/changelog").read_text())[1]


def dist(folder, umask, **env):
    """Made in a clone of this tree, in that folder, which needs no other files for it."""
    if subprocess.run(["git", "clone", "-qsn", TOP, folder], capture_output=True).returncode != 0:
        pytest.skip("this is no clone of the repository")
    run("git", "-C", folder, "checkout", "-q", "HEAD", "Makefile", "conf/debian/changelog")
    made = subprocess.run(["make", "-sC", folder, "dist"], env={**os.environ, **env}, text=True,
                          stdout=subprocess.PIPE, check=True, preexec_fn=lambda: os.umask(umask))
    return folder / made.stdout.strip()


def test_two_tarballs_of_a_commit_are_equal_to_the_byte(tmp_path):
    first = dist(tmp_path / "a", 0o077, TZ="UTC", LC_ALL="C")
    second = dist(tmp_path / "another folder", 0o002, TZ="Asia/Kathmandu", LC_ALL="C.UTF-8")
    assert first.name == f"tenure-{VERSION}.tar.gz"
    assert first.read_bytes() == second.read_bytes()


def test_a_tarball_has_what_is_committed(tmp_path):
    with tarfile.open(dist(tmp_path / "a", 0o077)) as tar:
        names = {m.name for m in tar if not m.isdir()}
    tracked = run("git", "-C", TOP, "ls-tree", "-rz", "--name-only", "HEAD").split("\0")
    assert names == {f"tenure-{VERSION}/{name}" for name in tracked if name}


@pytest.mark.parametrize("program", ["tenure-core", "tenured", "tenurectl"])
def test_programs_say_the_version_of_the_changelog(program):
    assert run(BIN / program, "--version").split()[1] == VERSION
