"""Processes that programs have left behind. This process has adopted them: own_process.py."""
import glob
import os
import signal
import time


def _children():
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(stat) as f:
                said = f.read()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(said.rsplit(")", 1)[1].split()[1]) == os.getpid():
            yield int(said.split()[0])


def end(kept):
    """Ends all children of this process, apart from those with the ids in @kept."""
    while strays := set(_children()) - kept:  # whose own children come next
        for pid in strays:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, os.WNOHANG)  # a namespace's init ends after all others are waited for
        time.sleep(0.01)
