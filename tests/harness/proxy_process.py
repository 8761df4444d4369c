"""A TCP proxy for plaintext HTTP/2: proxy_process.py PORT TARGET_PORT. On SIGUSR1 it announces the
end of all its connections to their clients (GOAWAY, RFC 9113, 6.8), as proxies do by age or number
of calls: from then on their streams go on, and new ones are not passed on. On SIGUSR2 it stops
listening, on SIGHUP it begins to close what it accepts; its connections go on. On SIGALRM it begins
to keep back what the core says, until it has announced the end of its connections and there is
another one: so the clients hear of the end first. Prints a line for whatever happens."""
import asyncio
import signal
import sys

from h2 import GOAWAY, HEADERS, frame

PREFACE = 24  # bytes


async def read_frame(reader):
    head = await reader.readexactly(9)
    body = await reader.readexactly(int.from_bytes(head[:3], "big"))
    return head[3], int.from_bytes(head[5:9], "big") & 0x7fffffff, head + body


class Connection:
    def __init__(self, number, client):
        self.number, self.client = number, client
        self.last, self.leaving = 0, False
        self.passes_on = asyncio.Event()
        self.passes_on.set()

    def leave(self):
        if self.leaving:
            return
        self.leaving = True
        self.client.write(frame(GOAWAY, 0, 0, self.last.to_bytes(4, "big") + bytes(4)))
        print(f"goaway {self.number}", flush=True)

    async def up(self, reader, core):
        core.write(await reader.readexactly(PREFACE))
        while True:
            kind, stream, bytes_ = await read_frame(reader)
            if kind == HEADERS and not self.leaving:
                self.last = max(self.last, stream)
            if stream <= self.last:
                core.write(bytes_)

    async def down(self, reader):
        while True:
            frame_ = (await read_frame(reader))[2]
            await self.passes_on.wait()
            self.client.write(frame_)


async def main(port, target):
    connections, resets, holds = [], False, False

    async def serve(reader, writer):
        if resets:
            print("reset", flush=True)
            writer.close()
            return
        connection = Connection(len(connections) + 1, writer)
        if holds:
            connection.passes_on.clear()
        for other in connections:
            if other.leaving:
                other.passes_on.set()
        connections.append(connection)
        print(f"connection {connection.number}", flush=True)
        core_reader, core = await asyncio.open_connection("127.0.0.1", target)
        ways = [asyncio.ensure_future(way) for way in (connection.up(reader, core),
                                                       connection.down(core_reader))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        connection.leaving = True
        core.close()
        writer.close()

    def leave():
        nonlocal holds
        holds = False
        for connection in connections:
            connection.leave()

    def refuse():
        server.close()
        print("refuses", flush=True)

    def reset():
        nonlocal resets
        resets = True
        print("resets", flush=True)

    def hold():
        nonlocal holds
        holds = True
        for connection in connections:
            connection.passes_on.clear()
        print("holds", flush=True)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, leave)
    loop.add_signal_handler(signal.SIGUSR2, refuse)
    loop.add_signal_handler(signal.SIGHUP, reset)
    loop.add_signal_handler(signal.SIGALRM, hold)
    loop.add_signal_handler(signal.SIGTERM, sys.exit, 0)
    server = await asyncio.start_server(serve, "127.0.0.1", port)
    print("ready", flush=True)
    await asyncio.Event().wait()  # until a signal ends it

asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
