"""A proxy between clients and a core, which tells its clients to leave."""
import pathlib
import signal

from .program import Daemon
from .waiting import eventually

_PROCESS = pathlib.Path(__file__).with_name("proxy_process.py")


class Proxy(Daemon):
    """Has endpoints, as a core has. @core: anything with endpoints, the first of which is used."""

    def __init__(self, folder, ports, core):
        port, target = ports.take(), core.endpoints.split(",")[0].rsplit(":", 1)[1]
        self.endpoints = f"http://127.0.0.1:{port}"
        super().__init__(folder / "proxy.log", "/usr/bin/python3", "-B", _PROCESS, port, target)
        self.start()
        eventually(lambda: "ready" in self.lines())

    def count(self, event):
        return sum(line.split()[0] == event for line in self.lines())

    def _tell(self, number, event):
        before = self.count(event)
        self.process.send_signal(number)
        eventually(lambda: self.count(event) > before)

    def refuse_connections(self):
        """From now on nobody listens."""
        self._tell(signal.SIGUSR2, "refuses")

    def reset_connections(self):
        """From now on it closes each connection that it accepts."""
        self._tell(signal.SIGHUP, "resets")

    def say_goaway(self):
        """Announces the end of all its connections."""
        self._tell(signal.SIGUSR1, "goaway")

    def hold_answers(self):
        """Keeps back what the core says from now on, until say_goaway() has made a client come with
        another connection."""
        self._tell(signal.SIGALRM, "holds")
