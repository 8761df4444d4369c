"""The API call by call, for what no client has a command for: by gRPC, or by JSON."""
import importlib
import json
import queue
import re
import sys
import tempfile
import threading

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict

from .http1 import Http
from .places import TOP
from .program import run
from .waiting import PATIENCE


def _messages():
    """The module of the API's messages, made of the project's own description of them."""
    with tempfile.TemporaryDirectory(prefix="tenure-messages-") as folder:
        run("protoc", f"--python_out={folder}", "-I", TOP / "lib/wire", "rpc.proto")
        sys.path.insert(0, folder)
        try:
            return importlib.import_module("rpc_pb2")
        finally:
            sys.path.remove(folder)


pb = _messages()


def _reply(request):
    """The class of the answer to a PutRequest is PutResponse."""
    return getattr(pb, request.__name__.removesuffix("Request") + "Response")


def _serialize(message):
    return message.SerializeToString()


class Refused(Exception):
    """The answer was a gRPC status other than OK: .code is its name, .details its sentence; and
    .status that of HTTP, by JSON."""

    def __init__(self, code, details, status=None):
        self.code, self.details, self.status = code, details, status
        super().__init__(f"{status} {code}: {details}" if status else f"{code}: {details}")

    @classmethod
    def by(cls, error):
        return cls(error.code().name, error.details())


class Rpc:
    """A connection to one server. @path: as in "etcdserverpb.KV/Put". Every call may take
    PATIENCE, and raises Refused."""

    def __init__(self, url, *, certificate=None, token=None):
        address = url.partition("://")[2]
        options = [("grpc.max_reconnect_backoff_ms", 200),
                   ("grpc.max_receive_message_length", -1),
                   # Without it all channels of a process share a connection.
                   ("grpc.use_local_subchannel_pool", 1)]
        if certificate:
            self._channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(
                *(file.read_bytes() for file in (certificate.authority, certificate.key,
                                                 certificate.cert))), options)
        else:
            self._channel = grpc.insecure_channel(address, options)
        self._metadata = [("token", token)] if token else []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._channel.close()

    def future(self, path, request, timeout=PATIENCE):
        """The call that is under way: .result(), .cancel() and more, as grpc.Future."""
        return self._channel.unary_unary(
            f"/{path}", _serialize, _reply(type(request)).FromString).future(
                request, timeout=timeout, wait_for_ready=True, metadata=self._metadata)

    def call(self, path, request, **options):
        try:
            return self.future(path, request, **options).result()
        except grpc.RpcError as error:
            raise Refused.by(error) from None

    def answers(self, path, request, metadata=(), reply=None, timeout=PATIENCE):
        """The answers to one request, as they come; or a Refused."""
        return self._answers(path, request, _serialize, (reply or _reply(type(request))).FromString,
                             metadata=metadata, timeout=timeout)

    def send_bytes(self, path, message):
        """The answers, as bytes, to what need not be a message."""
        return list(self._answers(path, message))

    def _answers(self, path, request, *coders, metadata=(), timeout=PATIENCE):
        try:
            yield from self._channel.unary_stream(f"/{path}", *coders)(
                request, wait_for_ready=True, timeout=timeout,
                metadata=[*self._metadata, *metadata])
        except grpc.RpcError as error:
            raise Refused.by(error) from None

    def stream(self, path, request, metadata=(), between=None, timeout=None):
        """@request: the class of what is sent. @between: called with each answer by a thread that
        reads no other one meanwhile. @timeout: of the whole stream."""
        return Stream(self._channel.stream_stream(
            f"/{path}", _serialize, _reply(request).FromString), [*self._metadata, *metadata],
            between, timeout)


class Stream:
    """In both directions. next() returns an answer, None at the end, or raises Refused."""

    def __init__(self, method, metadata, between=None, timeout=None):
        self._between = between or (lambda answer: None)
        self._out, self._in = queue.Queue(), queue.Queue()
        self._answers = method(iter(self._out.get, None), timeout, metadata, wait_for_ready=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            for answer in self._answers:
                self._in.put(answer)
                self._between(answer)
            self._in.put(None)
        except grpc.RpcError as error:
            self._in.put(Refused.by(error))

    def send(self, request):
        self._out.put(request)

    def next(self):
        try:
            answer = self._in.get(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(f"no answer within {PATIENCE:.0f} s") from None
        if isinstance(answer, Refused):
            raise answer
        return answer

    def close(self):
        """Ends our side, and the stream with it."""
        self._out.put(None)
        self._answers.cancel()


# What the gateway calls otherwise than the last word of the method, in small letters.
_OTHERWISE = {"compact": "compaction", "moveleader": "transfer-leadership",
              "user/changepassword": "user/changepw"}
_CODES = {code.value[0]: code.name for code in grpc.StatusCode}


class Gateway:
    """As Rpc, by JSON and HTTP/1.1, and without streams in both directions."""

    def __init__(self, url, *, token=None):
        self._http = Http(url, **({"Authorization": token} if token else {}))

    def close(self):
        self._http.close()

    @staticmethod
    def _path(path):
        service, name = path.partition(".")[2].split("/")
        name = re.sub("^(Lease|Auth)(?=[A-Z])", "", name)
        name = re.sub("^(Member|User|Role)", r"\1/", name)
        name = re.sub("(Grant|Revoke)(Role|Permission)$", r"\1", name).lower()
        return f"/v3/{service.lower()}/{_OTHERWISE.get(name, name)}"

    def call(self, path, request):
        return next(self.answers(path, request))

    def answers(self, path, request):
        answer = self._http.ask("POST", self._path(path), json.dumps(
            MessageToDict(request, preserving_proto_field_name=True)))
        for said in map(json.loads, answer.body.splitlines()):
            error = said.get("error")
            if isinstance(error, dict):  # of a stream
                raise Refused(_CODES[error["grpc_code"]], error["message"], error["http_code"])
            if error:
                assert said["message"] == error, said
                raise Refused(_CODES[said["code"]], error, answer.status)
            yield ParseDict(said.get("result", said), _reply(type(request))())
