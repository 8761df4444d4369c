"""Each replica is restarted in turn while clients write at each and hold leases."""
from harness.restarts import Crowd


def test_only_clients_of_the_replica_that_restarts_get_errors(cluster):
    crowd = Crowd(cluster)
    for _ in range(2):
        crowd.restart_each()
    crowd.end()
