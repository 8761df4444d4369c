"""A program that runs for a test."""
import re
import signal
import subprocess

from . import ledger
from .places import ENVIRONMENT
from .waiting import PATIENCE, ProgramError

# A daemon dies with the process that started it, however that ends. It is the kernel that sees
# to this: a process that was killed cleans nothing up. Each program has a session of its own, so
# that ^C ends the tests, and they end the programs.
_LAUNCHER = ["setpriv", "--pdeathsig", "KILL", "--"]


class Daemon:
    """A program that runs until it is ended. Its output goes to the file @log; or only what it
    says on standard error, and the rest to @out. @environment: in addition to ENVIRONMENT."""

    ends_by = signal.SIGTERM

    def __init__(self, log, *command, out=None, **environment):
        self.log, self.out = log, out
        self.name = log.name.removesuffix(".log")
        self.command, self.environment = [str(word) for word in command], environment
        self.process, self._sent = None, set()
        self._asked = self._judged = False
        self._read = 0

    def start(self, **files):
        """@files: as of Popen, in place of an empty input and the logs."""
        assert not self.is_running, f"{self.name} runs already"
        if self.process:
            self._judge_end()
        self._sent = set()
        self._asked = self._judged = False
        with open(self.log, "ab") as log, open(self.out or self.log, "ab") as out:
            self.process = subprocess.Popen(
                _LAUNCHER + self.command, cwd=self.log.parent,
                env={**ENVIRONMENT, **self.environment}, start_new_session=True,
                **{"stdin": subprocess.DEVNULL, "stdout": out, "stderr": log, **files})
        ledger.enter(self)
        return self

    @property
    def is_running(self):
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self):
        return self.process.pid

    def signal(self, number):
        """The test sends it a signal, and so is not surprised if it dies of that."""
        self._sent.add(number)
        self.process.send_signal(number)

    def expect_death_by(self, number):
        """Somebody else sends it this signal, on behalf of the test."""
        self._sent.add(number)

    def wait(self, patience=PATIENCE):
        """Waits for its end and returns the exit status, which is the test's to judge."""
        __tracebackhide__ = True
        try:
            status = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {patience:.0f} s") from None
        self._asked = True
        return status

    def stop(self):
        """As systemd does it. Returns the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self):
        """As a power failure of this one program."""
        self.signal(signal.SIGKILL)
        self.process.wait()

    def freeze(self):
        """It keeps everything that it has, and does nothing until thaw()."""
        self.signal(signal.SIGSTOP)

    def thaw(self):
        self.signal(signal.SIGCONT)

    def text(self):
        """What it has written to standard output, or all that it has written if that is one."""
        file = self.out or self.log
        return file.read_text(errors="replace") if file.exists() else ""

    def lines(self):
        """The complete lines of text()."""
        return self.text().split("\n")[:-1]

    def log_text(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def said(self, pattern):
        """What of its log the regular expression fits, or None."""
        return re.search(pattern, self.log_text())

    # ---- for the ledger ----

    def ask_to_end(self):
        """Asks, rather than kills: a sanitizer tells of leaks at an orderly end only."""
        if self.is_running:
            self.signal(signal.SIGCONT)
            self.signal(self.ends_by)

    def end(self):
        if self.process is None:
            return
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            ledger.complain(f"{self.name} still runs {PATIENCE:.0f} s after "
                            f"{signal.Signals(self.ends_by).name}")
            self.kill()

    def judge(self):
        """Complains of what has happened to it since it was judged last."""
        self._judge_end()
        text = self.log_text()
        ledger.suspicious(self.name, text[self._read:])
        self._read = len(text)

    def _judge_end(self):
        status = self.process.poll()
        if status is None or self._judged:
            return
        self._judged = True
        if status < 0 and -status not in self._sent:
            ledger.complain(f"{self.name} died of {signal.Signals(-status).name}, "
                            "which the test did not send")
        if status > 0 and not self._asked:
            ledger.complain(f"{self.name} ended with status {status}, "
                            "which the test did not ask for")


def run(*command, stdin="", cwd=None, may_die_of=(), patience=PATIENCE, **environment):
    """Runs a command to its end, and returns what it printed. Another exit status than 0 is a
    ProgramError, and a death by a signal other than @may_die_of fails the test as well."""
    command = [str(word) for word in command]
    name = command[0].rsplit("/", 1)[-1]
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True,
                              errors="replace", env={**ENVIRONMENT, **environment}, cwd=cwd,
                              timeout=patience, start_new_session=True)
    except subprocess.TimeoutExpired as hang:
        raise ProgramError(name, f"unknown, since it still ran after {patience:.0f} s",
                           err=(hang.stderr or b"").decode(errors="replace")) from None
    ledger.suspicious(name, done.stderr)
    if done.returncode < 0 and -done.returncode not in may_die_of:
        ledger.complain(f"{name} died of {signal.Signals(-done.returncode).name}")
    if done.returncode:
        raise ProgramError(name, done.returncode, done.stdout, done.stderr)
    return done.stdout
