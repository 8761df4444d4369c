"""What programs that use libtenure read and write, and what is left when they end."""
import re
import shutil

import pytest
from harness.library import sanitizers
from harness.places import ENVIRONMENT

# What is still reachable at the end belongs to libraries that a process loads once.
VALGRIND = ("valgrind", "--quiet", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect",
            "--show-leak-kinds=definite,indirect", "--error-exitcode=99")
ANY_ORDER = "tests/integration/any_order.c"


@pytest.fixture
def valgrind():
    """The words before a command; none if the library's sanitizer sees the same."""
    if sanitizers()[0]:
        return ()
    if "LLVM_PROFILE_FILE" in ENVIRONMENT:
        return ()  # it cannot read what clang makes
    if not shutil.which("valgrind", path=ENVIRONMENT["PATH"]):
        pytest.skip("valgrind is not installed (as root: apt install valgrind)")
    return VALGRIND


def test_valgrind_finds_a_tie_that_is_not_freed(valgrind, program):
    if not valgrind:
        pytest.skip("valgrind is not used with these programs")
    leaks = program.compile("#include <tenure.h>\n"
                            "int main(void) { struct tenure *t; return tenure_new(&t); }\n")
    assert program.start(*valgrind, leaks, name="leaks").wait() == 99


def test_a_program_may_do_anything_in_any_order(valgrind, new_cluster, program):
    """Two of them, which want the same locks, names and tasks."""
    core, any_order = new_cluster(1), program.compile(ANY_ORDER)
    programs = [program.start(*valgrind, any_order, seed, 6, name="any-order",
                              TENURE_ENDPOINTS=core.endpoints) for seed in (1, 2)]

    assert [program.wait() for program in programs] == [0, 0]

    for program in programs:
        [line] = program.lines()
        assert re.search("refused [1-9].* locks and tasks [1-9]", line)
        assert program.log_text() == ""
