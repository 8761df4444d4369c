"""What this process of pytest's must be like, whoever started it. A pytest plugin."""
import ctypes
import os
import signal

import pytest

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_workers = []  # process ids


def pytest_configure(config):
    os.umask(0o022)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # What is ignored here (nohup, a shell's "&") would be ignored in every program that is
    # started. A handler that does nothing ends with exec, and leaves the default behind.
    for number in signal.valid_signals():
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    prctl = ctypes.CDLL(None).prctl
    # What a program leaves behind becomes a child of this process, so that the ledger finds it.
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if hasattr(config, "workerinput"):
        # Programs die with their worker, and so the worker has to die with the run.
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    else:
        signal.signal(signal.SIGTERM, _interrupt)


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_testnodeready(node):
    _workers.append(node.gateway._rinfo().pid)


def _interrupt(*_):
    """SIGTERM is ^C, which a terminal sends to the workers, too."""
    for pid in _workers:
        try:
            os.kill(pid, signal.SIGINT)
        except ProcessLookupError:
            pass
    raise KeyboardInterrupt("SIGTERM")
