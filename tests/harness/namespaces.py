"""Kernel namespaces of a test's own, for root."""
import contextlib
import ctypes
import os

from .program import run

_FS, _FLAGS = 0x200, {"mnt": 0x20000, "net": 0x40000000}
_libc = ctypes.CDLL(None, use_errno=True)


def _system(call, *arguments):
    if call(*arguments):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextlib.contextmanager
def namespaces(*kinds):
    """What is started in this context, and the test itself, is in new ones: "mnt", "net"."""
    folder = os.getcwd()
    before = [(os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY), _FLAGS[kind])
              for kind in kinds]
    _system(_libc.unshare, _FS | sum(flag for _, flag in before))
    try:
        if "mnt" in kinds:
            run("mount", "--make-rprivate", "/")
        yield
    finally:
        for namespace, flag in before:
            _system(_libc.setns, namespace, flag)
            os.close(namespace)
        os.chdir(folder)  # another mount namespace begins at its root
