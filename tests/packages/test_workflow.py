"""What .github/workflows/ci.yml runs, line by line, on a Debian that has nothing installed."""
import os
import re
import time
from dataclasses import dataclass

import pytest
import yaml
from harness.debian import Entered, entered, remove, tree_of
from harness.places import TOP
from harness.program import run

WORKFLOW = TOP / ".github/workflows/ci.yml"

# As in a privileged container: what the kernel shows, terminals and shared memory of its own, and
# no device of this machine.
ENTER = """root=$1 script=$2
mkdir -p "$root/dev/pts" "$root/dev/shm"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
ln -sf pts/ptmx "$root/dev/ptmx"
mount -t tmpfs -o size=6g tmpfs "$root/dev/shm"
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root CI=true \\
	chroot "$root" sh -ec "$script"
"""


@dataclass(frozen=True)
class Step:
    name: str
    script: str
    fetches: bool    # the sources: a clone of this repository stands in for that
    prepares: bool   # for any other step
    patience: float  # seconds


def steps():
    """Those of ci.yml, but the ones for a run that has failed."""
    found, prepares = [], True
    for job in yaml.safe_load(WORKFLOW.read_text())["jobs"].values():
        for step in job["steps"]:
            fetches = step.get("uses", "").startswith("actions/checkout@")
            name = step.get("name") or step.get("run") or step.get("uses")
            if "if" not in step and ("run" in step or fetches):
                found.append(Step(name, step.get("run", ""), fetches,
                                  prepares or name.startswith("Let "),
                                  60.0 * job["timeout-minutes"]))
            prepares = prepares and not fetches
    return found


@pytest.fixture
def container(suite, tmp_path):
    """A tree of the suite, as new. It is gone after the test."""
    if not suite:
        pytest.skip("runs in a tree of a Debian: --suite bookworm")
    tree = tmp_path / "tree"
    run("cp", "-a", tree_of(suite), tree, patience=600)
    # Packages from the backports, of which a new Debian knows nothing.
    for file in (*tree.glob("etc/apt/sources.list.d/tenure-*"),
                 *tree.glob("etc/apt/preferences.d/tenure-*")):
        file.unlink()
    yield tree
    remove(tree)


def test_ci_passes_on_a_new_debian(request, container, tmp_path, tell):
    words = tuple(request.config.getoption("steps"))
    chosen = [step for step in steps()
              if step.prepares or step.fetches or not words or step.name.startswith(words)]
    assert len(chosen) > 3, f"{WORKFLOW} has no step that begins with {words}"
    folder = "/"
    for number, step in enumerate(chosen):
        if step.fetches:
            folder = "/srv/tenure"
            run("git", "clone", "-q", TOP, f"{container}{folder}", patience=600,
                HOME=os.environ["HOME"])
            continue
        began = time.monotonic()
        program = Entered(tmp_path / f"step{number}.log",
                          *entered(ENTER, container, f"cd {folder}\n{step.script}"))
        status = program.start().wait(step.patience)
        closing = re.findall(r"^\d+ passed, \d+ failed.*$", program.text(), re.M)[-1:]
        tell(", ".join([f"{step.name}: {time.monotonic() - began:.0f} s", *closing]))
        assert status == 0, f"'{step.name}' ended with {status}: {program.log} has all that it says"
