"""Fills the sockets of a journal that does not read them, until nothing goes in, and keeps them so."""
import signal
import socket

kept = []


def fill(path):
    while True:  # each sender has a limit of its own
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        s.setblocking(False)
        kept.append(s)
        n = 0
        try:
            s.connect(path)
            while True:
                s.send(b"MESSAGE=full\n" * 20)
                n += 1
        except OSError:
            if n == 0:
                return


for path in "/run/systemd/journal/socket", "/run/systemd/journal/dev-log":
    fill(path)
print("full", flush=True)
signal.pause()
