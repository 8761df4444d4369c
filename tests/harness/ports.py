"""TCP ports of loopback that are one process's own, below those that the kernel gives to callers.
Two tests that looked for free ports at the same time would find the same.

usage: ports.py N PID        prints N ports, which are that process's while it lives
"""
import fcntl
import os
import pathlib
import random
import socket
import sys

FIRST, LAST = 10240, 32767
RESERVED = pathlib.Path("/tmp/tenure-ports")  # of all checkouts and users, whatever their $TMPDIR is
BLOCK = 48  # several tests' worth
LATE = 24   # a port is given out again only after so many others: its user has come, or gone


class Ports:
    def __init__(self):
        self._ours = []  # those that were given out last are at the end

    def take(self):
        """A port on which nobody listens. It stays reserved until this process ends."""
        for port in self._ours[:-LATE]:
            if _is_free(port):
                break
        else:
            self._ours = _reserve(BLOCK, os.getpid()) + self._ours
            return self.take()
        self._ours.remove(port)
        self._ours.append(port)
        return port


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_free(port):
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _is_taken(file):
    """The process lives whose id is in the file."""
    try:
        pid = int(file.read_text() or 0)
    except (FileNotFoundError, ValueError):
        return False
    except PermissionError:
        return True  # another user's, with a umask that lets nobody read
    return pid > 0 and os.path.exists(f"/proc/{pid}")


def _reserve(n, pid):
    """@n ports, by a file each, with the process id in it."""
    try:
        RESERVED.mkdir()
        RESERVED.chmod(0o1777)  # whoever runs tests
    except FileExistsError:
        pass
    lock = os.open(RESERVED, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for file in RESERVED.iterdir():
            if not _is_taken(file):
                try:
                    file.unlink()
                except PermissionError:
                    pass  # another user's; its port is not taken
        ports = []
        while len(ports) < n:
            port = random.randint(FIRST, LAST)
            file = RESERVED / str(port)
            if file.exists() or not _is_free(port):
                continue
            file.write_text(str(pid))
            file.chmod(0o644)  # whatever our umask is
            ports.append(port)
        return ports
    finally:
        os.close(lock)


if __name__ == "__main__":
    print(*_reserve(int(sys.argv[1]), int(sys.argv[2])))
