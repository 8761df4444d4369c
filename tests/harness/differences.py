"""In which answers tenure-core differs from an etcd on purpose.

This is the list: tenure-core(8) has each difference in DIFFERENCES FROM ETCD, in the words of
`says`, and test_differences.py asks both engines the example. What takes more than a call to see
has a test of its own. What calls at random leave out because of a difference refers to its row.

Not in the list is what is an engine's own: ids of clusters and members, terms, the hash of the
store, and fields that etcd does not have, whose numbers are above 9000 (pair.py leaves them out).
"""
from dataclasses import dataclass

from .rpc import pb


@dataclass(frozen=True)
class Difference:
    """@says: words of the manual page. @call: the example, after the calls @before. @ours, @etcds:
    what the answers look like as text, as regular expressions. @test: of what no single call
    shows."""
    says: str
    call: tuple = ()
    ours: str = ""
    etcds: str | None = ""
    before: tuple = ()
    test: str = ""


def _read(revision):
    return [pb.RequestOp(request_range=pb.RangeRequest(key=b"k", revision=revision))]


def _role(name):
    return "Auth/RoleAdd", dict(request=pb.AuthRoleAddRequest(name=name))


def _permit(role, **fields):
    return "Auth/RoleGrantPermission", dict(request=pb.AuthRoleGrantPermissionRequest(
        name=role, perm=pb.Permission(**fields)))


def _user(**fields):
    return "Auth/UserAdd", dict(request=pb.AuthUserAddRequest(**fields))


NO_PERMISSION = "Auth/RoleGrantPermission", dict(
    request=pb.AuthRoleGrantPermissionRequest(name="writers"))
DIES = None  # an etcd 3.4 ends, so it is not asked

# In this order, and of engines that nobody has used.
DIFFERENCES = [
    Difference("etcd takes -1 for the newest", ("KV/Txn", dict(success=_read(-1))),
               "has been compacted", "succeeded: true"),
    Difference("the error may give the wrong reason",
               ("KV/Txn", dict(success=_read(1 << 40), failure=_read(-2))),
               "has been compacted", "is a future revision"),
    Difference("etcd refuses a second one", ("KV/Compact", dict(revision=0)),
               "revision: 1", "has been compacted", before=[("KV/Compact", dict(revision=0))]),
    Difference("cannot be given another type", _permit("full", key=b"0", permType=2),
               "too many", "header", before=[_role("full"), *(
                   _permit("full", key=b"%d" % i) for i in range(1000))]),
    Difference("The id of a lease is positive", ("Lease/LeaseGrant", dict(ID=-5, TTL=600)),
               "a lease id must be positive", "ID: -5"),
    Difference("A permission's type is", _permit("readers", key=b"k", permType=9),
               "a permission's type is", "header", before=[_role("readers")]),
    Difference("A password has at most 511 bytes", _user(name="u", password="p" * 512),
               "at most 511 bytes", "header"),
    Difference("the name of a user or a role at most 255", _role("r" * 256),
               "longer than 255 bytes", "header"),
    Difference("an unknown order or target",
               ("KV/Range", dict(key=b"a", sort_order=1, sort_target=99)),
               "invalid sort option", DIES),
    Difference("an operation without content", ("KV/Txn", dict(success=[pb.RequestOp()])),
               "key not found", DIES),
    Difference("the grant of a permission that is missing", NO_PERMISSION,
               "permission not given", DIES, before=[_role("writers")]),
    Difference("keep the code of an error", ("Lock/Lock", dict(name=b"l", lease=999)),
               "NOT_FOUND: etcdserver: requested lease", "UNKNOWN: etcdserver: requested lease"),
    Difference("in the order of their ends", ("Auth/RoleGet", dict(role="ends")),
               '"b".*"c"', '"c".*"b"', before=[_role("ends"), *(
                   _permit("ends", key=b"a", range_end=end) for end in (b"c", b"b"))]),

    Difference("MemberUpdate without URLs",
               test="test_a_member_is_not_left_without_urls"),
    Difference("ends with an error as soon as its lease ends",
               test="test_a_waiter_whose_lease_ends_gets_an_error_at_once_and_does_not_hold"),
    Difference("writes the key again", test="test_its_holder_may_take_a_lock_again"),
    Difference("counts for majorities once it has started",
               test="test_a_second_voter_costs_nothing_before_it_has_started_and_serves_once_it_has"),
    Difference("while there is an alarm about corruption",
               test="test_an_alarm_about_corruption_stops_writes_and_neither_reads_nor_renewals"),
    Difference("Resign requires", test="test_a_leader_may_resign_that_may_only_write"),
    Difference("A watch ends when its permission does",
               test="test_a_watch_ends_with_the_permission_and_the_login_does_not"),
    Difference("Only users who are logged in",
               test="test_nobody_in_particular_does_what_only_users_may"),
    Difference("In a transaction as elsewhere",
               test="test_a_user_sees_and_changes_nothing_of_leases_with_secret_keys"),
]


def as_both_do(request):
    """@request, without what an etcd 3.4 lets users do although an etcd 3.5 does not: in a
    transaction a put may attach to any lease, and be told what was there; and ranges that hold
    nothing may be asked for."""
    if isinstance(request, pb.TxnRequest):
        for operation in *request.success, *request.failure:
            if operation.HasField("request_put"):
                operation.request_put.lease, operation.request_put.prev_kv = 0, False
            elif not operation.HasField("request_txn"):
                as_both_do(getattr(operation, operation.WhichOneof("request")))
        for compare in request.compare:
            as_both_do(compare)
    elif not isinstance(request, pb.PutRequest):
        if request.range_end != b"\0" and request.range_end <= request.key:
            request.range_end = b""
    return request
