"""What a program tells systemd, sd_notify(3)."""
import itertools
import os
import socket

_numbers = itertools.count()


class Notifications:
    """For programs that get .environment."""

    def __init__(self):
        name = f"tenure-tests-notify-{os.getpid()}-{next(_numbers)}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind("\0" + name)
        self.environment = {"NOTIFY_SOCKET": "@" + name}
        self._said = []

    def text(self):
        """All that was said so far, a line for each variable."""
        try:
            while True:
                self._said.append(self._socket.recv(4096).decode())
        except BlockingIOError:
            return "\n".join(self._said)

    def close(self):
        self._socket.close()
