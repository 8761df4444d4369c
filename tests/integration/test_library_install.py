"""libtenure as programs find it once it is installed."""
import os
import re

import pytest
from harness.agent import Agent
from harness.library import sanitizers
from harness.places import BIN, SO, TOP
from harness.program import run
from harness.waiting import eventually, eventually_is

INCLUDED = "#include <tenure.h>\nint main(void) { return tenure_version() == 0; }\n"
LANGUAGES = {"C99": ["gcc", "-std=c99"], "GNU C11": ["gcc", "-std=gnu11"],
             "C++11": ["g++", "-x", "c++", "-std=c++11"]}


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    """Where it is installed."""
    root = tmp_path_factory.mktemp("installed")
    # What is built: other tests use it meanwhile, so nothing must be compiled.
    run("make", "-s", f"MODE={BIN.parent.name}", "CC=false", f"DESTDIR={root}", "PREFIX=/usr",
        "install", cwd=TOP)
    return root


@pytest.fixture(scope="session")
def installed(root):
    """What pkg-config says of it, by option."""
    return lambda *options: run(
        "pkg-config", *options, "libtenure", PKG_CONFIG_SYSROOT_DIR=str(root),
        PKG_CONFIG_PATH=str(root / "usr/lib/pkgconfig")).split()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_header_is_found_with_pkg_config_and_included(language, installed, tmp_path):
    source = tmp_path / "program"
    source.write_text(INCLUDED)

    run(*LANGUAGES[language], *(["-x", "c"] if "++" not in language else []), "-pedantic", "-Wall",
        "-Wextra", "-Werror", *sanitizers()[0], "-o", tmp_path / "a.out", source, "-x", "none",
        *installed("--cflags", "--libs"))

    run(tmp_path / "a.out", LD_LIBRARY_PATH=str(SO))
    assert installed("--modversion")[0] == run(BIN / "tenured", "--version").split()[1]


def functions():
    listed = (TOP / "lib/tenure/libtenure.sym").read_text()
    return set(re.findall(r"^\t(tenure_\w+);$", listed, re.M))


def test_each_function_is_listed_exported_declared_and_in_one_manual_page():
    folder = TOP / "lib/tenure"
    symbols = [line.split() for line in
               run("nm", "-D", "--defined-only", SO / "libtenure.so.0").splitlines()]
    header = (folder / "tenure.h").read_text()
    pages = "".join(page.read_text() for page in folder.glob("*.3"))

    assert {name.split("@")[0] for _, kind, name in symbols if kind != "A"} == functions()
    assert set(re.findall(r"\b(tenure_[a-z_]+)\(", header)) == functions()
    assert sorted(re.findall(r"^\.Nm (tenure_\w+)", pages, re.M)) == sorted(functions())


def test_man_finds_each_function_and_shows_the_version(root):
    manual = root / "usr/share/man"
    version = run(BIN / "tenured", "--version").split()[1]
    missing = {name for name in functions() if not (manual / f"man3/{name}.3").is_file()}
    without = {page.name for page in manual.glob("man*/*")
               if f'\n.Os "Tenure {version}"\n' not in page.read_text()}

    assert (missing, without) == (set(), set())
    assert "BSD" not in run("man", "-l", manual / "man8/tenured.8", MANPAGER="cat").splitlines()[0]


# A program whose output is a file keeps it back; stdbuf(1) would be in the sanitizers' way.
BY_LINES = """
__attribute__((constructor)) static void by_lines(void) { setvbuf(stdout, NULL, _IOLBF, 0); }
"""


def examples_of_the_page():
    text = (TOP / "lib/tenure/libtenure.3").read_text().replace(r"\en", r"\n").replace(r"\&", "")
    return [found + BY_LINES for found in
            re.findall(r"^#include <stdio.h>.*?^}$", text, re.M | re.S)]


def test_programs_that_join_as_the_manual_page_shows_see_each_other(engine, program):
    joins = program.compile(examples_of_the_page()[1])

    one = program.start(joins, "web1", TENURE_ENDPOINTS=engine.endpoints)
    eventually(lambda: "at work" in one.lines())
    two = program.start(joins, "web2", TENURE_ENDPOINTS=engine.endpoints)
    eventually(lambda: "web2 joined" in one.lines() and "web1 joined" in two.lines())
    two.kill()

    eventually(lambda: "web2 left: stopped" in one.lines())


@pytest.fixture
def cluster(new_cluster):
    return new_cluster(1)


@pytest.mark.parametrize("own", ["cluster", "etcd"])
def test_a_program_learns_what_has_happened_while_its_core_was_away(request, tmp_path, own, program):
    core = request.getfixturevalue(own)
    server, endpoints = core if own == "etcd" else core.leader(), core.endpoints
    Agent(tmp_path, core, "h1")
    follower = program.c(examples_of_the_page()[0], TENURE_ENDPOINTS=endpoints)
    eventually(follower.lines)
    Agent(tmp_path, core, "h2", TTL="2s").kill()
    eventually(lambda: "left h2: expired" in follower.lines())

    server.stop()
    Agent(tmp_path, core, "h3", Endpoints=endpoints, held=False)
    server.start()

    eventually_is(["joined h1", "joined h2", "left h2: expired", "joined h3"], follower.lines)
    assert len(os.listdir(f"/proc/{follower.pid}/task")) == 1  # the library starts no thread
