"""The JSON gateway beside that of Debian's etcd: how requests and answers are written.
test_beside_etcd.py has what the calls do."""
import json
import random
import re

import pytest
from harness.http1 import Http, JsonStream

OWN = {"cluster_id", "member_id", "raft_term"}  # an engine's own
OURS = {"ttl_ms", "granted_ttl_ms"}  # what tenure-core says beside (lib/wire/rpc.proto)


def comparable(said):
    """What counts of an answer; the order of its members does."""
    if isinstance(said, list):
        return [comparable(one) for one in said]
    if isinstance(said, dict):
        return {name: "its own" if name in OWN else comparable(given)
                for name, given in said.items() if name not in OURS}
    if isinstance(said, str):  # Go names a type with its package, and joins names by lines
        return re.sub(r"\betcdserverpb\.(\w+?)(?:_(\w+))?\b",
                      lambda name: ".".join(filter(None, name.groups())), said)
    return said


class Both:
    """The gateways of tenure-core and of etcd. What is asked is asked of both, and must have the
    same answer, revisions included."""

    def __init__(self, urls):
        self.urls, self.https = urls, [Http(url) for url in urls]

    def raw(self, method, path, body=None, **headers):
        return [http.ask(method, path, body, **headers) for http in self.https]

    def told(self, method, path, body=None, **headers):
        """(status, type, text) of both, as far as they can be compared."""
        def told_by(answer):
            try:
                text = json.dumps(comparable(answer.json()))
            except ValueError:
                text = answer.text.strip()
            return answer.status, answer.type, text

        return [told_by(answer) for answer in self.raw(method, path, body, **headers)]

    def ask(self, status, path, body):
        __tracebackhide__ = True
        ours, theirs = self.told("POST", path, body)
        assert ours == theirs, f"{path} {str(body)[:200]}"
        assert theirs[0] == status, f"{path} {str(body)[:200]}: {theirs}"

    def call(self, status, path, **body):
        __tracebackhide__ = True
        self.ask(status, f"/v3/{path}", body)

    def streams(self, path, body, **options):
        return [JsonStream(url, f"/v3/{path}", body, **options) for url in self.urls]

    def stream(self, path, body, n, then=lambda: None):
        """Both streams say the same @n things; then() is called after the first."""
        __tracebackhide__ = True
        both = self.streams(path, body)
        said = [[comparable(stream.next())] for stream in both]
        then()
        for lines, stream in zip(said, both):
            lines += [comparable(stream.next()) for _ in range(n - 1)]
            lines += [stream.answer.status, stream.answer.getheader("Content-Type")]
            stream.close()
        assert said[0] == said[1]


@pytest.fixture
def both(pair):
    return Both([engine.endpoints for engine in pair.engines])


def test_fields_have_two_names_and_enumerations_names_and_numbers(both):
    both.call(200, "kv/put", key=b"a", value=b"1")
    both.call(200, "kv/put", key=b"a", value=b"2", prev_kv=True)
    for fields in (dict(range_end=b"b", sort_order="DESCEND", sortTarget="MOD", limit=3),
                   dict(rangeEnd=b"b", sortOrder=2, sort_target=3, limit="3"),
                   dict(rangeEnd=b"b", keysOnly=True, countOnly=False)):
        both.call(200, "kv/range", key=b"a", **fields)
    both.call(200, "kv/txn", success=[{"requestRange": {"key": b"a"}}, {
        "request_delete_range": {"key": b"a", "prevKv": True}}])


def test_text_is_escaped_as_in_go(both):
    name = "é<&>\"\\\n\r\t\x01\u2028"
    both.call(200, "auth/role/add", name=name)
    ours, theirs = both.raw("POST", "/v3/auth/role/list", {})
    assert ours.body.split(b'"roles":')[1] == theirs.body.split(b'"roles":')[1]
    both.call(200, "auth/role/delete", role=name)


def test_health_is_that_of_the_alarms_that_are_not_excluded(both):
    def health(*excluded):
        query = "&".join(f"exclude={name}" for name in excluded)
        return [(answer.status, answer.json()["health"])  # later versions than 3.4 say why, too
                for answer in both.raw("GET", f"/health?{query}")]

    both.raw("POST", "/v3/maintenance/alarm", {"action": "ACTIVATE", "alarm": "NOSPACE"})
    assert health() == health("") == health("CORRUPT") == [(503, "false")] * 2
    assert health("NOSPACE") == health("CORRUPT", "NOSPACE") == [(200, "true")] * 2
    both.raw("POST", "/v3/maintenance/alarm", {"action": 2, "alarm": 1})
    assert health() == [(200, "true")] * 2


# ---- streams ----

def test_a_watch_reports_changes_and_why_there_is_none(both):
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
    for text in ('{"progress_request":{}}', "{bad", "[]", '{"create_request":{"key":1}}',
                 '{"create_request":[]}', "nul"):
        both.stream("watch", text, 1)


def test_leases_are_kept_alive(both):
    both.call(200, "lease/grant", ID=88, TTL=60)
    both.stream("lease/keepalive", '{"ID":88}{"ID":"88"}', 3)
    both.stream("lease/keepalive", '{"ID":4711}', 2)
    for bad in "", "{bad", "[]", '{"ID":"x"}', '{"ID":', "1":
        both.stream("lease/keepalive", bad, 1)
    both.call(200, "lease/revoke", ID=88)


def test_a_watch_is_added_while_the_request_continues(shared_cluster, prefix):
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


@pytest.mark.parametrize("path, good", [
    ("watch", '{"create_request":{"key":"dw=="}}'), ("lease/keepalive", '{"ID":4711}')])
@pytest.mark.parametrize("bad", ["{bad", "[]", '{"x', "nul"])
def test_what_is_good_before_something_bad_is_answered(both, path, good, bad):
    """etcd says nothing of what it could not read; we do, and that is the last."""
    ours, theirs = both.streams(path, good + bad)
    assert comparable(ours.next()) == comparable(theirs.next())
    assert ours.next()["error"]["grpc_code"] == 2
    assert ours.next() is None
    theirs.close()


# ---- what is wrong ----

@pytest.mark.parametrize("version", ["v3beta", "v3alpha"])
def test_older_versions_of_the_api_have_the_same_paths(shared_cluster, prefix, version):
    http = Http(shared_cluster.running[0].client_url)
    http.post(f"/{version}/kv/put", key=prefix.encode())
    assert http.post(f"/{version}/kv/range", key=prefix.encode())["count"] == "1"
    for path in "watch", "lease/keepalive", "kv/lease/revoke", "maintenance/snapshot":
        assert b"invalid character 'b'" in http.ask("POST", f"/{version}/{path}", "{bad").body


@pytest.mark.parametrize("status, methods, paths", [
    (405, ["GET", "PUT", "DELETE", "PATCH", "HEAD"], ["/v3/kv/range"]),
    (405, ["POST", "PUT", "DELETE"], ["/health", "/version"]),
    (404, ["GET", "POST"], ["/v3/kv/nothing", "/v3/kv/range/", "/v3/kv", "/v3/",
                            "/v3/lease/keepalive/x", "/nothing"])])
def test_each_path_has_its_method(both, status, methods, paths):
    for method in methods:
        for path in paths:
            answers = both.raw(method, path, {} if method == "POST" else None)
            assert [answer.status for answer in answers] == [status] * 2


@pytest.mark.parametrize("timeout, is_one", [
    *((bad, False) for bad in ("1X", "1", "S", "5 S", "1S, 2S", "x")),
    *((good, True) for good in ("", "0S", "99999S"))])
def test_a_timeout_must_be_one(both, timeout, is_one):
    for path, body in ("/v3/kv/range", {"key": b"a"}), ("/v3/lease/keepalive", {"ID": 88}):
        ours, theirs = both.told("POST", path, body, **{"Grpc-Timeout": timeout})
        assert ours == theirs and (ours[0] != 400) == is_one


@pytest.mark.parametrize("text", [
    "", " \n", "null", "{}", "[]", "1", '"x"', "true", "{", '{"key":', '{"key":"YQ=="}x',
    '{"key":"YQ=="} {bad', '{"key":"YQ==",}', "{key:1}", '{"key":1}', '{"key":"Z"}',
    '{"key":"Z!=="}', '{"key":{}}', '{"key":true}', '{"KEY":"YQ=="}', "\ufeff{}",
    '{"key":"Y\u00e9"}', *(f'{{"key":"YQ==","limit":{limit}}}' for limit in (
        "1.0", '"1e3"', '"x"', '""', "9223372036854775808", "null")),
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

def test_large_values_are_read_back_as_they_were(both):
    both.call(200, "kv/put", key=b"large", value=bytes(range(256)) * 4000)
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
    for depth in 1, 127:
        both.ask(200, "/v3/kv/txn", '{"success":[{"request_txn":' * depth
                 + '{"success":[{"request_range":{"key":"YQ=="}}]}' + "}]}" * depth)
    too_deep = '{"success":[{"request_txn":' * 1000 + "{}" + "}]}" * 1000
    ours, theirs = both.told("POST", "/v3/kv/txn", too_deep)
    assert ours[:2] == theirs[:2] == (400, "application/json")
