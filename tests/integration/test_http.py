"""HTTP/1.1 on the client port: what probes read, TLS, and clients that are slow, many or greedy."""
import json
import os
import select
import socket
import ssl

import pytest
from harness import h2
from harness.http1 import Http
from harness.places import BIN
from harness.program import run
from harness.waiting import PATIENCE, ProgramError, eventually

GET = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n"


def post(path, body):
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (path, len(body), body)


def until_end(connection):
    """All that comes; an end by an error is one as well."""
    got = b""
    try:
        while data := connection.recv(1 << 16):
            got += data
    except ConnectionError:
        pass
    return got


class Client:
    """Connects by hand, to say what no library would."""

    def __init__(self, url, source="127.0.0.1"):
        host, port = url.rpartition("/")[2].split(":")
        self.socket = socket.create_connection((host, int(port)), PATIENCE, (source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.close = self.socket.close

    def says(self, *pieces):
        try:
            for piece in pieces:
                self.socket.sendall(piece)
        except ConnectionError:  # it has been refused already
            pass
        return self

    def says_no_more(self):
        self.socket.shutdown(socket.SHUT_WR)
        return self

    def hears(self):
        """All, to the end."""
        return until_end(self.socket)

    def is_served(self):
        self.says(GET % b"/livez")
        try:
            return self.socket.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        except ConnectionError:
            return False


@pytest.fixture
def url(shared_cluster):
    return shared_cluster.running[0].client_url


# ---- probes ----

SERIALIZABLE = "[+]serializable_read ok\n"
READY = f"[+]data_corruption ok\n{SERIALIZABLE}[+]linearizable_read ok\n"


@pytest.mark.parametrize("path, status, text", [
    ("/health", 200, '{"health":"true","reason":""}'),
    ("/livez", 200, "ok\n"),
    ("/livez?verbose", 200, f"{SERIALIZABLE}ok\n"),
    ("/readyz?verbose", 200, f"{READY}[+]non_learner ok\nok\n"),
    ("/readyz?exclude=non_learner&verbose", 200, f"{READY}ok\n"),
    ("/readyz/linearizable_read", 200, "ok\n"),
    ("/readyz/nothing", 404, "404 page not found\n")])
def test_probes_are_answered_as_etcd_does(url, path, status, text):
    answer = Http(url).get(path)
    assert (answer.status, answer.text) == (status, text)


def test_the_version_is_that_of_an_etcd_that_can_as_much(shared_cluster, url):
    version = Http(url).get("/version").json()
    status = json.loads(shared_cluster.etcdctl("--write-out=json", "endpoint", "status"))
    assert version["etcdserver"] == status[0]["Status"]["version"]
    assert version["etcdcluster"] == "3.5.0" and version["tenure"]
    with pytest.raises(ProgramError, match="must be three numbers.*not '3.5.0-rc.1'"):
        run(BIN / "tenure-core", "--etcd-version", "3.5.0-rc.1", "-t")


# ---- who sends no more, or too much ----

@pytest.mark.parametrize("request_, n, answered", [
    (post(b"/v3/kv/put", b'{"key":"YQ=="}'), 1, b'"header"'),
    (post(b"/v3/lease/keepalive", b'{"ID":"7"}'), 1, b'"ID":"7"'),
    (post(b"/v3/maintenance/snapshot", b"{}"), 1, b'"blob":"'),
    (GET % b"/health", 1, b"true"),
    (GET % b"/livez", 1000, b"ok"),
    (GET % b"/metrics", 20, b"\netcd_server_has_leader ")],
    ids=["put", "keepalive", "snapshot", "health", "1000-answers", "20-pages"])
def test_who_sends_no_more_is_answered(url, request_, n, answered):
    for _ in range(20):
        got = Client(url).says(request_ * n).says_no_more().hears()
        assert got.count(b"HTTP/1.1 200 OK\r\n") == n and got.count(answered) >= n


def test_a_watch_ends_with_who_has_gone(url):
    watch = Client(url).says(post(b"/v3/watch", b'{"create_request":{"key":"dw=="}}'))
    assert b"created" in watch.socket.recv(1 << 16) + watch.says_no_more().hears()


class Small(Http):
    """A core of one replica that holds 32 MiB for its clients."""

    def __init__(self, url):
        super().__init__(url)
        self.url, self.clients = url, []

    def connect(self, *source):
        """For the time of the test."""
        self.clients.append(Client(self.url, *source))
        return self.clients[-1]

    def held(self):
        """In bytes, for clients."""
        return int(self.post("/v3/maintenance/status")["client_bytes"])


@pytest.fixture
def small(new_cluster):
    small = Small(new_cluster(1, f"--max-client-bytes={32 << 20}").running[0].client_url)
    yield small
    for client in small.clients:
        client.close()


LARGE = 1900000
WHOLE = post(b"/v3/kv/put", b'{"key":"YQ==","value":"' + b"A" * LARGE + b'"}')
CHUNKED = b"POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
BEGUN = {
    "sized": WHOLE[:-100],
    "chunked": CHUNKED % b"/v3/kv/put" + b'1f0000\r\n{"key":"YQ==","value":"' + b"A" * LARGE,
    "gRPC": h2.HELLO + h2.settings() + h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.headers(
        b"/etcdserverpb.KV/Put")) + h2.frame(h2.DATA, 0, 1, b"\0\0\x16\0\0" + bytes(16000)),
    "a head without an end": GET[:-4] % b"/version" + b"\r\nX: " + b"x" * LARGE,
    "a stream without an end": CHUNKED % b"/v3/watch" + (
        b"1000\r\n" + b"{}".rjust(4096) + b"\r\n") * 400}


@pytest.mark.parametrize("begun", BEGUN.values(), ids=BEGUN)
def test_half_requests_take_no_more_than_their_part(small, begun):
    left = {small.connect(): memoryview(begun) for _ in range(60)}
    for client in left:
        client.socket.setblocking(False)
    for _ in range(100):
        for client, rest in left.items():
            try:
                left[client] = rest[client.socket.send(rest[:1 << 16]):]
            except BlockingIOError:
                pass
            except ConnectionError:  # it has got the error that this is too much
                left[client] = rest[:0]
        assert small.held() <= 32 << 20
    for client in left:
        client.close()
    eventually(lambda: small.held() < 1 << 20)


def test_half_requests_that_do_not_continue_keep_no_client_out(small):
    for source in 2, 3, 4:
        for _ in range(12):
            small.connect(f"127.0.0.{source}").says(WHOLE[:-100])
    assert small.connect().says(WHOLE).socket.recv(17) == b"HTTP/1.1 200 OK\r\n"


def test_answers_that_nobody_reads_take_no_more_than_their_part(small):
    small.post("/v3/kv/put", key=b"large", value=b"x" * 1000000)
    for _ in range(100):
        small.connect().says(post(b"/v3/kv/range", b'{"key":"bGFyZ2U="}') * 5)
    for _ in range(100):
        assert small.held() <= 32 << 20


class HalfMessage:
    """Sends most of a large message by gRPC, as fast as it is taken."""

    def __init__(self, port, source):
        self.socket = h2.connect(port, source=source)
        self.window, self.left, self.data = (1 << 14) - 5, 1500000 - 100, b""
        self.socket.sendall(
            h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.headers(b"/etcdserverpb.KV/Put"))
            + h2.frame(h2.DATA, 0, 1, b"\0" + (1500000).to_bytes(4, "big")))

    def go_on(self):
        if select.select([self.socket], [], [], 0)[0]:
            frames, self.data = h2.frames(self.data + self.socket.recv(1 << 16))
            self.window += sum(int.from_bytes(body, "big") for kind, _, stream, body in frames
                               if kind == h2.WINDOW and stream == 1)
        n = min(self.window, self.left, 1 << 14)
        if n > 0:
            self.socket.sendall(h2.frame(h2.DATA, 0, 1, bytes(n)))
        self.window, self.left = self.window - n, self.left - n


def test_half_messages_are_dropped_when_they_hold_all_memory(new_cluster):
    replica = new_cluster(1, f"--max-client-bytes={16 << 20}").running[0]
    port = int(replica.client_url.rpartition(":")[2])
    halves = [HalfMessage(port, f"127.0.0.{source}") for source in (2, 3, 4) for _ in range(15)]

    def somebody_is_let_go():
        for half in 8 * halves:  # at once: who does not get on is ended for that
            try:
                half.go_on()
            except ConnectionError:
                pass
        return "--max-client-bytes is used up" in replica.log_text()

    eventually(somebody_is_let_go)
    assert Http(replica.client_url).post("/v3/kv/put", key=b"k", value=b"x" * 1000000)


@pytest.mark.parametrize("path, body, refused", [
    # A busy disk cannot take what all of them bring: some are refused.
    ("/v3/kv/put", {"key": b"k", "value": b"A" * 1400000}, {429, 503, 504}),
    ("/v3/kv/range", {"key": b"A" * 1400000, "serializable": True}, set())],
    ids=["put", "range"])
def test_more_large_requests_than_there_is_room_for_are_all_answered(small, path, body, refused):
    clients = [Http(small.url) for _ in range(40)]
    for client in clients:
        client.begin("POST", path, body)
    statuses = {client.finish().status for client in clients}
    assert 200 in statuses and statuses <= {200} | refused


# ---- more connections than there may be ----

LIMIT = 20


@pytest.fixture
def few(new_cluster, ports):
    """A replica with 20 places for an address and 60 for all, which has a port for probes."""
    probes = f"http://127.0.0.1:{ports.take()}"
    replica = new_cluster(1, f"--max-connections-per-address={LIMIT}", "--max-connections=60",
                          f"--listen-metrics-urls={probes}").running[0]
    replica.probes = probes
    return replica


def served(url, source="127.0.0.1"):
    """A connection that has a place, once there is one."""
    def try_once():
        client = Client(url, source)
        return client if client.is_served() else client.close()

    return eventually(try_once)


@pytest.fixture
def full(few):
    """All places of an address are taken."""
    few.held = [served(few.client_url) for _ in range(LIMIT)]
    return few


@pytest.mark.parametrize("pieces", [
    [GET % b"/version"], [b"G", b"E", b"T"],
    [b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n", b'{"key":"YQ=="}']],
    ids=["get", "byte-by-byte", "put"])
def test_one_connection_more_is_refused_with_the_reason(full, pieces):
    got = Client(full.client_url).says(*pieces).hears()
    assert got.startswith(b"HTTP/1.1 503 ") and got.endswith(b"\r\n\r\ntoo many connections\n")
    assert b"\r\nConnection: close\r\n" in got


def test_one_connection_more_is_refused_by_http2_as_well(full):
    got = Client(full.client_url).says(h2.HELLO + h2.settings()).hears()
    (code,) = [body[4:8] for kind, _, _, body in h2.frames(got)[0] if kind == h2.GOAWAY]
    assert code == b"\0\0\0\x0b"  # ENHANCE_YOUR_CALM


def test_those_that_are_too_many_cost_little_and_take_nobodys_place(full):
    def descriptors():
        return len(os.listdir(f"/proc/{full.pid}/fd"))

    before = descriptors()
    silent = [Client(full.client_url) for _ in range(300)]
    assert descriptors() - before <= 80
    assert Client(full.probes).is_served()
    # They are taken in the order in which they came.
    assert Client(full.client_url).says(GET % b"/").hears().startswith(b"HTTP/1.1 503 ")
    full.held.pop().close()
    assert served(full.client_url)
    assert all(client.hears() == b"" for client in silent)


@pytest.mark.parametrize("begun", [b"", b"GET /v", h2.HELLO[:10], h2.HELLO],
                         ids=["nothing", "half-a-request", "half-a-hello", "hello"])
@pytest.mark.parametrize("addresses", [1, 5])
def test_who_has_asked_for_nothing_makes_room(few, begun, addresses):
    places = LIMIT if addresses == 1 else 3 * LIMIT
    sources = [f"127.0.0.{2 + i % addresses}" for i in range(places)]
    asked = [served(few.client_url, source) for source in sources[:5]]
    silent = [Client(few.client_url, source).says(begun) for source in sources[5:]]
    assert served(few.client_url, "127.0.0.2" if addresses == 1 else "127.0.0.9")
    assert all(client.is_served() for client in asked) and silent


# ---- TLS ----

@pytest.fixture
def secured(new_cluster, authority):
    return new_cluster(1, "--etcd-version=3.4.31", authority=authority)


@pytest.fixture
def hello(secured):
    """Connects with TLS, offering these protocols."""
    def connect(*offered, **options):
        tls = ssl.create_default_context(cafile=secured.client.authority)
        tls.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        tls.load_cert_chain(secured.client.cert, secured.client.key)
        if offered:
            tls.set_alpn_protocols(offered)
        connection = Client(secured.running[0].client_url).socket
        return tls.wrap_socket(connection, server_hostname="127.0.0.1", **options)

    return connect


def test_tls_agrees_on_a_protocol_that_is_offered(secured, hello):
    for offered, agreed in ((["h2"], "h2"), (["http/1.1"], "http/1.1"), (["http/1.0"], "http/1.0"),
                            (["h2", "http/1.1"], "http/1.1"), (["http/1.1", "h2"], "http/1.1"),
                            (["foo", "h2"], "h2"), ([], None)):
        with hello(*offered) as connection:
            assert connection.selected_alpn_protocol() == agreed
            if agreed != "h2":
                connection.sendall(b"GET /version HTTP/1.0\r\n\r\n")
                assert b'"etcdserver":"3.4.31","etcdcluster":"3.4.0"' in until_end(connection)
    with pytest.raises(ssl.SSLError, match="no application protocol"):
        hello("foo")
    eventually(lambda: secured.running[0].said(r"no application protocol \(1 since the last"))


def test_an_answer_without_a_length_ends_as_tls_wants_it(secured, hello):
    """A client that speaks HTTP/1.0 knows by the end of the connection that it has all."""
    secured.etcdctl("put", "k", stdin="x" * 1000000)
    connection = hello(suppress_ragged_eofs=False)
    connection.sendall(post(b"/v3/kv/range", b'{"key":"aw=="}').replace(b"/1.1", b"/1.0"))
    head, body = until_end(connection).split(b"\r\n\r\n", 1)
    assert b"Length" not in head and json.loads(body)["count"] == "1"


def test_a_client_without_tls_at_a_tls_port_gets_an_error(secured):
    http = Http(secured.running[0].client_url)
    answer = http.get("/version")
    assert (answer.status, answer.text) == (400, "this port speaks TLS: use https://\n")
    assert http.ask("POST", "/v3/kv/put", "x" * 20000).status == 400


def test_a_client_with_tls_at_a_plaintext_port_is_refused(new_cluster):
    replica = new_cluster(1).running[0]
    with pytest.raises(ssl.SSLError):
        ssl.create_default_context().wrap_socket(Client(replica.client_url).socket,
                                                 server_hostname="127.0.0.1")
    eventually(lambda: replica.said(r"it speaks TLS, and this port is one without \(http://\)"))
