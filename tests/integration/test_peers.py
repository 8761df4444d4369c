"""Who may speak as a member: whose certificate is for the host of the member's peer URL."""
import re

import pytest

from harness import peer
from harness.authority import Authority
from harness.cluster import Cluster, Replica
from harness.ports import listens
from harness.waiting import ProgramError, eventually

MALFORMED = "sent a malformed frame"  # what a replica says of a peer that it has listened to


def host(name):
    return f"127.77.0.{'abc'.index(name) + 1}"


class Peers(Cluster):
    """A core with TLS between its members alone. @certificates: of each, by name."""

    def __init__(self, folder, ports, certificates, *options):
        self.certificates, self.peer_options = certificates, options
        super().__init__(folder, ports, len(certificates))

    def new_replica(self, name):
        shown = self.certificates[name]
        replica = self.replicas[name] = Replica(
            name, self.folder, self.ports.take(), self.ports.take(), *self.peer_options,
            f"--peer-cert-file={shown.cert}", f"--peer-key-file={shown.key}",
            f"--peer-trusted-ca-file={shown.authority}")
        replica.peer_url = replica.peer_url.replace("http://127.0.0.1", f"https://{host(name)}")
        return replica

    def id(self, name):
        return self.member_ids()[self.replicas[name].peer_url]

    def cluster_id(self):
        return int(self.replicas["a"].said("of cluster ([0-9a-f]+)")[1], 16)

    def greet(self, as_member, certificate):
        """To the replica a, with b's data directory."""
        return peer.greet(self.replicas["a"].peer_url, self.cluster_id(), as_member, certificate,
                          self.certificates["a"].authority,
                          peer.directory_of(self.replicas["b"]))


def own_certificates(authority):
    return {name: authority.certificate(name, subject=f"/CN=core-{name}", san=f"IP:{host(name)}",
                                        usages="serverAuth,clientAuth") for name in "abc"}


@pytest.fixture
def peers(tmp_path, ports, authority):
    return Peers(tmp_path, ports, own_certificates(authority))


def test_a_replica_that_is_not_the_member_that_it_claims_to_be_is_refused_and_not_read(peers, authority):
    a, own, b_id = peers.replicas["a"], peers.certificates, peers.id("b")
    agent = authority.certificate("agent", subject="/O=x/CN=agent", san=f"IP:{host('b')}",
                                  usages="clientAuth")
    other = authority.certificate("other", subject="/CN=ev\nil",
                                  san="IP:127.77.0.9,DNS:other.example")
    server = authority.certificate("server", san=f"IP:{host('b')}", usages="serverAuth")
    for member, shown, reason in (
            (b_id, agent, r"CN=agent,O=x\) is not valid for a server"),
            (peers.id("c"), other, rf"CN=ev\\0Ail\) is not for the host .*{host('c')}"),
            (b_id, own["c"], f"claims to be member 0*{b_id:x} .*CN=core-c"),
            (0x123456, own["b"], "member 0000000000123456 .*not a member of the cluster"),
            (b_id, server, "unsuitable certificate purpose"),
            (b_id, None, "peer did not return a certificate")):
        peers.greet(member, shown)
        eventually(lambda: a.said(reason))
    assert not a.said(MALFORMED)

    peers.greet(b_id, own["b"])
    eventually(lambda: a.said(f"Refused a link from member 0*{b_id:x} .*{MALFORMED}"))


def test_a_replica_that_joins_learns_its_id_if_its_certificate_is_for_its_url(peers, authority):
    a, c = peers.replicas["a"], peers.replicas["c"]
    own = peers.certificates
    assert peer.ask_id(a.peer_url, c.peer_url, own["b"], authority.cert) is None
    assert peer.ask_id(a.peer_url, c.peer_url, own["c"], authority.cert,
                       peer.directory_of(c)) == peers.id("c")
    assert peer.ask_id(a.peer_url, c.peer_url, own["c"], authority.cert) == 0


def test_a_refusal_is_logged_once_in_a_while_and_the_expiry_of_a_certificate(peers):
    a = peers.replicas["a"]
    assert a.said("The certificate of --peer-cert-file expires on 20[0-9-]+, .*: renew it")
    for _ in range(10):
        peers.greet(peers.id("c"), peers.certificates["b"])
    peers.greet(peers.id("b"), peers.certificates["b"])
    eventually(lambda: a.said(MALFORMED))
    claims = re.findall(f"claims to be member 0*{peers.id('c'):x} ", a.log_text())
    assert 1 <= len(claims) < 10


def test_nothing_is_sent_to_a_stranger_that_answers_in_a_members_place(peers, authority):
    a, c, c_id = peers.replicas["a"], peers.replicas["c"], peers.id("c")
    other = authority.certificate("other", subject="/CN=other", san="IP:127.77.0.9")
    for file in "cert", "key":
        getattr(peers.certificates["c"], file).write_bytes(getattr(other, file).read_bytes())
    c.kill()
    c.start()
    eventually(lambda: a.said(f"Refused the answer of member 0*{c_id:x} at .*: the subjectAltName "
                              r"of its certificate \(CN=other\) is not for the host"))
    eventually(lambda: peers.put("k", "of the others", at=a))


def test_a_revocation_list_of_another_authority_is_none_for_this_one(peers, tmp_path):
    a = peers.replicas["a"]
    a.kill()
    a.command.append(f"--peer-crl-file={Authority(tmp_path, 'another').revocation_list()}")
    a.start()
    eventually(lambda: a.said("Refused the answer of member .*: there is no revocation list of "
                              "the CA that signed its certificate"))


@pytest.mark.parametrize("option, refusal", [
    ("--peer-cert-allowed-cn=tenure", r"CN=core-b\) is not PeerCertAllowedCN=tenure"),
    ("--peer-cert-allowed-hostname=cluster.example",
     r"CN=core-b\) is not for PeerCertAllowedHostname=cluster.example"),
])
def test_members_may_share_a_certificate_that_the_settings_name(
        tmp_path, ports, authority, option, refusal):
    shared = authority.certificate("common", subject="/CN=tenure", san="DNS:cluster.example")
    peers = Peers(tmp_path, ports, dict.fromkeys("abc", shared), option)
    peers.put("k", "v")
    peers.greet(peers.id("b"), own_certificates(authority)["b"])
    eventually(lambda: peers.replicas["a"].said(refusal))
    assert not peers.replicas["a"].said(MALFORMED)


# ---- a replica that is alone ----

def test_the_port_for_members_is_there_while_there_is_somebody_to_join(new_cluster):
    core = new_cluster(1)
    alone, stranger = core.leader(), 0x12345
    cluster_id = int(alone.said("of cluster ([0-9a-f]+)")[1], 16)
    port = int(alone.peer_url.rsplit(":", 1)[1])
    with pytest.raises(ProgramError, match="AllowPlaintextPeers=yes"):
        core.etcdctl("member", "add", "x", "--peer-urls", "http://10.0.0.9:2380")
    assert not listens(port)

    url = f"http://127.0.0.1:{core.ports.take()}"
    core.etcdctl("member", "add", "x", "--learner", "--peer-urls", url)

    eventually(lambda: listens(port))
    assert eventually(lambda: peer.greet(alone.peer_url, cluster_id, stranger))
    assert not alone.said(MALFORMED)

    core.etcdctl("member", "remove", f"{core.member_ids()[url]:x}")
    assert eventually(lambda: peer.greet(alone.peer_url, cluster_id, stranger))
