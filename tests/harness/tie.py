"""Ties of libtenure, each in a program of its own that the test can freeze and kill."""
import itertools
import os
import pathlib
from multiprocessing.connection import Listener

from .library import python
from .program import Daemon
from .waiting import PATIENCE, eventually

_PROCESS = pathlib.Path(__file__).with_name("tie_process.py")
_numbers = itertools.count()


class TieError(Exception):
    """A tenure.Error of the program: .kind is the name of its class."""

    def __init__(self, kind, errno, strerror):
        self.kind, self.errno, self.strerror = kind, errno, strerror
        super().__init__(f"{kind} {errno}: {strerror}")


class Remote:
    """A Lock, Watch or Work of the program. All that it has is called, properties as well:
    lock.held(), lock.release()."""

    def __init__(self, tie, number):
        self._tie, self._number = tie, number

    def __getattr__(self, name):
        return lambda *arguments, **options: self._tie.begin(
            name, *arguments, of=self._number, **options)()

    def __eq__(self, other):
        return isinstance(other, Remote) and vars(self) == vars(other)


class Tie(Daemon):
    """The program. It dispatches all the time, and what this class does not have is asked of its
    tenure.Tie: tie.put("a", "1"), tie.may_act(). @options: of the tenure.Tie."""

    _TIE, _ITSELF = 0, 1  # as tie_process.py numbers them

    def __init__(self, folder, environment, **options):
        number, self._events, self._heard = next(_numbers), [], 0
        address = f"tenure-ties-{os.getpid()}-{number}"
        with Listener("\0" + address, "AF_UNIX") as listener:
            command, environment = python(_PROCESS, address, repr(options), **environment)
            super().__init__(folder / f"tie{number}.log", *command, **environment)
            self.start()
            listener._listener._socket.setblocking(False)
            self._connection = eventually(lambda: self._accept(listener))

    def _accept(self, listener):
        if not self.is_running:
            raise RuntimeError(f"{self.name} has ended: {self.log_text()}")
        try:
            return listener.accept()
        except BlockingIOError:
            return None

    def begin(self, name, /, *arguments, of=_TIE, **options):
        """Asks for it, and returns a function that returns the answer."""
        self._connection.send((of, name, arguments, options))
        return self._answer

    def _answer(self):
        assert self._connection.poll(PATIENCE), f"{self.name} does not answer"
        value, error = self._connection.recv()
        if error:
            raise TieError(*error)
        return self._here(value)

    def _here(self, value):
        if isinstance(value, list):
            return [self._here(one) for one in value]
        if hasattr(value, "kept"):
            return Remote(self, value.kept)
        for name, one in getattr(value, "__dict__", {}).items():
            setattr(value, name, self._here(one))
        return value

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments, **options: self.begin(name, *arguments, **options)()

    def clock(self):
        return self.begin("clock", of=self._ITSELF)()

    def begin_put_held_and_stop(self, key, value):
        """As begin(); the program decides on the write, and stops before it sends anything."""
        return self.begin("put_held_after_a_stop", key, value, of=self._ITSELF)

    def events(self):
        """All that it was told so far."""
        self._events += self.begin("events", len(self._events), of=self._ITSELF)()
        return self._events

    def told(self):
        return [event.type for event in self.events()]

    def hears(self, kind):
        """Waits for the next event of this type after the one that was heard last."""
        __tracebackhide__ = True

        def look():
            events = self.events()
            for i in range(self._heard, len(events)):
                if events[i].type == kind:
                    self._heard = i + 1
                    return events[i]
            raise AssertionError(f"no {kind} came, but {events[self._heard:]}")

        return eventually(look)

    def waits_stopped(self):
        """Waits until it has stopped itself."""
        eventually(lambda: "\nState:\tT" in pathlib.Path(f"/proc/{self.pid}/status").read_text())
