"""All that a core says about what it holds, so that two programs that were given the same data can
be compared."""
import hashlib

from google.protobuf.json_format import MessageToDict

from .rpc import Refused, pb

EVERYTHING = {"key": b"\0", "range_end": b"\0"}


def portrait(rpc):
    """Values that JSON can hold; those of time are left out. The core has one member."""
    def ask(path, request):
        return MessageToDict(rpc.call(f"etcdserverpb.{path}", request),
                             preserving_proto_field_name=True)

    def answer(path, request):
        answered = ask(path, request)
        answered.pop("header", None)
        return answered

    def as_of(revision):
        """A digest of all keys, or why there is none."""
        try:
            found = rpc.call("etcdserverpb.KV/Range",
                             pb.RangeRequest(**EVERYTHING, revision=revision))
        except Refused as refused:
            return refused.details
        return hashlib.sha256(b"".join(kv.SerializeToString() for kv in found.kvs)).hexdigest()

    def lease(status):
        told = rpc.call("etcdserverpb.Lease/LeaseTimeToLive",
                        pb.LeaseTimeToLiveRequest(ID=status.ID, keys=True))
        return {"id": told.ID, "name": told.name.decode(), "ttl_ms": told.granted_ttl_ms,
                "keys": sorted(key.hex() for key in told.keys)}

    revision = rpc.call("etcdserverpb.KV/Range", pb.RangeRequest(key=b"-")).header.revision
    leases = rpc.call("etcdserverpb.Lease/LeaseLeases", pb.LeaseLeasesRequest()).leases
    users = answer("Auth/UserList", pb.AuthUserListRequest()).get("users", [])
    roles = answer("Auth/RoleList", pb.AuthRoleListRequest()).get("roles", [])
    members = answer("Cluster/MemberList", pb.MemberListRequest())["members"]
    return {
        "revision": revision,
        "hash": rpc.call("etcdserverpb.Maintenance/HashKV", pb.HashKVRequest()).hash,
        "keys": answer("KV/Range", pb.RangeRequest(**EVERYTHING)),
        "history": {str(at): as_of(at) for at in range(1, revision + 1)},
        "leases": sorted((lease(one) for one in leases), key=lambda one: one["id"]),
        "users": {name: answer("Auth/UserGet", pb.AuthUserGetRequest(name=name))
                  for name in users},
        "roles": {name: answer("Auth/RoleGet", pb.AuthRoleGetRequest(role=name))
                  for name in roles},
        "authentication": answer("Auth/AuthStatus", pb.AuthStatusRequest()),
        "members": [{word: member[word] for word in ("ID", "name", "peerURLs")}
                    for member in members],
        "alarms": answer("Maintenance/Alarm", pb.AlarmRequest(action=pb.AlarmRequest.GET)),
    }
