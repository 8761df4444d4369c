"""A core that lies: it passes what it is asked to a real one, and changes the answers."""
import contextlib
import itertools
import os
import socket
import threading
import time
from collections import Counter
from concurrent import futures
from dataclasses import dataclass

import grpc

from .rpc import pb
from .waiting import eventually

SERVICES = {
    "etcdserverpb.KV": ["Range", "Put", "DeleteRange", "Txn"],
    "etcdserverpb.Lease": ["LeaseGrant", "LeaseRevoke", "LeaseTimeToLive", "LeaseLeases",
                           "LeaseKeepAlive"],
    "etcdserverpb.Watch": ["Watch"], "tenurepb.Cache": ["Cache"],
    "etcdserverpb.Auth": ["Authenticate"], "etcdserverpb.Maintenance": ["Status"],
    "etcdserverpb.Cluster": ["MemberList"]}
PATHS = {method: f"/{service}/{method}" for service, all in SERVICES.items() for method in all}
STREAMS = "Watch", "LeaseKeepAlive", "Cache"
ENDLESS = itertools.repeat(float("inf"))


class Refuse(Exception):
    """Raised by a lie: the call, or the stream, ends with this status."""

    def __init__(self, code, text):
        self.status = code, text


@dataclass
class Call:
    """What a lie is asked to answer. ask() is the truth: it has the core do what is asked for, or
    is what came on a stream. @request: None on a stream. @number: of the stream, from 1."""
    liar: object
    method: str
    ask: callable
    request: object = None
    number: int = 0
    token: str = None


def encoded(message):
    return message if isinstance(message, bytes) else message.SerializeToString()


class Liar:
    """@core: of one replica; clients need not be users of it. @lie: None, or a function of a Call
    that returns an answer, bytes in place of one, a list of answers, or None for silence; or
    raises Refuse. @wire: what the clients connect to."""

    def __init__(self, core):
        self.core, self.lie, self.faults = core, None, []
        self.asked, self.opened, self.renewed = Counter(), Counter(), Counter()
        self._leases = []  # that were granted
        self._channel = grpc.insecure_channel(
            core.endpoints.partition("://")[2],
            options=[("grpc.max_receive_message_length", -1)])
        self._server = grpc.server(futures.ThreadPoolExecutor(64), options=[
            ("grpc.so_reuseport", 0), ("grpc.max_send_message_length", -1)])
        for service, methods in SERVICES.items():
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
                service, {method: self._handler(method) for method in methods}),))
        self.wire = Wire(self._server.add_insecure_port("127.0.0.1:0"))
        self._server.start()
        self.endpoints = f"http://127.0.0.1:{self.wire.port}"

    def close(self):
        faults = [*self.faults]
        self.wire.close()
        self._server.stop(0)
        self._channel.close()
        assert faults == []

    def _handler(self, method):
        kind = "stream_stream" if method in STREAMS else "unary_unary"
        serve = self._stream if method in STREAMS else self._unary
        return getattr(grpc, f"{kind}_rpc_method_handler")(
            lambda request, context: serve(method, request, context),
            getattr(pb, f"{method}Request").FromString, encoded)

    def ask(self, request):
        """The core's own answer: to a PutRequest, and so on."""
        method = type(request).__name__.removesuffix("Request")
        return self._channel.unary_unary(
            PATHS[method], encoded, getattr(pb, f"{method}Response").FromString)(request)

    def _told(self, call, context):
        """The answers that the client gets."""
        try:
            told = self.lie(call) if self.lie else call.ask()
        except Refuse as refusal:
            context.abort(*refusal.status)
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
        except Exception as fault:
            self.faults.append(fault)
            raise
        return told if isinstance(told, list) else [] if told is None else [told]

    def _ask_for(self, request):
        if isinstance(request, pb.AuthenticateRequest):  # whoever logs in may
            return pb.AuthenticateResponse(token=str(self.asked["Authenticate"]))
        answer = self.ask(request)
        if isinstance(answer, pb.LeaseGrantResponse):
            self._leases.append(answer.ID)
        return answer

    def _unary(self, method, request, context):
        self.asked[method] += 1
        told = self._told(Call(self, method, lambda: self._ask_for(request), request,
                               token=dict(context.invocation_metadata()).get("token")), context)
        if told:
            return told[0]
        gone = threading.Event()
        if context.add_callback(gone.set):
            gone.wait()
        return b""

    def _stream(self, method, requests, context):
        self.opened[method] += 1
        call = Call(self, method, None, number=self.opened[method],
                    token=dict(context.invocation_metadata()).get("token"))
        ended = threading.Event()
        answers = self._channel.stream_stream(
            PATHS[method], encoded, getattr(pb, f"{method}Response").FromString)(
                self._counted(method, requests, ended))

        def end():
            answers.cancel()
            ended.set()

        if not context.add_callback(end):
            return end()
        try:
            for answer in answers:
                call.ask = lambda: answer
                yield from self._told(call, context)
                if method == "LeaseKeepAlive" and not self.lie:
                    self.renewed[answer.ID] += answer.TTL > 0
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
        finally:
            end()

    def _counted(self, method, requests, ended):
        with contextlib.suppress(Exception):
            for request in requests:
                self.asked[method] += 1
                yield request
        ended.wait(5)  # a broken connection is not the end of the client's side

    # ---- what tests do with it ----

    def lose(self):
        """All leases of its clients end."""
        while self._leases:
            self.revoke(self._leases.pop())

    def cut(self):
        """All connections break."""
        self.wire.cut()

    def talk(self, talk):
        """Every connection is answered by talk(connection) from now on, in bytes."""
        self.wire.talk = talk
        self.cut()

    def be_good(self, cut=True):
        """From now on; and on other connections, if @cut."""
        self.lie = self.wire.talk = None
        self.wire.limits = ENDLESS
        self.renewed.clear()
        if cut:
            self.cut()

    def put(self, *entries, lease=0):
        self.ask(pb.TxnRequest(success=[pb.RequestOp(request_put=pb.PutRequest(
            key=key, value=value, lease=lease)) for key, value in entries]))

    def get(self, key):
        """The KeyValue; an empty one if there is none."""
        found = self.ask(pb.RangeRequest(key=key)).kvs
        return found[0] if found else pb.KeyValue()

    def lives(self, lease):
        return self.ask(pb.LeaseTimeToLiveRequest(ID=lease)).TTL >= 0

    def outlast(self, ms):
        """Until a lease of that length has ended in the core: nobody may believe in an older one
        any more."""
        lease = self.ask(pb.LeaseGrantRequest(ttl_ms=ms)).ID
        eventually(lambda: not self.lives(lease))

    def revoke(self, lease):
        """Unless it has ended by itself meanwhile."""
        try:
            self.ask(pb.LeaseRevokeRequest(ID=lease))
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.NOT_FOUND:
                raise

    def clear(self):
        """Leases and hosts of earlier tests go."""
        for lease in self.ask(pb.LeaseLeasesRequest()).leases:
            self.revoke(lease.ID)
        self.ask(pb.DeleteRangeRequest(key=b"/tenure/", range_end=b"/tenure0"))


class Wire:
    """Connections to the liar, byte by byte. @talk: talks on each of them instead, until it
    returns. @limits: after how many bytes of the liar's the next ones end; @rate: how many bytes
    a second go to a client."""

    def __init__(self, port, rate=float("inf")):
        self._rate = rate
        self._to, self._open, self.accepted = port, set(), 0
        self.talk, self.limits = None, ENDLESS
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self):
        with contextlib.suppress(OSError):  # closed
            while True:
                client = self._listener.accept()[0]
                self.accepted += 1
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with contextlib.suppress(OSError), client:
            self._open.add(client)
            if self.talk:
                self.talk(client)
            else:
                with socket.create_connection(("127.0.0.1", self._to)) as core:
                    self._open.add(core)
                    threading.Thread(target=self._pump, args=(client, core), daemon=True).start()
                    self._pump(core, client, next(self.limits), self._rate)
                    self._open.discard(core)
        self._open.discard(client)

    @staticmethod
    def _pump(source, to, limit=float("inf"), rate=float("inf")):
        with contextlib.suppress(OSError):
            while limit and (data := source.recv(int(min(limit, 1 << 16)))):
                limit -= len(data)
                to.sendall(data)
                if rate < float("inf"):
                    time.sleep(len(data) / rate)
            for end in source, to:
                end.shutdown(socket.SHUT_RDWR)


class Cost:
    """What a program takes, and asks of the core, from now on."""

    def __init__(self, program, liar):
        self._program, self._liar, self._before = program, liar, self._so_far(program, liar)

    @staticmethod
    def _so_far(program, liar):
        stat, memory = (open(f"/proc/{program.pid}/{file}").read() for file in ("stat", "statm"))
        ticks = sum(map(int, stat.rpartition(")")[2].split()[11:13]))
        return (time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), sum(liar.asked.values()),
                int(memory.split()[1]) * os.sysconf("SC_PAGESIZE") >> 20)

    def is_modest(self, cpu, calls, memory):
        """Processor seconds and calls are for each second that has passed, of which a crowded
        machine gives a program fewer. Memory is in MiB. Returns the seconds."""
        passed, *costs = (after - before for after, before in zip(
            self._so_far(self._program, self._liar), self._before))
        for what, cost, most in zip(("seconds of processor", "calls", "MiB"), costs,
                                    (cpu * passed, calls * passed, memory)):
            assert cost <= most, f"{cost:.1f} {what} in {passed:.1f} s: {self._liar.asked}"
        return passed
