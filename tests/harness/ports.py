"""TCP ports of loopback that are this process's own."""
import importlib.util
import os
import socket

from .places import TOP

# tests/system/ports.py reserves ports for all tests of all checkouts and users of this machine.
_spec = importlib.util.spec_from_file_location("system_ports", TOP / "tests/system/ports.py")
_system = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_system)

BLOCK = 48  # several tests' worth
LATE = 24   # a port is given out again only after so many others: its user has come, or gone


class Ports:
    def __init__(self):
        self._ours = []  # those that were given out last are at the end

    def take(self):
        """A port on which nobody listens. It stays reserved until this process ends."""
        for port in self._ours[:-LATE]:
            if _system.is_free(port):
                break
        else:
            self._ours = _system.reserve(BLOCK, os.getpid()) + self._ours
            return self.take()
        self._ours.remove(port)
        self._ours.append(port)
        return port


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
