"""Pipes that nobody reads."""
import contextlib
import os


def full_pipe(folder):
    """Its path, and the descriptor to read from: until then it takes nothing more."""
    path = folder / "full"
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, bytes(4096))
    return path, pipe


def unread_pipe(folder):
    """Its path, and the end of a reader who has not read yet; it breaks if he closes it."""
    path = folder / "unread"
    os.mkfifo(path)
    return path, os.open(path, os.O_RDONLY | os.O_NONBLOCK)
