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
        return sum(line.startswith(event + " ") for line in self.lines())

    def refuse_connections(self):
        """From now on nobody listens."""
        self.process.send_signal(signal.SIGUSR2)
        eventually(lambda: "refuses" in self.lines())

    def reset_connections(self):
        """From now on it closes each connection that it accepts."""
        self.process.send_signal(signal.SIGHUP)
        eventually(lambda: "resets" in self.lines())

    def say_goaway(self):
        """Announces the end of all its connections."""
        before = self.count("goaway")
        self.process.send_signal(signal.SIGUSR1)
        eventually(lambda: self.count("goaway") > before)
