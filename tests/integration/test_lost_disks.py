"""A member is its id and its data directory. A host whose disk was lost, replaced or restored starts
as the same member, with unchanged settings, and counts for nothing: what it had acknowledged is not
on that disk."""
import shutil

import pytest
from harness.waiting import eventually


def lose_disk(replica):
    replica.kill()
    shutil.rmtree(replica.data)


@pytest.mark.parametrize("state, said_by, said", [
    ("new", 1, "another data directory than the cluster has recorded"),
    ("existing", 0, "has a data directory already; if its disk is lost")])
def test_a_member_whose_disk_is_lost_elects_nobody(cluster, state, said_by, said):
    a = cluster.leader()
    b, c = (r for r in cluster.replicas.values() if r is not a)
    c.kill()
    cluster.put("precious", "acknowledged", at=a)
    a.kill()
    lose_disk(b)
    b.command[b.command.index("--initial-cluster-state") + 1] = state

    c.start()
    b.start()
    eventually(lambda: said in (b, c)[said_by].log_text())
    a.start()

    eventually(lambda: cluster.put("later", "y", at=c))
    for replica in a, c:
        assert cluster.get("precious", at=replica)
