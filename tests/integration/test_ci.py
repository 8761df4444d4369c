"""What runs the tests (.ci/test) says what became of them, whatever they do."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

import pytest
from harness.program import run

CI = pathlib.Path(__file__).resolve().parents[2] / ".ci"


def runs(pid):
    """Not a zombie either, which somebody else has to reap."""
    stat = pathlib.Path("/proc", pid, "stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


class Tree:
    """A tree of its own with the steps of a test, in place of .ci/steps.py."""

    def __init__(self, folder):
        self.folder = folder
        (folder / ".ci").mkdir()
        for name in ("test", "anew", "runner.py"):
            shutil.copy(CI / name, folder / ".ci")

    def steps(self, *steps):
        lines = "".join(f"    Step({name!r}, {command!r}, {level!r}, tree=None, {more}),\n"
                        for name, command, level, more in steps)
        (self.folder / ".ci/steps.py").write_text(
            "from runner import ALONE, Step\nLEVELS = ('check', 'test', 'nightly')\n"
            f"STEPS = [\n{lines}]\n")

    def run(self, *words, **how):
        done = subprocess.run([self.folder / ".ci/test", *words], text=True, capture_output=True,
                              timeout=100, **how)
        self.said = done.stdout + done.stderr
        return done.returncode

    @property
    def closing(self):
        return self.said.strip().split("\n")[-1]

    def began(self, name):
        return (self.folder / "build/test/logs" / f"{name}.log").exists()


@pytest.fixture
def ci(tmp_path):
    return Tree(tmp_path)


def step(name, command, level="test", more=""):
    return name, command, level, more


def test_what_steps_counted_is_added_up(ci):
    ci.steps(step("one", "sh -c 'echo 3 passed, 0 failed, 2 skipped'"),
             step("another", "true", "check"))

    assert ci.run("test") == 0

    assert ci.closing == "4 passed, 0 failed, 2 skipped"


@pytest.mark.parametrize("command, closing", [
    ("false", "0 passed, 1 failed, 0 skipped"),
    ("there-is-no-such-program", "0 passed, 1 failed, 0 skipped"),
    ("sh -c 'echo 3 passed, 0 failed, 0 skipped; kill -SEGV $$'", "3 passed, 1 failed, 0 skipped"),
    ("sh -c 'echo 3 passed, 2 failed; exit 0'", "3 passed, 2 failed, 0 skipped"),
    ("sh -c 'echo 2 passed, 1 failed, 0 skipped; exit 1'", "2 passed, 1 failed, 0 skipped"),
])
def test_a_step_that_fails_makes_the_run_fail(ci, command, closing):
    ci.steps(step("bad", command))

    assert ci.run("test") == 1

    assert ci.closing == closing
    assert "again: .ci/test test bad" in ci.said


def test_a_level_has_the_steps_of_those_below_it(ci):
    ci.steps(step("lint", "true", "check"), step("whole", "true"), step("long", "true", "nightly"))

    ci.run("check")
    assert [ci.began(name) for name in ("lint", "whole", "long")] == [True, False, False]
    ci.run("test")
    assert [ci.began(name) for name in ("lint", "whole", "long")] == [True, True, False]


def test_a_step_that_hangs_is_ended_with_all_that_it_started(ci):
    hangs = "sh -c 'sleep 1000 & echo child $!; trap : TERM; wait'"
    ci.steps(step("hangs", hangs, more="limit=1"))

    assert ci.run("test") == 1

    log = (ci.folder / "build/test/logs/hangs.log").read_text()
    assert "not over after 1 s" in log
    child = re.search(r"child (\d+)", log)[1]
    assert not runs(child)


def test_steps_get_default_signals_under_nohup(ci):
    """A daemon that ignores SIGHUP cannot be told to read its settings again."""
    ci.steps(step("signals", "grep SigIgn /proc/self/status"))

    ci.run("test", preexec_fn=lambda: [signal.signal(s, signal.SIG_IGN) for s in (
        signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE)])

    ignored = int((ci.folder / "build/test/logs/signals.log").read_text().split()[1], 16)
    named = [s for s in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM,
                         signal.SIGPIPE) if ignored & 1 << s - 1]
    assert named == []


def test_steps_do_not_get_what_would_change_their_verdict(ci):
    ci.steps(step("environment", "env"))

    ci.run("test", env={"PATH": "/usr/bin:/bin", "LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8",
                        "ETCDCTL_ENDPOINTS": "x", "NOTIFY_SOCKET": "@x", "MAKEFLAGS": "-j"})

    seen = dict(line.split("=", 1) for line in
                (ci.folder / "build/test/logs/environment.log").read_text().splitlines())
    assert seen["LC_ALL"] == "C.UTF-8"
    assert not {"LANG", "ETCDCTL_ENDPOINTS", "NOTIFY_SOCKET", "MAKEFLAGS"} & set(seen)


def test_steps_get_no_input_no_blocked_signal_and_the_usual_umask(ci, tmp_path):
    (tmp_path / "input").write_text("something")
    ci.steps(step("begins", "sh -c 'cat; umask'"),
             step("blocked", "grep SigBlk /proc/self/status"))  # not by a shell: dash blocks none

    with open(tmp_path / "input") as given:
        ci.run("test", stdin=given, preexec_fn=lambda: [
            os.umask(0o077), signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])])

    logs = ci.folder / "build/test/logs"
    assert (logs / "begins.log").read_text() == "0022\n"
    assert int((logs / "blocked.log").read_text().split()[1], 16) == 0


SCRIPT = r"""
. "$LIB"
echo "$1,${ETCDCTL_ENDPOINTS-gone},$(sh -c 'kill -HUP $$; echo ignored')"
wants_plain for-others
preloaded "$DIR/../library.so"
as_other=
[ $(id -u) != 0 ] || as_other="setpriv --reuid=nobody --clear-groups"
$as_other test -x "$PLAIN" && LD_PRELOAD=$PRELOADED grep -om1 "[^/]*library.so" /proc/self/maps
echo "$PLAIN"
"""


@pytest.mark.parametrize("name", ["a b" * 30, "in-a-folder-that-is-closed-to-others"])
def test_scripts_begin_as_steps_do_and_have_a_plain_path(name):
    with tempfile.TemporaryDirectory(prefix="tenure-") as closed:
        folder = pathlib.Path(closed, name)
        folder.mkdir()
        (folder / "script").write_text(SCRIPT)
        run("gcc", "-shared", "-x", "c", "-o", folder / "library.so", "/dev/null")
        said = run("nohup", "bash", folder / "script", "two  words", DIR=str(folder / "dir"),
                   LIB=str(CI.parent / "tests/system/lib.sh"), ETCDCTL_ENDPOINTS="x").splitlines()

    assert said[:2] == ["two  words,gone,", "library.so"]
    assert re.fullmatch("[A-Za-z0-9/._+-]{1,80}", said[2])


def test_what_needs_a_build_that_failed_is_not_run(ci):
    ci.steps(step("build: release", "false", "check"))
    steps = (ci.folder / ".ci/steps.py")
    steps.write_text(steps.read_text().replace("]\n", "    Step('uses it', 'true', 'test'),\n]\n"))

    assert ci.run("test") == 1

    assert "not run, since its build failed: uses it" in ci.said
    assert not ci.began("uses-it")


def test_a_night_goes_on_where_the_last_one_stopped(ci):
    interrupted = "sh -c '[ -e flag ] || { touch flag; kill $PPID; sleep 1000; }'"
    ci.steps(step("first", "true", "nightly"), step("red", "false", "nightly", "weight=ALONE"),
             step("halfway", interrupted, "nightly", "weight=ALONE"),
             step("last", "true", "nightly"))

    assert ci.run("nightly") == 128 + signal.SIGTERM
    assert not ci.began("last")
    assert ci.run("nightly") == 1, "what was red stays red until the tree is another"
    assert ci.closing == "2 passed, 0 failed, 0 skipped"
    assert "red: red" in ci.said
    assert not ci.began("first") and ci.began("last")

    assert ci.run("nightly", "--hours", "0") == 1
    assert ci.closing == "0 passed, 0 failed, 0 skipped"
    assert ci.run("nightly", "--fresh") == 1
    assert ci.began("first")


def test_two_runs_in_one_tree_do_not_disturb_each_other(ci):
    ci.steps(step("inner", ".ci/test check"), step("other", "true", "check"))

    assert ci.run("test", "inner") == 1

    log = (ci.folder / "build/test/logs/inner.log").read_text()
    assert log.startswith("Tests already run in this tree")


def test_a_name_that_no_step_has_is_told(ci):
    ci.steps(step("one", "true"))

    assert ci.run("test", "two*") == 1

    assert "No step has a name like two*" in ci.said
