"""Keys, leases and watches of a core or an etcd, by etcdctl."""
import base64
import copy
import json
from dataclasses import dataclass

from .program import Daemon, run
from .values import json_lines
from .waiting import eventually


@dataclass(frozen=True)
class KeyValue:
    key: str
    value: str
    create_revision: int
    mod_revision: int
    version: int
    lease: int


@dataclass(frozen=True)
class Event:
    type: str  # "PUT" or "DELETE"
    key: str
    value: str
    revision: int


@dataclass(frozen=True)
class Txn:
    succeeded: bool
    got: list  # for each get, the list of what was found


@dataclass(frozen=True)
class Lease:
    id: int
    ttl: int      # what is left of it, in seconds; -1: there is no such lease
    granted: int
    keys: list


def _text(encoded):
    return base64.b64decode(encoded or "").decode()


def _key_value(kv):
    return KeyValue(_text(kv["key"]), _text(kv.get("value")), kv.get("create_revision", 0),
                    kv.get("mod_revision", 0), kv.get("version", 0), kv.get("lease", 0))


def events(answers):
    """Those of what `etcdctl watch -w json` prints."""
    return [Event("DELETE" if event.get("type") else "PUT", _text(event["kv"]["key"]),
                  _text(event["kv"].get("value")), event["kv"]["mod_revision"])
            for answer in answers for event in answer.get("Events") or []]


class Watch(Daemon):
    def events(self):
        """All events so far, in the order in which they came."""
        return events(json_lines(self.lines()))


class Keys:
    """What has .endpoints and .folder gets these calls by it. @at: the replica that is asked,
    instead of any. A key that comes from here is text."""

    # Its own patience would be a verdict about time.
    _LIMITS = ["--dial-timeout=30s", "--command-timeout=30s"]
    # How a client shows who it is.
    credentials = ()

    def as_user(self, name, password):
        """The same core or etcd, as that user sees it."""
        return self.shown(*self.credentials, f"--user={name}:{password}")

    def with_users(self, **rights):
        """Enables users, who have to log in from then on: root, and those of @rights, who may do so much:
        with_users(ann=("read", "prefix/")). Names are passwords, and those of roles."""
        for name, right in {"root": (), **rights}.items():
            self.etcdctl("user", "add", f"{name}:{name}")
            self.etcdctl("role", "add", name)
            self.etcdctl("user", "grant-role", name, name)
            if right:
                self.etcdctl("role", "grant-permission", "--prefix", name, *right)
        self.etcdctl("auth", "enable")
        return self

    def shown(self, *credentials):
        """A copy with these options of etcdctl and tenurectl in place of its own."""
        other = copy.copy(self)
        other.credentials = credentials
        return other

    def etcdctl(self, *words, at=None, stdin=""):
        return run("etcdctl", "--endpoints", at.client_url if at else self.endpoints,
                   *self._LIMITS, *self.credentials, *words, stdin=stdin)

    def _ask(self, *words, **options):
        return json.loads(self.etcdctl("--write-out=json", *words, **options))

    def put(self, key, value, *, lease=0, at=None):
        """Returns the revision."""
        with_lease = [f"--lease={lease:x}"] if lease else []
        return self._ask("put", key, value, *with_lease, at=at)["header"]["revision"]

    def put_all(self, entries):
        """Thousands of (key, value), a hundred at a time."""
        from .rpc import pb
        with self.rpc() as rpc:
            for n in range(0, len(entries), 100):
                rpc.call("etcdserverpb.KV/Txn", pb.TxnRequest(success=[pb.RequestOp(
                    request_put=pb.PutRequest(key=key.encode(), value=value.encode()))
                    for key, value in entries[n:n + 100]]))

    def get(self, key, *options, at=None):
        """The KeyValue, or None."""
        kvs = self._ask("get", key, *options, at=at).get("kvs", [])
        return _key_value(kvs[0]) if kvs else None

    def range(self, prefix, at=None):
        return [_key_value(kv) for kv in self._ask("get", "--prefix", prefix, at=at).get("kvs", [])]

    def delete(self, key, *options):
        """Returns how many there were."""
        return self._ask("del", key, *options).get("deleted", 0)

    def txn(self, *, compare, then, otherwise):
        """Each a list of lines as in etcdctl's txn."""
        said = self._ask("txn", stdin="".join("\n".join([*part, "\n"]) if part else "\n"
                                              for part in (compare, then, otherwise)))
        ranges = [answer["Response"]["ResponseRange"] for answer in said.get("responses", [])
                  if "ResponseRange" in answer["Response"]]
        return Txn(said.get("succeeded", False),
                   [[_key_value(kv) for kv in found.get("kvs", [])] for found in ranges])

    def cluster_id(self):
        return self._ask("get", "-")["header"]["cluster_id"]

    def revision(self):
        return self._ask("get", "-")["header"]["revision"]

    def grant(self, ttl, at=None):
        """Returns the lease's id."""
        return self._ask("lease", "grant", str(ttl), at=at)["ID"]

    def revoke(self, lease, at=None):
        self.etcdctl("lease", "revoke", f"{lease:x}", at=at)

    def lease(self, lease, at=None):
        said = self._ask("lease", "timetolive", "--keys", f"{lease:x}", at=at)
        return Lease(said["id"], said["ttl"], said.get("granted-ttl", 0),
                     [_text(key) for key in said.get("keys") or []])

    def member_ids(self):
        """Of all members, by peer URL."""
        return {url: said["ID"] for said in self._ask("member", "list")["members"]
                for url in said["peerURLs"]}

    def wait_for_renewal(self, lease):
        """Until somebody renews it: what is left of it becomes more."""
        left = [self.lease(lease).ttl]

        def is_renewed():
            left.append(self.lease(lease).ttl)
            return left[-1] > left[-2] > 0

        eventually(is_renewed)

    def watch(self, prefix, revision):
        """All changes below the prefix, beginning with that revision: nothing is missed while
        the watch is being made."""
        self._watches = getattr(self, "_watches", 0) + 1
        log = self.folder / f"watch{self._watches}.log"
        return Watch(log, "etcdctl", "--endpoints", self.endpoints, *self.credentials,
                     "--write-out=json", "watch", "--prefix", prefix, f"--rev={revision}",
                     out=log.with_suffix(".json")).start()


class Replicas(Keys):
    """What has .replicas by their names, and is asked at those that run."""

    @property
    def running(self):
        return [replica for replica in self.replicas.values() if replica.is_running]

    @property
    def endpoints(self):
        return ",".join(replica.client_url for replica in self.running)
