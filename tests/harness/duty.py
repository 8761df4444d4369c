"""What only one may do at a time: commands of `tenurectl lock` that see if another one runs."""
import os
import pathlib
import signal

from .program import Daemon, run
from .waiting import eventually

# Every process of a command has $1 locked, as it inherits what has been opened. So the next one
# sees, by the kernel's word, whether anything of the one before it still runs.
_COMMAND = r"""
exec 9>>"$1"
flock -n 9 || { echo beside another; exit 1; }
setsid -f sh -c 'trap "" TERM HUP INT; exec sleep 36000'  # leaves, and listens to nobody
case $2 in
deaf) trap "" TERM HUP INT ;;
slow) trap 'echo told; read x <"$1.may-end"; exit 5' TERM ;;
*) trap 'echo told; exit 5' TERM ;;
esac
echo alone "$TENURE_LOCK_REVISION"
while :; do sleep 36000 & wait; done
"""


def children(pid):
    """The ids of its processes; none if it has ended."""
    try:
        return list(map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return []


class Overlap(Exception):
    """A command ran beside another one: nothing that comes later makes that good."""


class Holder(Daemon):
    """A tenurectl that waits for the lock, or runs a command with it."""

    ends_by = signal.SIGKILL  # what its command would say of another end is of no interest

    @property
    def tokens(self):
        """Of each time that it has had the lock, and nothing of another command ran."""
        if "beside another" in self.lines():
            raise Overlap(self.name)
        return [int(line.split()[1]) for line in self.lines() if line.startswith("alone ")]

    def has_been_told(self):
        return "told" in self.lines()

    @property
    def keeper(self):
        """The process that supervises the command."""
        return children(self.pid)[0]


class Duty:
    """@lock: a name that no other test uses. @core: where it is."""

    def __init__(self, folder, core, lock):
        self.folder, self.core, self.lock, self.n = folder, core, lock, 0
        self.file = folder / f"{lock}.duty"
        self.may_end = folder / f"{lock}.duty.may-end"
        os.mkfifo(self.may_end)

    def other(self, name):
        """Another one, with a lock of its own."""
        return Duty(self.folder, self.core, f"{self.lock}-{name}")

    def line(self):
        """The keys of who has the lock and who waits for it, in the order in which they came."""
        return [kv.key for kv in sorted(self.core.range(f"{self.lock}/"),
                                        key=lambda kv: kv.create_revision)]

    def occupy(self):
        """Somebody else comes for the lock, as etcdctl does, until free()."""
        self.core.put(f"{self.lock}/1", "")

    def free(self):
        self.core.delete(f"{self.lock}/1")

    def wait(self, agent, how="", *, options=(), stderr=None):
        """Gets into the line. @how: "deaf" to all signals, or "slow" to end: see let_end()."""
        self.n += 1
        n, log = len(self.line()), agent.log.with_name(f"{self.lock}.{self.n}.{agent.name}.log")
        # Its messages go to a log, unless the test has something else for them.
        to = ["sh", "-c", 'exec "$@" 2>"$0"', stderr] if stderr else []
        holder = Holder(log, *to, *agent.tenurectl, *options, "lock", self.lock, "--", "sh", "-c",
                        _COMMAND, "duty", self.file, how, out=log.with_suffix(".out")).start()
        eventually(lambda: len(self.line()) > n or not holder.is_running)
        return holder

    def begin(self, agent, *more, **options):
        """Like wait(), and waits until its command runs."""
        holder = self.wait(agent, *more, **options)
        eventually(lambda: holder.tokens)
        return holder

    def let_end(self):
        """What is slow to end ends, each time that it is told to. Several lines, since bash loses
        what it reads when the time of its `read -t` runs out; and kept open, so that they stay."""
        os.write(os.open(self.may_end, os.O_RDWR), b"\n" * 9)

    def ends(self):
        """Returns when no process of a command runs any more."""
        run("flock", self.file, "true")
