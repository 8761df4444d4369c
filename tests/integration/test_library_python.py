"""The Python module of libtenure."""
import re
import signal

import pytest
from harness.library import sanitizers
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
def begin(program, core, prefix):
    """Starts a program that has `name`, which no other test uses."""
    begins = "import os, sys, tenure\nname = sys.argv[1]\n"
    return lambda text: program.python(begins + text, prefix, TENURE_ENDPOINTS=core.endpoints)


@pytest.fixture
def says(begin):
    """Runs it to its end, and returns its lines."""
    def says(text):
        ran = begin(text)
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

def test_a_watch_reports_what_was_there_before(engine, ties, prefix):
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


def test_wrong_arguments_are_python_errors_and_change_nothing(engine, says):
    assert says("""
tie = tenure.Tie(hold=60).held()
def error(function, *arguments, **options):
    try:
        return function(*arguments, **options)
    except tenure.Error as wrong:
        return wrong.errno, wrong.strerror
    except Exception as wrong:
        return type(wrong).__name__
print(error(tie.put, name, 42), tie.get(name))
print(error(tie.lock_begin, "a\\0b"), error(tie.lease_grant, 9, name="a\\0b"))
print(error(tie.put, name, "", lease=1 << 70), error(tie.lease_renew, 1 << 64),
      error(tie.lease_grant, -1), error(tie.get, name, revision=1 << 63),
      error(tie.register, "s", port=70000), error(tie.work, "g", 4, weight=-1))
tie.put(name, bytearray(b"a\\0b")), tie.put(name + "2", memoryview(b"ab"))
print(tie.get(name).value, tie.get(name + "2").value)
number, sentence = error(tenure.Tie, "http://127.0.0.1:1:2")
print(number, "'http://127.0.0.1:1:2' is not a URL" in sentence)
print("future" in error(tie.get, name, revision=10**15)[1])
tie.leave(), tie.close()
""") == ["TypeError None", "ValueError ValueError", " ".join(["ValueError"] * 6),
         r"b'a\x00b' b'ab'", "22 True", "True"]


def test_a_tie_that_is_closed_has_nothing_and_cannot_be_copied(engine, says):
    assert says("""
import copy, pickle
tie = tenure.Tie(hold=60).held()
lock, work, watch = tie.lock(name), tie.work("closed", 2), tie.watch("k")
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
""") == ["Closed Closed Closed Error Error False 0 0 False 0 0 False 0"]


def test_a_tie_that_is_closed_at_once_has_given_back_what_it_had(engine, prefix, says):
    assert says("""
import subprocess
short = '''import sys, tenure
for n in range(5):
    tie = tenure.Tie(hold=600).held()
    with tie.lock(f"{sys.argv[1]}never closed {n}"):
        pass
'''
subprocess.run([sys.executable, "-c", short, name], check=True)
for n in range(5):
    with tenure.Tie(hold=600, name=f"left{n}") as tie, tie.held().lock(f"{name}{n}"):
        pass
    with tenure.Tie(hold=600, name=f"gone{n}") as tie:
        tie.held().leave()
""") == []
    # close() waits for a second. What the core takes longer for is done, too, and long before the
    # leases end.
    eventually(lambda: engine.range(prefix) == [])
    eventually(lambda: engine.range("/tenure/default/sessions/gone") == [])


# ---- with statements ----

def test_the_lease_of_a_lock_is_renewed_while_the_program_works(core, prefix, begin):
    begin("""
import time
with tenure.Tie(hold=6) as tie, tie.held().lock(name):
    time.sleep(3600)
""")
    [key] = eventually(lambda: core.range(prefix))
    core.wait_for_renewal(key.lease)


def test_a_with_statement_whose_lock_was_lost_raises_at_its_end(core, prefix, begin):
    locker = begin("""
try:
    with tenure.Tie(hold=600) as tie, tie.held().lock(name) as lock:
        print(tie.lease)
        while lock.held:
            tie.wait(0.01)
        print("stops")
except tenure.Lost as lost:
    print(lost.strerror)
""")

    core.revoke(int(eventually(locker.lines)[0]))

    assert locker.wait() == 0
    assert locker.lines()[1:] == [
        "stops", f"the lock '{prefix}' was lost before its with statement ended; "
        "somebody else may have had it meanwhile"]


def test_a_with_statement_that_hands_its_lock_over_raises_nothing_at_its_end(
        core, prefix, begin, ties):
    locker = begin("""
with tenure.Tie(hold=600) as tie:
    with tie.held().lock(name) as lock:
        while tie.wait().type != tenure.Type.ASKED:
            pass
        lock.hand_over()
        while lock.held:
            tie.wait()
    print("ended")
""")
    eventually(lambda: core.range(prefix))
    ties(hold=600, name="next").lock_begin(prefix)
    eventually(lambda: len(core.range(prefix)) == 2)

    ties().switchover(prefix, "next")

    assert locker.wait() == 0
    assert locker.lines() == ["ended"]


# ---- signals, threads, children ----

def test_a_call_without_an_answer_can_be_interrupted(begin):
    call = begin("""
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


def test_a_wait_for_a_lock_that_is_interrupted_waits_no_more(engine, ties, prefix, begin):
    ties(hold=60).lock_begin(prefix)
    eventually(lambda: engine.range(prefix))
    waits = begin("""
with tenure.Tie(hold=60) as tie:
    try:
        tie.held().lock(name)
    except KeyboardInterrupt:
        print("interrupted")
        tie.wait(60)
""")
    eventually(lambda: len(engine.range(prefix)) == 2)

    waits.signal(signal.SIGINT)

    eventually(lambda: len(engine.range(prefix)) == 1)
    assert waits.lines() == ["interrupted"]
    waits.kill()


def test_threads_share_a_tie_and_each_event_is_reported_once(engine, says):
    assert says("""
import threading
heard, n = [], 200
with tenure.Tie() as tie:
    tie.watch(name, prefix=True, revision=tie.put("before", "") + 1)
    def puts(thread):
        for i in range(n // 4):
            value = f"{thread} {i} " * 50
            tie.put(f"{name}{thread}/{i}", value)
            assert tie.get(f"{name}{thread}/{i}").value == value.encode()
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
""") == ["200 None", "closed"]


def test_a_program_may_begin_more_calls_than_are_sent_at_a_time(engine, says):
    assert says("""
key = name.encode()
with tenure.Tie() as tie:
    calls = [tie._begin(tenure._put, key, len(key), b"v", 1, 0) for _ in range(5000)]
    revisions = [tie._answer(call, 60, tenure._call_revision) for call in calls]
    print(len(set(revisions)), tie.get(key).version)
""") == ["5000 5000"]


@pytest.mark.skipif(bool(sanitizers()[0]), reason="a sanitizer keeps what was freed")
def test_a_program_that_takes_no_events_does_not_grow(says):
    assert says("""
import resource
kib = 100
def memory():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() // 1024
with tenure.Tie() as tie, tenure.Tie() as writer:
    tie.watch(name, revision=writer.put(name, ""))
    before = memory()
    for n in range(1, 150):
        writer.put(name, b"x" * kib * 1024)
        tie.dispatch()
    print("small" if memory() - before < 8 * 1024 else f"{memory() - before} KiB")
    assert tie.get(name).version == 150  # other calls go on
    print([tie.wait().kv.version for n in range(150)] == [*range(1, 151)])
""") == ["small", "True"]


def test_a_tie_that_nobody_has_is_closed(engine, says):
    assert says("""
import gc
def descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))
tenure.Tie()
before = descriptors()
for _ in range(5):
    tenure.Tie()
print(descriptors() - before)
""") == ["0"]


def test_a_child_has_no_part_in_the_ties_of_its_parent(engine, says):
    assert says("""
with tenure.Tie(hold=60) as tie:
    lock = tie.held().lock(name + "lock")
    if os.fork() == 0:
        try:
            tie.put(name + "k", "x")
        except tenure.Error as error:
            print(tie.may_act, lock.held, error.strerror)
        tie.close()
        os._exit(0)
    os.wait()
    tie.put_held(name + "k", "parent")
    print(tie.may_act, lock.held)
    lock.release(), tie.leave()
""")[1:] == ["True True"]


def test_a_child_does_not_wait_for_the_turn_of_a_thread_that_it_does_not_have(says):
    assert says("""
import threading, time
tie, taken = tenure.Tie(hold=600).held(), threading.Event()
def busy():
    with tie._turn:  # as the module's thread, while it dispatches
        taken.set()
        time.sleep(0.2)
threading.Thread(target=busy).start()
taken.wait()
if (child := os.fork()) == 0:
    tie.close()
    os._exit(0)
print("child", os.waitpid(child, 0)[1])
tie.close()
""") == ["child 0"]
