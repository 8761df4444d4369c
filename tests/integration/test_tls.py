"""Whoever shows the right certificate is served, and nobody else."""
import pytest
from harness.authority import Authority
from harness.rpc import pb
from harness.waiting import ProgramError


@pytest.fixture
def secured(new_cluster, authority):
    return new_cluster(3, authority=authority)


def test_replicas_and_clients_show_certificates_to_each_other(secured):
    for replica in secured.replicas.values():
        secured.put("k", replica.name, at=replica)
        assert secured.get("k", at=replica).value == replica.name
        with secured.rpc(at=replica) as rpc:
            answer = rpc.call("etcdserverpb.KV/Range", pb.RangeRequest(key=b"k"))
            assert answer.kvs[0].value.decode() == replica.name


def test_a_client_without_a_certificate_of_this_authority_is_refused(secured, tmp_path):
    authority = f"--cacert={secured.client.authority}"
    stranger = Authority(tmp_path, "stranger").certificate("client")
    for shown in ([authority],
                  [authority, f"--cert={stranger.cert}", f"--key={stranger.key}"]):
        with pytest.raises(ProgramError):
            secured.shown(*shown, "--dial-timeout=1s", "--command-timeout=1s").get("k")
    with pytest.raises(ProgramError):
        secured.shown("--command-timeout=1s", "--insecure-transport").etcdctl(
            "--endpoints", secured.endpoints.replace("https", "http"), "get", "k")
