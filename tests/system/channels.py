"""Channels of Debian's grpc, which now and then takes a connection that has only begun for a failed one.

Before grpc 1.61, errno is looked at some calls after connect(2), and what came between may have changed it: "failed to
connect to all addresses; last error: UNKNOWN: ipv4:…: No such file or directory" (https://github.com/grpc/grpc/pull/35064).
A call waits until its channel has connected, so, for as long as it has time; it fails as ever once it has been sent."""
import os
import sys

import grpc

WAITS = ("grpc.service_config", '{"methodConfig": [{"name": [{}], "waitForReady": true}]}')


def to(target, options=(), credentials=None):
    options = [WAITS, *options]
    return grpc.secure_channel(target, credentials, options) if credentials else grpc.insecure_channel(target, options)


def polled(target, options=()):
    """One whose calls fail at once while it has no connection. Its attempts to get one are looked at by its calls alone, and
    between two that fail, by nobody: with a short limit for an attempt (grpc.min_reconnect_backoff_ms) none comes through to a
    server that does not speak first, as neither etcd nor tenure-core does. So somebody else looks, too: leave with end()."""
    channel = grpc.insecure_channel(target, list(options))
    channel.subscribe(lambda state: None, try_to_connect=True)
    return channel


def end(code):
    """Ends the process. A channel that is collected at the interpreter's end waits for the thread that looks after it, which
    has gone by then: sys.exit() does not return."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
