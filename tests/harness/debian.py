"""Trees of Debian's suites, made by debootstrap and kept in build/trees, and what runs in them."""
import fcntl
import os
import pathlib
import re
import shutil
import signal
from dataclasses import dataclass

import pytest

from .places import ENVIRONMENT, TOP
from .program import Daemon, run
from .waiting import ProgramError

TREES = TOP / "build/trees"
HOUR = 3600.0  # against hangs: what takes minutes on a good machine
# tests/run has it from whoever started it; no program under test may have it.
_NETWORK = {"http_proxy": os.environ["FETCH_PROXY"]} if "FETCH_PROXY" in os.environ else {}
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_INSTALL = "apt-get -q -y --no-install-recommends install"

# A command in a tree sees one folder of this machine, as /srv, and the network.
_ENTER = """root=$1 folder=$2
shift 2
mount -t proc proc "$root/proc"
mount --bind "$folder" "$root/srv"
exec chroot "$root" "$@"
"""


@dataclass(frozen=True)
class Debian:
    """What packages are built, and installed, in: this machine's Debian, or a suite's trees."""
    suite: str = ""
    hosts: pathlib.Path = pathlib.Path("/")   # what is below the disks of hosts
    builds: pathlib.Path = pathlib.Path("/")  # what has all that a build needs


def entered(script, tree, *words):
    """The command that runs a script, with these words, in namespaces for mounts and processes,
    which end with it. The script enters the tree."""
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private",
            "sh", "-ec", script, "sh", tree, *words]


def within(tree, folder, *words):
    """The command that runs these words in the tree, where the folder is /srv."""
    return entered(_ENTER, tree, folder, *words)


class Entered(Daemon):
    """A command of entered() or within() that the test does not just wait for."""

    ends_by = signal.SIGKILL  # unshare ignores SIGTERM; what it has started ends with it


def finish(log, *command, **environment):
    """Runs what may take minutes to its end. What it says goes to the file @log, and is returned; a
    failure shows the end of it."""
    try:
        run("sh", "-c", 'exec "$@" >"$0" 2>&1', log, *command, patience=HOUR,
            **{**_NETWORK, **environment})
    except ProgramError as error:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
        raise ProgramError(log.stem, error.status, err=f"{end}\n(all of it: {log})") from None
    return log.read_text(errors="replace")


def of_this_machine():
    """Skips the test if it lacks what builds packages."""
    for tool in "dpkg-buildpackage", "dh", "lintian":
        if not shutil.which(tool, path=ENVIRONMENT["PATH"]):
            pytest.skip(f"there is no {tool} here (as root: .ci/deps test)")
    return Debian()


def of_suite(suite):
    hosts = tree_of(suite)
    builds = _made(f"{suite}-build", lambda new, log: _make_for_builds(new, log, hosts))
    return Debian(suite, hosts, builds)


def tree_of(suite):
    """A tree of the suite that could be a host's. Skips the test if there cannot be one."""
    if not shutil.which("debootstrap", path=ENVIRONMENT["PATH"]):
        pytest.skip("debootstrap is not installed (as root: .ci/deps packages)")
    return _made(suite, lambda new, log: _make(new, log, suite))


def _make(new, log, suite):
    try:
        finish(log, "debootstrap", "--variant=minbase", f"--keyring={_KEYRING}",
               "--include=systemd-sysv,dbus,procps,etcd-client", suite, new, _mirror())
    except ProgramError:
        last = log.read_text(errors="replace").strip().rpartition("\n")[2]
        pytest.skip(f"debootstrap makes no tree of {suite}: {last}")


def _make_for_builds(new, log, hosts):
    run("cp", "-a", hosts, new, patience=HOUR)
    finish(log, *within(new, TOP / ".ci", "sh", "-ec",
                        f"apt-get -q update; /srv/deps deb; {_INSTALL} lintian"))
    # On Debian 12 libraft is in the backports, also for hosts.
    run("cp", "-a", new / "etc/apt/.", hosts / "etc/apt/")


def _made(name, make):
    """A tree that is kept. It is there as a whole or not at all, and made by one at a time."""
    TREES.mkdir(parents=True, exist_ok=True)
    tree, new = TREES / name, TREES / f".{name}.new"
    with open(TREES / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not tree.is_dir():
            remove(new)
            make(new, TREES / f"{name}.log")
            new.rename(tree)
    return tree


def remove(tree):
    run("rm", "-rf", "--one-file-system", tree, patience=HOUR)


def _mirror():
    """The one that this machine's own apt sources name."""
    codename = re.search(r"^VERSION_CODENAME=(\w+)",
                         pathlib.Path("/etc/os-release").read_text(), re.M)[1]
    for line in run("apt-get", "indextargets", "--format", "$(CODENAME) $(COMPONENT) $(REPO_URI)",
                    "Created-By: Packages").splitlines():
        if line.startswith(f"{codename} main "):
            return line.split()[2]
    pytest.skip(f"apt's sources have no mirror of {codename} main")


def fetch(tree, folder, *packages):
    """Into the tree: what the packages, files in the folder, depend on. So a host without a network
    can install them."""
    finish(TREES / f"{tree.name}.fetch.log", *within(
        tree, folder, "sh", "-ec", f"apt-get -q update; {_INSTALL} --download-only \"$@\"", "sh",
        *packages))
