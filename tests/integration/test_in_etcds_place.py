"""Where a replica listens, and by which names it may be asked."""
import pathlib
import re
import shutil
import socket
import tempfile

import pytest
from harness.cluster import Cluster
from harness.etcd import Etcd
from harness.places import BIN
from harness.program import Daemon, run
from harness.waiting import ProgramError, eventually

UNIT = pathlib.Path("/lib/systemd/system/etcd.service")


@pytest.fixture
def sockets():
    """A folder for sockets, whose path has room in 107 bytes."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tenure-"))
    yield folder
    shutil.rmtree(folder)


def curl(url, *options):
    """The body, and the status at its end."""
    return run("curl", "-sS", "--write-out", "%{http_code}", *options, url)


def by_socket(path, url, *options):
    return curl(f"http://x{url}", "--unix-socket", path, *options)


# ---- a socket of the host ----

@pytest.fixture
def by_sockets(sockets, new_cluster, authority):
    """A replica that listens on TCP and on two sockets, one of them with TLS."""
    certificate = authority.certificate("local", san="IP:127.0.0.1,DNS:localhost")
    cluster = new_cluster(
        1, f"--listen-client-http-urls=unix://{sockets}/core,unixs://{sockets}/tls",
        f"--cert-file={certificate.cert}", f"--key-file={certificate.key}", "--log-level=debug")
    cluster.put_by_socket = lambda: run("etcdctl", "--endpoints", f"unix://{sockets}/core",
                                        "put", "k", "v")
    return cluster


def test_clients_can_use_a_socket_of_the_host(by_sockets, sockets, authority):
    by_sockets.put_by_socket()

    assert by_sockets.get("k").value == "v"
    core = f"--endpoints=unix://{sockets}/core"
    tls = f"--endpoints=unixs://{sockets}/tls", f"--cacert={authority.cert}"
    for words in [core], [f"--endpoints=unix:{sockets}/core"], tls:
        assert "leader" in run(BIN / "tenurectl", *words, "core", "members")
    assert "v" in run(BIN / "tenurectl", core, "cache", "--once", "k")  # by libtenure
    assert "Verify return code: 0" in run(
        "openssl", "s_client", "-unix", sockets / "tls", "-CAfile", authority.cert,
        "-verify_hostname", "localhost", "-verify_return_error")
    eventually(lambda: by_sockets.replicas["a"].said(r"Client unix:\d+ is gone"))  # a process


def test_a_socket_goes_with_its_replica_and_one_that_was_left_is_replaced(by_sockets, sockets):
    replica, path = by_sockets.replicas["a"], sockets / "core"
    replica.kill()
    assert path.is_socket()
    replica.start()
    eventually(by_sockets.put_by_socket)
    replica.stop()
    assert not path.exists()


def test_nothing_that_is_in_use_is_replaced_by_a_socket(by_sockets, sockets, tmp_path):
    (sockets / "file").write_text("kept")
    for name, why in ("core", "Address already in use"), ("file", "File exists"):
        with pytest.raises(ProgramError, match=why):
            run(BIN / "tenure-core", "--data-dir", tmp_path / "other", "--listen-client-urls",
                f"unix://{sockets / name}")
    assert (sockets / "file").read_text() == "kept"
    by_sockets.put_by_socket()


# ---- ports of their own ----

@pytest.fixture
def probed(new_cluster, ports, sockets):
    """A replica with a port and a socket for probes alone."""
    url = f"http://127.0.0.1:{ports.take()}"
    cluster = new_cluster(1, f"--listen-metrics-urls={url},unix://{sockets}/probes",
                          "--max-connections=100")
    cluster.probes = url
    return cluster


def test_a_port_for_probes_serves_nothing_else(probed, sockets):
    assert curl(f"{probed.probes}/readyz") == "ok\n200"
    assert by_socket(sockets / "probes", "/livez") == "ok\n200"
    assert "\netcd_server_has_leader 1\n" in curl(f"{probed.probes}/metrics")
    for url, *body in ["/version"], ["/v3/kv/range", "-d", '{"key":"aw=="}']:
        assert curl(probed.probes + url, *body).endswith("404")
    with pytest.raises(ProgramError):
        run("etcdctl", "--endpoints", probed.probes, "--command-timeout=1s", "get", "k")


def test_probes_take_no_connection_of_clients(probed):
    host, port = probed.probes.removeprefix("http://").split(":")
    served = 0
    for connection in [socket.create_connection((host, int(port))) for _ in range(300)]:
        try:
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            served += connection.recv(100).startswith(b"HTTP/1.1 200 ")
        except OSError:
            pass
    assert 240 <= served <= 256
    assert curl(f"{probed.endpoints}/livez").endswith("200")


@pytest.mark.parametrize("host", [
    "core.example", "core.example:2379", "core.example.:1", "x.core.example", "core.example:1:2",
    "::1", "[::1]", "[::1]:2379", "127.0.0.1", "*"])
def test_a_name_by_which_it_is_asked_is_taken_as_by_etcd(shared, ports, wants_etcd, host):
    names = "--host-whitelist=core.example,::1"
    engines = shared("named", lambda folder: [Cluster(folder, ports, 1, names),
                                              Etcd(folder, ports, names)])
    ours, etcds = [curl(f"{engine.endpoints}/version", "-H", f"Host: {host}")[-3:]
                   for engine in engines]
    assert ours == etcds


def test_a_page_that_gave_its_name_our_address_is_refused(new_cluster, ports, sockets):
    tls = f"https://127.0.0.1:{ports.take()}"
    core = new_cluster(1, f"--listen-client-http-urls={tls}", "--auto-tls",
                       f"--listen-metrics-urls=unix://{sockets}/probes",
                       "--host-whitelist=core.example")
    evil = "-H", "Host: evil.example:2379"

    assert curl(f"{core.endpoints}/v3/kv/range", *evil, "-H", "Origin: http://evil.example:2379",
                "-d", '{"key":"aw=="}') == (
                    "Misdirected Request: this name is not in --host-whitelist\n421")

    # With TLS, by gRPC and on a port for probes the name is of no interest.
    assert curl(f"{tls}/health", "-k", *evil).endswith("200")
    assert by_socket(sockets / "probes", "/livez", *evil).endswith("200")
    core.put("k", "v")


# ---- in etcd's place ----

def test_debians_unit_of_etcd_starts_it_with_the_programs_name_changed(tmp_path, ports, wants_etcd):
    text, host = UNIT.read_text(), socket.gethostname()
    assert "\nExecStart=/usr/bin/etcd $DAEMON_ARGS\n" in text
    environment = dict(re.findall(r"^Environment=(ETCD_\w+)=(.*)$", text.replace(
        "%H", host).replace("/var/lib", str(tmp_path)), re.M))
    client, peer = (f"http://localhost:{ports.take()}" for _ in range(2))
    data = pathlib.Path(environment["ETCD_DATA_DIR"])
    data.parent.mkdir(parents=True, exist_ok=True)

    Daemon(tmp_path / "core.log", BIN / "tenure-core", **{
        **environment, "ETCD_LISTEN_CLIENT_URLS": client, "ETCD_ADVERTISE_CLIENT_URLS": client,
        "ETCD_LISTEN_PEER_URLS": peer}).start()

    ask = BIN / "tenurectl", f"--endpoints={client}", "--json=short", "core", "members"
    eventually(lambda: f'"{host}"' in run(*ask))
    assert list(data.glob("log-*"))


def test_data_of_etcd_are_left_alone(tmp_path):
    (tmp_path / "old/member/wal").mkdir(parents=True)
    with pytest.raises(ProgramError, match="contains data of etcd .*give another --data-dir"):
        run(BIN / "tenure-core", "--data-dir", tmp_path / "old")
    assert [path.name for path in (tmp_path / "old").iterdir()] == ["member"]


def test_a_request_is_as_large_as_the_settings_let_it_be(new_cluster):
    core = new_cluster(1, "--max-request-bytes=100")
    core.put("k", "v")
    with pytest.raises(ProgramError, match="request is too large"):
        core.put("k", "x" * 200)


def test_the_largest_request_that_can_be_set_is_accepted(new_cluster):
    import grpc  # it takes a moment to load
    # A request has 5 s and two election timeouts, which a slow machine needs for 64 MiB.
    core = new_cluster(1, f"--max-request-bytes={64 << 20}", "--election-timeout=20000",
                       "--heartbeat-interval=1000")
    channel = grpc.insecure_channel(core.endpoints.removeprefix("http://"),
                                    options=[("grpc.max_send_message_length", -1)])
    put = b"\x0a\x01k\x12\xf6\xff\xff\x1f"  # key "k", and a value of that many bytes
    put += bytes((64 << 20) - len(put) - 2)
    answer = channel.unary_unary("/etcdserverpb.KV/Put")(put, timeout=60)
    assert answer


# ---- from an etcd, and back ----

def mirrored(engine, to, tmp_path):
    """The keys that one has, once they are copied to the other and follow its changes."""
    def keys(core):
        return [(kv.key, kv.value) for kv in core.range("")]

    mirror = Daemon(tmp_path / f"to-{to.endpoints.rsplit(':', 1)[1]}.log", "etcdctl",
                    "--endpoints", engine.endpoints, "make-mirror", to.endpoints).start()
    eventually(lambda: keys(to) == keys(engine))
    engine.put("key000", "changed")
    engine.delete("key001")
    eventually(lambda: keys(to) == keys(engine))
    mirror.kill()
    return keys(to)


def test_keys_move_from_an_etcd_to_a_core_and_back(etcd, new_cluster, tmp_path, ports):
    for hundred in range(3):
        etcd.txn(compare=[], otherwise=[], then=[
            f"put key{n:03} value{n}" for n in range(100 * hundred, 100 * hundred + 100)])
    lease = etcd.grant(600)
    etcd.put("locks/held", "x", lease=lease)
    core = new_cluster(1)

    assert len(mirrored(etcd, core, tmp_path)) == 300

    # A key of a lease comes without it, and would stay for ever: its holder puts it again.
    for key in etcd.lease(lease).keys:
        assert core.delete(key) == 1
    ours = core.grant(600)
    core.put("locks/held", "x", lease=ours)
    assert core.lease(ours).keys == ["locks/held"]

    (tmp_path / "back").mkdir()
    core.put("key001", "here again")
    assert len(mirrored(core, Etcd(tmp_path / "back", ports), tmp_path)) == 300


@pytest.mark.parametrize("size", [1, 4000000])
def test_etcdctl_says_that_a_snapshot_of_ours_is_none_of_its_own(new_cluster, tmp_path, size):
    core = new_cluster(1)
    for n in range(0, size, 1000000):
        core.put(f"large{n}", "x" * min(size, 90000))
    core.etcdctl("snapshot", "save", tmp_path / "snapshot")
    with pytest.raises(ProgramError, match="^etcdctl ended with status 1: Error: invalid database"):
        run("etcdctl", "snapshot", "status", tmp_path / "snapshot")
