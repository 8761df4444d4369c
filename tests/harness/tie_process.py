"""A program that has a tie of libtenure, and does with it what harness/tie.py asks."""
import ast
import enum
import os
import select
import signal
import sys
import time
import traceback
from multiprocessing.connection import Client
from types import SimpleNamespace

import tenure

# What cannot be copied stays here, and the other side knows it by its number.
KEPT = (tenure.Tie, tenure.Watch, tenure.Lock, tenure.Work)
kept, events = [], []


class Process:
    """What is asked of the process rather than of the tie."""

    def events(self, begin):
        return events[begin:]

    def clock(self):
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def put_held_after_a_stop(self, key, value):
        """Decides on a guarded write, and stops before anything of it is sent."""
        call = tie._begin(tenure._put_held, key.encode(), len(key), value.encode(), len(value))
        os.kill(os.getpid(), signal.SIGSTOP)
        return tie._answer(call, 60, tenure._call_revision)


def sent(value):
    """As the other side gets it."""
    if isinstance(value, KEPT):
        if value not in kept:
            kept.append(value)
        return SimpleNamespace(kept=kept.index(value))
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (list, tuple)):
        return [sent(one) for one in value]
    if isinstance(value, dict):
        return {name: sent(one) for name, one in value.items()}
    if hasattr(value, "__dict__"):
        return SimpleNamespace(**sent(vars(value)))
    return value


def answer(number, name, arguments, options):
    try:
        found = getattr(kept[number], name)
        return sent(found(*arguments, **options) if callable(found) else found), None
    except tenure.Error as error:
        return None, (type(error).__name__, error.errno, error.strerror)
    except Exception:
        return None, ("Exception", 0, traceback.format_exc())


signal.signal(signal.SIGTERM, lambda *_: sys.exit())
connection = Client("\0" + sys.argv[1], "AF_UNIX")
tie = tenure.Tie(**ast.literal_eval(sys.argv[2]))
kept += [tie, Process()]
try:
    while True:
        select.select([connection, tie], [], [])
        if connection.poll():  # first: it may have been asked while the process was stopped
            connection.send(answer(*connection.recv()))
        tie.dispatch()
        while event := tie.pop():
            if event.type != tenure.Type.REPLY:
                events.append(event)
finally:
    if tie.lease:
        tie.leave()  # or the next test would find the session
    tie.close()
