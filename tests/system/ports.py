#!/usr/bin/python3
"""Ports for a test: free ones of loopback, below those that the kernel gives to who calls somebody, and nobody else's while
the process that they are for lives. Two tests that look for free ports at the same time would find the same.

usage: ports.py N PID        prints N ports, for the process PID
"""
import fcntl
import os
import random
import socket
import sys

FIRST, LAST = 10240, 32767


def alive(pid):
    return pid > 0 and os.path.exists(f"/proc/{pid}")


def owner(path):
    try:
        with open(path) as f:
            return int(f.read() or 0)
    except (FileNotFoundError, ValueError):
        return 0
    except PermissionError:
        return 1  # another user's, with a umask that lets nobody read; as good as taken


def is_free(port):
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def reserve(n, pid):
    """N ports, reserved by a file each, with the pid in it, in a directory that all checkouts and users share: $TMPDIR may be
    another one for each."""
    directory = "/tmp/tenure-ports"
    try:
        os.mkdir(directory)
        os.chmod(directory, 0o1777)  # whoever runs tests
    except FileExistsError:
        pass
    lock = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in os.listdir(directory):
            if not alive(owner(os.path.join(directory, name))):
                try:
                    os.unlink(os.path.join(directory, name))
                except PermissionError:
                    pass  # another user's; its port is not taken
        ports = []
        while len(ports) < n:
            port = random.randint(FIRST, LAST)
            path = os.path.join(directory, str(port))
            if os.path.exists(path) or not is_free(port):
                continue
            with open(path, "w") as f:
                os.fchmod(f.fileno(), 0o644)
                f.write(str(pid))
            ports.append(port)
        return ports
    finally:
        os.close(lock)


if __name__ == "__main__":
    print(*reserve(int(sys.argv[1]), int(sys.argv[2])))
