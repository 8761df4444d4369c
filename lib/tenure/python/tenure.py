"""libtenure for Python: membership, leases, guarded writes and locks, in a Tenure cluster or on etcd.

    import tenure

    with tenure.Tie("http://10.0.0.1:2379", follow=tenure.NODES) as tie:
        for event in tie:
            print(event.type.name, event.node and event.node.name, event.reason)

A Tie has a fileno(), so it works with select, selectors and asyncio: loop.add_reader(tie, ...), then tie.dispatch() and
tie.pop(). Keys and values are bytes; a str is encoded as UTF-8. Failures raise an Error, which has an errno and a
sentence. See README.md beside this file, and libtenure(3).
"""
import atexit
import ctypes
import enum
import errno
import functools
import os
import select
import threading
import time
import weakref

# With the interpreter's lock: nothing of it waits but tenure_free(), for a name that is looked up, and two threads in it would crash.
_lib = ctypes.PyDLL("libtenure.so.0")

NODES, SERVICES = 1, 2
LEASE_OURS = -1
_FOREVER = -1


class Type(enum.IntEnum):
    """The type of an event; the comments in tenure.h say which members each type has."""
    NODE_JOINED = 1
    NODE_LEFT = 2
    NODE_CHANGED = 3
    SERVICE_ADDED = 4
    SERVICE_REMOVED = 5
    SERVICE_CHANGED = 6
    SYNCED = 7
    STALE = 8
    HELD = 9
    JEOPARDY = 10
    LOST = 11
    REPLY = 12
    PUT = 13
    DELETE = 14
    WATCH_ENDED = 15
    LOCKED = 16
    UNLOCKED = 17
    CACHED = 18
    UNCACHED = 19
    ASKED = 20
    TASK_BEGIN = 21
    TASK_END = 22
    WORK_LEFT = 23


class Error(OSError):
    """A failure: an errno, and a sentence that says what failed, where, and what to do."""


class Refused(Error):
    """The core refused a guarded write, because its lease has ended, or a transaction, because its conditions do not hold."""


class Lost(Error):
    """A lock was lost before the end of its `with` statement: somebody else may have had it meanwhile."""


class Closed(Error, ValueError):
    """The tie is closed."""


class _Node(ctypes.Structure):
    _fields_ = [(name, ctypes.c_char_p) for name in (
        "name", "id", "incarnation", "boot_id", "since", "addresses", "tags", "version", "os_release", "degraded", "leaving")] + [
        ("ttl_ms", ctypes.c_uint64), ("lease", ctypes.c_int64), ("join_revision", ctypes.c_int64), ("revision", ctypes.c_int64)]


class _Service(ctypes.Structure):
    _fields_ = [(name, ctypes.c_char_p) for name in ("name", "node", "instance", "address", "tags", "unit", "state", "since")] + [
        ("port", ctypes.c_uint16), ("lease", ctypes.c_int64), ("join_revision", ctypes.c_int64), ("revision", ctypes.c_int64)]


class _Kv(ctypes.Structure):
    _fields_ = [("key", ctypes.c_void_p), ("value", ctypes.c_void_p), ("key_len", ctypes.c_size_t), ("value_len", ctypes.c_size_t),
                ("create_revision", ctypes.c_int64), ("mod_revision", ctypes.c_int64), ("version", ctypes.c_int64), ("lease", ctypes.c_int64)]


class _Event(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("revision", ctypes.c_int64), ("error", ctypes.c_int), ("reason", ctypes.c_char_p),
                ("lease", ctypes.c_int64), ("node", ctypes.POINTER(_Node)), ("service", ctypes.POINTER(_Service)),
                ("kv", ctypes.POINTER(_Kv)), ("before", ctypes.POINTER(_Kv)), ("call", ctypes.c_void_p),
                ("watch", ctypes.c_void_p), ("lock", ctypes.c_void_p), ("cache", ctypes.c_void_p),
                ("work", ctypes.c_void_p), ("task", ctypes.c_char_p)]


class _Range(ctypes.Structure):
    _fields_ = [("key", ctypes.c_char_p), ("key_len", ctypes.c_size_t), ("end", ctypes.c_char_p), ("end_len", ctypes.c_size_t),
                ("prefix", ctypes.c_bool), ("revision", ctypes.c_int64), ("limit", ctypes.c_int64),
                ("keys_only", ctypes.c_bool), ("count_only", ctypes.c_bool), ("serializable", ctypes.c_bool)]


class _WatchOptions(ctypes.Structure):
    _fields_ = [("key", ctypes.c_char_p), ("key_len", ctypes.c_size_t), ("end", ctypes.c_char_p), ("end_len", ctypes.c_size_t),
                ("prefix", ctypes.c_bool), ("revision", ctypes.c_int64), ("before", ctypes.c_bool)]


class _Switched(ctypes.Structure):
    _fields_ = [("from", ctypes.c_char_p), ("to", ctypes.c_char_p), ("token", ctypes.c_int64), ("stop_us", ctypes.c_int64),
                ("pause_us", ctypes.c_int64)]


class _WorkOptions(ctypes.Structure):
    _fields_ = [("tasks", ctypes.POINTER(ctypes.c_char_p)), ("n_tasks", ctypes.c_size_t), ("weight", ctypes.c_uint),
                ("settle_ms", ctypes.c_uint)]


def _declare(result, name, *arguments, library=_lib):
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
    return function


_P, _S, _N, _I, _L = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int64
_OUT = ctypes.POINTER(ctypes.c_void_p)
_new = _declare(_I, "tenure_new", _OUT)
_free = _declare(_P, "tenure_free", _P, library=ctypes.CDLL("libtenure.so.0"))
_set_endpoints = _declare(_I, "tenure_set_endpoints", _P, _S)
_set_cluster = _declare(_I, "tenure_set_cluster", _P, _S)
_set_tls = _declare(_I, "tenure_set_tls", _P, _S, _S, _S)
_set_user = _declare(_I, "tenure_set_user", _P, _S, _S)
_start = _declare(_I, "tenure_start", _P)
_error = _declare(_S, "tenure_error", _P)
_version = _declare(_S, "tenure_version")
_get_fd = _declare(_I, "tenure_get_fd", _P)
_dispatch = _declare(_I, "tenure_dispatch", _P)
_wait = _declare(_I, "tenure_wait", _P, _I)
_pop_event = _declare(ctypes.POINTER(_Event), "tenure_pop_event", _P)
_follow = _declare(_I, "tenure_follow", _P, ctypes.c_uint)
_find_node = _declare(ctypes.POINTER(_Node), "tenure_find_node", _P, _S)
_next_node = _declare(ctypes.POINTER(_Node), "tenure_next_node", _P, _S)
_next_service = _declare(ctypes.POINTER(_Service), "tenure_next_service", _P, _S, ctypes.POINTER(_Service))
_hold_with_agent = _declare(_I, "tenure_hold_with_agent", _P)
_hold_own = _declare(_I, "tenure_hold_own", _P, ctypes.c_uint64, _S)
_leave = _declare(_I, "tenure_leave", _P)
_may_act = _declare(ctypes.c_bool, "tenure_may_act", _P)
_deadline = _declare(ctypes.c_uint64, "tenure_deadline", _P)
_lease = _declare(_L, "tenure_lease", _P)
_register = _declare(_I, "tenure_register", _P, ctypes.POINTER(_Service))
_unregister = _declare(_I, "tenure_unregister", _P, _S, _S)
_get = _declare(_I, "tenure_get", _P, ctypes.POINTER(_Range), _OUT)
_put = _declare(_I, "tenure_put", _P, _S, _N, _S, _N, _L, _OUT)
_put_held = _declare(_I, "tenure_put_held", _P, _S, _N, _S, _N, _OUT)
_put_named = _declare(_I, "tenure_put_named", _P, _S, _N, _S, _N, _S, _OUT)
_delete = _declare(_I, "tenure_delete", _P, ctypes.POINTER(_Range), _OUT)
_call_wait = _declare(_I, "tenure_call_wait", _P, _I)
_call_result = _declare(_I, "tenure_call_result", _P)
_call_free = _declare(_P, "tenure_call_free", _P)
_call_revision = _declare(_L, "tenure_call_revision", _P)
_call_n_kvs = _declare(_N, "tenure_call_n_kvs", _P, _N)
_call_kv = _declare(ctypes.POINTER(_Kv), "tenure_call_kv", _P, _N, _N)
_call_count = _declare(_L, "tenure_call_count", _P, _N)
_call_lease = _declare(_L, "tenure_call_lease", _P)
_call_lease_name = _declare(_S, "tenure_call_lease_name", _P)
_call_ttl_ms = _declare(_L, "tenure_call_ttl_ms", _P)
_lease_grant = _declare(_I, "tenure_lease_grant", _P, ctypes.c_uint64, _S, _OUT)
_lease_renew = _declare(_I, "tenure_lease_renew", _P, _L, _OUT), _declare(_I, "tenure_lease_renew_named", _P, _S, _OUT)
_lease_revoke = _declare(_I, "tenure_lease_revoke", _P, _L, _OUT), _declare(_I, "tenure_lease_revoke_named", _P, _S, _OUT)
_lease_look = _declare(_I, "tenure_lease_time_to_live", _P, _L, _OUT), _declare(_I, "tenure_lease_find", _P, _S, _OUT)
_lease_keys = _declare(_I, "tenure_lease_keys", _P, _L, _OUT), _declare(_I, "tenure_lease_keys_named", _P, _S, _OUT)
_watch = _declare(_I, "tenure_watch", _P, ctypes.POINTER(_WatchOptions), _OUT)
_watch_free = _declare(_P, "tenure_watch_free", _P)
_lock = _declare(_I, "tenure_lock", _P, _S, _S, _OUT)
_lock_token = _declare(_L, "tenure_lock_token", _P)
_lock_is_held = _declare(ctypes.c_bool, "tenure_lock_is_held", _P)
_unlock = _declare(_P, "tenure_unlock", _P)
_hand_over = _declare(_I, "tenure_hand_over", _P)
_lock_deadline = _declare(ctypes.c_uint64, "tenure_lock_deadline", _P)
_switchover = _declare(_I, "tenure_switchover", _P, _S, _S, _L, _OUT)
_switched = _declare(ctypes.POINTER(_Switched), "tenure_call_switched", _P)
_work_join = _declare(_I, "tenure_work_join", _P, _S, ctypes.POINTER(_WorkOptions), _OUT)
_work_leave = _declare(_P, "tenure_work_leave", _P)
_task_ended = _declare(_I, "tenure_task_ended", _P, _S)
_task_is_held = _declare(ctypes.c_bool, "tenure_task_is_held", _P, _S)
_task_token = _declare(_L, "tenure_task_token", _P, _S)


def _bytes(value):
    # Not bytes(value): for a number that makes as many zero bytes.
    return None if value is None else value.encode() if isinstance(value, str) else bytes(memoryview(value))


def _name(value):
    """A string for C, which would end at a zero byte."""
    name = _bytes(value)
    if name and b"\0" in name:
        raise ValueError(f"a name must not contain a zero byte: {value!r}")
    return name


def _fits(kind, value, what):
    """The number, if the C type has room for it; ctypes would silently drop the higher bits."""
    if kind(value).value != value:
        raise ValueError(f"{what} is out of range: {value}")
    return value


def _ms(kind, seconds, what):
    return _fits(kind, int(seconds * 1000), f"{what}, in milliseconds,")


def _text(value):
    return value.decode("utf-8", "replace") if value is not None else ""


def _tags(text):
    """'role=primary,zone=a' as a dict."""
    return dict(pair.partition("=")[::2] for pair in text.split(",") if pair)


class _Record:
    """A copy of a borrowed structure of libtenure: text becomes str, tags a dict, addresses a list."""

    def __init__(self, source):
        for name, kind in source._fields_:
            value = getattr(source, name)
            setattr(self, name, _text(value) if kind is ctypes.c_char_p else value)
        self.tags = _tags(self.tags)
        if hasattr(self, "addresses"):
            self.addresses = self.addresses.split(",") if self.addresses else []

    def __repr__(self):
        return f"<{type(self).__name__} {' '.join(f'{k}={v!r}' for k, v in vars(self).items() if v)}>"


class Node(_Record):
    """A host in the cluster."""


class Service(_Record):
    """A service on a host."""


class Kv:
    """A key with its value, as of one revision."""

    def __init__(self, source):
        self.key = ctypes.string_at(source.key, source.key_len) if source.key_len else b""
        self.value = ctypes.string_at(source.value, source.value_len) if source.value_len else b""
        self.create_revision, self.mod_revision = source.create_revision, source.mod_revision
        self.version, self.lease = source.version, source.lease

    def __repr__(self):
        return f"<Kv {self.key!r}={self.value!r} revision={self.mod_revision}>"


class Lease:
    """A lease as of the core's answer: `ttl` is the time that is left, in seconds, and `keys` its keys if they were asked for."""

    def __init__(self, call):
        self.id, self.ttl, self.name = _call_lease(call), _call_ttl_ms(call) / 1000, _text(_call_lease_name(call))
        self.keys = [Kv(_call_kv(call, 0, i).contents).key for i in range(_call_n_kvs(call, 0))]

    def __repr__(self):
        return f"<Lease {self.id:016x}{f' {self.name!r}' if self.name else ''} ttl={self.ttl}>"


class Event:
    """An event; members that do not apply to its type are None or 0."""

    def __init__(self, source, watches, locks, works):
        self.type, self.revision, self.error = Type(source.type), source.revision, source.error
        self.reason, self.lease = _text(source.reason), source.lease
        self.node = Node(source.node.contents) if source.node else None
        self.service = Service(source.service.contents) if source.service else None
        self.kv = Kv(source.kv.contents) if source.kv else None
        self.before = Kv(source.before.contents) if source.before else None
        self.watch = watches.get(source.watch) if source.watch else None
        self.lock = locks.get(source.lock) if source.lock else None
        self.work = works.get(source.work) if source.work else None
        self.task = _text(source.task) if source.task else None

    def __repr__(self):
        what = self.node or self.service or self.kv or self.lock or self.task
        return f"<Event {self.type.name} revision={self.revision}{f' {what!r}' if what else ''}{f' {self.reason}' if self.reason else ''}>"


class _Unique:
    """An object that libtenure knows by its address. It cannot be copied, since the copy would free it a second time."""

    def __reduce_ex__(self, protocol):
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled")


def _in_turn(method):
    """Wraps a method of something that belongs to a tie: no other thread closes the tie, or dispatches, meanwhile."""
    @functools.wraps(method)
    def in_turn(self, *arguments):
        with self._tie._turn:
            return method(self, *arguments)
    return in_turn


class Watch(_Unique):
    """A watch on a key or a range of keys. The tie reports changes as events of type PUT and DELETE with this as `watch`."""

    def __init__(self, tie, handle):
        self._tie, self._handle = tie, handle

    @_in_turn
    def close(self):
        if self._handle and self._tie._handle:
            self._tie._watches.pop(self._handle.value, None)
            _watch_free(self._handle)
        self._handle = None


class Lock(_Unique):
    """A lock that the tie has, or waits for. Each holder has a larger `token` than those before it, so that a resource can
    refuse smaller ones.

    A `with` statement gives the lock back at its end, and raises Lost there if the tie did not have it all the time, from
    the beginning of the statement to its end. That does not stop what runs: ask `held` before each act."""

    def __init__(self, tie, handle, name):
        self._tie, self._handle, self.name = tie, handle, name
        self._entered = 0  # the token with which a `with` statement began; 0: there is none, or it handed the lock over

    def _live(self):
        """The handle; None once the lock was given back or its tie was closed."""
        return self._handle if self._tie._handle else None

    @property
    @_in_turn
    def token(self):
        return _lock_token(self._handle) if self._live() else 0

    @property
    @_in_turn
    def held(self):
        """Whether the tie has the lock, and holds the place or the lease that the lock depends on."""
        return bool(self._live() and _lock_is_held(self._handle))

    @property
    @_in_turn
    def deadline(self):
        """When the tie loses the lock, unless something is renewed, or has to hand it over; in seconds of CLOCK_BOOTTIME.
        0: the tie does not have the lock."""
        return _lock_deadline(self._handle) / 1e6 if self._live() else 0

    @_in_turn
    def hand_over(self):
        """Answers Type.ASKED, once the program has stopped: the node or session that the event's reason names gets the lock
        next, and this tie waits for it again."""
        if not self._live():
            raise Error(errno.EINVAL, f"the lock '{self.name}' was given back")
        self._tie._ask(_hand_over(self._handle))
        self._entered = 0

    @_in_turn
    def release(self):
        """Gives the lock back, or stops waiting for it."""
        if self._live():
            self._tie._locks.pop(self._handle.value, None)
            self._tie._going.add(self._handle.value)
            _unlock(self._handle)
            self._tie._send()
        self._handle = None

    @_in_turn
    def _is_lost(self):
        """Whether this is not, or not still, the lock with which a `with` statement began."""
        if not self._live() or not self._entered:
            return False
        _dispatch(self._tie._handle)
        return not _lock_is_held(self._handle) or _lock_token(self._handle) != self._entered

    def __enter__(self):
        self._entered = self.token
        return self

    def __exit__(self, kind, *_):
        lost = self._is_lost()
        self.release()
        if lost and kind is None:
            raise Lost(errno.ESTALE, f"the lock '{self.name}' was lost before its with statement ended; "
                       "somebody else may have had it meanwhile")


class Switched:
    """The outcome of a switchover: the old holder `source`, the new holder `to` with its `token`, the time `stop_us` that
    the old one took to stop, and the time `pause_us` until the new one had the lock (None: not known), in microseconds."""

    def __init__(self, source):
        self.source, self.to, self.token = _text(getattr(source, "from")), _text(source.to), source.token
        self.stop_us, self.pause_us = source.stop_us, None if source.pause_us < 0 else source.pause_us

    def __repr__(self):
        return f"<Switched source={self.source!r} to={self.to!r} token={self.token} pause_us={self.pause_us}>"


class Work(_Unique):
    """A membership in a group whose members divide tasks. The events TASK_BEGIN and TASK_END have it as `work`, with the
    `task`. Answer TASK_END with ended(task) once nothing of the task runs any more."""

    def __init__(self, tie, handle, group):
        self._tie, self._handle, self.group = tie, handle, group

    def _live(self):
        """The handle; None once the group was left or its tie was closed."""
        return self._handle if self._tie._handle else None

    @_in_turn
    def held(self, task):
        """Whether the task is this member's, was not told to end, and the lease is held. Call it before each act."""
        return bool(self._live() and _task_is_held(self._handle, _name(task)))

    @_in_turn
    def token(self, task):
        """The fencing token, larger with each member that has the task; 0: the task is not this member's."""
        return _task_token(self._handle, _name(task)) if self._live() else 0

    @_in_turn
    def ended(self, task):
        if not self._live():
            raise Error(errno.EINVAL, f"the group '{self.group}' was left")
        self._tie._check(_task_ended(self._handle, _name(task)))

    @_in_turn
    def leave(self):
        """Ends all tasks and leaves the group. Answer each TASK_END until WORK_LEFT comes."""
        if self._live():
            _work_leave(self._handle)


def _piece(until):
    """How many milliseconds to wait at a time: at most 1000, because another thread may take the event that ends the wait."""
    left = 1.0 if until is None else min(1.0, until - time.monotonic())
    return max(0, int(left * 1000 + 0.999))


_ties = weakref.WeakSet()  # those that have a thread of the module


def _take_turns():
    """Waits until no thread of the module does anything, and keeps it so. Returns the ties."""
    ties = list(_ties)
    for tie in ties:
        tie._turn.acquire()
    return ties


_forking = []


def _before_fork():
    _forking.append(_take_turns())


def _after_fork():
    for tie in _forking.pop():
        tie._turn.release()


# A child, or an interpreter that ends, has no such thread any more; whatever it was doing would stay its turn for ever.
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
atexit.register(_take_turns)


def _dispatcher(tie):
    """What a tie does while its program does something else: renews its lease, follows its locks. @tie: a weak reference."""
    while (it := tie()) and it._work():
        it = None  # a tie that nobody else has is closed


class Tie(_Unique):
    """A tie to one cluster. Threads that share a tie take turns, and each event goes to one of them; prefer one tie per thread.

    endpoints       "http://10.0.0.1:2379,..."; None: $TENURE_ENDPOINTS, or the endpoint that this host's agent uses
    cluster         the cluster's name; None: the agent's, or "default"
    follow          NODES, SERVICES or both (NODES | SERVICES): report what exists, and then each change, as events
    hold            "agent": act by this host's place; a number: by a lease of the tie's own, with a TTL of so many seconds.
                    A thread dispatches, and so renews the lease and follows locks, whatever the program does meanwhile; events
                    wait until they are taken. Once the program has called fileno(), it dispatches by itself: the thread ends
    name            the name of that session; None: a random one
    ca, cert, key   paths of PEM files, for https:// endpoints
    user, password  whom to log in as, if the core has authentication enabled
    """

    _handle = None

    def __init__(self, endpoints=None, *, cluster=None, follow=0, hold=None, name=None, ca=None, cert=None, key=None,
                 user=None, password=None):
        self._handle = ctypes.c_void_p()
        self._turn = threading.RLock()  # whoever dispatches, or reads what is borrowed until the next dispatch
        self._news = threading.Condition(self._turn)  # for those who sleep while another thread waits for the descriptor
        self._awaited = False  # by one
        self._driven = False  # by the program, which has the descriptor
        self._watches, self._locks, self._works, self._synced = {}, {}, {}, False
        self._going = set()  # what is being given back: handles of locks, and "lease"
        r = _new(ctypes.byref(self._handle))
        if r < 0:
            raise Error(-r, os.strerror(-r))
        try:
            self._check(_set_endpoints(self._handle, _name(endpoints)))
            self._check(_set_cluster(self._handle, _name(cluster)))
            self._check(_set_tls(self._handle, _name(ca), _name(cert), _name(key)))
            self._check(_set_user(self._handle, _name(user), _name(password)))
            if follow:
                self._check(_follow(self._handle, _fits(ctypes.c_uint, follow, "follow")))
            if hold == "agent":
                self._check(_hold_with_agent(self._handle))
            elif hold is not None:
                self._check(_hold_own(self._handle, _ms(ctypes.c_uint64, hold, "hold"), _name(name)))
            self._check(_start(self._handle))
            if hold is not None:
                _ties.add(self)
                threading.Thread(target=_dispatcher, args=(weakref.ref(self),), name="tenure", daemon=True).start()
        except BaseException:
            self.close()
            raise

    def close(self, timeout=1):
        """Ends the tie, with its watches and locks. First waits up to `timeout` seconds until others can have what release()
        or leave() gave back. What was not given back, or takes longer, ends with the lease, by its TTL."""
        try:
            if self._handle and self._going:
                self._finish(timeout)
        finally:
            if self._handle:
                with self._turn:
                    handle, self._handle = self._handle, None
                    _free(handle)

    def _finish(self, timeout):
        """Waits for what is being given back: an etcd drops a request that it has not begun when the connection ends."""
        until = time.monotonic() + timeout
        with self._turn:
            while self._going and time.monotonic() < until and _wait(self._open, 0) >= 0:
                while self._pop():
                    pass
                if self._going:
                    self._sleep(until)

    def __del__(self):
        self.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def _open(self):
        """The handle, if the tie is not closed."""
        if not self._handle:
            raise Closed(errno.EBADF, "this tie is closed")
        return self._handle

    def _check(self, r):
        if r >= 0:
            return r
        raise Error(-r, _text(_error(self._handle)) or os.strerror(-r))

    def _send(self):
        """Sends the request that was just made, since the program may now do something else or close the tie. A request
        that cannot be sent yet, and an error, are left to the next dispatch."""
        with self._turn:
            _dispatch(self._open)
            self._news.notify_all()

    def _ask(self, r):
        """Raises an Error if the library refused the request; otherwise sends it at once."""
        self._check(r)
        self._send()

    # ---- waiting ----

    def fileno(self):
        """The descriptor: while it is readable there is something to dispatch, which is the caller's to do from now on."""
        with self._turn:
            self._driven = True
            return _get_fd(self._open)

    def _work(self):
        """Does what is due, and waits for more. Returns False if that is not the module's to do any more."""
        with self._turn:
            if not self._handle or self._driven or _dispatch(self._handle) < 0:
                return False
            self._news.notify_all()
            self._sleep(None)
        return True

    def dispatch(self):
        """Does the work that is due, without waiting."""
        with self._turn:
            self._check(_dispatch(self._open))
            self._news.notify_all()

    def _sleep(self, until):
        """Until there is something to dispatch, another thread has dispatched, or a piece of the time is over. It is this
        thread's turn, before and after."""
        if self._awaited:
            self._news.wait(_piece(until) / 1000)
            return
        poll = select.poll()
        poll.register(_get_fd(self._open), select.POLLIN)
        self._awaited = True
        self._turn.release()
        try:
            poll.poll(_piece(until))
        finally:
            self._turn.acquire()
            self._awaited = False
            self._news.notify_all()

    def pop(self):
        """Takes the next event; None if there is none."""
        with self._turn:
            return self._pop()

    def _pop(self):
        source = _pop_event(self._open)
        if not source:
            return None
        if source.contents.type == Type.UNLOCKED:
            self._going.discard(source.contents.lock)
        elif source.contents.type == Type.LOST:
            self._going.discard("lease")
        event = Event(source.contents, self._watches, self._locks, self._works)
        if event.type == Type.WORK_LEFT and not event.error and event.work:
            self._works.pop(event.work._handle.value)
            event.work._handle = None
        if event.type in (Type.SYNCED, Type.STALE):
            self._synced = event.type == Type.SYNCED
        return event

    def wait(self, timeout=None):
        """Waits for the next event and takes it; None after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        with self._turn:
            while True:
                if self._check(_wait(self._open, 0)) > 0:
                    self._news.notify_all()
                    event = self._pop()
                    if event and event.type != Type.REPLY:
                        return event
                elif until is not None and time.monotonic() >= until:
                    return None
                else:
                    self._sleep(until)

    def __iter__(self):
        while True:
            yield self.wait()

    # ---- nodes and services ----

    def nodes(self):
        """A dict of all nodes by name, as of the last dispatch."""
        with self._turn:
            found, at = {}, _next_node(self._open, None)
            while at:
                node = Node(at.contents)
                found[node.name] = node
                at = _next_node(self._open, node.name.encode())
        return found

    def services(self, name):
        """A list of all instances of a service, as of the last dispatch."""
        with self._turn:
            found, at = [], _next_service(self._open, _name(name), None)
            while at:
                found.append(Service(at.contents))
                at = _next_service(self._open, _name(name), at)
        return found

    def synced(self, timeout=10):
        """Waits until everything that exists was reported; nodes() and services() return it then. Events that come meanwhile
        are dropped."""
        until = time.monotonic() + timeout
        while not self._synced:
            if time.monotonic() >= until:
                raise Error(errno.ETIMEDOUT, _text(_error(self._open)) or f"no replica has reported the nodes and services within {timeout} s")
            self.wait(max(0, until - time.monotonic()))
        return self

    # ---- may I still act? ----

    @property
    def may_act(self):
        with self._turn:
            return bool(self._handle and _may_act(self._handle))

    @property
    def lease(self):
        with self._turn:
            return _lease(self._handle) if self._handle else 0

    @property
    def deadline(self):
        """The holder's deadline in seconds of time.CLOCK_BOOTTIME; 0: nothing is held."""
        with self._turn:
            return _deadline(self._handle) / 1e6 if self._handle else 0

    def held(self, timeout=10):
        """Waits until the place or the lease is held, and returns the tie. Events that come meanwhile are dropped."""
        until = time.monotonic() + timeout
        while not self.may_act:
            if time.monotonic() >= until:
                raise Error(errno.ETIMEDOUT, _text(_error(self._open)) or "nothing is held yet")
            self.wait(min(0.1, max(0, until - time.monotonic())))
        return self

    def leave(self):
        """Gives a lease of the tie's own back. With the agent's place, only this tie stops acting by it."""
        if self.lease:
            self._going.add("lease")
        self._ask(_leave(self._open))

    def register(self, name, *, instance="", address="", port=0, tags=None):
        """Publishes this program as a service while the place or the lease is held."""
        text = ",".join(f"{k}={v}" for k, v in (tags or {}).items())
        self._ask(_register(self._open, ctypes.byref(_Service(
            name=_name(name), instance=_name(instance), address=_name(address),
            port=_fits(ctypes.c_uint16, port, "port"), tags=_name(text)))))

    def unregister(self, name, instance=""):
        self._ask(_unregister(self._open, _name(name), _name(instance)))

    # ---- keys ----

    def _answer(self, call, timeout, read):
        try:
            until = None if timeout is None else time.monotonic() + timeout
            with self._turn:
                while True:
                    handle = self._open  # of a tie that was closed meanwhile there is no call any more
                    r = _call_wait(call, 0)
                    ended = _call_result(call) != -errno.EINPROGRESS
                    if ended or r != -errno.ETIMEDOUT or (until is not None and time.monotonic() >= until):
                        break
                    self._sleep(until)
                self._news.notify_all()
                if r < 0:
                    kind = Refused if r in (-errno.ESTALE, -errno.ECANCELED) else Error
                    raise kind(-r, _text(_error(handle)) or os.strerror(-r))
                return read(call)
        finally:
            with self._turn:
                if self._handle:
                    _call_free(call)

    def _begin(self, function, *arguments):
        call = ctypes.c_void_p()
        with self._turn:
            self._check(function(self._open, *arguments, ctypes.byref(call)))
        return call

    def range(self, key, *, end=None, prefix=False, limit=0, revision=0, keys_only=False, serializable=False, timeout=10):
        """The keys of a range, as a list of Kv."""
        k, e = _bytes(key), _bytes(end)
        q = _Range(key=k, key_len=len(k), end=e, end_len=len(e or b""), prefix=prefix, limit=_fits(_L, limit, "limit"),
                   revision=_fits(_L, revision, "revision"), keys_only=keys_only, serializable=serializable)
        return self._answer(self._begin(_get, ctypes.byref(q)), timeout,
                            lambda c: [Kv(_call_kv(c, 0, i).contents) for i in range(_call_n_kvs(c, 0))])

    def get(self, key, **options):
        """The Kv of one key; None if there is no such key."""
        return next(iter(self.range(key, **options)), None)

    def put(self, key, value, *, lease=0, timeout=10):
        """Writes a key, and returns the revision. `lease` is the id or the name of a lease, with which the key ends."""
        k, v = _bytes(key), _bytes(value)
        if isinstance(lease, (str, bytes)):
            return self._answer(self._begin(_put_named, k, len(k), v, len(v), _name(lease)), timeout, _call_revision)
        return self._answer(self._begin(_put, k, len(k), v, len(v), _fits(_L, lease, "lease")), timeout, _call_revision)

    def put_held(self, key, value, *, timeout=10):
        """As put(), but takes effect only while the place or the lease is held, which the core decides; otherwise raises
        Refused."""
        k, v = _bytes(key), _bytes(value)
        return self._answer(self._begin(_put_held, k, len(k), v, len(v)), timeout, _call_revision)

    def delete(self, key, *, end=None, prefix=False, timeout=10):
        """Deletes a key or a range of keys, and returns how many were deleted."""
        k, e = _bytes(key), _bytes(end)
        q = _Range(key=k, key_len=len(k), end=e, end_len=len(e or b""), prefix=prefix)
        return self._answer(self._begin(_delete, ctypes.byref(q)), timeout, lambda c: _call_count(c, 0))

    def watch(self, key, *, end=None, prefix=False, revision=0, before=False):
        """Reports each change once and in order, as events of type PUT and DELETE."""
        k, e, handle = _bytes(key), _bytes(end), ctypes.c_void_p()
        o = _WatchOptions(key=k, key_len=len(k), end=e, end_len=len(e or b""), prefix=prefix,
                          revision=_fits(_L, revision, "revision"), before=before)
        self._check(_watch(self._open, ctypes.byref(o), ctypes.byref(handle)))
        self._watches[handle.value] = watch = Watch(self, handle)
        return watch

    # ---- leases ----

    def lease_grant(self, ttl, *, name=None, timeout=10):
        """Grants a Lease that ends `ttl` seconds after its last renewal. At most one lease has a given name at a time."""
        lease = self._answer(self._begin(_lease_grant, _ms(ctypes.c_uint64, ttl, "ttl"), _name(name)), timeout, Lease)
        lease.name = _text(_bytes(name))
        return lease

    def _of_lease(self, functions, lease, timeout, read):
        by_id, by_name = functions
        if isinstance(lease, (str, bytes)):
            return self._answer(self._begin(by_name, _name(lease)), timeout, read)
        id = lease.id if isinstance(lease, Lease) else lease
        return self._answer(self._begin(by_id, _fits(_L, id, "lease")), timeout, read)

    def lease_renew(self, lease, *, timeout=10):
        """Renews a lease once, by its id or by its name."""
        return self._of_lease(_lease_renew, lease, timeout, Lease)

    def lease_revoke(self, lease, *, timeout=10):
        """Ends a lease, and deletes its keys."""
        return self._of_lease(_lease_revoke, lease, timeout, lambda call: None)

    def lease_look(self, lease, *, keys=False, timeout=10):
        """Looks a Lease up by its id or by its name, which may be the name of a node. No such lease: an Error with ENOENT."""
        return self._of_lease(_lease_keys if keys else _lease_look, lease, timeout, Lease)

    # ---- locks ----

    def lock(self, name, value=None, *, timeout=None):
        """Waits for a lock, which is granted in the order of requests, and returns it; leaving a `with` gives it back. Events
        that come meanwhile are dropped: a program that needs them calls lock_begin() and waits for LOCKED."""
        lock = self.lock_begin(name, value)
        until = None if timeout is None else time.monotonic() + timeout
        try:
            while not lock.held:
                event = self.wait(0.1 if until is None else min(0.1, max(0, until - time.monotonic())))
                if event and event.lock is lock and event.type == Type.UNLOCKED:
                    raise Error(-event.error or errno.ESTALE, event.reason)
                if until is not None and time.monotonic() >= until and not lock.held:
                    raise Error(errno.ETIMEDOUT, f"the lock '{name}' is held by somebody else")
        except BaseException:
            lock.release()
            raise
        return lock

    def switchover(self, lock, to=None, *, within=30):
        """Asks the holder of a lock to stop, within `within` seconds, and to hand the lock over to the node or session `to`,
        which must wait for it; None: to the next in line. Returns a Switched."""
        call = self._begin(_switchover, _name(lock), _name(to), _ms(_L, within, "within"))
        return self._answer(call, within + 120, lambda c: Switched(_switched(c).contents))

    def lock_begin(self, name, value=None):
        """Begins to wait for a lock, and returns it at once; the events LOCKED and UNLOCKED follow."""
        handle = ctypes.c_void_p()
        self._check(_lock(self._open, _name(name), _name(value), ctypes.byref(handle)))
        self._locks[handle.value] = lock = Lock(self, handle, name)
        return lock

    # ---- shared work ----

    def work(self, group, tasks, *, weight=0, settle=0):
        """Joins a group, which needs a tie with `hold=SECONDS`; the member is called as its `name`. tasks: a list of names,
        or a number of tasks, which are then named "1", "2" and so on. weight: this member's share relative to the others [100].
        settle: tasks move to new members once nobody has joined for this many seconds [1]."""
        names = None if isinstance(tasks, int) else [_name(name) for name in tasks]
        array = None if names is None else (ctypes.c_char_p * len(names))(*names)
        o = _WorkOptions(tasks=array, n_tasks=_fits(_N, tasks, "tasks") if names is None else len(names),
                         weight=_fits(ctypes.c_uint, weight, "weight"), settle_ms=_ms(ctypes.c_uint, settle, "settle"))
        handle = ctypes.c_void_p()
        self._check(_work_join(self._open, _name(group), ctypes.byref(o), ctypes.byref(handle)))
        self._works[handle.value] = work = Work(self, handle, group)
        return work


def version():
    return _text(_version())
