"""Random calls of a key-value store, the same ones for the same seed. Keys are few, so that they
meet."""
from .rpc import Refused, pb

KEYS = [b"a", b"b", b"b/1", b"b/2", b"c", b"\0", b"zz", b"b\xff", b"d" * 40]
ENDS = [b"", b"", b"\0", b"c", b"b0", b"a", b"\xff\xff"]
LEASES = range(1000, 1006)
YEARS = 10 * 365 * 86400


class Calls:
    """@r: the random.Random. @revision: of the newest that calls refer to. Revision 1 has to be
    compacted already, see differences.py."""

    def __init__(self, r, revision=1):
        self.r, self.revision, self.compacted, self.beyond = r, revision, 1, [-1]

    def maybe(self, chance):
        return self.r.random() < chance

    def key(self):
        return self.r.choice(KEYS)

    def value(self):
        return self.r.choice([b"", b"x", b"yy", b"longer " * 5, self.r.randbytes(4)])

    def range(self):
        r, request = self.r, pb.RangeRequest(key=self.key(), range_end=self.r.choice(ENDS))
        if self.maybe(.3):
            request.limit = r.randrange(-1, 4)
        if self.maybe(.3):
            request.revision = r.randrange(self.revision + 1)
        if self.maybe(.04):
            request.revision = r.choice(self.beyond)
        if self.maybe(.4):
            request.sort_order, request.sort_target = r.randrange(3), r.randrange(5)
        request.serializable = self.maybe(.3)
        request.keys_only = self.maybe(.2)
        request.count_only = self.maybe(.1)
        for bound in "min_mod", "max_mod", "min_create", "max_create":
            if self.maybe(.08):
                setattr(request, f"{bound}_revision", r.randrange(-1, self.revision + 2))
        return request

    def put(self):
        request = pb.PutRequest(key=self.key(), value=self.value(), prev_kv=self.maybe(.3))
        if self.maybe(.3):
            request.lease = self.r.choice(LEASES)
        for field, kept in ("value", b""), ("lease", 0):
            if self.maybe(.1):
                setattr(request, f"ignore_{field}", True)
                if self.maybe(.8):  # it is an error to name one as well
                    setattr(request, field, kept)
        if self.maybe(.03):
            request.key = b""
        return request

    def delete(self):
        end = self.r.choice(ENDS) if self.maybe(.2) else b""
        return pb.DeleteRangeRequest(key=self.key(), range_end=end, prev_kv=self.maybe(.4))

    def compare(self):
        r, request = self.r, pb.Compare(result=self.r.randrange(4), key=self.key())
        request.target = r.randrange(5)
        if self.maybe(.03):
            request.result = r.choice([-1, 4])
        if request.target == pb.Compare.VALUE:
            request.value = self.value()
        elif request.target == pb.Compare.LEASE:
            request.lease = r.choice([*LEASES, 0])
        elif request.target == pb.Compare.VERSION:
            request.version = r.randrange(4)
        elif request.target == pb.Compare.CREATE:
            request.create_revision = r.randrange(self.revision + 1)
        else:
            request.mod_revision = r.randrange(self.revision + 1)
        if self.maybe(.05):  # so that another field than the target's is given, or none
            request.target = r.randrange(-1, 7)
        if self.maybe(.2):
            request.range_end = r.choice(ENDS)
        return request

    def compact(self):
        low = self.compacted - 1 if self.maybe(.9) else -2
        return pb.CompactionRequest(revision=self.r.randrange(low, self.revision + 2))

    def lease(self):
        """The name and the request of a call about a lease."""
        lease, r = self.r.choice(LEASES), self.r
        return r.choices([
            ("Lease/LeaseGrant", pb.LeaseGrantRequest(ID=lease, TTL=300)),
            ("Lease/LeaseRevoke", pb.LeaseRevokeRequest(ID=lease)),
            ("Lease/LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=lease, keys=self.maybe(.8))),
            ("Lease/LeaseLeases", pb.LeaseLeasesRequest()),
        ], [6, 3, 3, 1])[0]

    def any(self, depth=2, **weights):
        """The name and the request of one of the calls below: any(put=30, range=10)."""
        kind = self.r.choices([*weights], [*weights.values()])[0]
        # Not both in one transaction, see differences.py.
        self.beyond = self.r.choice([(-1, -2, -1 << 63), (self.revision + 1, (1 << 63) - 1)])
        if kind == "lease":
            return self.lease()
        make = {"put": ("KV/Put", self.put), "delete": ("KV/DeleteRange", self.delete),
                "range": ("KV/Range", self.range), "txn": ("KV/Txn", lambda: self.txn(depth)),
                "compact": ("KV/Compact", self.compact)}
        name, request = make[kind]
        return name, request()

    def operation(self, depth):
        kind = self.r.random()
        if kind < .35:
            return pb.RequestOp(request_range=self.range())
        if kind < .75:
            put = self.put()
            # An etcd 3.4 dies of these if the same transaction deletes the key first.
            put.ignore_value = put.ignore_lease = False
            return pb.RequestOp(request_put=put)
        if kind < .9 or depth == 0:
            return pb.RequestOp(request_delete_range=self.delete())
        return pb.RequestOp(request_txn=self.txn(depth - 1))

    def txn(self, depth=2):
        def some(n, make):
            return [make() for _ in range(self.r.randrange(n))]
        return pb.TxnRequest(compare=some(3, self.compare),
                             success=some(4, lambda: self.operation(depth)),
                             failure=some(4, lambda: self.operation(depth)))


def wander(rpc, r, n, revision=1):
    """Makes @n random writes; some are refused. Returns the revision."""
    for id in LEASES:
        _try(rpc, "Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=YEARS, ID=id))
    calls = Calls(r, revision)
    for _ in range(n):
        if answer := _try(rpc, *calls.any(put=50, delete=10, txn=40)):
            calls.revision = answer.header.revision
    _try(rpc, "Lease/LeaseRevoke", pb.LeaseRevokeRequest(ID=r.choice(LEASES)))
    return calls.revision


def _try(rpc, path, request):
    try:
        return rpc.call(f"etcdserverpb.{path}", request)
    except Refused:
        return None
