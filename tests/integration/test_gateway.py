"""The JSON gateway beside that of Debian's etcd: asked the same, they answer the same."""
import json
import random
import re

import pytest
from harness import ledger
from harness.cluster import Cluster
from harness.etcd import Etcd
from harness.http1 import Http, JsonStream

# Random, or an engine's own.
OWN = {"cluster_id", "member_id", "raft_term", "memberID", "hash", "token"}
# What tenure-core says beside (lib/wire/rpc.proto, from 9001 on).
OURS = {"ttl_ms", "granted_ttl_ms"}
# The time that is left, and ids and names that a server chose.
BY_PLACE = {("timetolive", "TTL"), ("member", "ID"), ("members", "ID"), ("members", "name"),
            ("members", "peerURLs"), ("members", "clientURLs")}


def comparable(said, path, inside=""):
    """What counts of an answer; the order of its members does."""
    if isinstance(said, list):
        said = [comparable(one, path, inside) for one in said]
        return sorted(said, key=json.dumps) if inside in ("leases", "alarms") else said
    if isinstance(said, str):  # Go names a type with its package, and joins names by lines
        return re.sub(r"\b(?:etcdserverpb|authpb)\.(\w+?)(?:_(\w+))?\b",
                      lambda name: ".".join(filter(None, name.groups())), said)
    if not isinstance(said, dict):
        return said
    kept = {}
    for name, given in said.items():
        # etcd 3.4 has no header here, or one without a revision; to lock again is a write with us
        if (inside, name) == ("leases", "keys") or name in OURS or (
                name == "header" and re.search("/(cluster|maintenance|lock)/", path)):
            continue
        own = name in OWN or {(inside, name), (path.rsplit("/", 1)[-1], name)} & BY_PLACE
        kept[name] = "its own" if own else comparable(given, path, name)
    return kept


class Both:
    """The gateways of tenure-core and of etcd. What is asked is asked of both, and must have the
    same answer, revisions included."""

    def __init__(self, *engines):
        self.urls = [engine.client_url for engine in engines]
        self.https = [Http(url) for url in self.urls]

    def log_in(self, *tokens):
        """From now on, on the same connections."""
        for http, token in zip(self.https, tokens):
            http.headers = {"Authorization": token} if token else {}

    def raw(self, method, path, body=None, **headers):
        return [http.ask(method, path, body, **headers) for http in self.https]

    def told(self, method, path, body=None, **headers):
        def told_by(answer):
            try:
                text = json.dumps(comparable(answer.json(), path))
            except ValueError:
                text = answer.text.strip()
            return answer.status, answer.type, text

        return [told_by(answer) for answer in self.raw(method, path, body, **headers)]

    def ask(self, status, path, body, method="POST", **headers):
        """Both answer with that status. Returns what they say."""
        __tracebackhide__ = True
        ours, theirs = self.told(method, path, body, **headers)
        assert ours == theirs, f"{path} {str(body)[:200]}"
        assert theirs[0] == status, f"{path} {str(body)[:200]}: {theirs}"
        return theirs[2]

    def call(self, status, path, **body):
        __tracebackhide__ = True
        return self.ask(status, f"/v3/{path}", body)

    def streams(self, path, body, **options):
        return [JsonStream(url, f"/v3/{path}", body, **options, **http.headers)
                for url, http in zip(self.urls, self.https)]

    def stream(self, path, body, n, then=None):
        """Both streams say the same @n things, which are returned; @then is called after the
        first."""
        __tracebackhide__ = True
        both = self.streams(path, body)
        said = [[comparable(stream.next(), path)] for stream in both]
        if then:
            then()
        for lines, stream in zip(said, both):
            lines += [comparable(stream.next(), path) for _ in range(n - 1)]
            lines += [stream.answer.status, stream.answer.getheader("Content-Type")]
            stream.close()
        assert said[0] == said[1]
        return said[1][:n]


@pytest.fixture
def both(shared, ports, wants_etcd):
    """One pair for all tests: each leaves users, alarms and leases as it has found them."""
    pair = shared("gateways", lambda folder: (Cluster(folder, ports, 1).replicas["a"],
                                              Etcd(folder, ports)))
    yield Both(*pair)
    if ledger.failed():  # their histories may differ now
        pair[1].kill()


def test_keys_are_put_ranged_and_deleted(both):
    both.call(200, "kv/put", key=b"a", value=b"1")
    both.call(200, "kv/put", key=b"a", value=b"2", prev_kv=True)
    both.call(400, "kv/put")
    both.call(404, "kv/put", key=b"x", lease="4711")
    both.call(200, "kv/range", key=b"a")
    both.call(200, "kv/range", key=b"none")
    both.call(200, "kv/range", key=b"\0", range_end=b"\0", sort_order="DESCEND",
              sortTarget="MOD", limit=3)
    both.call(200, "kv/range", key=b"\0", rangeEnd=b"\0", keysOnly=True, countOnly=False)
    both.call(400, "kv/range", key=b"a", revision=1 << 40)
    both.call(200, "kv/deleterange", key=b"a", range_end=b"b", prev_kv=True)
    both.call(200, "kv/deleterange", key=b"none")


def test_transactions_compare_and_nest(both):
    put_b = {"request_put": {"key": b"t/b", "value": b"x" * 500}}
    inner = {"compare": [{"key": b"q", "target": "CREATE", "create_revision": 7}],
             "failure": [{"request_delete_range": {"key": b"q"}}]}
    both.call(200, "kv/put", key=b"t/a", value=b"2")
    said = both.call(200, "kv/txn", compare=[
        {"key": b"t/a", "target": "VALUE", "result": "EQUAL", "value": b"2"},
        {"key": b"t/b", "target": "VERSION", "version": "0"}], success=[
        put_b, {"requestRange": {"key": b"t/", "range_end": b"t0"}}, {"request_txn": inner}])
    assert json.loads(said)["succeeded"]
    both.call(200, "kv/txn", compare=[
        {"key": b"t/a", "target": "MOD", "result": "GREATER", "mod_revision": 99999}],
        failure=[{"request_delete_range": {"key": b"t/b", "prevKv": True}}])
    both.call(400, "kv/txn", success=[put_b, put_b])


def test_what_was_compacted_is_not_read_any_more(both):
    said = both.call(200, "kv/put", key=b"c")
    now = int(json.loads(said)["header"]["revision"])
    both.call(200, "kv/compaction", revision=now)
    both.call(400, "kv/range", key=b"c", revision=now - 1)
    both.call(400, "kv/compaction", revision="99999999")


@pytest.mark.parametrize("service", ["lease", "kv/lease"])
def test_leases_are_granted_looked_at_and_revoked(both, service):
    both.call(200, "lease/grant", ID=11, TTL=60)
    both.call(412, "lease/grant", ID="11", TTL="60")
    both.call(400, "lease/grant", ID=12, TTL=1 << 40)
    both.call(200, "kv/put", key=b"l", lease=11)
    both.call(200, f"{service}/timetolive", ID=11, keys=True)
    both.call(200, f"{service}/timetolive", ID=999)
    both.call(200, f"{service}/leases")
    both.call(404, f"{service}/revoke", ID=999)
    both.call(200, f"{service}/revoke", ID=11)
    both.call(200, "kv/range", key=b"l")


def test_members_are_listed_and_impossible_changes_refused(both):
    both.call(200, "cluster/member/list")
    both.call(400, "cluster/member/add")
    both.call(400, "cluster/member/add", peerURLs=["x"])
    both.call(404, "cluster/member/remove", ID="4711")
    both.call(404, "cluster/member/update", ID="4711", peerURLs=["http://127.0.0.1:1"])
    both.call(404, "cluster/member/promote", ID="4711")


def test_an_alarm_is_set_seen_and_taken_back(both):
    def health(*excluded):
        query = "&".join(f"exclude={name}" for name in excluded)
        return [(answer.status, answer.json()["health"])  # later versions than 3.4 say why, too
                for answer in both.raw("GET", f"/health?{query}")]

    both.call(200, "maintenance/alarm")
    both.call(200, "maintenance/alarm", action="ACTIVATE", memberID="7", alarm="NOSPACE")
    both.call(429, "kv/put", key=b"k")
    assert health() == health("") == health("CORRUPT") == [(503, "false")] * 2
    assert health("NOSPACE") == health("CORRUPT", "NOSPACE") == [(200, "true")] * 2
    both.call(200, "maintenance/alarm", action=2, memberID=7, alarm=1)
    assert health() == [(200, "true")] * 2


def test_maintenance_answers(both):
    both.call(200, "kv/put", key=b"a")
    both.call(200, "maintenance/hash")
    both.call(200, "maintenance/defragment")
    both.call(412, "maintenance/transfer-leadership", targetID="4711")
    ours, theirs = (answer.json() for answer in both.raw("POST", "/v3/maintenance/status", {}))
    assert set(theirs) <= set(ours)  # later versions say more
    both.ask(400, "/v3/maintenance/snapshot", "{bad")
    for answer in both.raw("POST", "/v3/maintenance/snapshot", {}):
        parts = [json.loads(line)["result"] for line in answer.body.splitlines()]
        assert all(part["blob"] for part in parts)


def test_locks_and_elections_are_won_and_given_up(both):
    both.call(200, "lease/grant", ID=77, TTL=60)
    both.call(200, "lock/lock", name=b"l", lease=77)
    both.call(200, "lock/unlock", key=b"l/4d")
    both.call(200, "lock/unlock", key=b"none")
    said = both.call(200, "election/campaign", name=b"e", lease=77, value=b"me")
    leader = json.loads(said)["leader"]
    both.call(200, "election/leader", name=b"e")
    both.call(200, "election/proclaim", leader=leader, value=b"you")
    both.stream("election/observe", {"name": b"e"}, 2, lambda: both.call(
        200, "election/proclaim", leader=leader, value=b"we"))
    both.call(200, "election/resign", leader=leader)
    both.call(500, "election/proclaim", leader=leader, value=b"x")
    both.call(500, "election/leader", name=b"none")
    # etcd's lock is a client of its own, whose error has lost its code
    ours, theirs = both.raw("POST", "/v3/lock/lock", {"name": b"l", "lease": 4711})
    assert ours.json()["error"] == theirs.json()["error"] and ours.status == 404
    both.call(200, "lease/revoke", ID=77)


def test_a_watch_tells_changes_and_why_there_is_none(both):
    def change():
        both.call(200, "kv/put", key=b"w", value=b"1")
        both.call(200, "kv/put", key=b"w", value=b"2")
        both.call(200, "kv/deleterange", key=b"w")

    def create(**more):
        return json.dumps({"create_request": {"key": "dw==", **more}})

    both.stream("watch", create(prev_kv=True), 4, change)
    both.stream("watch", create() + "\n" + create(), 2)
    both.stream("watch", create() + '{"cancel_request":{"watch_id":0}}', 2)
    both.stream("watch", create(start_revision=1 << 40, filters=["NOPUT", 1]), 1)
    both.stream("watch", '{"progress_request":{}}', 1)
    for bad in "{bad", "[]", '{"create_request":{"key":1}}', '{"create_request":[]}', "nul":
        both.stream("watch", bad, 1)


def test_a_watch_is_added_while_the_request_goes_on(shared_cluster, prefix):
    """Go's server answers only once it has all of a request."""
    stream = JsonStream(shared_cluster.running[0].client_url, "/v3/watch",
                        {"create_request": {"key": prefix.encode()}}, more=True)
    assert stream.next()["result"]["created"]
    stream.send('{"create_request":{"ke')
    stream.send('y":"cA=="}}')
    assert stream.next()["result"]["watch_id"] == "1"
    stream.close()


def test_a_request_may_come_in_chunks(both):
    for stream in both.streams("lease/keepalive", '{"ID":', more=True):
        stream.send('"4711"}')
        stream.end()
        assert stream.next()["result"]["ID"] == "4711"
        assert stream.next() is None


def test_leases_are_kept_alive(both):
    both.call(200, "lease/grant", ID=88, TTL=60)
    both.stream("lease/keepalive", '{"ID":88}', 2)
    both.stream("lease/keepalive", '{"ID":88}{"ID":"88"}', 3)
    both.stream("lease/keepalive", '{"ID":4711}', 2)
    for bad in "", "{bad", "[]", '{"ID":"x"}', '{"ID":', "1":
        both.stream("lease/keepalive", bad, 1)
    both.call(200, "lease/revoke", ID=88)


@pytest.mark.parametrize("path, good", [
    ("watch", '{"create_request":{"key":"dw=="}}'), ("lease/keepalive", '{"ID":4711}')])
@pytest.mark.parametrize("bad", ["{bad", "[]", '{"x', "nul"])
def test_what_is_good_before_something_bad_is_answered(both, path, good, bad):
    """etcd says nothing of what it could not read; we do, and that is the last."""
    ours, theirs = both.streams(path, good + bad)
    assert comparable(ours.next(), path) == comparable(theirs.next(), path)
    assert ours.next()["error"]["grpc_code"] == 2
    assert ours.next() is None
    theirs.close()


# ---- what is wrong ----

@pytest.mark.parametrize("version", ["v3beta", "v3alpha"])
def test_older_versions_of_the_api_have_the_same_paths(shared_cluster, prefix, version):
    http = Http(shared_cluster.running[0].client_url)
    http.post(f"/{version}/kv/put", key=prefix.encode())
    for v in "v3", version:
        assert http.post(f"/{v}/kv/range", key=prefix.encode())["count"] == "1"
        for path in "watch", "lease/keepalive":
            assert b"invalid character 'b'" in http.ask("POST", f"/{v}/{path}", "{bad").body


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD"])
def test_calls_are_posted(both, method):
    both.ask(405, "/v3/kv/range", None, method)


@pytest.mark.parametrize("path", ["/v3/kv/nothing", "/v3/kv/range/", "/v3/kv", "/v3/",
                                  "/v3/lease/keepalive/x", "/nothing"])
def test_what_is_not_there_is_not_found(both, path):
    for method in "POST", "GET":  # Go says it in two ways
        ours, theirs = both.told(method, path, {} if method == "POST" else None)
        assert ours[:2] == theirs[:2] and ours[0] == 404


def test_pages_are_got(both):
    for path in "/health", "/version":
        for method in "POST", "PUT", "DELETE":
            assert [answer.status for answer in both.raw(method, path, {})] == [405, 405]


@pytest.mark.parametrize("timeout, status", [
    *((bad, 400) for bad in ("1X", "1", "S", "5 S", "1S, 2S", "x")),
    *((good, 200) for good in ("", "0S", "99999S"))])
def test_a_timeout_must_be_one(both, timeout, status):
    headers = {"Grpc-Timeout": timeout}
    for path, body in ("/v3/kv/range", {"key": b"a"}), ("/v3/lease/keepalive", {"ID": 88}):
        ours, theirs = both.told("POST", path, body, **headers)
        assert ours == theirs and (ours[0] == 400) == (status == 400)


LIMITS = ("1.0", '"1e3"', '"x"', '""', "9223372036854775808", "null")


@pytest.mark.parametrize("text", [
    "", " \n", "null", "{}", "[]", "1", '"x"', "true", "{", '{"key":', '{"key":"YQ=="}x',
    '{"key":"YQ=="} {bad', '{"key":"YQ==",}', "{key:1}", '{"key":1}', '{"key":"Z"}',
    '{"key":"Z!=="}', '{"key":{}}', '{"key":true}', '{"KEY":"YQ=="}', "\ufeff{}",
    '{"key":"Y\u00e9"}', *(f'{{"key":"YQ==","limit":{limit}}}' for limit in LIMITS),
    *(f'{{"key":"YQ==","sort_order":{order}}}' for order in ('"ascend"', "1", "[]")),
    '{"key":"YQ==","serializable":1}', '{"key":"YQ==","unknown":{"key":[1,{"a":null}]}}',
    pytest.param('{"key":"YQ==","x":' + "[" * 9998 + "]" * 9998 + "}", id="deep"),
    pytest.param('{"key":"YQ==","x":' + "[" * 10001, id="too-deep")])
def test_a_request_is_read_as_etcd_reads_it(both, text):
    ours, theirs = both.told("POST", "/v3/kv/range?key=means-nothing", text)
    assert ours == theirs


TEXTS = (
    '{"key":"YQ==","range_end":"Yg==","limit":"5","revision":0,"sort_order":"ASCEND"}',
    '{"key":"YWJj","keysOnly":false,"countOnly":true,"minModRevision":-1,"x":[1,{"y":null}]}',
    ' { "key" : "AA==" , "sortTarget" : 3 , "limit" : 1e2 , "a\\u0062" : [ "\\ud83d\\ude00\\n" ]}',
    '{"sort_order":"NONE","sort_target":"VALUE","key":"YQ==","foo":-1.5E+7,"baz":{},"qux":[[]]}')


def text_with_mistakes(random_):
    text = random_.choice(TEXTS)
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        at, gone = random_.randrange(len(text) + 1), random_.choice((0, 1, 1, 2, 8))
        new = random_.choice(["", random_.choice('{}[]",:\\/ \n\tu0195-+.eEtfnax\x01\x7fé=')])
        text = text[:at] + new + text[at + gone:] if random_.randrange(5) else text[:at]
    return text


def ends_etcd(text):
    """A sort order or target that there is none of makes etcd 3.4 crash (lib/DECISIONS.md)."""
    asked = re.findall(r'"sort_?(order|target)"\s*:\s*(-?\d+)', text, re.I)
    return any(not 0 <= int(n) <= {"order": 2, "target": 4}[what.lower()] for what, n in asked)


def differs_on_purpose(ours, theirs):
    """As lib/DECISIONS.md has it."""
    semantic = (r".*json: cannot|.*illegal base64|.*unknown value|.*unexpected end|"
                r".*invalid character .* (top-level value|beginning of value)")
    return ("comes twice" in ours[2]
            or ("illegal base64" in theirs[2] and "illegal base64" not in ours[2])  # no padding
            or (re.match(semantic, ours[2]) and re.match(semantic, theirs[2])))  # which of two


def test_texts_with_mistakes_are_taken_or_refused_in_the_same_words(both):
    random_, alike = random.Random(1), 0
    for text in filter(lambda text: not ends_etcd(text),
                       (text_with_mistakes(random_) for _ in range(1500))):
        ours, theirs = both.told("POST", "/v3/kv/range", text)
        assert ours == theirs or differs_on_purpose(ours, theirs), text
        alike += ours == theirs
    assert alike > 1200


# ---- what is large ----

def test_large_values_come_back_as_they_were(both):
    value = bytes(range(256)) * 4000
    both.call(200, "kv/put", key=b"large", value=value)
    both.call(200, "kv/range", key=b"large")
    both.call(200, "kv/put", key=b"large", value="A" * 2096000)
    both.call(400, "kv/put", key=b"large", value="A" * 2098000)  # 1.5 MiB
    both.ask(200, "/v3/kv/put", '{"key":"YQ==","value":"' + "\\u0041" * 100000 + '"}')
    both.ask(200, "/v3/kv/put", '{"x":[' + "{}," * 333333 + '1],"key":"YQ=="}')
    both.call(200, "kv/deleterange", key=b"large")


def test_a_transaction_has_so_many_operations_and_so_much_depth(both):
    puts = [{"request_put": {"key": b"many/%d" % i}} for i in range(129)]
    both.call(200, "kv/txn", success=puts[:128])
    both.call(400, "kv/txn", success=puts)
    for depth in 1, 60, 127:
        both.ask(200, "/v3/kv/txn", '{"success":[{"request_txn":' * depth
                 + '{"success":[{"request_range":{"key":"YQ=="}}]}' + "}]}" * depth)
    too_deep = '{"success":[{"request_txn":' * 1000 + "{}" + "}]}" * 1000
    ours, theirs = both.told("POST", "/v3/kv/txn", too_deep)
    assert ours[:2] == theirs[:2] == (400, "application/json")


# ---- users ----

def auth(both, status, what, **body):
    __tracebackhide__ = True
    both.call(status, f"auth/{what}", **body)


def test_roles_are_added_granted_and_deleted(both):
    for role in "some", "é<&>":
        auth(both, 200, "role/add", name=role)
    auth(both, 412, "role/add", name="some")
    auth(both, 200, "role/grant", name="some",
         perm={"permType": "READWRITE", "key": b"a", "range_end": b"c"})
    auth(both, 200, "role/grant", name="some", perm={"permType": 1, "key": b"x"})
    auth(both, 412, "role/grant", name="no", perm={"key": b"x"})
    auth(both, 200, "role/get", role="some")
    auth(both, 412, "role/get", role="no")
    auth(both, 200, "role/revoke", role="some", key=b"x")
    auth(both, 412, "role/revoke", role="some", key=b"x")
    auth(both, 200, "role/list")
    ours, theirs = both.raw("POST", "/v3/auth/role/list", {})
    assert ours.body.split(b'"roles":')[1] == theirs.body.split(b'"roles":')[1]  # escaped alike
    for role in "some", "é<&>":
        auth(both, 200, "role/delete", role=role)
    auth(both, 412, "role/delete", role="some")


@pytest.fixture
def ann(both):
    """A user, who may use the keys a to b, beside root."""
    for name, role in ("root", "root"), ("ann", "some"):
        auth(both, 200, "user/add", name=name, password=name)
        auth(both, 200, "role/add", name=role)
        auth(both, 200, "user/grant", user=name, role=role)
    auth(both, 200, "role/grant", name="some",
         perm={"permType": "READWRITE", "key": b"a", "range_end": b"c"})
    yield
    auth(both, 200, "user/revoke", name="ann", role="some")
    auth(both, 412, "user/revoke", name="ann", role="some")
    for name, role in ("root", "root"), ("ann", "some"):
        auth(both, 200, "user/delete", name=name)
        auth(both, 200, "role/delete", role=role)
    auth(both, 412, "user/delete", name="ann")


def test_users_are_listed_and_get_other_passwords(both, ann):
    auth(both, 412, "user/add", name="ann", password="p")
    auth(both, 400, "user/add", password="p")
    auth(both, 412, "user/grant", user="no", role="some")
    auth(both, 200, "user/get", name="ann")
    auth(both, 412, "user/get", name="no")
    auth(both, 200, "user/list")
    auth(both, 200, "user/changepw", name="ann", password="new")
    auth(both, 412, "authenticate", name="ann", password="new")  # not enabled


def test_who_logs_in_may_do_what_the_role_grants(both, ann):
    def log_in(name):
        both.log_in(*(answer.json()["token"] for answer in both.raw(
            "POST", "/v3/auth/authenticate", {"name": name, "password": name})))

    auth(both, 200, "enable")
    auth(both, 400, "enable")
    auth(both, 400, "authenticate", name="ann", password="wrong")
    auth(both, 400, "authenticate", name="no", password="p")
    both.call(400, "kv/put", key=b"a")
    auth(both, 400, "user/list")
    assert both.https[0].get("/readyz").status == 200  # probes need no login
    both.log_in("wrong", "wrong")
    both.call(401, "kv/put", key=b"a")
    both.log_in(None, None)
    log_in("ann")
    both.call(200, "kv/put", key=b"a")
    both.call(403, "kv/put", key=b"z")
    both.call(403, "kv/range", key=b"z")
    auth(both, 403, "user/list")
    both.stream("watch", {"create_request": {"key": b"a"}}, 1)
    both.stream("watch", {"create_request": {"key": b"z"}}, 1)
    both.log_in(None, None)
    log_in("root")
    auth(both, 200, "disable")
    both.log_in(None, None)
    auth(both, 200, "disable")
