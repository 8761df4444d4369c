"""Programs that use libtenure, in C and in Python."""
import functools

from .places import SO, TOP
from .program import Daemon, run

_INCLUDE = TOP / "lib/tenure"
_WARNINGS = ["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror"]


@functools.cache
def sanitizers():
    """What a program must be compiled with, and what a Python must preload."""
    symbols = run("nm", "-D", SO / "libtenure.so.0")
    if "__asan_init" in symbols:
        return ["-fsanitize=address,undefined"], "libasan.so"
    if "__tsan_init" in symbols:
        return ["-fsanitize=thread"], "libtsan.so"
    return [], None


def python(*words, **environment):
    """The command of a Python that has `import tenure`, and its environment."""
    _, preload = sanitizers()
    if preload:
        environment["LD_PRELOAD"] = run("gcc", f"-print-file-name={preload}").strip()
        environment["ASAN_OPTIONS"] = "detect_leaks=0"  # an interpreter's are not ours
    return ["/usr/bin/python3", "-Bu", *words], {
        "LD_LIBRARY_PATH": str(SO), "PYTHONPATH": str(TOP / "lib/tenure/python"), **environment}


class Program:
    """Compiles and starts programs for a test; their logs and binaries are in @folder."""

    def __init__(self, folder):
        self.folder, self.n = folder, 0

    def start(self, program, *arguments, name=None, **environment):
        """@program: what compile() has returned, or any command."""
        self.n += 1
        log = self.folder / f"{name or program.name}.{self.n}.log"
        return Daemon(log, program, *arguments, out=log.with_suffix(".out"), **environment).start()

    def compile(self, source, *options):
        """@source: C, or the path of a .c file from the top of the tree. @options: of the
        compiler. Returns the program."""
        self.n += 1
        if source.endswith(".c"):
            path = TOP / source
        else:
            path = self.folder / f"program{self.n}.c"
            path.write_text(source)
        program = self.folder / f"{path.stem}.{self.n}"
        flags, _ = sanitizers()
        run("gcc", *_WARNINGS, *flags, "-I", _INCLUDE, "-o", program, path, "-L", SO, "-ltenure",
            "-Xlinker", "-rpath", "-Xlinker", SO, *options)
        return program

    def c(self, source, *arguments, **environment):
        """Compiles it, and starts it."""
        return self.start(self.compile(source), *arguments, **environment)

    def python(self, text, *arguments, **environment):
        """Starts a Python that has `import tenure`."""
        command, environment = python("-c", text, *arguments, **environment)
        return self.start(*command, name="python", **environment)
