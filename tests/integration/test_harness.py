"""The harness keeps what it promises: most of these run tests, and read the report."""
import pathlib
import signal

import pytest

from harness.places import BIN
from harness.program import Daemon, run
from harness.waiting import ProgramError, eventually

HERE = pathlib.Path(__file__).parent


@pytest.fixture
def inner(tmp_path):
    """The command that runs a text of tests with this harness, from a path with a blank."""
    folder = tmp_path / "a b"
    folder.mkdir()
    for name in "run", "conftest.py", "pytest.ini", "harness":
        (folder / name).symlink_to(HERE.parent / name)
    (folder / "integration").mkdir()

    def command(text, *options):
        (folder / "integration/test_inner.py").write_text(text)
        return ["env", f"BIN={BIN}", f"TMPDIR={tmp_path}", folder / "run", *options]

    return command


def test_a_program_that_crashes_or_a_sanitizer_that_complains_fails_the_test(inner):
    with pytest.raises(ProgramError) as red:
        run(*inner((HERE / "inner/faults.py").read_text(), "-n", "0"))

    told = red.value.out
    assert "died of SIGABRT, which the test did not send" in told
    assert "ended with status 3, which the test did not ask for" in told
    assert ": x.c:1:2: runtime error: signed integer overflow" in told
    assert "This is in the log." in told
    assert "a b/run' -n 0 integration/test_inner.py::test_assertion" in told
    assert [line.rsplit("::")[-1] for line in told.splitlines()[-2:]] == [
        "test_skipped: no moon tonight", "4 passed, 4 failed, 1 skipped"]


def test_a_run_without_a_test_has_failed(inner):
    with pytest.raises(ProgramError) as red:
        run(*inner("", "-n", "0"))
    assert red.value.out.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL],
                         ids=["SIGTERM", "SIGKILL"])
def test_a_run_that_is_killed_leaves_no_program_behind(inner, tmp_path, number):
    runs = Daemon(tmp_path / "inner.log", *inner(f"""
import pathlib
from harness.waiting import eventually

def test_waits(program):
    pause = program.c("#include <unistd.h>\\nint main(void) {{ while (1) pause(); }}")
    written = pathlib.Path({str(tmp_path)!r}, "pid.new")
    written.write_text(str(pause.pid))
    written.rename(written.with_suffix(".pid"))
    eventually(lambda: False)
""", "-n", "2")).start()
    left = eventually((tmp_path / "pid.pid").exists) and (tmp_path / "pid.pid").read_text()

    runs.signal(number)
    runs.wait()

    eventually(lambda: _is_gone(left))
    if number == signal.SIGTERM:
        assert runs.lines()[-1] == "0 passed, 1 failed, 0 skipped"


def _is_gone(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"  # whose parent is process 1 of a container, which may not care


def test_programs_get_nothing_of_the_callers_environment_and_signals(inner):
    ignores_signals = ["sh", "-c", 'trap "" HUP INT QUIT PIPE; exec "$@"', "sh"]
    run(*ignores_signals, *inner("""
import pathlib

def test_program(program, new_cluster):
    replica, = new_cluster(1).replicas.values()
    proc = pathlib.Path("/proc", str(replica.pid))
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    names = {given.split("=")[0] for given in (proc / "environ").read_text().split("\\0")[:-1]}
    # 13: SIGPIPE, which it ignores itself; 32, 33: the C library's, which posix_spawn(3) ignores.
    assert int(status["SigIgn"], 16) & ~(1 << 12 | 3 << 31) == 0
    assert int(status["SigBlk"], 16) == 0
    assert names - {"LLVM_PROFILE_FILE"} == {
        "PATH", "LC_ALL", "DBUS_SYSTEM_BUS_ADDRESS", "ETCDCTL_API"}
""", "-n", "0"), ETCD_NAME="x", TENURE_ENDPOINTS="nowhere", LC_ALL="de_DE.UTF-8", PYTHONPATH="/x",
        PYTEST_ADDOPTS="--nonsense")


def test_ports_are_reserved_from_all_other_tests_of_this_machine(ports):
    taken = [ports.take() for _ in range(7)]

    assert len(set(taken)) == 7
    assert all(10240 <= port < 32768 for port in taken)  # the kernel's own begin at 32768
    assert all(pathlib.Path("/tmp/tenure-ports", str(port)).exists() for port in taken)
