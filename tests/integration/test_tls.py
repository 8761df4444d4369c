"""Whoever shows the right certificate is served, and nobody else."""
import dataclasses
import shutil
import signal
import socket
import ssl

import pytest

from harness import h2
from harness.authority import Authority
from harness.rpc import pb
from harness.waiting import PATIENCE, eventually

# Only with the server's answer does a client of TLS 1.3 know that it is accepted, and have a
# session.
HELLO = h2.HELLO + h2.settings()


@pytest.fixture
def secured(new_cluster, authority):
    return new_cluster(3, authority=authority)


class Client:
    """Keeps the session of its first connection."""

    def __init__(self, url, certificate=None, *, trusts, version=ssl.TLSVersion.TLSv1_3):
        self.port, self.session = int(url.rsplit(":", 1)[1]), None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.minimum_version = self.context.maximum_version = version
        self.context.check_hostname = False
        self.context.load_verify_locations(trusts)
        if certificate:
            self.context.load_cert_chain(certificate.cert, certificate.key)

    def connect(self):
        """Returns "new" or "resumed"."""
        with self._socket() as connection:
            connection.sendall(HELLO)
            assert connection.recv(1)
            self.session = self.session or connection.session
            return "resumed" if connection.session_reused else "new"

    def refusal(self):
        """The reason. It says nothing itself, which would reset the connection and lose that."""
        with pytest.raises(ssl.SSLError) as refused, self._socket() as connection:
            connection.recv(1)
        return refused.value.reason

    def _socket(self):
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        return self.context.wrap_socket(raw, session=self.session)


def replace(certificate, by):
    """Renews it under its names, and those who are trusted with it."""
    for old, new in zip(dataclasses.astuple(certificate), dataclasses.astuple(by)):
        shutil.copyfile(new, old)


def reload(cluster, sentence="The certificates were reloaded"):
    before = {replica: len(replica.log_text()) for replica in cluster.running}
    for replica in cluster.running:
        replica.signal(signal.SIGHUP)
    eventually(lambda: all(sentence in replica.log_text()[n:] for replica, n in before.items()))


def test_replicas_and_clients_show_certificates_to_each_other(secured):
    for replica in secured.replicas.values():
        secured.put("k", replica.name, at=replica)
        assert secured.get("k", at=replica).value == replica.name
        with secured.rpc(at=replica) as rpc:
            answer = rpc.call("etcdserverpb.KV/Range", pb.RangeRequest(key=b"k"))
            assert answer.kvs[0].value.decode() == replica.name


def test_a_client_without_a_certificate_of_this_authority_is_refused(secured, authority, tmp_path):
    replica, stranger = secured.replicas["a"], Authority(tmp_path, "stranger").certificate("client")
    for url in replica.client_url, replica.peer_url:
        assert Client(url, trusts=authority.cert).refusal() == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
        assert Client(url, stranger, trusts=authority.cert).refusal() == "TLSV1_ALERT_UNKNOWN_CA"
    port = int(replica.client_url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain:
        plain.sendall(HELLO)
        assert plain.recv(1) == b""


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_a_session_is_resumed_until_the_certificates_are_read_again(
        secured, authority, tmp_path, version):
    first, second = (Client(secured.replicas["a"].client_url, secured.client,
                            trusts=authority.cert, version=ssl.TLSVersion[version])
                     for _ in range(2))
    assert [first.connect(), first.connect()] == ["new", "resumed"]
    reload(secured)
    assert [first.connect(), second.connect(), second.connect()] == ["new", "new", "resumed"]

    newer = Authority(tmp_path, "newer").certificate("replica")
    replace(secured.certificate, newer)
    reload(secured)
    second.context.load_verify_locations(newer.authority)
    assert second.refusal() == "TLSV1_ALERT_UNKNOWN_CA"


def test_certificates_of_another_authority_and_kind_are_taken_without_a_restart(secured, tmp_path):
    newer, c = Authority(tmp_path, "newer", key="rsa:2048"), secured.replicas["c"]
    secured.put("k", "before")
    replace(secured.certificate, newer.certificate("replica"))
    reload(secured)

    secured.client = newer.certificate("client")
    secured.credentials = secured.client.for_etcdctl
    secured.put("k", "after")
    c.kill()
    c.start()
    assert eventually(lambda: secured.get("k", at=c)).value == "after"
    assert Client(c.client_url, secured.client, trusts=newer.cert).connect() == "new"


def test_a_key_that_is_none_changes_nothing(secured):
    secured.certificate.key.write_text("nonsense\n")
    reload(secured, "The certificates in use remain unchanged")
    assert all(replica.said(f"cannot use the key '{secured.certificate.key}'")
               for replica in secured.running)
    secured.put("k", "served")
