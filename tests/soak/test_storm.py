"""Three replicas as real processes, under faults and hostile clients; history.py judges what honest
ones saw. Then everything is healed, and leases must end in time, watches have every event once, and
the replicas agree."""
import argparse
import itertools
import os
import pickle
import random
import subprocess
import time

import pytest

from harness.waiting import eventually

from soak import history
from soak.attacks import MILD
from soak.bed import Module, attack
from soak.clients import KEYS, TTL, now
from soak.faults import HOSTILE, Faults, Places

ATTACK, CALM = 8, 6.0  # seconds
# Of I2: what no call got through for so long is an outage; so much more is excused for each, for
# those who try again; and so late may a lease end beyond that.
OUTAGE, RETRY, SLACK = .06, .15, .1


@pytest.fixture
def places(tmp_path):
    if os.getuid() != 0:
        pytest.skip("makes network namespaces, so needs root")
    with Places.around(tmp_path) as places:
        yield places


def attack_in_turn(places, seed):
    """One attack after the other, each of one replica, by an address of its own, which may have its
    share and no more. Yields how many there were."""
    r = random.Random(seed + 1)
    for n in itertools.count(1):
        process = attack(places.folder, r.choice(MILD),
                         r.choice([*places.replicas.values()]).client_url, source=HOSTILE)
        until = now() + ATTACK
        try:
            while now() < until:
                yield n
        finally:
            process.kill()


def verdicts(seen, healed, seconds):
    """(what is right, what is wrong with that) of all that clients saw."""
    def enough(n, least):
        return [] if n > least else [f"{n} is too few to say so"]

    events, *others = seen.histories
    yield f"I4: the replicas tell one story of {len(events)} events", [
        w for other in others for w in history.check_watch(other, events)]
    yield "I4: and have one hash", seen.hashes if len({*seen.hashes}) > 1 else []
    done = sum(o.ok is True for o in seen.ops)
    yield (f"I5, I8: {len(seen.ops)} calls, {done} acknowledged, "
           f"{sum(o.ok is None for o in seen.ops)} nobody knows of, are linearizable",
           history.check_ops(seen.ops, [e for e in events if e.key in KEYS])
           + enough(done, seconds * 5))
    for watched in seen.watchers:
        last = watched[-1].revision if watched else 0
        yield f"I6: a watcher got all of {len(watched)} events once, in order", history.check_watch(
            watched, [e for e in events if e.revision <= last]) + enough(last, seen.upto - 50)
    n = sum(le.key in seen.died for le in seen.leases)
    yield f"I1, I7: of {len(seen.leases)} leases {n} died, none before its time", \
        history.check_leases(seen.leases, seen.died) + enough(n, 3)
    yield "I2: none is left over", [le.key for le in seen.leases if le.key not in seen.died
                                    and le.renewed < healed + CALM - TTL - 1]
    wrong, late = history.check_undead(seen.leases, seen.died, seen.ops, events, OUTAGE, RETRY,
                                       SLACK)
    yield (f"I2: of {len(late)} none outlived its time by more than {max(late, default=0):.3f} s, "
           "outages aside", wrong + enough(len(late), 3))
    yield f"locks: {len(seen.holds)} times held, by one at a time", history.check_holds(
        seen.holds) + enough(len(seen.holds), 5)


def test_what_clients_see_in_a_storm_is_right(places, tmp_path, seed, seconds, tell):
    clients = Module(tmp_path, "clients", seed=seed, file=tmp_path / "seen",
                     urls=places.endpoints.split(","))
    faults, hostile, attacked = Faults(places, seed), attack_in_turn(places, seed), []
    places.put("first", "1")
    clients.start(stdin=subprocess.PIPE)

    faults.go_on(now() + seconds, lambda: attacked.append(next(hostile)))
    hostile.close()
    # Everything is whole again: what has no holder must be gone in time.
    healed = now()
    clients.tell("calm")
    eventually(lambda: places.put("healed", "1"))
    tell(f"a leader is there {now() - healed:.1f} s after the last fault")
    time.sleep(CALM)
    clients.tell("stop")
    assert clients.wait() == 0
    seen = argparse.Namespace(**pickle.loads((tmp_path / "seen").read_bytes()))

    judged = [("no replica ended by itself", faults.ended), *verdicts(seen, healed, seconds)]
    for what, wrong in judged:
        tell(f"{'WRONG' if wrong else 'right'}: {what}")
    late = sorted(seen.died[le.key] - le.renewed - TTL for le in seen.leases
                  if le.renewed > healed and le.key in seen.died)
    tell("in the calm they died " + ", ".join(f"{s * 1000:.1f}" for s in late) + " ms late")
    tell(", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in sorted(faults.counts.items()))
         + f"; {max(attacked)} attacks")
    assert [(what, wrong[:5]) for what, wrong in judged if wrong] == []
