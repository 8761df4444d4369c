"""Judges what clients saw of a core, knowing nothing of how it works.

The revisions are the order in which everything is said to have happened. A history is right if that
order is one that real time allows, if everybody saw what was there at their revision, and if what
was acknowledged is there once. Each check returns what is wrong.
"""
import dataclasses
import itertools


@dataclasses.dataclass
class Op:
    """One call of a client. ok: None when nobody knows whether it happened."""
    kind: str  # put, get, cas
    key: str
    value: str | None  # written, or read; None: nothing there
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


@dataclasses.dataclass
class Hold:
    """A lock, from when it was granted until its holder released it or had to think that its lease
    may end."""
    who: str
    begin: float
    end: float


@dataclasses.dataclass
class Lease:
    """ttl in seconds; renewed: when the last renewal that was acknowledged, or the grant, had been
    sent."""
    key: str
    ttl: float
    renewed: float
    reported_gone: float = 0  # when a renewal first answered that it is gone
    late: float = 0  # when the last renewal was sent that was acknowledged
    answered: float = 0  # when that answer, or the grant's, had come: nothing of it happened later
    unknown: bool = False  # a later renewal may have been accepted, or not


def check_ops(ops, events):
    """ops: of all clients; events: everything that happened to their keys, in order."""
    wrong, at, states = [], {}, {}  # states: (revision, value) of each key
    for e in events:
        states.setdefault(e.key, []).append((e.revision, e.value))
        if e.value is not None:
            at.setdefault((e.key, e.value), []).append(e.revision)
    for o in ops:
        where, what = at.get((o.key, o.value), []), f"{o.kind} of {o.key}={o.value}"
        if o.kind == "get":
            there = [s for s in states.get(o.key, []) if s[0] <= o.revision]
            want = there[-1] if there and there[-1][1] is not None else (0, None)
            if o.ok and (o.mod, o.value) != want:
                wrong.append(f"{what} at revision {o.revision} saw that of {o.mod}, not {want}")
        elif o.ok and where != [o.revision]:
            wrong.append(f"{what} was acknowledged at revision {o.revision} and is at {where}")
        elif o.ok is None and len(where) > 1:
            wrong.append(f"{what}, not acknowledged, happened at {where}")
    # What made a revision comes first, then who saw it.
    latest = 0.0
    for o in sorted((o for o in ops if o.ok),
                    key=lambda o: (o.revision, o.kind == "get", o.begin)):
        if o.end < latest:
            wrong.append(f"{o.kind} of {o.key} at revision {o.revision} had ended before one with "
                         "a smaller revision began")
        latest = max(latest, o.begin)
    return wrong


def check_watch(seen, events):
    """seen: what one watcher collected over all its resumptions, from the first to the last of
    events."""
    return [f"event {i} was delivered as {x}, and is {y}"
            for i, (x, y) in enumerate(itertools.zip_longest(seen, events)) if x != y][:1]


def check_holds(holds):
    wrong, last = [], None
    for h in sorted(holds, key=lambda h: h.begin):
        if last and h.begin < last.end:
            wrong.append(f"{h.who} held from {h.begin:.3f} on, {last.who} until {last.end:.3f}")
        if not last or h.end > last.end:
            last = h
    return wrong


def check_leases(leases, died):
    """died: key -> when its deletion was heard of, which is no earlier than when it happened."""
    wrong = []
    for le in leases:
        when, end = died.get(le.key), le.renewed + le.ttl
        if when is not None and when < end:
            wrong.append(f"{le.key} died {end - when:.3f} s before its time")
        if when is not None and le.late > when:
            wrong.append(f"{le.key} was renewed {le.late - when:.3f} s after its end was reported")
        if le.reported_gone and le.reported_gone < end:
            wrong.append(f"{le.key} was said to be gone {end - le.reported_gone:.3f} s early")
    return wrong


def outages(ops, least):
    """(from, to) of the times in which no call of any client got through: an estimate of when the
    core could not have accepted a renewal, too long rather than too short. ops: all; each that was
    acknowledged was decided within its call."""
    out, begin = [], None
    for o in sorted((o for o in ops if o.ok), key=lambda o: o.end):
        if begin is not None and o.end - begin > least:
            out.append((begin, o.end))
        begin = o.begin if begin is None else max(begin, o.begin)
    return out


def check_undead(leases, died, ops, events, least, retry, slack):
    """I2: a lease that is not renewed is gone after TTL + outage; @retry more for each outage.
    Returns what is wrong, and how late each was beyond that. What nobody can know is left out."""
    gone = {e.key: e.revision for e in events if e.value is None}
    known = [(o.revision, o.end) for o in ops if o.ok]
    none, late, wrong = outages(ops, least), [], []
    for le in leases:
        if le.unknown or le.key not in gone:
            continue
        # A watch may tell late; who saw a later revision knows that it had happened.
        when = min([end for revision, end in known if revision >= gone[le.key]]
                   + [died.get(le.key, 1e18)])
        if when > 1e17:
            continue
        excused = [(max(a, le.renewed), min(b, when)) for a, b in none
                   if a < when and b > le.renewed]
        late.append(when - le.answered - le.ttl - sum(b - a + retry for a, b in excused))
        if late[-1] > slack:
            wrong.append(f"{le.key} outlived its time by {late[-1]:.3f} s, "
                         f"{len(excused)} outages excused")
    return wrong, late
