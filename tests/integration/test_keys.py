"""What clients of etcd's API get: from tenure-core and from etcd the same."""
from harness.keys import Event
from harness.waiting import eventually


def test_a_key_counts_its_versions_until_it_is_deleted(engine, prefix):
    first = engine.put(prefix + "k", "1")
    second = engine.put(prefix + "k", "2")

    found = engine.get(prefix + "k")
    assert (found.value, found.version) == ("2", 2)
    assert (found.create_revision, found.mod_revision) == (first, second)
    assert engine.get(prefix + "k", f"--rev={first}").value == "1"
    assert engine.delete(prefix, "--prefix") == 1
    assert engine.get(prefix + "k") is None


def test_a_transaction_does_one_of_its_branches_at_one_revision(engine, prefix):
    key, other = prefix + "k", prefix + "other"
    engine.put(key, "1")

    branches = {"then": [f"put {key} 2", f"put {other} 2"], "otherwise": [f"get {key}"]}
    done = engine.txn(compare=[f'value("{key}") = "1"'], **branches)
    refused = engine.txn(compare=[f'value("{key}") = "1"'], **branches)

    found = engine.range(prefix)
    assert done.succeeded and not refused.succeeded
    assert [kv.value for kv in found] == ["2", "2"]
    assert found[0].mod_revision == found[1].mod_revision
    assert refused.got == [[found[0]]]


def test_the_keys_of_a_lease_go_with_it(engine, prefix):
    lease = engine.grant(600)
    engine.put(prefix + "bound", "1", lease=lease)
    engine.put(prefix + "free", "1")
    assert engine.get(prefix + "bound").lease == lease
    assert (engine.lease(lease).granted, engine.lease(lease).keys) == (600, [prefix + "bound"])

    engine.revoke(lease)

    assert [kv.key for kv in engine.range(prefix)] == [prefix + "free"]
    assert engine.lease(lease).ttl == -1


def test_a_lease_that_nobody_renews_ends_with_its_keys(engine, prefix):
    revision = engine.put(prefix + "bound", "1", lease=engine.grant(1))

    watch = engine.watch(prefix, revision)

    events = eventually(lambda: len(watch.events()) > 1 and watch.events())
    assert events[0] == Event("PUT", prefix + "bound", "1", revision)
    assert (events[1].type, events[1].key) == ("DELETE", prefix + "bound")


def test_a_watch_reports_each_change_once_and_in_order(engine, prefix):
    first = engine.put(prefix + "a", "1")
    watch = engine.watch(prefix, first)

    second = engine.put(prefix + "b", "2")
    engine.delete(prefix + "a")
    last = engine.put(prefix + "last", "3")

    eventually(lambda: len(watch.events()) == 4)
    deleted = watch.events()[2].revision  # a lease of another test may have ended just before
    assert watch.events() == [
        Event("PUT", prefix + "a", "1", first), Event("PUT", prefix + "b", "2", second),
        Event("DELETE", prefix + "a", "", deleted), Event("PUT", prefix + "last", "3", last)]
    assert second < deleted < last
