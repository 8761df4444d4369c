"""What runs the tests (.ci/test) says what became of them, whatever they do."""
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest
from harness.program import run

CI = pathlib.Path(__file__).resolve().parents[2] / ".ci"


class Tree:
    """A tree of its own with the steps of a test, in place of .ci/steps.py."""

    def __init__(self, folder):
        self.folder = folder
        (folder / ".ci").mkdir()
        for name in ("test", "anew", "runner.py"):
            shutil.copy(CI / name, folder / ".ci")

    def steps(self, *steps):
        (self.folder / ".ci/steps.py").write_text(
            "from runner import ALONE, Step\nLEVELS = ('check', 'test', 'nightly')\n"
            f"STEPS = [{', '.join(steps)}]\n")

    def run(self, *words, **how):
        done = subprocess.run([self.folder / ".ci/test", *words], text=True, capture_output=True,
                              timeout=100, **how)
        self.said = done.stdout + done.stderr
        self.closing = self.said.strip().split("\n")[-1]
        return done.returncode

    def log(self, name):
        """"" if the step has not begun."""
        file = self.folder / "build/test/logs" / f"{name}.log"
        return f"log:\n{file.read_text()}" if file.exists() else ""


@pytest.fixture
def ci(tmp_path):
    return Tree(tmp_path)


def step(name, command, level="test", more="tree=None"):
    return f"Step({name!r}, {command!r}, {level!r}, {more})"


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
    assert [bool(ci.log(name)) for name in ("lint", "whole", "long")] == [True, False, False]
    ci.run("test")
    assert [bool(ci.log(name)) for name in ("lint", "whole", "long")] == [True, True, False]


def test_a_step_that_hangs_is_ended_with_all_that_it_started(ci):
    ci.steps(step("hangs", "sh -c 'sleep 1000 & echo child $!; trap : TERM; wait'",
                  more="tree=None, limit=1"))

    assert ci.run("test") == 1

    assert "not over after 1 s" in ci.log("hangs")
    stat = pathlib.Path("/proc", re.search(r"child (\d+)", ci.log("hangs"))[1], "stat")
    # It may be a zombie, which somebody else has to reap.
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_steps_get_default_signals_under_nohup(ci):
    """A daemon that ignores SIGHUP cannot be told to read its settings again."""
    numbers = signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE
    ci.steps(step("signals", "grep SigIgn /proc/self/status"))

    ci.run("test", preexec_fn=lambda: [signal.signal(n, signal.SIG_IGN) for n in numbers])

    ignored = int(re.search(r"SigIgn:\s*(\w+)", ci.log("signals"))[1], 16)
    assert [n for n in numbers if ignored & 1 << n - 1] == []


def test_steps_do_not_get_what_would_change_their_verdict(ci):
    ci.steps(step("environment", "env"))

    ci.run("test", env={"PATH": "/usr/bin:/bin", "LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8",
                        "ETCDCTL_ENDPOINTS": "x", "NOTIFY_SOCKET": "@x", "MAKEFLAGS": "-j"})

    assert "\nLC_ALL=C.UTF-8\n" in ci.log("environment")
    assert not re.search("^(LANG|ETCDCTL_ENDPOINTS|NOTIFY_SOCKET|MAKEFLAGS)=",
                         ci.log("environment"), re.M)


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


def test_a_benchmark_begins_as_steps_do(tmp_path):
    (tmp_path / "script").write_text('. "$LIB"; echo "$1,${ETCDCTL_ENDPOINTS-gone},'
                                     '$(sh -c "kill -HUP \\$\\$; echo ignored")"')
    assert run("nohup", "bash", tmp_path / "script", "two  words", DIR=str(tmp_path / "dir"),
               LIB=str(CI.parent / "tests/bench/lib.sh"),
               ETCDCTL_ENDPOINTS="x") == "two  words,gone,\n"


def test_what_needs_a_build_that_failed_is_not_run(ci):
    ci.steps(step("build: release", "false", "check"), step("uses it", "true", more=""))
    assert ci.run("test") == 1
    assert "not run, since its build failed: uses it" in ci.said
    assert not ci.log("uses-it")


def test_a_night_resumes_where_the_last_one_stopped(ci):
    interrupted = "sh -c '[ -e flag ] || { touch flag; kill $PPID; sleep 1000; }'"
    alone = "tree=None, weight=ALONE"
    ci.steps(step("first", "true", "nightly"), step("red", "false", "nightly", alone),
             step("halfway", interrupted, "nightly", alone), step("last", "true", "nightly"))

    assert ci.run("nightly") == 128 + signal.SIGTERM
    assert not ci.log("last")
    assert ci.run("nightly") == 1, "what was red stays red until the tree is another"
    assert ci.closing == "2 passed, 0 failed, 0 skipped"
    assert "red: red" in ci.said
    assert not ci.log("first") and ci.log("last")

    assert ci.run("nightly", "--hours", "0") == 1
    assert ci.closing == "0 passed, 0 failed, 0 skipped"
    assert ci.run("nightly", "--fresh") == 1
    assert ci.log("first")


def test_two_runs_in_one_tree_do_not_disturb_each_other(ci):
    ci.steps(step("inner", ".ci/test check"), step("other", "true", "check"))
    assert ci.run("test", "inner") == 1
    assert ci.log("inner").startswith("log:\nTests already run in this tree")


def test_a_name_that_no_step_has_is_reported(ci):
    ci.steps(step("one", "true"))
    assert ci.run("test", "two*") == 1
    assert "No step has a name like two*" in ci.said
