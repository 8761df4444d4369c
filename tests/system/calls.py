"""Random calls: the same seed gives the same ones. Keys are few, so that they meet."""
from pair import LEASE, both, pb


def key(r):
    return r.choice([b"a", b"b", b"b/1", b"b/2", b"c", b"\0", b"zz", b"b\xff", b"d" * 40])


def end(r):
    return r.choice([b"", b"", b"\0", b"c", b"b0", b"a", b"\xff\xff"])


def value(r):
    return r.choice([b"", b"x", b"yy", b"longer " * 5, bytes([r.randrange(256) for _ in range(4)])])


LEASES = [1000 + i for i in range(6)]


def a_range(r, rev):
    m = pb.RangeRequest(key=key(r), range_end=end(r))
    if r.random() < .3:
        m.limit = r.randrange(4)
    if r.random() < .3:
        m.revision = r.randrange(0, rev + 3)
    if r.random() < .4:
        m.sort_order, m.sort_target = r.randrange(3), r.randrange(5)
    m.serializable = r.random() < .3
    m.keys_only = r.random() < .2
    m.count_only = r.random() < .1
    for f in ("min_mod_revision", "max_mod_revision", "min_create_revision", "max_create_revision"):
        if r.random() < .08:
            setattr(m, f, r.randrange(1, rev + 2))
    return m


def a_put(r):
    m = pb.PutRequest(key=key(r), value=value(r), prev_kv=r.random() < .3)
    if r.random() < .3:
        m.lease = r.choice(LEASES)
    if r.random() < .1:
        m.ignore_value = True
        if r.random() < .8:
            m.value = b""
    if r.random() < .1:
        m.ignore_lease = True
        if r.random() < .8:
            m.lease = 0
    if r.random() < .03:
        m.key = b""
    return m


def a_delete(r):
    return pb.DeleteRangeRequest(key=key(r), range_end=end(r) if r.random() < .2 else b"", prev_kv=r.random() < .4)


def a_compare(r, rev):
    m = pb.Compare(result=r.randrange(4), target=r.randrange(5), key=key(r))
    if m.target == 0:
        m.version = r.randrange(4)
    elif m.target == 1:
        m.create_revision = r.randrange(rev + 1)
    elif m.target == 2:
        m.mod_revision = r.randrange(rev + 1)
    elif m.target == 3:
        m.value = value(r)
    else:
        m.lease = r.choice(LEASES + [0])
    if r.random() < .2:
        m.range_end = end(r)
    return m


def an_op(r, rev, depth):
    m = pb.RequestOp()
    p = r.random()
    if p < .35:
        m.request_range.CopyFrom(a_range(r, rev))
    elif p < .75:
        m.request_put.CopyFrom(a_put(r))
        # etcd 3.4 dies of these when the same txn deletes the key first.
        m.request_put.ignore_value = m.request_put.ignore_lease = False
    elif p < .9 or depth == 0:
        m.request_delete_range.CopyFrom(a_delete(r))
    else:
        m.request_txn.CopyFrom(a_txn(r, rev, depth - 1))
    return m


def a_txn(r, rev, depth=2):
    return pb.TxnRequest(compare=[a_compare(r, rev) for _ in range(r.randrange(3))],
                         success=[an_op(r, rev, depth) for _ in range(r.randrange(4))],
                         failure=[an_op(r, rev, depth) for _ in range(r.randrange(4))])


def lease_churn(r):
    lease = r.choice(LEASES)
    if r.random() < .6:
        both(None, LEASE + "LeaseGrant", pb.LeaseGrantRequest(ID=lease, TTL=300), pb.LeaseGrantResponse)
    else:
        both(None, LEASE + "LeaseRevoke", pb.LeaseRevokeRequest(ID=lease), pb.LeaseRevokeResponse)
