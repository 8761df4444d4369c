"""A program on a terminal of its own, and what is on its page: as much of ECMA-48 as tenurectl top uses, for tests."""
import fcntl, os, pty, re, select, signal, struct, termios, time


class Page:
    def __init__(self, argv, width=80, height=24, env=None):
        self.raw, self.left, self.alternate, self.hidden = b"", "", False, False
        self.size(width, height, first=True)
        master, slave = pty.openpty()
        self.fd, self.slave = master, slave  # our own, so that its settings can be seen when the program has ended
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.before = termios.tcgetattr(slave)
        # Between a session's leader, as a shell is, and the kernel: what has no such parent cannot be stopped by ^Z.
        said, says = os.pipe()
        self.leader = os.fork()
        if self.leader == 0:
            self.lead(argv, env, says)
        os.close(says)
        self.said = os.fdopen(said)
        self.pid = int(self.said.readline())

    def lead(self, argv, env, says):
        os.setsid()
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
        for n in signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP:
            signal.signal(n, signal.SIG_DFL)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            os.tcsetpgrp(self.slave, os.getpid())
            signal.signal(signal.SIGTTOU, signal.SIG_DFL)
            for i in 0, 1, 2:
                os.dup2(self.slave, i)
            os.closerange(3, 256)
            os.environ.update({"TERM": "xterm", "LC_ALL": "C.UTF-8"})
            os.environ.update(env or {})
            os.execv(argv[0], argv)
        for n in signal.SIGINT, signal.SIGHUP, signal.SIGTERM:
            signal.signal(n, signal.SIG_IGN)
        os.write(says, b"%d\n" % pid)
        status = 0x7f
        while os.WIFSTOPPED(status):
            status = os.waitpid(pid, os.WUNTRACED)[1]
            os.write(says, b"%d\n" % status)
        os._exit(0)

    def size(self, width, height, first=False):
        self.width, self.height = width, height
        self.lines = [[" "] * width for _ in range(height)]
        self.row = self.column = 0
        if not first:
            fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def forget(self):
        """What is on it from now on has been written from now on."""
        self.lines = [[" "] * self.width for _ in range(self.height)]

    def take(self, data):
        """What it has written comes onto the page."""
        self.raw += data
        text = self.left + data.decode(errors="surrogateescape")
        self.left = ""
        while text:
            if text[0] == "\x1b":
                m = re.match(r"\x1b\[([?0-9;]*)([@-~])", text)
                if not m:
                    if len(text) > 32:
                        raise SystemExit(f"not ok the terminal understands {text[:20]!r}")
                    self.left = text
                    return
                text = text[m.end():]
                self.control(m[1], m[2])
            elif text[0] in "\r\n":
                self.row, self.column = (self.row + 1, self.column) if text[0] == "\n" else (self.row, 0)
                text = text[1:]
            else:
                if self.row < self.height and self.column < self.width:
                    self.lines[self.row][self.column] = text[0]
                self.column += 1
                text = text[1:]

    def control(self, parameters, final):
        if final == "H":
            at = [int(n) for n in (parameters or "1;1").split(";")]
            self.row, self.column = at[0] - 1, at[1] - 1
        elif final == "K":
            if self.row < self.height:
                self.lines[self.row][self.column:] = [" "] * (self.width - min(self.column, self.width))
        elif final == "J":
            self.lines = [[" "] * self.width for _ in range(self.height)]
        elif parameters == "?1049":
            self.alternate = final == "h"
        elif parameters == "?25":
            self.hidden = final == "l"
        elif final not in "mhl":
            raise SystemExit(f"not ok the terminal understands ESC [ {parameters}{final}")

    def pump(self, seconds):
        """What comes within that time; False once nobody writes any more."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            data = b""
        self.take(data)
        return data != b""

    def text(self):
        return "\n".join("".join(line).rstrip() for line in self.lines)

    def shows(self, pattern, seconds=10):
        """Waits until a line, or several, look like that."""
        end = time.monotonic() + seconds
        while True:
            m = re.search(pattern, self.text(), re.M)
            left = end - time.monotonic()
            if m or left <= 0:
                return m
            self.pump(min(left, 0.1))

    def wrote(self, text, seconds=10):
        """Waits until it has written that, wherever it is by now: events scroll."""
        end = time.monotonic() + seconds
        while text not in self.raw.decode(errors="replace"):
            left = end - time.monotonic()
            if left <= 0:
                return False
            self.pump(min(left, 0.1))
        return True

    def shows_not(self, pattern, seconds=10):
        end = time.monotonic() + seconds
        while re.search(pattern, self.text(), re.M):
            left = end - time.monotonic()
            if left <= 0:
                return False
            self.pump(min(left, 0.1))
        return True

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def wait(self, seconds=10):
        """Its status as of waitpid(2), once it ends or is stopped, or None."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.said], [], [], 0)[0]:
                while select.select([self.fd], [], [], 0)[0] and self.pump(0):
                    pass
                return int(self.said.readline())
            self.pump(0.05)
        return None

    def is_restored(self):
        """The terminal is as it was before the program."""
        return termios.tcgetattr(self.slave) == self.before and not self.alternate and not self.hidden

    def kill(self):
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
