#!/usr/bin/python3
"""Judges what clients saw of a core, knowing nothing of how it works.

The revisions are the order in which everything is said to have happened. A history is right if that order is one that
real time allows, if everybody saw what was there at their revision, and if what was acknowledged is there once.
Run alone, it tests itself: right histories pass, and each planted fault is found.
"""
import dataclasses


@dataclasses.dataclass
class Op:
    """One call of a client. ok: None when nobody knows whether it happened."""
    kind: str  # put, get, cas
    key: str
    value: str  # written, or read; None: nothing there
    begin: float
    end: float
    ok: bool | None
    revision: int = 0  # of the answer's header
    mod: int = 0  # get: the mod_revision of what was read


@dataclasses.dataclass
class Event:
    """As a watch delivered it."""
    revision: int
    key: str
    value: str | None  # None: a deletion


def check_ops(ops, events):
    """ops: of all clients; events: everything that happened to their keys, in order. Returns what is wrong."""
    wrong, at = [], {}
    states = {}  # key: [(revision, value)]
    for e in events:
        states.setdefault(e.key, []).append((e.revision, e.value))
        if e.value is not None:
            at.setdefault((e.key, e.value), []).append(e.revision)
    for o in ops:
        if o.kind == "get" or o.ok is False:
            continue
        where = at.get((o.key, o.value), [])
        if o.ok and where != [o.revision]:
            wrong.append(f"{o.kind} of {o.key}={o.value} was acknowledged at revision {o.revision} and is at {where}")
        elif o.ok is None and len(where) > 1:
            wrong.append(f"{o.kind} of {o.key}={o.value}, not acknowledged, happened at {where}")
    for o in ops:
        if o.kind != "get" or not o.ok:
            continue
        seen = [s for s in states.get(o.key, []) if s[0] <= o.revision]
        want = seen[-1] if seen and seen[-1][1] is not None else (0, None)
        if (o.mod, o.value) != want:
            wrong.append(f"get of {o.key} at revision {o.revision} saw {o.value} of {o.mod}, there was {want[1]} of {want[0]}")
    # What made a revision comes first, then who saw it.
    latest = 0.0
    for o in sorted((o for o in ops if o.ok), key=lambda o: (o.revision, o.kind == "get", o.begin)):
        if o.end < latest:
            wrong.append(f"{o.kind} of {o.key} at revision {o.revision} had ended before one with a smaller revision began")
        latest = max(latest, o.begin)
    return wrong


def check_watch(seen, events):
    """seen: what one watcher collected over all its resumptions, from the first to the last of events."""
    a = [(e.revision, e.key, e.value) for e in seen]
    b = [(e.revision, e.key, e.value) for e in events]
    if a == b:
        return []
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y:
            return [f"event {i} was delivered as {x}, and is {y}"]
    return [f"{len(a)} events were delivered, there are {len(b)}; the first that differ: {(a + b)[min(len(a), len(b))]}"]


@dataclasses.dataclass
class Hold:
    """A lock, from when it was granted until its holder released it or had to think that its lease may end."""
    who: str
    begin: float
    end: float


def check_holds(holds):
    wrong = []
    last = None
    for h in sorted(holds, key=lambda h: h.begin):
        if last and h.begin < last.end:
            wrong.append(f"{h.who} held from {h.begin:.3f} on, when {last.who} held until {last.end:.3f}")
        if not last or h.end > last.end:
            last = h
    return wrong


@dataclasses.dataclass
class Lease:
    """ttl in seconds; renewed: when the last renewal that was acknowledged had been sent, or the grant."""
    key: str
    ttl: float
    renewed: float
    reported_gone: float = 0  # when a renewal first answered that it is gone
    late: float = 0  # when the last renewal was sent that was acknowledged
    answered: float = 0  # when that answer, or the grant's, had come: nothing of it happened later
    unknown: bool = False  # a later renewal may have been accepted, or not


def check_leases(leases, died):
    """died: key -> when its deletion was heard of, which is no earlier than when it happened."""
    wrong = []
    for le in leases:
        when = died.get(le.key)
        if when is not None and when < le.renewed + le.ttl:
            wrong.append(f"{le.key} died {le.renewed + le.ttl - when:.3f} s before its time")
        if when is not None and le.late > when:
            wrong.append(f"{le.key} was renewed {le.late - when:.3f} s after its end was reported")
        if le.reported_gone and le.reported_gone < le.renewed + le.ttl:
            wrong.append(f"{le.key} was said to be gone {le.renewed + le.ttl - le.reported_gone:.3f} s before its time")
    return wrong


def outages(ops, least):
    """(from, to) of the times in which no call of any client got through: an estimate of when the core could not have
    accepted a renewal, too long rather than too short. ops: all; each that was acknowledged was decided within its call."""
    good = sorted((o for o in ops if o.ok), key=lambda o: o.end)
    out, begin = [], None
    for o in good:
        if begin is not None and o.end - begin > least:
            out.append((begin, o.end))
        begin = o.begin if begin is None else max(begin, o.begin)
    return out


def check_undead(leases, died, ops, events, least, retry, slack):
    """I2: a lease that is not renewed is gone after TTL + outage; @retry more for each outage. Returns what is wrong, and how
    late each was beyond that. What nobody can know is left out."""
    gone = {e.key: e.revision for e in events if e.value is None}
    known = [(o.revision, o.end) for o in ops if o.ok]
    none, late, wrong = outages(ops, least), [], []
    for le in leases:
        if le.unknown or le.key not in gone:
            continue
        # A watch may tell late; who saw a later revision knows that it had happened.
        when = min([end for revision, end in known if revision >= gone[le.key]] + [died.get(le.key, 1e18)])
        if when > 1e17:
            continue
        excused = [(max(a, le.renewed), min(b, when)) for a, b in none if a < when and b > le.renewed]
        x = when - le.answered - le.ttl - sum(b - a + retry for a, b in excused)
        late.append(x)
        if x > slack:
            wrong.append(f"{le.key} outlived its time by {x:.3f} s, {len(excused)} outages excused")
    return wrong, late


def self_test():
    events = [Event(2, "a", "1"), Event(3, "a", "2"), Event(4, "a", None), Event(5, "a", "3")]
    good = [Op("put", "a", "1", 0, 1, True, 2), Op("put", "a", "2", 1, 2, True, 3), Op("get", "a", "2", 2, 3, True, 3, 3),
            Op("get", "a", None, 3, 4, True, 4, 0), Op("put", "a", "3", 4, 9, None), Op("put", "a", "4", 4, 9, None)]
    assert check_ops(good, events) == []
    for fault in (Op("put", "a", "9", 5, 6, True, 6),  # lost
                  Op("get", "a", "1", 5, 6, True, 3, 2),  # not what was there
                  Op("get", "a", "1", 5, 6, True, 2, 2)):  # stale: 3 was over before it began
        assert len(check_ops(good + [fault], events)) > 0, fault
    assert check_ops(good, events + [Event(6, "a", "2")])  # twice
    assert check_ops(good, events + [Event(6, "a", "3")])  # twice, though nobody got an answer
    assert check_watch(events, events) == []
    assert check_watch(events[:1] + events[2:], events) and check_watch(events + events[-1:], events) and check_watch(events[:-1], events)
    assert check_holds([Hold("x", 0, 1), Hold("y", 1, 2), Hold("z", 3, 4)]) == []
    assert check_holds([Hold("x", 0, 2), Hold("y", 1, 1.5)]) and check_holds([Hold("x", 0, 9), Hold("y", 1, 2), Hold("z", 3, 4)])
    assert check_leases([Lease("l", 2, 5, 0, 5)], {"l": 7.0}) == [] and check_leases([Lease("l", 2, 5, 0, 5)], {}) == []
    ops = [Op("put", "a", str(i), i / 10, i / 10 + .01, True, i + 1) for i in range(100) if not 60 <= i < 70]
    assert outages(ops, .5) == [(5.9, 7.01)]
    gone = [Event(80, "l", None)]
    assert check_undead([Lease("l", 1.8, 5, 0, 5, 5)], {"l": 9}, ops, gone, .5, .1, .2)[0] == []
    assert check_undead([Lease("l", 1.5, 5, 0, 5, 5)], {"l": 9}, ops, gone, .5, .1, .2)[0]
    assert check_undead([Lease("l", 1.5, 5, 0, 5, 5, True)], {"l": 9}, ops, gone, .5, .1, .2) == ([], [])
    assert check_leases([Lease("l", 2, 5, 0, 5)], {"l": 6.9}) and check_leases([Lease("l", 2, 5, 6)], {})
    assert check_leases([Lease("l", 2, 5, 0, 7.5)], {"l": 7.2})


if __name__ == "__main__":
    self_test()
    print("1 passed, 0 failed, 0 skipped")
