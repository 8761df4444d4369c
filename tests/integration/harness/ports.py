"""TCP ports of loopback that are this process's own."""
import importlib.util
import os
import socket

from .places import TOP

# tests/system/ports.py reserves ports for all tests of all checkouts and users of this machine.
_spec = importlib.util.spec_from_file_location("system_ports", TOP / "tests/system/ports.py")
_system = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_system)

BLOCK = 48  # several tests' worth: a port is used again late, when its connections are forgotten


class Ports:
    def __init__(self):
        self._free = []

    def take(self):
        """A port on which nobody listens. It stays reserved until this process ends."""
        for _ in range(len(self._free)):
            port = self._free.pop(0)
            self._free.append(port)
            if _system.is_free(port):
                return port
        self._free = _system.reserve(BLOCK, os.getpid()) + self._free
        return self.take()


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
