"""A network, and a resolver, of a test's own."""
from .namespaces import namespaces
from .places import TOP
from .program import Daemon, run
from .waiting import eventually


class Network:
    """Loopback, and a link on which no other host is: addresses of it do not answer. What is
    started in this context is in it, and resolves names below .domain as .names says."""

    domain, silent = "tenure.test", ("10.78.0.98", "10.78.0.99", "fd00:78::98", "fd00:78::99")

    def __init__(self, folder):
        self.folder, self._hosts = folder, folder / "hosts"
        self._namespaces = namespaces("net", "mnt")
        self._hosts.touch()

    def __enter__(self):
        self._namespaces.__enter__()
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "live", "type", "veth", "peer", "name", "nobody")
        for link in "live", "nobody":
            run("ip", "link", "set", link, "up")
        run("ip", "address", "add", "10.78.0.53/24", "dev", "live")
        run("ip", "address", "add", "fd00:78::1/64", "dev", "live", "nodad")
        for file, text in (("resolv.conf", "nameserver 10.78.0.53\n"),
                           ("nsswitch.conf", "hosts: dns\n")):
            (self.folder / file).write_text(text)
            run("mount", "--bind", self.folder / file, f"/etc/{file}")
        self.resolver = Daemon(self.folder / "dns.log", "/usr/bin/python3", "-B",
                               TOP / "tests/harness/dns.py", "10.78.0.53", self.domain, self._hosts)
        self.resolver.start()
        eventually(lambda: "ready" in self.resolver.text())
        return self

    def names(self, **addresses):
        """names(h1=["10.78.0.1"]): from now on."""
        new = self._hosts.with_suffix(".new")
        new.write_text("".join(f"{name} {address}\n" for name, given in addresses.items()
                               for address in given))
        new.rename(self._hosts)

    def __exit__(self, *error):
        self._namespaces.__exit__(*error)
