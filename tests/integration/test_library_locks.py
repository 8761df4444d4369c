"""Locks of programs: who has one, in which order, and what others are told."""
import pytest
from harness.program import Daemon
from harness.users import guard
from harness.waiting import eventually


@pytest.fixture
def lock(prefix):
    """The name of a lock."""
    return prefix + "lock"


def waits(tie, core, lock, behind):
    """It stands in line behind so many."""
    waiting = tie.lock_begin(lock)
    eventually(lambda: len(core.range(lock + "/")) == behind + 1)
    return waiting


def test_a_program_whose_key_was_deleted_by_hand_stands_in_line_again(engine, ties, lock):
    tie = ties(hold=60)
    tie.lock_begin(lock, "me")
    tie.hears("LOCKED")
    [key] = engine.range(lock + "/")
    assert (key.key, key.value) == (f"{lock}/{tie.lease():x}", "me")  # as tenurectl makes it

    engine.delete(key.key)

    assert "its key was deleted" in tie.hears("UNLOCKED").reason
    tie.hears("LOCKED")


def test_programs_and_etcdctl_wait_for_each_other(engine, ties, tmp_path, lock):
    def etcdctl(name):
        return Daemon(tmp_path / f"{name}.log", "etcdctl", "--endpoints", engine.endpoints,
                      "lock", lock).start()

    first = etcdctl("first")
    eventually(lambda: engine.range(lock + "/"))
    tie = ties(hold=60)
    second = waits(tie, engine, lock, behind=1)
    third = etcdctl("third")
    eventually(lambda: len(engine.range(lock + "/")) == 3)
    assert not second.held()

    first.stop()
    tie.hears("LOCKED")
    assert third.lines() == []
    second.release()
    eventually(third.lines)


def test_a_program_that_gives_up_waiting_is_in_nobodys_way(engine, ties, lock):
    holder, other = ties(hold=60), ties(hold=60)
    held = waits(holder, engine, lock, behind=0)
    holder.hears("LOCKED")
    waiting = waits(other, engine, lock, behind=1)

    waiting.release()

    other.hears("UNLOCKED")
    assert [key.lease for key in engine.range(lock + "/")] == [holder.lease()]
    assert held.held()


def test_a_lock_goes_in_the_order_of_asking_past_those_whose_lease_is_over(engine, ties, lock):
    line = [ties(hold=3 if n == 4 else 600) for n in range(6)]
    locks = [waits(tie, engine, lock, behind) for behind, tie in enumerate(line)]
    killed, frozen, tokens = line[2], line[4], []
    leases = [tie.lease() for tie in line]

    frozen.freeze()
    eventually(lambda: leases[4] not in [key.lease for key in engine.range(lock + "/")])
    for n in 0, 1, 2, 3, 5:
        line[n].hears("LOCKED")
        tokens.append(locks[n].token())
        if line[n] is killed:
            killed.kill()
            engine.revoke(leases[n])  # as the end of its TTL does
        else:
            locks[n].release()
    frozen.thaw()

    frozen.hears("LOCKED")  # it stands in line again
    tokens.append(locks[4].token())
    assert tokens == sorted(set(tokens))


def test_a_program_that_may_not_look_at_a_lock_leaves_no_key_in_the_way(cluster, ties):
    # The key of any lease, but not all that begins like it.
    guard(cluster, few=["--prefix /tenure/default/sessions/", "narrow/ narrow/g"])
    few = ties(hold=60, user="few", password="few")
    root = ties(hold=60, user="root", password="root")

    refused = few.lock_begin("narrow")
    assert "permission denied" in few.hears("UNLOCKED").reason
    root.lock_begin("narrow")

    root.hears("LOCKED")
    assert few.may_act()
    refused.release()
    assert "given back" in few.hears("UNLOCKED").reason


def test_the_next_worker_takes_over_from_one_that_is_stopped(cluster, program):
    worker = program.compile("conf/examples/libtenure/worker.c")
    first = program.start(worker, "one", TENURE_ENDPOINTS=cluster.endpoints)
    eventually(lambda: "did 1" in first.lines())
    second = program.start(worker, "two", TENURE_ENDPOINTS=cluster.endpoints)
    eventually(lambda: len(cluster.range("jobs/")) == 2)

    first.freeze()
    eventually(lambda: "did 1" in second.lines())
    first.thaw()

    eventually(lambda: any(line.startswith("not my turn: ") for line in first.lines()))
    token = second.lines()[0].removeprefix("my turn, token ")
    assert cluster.get("/jobs/done").value.endswith(f" by {token}")
