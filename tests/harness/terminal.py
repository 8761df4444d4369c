"""An interactive shell on a terminal of its own, for what depends on one."""
import os
import pty
import re
import signal

from .program import Daemon
from .waiting import eventually

# The kernel makes a terminal that a session's leader opens the session's own.
_ON_TERMINAL = 'exec "$@" <>"$0" >&0 2>&0'


class Terminal:
    """What the shell shows is read bit by bit: expect() forgets what came before its pattern."""

    PROMPT = "ready> "

    def __init__(self, folder, **environment):
        self._master, slave = pty.openpty()
        os.set_blocking(self._master, False)
        self._seen = ""
        self.shell = Daemon(folder / "shell.log", "sh", "-c", _ON_TERMINAL,
                            os.ttyname(slave), "bash", "--norc", "--noprofile", "--noediting", "-i",
                            PS1=self.PROMPT, HISTFILE="/dev/null", TERM="dumb", **environment)
        self.shell.ends_by = signal.SIGHUP
        self.shell.start()
        self.expect(self.PROMPT)
        os.close(slave)

    def type(self, keys):
        os.write(self._master, keys.encode())

    def _read(self):
        try:
            while data := os.read(self._master, 4096):
                self._seen += data.decode(errors="replace")
        except (BlockingIOError, OSError):  # EIO: nobody has the terminal open
            pass

    def expect(self, pattern):
        """Returns the match of this regular expression, once there is one."""
        def look():
            self._read()
            found = re.search(pattern, self._seen)
            assert found, f"the terminal shows {self._seen[-300:]!r}"
            return found

        found = eventually(look)
        self._seen = self._seen[found.end():]
        return found

    def run(self, line):
        """Types a line, whose echo is forgotten."""
        self.type(line + "\n")
        self.expect(re.escape(line[-20:]) + r"\r?\n")

    def status(self):
        """Of the command that ended last, once the prompt is there."""
        self.expect(self.PROMPT)
        self.run("echo status $?")
        return int(self.expect(r"status (\d+)")[1])

    def close(self):
        """The terminal goes away, as when its window is closed."""
        self.shell.expect_death_by(signal.SIGHUP)
        os.close(self._master)
