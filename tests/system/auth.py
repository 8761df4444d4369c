#!/usr/bin/python3
"""Users, roles and what they may: the same calls on Debian's real etcd and on tenure-core.

usage: auth.py, as pair.py says; leaves auth switched off
Random users with random roles make random calls; whether they may is compared. Where we are stricter than etcd 3.4 on
purpose, the case says so and is tenure-core's alone.
"""
import random
import time

from calls import LEASES, a_delete, a_put, a_range, a_txn, key
from pair import (ENGINES, KV, LEASE, WAIT, Stream, args, both, create, finish, next_same, pb, report,
                  watch)

AUTH, MAINT, CLUSTER = "/etcdserverpb.Auth/", "/etcdserverpb.Maintenance/", "/etcdserverpb.Cluster/"
LOCK = "/v3lockpb.Lock/"
DENIED = "PERMISSION_DENIED: etcdserver: permission denied"
NOBODY = "INVALID_ARGUMENT: etcdserver: user name is empty"
BAD_TOKEN = "UNAUTHENTICATED: etcdserver: invalid auth token"


def auth(what, method, /, **fields):
    message = method if method.startswith("Auth") else "Auth" + method
    return both(what, AUTH + method, getattr(pb, message + "Request")(**fields),
                getattr(pb, message + "Response"))


def log_in(what, user, password):
    """Takes the tokens of @user, or none, for the calls that follow."""
    for e in ENGINES.values():
        e.token = None
    if user is None:
        return
    raw = {n: e.call(AUTH + "Authenticate", pb.AuthenticateRequest(name=user, password=password), pb.AuthenticateResponse)
           for n, e in ENGINES.items()}
    if all(isinstance(r, str) for r in raw.values()):
        report(raw["tenure"] == raw["etcd"], what, f"{raw}")
        return
    report(all(not isinstance(r, str) and r.token for r in raw.values()), what, f"{raw}")
    for n, e in ENGINES.items():
        e.token = raw[n].token


def mine(what, path, request, reply, want):
    """On tenure-core alone: the error that it must answer, or None."""
    r = ENGINES["tenure"].call(path, request, reply)
    report((r if isinstance(r, str) else None) == want, what, f"{r!r} instead of {want!r}")


def perm(kind, k, to=b""):
    return pb.Permission(permType=kind, key=k, range_end=to)


def switched_off():
    auth("a login while it is off", "Authenticate", name="root", password="x")
    auth("on, without root", "AuthEnable")
    auth("a user without a name", "UserAdd", name="", password="x")
    auth("root", "UserAdd", name="root", password="secret")
    auth("root again", "UserAdd", name="root", password="secret")
    auth("on, where root has no role", "AuthEnable")
    auth("a role that is none", "UserGrantRole", user="root", role="nothing")
    auth("a role for nobody", "UserGrantRole", user="nobody", role="root")
    auth("root is root", "UserGrantRole", user="root", role="root")
    auth("root is root already", "UserGrantRole", user="root", role="root")
    auth("root, looked at", "UserGet", name="root")
    auth("nobody, looked at", "UserGet", name="nobody")
    auth("nobody, deleted", "UserDelete", name="nobody")
    auth("nobody's password", "UserChangePassword", name="nobody", password="x")
    auth("a user without a password", "UserAdd", name="cert", options=pb.UserAddOptions(no_password=True))
    auth("a role without a name", "RoleAdd", name="")
    for role in ("reader", "writer", "root"):
        auth(f"the role {role}", "RoleAdd", name=role)
    auth("a role that is there", "RoleAdd", name="reader")
    auth("a role that is none, looked at", "RoleGet", role="none")
    auth("a role that is none, deleted", "RoleDelete", role="none")
    auth("a permission for a role that is none", "RoleGrantPermission", name="none", perm=perm(0, b"a"))
    # An etcd 3.4 dies of this one.
    mine("no permission", AUTH + "RoleGrantPermission", pb.AuthRoleGrantPermissionRequest(name="reader"),
         pb.AuthRoleGrantPermissionResponse, "INVALID_ARGUMENT: etcdserver: permission not given")
    auth("a permission", "RoleGrantPermission", name="reader", perm=perm(pb.Permission.READ, b"r", b"s"))
    auth("one of a key", "RoleGrantPermission", name="reader", perm=perm(pb.Permission.READ, b"alone"))
    auth("the same, for more", "RoleGrantPermission", name="reader", perm=perm(pb.Permission.READWRITE, b"alone"))
    auth("one that ends where another begins", "RoleGrantPermission", name="reader", perm=perm(pb.Permission.READ, b"s", b"t"))
    auth("what the role may", "RoleGet", role="reader")
    auth("a permission it has not", "RoleRevokePermission", role="reader", key=b"q")
    auth("a permission of no role", "RoleRevokePermission", role="none", key=b"q")
    auth("to write", "RoleGrantPermission", name="writer", perm=perm(pb.Permission.WRITE, b"r", b"u"))
    for user in ("ann", "bob", "eve"):
        auth(f"the user {user}", "UserAdd", name=user, password=f"{user}'s")
    for user, role in (("ann", "reader"), ("bob", "writer"), ("bob", "reader")):
        auth(f"{user} is a {role}", "UserGrantRole", user=user, role=role)
    auth("a role that a user has not, taken", "UserRevokeRole", name="eve", role="reader")
    auth("a role taken from nobody", "UserRevokeRole", name="nobody", role="reader")
    auth("all users", "UserList")
    auth("all roles", "RoleList")
    both(None, LEASE + "LeaseGrant", pb.LeaseGrantRequest(ID=501, TTL=600), pb.LeaseGrantResponse)
    both(None, KV + "Put", pb.PutRequest(key=b"zecret", value=b"1", lease=501), pb.PutResponse)
    both(None, KV + "Put", pb.PutRequest(key=b"r1", value=b"1"), pb.PutResponse)
    auth("on", "AuthEnable")
    log_in("root logs in", "root", "secret")
    auth("on, twice", "AuthEnable")


def calls(who):
    """The calls whose being allowed is compared, for whoever is logged in."""
    c = lambda what, path, m, reply, **k: both(f"{who}: {what}", path, m, reply, **k)  # noqa: E731
    c("reads a range", KV + "Range", pb.RangeRequest(key=b"r", range_end=b"s"), pb.RangeResponse)
    c("reads a key of it", KV + "Range", pb.RangeRequest(key=b"r1"), pb.RangeResponse)
    c("reads over two ranges that touch", KV + "Range", pb.RangeRequest(key=b"r", range_end=b"t"), pb.RangeResponse)
    c("reads beyond its end", KV + "Range", pb.RangeRequest(key=b"r", range_end=b"t\0"), pb.RangeResponse)
    c("reads everything", KV + "Range", pb.RangeRequest(key=b"\0", range_end=b"\0"), pb.RangeResponse)
    c("reads from a key on", KV + "Range", pb.RangeRequest(key=b"r", range_end=b"\0"), pb.RangeResponse)
    c("reads a key", KV + "Range", pb.RangeRequest(key=b"alone"), pb.RangeResponse)
    c("reads behind a key", KV + "Range", pb.RangeRequest(key=b"alone", range_end=b"alone\0\0"), pb.RangeResponse)
    c("reads, serializable", KV + "Range", pb.RangeRequest(key=b"zecret", serializable=True), pb.RangeResponse)
    c("writes", KV + "Put", pb.PutRequest(key=b"r1", value=b"2"), pb.PutResponse)
    c("writes, and is told what was", KV + "Put", pb.PutRequest(key=b"t1", value=b"2", prev_kv=True), pb.PutResponse)
    c("writes elsewhere", KV + "Put", pb.PutRequest(key=b"zecret", value=b"2"), pb.PutResponse)
    c("deletes", KV + "DeleteRange", pb.DeleteRangeRequest(key=b"r", range_end=b"s"), pb.DeleteRangeResponse)
    c("deletes, and is told what was", KV + "DeleteRange", pb.DeleteRangeRequest(key=b"t1", prev_kv=True), pb.DeleteRangeResponse)
    c("compares what is secret", KV + "Txn", pb.TxnRequest(compare=[pb.Compare(target=0, key=b"zecret")]), pb.TxnResponse)
    c("compares and puts", KV + "Txn", pb.TxnRequest(compare=[pb.Compare(target=0, key=b"r1")], success=[
        pb.RequestOp(request_put=pb.PutRequest(key=b"r1"))]), pb.TxnResponse)
    c("would write elsewhere in the branch not taken", KV + "Txn", pb.TxnRequest(failure=[
        pb.RequestOp(request_put=pb.PutRequest(key=b"zecret"))]), pb.TxnResponse)
    c("puts on a lease with a secret key", KV + "Put", pb.PutRequest(key=b"r1", lease=501), pb.PutResponse)
    c("revokes that lease", LEASE + "LeaseRevoke", pb.LeaseRevokeRequest(ID=501), pb.LeaseRevokeResponse)
    c("adds a user", AUTH + "UserAdd", pb.AuthUserAddRequest(name="new", password="x"), pb.AuthUserAddResponse)
    c("looks at ann", AUTH + "UserGet", pb.AuthUserGetRequest(name="ann"), pb.AuthUserGetResponse)
    c("looks at the reader", AUTH + "RoleGet", pb.AuthRoleGetRequest(role="reader"), pb.AuthRoleGetResponse)
    c("lists the users", AUTH + "UserList", pb.AuthUserListRequest(), pb.AuthUserListResponse)
    c("removes a member", CLUSTER + "MemberRemove", pb.MemberRemoveRequest(ID=1), pb.MemberRemoveResponse)
    watches(f"{who}: watches what is secret", create(key=b"zecret", watch_id=9), create(key=b"r", range_end=b"s"))



def watches(what, *creates):
    """Whether they are made, and if not, the reason: by it etcd's clients know that they must log in again."""
    s = {n: Stream(e, "/etcdserverpb.Watch/Watch", pb.WatchResponse) for n, e in ENGINES.items()}
    for i, c in enumerate(creates):
        watch(c, s)
        next_same(s, what if i == 0 else f"{what}, and then a range", forget=["header"])
    for x in s.values():
        x.close()


def switched_on():
    for e in ENGINES.values():
        e.token = None
    watches("a watch without a login", create(key=b"r1", watch_id=3))
    for e in ENGINES.values():
        e.token = "no.token"
    watches("a watch with a login that is none", create(key=b"r1", watch_id=3))
    for e in ENGINES.values():
        e.token = None
    for user, password in (("nobody", "x"), ("ann", "wrong"), ("ann", ""), ("", "")):
        log_in(f"{user or 'one without a name'} with the password '{password}' does not", user, password)
    calls("nobody in particular")
    for user in ("ann", "bob", "eve", "root"):
        log_in(f"{user} logs in", user, "secret" if user == "root" else f"{user}'s")
        calls(user)
        if user == "root":
            both(None, AUTH + "UserDelete", pb.AuthUserDeleteRequest(name="new"), pb.AuthUserDeleteResponse)
    # Who may what of these is as etcd has it since 3.5.28; 3.4 lets everybody, and has no AuthStatus.
    both("root lists the alarms", MAINT + "Alarm", pb.AlarmRequest(), pb.AlarmResponse, forget=["header"])
    both("root disarms what is not there", MAINT + "Alarm", pb.AlarmRequest(action=2, memberID=1, alarm=1), pb.AlarmResponse, forget=["header"])
    both("root moves the leader to nobody", MAINT + "MoveLeader", pb.MoveLeaderRequest(targetID=1), pb.MoveLeaderResponse)
    mine("root asks whether there are users", AUTH + "AuthStatus", pb.AuthStatusRequest(), pb.AuthStatusResponse, None)
    auth("root cannot be deleted", "UserDelete", name="root")
    auth("root stays root", "UserRevokeRole", name="root", role="root")
    auth("the role root stays", "RoleDelete", role="root")
    for e in ENGINES.values():
        e.token = "not.a.token"
    both("a token that is none", KV + "Range", pb.RangeRequest(key=b"r1"), pb.RangeResponse)
    both("a token that is none, to write", KV + "Put", pb.PutRequest(key=b"r1"), pb.PutResponse)
    both("a token that is none, to ask who leads", MAINT + "Status", pb.StatusRequest(), pb.StatusResponse,
         forget=["header", "version", "dbSize", "leader", "raftIndex", "raftTerm", "raftAppliedIndex", "dbSizeInUse", "storageVersion", "dbSizeQuota", "downgradeInfo"])


def stricter():
    """What etcd 3.4 lets pass, or refuses with other words."""
    log_in("root logs in", "root", "secret")
    both(None, LEASE + "LeaseGrant", pb.LeaseGrantRequest(ID=502, TTL=600), pb.LeaseGrantResponse)
    both(None, KV + "Put", pb.PutRequest(key=b"zecret2", lease=502), pb.PutResponse)
    log_in("nobody", None, None)
    mine("a user without a password logs in with none", AUTH + "Authenticate", pb.AuthenticateRequest(name="cert"),
         pb.AuthenticateResponse, "INVALID_ARGUMENT: etcdserver: authentication failed, invalid user ID or password")
    for what, path, m, reply in (
            ("grants a lease", LEASE + "LeaseGrant", pb.LeaseGrantRequest(TTL=5), pb.LeaseGrantResponse),
            ("revokes a lease that is not there", LEASE + "LeaseRevoke", pb.LeaseRevokeRequest(ID=12345), pb.LeaseRevokeResponse),
            ("lists leases", LEASE + "LeaseLeases", pb.LeaseLeasesRequest(), pb.LeaseLeasesResponse),
            ("compacts", KV + "Compact", pb.CompactionRequest(revision=1), pb.CompactionResponse),
            ("moves the leader", MAINT + "MoveLeader", pb.MoveLeaderRequest(targetID=1), pb.MoveLeaderResponse),
            ("lists alarms", MAINT + "Alarm", pb.AlarmRequest(), pb.AlarmResponse),
            ("arms an alarm", MAINT + "Alarm", pb.AlarmRequest(action=1, alarm=1), pb.AlarmResponse),
            ("asks whether there are users", AUTH + "AuthStatus", pb.AuthStatusRequest(), pb.AuthStatusResponse),
            ("defragments", MAINT + "Defragment", pb.DefragmentRequest(), pb.DefragmentResponse),
            ("asks for a lease's keys", LEASE + "LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=502, keys=True), pb.LeaseTimeToLiveResponse),
            ("takes a lock", "/v3lockpb.Lock/Lock", pb.LockRequest(name=b"l"), pb.LockResponse),
            ("asks who is elected", "/v3electionpb.Election/Leader", pb.LeaderRequest(name=b"l"), pb.LeaderResponse)):
        mine(f"A43: nobody {what}", path, m, reply, NOBODY)
    s = Stream(ENGINES["tenure"], LEASE + "LeaseKeepAlive", pb.LeaseKeepAliveResponse)
    s.send(pb.LeaseKeepAliveRequest(ID=501))
    m = s.next()
    report(m == NOBODY, "A43: nobody renews", f"{m!r}")
    log_in("ann logs in", "ann", "ann's")
    mine("A43: a nested txn reads what is secret", KV + "Txn", pb.TxnRequest(success=[pb.RequestOp(request_txn=pb.TxnRequest(success=[
        pb.RequestOp(request_range=pb.RangeRequest(key=b"zecret"))]))]), pb.TxnResponse, DENIED)
    mine("A43: a lease's keys that are secret", LEASE + "LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=502, keys=True),
         pb.LeaseTimeToLiveResponse, DENIED)
    mine("how long that lease lives is none", LEASE + "LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=502),
         pb.LeaseTimeToLiveResponse, None)
    mine("A43: a txn attaches to a lease with a secret key", KV + "Txn", pb.TxnRequest(success=[pb.RequestOp(
        request_put=pb.PutRequest(key=b"alone", lease=502))]), pb.TxnResponse, DENIED)
    both("ann lists the alarms", MAINT + "Alarm", pb.AlarmRequest(), pb.AlarmResponse, forget=["header"])
    for what, path, m, reply in (
            ("arms an alarm", MAINT + "Alarm", pb.AlarmRequest(action=1, alarm=1), pb.AlarmResponse),
            ("disarms alarms", MAINT + "Alarm", pb.AlarmRequest(action=2), pb.AlarmResponse),
            ("moves the leader", MAINT + "MoveLeader", pb.MoveLeaderRequest(targetID=1), pb.MoveLeaderResponse),
            ("asks whether there are users", AUTH + "AuthStatus", pb.AuthStatusRequest(), pb.AuthStatusResponse)):
        mine(f"A43: ann {what}", path, m, reply, DENIED)
    mine("A43: the snapshot", MAINT + "HashKV", pb.HashKVRequest(), pb.HashKVResponse, DENIED)
    mine("A43: ann asks for a lock in another's place", "/v3lockpb.Lock/Lock", pb.LockRequest(name=b"l"), pb.LockResponse, DENIED)
    r = ENGINES["tenure"].call(LEASE + "LeaseLeases", pb.LeaseLeasesRequest(), pb.LeaseLeasesResponse)
    report(not isinstance(r, str) and 502 not in [x.ID for x in r.leases], "A43: leases of others' keys are not listed", f"{r}")


def taken_away():
    """Permissions are those of now, on watches and logins that are older too."""
    log_in("ann logs in", "ann", "ann's")
    ann = ENGINES["tenure"].token
    s = Stream(ENGINES["tenure"], "/etcdserverpb.Watch/Watch", pb.WatchResponse)
    s.send(create(key=b"r", range_end=b"s"))
    report(s.next().created, "ann watches")
    log_in("root logs in", "root", "secret")
    both(None, KV + "Put", pb.PutRequest(key=b"r5"), pb.PutResponse)
    report(len(s.next().events) == 1, "ann sees an event")
    auth("ann loses her role", "UserRevokeRole", name="ann", role="reader")
    m = s.next()
    report(m.canceled and m.cancel_reason == "rpc error: code = PermissionDenied desc = etcdserver: permission denied", "A43: her watch ends with it", f"{m}")
    s.close()
    auth("ann has it again", "UserGrantRole", user="ann", role="reader")
    ENGINES["tenure"].token = ann
    mine("her login is good still", KV + "Range", pb.RangeRequest(key=b"r5"), pb.RangeResponse, None)
    log_in("root logs in", "root", "secret")
    auth("ann's password is another", "UserChangePassword", name="ann", password="new")
    ENGINES["tenure"].token = ann
    mine("a login ends with its password", KV + "Range", pb.RangeRequest(key=b"r5"), pb.RangeResponse, BAD_TOKEN)
    log_in("the old password does not", "ann", "ann's")
    log_in("the new one does", "ann", "new")
    ENGINES["tenure"].token = ENGINES["tenure"].token[:-1] + ("0" if ENGINES["tenure"].token[-1] != "0" else "1")
    mine("a login that was tampered with", KV + "Range", pb.RangeRequest(key=b"r5"), pb.RangeResponse, BAD_TOKEN)
    log_in("root logs in", "root", "secret")
    ENGINES["tenure"].token = ENGINES["tenure"].token.replace(b"root".hex(), b"user".hex(), 1)
    mine("a login in another's name", KV + "Range", pb.RangeRequest(key=b"r5"), pb.RangeResponse, BAD_TOKEN)


def has_key(engine, k):
    r = engine.call(KV + "Range", pb.RangeRequest(key=k), pb.RangeResponse)
    return not isinstance(r, str) and r.count > 0


def sent_away():
    """A stream of renewals outlives the login that it began with, and not its user."""
    log_in("root logs in", "root", "secret")
    auth("kim", "UserAdd", name="kim", password="kim's")
    both(None, LEASE + "LeaseGrant", pb.LeaseGrantRequest(ID=601, TTL=600), pb.LeaseGrantResponse)
    log_in("kim logs in", "kim", "kim's")
    s = Stream(ENGINES["tenure"], LEASE + "LeaseKeepAlive", pb.LeaseKeepAliveResponse)

    def renewed():
        s.send(pb.LeaseKeepAliveRequest(ID=601))
        m = s.next()
        return m if isinstance(m, str) else m.TTL

    report(renewed() == 600, "kim renews a lease")
    log_in("root logs in", "root", "secret")
    auth("kim's password is another", "UserChangePassword", name="kim", password="new")
    got = renewed()
    report(got == 600, "A17: her renewals go on", f"{got}")
    for role in ("reader", "writer"):
        auth(f"kim is a {role}", "UserGrantRole", user="kim", role=role)
    both(None, LEASE + "LeaseGrant", pb.LeaseGrantRequest(ID=602, TTL=600), pb.LeaseGrantResponse)
    both("root locks", LOCK + "Lock", pb.LockRequest(name=b"rlock", lease=602), pb.LockResponse)
    log_in("kim logs in again", "kim", "new")
    waits = {n: e.future(LOCK + "Lock", pb.LockRequest(name=b"rlock", lease=601), pb.LockResponse, 30) for n, e in ENGINES.items()}
    log_in("root logs in", "root", "secret")
    end = time.monotonic() + WAIT
    while not all(has_key(e, b"rlock/%x" % 601) for e in ENGINES.values()) and time.monotonic() < end:
        pass
    report(time.monotonic() < end, "kim waits for the lock")
    auth("kim is deleted", "UserDelete", name="kim")
    both("root unlocks", LOCK + "Unlock", pb.UnlockRequest(key=b"rlock/%x" % 602), pb.UnlockResponse)
    for n, w in waits.items():
        e = w.exception(WAIT)
        report(e, f"{n}: who is no user any more is not told that the lock is hers", "" if e else f"{w.result()}")
    got = renewed()
    report(got == DENIED, "and end with her", f"{got}")
    s.close()
    for lease in (601, 602):
        both(None, LEASE + "LeaseRevoke", pb.LeaseRevokeRequest(ID=lease), pb.LeaseRevokeResponse)


def like_etcd(m):
    """Takes out where etcd 3.4 is looser - in a txn a put may attach to any lease, and be told what was there - and ranges
    that hold nothing."""
    parts = [m]
    if isinstance(m, pb.TxnRequest):
        parts = list(m.compare) + [op.request_put for ops in (m.success, m.failure) for op in ops if op.HasField("request_put")]
        parts += [op.request_range for ops in (m.success, m.failure) for op in ops if op.HasField("request_range")]
        parts += [op.request_delete_range for ops in (m.success, m.failure) for op in ops if op.HasField("request_delete_range")]
    for p in parts:
        if isinstance(p, pb.PutRequest):
            if p is not m:
                p.lease, p.prev_kv = 0, False
        elif p.range_end != b"\0" and p.range_end <= p.key:
            p.range_end = b""


def random_permissions(r, n_users, n_calls):
    log_in("root logs in", "root", "secret")
    users = [f"u{i}" for i in range(n_users)]
    granted, roles = {u: [] for u in users}, {u: [] for u in users}
    for i, u in enumerate(users):
        auth(None, "UserAdd", name=u, password=u)
        auth(None, "RoleAdd", name=f"role{i}")
        for _ in range(r.randrange(6)):
            p = perm(r.randrange(3), key(r), r.choice([b"", b"", b"\0", b"c", b"b0", b"e", b"\xff\xff"]))
            # Granted again, etcd forgets to take the first one away where another range begins at the same key.
            if any(p.key == k and p.range_end == end for _, k, end in granted[u]):
                continue
            granted[u].append((("READ", "WRITE", "READWRITE")[p.permType], p.key, p.range_end))
            auth(None, "RoleGrantPermission", name=f"role{i}", perm=p)
    for u in users:
        for _ in range(r.randrange(4)):
            i = r.randrange(n_users)
            roles[u].append(users[i])
            auth(None, "UserGrantRole", user=u, role=f"role{i}")
    for lease in LEASES[:3]:
        both(None, LEASE + "LeaseGrant", pb.LeaseGrantRequest(ID=lease, TTL=600), pb.LeaseGrantResponse)
    tokens = {}
    for u in users:
        log_in(f"{u} logs in", u, u)
        tokens[u] = {n: e.token for n, e in ENGINES.items()}
    different = denied = 0
    for i in range(n_calls):
        u = r.choice(users)
        for n, e in ENGINES.items():
            e.token = tokens[u][n]
        p = r.random()
        path, m, reply = (("Range", a_range(r, 1), pb.RangeResponse) if p < .4 else ("Put", a_put(r), pb.PutResponse) if p < .7 else
                          ("DeleteRange", a_delete(r), pb.DeleteRangeResponse) if p < .8 else ("Txn", a_txn(r, 1, 0), pb.TxnResponse))
        like_etcd(m)
        raw, same, shown = both(None, KV + path, m, reply)
        denied += shown["etcd"] == DENIED
        if not same:
            different += 1
            if different < 4:
                report(False, f"random call {i} of seed {args.seed}: {path} by {u}",
                       f"{m}\n    tenure: {shown['tenure']!r}\n    etcd:   {shown['etcd']!r}\n    its roles: {[granted[x] for x in roles[u]]}")
    report(different == 0, f"{n_calls} random calls by {n_users} random users of seed {args.seed}", f"{different} answered differently")
    report(n_calls // 10 < denied < n_calls * 9 // 10, "some of them were denied, and not all", f"{denied} of {n_calls}")


switched_off()
switched_on()
stricter()
taken_away()
sent_away()
random_permissions(random.Random(args.seed), 8, 1500)
log_in("root logs in", "root", "secret")
auth("off", "AuthDisable")
log_in("nobody", None, None)
both("off: everybody reads", KV + "Range", pb.RangeRequest(key=b"\0", range_end=b"\0", count_only=True), pb.RangeResponse)
finish()
