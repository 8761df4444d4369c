"""The judge of the storm passes what is right, and finds each planted fault."""
import pytest

from soak.history import (Event, Hold, Lease, Op, check_holds, check_leases, check_ops,
                          check_undead, check_watch, outages)

EVENTS = [Event(2, "a", "1"), Event(3, "a", "2"), Event(4, "a", None), Event(5, "a", "3")]
OPS = [Op("put", "a", "1", 0, 1, True, 2), Op("put", "a", "2", 1, 2, True, 3),
       Op("get", "a", "2", 2, 3, True, 3, 3), Op("get", "a", None, 3, 4, True, 4, 0),
       Op("put", "a", "3", 4, 9, None), Op("put", "a", "4", 4, 9, None)]
HOLDS = [Hold("x", 0, 1), Hold("y", 1, 2), Hold("z", 3, 4)]
CALLS = [Op("put", "a", str(i), i / 10, i / 10 + .01, True, i + 1)
         for i in range(100) if not 60 <= i < 70]


def undead(ttl, *unknown):
    return check_undead([Lease("l", ttl, 5, 0, 5, 5, *unknown)], {"l": 9}, CALLS,
                        [Event(80, "l", None)], .5, .1, .2)


@pytest.mark.parametrize("wrong", [
    check_ops(OPS, EVENTS), check_watch(EVENTS, EVENTS), check_holds(HOLDS),
    check_leases([Lease("l", 2, 5, 0, 5)], {"l": 7.0}), check_leases([Lease("l", 2, 5, 0, 5)], {}),
    undead(1.8)[0], undead(1.5, True)[0]])
def test_what_is_right_passes(wrong):
    assert wrong == []


@pytest.mark.parametrize("wrong", [pytest.param(wrong, id=name) for name, wrong in {
    "lost": check_ops([*OPS, Op("put", "a", "9", 5, 6, True, 6)], EVENTS),
    "another value": check_ops([*OPS, Op("get", "a", "1", 5, 6, True, 3, 2)], EVENTS),
    "stale": check_ops([*OPS, Op("get", "a", "1", 5, 6, True, 2, 2)], EVENTS),
    "twice": check_ops(OPS, [*EVENTS, Event(6, "a", "2")]),
    "twice, without an answer": check_ops(OPS, [*EVENTS, Event(6, "a", "3")]),
    "not delivered": check_watch(EVENTS[:1] + EVENTS[2:], EVENTS),
    "delivered twice": check_watch(EVENTS + EVENTS[-1:], EVENTS),
    "not delivered at the end": check_watch(EVENTS[:-1], EVENTS),
    "two holders": check_holds([Hold("x", 0, 2), Hold("y", 1, 1.5)]),
    "two holders, one after another": check_holds([Hold("x", 0, 9), *HOLDS[1:]]),
    "early": check_leases([Lease("l", 2, 5, 0, 5)], {"l": 6.9}),
    "said to be gone early": check_leases([Lease("l", 2, 5, 6)], {}),
    "renewed after its end": check_leases([Lease("l", 2, 5, 0, 7.5)], {"l": 7.2}),
    "late": undead(1.5)[0]}.items()])
def test_a_planted_fault_is_found(wrong):
    assert wrong


def test_an_outage_is_when_no_call_got_through():
    assert outages(CALLS, .5) == [(5.9, 7.01)]
