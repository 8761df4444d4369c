"""A virtual machine that is paused, whose clocks all stand still meanwhile, and one whose clock is
slewed: how long it believes in a place that others know to be gone. The processor is emulated, so
that it runs anywhere; the kernel is Debian's; guest.c is all that runs on it."""
import contextlib
import json
import pathlib
import queue
import random
import re
import shutil
import signal
import socket
import statistics
import threading
import time

import pytest
from harness import ledger
from harness.cluster import Cluster
from harness.places import BIN, ENVIRONMENT, TOP
from harness.program import Daemon, run
from harness.rpc import pb
from harness.waiting import ProgramError, eventually

TTL = 3.0
KEY = b"/tenure/default/nodes/vm"
GUEST = BIN.parent / "tests/soak/guest"
KERNEL = TOP / "build/guest-kernel"  # fetched once
DRIVERS = [f"drivers/virtio/{name}" for name in (
    "virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci")] + [
    "net/core/failover", "drivers/net/net_failover", "drivers/net/virtio_net"]
# Not by its TSC: on a busy machine the guest takes that for some times faster or slower than it is.
BOOT = ("console=ttyS0 quiet loglevel=3 panic=-1 random.trust_cpu=on tsc=unstable clocksource=hpet "
        "nolapic_timer CORE=http://10.0.2.2:{} TTL_MS={:.0f}")


def fetch_kernel(folder):
    package = re.search(r"Depends: (\S+)", run("apt-cache", "depends", "linux-image-cloud-amd64"))
    run("apt-get", "download", package[1], cwd=folder)
    run("dpkg", "-x", *folder.glob("linux-image*.deb"), folder / "kernel")
    shutil.move(folder / "kernel", KERNEL)


def initramfs(files):
    """{path: content} in the "newc" format of cpio(5)."""
    def padded(part):
        return part + bytes(-len(part) % 4)

    def entry(name, mode, content=b""):
        numbers = 0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0
        head = b"070701" + b"".join(b"%08X" % number for number in numbers)
        return padded(head + name.encode() + b"\0") + padded(content)

    folders = {str(folder) for name in files for folder in pathlib.PurePath(name).parents} - {"."}
    return b"".join([*(entry(name, 0o40755) for name in sorted(folders | {"proc", "sys", "dev"})),
                     *(entry(name, 0o100755, content) for name, content in files.items()),
                     entry("TRAILER!!!", 0)])


def disk():
    """What the guest runs, what that needs, and the drivers of its network card."""
    modules, = (KERNEL / "lib/modules").iterdir()
    drivers = {f"lib/{pathlib.PurePath(name).name}.ko":
               (modules / "kernel" / f"{name}.ko").read_bytes() for name in DRIVERS}
    libraries = re.findall(r"/(\S+) \(", run("ldd", GUEST))
    return initramfs({"init": GUEST.read_bytes(), "modules": "\n".join(drivers).encode(), **drivers,
                      **{name: pathlib.Path("/", name).read_bytes() for name in libraries}})


class Guest(Daemon):
    """It says every 5 ms whether it believes in its place. That is taken for true when it arrives
    here, so that a belief is rather counted too long than too short. Leases are those of its key,
    and instants those of this process's time.monotonic()."""

    ends_by = signal.SIGKILL

    def __init__(self, folder, core):
        self.believes, self.lease, self.heard, self.resumed = False, 0, 0.0, 0.0
        self.believed = {}  # each lease: when it believed in it last
        self.holder, self.gone = 0, {}  # at the core; each lease: when the core has let it go
        self._clocks = queue.Queue()
        (folder / "initramfs").write_bytes(disk())
        (self._line, line), (mine, control) = socket.socketpair(), socket.socketpair()
        kernel, = (KERNEL / "boot").glob("vmlinuz-*")
        port, = (replica.client_url.rpartition(":")[2] for replica in core.running)
        super().__init__(
            folder / "guest.log", "qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", "max",
            "-m", "192", "-nodefaults", "-no-user-config", "-display", "none", "-kernel", kernel,
            "-initrd", folder / "initramfs", "-append", BOOT.format(port, TTL * 1000),
            "-chardev", f"socket,id=s,fd={line.fileno()}", "-serial", "chardev:s",
            "-chardev", f"socket,id=q,fd={control.fileno()}", "-mon", "chardev=q,mode=control",
            "-netdev", "user,id=n", "-device", "virtio-net-pci,netdev=n,id=card,romfile=")
        self.start(pass_fds=(line.fileno(), control.fileno()))
        line.close()
        control.close()
        self._watch = core.rpc().stream("etcdserverpb.Watch/Watch", pb.WatchRequest,
                                        between=self._see)
        self._watch.send(pb.WatchRequest(create_request=pb.WatchCreateRequest(key=KEY)))
        threading.Thread(target=self._hear, daemon=True).start()
        mine.settimeout(60)
        self._control = mine.makefile("rw")
        self._order("qmp_capabilities")
        eventually(lambda: self.said(r"(?m)^up$"))

    def _see(self, answer):
        for event in answer.events:
            if event.type == event.DELETE:
                self.gone[self.holder] = time.monotonic()
            self.holder = event.kv.lease

    def _hear(self):
        for line in self._line.makefile("r", errors="replace"):
            now = time.monotonic()
            match line.split():
                case ["b", believes, lease]:
                    self.believes, self.lease, self.heard = believes == "1", int(lease, 16), now
                    if self.believes:
                        self.believed[self.lease] = now
                case ["c", boot, ours]:
                    self._clocks.put((now, int(boot) / 1e9, int(ours) / 1e9))
                case _:
                    with open(self.log, "a") as log:
                        log.write(line)

    def _order(self, what, **arguments):
        """To the hypervisor."""
        self._control.write(json.dumps({"execute": what, "arguments": arguments}))
        self._control.flush()
        answer = next(said for said in map(json.loads, self._control)
                      if "return" in said or "error" in said)
        assert "return" in answer, answer

    def say(self, text):
        """As a hypervisor's agent and an NTP client would."""
        self._line.sendall(f"{text}\n".encode())

    @contextlib.contextmanager
    def paused(self):
        self._order("stop")
        yield
        self.resumed = time.monotonic()
        self._order("cont")

    @contextlib.contextmanager
    def cut(self):
        self._order("set_link", name="card", up=False)
        yield
        self._order("set_link", name="card", up=True)

    def clocks(self):
        """An instant, and what CLOCK_BOOTTIME and the clock of leases are in it: as nearly as a
        busy machine has them, those of the shortest of some round trips, and of its middle."""
        def ask():
            asked = time.monotonic()
            self.say("clocks")
            at, *clocks = self._clocks.get(timeout=60)
            return at - asked, [(asked + at) / 2, *clocks]

        return min(ask() for _ in range(20))[1]

    def settled(self):
        """It holds its place, and goes on for any part of a period. Returns the lease."""
        eventually(lambda: self.believes and self.lease == self.holder, patience=120)
        time.sleep(self.draw.uniform(0, TTL / 2))
        return self.lease


@pytest.fixture
def guest(shared, ports, tmp_path, seed):
    if not shutil.which("qemu-system-x86_64", path=ENVIRONMENT["PATH"]):
        pytest.skip("qemu is not installed (as root: apt install qemu-system-x86)")
    if not KERNEL.exists():
        try:
            fetch_kernel(tmp_path)
        except ProgramError as error:
            pytest.skip(f"Debian's linux-image-cloud-amd64 cannot be fetched: {error}")
    guest = shared("guest", lambda folder: Guest(folder, Cluster(folder, ports, 1)))
    guest.draw = random.Random(seed)
    guest.say("hints 0")
    guest.say("tick 10000")
    yield guest
    if ledger.failed():
        guest.kill()  # the next test gets another one


def test_short_pauses_cost_no_lease(guest, seconds):
    lease, end = guest.settled(), time.monotonic() + seconds

    while time.monotonic() < end:
        with guest.paused():
            time.sleep(guest.draw.uniform(0, TTL / 4))
        time.sleep(TTL / 2)

    assert guest.lease == guest.holder == lease


@pytest.mark.parametrize("hints, middle", [(0, TTL), (1, 0.4 * TTL)],
                         ids=["without a sign", "the date is set afterwards"])
def test_a_machine_that_was_paused_sees_within_its_ttl_that_its_place_is_gone(
        guest, seconds, tell, hints, middle):
    guest.say(f"hints {hints}")
    beyond, end = [], time.monotonic() + seconds

    while not beyond or time.monotonic() < end:
        lease, began = guest.settled(), time.monotonic()
        with guest.paused():
            eventually(lambda: lease in guest.gone, patience=5 * TTL)
            stood = time.monotonic() - began
            time.sleep(guest.draw.uniform(0, TTL / 2))
        guest.say(f"date {stood:.0f}")
        eventually(lambda: guest.heard > guest.resumed
                   and not (guest.believes and guest.lease == lease))
        beyond.append(max(0.0, guest.believed[lease] - guest.resumed))

    tell(f"{len(beyond)} pauses: believed in what was gone for "
         f"{statistics.median(beyond) * 1000:.0f} ms, {max(beyond) * 1000:.0f} ms at the most")
    # Without a sign at half the TTL; on a busy machine the answer may come later, but what its own
    # clock says ends it.
    assert max(beyond) < 1.05 * TTL
    assert statistics.median(beyond) < middle


@pytest.mark.parametrize("tick", [9000, 11000, 10000])
def test_a_machine_whose_clock_is_slewed_gives_up_its_place_before_the_core_does(
        guest, tell, tick):
    guest.say(f"tick {tick}")
    time.sleep(1)
    before = guest.clocks()
    time.sleep(8)
    here, boot, ours = (after - was for after, was in zip(guest.clocks(), before))
    assert (boot / here, ours / here) == (pytest.approx(tick / 10000, abs=0.02),
                                          pytest.approx(1, abs=0.02))
    lease = guest.settled()

    with guest.cut():
        eventually(lambda: lease in guest.gone and not guest.believes, patience=5 * TTL)

    early = guest.gone[lease] - guest.believed[lease]
    tell(f"CLOCK_BOOTTIME goes at {boot / here:.3f}, the clock of leases at {ours / here:.3f}; "
         f"given up {early * 1000:.0f} ms before the core does")
    # What it says may be some time on its way; a tenth of the TTL is what the slew would be worth.
    assert early > -TTL / 15
