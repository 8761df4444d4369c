"""Not run by itself: test_harness.py runs these tests, some of which must fail."""
import pathlib

import pytest

from harness.waiting import eventually

SAYS = r"""
#include <stdio.h>
int main(void) { fputs("%s\n", stderr); return %d; }"""

LEAVES_A_CHILD = r"""
#include <stdio.h>
#include <unistd.h>
int main(void)
{
        pid_t child = fork();

        while (child == 0)
                pause();
        printf("%d\n", child);
        return 0;
}"""


def test_crash(program):
    program.c("#include <stdlib.h>\nint main(void) { abort(); }").wait()


def test_status(program):
    failing = program.c(SAYS % ("I have failed.", 3))
    eventually(lambda: not failing.is_running)


def test_sanitizer(program):
    program.c(SAYS % ("x.c:1:2: runtime error: signed integer overflow", 0)).wait()


def test_a_status_that_was_asked_for(program):
    assert program.c(SAYS % ("I have failed.", 3)).wait() == 3


def test_own_kill(cluster):
    for replica in cluster.replicas.values():
        replica.kill()


def test_child(program):
    global left
    parent = program.c(LEAVES_A_CHILD)
    assert parent.wait() == 0
    left = pathlib.Path("/proc", *parent.lines())
    assert left.exists()


def test_no_child_is_left():
    assert not left.exists()


def test_assertion(program):
    program.c(SAYS % ("This is in the log.", 0)).wait()
    assert False


def test_skipped():
    pytest.skip("no moon tonight")
