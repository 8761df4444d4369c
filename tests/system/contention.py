"""How much of a processor one gets on this machine while something is measured: what depends on speed is judged by it."""
import select
import subprocess
import sys
import time

SLICE, EVERY = 0.005, 0.05  # seconds of work, and between two of them


class Contention:
    """with Contention() as c: ...; then c.middle is how many times longer than alone a piece of work took beside it, and c.stall the longest
    that it had to wait, in milliseconds."""

    def __enter__(self):
        self.process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_):
        self.middle, self.stall = (float(x) for x in self.process.communicate(timeout=30)[0].split())


if __name__ == "__main__":
    ratios, waits = [1.0], [0.0]
    while True:
        rests = time.monotonic()
        if select.select([sys.stdin], [], [], EVERY)[0]:  # nobody wants to know more
            break
        waits.append((time.monotonic() - rests - EVERY) * 1000)  # of a machine that stands still, too
        began, worked = time.monotonic(), time.thread_time()
        while time.thread_time() - worked < SLICE:
            pass
        took, worked = time.monotonic() - began, time.thread_time() - worked
        ratios.append(max(1.0, took / worked))
        waits.append((took - worked) * 1000)
    print(sorted(ratios)[len(ratios) // 2], max(waits))
