"""Each difference from etcd is in the manual page, and in a test."""
import re

import pytest

from harness.differences import DIES, DIFFERENCES
from harness.places import TOP
from harness.rpc import Refused, pb


def bullets():
    """The items of the section, as text."""
    page = (TOP / "agent/tenure-core/tenure-core.8").read_text()
    section = re.search(r"^\.Sh DIFFERENCES FROM ETCD$(.*?)^\.Sh ", page, re.M | re.S)[1]
    items = re.split(r"^\.It$", section.partition(".Bl")[2], flags=re.M)[1:]
    return [" ".join(re.sub(r"^\.[A-Z][a-z]", "", item, flags=re.M).split()) for item in items]


def test_the_manual_page_and_the_list_have_the_same():
    items, listed = bullets(), [difference.says for difference in DIFFERENCES]
    assert [says for says in listed if sum(says in item for item in items) != 1] == []
    assert [item for item in items if not any(says in item for says in listed)] == []


def test_each_has_an_example_or_a_test():
    tests = "".join(file.read_text() for file in (TOP / "tests/integration").glob("test_*.py"))
    assert [difference.says for difference in DIFFERENCES
            if not difference.call and f"def {difference.test}(" not in tests] == []


def test_both_answer_each_example_as_listed(fresh_pair):
    wrong = []
    for difference in filter(lambda difference: difference.call, DIFFERENCES):
        for connection, expected in zip(fresh_pair.connections,
                                        (difference.ours, difference.etcds)):
            if expected is DIES:
                continue
            for name, fields in difference.before:
                fresh_pair.on(connection, name, **fields)
            name, fields = difference.call
            answer = str(fresh_pair.on(connection, name, **fields))
            if not re.search(expected, answer, re.S):
                wrong.append((difference.says, answer))
    assert wrong == []


def test_a_member_is_not_left_without_urls(shared_cluster):
    member = shared_cluster.members()["a"]
    with shared_cluster.rpc() as rpc:
        with pytest.raises(Refused, match="given member URLs are invalid"):
            rpc.call("etcdserverpb.Cluster/MemberUpdate", pb.MemberUpdateRequest(ID=member.id))
