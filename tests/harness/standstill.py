"""Whether the machine stood still for a while, so that a test in which time counts proves nothing."""
import contextlib
import time

import pytest

from .program import Daemon

LONGEST = 0.05  # seconds for which a machine may stand still without being an excuse
MOST = 3        # tests of a worker that may be excused so

# Before all others; it is late only if nothing runs at all. The clock is the one of realtime_usec.
_PROBE = f"""
import time
before = time.time()
while True:
    time.sleep(0.005)
    now = time.time()
    if now - before > {LONGEST}:
        print(f"{{before:.6f}} {{now:.6f}}", flush=True)
    before = now
"""
_excused = []


class Probe(Daemon):
    def __init__(self, folder):
        super().__init__(folder / "standstill.log", "chrt", "--rr", "99",
                         "/usr/bin/python3", "-c", _PROBE)
        self.start()

    @contextlib.contextmanager
    def watched(self):
        """What fails in this context is skipped if the machine stood still meanwhile, with the
        reason: in no more than three tests of a worker."""
        began = time.time()
        try:
            yield
        except AssertionError as failure:
            time.sleep(0.02)  # it may not yet have written that it was late
            longest = max((end - start for start, end in self._seen() if end > began), default=0)
            if not longest or len(_excused) == MOST:
                raise
            _excused.append(failure)
            pytest.skip(f"the machine stood still for {longest:.3f} s: {failure}")

    def _seen(self):
        return [tuple(map(float, line.split())) for line in self.lines()]
