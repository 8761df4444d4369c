"""tenurectl ttl advise: which TTL would have held, by the evidence of the last day's renewals."""
import json
import re
import time

import pytest
from harness.waiting import eventually


def advice(agent):
    return json.loads(agent.ctl("ttl", "advise", "--json=short"))


def renewed(agent):
    """Waits for the first renewal, and returns the figures then."""
    return eventually(lambda: (figures := advice(agent))["Renewals"] and figures)


def test_before_the_first_renewal_there_is_nothing_to_recommend_a_ttl_by(agents):
    agent = agents("h1", TTL="10min")
    assert agent.ctl("ttl", "advise").endswith(
        "No renewal was acknowledged yet, so nothing can be recommended.\n")
    assert agent.refusal("ttl")[1] == 1  # it wants to know what to do


def test_after_one_renewal_there_is_too_little_to_recommend_a_ttl_by(agents):
    agent = agents("h1", TTL="3s")

    figures = renewed(agent)

    assert (figures["RecommendedUSec"], figures["TTLUSec"]) == (0, 3_000_000)
    assert figures["StallMaxUSec"] > 0
    assert ("Not enough data yet: a recommendation needs at least one hour and 100 renewals.\n"
            in agent.ctl("ttl", "advise"))
    assert re.search("^ *3 s .*  in use$", agent.ctl("ttl", "advise", "--no-legend"), re.M)
    on_the_bus, ttls = agent.call("AdviseTTL")
    assert on_the_bus["TTLUSec"] == 3_000_000 and len(ttls) == len(figures["TTLs"])

    agent.restart()
    for what in "Renewals", "StallMaxUSec":  # what was seen is kept
        assert advice(agent)[what] >= figures[what]


def test_a_silence_of_the_core_that_cost_the_place_is_evidence(agents, proxy):
    agent = agents("h1", TTL="4s", Endpoints=proxy.endpoints)
    renewed(agent)

    proxy.freeze()
    agent.log_has("lost its place")
    # A renewal is due after half of the TTL, so it had waited for the other half.
    assert advice(agent)["StallMaxUSec"] > 1_500_000
    proxy.thaw()
    eventually(agent.holds)

    figures = advice(agent)
    assert figures["Losses"] >= 1 and figures["Jeopardies"] >= 1
    too_long = {ttl["TTLUSec"]: ttl["MinutesTooLong"] for ttl in figures["TTLs"]}
    assert too_long[1_000_000] >= 1
    assert re.search("^ *1 s +[0-9.]+ ms +no, not in [0-9]+ min ", agent.ctl("ttl", "advise"), re.M)


def test_a_lease_that_was_revoked_says_nothing_of_ttls(agent, core):
    lease = agent.status().lease_id
    core.revoke(lease)
    eventually(lambda: agent.holds_another(lease))
    assert advice(agent)["Losses"] == 0


@pytest.fixture
def agent_with(agents):
    """An agent with what earlier ones have left as records of renewals."""
    def make(records):
        agent = agents("h1", TTL="10s")
        agent.kill()
        (agent.folder / "run/renewals").write_bytes(records)
        agent.start()
        eventually(agent.holds)
        return agent

    return make


def test_three_hours_of_renewals_are_enough_to_recommend_a_ttl(agent_with):
    now, records = int(time.clock_gettime(time.CLOCK_BOOTTIME)) // 60 + 1, bytearray(1440 * 128)
    minutes = range(max(now - 180, 1), now)
    if len(minutes) < 100:
        pytest.skip("this machine runs for less than 100 minutes")
    for minute in minutes:  # its place in the file is by its number
        stall = 1_800_000 if minute == now - 90 else 3_000
        line = f"{minute} n=12 trips=24000 trip=3000 late=200 stall={stall} gap=5003000 0 0 0 ;"
        at = minute % 1440 * 128
        records[at:at + 128] = line.ljust(127).encode() + b"\n"

    agent = agent_with(records)
    figures = advice(agent)
    assert figures["RecommendedUSec"] == 10_000_000 and figures["Minutes"] >= len(minutes)
    assert re.search(r"^Recommended: TTL=10s\. The shortest that would have held: 4\.\d+ s\.$",
                     agent.ctl("ttl", "advise"), re.M)


def test_a_file_that_holds_no_records_does_no_harm(agent_with):
    assert advice(agent_with(b"\x01\xfe no record ;\n" * 1_000))["Minutes"] <= 1
