"""Takes every connection of an address that it can get, and keeps it: take_all.py PORT N. Those that are ended it tries again."""
import selectors
import socket
import sys

port, n = int(sys.argv[1]), int(sys.argv[2])
# A client of HTTP/2 that asks for nothing: who says nothing at all is soon ended.
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
selector = selectors.DefaultSelector()


def take():
    s = socket.socket()
    s.setblocking(False)
    s.bind(("127.0.0.9", 0))
    s.connect_ex(("127.0.0.1", port))
    selector.register(s, selectors.EVENT_WRITE)


for _ in range(n):
    take()
while True:
    for key, events in selector.select():
        s = key.fileobj
        try:
            if events & selectors.EVENT_WRITE:
                s.send(HELLO)
                selector.modify(s, selectors.EVENT_READ)
            elif not s.recv(65536):
                raise OSError
        except OSError:
            selector.unregister(s)
            s.close()
            take()
