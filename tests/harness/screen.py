"""A program on a terminal, and what is on its page: as much of ECMA-48 as tenurectl top uses."""
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios

from .program import Daemon
from .waiting import eventually

# Leads a session, as a shell does, since ^Z stops nothing whose parent is in another session.
# Writes its child's process id, and each of its statuses, to the descriptor that it is given.
_LEADER = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
says, pid = int(sys.argv[1]), os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.close(says)
    os.execv(sys.argv[2], sys.argv[2:])
for number in signal.SIGINT, signal.SIGHUP, signal.SIGTERM:
    signal.signal(number, signal.SIG_IGN)
os.write(says, b"%d\\n" % pid)
status = 0x7f
while os.WIFSTOPPED(status):
    status = os.waitpid(pid, os.WUNTRACED)[1]
    os.write(says, b"%d\\n" % status)
"""


class Screen(Daemon):
    """Has a program, whose process id is .child. @environment: as of Daemon."""

    def __init__(self, log, *command, width=100, height=50, **environment):
        self._master, self._slave = pty.openpty()  # our own, to see its settings at the end
        self._before = termios.tcgetattr(self._slave)
        self.raw, self._rest, self.alternate, self.has_cursor = b"", "", False, True
        self.resize(width, height)
        said, says = os.pipe()
        super().__init__(log, "/usr/bin/python3", "-c", _LEADER, says, *command,
                         **{"TERM": "xterm", **environment})
        self.start(stdin=self._slave, stdout=self._slave, stderr=self._slave, pass_fds=[says])
        os.close(says)
        self._said = os.fdopen(said)
        self.child = int(self._said.readline())

    def resize(self, width, height):
        self.width, self.height, self._row, self._column = width, height, 0, 0
        self.forget()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def forget(self):
        """What is on the page from now on has been written from now on."""
        self._page = [[" "] * self.width for _ in range(self.height)]

    def press(self, keys):
        os.write(self._master, keys.encode())

    def send(self, number):
        """A signal to the program."""
        os.kill(self.child, number)

    def text(self):
        """The page, with all that has been written by now."""
        while select.select([self._master], [], [], 0)[0]:
            data = os.read(self._master, 65536)
            self.raw += data
            self._draw(self._rest + data.decode(errors="surrogateescape"))
        return "\n".join("".join(line).rstrip() for line in self._page)

    def shows(self, *patterns):
        """Waits until the page has lines like each of these; returns the last one's match."""
        __tracebackhide__ = True

        def look():
            page = self.text()
            found = [re.search(pattern, page, re.M) for pattern in patterns]
            assert all(found), f"the page lacks {patterns[found.index(None)]!r}:\n{page}"
            return found[-1]

        return eventually(look)

    def wrote(self, text):
        """Waits until it has written that, wherever it is by now: events scroll."""
        return eventually(lambda: self.text() and text in self.raw.decode(errors="replace"))

    def status(self):
        """Waits until the program ends or is stopped; as of waitpid(2)."""
        eventually(lambda: self.text() is not None and select.select([self._said], [], [], 0)[0])
        status = int(self._said.readline())
        self.text()
        return status

    def is_restored(self):
        """Waits until it is as it was before the program: the kernel passes on what has been written
        in a work of its own, perhaps after the writer has ended."""
        return eventually(lambda: self.text() is not None and not self.alternate and self.has_cursor
                          and termios.tcgetattr(self._slave) == self._before)

    def ask_to_end(self):
        with contextlib.suppress(ProcessLookupError):
            self.send(signal.SIGKILL)  # nobody reads any more what it would write at an orderly end

    def end(self):
        super().end()
        for descriptor in self._master, self._slave:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _draw(self, text):
        self._rest = ""
        while text:
            if text[0] == "\x1b":
                control = re.match(r"\x1b\[([?0-9;]*)([@-~])", text)
                if not control:
                    assert len(text) < 32, f"no terminal understands {text[:20]!r}"
                    self._rest = text
                    return
                text = text[control.end():]
                self._control(*control.groups())
                continue
            if text[0] == "\r":
                self._column = 0
            elif text[0] == "\n":
                self._row += 1
            else:
                if self._row < self.height and self._column < self.width:
                    self._page[self._row][self._column] = text[0]
                self._column += 1
            text = text[1:]

    def _control(self, parameters, final):
        if final == "H":
            self._row, self._column = (int(n) - 1 for n in (parameters or "1;1").split(";"))
        elif final == "K" and self._row < self.height:
            self._page[self._row][self._column:] = [" "] * (self.width - self._column)
        elif final == "J":
            self.forget()
        elif parameters == "?1049":
            self.alternate = final == "h"
        elif parameters == "?25":
            self.has_cursor = final == "h"
        else:
            assert final in "mhlK", f"no terminal understands ESC [ {parameters}{final}"
