"""Which clients a replica takes, and which TLS, by etcd's settings; and what it makes itself."""
import re
import signal

import pytest
from harness.authority import Authority
from harness.places import BIN
from harness.program import run
from harness.waiting import ProgramError, eventually


# ---- which clients ----

@pytest.fixture
def bad(authority):
    return authority.certificate("bad", san="DNS:web2.example.org")


def takes(core, certificate):
    return core.shown(*certificate.for_etcdctl).put("k", "v")


def refuses(core, certificate, sentence):
    """That client of the replica, whose log says why (once a minute)."""
    with pytest.raises(ProgramError):
        core.shown(*certificate.for_etcdctl, "--command-timeout=1s").put("k", "v")
    said = eventually(lambda: re.search(r"Refused client 127\.0\.0\.1:\d+: .*",
                                        core.replicas["a"].log_text()))
    assert sentence in said[0]


def restarted(core, *options):
    """With further options, by which its own client may be refused."""
    replica = core.replicas["a"]
    replica.stop()
    replica.command += options
    replica.start()
    eventually(lambda: replica.log_text().count(" serves clients on ") == 2)
    return core


@pytest.mark.parametrize("when", [
    {}, {"expires": "20200101000000Z"},
    {"since": "20400101000000Z", "expires": "20410101000000Z"}], ids=["now", "old", "tomorrow"])
def test_a_revoked_client_is_refused_whenever_the_list_counts(new_cluster, authority, bad, when):
    revoked = authority.revocation_list(bad, **when)
    core = new_cluster(1, f"--client-crl-file={revoked}", authority=authority)
    takes(core, core.client)
    refuses(core, bad, "certificate revoked")


def test_a_list_is_taken_in_der_and_reloaded(new_cluster, authority, bad):
    file = authority.revocation_list(bad)
    run("openssl", "crl", "-in", file, "-outform", "DER", "-out", file)
    core = new_cluster(1, f"--client-crl-file={file}", authority=authority)
    refuses(core, bad, "certificate revoked")

    authority.revocation_list(core.client)
    core.replicas["a"].signal(signal.SIGHUP)
    eventually(lambda: core.replicas["a"].said("certificates were reloaded"))
    takes(core, bad)
    refuses(core, core.client, "certificate revoked")


def test_clients_are_refused_if_the_list_is_of_another_authority(
        tmp_path, new_cluster, authority, bad):
    others = Authority(tmp_path, "other").revocation_list()
    core = restarted(new_cluster(1, authority=authority), f"--client-crl-file={others}")
    refuses(core, bad, "there is no revocation list of the CA that signed its certificate")


@pytest.mark.parametrize("allowed", [
    "--client-cert-allowed-hostname=web1.example.org,web9.example.org",
    "--client-cert-allowed-cn=someone,good one"])
def test_only_clients_whose_host_or_name_is_allowed_are_taken(new_cluster, authority, bad, allowed):
    good = authority.certificate("good", subject="/CN=good one", san="DNS:web1.example.org")
    core = restarted(new_cluster(1, authority=authority), allowed)
    takes(core, good)
    refuses(core, bad, "its certificate has none of the names, or hosts, that are allowed")


@pytest.mark.parametrize("option, file, sentence", [
    ("--client-crl-file", "{0.key}",
     "cannot use the certificate revocation list '{0.key}': no start line."),
    ("--cert-file", "nowhere.pem",
     "cannot use the certificate 'nowhere.pem': No such file or directory."),
])
def test_a_file_that_is_none_is_named(authority, tmp_path, option, file, sentence):
    given = authority.certificate("server")
    with pytest.raises(ProgramError) as refused:
        run(BIN / "tenure-core", "--data-dir", tmp_path / "data", "--listen-client-urls",
            "https://127.0.0.1:1", "--cert-file", given.cert, "--key-file", given.key,
            "--trusted-ca-file", given.authority, option, file.format(given))
    assert sentence.format(given) in refused.value.err


# ---- which TLS ----

def shakes_hands(core, *options):
    """The protocol and the cipher suite that both agree on, or "(NONE)"."""
    shown = core.client
    try:
        said = run("openssl", "s_client", "-connect", core.endpoints.removeprefix("https://"),
                   "-CAfile", shown.authority, "-cert", shown.cert, "-key", shown.key, *options)
    except ProgramError as refused:
        said = refused.out
    return re.search(r"^New, (.*)", said, re.M)[1]


@pytest.mark.parametrize("option, agreed", [
    ("--cipher-suites=TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", {  # a name of Go's
        "-tls1_2": "TLSv1.2, Cipher is ECDHE-ECDSA-CHACHA20-POLY1305",
        "-tls1_2 -cipher ECDHE-ECDSA-AES128-GCM-SHA256": "NONE",
        "-tls1_3": "TLSv1.3"}),  # whose suites are the default ones
    ("--tls-min-version=TLS1.3", {"-tls1_3": "TLSv1.3", "-tls1_2": "NONE"}),
    ("--tls-max-version=TLS1.2", {"-tls1_2": "TLSv1.2", "-tls1_3": "NONE"})])
def test_versions_and_cipher_suites_are_chosen(new_cluster, authority, option, agreed):
    core = new_cluster(1, option, authority=authority)
    for offer, outcome in agreed.items():
        assert outcome in shakes_hands(core, *offer.split())


# ---- self-signed ----

def test_a_replica_makes_a_certificate_of_its_own(new_cluster, ports, authority):
    url = f"https://127.0.0.1:{ports.take()}"
    core = new_cluster(1, f"--listen-client-http-urls={url}", "--auto-tls")
    etcdctl = "etcdctl", "--endpoints", url
    run(*etcdctl, "--insecure-transport=false", "--insecure-skip-tls-verify", "put", "k", "v")
    assert core.get("k").value == "v"
    with pytest.raises(ProgramError):
        run(*etcdctl, "--command-timeout=1s", "--cacert", authority.cert, "get", "k")
    assert "IP Address:127.0.0.1" in certificate_at(url, "-ext", "subjectAltName")


def certificate_at(url, *what):
    shown = run("openssl", "s_client", "-connect", url.removeprefix("https://"))
    return run("openssl", "x509", "-noout", *what, stdin=shown)


def test_replicas_speak_tls_with_certificates_that_each_makes_itself(new_cluster):
    core = new_cluster(3, "--peer-auto-tls")
    core.put("k", "v")
    for replica in core.replicas.values():
        assert certificate_at(replica.peer_url, "-subject", "-issuer").split("\n")[:2] == [
            "subject=O = tenure", "issuer=O = tenure"]
