"""Three replicas on a bridge, each in a network namespace and on a small file system of its own,
and what may happen to them."""
import contextlib
import pathlib
import random
import shutil
import time

from harness.cluster import Cluster, Replica
from harness.namespaces import namespaces
from harness.places import BIN
from harness.program import run

from soak.bed import SLOW
from soak.clients import now

HOSTILE = "10.99.0.251"
FREEZER = pathlib.Path("/sys/fs/cgroup/freezer")
HOOKS = "input", "forward", "output"
NAMES = pathlib.Path("/run/netns")  # a file system of our own, with a path without a blank
SLOW_SYNC = BIN.parent / "tests/soak/slow_sync.so"
SLOWS_DISKS = SLOW == 1 and SLOW_SYNC.exists()  # it does not work with sanitizers


def commands(*texts):
    for text in texts:
        run(*text.split())


class Place(Replica):
    def __init__(self, name, folder, ip):
        self.link, self.sync = f"veth-{name}", folder / f"{name}.sync"
        preload = {"LD_PRELOAD": f"{NAMES}/{SLOW_SYNC.name}", "SLOW_SYNC": str(self.sync)}
        super().__init__(name, folder, 2379, 2380, "--allow-plaintext-peers",
                         "--snapshot-count=100", **(preload if SLOWS_DISKS else {}))
        self.client_url, self.peer_url = f"http://{ip}:2379", f"http://{ip}:2380"
        commands(f"ip netns add {name}",
                 f"ip link add {self.link} type veth peer name eth0 netns {name}",
                 f"ip link set {self.link} master br0 up",
                 f"ip -n {name} addr add {ip}/24 dev eth0", f"ip -n {name} link set eth0 up",
                 f"ip -n {name} link set lo up")
        self.data.mkdir()
        run("mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", self.data)
        self.sync.write_text("0")
        self.group = FREEZER / f"tenure-{folder.name}-{name}"

    def configure(self, *given):
        super().configure(*given)
        self.command = ["ip", "netns", "exec", self.name, *self.command]


class Places(Cluster):
    def new_replica(self, name):
        self.replicas[name] = Place(name, self.folder, f"10.99.0.{len(self.replicas) + 1}")

    @staticmethod
    @contextlib.contextmanager
    def around(folder):
        """The test is beside the bridge, with an address on it."""
        NAMES.mkdir(exist_ok=True)
        with namespaces("net", "mnt"):
            commands(f"mount -t tmpfs tmpfs {NAMES}", "ip link set lo up",
                     "ip link add br0 type bridge", "ip addr add 10.99.0.250/24 dev br0",
                     f"ip addr add {HOSTILE}/24 dev br0", "ip link set br0 up",
                     "nft add table bridge storm",
                     *("nft add chain bridge storm " + hook
                       + f" {{ type filter hook {hook} priority 0; }}" for hook in HOOKS))
            if SLOWS_DISKS:
                shutil.copy(SLOW_SYNC, NAMES)
            yield Places(folder, None)


class Faults:
    """Each kind is a generator, which causes it first, and then heals it."""

    def __init__(self, places, seed):
        self.places, self.random = [*places.replicas.values()], random.Random(seed)
        self.counts, self.ended, self._rules, self._under_way = {}, [], {}, []
        kinds = ["cut", "cut_from_peers", "one_way", "lossy", "slow_link", "stopped", "killed",
                 "killed", "all_killed", "disk_full"]
        self.kinds = (kinds + ["frozen"] * FREEZER.is_dir() + ["slow_disk"] * SLOWS_DISKS)

    def _drop(self, place, *rules, some=""):
        """@rules: of a hook and a side of its link each."""
        for under_way in rules, ():
            self._rules[place, rules] = [
                f'add rule bridge storm {hook} {side} "{place.link}" {some} drop'
                for hook, side in map(str.split, under_way)]
            run("nft", "-f", "-", stdin="\n".join(
                [f"flush chain bridge storm {hook}" for hook in HOOKS]
                + sum(self._rules.values(), [""])))
            yield

    def cut(self, place):
        return self._drop(place, "input iifname", "forward iifname", "forward oifname",
                          "output oifname")

    def cut_from_peers(self, place):
        return self._drop(place, "forward iifname", "forward oifname")

    def one_way(self, place):
        return self._drop(place, self.random.choice(("forward iifname", "forward oifname")))

    def lossy(self, place):
        lost = self.random.choice((5, 20, 40))
        return self._drop(place, "forward iifname", "input iifname",
                          some=f"numgen random mod 100 < {lost}")

    def slow_link(self, place):
        link = f"dev {place.link} root"
        commands(f"tc qdisc replace {link} tbf rate 200kbit burst 4kb latency 400ms")
        yield
        commands(f"tc qdisc del {link}")

    def stopped(self, place):
        place.freeze()
        yield
        place.thaw()

    def frozen(self, place):
        place.group.mkdir()
        (place.group / "tasks").write_text(str(place.pid))
        (place.group / "freezer.state").write_text("FROZEN")
        yield
        (place.group / "freezer.state").write_text("THAWED")
        (FREEZER / "tasks").write_text(str(place.pid))
        place.group.rmdir()

    def killed(self, *places):
        for place in places:
            place.kill()
        yield
        for place in places:
            place.start()

    def all_killed(self, _):
        return self.killed(*self.places)

    def disk_full(self, place):
        with open(place.data / "fill", "wb", buffering=0) as f:
            for size in 1 << 16, 1 << 12:
                with contextlib.suppress(OSError):
                    while f.write(bytes(size)) == size:
                        pass
        yield
        (place.data / "fill").unlink()

    def slow_disk(self, place):
        place.sync.write_text(str(self.random.choice((50, 300, 1000))))
        yield
        place.sync.write_text("0")

    def _heal(self):
        self.random.shuffle(self._under_way)
        while self._under_way:
            next(self._under_way.pop(), None)
            time.sleep(self.random.choice((0, .05, .3)))

    def go_on(self, until, meanwhile):
        """One to three at a time, on replicas of their own; then a moment of peace, mostly."""
        choice = self.random.choice
        try:
            while now() < until:
                some = self.random.sample(self.places, choice((1, 1, 1, 2, 2, 3)))
                for place in some:
                    kind = choice(self.kinds)
                    if kind == "all_killed" and len(some) > 1 or not place.is_running:
                        continue
                    self._under_way.append(getattr(self, kind)(place))
                    next(self._under_way[-1])
                    self.counts[kind] = self.counts.get(kind, 0) + 1
                    time.sleep(choice((0, 0, .1, .3)))
                time.sleep(choice((.1, .5, 1, 1.5, 2.5)))
                self._heal()
                for place in self.places:  # those that we ended were started again
                    if not place.is_running:
                        self.ended.append(f"{place.name} ended with {place.process.returncode}")
                        place.start()
                meanwhile()
                time.sleep(choice((.1, .3, 1, 2)))
        finally:
            self._heal()
