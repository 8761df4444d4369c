"""Who has the page of the place locked delays a leave until the deadline, and is named."""
import fcntl
import os
import signal
import struct

import pytest
from gi.repository import Gio
from harness.agent import MANAGER, NAME, PATH
from harness.notifications import Notifications
from harness.program import Daemon
from harness.waiting import eventually

UNLOCK = struct.pack("hhqqi", fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)
HOLDER = """
import fcntl, os, struct, sys, time
fcntl.fcntl(0, int(sys.argv[1]), struct.pack("hhqqi", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
print("locked", flush=True)
time.sleep(3600)
"""
_PRIVATE = (Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT
            | Gio.DBusConnectionFlags.MESSAGE_BUS_CONNECTION)


def open_page(agent):
    """A descriptor of it, as a program on the bus gets it, and the name of its connection."""
    bus = Gio.DBusConnection.new_for_address_sync(agent.bus.address, _PRIVATE, None, None)
    _, descriptors = bus.call_with_unix_fd_list_sync(NAME, PATH, MANAGER, "OpenTenancy", None, None,
                                                     Gio.DBusCallFlags.NONE, -1, None, None)
    return descriptors.get(0), bus


@pytest.mark.parametrize("lock, named", [
    (fcntl.F_OFD_SETLK, lambda bus, _: f"user {os.getuid()} ({bus.get_unique_name()})"),
    (fcntl.F_SETLK, lambda _, holder: f"process {holder.pid}"),
], ids=["of a description", "of a process"])
def test_who_delays_a_leave_is_named_and_a_stop_is_extended_meanwhile(agents, tmp_path, lock,
                                                                      named):
    systemd = Notifications()
    agent = agents("h1", TTL="60s", environment=systemd.environment)
    page, bus = open_page(agent)
    # Another process: the test's own lock would end when GLib closes a copy of the descriptor.
    holder = Daemon(tmp_path / "holder.log", "python3", "-c", HOLDER, lock).start(stdin=page)
    eventually(lambda: "locked" in holder.text())

    agent.signal(signal.SIGTERM)
    agent.log_has(named(bus, holder))
    eventually(lambda: systemd.text().count("EXTEND_TIMEOUT_USEC=") >= 3)

    assert agent.is_running
    fcntl.fcntl(page, fcntl.F_OFD_SETLK, UNLOCK)
    holder.kill()
    assert agent.wait() == 0
    os.close(page)
    systemd.close()
