"""Whatever a core says, the agent lives, lets go in time, is not busy with it, says so in a few
sentences, announces each loss on the bus, gives systemd no orders of others, and holds a place
again once the core is good."""
import functools
import time

import grpc
import pytest

from harness.dbus import changes_of
from harness.liar import Cost, Refuse
from harness.lies import CUT, LIES, LOSE, TALKS, changing, mix, refusing, saying, tell
from harness.notifications import Notifications
from harness.rpc import pb
from harness.waiting import eventually

TTL = 1000  # ms
PREFIX = b"/tenure/default/"
OWN = PREFIX + b"nodes/h1"


@pytest.fixture
def core(liar):
    return liar


@pytest.fixture
def agents(agents):
    """Makes the host h1 in the cluster `default`."""
    systemd = Notifications()
    yield functools.partial(agents, "h1", Cluster="default", environment=systemd.environment)
    systemd.judge()
    systemd.close()


@pytest.fixture
def password(tmp_path):
    (tmp_path / "password").write_text("secret")
    return {"User": "u", "PasswordFile": tmp_path / "password"}


@pytest.fixture
def agent(agents):
    return agents(TTL=f"{TTL}ms", LogLevel="info")


def losses(agent):
    return agent.log_text().count("lost its place")


def is_back(agent, liar):
    """Once it has renewed twice, nothing that it was told before takes its place away."""
    liar.be_good()
    eventually(lambda: max(liar.renewed.values(), default=0) > 1)

    def holds():
        lease = agent.status().lease_id
        return agent.holds() and liar.get(OWN).lease == lease and liar.renewed[lease] > 1

    eventually(holds)


def bears(agent, liar, lie, *, until=None, lines=40, cpu=.5, calls=60, memory=256):
    """It is told a lie for longer than its lease lasts, and the truth again."""
    earlier = losses(agent)
    watch = agent.watch()
    unseen = losses(agent) - earlier  # the watch may have come too late for these, or not
    cost, before = Cost(agent, liar), len(agent.log_text().splitlines())
    tell(liar, *lie)
    liar.outlast(TTL)
    if until:
        eventually(until, patience=200)
    cost.is_modest(cpu, calls, memory)
    said = agent.log_text().splitlines()[before:]
    assert len(said) <= lines, said
    assert agent.log_text().count("is void") <= 2  # another core is behind the address
    is_back(agent, liar)
    eventually(lambda: 0 <= losses(agent) - earlier -
               [event.event for event in watch.events()].count("LeaseLost") <= unseen)


# ---- what fits each client ----

@pytest.mark.parametrize("lie", LIES)
def test_an_agent_outlives_a_lie(lie, agent, liar):
    bears(agent, liar, LIES[lie])


@pytest.mark.parametrize("talk", TALKS)
def test_an_agent_outlives_bytes_that_no_core_sends(talk, agent, liar):
    accepted, endless = liar.wire.accepted, "without" in talk or "GiB" in talk
    bears(agent, liar, (None, lambda liar: liar.talk(TALKS[talk])), cpu=1 if endless else .5)
    assert liar.wire.accepted - accepted <= 30


def test_an_agent_outlives_a_random_mix_of_lies(draw, agent, liar):
    bears(agent, liar, mix(draw), lines=100, calls=200)


# ---- what only an agent asks for ----

def no_history(call):
    answer = call.ask()
    if call.method == "Range" and call.request.revision > 0:
        del answer.kvs[:]
        answer.count = 0
    return answer


def deleted_at_once(call):
    answer = call.ask()
    if call.method == "Txn":
        call.liar.ask(pb.DeleteRangeRequest(key=OWN))
    return answer


def late(call):
    answer = call.ask()
    time.sleep(TTL * .8 / 1000)
    return answer


MORE_LIES = {
    "a core without the history of its revisions": (no_history, CUT),
    "a granted lease is not there": (refusing(
        grpc.StatusCode.NOT_FOUND, "etcdserver: requested lease not found", "Txn"), LOSE),
    "its key is deleted whenever it is there": (deleted_at_once, LOSE),
    "every answer takes most of the TTL": (late,),
}


@pytest.mark.parametrize("lie", MORE_LIES)
def test_an_agent_outlives_a_lie_about_its_place(lie, agent, liar):
    bears(agent, liar, MORE_LIES[lie])


def test_an_agent_outlives_renewals_that_are_unheard_for_many_lives_of_its_place(agent, liar):
    unheard = changing(lambda answer: None, "LeaseKeepAlive")
    bears(agent, liar, (unheard,), until=lambda: losses(agent) > 2, lines=80)


def test_an_agent_asks_again_for_a_watch_that_is_not_confirmed(agent, liar):
    opened = liar.opened["Watch"]
    bears(agent, liar, (changing(lambda answer: None, "Watch"), CUT),
          until=lambda: liar.opened["Watch"] > opened + 1)


def test_an_agent_asks_less_and_less_often_for_what_it_may_not_read(agent, liar):
    before = liar.asked.copy()
    refused = refusing(grpc.StatusCode.PERMISSION_DENIED, "etcdserver: permission denied",
                       "Range", "Watch")

    def has_renewed():
        since = liar.asked - before
        assert since["Range"] + since["Watch"] <= 12, since
        return since["LeaseKeepAlive"] > 6

    bears(agent, liar, (refused, CUT), until=has_renewed)


def test_an_agent_gives_up_in_time_when_a_renewal_has_lowered_its_ttl(agents, liar):
    agent = agents(TTL="6s")
    lease = agent.status().lease_id

    with changes_of(agent, "TTLUSec") as until:
        tell(liar, saying("LeaseKeepAlive", TTL=2, ttl_ms=2000))
        assert 2_000_000 in until(2_000_000)
    told = agent.properties()
    assert told["DeadlineUSec"] - told["LastRenewalUSec"] <= 2_000_000
    tell(liar, changing(lambda answer: None, "LeaseKeepAlive"))
    eventually(lambda: losses(agent))
    assert not liar.core.leader().said(f"Lease {lease:016x} expired")  # which is later


def test_an_agent_renews_by_another_stream_when_one_is_stuck(agents, liar):
    answered = set()

    def first_is_stuck(call):
        if call.method == "LeaseKeepAlive":
            if call.number == 1:
                return None
            answered.add(call.number)
        return call.ask()

    tell(liar, first_is_stuck)
    agent = agents(TTL="12s")

    eventually(lambda: answered)
    assert losses(agent) == 0


def test_an_agent_does_not_take_an_event_of_the_future_for_the_present(agents, liar):
    agent = agents(LogLevel="debug")

    def ahead(answer):
        for event in answer.events:
            event.kv.mod_revision += 5
        return answer

    tell(liar, changing(ahead, "Watch"))
    liar.put((PREFIX + b"nodes/first", b'{"id":"1"}'))
    agent.log_has("Node first joined")
    liar.be_good(cut=False)
    liar.put((PREFIX + b"nodes/second", b'{"id":"2"}'))

    agent.log_has("Node second joined")


@pytest.mark.timeout(900)
def test_an_agent_reads_a_large_cluster_in_pieces(agents, fresh_liar):
    fresh_liar.core.put_all([(f"/tenure/default/nodes/n{n}", f'{{"id":"{n}"}}')
                             for n in range(20_000)])
    for n in range(100):
        fresh_liar.put((PREFIX + b"nodes/z%d" % n, bytes(1 << 20)))
    read = []

    def note(answer):
        read.append(len(answer.kvs))
        return answer

    tell(fresh_liar, changing(note, "Range"))
    agent = agents(held=False, Endpoints=fresh_liar.endpoints)
    cost = Cost(agent, fresh_liar)

    eventually(lambda: agent.log_text().count(" joined.") > 20_100, patience=800)
    assert max(read) <= 2000
    cost.is_modest(cpu=1, calls=60, memory=768)


def test_an_agent_asks_for_less_where_a_page_does_not_come_in_time(agents, fresh_liar):
    """A slow line: it began anew with the first page, for ever, and never knew who is there."""
    fresh_liar.core.put_all([(f"/tenure/default/nodes/n{n}", '{"id":"1"}') for n in range(700)])

    def slow(call):
        if call.method == "Range" and call.request.limit > 130:
            return None
        return call.ask()

    tell(fresh_liar, slow)
    agent = agents(Endpoints=fresh_liar.endpoints, TTL="60s")

    eventually(lambda: agent.log_text().count(" joined.") > 700)


# ---- records that no agent wrote ----

ODD = [b"", b"null", b"[", b"{" * 5000, b"[" * 100000, b'{"id":' * 2000,
       b'{"id":1,"tags":[1,{}],"addresses":{"a":1},"ttl_ms":"x"}',
       b'{"id":"\xff\xfe\xc0","since":"\\u0000\\ud800","degraded":"\xed\xa0\x80"}',
       b'{"ttl_ms":1e999}', b'{"ttl_ms":99999999999999999999}',
       b'{"tags":{"a":"' + b"x" * 100000 + b'"}}', b'{"leaving":"' + b"y" * 1000 + b'"}',
       b"x" * (1 << 20)]


def odd_records(liar):
    for n, value in enumerate(ODD):
        for key in b"nodes/odd%d", b"services/s%d/h1", b"services/s/odd%d/i":
            liar.put((PREFIX + key % n, value))
    liar.lose()


def own_record_of_another(liar):
    liar.put((OWN, b"{" * 100), lease=liar.ask(pb.LeaseGrantRequest(ttl_ms=TTL)).ID)


def own_record_with_orders_to_systemd(liar):
    liar.put((OWN, b'{"id":"x\\nMAINPID=812\\ny","incarnation":"1","state":"held"}'),
             lease=liar.ask(pb.LeaseGrantRequest(ttl_ms=TTL)).ID)


def claims_of_a_thousand_boots(liar):
    for n in range(1000):
        liar.put((PREFIX + b"claims/h1", b'{"id":"x","boot_id":"%d"}' % n))


def a_record_that_changes_all_the_time(liar):
    for n in range(1000):
        liar.put((PREFIX + b"nodes/busy", b'{"id":"x","ttl_ms":%d}' % (n + 1)))


@pytest.mark.parametrize("write", [odd_records, own_record_of_another,
                                   own_record_with_orders_to_systemd, claims_of_a_thousand_boots,
                                   a_record_that_changes_all_the_time])
def test_an_agent_outlives_records_that_no_agent_wrote(write, agent, liar):
    bears(agent, liar, (None, write), lines=80)


# ---- refusals ----

def test_an_agent_that_is_refused_when_it_leaves_asks_again(agents, liar):
    agent, refused = agents(), set()

    def once(call):
        if call.method in ("Txn", "LeaseRevoke") and call.method not in refused:
            refused.add(call.method)
            raise Refuse(grpc.StatusCode.UNAVAILABLE, "not now")
        return call.ask()

    tell(liar, once)
    assert agent.stop() == 0

    assert refused and liar.get(OWN) == pb.KeyValue()


def test_an_agent_whose_user_is_deleted_and_created_again_logs_little(agents, liar, password):
    agent = agents(TTL=f"{TTL}ms", LogLevel="info", **password)

    def is_gone(call):
        if call.method == "Authenticate":
            raise Refuse(grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: authentication failed, "
                         "invalid user ID or password")
        raise Refuse(grpc.StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token")

    bears(agent, liar, (is_gone, CUT), lines=6)


def test_an_agent_keeps_its_place_though_its_login_ends_before_each_renewal(
        agents, liar, password):
    agent, used = agents(TTL="6s", **password), set()

    def once(call):
        if call.method == "LeaseKeepAlive":
            if call.token in used:
                raise Refuse(grpc.StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token")
            used.add(call.token)
        return call.ask()

    tell(liar, once)

    eventually(lambda: len(used) > 2)
    assert losses(agent) == 0
