"""Where things are, and the environment of every program that a test starts."""
import os
import pathlib

TOP = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BIN") or TOP / "build/release/bin").resolve()
SO = BIN.parent / "so"

# Nothing of whoever runs the tests: their verdict is to be the same everywhere. A program that gets
# no bus must not find that of this machine.
ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "DBUS_SYSTEM_BUS_ADDRESS": "unix:abstract=tenure-tests-have-no-such-bus",
    "ETCDCTL_API": "3",
    # Where a program of MODE=cov counts what it reaches.
    **{name: os.environ[name] for name in ["LLVM_PROFILE_FILE"] if name in os.environ},
}
