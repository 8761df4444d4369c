"""tenure-core and etcd, which are asked the same and must answer alike.

Left out of the comparison are what is an engine's own (ids of clusters and members, terms, fields
that etcd does not have) and what the test says. Revisions count, so both must have lived through
the same calls.
"""
from .rpc import Gateway, Refused, Rpc, pb

_PACKAGES = {"Lock": "v3lockpb", "Election": "v3electionpb"}


def method(name, fields):
    """The path of "KV/Put", and its request with these fields; or `request`, if that is given."""
    service, call = name.split("/")
    kind = {"Compact": "Compaction", "Observe": "Leader"}.get(call, call)
    if service == "Auth" and not call.startswith("Auth"):
        kind = "Auth" + call
    request = fields.get("request") or getattr(pb, kind + "Request")(**fields)
    return f"{_PACKAGES.get(service, 'etcdserverpb')}.{name}", request


def put(key, value=b"v", **fields):
    """As an operation of a transaction."""
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, **fields))


def _comparable(answer, forget=()):
    if isinstance(answer, Refused):
        return str(answer)
    copy = type(answer)()
    copy.CopyFrom(answer)
    for field in forget:
        copy.ClearField(field)
    _leave_out_own(copy)
    if isinstance(answer, pb.LeaseTimeToLiveResponse):
        copy.keys.sort()  # an etcd has them in no order
    return f"{type(answer).__name__} {copy}"


def _leave_out_own(message):
    for field, value in message.ListFields():
        if field.name == "header":
            for own in "cluster_id", "member_id", "raft_term":
                value.ClearField(own)
        if field.number > 9000:
            message.ClearField(field.name)
        elif field.message_type:
            for part in value if field.label == field.LABEL_REPEATED else [value]:
                _leave_out_own(part)


def alike(answers, forget=(), why=""):
    """Compares the answers of both, and returns etcd's."""
    __tracebackhide__ = True
    ours, etcds = (_comparable(answer, forget) for answer in answers)
    assert ours == etcds, f"{why}\ntenure-core: {ours}\netcd:        {etcds}"
    return answers[1]


class Pair:
    """A call returns what both have answered, or raises the Refused of both. @core, @etcd: what
    has .rpc(). @tokens: of a user, one at each. @transport: "gRPC" or "JSON"."""

    def __init__(self, core, etcd, tokens=(None, None), transport="gRPC"):
        self.engines, self.tokens, self.transport = (core, etcd), tokens, transport
        connect = {"gRPC": Rpc, "JSON": Gateway}[transport]
        self.connections = self.core, self.etcd = [
            connect(engine.endpoints.split(",")[0], token=token)
            for engine, token in zip(self.engines, tokens)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for connection in self.connections:
            connection.close()

    def kill(self):
        core, etcd = self.engines
        for program in *core.running, etcd:
            program.kill()

    def by(self, transport):
        return Pair(*self.engines, self.tokens, transport)

    def on(self, connection, name, /, **fields):
        """Calls one of the two: returns its answer, or its Refused as a value."""
        try:
            return connection.call(*method(name, fields))
        except Refused as refused:
            return refused

    def ours(self, name, /, **fields):
        """On tenure-core alone."""
        return self.core.call(*method(name, fields))

    def ask(self, name, forget=(), /, **fields):
        """As a call, but a Refused is returned."""
        __tracebackhide__ = True
        return alike([self.on(connection, name, **fields) for connection in self.connections],
                     forget, f"{name} {fields}")

    def call(self, name, forget=(), /, **fields):
        __tracebackhide__ = True
        answer = self.ask(name, forget, **fields)
        if isinstance(answer, Refused):
            raise answer
        return answer

    def put(self, key, value=b"v", **fields):
        """Returns the revision."""
        __tracebackhide__ = True
        return self.call("KV/Put", key=key, value=value, **fields).header.revision

    def counts(self, prefix):
        """How many keys each has below it."""
        end = prefix[:-1] + bytes([prefix[-1] + 1])
        return [connection.call(*method("KV/Range", dict(
            key=prefix, range_end=end, count_only=True))).count for connection in self.connections]

    def futures(self, name, /, **fields):
        return [connection.future(*method(name, fields)) for connection in self.connections]

    def answers(self, name, /, **fields):
        """Of both, to one request."""
        return [connection.answers(*method(name, fields)) for connection in self.connections]

    def stream(self, name):
        path, request = method(name, {})
        return PairOfStreams([connection.stream(path, type(request))
                              for connection in self.connections])

    def watch(self, **fields):
        """A stream with a watch, which both have made."""
        __tracebackhide__ = True
        stream = self.stream("Watch/Watch")
        assert stream.create(**fields).created
        return stream

    def log_in(self, name, password):
        """The pair as that user sees it."""
        tokens = [self.on(connection, "Auth/Authenticate", name=name, password=password)
                  for connection in self.connections]
        answer = alike(tokens, ["token"])
        if isinstance(answer, Refused):
            raise answer
        return Pair(*self.engines, [answer.token for answer in tokens], self.transport)


class PairOfStreams:
    def __init__(self, streams):
        self.streams = streams

    def send(self, request):
        for stream in self.streams:
            stream.send(request)

    def next(self, forget=()):
        """The next answer of both, or what ended both streams."""
        __tracebackhide__ = True
        return alike([_next(stream) for stream in self.streams], forget)

    def create(self, forget=(), **fields):
        """Asks for a watch, and returns the answer to that."""
        __tracebackhide__ = True
        self.send(pb.WatchRequest(create_request=pb.WatchCreateRequest(**fields)))
        return self.next(forget)

    def events(self, n=0, *, until=None, in_order=True):
        """The next @n events of both, or those up to one of the key @until, as text. How they are
        cut into answers is an engine's affair, and so is the order between watches."""
        __tracebackhide__ = True
        told = []
        for stream in self.streams:
            events, last = [], None
            while len(events) < n or last != until:
                answer = stream.next()
                assert answer.events, f"{len(events)} of {n} events, and then {answer}"
                events += [(answer.watch_id, str(event)) for event in answer.events]
                last = until and answer.events[-1].kv.key
            told.append(events if in_order else sorted(events))
        differ = next((pair for pair in zip(*told) if pair[0] != pair[1]), None)
        assert not differ, f"tenure-core: {differ[0]}\netcd:        {differ[1]}"
        return told[1]

    def say_all(self):
        """Ends our sides, as curl does, whose request is complete before it reads."""
        self.send(None)


def _next(stream):
    try:
        return stream.next()
    except Refused as refused:
        return refused
