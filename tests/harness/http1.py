"""HTTP/1.1 and JSON, as curl and etcd's gateway speak it."""
import base64
import http.client
import json
from dataclasses import dataclass

from .waiting import PATIENCE


def as_json(body):
    """Of the gateway's messages. Bytes are written in base64, as it wants them."""
    return json.dumps(body, default=lambda raw: base64.b64encode(raw).decode())


@dataclass(frozen=True)
class Answer:
    status: int
    type: str
    body: bytes
    headers: object = None

    @property
    def text(self):
        return self.body.decode()

    def json(self):
        return json.loads(self.body)


class Http:
    """A connection to one server, which is made when it is needed and kept as long as the server
    keeps it. @tls: an ssl context; @headers: of each request."""

    def __init__(self, url, tls=None, **headers):
        address = url.partition("://")[2]
        self.headers = headers
        self._connection = (http.client.HTTPSConnection(address, context=tls, timeout=PATIENCE)
                            if tls else http.client.HTTPConnection(address, timeout=PATIENCE))

    def begin(self, method, path, body=None, **headers):
        """Only asks: finish() returns the Answer."""
        if isinstance(body, dict):
            body = as_json(body)
        try:
            self._connection.request(method, path, body and body.encode(),
                                     {**self.headers, **headers})
        except OSError:
            self.close()
            raise

    def finish(self):
        try:
            said = self._connection.getresponse()
            return Answer(said.status, said.getheader("Content-Type", ""), said.read(),
                          said.headers)
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def ask(self, method, path, body=None, **headers):
        self.begin(method, path, body, **headers)
        return self.finish()

    def get(self, path, **headers):
        return self.ask("GET", path, **headers)

    def post(self, path, **body):
        """A call that succeeds: what it says."""
        answer = self.ask("POST", path, body)
        assert answer.status == 200, f"{path}: {answer.status} {answer.text}"
        return answer.json()

    def close(self):
        self._connection.close()


class JsonStream:
    """A POST with an answer of many lines. @more: further pieces of the body follow, by send()
    and end()."""

    def __init__(self, url, path, body, more=False, **headers):
        self._connection = http.client.HTTPConnection(url.partition("://")[2], timeout=PATIENCE)
        self._answer = None
        self._connection.putrequest("POST", path)
        for name, value in headers.items():
            self._connection.putheader(name, value)
        if more:
            self._connection.putheader("Transfer-Encoding", "chunked")
            self._connection.endheaders()
            self.send(body)
        else:
            body = self._encoded(body)
            self._connection.putheader("Content-Length", str(len(body)))
            self._connection.endheaders(body)

    @staticmethod
    def _encoded(body):
        return (as_json(body) if isinstance(body, dict) else body).encode()

    def send(self, piece):
        piece = self._encoded(piece)
        self._connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))

    def end(self):
        self._connection.send(b"0\r\n\r\n")

    @property
    def answer(self):
        self._answer = self._answer or self._connection.getresponse()
        return self._answer

    def next(self):
        """The next answer, or None at the end."""
        line = self.answer.readline()
        return json.loads(line) if line else None

    def close(self):
        self._connection.close()
