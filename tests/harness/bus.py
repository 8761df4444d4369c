"""A bus of a host's own, with the rules of a system bus and the project's policy."""
import itertools
import json
import os

from .places import TOP
from .program import Daemon, run
from .waiting import eventually

POLICY = TOP / "conf/org.tenure.Membership1.conf"
DAEMON = "org.freedesktop.DBus"
GONE = "/org/freedesktop/DBus", DAEMON, "NameOwnerChanged", "sss"  # then a name, before and after
_numbers = itertools.count()

# As Debian's system.conf, apart from what this user may ask of the bus itself, and polkit's part.
_CONFIGURATION = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <auth>EXTERNAL</auth>
  <listen>{address}</listen>
  <policy context="default">
    <allow user="*"/>
    <deny own="*"/>
    <deny send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
    <allow send_destination="org.freedesktop.DBus"/>
    <allow own="org.freedesktop.PolicyKit1"/>
    <allow send_destination="org.freedesktop.PolicyKit1"/>
  </policy>
  {limits}
  <include>policy.conf</include>
</busconfig>
"""


def plain(said):
    """What busctl prints as JSON, without the types."""
    if isinstance(said, dict):
        if set(said) == {"type", "data"}:
            return plain(said["data"])
        return {name: plain(given) for name, given in said.items()}
    return [plain(given) for given in said] if isinstance(said, list) else said


class Calls:
    """What has .busctl() gets these calls by it."""

    def call(self, destination, path, interface, method, *arguments):
        """The values that the method returns, as a list."""
        said = self.busctl("call", destination, path, interface, method, *arguments)
        return plain(json.loads(said)["data"]) if said.strip() else []

    def properties(self, destination, path, interface):
        return self.call(destination, path, "org.freedesktop.DBus.Properties", "GetAll", "s",
                         interface)[0]

    def subscribers(self, interface):
        """The process ids of those who have asked for signals of the interface."""
        bus = "org.freedesktop.DBus", "/org/freedesktop/DBus"
        rules, = self.call(*bus, "org.freedesktop.DBus.Debug.Stats", "GetAllMatchRules")
        return {self.call(*bus, "org.freedesktop.DBus", "GetConnectionUnixProcessID", "s", name)[0]
                for name, asked in rules.items()
                if any(f"interface='{interface}'" in rule for rule in asked)}


class Bus(Calls, Daemon):
    """Answers when it has been made. @limits: as in dbus-daemon(1)."""

    def __init__(self, folder, name="bus", **limits):
        # An abstract socket: the path of one in a folder may be 107 bytes long.
        self.address = f"unix:abstract=tenure-tests-{os.getpid()}-{next(_numbers)}"
        configuration = folder / f"{name}.d"
        configuration.mkdir()
        (configuration / "bus.conf").write_text(_CONFIGURATION.format(
            address=self.address, limits="".join(f'<limit name="{limit}">{most}</limit>'
                                                 for limit, most in limits.items())))
        # Whoever runs the tests has the part of root here.
        (configuration / "policy.conf").write_text(
            POLICY.read_text().replace('user="root"', f'user="{os.getuid()}"'))
        super().__init__(folder / f"{name}.log", "dbus-daemon", "--nofork", "--nopidfile",
                         f"--config-file={configuration}/bus.conf")
        self.start()
        eventually(lambda: self.busctl("list"))

    @property
    def environment_for_clients(self):
        return {"DBUS_SYSTEM_BUS_ADDRESS": self.address}

    def busctl(self, *words):
        return run("busctl", f"--address={self.address}", "--json=short", *words)

    def name_of(self, pid):
        """The name of the process's connection."""
        return next(client["name"] for client in json.loads(self.busctl("list"))
                    if client["pid"] == pid and client["name"].startswith(":"))

    def signal_to(self, pid, path, interface, member, *arguments):
        """A stranger sends the signal straight to the connection of the process."""
        self.busctl("emit", f"--destination={self.name_of(pid)}", path, interface, member,
                    *arguments)
