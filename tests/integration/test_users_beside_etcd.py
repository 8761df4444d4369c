"""Users, roles and what they may: from tenure-core and Debian's etcd the same, but for what says
that it is stricter on purpose."""
import random

import pytest
from harness.differences import as_both_do
from harness.pair import Pair, method, put
from harness.random_calls import LEASES, Calls
from harness.rpc import Refused, pb
from harness.waiting import eventually_is

DENIED = "PERMISSION_DENIED: etcdserver: permission denied"
NOBODY = "INVALID_ARGUMENT: etcdserver: user name is empty"
BAD_TOKEN = "UNAUTHENTICATED: etcdserver: invalid auth token"
PASSWORDS = {"root": "secret", "ann": "ann's", "bob": "bob's", "eve": "eve's"}
ANN_READS = dict(key=b"r", range_end=b"s")


def permission(kind, key, range_end=b""):
    return {"permType": kind, "key": key, "range_end": range_end}


def prepare(pair):
    """Before authentication is on: users, roles, and a lease with a secret key."""
    for user, password in PASSWORDS.items():
        pair.call("Auth/UserAdd", name=user, password=password)
    pair.call("Auth/UserAdd", name="cert", options={"no_password": True})
    for role in "reader", "writer", "root":
        pair.call("Auth/RoleAdd", name=role)
    for role, *rights in (("reader", "READ", b"r", b"s"), ("reader", "READ", b"alone"),
                          ("reader", "READWRITE", b"alone"), ("reader", "READ", b"s", b"t"),
                          ("writer", "WRITE", b"r", b"u")):
        pair.call("Auth/RoleGrantPermission", name=role, perm=permission(*rights))
    for user, role in ("root", "root"), ("ann", "reader"), ("bob", "writer"), ("bob", "reader"):
        pair.call("Auth/UserGrantRole", user=user, role=role)
    pair.call("Lease/LeaseGrant", ID=501, TTL=600)
    pair.put(b"zecret", lease=501)
    pair.put(b"r1")


def switch_on(pair):
    prepare(pair)
    pair.call("Auth/AuthEnable")


@pytest.fixture
def nobody(shared_pair):
    """Who is not logged in, where authentication is on."""
    return shared_pair("pair-with-users", switch_on)


@pytest.fixture(params=["gRPC", "JSON"])
def pair(request, fresh_pair):
    """Nobody has used it."""
    with fresh_pair.by(request.param) as pair_:
        yield pair_


@pytest.fixture
def root(nobody):
    return nobody.log_in("root", "secret")


@pytest.fixture
def ann(nobody):
    """May read from "r" to "t", and read and write "alone"."""
    return nobody.log_in("ann", "ann's")


def test_users_and_roles_are_kept_in_order_before_authentication_is_on(pair):
    def ask(pair, **calls):
        return [pair.ask(f"Auth/{name}", **fields)
                for name, given in calls.items() for fields in given]

    refused = ask(
        pair, Authenticate=[dict(name="root", password="x")],
        AuthEnable=[{}],  # without root
        UserAdd=[dict(name="", password="x")], UserGrantRole=[dict(user="nobody", role="root")],
        UserGet=[dict(name="nobody")], UserDelete=[dict(name="nobody")],
        UserChangePassword=[dict(name="nobody", password="x")],
        UserRevokeRole=[dict(name="nobody", role="reader")], RoleAdd=[dict(name="")],
        RoleGet=[dict(role="none")], RoleDelete=[dict(role="none")],
        RoleGrantPermission=[dict(name="none", perm=permission("READ", b"a"))],
        RoleRevokePermission=[dict(role="none", key=b"q")])
    assert {type(answer) for answer in refused} == {Refused}
    pair.call("Auth/UserAdd", name="root", password="secret")
    ask(pair, AuthEnable=[{}])  # where root has no role
    pair.call("Auth/UserDelete", name="root")
    prepare(pair)
    ask(pair, UserAdd=[dict(name="root", password="secret")], RoleAdd=[dict(name="reader")],
        UserGrantRole=[dict(user="root", role=role) for role in ("root", "nothing")],
        UserRevokeRole=[dict(name="eve", role="reader")],
        RoleRevokePermission=[dict(role="reader", key=key) for key in (b"q", b"alone")],
        UserGet=[dict(name="root")], RoleGet=[dict(role="reader")], UserList=[{}], RoleList=[{}],
        AuthEnable=[{}])
    ask(pair.log_in("root", "secret"), AuthEnable=[{}],
        UserRevokeRole=[dict(name="root", role="root")],
        UserDelete=[dict(name="root"), dict(name="ann")], RoleDelete=[dict(role="writer")],
        AuthDisable=[{}])
    pair.call("KV/Range", key=b"\0", range_end=b"\0", count_only=True)


@pytest.mark.parametrize("name, password", [("nobody", "x"), ("ann", "wrong"), ("ann", ""),
                                            ("", "")])
def test_nobody_logs_in_by_another_name_or_password(nobody, name, password):
    with pytest.raises(Refused):
        nobody.log_in(name, password)


CALLS = [("KV/Range", fields) for fields in (
    dict(key=b"r", range_end=b"s"), dict(key=b"r1"), dict(key=b"r", range_end=b"t"),
    dict(key=b"r", range_end=b"t\0"), dict(key=b"\0", range_end=b"\0"),
    dict(key=b"r", range_end=b"\0"), dict(key=b"alone"),
    dict(key=b"alone", range_end=b"alone\0\0"), dict(key=b"zecret", serializable=True))] + [
    ("KV/Put", dict(key=b"r1")), ("KV/Put", dict(key=b"t1", prev_kv=True)),
    ("KV/Put", dict(key=b"zecret")), ("KV/Put", dict(key=b"r1", lease=501)),
    ("KV/DeleteRange", dict(key=b"r", range_end=b"s")),
    ("KV/DeleteRange", dict(key=b"t1", prev_kv=True)),
    ("KV/Txn", dict(compare=[dict(target="VERSION", key=b"zecret")])),
    ("KV/Txn", dict(compare=[dict(target="VERSION", key=b"r1")], success=[put(b"r1")])),
    ("KV/Txn", dict(failure=[put(b"zecret")])),  # the branch that is not taken
    ("Lease/LeaseRevoke", dict(ID=501)), ("Auth/UserAdd", dict(name="new", password="x")),
    ("Auth/UserGet", dict(name="ann")), ("Auth/RoleGet", dict(role="reader")),
    ("Auth/UserList", {}), ("Cluster/MemberRemove", dict(ID=1))]


def test_each_user_may_do_what_etcd_lets_it_do(pair):
    switch_on(pair)
    users = [pair] + [pair.log_in(name, PASSWORDS[name])
                            for name in ("ann", "bob", "eve", "root")]  # root revokes the lease
    for user in users:
        for name, fields in CALLS:
            user.ask(name, **fields)
        for fields in dict(key=b"zecret", watch_id=9), ANN_READS:
            user.by("gRPC").stream("Watch/Watch").create(["header"], **fields)
    for fields in {}, dict(action="DEACTIVATE", memberID=1, alarm="NOSPACE"):
        users[-1].call("Maintenance/Alarm", ["header"], **fields)
    users[1].call("Maintenance/Alarm", ["header"])


def test_a_watch_without_a_valid_login_gets_the_error_by_which_etcds_clients_log_in_again(nobody):
    with_bad_token = Pair(*nobody.engines, ["no.token"] * 2)
    for user, reason in (nobody, "user name is empty"), (with_bad_token, "invalid auth token"):
        made = user.stream("Watch/Watch").create(["header"], key=b"r1", watch_id=3)
        assert made.canceled and reason in made.cancel_reason


def test_random_users_may_do_at_random_what_etcd_lets_them_do(fresh_pair, seed):  # A43
    switch_on(fresh_pair)
    r, root = random.Random(seed), fresh_pair.log_in("root", "secret")
    calls, names = Calls(r), [f"u{i}" for i in range(8)]
    for name in names:
        root.call("Auth/UserAdd", name=name, password=name)
        root.call("Auth/RoleAdd", name=name)
        # Of two that begin alike and end elsewhere, an etcd 3.4 does not take the first one away.
        for key in {calls.key() for _ in range(r.randrange(6))}:
            end = r.choice([b"", b"", b"\0", b"c", b"b0", b"e", b"\xff\xff"])
            root.call("Auth/RoleGrantPermission", name=name,
                      perm=permission(r.randrange(3), key, end))
    for name in names:
        for role in {r.choice(names) for _ in range(r.randrange(4))}:
            root.call("Auth/UserGrantRole", user=name, role=role)
    for lease in LEASES[:3]:
        root.call("Lease/LeaseGrant", ID=lease, TTL=600)
    users, denied = [root.log_in(name, name) for name in names], 0
    for _ in range(1500):
        name, request = calls.any(depth=0, range=4, put=3, delete=1, txn=2)
        denied += str(r.choice(users).ask(name, request=as_both_do(request))) == DENIED
    assert 150 < denied < 1350


# ---- less strict: etcd's guard reads the key ----

def test_a_leader_may_resign_that_may_only_write(fresh_pair):
    switch_on(fresh_pair)
    root = fresh_pair.log_in("root", "secret")
    for user, role in ("wil", "writer"), ("una", None):
        root.call("Auth/UserAdd", name=user, password=user)
        if role:
            root.call("Auth/UserGrantRole", user=user, role=role)
    root.call("Lease/LeaseGrant", ID=502, TTL=600)
    leader = root.call("Election/Campaign", name=b"tx", lease=502).leader
    wil, una = (root.log_in(user, user) for user in ("wil", "una"))

    with pytest.raises(Refused, match=DENIED):
        una.ours("Election/Resign", leader=leader)
    stale = dict(name=b"tx", key=leader.key, rev=1)
    wil.ours("Election/Resign", leader=stale)
    assert root.counts(b"tx/") == [1, 1]
    wil.ours("Election/Resign", leader=leader)
    assert root.counts(b"tx/") == [0, 1]
    with pytest.raises(Refused, match="permission denied"):
        wil.etcd.call(*method("Election/Resign", dict(leader=leader)))


# ---- stricter than an etcd 3.4, which lets everybody do this ----

@pytest.mark.parametrize("name, fields", [
    ("Lease/LeaseGrant", dict(TTL=5)), ("Lease/LeaseRevoke", dict(ID=12345)),
    ("Lease/LeaseLeases", {}), ("Lease/LeaseTimeToLive", dict(ID=501, keys=True)),
    ("KV/Compact", dict(revision=1)), ("Maintenance/MoveLeader", dict(targetID=1)),
    ("Maintenance/Alarm", {}), ("Maintenance/Alarm", dict(action="ACTIVATE", alarm="NOSPACE")),
    ("Maintenance/Defragment", {}), ("Auth/AuthStatus", {}), ("Lock/Lock", dict(name=b"l")),
    ("Election/Leader", dict(name=b"l"))])
def test_nobody_in_particular_does_what_only_users_may(nobody, name, fields):
    assert str(nobody.on(nobody.core, name, **fields)) == NOBODY


def test_nobody_in_particular_renews(nobody):
    with pytest.raises(Refused, match=NOBODY):
        renews(nobody, 501)()


def renews(user, lease):
    """A function that renews it, by one stream."""
    renewals = user.core.stream("etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest)

    def renew():
        renewals.send(pb.LeaseKeepAliveRequest(ID=lease))
        return renewals.next().TTL

    return renew


def test_a_user_sees_and_changes_nothing_of_leases_with_secret_keys(ann):  # A43
    for name, fields in (
            ("Lease/LeaseTimeToLive", dict(ID=501, keys=True)),
            ("KV/Txn", dict(success=[put(b"alone", lease=501)])),
            ("KV/Txn", dict(success=[dict(request_txn=dict(
                success=[dict(request_range=dict(key=b"zecret"))]))])),
            ("Maintenance/Alarm", dict(action="ACTIVATE", alarm="NOSPACE")),
            ("Maintenance/Alarm", dict(action="DEACTIVATE")),
            ("Maintenance/MoveLeader", dict(targetID=1)), ("Maintenance/HashKV", {}),
            ("Auth/AuthStatus", {}), ("Lock/Lock", dict(name=b"l"))):
        assert str(ann.on(ann.core, name, **fields)) == DENIED, (name, fields)
    assert ann.ours("Lease/LeaseTimeToLive", ID=501).grantedTTL == 600
    assert 501 not in [lease.ID for lease in ann.ours("Lease/LeaseLeases").leases]


# ---- what changes while users are logged in ----

def test_a_watch_ends_with_the_permission_and_the_login_does_not(root, ann):  # A43
    watch = ann.core.stream("etcdserverpb.Watch/Watch", pb.WatchRequest)
    watch.send(pb.WatchRequest(create_request=ANN_READS))
    assert watch.next().created
    root.put(b"r5")
    assert len(watch.next().events) == 1

    root.call("Auth/UserRevokeRole", name="ann", role="reader")
    ended = watch.next()
    root.call("Auth/UserGrantRole", user="ann", role="reader")

    assert ended.canceled and "code = PermissionDenied" in ended.cancel_reason
    ann.ours("KV/Range", key=b"r5")


def test_a_login_ends_with_its_password(root):
    root.call("Auth/UserAdd", name="pat", password="old")
    pat = root.log_in("pat", "old")
    root.call("Auth/UserChangePassword", name="pat", password="new")
    with pytest.raises(Refused, match=BAD_TOKEN):
        pat.ours("KV/Range", key=b"r5")
    with pytest.raises(Refused):
        root.log_in("pat", "old")
    with pytest.raises(Refused, match=DENIED):  # and not the login
        root.log_in("pat", "new").ours("KV/Range", key=b"r5")


@pytest.mark.parametrize("change", [
    lambda token: token[:-1] + ("0" if token[-1] != "0" else "1"),
    lambda token: token.replace(b"ann".hex(), b"bob".hex(), 1)], ids=["signature", "name"])
def test_a_login_that_was_tampered_with_is_none(ann, change):
    token = change(ann.tokens[0])
    assert token != ann.tokens[0]
    with pytest.raises(Refused, match=BAD_TOKEN):
        Pair(*ann.engines, [token, None]).ours("KV/Range", key=b"r5")


def test_renewals_outlive_a_login_and_not_their_user(root):  # A17
    root.call("Auth/UserAdd", name="kim", password="kim's")
    root.call("Lease/LeaseGrant", ID=600, TTL=600)
    renew = renews(root.log_in("kim", "kim's"), 600)
    assert renew() == 600
    root.call("Auth/UserChangePassword", name="kim", password="new")
    assert renew() == 600
    root.call("Auth/UserDelete", name="kim")
    with pytest.raises(Refused, match=DENIED):
        renew()


def test_who_is_no_user_any_more_does_not_get_the_lock_for_which_it_waits(root):
    root.call("Auth/UserAdd", name="kim", password="kim's")
    for role in "reader", "writer":
        root.call("Auth/UserGrantRole", user="kim", role=role)
    for lease in 601, 602:
        root.call("Lease/LeaseGrant", ID=lease, TTL=600)
    held = root.call("Lock/Lock", name=b"rlock", lease=602).key
    waits = root.log_in("kim", "kim's").futures("Lock/Lock", name=b"rlock", lease=601)
    eventually_is([2, 2], lambda: root.counts(b"rlock/"))

    root.call("Auth/UserDelete", name="kim")
    root.call("Lock/Unlock", key=held)

    assert all(future.exception() for future in waits)
