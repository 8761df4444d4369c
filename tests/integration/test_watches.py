"""Watches, while replicas die."""
from harness.waiting import eventually


def test_a_watch_has_no_gap_when_the_replica_that_it_asked_is_killed(cluster):
    revisions = [cluster.put("k", "0")]
    watch = cluster.watch("k", revisions[0])
    asked = eventually(lambda: next((replica for replica in cluster.running if
                                     replica.metric("etcd_debugging_mvcc_watcher_total")), None))

    asked.kill()
    for n in range(5):
        revisions.append(eventually(lambda: cluster.put("k", str(n))))

    # Each revision once and in order, also of a put that failed and was made all the same.
    told = eventually(lambda: (told := [event.revision for event in watch.events()])
                      and told[-1] >= revisions[-1] and told)
    assert told == list(range(revisions[0], told[-1] + 1))
