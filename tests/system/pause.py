#!/usr/bin/env python3
"""pause.sh's other half: packs an initramfs; runs the guest, pauses it, slews its clock, and judges what it believes.

The guest says every 5 ms, on a line of its own, whether it believes in its place. What it says is taken for true when it
arrives here, so that a belief is rather counted too long than too short.
"""
import atexit, json, os, random, select, socket, subprocess, sys, time

import etcd3

TTL = 3.0
KEY = "/tenure/default/nodes/vm"


def initramfs(root, out):
    """In the "newc" format of cpio(5)."""
    def entry(name, mode, data, ino, rdev=(0, 0)):
        head = b"070701" + b"".join(b"%08X" % v for v in (ino, mode, 0, 0, 1, 0, len(data), 0, 0, *rdev, len(name) + 1, 0))
        b = head + name.encode() + b"\0"
        b += b"\0" * (-len(b) % 4) + data
        return b + b"\0" * (-len(data) % 4)
    with open(out, "wb") as f:
        n = 1
        f.write(entry("dev", 0o40755, b"", n))
        f.write(entry("dev/console", 0o20600, b"", n + 1, (5, 1)))
        for at, dirs, files in os.walk(root):
            for name in sorted(dirs) + sorted(files):
                n += 2
                path = os.path.join(at, name)
                inside = os.path.relpath(path, root)
                if os.path.isdir(path):
                    f.write(entry(inside, 0o40755, b"", n))
                else:
                    f.write(entry(inside, 0o100755, open(path, "rb").read(), n))
        f.write(entry("TRAILER!!!", 0, b"", 0))


class Guest:
    def __init__(self, folder, kernel, port):
        self.line, line = socket.socketpair()
        self.qmp, qmp = socket.socketpair()
        # Not by its TSC: on a busy machine the guest takes that for some times faster or slower than it is.
        self.qemu = subprocess.Popen(
            ["qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", "max", "-m", "192", "-nodefaults", "-no-user-config", "-display", "none",
             "-kernel", kernel, "-initrd", folder + "/initramfs", "-append",
             f"console=ttyS0 quiet loglevel=3 panic=-1 random.trust_cpu=on tsc=unstable clocksource=hpet nolapic_timer CORE=http://10.0.2.2:{port} TTL_MS={int(TTL * 1000)}",
             "-chardev", f"socket,id=s,fd={line.fileno()}", "-serial", "chardev:s",
             "-chardev", f"socket,id=q,fd={qmp.fileno()}", "-mon", "chardev=q,mode=control",
             "-netdev", "user,id=n", "-device", "virtio-net-pci,netdev=n,id=card,romfile="],
            pass_fds=(line.fileno(), qmp.fileno()), stdin=subprocess.DEVNULL)
        atexit.register(self.qemu.kill)
        line.close()
        qmp.close()
        self.text, self.answers, self.other = b"", b"", []
        self.belief, self.lease, self.heard_at = False, "0", 0.0
        self.believed = {}  # a lease: when it was last believed in
        self.clocks = None
        self.order("qmp_capabilities")

    def order(self, what, **arguments):
        self.qmp.sendall(json.dumps({"execute": what, "arguments": arguments}).encode())
        end = time.monotonic() + 20
        while time.monotonic() < end:
            self.answers += self.qmp.recv(65536)
            while b"\n" in self.answers:
                one, self.answers = self.answers.split(b"\n", 1)
                one = json.loads(one)
                if "return" in one:
                    return one["return"]
                if "error" in one:
                    raise RuntimeError(one["error"])
        raise RuntimeError(f"qemu does not answer {what}")

    def tell(self, text):
        self.line.sendall(text.encode() + b"\n")

    def hear(self, seconds):
        """What it says within a moment."""
        if not select.select([self.line], [], [], seconds)[0]:
            return
        data = self.line.recv(65536)
        now = time.monotonic()
        if not data:
            raise RuntimeError(f"the guest is gone: {self.other[-5:]}")
        *lines, self.text = (self.text + data).split(b"\n")
        for line in lines:
            word = line.decode(errors="replace").split()
            if len(word) == 3 and word[0] == "b":
                self.belief, self.lease, self.heard_at = word[1] == "1", word[2], now
                if self.belief:
                    self.believed[self.lease] = now
            elif len(word) == 4 and word[0] == "c":
                self.clocks = [int(w) for w in word[1:]] + [now]
            elif word:
                self.other.append(" ".join(word))

    def until(self, what, seconds=60):
        end = time.monotonic() + seconds
        while not what():
            if time.monotonic() > end:
                return False
            self.hear(0.02)
        return True

    def for_(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.hear(left)

    def read_clocks(self):
        """All three of one moment, as nearly as a busy machine has them: those of the shortest of some round trips, as of its middle."""
        best = None
        for _ in range(20):
            self.clocks, asked = None, time.monotonic()
            self.tell("clocks")
            if not self.until(lambda: self.clocks):
                break
            took = self.clocks[3] - asked
            if best is None or took < best[0]:
                best = took, self.clocks[:3] + [asked + took / 2]
            if took < 0.01:
                break
        return best and best[1]


def run(folder, kernel, port, rounds, seed):
    r = random.Random(seed)
    core = etcd3.client(port=port)
    print(f"seed {seed}, TTL {TTL} s", flush=True)
    g = Guest(folder, kernel, port)
    failed = []

    def case(what, good, more=""):
        print(("ok " if good else "not ok ") + what, "" if good else more, flush=True)
        if not good:
            failed.append(what)

    def holder():
        value, about = core.get(KEY)
        return f"{about.lease_id:x}" if about else None

    def settled():
        """It holds, the core agrees, and it goes on for any part of a period."""
        ok = g.until(lambda: g.belief and holder() == g.lease, 120)
        g.for_(r.uniform(0, TTL / 2))
        return ok and g.belief

    case("the guest holds its place", settled(), str(g.other[-5:]))

    # ---- short pauses take nothing away ----
    # On a machine so busy that the guest cannot renew within its TTL anyhow: once more.
    for attempt in range(5):
        settled()
        lease, longest = g.lease, 0.0
        for _ in range(rounds // 5 + 1):
            began = time.monotonic()
            g.order("stop")
            time.sleep(r.uniform(0, TTL / 4))
            g.order("cont")
            longest = max(longest, time.monotonic() - began)
            g.for_(TTL / 2)
        if g.lease == lease and holder() == lease:
            break
    case(f"{rounds // 5 + 1} pauses of up to {longest * 1000:.0f} ms: the lease is kept", g.lease == lease and holder() == lease, str(g.other[-5:]))

    # ---- longer ones: how long it goes on believing in what is gone ----
    for hints in (0, 1):
        beyond = []
        g.tell(f"hints {hints}")
        for _ in range(rounds // 2):
            if not settled():
                case("it holds a place again", False, str(g.other[-5:]))
                break
            lease = g.lease
            g.order("stop")
            began = time.monotonic()
            while holder():
                if time.monotonic() - began > 5 * TTL:
                    case("the core expires the lease of a machine that is paused", False)
                    break
            g.hear(0)
            stood = time.monotonic() - began
            time.sleep(r.uniform(0, TTL / 2))
            goes_on = time.monotonic()
            g.order("cont")
            # The hypervisor's agent sets the date, where there is one.
            g.tell(f"date {max(1, int(stood))}")
            if not g.until(lambda: g.heard_at > goes_on and not (g.belief and g.lease == lease), 60):
                case("it sees that its place is gone", False, str(g.other[-5:]))
            beyond.append(max(0.0, g.believed.get(lease, 0) - goes_on) * 1000)
        most, middle = max(beyond, default=0), sorted(beyond or [0])[len(beyond) // 2]
        what = f"{len(beyond)} pauses, {'the date set afterwards' if hints else 'without a sign'}: believed in what was gone for {middle:.0f} ms, {most:.0f} ms at the most"
        # Without a sign at half the TTL; on a busy machine the answer may come later, but what its own clock says ends it.
        case(what, len(beyond) > 0 and most < TTL * 1050 and (not hints or middle < TTL * 400))

    # ---- slewed clocks ----
    g.tell("hints 0")
    for tick in (9000, 11000, 10000):
        g.tell(f"tick {tick}")
        g.for_(1)
        a = g.read_clocks()
        g.for_(8)
        b = g.read_clocks()
        here = b[3] - a[3]
        boot, ours = ((b[i] - a[i]) / 1e9 / here for i in (0, 1))
        case(f"slewed by {tick / 100 - 100:+.0f} %: CLOCK_BOOTTIME goes at {boot:.3f}, the clock of leases at {ours:.3f}", abs(ours - 1) < 0.02 and abs(boot - tick / 10000) < 0.02,
             f"over {here:.1f} s")
        if not settled():
            case("it holds a place", False, str(g.other[-5:]))
        lease = g.lease
        g.order("set_link", name="card", up=False)
        over = None
        end = time.monotonic() + 5 * TTL
        while (not over or g.belief) and time.monotonic() < end:
            if not over and holder() != lease:
                over = time.monotonic()
            g.hear(0.005)
        g.order("set_link", name="card", up=True)
        early = (over or 0) - g.believed.get(lease, 0)
        # What it says may be some time on its way here; a tenth of the TTL is what the slew would be worth.
        case(f"and it gives up by itself {early * 1000:.0f} ms before the core does", over is not None and early > -TTL / 15, f"{early:.3f} s before")
    g.qemu.kill()
    g.qemu.wait()
    return not failed


if sys.argv[1] == "initramfs":
    initramfs(*sys.argv[2:4])
else:
    sys.exit(0 if run(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6])) else 1)
