"""The Python module of libtenure."""
import re
import signal

import pytest
from harness.places import TOP
from harness.waiting import eventually, eventually_is

PAGE = (TOP / "lib/tenure/python/README.md").read_text()
FOLLOW, ACT, LOCK, WORK, KEYS, LEASES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)

LAYOUT = """
import tenure
print("#include <stdio.h>\\n#include <tenure.h>\\nint main(void) {")
for struct in (tenure._Node, tenure._Service, tenure._Kv, tenure._Event, tenure._Range,
               tenure._WatchOptions, tenure._Switched, tenure._WorkOptions):
    name = "tenure" + "".join("_" + c.lower() if c.isupper() else c for c in struct.__name__[1:])
    print(f"_Static_assert(sizeof(struct {name}) == {tenure.ctypes.sizeof(struct)}, \\"\\");")
    for field, _ in struct._fields_:
        at = getattr(struct, field)
        print(f"_Static_assert(offsetof(struct {name}, {field}) == {at.offset} && "
              f"sizeof(((struct {name} *) 0)->{field}) == {at.size}, \\"{field}\\");")
for kind in tenure.Type:
    print(f"_Static_assert(TENURE_{kind.name} == {kind.value}, \\"\\");")
print("return 0; }")
"""


@pytest.fixture
def says(program):
    """Runs a program to its end, and returns its lines."""
    def says(core, text, *arguments):
        ran = program.python(text, *arguments, TENURE_ENDPOINTS=core.endpoints)
        assert ran.wait() == 0, ran.log_text()
        return ran.lines()

    return says


def test_its_structures_and_numbers_are_those_of_the_header(program):
    layout = program.python(LAYOUT)
    assert layout.wait() == 0
    program.compile(layout.text())  # which fails if one is not


# ---- the examples of its page, as they are written ----

@pytest.fixture
def cluster(new_cluster):
    return new_cluster(1)


@pytest.fixture
def example(program, cluster):
    """Starts one. @before: lines before it; @after: behind it."""
    def start(text, before="", after="", **environment):
        text = text.replace("http://10.0.0.1:2379", cluster.endpoints)
        return program.python(f"import tenure\n{before}\n{text}\n{after}\n", **environment)

    return start


def test_the_example_that_follows_nodes_and_services(example, agents):
    agents("h1", Cluster="default").background("register", "postgresql", "Port=5432")
    other = agents("h2", Cluster="default")
    eventually(other.services)

    follower = example(FOLLOW)
    eventually(lambda: len(follower.lines()) == 3)
    other.ctl("leave")

    eventually(lambda: follower.lines()[3:])
    address = other.node("h1").addresses[0]
    assert follower.lines()[2] == f"h1 {address} 5432"
    assert follower.lines()[3].startswith("NODE_LEFT <Node name='h2'")


def test_the_example_that_acts_while_its_host_has_its_place(example, agent, cluster):
    example(ACT, **agent.bus.environment_for_clients)
    eventually(lambda: cluster.get("jobs/last") and cluster.get("jobs/last").value == "42")


def test_the_example_with_a_lock_and_a_switchover(example, cluster, ties):
    holder, db2 = ties(hold=60, name="db1"), ties(hold=60, name="db2")
    lock = holder.lock_begin("primary")
    holder.hears("LOCKED")
    db2.lock_begin("primary")
    eventually(lambda: len(cluster.range("primary/")) == 2)

    locker = example(LOCK, "def run(fencing_token):\n    print('runs', fencing_token > 0)")
    holder.hears("ASKED")
    assert lock.deadline() <= holder.clock() + 30
    lock.hand_over()

    db2.hears("LOCKED")
    assert locker.wait() == 0
    assert locker.lines() == ["runs True"]
    assert holder.may_act()  # not by the end of its lease


def test_the_example_that_divides_tasks(example, ties):
    member = example(WORK, """
def begin(task, token):
    print("begins", token > 0)
def stop(task):
    print("stops")
""")
    eventually_is(["begins True"] * 1000, member.lines)

    ties(hold=60).work("shards", 1000, settle=0.1)

    eventually(lambda: "stops" in member.lines())


def test_the_example_with_keys(example, cluster):
    reader = example(KEYS, "tie = tenure.Tie()", "print(event.kv.value, event.watch is watch)",
                     TENURE_ENDPOINTS=cluster.endpoints)
    eventually(lambda: cluster.put("config/b", "new") and not reader.is_running)
    assert reader.lines() == ["b'new' True"]


def test_the_example_with_leases(example, cluster):
    lease = example(LEASES, "tie = tenure.Tie(); tie.lease_grant(30, name='web1')",
                    TENURE_ENDPOINTS=cluster.endpoints)
    assert lease.wait() == 0
    assert cluster.get("jobs/last") is None


# ---- keys and watches ----

def test_a_watch_tells_what_was_there_before(engine, ties, prefix):
    tie, binary = ties(), b"\0\xff"
    a, b = prefix + "a", prefix + "b"
    revision = tie.put(a, "1")
    tie.watch(prefix, prefix=True, revision=revision, before=True)
    tie.put(b, binary)
    tie.put(a, "2")
    assert tie.delete(prefix, prefix=True) == 2

    eventually(lambda: len(tie.events()) == 5)
    assert [(event.type, event.kv.key.decode(), event.kv.value, event.before and event.before.value)
            for event in tie.events()] == [
        ("PUT", a, b"1", None), ("PUT", b, binary, None), ("PUT", a, b"2", b"1"),
        ("DELETE", a, b"", b"2"), ("DELETE", b, b"", binary)]
    assert tie.get(a) is None


def test_wrong_arguments_are_python_errors_and_change_nothing(engine, prefix, says):
    assert says(engine, """
import sys, tenure
key = sys.argv[1] + "k"
tie = tenure.Tie(hold=60).held()
def error(function, *arguments, **options):
    try:
        return function(*arguments, **options)
    except Exception as wrong:
        return type(wrong).__name__
print(error(tie.put, key, 42), tie.get(key))
print(error(tie.lock_begin, "a\\0b"), error(tie.lease_grant, 9, name="a\\0b"))
print(error(tie.put, key, "", lease=1 << 70), error(tie.lease_renew, 1 << 64),
      error(tie.lease_grant, -1), error(tie.get, key, revision=1 << 63),
      error(tie.register, "s", port=70000), error(tie.work, "g", 4, weight=-1))
tie.put(key, bytearray(b"a\\0b")), tie.put(key + "2", memoryview(b"ab"))
print(tie.get(key).value, tie.get(key + "2").value)
try:
    tenure.Tie("http://127.0.0.1:1:2")
except tenure.Error as wrong:
    print(wrong.errno, "'http://127.0.0.1:1:2' is not a URL" in wrong.strerror)
try:
    tie.get(key, revision=10**15)
except tenure.Error as wrong:
    print("future" in str(wrong))
tie.leave(), tie.close()
""", prefix) == ["TypeError None", "ValueError ValueError", " ".join(["ValueError"] * 6),
                 r"b'a\x00b' b'ab'", "22 True", "True"]


def test_a_tie_that_is_closed_has_nothing_and_cannot_be_copied(engine, prefix, says):
    assert says(engine, """
import copy, pickle, sys, tenure
tie = tenure.Tie(hold=60).held()
lock, work, watch = tie.lock(sys.argv[1]), tie.work("closed", 2), tie.watch("k")
for what in tie, watch, lock, work:
    for copies in copy.copy, copy.deepcopy, pickle.dumps:
        try:
            print(copies(what))
        except TypeError:
            pass
tie.leave()
tie.close()
for call in (lambda: tie.put("a", "b"), lambda: tie.wait(0), tie.fileno,
             lambda: work.ended("1"), lock.hand_over):
    try:
        print(call())
    except tenure.Error as error:
        print(type(error).__name__, end=" ")
print(tie.may_act, tie.lease, tie.deadline, lock.held, lock.token, lock.deadline,
      work.held("1"), work.token("1"))
lock.release(), watch.close(), tie.close()
""", prefix) == ["Closed Closed Closed Error Error False 0 0 False 0 0 False 0"]


def test_a_tie_that_is_closed_at_once_has_given_back_what_it_had(engine, prefix, says):
    assert says(engine, """
import subprocess, sys, tenure
short = '''import sys, tenure
for n in range(5):
    tie = tenure.Tie(hold=60).held()
    with tie.lock(f"{sys.argv[1]}never closed {n}"):
        pass
'''
subprocess.run([sys.executable, "-c", short, sys.argv[1]], check=True)
for n in range(5):
    with tenure.Tie(hold=60, name=f"left{n}") as tie, tie.held().lock(f"{sys.argv[1]}{n}"):
        pass
    with tenure.Tie(hold=60, name=f"gone{n}") as tie:
        tie.held().leave()
""", prefix) == []
    assert engine.range(prefix) == []
    assert engine.range("/tenure/default/sessions/gone") == []


# ---- signals, threads, children ----

def test_a_call_without_an_answer_can_be_interrupted(program):
    call = program.python("""
import tenure
with tenure.Tie("http://127.0.0.1:1") as tie:
    try:
        print("waits")
        tie.put("k", "v", timeout=None)
    except KeyboardInterrupt:
        print("interrupted")
""")
    eventually(call.lines)

    call.signal(signal.SIGINT)

    assert call.wait() == 0
    assert call.lines() == ["waits", "interrupted"]


def test_a_wait_for_a_lock_that_is_interrupted_waits_no_more(engine, ties, prefix, program):
    ties(hold=60).lock_begin(prefix)
    eventually(lambda: engine.range(prefix))
    waits = program.python("""
import sys, tenure
with tenure.Tie(hold=60) as tie:
    try:
        tie.held().lock(sys.argv[1])
    except KeyboardInterrupt:
        print("interrupted")
        tie.wait(60)
""", prefix, TENURE_ENDPOINTS=engine.endpoints)
    eventually(lambda: len(engine.range(prefix)) == 2)

    waits.signal(signal.SIGINT)

    eventually(lambda: len(engine.range(prefix)) == 1)
    assert waits.lines() == ["interrupted"]
    waits.kill()


def test_threads_share_a_tie_and_each_event_is_told_once(engine, prefix, says):
    assert says(engine, """
import sys, tenure, threading
prefix, heard, n = sys.argv[1], [], 200
with tenure.Tie() as tie:
    tie.watch(prefix, prefix=True, revision=tie.put("before", "") + 1)
    def puts(thread):
        for i in range(n // 4):
            value = f"{thread} {i} " * 50
            tie.put(f"{prefix}{thread}/{i}", value)
            assert tie.get(f"{prefix}{thread}/{i}").value == value.encode()
    threads = [threading.Thread(target=puts, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    while len(heard) < n:
        heard.append(tie.wait().kv.key)
    for thread in threads:
        thread.join()
    print(len(set(heard)), tie.wait(0))
    threading.Timer(0.1, tie.close).start()
    try:
        tie.wait()
    except tenure.Closed:
        print("closed")
""", prefix) == ["200 None", "closed"]


def test_a_tie_that_nobody_has_is_closed(engine, says):
    assert says(engine, """
import gc, os, tenure
tenure.Tie()
gc.collect()
before = os.listdir("/proc/self/fd")
for _ in range(5):
    tenure.Tie()
gc.collect()
print(len(os.listdir("/proc/self/fd")) - len(before))
""") == ["0"]


def test_a_child_has_no_part_in_the_ties_of_its_parent(engine, prefix, says):
    assert says(engine, """
import os, sys, tenure
with tenure.Tie(hold=60) as tie:
    lock = tie.held().lock(sys.argv[1] + "lock")
    if os.fork() == 0:
        try:
            tie.put(sys.argv[1] + "k", "x")
        except tenure.Error as error:
            print(tie.may_act, lock.held, error.strerror)
        tie.close()
        os._exit(0)
    os.wait()
    tie.put_held(sys.argv[1] + "k", "parent")
    print(tie.may_act, lock.held)
    lock.release(), tie.leave()
""", prefix)[1:] == ["True True"]
