#!/usr/bin/env python3
"""Ends tenurectl lock and its command as systemd ends a service: SIGTERM to every process of it at once, ROUNDS times.
Prints how tenurectl ended, each other way once. usage: end_all.py ROUNDS TENURECTL ARGUMENT..."""
import os, signal, subprocess, sys, time


def below(pid):
    """All that descend from it."""
    try:
        children = open(f"/proc/{pid}/task/{pid}/children").read().split()
    except OSError:
        return []
    return [p for c in children for p in [int(c)] + below(int(c))]


def runs(pid):
    try:
        return open(f"/proc/{pid}/comm").read() == "sleep\n"
    except OSError:
        return False


ends = set()
for _ in range(int(sys.argv[1])):
    p = subprocess.Popen(sys.argv[2:] + ["lock", "end-all", "--", "sleep", "1000"], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 20
    while not any(runs(d) for d in below(p.pid)) and p.poll() is None and time.monotonic() < until:
        time.sleep(0.001)
    for pid in [p.pid] + below(p.pid):
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
    try:
        said = p.communicate(timeout=20)[1].strip()
    except subprocess.TimeoutExpired:
        p.kill()
        said = "it did not end"
    ends.add(f"{p.returncode} {said}".strip())
print("; ".join(sorted(ends)))
