"""Client libraries of others, unchanged, do their work on tenure-core."""
import pathlib
import shutil

import pytest
from harness.places import ENVIRONMENT
from harness.program import run
from harness.waiting import ProgramError

CLIENTS = pathlib.Path(__file__).parent / "clients"


@pytest.fixture
def port(new_cluster):
    return new_cluster(1).endpoints.rsplit(":", 1)[1]


def test_python_etcd3(port):
    # In a process of its own: two descriptions of the same messages do not fit into one.
    try:
        run("/usr/bin/python3", "-c", "import etcd3")
    except ProgramError:
        pytest.skip("python3-etcd3 is not installed (as root: apt install python3-etcd3)")
    run("/usr/bin/python3", "-B", CLIENTS / "python_etcd3.py", port)


def test_npms_etcd3(port, tmp_path):
    if not shutil.which("npm", path=ENVIRONMENT["PATH"]):
        pytest.skip("npm is not installed")
    try:
        run("npm", "install", "--silent", "--no-fund", "--no-audit", "etcd3@1.1.2",
            cwd=tmp_path, HOME=str(tmp_path))
    except ProgramError:
        pytest.skip("npm's registry does not answer")
    assert run("node", CLIENTS / "node_etcd3.js", port,
               NODE_PATH=str(tmp_path / "node_modules")) == "done\n"
