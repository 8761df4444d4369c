"""D-Bus message by message, for what busctl cannot show: what is answered when, and to whom."""
import itertools
import os
import socket
import threading
from contextlib import contextmanager, suppress

from gi.repository import Gio, GLib

from .agent import MANAGER, NAME, PATH
from .waiting import eventually

ERROR = Gio.DBusMessageType.ERROR
MAY_ASK_THE_USER = Gio.DBusMessageFlags.ALLOW_INTERACTIVE_AUTHORIZATION
BUS = "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus"
_ABLE_TO = Gio.DBusCapabilityFlags.UNIX_FD_PASSING


def values(message):
    return message.get_body().unpack() if message.get_body() else ()


@contextmanager
def _effective(user):
    before = os.geteuid()
    os.seteuid(before if user is None else user)
    try:
        yield
    finally:
        os.seteuid(before)


class Connection:
    """Reads only what it is asked to, as no library does. @user: the id of whose connection it is,
    for root."""

    def __init__(self, bus, user=None):
        self._serials = itertools.count(1)
        self._socket = socket.socket(socket.AF_UNIX)
        self._in = self._socket.makefile("rb")
        with _effective(user):  # the bus asks the kernel for that of connect()
            self._socket.connect("\0" + bus.address.removeprefix("unix:abstract="))
            self._socket.sendall(b"\0AUTH EXTERNAL %s\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n"
                                 % str(os.geteuid()).encode().hex().encode())
            assert self._in.readline().startswith(b"OK")
            assert self._in.readline().startswith(b"AGREE")
        self.name, = self.call(*BUS, "Hello")

    def _send(self, message, types, values):
        if types:
            message.set_body(GLib.Variant(f"({types})", values))
        message.set_serial(next(self._serials))
        self._socket.sendall(message.to_blob(_ABLE_TO))
        return message.get_serial()

    def send(self, to, path, interface, method, types="", *values, flags=Gio.DBusMessageFlags.NONE):
        """Returns the call's number, by which its answer is known."""
        call = Gio.DBusMessage.new_method_call(to, path, interface, method)
        call.set_flags(flags)
        return self._send(call, types, values)

    def send_signal(self, to, path, interface, member):
        signal = Gio.DBusMessage.new_signal(path, interface, member)
        signal.set_destination(to)
        return self._send(signal, "", ())

    def answer(self, call, types, *values):
        self._send(call.new_method_reply(), types, values)

    def receive(self):
        """The next message, a Gio.DBusMessage."""
        head = self._in.read(16)
        if len(head) < 16:
            raise EOFError
        rest = self._in.read(Gio.DBusMessage.bytes_needed(head) - len(head))
        return Gio.DBusMessage.new_from_blob(head + rest, _ABLE_TO)

    def answers(self, serials):
        """Waits for the answers to these calls, and returns what has come with them, in order."""
        missing, came = set(serials), []
        while missing:
            came.append(self.receive())
            missing.discard(came[-1].get_reply_serial())
        return came

    def call(self, *words, **options):
        """The values that the method returns, or a GLib.Error."""
        *_, answer = self.answers([self.send(*words, **options)])
        answer.to_gerror()
        return values(answer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._in.close()
        self._socket.close()


@contextmanager
def changes_of(agent, name):
    """Gives a function that waits until this property of the Manager reads as @value, and returns
    the values that were announced until then."""
    get = NAME, PATH, "org.freedesktop.DBus.Properties", "Get", "ss", MANAGER, name
    with Connection(agent.bus) as caller:
        caller.call(*BUS, "AddMatch", "s",
                    f"type='signal',path='{PATH}',member='PropertiesChanged'")

        def until(value):
            announced = []

            def reads_so():
                *told, answer = caller.answers([caller.send(*get)])
                announced.extend(values(change)[1][name] for change in told
                                 if name in values(change)[1])
                return values(answer) == (value,)

            eventually(reads_so)
            return announced

        yield until


class Polkit:
    """Stands in for polkit: allows what concerns a service or a lock "allowed", and does not answer
    for "later". .asked has (action, details, whether the user may be asked), .open the ids of the
    questions that were neither answered nor canceled."""

    def __init__(self, bus):
        self.asked, self.open, self._bus = [], [], Connection(bus)
        self._bus.call(*BUS, "RequestName", "su", "org.freedesktop.PolicyKit1", 0)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with suppress(EOFError, OSError):  # the bus has ended
            while True:
                call = self._bus.receive()
                if call.get_member() == "CheckAuthorization":
                    _, action, details, flags, number = values(call)
                    self.asked.append((action.rpartition(".")[2], details, flags == 1))
                    if details.get("service") == "later":
                        self.open.append(number)
                        continue
                    may = "allowed" in (details.get("service"), details.get("lock"))
                    self._bus.answer(call, "(bba{ss})", (may, not may, {}))
                elif call.get_member() == "CancelCheckAuthorization":
                    self.open.remove(*values(call))
