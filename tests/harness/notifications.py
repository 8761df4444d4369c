"""What a program tells systemd, sd_notify(3)."""
import itertools
import os
import re
import socket
import threading

_numbers = itertools.count()

# All that our programs send. Each line is an order to systemd, and a status is shown on terminals.
_MEANT = re.compile(
    r"READY=1|STOPPING=1|WATCHDOG=1|RELOADING=1\nMONOTONIC_USEC=\d+|FDSTORE=1\nFDNAME=(place|tenancy)|"
    r"(WATCHDOG|EXTEND_TIMEOUT)_USEC=\d+|STATUS=[^\0-\x1f\x7f-\x9f]*")


class Notifications:
    """For programs that get .environment. .messages has all that came so far."""

    def __init__(self):
        name = f"tenure-tests-notify-{os.getpid()}-{next(_numbers)}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + name)
        self.environment = {"NOTIFY_SOCKET": "@" + name}
        self.messages = []
        self._reader = threading.Thread(target=self._listen, daemon=True)  # few wait to be read
        self._reader.start()

    def _listen(self):
        while message := self._socket.recv(4096):
            self.messages.append(message.decode(errors="backslashreplace"))

    def text(self):
        """A line for each variable."""
        return "\n".join(self.messages)

    def judge(self):
        """Text of others is in a status, and gives no orders."""
        assert [message for message in self.messages if not _MEANT.fullmatch(message)] == []

    def close(self):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._socket.close()
