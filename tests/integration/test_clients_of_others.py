"""Clients that were written for etcd, unchanged, do their work on tenure-core."""
from importlib.util import find_spec

import pytest
from harness import npm
from harness.places import TOP
from harness.program import run


@pytest.fixture
def port(new_cluster):
    return new_cluster(1).running[0].client_url.rpartition(":")[2]


def wants(*modules):
    """Looks for them without an import: two programs' messages may have the same names."""
    for module in modules:
        if not find_spec(module):
            pytest.skip(f"python3-{module} is not installed")


ETCD3 = """
import queue, sys
import etcd3
from etcd3.events import DeleteEvent, PutEvent

client = etcd3.client(port=int(sys.argv[1]), timeout=60)
client.put("a", "1")
assert client.get("a")[0] == b"1" and client.get("none") == (None, None)
assert [value for value, _ in client.get_prefix("a", sort_order="descend")] == [b"1"]
assert client.replace("a", "1", "2") and not client.replace("a", "1", "3")
assert client.put_if_not_exists("b", "x") and not client.put_if_not_exists("b", "y")
calls = client.transactions
done, answers = client.transaction(
    compare=[calls.value("a") == "2", calls.version("none") == 0],
    success=[calls.put("c", "z"), calls.get("a")], failure=[calls.delete("a")])
assert done and answers[1][0][0] == b"2"
assert client.delete("a") and not client.delete("a")
assert client.delete_prefix("b").deleted == 1

lease, answers = client.lease(60), queue.Queue()
client.put("leased", "l", lease)
assert lease.keys == [b"leased"] and lease.granted_ttl == 60 and 0 < lease.remaining_ttl <= 60
assert list(lease.refresh())[0].TTL == 60
client.add_watch_callback("leased", answers.put, start_revision=1)
lease.revoke()
events = []
while len(events) < 2:
    events += answers.get(timeout=60).events
assert [type(event) for event in events] == [PutEvent, DeleteEvent]

with client.lock("lock", ttl=60) as lock:
    assert lock.is_acquired()
again = client.lock("lock", ttl=60)
assert again.acquire(timeout=60) and again.release()
assert client.status().leader and len(list(client.members)) == 1
assert client.hash() is not None and list(client.list_alarms()) == []
client.compact(5)
client.defragment()
"""


def test_python3_etcd3_does_its_work(program, port):
    wants("etcd3")
    work = program.python(ETCD3, port)
    assert work.wait() == 0, work.log_text()


ETCD3GW = """
import sys, unittest, urllib3
from etcd3gw.client import Etcd3Client
_, _, *others = Etcd3Client.__init__.__defaults__
Etcd3Client.__init__.__defaults__ = "127.0.0.1", int(sys.argv[1]), *others
urllib3.PoolManager.request = lambda *_: None  # an etcd is there, if not where they look for it
from etcd3gw.tests.test_etcd3gw import TestEtcd3Gateway
del TestEtcd3Gateway.test_watch_key, TestEtcd3Gateway.test_watch_prefix  # sleep, and hope
unittest.main("etcd3gw.tests.test_etcd3gw", argv=["etcd3gw"])
"""


def test_the_tests_of_python3_etcd3gw_pass(program, port):
    wants("etcd3gw", "oslotest")
    tests = program.python(ETCD3GW, port)
    assert tests.wait() == 0, tests.log_text()
    assert "skipped" not in tests.log_text()


def test_etcd3_of_npm_does_its_work(tmp_path, port):
    modules = npm.install(tmp_path, "etcd3@1.1.2")
    assert run("node", TOP / "tests/integration/etcd3_of_npm.js", port, cwd=tmp_path,
               NODE_PATH=str(modules)) == "done\n"
