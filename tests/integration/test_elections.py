"""Observers of an election, while replicas die."""
import base64
import http.client
import json

from harness.waiting import PATIENCE


def observe(replica, **headers):
    """What the replica tells observers of the election "e", one message after the other."""
    connection = http.client.HTTPConnection(replica.client_url.removeprefix("http://"),
                                            timeout=PATIENCE)
    name = base64.b64encode(b"e").decode()
    connection.request("POST", "/v3/election/observe", json.dumps({"name": name}), headers)
    answer = connection.getresponse()
    while line := answer.readline():
        yield json.loads(line)


def left_alone(cluster):
    """Kills all replicas but one, which is returned and no longer has a majority."""
    alone, *others = cluster.replicas.values()
    for replica in others:
        replica.kill()
    return alone


def test_a_replica_without_a_majority_reports_the_leader_to_no_observer(cluster):
    cluster.put("e/1", "it")
    assert "result" in next(observe(cluster.replicas["a"]))

    alone = left_alone(cluster)

    assert "error" in next(observe(alone))


def test_an_observer_that_wants_a_leader_is_told_that_there_is_none(cluster):
    cluster.put("e/1", "it")
    observer = observe(cluster.replicas["a"], **{"Grpc-Metadata-hasleader": "true"})
    assert "result" in next(observer)

    left_alone(cluster)

    assert "etcdserver: no leader" in next(observer)["error"]["message"]
