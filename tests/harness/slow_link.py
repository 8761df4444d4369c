"""A link to a core that carries few bytes a second to its clients."""
import contextlib
import socket
import threading
import time

PIECE = 8192


def _carry(source, target, rate):
    with contextlib.suppress(OSError):
        while piece := source.recv(PIECE):
            target.sendall(piece)
            if rate:
                time.sleep(len(piece) / rate)
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def slow_link(core, rate):
    """@core: anything with endpoints, the first of which is used; @rate: bytes a second. Yields
    the endpoint."""
    target = core.endpoints.split(",")[0].removeprefix("http://").rsplit(":", 1)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(target)
                for ends in (client, server, 0), (server, client, rate):
                    threading.Thread(target=_carry, args=ends, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
